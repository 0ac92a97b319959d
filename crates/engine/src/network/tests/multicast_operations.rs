//! Broadcasts that are cast and barriers that are tested: the same world, with results by multicast.

use super::*;

/// Circles of tests that run at once do not meet.
fn circle(last: u8) -> DistributionSpec {
    DistributionSpec::Multicast { to: SocketAddr::from(([239, 195, 79, last], 4791)) }
}

fn casting(size: u32, mischief: &FaultInjector, last: u8) -> TestCluster {
    let mut world = TestCluster::new(size, mischief);
    (world.window, world.method) = (16, InterHostMethod::Multicast);
    world.plant_with(mischief, circle(last));
    world
}

fn mischief(text: &str, seed: u64) -> FaultInjector {
    let rule = |rule: &str| format!("[[fault]]\n{}\n", rule.replace(';', "\n"));
    let plan: String = text.split('|').map(rule).collect();
    let plan = faults::FaultPlan::parse(&format!("seed = {seed}\n{plan}")).expect("a plan");
    FaultInjector::from_plan(&plan, seed).expect("for sockets")
}

/// A broadcast from any root, sums between, barriers that are tested; some of several pieces.
fn mixture(world: &mut TestCluster, rounds: std::ops::Range<usize>) {
    let size = world.networks.len();
    for op in rounds.clone() {
        let root = op % size;
        for rank in 0..size {
            let elements = [1, 3, 60, 700][op % 4];
            let data = if rank == root { vector(root, op, elements) } else { vec![0xaa; elements * 8] };
            world.start(rank, CollectiveOperation::Broadcast { root: Rank(root as u32) }, data);
            if op % 3 == 0 {
                world.start(rank, CollectiveOperation::Barrier, Vec::new());
            }
            if op % 5 == 4 {
                world.start(rank, sum(), vector(rank, op, 9));
            }
        }
        for (rank, end) in world.finish().into_iter().enumerate() {
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

fn is_sound(world: &TestCluster) -> bool {
    world.networks.iter().all(|network| network.tree(WORLD).is_some_and(|(_, is_sound)| is_sound))
}

#[test]
fn what_one_tells_all_is_heard_by_all() {
    let mut world = casting(5, &FaultInjector::default(), 1);
    mixture(&mut world, 0..60);
    assert!(is_sound(&world));
    // Of a broadcast nobody but its root sends anything, but for a census now and then: all others hear.
    let sent = |world: &TestCluster| world.networks.iter().map(|network| network.counters().sent).sum::<u64>();
    let before = sent(&world);
    for op in 0..16 {
        for rank in 0..5 {
            let data = if rank == 1 { vector(1, op, 1) } else { vec![0; 8] };
            world.start(rank, CollectiveOperation::Broadcast { root: Rank(1) }, data);
        }
        world.finish();
    }
    let packets = sent(&world) - before;
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
        let mut world = casting(5, &mischief(plan, place as u64), 10 + place as u8);
        mixture(&mut world, 0..25);
    }
}

#[test]
fn a_killed_node_changes_no_byte_whenever_it_dies() {
    for node in 0..3 {
        for after in [0, 1, 3, 8, 21] {
            let mut world = casting(5, &FaultInjector::default(), (20 + node * 5 + after % 5) as u8);
            mixture(&mut world, 0..7);
            for rank in 0..5 {
                for op in 0..12_usize {
                    let data = if rank == op % 5 { vector(rank, op, 30) } else { vec![0; 240] };
                    // Not all ranks are equally far.
                    if op < 8 || !rank.is_multiple_of(2) {
                        world.start(rank, CollectiveOperation::Broadcast { root: Rank(op as u32 % 5) }, data);
                    }
                }
            }
            (0..after).for_each(|_| world.turn());
            world.nodes[node] = NodeDataPlane::open(&loopback(), FaultInjector::default()).expect("a socket");
            (0..10).for_each(|_| world.turn());
            world.networks[3].tree_lost(GroupKey { group: GroupId(9), epoch: Epoch(1) });
            for rank in [0, 2, 4] {
                for op in 8..12_usize {
                    let data = if rank == op % 5 { vector(rank, op, 30) } else { vec![0; 240] };
                    world.start(rank, CollectiveOperation::Broadcast { root: Rank(op as u32 % 5) }, data);
                }
            }
            for (rank, end) in world.finish().into_iter().enumerate() {
                for (op, end) in end.into_iter().enumerate() {
                    assert!(end == Ok(vector(op % 5, op, 30)), "rank {rank}, {op}, node {node} after {after}");
                }
            }
            mixture(&mut world, 7..20);
            assert!(!is_sound(&world));
        }
    }
}

#[test]
fn without_a_word_from_anyone_the_loss_of_a_node_is_found_out_by_a_census() {
    let mut world = casting(4, &FaultInjector::default(), 40);
    mixture(&mut world, 0..3);
    world.nodes[2] = NodeDataPlane::open(&loopback(), FaultInjector::default()).expect("a socket");
    mixture(&mut world, 3..12);
    assert!(!is_sound(&world));
}

#[test]
fn who_hears_no_more_leaves_the_tree_with_all_others() {
    let mut world = casting(5, &FaultInjector::default(), 41);
    mixture(&mut world, 0..4);
    world.networks[1].wires.leave_circle(GroupId(9));
    for op in 0..60 {
        for rank in 0..5 {
            let data = if rank == 0 { vector(0, op, 2) } else { vec![0; 16] };
            world.start(rank, CollectiveOperation::Broadcast { root: Rank(0) }, data);
        }
        for end in world.finish() {
            assert!(end[0] == Ok(vector(0, op, 2)), "broadcast {op}");
        }
    }
    assert!(!is_sound(&world));
}

#[test]
fn ranks_that_disagree_hear_so_although_no_node_compares_them() {
    for case in 0..5 {
        let mut world = casting(4, &FaultInjector::default(), 50 + case);
        for rank in 0..4 {
            let odd = rank == 2;
            let broadcast = |root: u32| CollectiveOperation::Broadcast { root: Rank(root) };
            match case {
                0 => world.start(rank, broadcast(0), vec![1; if odd { 16 } else { 8 }]),
                1 if odd => world.start(rank, CollectiveOperation::Barrier, Vec::new()),
                2 if odd => world.start(rank, sum(), vector(rank, 0, 1)),
                3 => world.start(rank, broadcast(if odd { 2 } else { 0 }), vec![1; 8]),
                // The one who would speak does something else: those who wait ask for it, and that shows it.
                4 if rank == 0 => world.start(rank, sum(), vector(rank, 0, 1)),
                _ => world.start(rank, broadcast(0), vec![1; 8]),
            }
        }
        let first = world.finish();
        let disagree = Err(LeaderNetworkError::Disagree);
        // Who tells something does not wait for an answer, and who has heard it neither: what follows fails for them.
        assert!(first.iter().any(|end| end[0] == disagree), "case {case}: {first:?}");
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(200) {
            world.turn();
        }
        (0..4).for_each(|rank| world.start(rank, sum(), vector(rank, 1, 8)));
        assert!(world.finish().iter().all(|end| end[0] == disagree), "case {case}");
    }
}

#[test]
fn what_was_told_last_can_be_had_after_its_teller_has_left() {
    let plan = "kind = \"lose\";probability = 0.5";
    for seed in 0..4 {
        let mut world = casting(4, &mischief(plan, seed), 60 + seed as u8);
        world.start(0, CollectiveOperation::Broadcast { root: Rank(0) }, vector(0, 1, 5));
        world.networks[0].leave(WORLD);
        let began = Instant::now();
        while began.elapsed() < 2 * LINGER {
            world.turn();
        }
        assert!(!world.networks[0].is_drained(), "nobody has heard it");
        (1..4).for_each(|rank| world.start(rank, CollectiveOperation::Broadcast { root: Rank(0) }, vec![0; 40]));
        for end in world.finish() {
            assert!(end[0] == Ok(vector(0, 1, 5)));
        }
        (1..4).for_each(|rank| world.networks[rank].leave(WORLD));
        let began = Instant::now();
        while !world.networks.iter().all(LeaderNetwork::is_drained) {
            assert!(began.elapsed() < PATIENCE, "somebody does not know that all have all");
            world.turn();
        }
    }
}
