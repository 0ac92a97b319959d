//! A trial of queue pairs on failing paths: from one number a fabric, connections, messages and a fault plan; then a run;
//! then a verdict.

use std::collections::BTreeSet;
use std::sync::Arc;

use oracle::{Expectation, StreamLedger, StreamVerdict};
use protocol::connection::path::{AlternateLoading, MigrationRole, PathPolicy};
use protocol::connection::{CongestionControl, ConnectionPolicy, LossRecovery, RetransmitTimer};
use protocol::queue_pair::{QpError, QpSabotage, QpState};
use simulator::fault::{FaultKind, FaultPlan, FaultRule};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::queue_pair::{
    ConnectionEndPlan, ConnectionEndReport, ConnectionPlan, HostProgram, LinkNotification, MessagePlan, MessageVerb,
    ProgramReport, ProgramStep, QueuePairObserver, QueuePairRunParameters, SimulatedQueuePairs, StreamId, way,
};
use simulator::{Forwarding, LinkParameters};
use topology::{Cable, Fabric, NodeId, NodePort};
use units::{PathId, Psn, Span, Time};

use crate::trial::Dice;

/// By then, in microseconds, everything that is to recover has recovered.
const CALM_AT: u64 = 3_500;
/// By then every end has found its way, and users give their last orders.
const LAST_ORDERS_AT: u64 = 20_000;
/// How long the longest outage may last.
const OUTAGE: u64 = 800;
/// How long everything may take, in virtual time.
const PATIENCE: Span = Span::from_micros(1_000_000);

/// How a trial is meant to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// At least one path of each connection is healthy in the end: everything must come.
    Delivered,
    /// All paths of every connection die for good: both ends must hear of it.
    Broken,
}

/// Everything that a trial is made of.
#[derive(Clone, Debug)]
pub struct PathTrial {
    /// The number that it was made from.
    pub seed: u64,
    /// The fabric.
    pub fabric: Arc<Fabric>,
    /// Links and switches.
    pub link: LinkParameters,
    /// Who talks to whom.
    pub parameters: QueuePairRunParameters,
    /// What goes wrong.
    pub plan: FaultPlan,
    /// A broken machine.
    pub sabotage: Option<(usize, QpSabotage)>,
    ending: Ending,
    /// The paths of each connection that are healthy in the end.
    whole: Vec<Vec<PathId>>,
    /// Connections that must be armed in the end.
    redundant: Vec<usize>,
}

/// How a trial went.
pub struct PathOutcome {
    /// What the oracle says of each direction of each connection.
    pub streams: Vec<StreamVerdict>,
    /// What else is wrong.
    pub complaints: Vec<String>,
    /// What became of each connection's ends.
    pub reports: Vec<[ConnectionEndReport; 2]>,
    /// What became of the users' orders.
    pub orders: Vec<ProgramReport>,
    /// When all was done.
    pub ended: Time,
    /// The digest of all events.
    pub trace: u64,
}

impl PathOutcome {
    /// True if nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.complaints.is_empty() && self.streams.iter().all(StreamVerdict::is_clean)
    }

    /// Messages that were looked at.
    pub fn checked(&self) -> u64 {
        self.streams.iter().map(|stream| stream.checked).sum()
    }

    /// How often an end moved to another path.
    pub fn migrations(&self) -> u32 {
        self.reports.iter().flatten().flat_map(|report| report.migrations.values()).sum()
    }
}

impl std::fmt::Display for PathOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.complaints.iter().try_for_each(|complaint| writeln!(f, "{complaint}"))?;
        for (number, stream) in self.streams.iter().enumerate() {
            writeln!(f, "stream {number}: {stream}")?;
        }
        for (number, [one, other]) in self.reports.iter().enumerate() {
            writeln!(f, "connection {number}:\n  {one:?}\n  {other:?}")?;
        }
        writeln!(f, "ended at {}", self.ended.since(Time::ZERO))
    }
}

