//! Short operations among hosts: whole messages, acknowledged by what follows.

use faults::{FaultKind, FaultPlan, FaultRule};
use protocol::collective::CollectiveAlgorithm;

use super::*;

const DOUBLING: InterHostMethod = InterHostMethod::PointToPoint(CollectiveAlgorithm::RecursiveDoubling);
const TREE: InterHostMethod = InterHostMethod::PointToPoint(CollectiveAlgorithm::Tree { radix: 2 });

fn vector(rank: usize, elements: usize) -> Vec<u8> {
    (0..elements).flat_map(|index| ((rank * 10 + index) as f64).to_le_bytes()).collect()
}

impl TestCluster {
    fn start_whole(&mut self, rank: usize, method: InterHostMethod, collective: CollectiveOperation, data: Vec<u8>) {
        let handle = self.networks[rank].start(WORLD, method, collective, data);
        self.handles[rank].push(handle);
    }

    /// One allreduce of all ranks; all results are equal.
    fn check_allreduce(&mut self, elements: usize) {
        let size = self.networks.len();
        for rank in 0..size {
            self.start_whole(rank, DOUBLING, sum(), vector(rank, elements));
        }
        let total = |index: usize| (0..size).map(|rank| (rank * 10 + index) as f64).sum::<f64>();
        let expected: Vec<u8> = (0..elements).flat_map(|index| total(index).to_le_bytes()).collect();
        for results in self.finish() {
            assert_eq!(results, [Ok(expected.clone())]);
        }
    }

    fn turn_for(&mut self, time: Duration, ranks: std::ops::Range<usize>) {
        let began = Instant::now();
        while began.elapsed() < time {
            self.networks[ranks.clone()].iter_mut().for_each(|network| {
                network.turn();
            });
        }
    }
}

#[test]
fn messages_of_many_packets_are_right_over_a_bad_network() {
    let rule = |kind, one_in: f64| FaultRule::new(kind).with_probability(1.0 / one_in);
    let rules = vec![
        rule(FaultKind::Lose, 20.0),
        rule(FaultKind::Flip, 20.0),
        rule(FaultKind::Duplicate, 20.0),
        rule(FaultKind::Reorder, 20.0),
    ];
    for seed in 1..6 {
        let plan = FaultPlan { seed: Some(seed), rules: rules.clone() };
        let mut cluster = TestCluster::new(5, &FaultInjector::from_plan(&plan, seed).expect("for sockets"));
        for elements in [0, 1, 2, 100, 1_000, 5_000, 1, 0] {
            cluster.check_allreduce(elements);
        }
        for _ in 0..10 {
            for rank in 0..5 {
                let method = InterHostMethod::PointToPoint(CollectiveAlgorithm::Dissemination { radix: 3 });
                cluster.start_whole(rank, method, CollectiveOperation::Barrier, Vec::new());
            }
            assert!(cluster.finish().iter().flatten().all(Result::is_ok));
        }
    }
}

#[test]
fn operations_that_follow_each_other_need_no_acknowledgements() {
    let mut cluster = TestCluster::new(2, &FaultInjector::default());
    let operations = 200;
    for _ in 0..operations {
        cluster.check_allreduce(1);
    }
    for network in &cluster.networks {
        let sent = network.counters().sent;
        assert!(sent <= operations + 10, "{sent} packets for {operations} operations of one message each");
    }
}

/// The sender, which does nothing meanwhile, need not wait for a timeout: it is told.
#[test]
fn a_damaged_message_is_asked_for_at_once() {
    let plan = FaultPlan { seed: Some(1), rules: vec![FaultRule::new(FaultKind::Flip).nth(2)] };
    let mut cluster = TestCluster::new(2, &FaultInjector::from_plan(&plan, 1).expect("for sockets"));
    let collective = CollectiveOperation::Broadcast { root: Rank(0) };
    for seed in 0..2 {
        cluster.start_whole(0, TREE, collective, vector(seed, 100));
        cluster.turn_for(Duration::from_millis(5), 1..2);
        let (sent, received) = (cluster.networks[0].counters(), cluster.networks[1].counters());
        assert_eq!((sent.sent, sent.hurt_by_plan), (seed as u64 + 1, seed as u64));
        assert_eq!(received.sent, seed as u64, "one request for the second message");
    }
    for _ in 0..2 {
        cluster.start_whole(1, TREE, collective, vec![0; 800]);
    }
    let results = cluster.finish();
    assert_eq!(results, [0, 1].map(|_| [0, 1].map(|seed| Ok(vector(seed, 100))).to_vec()));
}

#[test]
fn a_rank_that_has_not_begun_still_acknowledges() {
    let mut cluster = TestCluster::new(2, &FaultInjector::default());
    let collective = CollectiveOperation::Broadcast { root: Rank(0) };
    cluster.start_whole(0, TREE, collective, vector(0, 8_000));
    let began = Instant::now();
    while !cluster.networks[0].is_drained() {
        assert!(began.elapsed() < PATIENCE, "the root never learns that its message has arrived");
        cluster.turn_for(Duration::from_millis(1), 0..2);
    }
    cluster.start_whole(1, TREE, collective, vec![0; 8 * 8_000]);
    for results in cluster.finish() {
        assert_eq!(results, [Ok(vector(0, 8_000))]);
    }
}

