//! Replay: an attacker records what the processes of a job send to each other, and sends it again, also when its tree is gone and when
//! a newer one has its group, its edges and its addresses.

use protocol::collective::CollectiveAlgorithm;

use super::*;

const LEADERS: u32 = 4;
const ELEMENTS: usize = 40;
const LONG_ELEMENTS: usize = 3_000;
/// Packets that are sent again between two turns of the processes.
const BURST: usize = 32;
/// A few bytes kept of each of the packets sent again would be much more.
const MAX_GROWTH_BYTES: u64 = 3 << 20;

fn wiretapped() -> TestCluster {
    TestCluster::with_wiretap(LEADERS, &FaultInjector::default(), Some(Wiretap::recording()))
}

/// A sum through the tree, if there is one, one among the hosts in its order, and a long one, while the attacker sends `packets` again.
fn check_sums(cluster: &mut TestCluster, op: usize, packets: &[wiretap::RecordedPacket]) {
    let algorithm = CollectiveAlgorithm::RecursiveDoubling;
    let ring = InterHostMethod::PointToPoint(CollectiveAlgorithm::Ring);
    for rank in 0..LEADERS as usize {
        if !cluster.nodes.is_empty() {
            cluster.start_in_tree(rank, sum(), vector(rank, op, ELEMENTS));
        }
        cluster.start_by(rank, InterHostMethod::PointToPoint(algorithm), sum(), integers(rank, op, ELEMENTS));
        cluster.start_by(rank, ring, sum(), integers(rank, op, LONG_ELEMENTS));
        replay(
            cluster,
            packets.chunks(packets.len().div_ceil(LEADERS as usize).max(1)).nth(rank).unwrap_or_default(),
        );
    }
    let has_tree = !cluster.nodes.is_empty();
    for (rank, results) in cluster.finish().into_iter().enumerate() {
        let mut results = results.into_iter();
        if has_tree {
            let expected = in_tree_order(LEADERS as usize, op, ELEMENTS);
            assert!(results.next() == Some(Ok(expected)), "rank {rank}, operation {op} through the tree");
        }
        for elements in [ELEMENTS, LONG_ELEMENTS] {
            let expected = total_of_integers(op, elements);
            assert!(results.next() == Some(Ok(expected)), "rank {rank}, operation {op}, {elements} elements");
        }
    }
}

fn integer(rank: usize, op: usize, index: usize) -> f64 {
    ((rank * 31 + index * 7 + op * 3) % 1_000) as f64
}

/// Small integers, so that every order gives the same bits.
fn integers(rank: usize, op: usize, elements: usize) -> Vec<u8> {
    (0..elements).flat_map(|index| integer(rank, op, index).to_le_bytes()).collect()
}

fn total_of_integers(op: usize, elements: usize) -> Vec<u8> {
    let sum = |index: usize| (0..LEADERS as usize).map(|rank| integer(rank, op, index)).sum::<f64>();
    (0..elements).flat_map(|index| sum(index).to_le_bytes()).collect()
}

/// Sends packets again while all processes work.
fn replay(cluster: &mut TestCluster, packets: &[wiretap::RecordedPacket]) {
    for burst in packets.chunks(BURST) {
        let wiretap = cluster.wiretap.as_ref().expect("there is one");
        burst.iter().for_each(|packet| wiretap.send(packet));
        cluster.turn();
    }
}

/// Runs operations with a tree; what was recorded of them.
fn record(cluster: &mut TestCluster) -> Vec<wiretap::RecordedPacket> {
    (0..6).for_each(|op| check_sums(cluster, op, &[]));
    let wiretap = cluster.wiretap.as_mut().expect("there is one");
    wiretap.is_recording = false;
    std::mem::take(&mut wiretap.recorded)
}

/// Packets that were dropped as forged, or as of no edge.
fn rejected(cluster: &mut TestCluster) -> u64 {
    let by_leaders = cluster.networks.iter().map(|network| network.counters().forged + network.counters().foreign);
    let by_leaders: u64 = by_leaders.sum();
    let of_report = |dropped: &BTreeMap<String, u64>| dropped["forged"] + dropped["foreign"];
    let by_nodes: u64 = cluster.nodes.iter_mut().map(|node| of_report(&node.report().dropped)).sum();
    by_leaders + by_nodes
}

/// After a while nothing is in flight or unacknowledged anywhere.
fn assert_idle(cluster: &mut TestCluster) {
    let began = Instant::now();
    loop {
        cluster.turn();
        let in_flight: u32 = cluster.nodes.iter_mut().map(|node| node.report().in_flight).sum();
        if in_flight == 0 && cluster.networks.iter().all(LeaderNetwork::is_drained) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{in_flight} operations are in flight at the nodes");
    }
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("this process");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel tells");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn packets_sent_again_change_no_result_of_the_same_tree() {
    let mut cluster = wiretapped();
    cluster.attach_tree(&FaultInjector::default());
    let recorded = record(&mut cluster);
    assert!(recorded.iter().any(|packet| packet.is_transfer()) && recorded.iter().any(|packet| packet.is_of_tree()));
    (6..12).for_each(|op| check_sums(&mut cluster, op, &recorded));
    assert_idle(&mut cluster);
}

#[test]
fn packets_of_an_older_epoch_change_no_result_of_the_next() {
    let mut cluster = wiretapped();
    cluster.attach_tree(&FaultInjector::default());
    let recorded = record(&mut cluster);
    cluster.networks.iter_mut().for_each(|network| network.detach_tree(WORLD));
    // The manager draws a key for every group (`manager::Manager::handle_message`). All else is as before.
    (cluster.epoch, cluster.tree_key) = (Epoch(2), AuthKey([6; 16]));
    cluster.attach_tree(&FaultInjector::default());
    let before = rejected(&mut cluster);
    (6..12).for_each(|op| check_sums(&mut cluster, op, &recorded));
    assert!(rejected(&mut cluster) > before, "the packets of the tree are not authentic any more");
    assert_idle(&mut cluster);
}

#[test]
fn packets_of_a_closed_group_leave_no_state_and_take_no_memory() {
    let mut cluster = wiretapped();
    cluster.attach_tree(&FaultInjector::default());
    let recorded = record(&mut cluster);
    cluster.networks.iter_mut().for_each(|network| network.detach_tree(WORLD));
    let key = GroupKey { group: GroupId(9), epoch: Epoch(1) };
    cluster.nodes.iter_mut().for_each(|node| node.remove(key));
    let rounds = |cluster: &mut TestCluster| (0..20).for_each(|_| replay(cluster, &recorded));
    rounds(&mut cluster);
    let (warm, before) = (resident_bytes(), rejected(&mut cluster));
    (0..4).for_each(|_| rounds(&mut cluster));
    let grown = resident_bytes().saturating_sub(warm);
    assert!(grown < MAX_GROWTH_BYTES, "{grown} bytes more after {} packets", 80 * recorded.len());
    assert!(rejected(&mut cluster) > before);
    assert!(cluster.nodes.iter().all(NodeDataPlane::is_empty));
    assert_idle(&mut cluster);
    cluster.nodes.clear();
    check_sums(&mut cluster, 6, &recorded);
}
