//! Operations among hosts: their times against closed formulas, and what faults do to them.
//!
//! The formulas are those of the textbook: a message takes alpha (adapters, switches, cables) and beta for each byte on the wire.

use std::sync::Arc;

use protocol::Payload;
use protocol::collective::CollectiveAlgorithm;
use protocol::connection::{ConnectionPolicy, RetransmitTimer};
use reduce::{ElementType, Operator, ReductionKind};
use topology::Fabric;
use units::{OpId, Rank, SimSpan, Span};

use super::{HostOperation, SegmentedCollective, SegmentedParameters, SegmentedVector, VectorContents};
use crate::collective::{CollectiveObserver, CollectiveTiming, OperationFailure, OperationPacing};
use crate::fault::{FaultKind, FaultPlan, FaultRule};
use crate::link_rate::LinkRate;
use crate::network::LinkParameters;

/// Link framing and transport header of every packet, in bytes.
const HEADERS: f64 = 8.0 + 12.0 + 4.0 + 2.0;
const MTU: u32 = 4096;

fn link() -> LinkParameters {
    LinkParameters::of_test(LinkRate::Edr, 64 * 1024)
}

/// 64 hosts, eight at each leaf, full bisection.
fn fat_tree() -> Arc<Fabric> {
    Arc::new(Fabric::xgft(&[8, 8], &[1, 8]).expect("a fat tree"))
}

fn parameters(operation: HostOperation, algorithm: CollectiveAlgorithm, bytes: u32) -> SegmentedParameters {
    let kind = ReductionKind::new(ElementType::U64, Operator::Sum).expect("defined");
    let policy = ConnectionPolicy {
        timeout: Span::from_micros(1_000),
        timer: RetransmitTimer::Measured,
        window: 256,
        ..ConnectionPolicy::default()
    };
    let elements = bytes / 8;
    SegmentedParameters {
        operation,
        algorithm,
        vector: SegmentedVector {
            kind,
            elements,
            segment_elements: elements.max(1),
            contents: VectorContents::Elements,
        },
        window: 4,
        mtu: MTU,
        policy,
        members: 64,
        arrival_skew: SimSpan::ZERO,
        pace: OperationPacing::Drained,
        hang_timeout: SimSpan::from_micros(10_000_000),
    }
}

/// Every rank contributes its number in every element; keeps what it gets.
#[derive(Default)]
struct Ranks {
    elements: usize,
    right: u32,
    wrong: u32,
    empty: u32,
    failures: Vec<OperationFailure>,
}

impl CollectiveObserver for Ranks {
    fn contribution(&mut self, rank: Rank, _: OpId) -> Payload {
        Payload::from(u64::from(rank.0).to_le_bytes().repeat(self.elements))
    }
    fn delivered(&mut self, _: Rank, _: OpId, result: &Payload) {
        let sum = (0..64_u64).sum::<u64>().to_le_bytes().repeat(self.elements);
        match result.bytes() {
            Some(bytes) if bytes == sum => self.right += 1,
            Some(_) => self.wrong += 1,
            None => self.empty += 1,
        }
    }
    fn failed(&mut self, _: Rank, _: OpId, cause: OperationFailure) {
        self.failures.push(cause);
    }
}

fn run(parameters: &SegmentedParameters, plan: &FaultPlan) -> (Vec<CollectiveTiming>, Ranks, u64) {
    let mut collective =
        SegmentedCollective::new(fat_tree(), link(), parameters.clone(), plan, 1).expect("it can be set up");
    let elements = parameters.vector.elements_of(0).len();
    let mut observer = Ranks { elements, ..Ranks::default() };
    let timings = collective.run(2, &mut observer, |_| ());
    (timings, observer, collective.trace())
}

fn nanos(parameters: &SegmentedParameters) -> f64 {
    let (timings, observer, _) = run(parameters, &FaultPlan::default());
    assert_eq!((observer.wrong, observer.failures.len()), (0, 0));
    timings[0].complete.expect("complete").as_nanos_f64()
}

/// The time of a message of so many bytes between hosts at the same leaf (one switch) or not (three), without contention.
fn message_ns(bytes: f64, switches: f64) -> f64 {
    let beta = 1e9 / (100e9 / 8.0 * (64.0 / 66.0) * (103.125 / 100.0));
    let packets = (bytes / f64::from(MTU)).ceil().max(1.0);
    let alpha = 2.0 * 200.0 + switches * 100.0 + (switches + 1.0) * 10.0;
    alpha + (bytes + packets * HEADERS) * beta
}

/// Switches between hosts at a distance of `2^round`.
fn switches(round: i32) -> f64 {
    if round < 3 { 1.0 } else { 3.0 }
}

#[track_caller]
fn assert_within_a_percent(simulated: f64, formula: f64) {
    let error = (simulated / formula - 1.0).abs();
    assert!(error < 0.01, "simulated {simulated} ns, formula {formula} ns: {:.2} % apart", 100.0 * error);
}

