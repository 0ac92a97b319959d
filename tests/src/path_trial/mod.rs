//! A trial of queue pairs on failing paths: a seed determines a fabric, connections, messages and a fault plan; the run yields
//! a verdict.

mod display;
mod generate;

use std::collections::BTreeSet;
use std::sync::Arc;

use oracle::{Expectation, StreamLedger, StreamVerdict};
use protocol::connection::path::AlternateLoading;
use protocol::queue_pair::{QpError, QpSabotage, QpState};
use simulator::fault::{FaultKind, FaultPlan, FaultRule};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::queue_pair::{
    ConnectionEndReport, ConnectionPlan, HostProgram, LinkNotification, MessagePlan, MessageVerb, ProgramReport,
    ProgramStep, QueuePairObserver, QueuePairRunParameters, SimulatedQueuePairs, StreamId, path_route,
};
use simulator::{Forwarding, LinkParameters};
use topology::{Cable, Fabric, NodeId, NodePort};
use units::{PathId, SimSpan, SimTime};

use crate::test_rng::TestRng;

use generate::{connection, small_fabric, soft_rule};

/// In microseconds: by then every transient fault has ended.
const FAULTS_END_AT_US: u64 = 3_500;
/// In microseconds: by then every end uses a healthy path, and users issue their last commands.
const LAST_COMMANDS_AT_US: u64 = 20_000;
/// The longest outage, in microseconds.
const MAX_OUTAGE_US: u64 = 800;
/// The limit of a run, in virtual time.
const PATIENCE: SimSpan = SimSpan::from_micros(1_000_000);

/// The required outcome of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// At least one path of each connection is healthy in the end: every message must arrive.
    Delivered,
    /// All paths of every connection fail permanently: both ends must report it.
    Broken,
}

/// A trial.
#[derive(Clone, Debug)]
pub struct PathTrial {
    /// The seed that determines all else.
    pub seed: u64,
    /// The fabric.
    pub fabric: Arc<Fabric>,
    /// Links and switches.
    pub link: LinkParameters,
    /// The connections.
    pub parameters: QueuePairRunParameters,
    /// The faults.
    pub plan: FaultPlan,
    /// A defect in the queue pair at the end of this index.
    pub sabotage: Option<(usize, QpSabotage)>,
    ending: Ending,
    /// The paths of each connection that are healthy in the end.
    intact: Vec<Vec<PathId>>,
    /// Connections that must be armed in the end.
    redundant: Vec<usize>,
}

/// The outcome of a trial.
pub struct PathOutcome {
    /// The oracle's verdict on each direction of each connection.
    pub streams: Vec<StreamVerdict>,
    /// Other requirements that the run did not meet.
    pub problems: Vec<String>,
    /// The final state of each connection's ends.
    pub reports: Vec<[ConnectionEndReport; 2]>,
    /// The outcome of the users' commands.
    pub orders: Vec<ProgramReport>,
    /// When the run ended.
    pub ended: SimTime,
    /// The digest of all events.
    pub trace: u64,
}

impl PathOutcome {
    /// Whether the run met all requirements.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.streams.iter().all(StreamVerdict::is_clean)
    }

    /// The number of messages checked.
    pub fn checked(&self) -> u64 {
        self.streams.iter().map(|stream| stream.checked).sum()
    }

    /// The number of migrations, over all ends.
    pub fn migrations(&self) -> u32 {
        self.reports.iter().flatten().flat_map(|report| report.migrations.values()).sum()
    }
}

impl PathTrial {
    /// A trial in which every connection keeps or regains at least one path: every message must arrive.
    pub fn recoverable(seed: u64) -> Self {
        let mut rng = TestRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut trial = Self::without_outages(seed, &mut rng);
        if seed % 8 == 5 {
            for plan in &mut trial.parameters.connections {
                // A gap longer than one gap report can describe (P-11), and time to send it.
                plan.policy.window = 200;
                plan.policy.timeout = plan.policy.timeout + units::Span::from_micros(300);
            }
        }
        trial.add_outages(&mut rng);
        trial.cut_redundant_cables(&mut rng);
        trial
    }

