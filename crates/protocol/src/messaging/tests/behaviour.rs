//! One behaviour at a time.

use std::sync::Arc;

use checksum::Algorithm;
use units::{Rank, Span};

use super::harness::{CorruptionPlan, MessagingHarness, TestPacket, bytes};
use crate::messaging::{
    ChecksumPolicy, MessageCompletion, MessageFailure, MessagePostError, MessageSelector, MessagingSettings,
    PeerLossCause, ProbedMessage, RailIndex,
};

const A: Rank = Rank(0);
const B: Rank = Rank(1);

fn world(rails: u8) -> MessagingHarness {
    MessagingHarness::new(MessagingSettings::default(), 2, rails, 1)
}

#[test]
fn a_message_of_any_length_arrives_in_every_sealing() {
    let named = Algorithm::ALL.map(ChecksumPolicy::Named);
    for sealing in named.into_iter().chain([ChecksumPolicy::Off, ChecksumPolicy::default()]) {
        let mut world = MessagingHarness::new(MessagingSettings { sealing, ..MessagingSettings::default() }, 2, 2, 1);
        let lengths = [0, 1, 8, 1_000, 1_024, 1_025, 16_384, 16_385, 100_000, 1_048_577];
        for (tag, length) in lengths.into_iter().enumerate() {
            world.receive(B, MessageSelector::from(A, tag as u64), length);
            world.send(A, B, tag as u64, bytes(tag as u64, length));
        }
        world.run();
        let expected: Vec<_> =
            lengths.into_iter().enumerate().map(|(tag, length)| (A, tag as u64, bytes(tag as u64, length))).collect();
        assert!(world.received(B) == expected, "{sealing:?}");
        world.drain();
    }
}

#[test]
fn messages_that_nobody_waits_for_are_found_by_probes_and_kept_in_order() {
    let mut world = world(1);
    for (tag, length) in [(5, 10), (6, 100_000), (5, 20)] {
        world.send(A, B, tag, bytes(tag, length));
    }
    world.run();
    let found = world.port(B).probe(&MessageSelector { source: None, tag: 6, mask: u64::MAX });
    assert_eq!(found, Some(ProbedMessage { source: A, tag: 6, length: 100_000 }));
    assert_eq!(world.port(B).probe(&MessageSelector::from(A, 7)), None);
    for _ in 0..2 {
        world.receive(B, MessageSelector { source: Some(A), tag: 5, mask: 0xff }, 100);
    }
    world.receive(B, MessageSelector::ANY, 100_000);
    world.run();
    let lengths: Vec<_> = world.received(B).iter().map(|(_, tag, bytes)| (*tag, bytes.len())).collect();
    assert_eq!(lengths, [(5, 10), (5, 20), (6, 100_000)]);
}

#[test]
fn a_message_that_is_too_long_fails_its_receive_and_only_that() {
    let mut world = world(1);
    for length in [100, 100_000, 40] {
        world.receive(B, MessageSelector::ANY, 50);
        world.send(A, B, 9, bytes(1, length));
    }
    world.run();
    let truncated: Vec<_> = world
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
    assert_eq!(world.received(B), [(A, 9, bytes(1, 40))]);
    let sent =
        world.completions.iter().filter(|(_, completion)| matches!(completion, MessageCompletion::Sent { .. }));
    assert_eq!(sent.count(), 3, "the sender need not know");
    world.drain();
}

#[test]
fn small_messages_travel_together_when_the_rail_is_busy() {
    let mut world = world(1);
    for number in 0..100 {
        world.receive(B, MessageSelector::from(A, number), 64);
        world.send(A, B, number, bytes(number, 16));
    }
    world.run();
    assert_eq!(world.received(B).len(), 100);
    let counters = world.port(A).counters();
    // Eight at most are under way; as many found room to go at once.
    assert!(counters.parcels < 20 && counters.gathered > 80, "{counters:?}");
}

