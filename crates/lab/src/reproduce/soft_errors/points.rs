//! The points of the figures: a preset, a replication scheme and injected errors; and their measurement.

use anyhow::{Context, Result, anyhow};
use indicatif::ProgressBar;
use serde::Serialize;
use simulator::collective::{CollectiveTiming, NoObserver, Replication, SimulatedCollective};
use simulator::fault::{FaultKind, FaultPlan, FaultRule, PhaseFilter};
use simulator::scenario::Scenario;
use topology::TreeIndex;
use units::SimSpan;

use crate::parallel::map_parallel;
use crate::progress::progress_bar;

/// The preset of all figures.
pub(super) const PRESET: &str = include_str!("../../../experiments/soft-errors/presets/allreduce.toml");
const PRESET_FILE: &str = "experiments/soft-errors/presets/allreduce.toml";

/// Where errors are injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SoftErrorPattern {
    /// Nowhere.
    #[serde(rename = "free")]
    NoErrors,
    /// Once on every link.
    AllLinks,
    /// On the uplink of one level-1 switch.
    OneError,
    /// On the uplinks of two level-1 switches, in different planes.
    TwoAtOneLevel,
    /// On all uplinks that one switch uses.
    BothPorts { level: u8 },
    /// On the uplink of a level-1 switch and on that of the switch above it.
    Adjacent,
    /// At random on every channel, with this mean interval.
    Mean { us: u32 },
}

impl SoftErrorPattern {
    /// The name in tables.
    pub(super) fn label(self) -> String {
        match self {
            Self::NoErrors => "none".into(),
            Self::AllLinks => "all links".into(),
            Self::OneError => "one".into(),
            Self::TwoAtOneLevel => "one level".into(),
            Self::BothPorts { level } => format!("ports L{level}"),
            Self::Adjacent => "adjacent".into(),
            Self::Mean { us } => format!("{us} us"),
        }
    }
}

/// How packets are replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ReplicationScheme {
    Temporal,
    Spatial,
}

/// A point and its measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SoftErrorPoint {
    pub point: SoftErrorPattern,
    pub scheme: ReplicationScheme,
    pub copies: u8,
    pub collectives: u32,
    pub mean_ns: f64,
    /// Standard error of the mean.
    pub standard_error_ns: f64,
    pub trace: String,
}

/// Every point that the figures need.
fn points() -> Vec<(SoftErrorPattern, ReplicationScheme, u8)> {
    let few = [
        SoftErrorPattern::NoErrors,
        SoftErrorPattern::AllLinks,
        SoftErrorPattern::OneError,
        SoftErrorPattern::TwoAtOneLevel,
        SoftErrorPattern::BothPorts { level: 1 },
        SoftErrorPattern::BothPorts { level: 2 },
        SoftErrorPattern::Adjacent,
    ];
    let random = [1000, 100, 10, 1].map(|us| SoftErrorPattern::Mean { us });
    let schemes = [ReplicationScheme::Temporal, ReplicationScheme::Spatial];
    let mut points = Vec::new();
    // The longest first, so that no core is left with a long one at the end.
    for copies in [6, 4] {
        points.extend(schemes.map(|scheme| (SoftErrorPattern::Mean { us: 1 }, scheme, copies)));
    }
    for point in random.into_iter().rev().chain(few) {
        points.extend(schemes.map(|scheme| (point, scheme, 2)));
    }
    points
}

/// Measures all points on all cores, with the text of a preset.
pub(super) fn measure_all(preset: &str, collectives: u32, seed: u64) -> Result<Vec<SoftErrorPoint>> {
    let preset = Scenario::parse(preset, PRESET_FILE).map_err(|error| anyhow!("{error}"))?;
    let points = points();
    let total: u64 = points.iter().map(|(point, ..)| u64::from(runs(*point, collectives))).sum();
    let bar = progress_bar(total, "{bar:40} {pos}/{len} collectives, {eta} left");
    let measured = map_parallel(&points, |(point, scheme, copies)| {
        measure(&preset, *point, *scheme, *copies, runs(*point, collectives), seed, &bar)
    });
    bar.finish_and_clear();
    measured
}

/// Without randomness one collective is enough.
fn runs(point: SoftErrorPattern, collectives: u32) -> u32 {
    if matches!(point, SoftErrorPattern::Mean { .. }) { collectives } else { 1 }
}

