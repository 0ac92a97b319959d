//! Transfers over a network that loses, duplicates and reorders: every byte arrives once, and both ends finish.

use std::collections::VecDeque;

use units::{Span, Time, splitmix64};

use super::*;

const PACKET: u32 = 1408;

enum Packet {
    Part { offset: u32, bytes: u32, acknowledge_now: bool, probe: u8 },
    Acknowledgement(TransferAcknowledgement),
}

/// Sends `length` bytes over a network with faults in one of `one_in` packets; returns packets sent and the time that it took.
fn transfer(length: u32, one_in: u64, seed: u64) -> (u64, Time) {
    let mut random = seed;
    let mut draw = |below: u64| splitmix64(&mut random) % below.max(1);
    let (mut outgoing, mut incoming) = (BulkSender::new(length), BulkReceiver::new(length, 8, 256 << 10));
    let mut pacing = TransferPacing::default();
    let mut times_received = vec![0_u8; length as usize];
    let (mut network, mut now, mut sent) = (VecDeque::new(), Time::ZERO, 0);
    outgoing.make_available(length);
    while !outgoing.is_complete() {
        assert!(sent < 100_000, "seed {seed}: no end in sight at {:?}", outgoing);
        let mut put = |packet: Packet, network: &mut VecDeque<Packet>, draw: &mut dyn FnMut(u64) -> u64| {
            sent += 1;
            match draw(one_in * 4) {
                0 => {}
                1 => network.push_front(packet),
                2 if network.len() > 3 => network.insert(network.len() - 3, packet),
                _ => network.push_back(packet),
            }
        };
        while let Some(range) = outgoing.next_range(&pacing, 0, 16 * PACKET) {
            let acknowledge_now = outgoing.is_last_for_now(&range, &pacing) || outgoing.timeouts() > 0;
            for offset in (range.start..range.end).step_by(PACKET as usize) {
                let bytes = PACKET.min(range.end - offset);
                let acknowledge_now = acknowledge_now && offset + bytes == range.end;
                put(
                    Packet::Part { offset, bytes, acknowledge_now, probe: outgoing.probe() },
                    &mut network,
                    &mut draw,
                );
            }
            outgoing.note_sent(now, range, &pacing);
        }
        now += Span::from_nanos(500);
        match network.pop_front() {
            Some(Packet::Part { offset, bytes, acknowledge_now, probe }) => {
                if incoming.note_arrival(offset, bytes, acknowledge_now, probe) == PartArrival::New {
                    times_received[offset as usize..][..bytes as usize].iter_mut().for_each(|times| *times += 1);
                }
                if incoming.owes_acknowledgement() {
                    let acknowledgement = incoming.acknowledge();
                    put(Packet::Acknowledgement(acknowledgement), &mut network, &mut draw);
                }
            }
            Some(Packet::Acknowledgement(acknowledgement)) => {
                outgoing.handle_acknowledgement(now, &acknowledgement, &mut pacing);
            }
            None => {
                assert_ne!(outgoing.deadline(), Time::NEVER, "seed {seed}: nothing is under way and no timer runs");
                now = now.max(outgoing.deadline());
                outgoing.handle_timeout(now, PACKET, &mut pacing).expect("faults are rare");
            }
        }
    }
    assert!(incoming.is_complete() && times_received.iter().all(|times| *times == 1), "seed {seed}");
    (sent, now)
}

#[test]
fn every_byte_arrives_once_whatever_the_network_does() {
    for seed in 0..200 {
        for length in [8, PACKET, PACKET + 8, 64 << 10, 1 << 20] {
            for one_in in [2, 10, 100] {
                transfer(length, one_in, seed);
            }
        }
    }
}

#[test]
fn without_faults_nothing_is_sent_twice_and_no_timer_expires() {
    let (sent, took) = transfer(1 << 20, 1 << 40, 1);
    let parts = u64::from((1_u32 << 20).div_ceil(PACKET));
    assert!(sent <= parts + 48, "{sent} packets for {parts} parts");
    assert!(took < Time::from_nanos(5_000_000), "a timeout has expired: {took:?}");
}

#[test]
fn parts_that_do_not_fit_are_malformed_and_change_nothing() {
    let mut incoming = BulkReceiver::new(4096, 8, 1 << 16);
    for (offset, bytes) in [(0, 0), (4, 8), (0, 12), (4096, 8), (4088, 16), (u32::MAX - 7, 8)] {
        assert_eq!(
            incoming.note_arrival(offset, bytes, false, 0),
            PartArrival::Malformed,
            "{bytes} bytes at {offset}"
        );
    }
    assert_eq!(
        incoming.acknowledge(),
        TransferAcknowledgement { received: 0, limit: 4096, missing: vec![], probe: 0 }
    );
}

