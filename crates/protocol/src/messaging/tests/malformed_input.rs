//! An endpoint drops peers that violate the protocol; it neither panics nor grows.

use proptest::prelude::*;
use units::{Rank, Time};

use super::harness::bytes;
use crate::messaging::control_message::ControlMessage;
use crate::messaging::packet::{BodyKind, InlineHeader, MESSAGE_HEADER_BYTES, MessageHeader};
use crate::messaging::{
    ChecksumPolicy, MessageSelector, MessagingAction, MessagingEndpoint, MessagingSettings, PeerLossCause, RailIndex,
    checksum_policy,
};

const PEER: Rank = Rank(1);
const RAIL: RailIndex = RailIndex(0);

fn endpoint() -> MessagingEndpoint {
    let mut endpoint = MessagingEndpoint::new(MessagingSettings::default());
    endpoint.add_peer(PEER, 1);
    endpoint
}

/// A packet with a correct checksum, whatever it contains.
fn packet(header: MessageHeader, body: &[u8]) -> Vec<u8> {
    let policy = ChecksumPolicy::default();
    let choice = policy.choice(body.len());
    let mut bytes = vec![0; MESSAGE_HEADER_BYTES];
    bytes.extend_from_slice(body);
    let length = body.len() as u32;
    let (algorithm, checksum) = (checksum_policy::algorithm_number(choice), checksum_policy::value(choice, body));
    MessageHeader { algorithm, checksum, length, ..header }.write(&policy, &mut bytes);
    bytes
}

fn inline(header: InlineHeader, message: &[u8]) -> Vec<u8> {
    let words = header.words(&ChecksumPolicy::default(), message);
    words.into_iter().flat_map(u64::to_le_bytes).chain(message.iter().copied()).collect()
}

fn header(kind: BodyKind) -> MessageHeader {
    MessageHeader {
        kind,
        algorithm: 0,
        wants_ack: false,
        number: 0,
        checksum: 0,
        length: 0,
        messages: 1,
        sequence: 0,
        acked: 0,
        granted: 0,
        detail: 0,
    }
}

