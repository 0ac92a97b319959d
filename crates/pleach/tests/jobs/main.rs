//! Jobs of real processes on this machine.

mod block_collectives;
mod local_services;
mod network_costs;
mod packet_security;
mod rank_processes;
mod smaller_mtu;

use local_services::LocalServices;
use pleach::{Communicator, Error, Operator, ValueLoc};
use rank_processes::{RankProcesses, SharedMemoryNamespace, is_rank, wait_with_stderr};
use transport::udp::FaultInjector;

/// Runs a test with shared memory, without it (every rank is a host of its own), and with two ranks per host.
fn in_every_layout(test: &str, ranks: u32, body: fn()) {
    if is_rank() {
        return body();
    }
    for shared_memory in ["on", "off", "2"] {
        RankProcesses::new(test, ranks).with("PLEACH_SHARED_MEMORY", shared_memory).run(body);
    }
}

fn world() -> Communicator {
    pleach::join().expect("all ranks join")
}

#[test]
fn every_operation_gives_the_right_result() {
    in_every_layout("every_operation_gives_the_right_result", 5, || {
        let world = world();
        let (rank, size) = (world.rank(), world.size());
        for length in [0, 1, 7, 100, 5_000, 200_000] {
            world.barrier().expect("every rank enters");
            let mut sums: Vec<i64> = (0..length).map(|index| i64::from(rank) * 1_000 + index).collect();
            world.all_reduce(&mut sums, Operator::Sum).expect("every rank takes part");
            assert!((0..length).zip(&sums).all(|(index, sum)| *sum == 10_000 + index * 5), "{length}");
            for root in [0, size - 1] {
                let mut words: Vec<u32> = vec![if rank == root { root + 17 } else { 0 }; length as usize];
                world.broadcast(&mut words, root).expect("every rank takes part");
                assert!(words.iter().all(|word| *word == root + 17), "{length} from {root}");
                let mut largest: Vec<f64> = vec![f64::from(rank); length as usize];
                world.reduce(&mut largest, Operator::Max, root).expect("every rank takes part");
                let expected = if rank == root { f64::from(size - 1) } else { f64::from(rank) };
                assert!(largest.iter().all(|value| *value == expected), "{length} at {root}");
            }
        }
        let mut places = [ValueLoc { value: (rank as f32 - 2.0).abs(), index: rank as i32 }];
        world.all_reduce_loc(&mut places, Operator::MinLoc).expect("every rank takes part");
        assert_eq!(places, [ValueLoc { value: 0.0, index: 2 }]);
    });
}

#[test]
fn exact_sums_have_the_same_bits_wherever_the_ranks_are() {
    in_every_layout("exact_sums_have_the_same_bits_wherever_the_ranks_are", 5, || {
        let world = world();
        let values = [1e300, 1.0, -1e300, 1e-300, 0.1];
        let mut sums = [values[world.rank() as usize], 0.1];
        world.all_reduce_exact(&mut sums).expect("every rank takes part");
        assert_eq!(sums, [1.1, 0.5]);
    });
}

#[test]
fn requests_complete_in_any_order_of_waiting() {
    in_every_layout("requests_complete_in_any_order_of_waiting", 4, || {
        let world = world();
        for round in 0..20_u64 {
            let (mut a, mut b, mut c) = (vec![round; 3], vec![round + 1; 40_000], [round]);
            let mut d = [0_u64; 9];
            if world.rank() == 2 {
                d = [round; 9];
            }
            pleach::scope(|scope| {
                let first = world.start_all_reduce(scope, &mut a, Operator::Sum).expect("started");
                let second = world.start_all_reduce(scope, &mut b, Operator::Max).expect("started");
                let third = world.start_barrier(scope).expect("started");
                let fourth = world.start_broadcast(scope, &mut d, 2).expect("started");
                world.all_reduce(&mut c, Operator::Sum).expect("in between");
                assert_eq!(fourth.wait().expect("done"), [round; 9]);
                match round % 3 {
                    0 => assert_eq!(second.wait().expect("done")[0], round + 1),
                    1 => while !second.test() {},
                    _ => std::mem::forget(second), // The scope waits for it.
                }
                third.wait().expect("done");
                first.wait().expect("done");
            });
            assert_eq!((&a[..], c, d), (&[round * 4; 3][..], [round * 4], [round; 9]));
            assert!(b.iter().all(|value| *value == round + 1));
        }
    });
}

