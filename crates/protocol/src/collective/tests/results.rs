//! The bits of the results at every rank.

use oracle::{Reduction, ReductionElement, ReductionOperator};
use proptest::prelude::*;
use units::Rank;

use super::harness::{
    DeliveryModel, contribution, contributions, operation, order_sensitive_sum, reduction_of, run_collective,
    schedules, sizes,
};
use super::reference_orders;
use crate::Payload;
use crate::collective::{CollectiveAlgorithm, CollectiveOperation};

const ALL_REDUCERS: [CollectiveAlgorithm; 9] = [
    CollectiveAlgorithm::RecursiveDoubling,
    CollectiveAlgorithm::RecursiveKing { radix: 2 },
    CollectiveAlgorithm::RecursiveKing { radix: 3 },
    CollectiveAlgorithm::RecursiveKing { radix: 4 },
    CollectiveAlgorithm::RecursiveKing { radix: 16 },
    CollectiveAlgorithm::Rabenseifner,
    CollectiveAlgorithm::Ring,
    CollectiveAlgorithm::Tree { radix: 2 },
    CollectiveAlgorithm::Tree { radix: 5 },
];
const REDUCERS: [CollectiveAlgorithm; 5] = [
    CollectiveAlgorithm::Tree { radix: 2 },
    CollectiveAlgorithm::Tree { radix: 3 },
    CollectiveAlgorithm::Tree { radix: 8 },
    CollectiveAlgorithm::Rabenseifner,
    CollectiveAlgorithm::Ring,
];
const BROADCASTERS: [CollectiveAlgorithm; 5] = [
    CollectiveAlgorithm::Chain,
    CollectiveAlgorithm::Tree { radix: 2 },
    CollectiveAlgorithm::Tree { radix: 3 },
    CollectiveAlgorithm::Tree { radix: 8 },
    CollectiveAlgorithm::ScatterAllgather,
];
const BARRIERS: [CollectiveAlgorithm; 6] = [
    CollectiveAlgorithm::Dissemination { radix: 2 },
    CollectiveAlgorithm::Dissemination { radix: 3 },
    CollectiveAlgorithm::Dissemination { radix: 8 },
    CollectiveAlgorithm::RecursiveDoubling,
    CollectiveAlgorithm::RecursiveKing { radix: 4 },
    CollectiveAlgorithm::Tree { radix: 4 },
];

/// The expected result of an algorithm, by the naive orders.
fn expected(algorithm: CollectiveAlgorithm, seed: u64, operation: &Reduction, size: u32) -> Vec<u8> {
    let radix = u32::from(algorithm.radix());
    match algorithm {
        CollectiveAlgorithm::Ring => reference_orders::folded_by_ring(seed, operation, size),
        CollectiveAlgorithm::Tree { .. } => {
            reference_orders::folded(seed, operation, &reference_orders::tree(size, radix))
        }
        _ => reference_orders::folded(seed, operation, &reference_orders::recursive(size, radix)),
    }
}

fn check_all_reduce(
    algorithm: CollectiveAlgorithm,
    operation: &Reduction,
    size: u32,
    network: DeliveryModel,
    seed: u64,
) {
    let collective = CollectiveOperation::AllReduce { kind: reduction_of(operation) };
    let schedules = schedules(algorithm, collective, size, operation.bytes());
    let outcome = run_collective(schedules, contributions(seed, size, operation), network, seed);
    let expected = expected(algorithm, seed, operation, size);
    for (rank, result) in outcome.results.iter().enumerate() {
        assert_eq!(result.bytes(), Some(&expected[..]), "{algorithm}, {operation}, rank {rank} of {size}");
    }
}

fn check_reduce(algorithm: CollectiveAlgorithm, operation: &Reduction, size: u32, root: u32, seed: u64) {
    let collective = CollectiveOperation::Reduce { root: Rank(root), kind: reduction_of(operation) };
    let schedules = schedules(algorithm, collective, size, operation.bytes());
    let outcome = run_collective(schedules, contributions(seed, size, operation), DeliveryModel::Once, seed);
    let expected = expected(algorithm, seed, operation, size);
    for (rank, result) in outcome.results.iter().enumerate() {
        if rank as u32 == root {
            assert_eq!(result.bytes(), Some(&expected[..]), "{algorithm}, {operation}, root {root} of {size}");
        } else {
            assert!(result.is_empty(), "{algorithm}, rank {rank} of {size} has no result");
        }
    }
}

