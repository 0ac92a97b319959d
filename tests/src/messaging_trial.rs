//! A trial of checked messages: from one number a fabric, ranks, rails, messages and everything that befalls them; then a run;
//! then a verdict.

use std::collections::BTreeMap;
use std::sync::Arc;

use oracle::{Expectation, StreamLedger, StreamVerdict};
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::PathPolicy;
use protocol::messaging::{MessageSelector, MessagingSettings};
use simulator::fault::{FaultKind, FaultPlan, FaultRule};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::messaging::{
    CorruptionPoint, MessagingCommand, MessagingObserver, MessagingOperation, MessagingRunParameters,
    SimulatedMessaging,
};
use simulator::queue_pair::LinkNotification;
use simulator::{Forwarding, LinkParameters};
use topology::{Fabric, NodeId};
use units::{Rank, Span, Time};

use crate::trial::Dice;

/// How long everything may take, in virtual time.
const PATIENCE: Span = Span::from_micros(60_000_000);

/// Everything that a trial is made of.
#[derive(Clone, Debug)]
pub struct MessagingTrial {
    /// The number that it was made from.
    pub seed: u64,
    fabric: Arc<Fabric>,
    link: LinkParameters,
    /// Who says what.
    pub parameters: MessagingRunParameters,
    /// What goes wrong with packets.
    pub plan: FaultPlan,
}

/// How a trial went.
pub struct MessagingOutcome {
    /// What the oracle says of each pair of ranks and tag.
    pub streams: Vec<((Rank, Rank, u64), StreamVerdict)>,
    /// Sends and receives that failed.
    pub failures: Vec<String>,
    /// Whether everything ended.
    pub is_over: bool,
    /// Parcels spoiled on purpose, and those that ports found spoiled.
    pub spoiled: u64,
    /// See [`Self::spoiled`].
    pub found: u64,
    /// The digest of all events.
    pub trace: u64,
}

impl MessagingOutcome {
    /// True if every message came once, in order, unaltered.
    pub fn is_clean(&self) -> bool {
        let clean = |verdict: &StreamVerdict| verdict.violations.is_empty() && verdict.unlisted_violations == 0;
        self.is_over && self.failures.is_empty() && self.streams.iter().all(|(_, verdict)| clean(verdict))
    }

    /// Messages that the oracle has looked at.
    pub fn checked(&self) -> u64 {
        self.streams.iter().map(|(_, verdict)| verdict.checked).sum()
    }

    /// What is wrong.
    pub fn complaints(&self) -> String {
        let bad = self.streams.iter().filter(|(_, verdict)| !verdict.violations.is_empty());
        let lines =
            bad.map(|((from, to, tag), verdict)| format!("{from} to {to}, tag {tag}: {:?}", verdict.violations));
        let end = if self.is_over { "over" } else { "not over" };
        lines.chain([format!("{end}, {:?}", self.failures)]).collect::<Vec<_>>().join("\n")
    }
}

#[derive(Default)]
struct Judge {
    ledgers: BTreeMap<(Rank, Rank, u64), StreamLedger>,
    /// By the order in which receives were posted: that is the order in which messages must match.
    received: BTreeMap<(Rank, u64), (Rank, u64, Vec<u8>)>,
    failures: Vec<String>,
}

impl MessagingObserver for Judge {
    fn sent(&mut self, from: Rank, to: Rank, tag: u64, message: &[u8]) {
        let ledger = self.ledgers.entry((from, to, tag));
        ledger.or_insert_with(|| StreamLedger::new(Expectation::MustComplete)).record_sent(message);
    }

    fn received(&mut self, _: Time, at: Rank, receive: u64, source: Rank, tag: u64, message: &[u8]) {
        self.received.insert((at, receive), (source, tag, message.to_vec()));
    }

    fn failed(&mut self, at: Rank, why: &str) {
        self.failures.push(format!("{at}: {why}"));
    }
}

impl MessagingTrial {
    /// Random traffic, random faults, of which none is for good on all rails of a pair.
    pub fn random(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let fabric = Arc::new(Fabric::xgft(&[2, 2], &[2, 2]).expect("a small one"));
        let ranks = 2 + dice.below(3) as u32;
        let settings = MessagingSettings {
            credit_bytes: dice.pick(&[70_000, 1 << 20]),
            depth: 1 + dice.below(4) as usize,
            letter_depth: 1 + dice.below(4) as usize,
            piece_bytes: dice.pick(&[16 << 10, 64 << 10, 128 << 10]),
            ..MessagingSettings::default()
        };
        let (rails, paths) = (1 + dice.below(3) as u8, 1 + dice.below(2) as u8);
        let mut trial = Self::quiet(seed, fabric, ranks, rails, paths, settings);
        trial.add_faults(&mut dice);
        if seed.is_multiple_of(2) {
            trial.parameters.policy = ConnectionPolicy::conversation();
        }
        let spoil_one_in = dice.pick(&[2, 5, 1_000_000]);
        let mut micros = 0;
        for _ in 0..10 + dice.below(30) {
            let from = Rank(dice.below(ranks.into()) as u32);
            let to = Rank((from.0 + 1 + dice.below(u64::from(ranks) - 1) as u32) % ranks);
            let tag = dice.below(3);
            let most = dice.pick(&[64, 2_000, 17_000, 200_000]);
            let spoils = [CorruptionPoint::BeforeTheCheck, CorruptionPoint::AfterTheCheck];
            let spoil = if dice.below(spoil_one_in) == 0 { dice.pick(&spoils) } else { CorruptionPoint::Nowhere };
            let send = MessagingOperation::Send { to, tag, length: dice.below(most) as usize, spoil };
            let receive = MessagingOperation::Receive { wanted: MessageSelector::from(from, tag), room: 200_000 };
            let mut pair = [(from, send), (to, receive)];
            if dice.below(2) == 0 {
                pair.reverse();
            }
            for (rank, action) in pair {
                let at = Time::ZERO + Span::from_micros(micros);
                trial.parameters.orders.push(MessagingCommand { at, rank, action });
                micros += dice.below(30);
            }
        }
        trial
    }

