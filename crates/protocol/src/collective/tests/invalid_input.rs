//! Mistakes of peers and callers.

use proptest::prelude::*;
use reduce::{ElementType, Operator, ReductionKind};
use units::Rank;

use super::harness::{order_sensitive_sum, reduction_of};
use crate::Payload;
use crate::collective::{
    CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, FoldOrder, MAX_RADIX, MAX_RANKS, ScheduleAction,
    ScheduleError, ScheduleExecutor, ScheduleExecutorCounters, ScheduleFailure,
};

fn all_reduce() -> CollectiveOperation {
    CollectiveOperation::AllReduce { kind: reduction_of(&order_sensitive_sum(1)) }
}

/// Rank 1 of four, two rounds: first with rank 0, then with rank 3.
fn executor() -> ScheduleExecutor {
    let schedule = CollectiveSchedule::new(CollectiveAlgorithm::RecursiveDoubling, all_reduce(), Rank(1), 4, 4)
        .expect("it supports");
    ScheduleExecutor::new(schedule, number(1.0)).expect("the contribution fits")
}

fn number(value: f32) -> Payload {
    value.to_le_bytes().to_vec().into()
}

fn deliver(executor: &mut ScheduleExecutor, from: u32, round: u32, payload: Payload) -> Vec<ScheduleAction> {
    let mut out = Vec::new();
    executor.handle_message(Rank(from), round, payload, &mut out);
    out
}

fn start(executor: &mut ScheduleExecutor) -> Vec<ScheduleAction> {
    let mut out = Vec::new();
    executor.start(&mut out);
    out
}

#[test]
fn early_messages_are_kept_even_before_the_start() {
    let mut executor = executor();
    assert_eq!(deliver(&mut executor, 3, 1, number(20.0)), []);
    assert_eq!(deliver(&mut executor, 0, 0, number(300.0)), []);
    let out = start(&mut executor);
    assert_eq!(out[0], ScheduleAction::Send { to: Rank(0), round: 0, payload: number(1.0) });
    assert_eq!(out[1], ScheduleAction::Send { to: Rank(3), round: 1, payload: number(301.0) });
    assert_eq!(out[2], ScheduleAction::Complete { result: number(321.0) });
    assert!(executor.is_over() && executor.counters() == ScheduleExecutorCounters::default());
}

#[test]
fn duplicates_change_nothing_at_any_time() {
    let mut executor = executor();
    assert_eq!(deliver(&mut executor, 3, 1, number(20.0)), []);
    assert_eq!(deliver(&mut executor, 3, 1, number(5.0)), [], "kept, so the second is a duplicate");
    let _ = start(&mut executor);
    let out = deliver(&mut executor, 0, 0, number(300.0));
    assert_eq!(out.last(), Some(&ScheduleAction::Complete { result: number(321.0) }));
    assert_eq!(deliver(&mut executor, 0, 0, number(300.0)), []);
    assert_eq!(executor.counters(), ScheduleExecutorCounters { duplicates: 1, foreign: 0, late: 1 });
}

#[test]
fn a_duplicate_of_a_past_round_is_dropped_whatever_its_length() {
    let mut executor = executor();
    let _ = start(&mut executor);
    let _ = deliver(&mut executor, 0, 0, number(300.0));
    assert_eq!(deliver(&mut executor, 0, 0, Payload::EMPTY), []);
    assert_eq!(executor.counters().duplicates, 1);
    assert!(!executor.is_over());
}

#[test]
fn unexpected_messages_are_counted_and_dropped() {
    let mut executor = executor();
    let _ = start(&mut executor);
    let foreign = [(2, 0), (2, 1), (3, 0), (0, 1), (1, 0), (4, 0), (u32::MAX, 0), (0, 2), (0, u32::MAX)];
    for (from, round) in foreign {
        assert_eq!(deliver(&mut executor, from, round, number(1.0)), []);
    }
    assert_eq!(executor.counters().foreign, foreign.len() as u32);
    assert_eq!(executor.waiting_for().collect::<Vec<_>>(), [Rank(0)]);
}