fn check_broadcast(algorithm: CollectiveAlgorithm, size: u32, root: u32, bytes: usize, seed: u64) {
    let sent = contribution(seed, root, &operation(ReductionElement::U8, ReductionOperator::Sum, bytes));
    let schedules = schedules(algorithm, CollectiveOperation::Broadcast { root: Rank(root) }, size, bytes);
    let mut contributions = vec![Payload::SizeOnly { bytes: bytes as u32 }; size as usize];
    contributions[root as usize] = sent.clone().into();
    let outcome = run_collective(schedules, contributions, DeliveryModel::Once, seed);
    for (rank, result) in outcome.results.iter().enumerate() {
        assert_eq!(result.bytes(), Some(&sent[..]), "{algorithm}, rank {rank} of {size}, root {root}");
    }
}

#[test]
fn allreduce_has_the_bits_of_its_order_at_every_rank() {
    for size in sizes() {
        for algorithm in ALL_REDUCERS {
            check_all_reduce(algorithm, &order_sensitive_sum(37), size, DeliveryModel::Once, u64::from(size));
            check_all_reduce(
                algorithm,
                &order_sensitive_sum(3),
                size,
                DeliveryModel::Duplicating,
                u64::from(size) + 1000,
            );
        }
    }
}

#[test]
fn order_sensitive_sums_distinguish_the_orders() {
    let folded = |order| reference_orders::folded(1, &order_sensitive_sum(37), &order);
    let of_sixteen = [
        reference_orders::tree(16, 2),
        reference_orders::tree(16, 3),
        reference_orders::tree(16, 16),
        reference_orders::ring(16, 4),
    ]
    .map(folded);
    for (position, bits) in of_sixteen.iter().enumerate() {
        assert!(!of_sixteen[..position].contains(bits), "order {position} looks like an earlier one");
    }
}

#[test]
fn allreduce_supports_every_type_and_operator() {
    for element in ReductionElement::ALL {
        for operator in ReductionOperator::ALL {
            let operation = operation(*element, *operator, 13);
            if operation.is_defined() {
                for algorithm in ALL_REDUCERS {
                    check_all_reduce(algorithm, &operation, 11, DeliveryModel::Once, 7);
                }
            }
        }
    }
}

#[test]
fn reduce_has_the_same_bits_for_every_root() {
    for size in 1..=33 {
        for root in 0..size {
            for algorithm in REDUCERS {
                check_reduce(algorithm, &order_sensitive_sum(5), size, root, u64::from(size));
            }
        }
    }
    for (size, root) in [(64, 63), (100, 50), (128, 1)] {
        for algorithm in REDUCERS {
            check_reduce(algorithm, &order_sensitive_sum(130), size, root, 3);
        }
    }
}

#[test]
fn broadcast_reaches_every_rank_from_every_root() {
    for size in 1..=33 {
        for root in 0..size {
            for algorithm in BROADCASTERS {
                check_broadcast(algorithm, size, root, 41, u64::from(size));
            }
        }
    }
    for (size, root) in [(64, 63), (100, 50), (128, 1)] {
        for algorithm in BROADCASTERS {
            check_broadcast(algorithm, size, root, 1000, 3);
        }
    }
}

#[test]
fn empty_vectors_are_reduced_and_broadcast() {
    for size in [1, 2, 5, 8] {
        for algorithm in ALL_REDUCERS {
            check_all_reduce(algorithm, &order_sensitive_sum(0), size, DeliveryModel::Once, 1);
        }
        let collective = CollectiveOperation::Broadcast { root: Rank(size - 1) };
        for algorithm in BROADCASTERS {
            let nothing = vec![Payload::EMPTY; size as usize];
            run_collective(schedules(algorithm, collective, size, 0), nothing, DeliveryModel::Once, 1);
        }
    }
}

