//! Reduce-scatter, scans, gathers, scatters and alltoall: with shared memory, without it, and with two ranks per host.

use pleach::{BlockCollective, BlockLengths, Communicator, Error, Operator, OwnedRequest};

use crate::rank_processes::{RankProcesses, SharedMemoryNamespace, is_rank, wait_with_stderr};
use crate::{in_every_layout, world};

/// Elements per block: none, one, in descriptors, leaves and slots, in several pieces, and streamed between hosts.
const LENGTHS: [usize; 6] = [0, 1, 7, 300, 5_000, 60_000];

/// An element of a rank's vector.
fn element(rank: u32, index: usize) -> i64 {
    i64::from(rank) * 1_000_003 + index as i64 * 17 + 1
}

fn vector(rank: u32, length: usize) -> Vec<i64> {
    (0..length).map(|index| element(rank, index)).collect()
}

/// The sum of the vectors of some ranks.
fn sum(ranks: std::ops::Range<u32>, length: usize) -> Vec<i64> {
    (0..length).map(|index| ranks.clone().map(|rank| element(rank, index)).sum()).collect()
}

fn check_reductions(group: &Communicator, length: usize) {
    let (rank, size) = (group.rank(), group.size());
    let all = length * size as usize;
    let mut block = vec![0; length];
    group.reduce_scatter(&vector(rank, all), &mut block, Operator::Sum).expect("every rank takes part");
    assert!(block == sum(0..size, all)[rank as usize * length..][..length], "reduce-scatter of {length}");
    let mut prefix = vector(rank, length);
    group.scan(&mut prefix, Operator::Sum).expect("every rank takes part");
    assert!(prefix == sum(0..rank + 1, length), "scan of {length}");
    let mut before = vector(rank, length);
    group.exclusive_scan(&mut before, Operator::Sum).expect("every rank takes part");
    let expected = if rank == 0 { vector(0, length) } else { sum(0..rank, length) };
    assert!(before == expected, "exclusive scan of {length}");
}

fn check_copies(group: &Communicator, length: usize) {
    let (rank, size) = (group.rank(), group.size());
    let all: Vec<i64> = (0..size).flat_map(|rank| vector(rank, length)).collect();
    let mut gathered = vec![0; all.len()];
    group.all_gather(&vector(rank, length), &mut gathered).expect("every rank takes part");
    assert!(gathered == all, "allgather of {length}");
    for root in [0, size / 2, size - 1] {
        let mut gathered = if rank == root { vec![0; all.len()] } else { vec![7] };
        group.gather(&vector(rank, length), &mut gathered, root).expect("every rank takes part");
        assert!(if rank == root { gathered == all } else { gathered == [7] }, "gather of {length} to {root}");
        let mut block = vec![0; length];
        let input = if rank == root { &all[..] } else { &[] };
        group.scatter(input, &mut block, root).expect("every rank takes part");
        assert!(block == vector(rank, length), "scatter of {length} from {root}");
    }
    // The block of rank `a` for rank `b` is the vector of "rank" 100 a + b.
    let given: Vec<i64> = (0..size).flat_map(|to| vector(100 * rank + to, length)).collect();
    let mut got = vec![0; given.len()];
    group.all_to_all(&given, &mut got).expect("every rank takes part");
    let expected: Vec<i64> = (0..size).flat_map(|from| vector(100 * from + rank, length)).collect();
    assert!(got == expected, "alltoall of {length}");
}

/// Blocks of different lengths, some of them empty.
fn check_counts(group: &Communicator, length: usize) {
    let (rank, size) = (group.rank(), group.size());
    let counts: Vec<usize> = (0..size as usize).map(|rank| (rank * 5 + 3) % 4 * length).collect();
    let own = counts[rank as usize];
    let before: usize = counts[..rank as usize].iter().sum();
    let total: usize = counts.iter().sum();
    let all: Vec<i64> = (0..size).flat_map(|rank| vector(rank, counts[rank as usize])).collect();
    let mut gathered = vec![0; total];
    group.all_gather_v(&vector(rank, own), &mut gathered, &counts).expect("every rank takes part");
    assert!(gathered == all, "allgather of {counts:?}");
    let root = size - 1;
    let mut gathered = vec![0; if rank == root { total } else { 0 }];
    group.gather_v(&vector(rank, own), &mut gathered, &counts, root).expect("every rank takes part");
    assert!(rank != root || gathered == all, "gather of {counts:?}");
    let mut block = vec![0; own];
    group.scatter_v(&all, &mut block, &counts, root).expect("every rank takes part");
    assert!(block == vector(rank, own), "scatter of {counts:?}");
    group.reduce_scatter_v(&vector(rank, total), &mut block, &counts, Operator::Sum).expect("every rank takes part");
    assert!(block == sum(0..size, total)[before..before + own], "reduce-scatter of {counts:?}");
}

