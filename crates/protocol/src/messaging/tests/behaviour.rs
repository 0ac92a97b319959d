//! One behaviour per test.

use std::sync::Arc;

use checksum::Algorithm;
use units::{Rank, Span};

use super::harness::{CorruptionPlan, MessagingHarness, TestPacket, bytes};
use crate::SharedBytes;
use crate::messaging::{
    ChecksumPolicy, MessageCompletion, MessageFailure, MessagePostError, MessageSelector, MessagingSettings,
    PeerLossCause, ProbedMessage, RailIndex,
};

const A: Rank = Rank(0);
const B: Rank = Rank(1);

fn harness(rails: u8) -> MessagingHarness {
    MessagingHarness::new(MessagingSettings::default(), 2, rails, 1)
}

#[test]
fn a_message_of_any_length_arrives_under_every_checksum_policy() {
    let fixed = Algorithm::ALL.map(ChecksumPolicy::Fixed);
    for checksum in fixed.into_iter().chain([ChecksumPolicy::Off, ChecksumPolicy::default()]) {
        let mut harness =
            MessagingHarness::new(MessagingSettings { checksum, ..MessagingSettings::default() }, 2, 2, 1);
        let lengths = [0, 1, 8, 1_000, 1_024, 1_025, 16_384, 16_385, 100_000, 1_048_577];
        for (tag, length) in lengths.into_iter().enumerate() {
            harness.receive(B, MessageSelector::exact(A, tag as u64), length);
            harness.send(A, B, tag as u64, bytes(tag as u64, length));
        }
        harness.run();
        let expected: Vec<_> =
            lengths.into_iter().enumerate().map(|(tag, length)| (A, tag as u64, bytes(tag as u64, length))).collect();
        assert!(harness.received(B) == expected, "{checksum:?}");
        harness.drain();
    }
}

#[test]
fn unexpected_messages_are_found_by_probes_and_kept_in_order() {
    let mut harness = harness(1);
    for (tag, length) in [(5, 10), (6, 100_000), (5, 20)] {
        harness.send(A, B, tag, bytes(tag, length));
    }
    harness.run();
    let found = harness.endpoint(B).probe(&MessageSelector { source: None, tag: 6, mask: u64::MAX });
    assert_eq!(found, Some(ProbedMessage { source: A, tag: 6, length: 100_000 }));
    assert_eq!(harness.endpoint(B).probe(&MessageSelector::exact(A, 7)), None);
    for _ in 0..2 {
        harness.receive(B, MessageSelector { source: Some(A), tag: 5, mask: 0xff }, 100);
    }
    harness.receive(B, MessageSelector::ANY, 100_000);
    harness.run();
    let lengths: Vec<_> = harness.received(B).iter().map(|(_, tag, bytes)| (*tag, bytes.len())).collect();
    assert_eq!(lengths, [(5, 10), (5, 20), (6, 100_000)]);
}

#[test]
fn a_message_longer_than_its_buffer_fails_only_its_receive() {
    let mut harness = harness(1);
    for length in [100, 100_000, 40] {
        harness.receive(B, MessageSelector::ANY, 50);
        harness.send(A, B, 9, bytes(1, length));
    }
    harness.run();
    let truncated: Vec<_> = harness
        .completions
        .iter()
        .filter_map(|(_, completion)| match completion {
            MessageCompletion::ReceiveFailed { failure: MessageFailure::Truncated { length, .. }, .. } => {
                Some(*length)
            }
            _ => None,
        })
        .collect();
    assert_eq!(truncated, [100, 100_000]);
    assert_eq!(harness.received(B), [(A, 9, bytes(1, 40))]);
    let sent =
        harness.completions.iter().filter(|(_, completion)| matches!(completion, MessageCompletion::Sent { .. }));
    assert_eq!(sent.count(), 3, "the sends succeed");
    harness.drain();
}

#[test]
fn small_messages_are_coalesced_when_the_rail_is_busy() {
    let mut harness = harness(1);
    for number in 0..100 {
        harness.receive(B, MessageSelector::exact(A, number), 64);
        harness.send(A, B, number, bytes(number, 16));
    }
    harness.run();
    assert_eq!(harness.received(B).len(), 100);
    let counters = harness.endpoint(A).counters();
    // At most eight packets are in flight; the first eight messages were sent at once.
    assert!(counters.packets < 20 && counters.coalesced > 80, "{counters:?}");
}