/// Runs a barrier with one late rank: no rank may complete before it has started.
#[test]
fn no_rank_leaves_a_barrier_before_the_last_has_entered() {
    use crate::collective::{ScheduleAction, ScheduleExecutor};
    for size in 2..=33_u32 {
        for algorithm in BARRIERS {
            let late = size * 7 / 11;
            let schedules = schedules(algorithm, CollectiveOperation::Barrier, size, 0);
            let mut executors: Vec<_> = schedules
                .into_iter()
                .map(|schedule| ScheduleExecutor::new(schedule, Payload::EMPTY).expect("no bytes fit"))
                .collect();
            let mut in_flight = Vec::new();
            let mut completed = 0;
            let mut run = |actor: u32, executors: &mut Vec<ScheduleExecutor>| {
                let mut out = Vec::new();
                executors[actor as usize].start(&mut out);
                let mut actor = actor;
                loop {
                    for action in out.drain(..) {
                        match action {
                            ScheduleAction::Send { to, round, .. } => in_flight.push((Rank(actor), to, round)),
                            ScheduleAction::Complete { .. } => completed += 1,
                            ScheduleAction::Failed { cause } => panic!("{cause}"),
                        }
                    }
                    let Some((from, to, round)) = in_flight.pop() else { return completed };
                    actor = to.0;
                    executors[to.index()].handle_message(from, round, Payload::EMPTY, &mut out);
                }
            };
            for rank in (0..size).filter(|rank| *rank != late) {
                assert_eq!(run(rank, &mut executors), 0, "{algorithm} of {size}: {late} is missing");
            }
            assert!(executors.iter().any(|executor| executor.waiting_for().any(|rank| rank == Rank(late))));
            assert_eq!(run(late, &mut executors), size, "{algorithm} of {size}");
        }
    }
}

#[test]
fn recursive_doubling_and_rabenseifner_give_the_same_bits() {
    let telling = order_sensitive_sum(50);
    for size in sizes() {
        let collective = CollectiveOperation::AllReduce { kind: reduction_of(&telling) };
        let run = |algorithm| {
            let schedules = schedules(algorithm, collective, size, telling.bytes());
            run_collective(schedules, contributions(9, size, &telling), DeliveryModel::Once, 9).results
        };
        assert_eq!(
            run(CollectiveAlgorithm::RecursiveDoubling),
            run(CollectiveAlgorithm::Rabenseifner),
            "{size} ranks"
        );
    }
}

#[test]
fn size_only_payloads_need_the_same_messages() {
    for size in sizes() {
        for algorithm in ALL_REDUCERS {
            let collective = CollectiveOperation::AllReduce { kind: reduction_of(&order_sensitive_sum(10)) };
            let run = |contributions| {
                run_collective(schedules(algorithm, collective, size, 40), contributions, DeliveryModel::Once, 2)
            };
            let absent = run(vec![Payload::SizeOnly { bytes: 40 }; size as usize]);
            let real = run(contributions(2, size, &order_sensitive_sum(10)));
            assert_eq!(absent.messages, real.messages);
            assert!(absent.results.iter().all(|result| *result == Payload::SizeOnly { bytes: 40 }));
        }
    }
}

fn operations() -> impl Strategy<Value = Reduction> {
    let element = prop::sample::select(ReductionElement::ALL);
    let operator = prop::sample::select(ReductionOperator::ALL);
    (element, operator, 0..70_usize)
        .prop_map(|(element, operator, count)| operation(element, operator, count))
        .prop_filter("bits of floats have no meaning", Reduction::is_defined)
}

proptest! {
    #[test]
    fn any_allreduce_has_the_bits_of_its_order(
        operation in operations(),
        size in 1..40_u32,
        radix in 2..=64_u16,
        which in 0..5_usize,
        seed: u64,
    ) {
        let algorithm = [
            CollectiveAlgorithm::RecursiveKing { radix },
            CollectiveAlgorithm::RecursiveDoubling,
            CollectiveAlgorithm::Rabenseifner,
            CollectiveAlgorithm::Ring,
            CollectiveAlgorithm::Tree { radix },
        ][which];
        check_all_reduce(algorithm, &operation, size, DeliveryModel::Duplicating, seed);
    }

    #[test]
    fn any_broadcast_reaches_every_rank(
        size in 1..80_u32,
        root in any::<prop::sample::Index>(),
        radix in 2..=64_u16,
        bytes in 0..300_usize,
        seed: u64,
    ) {
        let root = root.index(size as usize) as u32;
        check_broadcast(CollectiveAlgorithm::Tree { radix }, size, root, bytes.max(1), seed);
        check_broadcast(CollectiveAlgorithm::ScatterAllgather, size, root, bytes.max(1), seed);
    }
}
