//! Multicast broadcasts and polled barriers: the same cluster, with results by multicast.

use super::*;

/// Tests that run at the same time use different multicast addresses.
fn multicast_distribution(last: u8) -> DistributionSpec {
    DistributionSpec::Multicast { to: SocketAddr::from(([239, 195, 79, last], 4791)) }
}

fn multicast_cluster(size: u32, fault_injector: &FaultInjector, last: u8) -> TestCluster {
    let mut cluster = TestCluster::new(size, fault_injector);
    (cluster.window, cluster.method) = (16, InterHostMethod::Multicast);
    cluster.attach_tree_with(fault_injector, multicast_distribution(last));
    cluster
}

fn fault_injector(text: &str, seed: u64) -> FaultInjector {
    let rule = |rule: &str| format!("[[fault]]\n{}\n", rule.replace(';', "\n"));
    let plan: String = text.split('|').map(rule).collect();
    let plan = faults::FaultPlan::parse(&format!("seed = {seed}\n{plan}")).expect("a plan");
    FaultInjector::from_plan(&plan, seed).expect("for sockets")
}

/// Broadcasts from all roots, sums and polled barriers in between; some of several fragments.
fn mixture(cluster: &mut TestCluster, rounds: std::ops::Range<usize>) {
    let size = cluster.networks.len();
    for op in rounds.clone() {
        let root = op % size;
        for rank in 0..size {
            let elements = [1, 3, 60, 700][op % 4];
            let data = if rank == root { vector(root, op, elements) } else { vec![0xaa; elements * 8] };
            cluster.start(rank, CollectiveOperation::Broadcast { root: Rank(root as u32) }, data);
            if op % 3 == 0 {
                cluster.start(rank, CollectiveOperation::Barrier, Vec::new());
            }
            if op % 5 == 4 {
                cluster.start(rank, sum(), vector(rank, op, 9));
            }
        }
        for (rank, end) in cluster.finish().into_iter().enumerate() {
            assert!(end[0] == Ok(vector(root, op, [1, 3, 60, 700][op % 4])), "rank {rank}, broadcast {op}");
            let mut rest = end.into_iter().skip(1);
            if op % 3 == 0 {
                assert_eq!(rest.next(), Some(Ok(Vec::new())), "rank {rank}, barrier {op}");
            }
            if op % 5 == 4 {
                assert!(rest.next() == Some(Ok(in_tree_order(size, op, 9))), "rank {rank}, sum {op}");
            }
        }
    }
}

fn is_sound(cluster: &TestCluster) -> bool {
    cluster.networks.iter().all(|network| network.tree(WORLD).is_some_and(|(_, is_sound)| is_sound))
}

#[test]
fn a_multicast_broadcast_reaches_all() {
    let mut cluster = multicast_cluster(5, &FaultInjector::default(), 1);
    mixture(&mut cluster, 0..60);
    assert!(is_sound(&cluster));
    // Only the root of a broadcast sends, except for an acknowledgement barrier now and then.
    let sent = |cluster: &TestCluster| cluster.networks.iter().map(|network| network.counters().sent).sum::<u64>();
    let before = sent(&cluster);
    for op in 0..16 {
        for rank in 0..5 {
            let data = if rank == 1 { vector(1, op, 1) } else { vec![0; 8] };
            cluster.start(rank, CollectiveOperation::Broadcast { root: Rank(1) }, data);
        }
        cluster.finish();
    }
    let packets = sent(&cluster) - before;
    assert!((16..16 + 8 * 5 * 2).contains(&packets), "{packets} packets for 16 broadcasts");
}

#[test]
fn a_bad_network_changes_no_byte() {
    let plans = [
        "kind = \"lose\";probability = 0.05",
        "kind = \"lose\";probability = 0.2",
        "kind = \"duplicate\";probability = 0.3|kind = \"reorder\";probability = 0.3",
        "kind = \"flip\";probability = 0.05|kind = \"lose\";probability = 0.05",
    ];
    for (place, plan) in plans.into_iter().enumerate() {
        let mut cluster = multicast_cluster(5, &fault_injector(plan, place as u64), 10 + place as u8);
        mixture(&mut cluster, 0..25);
    }
}

