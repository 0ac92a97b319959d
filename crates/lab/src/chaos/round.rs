//! Runs one round: starts the cluster, does to it what the plan says, ends the workload, and collects what the ranks report.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cluster::Cluster;
use super::judge::{RankEnd, RankLog, RoundVerdict, judge};
use super::plan::{ChaosAction, ChaosPlan, ProcessRef, TimedAction};
use super::rank_report::ChaosRankReport;
use crate::local_fabric::child_process::OutputLine;
use crate::local_fabric::describe_exit_status;
use crate::local_fabric::signals::SignalQueue;

/// Ranks have this long to join, and, when the workload ends, to return from what they do: results or errors. The failure detector
/// takes 10 s, and the agreement on an error up to 40 s more in the worst case.
const PATIENCE: Duration = Duration::from_secs(60);
/// For a busy machine.
const MARGIN: Duration = Duration::from_secs(15);
/// A job must return to a node that was started again within this time. It asks the manager for a tree after one second, then after two
/// more, and so on; the first attempts may come too early.
const RETURN_PATIENCE: Duration = Duration::from_secs(30);
/// The manager is asked so often whether it has.
const RETURN_POLL_INTERVAL: Duration = Duration::from_millis(250);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A rank that has closed its standard output ends within this time.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A round while it runs.
struct RunningRound<'a> {
    plan: &'a ChaosPlan,
    lines: Receiver<OutputLine>,
    signals: &'a SignalQueue,
    logs: Vec<RankLog>,
    /// Ranks whose standard output has not ended.
    open: Vec<bool>,
    cluster: Cluster,
}

/// Runs a round and judges it.
///
/// # Errors
/// The cluster cannot be started or changed, or the user interrupts.
pub(super) fn run(plan: &ChaosPlan, signals: &SignalQueue) -> Result<RoundVerdict> {
    let stop_file = StopFile::new(plan);
    let (cluster, lines) = Cluster::start(plan, &stop_file.path)?;
    let ranks = plan.shape.ranks() as usize;
    let log = RankLog { reports: Vec::new(), malformed_lines: Vec::new(), end: RankEnd::Exited };
    let mut round = RunningRound { plan, lines, signals, logs: vec![log; ranks], open: vec![true; ranks], cluster };
    round.wait_until(Instant::now() + PATIENCE + MARGIN, |round| round.all_ranks(|log| !log.reports.is_empty()))?;
    let joined = Instant::now();
    for TimedAction { at, action } in &plan.actions {
        round.wait_until(joined + *at, |_| false)?;
        round.cluster.act(action)?;
    }
    round.wait_until(Instant::now() + plan.settle, RunningRound::is_over)?;
    let missing_return = round.wait_for_return()?;
    stop_file.create()?;
    round.wait_until(Instant::now() + PATIENCE + MARGIN, RunningRound::is_over)?;
    let mut verdict = round.finish()?;
    verdict.violations.extend(missing_return);
    Ok(verdict)
}

impl RunningRound<'_> {
    /// Collects reports until something holds, but not beyond the deadline.
    fn wait_until(&mut self, deadline: Instant, is_done: impl Fn(&Self) -> bool) -> Result<()> {
        while !is_done(self) {
            let now = Instant::now();
            if now >= deadline {
                return Ok(());
            }
            if let Some(signal) = self.signals.next() {
                bail!("interrupted by {signal}");
            }
            match self.lines.recv_timeout(POLL_INTERVAL.min(deadline - now)) {
                Ok((rank, line)) => self.handle_line(rank, line),
                Err(RecvTimeoutError::Timeout) => {}
                // All ranks have ended.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL.min(deadline - now)),
            }
        }
        Ok(())
    }

    /// Waits until the job uses the node again to which it must return; what is wrong if it does not.
    fn wait_for_return(&mut self) -> Result<Option<String>> {
        let Some(node) = self.plan.returns_to else { return Ok(None) };
        let began = Instant::now();
        loop {
            let operations = self.cluster.operations_of(node)?;
            if operations.is_some_and(|count| count > 0) {
                return Ok(None);
            }
            if began.elapsed() > RETURN_PATIENCE || self.is_over() {
                let state = if operations.is_some() { "is registered" } else { "is not registered" };
                let seconds = began.elapsed().as_secs();
                return Ok(Some(format!("the job did not return to node{node}, which {state}, within {seconds} s")));
            }
            self.wait_until(Instant::now() + RETURN_POLL_INTERVAL, Self::is_over)?;
        }
    }

    fn handle_line(&mut self, rank: u32, line: Option<String>) {
        let log = &mut self.logs[rank as usize];
        match line.map(|line| serde_json::from_str(&line).map_err(|_| line)) {
            Some(Ok(report)) => log.reports.push(report),
            Some(Err(line)) => log.malformed_lines.push(line),
            None => self.open[rank as usize] = false,
        }
    }

    /// True if this holds for every rank that has not ended.
    fn all_ranks(&self, holds: impl Fn(&RankLog) -> bool) -> bool {
        self.logs.iter().zip(&self.open).all(|(log, is_open)| !is_open || holds(log))
    }

    fn is_over(&self) -> bool {
        self.all_ranks(|_| false)
    }

    fn finish(mut self) -> Result<RoundVerdict> {
        let ended_services = self.cluster.services_that_ended();
        for rank in 0..self.plan.shape.ranks() {
            let is_killed =
                self.plan.actions.iter().any(
                    |timed| matches!(timed.action, ChaosAction::Kill(ProcessRef::Rank(killed)) if killed == rank),
                );
            let last = self.logs[rank as usize].reports.iter().rev().find(|report| is_telling(report)).cloned();
            let is_open = self.open[rank as usize];
            let process = self.cluster.rank(rank);
            let end = if is_killed {
                process.kill_and_wait();
                RankEnd::Killed
            } else if is_open {
                process.kill_and_wait();
                let last =
                    last.map_or_else(|| "it reported nothing".to_owned(), |last| format!("last report: {last:?}"));
                RankEnd::Hung(format!("{last}{}", process.last_stderr_lines()))
            } else {
                let status = process.kill_and_wait_after(EXIT_TIMEOUT);
                if status.success() {
                    RankEnd::Exited
                } else {
                    RankEnd::Died(format!("{}{}", describe_exit_status(status), process.last_stderr_lines()))
                }
            };
            self.logs[rank as usize].end = end;
        }
        let mut verdict = judge(self.plan, &self.logs);
        verdict.violations.extend(ended_services);
        Ok(verdict)
    }
}

/// True for reports that show where a rank was.
fn is_telling(report: &ChaosRankReport) -> bool {
    !matches!(report, ChaosRankReport::Finished { .. })
}

/// The file whose existence ends the workload. Dropping it removes it.
struct StopFile {
    path: PathBuf,
}

impl StopFile {
    fn new(plan: &ChaosPlan) -> Self {
        let name = format!("pleach-chaos-{}-{}-{}", std::process::id(), plan.case, plan.seed);
        let stop_file = Self { path: std::env::temp_dir().join(name) };
        // Another process of that number may have left one.
        let _ = std::fs::remove_file(&stop_file.path);
        stop_file
    }

    fn create(&self) -> Result<()> {
        std::fs::write(&self.path, "").with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for StopFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
