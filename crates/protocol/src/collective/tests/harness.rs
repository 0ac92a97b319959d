//! Runs all ranks of an operation over a network that delivers in any order and sometimes twice.

use std::collections::BTreeSet;

use faults::RandomStream;
use oracle::{Reduction, ReductionElement, ReductionOperator};
use reduce::ReductionKind;
use units::{OpId, Rank};

use crate::Payload;
use crate::collective::{
    BlockLayout, CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, ScheduleAction, ScheduleExecutor,
};

/// How the network delivers, besides in any order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeliveryModel {
    Once,
    /// Every second message is delivered again later.
    Duplicating,
}

/// The outcome of an operation.
#[derive(Debug)]
pub(super) struct CollectiveRun {
    pub(super) results: Vec<Payload>,
    pub(super) messages: usize,
}

#[derive(Clone, Debug)]
struct HarnessMessage {
    from: Rank,
    to: Rank,
    round: u32,
    payload: Payload,
}

/// Runs an operation and checks the general rules: each message is sent once and expected, each rank completes once,
/// and no message is left over.
pub(super) fn run_collective(
    schedules: Vec<CollectiveSchedule>,
    contributions: Vec<Payload>,
    network: DeliveryModel,
    seed: u64,
) -> CollectiveRun {
    let random = RandomStream::new(seed, 1);
    let mut executors: Vec<ScheduleExecutor> = schedules
        .into_iter()
        .zip(contributions)
        .map(|(schedule, mine)| ScheduleExecutor::new(schedule, mine).expect("the contribution fits"))
        .collect();
    let mut results = vec![None; executors.len()];
    let mut names = BTreeSet::new();
    let mut in_flight: Vec<HarnessMessage> = Vec::new();
    let mut out = Vec::new();
    let mut starts = random.permutation(executors.len() as u32);
    let mut draws = 0;
    let mut draw = |bound: usize| {
        draws += 1;
        random.below(draws, bound as u64) as usize
    };
    let mut duplicates = 0;
    while !in_flight.is_empty() || !starts.is_empty() {
        let choice = draw(in_flight.len() + starts.len());
        let actor = if choice < starts.len() {
            let rank = starts.swap_remove(choice);
            executors[rank as usize].start(&mut out);
            rank
        } else {
            let message = in_flight.swap_remove(choice - starts.len());
            if network == DeliveryModel::Duplicating && draw(2) == 0 {
                in_flight.push(message.clone());
                duplicates += 1;
            }
            let HarnessMessage { from, to, round, payload } = message;
            executors[to.index()].handle_message(from, round, payload, &mut out);
            to.0
        };
        for action in out.drain(..) {
            match action {
                ScheduleAction::Send { to, round, payload } => {
                    assert!(names.insert((actor, to, round)), "rank {actor} sent round {round} to {to} twice");
                    in_flight.push(HarnessMessage { from: Rank(actor), to, round, payload });
                }
                ScheduleAction::Complete { result } => {
                    assert_eq!(results[actor as usize].replace(result), None, "rank {actor} completed twice");
                }
                ScheduleAction::Failed { cause } => panic!("rank {actor}: {cause}"),
            }
        }
    }
    let unused: u32 =
        executors.iter().map(|executor| executor.counters()).map(|c| c.duplicates + c.foreign + c.late).sum();
    assert_eq!(unused, duplicates, "what is sent is what is expected");
    let results = results.into_iter().map(|result| result.expect("every rank completes")).collect();
    CollectiveRun { results, messages: names.len() }
}

pub(super) fn reduction_of(operation: &Reduction) -> ReductionKind {
    let element = operation.element.to_string().parse().expect("both crates use the same names");
    let operator = operation.operator.to_string().parse().expect("both crates use the same names");
    ReductionKind::new(element, operator).expect("a valid reduction")
}

pub(super) fn operation(element: ReductionElement, operator: ReductionOperator, count: usize) -> Reduction {
    Reduction { element, operator, count }
}

/// Sums of `f32`, whose bits reveal every change of order.
pub(super) fn order_sensitive_sum(count: usize) -> Reduction {
    operation(ReductionElement::F32, ReductionOperator::Sum, count)
}

pub(super) fn contribution(seed: u64, rank: u32, operation: &Reduction) -> Vec<u8> {
    oracle::contribution(seed, Rank(rank), OpId(0), operation)
}

pub(super) fn contributions(seed: u64, size: u32, operation: &Reduction) -> Vec<Payload> {
    (0..size).map(|rank| contribution(seed, rank, operation).into()).collect()
}

pub(super) fn schedules(
    algorithm: CollectiveAlgorithm,
    collective: CollectiveOperation,
    size: u32,
    bytes: usize,
) -> Vec<CollectiveSchedule> {
    let schedule = |rank| CollectiveSchedule::new(algorithm, collective, Rank(rank), size, bytes as u32);
    (0..size).map(|rank| schedule(rank).expect("a schedule that supports")).collect()
}

pub(super) fn block_schedules(
    algorithm: CollectiveAlgorithm,
    collective: CollectiveOperation,
    blocks: &std::sync::Arc<BlockLayout>,
) -> Vec<CollectiveSchedule> {
    let schedule = |rank| CollectiveSchedule::in_blocks(algorithm, collective, Rank(rank), blocks.clone());
    (0..blocks.size()).map(|rank| schedule(rank).expect("a schedule that supports")).collect()
}

/// Small group sizes, and some larger ones around powers of two.
pub(super) fn sizes() -> impl Iterator<Item = u32> {
    (1..=33).chain([64, 100, 128])
}