#[test]
fn a_killed_node_changes_no_byte_whenever_it_dies() {
    for node in 0..3 {
        for after in [0, 1, 3, 8, 21] {
            let mut cluster = multicast_cluster(5, &FaultInjector::default(), (20 + node * 5 + after % 5) as u8);
            mixture(&mut cluster, 0..7);
            for rank in 0..5 {
                for op in 0..12_usize {
                    let data = if rank == op % 5 { vector(rank, op, 30) } else { vec![0; 240] };
                    // Not all ranks have started equally many.
                    if op < 8 || !rank.is_multiple_of(2) {
                        cluster.start(rank, CollectiveOperation::Broadcast { root: Rank(op as u32 % 5) }, data);
                    }
                }
            }
            (0..after).for_each(|_| cluster.turn());
            cluster.nodes[node] = NodeDataPlane::open(&loopback(), FaultInjector::default()).expect("a socket");
            (0..10).for_each(|_| cluster.turn());
            cluster.networks[3].tree_lost(GroupKey { group: GroupId(9), epoch: Epoch(1) });
            for rank in [0, 2, 4] {
                for op in 8..12_usize {
                    let data = if rank == op % 5 { vector(rank, op, 30) } else { vec![0; 240] };
                    cluster.start(rank, CollectiveOperation::Broadcast { root: Rank(op as u32 % 5) }, data);
                }
            }
            for (rank, end) in cluster.finish().into_iter().enumerate() {
                for (op, end) in end.into_iter().enumerate() {
                    assert!(end == Ok(vector(op % 5, op, 30)), "rank {rank}, {op}, node {node} after {after}");
                }
            }
            mixture(&mut cluster, 7..20);
            assert!(!is_sound(&cluster));
        }
    }
}

#[test]
fn the_loss_of_a_node_is_detected_by_an_ack_barrier() {
    let mut cluster = multicast_cluster(4, &FaultInjector::default(), 40);
    mixture(&mut cluster, 0..3);
    cluster.nodes[2] = NodeDataPlane::open(&loopback(), FaultInjector::default()).expect("a socket");
    mixture(&mut cluster, 3..12);
    assert!(!is_sound(&cluster));
}

#[test]
fn a_leader_without_multicasts_leaves_the_tree_with_all_others() {
    let mut cluster = multicast_cluster(5, &FaultInjector::default(), 41);
    mixture(&mut cluster, 0..4);
    cluster.networks[1].tree_edges.leave_multicast(GroupId(9));
    for op in 0..60 {
        for rank in 0..5 {
            let data = if rank == 0 { vector(0, op, 2) } else { vec![0; 16] };
            cluster.start(rank, CollectiveOperation::Broadcast { root: Rank(0) }, data);
        }
        for end in cluster.finish() {
            assert!(end[0] == Ok(vector(0, op, 2)), "broadcast {op}");
        }
    }
    assert!(!is_sound(&cluster));
}

#[test]
fn all_ranks_learn_of_a_mismatch_that_no_node_compares() {
    for case in 0..5 {
        let mut cluster = multicast_cluster(4, &FaultInjector::default(), 50 + case);
        for rank in 0..4 {
            let odd = rank == 2;
            let broadcast = |root: u32| CollectiveOperation::Broadcast { root: Rank(root) };
            match case {
                0 => cluster.start(rank, broadcast(0), vec![1; if odd { 16 } else { 8 }]),
                1 if odd => cluster.start(rank, CollectiveOperation::Barrier, Vec::new()),
                2 if odd => cluster.start(rank, sum(), vector(rank, 0, 1)),
                3 => cluster.start(rank, broadcast(if odd { 2 } else { 0 }), vec![1; 8]),
                // The root calls another operation: the receivers request the broadcast, and that reveals it.
                4 if rank == 0 => cluster.start(rank, sum(), vector(rank, 0, 1)),
                _ => cluster.start(rank, broadcast(0), vec![1; 8]),
            }
        }
        let first = cluster.finish();
        let mismatch = Err(LeaderNetworkError::Mismatch);
        // The root and the receivers of a broadcast wait for no reply: their next operation fails.
        assert!(first.iter().any(|end| end[0] == mismatch), "case {case}: {first:?}");
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(200) {
            cluster.turn();
        }
        (0..4).for_each(|rank| cluster.start(rank, sum(), vector(rank, 1, 8)));
        assert!(cluster.finish().iter().all(|end| end[0] == mismatch), "case {case}");
    }
}

#[test]
fn the_last_multicast_is_available_after_its_root_has_left() {
    let plan = "kind = \"lose\";probability = 0.5";
    for seed in 0..4 {
        let mut cluster = multicast_cluster(4, &fault_injector(plan, seed), 60 + seed as u8);
        cluster.start(0, CollectiveOperation::Broadcast { root: Rank(0) }, vector(0, 1, 5));
        cluster.networks[0].leave(WORLD);
        let began = Instant::now();
        while began.elapsed() < 2 * LINGER {
            cluster.turn();
        }
        assert!(!cluster.networks[0].is_drained(), "no leader has received it");
        (1..4).for_each(|rank| cluster.start(rank, CollectiveOperation::Broadcast { root: Rank(0) }, vec![0; 40]));
        for end in cluster.finish() {
            assert!(end[0] == Ok(vector(0, 1, 5)));
        }
        (1..4).for_each(|rank| cluster.networks[rank].leave(WORLD));
        let began = Instant::now();
        while !cluster.networks.iter().all(LeaderNetwork::is_drained) {
            assert!(began.elapsed() < PATIENCE, "a leader does not know that all have the result");
            cluster.turn();
        }
    }
}