#[test]
fn a_sender_never_exceeds_its_credit() {
    let settings = MessagingSettings { credit_bytes: 80_000, ..MessagingSettings::default() };
    let mut harness = MessagingHarness::new(settings, 2, 1, 1);
    for number in 0..100 {
        harness.send(A, B, number, bytes(number, 10_000));
    }
    harness.run();
    let sent = |harness: &MessagingHarness| {
        harness
            .completions
            .iter()
            .filter(|(_, completion)| matches!(completion, MessageCompletion::Sent { .. }))
            .count()
    };
    assert_eq!(sent(&harness), 7, "of 10,064 bytes each");
    for number in 0..100 {
        harness.receive(B, MessageSelector::exact(A, number), 10_000);
        harness.run();
    }
    assert_eq!((sent(&harness), harness.received(B).len()), (100, 100));
}

#[test]
fn operations_that_have_not_started_can_be_cancelled() {
    let settings = MessagingSettings { credit_bytes: 80_000, ..MessagingSettings::default() };
    let mut harness = MessagingHarness::new(settings, 2, 1, 1);
    let ids: Vec<_> = (0..9).map(|number| harness.send(A, B, number, bytes(number, 10_000))).collect();
    assert_eq!(harness.endpoint(A).cancel_send(ids[0]), None, "it was sent");
    assert_eq!(harness.endpoint(A).cancel_send(ids[8]), Some(bytes(8, 10_000)));
    let id = harness.receive(B, MessageSelector::exact(A, 77), 5);
    assert_eq!(harness.endpoint(B).cancel_receive(id), Some(vec![0xaa; 5]));
    assert_eq!(harness.endpoint(B).cancel_receive(id), None);
    let id = harness.receive(B, MessageSelector::exact(A, 0), 10_000);
    harness.run();
    assert_eq!(harness.endpoint(B).cancel_receive(id), None, "it completed");
}

/// Flips every bit of the packet, one at a time.
#[test]
fn every_flipped_bit_is_detected_and_nacked() {
    for length in [8, 64, 600] {
        for bit in 0.. {
            let mut harness = harness(1);
            harness.receive(B, MessageSelector::exact(A, 3), length);
            harness.send(A, B, 3, bytes(3, length));
            let packet = &mut harness.lines.get_mut(&(A, B, RailIndex(0))).expect("sent")[0].bytes;
            if bit == packet.len() * 8 {
                break;
            }
            let intact = packet.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            let corrupt = packet.clone();
            let now = harness.now;
            harness.endpoint(B).handle_packet(now, A, RailIndex(0), &corrupt);
            harness.execute_actions(B);
            harness.lines.clear();
            assert_eq!(harness.endpoint(B).counters().corrupted, 1, "bit {bit}");
            // The sender's copy is intact; B sent a NACK.
            harness.endpoint(A).handle_sent(now, B, RailIndex(0), intact);
            assert!(harness.received(B).is_empty());
        }
    }
}

#[test]
fn corrupt_packets_are_retransmitted_over_another_rail() {
    let mut harness = harness(3);
    harness.corruption = CorruptionPlan { one_in: 1, bits: 1, only: Some(RailIndex(0)) };
    for number in 0..20 {
        harness.receive(B, MessageSelector::exact(A, number), 300_000);
        harness.send(A, B, number, bytes(number, if number % 2 == 0 { 100 } else { 300_000 }));
    }
    harness.run();
    assert_eq!(harness.received(B).len(), 20);
    assert!((1..40).contains(&harness.corrupted), "the bad rail is soon avoided: {}", harness.corrupted);
    assert!(harness.dropped.is_empty(), "{:?}", harness.dropped);
    harness.corruption = CorruptionPlan::default();
    harness.drain();
}

#[test]
fn a_peer_is_dropped_when_every_packet_is_corrupt() {
    let mut harness = harness(1);
    harness.corruption = CorruptionPlan { one_in: 1, bits: 3, only: None };
    harness.receive(B, MessageSelector::exact(A, 1), 100);
    harness.send(A, B, 1, bytes(1, 100));
    harness.run();
    assert!(!harness.dropped.is_empty(), "the retransmissions end");
    assert!(harness.received(B).is_empty());
    assert!(
        harness
            .dropped
            .iter()
            .all(|(_, _, cause)| matches!(cause, PeerLossCause::Unreadable | PeerLossCause::RetransmitLimit))
    );
}

