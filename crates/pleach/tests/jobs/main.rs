//! Jobs of real processes on this machine.

mod fabric;
mod troupe;

use fabric::Fabric;
use pleach::{Communicator, Error, Operator, ValueLoc};
use transport::udp::FaultInjector;
use troupe::{Troupe, end_of, is_rank};

/// With shared memory, without (every rank is a host of its own), and as if on several hosts with two ranks each.
fn in_every_way(test: &str, ranks: u32, part: fn()) {
    if is_rank() {
        return part();
    }
    for shared_memory in ["on", "off", "2"] {
        Troupe::new(test, ranks).with("PLEACH_SHARED_MEMORY", shared_memory).play(part);
    }
}

fn world() -> Communicator {
    pleach::join().expect("the others are there")
}

#[test]
fn everything_gives_what_it_should() {
    in_every_way("everything_gives_what_it_should", 5, || {
        let world = world();
        let (rank, size) = (world.rank(), world.size());
        for length in [0, 1, 7, 100, 5_000, 200_000] {
            world.barrier().expect("all come");
            let mut sums: Vec<i64> = (0..length).map(|index| i64::from(rank) * 1_000 + index).collect();
            world.all_reduce(&mut sums, Operator::Sum).expect("all add");
            assert!((0..length).zip(&sums).all(|(index, sum)| *sum == 10_000 + index * 5), "{length}");
            for root in [0, size - 1] {
                let mut words: Vec<u32> = vec![if rank == root { root + 17 } else { 0 }; length as usize];
                world.broadcast(&mut words, root).expect("all hear");
                assert!(words.iter().all(|word| *word == root + 17), "{length} from {root}");
                let mut largest: Vec<f64> = vec![f64::from(rank); length as usize];
                world.reduce(&mut largest, Operator::Max, root).expect("all give");
                let expected = if rank == root { f64::from(size - 1) } else { f64::from(rank) };
                assert!(largest.iter().all(|value| *value == expected), "{length} at {root}");
            }
        }
        let mut places = [ValueLoc { value: (rank as f32 - 2.0).abs(), index: rank as i32 }];
        world.all_reduce_located(&mut places, Operator::MinLoc).expect("all look");
        assert_eq!(places, [ValueLoc { value: 0.0, index: 2 }]);
    });
}

#[test]
fn exact_sums_have_the_same_bits_wherever_the_ranks_are() {
    in_every_way("exact_sums_have_the_same_bits_wherever_the_ranks_are", 5, || {
        let world = world();
        let values = [1e300, 1.0, -1e300, 1e-300, 0.1];
        let mut sums = [values[world.rank() as usize], 0.1];
        world.all_reduce_exact(&mut sums).expect("all add");
        assert_eq!(sums, [1.1, 0.5]);
    });
}

#[test]
fn requests_may_be_many_and_waited_for_in_any_order() {
    in_every_way("requests_may_be_many_and_waited_for_in_any_order", 4, || {
        let world = world();
        for round in 0..20_u64 {
            let (mut a, mut b, mut c) = (vec![round; 3], vec![round + 1; 40_000], [round]);
            let mut d = [0_u64; 9];
            if world.rank() == 2 {
                d = [round; 9];
            }
            let first = world.start_all_reduce(&mut a, Operator::Sum).expect("started");
            let second = world.start_all_reduce(&mut b, Operator::Max).expect("started");
            let third = world.start_barrier().expect("started");
            let fourth = world.start_broadcast(&mut d, 2).expect("started");
            world.all_reduce(&mut c, Operator::Sum).expect("in between");
            fourth.wait().expect("done");
            if round % 2 == 0 {
                second.wait().expect("done");
            } else {
                while !second.test() {}
                drop(second);
            }
            third.wait().expect("done");
            first.wait().expect("done");
            assert_eq!((&a[..], c, d), (&[round * 4; 3][..], [round * 4], [round; 9]));
            assert!(round % 2 == 1 || b.iter().all(|value| *value == round + 1));
        }
    });
}

#[test]
fn communicators_split_and_work_side_by_side() {
    in_every_way("communicators_split_and_work_side_by_side", 6, || {
        let world = world();
        let colour = (world.rank() != 5).then_some(world.rank() % 2);
        let part = world.split(colour, -(world.rank() as i32)).expect("all split");
        let twin = world.dup().expect("all dup");
        assert_eq!(part.is_none(), world.rank() == 5);
        if let Some(part) = part {
            // Keys count down: the highest rank is the first.
            let ranks: &[u32] = if world.rank().is_multiple_of(2) { &[4, 2, 0] } else { &[3, 1] };
            assert_eq!(ranks[part.rank() as usize], world.rank());
            let mut sum = [u64::from(world.rank())];
            part.all_reduce(&mut sum, Operator::Sum).expect("all add");
            assert_eq!(sum[0], ranks.iter().map(|rank| u64::from(*rank)).sum::<u64>());
            let mut word = [world.rank()];
            part.broadcast(&mut word, 1).expect("all hear");
            assert_eq!(word[0], ranks[1]);
        }
        let mut all = [1_u8];
        twin.all_reduce(&mut all, Operator::Sum).expect("all add");
        world.barrier().expect("all come");
        assert_eq!(all, [6]);
    });
}

