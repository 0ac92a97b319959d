//! What no call of libfabric can bring about: corrupted memory of a peer.

use protocol::messaging::{MessageMatching, MessagingAction, MessagingEndpoint, MessagingSettings, RailIndex};
use units::Time;

use super::*;
use crate::abi::FI_CQ_FORMAT_TAGGED;
use crate::endpoint_address::EndpointPath;
use crate::endpoint_operations::ReceiveRequest;
use crate::match_lists::ReceiveFilter;
use crate::peer_connection::PeerState;
use crate::queues::CompletionQueue;

const SENDER: Rank = Rank(0);
const RECEIVER: Rank = Rank(1);
const RAIL: RailIndex = RailIndex(0);
const NOW: Time = Time::ZERO;

fn packets(endpoint: &mut MessagingEndpoint) -> Vec<Vec<u8>> {
    let transmitted = |action| match action {
        MessagingAction::Transmit { bytes, .. } => bytes,
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| endpoint.poll_action()).map(transmitted).collect()
}

/// A message of peer 0 that was corrupted on the wire and in the memory of its sender.
fn corrupted_arrival(envelope: &Envelope, length: usize) -> MessageArrival {
    let settings = MessagingSettings::default();
    let mut sender = MessagingEndpoint::new(settings);
    sender.add_peer(RECEIVER, 1);
    let mut receiver = MessagingEndpoint::new(settings).with_matching(MessageMatching::ByUser);
    receiver.add_peer(SENDER, 1);
    let (tag, mut bytes) = envelope.short(length);
    bytes.resize(bytes.len() + length, 7);
    sender.send(NOW, RECEIVER, tag, bytes).expect("it is accepted");
    for mut packet in packets(&mut sender) {
        let middle = packet.len() / 2;
        packet[middle] ^= 4;
        receiver.handle_packet(NOW, SENDER, RAIL, &packet);
        sender.handle_sent(NOW, RECEIVER, RAIL, packet);
    }
    for _ in 0..10 {
        for packet in packets(&mut receiver) {
            sender.handle_packet(NOW, RECEIVER, RAIL, &packet);
            receiver.handle_sent(NOW, SENDER, RAIL, packet);
        }
        for packet in packets(&mut sender) {
            receiver.handle_packet(NOW, SENDER, RAIL, &packet);
            sender.handle_sent(NOW, RECEIVER, RAIL, packet);
        }
        if let Some(arrival) = receiver.poll_arrival() {
            assert!(arrival.eager_bytes().is_none() && arrival.note().is_none(), "its bytes are lost");
            return arrival;
        }
    }
    panic!("no message arrived");
}

/// An endpoint with one connected peer, and a receive for tag 5 (context 1) and one for tag 0 (context 2).
fn endpoint_with_receives(queues: &mut Queues) -> EndpointState {
    let path = EndpointPath { address: "127.0.0.1:0".parse().expect("an address"), prefix: 8 };
    let port = MessagePort::open_at(vec![path]).expect("a port");
    let other = MessagePort::open_at(vec![path]).expect("a port");
    let mut endpoint = EndpointState::new(port, 0, 0);
    endpoint.receive_targets.queue = Some(queues.completions.add(CompletionQueue::new(FI_CQ_FORMAT_TAGGED, None)));
    let peer = endpoint.port.peer_at(&other.own);
    endpoint.port.peers[peer as usize].state = PeerState::Connected { attempt: 1, answer: None };
    endpoint.port.messenger.add_peer(Rank(peer), 1);
    for (tag, context) in [(5, 1), (0, 2)] {
        let filter = ReceiveFilter { source: Some(MessageSource::Peer(peer)), tag, ignore: 0 };
        let buffer = UserBuffer::one(std::ptr::null_mut(), 0);
        let request = ReceiveRequest { buffer, is_tagged: true, filter, context, flags: 0 };
        assert_eq!(endpoint.post_receive(queues, request), 0);
    }
    endpoint
}

/// The tag is lost with the bytes: no receive may take the message for its own, and none may wait forever.
#[test]
fn a_tagged_message_whose_tag_is_lost_ends_its_peer_with_the_cause() {
    for length in [0, 40, 10_000] {
        let mut queues = Queues::default();
        let mut endpoint = endpoint_with_receives(&mut queues);
        let arrival = corrupted_arrival(&Envelope { tag: Some(5), data: None }, length);
        endpoint.port.events.push_back(PortEvent::Arrived(arrival));
        endpoint.handle_events(&mut queues);
        let errors = &queues.completions.get(0).expect("the queue").errors;
        let failed: Vec<(usize, i32)> = errors.iter().map(|error| (error.entry.context, error.error)).collect();
        assert_eq!(failed, [(1, EHOSTUNREACH), (2, EHOSTUNREACH)], "{length} bytes");
        let why = queues.loss(errors[0].detail).expect("a description");
        assert!(why.contains("corrupted in the sender's memory"), "{why}");
        assert!(endpoint.port.messenger.lost(Rank(0)).is_some(), "the messaging machine drops it too");
    }
}

/// Untagged messages match in order: the next receive is the right one.
#[test]
fn an_untagged_message_that_is_lost_fails_the_next_receive_only() {
    let mut queues = Queues::default();
    let mut endpoint = endpoint_with_receives(&mut queues);
    let filter = ReceiveFilter { source: None, tag: 0, ignore: 0 };
    let buffer = UserBuffer::one(std::ptr::null_mut(), 0);
    let request = ReceiveRequest { buffer, is_tagged: false, filter, context: 9, flags: 0 };
    assert_eq!(endpoint.post_receive(&mut queues, request), 0);
    let arrival = corrupted_arrival(&Envelope { tag: None, data: Some(3) }, 100);
    endpoint.port.events.push_back(PortEvent::Arrived(arrival));
    endpoint.handle_events(&mut queues);
    let errors = &queues.completions.get(0).expect("the queue").errors;
    let failed: Vec<(usize, i32)> = errors.iter().map(|error| (error.entry.context, error.error)).collect();
    assert_eq!(failed, [(9, FI_ECRC)]);
}
