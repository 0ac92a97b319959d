//! One phase of the demo: starts its processes, collects the ranks' reports until all are done, kills a node if it must.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use manager::status::NodeStatus;
use nix::sys::signal::Signal;

use super::demo_view::DemoView;
use super::operation::DemoOperation;
use super::phase_statistics::PhaseStatistics;
use super::rank_report::RankReport;
use super::{DemoSettings, NODES, PER_HOST, RANKS, now_ns};
use crate::local_fabric::child_process::{ChildProcess, OutputLine, StderrMode};
use crate::local_fabric::rank_launcher::{RankHosts, RankLauncher};
use crate::local_fabric::{
    FabricSite, LocalFabric, LocalFabricSpec, describe_exit_status, fault_file, node_name, own_executable,
};

/// Time between two checks of the clock and of signals.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two status requests to the manager.
const STATUS_INTERVAL: Duration = Duration::from_millis(300);
/// If no rank reports for this long, they hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(20);
/// After a failure the other ranks have this long to report theirs.
const FAILURE_GRACE: Duration = Duration::from_secs(3);
/// Nodes report to the manager twice a second: after this time the last reports have arrived.
const NODE_REPORT_INTERVAL: Duration = Duration::from_millis(600);
/// The node is killed when this share of the phase is over.
const KILL_AT_SHARE: f64 = 0.45;
/// Time from the start of a batch until some of its operations are done and others are not.
const MID_BATCH: Duration = Duration::from_millis(2);

/// What a phase shows.
pub(super) struct DemoPhase {
    pub title: &'static str,
    /// For a column header.
    pub short: &'static str,
    pub route: DemoRoute,
    pub faults: FaultInjection,
}

/// How operations travel between hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DemoRoute {
    /// By algorithms among the hosts.
    HostAlgorithms,
    /// Through aggregation nodes.
    AggregationNodes,
    /// Through aggregation nodes, one of which is killed.
    AggregationNodesThenKill,
}

/// Whether faults are injected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultInjection {
    Off,
    On,
}

/// How a phase ended.
pub(super) enum PhaseOutcome {
    Ended(Box<PhaseResult>),
    Interrupted(Signal),
}

/// The results of a phase.
pub(super) struct PhaseResult {
    pub short: &'static str,
    pub statistics: PhaseStatistics,
    /// The nodes' last reports to the manager.
    pub nodes: Vec<NodeStatus>,
    pub title: &'static str,
    pub route: DemoRoute,
}

impl PhaseResult {
    /// True if results were checked, none was wrong, and nothing failed.
    pub(super) fn passed(&self) -> bool {
        self.statistics.failure.is_none() && self.statistics.wrong == 0 && self.statistics.checked > 0
    }
}

impl DemoPhase {
    pub(super) fn run(&self, number: usize, settings: &DemoSettings, view: &mut DemoView) -> Result<PhaseOutcome> {
        let faults = (self.faults == FaultInjection::On).then_some(settings.faults.path.as_path());
        view.begin(number, self.title);
        let plan = LocalFabricSpec { nodes: NODES, site: FabricSite::Loopback, faults, stderr: StderrMode::Captured };
        let fabric = (self.route != DemoRoute::HostAlgorithms).then(|| LocalFabric::start(&plan));
        let fabric = fabric.transpose().context("could not start aggregation nodes")?;
        let mut variables = fabric.as_ref().map(LocalFabric::variables).transpose()?.unwrap_or_default();
        if fabric.is_some() {
            // The phase shows the nodes, also on machines where hosts alone are faster.
            variables.push(("PLEACH_ALGORITHM", "aggregation".to_owned()));
        }
        variables.extend(faults.map(|path| (fault_file::VARIABLE, path.display().to_string())));
        let ranks = RankLauncher::new("demo", RANKS, RankHosts::Emulated { per_host: PER_HOST })?
            .without_settings()
            .with(variables);
        let (sender, output) = channel();
        let program = own_executable()?;
        let will_be_killed = fabric
            .as_ref()
            .filter(|_| self.route == DemoRoute::AggregationNodesThenKill)
            .and_then(|fabric| fabric.process_id(&node_name(1)));
        let start = |rank: u32| {
            let mut command = ranks.command(rank, &[&program]);
            command.args(["demo-rank", "--seed", &settings.seed.to_string()]);
            command.args([
                "--millis",
                &settings.phase_duration.as_millis().to_string(),
                "--fold-order",
                self.fold_order(),
            ]);
            if let Some(process) = will_be_killed {
                command.args(["--until-ended", &process.to_string()]);
            }
            ChildProcess::start(
                &format!("rank {rank}"),
                &mut command,
                StderrMode::Captured,
                Some((rank, sender.clone())),
            )
        };
        let processes = (0..RANKS).map(start).collect::<Result<Vec<_>>>()?;
        drop(sender);
        let mut running = RunningPhase {
            phase: self,
            number,
            statistics: PhaseStatistics::default(),
            processes,
            fabric,
            nodes: Vec::new(),
        };
        if let Some(signal) = running.handle_reports(&output, settings, view)? {
            return Ok(PhaseOutcome::Interrupted(signal));
        }
        let result = running.end();
        view.end(number, &result);
        Ok(PhaseOutcome::Ended(Box::new(result)))
    }

