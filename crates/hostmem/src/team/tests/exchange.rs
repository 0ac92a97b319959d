//! Exchanges: each rank reads a part of every rank's bytes.

use std::ops::Range;

use super::super::MAX_EXCHANGE_BYTES;
use super::super::region::LEAF_BYTES;
use super::*;

const CALL: TeamCall = TeamCall::Exchange { purpose: 700 };
const SIZES: [usize; 9] = [0, 1, 40, 48, 49, LEAF_BYTES, LEAF_BYTES + 1, 9_000, MAX_EXCHANGE_BYTES];

/// Exchanges `length` bytes per rank, of which this rank reads `part`, and checks the result.
fn exchange(team: &mut Team, seed: u64, length: usize, part: Range<usize>) {
    let (rank, ranks) = (team.rank(), team.ranks());
    let input = contribution(seed, rank, length);
    let mut output = vec![0xa5; part.len() * usize::from(ranks)];
    let mut data = CollectiveBuffers::Exchange { input: &input, part: part.clone(), output: &mut output };
    run(team, CALL, &mut data).expect("all agree");
    let right: Vec<u8> =
        (0..ranks).flat_map(|other| contribution(seed, other, length)[part.clone()].to_vec()).collect();
    assert!(output == right, "{part:?} of {length} bytes, rank {rank} of {ranks}");
}

#[test]
fn every_rank_reads_its_part_of_all() {
    for ranks in 1..=9 {
        team_of(ranks, |mut team| {
            for (seed, length) in (0..).zip(SIZES) {
                exchange(&mut team, seed, length, 0..length);
                let share = length / usize::from(ranks);
                let mine = share * usize::from(team.rank());
                exchange(&mut team, seed + 100, length, mine..mine + share);
                let all_or_nothing = if team.rank() == ranks - 1 { 0..length } else { length..length };
                exchange(&mut team, seed + 200, length, all_or_nothing);
            }
        });
    }
}

#[test]
fn exchanges_and_reductions_follow_each_other() {
    team_of(4, |mut team| {
        let kind = kind(ElementType::U64, Operator::Sum);
        for round in 0..300_u64 {
            exchange(&mut team, round, 1 + (round as usize * 97) % MAX_EXCHANGE_BYTES, 0..1);
            let mut number = round.to_le_bytes();
            run(&mut team, TeamCall::AllReduce { kind }, &mut CollectiveBuffers::InPlace(&mut number))
                .expect("all agree");
            assert_eq!(u64::from_le_bytes(number), 4 * round);
        }
    });
}

#[test]
fn ranks_that_share_a_cpu_read_their_own_parts() {
    team_of(3, |mut team| {
        team.oversubscription.is_shared = true;
        for (seed, length) in (0..).zip(SIZES) {
            let part = if team.rank() == 0 { 0..length } else { 0..length / 2 };
            exchange(&mut team, seed, length, part);
        }
    });
}

#[test]
fn lengths_that_differ_are_a_mismatch_at_every_rank() {
    let errors = team_of(3, |mut team| {
        let input = vec![0; if team.rank() == 1 { 16 } else { 8 }];
        let mut data = CollectiveBuffers::Exchange { input: &input, part: 0..0, output: &mut [] };
        run(&mut team, CALL, &mut data).expect_err("the lengths differ")
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
}

#[test]
fn exchanges_for_different_purposes_are_a_mismatch_at_every_rank() {
    let errors = team_of(3, |mut team| {
        let call = TeamCall::Exchange { purpose: team.rank() / 2 };
        let mut data = CollectiveBuffers::Exchange { input: &[0; 8], part: 0..0, output: &mut [] };
        run(&mut team, call, &mut data).expect_err("the purposes differ")
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
}

#[test]
fn buffers_that_do_not_suit_are_rejected() {
    team_of(2, |mut team| {
        // Until both are here: otherwise the first one may have left before the other joins.
        exchange(&mut team, 1, 8, 0..8);
        let mut reject = |data: &mut CollectiveBuffers<'_>| run(&mut team, CALL, data).expect_err("invalid");
        let wrong = |error| matches!(error, TeamError::WrongBuffers { .. });
        assert!(wrong(reject(&mut CollectiveBuffers::InPlace(&mut [0; 8]))));
        assert!(wrong(reject(&mut CollectiveBuffers::Exchange { input: &[0; 8], part: 0..8, output: &mut [0; 8] })));
        assert!(wrong(reject(&mut CollectiveBuffers::Exchange {
            input: &[0; 8],
            part: 4..12,
            output: &mut [0; 16]
        })));
        let long = vec![0; MAX_EXCHANGE_BYTES + 1];
        let error = reject(&mut CollectiveBuffers::Exchange { input: &long, part: 0..0, output: &mut [] });
        assert!(matches!(error, TeamError::ExchangeTooLong { .. }));
    });
}
