//! Peers that do not keep the rules are dropped; nothing panics, nothing grows.

use proptest::prelude::*;
use units::{Rank, Time};

use super::harness::bytes;
use crate::messaging::packet::{BodyKind, ControlMessage, InlineHeader, MESSAGE_HEADER_BYTES, MessageHeader};
use crate::messaging::{
    ChecksumPolicy, MessageSelector, MessagingAction, MessagingEndpoint, MessagingSettings, PeerLossCause, RailIndex,
    checksum_policy,
};

const PEER: Rank = Rank(1);
const RAIL: RailIndex = RailIndex(0);

fn port() -> MessagingEndpoint {
    let mut port = MessagingEndpoint::new(MessagingSettings::default());
    port.add_peer(PEER, 1);
    port
}

/// A parcel with a right code, whatever it says.
fn parcel(header: MessageHeader, body: &[u8]) -> Vec<u8> {
    let sealing = ChecksumPolicy::default();
    let choice = sealing.choice(body.len());
    let mut bytes = vec![0; MESSAGE_HEADER_BYTES];
    bytes.extend_from_slice(body);
    let length = body.len() as u32;
    let (algorithm, seal) = (checksum_policy::algorithm_number(choice), checksum_policy::value(choice, body));
    MessageHeader { algorithm, seal, length, ..header }.write(&sealing, &mut bytes);
    bytes
}

fn brief(header: InlineHeader, message: &[u8]) -> Vec<u8> {
    let words = header.words(&ChecksumPolicy::default(), message);
    words.into_iter().flat_map(u64::to_le_bytes).chain(message.iter().copied()).collect()
}

fn header(kind: BodyKind) -> MessageHeader {
    MessageHeader {
        kind,
        algorithm: 0,
        wants_answer: false,
        number: 0,
        seal: 0,
        length: 0,
        letters: 1,
        letter: 0,
        taken: 0,
        granted: 0,
        detail: 0,
    }
}