#[test]
fn communicators_split_and_work_side_by_side() {
    in_every_layout("communicators_split_and_work_side_by_side", 6, || {
        let world = world();
        let colour = (world.rank() != 5).then_some(world.rank() % 2);
        let part = world.split(colour, -(world.rank() as i32)).expect("every rank takes part");
        let copy = world.dup().expect("every rank takes part");
        assert_eq!(part.is_none(), world.rank() == 5);
        if let Some(part) = part {
            // Keys count down, so the highest rank comes first.
            let ranks: &[u32] = if world.rank().is_multiple_of(2) { &[4, 2, 0] } else { &[3, 1] };
            assert_eq!(ranks[part.rank() as usize], world.rank());
            let mut sum = [u64::from(world.rank())];
            part.all_reduce(&mut sum, Operator::Sum).expect("every rank takes part");
            assert_eq!(sum[0], ranks.iter().map(|rank| u64::from(*rank)).sum::<u64>());
            let mut value = [world.rank()];
            part.broadcast(&mut value, 1).expect("every rank takes part");
            assert_eq!(value[0], ranks[1]);
        }
        let mut all = [1_u8];
        copy.all_reduce(&mut all, Operator::Sum).expect("every rank takes part");
        world.barrier().expect("every rank enters");
        assert_eq!(all, [6]);
    });
}

#[test]
fn a_mismatch_is_an_error_at_every_rank() {
    in_every_layout("a_mismatch_is_an_error_at_every_rank", 4, || {
        let world = world();
        let mut vector = vec![1_i32; if world.rank() == 2 { 8 } else { 4 }];
        // A rank that leaves the barrier late may get the mismatch of the others there.
        let first = world.barrier().and_then(|()| world.all_reduce(&mut vector, Operator::Sum));
        assert!(matches!(first, Err(Error::Mismatch { .. })), "{first:?}");
        assert!(matches!(world.barrier(), Err(Error::Mismatch { .. })));
    });
}

#[test]
fn invalid_arguments_fail_at_once_and_leave_the_communicator_usable() {
    in_every_layout("invalid_arguments_fail_at_once_and_leave_the_communicator_usable", 2, || {
        let world = world();
        let mut floats = [1.0_f32];
        assert!(matches!(world.all_reduce(&mut floats, Operator::Xor), Err(Error::InvalidArgument { .. })));
        assert!(matches!(world.broadcast(&mut floats, 2), Err(Error::InvalidArgument { .. })));
        assert!(matches!(world.reduce(&mut floats, Operator::MinLoc, 0), Err(Error::InvalidArgument { .. })));
        world.all_reduce(&mut floats, Operator::Sum).expect("still usable");
        assert_eq!(floats, [2.0]);
    });
}

#[test]
fn a_killed_rank_is_reported_to_all_others() {
    let test = "a_killed_rank_is_reported_to_all_others";
    if is_rank() {
        let world = world();
        if world.rank() == 2 {
            world.barrier().expect("every rank enters");
            std::process::abort();
        }
        let _ = world.barrier(); // A rank that leaves late may see the loss here.
        let mut sum = [1_u64; 100];
        let error = loop {
            if let Err(error) = world.all_reduce(&mut sum, Operator::Sum) {
                break error;
            }
        };
        assert_eq!(error, Error::RanksLost { ranks: vec![2] });
        assert_eq!(world.barrier(), Err(Error::RanksLost { ranks: vec![2] }));
        return;
    }
    for shared_memory in ["on", "off", "2"] {
        let children = RankProcesses::new(test, 4).with("PLEACH_SHARED_MEMORY", shared_memory).start();
        for (rank, child) in children.into_iter().enumerate() {
            let (status, stderr) = wait_with_stderr(child);
            assert_eq!(status == Some(0), rank != 2, "shared memory {shared_memory}, rank {rank}: {stderr}");
        }
    }
}

