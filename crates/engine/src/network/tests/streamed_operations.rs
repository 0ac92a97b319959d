//! Long vectors among hosts, in memory of the test, over networks that lose, damage, duplicate and reorder.

use faults::{FaultKind, FaultPlan, FaultRule};
use protocol::collective::CollectiveAlgorithm;

use super::*;

/// The memory of one rank in one operation.
struct RankMemory {
    input: Vec<u8>,
    output: Vec<u8>,
}

fn memories(size: usize, elements: usize, seed: usize) -> Vec<RankMemory> {
    let input = |rank: usize| {
        let numbers = (0..elements).map(|index| ((rank * 31 + index * 7 + seed) % 1_000) as f64);
        numbers.flat_map(f64::to_le_bytes).collect::<Vec<u8>>()
    };
    (0..size).map(|rank| RankMemory { input: input(rank), output: vec![0xaa; elements * 8] }).collect()
}

/// The sum of all inputs: small integers, so that every order gives the same bits.
fn total(memories: &[RankMemory]) -> Vec<u8> {
    let numbers = |memory: &RankMemory| -> Vec<f64> {
        memory.input.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
    };
    let mut sums = vec![0.0; memories[0].input.len() / 8];
    for memory in memories {
        sums.iter_mut().zip(numbers(memory)).for_each(|(sum, number)| *sum += number);
    }
    sums.into_iter().flat_map(f64::to_le_bytes).collect()
}

impl TestCluster {
    fn start_stream(
        &mut self,
        rank: usize,
        algorithm: CollectiveAlgorithm,
        collective: CollectiveOperation,
        memory: &mut RankMemory,
    ) {
        // SAFETY: the test keeps the memory until every operation is over, and uses it only then.
        let buffers =
            unsafe { StreamBuffers::new(memory.input.as_ptr(), memory.output.as_mut_ptr(), memory.input.len()) };
        let handle = self.networks[rank].start_stream(WORLD, algorithm, collective, buffers);
        self.handles[rank].push(handle);
    }

    fn turn_all(&mut self) {
        for network in &mut self.networks {
            network.turn();
        }
    }

    /// Drives all networks until every operation has a result.
    fn finish_streams(&mut self) -> Vec<Vec<Result<Vec<u8>, LeaderNetworkError>>> {
        let began = Instant::now();
        let mut results: Vec<Vec<_>> = self.handles.iter().map(|handles| vec![None; handles.len()]).collect();
        while results.iter().flatten().any(Option::is_none) {
            assert!(began.elapsed() < PATIENCE, "some operations never end");
            for (rank, network) in self.networks.iter_mut().enumerate() {
                network.turn();
                for (place, handle) in results[rank].iter_mut().zip(&self.handles[rank]) {
                    *place = place.take().or_else(|| network.take(*handle));
                }
            }
        }
        self.handles.iter_mut().for_each(Vec::clear);
        results.into_iter().map(|ranks| ranks.into_iter().flatten().collect()).collect()
    }
}

fn check_all(size: u32, elements: usize, faults: &FaultInjector) {
    let mut cluster = TestCluster::new(size, faults);
    let root = Rank(size - 1);
    let CollectiveOperation::AllReduce { kind } = sum() else { unreachable!("it is an allreduce") };
    let cases = [
        (CollectiveAlgorithm::Rabenseifner, sum()),
        (CollectiveAlgorithm::Ring, sum()),
        (CollectiveAlgorithm::Ring, CollectiveOperation::Reduce { root, kind }),
        (CollectiveAlgorithm::Chain, CollectiveOperation::Broadcast { root }),
        (CollectiveAlgorithm::ScatterAllgather, CollectiveOperation::Broadcast { root }),
    ];
    let exchange = (size == 2).then_some((CollectiveAlgorithm::RecursiveDoubling, sum()));
    for (seed, (algorithm, collective)) in cases.into_iter().chain(exchange).enumerate() {
        let mut memories = memories(size as usize, elements, seed);
        let expected = match collective {
            CollectiveOperation::Broadcast { .. } => memories[root.index()].input.clone(),
            _ => total(&memories),
        };
        for (rank, memory) in memories.iter_mut().enumerate() {
            cluster.start_stream(rank, algorithm, collective, memory);
        }
        assert!(cluster.finish_streams().iter().flatten().all(Result::is_ok), "{algorithm}, {collective}");
        for (rank, memory) in memories.iter().enumerate() {
            let is_root = rank == root.index();
            let has_result = match collective {
                CollectiveOperation::Broadcast { .. } => !is_root,
                CollectiveOperation::Reduce { .. } => is_root,
                _ => true,
            };
            assert!(!has_result || memory.output == expected, "{algorithm}, {collective}, rank {rank} of {size}");
        }
    }
}

