//! All ranks of an operation, and a network that delivers in any order and sometimes twice.

use std::collections::BTreeSet;

use faults::RandomStream;
use oracle::{Element, Operator, Reduction};
use reduce::ReductionKind;
use units::{OpId, Rank};

use crate::Payload;
use crate::collective::{
    CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, ScheduleAction, ScheduleExecutor,
};

/// What the network does besides losing the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeliveryModel {
    Plain,
    /// Every second message comes again later.
    Doubles,
}

/// What came of an operation.
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

/// Plays an operation to its end and checks what must hold for all: each message is sent once and expected, each rank
/// completes once, and nothing is left over.
pub(super) fn run_collective(
    plans: Vec<CollectiveSchedule>,
    contributions: Vec<Payload>,
    network: DeliveryModel,
    seed: u64,
) -> CollectiveRun {
    let luck = RandomStream::new(seed, 1);
    let mut players: Vec<ScheduleExecutor> = plans
        .into_iter()
        .zip(contributions)
        .map(|(plan, mine)| ScheduleExecutor::new(plan, mine).expect("it fits"))
        .collect();
    let mut results = vec![None; players.len()];
    let mut names = BTreeSet::new();
    let mut flying: Vec<HarnessMessage> = Vec::new();
    let mut out = Vec::new();
    let mut starts = luck.permutation(players.len() as u32);
    let mut draws = 0;
    let mut draw = |bound: usize| {
        draws += 1;
        luck.below(draws, bound as u64) as usize
    };
    let mut doubles = 0;
    while !flying.is_empty() || !starts.is_empty() {
        let choice = draw(flying.len() + starts.len());
        let actor = if choice < starts.len() {
            let rank = starts.swap_remove(choice);
            players[rank as usize].start(&mut out);
            rank
        } else {
            let message = flying.swap_remove(choice - starts.len());
            if network == DeliveryModel::Doubles && draw(2) == 0 {
                flying.push(message.clone());
                doubles += 1;
            }
            let HarnessMessage { from, to, round, payload } = message;
            players[to.index()].handle_message(from, round, payload, &mut out);
            to.0
        };
        for duty in out.drain(..) {
            match duty {
                ScheduleAction::Send { to, round, payload } => {
                    assert!(names.insert((actor, to, round)), "rank {actor} sent round {round} to {to} twice");
                    flying.push(HarnessMessage { from: Rank(actor), to, round, payload });
                }
                ScheduleAction::Complete { result } => {
                    assert_eq!(results[actor as usize].replace(result), None, "rank {actor} completed twice");
                }
                ScheduleAction::Failed { cause } => panic!("rank {actor}: {cause}"),
            }
        }
    }
    let unused: u32 = players.iter().map(|player| player.counters()).map(|c| c.duplicates + c.foreign + c.late).sum();
    assert_eq!(unused, doubles, "what is sent is what is expected");
    let results = results.into_iter().map(|result| result.expect("every rank completes")).collect();
    CollectiveRun { results, messages: names.len() }
}

pub(super) fn reduction_of(operation: &Reduction) -> ReductionKind {
    let element = operation.element.to_string().parse().expect("the two rooms use the same names");
    let operator = operation.operator.to_string().parse().expect("the two rooms use the same names");
    ReductionKind::new(element, operator).expect("it has meaning")
}

pub(super) fn operation(element: Element, operator: Operator, count: usize) -> Reduction {
    Reduction { element, operator, count }
}

/// Sums of `f32`, whose bits show every change of order.
pub(super) fn order_sensitive_sum(count: usize) -> Reduction {
    operation(Element::F32, Operator::Sum, count)
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
    let plan = |rank| CollectiveSchedule::new(algorithm, collective, Rank(rank), size, bytes as u32);
    (0..size).map(|rank| plan(rank).expect("a plan that suits")).collect()
}

/// Sizes around powers, primes, and some larger ones.
pub(super) fn sizes() -> impl Iterator<Item = u32> {
    (1..=33).chain([64, 100, 128])
}