#[test]
fn a_long_message_uses_every_rail() {
    let mut harness = harness(4);
    harness.receive(B, MessageSelector::exact(A, 1), 10 << 20);
    harness.send(A, B, 1, bytes(1, 10 << 20));
    let mut most = [0; 4];
    while harness.step() {
        for (line, queue) in harness.lines.iter().filter(|(line, _)| line.0 == A) {
            most[line.2.index()] = most[line.2.index()].max(queue.len());
        }
    }
    assert!(harness.received(B) == [(A, 1, bytes(1, 10 << 20))]);
    let depth = MessagingSettings::default().depth;
    assert!(most.iter().all(|most| (1..=depth).contains(most)), "{most:?}");
}

#[test]
fn a_failed_rail_loses_no_message_and_the_last_one_loses_the_peer() {
    let mut harness = harness(2);
    for number in 0..10 {
        harness.receive(B, MessageSelector::exact(A, number), 200_000);
        harness.send(A, B, number, bytes(number, 20_000 * number as usize));
    }
    (0..40).for_each(|_| assert!(harness.step()));
    harness.cut(A, B, RailIndex(0));
    harness.run();
    assert_eq!(harness.received(B).len(), 10);
    harness.drain();
    harness.receive(B, MessageSelector::exact(A, 1), 10);
    harness.cut(B, A, RailIndex(1));
    assert_eq!(harness.endpoint(B).lost(A), Some(PeerLossCause::Unreachable));
    let (_, last) = harness.completions.last().expect("the receive failed");
    let lost = MessageFailure::Lost(A, PeerLossCause::Unreachable);
    assert!(matches!(last, MessageCompletion::ReceiveFailed { failure, .. } if *failure == lost), "{last:?}");
    let now = harness.now;
    let rejected = harness.endpoint(B).send(now, A, 1, vec![1]).expect_err("the peer is lost");
    assert_eq!((rejected.error, rejected.buffer), (MessagePostError::Lost(A, PeerLossCause::Unreachable), vec![1]));
}

/// Corrupts the last packet of A on the wire and in A's log.
fn corrupt_in_log(harness: &mut MessagingHarness) {
    let line = (A, B, RailIndex(0));
    harness.return_all(line);
    let mut packet = harness.lines.get_mut(&line).and_then(|queue| queue.pop_front()).expect("sent").bytes;
    let middle = packet.len() / 2;
    packet[middle] ^= 4;
    let now = harness.now;
    harness.endpoint(B).handle_packet(now, A, RailIndex(0), &packet);
    harness.execute_actions(B);
    harness.endpoint(A).handle_sent(now, B, RailIndex(0), packet);
    harness.run();
}

/// The receive fails in its order; all other messages arrive.
#[test]
fn a_message_corrupted_in_the_log_is_never_sent_with_a_new_checksum() {
    for length in [0, 8, 64, 100, 10_000] {
        let mut harness = harness(1);
        for tag in [1, 2] {
            harness.receive(B, MessageSelector::exact(A, tag), 10_000);
        }
        harness.send(A, B, 1, bytes(1, length));
        corrupt_in_log(&mut harness);
        harness.send(A, B, 2, bytes(2, length));
        harness.run();
        assert!(harness.dropped.is_empty(), "{:?}", harness.dropped);
        assert_eq!(harness.received(B), [(A, 2, bytes(2, length))]);
        let failed = harness.completions.iter().filter_map(|(_, completion)| match completion {
            MessageCompletion::ReceiveFailed { failure, .. } => Some(*failure),
            _ => None,
        });
        assert_eq!(failed.collect::<Vec<_>>(), [MessageFailure::Corrupted { source: A, tag: 1 }]);
        // Its credit is returned.
        for tag in 3..400 {
            harness.receive(B, MessageSelector::exact(A, tag), 10_000);
            harness.send(A, B, tag, bytes(tag, 10_000));
            harness.run();
        }
        harness.drain();
    }
}

/// One checksum covers all messages of a packet, so none of them is known to be intact.
#[test]
fn messages_coalesced_in_a_packet_that_is_corrupted_in_the_log_are_all_lost() {
    let mut harness = harness(1);
    let now = harness.now;
    for tag in 0..20 {
        harness.receive(B, MessageSelector::exact(A, tag), 100);
        harness.endpoint(A).send(now, B, tag, bytes(tag, 100)).expect("the send is accepted");
    }
    harness.execute_actions(A);
    while harness.lines[&(A, B, RailIndex(0))].front().is_none_or(|packet| packet.bytes.len() < 1_000) {
        assert!(harness.step(), "messages behind the first are coalesced");
    }
    corrupt_in_log(&mut harness);
    assert!(harness.dropped.is_empty(), "{:?}", harness.dropped);
    let lost = MessageFailure::Corrupted { source: A, tag: 19 };
    let is_lost = |completion: &MessageCompletion| matches!(completion, MessageCompletion::ReceiveFailed { failure, .. } if *failure == lost);
    assert!(harness.completions.iter().any(|(_, completion)| is_lost(completion)));
    let failed =
        |(_, completion): &&(_, MessageCompletion)| matches!(completion, MessageCompletion::ReceiveFailed { .. });
    assert_eq!(harness.received(B).len() + harness.completions.iter().filter(failed).count(), 20);
    harness.drain();
}

