//! The Quadrics paper: ping, barriers and broadcasts, idle and under load (claims QN-12 to QN-15), simulated with our protocol
//! machines; then larger systems (QN-16).
//!
//! In: one set of parameters (experiments/quadrics/parameters.toml) and the published numbers. Out: each number compared with
//! ours, and whether the parameters were fitted to it or predict it. Points are independent, so they run on all cores and give
//! the same numbers on one.

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
use super::calibration::CalibrationRole;
use super::comparison::{Comparison, Gate, Remark, ReproductionVerdict};
use super::published;
use crate::CommandOutcome;
use crate::report::ReportArgs;

const PUBLISHED: &str = include_str!("../../experiments/quadrics/published.csv");
/// Nodes of the paper's barriers.
const NODES: [u32; 5] = [4, 8, 16, 32, 64];
/// Bytes of the broadcasts that are plotted.
const SIZES: [u32; 6] = [64, 256, 2_048, 16_384, 131_072, 1 << 20];
/// A megabyte of the paper's messages.
const MEGABYTE: u32 = 1 << 20;
/// Bytes of the broadcasts by nodes.
const QUARTER_MEGABYTE: u32 = MEGABYTE / 4;
/// Load must slow software barriers at least this many times more than hardware barriers.
const MIN_SLOWDOWN_RATIO: f64 = 10.0;

/// Compares Figures 8 to 16 with our simulation, then simulates up to 65,536 nodes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach reproduce quadrics --quick                     a tenth of the barriers, and 4 Ki nodes
  pleach reproduce quadrics                             all of it; a minute or two
  pleach reproduce quadrics --format html --output quadrics.html
  pleach reproduce quadrics --nodes 0 --parameters mine.toml    the figures with other parameters

Exit status: 0 if the gated numbers hold, 1 if one does not.")]
pub(crate) struct ReproduceQuadricsArgs {
    /// A tenth of the barriers, at most 4,096 nodes beyond the paper, and under load only hbcast from main memory.
    #[arg(long)]
    quick: bool,
    /// Idle barriers per point; fewer under load [default: 10000, or 1000 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(20..=10_000_000))]
    calls: Option<u32>,
    /// Maximum nodes beyond the paper; 0 omits that part.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=i64::from(scale::MAX_NODES)))]
    nodes: Option<u32>,
    /// Seed of traffic and noise.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Parameter file to use instead of experiments/quadrics/parameters.toml.
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
    #[command(flatten)]
    report: ReportArgs,
}

