//! Flows over small fabrics, against bounds that can be computed by hand.

use crate::collective::NoObserver;
use crate::scenario::{Scenario, ScenarioRun};

/// Payload of a full packet, and its bytes on an InfiniBand link and on Ethernet.
const PAYLOAD: f64 = 4_096.0;
const IB_BYTES: f64 = 4_096.0 + 26.0;
const ETHERNET_BYTES: f64 = IB_BYTES + 56.0;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn run(scenario: &Scenario) -> ScenarioRun {
    let mut run = scenario.set_up(scenario.seed).unwrap_or_else(|error| panic!("{error}"));
    run.run(1, &mut NoObserver, |_| ());
    run
}

/// 16 hosts, 4 leaves of 4, full bisection.
const FAT_TREE: &str = "[fabric]\nkind = \"xgft\"\nchildren = [4, 4]\nparents = [1, 4]\n";
const HDR: &str = "[link]\nrate = \"HDR\"\nwire-ns = 10\nbuffer-bytes = 65536\n";
/// HDR: 25 bytes a nanosecond.
const HDR_PAYLOAD_RATE: f64 = 25.0 * PAYLOAD / IB_BYTES;

/// Payload bytes per nanosecond of a class, all flows together.
fn throughput(run: &ScenarioRun) -> f64 {
    let record = &run.traffic()[0];
    let (start, end) = record.span.expect("it started");
    record.bytes as f64 / end.since(start).as_nanos_f64()
}

#[test]
fn an_incast_fills_the_receivers_link_and_no_more() {
    for link in [HDR.to_owned(), "[link]\nrate = \"200G\"\nwire-ns = 10\ncongestion-control = \"none\"\n".to_owned()]
    {
        let text = format!("{FAT_TREE}{link}[[traffic]]\npattern = \"incast\"\nto = 3\nbytes = 4000000\n");
        let run = run(&scenario(&text));
        let record = &run.traffic()[0];
        assert_eq!((record.completed, record.failed, record.bytes), (15, 0, 15 * 4_000_000));
        let most = if link == HDR { HDR_PAYLOAD_RATE } else { 25.0 * PAYLOAD / ETHERNET_BYTES };
        let rate = throughput(&run);
        assert!(rate <= most * 1.000_1, "{rate} of {most}");
        assert!(rate > 0.98 * most, "{rate} of {most}");
        // All share the link until the end, so the slowest needs the time of all.
        let slowest = record.records.iter().map(|record| record.time).max().expect("they completed");
        assert!(slowest.as_nanos_f64() > 15.0 * 4e6 / most);
    }
}

#[test]
fn a_shifted_permutation_runs_at_line_rate_on_a_full_bisection() {
    let text = format!("{FAT_TREE}{HDR}[[traffic]]\npattern = \"permutation\"\nshift = 5\nbytes = 4000000\n");
    let run = run(&scenario(&text));
    let rate = throughput(&run) / 16.0;
    assert!(rate <= HDR_PAYLOAD_RATE * 1.000_1 && rate > 0.98 * HDR_PAYLOAD_RATE, "{rate} of {HDR_PAYLOAD_RATE}");
}

#[test]
fn a_taper_of_two_halves_what_crosses_the_spine() {
    let taper = FAT_TREE.replace("parents = [1, 4]\n", "parents = [1, 4]\ntaper = 2\n");
    let text = format!("{taper}{HDR}[[traffic]]\npattern = \"permutation\"\nshift = 4\nbytes = 4000000\n");
    let parsed = scenario(&text);
    assert_eq!(parsed.fabric.to_string(), "XGFT(2;4,4;1,2)");
    let rate = throughput(&run(&parsed)) / 16.0 / HDR_PAYLOAD_RATE;
    assert!(rate <= 0.500_1 && rate > 0.48, "{rate}");
}

#[test]
fn routes_by_packet_avoid_the_collisions_of_routes_by_flow() {
    let rate = |routing: &str| {
        let link = format!("{HDR}routing = \"{routing}\"\n");
        let text = format!("{FAT_TREE}{link}[[traffic]]\npattern = \"permutation\"\nbytes = 4000000\n");
        throughput(&run(&scenario(&text))) / 16.0 / HDR_PAYLOAD_RATE
    };
    let (hashed, sprayed, adaptive) = (rate("ecmp"), rate("spray"), rate("adaptive"));
    // Sixteen flows hashed to four routes a leaf: some route has two, and those flows have half.
    assert!(hashed < 0.8, "{hashed}");
    assert!(sprayed > 0.85 && sprayed <= 1.000_1, "{sprayed}");
    assert!(adaptive > 0.85 && adaptive <= 1.000_1, "{adaptive}");
}

