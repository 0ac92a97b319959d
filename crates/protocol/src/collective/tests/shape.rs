//! What plans look like: how many rounds, how many messages, how little memory.

use reduce::{ElementType, Kind, Operator};
use units::Rank;

use super::arena::{Network, contributions, kind_of, plans, play, sizes, telling};
use crate::Payload;
use crate::collective::{Algorithm, Collective, Duty, Plan, Player};

const ALL_REDUCE: Collective = match Kind::new(ElementType::F32, Operator::Sum) {
    Ok(kind) => Collective::AllReduce { kind },
    Err(_) => unreachable!(),
};

fn rounds(algorithm: Algorithm, collective: Collective, size: u32) -> u32 {
    let bytes = if collective == Collective::Barrier { 0 } else { 4000 };
    let plans = plans(algorithm, collective, size, bytes);
    assert!(plans.iter().all(|plan| plan.rounds() == plans[0].rounds()), "all ranks count alike");
    plans[0].rounds()
}

/// The least `n` with `radix^n >= size`.
fn log_up(size: u32, radix: u32) -> u32 {
    (0..).find(|n| radix.pow(*n) >= size).expect("there is one")
}

#[test]
fn the_number_of_rounds_is_the_formula() {
    for size in sizes() {
        let floor = size.ilog2();
        let joins = if size.is_power_of_two() { 0 } else { 2 };
        assert_eq!(rounds(Algorithm::RecursiveDoubling, ALL_REDUCE, size), floor + joins);
        assert_eq!(rounds(Algorithm::Rabenseifner, ALL_REDUCE, size), 2 * floor + joins);
        assert_eq!(rounds(Algorithm::Ring, ALL_REDUCE, size), 2 * (size - 1));
        let broadcast = Collective::Broadcast { root: Rank(size / 2) };
        for radix in [2_u16, 3, 8] {
            let levels = log_up(size, radix.into());
            assert_eq!(rounds(Algorithm::Tree { radix }, broadcast, size), levels);
            assert_eq!(rounds(Algorithm::Dissemination { radix }, Collective::Barrier, size), levels);
        }
        assert_eq!(rounds(Algorithm::ScatterAllgather, broadcast, size), log_up(size, 2) + size - 1);
    }
}

#[test]
fn k_ing_needs_no_joining_where_a_smaller_last_group_does() {
    let king = |radix, size| rounds(Algorithm::RecursiveKing { radix }, ALL_REDUCE, size);
    assert_eq!(king(4, 64), 3);
    assert_eq!(king(4, 128), 4, "4 * 4 * 4 * 2");
    assert_eq!(king(16, 128), 2, "16 * 8");
    assert_eq!(king(8, 24), 2, "8 * 3");
    assert_eq!(king(8, 25), 2 + 2, "one rank joins another");
    assert_eq!(king(64, 33), 1, "all with all");
}

#[test]
fn the_number_of_messages_is_the_formula() {
    let operation = telling(64);
    for size in sizes() {
        let count = |algorithm| {
            let collective = Collective::AllReduce { kind: kind_of(&operation) };
            let plans = plans(algorithm, collective, size, operation.bytes());
            play(plans, contributions(1, size, &operation), Network::Plain, 1).messages as u32
        };
        let participants = 1 << size.ilog2();
        let joins = 2 * (size - participants);
        assert_eq!(count(Algorithm::RecursiveDoubling), participants * size.ilog2() + joins);
        assert_eq!(count(Algorithm::Rabenseifner), 2 * participants * size.ilog2() + joins);
        assert_eq!(count(Algorithm::Ring), 2 * size * (size - 1));
        assert_eq!(count(Algorithm::Tree { radix: 3 }), 2 * (size - 1));
    }
}

#[test]
fn the_bytes_that_a_rank_sends_are_the_formula() {
    let sent = |algorithm, size: u32| {
        let plan = Plan::new(algorithm, ALL_REDUCE, Rank(3), size, 64_000).expect("it suits");
        let parts = (0..plan.rounds()).flat_map(|round| plan.sends(round).collect::<Vec<_>>());
        parts.map(|send| send.part.len()).sum::<u32>()
    };
    assert_eq!(sent(Algorithm::RecursiveDoubling, 16), 4 * 64_000);
    assert_eq!(sent(Algorithm::Rabenseifner, 16), 2 * 64_000 * 15 / 16);
    assert_eq!(sent(Algorithm::Ring, 16), 2 * 64_000 * 15 / 16);
    assert_eq!(sent(Algorithm::Ring, 10), 2 * 64_000 * 9 / 10);
}

#[test]
fn both_ends_of_every_message_agree_on_it() {
    for size in sizes() {
        let root = Rank(size / 3);
        let kind = kind_of(&telling(1));
        let broadcast = Collective::Broadcast { root };
        let reduce = Collective::Reduce { root, kind };
        for (algorithm, collective) in [
            (Algorithm::RecursiveKing { radix: 5 }, ALL_REDUCE),
            (Algorithm::Rabenseifner, ALL_REDUCE),
            (Algorithm::Ring, reduce),
            (Algorithm::Tree { radix: 4 }, reduce),
            (Algorithm::ScatterAllgather, broadcast),
        ] {
            let plans = plans(algorithm, collective, size, 4 * 77);
            for (plan, round) in plans.iter().flat_map(|plan| (0..plan.rounds()).map(move |round| (plan, round))) {
                for send in plan.sends(round) {
                    let expected = plans[send.to.index()].expected(round, plan.rank());
                    assert_eq!(expected.map(|receive| receive.part), Some(send.part), "{algorithm}, {size} ranks");
                }
                for receive in plan.receives(round) {
                    let mut sends = plans[receive.from.index()].sends(round);
                    assert!(sends.any(|send| send.to == plan.rank() && send.part == receive.part));
                }
            }
        }
    }
}

#[test]
fn a_million_players_fit_into_memory() {
    assert!(size_of::<Player>() <= 136, "{} bytes", size_of::<Player>());
    // One rank of a million, without the others: what a round costs does not depend on the size.
    let size = 1 << 20;
    let plan = Plan::new(Algorithm::RecursiveDoubling, ALL_REDUCE, Rank(777_777), size, 8).expect("it suits");
    assert_eq!(plan.rounds(), 20);
    let mut player = Player::new(plan, Payload::Absent { bytes: 8 }).expect("it fits");
    let mut out = Vec::new();
    player.start(&mut out);
    for round in 0..20 {
        let from = Rank(777_777 ^ (1 << round));
        assert_eq!(player.waiting_for().collect::<Vec<_>>(), [from]);
        player.handle_message(from, round, Payload::Absent { bytes: 8 }, &mut out);
    }
    assert_eq!(out.last(), Some(&Duty::Complete { result: Payload::Absent { bytes: 8 } }));
    assert_eq!(out.len(), 21);
}

#[test]
fn a_whole_vector_is_sent_without_a_copy() {
    let plan = Plan::new(Algorithm::RecursiveDoubling, ALL_REDUCE, Rank(0), 2, 80).expect("it suits");
    let bytes = crate::Octets::from(vec![0; 80]);
    let mut player = Player::new(plan, Payload::Bytes(bytes.clone())).expect("it fits");
    let mut out = Vec::new();
    player.start(&mut out);
    let Some(Duty::Send { payload: Payload::Bytes(sent), .. }) = out.first() else { panic!("{out:?}") };
    assert_eq!(bytes.as_ptr(), sent.as_ptr());
}