fn letters(letters: &[ControlMessage<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    letters.iter().for_each(|letter| letter.append_to(&mut body));
    parcel(MessageHeader { letters: letters.len() as u32, ..header(BodyKind::Letters) }, &body)
}

fn cause_of(parcel: &[u8]) -> Option<PeerLossCause> {
    let mut port = port();
    port.handle_parcel(Time::ZERO, PEER, RAIL, parcel);
    port.lost(PEER)
}

#[test]
fn what_nobody_sends_who_keeps_the_rules_ends_a_peer() {
    let message = header(BodyKind::Message);
    let senseless = [
        parcel(MessageHeader { number: 1, ..message }, b"not the number of the first parcel"),
        parcel(MessageHeader { taken: 1, ..message }, b"a letter that we never sent"),
        parcel(MessageHeader { granted: (1 << 20) + 1, ..message }, b"more than anyone can grant"),
        parcel(MessageHeader { letter: 1 << 40, ..message }, b"far beyond the window"),
        parcel(MessageHeader { letters: 2, ..message }, b"two messages"),
        parcel(message, &[0; 20_000]),
        parcel(header(BodyKind::Bare), b"a bare parcel with a body"),
        parcel(MessageHeader { letters: 3, ..header(BodyKind::Letters) }, &[]),
        letters(&[ControlMessage::Ready { transfer: 3 }]),
        letters(&[ControlMessage::Done { transfer: 0 }]),
        letters(&[ControlMessage::Announce { tag: 0, length: u64::MAX }]),
    ];
    for (index, bytes) in senseless.iter().enumerate() {
        assert_eq!(cause_of(bytes), Some(PeerLossCause::Senseless), "number {index}");
    }
    assert_eq!(cause_of(&parcel(message, b"good")), None);
    let good = InlineHeader { number: 0, letter: 0, taken: 0, granted: 1 << 20, tag: 5 };
    let senseless = [
        brief(InlineHeader { number: 1, ..good }, b"not the number"),
        brief(InlineHeader { letter: 1 << 20, ..good }, b"far beyond the window"),
        brief(InlineHeader { letter: u32::MAX, ..good }, b"before the first"),
        brief(InlineHeader { taken: 1, ..good }, b"never sent"),
        brief(InlineHeader { granted: (1 << 20) + 1, ..good }, b"more than anyone can grant"),
        brief(good, &[0; 65]),
    ];
    for (index, bytes) in senseless[..5].iter().enumerate() {
        assert_eq!(cause_of(bytes), Some(PeerLossCause::Senseless), "brief parcel {index}");
    }
    assert_eq!(cause_of(&senseless[5]), None, "one that is too long is asked for again: its code was not looked at");
    assert_eq!(cause_of(&brief(good, b"good")), None);
    // A rail that there is not.
    let mut port = port();
    port.handle_parcel(Time::ZERO, PEER, RailIndex(9), &parcel(message, b"good"));
    assert_eq!(port.lost(PEER), Some(PeerLossCause::Senseless));
}

#[test]
fn whoever_sends_more_than_was_granted_is_dropped_and_what_it_announced_is_forgotten() {
    let mut port = port();
    let mut number = 0;
    while port.lost(PEER).is_none() {
        let head = MessageHeader { number, letter: number, ..header(BodyKind::Message) };
        port.handle_parcel(Time::ZERO, PEER, RAIL, &parcel(head, &[7; 16_000]));
        number += 1;
        assert!(number < 100);
    }
    assert_eq!(port.lost(PEER), Some(PeerLossCause::Overdrawn));
    assert_eq!(number, (1 << 20) / 16_064 + 1);
    // What came whole can still be had.
    assert!(port.receive(Time::ZERO, MessageSelector::from(PEER, 0), vec![0; 16_000]).is_ok());
}

#[test]
fn pieces_must_fit_their_message() {
    let begin = || {
        let mut port = port();
        port.receive(Time::ZERO, MessageSelector::from(PEER, 5), vec![0; 100_000]).expect("posted");
        port.handle_parcel(Time::ZERO, PEER, RAIL, &letters(&[ControlMessage::Announce { tag: 5, length: 100_000 }]));
        while port.poll_duty().is_some() {}
        port
    };
    let piece = |number, offset, length| {
        let head = MessageHeader { number, letters: 0, detail: offset, ..header(BodyKind::Piece) };
        parcel(head, &bytes(offset, length))
    };
    for (offset, length) in [(99_000, 2_000), (u64::MAX, 1), (0, 100), (0, 0), (1 << 50, 4_096)] {
        let mut port = begin();
        port.handle_parcel(Time::ZERO, PEER, RAIL, &piece(1, offset, length));
        assert_eq!(port.lost(PEER), Some(PeerLossCause::Senseless), "{offset} {length}");
    }
    let mut port = begin();
    port.handle_parcel(Time::ZERO, PEER, RAIL, &piece(1, 0, 8_192));
    port.handle_parcel(Time::ZERO, PEER, RAIL, &piece(2, 0, 8_192));
    assert_eq!((port.lost(PEER), port.counters().repeats_seen), (None, 1));
    port.handle_parcel(Time::ZERO, PEER, RAIL, &piece(3, 4_096, 8_192));
    assert_eq!(port.lost(PEER), Some(PeerLossCause::Senseless), "it straddles what is here");
}

proptest! {
    /// Whatever comes, and however often: the port lives, and what it wants to send stays bounded.
    #[test]
    fn garbage_is_survived(
        parcels in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..150), 1..400),
        off in any::<bool>(),
    ) {
        let sealing = if off { ChecksumPolicy::Off } else { ChecksumPolicy::default() };
        let mut port = MessagingEndpoint::new(MessagingSettings { sealing, ..MessagingSettings::default() });
        port.add_peer(PEER, 1);
        port.receive(Time::ZERO, MessageSelector::ANY, vec![0; 1 << 16]).expect("posted");
        let mut sent = 0;
        for bytes in &parcels {
            port.handle_parcel(Time::ZERO, PEER, RAIL, bytes);
            while let Some(duty) = port.poll_duty() {
                sent += usize::from(matches!(duty, MessagingAction::Transmit { .. }));
            }
        }
        prop_assert!(sent <= 64, "{}", sent);
    }

    /// Headers with right codes and anything in them.
    #[test]
    fn sealed_nonsense_is_survived(
        words in proptest::collection::vec((0u8..4, any::<u8>(), any::<[u64; 4]>(), 0usize..300, any::<bool>()), 1..60),
    ) {
        let mut port = port();
        port.receive(Time::ZERO, MessageSelector::ANY, vec![0; 1 << 16]).expect("posted");
        for (number, (kind, small, [letter, taken, granted, detail], length, tame)) in words.into_iter().enumerate() {
            let kind = [BodyKind::Bare, BodyKind::Message, BodyKind::Letters, BodyKind::Piece][usize::from(kind)];
            let most = if tame { 4 } else { u64::MAX };
            let head = MessageHeader {
                number: number as u64,
                letters: u32::from(small % 4),
                letter: letter % most,
                taken: taken % most,
                granted: granted % most,
                detail: detail % most,
                wants_answer: small & 64 != 0,
                ..header(kind)
            };
            port.handle_parcel(Time::ZERO, PEER, RAIL, &parcel(head, &bytes(letter, length)));
            while port.poll_duty().is_some() {}
        }
    }
}
