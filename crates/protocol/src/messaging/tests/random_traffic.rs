//! Random traffic by seed.

use std::collections::BTreeMap;

use oracle::{Expectation, StreamLedger};
use units::Rank;

use super::harness::{CorruptionPlan, MessagingHarness, bytes};
use crate::messaging::{MessageSelector, MessagingSettings, RailIndex};

/// Random ranks, rails, lengths, tags, spoiling and cuts; receives posted before or after. Every message must come once,
/// in order, unaltered.
fn trial(seed: u64) {
    let mut world = MessagingHarness::new(MessagingSettings::default(), 2, 1, seed);
    let (ranks, rails) = (2 + world.draw(3) as u32, 1 + world.draw(4) as u8);
    let credit_bytes = [70_000, 1 << 20][world.draw(2) as usize];
    let depth = 1 + world.draw(4) as usize;
    let letter_depth = 1 + world.draw(4) as usize;
    let settings = MessagingSettings { credit_bytes, depth, letter_depth, ..MessagingSettings::default() };
    let mut world = MessagingHarness::new(settings, ranks, rails, seed);
    let one_in = [0, 3, 10, 50][world.draw(4) as usize];
    world.spoiling = CorruptionPlan { one_in, bits: 1 + world.draw(3), only: None };
    let mut ledgers: BTreeMap<(Rank, Rank, u64), StreamLedger> = BTreeMap::new();
    let mut cuts = world.draw(u64::from(rails));
    for number in 0..40 + world.draw(60) {
        let from = Rank(world.draw(ranks.into()) as u32);
        let to = Rank((from.0 + 1 + world.draw(u64::from(ranks) - 1) as u32) % ranks);
        let tag = world.draw(3);
        let most = [64, 2_000, 16_000, 60_000, 400_000][world.draw(5) as usize];
        let length = world.draw(most) as usize;
        let data = bytes(seed << 20 | number, length);
        let ledger = ledgers.entry((from, to, tag));
        ledger.or_insert_with(|| StreamLedger::new(Expectation::MustComplete)).record_sent(&data);
        if world.draw(2) == 0 {
            world.receive(to, MessageSelector::from(from, tag), 400_000);
            world.send(from, to, tag, data);
        } else {
            world.send(from, to, tag, data);
            for _ in 0..world.draw(20) {
                world.step();
            }
            world.receive(to, MessageSelector::from(from, tag), 400_000);
        }
        for _ in 0..world.draw(6) {
            world.step();
        }
        if cuts > 0 && world.draw(30) == 0 {
            cuts -= 1;
            world.cut(from, to, RailIndex(cuts as u8));
        }
    }
    world.run();
    assert!(world.dropped.is_empty(), "seed {seed}: {:?}", world.dropped);
    for ((from, to, tag), mut ledger) in ledgers {
        let received = world.received(to).into_iter();
        for (_, _, data) in received.filter(|(source, found, _)| (*source, *found) == (from, tag)) {
            ledger.record_delivery(&data);
        }
        let verdict = ledger.judge();
        assert!(verdict.violations.is_empty(), "seed {seed}, {from} to {to}, tag {tag}: {:?}", verdict.violations);
    }
    world.drain();
}

#[test]
fn random_traffic_comes_once_in_order_unaltered() {
    (0..300).for_each(trial);
}

#[test]
#[ignore = "minutes: cargo xtask test --all"]
fn random_traffic_of_many_seeds() {
    (1_000..21_000).for_each(trial);
}