impl PathTrial {
    /// A trial in which every connection keeps or gets back at least one path: every message must come.
    pub fn survivor(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut trial = Self::calm(seed, &mut dice);
        if seed % 8 == 5 {
            for plan in &mut trial.parameters.connections {
                // More than one report of gaps can tell of (P-28), and time for it to be sent.
                plan.policy.window = 200;
                plan.policy.timeout = plan.policy.timeout + Span::from_micros(300);
            }
        }
        trial.add_outages(&mut dice);
        trial.cut_what_may_be_cut(&mut dice);
        trial
    }

    /// A trial in which all paths die for good: both ends must hear of it, and what came must be a beginning.
    pub fn mortal(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
        let mut trial = Self::calm(seed, &mut dice);
        trial.ending = Ending::Broken;
        trial.add_outages(&mut dice);
        let dies_at = CALM_AT + dice.below(200);
        for plan in &mut trial.parameters.connections {
            plan.policy.retry_limit = dice.pick(&[3, 7, 12]);
            let host = dice.pick(&[plan.ends[0].host, plan.ends[1].host]);
            let name = trial.fabric.name(host);
            trial.plan.rules.push(FaultRule::new(FaultKind::Kill).at_node(name).lasting(dies_at as f64, None));
            for end in &mut plan.ends {
                // Something is said after the death, or nobody would miss the other end.
                let not_before = at(dies_at + dice.below(1_000));
                end.messages.push(MessagePlan { not_before, length: 1_000, kind: MessageVerb::NumberedSend });
            }
        }
        trial
    }

    /// The same, with users who load and migrate by hand at random moments: what cannot be done is refused, and nothing else
    /// may come of it. Half of them also leave all loading to their users; where two paths are healthy in the end and nothing
    /// else goes wrong, what these load then is armed.
    pub fn with_orders(mut self) -> Self {
        // Dice of their own, so that the rest of a trial is that of its seed.
        let mut dice = Dice(self.seed.wrapping_mul(0xa076_1d64_78bd_642f) | 1);
        // Lost probes make connections move for ever, and an order is void if its connection moves.
        let is_cut = |rule: &FaultRule| matches!(rule.kind.get_ref(), FaultKind::Down | FaultKind::Kill);
        let only_cuts = self.plan.rules.iter().all(is_cut);
        for (connection, plan) in self.parameters.connections.iter_mut().enumerate() {
            let mut last_orders = Vec::new();
            if dice.below(2) == 0 {
                plan.path_policy.loading = AlternateLoading::ByHand;
                if only_cuts && self.redundant.contains(&connection) {
                    last_orders = last_orders_for(connection, &self.whole[connection]);
                }
                self.redundant.retain(|number| *number != connection);
            }
            // Both users often mean the same path, or nothing would ever be armed by hand.
            let moments: Vec<(u64, u64)> = (0..1 + dice.below(6))
                .map(|_| (dice.below(CALM_AT), dice.below(u64::from(plan.paths) + 1)))
                .collect();
            for end in &plan.ends {
                let mut orders: Vec<(u64, ProgramStep)> = Vec::new();
                for (moment, path) in &moments {
                    let other = dice.below(u64::from(plan.paths) + 1);
                    let path = PathId(if dice.below(4) == 0 { other } else { *path } as u8);
                    orders.push((moment + dice.below(50), ProgramStep::Load { connection, path }));
                    orders.push((moment + dice.below(300), ProgramStep::Migrate { connection }));
                }
                orders.sort_by_key(|(moment, _)| *moment);
                let steps = orders.into_iter().flat_map(|(moment, order)| [ProgramStep::Until(at(moment)), order]);
                let steps = steps.chain(last_orders.iter().copied()).collect();
                self.parameters.programs.push(HostProgram { host: end.host, steps });
            }
        }
        self
    }

    /// The same, but nothing is asked of alternate paths in the end: for plans that leave one path.
    pub fn without_redundancy(self) -> Self {
        Self { redundant: Vec::new(), ..self }
    }

