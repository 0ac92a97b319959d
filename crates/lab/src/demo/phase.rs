//! One act of the demo: starts what it needs, listens until all ranks are done, kills a node if the play says so.

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
use crate::local_fabric::{FabricSite, LocalFabric, LocalFabricSpec, fault_file, how, node_name, own_executable};

/// Between two looks at the clock and at signals.
const GLANCE: Duration = Duration::from_millis(50);
/// Between two questions to the manager.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// A rank that says nothing for so long hangs.
const HANG: Duration = Duration::from_secs(20);
/// When one has failed, the others have so long to say so too.
const FAILURE_GRACE: Duration = Duration::from_secs(3);
/// Nodes report twice a second.
const LAST_REPORT: Duration = Duration::from_millis(600);
/// The node is killed when so much of the act is over.
const KILL_AT: f64 = 0.45;
/// From the word that operations begin until some have been done and others have not.
const WELL_BEGUN: Duration = Duration::from_millis(2);

/// What is played.
pub(super) struct DemoPhase {
    pub title: &'static str,
    /// For the head of a column.
    pub short: &'static str,
    pub through: DemoRoute,
    pub weather: FaultInjection,
}

/// How operations go between hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DemoRoute {
    Hosts,
    Nodes,
    NodesUntilOneIsKilled,
}

/// Whether faults are injected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultInjection {
    Fine,
    Foul,
}

/// What came of an act.
pub(super) enum PhaseOutcome {
    Ended(Box<PhaseResult>),
    Interrupted(Signal),
}

/// An act that was played.
pub(super) struct PhaseResult {
    pub short: &'static str,
    pub tally: PhaseStatistics,
    /// The nodes, as they last told the manager.
    pub nodes: Vec<NodeStatus>,
    pub title: &'static str,
    pub through: DemoRoute,
}

impl PhaseResult {
    /// True if nothing was wrong, nothing failed, and what was to be shown has happened.
    pub(super) fn is_right(&self) -> bool {
        self.tally.failure.is_none() && self.tally.wrong == 0 && self.tally.checked > 0
    }
}

impl DemoPhase {
    pub(super) fn perform(&self, number: usize, show: &DemoSettings, stage: &mut DemoView) -> Result<PhaseOutcome> {
        let faults = (self.weather == FaultInjection::Foul).then_some(show.faults.path.as_path());
        stage.begin(number, self.title);
        let plan = LocalFabricSpec { nodes: NODES, site: FabricSite::Loopback, faults, voice: StderrMode::Kept };
        let fabric = (self.through != DemoRoute::Hosts).then(|| LocalFabric::start(&plan));
        let fabric = fabric.transpose().context("aggregation nodes cannot be had")?;
        let mut variables = fabric.as_ref().map(LocalFabric::variables).unwrap_or_default();
        variables.extend(faults.map(|path| (fault_file::VARIABLE, path.display().to_string())));
        let ranks = RankLauncher::new("demo", RANKS, RankHosts::Pretended { per_host: PER_HOST })?
            .without_settings()
            .with(variables);
        let (say, heard) = channel();
        let program = own_executable()?;
        let start = |rank: u32| {
            let mut command = ranks.command(rank, &[&program]);
            command.args(["demo-rank", "--seed", &show.seed.to_string()]);
            command.args(["--millis", &show.act.as_millis().to_string(), "--folding", self.folding()]);
            ChildProcess::start(&format!("rank {rank}"), &mut command, StderrMode::Kept, Some((rank, say.clone())))
        };
        let services = (0..RANKS).map(start).collect::<Result<Vec<_>>>()?;
        drop(say);
        let mut playing = RunningPhase {
            act: self,
            number,
            tally: PhaseStatistics::default(),
            services,
            fabric,
            nodes: Vec::new(),
        };
        if let Some(signal) = playing.listen(&heard, show, stage)? {
            return Ok(PhaseOutcome::Interrupted(signal));
        }
        let ended = playing.end();
        stage.end(number, &ended);
        Ok(PhaseOutcome::Ended(Box::new(ended)))
    }

    fn folding(&self) -> &'static str {
        if self.through == DemoRoute::Hosts { "among-hosts" } else { "as-in-tree" }
    }
}

/// An act under way.
struct RunningPhase<'a> {
    act: &'a DemoPhase,
    number: usize,
    tally: PhaseStatistics,
    services: Vec<ChildProcess>,
    fabric: Option<LocalFabric>,
    nodes: Vec<NodeStatus>,
}

