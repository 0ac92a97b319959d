//! Several operations in progress at once.

use super::super::{TeamOperation, TeamProgress};
use super::*;

pub(super) fn any_call(draw: &mut TestRandom, ranks: u16) -> (TeamCall, usize) {
    let kinds: Vec<ReductionKind> = all_kinds().collect();
    let kind = kinds[draw.below(kinds.len())];
    let root = draw.below(ranks.into()) as u16;
    let call = match draw.below(8) {
        0 => TeamCall::Barrier,
        1 | 2 => TeamCall::Broadcast { root },
        3 | 4 => TeamCall::Reduce { root, kind },
        _ => TeamCall::AllReduce { kind },
    };
    let most = [48, 640, 24_000, 320_000][draw.below(4)];
    (call, draw.below(most) / kind.element_size() * kind.element_size())
}

/// All ranks start the same random operations; each polls its own in a random order, and up to `most` are in progress.
fn mixed(seed: u64, ranks: u16, operations: u64, most: usize) {
    team_of(ranks, |mut team| {
        let mut shared = TestRandom(seed);
        let mut own = TestRandom(seed ^ 0xabcd ^ u64::from(team.rank()) << 32);
        let mut under_way: Vec<(TeamOperation, TestBuffers)> = Vec::new();
        let mut started = 0;
        while started < operations || !under_way.is_empty() {
            let (starts, limit) = (own.below(3), 1 + own.below(most));
            for _ in 0..starts {
                if started < operations && under_way.len() < limit {
                    let (call, length) = any_call(&mut shared, ranks);
                    let passing = if own.below(2) == 0 { BufferMode::InPlace } else { BufferMode::Apart };
                    let mut buffers = TestBuffers::new(call, seed + started, &team, length, passing);
                    let operation = team.start(call, &mut buffers.data()).expect("all agree");
                    under_way.push((operation, buffers));
                    started += 1;
                }
            }
            if !under_way.is_empty() {
                let index = own.below(under_way.len());
                let (operation, buffers) = &mut under_way[index];
                if team.poll(operation, &mut buffers.data()).expect("all agree") == TeamProgress::Done {
                    buffers.check(ranks);
                    under_way.swap_remove(index);
                } else if own.below(4) == 0 {
                    thread::yield_now();
                }
            }
        }
    });
}

#[test]
fn random_operations_in_random_order_give_what_the_reference_gives() {
    for seed in 0..12 {
        mixed(seed, 2 + (seed % 4) as u16, 250, 20);
    }
    mixed(100, 9, 120, 12);
}

#[test]
#[ignore = "takes minutes"]
fn random_operations_give_what_the_reference_gives_every_time() {
    for seed in 1_000..1_150 {
        mixed(seed, 2 + (seed % 7) as u16, 250, 1 + (seed % 90) as usize);
    }
}

#[test]
fn one_at_a_time_gives_the_same() {
    mixed(7, 3, 300, 1);
}

#[test]
fn more_operations_than_channels_wait_without_blocking_anyone() {
    team_of(3, |mut team| {
        let kind = kind(ElementType::I32, Operator::Max);
        let lengths = [4, 4_000, 100_000];
        let mut all: Vec<(TeamOperation, TestBuffers)> = (0..60)
            .map(|seed| {
                let call = TeamCall::AllReduce { kind };
                let mut buffers = TestBuffers::new(call, seed, &team, lengths[seed as usize % 3], BufferMode::Apart);
                (team.start(call, &mut buffers.data()).expect("all agree"), buffers)
            })
            .collect();
        while all.iter().any(|(operation, _)| !operation.is_over()) {
            for (operation, buffers) in &mut all {
                let _ = team.poll(operation, &mut buffers.data()).expect("all agree");
            }
            thread::yield_now();
        }
        for (_, buffers) in &all {
            buffers.check(3);
        }
    });
}

/// All channels are reused while one rank does not poll a large broadcast that the root has long finished.
#[test]
fn a_large_broadcast_may_be_received_long_after_the_root_is_done() {
    let name = fresh_name();
    let mut first = Team::create(&name, 2).expect("a new name");
    let mut second = Team::join(&name, 1, 2, PATIENCE).expect("it is there");
    let (call, length) = (TeamCall::Broadcast { root: 1 }, 100_000);
    let mut late = TestBuffers::new(call, 3, &first, length, BufferMode::InPlace);
    let mut early = TestBuffers::new(call, 3, &second, length, BufferMode::InPlace);
    let mut pending = first.start(call, &mut late.data()).expect("all agree");
    assert!(second.start(call, &mut early.data()).expect("all agree").is_over());
    for _ in 0..20 {
        let mut here = first.start(TeamCall::Barrier, &mut CollectiveBuffers::Empty).expect("all agree");
        let mut there = second.start(TeamCall::Barrier, &mut CollectiveBuffers::Empty).expect("all agree");
        let both = [
            first.poll(&mut here, &mut CollectiveBuffers::Empty),
            second.poll(&mut there, &mut CollectiveBuffers::Empty),
        ];
        if both != [Ok(TeamProgress::Done); 2] {
            break; // Until the broadcast is received, no channel is free.
        }
    }
    assert_eq!(first.poll(&mut pending, &mut late.data()), Ok(TeamProgress::Done));
    late.check(2);
}
