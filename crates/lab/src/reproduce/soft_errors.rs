//! The soft-error paper: Figures 3 to 6 (claims SE-13 to SE-16), simulated with our protocol machines.
//!
//! In: two presets (scenario files in experiments/soft-errors/presets) and the published numbers. Out: each number compared
//! with ours. A point is a preset with a replication scheme and injected errors. Points are independent, so they run on all
//! cores and give the same numbers on one.

mod output;
mod points;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use self::points::{ReplicationScheme, SoftErrorPattern, SoftErrorPoint};
use super::comparison::{Comparison, Gate, Remark, ReproductionVerdict};
use super::published;
use crate::CommandOutcome;
use crate::report::ReportArgs;

const PUBLISHED: &str = include_str!("../../experiments/soft-errors/published.csv");

/// Compares Figures 3 to 6 with our simulation.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach reproduce soft-errors
  pleach reproduce soft-errors --format html --output soft-errors.html
  pleach reproduce soft-errors --collectives 100        faster and noisier

Exit status: 0 if the gated numbers hold, 1 if one does not.")]
pub(crate) struct ReproduceSoftErrorsArgs {
    /// Collectives per random point, as in the paper.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    collectives: u32,
    /// The seed of the random errors.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    report: ReportArgs,
}

/// All results of the command.
#[derive(Serialize)]
struct SoftErrorsFindings {
    collectives: u32,
    seed: u64,
    points: Vec<SoftErrorPoint>,
    comparisons: Vec<Comparison>,
    gates: Vec<Gate>,
    holds: bool,
}