/// All results of the command.
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
    if let Some(folder) = arguments.report.output.as_deref().and_then(Path::parent) {
        // Checked before the simulation, not after it.
        ensure!(folder == Path::new("") || folder.is_dir(), "the folder {} does not exist", folder.display());
    }
    let rows = published::read_published(PUBLISHED).context("experiments/quadrics/published.csv")?;
    let calls = arguments.calls.unwrap_or(if arguments.quick { 1_000 } else { 10_000 });
    let loaded = if arguments.quick {
        &ElanBroadcast::VARIANTS[ElanBroadcast::VARIANTS.len() - 1..]
    } else {
        &ElanBroadcast::VARIANTS
    };
    let times = points::measure_all(all_points(loaded), &parameters, calls, arguments.seed)?;
    let most = arguments.nodes.unwrap_or(if arguments.quick { 1 << 12 } else { scale::MAX_NODES });
    let scale = scale::measure(&parameters, most, arguments.seed)?;
    let roots = if scale.is_empty() { Vec::new() } else { scale::roots(&parameters)? };
    let mut comparisons = Vec::new();
    for row in &rows {
        let ours = number(&times, &row.id).with_context(|| format!("{} in published.csv", row.id))?;
        comparisons.push(Comparison::new(row, ours, calibration_role(&row.id).name(), remark(&row.id)));
    }
    let gates = gates(&times, &scale, &roots)?;
    let matched = comparisons.iter().filter(|row| row.gated).all(|row| row.verdict == ReproductionVerdict::Match);
    let holds = matched && gates.iter().all(|gate| gate.holds);
    let points = times.all();
    let findings =
        QuadricsFindings { calls, seed: arguments.seed, parameters, comparisons, gates, scale, roots, points, holds };
    arguments.report.write(&findings, output::table, output::html)?;
    Ok(if findings.holds { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

/// All points. `loaded` are the broadcasts that are simulated under load.
fn all_points(loaded: &[(ElanBroadcast, BufferMemory)]) -> Vec<QuadricsPoint> {
    let ping = |bytes, memory, by_mpi| QuadricsPoint::Ping { bytes, memory, by_mpi };
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
        let variants = if load == BackgroundLoad::Idle { &ElanBroadcast::VARIANTS } else { loaded };
        for (broadcast, memory) in variants.iter().copied() {
            points.extend(SIZES.map(|bytes| broadcast_point(broadcast, memory, 64, bytes, load)));
            points.extend(NODES.map(|nodes| broadcast_point(broadcast, memory, nodes, QUARTER_MEGABYTE, load)));
        }
    }
    points
}

fn broadcast_point(
    broadcast: ElanBroadcast,
    memory: BufferMemory,
    nodes: u32,
    bytes: u32,
    load: BackgroundLoad,
) -> QuadricsPoint {
    QuadricsPoint::Broadcast { broadcast, bytes, memory, nodes, load }
}

/// Our number for the id of a published one.
fn number(times: &QuadricsTimes, id: &str) -> Result<f64> {
    let parts: Vec<&str> = id.split('-').collect();
    let rate = |point: QuadricsPoint, bytes: u32| Ok(f64::from(bytes) / times.of(point)?);
    let at_64 = |barrier, load| QuadricsPoint::Barrier { barrier, nodes: 64, load };
    match parts.as_slice() {
        ["ping", "rate", memory] => {
            rate(QuadricsPoint::Ping { bytes: MEGABYTE, memory: memory_of(memory)?, by_mpi: false }, MEGABYTE)
        }
        ["ping", "mpi"] => times.of(QuadricsPoint::Ping { bytes: 0, memory: BufferMemory::Elan, by_mpi: true }),
        ["ping", bytes] => {
            times.of(QuadricsPoint::Ping { bytes: bytes.parse()?, memory: BufferMemory::Elan, by_mpi: false })
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
        ["drop", memory, few, many] => {
            let memory = memory_of(memory)?;
            let of = |nodes: &str| -> Result<f64> {
                rate(
                    broadcast_point(
                        ElanBroadcast::Hbcast,
                        memory,
                        nodes.parse()?,
                        QUARTER_MEGABYTE,
                        BackgroundLoad::Idle,
                    ),
                    QUARTER_MEGABYTE,
                )
            };
            Ok(100.0 * (1.0 - of(many)? / of(few)?))
        }
        [name @ ("bcast" | "hbcast"), rest @ ..] => broadcast_number(times, name, rest),
        [barrier, load, nodes] => {
            let (barrier, load) = (barrier_of(barrier)?, load_of(load)?);
            times.of(QuadricsPoint::Barrier { barrier, nodes: nodes.parse()?, load })
        }
        _ => bail!("unknown id"),
    }
}

/// The number of a broadcast; its id is `[main-][rate-]load-nodes-bytes`.
fn broadcast_number(times: &QuadricsTimes, name: &str, rest: &[&str]) -> Result<f64> {
    let broadcast = if name == "bcast" { ElanBroadcast::Bcast } else { ElanBroadcast::Hbcast };
    let (memory, rest) = match rest {
        ["main", rest @ ..] => (BufferMemory::Main, rest),
        rest => (BufferMemory::Elan, rest),
    };
    let (is_rate, rest) = match rest {
        ["rate", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let [load, nodes, bytes] = rest else { bail!("unknown id") };
    let bytes: u32 = bytes.parse()?;
    let us = times.of(broadcast_point(broadcast, memory, nodes.parse()?, bytes, load_of(load)?))?;
    Ok(if is_rate { f64::from(bytes) / us } else { us })
}

/// The slowdown of a barrier on 64 nodes under load.
fn slower(times: &QuadricsTimes, barrier: ElanBarrier, load: BackgroundLoad) -> Result<f64> {
    let at = |load| times.of(QuadricsPoint::Barrier { barrier, nodes: 64, load });
    Ok(at(load)? / at(BackgroundLoad::Idle)?)
}

fn memory_of(name: &str) -> Result<BufferMemory> {
    match name {
        "elan" => Ok(BufferMemory::Elan),
        "main" => Ok(BufferMemory::Main),
        _ => bail!("unknown memory: {name}"),
    }
}

fn barrier_of(name: &str) -> Result<ElanBarrier> {
    ElanBarrier::ALL
        .into_iter()
        .find(|barrier| barrier.label() == name)
        .with_context(|| format!("unknown barrier: {name}"))
}

fn load_of(name: &str) -> Result<BackgroundLoad> {
    BackgroundLoad::ALL.into_iter().find(|load| load.label() == name).with_context(|| format!("unknown load: {name}"))
}

/// Fitted: the ping, and the idle barriers on 16 nodes. Inputs set the noise of the hosts.
fn calibration_role(id: &str) -> CalibrationRole {
    match id {
        _ if id.starts_with("ping-") || id.ends_with("-idle-16") => CalibrationRole::Fitted,
        "below-hgsync-idle-9" | "above-hgsync-idle-20" => CalibrationRole::Input,
        _ => CalibrationRole::Predicted,
    }
}

/// Statements that must hold, whatever the exact numbers.
fn gates(times: &QuadricsTimes, scale: &[QuadricsScalePoint], roots: &[MulticastRootsPoint]) -> Result<Vec<Gate>> {
    let [software, hardware] =
        [ElanBarrier::Gsync, ElanBarrier::Hgsync].map(|barrier| slower(times, barrier, BackgroundLoad::Uniform));
    let ratio = software? / hardware?;
    let mut gates = vec![Gate {
        statement: format!(
            "uniform load on 64 nodes slows software at least {MIN_SLOWDOWN_RATIO:.0} times more than hardware ({ratio:.1})"
        ),
        holds: ratio >= MIN_SLOWDOWN_RATIO,
    }];
    let at = |barrier, nodes| times.of(QuadricsPoint::Barrier { barrier, nodes, load: BackgroundLoad::Idle });
    let mut ahead = true;
    for nodes in NODES {
        ahead &= at(ElanBarrier::Hgsync, nodes)? < at(ElanBarrier::Gsync, nodes)?;
    }
    gates.push(Gate { statement: "idle: hardware barriers are faster than software barriers".into(), holds: ahead });
    if let (Some(first), Some(last)) = (scale.first(), scale.last()) {
        let grows = |us: fn(&QuadricsScalePoint) -> f64| us(last) - us(first);
        gates.push(Gate {
            statement: "beyond the paper: a polled barrier grows less with the nodes than a tree barrier".into(),
            holds: grows(|size| size.polled_us) <= grows(|size| size.tree_us),
        });
    }
    if let [one, two, four] = roots {
        gates.push(Gate {
            statement: "beyond the paper: groups with separate roots do not wait for each other".into(),
            holds: two.megabytes_per_second > 1.5 * one.megabytes_per_second
                && four.megabytes_per_second > 1.5 * two.megabytes_per_second,
        });
    }
    Ok(gates)
}

/// The explanation of a number that is not reproduced.
fn remark(id: &str) -> Option<Remark> {
    let why = match id {
        "hbcast-main-uniform-64-2048" => {
            "most of it is the wait for one DMA slice of the background, whose length the paper does not give"
        }
        "hbcast-main-rate-complement-64-1048576" => {
            "the adapters' memory is not the cause, since data in main memory does not pass it; the paper names no other"
        }
        "drop-elan-16-64" | "drop-elan-4-16" => {
            "every multicast goes through the top switches here (QN-6), so sets of all sizes take the same path"
        }
        "above-gsync-idle-30" | "below-hgsync-idle-9" | "above-hgsync-idle-20" | "growth-hgsync-idle" => {
            "the noise of the hosts has one rate and one mean length; the paper names scheduling as the cause and gives no numbers"
        }
        "growth-hgsync-complement" => "only the effect of the background on a multicast grows here; see README",
        _ if id.contains("uniform") || id.contains("complement") => {
            "the paper gives neither the size of the background messages nor the length of a DMA slice; see README"
        }
        _ => return None,
    };
    Some(Remark::Why(why))
}