#[test]
fn nobody_sends_more_than_the_receiver_has_room_for() {
    let settings = MessagingSettings { credit_bytes: 80_000, ..MessagingSettings::default() };
    let mut world = MessagingHarness::new(settings, 2, 1, 1);
    for number in 0..100 {
        world.send(A, B, number, bytes(number, 10_000));
    }
    world.run();
    let sent = |world: &MessagingHarness| {
        world
            .completions
            .iter()
            .filter(|(_, completion)| matches!(completion, MessageCompletion::Sent { .. }))
            .count()
    };
    assert_eq!(sent(&world), 7, "of 10,064 bytes each");
    for number in 0..100 {
        world.receive(B, MessageSelector::from(A, number), 10_000);
        world.run();
    }
    assert_eq!((sent(&world), world.received(B).len()), (100, 100));
}

#[test]
fn what_has_not_begun_can_be_taken_back() {
    let settings = MessagingSettings { credit_bytes: 80_000, ..MessagingSettings::default() };
    let mut world = MessagingHarness::new(settings, 2, 1, 1);
    let ids: Vec<_> = (0..9).map(|number| world.send(A, B, number, bytes(number, 10_000))).collect();
    assert_eq!(world.port(A).cancel_send(ids[0]), None, "it is on its way");
    assert_eq!(world.port(A).cancel_send(ids[8]), Some(bytes(8, 10_000)));
    let id = world.receive(B, MessageSelector::from(A, 77), 5);
    assert_eq!(world.port(B).cancel_receive(id), Some(vec![0xaa; 5]));
    assert_eq!(world.port(B).cancel_receive(id), None);
    let id = world.receive(B, MessageSelector::from(A, 0), 10_000);
    world.run();
    assert_eq!(world.port(B).cancel_receive(id), None, "it has completed");
}

/// Every single bit of every parcel of an exchange, once each.
#[test]
fn any_bit_that_flips_is_found_and_repaired() {
    for length in [8, 64, 600] {
        for bit in 0.. {
            let mut world = world(1);
            world.receive(B, MessageSelector::from(A, 3), length);
            world.send(A, B, 3, bytes(3, length));
            let parcel = &mut world.lines.get_mut(&(A, B, RailIndex(0))).expect("sent")[0].bytes;
            if bit == parcel.len() * 8 {
                break;
            }
            let intact = parcel.clone();
            parcel[bit / 8] ^= 1 << (bit % 8);
            let spoiled = parcel.clone();
            let now = world.now;
            world.port(B).handle_parcel(now, A, RailIndex(0), &spoiled);
            world.attend(B);
            world.lines.clear();
            assert_eq!(world.port(B).counters().spoiled, 1, "bit {bit}");
            // The sender's copy is intact; B has asked for it.
            world.port(A).handle_sent(now, B, RailIndex(0), intact);
            assert!(world.received(B).is_empty());
        }
    }
}

#[test]
fn spoiled_parcels_come_again_by_another_rail() {
    let mut world = world(3);
    world.spoiling = CorruptionPlan { one_in: 1, bits: 1, only: Some(RailIndex(0)) };
    for number in 0..20 {
        world.receive(B, MessageSelector::from(A, number), 300_000);
        world.send(A, B, number, bytes(number, if number % 2 == 0 { 100 } else { 300_000 }));
    }
    world.run();
    assert_eq!(world.received(B).len(), 20);
    assert!((1..40).contains(&world.spoiled), "the rail is soon left alone: {}", world.spoiled);
    assert!(world.dropped.is_empty(), "{:?}", world.dropped);
    world.spoiling = CorruptionPlan::default();
    world.drain();
}

#[test]
fn a_peer_is_dropped_when_nothing_of_it_can_be_read() {
    let mut world = world(1);
    world.spoiling = CorruptionPlan { one_in: 1, bits: 3, only: None };
    world.receive(B, MessageSelector::from(A, 1), 100);
    world.send(A, B, 1, bytes(1, 100));
    world.run();
    assert!(!world.dropped.is_empty(), "it ends");
    assert!(world.received(B).is_empty());
    assert!(
        world
            .dropped
            .iter()
            .all(|(_, _, cause)| matches!(cause, PeerLossCause::Garbage | PeerLossCause::SpoiledTooOften))
    );
}

