//! Every operation, on 1 to 9 ranks, at sizes around every threshold.

use super::super::region::{CHUNK_BYTES, DEPTH, LEAF_BYTES, SLOT_BYTES};
use super::*;

/// Sizes around the thresholds of the payload routes, as whole elements.
fn sizes(element_size: usize) -> Vec<usize> {
    let borders = [0, 8, 48, 256, LEAF_BYTES, SLOT_BYTES / 2, SLOT_BYTES, CHUNK_BYTES, CHUNK_BYTES * DEPTH, 300_000];
    let around = |border: usize| {
        let whole = border / element_size;
        [whole.saturating_sub(1), whole, whole + 1].map(|elements| elements * element_size)
    };
    let mut sizes: Vec<usize> = borders.into_iter().flat_map(around).collect();
    sizes.dedup();
    sizes
}

fn try_all(team: &mut Team, call: TeamCall, element_size: usize) {
    for (round, length) in sizes(element_size).into_iter().enumerate() {
        let passing = if round % 2 == 0 { BufferMode::InPlace } else { BufferMode::Apart };
        let mut buffers = TestBuffers::new(call, round as u64, team, length, passing);
        run(team, call, &mut buffers.data()).expect("all agree");
        buffers.check(team.ranks());
    }
}

#[test]
fn allreduce_gives_the_fold_in_rank_order_at_every_size() {
    for ranks in 1..=9 {
        team_of(ranks, |mut team| {
            for (element, operator) in [(ElementType::F64, Operator::Sum), (ElementType::U8, Operator::Xor)] {
                let kind = kind(element, operator);
                try_all(&mut team, TeamCall::AllReduce { kind }, kind.element_size());
            }
        });
    }
}

#[test]
fn reduce_gives_the_fold_to_every_root_and_changes_nothing_elsewhere() {
    for ranks in 1..=9 {
        team_of(ranks, |mut team| {
            let kind = kind(ElementType::F32, Operator::Sum);
            for root in [0, ranks / 2, ranks - 1] {
                try_all(&mut team, TeamCall::Reduce { root, kind }, kind.element_size());
            }
        });
    }
}

#[test]
fn broadcast_gives_every_roots_bytes_to_all() {
    for ranks in 1..=9 {
        team_of(ranks, |mut team| {
            for root in [0, ranks / 2, ranks - 1] {
                try_all(&mut team, TeamCall::Broadcast { root }, 1);
            }
        });
    }
}

#[test]
fn every_kind_is_folded_in_descriptors_leaves_slots_and_pipeline() {
    for ranks in [2, 3, 5] {
        team_of(ranks, |mut team| {
            for (seed, kind) in all_kinds().enumerate() {
                for elements in [1, 3, 100, 500, 5_000] {
                    let (call, length) = (TeamCall::AllReduce { kind }, elements * kind.element_size());
                    let mut buffers = TestBuffers::new(call, seed as u64, &team, length, BufferMode::Apart);
                    run(&mut team, call, &mut buffers.data()).expect("all agree");
                    buffers.check(ranks);
                }
            }
        });
    }
}

#[test]
fn a_barrier_blocks_until_every_rank_has_entered() {
    for ranks in 1..=9 {
        let come = AtomicU32::new(0);
        team_of(ranks, |mut team| {
            for round in 1..=200 {
                come.fetch_add(1, Ordering::Relaxed);
                run(&mut team, TeamCall::Barrier, &mut CollectiveBuffers::Empty).expect("all agree");
                assert!(come.load(Ordering::Relaxed) >= round * u32::from(ranks));
                run(&mut team, TeamCall::Barrier, &mut CollectiveBuffers::Empty).expect("all agree");
            }
        });
    }
}

#[test]
fn a_leader_reduces_and_broadcasts_another_value() {
    // As when the leader combines with other hosts in between.
    team_of(4, |mut team| {
        let kind = kind(ElementType::U64, Operator::Sum);
        for round in 0..100u64 {
            let mut number = (round + u64::from(team.rank())).to_le_bytes();
            run(&mut team, TeamCall::Reduce { root: 0, kind }, &mut CollectiveBuffers::InPlace(&mut number))
                .expect("all agree");
            if team.rank() == 0 {
                assert_eq!(u64::from_le_bytes(number), 4 * round + 6);
                number = (round * 1000).to_le_bytes();
            }
            run(&mut team, TeamCall::Broadcast { root: 0 }, &mut CollectiveBuffers::InPlace(&mut number))
                .expect("all agree");
            assert_eq!(u64::from_le_bytes(number), round * 1000);
        }
    });
}