/// The links of the first leaf (the first switch after 16 hosts) to the spines that carried flows' data, on both kinds of links.
#[test]
fn static_routes_depend_on_the_destination_alone() {
    let up_links = |link: &str, routing: &str| {
        // Three flows of different hosts of one leaf to one destination, of which each has a number of its own.
        let traffic = "[[traffic]]\npattern = \"incast\"\nto = 4\nhosts = \"0-2\"\nbytes = 100000\n";
        let run = run(&scenario(&format!("{FAT_TREE}{link}routing = \"{routing}\"\n{traffic}")));
        assert_eq!(run.traffic()[0].completed, 3);
        run.links().filter(|link| link.from.0 == 16 && link.to.0 >= 20).count()
    };
    for link in [HDR, "[link]\nrate = \"200G\"\nwire-ns = 10\n"] {
        assert_eq!(up_links(link, "static"), 1, "one destination, one route: {link}");
        assert!(up_links(link, "ecmp") > 1, "three flows, several routes: {link}");
    }
}

/// Senders to host 0 on one switch.
fn star(hosts: u32) -> String {
    format!("[fabric]\nkind = \"xgft\"\nchildren = [{hosts}]\nparents = [1]\n")
}

#[test]
fn dcqcn_shares_a_link_fairly_and_keeps_it_busy() {
    for senders in [2_u32, 4, 16] {
        let link = "[link]\nrate = \"100G\"\nwire-ns = 500\nflow-control = \"pfc\"\n";
        let hosts = format!("hosts = \"0-{senders}\"\nfor-us = 40000\n");
        let text = format!("{}{link}[[traffic]]\npattern = \"incast\"\n{hosts}", star(senders + 1));
        let run = run(&scenario(&text));
        let record = &run.traffic()[0];
        let bytes: Vec<f64> = record.endless.iter().map(|bytes| *bytes as f64).collect();
        assert_eq!(bytes.len(), senders as usize);
        let (sum, squares): (f64, f64) = (bytes.iter().sum(), bytes.iter().map(|bytes| bytes * bytes).sum());
        let jain = sum * sum / (f64::from(senders) * squares);
        let busy = sum / (40e6 * 12.5 * PAYLOAD / ETHERNET_BYTES);
        println!("{senders} senders: Jain {jain:.4}, busy {busy:.3}, marks {}", run.counters().ecn_marks);
        assert!(jain > 0.95, "{senders} senders: Jain's index {jain}, {bytes:?}");
        assert!(busy > 0.85 && busy <= 1.000_1, "{senders} senders: {busy}");
        assert!(run.counters().ecn_marks > 0 && run.counters().queue_drops == 0);
    }
}

/// Pauses with small buffers and no rate control: the hardest case for both losses and deadlocks.
const PFC: &str = "[link]\nrate = \"100G\"\nwire-ns = 100\nbuffer-bytes = 65536\ncongestion-control = \"none\"\nrouting = \"spray\"\n";

#[test]
fn pauses_lose_nothing_and_end_on_up_down_routes() {
    let three_levels = "[fabric]\nkind = \"k-ary-n-tree\"\nk = 3\nn = 3\n";
    for pattern in ["pattern = \"all-to-all\"\nbytes = 60000\n", "pattern = \"incast\"\nbytes = 300000\n"] {
        let text = format!("{three_levels}{PFC}[[traffic]]\n{pattern}");
        let run = run(&scenario(&text));
        let (record, counters) = (&run.traffic()[0], run.counters());
        assert_eq!(record.completed, record.started, "{pattern}");
        assert_eq!((counters.queue_drops, counters.overrun, record.repairs), (0, 0, 0), "{pattern}");
        assert!(counters.pauses > 0, "the buffers were never full: the test shows nothing");
        assert_eq!(run.paused_links(), 0);
    }
}

#[test]
fn too_little_headroom_loses_packets_and_repairs_them() {
    let text = format!("{}{PFC}[[traffic]]\npattern = \"incast\"\nbytes = 400000\n", star(8));
    let mut parsed = scenario(&text);
    let ethernet = parsed.ethernet.as_mut().expect("Ethernet");
    let pause = ethernet.pause.as_mut().expect("pauses");
    (pause.pause_bytes, pause.resume_bytes, pause.buffer_bytes) = (8_000, 4_000, 8_200);
    let run = run(&parsed);
    let record = &run.traffic()[0];
    assert!(run.counters().queue_drops > 0, "the headroom cannot hold what is under way");
    assert_eq!((record.completed, record.bytes), (7, 7 * 400_000));
    assert!(record.repairs > 0);
    // The scenario refuses such thresholds.
    let refused = text.replace("wire-ns = 100", "wire-ns = 100\npause-bytes = 65000");
    let error = Scenario::parse(&refused, "test.toml").expect_err("no headroom");
    assert!(error.message.contains("headroom"), "{error}");
}