    /// So many messages between two ranks, each with one bit flipped where no packet's check sees it: in the header, in the seal, in
    /// the data. Each travels in a parcel of its own, the next when the last has had time to come.
    pub fn spoiled(seed: u64, messages: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let fabric = Arc::new(Fabric::xgft(&[2, 2], &[2, 2]).expect("a small one"));
        let settings = MessagingSettings { gather_bytes: 0, ..MessagingSettings::default() };
        let mut trial = Self::quiet(seed, fabric, 2, 2, 1, settings);
        for number in 0..messages {
            let at = Time::ZERO + Span::from_micros(number * 200);
            let (from, to) = (Rank((number % 2) as u32), Rank((1 - number % 2) as u32));
            let length = 1 + dice.below(dice_length(number)) as usize;
            let spoil = dice.pick(&[CorruptionPoint::BeforeTheCheck, CorruptionPoint::AfterTheCheck]);
            let wanted = MessageSelector::from(from, 1);
            let orders = &mut trial.parameters.orders;
            orders.push(MessagingCommand {
                at,
                rank: to,
                action: MessagingOperation::Receive { wanted, room: length },
            });
            orders.push(MessagingCommand {
                at,
                rank: from,
                action: MessagingOperation::Send { to, tag: 1, length, spoil },
            });
        }
        trial
    }

    fn quiet(seed: u64, fabric: Arc<Fabric>, ranks: u32, rails: u8, paths: u8, settings: MessagingSettings) -> Self {
        let link = LinkParameters {
            byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Qdr),
            wire: Span::from_nanos(10),
            switch_delay: Span::from_nanos(100),
            adapter_delay: Span::from_nanos(200),
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
            settings,
            notice: LinkNotification::Noticed,
            costs: None,
            orders: Vec::new(),
        };
        Self { seed, fabric, link, parameters, plan: FaultPlan::default() }
    }

    fn add_faults(&mut self, dice: &mut Dice) {
        let soft = [FaultKind::Flip, FaultKind::Memory, FaultKind::Lose, FaultKind::Duplicate, FaultKind::Reorder];
        for kind in soft {
            if dice.below(2) == 0 {
                let probability = dice.pick(&[0.001, 0.01, 0.03]);
                self.plan.rules.push(FaultRule::new(kind).on("*").with_probability(probability));
            }
        }
        self.parameters.notice = dice.pick(&[LinkNotification::Noticed, LinkNotification::Silent]);
        let switch =
            NodeId(self.fabric.hosts() + dice.below(u64::from(self.fabric.nodes() - self.fabric.hosts())) as u32);
        let kill = FaultRule::new(FaultKind::Kill).at_node(self.fabric.name(switch));
        let at = dice.below(500) as f64;
        match dice.below(4) {
            0 => self.plan.rules.push(kill.lasting(at, Some(1.0 + dice.below(800) as f64))),
            // For good, where another rail is left.
            1 if self.parameters.rails > 1 => self.plan.rules.push(kill.lasting(at, None)),
            _ => {}
        }
    }

    /// Runs it.
    ///
    /// # Panics
    /// If it cannot be set up.
    pub fn run(&self) -> MessagingOutcome {
        let Self { seed, fabric, link, parameters, plan } = self;
        let mut talk =
            SimulatedMessaging::new(Arc::clone(fabric), link.clone(), parameters, plan, *seed, Judge::default())
                .expect("sound");
        let is_over = talk.run(PATIENCE);
        let (spoiled, found) = (talk.spoiled(), talk.ports().map(|port| port.spoiled).sum());
        let trace = talk.trace();
        let Judge { mut ledgers, received, failures } = talk.into_witness();
        for ((at, _), (source, tag, message)) in received {
            let ledger = ledgers.entry((source, at, tag));
            ledger.or_insert_with(|| StreamLedger::new(Expectation::MustComplete)).record_delivery(&message);
        }
        let streams = ledgers.into_iter().map(|(stream, ledger)| (stream, ledger.judge())).collect();
        MessagingOutcome { streams, failures, is_over, spoiled, found, trace }
    }
}

/// Mostly small ones, some as long as an eager message may be, now and then a long one.
fn dice_length(number: u64) -> u64 {
    match number % 20 {
        0 => 60_000,
        1..5 => 16_000,
        5..10 => 2_000,
        _ => 100,
    }
}