#[test]
fn ranks_that_disagree_all_get_an_error() {
    in_every_way("ranks_that_disagree_all_get_an_error", 4, || {
        let world = world();
        world.barrier().expect("all come");
        let mut vector = vec![1_i32; if world.rank() == 2 { 8 } else { 4 }];
        let first = world.all_reduce(&mut vector, Operator::Sum);
        assert!(matches!(first, Err(Error::Disagree { .. })), "{first:?}");
        assert!(matches!(world.barrier(), Err(Error::Disagree { .. })));
    });
}

#[test]
fn arguments_that_make_no_sense_are_told_at_once_and_do_no_harm() {
    in_every_way("arguments_that_make_no_sense_are_told_at_once_and_do_no_harm", 2, || {
        let world = world();
        let mut floats = [1.0_f32];
        assert!(matches!(world.all_reduce(&mut floats, Operator::Xor), Err(Error::Argument { .. })));
        assert!(matches!(world.broadcast(&mut floats, 2), Err(Error::Argument { .. })));
        assert!(matches!(world.reduce(&mut floats, Operator::MinLoc, 0), Err(Error::Argument { .. })));
        world.all_reduce(&mut floats, Operator::Sum).expect("no harm done");
        assert_eq!(floats, [2.0]);
    });
}

#[test]
fn a_killed_rank_is_named_to_all_others() {
    let test = "a_killed_rank_is_named_to_all_others";
    if is_rank() {
        let world = world();
        if world.rank() == 2 {
            world.barrier().expect("all come");
            std::process::abort();
        }
        let _ = world.barrier(); // Whoever is late to leave it may hear of the loss here.
        let mut sum = [1_u64; 100];
        let ended = loop {
            if let Err(error) = world.all_reduce(&mut sum, Operator::Sum) {
                break error;
            }
        };
        assert_eq!(ended, Error::RankLost { rank: 2 });
        assert_eq!(world.barrier(), Err(Error::RankLost { rank: 2 }));
        return;
    }
    for shared_memory in ["on", "off", "2"] {
        let children = Troupe::new(test, 4).with("PLEACH_SHARED_MEMORY", shared_memory).start();
        for (rank, child) in children.into_iter().enumerate() {
            let (ended, said) = end_of(child);
            assert_eq!(ended == Some(0), rank != 2, "shared memory {shared_memory}, rank {rank}: {said}");
        }
    }
}

#[test]
fn a_rank_that_computes_for_long_is_not_lost() {
    in_every_way("a_rank_that_computes_for_long_is_not_lost", 3, || {
        let world = world();
        let mut sum = [1_u64];
        world.all_reduce(&mut sum, Operator::Sum).expect("all add");
        if world.rank() == 1 {
            std::thread::sleep(std::time::Duration::from_secs(4));
        }
        world.all_reduce(&mut sum, Operator::Sum).expect("all wait");
        assert_eq!(sum, [9]);
    });
}

#[test]
fn a_process_by_itself_is_a_job() {
    let world = pleach::join().expect("nobody else is needed");
    let mut vector = [3.5];
    world.all_reduce(&mut vector, Operator::Sum).expect("alone");
    world.start_all_reduce(&mut vector, Operator::Sum).expect("alone").wait().expect("alone");
    let twin = world.dup().expect("alone");
    twin.barrier().expect("alone");
    assert_eq!((world.size(), vector), (1, [3.5]));
    assert!(matches!(world.broadcast(&mut vector, 1), Err(Error::Argument { .. })));
}

/// Values whose sum depends on the order of additions.
fn delicate(rank: u32, round: u32, length: usize) -> Vec<f64> {
    let value = |index: usize| {
        let big = if (rank as usize + index + round as usize).is_multiple_of(3) { 1e16 } else { 1.0 };
        big + f64::from(rank) * 0.1 + f64::from(round) + index as f64
    };
    (0..length).map(value).collect()
}

/// The sums of many rounds, as bits, so that runs can be compared.
fn digest(world: &Communicator, rounds: u32) -> u64 {
    let mut digest = 0_u64;
    for round in 0..rounds {
        let length = [1, 3, 700, 5_000][round as usize % 4];
        let mut vector = delicate(world.rank(), round, length);
        world.all_reduce(&mut vector, Operator::Sum).expect("all add");
        for value in &vector {
            digest = digest.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value.to_bits();
        }
        let mut word = [if world.rank() == round % world.size() { round } else { u32::MAX }];
        world.broadcast(&mut word, round % world.size()).expect("all hear");
        assert_eq!(word, [round]);
        world.barrier().expect("all come");
    }
    digest
}

const TREE: [(&str, &[&str]); 3] = [("root", &[]), ("left", &["root"]), ("right", &["root"])];