#[test]
fn long_vectors_are_right_at_every_rank() {
    for size in [2, 3, 4, 7] {
        for elements in [5_000, 131_072] {
            check_all(size, elements, &FaultInjector::default());
        }
    }
}

#[test]
fn long_vectors_are_right_over_a_bad_network() {
    let rule = |kind, one_in: f64| FaultRule::new(kind).with_probability(1.0 / one_in);
    let rules = vec![
        rule(FaultKind::Lose, 60.0),
        rule(FaultKind::Flip, 70.0),
        rule(FaultKind::Duplicate, 50.0),
        rule(FaultKind::Reorder, 40.0),
    ];
    for seed in 1..4 {
        let plan = FaultPlan { seed: Some(seed), rules: rules.clone() };
        for size in [2, 3] {
            check_all(size, 40_000, &FaultInjector::from_plan(&plan, seed).expect("for sockets"));
        }
    }
}

#[test]
fn the_root_of_broadcasts_may_run_ahead() {
    let mut cluster = TestCluster::new(3, &FaultInjector::default());
    let collective = CollectiveOperation::Broadcast { root: Rank(0) };
    let mut rounds: Vec<Vec<RankMemory>> = (0..12).map(|seed| memories(3, 20_000, seed)).collect();
    // The root starts all of its broadcasts before any other rank starts one.
    for rank in 0..3 {
        for memories in &mut rounds {
            cluster.start_stream(rank, CollectiveAlgorithm::Chain, collective, &mut memories[rank]);
            if rank == 0 {
                cluster.networks[0].turn();
            }
        }
        (0..50).for_each(|_| cluster.turn_all());
    }
    assert!(cluster.finish_streams().iter().flatten().all(Result::is_ok));
    for memories in &rounds {
        assert!(memories[1..].iter().all(|memory| memory.output == memories[0].input));
    }
}

#[test]
fn ranks_that_stream_different_vectors_all_learn_of_it() {
    let mut cluster = TestCluster::new(3, &FaultInjector::default());
    let mut memories = memories(3, 5_000, 1);
    memories[2].input.truncate(4_000 * 8);
    for (rank, memory) in memories.iter_mut().enumerate() {
        cluster.start_stream(rank, CollectiveAlgorithm::Ring, sum(), memory);
    }
    for results in cluster.finish_streams() {
        assert_eq!(results, [Err(LeaderNetworkError::Mismatch)]);
    }
}

#[test]
fn a_stream_and_a_short_operation_do_not_match() {
    let mut cluster = TestCluster::new(2, &FaultInjector::default());
    let mut memories = memories(2, 5_000, 1);
    cluster.start_stream(0, CollectiveAlgorithm::Rabenseifner, sum(), &mut memories[0]);
    let method = InterHostMethod::PointToPoint(CollectiveAlgorithm::RecursiveDoubling);
    let handle = cluster.networks[1].start(WORLD, method, sum(), vec![0; 64]);
    cluster.handles[1].push(handle);
    for results in cluster.finish_streams() {
        assert_eq!(results, [Err(LeaderNetworkError::Mismatch)]);
    }
}

#[test]
fn a_lost_rank_ends_a_stream_at_all_others_and_frees_their_memory() {
    let mut cluster = TestCluster::new(3, &FaultInjector::default());
    let mut memories = memories(3, 100_000, 1);
    for (rank, memory) in memories[..2].iter_mut().enumerate() {
        cluster.start_stream(rank, CollectiveAlgorithm::Ring, sum(), memory);
    }
    for network in &mut cluster.networks[..2] {
        network.turn();
        network.rank_lost(Rank(2));
    }
    for results in &cluster.finish_streams()[..2] {
        assert_eq!(*results, [Err(LeaderNetworkError::RankLost(Rank(2)))]);
    }
    drop(memories);
    cluster.turn_all();
}
