//! Times of collectives on an idle fat tree with full bisection, against closed formulas: alpha-beta, with pipelining for aggregation.
//!
//! A message of `m` bytes needs `alpha + ser(m)`: alpha is two adapter delays, and for every cable the time of flight and for every
//! switch its delay; `ser` is the time of all its packets, with headers, on one link. Switches cut through, so a message is
//! serialised once. Only acknowledgements are not in the formulas; they take less than 0.1 % of the links.

use simulator::collective::NoObserver;
use simulator::scenario::Scenario;

const LEAVES: u32 = 8;
const HOSTS_PER_LEAF: u32 = 8;
const RANKS: u32 = LEAVES * HOSTS_PER_LEAF;
const WIRE: f64 = 20.0;
const SWITCH: f64 = 130.0;
const ADAPTER: f64 = 250.0;
/// HDR: bytes per nanosecond.
const RATE: f64 = 25.0;
const MTU: u32 = 4_096;
/// Headers and CRCs of a packet between hosts.
const HOST_HEADERS: u32 = 26;

/// The time of one allreduce, in nanoseconds.
fn simulated(algorithm: &str, bytes: u32, further: &str) -> f64 {
    simulated_operation("allreduce", algorithm, bytes, further)
}

fn simulated_operation(operation: &str, algorithm: &str, bytes: u32, further: &str) -> f64 {
    let text = format!(
        "[fabric]\nkind = \"xgft\"\nchildren = [{HOSTS_PER_LEAF}, {LEAVES}]\nparents = [1, {HOSTS_PER_LEAF}]\n\
         [link]\nrate = \"HDR\"\nwire-ns = {WIRE}\nswitch-delay-ns = {SWITCH}\nadapter-delay-ns = {ADAPTER}\nbuffer-bytes = 65536\n\
         [collective]\noperation = \"{operation}\"\nalgorithm = \"{algorithm}\"\nsize-only-bytes = {bytes}\noperations = 2\n{further}"
    );
    let scenario = Scenario::parse(&text, "test.toml").unwrap_or_else(|error| panic!("{error}"));
    let mut run = scenario.set_up(1).unwrap_or_else(|error| panic!("{error}"));
    let timings = run.run(2, &mut NoObserver, |_| ());
    timings[1].complete.expect("it completes").as_nanos_f64()
}

/// The latency of the smallest message between two hosts.
fn alpha(from: u32, to: u32) -> f64 {
    let switches = if from / HOSTS_PER_LEAF == to / HOSTS_PER_LEAF { 1.0 } else { 3.0 };
    2.0 * ADAPTER + (switches + 1.0) * WIRE + switches * SWITCH
}

/// The time of a message's packets on a link.
fn serialised(bytes: u32) -> f64 {
    f64::from(bytes + bytes.div_ceil(MTU) * HOST_HEADERS) / RATE
}

fn assert_close(what: &str, found: f64, expected: f64) {
    let off = found / expected - 1.0;
    println!("{what}: {found:.0} ns simulated, {expected:.0} ns by formula, {:+.2} %", 100.0 * off);
    assert!(off.abs() < 0.01, "{what}: {found} ns, expected {expected} ns ({:+.2} %)", 100.0 * off);
}

/// Around the ring each step waits for the neighbour's last one, so the time is that of a message that goes from edge to edge:
/// 2 (p - 1) of them, with the most slow edges that a walk can have.
#[test]
fn a_ring_takes_what_the_formula_says() {
    for bytes in [1 << 20, 8 << 20] {
        assert_close("ring", simulated("ring", bytes, ""), around_the_ring(2 * (RANKS - 1), bytes));
    }
}

/// The time of so many steps around the ring, each with a block of the vector.
fn around_the_ring(steps: u32, bytes: u32) -> f64 {
    let walk =
        |start: u32| -> f64 { (start..start + steps).map(|edge| alpha(edge % RANKS, (edge + 1) % RANKS)).sum() };
    let longest = (0..RANKS).map(walk).fold(0.0, f64::max);
    longest + f64::from(steps) * serialised(bytes / RANKS)
}