fn check_all(group: &Communicator) {
    for length in LENGTHS {
        check_reductions(group, length);
        check_copies(group, length);
        check_counts(group, length);
    }
}

#[test]
fn blocks_and_prefixes_are_right_at_every_rank() {
    in_every_layout("block_collectives::blocks_and_prefixes_are_right_at_every_rank", 5, || {
        let world = world();
        let before = world.statistics().operations;
        check_all(&world);
        let operations = (LENGTHS.len() * (3 + 1 + 6 + 1 + 4)) as u64;
        assert_eq!(world.statistics().operations - before, operations);
        let mixed = world.split(Some(0), (world.rank() as i32 * 3) % 5).expect("every rank takes part");
        check_all(&mixed.expect("all ranks are in it"));
        let pair = world.split(Some(u32::from(world.rank() < 2)), 0).expect("every rank takes part");
        check_all(&pair.expect("all ranks are in one"));
    });
}

/// Even ranks are on one host, odd ranks on another.
#[test]
fn ranks_of_a_host_need_not_be_contiguous() {
    let test = "block_collectives::ranks_of_a_host_need_not_be_contiguous";
    if is_rank() {
        let world = world();
        assert_eq!(world.hosts(), 2);
        check_all(&world);
        // Here they are.
        let (half, rank) = (world.rank() % 2, world.rank());
        let sorted = world.split(Some(0), (half * 10 + rank) as i32).expect("every rank takes part");
        return check_all(&sorted.expect("all ranks are in it"));
    }
    let namespaces = (SharedMemoryNamespace::new("64m"), SharedMemoryNamespace::new("64m"));
    let (Some(even), Some(odd)) = namespaces else { return };
    let script = format!(
        "if [ $((PLEACH_RANK % 2)) = 0 ]; then exec nsenter {} \"$@\"; else exec nsenter {} \"$@\"; fi",
        even.argument(),
        odd.argument()
    );
    let mut job = RankProcesses::new(test, 5);
    job.prefix = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    for (rank, (status, stderr)) in job.start().into_iter().map(wait_with_stderr).enumerate() {
        assert_eq!(status, Some(0), "rank {rank}: {stderr}");
    }
}

#[test]
fn one_rank_alone_gets_its_own_blocks() {
    in_every_layout("block_collectives::one_rank_alone_gets_its_own_blocks", 1, || check_all(&world()));
}

#[test]
fn float_sums_have_the_same_bits_in_every_run() {
    in_every_layout("block_collectives::float_sums_have_the_same_bits_in_every_run", 5, || {
        let world = world();
        let value = |index: usize| (f64::from(world.rank()) + 0.1) * (index as f64 + 0.3).exp2().fract();
        let input: Vec<f64> = (0..5 * 3_000).map(value).collect();
        let run = || {
            let (mut block, mut prefix) = (vec![0.0; 3_000], input.clone());
            world.reduce_scatter(&input, &mut block, Operator::Sum).expect("every rank takes part");
            world.scan(&mut prefix, Operator::Sum).expect("every rank takes part");
            block.into_iter().chain(prefix).map(f64::to_bits).collect::<Vec<u64>>()
        };
        let first = run();
        assert!((0..5).all(|_| run() == first));
    });
}

#[test]
fn blocks_go_between_other_operations_in_flight() {
    in_every_layout("block_collectives::blocks_go_between_other_operations_in_flight", 4, || {
        let world = world();
        for round in 0..10 {
            let (mut one, mut two) = (vec![round; 3], vec![round + 1; 30_000]);
            pleach::scope(|scope| {
                let first = world.start_all_reduce(scope, &mut one, Operator::Sum).expect("started");
                let kind = pleach::ReductionKind::new(pleach::ElementType::I64, Operator::Sum).expect("defined");
                let bytes = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
                // Several pieces within the host, while later operations are already started.
                let scan = world.start_owned_scan(bytes(&vector(world.rank(), 9_000)), kind).expect("started");
                let scatter = world.start_owned_reduce_scatter(bytes(&vector(world.rank(), 4 * 9_000)), kind);
                let scatter = scatter.expect("started");
                let last = world.start_all_reduce(scope, &mut two, Operator::Max).expect("started");
                check_copies(&world, 300);
                let (mut prefix, mut block) = (None, None);
                while prefix.is_none() || block.is_none() {
                    prefix = prefix.or_else(|| scan.poll());
                    block = block.or_else(|| scatter.poll());
                }
                assert!(prefix == Some(Ok(bytes(&sum(0..world.rank() + 1, 9_000)))));
                let all = sum(0..4, 4 * 9_000);
                assert!(block == Some(Ok(bytes(&all[world.rank() as usize * 9_000..][..9_000]))));
                first.wait().expect("done");
                last.wait().expect("done");
            });
            assert!(one == [4 * round; 3] && two.iter().all(|value| *value == round + 1));
        }
    });
}

