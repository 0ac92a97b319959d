//! A trial of checked messages: a seed determines a fabric, ranks, rails, messages and faults; the run yields a verdict.

use std::collections::BTreeMap;
use std::sync::Arc;

use oracle::{Expectation, StreamLedger, StreamVerdict};
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::PathPolicy;
use protocol::messaging::{MessageSelector, MessagingSettings};
use simulator::fault::{FaultKind, FaultPlan, FaultRule};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::messaging::{
    CorruptionPoint, MessagingCommand, MessagingObserver, MessagingOperation, MessagingRunParameters, PacketFraming,
    SimulatedMessaging,
};
use simulator::queue_pair::LinkNotification;
use simulator::{Forwarding, LinkParameters};
use topology::{Fabric, NodeId};
use units::{Rank, SimSpan, SimTime};
use wire::IcrcCoverage;

use crate::test_rng::TestRng;

/// The limit of a run, in virtual time.
const PATIENCE: SimSpan = SimSpan::from_micros(60_000_000);

/// A trial.
#[derive(Clone, Debug)]
pub struct MessagingTrial {
    /// The seed that determines all else.
    pub seed: u64,
    fabric: Arc<Fabric>,
    link: LinkParameters,
    /// Ranks, rails and messages.
    pub parameters: MessagingRunParameters,
    /// The faults of packets.
    pub plan: FaultPlan,
}

/// The outcome of a trial.
pub struct MessagingOutcome {
    /// The oracle's verdict on each pair of ranks and tag.
    pub streams: Vec<((Rank, Rank, u64), StreamVerdict)>,
    /// Sends and receives that failed.
    pub failures: Vec<String>,
    /// Whether every send and receive completed.
    pub is_complete: bool,
    /// Message packets corrupted by the trial.
    pub corrupted: u64,
    /// Corrupted message packets that the ports detected.
    pub detected: u64,
    /// The digest of all events.
    pub trace: u64,
}

impl MessagingOutcome {
    /// Whether every message arrived once, in order, unaltered.
    pub fn is_clean(&self) -> bool {
        let clean = |verdict: &StreamVerdict| verdict.violations.is_empty() && verdict.unlisted_violations == 0;
        self.is_complete && self.failures.is_empty() && self.streams.iter().all(|(_, verdict)| clean(verdict))
    }

    /// The number of messages checked.
    pub fn checked(&self) -> u64 {
        self.streams.iter().map(|(_, verdict)| verdict.checked).sum()
    }

    /// A description of everything that is wrong.
    pub fn problems(&self) -> String {
        let bad = self.streams.iter().filter(|(_, verdict)| !verdict.violations.is_empty());
        let lines =
            bad.map(|((from, to, tag), verdict)| format!("{from} to {to}, tag {tag}: {:?}", verdict.violations));
        let end = if self.is_complete { "complete" } else { "incomplete" };
        lines.chain([format!("{end}, {:?}", self.failures)]).collect::<Vec<_>>().join("\n")
    }
}

#[derive(Default)]
struct Judge {
    ledgers: BTreeMap<(Rank, Rank, u64), StreamLedger>,
    /// By the order in which receives were posted: messages must match in that order.
    received: BTreeMap<(Rank, u64), (Rank, u64, Vec<u8>)>,
    failures: Vec<String>,
}

impl MessagingObserver for Judge {
    fn sent(&mut self, from: Rank, to: Rank, tag: u64, message: &[u8]) {
        let ledger = self.ledgers.entry((from, to, tag));
        ledger.or_insert_with(|| StreamLedger::new(Expectation::MustComplete)).record_sent(message);
    }

    fn received(&mut self, _: SimTime, at: Rank, receive: u64, source: Rank, tag: u64, message: &[u8]) {
        self.received.insert((at, receive), (source, tag, message.to_vec()));
    }

    fn failed(&mut self, at: Rank, why: &str) {
        self.failures.push(format!("{at}: {why}"));
    }
}