/// Several ranks die in the same instant, with or without the coordinator: the others name the same ones, whatever they wait for.
#[test]
fn ranks_that_are_killed_together_are_the_same_set_at_all_others() {
    let test = "ranks_that_are_killed_together_are_the_same_set_at_all_others";
    const KILLED: &str = "PLEACH_TEST_KILLED";
    if is_rank() {
        let killed: Vec<u32> =
            std::env::var(KILLED).expect("set").split(' ').map(|rank| rank.parse().expect("a rank")).collect();
        let world = world();
        let first = world.barrier();
        if killed.contains(&world.rank()) {
            std::process::abort();
        }
        // Some block, and some poll. A rank that leaves the first barrier late may see the loss there.
        let result = match world.rank() % 2 {
            _ if first.is_err() => first,
            0 => world.barrier(),
            _ => pleach::scope(|scope| {
                let request = world.start_barrier(scope)?;
                while !request.test() {
                    std::thread::yield_now();
                }
                request.wait().map(drop)
            }),
        };
        let error = result.expect_err("the killed ranks are missing");
        // Usually all of them; one that takes longer to end is lost later.
        assert!(
            matches!(&error, Error::RanksLost { ranks } if ranks.iter().all(|rank| killed.contains(rank))),
            "{error}"
        );
        assert_eq!(world.barrier(), Err(error.clone()));
        eprintln!("{error}");
        return;
    }
    for shared_memory in ["on", "off", "2"] {
        for killed in [&[1, 2][..], &[0, 3], &[0, 1]] {
            let names = killed.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            let processes = RankProcesses::new(test, 6).with("PLEACH_SHARED_MEMORY", shared_memory);
            let children = processes.with(KILLED, &names).start();
            for (rank, child) in (0..).zip(children) {
                let (status, stderr) = wait_with_stderr(child);
                let should_live = !killed.contains(&rank);
                assert_eq!(
                    status == Some(0),
                    should_live,
                    "memory {shared_memory}, {killed:?}, rank {rank}: {stderr}"
                );
            }
        }
    }
}

/// After ranks are lost, twice, those that are left agree, form a communicator, and go on.
#[test]
fn survivors_shrink_the_communicator_and_go_on() {
    let test = "survivors_shrink_the_communicator_and_go_on";
    if is_rank() {
        let mut world = world();
        let me = world.rank();
        for (round, killed) in [[1, 4], [0, 5]].into_iter().enumerate() {
            let first = world.barrier();
            if killed.contains(&me) {
                std::process::abort();
            }
            let mut sum = [1_u64];
            // A rank that leaves the barrier late may see the loss there.
            let result = first.and_then(|()| world.all_reduce(&mut sum, Operator::Sum));
            let error = result.expect_err("two ranks are missing");
            assert!(error.lost_ranks().iter().all(|rank| killed.contains(rank)), "{error}");
            assert_eq!(world.agree(0b100 | u64::from(me == 3)), Ok(0b100), "all but one have the lowest bit clear");
            world = world.shrink().expect("those that are left form a communicator");
            let left: Vec<u32> = (0..8).filter(|rank| ![1, 4].contains(rank)).collect();
            let left: Vec<u32> = left.into_iter().filter(|rank| round == 0 || ![0, 5].contains(rank)).collect();
            assert_eq!(world.size() as usize, left.len());
            assert_eq!(left[world.rank() as usize], me, "the order stays");
            for _ in 0..100 {
                let mut sum = [u64::from(me)];
                world.all_reduce(&mut sum, Operator::Sum).expect("nobody is missing");
                assert_eq!(sum[0], left.iter().map(|rank| u64::from(*rank)).sum::<u64>());
            }
        }
        return;
    }
    for shared_memory in ["on", "off", "2"] {
        let children = RankProcesses::new(test, 8).with("PLEACH_SHARED_MEMORY", shared_memory).start();
        for (rank, child) in (0..).zip(children) {
            let (status, stderr) = wait_with_stderr(child);
            let should_live = ![0, 1, 4, 5].contains(&rank);
            assert_eq!(status == Some(0), should_live, "shared memory {shared_memory}, rank {rank}: {stderr}");
        }
    }
}

