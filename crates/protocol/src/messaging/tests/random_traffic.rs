//! Random traffic from a seed.

use std::collections::BTreeMap;

use oracle::{Expectation, StreamLedger};
use units::Rank;

use super::harness::{CorruptionPlan, MessagingHarness, bytes};
use crate::messaging::{MessageSelector, MessagingSettings, RailIndex};

/// Random ranks, rails, lengths, tags, corruption and rail failures; receives posted before or after the message. Every message
/// must arrive once, in order and unaltered.
fn trial(seed: u64) {
    let mut harness = MessagingHarness::new(MessagingSettings::default(), 2, 1, seed);
    let (ranks, rails) = (2 + harness.draw(3) as u32, 1 + harness.draw(4) as u8);
    let credit_bytes = [70_000, 1 << 20][harness.draw(2) as usize];
    let depth = 1 + harness.draw(4) as usize;
    let control_depth = 1 + harness.draw(4) as usize;
    let settings = MessagingSettings { credit_bytes, depth, control_depth, ..MessagingSettings::default() };
    let mut harness = MessagingHarness::new(settings, ranks, rails, seed);
    let one_in = [0, 3, 10, 50][harness.draw(4) as usize];
    harness.corruption = CorruptionPlan { one_in, bits: 1 + harness.draw(3), only: None };
    let mut ledgers: BTreeMap<(Rank, Rank, u64), StreamLedger> = BTreeMap::new();
    let mut cuts = harness.draw(u64::from(rails));
    for number in 0..40 + harness.draw(60) {
        let from = Rank(harness.draw(ranks.into()) as u32);
        let to = Rank((from.0 + 1 + harness.draw(u64::from(ranks) - 1) as u32) % ranks);
        let tag = harness.draw(3);
        let most = [64, 2_000, 16_000, 60_000, 400_000][harness.draw(5) as usize];
        let length = harness.draw(most) as usize;
        let data = bytes(seed << 20 | number, length);
        let ledger = ledgers.entry((from, to, tag));
        ledger.or_insert_with(|| StreamLedger::new(Expectation::MustComplete)).record_sent(&data);
        if harness.draw(2) == 0 {
            harness.receive(to, MessageSelector::exact(from, tag), 400_000);
            harness.send(from, to, tag, data);
        } else {
            harness.send(from, to, tag, data);
            for _ in 0..harness.draw(20) {
                harness.step();
            }
            harness.receive(to, MessageSelector::exact(from, tag), 400_000);
        }
        for _ in 0..harness.draw(6) {
            harness.step();
        }
        if cuts > 0 && harness.draw(30) == 0 {
            cuts -= 1;
            harness.cut(from, to, RailIndex(cuts as u8));
        }
    }
    harness.run();
    assert!(harness.dropped.is_empty(), "seed {seed}: {:?}", harness.dropped);
    for ((from, to, tag), mut ledger) in ledgers {
        let received = harness.received(to).into_iter();
        for (_, _, data) in received.filter(|(source, found, _)| (*source, *found) == (from, tag)) {
            ledger.record_delivery(&data);
        }
        let verdict = ledger.judge();
        assert!(verdict.violations.is_empty(), "seed {seed}, {from} to {to}, tag {tag}: {:?}", verdict.violations);
    }
    harness.drain();
}

#[test]
fn random_traffic_arrives_once_in_order_and_unaltered() {
    (0..300).for_each(trial);
}

#[test]
#[ignore = "minutes: cargo xtask test --all"]
fn random_traffic_of_many_seeds() {
    (1_000..21_000).for_each(trial);
}