/// Ranks print their digest; all must agree, and so must runs with and without faults.
fn digests(test: &str, fabric: &mut Fabric, shared_memory: &str, kill: Option<&str>) -> u64 {
    digests_by(test, fabric, shared_memory, kill, "connections")
}

fn digests_by(test: &str, fabric: &mut Fabric, shared_memory: &str, kill: Option<&str>, results: &str) -> u64 {
    let troupe = Troupe::new(test, 6)
        .with("PLEACH_SHARED_MEMORY", shared_memory)
        .with("PLEACH_RESULTS", results)
        .with("PLEACH_MANAGER", fabric.manager())
        .with("PLEACH_TEST_SLOWLY", if kill.is_some() { "yes" } else { "" });
    let children = troupe.start();
    if let Some(name) = kill {
        std::thread::sleep(std::time::Duration::from_millis(400));
        fabric.kill(name);
    }
    let digests: Vec<u64> = children
        .into_iter()
        .map(|child| {
            let (ended, said) = end_of(child);
            assert_eq!(ended, Some(0), "{said}");
            let line = said.lines().find_map(|line| line.strip_prefix("digest "));
            line.expect("a digest").parse().expect("a number")
        })
        .collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    digests[0]
}

fn play_digest() {
    let world = world();
    let rounds = if std::env::var("PLEACH_TEST_SLOWLY").is_ok_and(|slowly| !slowly.is_empty()) { 600 } else { 60 };
    assert!(
        world.explain(8, Operator::Sum).contains("aggregation nodes, for"),
        "{}",
        world.explain(8, Operator::Sum)
    );
    let digest = digest(&world, rounds);
    let least = if rounds == 60 { 100 } else { 1 }; // A killed node leaves less.
    assert!(world.rank() > 0 || world.statistics().aggregated >= least);
    eprintln!("digest {digest}");
}

#[test]
fn operations_go_through_the_nodes_of_a_tree() {
    let test = "operations_go_through_the_nodes_of_a_tree";
    if is_rank() {
        return play_digest();
    }
    for shared_memory in ["off", "2"] {
        let mut fabric = Fabric::new(&TREE, &FaultInjector::default());
        let plain = digests(test, &mut fabric, shared_memory, None);
        assert!(fabric.kill("root") > 100, "the nodes have folded");
        // Flips, losses and the like change nothing.
        let mut bad = Fabric::new(&TREE, &FaultInjector::new(50, 50));
        assert_eq!(digests(test, &mut bad, shared_memory, None), plain);
        // Nor does the way in which results come.
        for results in ["multicast", "both"] {
            let mut fabric = Fabric::new(&TREE, &FaultInjector::new(20, 20));
            assert_eq!(digests_by(test, &mut fabric, shared_memory, None, results), plain, "{results}");
        }
    }
}

#[test]
fn a_killed_node_or_manager_changes_no_result() {
    let test = "a_killed_node_or_manager_changes_no_result";
    if is_rank() {
        return play_digest();
    }
    let mut digests = ["left", "root", "manager"].map(|name| {
        let mut fabric = Fabric::new(&TREE, &FaultInjector::default());
        digests(test, &mut fabric, "off", Some(name))
    });
    digests.sort_unstable();
    assert!(digests[0] == digests[2], "{digests:?}");
}

/// Short and long messages from each to each, over UDP and in shared memory, with tags that do not mix.
#[test]
fn ports_exchange_messages() {
    use pleach::tagged_endpoint::{MessageSelector, Rank};
    in_every_way("ports_exchange_messages", 3, || {
        let world = world();
        let (me, size) = (world.rank(), world.size());
        let mut port = world.open_port().expect("all open one");
        let message = |from: u32, to: u32, tag: u64, length: usize| -> Vec<u8> {
            (0..length).map(|place| (place * 7 + from as usize * 31 + to as usize * 3 + tag as usize) as u8).collect()
        };
        let lengths = [0, 1, 24, 64, 65, 5_000, 20_000, 700_000];
        let peers: Vec<u32> = (0..size).filter(|peer| *peer != me).collect();
        let mut receives = Vec::new();
        for (peer, (tag, length)) in peers.iter().flat_map(|peer| (0..).zip(lengths).map(move |one| (*peer, one))) {
            let wanted = MessageSelector::from(Rank(peer), tag);
            receives.push((peer, tag, length, port.receive(wanted, vec![0; length]).expect("posted")));
            port.send(peer, tag, message(me, peer, tag, length)).expect("sent");
        }
        for (peer, tag, length, receive) in receives.into_iter().rev() {
            let (came, source, found) = port.wait_received(receive).expect("it comes");
            assert!(came == message(peer, me, tag, length), "{length} bytes from {peer}");
            assert_eq!((source, found), (Rank(peer), tag));
        }
        assert!(port.drain(std::time::Duration::from_secs(30)).expect("turned"));
        world.barrier().expect("all come");
    });
}