impl MessagingTrial {
    /// Random traffic and random faults, none of which is permanent on all rails of a pair.
    pub fn random(seed: u64) -> Self {
        let mut rng = TestRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let fabric = Arc::new(Fabric::xgft(&[2, 2], &[2, 2]).expect("the shape is within the bounds"));
        let ranks = 2 + rng.below(3) as u32;
        let settings = MessagingSettings {
            credit_bytes: rng.pick(&[70_000, 1 << 20]),
            depth: 1 + rng.below(4) as usize,
            control_depth: 1 + rng.below(4) as usize,
            fragment_bytes: rng.pick(&[16 << 10, 64 << 10, 128 << 10]),
            ..MessagingSettings::default()
        };
        let (rails, paths) = (1 + rng.below(3) as u8, 1 + rng.below(2) as u8);
        let mut trial = Self::quiet(seed, fabric, ranks, rails, paths, settings);
        trial.add_faults(&mut rng);
        if seed.is_multiple_of(2) {
            trial.parameters.policy = ConnectionPolicy::conversation();
        }
        let corrupt_one_in = rng.pick(&[2, 5, 1_000_000]);
        let mut micros = 0;
        for _ in 0..10 + rng.below(30) {
            let from = Rank(rng.below(ranks.into()) as u32);
            let to = Rank((from.0 + 1 + rng.below(u64::from(ranks) - 1) as u32) % ranks);
            let tag = rng.below(3);
            let most = rng.pick(&[64, 2_000, 17_000, 200_000]);
            let points = [CorruptionPoint::BeforePacketCheck, CorruptionPoint::AfterPacketCheck];
            let spoil = if rng.below(corrupt_one_in) == 0 { rng.pick(&points) } else { CorruptionPoint::None };
            let send = MessagingOperation::Send { to, tag, length: rng.below(most) as usize, corruption: spoil };
            let receive = MessagingOperation::Receive { wanted: MessageSelector::exact(from, tag), room: 200_000 };
            let mut pair = [(from, send), (to, receive)];
            if rng.below(2) == 0 {
                pair.reverse();
            }
            for (rank, action) in pair {
                let at = SimTime::ZERO + SimSpan::from_micros(micros);
                trial.parameters.orders.push(MessagingCommand { at, rank, action });
                micros += rng.below(30);
            }
        }
        trial
    }

    /// As [`Self::random`] over datagrams whose ICRC covers the first bytes of long packets only. Devices flip bits in
    /// packets, and no packet is corrupted by order of the trial: what a port detects, it detects behind those bytes (P-28).
    pub fn with_shortened_icrc(seed: u64) -> Self {
        let mut trial = Self::random(seed);
        trial.parameters.framing = PacketFraming::Udp { weakest: IcrcCoverage::Prefix };
        trial.parameters.mtu = 8_000;
        // A fragment has up to 17 packets on up to 4 links each: one in four of the longest is corrupted.
        trial.plan.rules.retain(|rule| *rule.kind.get_ref() != FaultKind::Memory);
        trial.plan.rules.push(FaultRule::new(FaultKind::Memory).on("*").with_probability(0.004));
        for order in &mut trial.parameters.orders {
            if let MessagingOperation::Send { corruption, .. } = &mut order.action {
                *corruption = CorruptionPoint::None;
            }
        }
        trial
    }

    /// Messages between two ranks, each with one bit flipped where no packet check detects it: in the header, in the checksum or in
    /// the data. Each message is a packet of its own, sent when the previous one has had time to arrive.
    pub fn corrupted(seed: u64, messages: u64) -> Self {
        let mut rng = TestRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let fabric = Arc::new(Fabric::xgft(&[2, 2], &[2, 2]).expect("the shape is within the bounds"));
        let settings = MessagingSettings { coalesce_limit_bytes: 0, ..MessagingSettings::default() };
        let mut trial = Self::quiet(seed, fabric, 2, 2, 1, settings);
        for number in 0..messages {
            let at = SimTime::ZERO + SimSpan::from_micros(number * 200);
            let (from, to) = (Rank((number % 2) as u32), Rank((1 - number % 2) as u32));
            let length = 1 + rng.below(random_length_bound(number)) as usize;
            let spoil = rng.pick(&[CorruptionPoint::BeforePacketCheck, CorruptionPoint::AfterPacketCheck]);
            let wanted = MessageSelector::exact(from, 1);
            let orders = &mut trial.parameters.orders;
            orders.push(MessagingCommand {
                at,
                rank: to,
                action: MessagingOperation::Receive { wanted, room: length },
            });
            orders.push(MessagingCommand {
                at,
                rank: from,
                action: MessagingOperation::Send { to, tag: 1, length, corruption: spoil },
            });
        }
        trial
    }