#[test]
fn a_wrong_length_fails_and_names_the_sender() {
    for (early, from, round) in [(true, 3, 1), (false, 0, 0)] {
        let mut executor = executor();
        if !early {
            let _ = start(&mut executor);
        }
        let cause = ScheduleFailure::WrongLength { from: Rank(from), round, expected: 4, got: 5 };
        assert_eq!(deliver(&mut executor, from, round, vec![0; 5].into()), [ScheduleAction::Failed { cause }]);
        assert!(executor.is_over());
        assert_eq!(start_if_early(&mut executor, early), [], "no action follows a failure");
        assert_eq!(deliver(&mut executor, 0, 0, number(1.0)), []);
        assert_eq!(executor.counters().late, 1);
    }
}

fn start_if_early(executor: &mut ScheduleExecutor, early: bool) -> Vec<ScheduleAction> {
    if early { start(executor) } else { Vec::new() }
}

#[test]
fn a_lost_rank_fails_the_operation_unless_it_is_over() {
    let mut executor = executor();
    let _ = start(&mut executor);
    let mut out = Vec::new();
    executor.handle_loss(Rank(2), &mut out);
    executor.handle_loss(Rank(3), &mut out);
    assert_eq!(out, [ScheduleAction::Failed { cause: ScheduleFailure::LostRank(Rank(2)) }]);
}

#[test]
fn inconsistent_schedules_are_rejected() {
    let schedule = |algorithm, collective, rank, size, bytes| {
        CollectiveSchedule::new(algorithm, collective, Rank(rank), size, bytes).map(|schedule| schedule.rounds())
    };
    let doubling = CollectiveAlgorithm::RecursiveDoubling;
    assert_eq!(schedule(doubling, all_reduce(), 0, 0, 4), Err(ScheduleError::Size(0)));
    assert_eq!(schedule(doubling, all_reduce(), 0, MAX_RANKS + 1, 4), Err(ScheduleError::Size(MAX_RANKS + 1)));
    assert_eq!(schedule(doubling, all_reduce(), 4, 4, 4), Err(ScheduleError::UnknownRank(Rank(4))));
    let broadcast = CollectiveOperation::Broadcast { root: Rank(9) };
    assert_eq!(
        schedule(CollectiveAlgorithm::Tree { radix: 2 }, broadcast, 0, 9, 4),
        Err(ScheduleError::UnknownRank(Rank(9)))
    );
    assert!(matches!(schedule(doubling, broadcast, 0, 10, 4), Err(ScheduleError::Unsuited { .. })));
    assert!(matches!(schedule(doubling, all_reduce(), 0, 4, 6), Err(ScheduleError::Length { .. })));
    assert!(matches!(schedule(doubling, CollectiveOperation::Barrier, 0, 4, 4), Err(ScheduleError::Length { .. })));
    for radix in [0, 1, MAX_RADIX + 1] {
        let result = schedule(CollectiveAlgorithm::Tree { radix }, all_reduce(), 0, 4, 4);
        assert_eq!(result, Err(ScheduleError::Radix(radix)));
    }
    assert!(matches!(
        schedule(CollectiveAlgorithm::OrderedTree, all_reduce(), 0, 4, 4),
        Err(ScheduleError::NoOrder(_))
    ));
    let order = std::sync::Arc::new(FoldOrder::flat(4).expect("four ranks"));
    let ignored = CollectiveSchedule::ordered(doubling, all_reduce(), Rank(0), order, 4);
    assert!(matches!(ignored, Err(ScheduleError::IgnoresOrder(_))));
    let schedule = CollectiveSchedule::new(doubling, all_reduce(), Rank(0), 4, 4).expect("it supports");
    let short = ScheduleExecutor::new(schedule, Payload::EMPTY);
    assert!(matches!(short, Err(ScheduleError::Contribution { schedule: 4, contribution: 0 })));
}