fn measure(
    preset: &Scenario,
    point: SoftErrorPattern,
    scheme: ReplicationScheme,
    copies: u8,
    collectives: u32,
    seed: u64,
    bar: &ProgressBar,
) -> Result<SoftErrorPoint> {
    let mut scenario = preset.clone();
    scenario.collective.replication = match scheme {
        ReplicationScheme::Temporal => Replication::Temporal { copies },
        ReplicationScheme::Spatial => Replication::Spatial { copies },
    };
    // Hypothetical hardware, reported as such: see the remark on lead-6.
    scenario.collective.what_if_lanes = u64::from(copies) > scenario.width.lanes();
    scenario.plan = match point {
        SoftErrorPattern::Mean { us } => {
            let mut plan = preset.plan.clone();
            let rule = plan.rules.first_mut().context("the preset has no rule for random errors")?;
            *rule = rule.clone().with_mean_us(f64::from(us));
            plan
        }
        point => {
            scenario.plan = FaultPlan::default();
            let tree = build(&scenario, seed)?;
            FaultPlan { seed: None, rules: rules(point, &scenario, &tree)? }
        }
    };
    let mut collective = build(&scenario, seed)?;
    let timings = collective.run(collectives, &mut NoObserver, |_| bar.inc(1));
    // Single errors are timed to the end of the reduce phase, random ones to the last host: see the README.
    let time = |timing: &CollectiveTiming| match point {
        SoftErrorPattern::Mean { .. } => timing.complete,
        _ => timing.reduce,
    };
    let spans: Vec<SimSpan> = timings.iter().filter_map(time).collect();
    if spans.len() < collectives as usize {
        return Err(anyhow!(
            "{} of {collectives} collectives did not complete at {point:?}",
            collectives as usize - spans.len()
        ));
    }
    let (mean_ns, standard_error_ns) = mean(&spans);
    let trace = format!("{:016x}", collective.trace());
    Ok(SoftErrorPoint { point, scheme, copies, collectives, mean_ns, standard_error_ns, trace })
}

fn build(scenario: &Scenario, seed: u64) -> Result<SimulatedCollective> {
    scenario.collective(seed).map_err(|error| anyhow!("{error}"))
}

fn mean(spans: &[SimSpan]) -> (f64, f64) {
    let count = spans.len() as f64;
    let mean = spans.iter().map(|span| span.as_nanos_f64()).sum::<f64>() / count;
    let variance =
        spans.iter().map(|span| (span.as_nanos_f64() - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, (variance / count).sqrt())
}

/// The fault rules of a point, on the links that the tree uses.
fn rules(point: SoftErrorPattern, scenario: &Scenario, collective: &SimulatedCollective) -> Result<Vec<FaultRule>> {
    let tree = collective.tree();
    let name = |index: TreeIndex| scenario.fabric.name(tree.node(index).switch);
    // Damages the first packet from a node to one of its parents.
    let damage = |node: TreeIndex, parent: usize| -> Result<FaultRule> {
        let uplinks = &tree.node(node).parents;
        let uplink = uplinks.get(parent.min(uplinks.len().saturating_sub(1))).context("a root has no uplink")?;
        let link = format!("{}>{}", name(node), name(uplink.parent));
        Ok(FaultRule::new(FaultKind::Flip).on(link).nth(1).during(PhaseFilter::Reduce))
    };
    let of_level = |level: u8| {
        let found = (0..tree.nodes.len() as u32).map(TreeIndex).filter(move |index| tree.node(*index).level == level);
        found.collect::<Vec<_>>()
    };
    let leaves = of_level(1);
    Ok(match point {
        SoftErrorPattern::NoErrors => Vec::new(),
        SoftErrorPattern::AllLinks => vec![FaultRule::new(FaultKind::Flip).nth(1).during(PhaseFilter::Reduce)],
        SoftErrorPattern::OneError => vec![damage(leaves[0], 0)?],
        SoftErrorPattern::TwoAtOneLevel => vec![damage(leaves[0], 0)?, damage(leaves[1], 1)?],
        SoftErrorPattern::BothPorts { level } => {
            let node = of_level(level)[0];
            (0..tree.node(node).parents.len()).map(|parent| damage(node, parent)).collect::<Result<_>>()?
        }
        SoftErrorPattern::Adjacent => {
            let above = tree.node(leaves[0]).parents.first().context("a leaf has no parent")?.parent;
            vec![damage(leaves[0], 0)?, damage(above, 0)?]
        }
        SoftErrorPattern::Mean { .. } => unreachable!("the preset has the rules of random points"),
    })
}