    fn quiet(seed: u64, fabric: Arc<Fabric>, ranks: u32, rails: u8, paths: u8, settings: MessagingSettings) -> Self {
        let link = LinkParameters {
            byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Qdr),
            wire: SimSpan::from_nanos(10),
            switch_delay: SimSpan::from_nanos(100),
            adapter_delay: SimSpan::from_nanos(200),
            forwarding: Forwarding::CutThrough,
            virtual_lanes: 1,
            buffer_bytes: 16 << 10,
            adapter_lanes: 1,
        };
        let parameters = MessagingRunParameters {
            hosts: (0..ranks).map(NodeId).collect(),
            rails,
            paths,
            policy: ConnectionPolicy::datagram(),
            path_policy: PathPolicy::default(),
            mtu: 4_096,
            framing: PacketFraming::InfiniBand,
            settings,
            notice: LinkNotification::Notified,
            costs: None,
            orders: Vec::new(),
        };
        Self { seed, fabric, link, parameters, plan: FaultPlan::default() }
    }

    fn add_faults(&mut self, rng: &mut TestRng) {
        let soft = [FaultKind::Flip, FaultKind::Memory, FaultKind::Lose, FaultKind::Duplicate, FaultKind::Reorder];
        for kind in soft {
            if rng.below(2) == 0 {
                let probability = rng.pick(&[0.001, 0.01, 0.03]);
                self.plan.rules.push(FaultRule::new(kind).on("*").with_probability(probability));
            }
        }
        self.parameters.notice = rng.pick(&[LinkNotification::Notified, LinkNotification::Silent]);
        let switch =
            NodeId(self.fabric.hosts() + rng.below(u64::from(self.fabric.nodes() - self.fabric.hosts())) as u32);
        let kill = FaultRule::new(FaultKind::Kill).at_node(self.fabric.name(switch));
        let at = rng.below(500) as f64;
        match rng.below(4) {
            0 => self.plan.rules.push(kill.lasting(at, Some(1.0 + rng.below(800) as f64))),
            // Permanently, if another rail remains.
            1 if self.parameters.rails > 1 => self.plan.rules.push(kill.lasting(at, None)),
            _ => {}
        }
    }

    /// Runs the trial.
    ///
    /// # Panics
    /// The simulator rejects the parameters.
    pub fn run(&self) -> MessagingOutcome {
        let Self { seed, fabric, link, parameters, plan } = self;
        let mut conversation =
            SimulatedMessaging::new(Arc::clone(fabric), link.clone(), parameters, plan, *seed, Judge::default())
                .expect("the parameters are valid");
        let is_complete = conversation.run(PATIENCE);
        let (corrupted, detected) =
            (conversation.corrupted_packets(), conversation.ports().map(|port| port.corrupted).sum());
        let trace = conversation.trace();
        let Judge { mut ledgers, received, failures } = conversation.into_observer();
        for ((at, _), (source, tag, message)) in received {
            let ledger = ledgers.entry((source, at, tag));
            ledger.or_insert_with(|| StreamLedger::new(Expectation::MustComplete)).record_delivery(&message);
        }
        let streams = ledgers.into_iter().map(|(stream, ledger)| (stream, ledger.judge())).collect();
        MessagingOutcome { streams, failures, is_complete, corrupted, detected, trace }
    }
}

/// Mostly short messages, some of the largest eager length, a few long ones.
fn random_length_bound(number: u64) -> u64 {
    match number % 20 {
        0 => 60_000,
        1..5 => 16_000,
        5..10 => 2_000,
        _ => 100,
    }
}