/// Half of an allreduce each: p - 1 steps.
#[test]
fn a_ring_reduce_scatter_and_allgather_take_what_the_formula_says() {
    for operation in ["reduce-scatter", "allgather"] {
        for bytes in [256 << 10, 1 << 20, 8 << 20] {
            let found = simulated_operation(operation, "ring", bytes, "");
            assert_close(operation, found, around_the_ring(RANKS - 1, bytes));
        }
    }
}

/// Halves of halves, and the same in reverse: log2 p exchanges.
#[test]
fn halving_and_doubling_of_blocks_take_what_the_formula_says() {
    for (operation, algorithm) in [("reduce-scatter", "recursive-halving"), ("allgather", "recursive-doubling")] {
        for bytes in [1 << 20, 8 << 20] {
            let rounds = RANKS.ilog2();
            let alphas: f64 = (0..rounds).map(|round| alpha(0, 1 << round)).sum();
            let parts: f64 = (1..=rounds).map(|round| serialised(bytes >> round)).sum();
            assert_close(operation, simulated_operation(operation, algorithm, bytes, ""), alphas + parts);
        }
    }
}

/// A host's link passes p - 1 blocks, one after the other. Blocks of several hosts for one meet at its link, which costs less than a fifth.
#[test]
fn a_pairwise_alltoall_is_near_the_rate_of_the_links() {
    for bytes in [1 << 20, 8 << 20] {
        let found = simulated_operation("alltoall", "pairwise", bytes, "");
        let least = alpha(0, RANKS - 1) + f64::from(RANKS - 1) * serialised(bytes / RANKS);
        println!("alltoall: {found:.0} ns simulated, at least {least:.0} ns");
        assert!(found > 0.999 * least && found < 1.2 * least, "{found} ns, at least {least} ns");
    }
}

/// Halves of halves there, and back: in round k a rank exchanges `bytes / 2^k` with a partner.
#[test]
fn rabenseifner_takes_what_the_formula_says() {
    for bytes in [1 << 20, 8 << 20] {
        let rounds = RANKS.ilog2();
        // Partners of the first rounds are half the ranks apart, or next to each other: both orders have the same sum of alphas.
        let alphas: f64 = (0..rounds).map(|round| alpha(0, 1 << round)).sum();
        let parts: f64 = (1..=rounds).map(|round| serialised(bytes >> round)).sum();
        assert_close("rabenseifner", simulated("rabenseifner", bytes, ""), 2.0 * (alphas + parts));
    }
}

/// The root of a binomial tree receives from, and sends to, one child after the other, and each message waits for the last.
#[test]
fn a_tree_takes_what_the_formula_says() {
    for bytes in [64 << 10, 1 << 20] {
        let rounds = RANKS.ilog2();
        let alphas: f64 = (0..rounds).map(|round| alpha(0, 1 << round)).sum();
        let expected = 2.0 * (alphas + f64::from(rounds) * serialised(bytes));
        assert_close("tree", simulated("tree", bytes, ""), expected);
    }
}

/// The first packet goes up, stored and reduced at two levels, and down; all others follow at the rate of a link.
#[test]
fn aggregation_takes_what_the_formula_says() {
    let header = u32::try_from(wire::aggregation::AggregationHeader::SIZE).expect("small");
    for bytes in [1 << 20, 8 << 20] {
        let packet = f64::from(MTU + HOST_HEADERS + header) / RATE;
        let packets = f64::from(bytes / MTU);
        // Up: two links, each stores the packet; the switches reduce in their delay. Down: two switches cut through.
        let up = ADAPTER + 2.0 * (WIRE + packet + SWITCH);
        let down = 2.0 * WIRE + SWITCH + packet + ADAPTER;
        let expected = up + down + (packets - 1.0) * packet;
        assert_close("aggregation", simulated("aggregation", bytes, "window = 64\n"), expected);
    }
}