    /// Everything but the faults that come and go.
    fn calm(seed: u64, dice: &mut Dice) -> Self {
        let fabric = Arc::new(small_fabric(dice));
        let count = 1 + dice.below(6) as usize;
        let connections = (0..count).map(|_| connection(dice, &fabric, count as u64)).collect();
        let link = LinkParameters {
            byte_time: ByteTime::of(LinkWidth::X4, dice.pick(&[LinkRate::Sdr, LinkRate::Qdr])),
            wire: Span::from_nanos(dice.below(50)),
            switch_delay: Span::from_nanos(50 + dice.below(100)),
            adapter_delay: Span::from_nanos(50 + dice.below(400)),
            forwarding: dice.pick(&[Forwarding::CutThrough, Forwarding::StoreAndForward]),
            virtual_lanes: dice.pick(&[1, 2]),
            buffer_bytes: dice.pick(&[4_608, 16_384]),
            adapter_lanes: 1,
        };
        let rules = (0..dice.below(4)).map(|_| soft_rule(dice, &fabric)).collect();
        Self {
            seed,
            fabric,
            link,
            parameters: QueuePairRunParameters {
                connections,
                notice: dice.pick(&[LinkNotification::Noticed, LinkNotification::Silent]),
                programs: Vec::new(),
            },
            plan: FaultPlan { seed: None, rules },
            sabotage: None,
            ending: Ending::Delivered,
            whole: vec![Vec::new(); count],
            redundant: Vec::new(),
        }
    }

    /// Cables that flap, cables that carry one way only for a while, nodes that are away for a while.
    fn add_outages(&mut self, dice: &mut Dice) {
        let cables: Vec<Cable> = self.fabric.cables().collect();
        for _ in 0..dice.below(5) {
            let begins = dice.below(2_000) as f64;
            let length = (5 + dice.below(OUTAGE)) as f64;
            match dice.below(4) {
                0 => {
                    let node = self.fabric.name(NodeId(dice.below(u64::from(self.fabric.nodes())) as u32));
                    let rule = FaultRule::new(FaultKind::Kill).at_node(node);
                    self.plan.rules.push(rule.lasting(begins, Some(length)));
                }
                1 => {
                    let link = self.link(cables[dice.below(cables.len() as u64) as usize], dice);
                    let times = 2 + dice.below(5);
                    let (length, pause) = (length / times as f64, dice.below(100) as f64);
                    self.plan.rules.extend((0..times).map(|time| {
                        let begins = begins + time as f64 * (length + pause);
                        FaultRule::new(FaultKind::Down).on(link.clone()).lasting(begins, Some(length))
                    }));
                }
                _ => {
                    let link = self.link(cables[dice.below(cables.len() as u64) as usize], dice);
                    self.plan.rules.push(FaultRule::new(FaultKind::Down).on(link).lasting(begins, Some(length)));
                }
            }
        }
    }

    /// A cable as plans call it, both directions or one.
    fn link(&self, cable: Cable, dice: &mut Dice) -> String {
        let name = |end: NodePort| self.fabric.name(end.node);
        let (a, b) = (name(cable.a), name(cable.b));
        match dice.below(4) {
            0 => format!("{a}>{b}"),
            1 => format!("{b}>{a}"),
            _ => format!("{a}-{b}"),
        }
    }

    /// Cuts cables for good, but leaves each connection one path whole.
    fn cut_what_may_be_cut(&mut self, dice: &mut Dice) {
        let mut kept = BTreeSet::new();
        for plan in &self.parameters.connections {
            kept.extend(self.cables_of(plan, PathId(dice.below(u64::from(plan.paths)) as u8)));
        }
        let free: Vec<Cable> = self.fabric.cables().filter(|cable| !kept.contains(cable)).collect();
        let mut cut = BTreeSet::new();
        for _ in 0..dice.below(4).min(free.len() as u64) {
            let cable = free[dice.below(free.len() as u64) as usize];
            cut.insert(cable);
            let rule = FaultRule::new(FaultKind::Down).on(self.link(cable, dice));
            self.plan.rules.push(rule.lasting(dice.below(CALM_AT) as f64, None));
        }
        let is_whole = |plan: &ConnectionPlan, path: &PathId| self.cables_of(plan, *path).is_disjoint(&cut);
        let whole = |plan: &ConnectionPlan| (0..plan.paths).map(PathId).filter(|path| is_whole(plan, path)).collect();
        self.whole = self.parameters.connections.iter().map(whole).collect();
        self.redundant = (0..self.whole.len()).filter(|number| self.whole[*number].len() > 1).collect();
    }

