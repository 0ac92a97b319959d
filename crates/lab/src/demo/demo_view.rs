//! The stage: on a terminal the act as it goes, redrawn; elsewhere a line for each act.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use manager::status::NodeStatus;

use super::operation::DemoOperation;
use super::phase::PhaseResult;
use super::phase_statistics::PhaseStatistics;
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize};

/// Between two drawings.
const FRAME: Duration = Duration::from_millis(100);
/// Steps of the bar.
const STEPS: u64 = 1000;

/// Where the show is seen.
pub(super) struct DemoView {
    is_live: bool,
    act: Option<LivePhase>,
}

/// An act that is being drawn.
struct LivePhase {
    bar: ProgressBar,
    drawn: Instant,
}

impl DemoView {
    pub(super) fn new() -> Self {
        let is_live = std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { is_live, act: None }
    }

    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// A line that stays.
    pub(super) fn say(&mut self, line: &str) {
        self.clear();
        println!("{line}");
    }

    /// A line that stays, in the middle of an act.
    pub(super) fn note(&self, line: &str) {
        match &self.act {
            Some(live) => live.bar.println(line),
            None => println!("{line}"),
        }
    }

    /// An act begins.
    pub(super) fn begin(&mut self, number: usize, title: &str) {
        if self.is_live {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stdout());
            let style = "{prefix} {bar:20.cyan/blue}  {msg}";
            bar.set_style(ProgressStyle::with_template(style).expect("the template is right"));
            bar.set_prefix(format!("{number}. {title:<46}"));
            self.act = Some(LivePhase { bar, drawn: Instant::now() - FRAME });
        }
    }

    /// How things are.
    pub(super) fn show(&mut self, tally: &PhaseStatistics, nodes: &[NodeStatus]) {
        let Some(live) = self.act.as_mut().filter(|live| live.drawn.elapsed() >= FRAME) else { return };
        live.drawn = Instant::now();
        let mut message = format!("{}, {} wrong", pluralize(tally.checked, "result"), group_digits(tally.wrong));
        for line in std::iter::once(nodes_line(nodes)).chain(DemoOperation::ALL.map(|piece| piece_line(piece, tally)))
        {
            message.push('\n');
            message.push_str(&line);
        }
        live.bar.set_message(message);
        live.bar.set_position((tally.share * STEPS as f64) as u64);
    }

    /// The act is over: the drawing makes room for one line.
    pub(super) fn end(&mut self, number: usize, act: &PhaseResult) {
        let sign = if act.is_right() { "ok" } else { "WRONG" };
        let (tally, account) = (&act.tally, act.tally.account);
        let line = format!(
            "{number}. {:<46} {} wrong of {}; {} hurt, {} lost, {} sent again  {sign}",
            act.title,
            group_digits(tally.wrong),
            group_digits(tally.checked),
            group_digits(account.hurt),
            group_digits(account.lost),
            group_digits(account.repeated + act.nodes.iter().map(|node| node.report.repeated).sum::<u64>()),
        );
        self.say(&line);
    }

    fn clear(&mut self) {
        if let Some(live) = self.act.take() {
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
            format!("{} is gone", node.name)
        }
    };
    if nodes.is_empty() {
        return "   no nodes".to_owned();
    }
    format!("   {}", nodes.iter().map(node).collect::<Vec<_>>().join(" · "))
}

fn piece_line(piece: DemoOperation, tally: &PhaseStatistics) -> String {
    // The last are enough for how it goes just now.
    const LATEST: usize = 400;
    let all = tally.latencies.get(&piece).map(Vec::as_slice).unwrap_or_default();
    let latest = &all[all.len().saturating_sub(LATEST)..];
    let times = LatencyDistribution::of(latest.iter().copied()).map_or_else(String::new, |times| {
        format!("median {:>9.1} us   99 % {:>9.1} us", times.median_ns / 1e3, times.p99_ns / 1e3)
    });
    format!("   {:<42} {:>8}   {times}", piece.name(), group_digits(all.len() as u64))
}