    /// A trial in which all paths fail permanently: both ends must report it, and the messages delivered must be a prefix of
    /// those sent.
    pub fn fatal(seed: u64) -> Self {
        let mut rng = TestRng(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
        let mut trial = Self::without_outages(seed, &mut rng);
        trial.ending = Ending::Broken;
        trial.add_outages(&mut rng);
        let fails_at = FAULTS_END_AT_US + rng.below(200);
        for plan in &mut trial.parameters.connections {
            plan.policy.retry_limit = rng.pick(&[3, 7, 12]);
            let host = rng.pick(&[plan.ends[0].host, plan.ends[1].host]);
            let name = trial.fabric.name(host);
            trial.plan.rules.push(FaultRule::new(FaultKind::Kill).at_node(name).lasting(fails_at as f64, None));
            for end in &mut plan.ends {
                // Each end sends after the failure; without traffic neither end would detect it.
                let not_before = at(fails_at + rng.below(1_000));
                end.messages.push(MessagePlan { not_before, length: 1_000, kind: MessageVerb::NumberedSend });
            }
        }
        trial
    }

    /// The same, with users who load alternate paths and migrate manually at random times. An impossible command must be rejected
    /// without other effect. For half of the connections all loading is manual; where two paths are healthy in the end and there are
    /// no other faults, the path that the users load last must become armed.
    pub fn with_user_commands(mut self) -> Self {
        // A generator of its own, so that the rest of the trial stays the one of its seed.
        let mut rng = TestRng(self.seed.wrapping_mul(0xa076_1d64_78bd_642f) | 1);
        // Lost probes cause endless migrations, and a migration cancels a command.
        let is_cut = |rule: &FaultRule| !rule.kind.get_ref().is_of_packets();
        let only_cuts = self.plan.rules.iter().all(is_cut);
        for (connection, plan) in self.parameters.connections.iter_mut().enumerate() {
            let mut last_commands = Vec::new();
            if rng.below(2) == 0 {
                plan.path_policy.loading = AlternateLoading::Manual;
                if only_cuts && self.redundant.contains(&connection) {
                    last_commands = last_commands_for(connection, &self.intact[connection]);
                }
                self.redundant.retain(|number| *number != connection);
            }
            // Both users often pick the same path; otherwise manual loading would rarely arm a path.
            let moments: Vec<(u64, u64)> = (0..1 + rng.below(6))
                .map(|_| (rng.below(FAULTS_END_AT_US), rng.below(u64::from(plan.paths) + 1)))
                .collect();
            for end in &plan.ends {
                let mut orders: Vec<(u64, ProgramStep)> = Vec::new();
                for (moment, path) in &moments {
                    let other = rng.below(u64::from(plan.paths) + 1);
                    let path = PathId(if rng.below(4) == 0 { other } else { *path } as u8);
                    orders.push((moment + rng.below(50), ProgramStep::Load { connection, path }));
                    orders.push((moment + rng.below(300), ProgramStep::Migrate { connection }));
                }
                orders.sort_by_key(|(moment, _)| *moment);
                let steps = orders.into_iter().flat_map(|(moment, order)| [ProgramStep::Until(at(moment)), order]);
                let steps = steps.chain(last_commands.iter().copied()).collect();
                self.parameters.programs.push(HostProgram { host: end.host, steps });
            }
        }
        self
    }

    /// The same without a requirement on alternate paths in the end: for fault plans that leave one path.
    pub fn without_redundancy(self) -> Self {
        Self { redundant: Vec::new(), ..self }
    }

    /// Everything except transient outages.
    fn without_outages(seed: u64, rng: &mut TestRng) -> Self {
        let fabric = Arc::new(small_fabric(rng));
        let count = 1 + rng.below(6) as usize;
        let connections = (0..count).map(|_| connection(rng, &fabric, count as u64)).collect();
        let link = LinkParameters {
            byte_time: ByteTime::of(LinkWidth::X4, rng.pick(&[LinkRate::Sdr, LinkRate::Qdr])),
            wire: SimSpan::from_nanos(rng.below(50)),
            switch_delay: SimSpan::from_nanos(50 + rng.below(100)),
            adapter_delay: SimSpan::from_nanos(50 + rng.below(400)),
            forwarding: rng.pick(&[Forwarding::CutThrough, Forwarding::StoreAndForward]),
            virtual_lanes: rng.pick(&[1, 2]),
            buffer_bytes: rng.pick(&[4_608, 16_384]),
            adapter_lanes: 1,
        };
        let rules = (0..rng.below(4)).map(|_| soft_rule(rng, &fabric)).collect();
        Self {
            seed,
            fabric,
            link,
            parameters: QueuePairRunParameters {
                connections,
                notice: rng.pick(&[LinkNotification::Notified, LinkNotification::Silent]),
                programs: Vec::new(),
            },
            plan: FaultPlan { seed: None, rules },
            sabotage: None,
            ending: Ending::Delivered,
            intact: vec![Vec::new(); count],
            redundant: Vec::new(),
        }
    }

    /// Flapping cables, cables that fail in one direction, and nodes that fail, all for a limited time.
    fn add_outages(&mut self, rng: &mut TestRng) {
        let cables: Vec<Cable> = self.fabric.cables().collect();
        for _ in 0..rng.below(5) {
            let begins = rng.below(2_000) as f64;
            let length = (5 + rng.below(MAX_OUTAGE_US)) as f64;
            match rng.below(4) {
                0 => {
                    let node = self.fabric.name(NodeId(rng.below(u64::from(self.fabric.nodes())) as u32));
                    let rule = FaultRule::new(FaultKind::Kill).at_node(node);
                    self.plan.rules.push(rule.lasting(begins, Some(length)));
                }
                1 => {
                    let link = self.link(cables[rng.below(cables.len() as u64) as usize], rng);
                    let times = 2 + rng.below(5);
                    let (length, pause) = (length / times as f64, rng.below(100) as f64);
                    self.plan.rules.extend((0..times).map(|time| {
                        let begins = begins + time as f64 * (length + pause);
                        FaultRule::new(FaultKind::Down).on(link.clone()).lasting(begins, Some(length))
                    }));
                }
                _ => {
                    let link = self.link(cables[rng.below(cables.len() as u64) as usize], rng);
                    self.plan.rules.push(FaultRule::new(FaultKind::Down).on(link).lasting(begins, Some(length)));
                }
            }
        }
    }

    /// A cable in the notation of fault plans, for both directions or one.
    fn link(&self, cable: Cable, rng: &mut TestRng) -> String {
        let name = |end: NodePort| self.fabric.name(end.node);
        let (a, b) = (name(cable.a), name(cable.b));
        match rng.below(4) {
            0 => format!("{a}>{b}"),
            1 => format!("{b}>{a}"),
            _ => format!("{a}-{b}"),
        }
    }

    /// Cuts cables permanently, but leaves each connection one path intact.
    fn cut_redundant_cables(&mut self, rng: &mut TestRng) {
        let mut kept = BTreeSet::new();
        for plan in &self.parameters.connections {
            kept.extend(self.cables_of(plan, PathId(rng.below(u64::from(plan.paths)) as u8)));
        }
        let free: Vec<Cable> = self.fabric.cables().filter(|cable| !kept.contains(cable)).collect();
        let mut cut = BTreeSet::new();
        for _ in 0..rng.below(4).min(free.len() as u64) {
            let cable = free[rng.below(free.len() as u64) as usize];
            cut.insert(cable);
            let rule = FaultRule::new(FaultKind::Down).on(self.link(cable, rng));
            self.plan.rules.push(rule.lasting(rng.below(FAULTS_END_AT_US) as f64, None));
        }
        let is_whole = |plan: &ConnectionPlan, path: &PathId| self.cables_of(plan, *path).is_disjoint(&cut);
        let intact =
            |plan: &ConnectionPlan| (0..plan.paths).map(PathId).filter(|path| is_whole(plan, path)).collect();
        self.intact = self.parameters.connections.iter().map(intact).collect();
        self.redundant = (0..self.intact.len()).filter(|number| self.intact[*number].len() > 1).collect();
    }

    /// The cables of a path, in both directions.
    fn cables_of(&self, plan: &ConnectionPlan, path: PathId) -> BTreeSet<Cable> {
        let [one, other] = [plan.ends[0].host, plan.ends[1].host];
        let ways = path_route(&self.fabric, one, other, path).into_iter().flatten();
        ways.flat_map(|way| way.hops).filter_map(|hop| self.fabric.cable(hop)).collect()
    }

    /// Runs the trial and returns the outcome.
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
        let mut problems = Vec::new();
        match self.ending {
            Ending::Delivered => {
                if !exchange.run_until_delivered(PATIENCE) || !exchange.run_until_finished(PATIENCE) {
                    problems.push("the run hangs: not every message has arrived".to_owned());
                }
                for connection in &self.redundant {
                    if problems.is_empty() && !exchange.run_until_armed(*connection, PATIENCE) {
                        problems
                            .push(format!("connection {connection} has two healthy paths, but no armed alternate"));
                    }
                }
            }
            Ending::Broken => {
                if !exchange.run_until_broken(PATIENCE) {
                    problems.push("an end has not reported that its peer is unreachable".to_owned());
                }
            }
        }
        let reports: Vec<_> = exchange.reports().collect();
        let orders: Vec<_> = exchange.programs().cloned().collect();
        for (number, report) in reports.iter().flatten().enumerate() {
            problems.extend(self.problem(number, report));
        }
        let (ended, trace) = (exchange.now(), exchange.trace());
        let streams = exchange.into_observer().streams.into_iter().map(StreamLedger::judge).collect();
        PathOutcome { streams, problems, reports, orders, ended, trace }
    }

