//! Blocks and prefixes among hosts, in whole messages and streamed, over networks that lose, damage, duplicate and reorder.

use faults::{FaultKind, FaultPlan, FaultRule};
use protocol::collective::{BlockLayout, CollectiveAlgorithm, ScanExtent, ScheduledCollective, VectorRange};

use super::*;

const SIZE: u32 = 5;

fn range(range: VectorRange) -> std::ops::Range<usize> {
    range.start as usize..range.end as usize
}

/// Small integers, so that every order gives the same bits.
fn vector(rank: usize, elements: usize) -> Vec<u8> {
    (0..elements).flat_map(|index| ((rank * 31 + index * 7) as f64 % 1_000.0).to_le_bytes()).collect()
}

/// The sum of the vectors of some ranks.
fn total(ranks: std::ops::Range<usize>, elements: usize) -> Vec<u8> {
    let sum = |index: usize| ranks.clone().map(|rank| (rank * 31 + index * 7) as f64 % 1_000.0).sum::<f64>();
    (0..elements).flat_map(|index| sum(index).to_le_bytes()).collect()
}

/// A collective with what each rank contributes and expects: where in its vector, and which bytes.
struct BlockCase {
    algorithm: CollectiveAlgorithm,
    collective: ScheduledCollective,
    inputs: Vec<Vec<u8>>,
    expected: Vec<(std::ops::Range<usize>, Vec<u8>)>,
}

fn case(
    algorithm: CollectiveAlgorithm,
    operation: CollectiveOperation,
    layout: &Arc<BlockLayout>,
    expect: impl Fn(usize) -> (std::ops::Range<usize>, Vec<u8>),
) -> BlockCase {
    let elements = layout.bytes() as usize / 8;
    let collective = ScheduledCollective { operation, blocks: operation.has_blocks().then(|| layout.clone()) };
    let inputs = (0..SIZE as usize).map(|rank| vector(rank, elements)).collect();
    BlockCase { algorithm, collective, inputs, expected: (0..SIZE as usize).map(expect).collect() }
}

fn cases(layout: &Arc<BlockLayout>) -> Vec<BlockCase> {
    let CollectiveOperation::AllReduce { kind } = sum() else { unreachable!("it is an allreduce") };
    let elements = layout.bytes() as usize / 8;
    let block = |rank: usize| range(layout.block(rank as u32));
    let gathered: Vec<u8> =
        (0..SIZE as usize).flat_map(|rank| vector(rank, elements)[block(rank)].to_vec()).collect();
    let (root, nothing) = (Rank(SIZE - 1), || (0..0, Vec::new()));
    let at_root = |rank: usize| {
        if rank == root.index() { (0..gathered.len(), gathered.clone()) } else { nothing() }
    };
    let scattered = |rank: usize| (block(rank), vector(root.index(), elements)[block(rank)].to_vec());
    let reduced = |rank: usize| (block(rank), total(0..SIZE as usize, elements)[block(rank)].to_vec());
    let before = |rank: usize| if rank == 0 { nothing() } else { (0..elements * 8, total(0..rank, elements)) };
    let everywhere = |_| (0..gathered.len(), gathered.clone());
    let reduce_scatter = CollectiveOperation::ReduceScatter { kind };
    let scan = CollectiveOperation::Scan { kind, extent: ScanExtent::Exclusive };
    vec![
        case(CollectiveAlgorithm::RecursiveHalving, reduce_scatter, layout, reduced),
        case(CollectiveAlgorithm::Ring, reduce_scatter, layout, reduced),
        case(CollectiveAlgorithm::RecursiveDoubling, CollectiveOperation::AllGather, layout, everywhere),
        case(CollectiveAlgorithm::Ring, CollectiveOperation::AllGather, layout, everywhere),
        case(CollectiveAlgorithm::Tree { radix: 2 }, CollectiveOperation::Gather { root }, layout, at_root),
        case(CollectiveAlgorithm::Direct, CollectiveOperation::Gather { root }, layout, at_root),
        case(CollectiveAlgorithm::Direct, CollectiveOperation::Scatter { root }, layout, scattered),
        case(CollectiveAlgorithm::RecursiveDoubling, scan, layout, before),
        case(CollectiveAlgorithm::Chain, scan, layout, before),
    ]
}

impl TestCluster {
    fn check_whole(&mut self, case: &BlockCase) {
        let method = InterHostMethod::PointToPoint(case.algorithm);
        for (rank, input) in case.inputs.iter().enumerate() {
            let handle = self.networks[rank].start(WORLD, method, case.collective.clone(), input.clone());
            self.handles[rank].push(handle);
        }
        for (rank, results) in self.finish().into_iter().enumerate() {
            let what = format!("{}, {}, rank {rank}", case.algorithm, case.collective.operation);
            assert!(results == [Ok(case.expected[rank].1.clone())], "{what}");
        }
    }

