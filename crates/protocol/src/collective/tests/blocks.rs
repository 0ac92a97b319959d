//! Collectives in blocks, and scans: the bits of their results at every rank, against the contributions themselves.

use std::sync::Arc;

use oracle::{Reduction, ReductionElement, ReductionOperator};
use reduce::ReductionKind;
use units::Rank;

use super::harness::{
    DeliveryModel, block_schedules, contribution, contributions, operation, order_sensitive_sum, reduction_of,
    run_collective, schedules, sizes,
};
use super::reference_orders;
use crate::Payload;
use crate::collective::{
    BlockLayout, BlockLayoutError, CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, ScanExtent,
    ScheduleError,
};

const REDUCE_SCATTERERS: [CollectiveAlgorithm; 4] = [
    CollectiveAlgorithm::RecursiveHalving,
    CollectiveAlgorithm::Ring,
    CollectiveAlgorithm::Tree { radix: 2 },
    CollectiveAlgorithm::Tree { radix: 3 },
];
const GATHERERS: [CollectiveAlgorithm; 4] = [
    CollectiveAlgorithm::Tree { radix: 2 },
    CollectiveAlgorithm::Tree { radix: 3 },
    CollectiveAlgorithm::Tree { radix: 8 },
    CollectiveAlgorithm::Direct,
];
const SCANNERS: [CollectiveAlgorithm; 2] = [CollectiveAlgorithm::RecursiveDoubling, CollectiveAlgorithm::Chain];

/// Layouts of so many ranks in units of `element` bytes: equal, empty, uneven with empty blocks, and all in one block.
fn layouts(size: u32, element: u32) -> Vec<Arc<BlockLayout>> {
    let uneven = |rank: u32| (rank * 7 + 3) % 5 * element;
    let single = |rank: u32| u32::from(rank == size / 2) * 9 * element;
    [
        BlockLayout::equal(size, 3 * element),
        BlockLayout::equal(size, 0),
        BlockLayout::from_lengths((0..size).map(uneven)),
        BlockLayout::from_lengths((0..size).map(single)),
    ]
    .map(|layout| Arc::new(layout.expect("few and short")))
    .into()
}

fn range(layout: &BlockLayout, rank: u32) -> std::ops::Range<usize> {
    let block = layout.block(rank);
    block.start as usize..block.end as usize
}

/// Bytes that differ between ranks.
fn bytes_of(rank: u32, length: usize) -> Vec<u8> {
    contribution(7, rank, &operation(ReductionElement::U8, ReductionOperator::Sum, length))
}

/// A vector with the rank's own block in it, and other bytes elsewhere.
fn own_block(layout: &BlockLayout, rank: u32) -> Payload {
    let mut vector = vec![0xee; layout.bytes() as usize];
    let block = range(layout, rank);
    vector[block.clone()].copy_from_slice(&bytes_of(rank, block.len()));
    vector.into()
}

fn all_blocks(layout: &BlockLayout) -> Vec<u8> {
    (0..layout.size()).flat_map(|rank| bytes_of(rank, range(layout, rank).len())).collect()
}

/// The fold of all contributions in the order of the algorithm; each rank uses its block of it.
fn folded(algorithm: CollectiveAlgorithm, operation: &Reduction, size: u32, owner: u32) -> Vec<u8> {
    let order = match algorithm {
        CollectiveAlgorithm::Ring => reference_orders::ring(size, owner),
        CollectiveAlgorithm::RecursiveHalving => reference_orders::halving(size),
        _ => reference_orders::tree(size, algorithm.radix().into()),
    };
    reference_orders::folded(5, operation, &order)
}