    /// What a path needs, there and back.
    fn cables_of(&self, plan: &ConnectionPlan, path: PathId) -> BTreeSet<Cable> {
        let [one, other] = [plan.ends[0].host, plan.ends[1].host];
        let ways = way(&self.fabric, one, other, path).into_iter().flatten();
        ways.flat_map(|way| way.hops).filter_map(|hop| self.fabric.cable(hop)).collect()
    }

    /// Runs it and asks the oracle.
    pub fn run(&self) -> PathOutcome {
        let expectation = match self.ending {
            Ending::Delivered => Expectation::MustComplete,
            Ending::Broken => Expectation::MayFail,
        };
        let count = self.parameters.connections.len();
        let judge = Judge { streams: vec![StreamLedger::new(expectation); 2 * count] };
        let mut exchange = SimulatedQueuePairs::new(
            self.fabric.clone(),
            self.link.clone(),
            &self.parameters,
            &self.plan,
            self.seed,
            judge,
        )
        .unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        if let Some((end, sabotage)) = self.sabotage {
            exchange.sabotage(end, sabotage);
        }
        let mut complaints = Vec::new();
        match self.ending {
            Ending::Delivered => {
                if !exchange.run_until_delivered(PATIENCE) || !exchange.run_until_finished(PATIENCE) {
                    complaints.push("it hangs: not everything has come".to_owned());
                }
                for connection in &self.redundant {
                    if complaints.is_empty() && !exchange.run_until_armed(*connection, PATIENCE) {
                        complaints.push(format!("connection {connection} has two healthy paths and is not armed"));
                    }
                }
            }
            Ending::Broken => {
                if !exchange.run_until_broken(PATIENCE) {
                    complaints.push("an end has not heard that the other is lost".to_owned());
                }
            }
        }
        let reports: Vec<_> = exchange.reports().collect();
        let orders: Vec<_> = exchange.programs().cloned().collect();
        for (number, report) in reports.iter().flatten().enumerate() {
            complaints.extend(self.complaint(number, report));
        }
        let (ended, trace) = (exchange.now(), exchange.trace());
        let streams = exchange.into_witness().streams.into_iter().map(StreamLedger::judge).collect();
        PathOutcome { streams, complaints, reports, orders, ended, trace }
    }