#[test]
fn a_long_message_uses_every_rail() {
    let mut world = world(4);
    world.receive(B, MessageSelector::from(A, 1), 10 << 20);
    world.send(A, B, 1, bytes(1, 10 << 20));
    let mut most = [0; 4];
    while world.step() {
        for (line, queue) in world.lines.iter().filter(|(line, _)| line.0 == A) {
            most[line.2.index()] = most[line.2.index()].max(queue.len());
        }
    }
    assert!(world.received(B) == [(A, 1, bytes(1, 10 << 20))]);
    let depth = MessagingSettings::default().depth;
    assert!(most.iter().all(|most| (1..=depth).contains(most)), "{most:?}");
}

#[test]
fn a_lost_rail_costs_nothing_but_time_and_the_last_one_the_peer() {
    let mut world = world(2);
    for number in 0..10 {
        world.receive(B, MessageSelector::from(A, number), 200_000);
        world.send(A, B, number, bytes(number, 20_000 * number as usize));
    }
    (0..40).for_each(|_| assert!(world.step()));
    world.cut(A, B, RailIndex(0));
    world.run();
    assert_eq!(world.received(B).len(), 10);
    world.drain();
    world.receive(B, MessageSelector::from(A, 1), 10);
    world.cut(B, A, RailIndex(1));
    assert_eq!(world.port(B).lost(A), Some(PeerLossCause::Unreachable));
    let (_, last) = world.completions.last().expect("the receive fails");
    let lost = MessageFailure::Lost(A, PeerLossCause::Unreachable);
    assert!(matches!(last, MessageCompletion::ReceiveFailed { failure, .. } if *failure == lost), "{last:?}");
    let now = world.now;
    let refused = world.port(B).send(now, A, 1, vec![1]).expect_err("it is lost");
    assert_eq!((refused.error, refused.buffer), (MessagePostError::Lost(A, PeerLossCause::Unreachable), vec![1]));
}

/// What A sent last comes spoiled, and is spoiled where A keeps it too.
fn spoil_in_log(world: &mut MessagingHarness) {
    let line = (A, B, RailIndex(0));
    world.tell_all(line);
    let mut parcel = world.lines.get_mut(&line).and_then(|queue| queue.pop_front()).expect("sent").bytes;
    let middle = parcel.len() / 2;
    parcel[middle] ^= 4;
    let now = world.now;
    world.port(B).handle_parcel(now, A, RailIndex(0), &parcel);
    world.attend(B);
    world.port(A).handle_sent(now, B, RailIndex(0), parcel);
    world.run();
}

/// Its receiver hears that it is lost, in its turn; everything else goes on.
#[test]
fn a_message_spoiled_in_the_log_is_never_sealed_anew() {
    for length in [0, 8, 64, 100, 10_000] {
        let mut world = world(1);
        for tag in [1, 2] {
            world.receive(B, MessageSelector::from(A, tag), 10_000);
        }
        world.send(A, B, 1, bytes(1, length));
        spoil_in_log(&mut world);
        world.send(A, B, 2, bytes(2, length));
        world.run();
        assert!(world.dropped.is_empty(), "{:?}", world.dropped);
        assert_eq!(world.received(B), [(A, 2, bytes(2, length))]);
        let failed = world.completions.iter().filter_map(|(_, completion)| match completion {
            MessageCompletion::ReceiveFailed { failure, .. } => Some(*failure),
            _ => None,
        });
        assert_eq!(failed.collect::<Vec<_>>(), [MessageFailure::Spoiled { source: A, tag: 1 }]);
        // Nothing that was granted is lost with it.
        for tag in 3..400 {
            world.receive(B, MessageSelector::from(A, tag), 10_000);
            world.send(A, B, tag, bytes(tag, 10_000));
            world.run();
        }
        world.drain();
    }
}

/// Of several messages in one parcel none is known to be sound.
#[test]
fn messages_spoiled_in_the_log_together_are_lost_together() {
    let mut world = world(1);
    let now = world.now;
    for tag in 0..20 {
        world.receive(B, MessageSelector::from(A, tag), 100);
        world.port(A).send(now, B, tag, bytes(tag, 100)).expect("it may send");
    }
    world.attend(A);
    while world.lines[&(A, B, RailIndex(0))].front().is_none_or(|parcel| parcel.bytes.len() < 1_000) {
        assert!(world.step(), "those behind the first are gathered");
    }
    spoil_in_log(&mut world);
    assert!(world.dropped.is_empty(), "{:?}", world.dropped);
    let lost = MessageFailure::Spoiled { source: A, tag: 19 };
    let is_lost = |completion: &MessageCompletion| matches!(completion, MessageCompletion::ReceiveFailed { failure, .. } if *failure == lost);
    assert!(world.completions.iter().any(|(_, completion)| is_lost(completion)));
    let failed =
        |(_, completion): &&(_, MessageCompletion)| matches!(completion, MessageCompletion::ReceiveFailed { .. });
    assert_eq!(world.received(B).len() + world.completions.iter().filter(failed).count(), 20);
    world.drain();
}

