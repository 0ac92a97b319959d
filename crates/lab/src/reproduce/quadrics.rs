//! The Quadrics paper: ping, barriers and broadcasts, idle and under load (claims QN-12 to QN-15), simulated with the
//! product's own machines; then past it (QN-16).
//!
//! In: one set of parameters (experiments/quadrics/parameters.toml) and the published numbers. Out: each number beside ours,
//! with a word on whether the parameters were fitted to it or predict it. Points are independent, so they run on all cores
//! and give the same numbers on one.

mod output;
mod parameters;
mod points;
mod scale;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use self::parameters::QuadricsParameters;
use self::points::{
    BackgroundLoad, BufferMemory, ElanBarrier, ElanBroadcast, QuadricsPoint, QuadricsPointTiming, QuadricsTimes,
};
use self::scale::{MulticastRootsPoint, QuadricsScalePoint};
use super::comparison::{Comparison, Gate, Remark, ReproductionVerdict};
use super::published;
use crate::CommandOutcome;
use crate::report::ReportFormat;
use crate::report::write_report;

const PUBLISHED: &str = include_str!("../../../../experiments/quadrics/published.csv");
/// Nodes of the paper's barriers.
const NODES: [u32; 5] = [4, 8, 16, 32, 64];
/// Bytes of the broadcasts that are plotted.
const SIZES: [u32; 6] = [64, 256, 2_048, 16_384, 131_072, 1 << 20];
/// A megabyte, as the paper's messages have it.
const MEGABYTE: u32 = 1 << 20;
/// Bytes of the broadcasts whose nodes vary.
const QUARTER: u32 = MEGABYTE / 4;
/// How many times more software must suffer from load than hardware does.
const SUFFERS: f64 = 10.0;

/// Figures 8 to 16 beside ours, then up to 65,536 nodes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach reproduce quadrics --quick                     a tenth of the barriers, and 4 Ki nodes
  pleach reproduce quadrics                             all of it; a minute or two
  pleach reproduce quadrics --format html --output quadrics.html
  pleach reproduce quadrics --nodes 0 --parameters mine.toml    the figures with other parameters