#[test]
fn pauses_in_a_circle_are_refused_because_they_stop_for_ever() {
    let ring = "[fabric]\nkind = \"torus\"\nsizes = [6]\nhosts-per-switch = 2\n";
    let lossy = PFC.replace("routing = \"spray\"\n", "flow-control = \"none\"\n");
    let traffic = "[[traffic]]\npattern = \"permutation\"\nshift = 4\nbytes = 2000000\n[flows]\nlimit-us = 20000\n";
    let error = Scenario::parse(&format!("{ring}{PFC}{traffic}"), "test.toml").expect_err("a circle");
    assert!(error.message.contains("circle"), "{error}");
    // What would happen: every link of the ring waits for the next.
    let mut parsed = scenario(&format!("{ring}{lossy}{traffic}"));
    let pause = crate::network::PauseThresholds { pause_bytes: 20_000, resume_bytes: 10_000, buffer_bytes: 65_536 };
    parsed.ethernet.as_mut().expect("Ethernet").pause = Some(pause);
    let stuck = run(&parsed);
    assert!(stuck.traffic()[0].completed < 12 && stuck.paused_links() >= 6, "{}", stuck.paused_links());
}

#[test]
fn a_lossy_ethernet_drops_and_repairs_only_what_it_dropped() {
    let link = "[link]\nrate = \"100G\"\nwire-ns = 100\nbuffer-bytes = 200000\nflow-control = \"none\"\n";
    let text = format!("{FAT_TREE}{link}[[traffic]]\npattern = \"incast\"\nbytes = 2000000\n");
    let run = run(&scenario(&text));
    let (record, counters) = (&run.traffic()[0], run.counters());
    assert_eq!((record.completed, record.failed, record.bytes), (15, 0, 15 * 2_000_000));
    assert!(counters.queue_drops > 0 && record.repairs > 0 && counters.ecn_marks > 0);
    // Selective: hardly more is sent again than was dropped.
    assert!(record.repairs < 3 * counters.queue_drops, "{} for {}", record.repairs, counters.queue_drops);
}

/// Two senders at line rate into one link: the queue grows by one byte for every two that arrive, so the expected number of marks
/// is twice the integral of the marking probability over the queue's lengths, divided by the length of a packet.
#[test]
fn marks_follow_the_queue_that_a_token_bucket_leaves() {
    let link = "[link]\nrate = \"100G\"\nwire-ns = 10\nbuffer-bytes = 67108864\necn-min-bytes = 100000\necn-max-bytes = 1100000\n\
        ecn-probability = 1.0\ncongestion-control = \"none\"\n";
    let marks = |bytes: u32| {
        let text = format!("{}{link}[[traffic]]\npattern = \"incast\"\nbytes = {bytes}\n", star(3));
        run(&scenario(&text)).counters().ecn_marks
    };
    // A burst that the bucket of ecn-min-bytes holds is never marked.
    assert_eq!(marks(90_000), 0);
    let queue = 1e6 * ETHERNET_BYTES / PAYLOAD;
    let expected = 2.0 / ETHERNET_BYTES * (queue - 1e5).powi(2) / 2.0 / 1e6;
    let found = marks(1_000_000) as f64;
    assert!((found / expected - 1.0).abs() < 0.2, "{found} marks, expected {expected}");
}