impl RunningPhase<'_> {
    /// Listens until all ranks have ended, or one fails or hangs; a signal if one came in between.
    fn listen(
        &mut self,
        heard: &Receiver<OutputLine>,
        show: &DemoSettings,
        stage: &mut DemoView,
    ) -> Result<Option<Signal>> {
        let (mut silent_since, mut asked) = (Instant::now(), Instant::now());
        let (mut quiet, mut failed) = (0, None::<Instant>);
        while quiet < RANKS && failed.is_none_or(|since| since.elapsed() < FAILURE_GRACE) {
            match heard.recv_timeout(GLANCE) {
                Ok((rank, Some(line))) => {
                    silent_since = Instant::now();
                    self.take(rank, &line, stage)?;
                }
                Ok((rank, None)) => {
                    quiet += 1;
                    self.end_rank(rank as usize);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if silent_since.elapsed() > HANG => {
                    self.fail(format!("nothing was heard of any rank for {HANG:?}: they hang"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(signal) = show.signals.next() {
                return Ok(Some(signal));
            }
            if self.tally.failure.is_some() {
                failed.get_or_insert_with(Instant::now);
            }
            if stage.is_live() && asked.elapsed() > ASK_EVERY {
                asked = Instant::now();
                self.ask_nodes();
            }
            stage.show(&self.tally, &self.nodes);
        }
        Ok(None)
    }

    fn take(&mut self, rank: u32, line: &str, stage: &mut DemoView) -> Result<()> {
        match serde_json::from_str(line).with_context(|| format!("rank {rank} said {line:?}"))? {
            RankReport::Joined { explained } => {
                let is_through_nodes = explained.starts_with("aggregation nodes");
                if is_through_nodes == (self.act.through == DemoRoute::Hosts) {
                    self.fail(format!("rank {rank} does not go the way of this act: {explained}"));
                }
            }
            RankReport::Begins { piece, share } => {
                self.tally.share = share;
                if piece == DemoOperation::FixedOrder && share >= KILL_AT {
                    self.kill_node(stage)?;
                }
            }
            RankReport::Done(done) => self.tally.add(rank, &done),
            RankReport::Ended(account) => self.tally.account = self.tally.account.plus(account),
            RankReport::Failed { what } => self.fail(format!("rank {rank}: {what}")),
        }
        Ok(())
    }

    /// Kills a node, once, if the play says so. Those who have just begun are then in the middle of it.
    fn kill_node(&mut self, stage: &DemoView) -> Result<()> {
        let is_due = self.act.through == DemoRoute::NodesUntilOneIsKilled && self.tally.killed_ns.is_none();
        let Some(fabric) = self.fabric.as_mut().filter(|_| is_due) else { return Ok(()) };
        std::thread::sleep(WELL_BEGUN);
        let name = node_name(1);
        let process = fabric.kill(&name)?;
        self.tally.killed_ns = Some(now_ns());
        stage.note(&format!("{}. node {name} (process {process}) is killed", self.number));
        Ok(())
    }

    fn fail(&mut self, what: String) {
        self.tally.failure.get_or_insert(what);
    }

    /// A rank has nothing more to say.
    fn end_rank(&mut self, rank: usize) {
        let service = &mut self.services[rank];
        let status = service.kill_and_wait_after(FAILURE_GRACE);
        if !status.success() {
            let what = format!("rank {rank} {}{}", how(status), service.last_words());
            self.fail(what);
        }
    }

    fn ask_nodes(&mut self) {
        if let Some(status) = self.fabric.as_mut().and_then(|fabric| fabric.status().ok()) {
            self.nodes = status.nodes;
        }
    }

    /// All is over: who did not end well, and what the nodes have to say.
    fn end(mut self) -> PhaseResult {
        for rank in 0..self.services.len() {
            self.end_rank(rank);
        }
        if self.fabric.is_some() {
            std::thread::sleep(LAST_REPORT);
            self.ask_nodes();
        }
        if self.act.through == DemoRoute::NodesUntilOneIsKilled && self.tally.afterwards == 0 {
            self.fail("no node was killed while there was something left to do".to_owned());
        }
        if self.act.through != DemoRoute::Hosts && self.tally.account.aggregated == 0 {
            self.fail("nothing went through the nodes".to_owned());
        }
        let DemoPhase { title, short, through, .. } = *self.act;
        PhaseResult { short, title, through, tally: self.tally, nodes: self.nodes }
    }
}