#[test]
fn a_message_longer_than_what_may_be_sent_unasked_arrives_after_the_receiver_begins() {
    let mut cluster = TestCluster::new(2, &FaultInjector::default());
    let collective = CollectiveOperation::Broadcast { root: Rank(0) };
    cluster.start_whole(0, TREE, collective, vector(0, 100_000));
    cluster.turn_for(Duration::from_millis(30), 0..2);
    cluster.start_whole(1, TREE, collective, vec![0; 8 * 100_000]);
    for results in cluster.finish() {
        assert_eq!(results, [Ok(vector(0, 100_000))]);
    }
}

#[test]
fn the_root_of_broadcasts_does_not_run_far_ahead() {
    let mut cluster = TestCluster::new(2, &FaultInjector::default());
    let collective = CollectiveOperation::Broadcast { root: Rank(0) };
    let operations = 400;
    let mut done = Vec::new();
    for seed in 0..operations {
        cluster.start_whole(0, TREE, collective, vector(seed, 2));
        // The other rank does not even receive.
        cluster.turn_for(Duration::from_micros(10), 0..1);
        let network = &mut cluster.networks[0];
        done.extend(cluster.handles[0].iter().filter_map(|handle| network.take(*handle)));
    }
    assert!((125..=135).contains(&done.len()), "{} broadcasts are done at the root", done.len());
    for _ in 0..operations {
        cluster.start_whole(1, TREE, collective, vec![0; 16]);
    }
    let began = Instant::now();
    let mut received = Vec::new();
    while done.len() < operations || received.len() < operations {
        assert!(began.elapsed() < PATIENCE, "{} done, {} received", done.len(), received.len());
        cluster.turn_for(Duration::from_millis(1), 0..2);
        let (root, other) = cluster.networks.split_at_mut(1);
        done.extend(cluster.handles[0].iter().filter_map(|handle| root[0].take(*handle)));
        received.extend(cluster.handles[1].iter().filter_map(|handle| other[0].take(*handle)));
    }
    let expected: Vec<_> = (0..operations).map(|seed| Ok(vector(seed, 2))).collect();
    assert_eq!(received, expected);
}

#[test]
fn messages_to_a_group_that_was_left_are_acknowledged() {
    let mut cluster = TestCluster::new(2, &FaultInjector::default());
    let collective = CollectiveOperation::Broadcast { root: Rank(0) };
    cluster.start_whole(0, TREE, collective, vector(0, 1));
    cluster.start_whole(1, TREE, collective, vec![0; 8]);
    cluster.turn_for(Duration::from_micros(200), 1..2);
    // The receiver leaves and forgets the group before the root asks whether its message has arrived.
    cluster.networks[1].leave(WORLD);
    cluster.turn_for(LINGER + Duration::from_millis(50), 1..2);
    assert_eq!(cluster.networks[1].next_closed_group(), Some(WORLD));
    let began = Instant::now();
    while !cluster.networks[0].is_drained() {
        assert!(began.elapsed() < PATIENCE, "nobody answers the root");
        cluster.turn_for(Duration::from_millis(1), 0..2);
    }
}

#[test]
fn a_long_early_message_of_another_operation_shows_a_mismatch() {
    let mut cluster = TestCluster::new(2, &FaultInjector::default());
    // It is so long that its sender waits for permission to send the rest.
    cluster.start_whole(0, DOUBLING, sum(), vector(0, 100_000));
    cluster.turn_for(Duration::from_millis(30), 0..2);
    cluster.start_whole(1, DOUBLING, sum(), vector(0, 1));
    for results in cluster.finish() {
        assert_eq!(results, [Err(LeaderNetworkError::Mismatch)]);
    }
}

/// An empty message counts as one byte in flight. It left a window that ended inside an element, and the part that filled it was taken for
/// one of another operation.
#[test]
fn empty_messages_in_flight_do_not_cut_elements_of_long_vectors() {
    let mut cluster = TestCluster::new(2, &FaultInjector::default());
    let collective = CollectiveOperation::Broadcast { root: Rank(0) };
    let numbers: Vec<u8> = vector(3, 200_000);
    let mut received = vec![0_u8; numbers.len()];
    cluster.start_whole(0, TREE, collective, Vec::new());
    // SAFETY: both vectors live until the operations are over, and are used only then.
    let buffers = unsafe {
        let source = numbers.as_ptr();
        [
            StreamBuffers::new(source, source.cast_mut(), numbers.len()),
            StreamBuffers::new(received.as_ptr(), received.as_mut_ptr(), received.len()),
        ]
    };
    let CollectiveOperation::AllReduce { kind } = sum() else { unreachable!("it is an allreduce") };
    let reduce = CollectiveOperation::Reduce { root: Rank(1), kind };
    for (rank, buffers) in buffers.into_iter().enumerate() {
        if rank == 1 {
            cluster.start_whole(1, TREE, collective, Vec::new());
        }
        let handle = cluster.networks[rank].start_stream(WORLD, CollectiveAlgorithm::Ring, reduce, buffers);
        cluster.handles[rank].push(handle);
    }
    assert!(cluster.finish().iter().flatten().all(Result::is_ok));
    assert_eq!(received, numbers);
}
