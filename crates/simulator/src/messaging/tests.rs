//! Messaging on an idle fabric, and with every message corrupted.

use std::sync::Arc;

use protocol::connection::ConnectionPolicy;
use protocol::connection::path::PathPolicy;
use protocol::messaging::{ChecksumPolicy, MessageSelector, MessagingSettings};
use topology::{Fabric, NodeId};
use units::{Rank, SimSpan, SimTime};
use wire::IcrcCoverage;

use super::{
    CorruptionPoint, LinkNotification, MessagingCommand, MessagingObserver, MessagingOperation,
    MessagingRunParameters, PacketFraming, SimulatedMessaging, TransportSetupError,
};
use crate::fault::{FaultKind, FaultPlan, FaultRule};
use crate::link_rate::LinkRate;
use crate::network::LinkParameters;

#[derive(Default)]
struct Notes {
    sent: Vec<(Rank, u64, Vec<u8>)>,
    received: Vec<(Rank, u64, Vec<u8>)>,
}

impl MessagingObserver for Notes {
    fn sent(&mut self, from: Rank, _: Rank, tag: u64, message: &[u8]) {
        self.sent.push((from, tag, message.to_vec()));
    }
    fn received(&mut self, _: SimTime, _: Rank, _: u64, source: Rank, tag: u64, message: &[u8]) {
        self.received.push((source, tag, message.to_vec()));
    }
    fn failed(&mut self, at: Rank, why: &str) {
        panic!("nothing fails here, but at {at}: {why}");
    }
}

fn link() -> LinkParameters {
    LinkParameters::of_test(LinkRate::Qdr, 16 << 10)
}

fn parameters(orders: Vec<MessagingCommand>) -> MessagingRunParameters {
    MessagingRunParameters {
        hosts: vec![NodeId(0), NodeId(3)],
        rails: 2,
        paths: 2,
        policy: ConnectionPolicy::datagram(),
        path_policy: PathPolicy::default(),
        mtu: 4_096,
        framing: PacketFraming::InfiniBand,
        settings: MessagingSettings::default(),
        notice: LinkNotification::Notified,
        costs: None,
        orders,
    }
}

fn run(orders: Vec<MessagingCommand>) -> SimulatedMessaging<Notes> {
    run_with(&parameters(orders), &FaultPlan::default())
}

fn set_up(
    parameters: &MessagingRunParameters,
    plan: &FaultPlan,
) -> Result<SimulatedMessaging<Notes>, TransportSetupError> {
    let fabric = Arc::new(Fabric::xgft(&[2, 2], &[2, 2]).expect("small"));
    SimulatedMessaging::new(fabric, link(), parameters, plan, 1, Notes::default())
}

fn run_with(parameters: &MessagingRunParameters, plan: &FaultPlan) -> SimulatedMessaging<Notes> {
    let mut talk = set_up(parameters, plan).expect("valid parameters");
    assert!(talk.run(SimSpan::from_micros(1_000_000)), "the run does not end");
    talk
}

fn exchange(count: u64, length: impl Fn(u64) -> usize, corruption: CorruptionPoint) -> Vec<MessagingCommand> {
    let mut orders = Vec::new();
    for number in 0..count {
        let at = SimTime::ZERO + SimSpan::from_micros(number);
        let wanted = MessageSelector::exact(Rank(0), number);
        orders.push(MessagingCommand {
            at,
            rank: Rank(1),
            action: MessagingOperation::Receive { wanted, room: 1 << 20 },
        });
        let action = MessagingOperation::Send { to: Rank(1), tag: number, length: length(number), corruption };
        orders.push(MessagingCommand { at, rank: Rank(0), action });
    }
    orders
}

#[test]
fn messages_of_all_lengths_arrive_and_a_run_can_be_repeated() {
    let lengths = |number: u64| [0, 1, 8, 4_000, 16_384, 16_385, 1 << 20][number as usize % 7];
    let talk = run(exchange(21, lengths, CorruptionPoint::None));
    let again = run(exchange(21, lengths, CorruptionPoint::None));
    assert_eq!(talk.trace(), again.trace());
    let mut notes = talk.into_observer();
    notes.received.sort();
    notes.sent.sort();
    assert!(notes.sent == notes.received);
}

#[test]
fn messages_corrupted_out_of_reach_of_packet_checks_arrive_intact() {
    for corruption in [CorruptionPoint::BeforePacketCheck, CorruptionPoint::AfterPacketCheck] {
        let talk = run(exchange(100, |number| 1 + number as usize * 311, corruption));
        let found: u64 = talk.ports().map(|port| port.corrupted).sum();
        assert!(
            talk.corrupted_packets() >= 95 && found == talk.corrupted_packets(),
            "{} corrupted, {found} detected",
            talk.corrupted_packets()
        );
        let mut notes = talk.into_observer();
        notes.received.sort();
        notes.sent.sort();
        assert!(notes.sent == notes.received);
    }
}

/// Switches flip bits in one of twenty packets. A full ICRC finds all of them; of a shortened one the message checksums find the
/// rest. Every message arrives intact (P-28).
#[test]
fn bits_that_flip_behind_a_shortened_icrc_are_found_by_the_message_checksum() {
    let plan = FaultPlan {
        rules: vec![FaultRule::new(FaultKind::Memory).on("*").with_probability(0.05)],
        ..FaultPlan::default()
    };
    let corrupted = |weakest: IcrcCoverage| {
        let orders = exchange(60, |number| 5_000 + number as usize * 1_311, CorruptionPoint::None);
        let framing = PacketFraming::Udp { weakest };
        let talk = run_with(&MessagingRunParameters { mtu: 8_000, framing, ..parameters(orders) }, &plan);
        let found: u64 = talk.ports().map(|port| port.corrupted).sum();
        assert!(talk.counters().end_to_end > 0, "no ICRC found a flipped bit");
        let mut notes = talk.into_observer();
        notes.received.sort();
        notes.sent.sort();
        assert!(notes.sent == notes.received);
        found
    };
    assert_eq!(corrupted(IcrcCoverage::Full), 0);
    assert!(corrupted(IcrcCoverage::Prefix) >= 10);
}

#[test]
fn a_shortened_icrc_needs_a_strong_checksum() {
    let framing = PacketFraming::Udp { weakest: IcrcCoverage::Prefix };
    let settings = MessagingSettings { checksum: ChecksumPolicy::Off, ..MessagingSettings::default() };
    let parameters = MessagingRunParameters { framing, settings, ..parameters(Vec::new()) };
    assert!(matches!(set_up(&parameters, &FaultPlan::default()), Err(TransportSetupError::OutOfRange(_))));
}