/// 2 (p - 1) messages one after the other, each of a p-th of the vector: every eighth neighbour is on another leaf.
#[test]
fn a_ring_takes_as_long_as_its_formula_says() {
    let bytes = 4 << 20;
    let simulated = nanos(&parameters(HostOperation::AllReduce, CollectiveAlgorithm::Ring, bytes));
    let block = f64::from(bytes) / 64.0;
    assert_within_a_percent(simulated, 110.0 * message_ns(block, 1.0) + 16.0 * message_ns(block, 3.0));
}

/// Halves, quarters and so on, then back: distances 1, 2 and 4 stay at a leaf, 8, 16 and 32 do not.
#[test]
fn rabenseifners_algorithm_takes_as_long_as_its_formula_says() {
    let bytes = 4 << 20;
    let simulated = nanos(&parameters(HostOperation::AllReduce, CollectiveAlgorithm::Rabenseifner, bytes));
    // The longest exchange is with the nearest host.
    let exchange = |round: i32| message_ns(f64::from(bytes) / 2_f64.powi(round + 1), switches(round));
    assert_within_a_percent(simulated, 2.0 * (0..6).map(exchange).sum::<f64>());
}

/// log2 p rounds up and as many down, each with the whole vector.
#[test]
fn a_binomial_tree_takes_as_long_as_its_formula_says() {
    let bytes = 1 << 20;
    let simulated = nanos(&parameters(HostOperation::AllReduce, CollectiveAlgorithm::Tree { radix: 2 }, bytes));
    let rounds: f64 = (0..6).map(|round| message_ns(f64::from(bytes), switches(round))).sum();
    assert_within_a_percent(simulated, 2.0 * rounds);
}

/// A chain of p hosts with m segments: p - 2 segments to fill it, and m segments through the slowest link.
#[test]
fn a_segmented_chain_is_a_pipeline() {
    let (bytes, segment) = (1_u32 << 20, 1_u32 << 14);
    let mut chain = parameters(HostOperation::Broadcast, CollectiveAlgorithm::Chain, bytes);
    chain.vector.segment_elements = segment / 8;
    chain.window = 16;
    let (timings, observer, _) = run(&chain, &FaultPlan::default());
    assert_eq!((observer.failures.len(), observer.right + observer.wrong), (0, 2 * 64 * 64));
    let pipelined = timings[0].complete.expect("complete").as_nanos_f64();
    let unsegmented = parameters(HostOperation::Broadcast, CollectiveAlgorithm::Chain, bytes);
    let whole = run(&unsegmented, &FaultPlan::default()).0[0].complete.expect("complete").as_nanos_f64();
    let transfer = message_ns(f64::from(segment), 1.0);
    assert!(pipelined < (62.0 + 64.0) * 1.4 * transfer, "{pipelined} ns, segments of {transfer} ns");
    assert!(pipelined * 10.0 < whole, "{pipelined} ns, {whole} ns without segments");
}

#[test]
fn every_algorithm_gives_every_rank_its_result() {
    use CollectiveAlgorithm::*;
    let all_reduce =
        [Ring, Rabenseifner, RecursiveDoubling, RecursiveKing { radix: 4 }, Tree { radix: 2 }, Tree { radix: 5 }];
    for algorithm in all_reduce {
        let (_, observer, _) = run(&parameters(HostOperation::AllReduce, algorithm, 10_000), &FaultPlan::default());
        assert_eq!((observer.right, observer.wrong), (128, 0), "{algorithm}");
    }
    for algorithm in [Ring, Rabenseifner, Tree { radix: 3 }] {
        let (_, observer, _) = run(&parameters(HostOperation::Reduce, algorithm, 10_000), &FaultPlan::default());
        assert_eq!((observer.right, observer.wrong, observer.empty), (2, 0, 126), "{algorithm}");
    }
    for algorithm in [Dissemination { radix: 2 }, Dissemination { radix: 8 }, RecursiveDoubling, Tree { radix: 2 }] {
        let (timings, observer, _) = run(&parameters(HostOperation::Barrier, algorithm, 0), &FaultPlan::default());
        assert_eq!((timings.len(), observer.empty), (2, 128), "{algorithm}");
    }
}

#[test]
fn lost_and_damaged_packets_are_sent_again() {
    for (kind, chance) in
        [(FaultKind::Lose, 0.001), (FaultKind::Flip, 0.002), (FaultKind::Duplicate, 0.01), (FaultKind::Memory, 0.001)]
    {
        let plan = FaultPlan { seed: None, rules: vec![FaultRule::new(kind).with_probability(chance)] };
        for algorithm in [CollectiveAlgorithm::Ring, CollectiveAlgorithm::Tree { radix: 2 }] {
            let (timings, observer, trace) = run(&parameters(HostOperation::AllReduce, algorithm, 100_000), &plan);
            assert_eq!(
                (observer.right, observer.wrong, observer.failures.len()),
                (128, 0, 0),
                "{kind:?}, {algorithm}"
            );
            assert!(timings.iter().all(|timing| timing.complete.is_some()));
            assert_eq!(
                run(&parameters(HostOperation::AllReduce, algorithm, 100_000), &plan).2,
                trace,
                "same seed, same run"
            );
        }
    }
}