fn control(messages: &[ControlMessage<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    messages.iter().for_each(|message| message.append_to(&mut body));
    packet(MessageHeader { messages: messages.len() as u32, ..header(BodyKind::Control) }, &body)
}

fn cause_of(packet: &[u8]) -> Option<PeerLossCause> {
    let mut endpoint = endpoint();
    endpoint.handle_packet(Time::ZERO, PEER, RAIL, packet);
    endpoint.lost(PEER)
}

#[test]
fn a_packet_that_violates_the_protocol_drops_its_sender() {
    let message = header(BodyKind::Eager);
    let malformed = [
        packet(MessageHeader { number: 1, ..message }, b"not the number of the first packet"),
        packet(MessageHeader { acked: 1, ..message }, b"an acknowledgement of a message never sent"),
        packet(MessageHeader { granted: (1 << 20) + 1, ..message }, b"more credit than exists"),
        packet(MessageHeader { sequence: 1 << 40, ..message }, b"far beyond the window"),
        packet(MessageHeader { messages: 2, ..message }, b"two messages"),
        packet(message, &[0; 20_000]),
        packet(header(BodyKind::Ack), b"an acknowledgement with a body"),
        packet(MessageHeader { messages: 3, ..header(BodyKind::Control) }, &[]),
        control(&[ControlMessage::Cts { transfer: 3 }]),
        control(&[ControlMessage::Fin { transfer: 0 }]),
        control(&[ControlMessage::Rts { tag: 0, length: u64::MAX, note: 0 }]),
    ];
    for (index, bytes) in malformed.iter().enumerate() {
        assert_eq!(cause_of(bytes), Some(PeerLossCause::Malformed), "number {index}");
    }
    assert_eq!(cause_of(&packet(message, b"good")), None);
    let good = InlineHeader { number: 0, sequence: 0, acked: 0, granted: 1 << 20, tag: 5 };
    let malformed = [
        inline(InlineHeader { number: 1, ..good }, b"not the number"),
        inline(InlineHeader { sequence: 1 << 20, ..good }, b"far beyond the window"),
        inline(InlineHeader { sequence: u32::MAX, ..good }, b"before the first"),
        inline(InlineHeader { acked: 1, ..good }, b"never sent"),
        inline(InlineHeader { granted: (1 << 20) + 1, ..good }, b"more credit than exists"),
        inline(good, &[0; 65]),
    ];
    for (index, bytes) in malformed[..5].iter().enumerate() {
        assert_eq!(cause_of(bytes), Some(PeerLossCause::Malformed), "inline packet {index}");
    }
    assert_eq!(cause_of(&malformed[5]), None, "one that is too long is NACKed: its CRC was not verified");
    assert_eq!(cause_of(&inline(good, b"good")), None);
    // A rail that does not exist.
    let mut endpoint = endpoint();
    endpoint.handle_packet(Time::ZERO, PEER, RailIndex(9), &packet(message, b"good"));
    assert_eq!(endpoint.lost(PEER), Some(PeerLossCause::Malformed));
}

#[test]
fn a_peer_that_exceeds_its_credit_is_dropped_and_its_rts_are_forgotten() {
    let mut endpoint = endpoint();
    let mut number = 0;
    while endpoint.lost(PEER).is_none() {
        let head = MessageHeader { number, sequence: number, ..header(BodyKind::Eager) };
        endpoint.handle_packet(Time::ZERO, PEER, RAIL, &packet(head, &[7; 16_000]));
        number += 1;
        assert!(number < 100);
    }
    assert_eq!(endpoint.lost(PEER), Some(PeerLossCause::CreditExceeded));
    assert_eq!(number, (1 << 20) / 16_064 + 1);
    // Messages that arrived can still be received.
    assert!(endpoint.receive(Time::ZERO, MessageSelector::exact(PEER, 0), vec![0; 16_000]).is_ok());
}

#[test]
fn fragments_must_fit_their_message() {
    let begin = || {
        let mut endpoint = endpoint();
        endpoint.receive(Time::ZERO, MessageSelector::exact(PEER, 5), vec![0; 100_000]).expect("posted");
        endpoint.handle_packet(
            Time::ZERO,
            PEER,
            RAIL,
            &control(&[ControlMessage::Rts { tag: 5, length: 100_000, note: 0 }]),
        );
        while endpoint.poll_action().is_some() {}
        endpoint
    };
    let fragment = |number, offset, length| {
        let head = MessageHeader { number, messages: 0, detail: offset, ..header(BodyKind::Fragment) };
        packet(head, &bytes(offset, length))
    };
    for (offset, length) in [(99_000, 2_000), (u64::MAX, 1), (0, 100), (0, 0), (1 << 50, 4_096)] {
        let mut endpoint = begin();
        endpoint.handle_packet(Time::ZERO, PEER, RAIL, &fragment(1, offset, length));
        assert_eq!(endpoint.lost(PEER), Some(PeerLossCause::Malformed), "{offset} {length}");
    }
    let mut endpoint = begin();
    endpoint.handle_packet(Time::ZERO, PEER, RAIL, &fragment(1, 0, 8_192));
    endpoint.handle_packet(Time::ZERO, PEER, RAIL, &fragment(2, 0, 8_192));
    assert_eq!((endpoint.lost(PEER), endpoint.counters().duplicates), (None, 1));
    endpoint.handle_packet(Time::ZERO, PEER, RAIL, &fragment(3, 4_096, 8_192));
    assert_eq!(endpoint.lost(PEER), Some(PeerLossCause::Malformed), "it overlaps received bytes");
}

proptest! {
    /// Whatever arrives, and however often: the endpoint survives, and what it sends stays bounded.
    #[test]
    fn random_bytes_are_survived(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..150), 1..400),
        off in any::<bool>(),
    ) {
        let policy = if off { ChecksumPolicy::Off } else { ChecksumPolicy::default() };
        let mut endpoint = MessagingEndpoint::new(MessagingSettings { checksum: policy, ..MessagingSettings::default() });
        endpoint.add_peer(PEER, 1);
        endpoint.receive(Time::ZERO, MessageSelector::ANY, vec![0; 1 << 16]).expect("posted");
        let mut sent = 0;
        for bytes in &packets {
            endpoint.handle_packet(Time::ZERO, PEER, RAIL, bytes);
            while let Some(action) = endpoint.poll_action() {
                sent += usize::from(matches!(action, MessagingAction::Transmit { .. }));
            }
        }
        prop_assert!(sent <= 64, "{}", sent);
    }

    /// Headers with correct CRCs and random fields.
    #[test]
    fn malformed_packets_with_correct_checksums_are_survived(
        words in proptest::collection::vec((0u8..4, any::<u8>(), any::<[u64; 4]>(), 0usize..300, any::<bool>()), 1..60),
    ) {
        let mut endpoint = endpoint();
        endpoint.receive(Time::ZERO, MessageSelector::ANY, vec![0; 1 << 16]).expect("posted");
        for (number, (kind, small, [sequence, acked, granted, detail], length, tame)) in words.into_iter().enumerate() {
            let kind = [BodyKind::Ack, BodyKind::Eager, BodyKind::Control, BodyKind::Fragment][usize::from(kind)];
            let limit = if tame { 4 } else { u64::MAX };
            let head = MessageHeader {
                number: number as u64,
                messages: u32::from(small % 4),
                sequence: sequence % limit,
                acked: acked % limit,
                granted: granted % limit,
                detail: detail % limit,
                wants_ack: small & 64 != 0,
                ..header(kind)
            };
            endpoint.handle_packet(Time::ZERO, PEER, RAIL, &packet(head, &bytes(sequence, length)));
            while endpoint.poll_action().is_some() {}
        }
    }
}