pub(crate) fn run(arguments: &ReproduceSoftErrorsArgs) -> Result<CommandOutcome> {
    let measured = points::measure_all(arguments.collectives, arguments.seed)?;
    let findings = find(arguments, measured)?;
    arguments.report.write(&findings, output::table, output::html)?;
    Ok(if findings.holds { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

/// The times of all points, by point.
struct SoftErrorTimes<'a>(&'a [SoftErrorPoint]);

impl SoftErrorTimes<'_> {
    fn of(&self, point: SoftErrorPattern, scheme: ReplicationScheme, copies: u8) -> f64 {
        let is = |measured: &&SoftErrorPoint| {
            (measured.point, measured.scheme, measured.copies) == (point, scheme, copies)
        };
        self.0.iter().find(is).expect("every point of a published number is measured").mean_ns
    }

    fn temporal(&self, point: SoftErrorPattern) -> f64 {
        self.of(point, ReplicationScheme::Temporal, 2)
    }

    fn spatial(&self, point: SoftErrorPattern) -> f64 {
        self.of(point, ReplicationScheme::Spatial, 2)
    }

    /// How much less time temporal replication takes than spatial, in percent.
    fn gap(&self, point: SoftErrorPattern) -> f64 {
        100.0 * (1.0 - self.temporal(point) / self.spatial(point))
    }

    fn ours(&self, id: &str) -> Option<f64> {
        let percent_over = |a: f64, b: f64| 100.0 * (a / b - 1.0);
        let (free, one) = (SoftErrorPattern::NoErrors, SoftErrorPattern::OneError);
        let random = |copies| self.of(SoftErrorPattern::Mean { us: 1 }, ReplicationScheme::Temporal, copies);
        let random_spatial = |copies| self.of(SoftErrorPattern::Mean { us: 1 }, ReplicationScheme::Spatial, copies);
        Some(match id {
            "free-lead" => percent_over(self.spatial(free), self.temporal(free)),
            "all-links" => self.spatial(SoftErrorPattern::AllLinks) / self.temporal(SoftErrorPattern::AllLinks),
            "one-temporal" => percent_over(self.temporal(one), self.temporal(free)),
            "one-spatial" => percent_over(self.spatial(one), self.spatial(free)),
            "one-tie" => percent_over(self.temporal(one), self.spatial(one)),
            "level-temporal" => percent_over(self.temporal(SoftErrorPattern::TwoAtOneLevel), self.temporal(one)),
            "level-spatial" => percent_over(self.spatial(SoftErrorPattern::TwoAtOneLevel), self.spatial(one)),
            "ports-spatial" => {
                percent_over(self.spatial(SoftErrorPattern::BothPorts { level: 1 }), self.spatial(free))
            }
            "upper-spatial" => {
                percent_over(self.spatial(SoftErrorPattern::BothPorts { level: 2 }), self.spatial(free))
            }
            "adjacent-temporal" => {
                let (none, one) = (self.temporal(free), self.temporal(one));
                (self.temporal(SoftErrorPattern::Adjacent) - none) / (one - none)
            }
            "gap-1000" => self.gap(SoftErrorPattern::Mean { us: 1000 }),
            "gap-100" => self.gap(SoftErrorPattern::Mean { us: 100 }),
            "gap-10" => self.gap(SoftErrorPattern::Mean { us: 10 }),
            "gap-1" => self.gap(SoftErrorPattern::Mean { us: 1 }),
            "fall-4" => 100.0 * (1.0 - random(4) / random(2)),
            "fall-6" => 100.0 * (1.0 - random(6) / random(2)),
            "lead-4" => percent_over(random_spatial(4), random(4)),
            "lead-6" => percent_over(random_spatial(6), random(6)),
            _ => return None,
        })
    }
}

fn find(arguments: &ReproduceSoftErrorsArgs, points: Vec<SoftErrorPoint>) -> Result<SoftErrorsFindings> {
    let times = SoftErrorTimes(&points);
    let mut comparisons = Vec::new();
    for published in published::read_published(PUBLISHED).context("experiments/soft-errors/published.csv")? {
        let ours =
            times.ours(&published.id).with_context(|| format!("unknown id in published.csv: {}", published.id))?;
        let preset = if matches!(published.figure.as_str(), "3" | "4") { points::FEW } else { points::RANDOM };
        comparisons.push(Comparison::new(&published, ours, preset, remark(&published.id)));
    }
    let gates = gates(&times);
    let gated = comparisons.iter().filter(|row| row.gated);
    let holds =
        gated.clone().all(|row| row.verdict == ReproductionVerdict::Match) && gates.iter().all(|gate| gate.holds);
    Ok(SoftErrorsFindings {
        collectives: arguments.collectives,
        seed: arguments.seed,
        points,
        comparisons,
        gates,
        holds,
    })
}

/// The orderings that must hold in Figures 4 to 6.
fn gates(times: &SoftErrorTimes<'_>) -> Vec<Gate> {
    let gap = |us| times.gap(SoftErrorPattern::Mean { us });
    let fall = |copies| times.of(SoftErrorPattern::Mean { us: 1 }, ReplicationScheme::Temporal, copies);
    let gate = |statement: &str, holds| Gate { statement: statement.into(), holds };
    let adjacent = times.temporal(SoftErrorPattern::Adjacent) > times.spatial(SoftErrorPattern::Adjacent);
    vec![
        gate("Figure 4: errors on adjacent levels make temporal worse than spatial", adjacent),
        gate("Figure 5: the gap is largest at 100 us", [1000, 10, 1].iter().all(|us| gap(*us) < gap(100))),
        gate("Figure 5: a tie at 1 us, within 5 points", gap(1).abs() <= 5.0),
        gate(
            "Figure 6: temporal takes less time with every further pair of copies",
            fall(6) < fall(4) && fall(4) < fall(2),
        ),
    ]
}

/// The explanation of a number that is not reproduced.
fn remark(id: &str) -> Option<Remark> {
    Some(match id {
        "gap-10" => Remark::Why(
            "the paper does not say how long a packet is exposed nor how long a NAK takes; other choices move this number by ten points",
        ),
        "gap-1000" | "gap-100" | "gap-1" => {
            Remark::Why("the paper does not say how long a packet is exposed nor how long a NAK takes")
        }
        "fall-4" | "fall-6" | "lead-4" => Remark::Why(
            "a third of all copies are hit at 1 us, so the number depends on the NAK turnaround, which the paper does not give",
        ),
        "lead-6" => Remark::Impossible(
            "a 4X port has four 1X lanes: six spatial copies cannot be built as described; ours is a what-if with six lanes of a sixth of the port each",
        ),
        _ => return None,
    })
}