    fn problem(&self, end: usize, report: &ConnectionEndReport) -> Option<String> {
        let messages = self.parameters.connections[end / 2].ends[end % 2].messages.len() as u64;
        match self.ending {
            Ending::Delivered if report.state != QpState::ReadyToSend => {
                Some(format!("end {end} is in state {}", report.state))
            }
            Ending::Delivered if report.sent != messages => {
                Some(format!("end {end}: {} of {messages} sends were completed", report.sent))
            }
            Ending::Broken if report.state != QpState::Error => Some(format!("end {end} has not reported a failure")),
            Ending::Broken if !matches!(report.failure, Some(QpError::Unreachable(_))) => {
                Some(format!("end {end} reported a wrong cause of failure"))
            }
            _ => None,
        }
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

/// Loads every healthy path that is not in use, and waits until one is armed.
fn last_commands_for(connection: usize, intact: &[PathId]) -> Vec<ProgramStep> {
    let loads = intact.iter().map(|path| ProgramStep::Load { connection, path: *path });
    [ProgramStep::Until(at(LAST_COMMANDS_AT_US))]
        .into_iter()
        .chain(loads)
        .chain([ProgramStep::WaitArmed { connection }])
        .collect()
}

fn at(micros: u64) -> SimTime {
    SimTime::ZERO + SimSpan::from_micros(micros)
}