/// S0 is the first leaf, S8 the first spine: connections that used the cable take another route after a timeout.
#[test]
fn a_cut_cable_between_switches_costs_time_only() {
    let plan = FaultPlan { seed: None, rules: vec![FaultRule::new(FaultKind::Down).on("S0-S8").lasting(5.0, None)] };
    let ring = parameters(HostOperation::AllReduce, CollectiveAlgorithm::Rabenseifner, 1 << 20);
    let (timings, observer, _) = run(&ring, &plan);
    assert_eq!((observer.right, observer.wrong, observer.failures.len()), (128, 0, 0));
    let (with, without) = (timings[0].complete.expect("complete").as_nanos_f64(), nanos(&ring));
    assert!(with > without + 500_000.0, "{with} ns with, {without} ns without");
}

/// A host without a cable is named to every host that waits, and the run goes on.
#[test]
fn a_cut_host_fails_the_operation_with_its_name() {
    let plan = FaultPlan { seed: None, rules: vec![FaultRule::new(FaultKind::Down).on("H5-S0").lasting(1.0, None)] };
    let (timings, observer, _) =
        run(&parameters(HostOperation::AllReduce, CollectiveAlgorithm::Ring, 1 << 16), &plan);
    assert_eq!(timings.len(), 2);
    assert!(timings.iter().all(|timing| timing.complete.is_none()));
    assert_eq!((observer.right, observer.failures.len()), (0, 128));
    let names_host_5 = |cause: &OperationFailure| matches!(cause, OperationFailure::Unreachable { from, to } if *from == Rank(5) || *to == Rank(5));
    assert!(observer.failures.iter().all(names_host_5), "{:?}", observer.failures[0]);
}

/// Every element says whose it is and where it was. Keeps what each host gets.
struct Blocks {
    elements: u64,
    results: Vec<Vec<u64>>,
}

/// Above every position.
const OWNER: u64 = 1 << 20;

impl CollectiveObserver for Blocks {
    fn contribution(&mut self, rank: Rank, _: OpId) -> Payload {
        let vector = (0..self.elements).flat_map(|place| (u64::from(rank.0) * OWNER + place).to_le_bytes());
        Payload::from(vector.collect::<Vec<u8>>())
    }
    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        let bytes = result.bytes().unwrap_or_default();
        let numbers = bytes.chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().expect("eight bytes")));
        if op == OpId(0) {
            self.results[rank.index()] = numbers.collect();
        }
    }
    fn failed(&mut self, _: Rank, _: OpId, cause: OperationFailure) {
        panic!("{cause}");
    }
}

fn blocks_of(operation: HostOperation, algorithm: CollectiveAlgorithm, elements: u32) -> Vec<Vec<u64>> {
    let parameters = parameters(operation, algorithm, 8 * elements);
    let mut observer = Blocks { elements: elements.into(), results: vec![Vec::new(); 64] };
    SegmentedCollective::new(fat_tree(), link(), parameters, &FaultPlan::default(), 1)
        .expect("it can be set up")
        .run(1, &mut observer, |_| ());
    observer.results
}

/// Vectors shorter than the group, and of lengths that 64 does not divide.
#[test]
fn operations_over_blocks_give_every_host_what_is_its_own() {
    use CollectiveAlgorithm::{Direct, RecursiveDoubling, RecursiveHalving, Ring, Tree};
    for elements in [1, 63, 64, 100, 1_000] {
        let cut = |block: u64| block * u64::from(elements) / 64;
        let sum_of_owners = (0..64).sum::<u64>() * OWNER;
        for algorithm in [Ring, RecursiveHalving, Tree { radix: 2 }] {
            let results = blocks_of(HostOperation::ReduceScatter, algorithm, elements);
            for (rank, result) in (0..64).zip(results) {
                let block = (cut(rank)..cut(rank + 1)).map(|place| sum_of_owners + 64 * place);
                assert_eq!(result, block.collect::<Vec<_>>(), "{algorithm}, {elements} elements, rank {rank}");
            }
        }
        let all: Vec<u64> =
            (0..64).flat_map(|owner| (cut(owner)..cut(owner + 1)).map(move |place| owner * OWNER + place)).collect();
        for algorithm in [Ring, RecursiveDoubling] {
            let results = blocks_of(HostOperation::AllGather, algorithm, elements);
            assert!(results.iter().all(|result| *result == all), "{algorithm}, {elements} elements");
        }
        let results = blocks_of(HostOperation::AllToAll, Direct, elements);
        for result in &results {
            assert_eq!(result.len(), elements as usize);
            assert!(result.is_sorted(), "blocks in the order of their hosts");
        }
        // Every element goes to one host.
        let mut sent: Vec<u64> = results.into_iter().flatten().collect();
        sent.sort_unstable();
        let expected = (0..64).flat_map(|owner| (0..u64::from(elements)).map(move |place| owner * OWNER + place));
        assert!(sent.into_iter().eq(expected), "{elements} elements");
    }
}