    fn fold_order(&self) -> &'static str {
        if self.route == DemoRoute::HostAlgorithms { "host-algorithm" } else { "tree" }
    }
}

/// A phase in progress.
struct RunningPhase<'a> {
    phase: &'a DemoPhase,
    number: usize,
    statistics: PhaseStatistics,
    processes: Vec<ChildProcess>,
    fabric: Option<LocalFabric>,
    nodes: Vec<NodeStatus>,
}

impl RunningPhase<'_> {
    /// Handles the ranks' reports until all ranks have ended, or one fails or hangs. Returns a signal if one arrives.
    fn handle_reports(
        &mut self,
        output: &Receiver<OutputLine>,
        settings: &DemoSettings,
        view: &mut DemoView,
    ) -> Result<Option<Signal>> {
        let (mut last_report, mut status_read) = (Instant::now(), Instant::now());
        let (mut ended, mut failed) = (0, None::<Instant>);
        while ended < RANKS && failed.is_none_or(|since| since.elapsed() < FAILURE_GRACE) {
            match output.recv_timeout(POLL_INTERVAL) {
                Ok((rank, Some(line))) => {
                    last_report = Instant::now();
                    self.handle_report(rank, &line, view)?;
                }
                Ok((rank, None)) => {
                    ended += 1;
                    self.end_rank(rank as usize);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if last_report.elapsed() > HANG_TIMEOUT => {
                    self.fail(format!("no rank reported for {HANG_TIMEOUT:?}: the ranks hang"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(signal) = settings.signals.next() {
                return Ok(Some(signal));
            }
            if self.statistics.failure.is_some() {
                failed.get_or_insert_with(Instant::now);
            }
            if view.is_live() && status_read.elapsed() > STATUS_INTERVAL {
                status_read = Instant::now();
                self.update_nodes();
            }
            view.update(&self.statistics, &self.nodes);
        }
        Ok(None)
    }

    fn handle_report(&mut self, rank: u32, line: &str, view: &mut DemoView) -> Result<()> {
        match serde_json::from_str(line).with_context(|| format!("malformed report from rank {rank}: {line:?}"))? {
            RankReport::Joined { explained } => {
                let uses_nodes = explained.starts_with("aggregation nodes");
                if uses_nodes == (self.phase.route == DemoRoute::HostAlgorithms) {
                    self.fail(format!("rank {rank} uses another algorithm than this phase shows: {explained}"));
                }
            }
            RankReport::BatchStarted { operation, share } => {
                self.statistics.share = share;
                if operation == DemoOperation::FixedOrder && share >= KILL_AT_SHARE {
                    self.kill_node(view)?;
                }
            }
            RankReport::BatchDone(batch) => self.statistics.add(rank, &batch),
            RankReport::Finished(totals) => self.statistics.totals = self.statistics.totals.plus(totals),
            RankReport::Failed { what } => self.fail(format!("rank {rank}: {what}")),
        }
        Ok(())
    }

    /// Kills a node, once, if this phase does so. Operations that have just begun are then in flight.
    fn kill_node(&mut self, view: &DemoView) -> Result<()> {
        let is_due = self.phase.route == DemoRoute::AggregationNodesThenKill && self.statistics.killed_ns.is_none();
        let Some(fabric) = self.fabric.as_mut().filter(|_| is_due) else { return Ok(()) };
        std::thread::sleep(MID_BATCH);
        let name = node_name(1);
        let id = fabric.kill(&name)?;
        self.statistics.killed_ns = Some(now_ns());
        view.note(&format!("{}. node {name} (process {id}) killed", self.number));
        Ok(())
    }

    fn fail(&mut self, what: String) {
        self.statistics.failure.get_or_insert(what);
    }

    /// Waits for the end of a rank that has closed its output.
    fn end_rank(&mut self, rank: usize) {
        let process = &mut self.processes[rank];
        let status = process.kill_and_wait_after(FAILURE_GRACE);
        if !status.success() {
            let what = format!("rank {rank} {}{}", describe_exit_status(status), process.last_stderr_lines());
            self.fail(what);
        }
    }

    fn update_nodes(&mut self) {
        if let Some(status) = self.fabric.as_mut().and_then(|fabric| fabric.status().ok()) {
            self.nodes = status.nodes;
        }
    }

    /// Waits for all ranks, reads the nodes' last reports, and checks that the phase showed what it should.
    fn end(mut self) -> PhaseResult {
        for rank in 0..self.processes.len() {
            self.end_rank(rank);
        }
        if self.fabric.is_some() {
            std::thread::sleep(NODE_REPORT_INTERVAL);
            self.update_nodes();
        }
        if self.phase.route == DemoRoute::AggregationNodesThenKill && self.statistics.afterwards == 0 {
            self.fail("no node was killed before the last operation".to_owned());
        }
        if self.phase.route != DemoRoute::HostAlgorithms && self.statistics.totals.aggregated == 0 {
            self.fail("no operation used the aggregation nodes".to_owned());
        }
        let DemoPhase { title, short, route, .. } = *self.phase;
        PhaseResult { short, title, route, statistics: self.statistics, nodes: self.nodes }
    }
}