#[test]
fn a_peer_that_never_answers_is_lost_after_seconds() {
    let (mut outgoing, mut pacing) = (BulkSender::new(1 << 20), TransferPacing::default());
    outgoing.make_available(1 << 20);
    let range = outgoing.next_range(&pacing, 0, PACKET).expect("a first part");
    outgoing.note_sent(Time::ZERO, range, &pacing);
    let now = loop {
        let now = outgoing.deadline();
        if outgoing.handle_timeout(now, PACKET, &mut pacing).is_err() {
            break now;
        }
        while let Some(range) = outgoing.next_range(&pacing, 0, PACKET) {
            outgoing.note_sent(now, range, &pacing);
        }
    };
    assert!((5..30).contains(&(now.as_nanos() / 1_000_000_000)), "{now:?}");
}

#[test]
fn a_part_is_new_exactly_if_it_was_classified_as_new() {
    let mut incoming = BulkReceiver::new(4096, 8, 1 << 20);
    let (mut random, mut times_new) = (7, [0_u8; 4096]);
    // Every second element first: more gaps than are remembered.
    let gaps = (1..512).step_by(2).map(|element| (element * 8, 8));
    let parts = (0..20_000).map(|_| (splitmix64(&mut random) % 520 * 8, splitmix64(&mut random) % 5 * 8));
    for (offset, bytes) in gaps.chain(parts.map(|(offset, bytes)| (offset as u32, bytes as u32))) {
        let classified = incoming.classify(offset, bytes);
        assert_eq!(incoming.note_arrival(offset, bytes, false, 0), classified, "{bytes} bytes at {offset}");
        if classified == PartArrival::New {
            times_new[offset as usize..][..bytes as usize].iter_mut().for_each(|times| *times += 1);
        }
    }
    assert!(incoming.is_complete() && times_new.iter().all(|times| *times == 1));
}

#[test]
fn after_a_lost_burst_one_timeout_suffices() {
    let (mut outgoing, mut pacing) = (BulkSender::new(64 << 10), TransferPacing::default());
    let mut incoming = BulkReceiver::new(64 << 10, 1, 1 << 20);
    outgoing.make_available(64 << 10);
    let mut now = Time::ZERO;
    let send = |outgoing: &mut BulkSender, incoming: &mut BulkReceiver, now: Time, arrives: bool| {
        while let Some(range) = outgoing.next_range(&TransferPacing::default(), 0, u32::MAX) {
            for offset in (range.start..range.end).step_by(PACKET as usize).filter(|_| arrives) {
                let bytes = PACKET.min(range.end - offset);
                let _ = incoming.note_arrival(offset, bytes, offset + bytes == range.end, outgoing.probe());
            }
            outgoing.note_sent(now, range, &TransferPacing::default());
        }
    };
    send(&mut outgoing, &mut incoming, now, false);
    now = outgoing.deadline();
    outgoing.handle_timeout(now, PACKET, &mut pacing).expect("the first timeout");
    send(&mut outgoing, &mut incoming, now, true);
    outgoing.handle_acknowledgement(now, &incoming.acknowledge(), &mut pacing);
    send(&mut outgoing, &mut incoming, now, true);
    assert!(incoming.is_complete(), "{incoming:?}");
}

#[test]
fn nonsense_in_an_acknowledgement_does_no_harm() {
    let (mut outgoing, mut pacing) = (BulkSender::new(1 << 20), TransferPacing::default());
    outgoing.make_available(1 << 20);
    let range = outgoing.next_range(&pacing, 0, PACKET).expect("a first part");
    outgoing.note_sent(Time::ZERO, range, &pacing);
    let missing = vec![(u32::MAX, u32::MAX), (0, u32::MAX), (5, 0), (0, u32::MAX)];
    let nonsense = TransferAcknowledgement { received: u32::MAX, limit: u32::MAX, missing, probe: 0 };
    outgoing.handle_acknowledgement(Time::ZERO, &nonsense, &mut pacing);
    assert_eq!(outgoing.received(), PACKET, "no more than was sent");
    assert!(!outgoing.is_complete());
}

#[test]
fn an_empty_transfer_is_one_packet() {
    let (mut sender, mut pacing) = (BulkSender::new(0), TransferPacing::default());
    sender.make_available(1);
    let range = sender.next_range(&pacing, 0, 1_000).expect("a packet");
    sender.note_sent(Time::ZERO, range, &pacing);
    assert!(sender.is_settled() && !sender.is_complete());
    let mut receiver = BulkReceiver::new(0, 1, UNSOLICITED_BYTES);
    assert_eq!(receiver.note_arrival(0, 1, false, 0), PartArrival::Malformed);
    assert_eq!(receiver.note_arrival(0, 0, false, 0), PartArrival::New);
    assert!(receiver.is_complete() && !receiver.owes_acknowledgement());
    assert_eq!(receiver.note_arrival(0, 0, true, 0), PartArrival::Dropped);
    assert!(receiver.owes_acknowledgement());
    sender.handle_acknowledgement(Time::ZERO, &receiver.acknowledge(), &mut pacing);
    assert!(sender.is_complete());
    // A transfer of one byte is not satisfied with none.
    assert_eq!(BulkReceiver::new(1, 1, 1).note_arrival(0, 0, false, 0), PartArrival::Malformed);
}