#[test]
fn flows_pass_a_cut_cable_and_report_a_host_that_is_cut_off() {
    let cut = |link: &str| format!("[[fault]]\nkind = \"down\"\nlink = \"{link}\"\nat-us = 20\n");
    let traffic = "[[traffic]]\npattern = \"permutation\"\nshift = 4\nbytes = 1000000\n[flows]\ntimeout-us = 50\nretry-limit = 4\n";
    let passing = run(&scenario(&format!("{FAT_TREE}{HDR}{traffic}{}", cut("S0-S4"))));
    assert_eq!(passing.traffic()[0].completed, 16);
    assert!(passing.traffic()[0].repairs > 0);
    let failing = run(&scenario(&format!("{FAT_TREE}{HDR}{traffic}{}", cut("H0-S0"))));
    assert_eq!((failing.traffic()[0].completed, failing.traffic()[0].failed), (14, 2));
    assert_eq!(failing.flow_failures().1, 2);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_gives_another() {
    let link = "[link]\nrate = \"400G\"\nwire-ns = 100\nflow-control = \"none\"\nbuffer-bytes = 100000\nrouting = \"adaptive\"\n";
    let traffic = "[[traffic]]\npattern = \"poisson\"\nload = 0.6\nsizes = [[1000, 0.4], [30000, 0.8], [500000, 1.0]]\nfor-us = 200\n\
        [[traffic]]\npattern = \"flood\"\nhosts = \"0-5\"\nfor-us = 100\n";
    let text = format!("{FAT_TREE}{link}{traffic}");
    let trace = |seed: u64| {
        let scenario = scenario(&format!("seed = {seed}\n{text}"));
        let run = run(&scenario);
        let record = &run.traffic()[0];
        assert!(
            record.completed > 100 && record.completed == record.started,
            "{} of {}",
            record.completed,
            record.started
        );
        run.trace()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn mistakes_in_traffic_name_their_field() {
    let cases = [
        ("pattern = \"flood\"\n", "never end", "traffic.pattern"),
        ("pattern = \"storm\"\n", "unknown pattern", "traffic.pattern"),
        ("pattern = \"incast\"\nbytes = 1\nload = 0.5\n", "is for poisson", "traffic.load"),
        ("pattern = \"poisson\"\nload = 0.5\nbytes = 100\n", "needs for-us", "traffic.pattern"),
        ("pattern = \"poisson\"\nload = 1.5\nbytes = 100\nfor-us = 1\n", "share", "traffic.load"),
        ("pattern = \"poisson\"\nload = 0.5\nfor-us = 1\nsizes = [[5, 0.5], [4, 1.0]]\n", "descend", "traffic.sizes"),
        ("pattern = \"incast\"\nbytes = 1\nhosts = \"0-99\"\n", "not a host", "traffic.hosts"),
        ("pattern = \"incast\"\nbytes = 1\nhosts = \"0,0\"\n", "twice", "traffic.hosts"),
        ("pattern = \"incast\"\nbytes = 1\npriority = 3\n", "out of range", "traffic.priority"),
        ("pattern = \"permutation\"\nbytes = 1\nfor-us = 5\n", "goes with", "traffic.for-us"),
    ];
    for (traffic, part, field) in cases {
        let text = format!("{FAT_TREE}{HDR}[[traffic]]\n{traffic}");
        let error = Scenario::parse(&text, "test.toml").expect_err(traffic);
        assert!(error.message.contains(part) && error.field == field, "{traffic}: {error}");
    }
}

#[test]
fn the_flows_of_all_classes_together_are_bounded() {
    let fabric = "[fabric]\nkind = \"xgft\"\nchildren = [40, 40]\nparents = [1, 2]\n";
    let class = "[[traffic]]\npattern = \"all-to-all\"\nbytes = 1\n";
    assert!(Scenario::parse(&format!("{fabric}{HDR}{class}"), "test.toml").is_ok());
    let error = Scenario::parse(&format!("{fabric}{HDR}{class}{class}"), "test.toml").expect_err("5 million flows");
    assert!(error.message.contains("classes before"), "{error}");
}

/// Nothing is lost, so nothing may be sent again: neither while flows of many turns or of a low rate wait for their next packet that
/// asks, nor after flows without an end have stopped.
#[test]
fn lossless_links_need_no_repairs() {
    let many = format!("{}{HDR}[[traffic]]\npattern = \"incast\"\n", star(4));
    let stopped = format!("{many}for-us = 500\n[flows]\nacknowledge-every = 1000\ntimeout-us = 400\n");
    let link = "[link]\nrate = \"10G\"\nwire-ns = 100\necn-min-bytes = 1\necn-max-bytes = 2\n";
    let slow = format!("{}{link}[[traffic]]\npattern = \"incast\"\nbytes = 400000\n", star(17));
    for text in [stopped, slow] {
        let run = run(&scenario(&text));
        let record = &run.traffic()[0];
        assert_eq!((record.repairs, record.failed), (0, 0), "{text}");
    }
}

/// Poisson flows offer the load that they say.
#[test]
fn a_poisson_class_offers_its_load() {
    let traffic = "[[traffic]]\npattern = \"poisson\"\nload = 0.3\nbytes = 20000\nfor-us = 2000\n";
    let run = run(&scenario(&format!("{FAT_TREE}{HDR}{traffic}")));
    let offered = run.traffic()[0].bytes as f64 / (2e6 * 25.0 * 16.0);
    assert!((offered / 0.3 - 1.0).abs() < 0.05, "{offered}");
}

#[test]
fn traffic_beside_a_collective_slows_it_and_changes_no_result_count() {
    let collective = "[collective]\nalgorithm = \"ring\"\nsize-only-bytes = 1000000\noperations = 3\n";
    let time = |traffic: &str| {
        let scenario = scenario(&format!("{FAT_TREE}{HDR}{collective}{traffic}"));
        let mut run = scenario.set_up(1).expect("it can be set up");
        let timings = run.run(3, &mut NoObserver, |_| ());
        timings.iter().map(|timing| timing.complete.expect("it completes").as_nanos_f64()).sum::<f64>()
    };
    let (alone, beside) = (time(""), time("[[traffic]]\npattern = \"permutation\"\n"));
    assert!(beside > 1.3 * alone && beside < 4.0 * alone, "{alone} alone, {beside} beside a permutation");
}