    fn complaint(&self, end: usize, report: &ConnectionEndReport) -> Option<String> {
        let messages = self.parameters.connections[end / 2].ends[end % 2].messages.len() as u64;
        match self.ending {
            Ending::Delivered if report.state != QpState::ReadyToSend => {
                Some(format!("end {end} is in state {}", report.state))
            }
            Ending::Delivered if report.sent != messages => {
                Some(format!("end {end}: {} of {messages} sends were completed", report.sent))
            }
            Ending::Broken if report.state != QpState::Error => Some(format!("end {end} has not failed")),
            Ending::Broken if !matches!(report.failure, Some(QpError::Unreachable(_))) => {
                Some(format!("end {end} failed for a wrong reason"))
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for PathTrial {
    /// What a person needs to see when a seed fails.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, fabric, link, parameters, plan, ending, sabotage, whole, redundant } = self;
        writeln!(f, "seed {seed}: {ending:?} over {fabric}, {sabotage:?}, {:?}\n{link:?}", parameters.notice)?;
        for (number, plan) in parameters.connections.iter().enumerate() {
            let whole = &whole[number];
            let armed = if redundant.contains(&number) { ", armed" } else { "" };
            let ConnectionPlan { paths, policy, path_policy, mtu, .. } = plan;
            writeln!(
                f,
                "connection {number}: {paths} paths, in the end {whole:?}{armed}, mtu {mtu}\n  {policy:?}\n  {path_policy:?}"
            )?;
            for ConnectionEndPlan { host, role, messages, sends_at_once, receives, repost_after, .. } in &plan.ends {
                let bytes: u64 = messages.iter().map(|message| u64::from(message.length)).sum();
                let many = messages.len();
                writeln!(
                    f,
                    "  {host:?} {role:?}: {many} messages, {bytes} bytes, {sends_at_once} at once, {receives} receives, {repost_after}"
                )?;
            }
        }
        for HostProgram { host, steps } in &parameters.programs {
            writeln!(f, "{host:?}: {steps:?}")?;
        }
        for rule in &plan.rules {
            let text = |text: &Option<toml::Spanned<String>>| text.as_ref().map(|text| text.get_ref().clone());
            let value = |value: &Option<toml::Spanned<f64>>| value.as_ref().map(|value| *value.get_ref());
            let (link, node, kind) = (text(&rule.link), text(&rule.node), rule.kind.get_ref());
            let (chance, at, length) = (value(&rule.probability), value(&rule.at_us), value(&rule.for_us));
            writeln!(f, "{kind:?} link {link:?} node {node:?} chance {chance:?} at {at:?} for {length:?}")?;
        }
        Ok(())
    }
}

struct Judge {
    streams: Vec<StreamLedger>,
}

impl QueuePairObserver for Judge {
    fn sent(&mut self, stream: StreamId, message: &[u8]) {
        self.streams[stream.index()].record_sent(message);
    }

    fn delivered(&mut self, stream: StreamId, message: &[u8]) {
        self.streams[stream.index()].record_delivery(message);
    }

    fn failed(&mut self, stream: StreamId, cause: &str) {
        self.streams[stream.index()].record_failure(cause.to_owned());
    }
}

/// Loads whatever is healthy and not in use, and waits until it is armed.
fn last_orders_for(connection: usize, whole: &[PathId]) -> Vec<ProgramStep> {
    let loads = whole.iter().map(|path| ProgramStep::Load { connection, path: *path });
    [ProgramStep::Until(at(LAST_ORDERS_AT))]
        .into_iter()
        .chain(loads)
        .chain([ProgramStep::Armed { connection }])
        .collect()
}

fn at(micros: u64) -> Time {
    Time::ZERO + Span::from_micros(micros)
}

/// Two to eight hosts with several ports, or with one port and a choice of routes.
fn small_fabric(dice: &mut Dice) -> Fabric {
    let shapes: [(&[u32], &[u32]); 10] = [
        (&[2], &[2]),
        (&[4], &[2]),
        (&[8], &[2]),
        (&[3], &[3]),
        (&[2], &[4]),
        (&[2, 2], &[2, 2]),
        (&[4, 2], &[1, 2]),
        (&[2, 2], &[1, 4]),
        (&[2, 4], &[2, 1]),
        (&[2, 2, 2], &[1, 2, 2]),
    ];
    let (children, parents) = dice.pick(&shapes);
    Fabric::xgft(children, parents).expect("small shapes are fine")
}

fn connection(dice: &mut Dice, fabric: &Fabric, connections: u64) -> ConnectionPlan {
    let hosts = u64::from(fabric.hosts());
    let one = dice.below(hosts);
    let other = (one + 1 + dice.below(hosts - 1)) % hosts;
    let mtu = dice.pick(&[256, 512, 1_024, 4_096]);
    let policy = policy(dice, mtu, connections);
    let leader = dice.below(2);
    let wraps = dice.below(4) == 0;
    let mut end = |host: u64, number: u64| ConnectionEndPlan {
        host: NodeId(host as u32),
        role: if number == leader { MigrationRole::Leader } else { MigrationRole::Follower },
        first_psn: Psn::new(if wraps { 0xff_ffff - dice.below(40) as u32 } else { dice.below(1 << 24) as u32 }),
        messages: messages(dice, mtu),
        sends_at_once: dice.pick(&[1, 2, 16]),
        receives: dice.pick(&[1, 2, 8, 64]),
        repost_after: Span::from_nanos(dice.pick(&[0, 0, 0, 1_000, 50_000])),
    };
    let ends = [end(one, 0), end(other, 1)];
    let path_policy = PathPolicy {
        probe_every: Span::from_micros(dice.pick(&[100, 300, 1_000])),
        probe_timeout: Span::from_micros(dice.pick(&[20, 50, 100])),
        misses: dice.pick(&[1, 2, 3]),
        failback_after: Span::from_micros(dice.pick(&[100, 500, 2_000])),
        damage_limit: dice.pick(&[None, Some(10), Some(50)]),
        loading: AlternateLoading::Automatic,
    };
    ConnectionPlan { ends, paths: 2 + dice.below(3) as u8, policy, path_policy, mtu }
}

fn policy(dice: &mut Dice, mtu: u32, connections: u64) -> ConnectionPolicy {
    let window = dice.pick(&[2, 4, 16, 64]);
    // What may lie in queues before a packet at one byte a nanosecond, there and back.
    let queues = Span::from_nanos(2 * connections * u64::from(window) * u64::from(mtu));
    ConnectionPolicy {
        window,
        pace: dice.pick(&[CongestionControl::Fixed, CongestionControl::Adaptive]),
        acknowledge_every: dice.pick(&[1, 4, 16]),
        timeout: queues.min(Span::from_micros(400)) + Span::from_micros(dice.pick(&[20, 60, 150])),
        timer: dice.pick(&[RetransmitTimer::Fixed, RetransmitTimer::Measured]),
        retry_limit: 255,
        path_retries: dice.pick(&[1, 2, 3]),
        refusal_limit: u16::MAX,
        repair: dice.pick(&[LossRecovery::GoBackN, LossRecovery::Selective]),
        ..ConnectionPolicy::datagram()
    }
}

fn messages(dice: &mut Dice, mtu: u32) -> Vec<MessagePlan> {
    let mut bytes = 0;
    let count = 1 + dice.below(16);
    let spread = dice.pick(&[1, 500, 2_500]);
    let mut times: Vec<u64> = (0..count).map(|_| dice.below(spread)).collect();
    times.sort_unstable();
    let message = |not_before: u64| {
        let longest = if bytes > 150_000 { 2_000 } else { 100_000 };
        let length = match dice.below(8) {
            0 => 0,
            1 => mtu * (1 + dice.below(3) as u32),
            2 => (mtu * (1 + dice.below(3) as u32)).saturating_add_signed(dice.below(3) as i32 - 1),
            3 => dice.below(longest) as u32,
            4 | 5 => dice.below(64) as u32,
            _ => dice.below(5_000) as u32,
        };
        bytes += u64::from(length);
        let kind = dice.pick(&[MessageVerb::Send, MessageVerb::NumberedSend, MessageVerb::Write]);
        MessagePlan { not_before: at(not_before), length, kind }
    };
    times.into_iter().map(message).collect()
}

fn soft_rule(dice: &mut Dice, fabric: &Fabric) -> FaultRule {
    let kind = dice.pick(&[
        FaultKind::Flip,
        FaultKind::Flip,
        FaultKind::Memory,
        FaultKind::Lose,
        FaultKind::Lose,
        FaultKind::Duplicate,
        FaultKind::Delay,
        FaultKind::Reorder,
        FaultKind::Malform,
        FaultKind::Misroute,
        FaultKind::Overrun,
    ]);
    let mut rule = FaultRule::new(kind);
    if dice.below(3) == 0 {
        let cables: Vec<Cable> = fabric.cables().collect();
        let cable = cables[dice.below(cables.len() as u64) as usize];
        rule = rule.on(format!("{}>{}", fabric.name(cable.a.node), fabric.name(cable.b.node)));
    }
    if kind == FaultKind::Delay {
        rule = rule.up_to_ns(dice.pick(&[1_000.0, 10_000.0, 50_000.0]));
    }
    match dice.below(4) {
        0 => rule.nth(1 + dice.below(20)),
        _ => rule.with_probability(dice.pick(&[0.001, 0.01, 0.05])),
    }
}