/// An RTS can be rebuilt as long as the message is here, which is until it arrived.
#[test]
fn an_rts_corrupted_in_the_log_is_rebuilt() {
    let mut harness = harness(1);
    harness.receive(B, MessageSelector::exact(A, 1), 100_000);
    harness.send(A, B, 1, bytes(1, 100_000));
    corrupt_in_log(&mut harness);
    assert!(harness.dropped.is_empty());
    assert_eq!(harness.received(B), [(A, 1, bytes(1, 100_000))]);
    harness.drain();
}

/// A retransmitted fragment gets a new checksum, so its bytes must match the first one.
#[test]
fn a_buffer_corrupted_while_its_message_is_in_flight_is_never_delivered() {
    let mut harness = harness(1);
    harness.receive(B, MessageSelector::exact(A, 1), 100_000);
    harness.send(A, B, 1, bytes(1, 100_000));
    let line = (A, B, RailIndex(0));
    let is_fragment = |packet: &TestPacket| packet.bytes.len() > 4_096;
    while !harness.lines.get(&line).is_some_and(|queue| queue.iter().any(is_fragment)) {
        assert!(harness.step(), "fragments are sent eventually");
    }
    let fragment =
        harness.lines.get_mut(&line).and_then(|queue| queue.iter_mut().find(|fragment| is_fragment(fragment)));
    fragment.expect("just found").bytes[4_000] ^= 1;
    let peer = harness.endpoint(A).peers.get_mut(&B).expect("a peer");
    for outgoing in peer.outgoing.values_mut() {
        let SharedBytes::Owned(data) = &mut outgoing.data else { panic!("a vector was sent") };
        Arc::make_mut(data).iter_mut().step_by(1_024).for_each(|byte| *byte ^= 1);
    }
    harness.run();
    assert_eq!(harness.dropped, [(A, B, PeerLossCause::LocalCorruption)]);
    assert!(harness.received(B).is_empty());
}

/// A drained process may exit; its peer must not wait for it.
#[test]
fn after_one_end_has_drained_and_exited_the_other_is_drained_too() {
    let mut harness = harness(1);
    harness.receive(B, MessageSelector::ANY, 8);
    harness.send(A, B, 1, bytes(1, 8));
    harness.run();
    let now = harness.now;
    harness.endpoint(B).drain(now);
    harness.execute_actions(B);
    assert!(!harness.endpoint(B).is_drained(), "the message must be acknowledged first");
    harness.run();
    assert!(harness.endpoint(B).is_drained());
    harness.dead.extend([(A, B, RailIndex(0)), (B, A, RailIndex(0))]);
    harness.endpoint(A).drain(now);
    harness.execute_actions(A);
    assert!(harness.endpoint(A).is_drained(), "no peer is left to acknowledge anything");
}

/// The first fragment follows the measured round trips (CK-7).
#[test]
fn the_first_fragment_is_what_can_be_copied_between_rts_and_cts() {
    let settings = MessagingSettings {
        copy_bytes_per_us: 1_000,
        initial_rtt: Span::from_micros(20),
        ..MessagingSettings::default()
    };
    let mut harness = MessagingHarness::new(settings, 2, 1, 1);
    let mut prepared = Vec::new();
    for late in [0, 0, 0, 2_000, 0] {
        let before = harness.endpoint(A).counters().prepared_bytes;
        harness.receive(B, MessageSelector::ANY, 1 << 20);
        harness.send(A, B, 1, bytes(1, 1 << 20));
        prepared.push(harness.endpoint(A).counters().prepared_bytes - before);
        harness.now += Span::from_micros(if prepared.len() == 1 { 30 } else { late });
        harness.run();
    }
    // 20 us assumed; then slightly over 30 us; then close to zero, and one late CTS changes little.
    assert_eq!(prepared, [16_384, 28_672, 4_096, 4_096, 4_096]);
}
