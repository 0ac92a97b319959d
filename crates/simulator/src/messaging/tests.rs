//! A conversation on a quiet fabric, and one whose every message is spoiled.

use std::sync::Arc;

use protocol::connection::Policy;
use protocol::connection::path::PathPolicy;
use protocol::messaging::{Settings, Wanted};
use topology::{Fabric, NodeId};
use units::{Rank, Span, Time};

use super::{Action, Conversation, ConversationParameters, Notice, Order, Spoil, Witness};
use crate::fault::Plan;
use crate::network::{Forwarding, LinkParameters};
use crate::technology::{ByteTime, Rate, Width};

#[derive(Default)]
struct Notes {
    sent: Vec<(Rank, u64, Vec<u8>)>,
    received: Vec<(Rank, u64, Vec<u8>)>,
}

impl Witness for Notes {
    fn sent(&mut self, from: Rank, _: Rank, tag: u64, message: &[u8]) {
        self.sent.push((from, tag, message.to_vec()));
    }
    fn received(&mut self, _: Time, _: Rank, _: u64, source: Rank, tag: u64, message: &[u8]) {
        self.received.push((source, tag, message.to_vec()));
    }
    fn failed(&mut self, at: Rank, why: &str) {
        panic!("nothing fails here, but at {at}: {why}");
    }
}

fn link() -> LinkParameters {
    LinkParameters {
        byte_time: ByteTime::of(Width::X4, Rate::Qdr),
        wire: Span::from_nanos(10),
        switch_delay: Span::from_nanos(100),
        adapter_delay: Span::from_nanos(200),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 16 << 10,
        adapter_lanes: 1,
    }
}

fn parameters(orders: Vec<Order>) -> ConversationParameters {
    ConversationParameters {
        hosts: vec![NodeId(0), NodeId(3)],
        rails: 2,
        paths: 2,
        policy: Policy::datagram(),
        path_policy: PathPolicy::default(),
        mtu: 4_096,
        settings: Settings::default(),
        notice: Notice::Noticed,
        costs: None,
        orders,
    }
}

fn run(orders: Vec<Order>) -> Conversation<Notes> {
    let fabric = Arc::new(Fabric::xgft(&[2, 2], &[2, 2]).expect("small"));
    let parameters = parameters(orders);
    let mut talk =
        Conversation::new(fabric, link(), &parameters, &Plan::default(), 1, Notes::default()).expect("sound");
    assert!(talk.run(Span::from_micros(1_000_000)), "it comes to an end");
    talk
}

fn exchange(count: u64, length: impl Fn(u64) -> usize, spoil: Spoil) -> Vec<Order> {
    let mut orders = Vec::new();
    for number in 0..count {
        let at = Time::ZERO + Span::from_micros(number);
        let wanted = Wanted::from(Rank(0), number);
        orders.push(Order { at, rank: Rank(1), action: Action::Receive { wanted, room: 1 << 20 } });
        let action = Action::Send { to: Rank(1), tag: number, length: length(number), spoil };
        orders.push(Order { at, rank: Rank(0), action });
    }
    orders
}

#[test]
fn messages_of_all_lengths_arrive_and_a_run_can_be_repeated() {
    let lengths = |number: u64| [0, 1, 8, 4_000, 16_384, 16_385, 1 << 20][number as usize % 7];
    let talk = run(exchange(21, lengths, Spoil::Nowhere));
    let again = run(exchange(21, lengths, Spoil::Nowhere));
    assert_eq!(talk.trace(), again.trace());
    let mut notes = talk.into_witness();
    notes.received.sort();
    notes.sent.sort();
    assert!(notes.sent == notes.received);
}

#[test]
fn messages_that_are_spoiled_behind_every_check_arrive_all_the_same() {
    for spoil in [Spoil::BeforeTheCheck, Spoil::AfterTheCheck] {
        let talk = run(exchange(100, |number| 1 + number as usize * 311, spoil));
        let found: u64 = talk.ports().map(|port| port.spoiled).sum();
        assert!(talk.spoiled() >= 95 && found == talk.spoiled(), "{} spoiled, {found} found", talk.spoiled());
        let mut notes = talk.into_witness();
        notes.received.sort();
        notes.sent.sort();
        assert!(notes.sent == notes.received);
    }
}