#[test]
fn reduce_scatter_has_the_bits_of_its_order_in_every_block() {
    for size in sizes() {
        for layout in layouts(size, 4) {
            let operation = order_sensitive_sum(layout.bytes() as usize / 4);
            let collective = CollectiveOperation::ReduceScatter { kind: reduction_of(&operation) };
            for algorithm in REDUCE_SCATTERERS {
                let schedules = block_schedules(algorithm, collective, &layout);
                let given = contributions(5, size, &operation);
                let outcome = run_collective(schedules, given, DeliveryModel::Duplicating, 5);
                for (rank, result) in (0..).zip(&outcome.results) {
                    let block = range(&layout, rank);
                    if !block.is_empty() {
                        let expected = &folded(algorithm, &operation, size, rank)[block];
                        assert_eq!(result.bytes(), Some(expected), "{algorithm}, rank {rank} of {size}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_exact_operator_gives_the_same_bits_by_every_algorithm() {
    let maximum = operation(ReductionElement::I64, ReductionOperator::Max, 26);
    let kind = reduction_of(&maximum);
    let layout = Arc::new(BlockLayout::equal(13, 16).expect("few and short"));
    let results = |algorithm| {
        let schedules = block_schedules(algorithm, CollectiveOperation::ReduceScatter { kind }, &layout);
        run_collective(schedules, contributions(3, 13, &maximum), DeliveryModel::Once, 1).results
    };
    let scans = |algorithm| {
        let collective = CollectiveOperation::Scan { kind, extent: ScanExtent::Inclusive };
        let schedules = schedules(algorithm, collective, 13, maximum.bytes());
        run_collective(schedules, contributions(3, 13, &maximum), DeliveryModel::Once, 1).results
    };
    for algorithm in REDUCE_SCATTERERS {
        assert_eq!(results(algorithm), results(CollectiveAlgorithm::Ring), "{algorithm}");
    }
    assert_eq!(scans(CollectiveAlgorithm::Chain), scans(CollectiveAlgorithm::RecursiveDoubling));
}

#[test]
fn scans_fold_the_ranks_before() {
    for size in sizes() {
        for count in [0, 1, 19] {
            let operation = order_sensitive_sum(count);
            for algorithm in SCANNERS {
                check_scan(algorithm, &operation, size);
            }
        }
    }
}

fn check_scan(algorithm: CollectiveAlgorithm, operation: &Reduction, size: u32) {
    let kind = reduction_of(operation);
    let order = |ranks: u32| match algorithm {
        CollectiveAlgorithm::Chain => reference_orders::serial(ranks),
        _ => reference_orders::doubling_prefix(ranks),
    };
    let run = |extent| {
        let schedules = schedules(algorithm, CollectiveOperation::Scan { kind, extent }, size, operation.bytes());
        run_collective(schedules, contributions(5, size, operation), DeliveryModel::Duplicating, 2).results
    };
    let expected = |ranks: u32| reference_orders::folded(5, operation, &order(ranks));
    for (rank, result) in (0..).zip(run(ScanExtent::Inclusive)) {
        assert_eq!(result.bytes(), Some(&expected(rank + 1)[..]), "{algorithm}, rank {rank} of {size}");
    }
    for (rank, result) in (0..).zip(run(ScanExtent::Exclusive)) {
        match rank {
            0 => assert!(result.is_empty(), "rank 0 has no result"),
            // The bits of the inclusive scan of the rank before.
            _ => assert_eq!(result.bytes(), Some(&expected(rank)[..]), "{algorithm}, rank {rank} of {size}"),
        }
    }
}

#[test]
fn allgather_brings_every_block_to_every_rank() {
    for size in sizes() {
        for layout in layouts(size, 1) {
            for algorithm in [CollectiveAlgorithm::RecursiveDoubling, CollectiveAlgorithm::Ring] {
                let schedules = block_schedules(algorithm, CollectiveOperation::AllGather, &layout);
                let given = (0..size).map(|rank| own_block(&layout, rank)).collect();
                let outcome = run_collective(schedules, given, DeliveryModel::Duplicating, 3);
                for (rank, result) in outcome.results.iter().enumerate() {
                    let expected = all_blocks(&layout);
                    assert_eq!(result.bytes(), Some(&expected[..]), "{algorithm}, rank {rank} of {size}");
                }
            }
        }
    }
}

#[test]
fn gather_and_scatter_are_each_others_reverse() {
    for size in sizes() {
        for (layout, root) in layouts(size, 1).into_iter().zip([0, size - 1, size / 2, size / 3]) {
            for algorithm in GATHERERS {
                check_gather(algorithm, &layout, root);
                check_scatter(algorithm, &layout, root);
            }
        }
    }
}

fn check_gather(algorithm: CollectiveAlgorithm, layout: &Arc<BlockLayout>, root: u32) {
    let schedules = block_schedules(algorithm, CollectiveOperation::Gather { root: Rank(root) }, layout);
    let given = (0..layout.size()).map(|rank| own_block(layout, rank)).collect();
    let outcome = run_collective(schedules, given, DeliveryModel::Once, 3);
    for (rank, result) in (0..).zip(&outcome.results) {
        if rank == root {
            assert_eq!(result.bytes(), Some(&all_blocks(layout)[..]), "{algorithm}, root {root}");
        } else {
            assert!(result.is_empty(), "{algorithm}, rank {rank} gets nothing");
        }
    }
}

fn check_scatter(algorithm: CollectiveAlgorithm, layout: &Arc<BlockLayout>, root: u32) {
    let schedules = block_schedules(algorithm, CollectiveOperation::Scatter { root: Rank(root) }, layout);
    let mut given = vec![Payload::SizeOnly { bytes: layout.bytes() }; layout.size() as usize];
    given[root as usize] = all_blocks(layout).into();
    let outcome = run_collective(schedules, given, DeliveryModel::Once, 3);
    for (rank, result) in (0..).zip(&outcome.results) {
        let expected = bytes_of(rank, range(layout, rank).len());
        if !expected.is_empty() {
            assert_eq!(result.bytes(), Some(&expected[..]), "{algorithm}, rank {rank}, root {root}");
        }
    }
}

/// What rank `from` has for rank `to`.
fn pair_block(from: u32, to: u32, length: usize) -> Vec<u8> {
    bytes_of(from * 1000 + to, length)
}

#[test]
fn alltoall_transposes_the_blocks() {
    for size in sizes().chain([65, 129]) {
        for (weights, unit) in [([1, 1, 1], 5), ([1, 2, 4], 3), ([2, 1, 3], 0)] {
            let members: Vec<u32> = (0..size as usize).map(|rank| weights[rank % 3]).collect();
            let layout = |me: u32| BlockLayout::of_pairs(&members, me, unit).expect("few and short");
            let algorithm = CollectiveAlgorithm::Direct;
            let schedule = |me: u32| {
                let blocks = Arc::new(layout(me));
                CollectiveSchedule::in_blocks(algorithm, CollectiveOperation::AllToAll, Rank(me), blocks)
            };
            let schedules: Vec<_> = (0..size).map(|me| schedule(me).expect("it supports")).collect();
            assert!(schedules.iter().all(|other| other.fingerprint() == schedules[0].fingerprint()));
            let vector = |me: u32, block: &dyn Fn(u32, usize) -> Vec<u8>| -> Vec<u8> {
                let layout = layout(me);
                (0..size).flat_map(|peer| block(peer, range(&layout, peer).len())).collect()
            };
            let given = (0..size).map(|me| vector(me, &|to, length| pair_block(me, to, length)).into()).collect();
            let outcome = run_collective(schedules, given, DeliveryModel::Duplicating, 9);
            for (me, result) in (0..).zip(&outcome.results) {
                let expected = vector(me, &|from, length| pair_block(from, me, length));
                assert_eq!(result.bytes(), Some(&expected[..]), "rank {me} of {size}");
            }
        }
    }
}

#[test]
fn layouts_that_do_not_fit_are_rejected() {
    assert_eq!(BlockLayout::from_lengths([]), Err(BlockLayoutError::Size(0)));
    assert_eq!(BlockLayout::from_lengths([u32::MAX, 1]), Err(BlockLayoutError::TooLong));
    assert_eq!(BlockLayout::equal(u32::MAX, 0), Err(BlockLayoutError::Size(u32::MAX)));
    assert_eq!(BlockLayout::of_pairs(&[1, 2], 2, 4), Err(BlockLayoutError::UnknownRank(Rank(2))));
    assert_eq!(BlockLayout::of_pairs(&[1 << 20, 1 << 20], 0, 1 << 20), Err(BlockLayoutError::TooLong));
    let kind: ReductionKind = reduction_of(&order_sensitive_sum(1));
    let layout = Arc::new(BlockLayout::from_lengths([6, 2]).expect("few and short"));
    let schedule = |algorithm, collective| {
        CollectiveSchedule::in_blocks(algorithm, collective, Rank(0), layout.clone())
            .map(|schedule| schedule.rounds())
    };
    let ring = CollectiveAlgorithm::Ring;
    let reduce_scatter = CollectiveOperation::ReduceScatter { kind };
    assert_eq!(
        schedule(ring, reduce_scatter),
        Err(ScheduleError::Length { collective: reduce_scatter, bytes: 8 }),
        "blocks end inside an element, though the vector does not"
    );
    let all_reduce = CollectiveOperation::AllReduce { kind };
    assert_eq!(schedule(ring, all_reduce), Err(ScheduleError::IgnoresBlocks(all_reduce)));
    let gather = CollectiveOperation::Gather { root: Rank(2) };
    assert_eq!(schedule(CollectiveAlgorithm::Direct, gather), Err(ScheduleError::UnknownRank(Rank(2))));
    assert!(matches!(schedule(ring, CollectiveOperation::AllToAll), Err(ScheduleError::Unsuited { .. })));
    let plain = CollectiveSchedule::new(ring, CollectiveOperation::AllGather, Rank(0), 2, 8);
    assert!(matches!(plain, Err(ScheduleError::NoBlocks(CollectiveOperation::AllGather))));
}

#[test]
fn fingerprints_cover_the_layout() {
    let print = |lengths: [u32; 3], collective| {
        let blocks = Arc::new(BlockLayout::from_lengths(lengths).expect("few and short"));
        let algorithm = match collective {
            CollectiveOperation::AllGather => CollectiveAlgorithm::Ring,
            _ => CollectiveAlgorithm::Direct,
        };
        CollectiveSchedule::in_blocks(algorithm, collective, Rank(0), blocks).expect("it supports").fingerprint()
    };
    let gather = |root| CollectiveOperation::Gather { root: Rank(root) };
    let base = print([4, 8, 4], gather(0));
    assert_eq!(base, print([4, 8, 4], gather(0)));
    for other in [
        print([8, 4, 4], gather(0)),
        print([4, 8, 4], gather(1)),
        print([4, 8, 4], CollectiveOperation::Scatter { root: Rank(0) }),
        print([4, 8, 4], CollectiveOperation::AllGather),
    ] {
        assert_ne!(base, other);
    }
}

#[test]
fn the_bytes_and_rounds_match_the_formulas() {
    let layout = Arc::new(BlockLayout::equal(16, 1000).expect("few and short"));
    let shape = |algorithm, collective| {
        let schedule = CollectiveSchedule::in_blocks(algorithm, collective, Rank(3), layout.clone());
        let schedule = schedule.expect("it supports");
        let sends = (0..schedule.rounds()).flat_map(|round| schedule.sends(round).collect::<Vec<_>>());
        (schedule.rounds(), sends.map(|send| send.part.len()).sum::<u32>())
    };
    let kind = reduction_of(&order_sensitive_sum(1));
    let reduce_scatter = CollectiveOperation::ReduceScatter { kind };
    assert_eq!(shape(CollectiveAlgorithm::RecursiveHalving, reduce_scatter), (4, 15_000));
    assert_eq!(shape(CollectiveAlgorithm::Ring, reduce_scatter), (15, 15_000));
    assert_eq!(shape(CollectiveAlgorithm::RecursiveDoubling, CollectiveOperation::AllGather), (4, 15_000));
    assert_eq!(shape(CollectiveAlgorithm::Ring, CollectiveOperation::AllGather), (15, 15_000));
    assert_eq!(shape(CollectiveAlgorithm::Direct, CollectiveOperation::AllToAll), (1, 15_000));
    let gather = CollectiveOperation::Gather { root: Rank(0) };
    assert_eq!(shape(CollectiveAlgorithm::Direct, gather), (15, 1000));
    assert_eq!(shape(CollectiveAlgorithm::Tree { radix: 2 }, gather), (4, 1000));
    let scan = |algorithm, extent| {
        CollectiveSchedule::new(algorithm, CollectiveOperation::Scan { kind, extent }, Rank(0), 16, 8)
            .expect("it supports")
            .rounds()
    };
    assert_eq!(scan(CollectiveAlgorithm::RecursiveDoubling, ScanExtent::Inclusive), 4);
    assert_eq!(scan(CollectiveAlgorithm::RecursiveDoubling, ScanExtent::Exclusive), 5);
    assert_eq!(scan(CollectiveAlgorithm::Chain, ScanExtent::Exclusive), 15);
}