#[test]
fn a_rank_that_computes_for_long_is_not_lost() {
    in_every_layout("a_rank_that_computes_for_long_is_not_lost", 3, || {
        let world = world();
        let mut sum = [1_u64];
        world.all_reduce(&mut sum, Operator::Sum).expect("every rank takes part");
        if world.rank() == 1 {
            std::thread::sleep(std::time::Duration::from_secs(4));
        }
        world.all_reduce(&mut sum, Operator::Sum).expect("every rank takes part");
        assert_eq!(sum, [9]);
    });
}

#[test]
fn a_single_process_is_a_job() {
    let world = pleach::join().expect("one rank suffices");
    let mut vector = [3.5];
    world.all_reduce(&mut vector, Operator::Sum).expect("alone");
    pleach::scope(|scope| {
        let sum = world.start_all_reduce(scope, &mut vector, Operator::Sum).expect("alone");
        assert_eq!(sum.wait().expect("alone"), [3.5]);
    });
    let copy = world.dup().expect("alone");
    copy.barrier().expect("alone");
    assert_eq!((world.size(), vector), (1, [3.5]));
    assert!(matches!(world.broadcast(&mut vector, 1), Err(Error::InvalidArgument { .. })));
}

/// Values whose sum depends on the order of additions.
fn order_sensitive(rank: u32, round: u32, length: usize) -> Vec<f64> {
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
        let mut vector = order_sensitive(world.rank(), round, length);
        world.all_reduce(&mut vector, Operator::Sum).expect("every rank takes part");
        for value in &vector {
            digest = digest.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value.to_bits();
        }
        let mut value = [if world.rank() == round % world.size() { round } else { u32::MAX }];
        world.broadcast(&mut value, round % world.size()).expect("every rank takes part");
        assert_eq!(value, [round]);
        world.barrier().expect("every rank enters");
    }
    digest
}

const TREE: [(&str, &[&str]); 3] = [("root", &[]), ("left", &["root"]), ("right", &["root"])];

/// Runs the ranks, which print their digests; all digests must be equal, with and without faults.
fn digests(test: &str, services: &mut LocalServices, shared_memory: &str, kill: Option<&str>) -> u64 {
    digests_by(test, services, shared_memory, kill, "connections")
}

fn digests_by(
    test: &str,
    services: &mut LocalServices,
    shared_memory: &str,
    kill: Option<&str>,
    results: &str,
) -> u64 {
    let job = RankProcesses::new(test, 6)
        .with("PLEACH_SHARED_MEMORY", shared_memory)
        .with("PLEACH_RESULTS", results)
        .with("PLEACH_MANAGER", services.manager())
        .with("PLEACH_ALGORITHM", "aggregation") // Even where the hosts alone are faster.
        .with("PLEACH_TEST_SLOWLY", if kill.is_some() { "yes" } else { "" });
    let children = job.start();
    if let Some(name) = kill {
        // In the middle of the job, however slow the machine is, and after the trials when the communicator formed.
        services.wait_until_reduced(600);
        services.kill(name);
    }
    let digests: Vec<u64> = children
        .into_iter()
        .map(|child| {
            let (status, stderr) = wait_with_stderr(child);
            assert_eq!(status, Some(0), "{stderr}");
            let line = stderr.lines().find_map(|line| line.strip_prefix("digest "));
            line.expect("a digest").parse().expect("a number")
        })
        .collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    digests[0]
}

