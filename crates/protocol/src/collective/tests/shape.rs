//! The shape of schedules: rounds, messages, bytes and memory.

use reduce::{ElementType, Operator, ReductionKind};
use units::Rank;

use super::harness::{
    DeliveryModel, block_schedules, contributions, order_sensitive_sum, reduction_of, run_collective, schedules,
    sizes,
};
use crate::Payload;
use crate::collective::{
    BlockLayout, CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, ScanExtent, ScheduleAction,
    ScheduleExecutor,
};

const ALL_REDUCE: CollectiveOperation = match ReductionKind::new(ElementType::F32, Operator::Sum) {
    Ok(kind) => CollectiveOperation::AllReduce { kind },
    Err(_) => unreachable!(),
};

fn rounds(algorithm: CollectiveAlgorithm, collective: CollectiveOperation, size: u32) -> u32 {
    let bytes = if collective == CollectiveOperation::Barrier { 0 } else { 4000 };
    let schedules = schedules(algorithm, collective, size, bytes);
    assert!(schedules.iter().all(|schedule| schedule.rounds() == schedules[0].rounds()), "all ranks count alike");
    schedules[0].rounds()
}

/// The least `n` with `radix^n >= size`.
fn log_up(size: u32, radix: u32) -> u32 {
    (0..).find(|n| radix.pow(*n) >= size).expect("there is one")
}

#[test]
fn the_number_of_rounds_matches_the_formula() {
    for size in sizes() {
        let floor = size.ilog2();
        let joins = if size.is_power_of_two() { 0 } else { 2 };
        assert_eq!(rounds(CollectiveAlgorithm::RecursiveDoubling, ALL_REDUCE, size), floor + joins);
        assert_eq!(rounds(CollectiveAlgorithm::Rabenseifner, ALL_REDUCE, size), 2 * floor + joins);
        assert_eq!(rounds(CollectiveAlgorithm::Ring, ALL_REDUCE, size), 2 * (size - 1));
        let broadcast = CollectiveOperation::Broadcast { root: Rank(size / 2) };
        for radix in [2_u16, 3, 8] {
            let levels = log_up(size, radix.into());
            assert_eq!(rounds(CollectiveAlgorithm::Tree { radix }, broadcast, size), levels);
            assert_eq!(
                rounds(CollectiveAlgorithm::Dissemination { radix }, CollectiveOperation::Barrier, size),
                levels
            );
        }
        assert_eq!(rounds(CollectiveAlgorithm::ScatterAllgather, broadcast, size), log_up(size, 2) + size - 1);
    }
}

#[test]
fn a_table_has_the_steps_that_the_patterns_compute() {
    let root = Rank(0);
    let CollectiveOperation::AllReduce { kind } = ALL_REDUCE else { unreachable!("it is an allreduce") };
    let cases = [
        (CollectiveAlgorithm::RecursiveDoubling, ALL_REDUCE),
        (CollectiveAlgorithm::RecursiveKing { radix: 3 }, ALL_REDUCE),
        (CollectiveAlgorithm::Rabenseifner, ALL_REDUCE),
        (CollectiveAlgorithm::Ring, ALL_REDUCE),
        (CollectiveAlgorithm::Tree { radix: 3 }, CollectiveOperation::Reduce { root, kind }),
        (CollectiveAlgorithm::ScatterAllgather, CollectiveOperation::Broadcast { root }),
        (CollectiveAlgorithm::Chain, CollectiveOperation::Broadcast { root }),
        (CollectiveAlgorithm::Dissemination { radix: 2 }, CollectiveOperation::Barrier),
    ];
    for (algorithm, collective) in cases {
        for size in sizes() {
            let bytes = if collective == CollectiveOperation::Barrier { 0 } else { 4000 };
            for schedule in schedules(algorithm, collective, size, bytes) {
                let table = schedule.clone().compiled();
                for round in 0..=schedule.rounds() {
                    assert_eq!(table.sends(round).collect::<Vec<_>>(), schedule.sends(round).collect::<Vec<_>>());
                    assert_eq!(
                        table.receives(round).collect::<Vec<_>>(),
                        schedule.receives(round).collect::<Vec<_>>()
                    );
                    assert_eq!(table.next_round(round), schedule.next_round(round), "{algorithm} {size} {round}");
                }
            }
        }
    }
}

#[test]
fn recursive_k_ing_needs_no_extra_rounds_if_a_smaller_last_group_fits() {
    let king = |radix, size| rounds(CollectiveAlgorithm::RecursiveKing { radix }, ALL_REDUCE, size);
    assert_eq!(king(4, 64), 3);
    assert_eq!(king(4, 128), 4, "4 * 4 * 4 * 2");
    assert_eq!(king(16, 128), 2, "16 * 8");
    assert_eq!(king(8, 24), 2, "8 * 3");
    assert_eq!(king(8, 25), 2 + 2, "one rank joins another");
    assert_eq!(king(64, 33), 1, "all with all");
}

#[test]
fn the_number_of_messages_matches_the_formula() {
    let operation = order_sensitive_sum(64);
    for size in sizes() {
        let count = |algorithm| {
            let collective = CollectiveOperation::AllReduce { kind: reduction_of(&operation) };
            let schedules = schedules(algorithm, collective, size, operation.bytes());
            run_collective(schedules, contributions(1, size, &operation), DeliveryModel::Once, 1).messages as u32
        };
        let participants = 1 << size.ilog2();
        let joins = 2 * (size - participants);
        assert_eq!(count(CollectiveAlgorithm::RecursiveDoubling), participants * size.ilog2() + joins);
        assert_eq!(count(CollectiveAlgorithm::Rabenseifner), 2 * participants * size.ilog2() + joins);
        assert_eq!(count(CollectiveAlgorithm::Ring), 2 * size * (size - 1));
        assert_eq!(count(CollectiveAlgorithm::Tree { radix: 3 }), 2 * (size - 1));
    }
}