Exit status: 0 if the gated numbers hold, 1 if one does not.")]
pub(crate) struct ReproduceQuadricsArgs {
    /// A tenth of the barriers, at most 4,096 nodes past the paper, and of the broadcasts under load only hbcast from main memory.
    #[arg(long)]
    quick: bool,
    /// Idle barriers per point; 10000 if not said, 1000 with --quick. Loaded ones are fewer.
    #[arg(long, value_parser = clap::value_parser!(u32).range(20..=10_000_000))]
    calls: Option<u32>,
    /// Most nodes past the paper; 0 leaves that out.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=i64::from(scale::MOST)))]
    nodes: Option<u32>,
    /// The seed of traffic and noise.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Assume what this file says instead of what experiments/quadrics/parameters.toml does.
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
    /// How to write the report.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Where to write it; standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Everything that the command found.
#[derive(Serialize)]
struct QuadricsFindings {
    calls: u32,
    seed: u64,
    parameters: QuadricsParameters,
    comparisons: Vec<Comparison>,
    gates: Vec<Gate>,
    scale: Vec<QuadricsScalePoint>,
    roots: Vec<MulticastRootsPoint>,
    points: Vec<QuadricsPointTiming>,
    holds: bool,
}

pub(crate) fn run(arguments: &ReproduceQuadricsArgs) -> Result<CommandOutcome> {
    let parameters = QuadricsParameters::read(arguments.parameters.as_deref())?;
    if let Some(folder) = arguments.output.as_deref().and_then(Path::parent) {
        // Said before the work, not after it.
        ensure!(folder == Path::new("") || folder.is_dir(), "there is no folder {}", folder.display());
    }
    let rows = published::read_published(PUBLISHED).context("experiments/quadrics/published.csv")?;
    let calls = arguments.calls.unwrap_or(if arguments.quick { 1_000 } else { 10_000 });
    let loaded =
        if arguments.quick { &ElanBroadcast::WAYS[ElanBroadcast::WAYS.len() - 1..] } else { &ElanBroadcast::WAYS };
    let times = points::measure_all(all_points(loaded), &parameters, calls, arguments.seed)?;
    let most = arguments.nodes.unwrap_or(if arguments.quick { 1 << 12 } else { scale::MOST });
    let scale = scale::measure(&parameters, most, arguments.seed)?;
    let roots = if scale.is_empty() { Vec::new() } else { scale::roots(&parameters)? };
    let mut comparisons = Vec::new();
    for row in &rows {
        let ours = number(&times, &row.id).with_context(|| format!("{} in published.csv", row.id))?;
        comparisons.push(Comparison::new(row, ours, CalibrationRole::of(&row.id).words(), remark(&row.id)));
    }
    let gates = gates(&times, &scale, &roots)?;
    let matched = comparisons.iter().filter(|row| row.gated).all(|row| row.verdict == ReproductionVerdict::Match);
    let holds = matched && gates.iter().all(|gate| gate.holds);
    let points = times.all();
    let findings =
        QuadricsFindings { calls, seed: arguments.seed, parameters, comparisons, gates, scale, roots, points, holds };
    let text = match arguments.format {
        ReportFormat::Table => output::table(&findings),
        ReportFormat::Json => serde_json::to_string_pretty(&findings)? + "\n",
        ReportFormat::Html => output::html(&findings),
    };
    write_report(&text, arguments.output.as_deref())?;
    Ok(if findings.holds { CommandOutcome::Right } else { CommandOutcome::Wrong })
}

/// Everything that is simulated; of the broadcasts under load those that are named.
fn all_points(loaded: &[(ElanBroadcast, BufferMemory)]) -> Vec<QuadricsPoint> {
    let ping = |bytes, place, by_mpi| QuadricsPoint::Ping { bytes, place, by_mpi };
    let mut points = vec![
        ping(0, BufferMemory::Elan, false),
        ping(64, BufferMemory::Elan, false),
        ping(0, BufferMemory::Elan, true),
        ping(MEGABYTE, BufferMemory::Elan, false),
        ping(MEGABYTE, BufferMemory::Main, false),
    ];
    for load in BackgroundLoad::ALL {
        for barrier in ElanBarrier::ALL {
            points.extend(NODES.map(|nodes| QuadricsPoint::Barrier { barrier, nodes, load }));
        }
        let ways = if load == BackgroundLoad::Idle { &ElanBroadcast::WAYS } else { loaded };
        for (way, place) in ways.iter().copied() {
            points.extend(SIZES.map(|bytes| cast(way, place, 64, bytes, load)));
            points.extend(NODES.map(|nodes| cast(way, place, nodes, QUARTER, load)));
        }
    }
    points
}

fn cast(cast: ElanBroadcast, place: BufferMemory, nodes: u32, bytes: u32, load: BackgroundLoad) -> QuadricsPoint {
    QuadricsPoint::Broadcast { cast, bytes, place, nodes, load }
}

/// Our number for a published one, by its name.
fn number(times: &QuadricsTimes, id: &str) -> Result<f64> {
    let parts: Vec<&str> = id.split('-').collect();
    let rate = |point: QuadricsPoint, bytes: u32| Ok(f64::from(bytes) / times.of(point)?);
    let at_64 = |barrier, load| QuadricsPoint::Barrier { barrier, nodes: 64, load };
    match parts.as_slice() {
        ["ping", "rate", place] => {
            rate(QuadricsPoint::Ping { bytes: MEGABYTE, place: place_of(place)?, by_mpi: false }, MEGABYTE)
        }
        ["ping", "mpi"] => times.of(QuadricsPoint::Ping { bytes: 0, place: BufferMemory::Elan, by_mpi: true }),
        ["ping", bytes] => {
            times.of(QuadricsPoint::Ping { bytes: bytes.parse()?, place: BufferMemory::Elan, by_mpi: false })
        }
        ["slower", barrier, load] => {
            let barrier = barrier_of(barrier)?;
            slower(times, barrier, load_of(load)?)
        }
        ["growth", barrier, load] => {
            let (barrier, load) = (barrier_of(barrier)?, load_of(load)?);
            let at = |nodes| times.of(QuadricsPoint::Barrier { barrier, nodes, load });
            Ok(100.0 * (at(64)? / at(4)? - 1.0))
        }
        ["below", barrier, load, us] => times.below(at_64(barrier_of(barrier)?, load_of(load)?), us.parse()?),
        ["above", barrier, load, us] => {
            Ok(100.0 - times.below(at_64(barrier_of(barrier)?, load_of(load)?), us.parse()?)?)
        }
        ["drop", place, few, many] => {
            let place = place_of(place)?;
            let of = |nodes: &str| -> Result<f64> {
                rate(cast(ElanBroadcast::Hbcast, place, nodes.parse()?, QUARTER, BackgroundLoad::Idle), QUARTER)
            };
            Ok(100.0 * (1.0 - of(many)? / of(few)?))
        }
        [way @ ("bcast" | "hbcast"), rest @ ..] => broadcast_number(times, way, rest),
        [barrier, load, nodes] => {
            let (barrier, load) = (barrier_of(barrier)?, load_of(load)?);
            times.of(QuadricsPoint::Barrier { barrier, nodes: nodes.parse()?, load })
        }
        _ => bail!("no such number"),
    }
}

/// Of a broadcast: `[main-][rate-]load-nodes-bytes`.
fn broadcast_number(times: &QuadricsTimes, way: &str, rest: &[&str]) -> Result<f64> {
    let way = if way == "bcast" { ElanBroadcast::Bcast } else { ElanBroadcast::Hbcast };
    let (place, rest) = match rest {
        ["main", rest @ ..] => (BufferMemory::Main, rest),
        rest => (BufferMemory::Elan, rest),
    };
    let (is_rate, rest) = match rest {
        ["rate", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let [load, nodes, bytes] = rest else { bail!("no such number") };
    let bytes: u32 = bytes.parse()?;
    let us = times.of(cast(way, place, nodes.parse()?, bytes, load_of(load)?))?;
    Ok(if is_rate { f64::from(bytes) / us } else { us })
}

/// How many times longer a barrier on 64 nodes takes under load.
fn slower(times: &QuadricsTimes, barrier: ElanBarrier, load: BackgroundLoad) -> Result<f64> {
    let at = |load| times.of(QuadricsPoint::Barrier { barrier, nodes: 64, load });
    Ok(at(load)? / at(BackgroundLoad::Idle)?)
}

fn place_of(name: &str) -> Result<BufferMemory> {
    match name {
        "elan" => Ok(BufferMemory::Elan),
        "main" => Ok(BufferMemory::Main),
        _ => bail!("no such memory: {name}"),
    }
}

fn barrier_of(name: &str) -> Result<ElanBarrier> {
    ElanBarrier::ALL
        .into_iter()
        .find(|barrier| barrier.words() == name)
        .with_context(|| format!("no such barrier: {name}"))
}

fn load_of(name: &str) -> Result<BackgroundLoad> {
    BackgroundLoad::ALL.into_iter().find(|load| load.words() == name).with_context(|| format!("no such load: {name}"))
}

/// What a published number is to the parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CalibrationRole {
    /// They were fitted to it: the ping, and the idle barriers on 16 nodes.
    Fitted,
    /// It set the noise of the hosts.
    Input,
    /// They predict it.
    Predicted,
}

impl CalibrationRole {
    fn of(id: &str) -> Self {
        match id {
            _ if id.starts_with("ping-") || id.ends_with("-idle-16") => Self::Fitted,
            "below-hgsync-idle-9" | "above-hgsync-idle-20" => Self::Input,
            _ => Self::Predicted,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Input => "input",
            Self::Predicted => "predicted",
        }
    }
}

/// What must hold, whatever the exact numbers.
fn gates(times: &QuadricsTimes, scale: &[QuadricsScalePoint], roots: &[MulticastRootsPoint]) -> Result<Vec<Gate>> {
    let [software, hardware] =
        [ElanBarrier::Gsync, ElanBarrier::Hgsync].map(|barrier| slower(times, barrier, BackgroundLoad::Uniform));
    let ratio = software? / hardware?;
    let mut gates = vec![Gate {
        statement: format!(
            "uniform load on 64 nodes: software suffers at least {SUFFERS:.0} times more than hardware ({ratio:.1})"
        ),
        holds: ratio >= SUFFERS,
    }];
    let at = |barrier, nodes| times.of(QuadricsPoint::Barrier { barrier, nodes, load: BackgroundLoad::Idle });
    let mut ahead = true;
    for nodes in NODES {
        ahead &= at(ElanBarrier::Hgsync, nodes)? < at(ElanBarrier::Gsync, nodes)?;
    }
    gates.push(Gate { statement: "idle: hardware barriers are quicker than software barriers".into(), holds: ahead });
    if let (Some(first), Some(last)) = (scale.first(), scale.last()) {
        let grows = |us: fn(&QuadricsScalePoint) -> f64| us(last) - us(first);
        gates.push(Gate {
            statement: "past the paper: a tested barrier grows less with the nodes than a tree does".into(),
            holds: grows(|size| size.tested_us) <= grows(|size| size.tree_us),
        });
    }
    if let [one, two, four] = roots {
        gates.push(Gate {
            statement: "past the paper: groups with roots of their own do not wait for each other".into(),
            holds: two.megabytes_per_second > 1.5 * one.megabytes_per_second
                && four.megabytes_per_second > 1.5 * two.megabytes_per_second,
        });
    }
    Ok(gates)
}

/// What is known about a number that does not come out.
fn remark(id: &str) -> Option<Remark> {
    let why = match id {
        "hbcast-main-uniform-64-2048" => {
            "most of it is the wait for one slice of the background's DMA, whose length the paper does not give"
        }
        "hbcast-main-rate-complement-64-1048576" => {
            "not the adapters' memory, which data of main memory does not touch; what else slows it the paper does not say"
        }
        "drop-elan-16-64" | "drop-elan-4-16" => {
            "every multicast climbs to the top here, whatever its set (QN-6), so sets of all sizes take the same way"
        }
        "above-gsync-idle-30" | "below-hgsync-idle-9" | "above-hgsync-idle-20" | "growth-hgsync-idle" => {
            "the noise of the hosts has one rate and one mean length; the paper only says that scheduling is the reason"
        }
        "growth-hgsync-complement" => "what the background does to a multicast is all that grows here; see README",
        _ if id.contains("uniform") || id.contains("complement") => {
            "the paper gives neither the size of the background's messages nor the length of a DMA's slice; see README"
        }
        _ => return None,
    };
    Some(Remark::Why(why))
}
