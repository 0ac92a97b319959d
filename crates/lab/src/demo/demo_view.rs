//! The output of the demo: on a terminal the current phase, redrawn; elsewhere one line for each phase.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use manager::status::NodeStatus;

use super::operation::DemoOperation;
use super::phase::PhaseResult;
use super::phase_statistics::PhaseStatistics;
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize};

/// Time between two redraws.
const FRAME: Duration = Duration::from_millis(100);
/// Steps of the progress bar.
const STEPS: u64 = 1000;

/// The terminal or the log.
pub(super) struct DemoView {
    is_live: bool,
    phase: Option<LivePhase>,
}

/// The phase that is being drawn.
struct LivePhase {
    bar: ProgressBar,
    drawn: Instant,
}

impl DemoView {
    pub(super) fn new() -> Self {
        let is_live = std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { is_live, phase: None }
    }

    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Prints a line.
    pub(super) fn print(&mut self, line: &str) {
        self.clear();
        println!("{line}");
    }

    /// Prints a line during a phase.
    pub(super) fn note(&self, line: &str) {
        match &self.phase {
            Some(live) => live.bar.println(line),
            None => println!("{line}"),
        }
    }

    /// Starts a phase.
    pub(super) fn begin(&mut self, number: usize, title: &str) {
        if self.is_live {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stdout());
            let style = "{prefix} {bar:20.cyan/blue}  {msg}";
            bar.set_style(ProgressStyle::with_template(style).expect("a constant template"));
            bar.set_prefix(format!("{number}. {title:<46}"));
            self.phase = Some(LivePhase { bar, drawn: Instant::now() - FRAME });
        }
    }

    /// Redraws the current phase.
    pub(super) fn update(&mut self, statistics: &PhaseStatistics, nodes: &[NodeStatus]) {
        let Some(live) = self.phase.as_mut().filter(|live| live.drawn.elapsed() >= FRAME) else { return };
        live.drawn = Instant::now();
        let mut message =
            format!("{}, {} wrong", pluralize(statistics.checked, "result"), group_digits(statistics.wrong));
        for line in std::iter::once(nodes_line(nodes))
            .chain(DemoOperation::ALL.map(|operation| operation_line(operation, statistics)))
        {
            message.push('\n');
            message.push_str(&line);
        }
        live.bar.set_message(message);
        live.bar.set_position((statistics.share * STEPS as f64) as u64);
    }

    /// Ends a phase: one line replaces the drawing.
    pub(super) fn end(&mut self, number: usize, phase: &PhaseResult) {
        let sign = if phase.passed() { "ok" } else { "WRONG" };
        let (statistics, totals) = (&phase.statistics, phase.statistics.totals);
        let line = format!(
            "{number}. {:<46} {} wrong of {}; {} damaged, {} lost, {} retransmitted  {sign}",
            phase.title,
            group_digits(statistics.wrong),
            group_digits(statistics.checked),
            group_digits(totals.damaged_by_plan),
            group_digits(totals.lost_by_plan),
            group_digits(totals.retransmitted + phase.nodes.iter().map(|node| node.report.repeated).sum::<u64>()),
        );
        self.print(&line);
    }

    fn clear(&mut self) {
        if let Some(live) = self.phase.take() {
            live.bar.finish_and_clear();
        }
    }
}

impl Drop for DemoView {
    fn drop(&mut self) {
        self.clear();
    }
}

fn nodes_line(nodes: &[NodeStatus]) -> String {
    let node = |node: &NodeStatus| {
        if node.alive {
            format!("{} {}", node.name, pluralize(node.report.operations, "fold"))
        } else {
            format!("{} is dead", node.name)
        }
    };
    if nodes.is_empty() {
        return "   no nodes".to_owned();
    }
    format!("   {}", nodes.iter().map(node).collect::<Vec<_>>().join(" · "))
}

fn operation_line(operation: DemoOperation, statistics: &PhaseStatistics) -> String {
    // The latest calls show the current latency.
    const LATEST: usize = 400;
    let all = statistics.latencies.get(&operation).map(Vec::as_slice).unwrap_or_default();
    let latest = &all[all.len().saturating_sub(LATEST)..];
    let times = LatencyDistribution::of(latest.iter().copied()).map_or_else(String::new, |times| {
        format!("median {:>9.1} us   99 % {:>9.1} us", times.median_ns / 1e3, times.p99_ns / 1e3)
    });
    format!("   {:<42} {:>8}   {times}", operation.name(), group_digits(all.len() as u64))
}