fn run_digest() {
    let world = world();
    let rounds = if std::env::var("PLEACH_TEST_SLOWLY").is_ok_and(|slowly| !slowly.is_empty()) { 200 } else { 60 };
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
        return run_digest();
    }
    for shared_memory in ["off", "2"] {
        let mut services = LocalServices::new(&TREE, &FaultInjector::default());
        let plain = digests(test, &mut services, shared_memory, None);
        assert!(services.kill("root") > 100, "the nodes have reduced");
        // Corrupted and lost packets change no result.
        let mut bad = LocalServices::new(&TREE, &FaultInjector::new(50, 50));
        assert_eq!(digests(test, &mut bad, shared_memory, None), plain);
        // Nor does the delivery mode of results.
        for results in ["multicast", "both"] {
            let mut services = LocalServices::new(&TREE, &FaultInjector::new(20, 20));
            assert_eq!(digests_by(test, &mut services, shared_memory, None, results), plain, "{results}");
        }
    }
}

/// Rank 0 cannot create shared memory: every rank reports that at once, with its name.
#[test]
fn a_full_shared_memory_is_reported_by_all_ranks_at_once() {
    let test = "a_full_shared_memory_is_reported_by_all_ranks_at_once";
    if is_rank() {
        let error = pleach::join().err().map_or_else(|| "no error".to_owned(), |error| error.to_string());
        return eprintln!("error {error}");
    }
    let Some(namespace) = SharedMemoryNamespace::new("16k") else { return };
    let mut job = RankProcesses::new(test, 3).with("PLEACH_HOST", "one");
    job.prefix = vec!["nsenter".to_owned(), namespace.argument()];
    let began = std::time::Instant::now();
    let ends: Vec<_> = job.start().into_iter().map(wait_with_stderr).collect();
    let took = began.elapsed();
    for (rank, (status, stderr)) in ends.iter().enumerate() {
        let expected =
            if rank == 0 { "error /dev/shm is full" } else { "error rank 0 cannot join: /dev/shm is full" };
        assert!(*status == Some(0) && stderr.contains(expected), "rank {rank}: {stderr}");
    }
    assert!(took.as_secs() < 30, "{took:?}: not after the timeout of a minute");
}

#[test]
fn a_killed_node_or_manager_changes_no_result() {
    let test = "a_killed_node_or_manager_changes_no_result";
    if is_rank() {
        return run_digest();
    }
    let mut digests = ["left", "root", "manager"].map(|name| {
        let mut services = LocalServices::new(&TREE, &FaultInjector::default());
        digests(test, &mut services, "off", Some(name))
    });
    digests.sort_unstable();
    assert!(digests[0] == digests[2], "{digests:?}");
}

/// Short and long messages from each rank to each, over UDP and in shared memory, matched by tag.
#[test]
fn tagged_endpoints_exchange_messages() {
    use pleach::tagged_endpoint::{MessageSelector, Rank};
    in_every_layout("tagged_endpoints_exchange_messages", 3, || {
        let world = world();
        let (me, size) = (world.rank(), world.size());
        let mut endpoint = world.open_tagged_endpoint().expect("every rank takes part");
        let message = |from: u32, to: u32, tag: u64, length: usize| -> Vec<u8> {
            (0..length).map(|place| (place * 7 + from as usize * 31 + to as usize * 3 + tag as usize) as u8).collect()
        };
        let lengths = [0, 1, 24, 64, 65, 5_000, 20_000, 700_000];
        let peers: Vec<u32> = (0..size).filter(|peer| *peer != me).collect();
        let mut receives = Vec::new();
        for (peer, (tag, length)) in peers.iter().flat_map(|peer| (0..).zip(lengths).map(move |one| (*peer, one))) {
            let wanted = MessageSelector::exact(Rank(peer), tag);
            receives.push((peer, tag, length, endpoint.receive(wanted, vec![0; length]).expect("posted")));
            endpoint.send(peer, tag, message(me, peer, tag, length)).expect("sent");
        }
        for (peer, tag, length, receive) in receives.into_iter().rev() {
            let (received, source, found) = endpoint.wait_receive(receive).expect("it arrives");
            assert!(received == message(peer, me, tag, length), "{length} bytes from {peer}");
            assert_eq!((source, found), (Rank(peer), tag));
        }
        assert!(endpoint.drain(std::time::Duration::from_secs(30)).expect("progress"));
        world.barrier().expect("every rank enters");
    });
}