#[test]
fn the_largest_group_has_schedules() {
    for radix in [2, 3, 10, MAX_RADIX] {
        for algorithm in [CollectiveAlgorithm::RecursiveKing { radix }, CollectiveAlgorithm::Tree { radix }] {
            for rank in [0, 1, MAX_RANKS / 2, MAX_RANKS - 1] {
                let schedule =
                    CollectiveSchedule::new(algorithm, all_reduce(), Rank(rank), MAX_RANKS, 4).expect("it supports");
                for round in 0..schedule.rounds() {
                    assert!(schedule.sends(round).all(|send| send.to.0 < MAX_RANKS && send.to.0 != rank));
                    assert!(schedule.receives(round).all(|receive| receive.from.0 < MAX_RANKS));
                }
            }
        }
    }
}

#[test]
fn fingerprints_cover_what_ranks_must_agree_on() {
    let f32_sum = reduction_of(&order_sensitive_sum(1));
    let i32_sum = ReductionKind::new(ElementType::I32, Operator::Sum).expect("a valid reduction");
    let print = |algorithm, collective, rank, size, bytes| {
        CollectiveSchedule::new(algorithm, collective, Rank(rank), size, bytes).expect("it supports").fingerprint()
    };
    let (tree, ring) = (CollectiveAlgorithm::Tree { radix: 2 }, CollectiveAlgorithm::Ring);
    let reduce = |root| CollectiveOperation::Reduce { root: Rank(root), kind: f32_sum };
    let base = print(tree, reduce(0), 0, 8, 64);
    assert_eq!(base, print(tree, reduce(0), 5, 8, 64), "the rank does not matter");
    for other in [
        print(tree, reduce(1), 0, 8, 64),
        print(ring, reduce(0), 0, 8, 64),
        print(CollectiveAlgorithm::Tree { radix: 3 }, reduce(0), 0, 8, 64),
        print(tree, reduce(0), 0, 9, 64),
        print(tree, reduce(0), 0, 8, 68),
        print(tree, CollectiveOperation::Reduce { root: Rank(0), kind: i32_sum }, 0, 8, 64),
        print(tree, CollectiveOperation::AllReduce { kind: f32_sum }, 0, 8, 64),
        print(tree, CollectiveOperation::Broadcast { root: Rank(0) }, 0, 8, 64),
    ] {
        assert_ne!(base, other);
    }
}

proptest! {
    /// With any messages, an executor ends at most once, keeps no more than its schedule expects, and never panics.
    #[test]
    fn an_executor_survives_any_messages(
        size in 1..20_u32,
        rank in any::<prop::sample::Index>(),
        which in 0..4_usize,
        messages in prop::collection::vec((0..22_u32, 0..40_u32, 0..5_u32), 0..200),
    ) {
        let algorithms =
            [CollectiveAlgorithm::RecursiveKing { radix: 4 }, CollectiveAlgorithm::Rabenseifner, CollectiveAlgorithm::Ring, CollectiveAlgorithm::Tree { radix: 3 }];
        let rank = Rank(rank.index(size as usize) as u32);
        let schedule = CollectiveSchedule::new(algorithms[which], all_reduce(), rank, size, 64).expect("it supports");
        let lengths: Vec<_> =
            (0..schedule.rounds()).flat_map(|round| schedule.receives(round)).map(|receive| receive.part.len()).collect();
        let mut executor = ScheduleExecutor::new(schedule, vec![0; 64].into()).expect("the contribution fits");
        let mut out = Vec::new();
        executor.start(&mut out);
        for (from, round, choice) in messages {
            let length = *lengths.get(choice as usize).unwrap_or(&choice);
            executor.handle_message(Rank(from), round, vec![0; length as usize].into(), &mut out);
        }
        let ends = out.iter().filter(|action| !matches!(action, ScheduleAction::Send { .. })).count();
        prop_assert_eq!(ends, usize::from(executor.is_over()));
        prop_assert!(out.len() - ends <= lengths.len() + 2);
    }
}