/// What an announcement says is known as long as the message is here, and that is until it has come.
#[test]
fn an_announcement_spoiled_in_the_log_is_written_again() {
    let mut world = world(1);
    world.receive(B, MessageSelector::from(A, 1), 100_000);
    world.send(A, B, 1, bytes(1, 100_000));
    spoil_in_log(&mut world);
    assert!(world.dropped.is_empty());
    assert_eq!(world.received(B), [(A, 1, bytes(1, 100_000))]);
    world.drain();
}

/// A piece is sealed anew when it goes again, so its bytes must be those that were sealed first.
#[test]
fn a_buffer_spoiled_while_its_message_is_under_way_is_never_delivered() {
    let mut world = world(1);
    world.receive(B, MessageSelector::from(A, 1), 100_000);
    world.send(A, B, 1, bytes(1, 100_000));
    let line = (A, B, RailIndex(0));
    let is_piece = |parcel: &TestPacket| parcel.bytes.len() > 4_096;
    while !world.lines.get(&line).is_some_and(|queue| queue.iter().any(is_piece)) {
        assert!(world.step(), "pieces are on their way sooner or later");
    }
    let piece = world.lines.get_mut(&line).and_then(|queue| queue.iter_mut().find(|piece| is_piece(piece)));
    piece.expect("just seen").bytes[4_000] ^= 1;
    let peer = world.port(A).peers.get_mut(&B).expect("a peer");
    for outgoing in peer.outgoing.values_mut() {
        Arc::make_mut(&mut outgoing.data).iter_mut().step_by(1_024).for_each(|byte| *byte ^= 1);
    }
    world.run();
    assert_eq!(world.dropped, [(A, B, PeerLossCause::SpoiledHere)]);
    assert!(world.received(B).is_empty());
}

/// Whoever has drained may end; the other must not wait for it any more.
#[test]
fn one_that_has_drained_may_go_and_the_other_is_drained_too() {
    let mut world = world(1);
    world.receive(B, MessageSelector::ANY, 8);
    world.send(A, B, 1, bytes(1, 8));
    world.run();
    let now = world.now;
    world.port(B).drain(now);
    world.attend(B);
    assert!(!world.port(B).is_drained(), "what has come must be told");
    world.run();
    assert!(world.port(B).is_drained());
    world.dead.extend([(A, B, RailIndex(0)), (B, A, RailIndex(0))]);
    world.port(A).drain(now);
    world.attend(A);
    assert!(world.port(A).is_drained(), "nobody is there who could confirm anything");
}

/// What is copied during the handshake is what the last handshakes allowed (CK-7).
#[test]
fn the_first_chunk_is_as_long_as_the_round_trip_of_the_announcement_allows() {
    let settings = MessagingSettings {
        copy_speed: 1_000,
        first_round_trip: Span::from_micros(20),
        ..MessagingSettings::default()
    };
    let mut world = MessagingHarness::new(settings, 2, 1, 1);
    let mut prepared = Vec::new();
    for late in [0, 0, 0, 2_000, 0] {
        let before = world.port(A).counters().prepared_bytes;
        world.receive(B, MessageSelector::ANY, 1 << 20);
        world.send(A, B, 1, bytes(1, 1 << 20));
        prepared.push(world.port(A).counters().prepared_bytes - before);
        world.now += Span::from_micros(if prepared.len() == 1 { 30 } else { late });
        world.run();
    }
    // 20 us assumed; then 30 us and a little; then hardly any, and one late answer changes little.
    assert_eq!(prepared, [16_384, 28_672, 4_096, 4_096, 4_096]);
}