    fn check_streamed(&mut self, case: &BlockCase) {
        // The own blocks of an allgather and a gather are in place; an exclusive scan needs two buffers.
        let mut outputs = case.inputs.clone();
        for (rank, output) in outputs.iter_mut().enumerate() {
            // SAFETY: the test keeps the memory until every operation is over, and uses it only then.
            let buffers =
                unsafe { StreamBuffers::new(case.inputs[rank].as_ptr(), output.as_mut_ptr(), output.len()) };
            let handle = self.networks[rank].start_stream(WORLD, case.algorithm, case.collective.clone(), buffers);
            self.handles[rank].push(handle);
        }
        assert!(self.finish().iter().flatten().all(Result::is_ok));
        for (rank, output) in outputs.iter().enumerate() {
            let (range, expected) = &case.expected[rank];
            let what = format!("{}, {}, rank {rank}", case.algorithm, case.collective.operation);
            assert!(output[range.clone()] == expected[..], "{what}");
        }
    }
}

fn check(layout: &Arc<BlockLayout>, faults: &FaultInjector) {
    let mut cluster = TestCluster::new(SIZE, faults);
    for case in cases(layout) {
        cluster.check_whole(&case);
        if case.algorithm.can_stream(&case.collective.operation, SIZE) {
            cluster.check_streamed(&case);
        }
    }
}

#[test]
fn blocks_and_prefixes_are_right_at_every_rank() {
    for block in [0, 1, 100, 20_000] {
        let uneven = (0..SIZE).map(|rank| rank * 3 % 4 * block * 8);
        check(&Arc::new(BlockLayout::from_lengths(uneven).expect("few and short")), &FaultInjector::default());
    }
}

#[test]
fn blocks_and_prefixes_are_right_over_a_bad_network() {
    let rule = |kind, one_in: f64| FaultRule::new(kind).with_probability(1.0 / one_in);
    let rules = vec![
        rule(FaultKind::Lose, 40.0),
        rule(FaultKind::Flip, 40.0),
        rule(FaultKind::Duplicate, 40.0),
        rule(FaultKind::Reorder, 40.0),
    ];
    for seed in 1..4 {
        let plan = FaultPlan { seed: Some(seed), rules: rules.clone() };
        let layout = Arc::new(BlockLayout::equal(SIZE, 24_000).expect("few and short"));
        check(&layout, &FaultInjector::from_plan(&plan, seed).expect("for sockets"));
    }
}

/// A rank sends its neighbour two long messages in one operation. If the acknowledgement of the first is lost, the second is still sent.
#[test]
fn two_long_messages_to_one_rank_do_not_wait_for_each_other() {
    let CollectiveOperation::AllReduce { kind } = sum() else { unreachable!("it is an allreduce") };
    let scan = CollectiveOperation::Scan { kind, extent: ScanExtent::Exclusive };
    let layout = Arc::new(BlockLayout::equal(SIZE, 24_000).expect("few and short"));
    let elements = layout.bytes() as usize / 8;
    let before = |rank: usize| if rank == 0 { (0..0, Vec::new()) } else { (0..0, total(0..rank, elements)) };
    let lossy = FaultRule::new(FaultKind::Lose).with_probability(1.0 / 12.0);
    for seed in 1..6 {
        let plan = FaultPlan { seed: Some(seed), rules: vec![lossy.clone()] };
        let mut cluster = TestCluster::new(SIZE, &FaultInjector::from_plan(&plan, seed).expect("for sockets"));
        for _ in 0..4 {
            cluster.check_whole(&case(CollectiveAlgorithm::RecursiveDoubling, scan, &layout, before));
        }
    }
}

#[test]
fn an_alltoall_exchanges_blocks_of_any_length() {
    let members = [2, 1, 3];
    for unit in [0, 8, 1_000, 300_000] {
        let mut cluster = TestCluster::new(3, &FaultInjector::default());
        let layouts: Vec<_> =
            (0..3).map(|me| Arc::new(BlockLayout::of_pairs(&members, me, unit).expect("few and short"))).collect();
        let block = |from: usize, to: usize| {
            let length = layouts[from].block(to as u32).len() as usize;
            (0..length).map(|index| (from * 50 + to * 10 + index * 3) as u8).collect::<Vec<u8>>()
        };
        let method = InterHostMethod::PointToPoint(CollectiveAlgorithm::Direct);
        for (rank, layout) in layouts.iter().enumerate() {
            let operation = CollectiveOperation::AllToAll;
            let collective = ScheduledCollective { operation, blocks: Some(layout.clone()) };
            let data = (0..3).flat_map(|to| block(rank, to)).collect();
            let handle = cluster.networks[rank].start(WORLD, method, collective, data);
            cluster.handles[rank].push(handle);
        }
        for (rank, results) in cluster.finish().into_iter().enumerate() {
            let expected: Vec<u8> = (0..3).flat_map(|from| block(from, rank)).collect();
            assert!(results == [Ok(expected)], "rank {rank}, blocks of {unit} bytes");
        }
    }
}

#[test]
fn leaders_with_different_layouts_all_learn_of_it() {
    let mut cluster = TestCluster::new(3, &FaultInjector::default());
    let method = InterHostMethod::PointToPoint(CollectiveAlgorithm::Ring);
    for rank in 0..3 {
        let lengths = if rank == 1 { [8, 16, 8] } else { [16, 8, 8] };
        let blocks = Some(Arc::new(BlockLayout::from_lengths(lengths).expect("few and short")));
        let collective = ScheduledCollective { operation: CollectiveOperation::AllGather, blocks };
        let handle = cluster.networks[rank].start(WORLD, method, collective, vec![0; 32]);
        cluster.handles[rank].push(handle);
    }
    for results in cluster.finish() {
        assert_eq!(results, [Err(LeaderNetworkError::Mismatch)]);
    }
}