/// The bytes of numbers, as another library passes them.
fn bytes_of(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// What this rank gives and gets, in bytes.
fn owned_blocks(group: &Communicator, length: usize) -> Vec<(BlockCollective, BlockLengths, Vec<u8>, Vec<u8>)> {
    let (rank, size) = (group.rank(), group.size());
    let counts: Vec<usize> = (0..size as usize).map(|rank| (rank * 5 + 3) % 4 * length).collect();
    let (own, total) = (counts[rank as usize], counts.iter().sum());
    let before: usize = counts[..rank as usize].iter().sum();
    let all: Vec<i64> = (0..size).flat_map(|rank| vector(rank, counts[rank as usize])).collect();
    let each = BlockLengths::Each(counts.iter().map(|count| count * 8).collect());
    let root = size / 2;
    let at_root = |values: &[i64]| if rank == root { bytes_of(values) } else { Vec::new() };
    let kind = pleach::ReductionKind::new(pleach::ElementType::I64, Operator::Sum).expect("defined");
    let given: Vec<i64> = (0..size).flat_map(|to| vector(100 * rank + to, length)).collect();
    let got: Vec<i64> = (0..size).flat_map(|from| vector(100 * from + rank, length)).collect();
    let sums = &sum(0..size, total)[before..before + own];
    vec![
        (BlockCollective::AllGather, each.clone(), bytes_of(&vector(rank, own)), bytes_of(&all)),
        (BlockCollective::Gather { root }, each.clone(), bytes_of(&vector(rank, own)), at_root(&all)),
        (BlockCollective::Scatter { root }, each.clone(), at_root(&all), bytes_of(&vector(rank, own))),
        (BlockCollective::ReduceScatter(kind), each, bytes_of(&vector(rank, total)), bytes_of(sums)),
        (BlockCollective::AllToAll, BlockLengths::Equal(length * 8), bytes_of(&given), bytes_of(&got)),
    ]
}

#[test]
fn blocks_that_the_caller_gives_up_are_right_blocking_and_started() {
    in_every_layout("block_collectives::blocks_that_the_caller_gives_up_are_right_blocking_and_started", 5, || {
        let world = world();
        for length in LENGTHS {
            let calls = owned_blocks(&world, length);
            for (collective, lengths, input, expected) in &calls {
                let result = world.run_owned_blocks(*collective, lengths.clone(), input.clone());
                assert!(result.as_ref() == Ok(expected), "{collective:?} of {length}");
            }
            let start = |(collective, lengths, input, _): &(BlockCollective, BlockLengths, Vec<u8>, Vec<u8>)| {
                world.start_owned_blocks(*collective, lengths.clone(), input.clone()).expect("started")
            };
            let started: Vec<OwnedRequest> = calls.iter().map(start).collect();
            for (request, (collective, _, _, expected)) in started.iter().zip(&calls) {
                let result = std::iter::repeat_with(|| request.poll()).find_map(|result| result).expect("a result");
                assert!(result.as_ref() == Ok(expected), "{collective:?} of {length}, started");
            }
        }
    });
}

#[test]
fn a_mismatch_of_blocks_is_an_error_at_every_rank() {
    in_every_layout("block_collectives::a_mismatch_of_blocks_is_an_error_at_every_rank", 4, || {
        let world = world();
        let expect_mismatch = |run: &dyn Fn(&Communicator) -> Result<(), Error>| {
            let group = world.dup().expect("every rank takes part");
            // The first rank of a scan waits for nobody.
            let error = run(&group).and_then(|()| group.barrier()).expect_err("the ranks disagree");
            assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
        };
        let odd = world.rank() == 3;
        let length = if odd { 2 } else { 1 };
        expect_mismatch(&|group| group.all_gather(&vec![0_u64; length], &mut vec![0; 4 * length]));
        expect_mismatch(&|group| group.scan(&mut [0_u64], if odd { Operator::Max } else { Operator::Sum }));
        expect_mismatch(&|group| match odd {
            true => group.all_to_all(&[0_u64; 4], &mut [0; 4]),
            false => group.barrier(),
        });
    });
}

#[test]
fn invalid_blocks_fail_at_once_and_leave_the_communicator_usable() {
    in_every_layout("block_collectives::invalid_blocks_fail_at_once_and_leave_the_communicator_usable", 3, || {
        let world = world();
        let (short, mut output) = ([0_i64; 2], [0_i64; 3]);
        let is_invalid = |result: Result<(), Error>| matches!(result, Err(Error::InvalidArgument { .. }));
        assert!(is_invalid(world.reduce_scatter(&short, &mut output, Operator::Sum)));
        assert!(is_invalid(world.reduce_scatter(&[0.0; 3], &mut [0.0], Operator::Xor)));
        assert!(is_invalid(world.reduce_scatter_v(&short, &mut output, &[1, 1], Operator::Sum)));
        assert!(is_invalid(world.all_gather(&short, &mut output)));
        assert!(is_invalid(world.all_gather_v(&short, &mut output, &[usize::MAX, 2, 2])));
        assert!(is_invalid(world.gather(&short, &mut [0_i64; 6], 3)));
        assert!(is_invalid(world.scatter(&short, &mut [], 9)));
        assert!(is_invalid(world.all_to_all(&short, &mut output)));
        assert!(is_invalid(world.scan(&mut output, Operator::MinLoc)));
        let owned = |collective, lengths: &[usize], bytes: usize| {
            let lengths = BlockLengths::Each(lengths.iter().copied().collect());
            is_invalid(world.run_owned_blocks(collective, lengths, vec![0; bytes]).map(drop))
        };
        assert!(owned(BlockCollective::AllGather, &[8, 8], 8) && owned(BlockCollective::AllGather, &[8, 8, 8], 7));
        assert!(owned(BlockCollective::AllToAll, &[8, 8, 8], 24));
        assert!(owned(BlockCollective::AllGather, &[usize::MAX, 8, 8], 8));
        let to_nobody = BlockCollective::Gather { root: 3 };
        assert!(owned(to_nobody, &[8, 8, 8], 8));
        check_reductions(&world, 3);
    });
}

#[test]
fn a_rank_that_is_killed_fails_blocks_with_the_same_error() {
    let test = "block_collectives::a_rank_that_is_killed_fails_blocks_with_the_same_error";
    if is_rank() {
        let world = world();
        let entered = world.barrier(); // A rank that leaves late may see the loss here.
        if world.rank() == 2 {
            entered.expect("every rank enters");
            std::process::abort();
        }
        let error = loop {
            let input = [1_u64; 4];
            if let Err(error) = world.all_to_all(&input, &mut [0; 4]) {
                break error;
            }
        };
        assert_eq!(error, Error::RanksLost { ranks: vec![2] });
        let again = world.scan(&mut [1_u64], Operator::Sum);
        assert_eq!(again, Err(error));
        return;
    }
    for shared_memory in ["on", "off", "2"] {
        let job = RankProcesses::new(test, 4).with("PLEACH_SHARED_MEMORY", shared_memory);
        for (rank, (status, stderr)) in job.start().into_iter().map(wait_with_stderr).enumerate() {
            assert_eq!(status == Some(0), rank != 2, "rank {rank}: {stderr}");
        }
    }
}

#[test]
fn every_collective_explains_itself() {
    let test = "block_collectives::every_collective_explains_itself";
    RankProcesses::new(test, 2).with("PLEACH_SHARED_MEMORY", "off").with("PLEACH_ALGORITHM", "gather=direct").run(
        || {
            let world = world();
            for text in [
                world.explain_reduce_scatter(8, Operator::Sum),
                world.explain_scan(8, Operator::Sum),
                world.explain_all_gather(8),
                world.explain_scatter(1 << 20),
                world.explain_all_to_all(8),
            ] {
                assert!(text.contains("aggregation nodes do not do it"), "{text}");
            }
            let text = world.explain_gather(8);
            assert!(text.starts_with("direct messages") && text.contains("the user requested"), "{text}");
            check_copies(&world, 20);
        },
    );
}