#[test]
fn the_bytes_per_rank_match_the_formula() {
    let sent = |algorithm, size: u32| {
        let schedule = CollectiveSchedule::new(algorithm, ALL_REDUCE, Rank(3), size, 64_000).expect("it supports");
        let parts = (0..schedule.rounds()).flat_map(|round| schedule.sends(round).collect::<Vec<_>>());
        parts.map(|send| send.part.len()).sum::<u32>()
    };
    assert_eq!(sent(CollectiveAlgorithm::RecursiveDoubling, 16), 4 * 64_000);
    assert_eq!(sent(CollectiveAlgorithm::Rabenseifner, 16), 2 * 64_000 * 15 / 16);
    assert_eq!(sent(CollectiveAlgorithm::Ring, 16), 2 * 64_000 * 15 / 16);
    assert_eq!(sent(CollectiveAlgorithm::Ring, 10), 2 * 64_000 * 9 / 10);
}

#[test]
fn both_ends_of_every_message_agree_on_it() {
    for size in sizes() {
        let root = Rank(size / 3);
        let kind = reduction_of(&order_sensitive_sum(1));
        let broadcast = CollectiveOperation::Broadcast { root };
        let reduce = CollectiveOperation::Reduce { root, kind };
        let scan = CollectiveOperation::Scan { kind, extent: ScanExtent::Exclusive };
        let uneven = BlockLayout::from_lengths((0..size).map(|rank| rank % 4 * 4)).expect("few and short").into();
        for (algorithm, collective) in [
            (CollectiveAlgorithm::RecursiveKing { radix: 5 }, ALL_REDUCE),
            (CollectiveAlgorithm::Rabenseifner, ALL_REDUCE),
            (CollectiveAlgorithm::Ring, reduce),
            (CollectiveAlgorithm::Tree { radix: 4 }, reduce),
            (CollectiveAlgorithm::ScatterAllgather, broadcast),
            (CollectiveAlgorithm::RecursiveDoubling, scan),
            (CollectiveAlgorithm::Chain, scan),
            (CollectiveAlgorithm::RecursiveDoubling, CollectiveOperation::AllGather),
            (CollectiveAlgorithm::RecursiveHalving, CollectiveOperation::ReduceScatter { kind }),
            (CollectiveAlgorithm::Tree { radix: 3 }, CollectiveOperation::Gather { root }),
            (CollectiveAlgorithm::Direct, CollectiveOperation::Scatter { root }),
        ] {
            let schedules = match collective.has_blocks() {
                true => block_schedules(algorithm, collective, &uneven),
                false => schedules(algorithm, collective, size, 4 * 77),
            };
            for (schedule, round) in
                schedules.iter().flat_map(|schedule| (0..schedule.rounds()).map(move |round| (schedule, round)))
            {
                for send in schedule.sends(round) {
                    let expected = schedules[send.to.index()].expected(round, schedule.rank());
                    assert_eq!(expected.map(|receive| receive.part), Some(send.part), "{algorithm}, {size} ranks");
                }
                for receive in schedule.receives(round) {
                    let mut sends = schedules[receive.from.index()].sends(round);
                    assert!(sends.any(|send| send.to == schedule.rank() && send.part == receive.part));
                }
            }
        }
    }
}

#[test]
fn a_million_executors_fit_into_memory() {
    assert!(size_of::<ScheduleExecutor>() <= 152, "{} bytes", size_of::<ScheduleExecutor>());
    // One rank of a million, without the others: the cost of a round does not depend on the size.
    let size = 1 << 20;
    let schedule =
        CollectiveSchedule::new(CollectiveAlgorithm::RecursiveDoubling, ALL_REDUCE, Rank(777_777), size, 8)
            .expect("it supports");
    assert_eq!(schedule.rounds(), 20);
    let mut executor =
        ScheduleExecutor::new(schedule, Payload::SizeOnly { bytes: 8 }).expect("the contribution fits");
    let mut out = Vec::new();
    executor.start(&mut out);
    for round in 0..20 {
        let from = Rank(777_777 ^ (1 << round));
        assert_eq!(executor.waiting_for().collect::<Vec<_>>(), [from]);
        executor.handle_message(from, round, Payload::SizeOnly { bytes: 8 }, &mut out);
    }
    assert_eq!(out.last(), Some(&ScheduleAction::Complete { result: Payload::SizeOnly { bytes: 8 } }));
    assert_eq!(out.len(), 21);
}

#[test]
fn a_whole_vector_is_sent_without_a_copy() {
    let schedule = CollectiveSchedule::new(CollectiveAlgorithm::RecursiveDoubling, ALL_REDUCE, Rank(0), 2, 80)
        .expect("it supports");
    let bytes = crate::PayloadBytes::from(vec![0; 80]);
    let mut executor = ScheduleExecutor::new(schedule, Payload::Bytes(bytes.clone())).expect("the contribution fits");
    let mut out = Vec::new();
    executor.start(&mut out);
    let Some(ScheduleAction::Send { payload: Payload::Bytes(sent), .. }) = out.first() else { panic!("{out:?}") };
    assert_eq!(bytes.as_ptr(), sent.as_ptr());
}
