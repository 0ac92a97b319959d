//! The Quadrics paper: ping, barriers and broadcasts, idle and under load (claims QN-12 to QN-15), simulated with our protocol
//! machines; then larger systems (QN-16).
//!
//! In: one set of parameters (experiments/quadrics/parameters.toml) and the published numbers. Out: each number compared with
//! ours, with a label: calibrated, predicted, informed or input. Points are independent, so they run on all cores and give
//! the same numbers on one.

mod congestion;
mod output;
mod parameters;
mod points;
mod scale;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use self::congestion::{CongestionPoint, MESSAGE_SIZES, congestion};
pub(crate) use self::parameters::{QuadricsHostNoise, QuadricsParameters};
use self::points::{
    BackgroundLoad, BufferMemory, ElanBarrier, ElanBroadcast, QuadricsPoint, QuadricsPointTiming, QuadricsTimes,
};
use self::scale::{MulticastRootsPoint, QuadricsScalePoint};
use super::comparison::{Comparison, Gate, Remark, all_hold};
use super::published_paper::PublishedPaper;
use super::robustness::{ExperimentTrial, RobustnessArgs};
use super::summary::Summary;
use crate::CommandOutcome;
use crate::report::ReportArgs;

const PUBLISHED: &str = include_str!("../../experiments/quadrics/published.csv");
const CALIBRATION: &str = include_str!("../../experiments/quadrics/calibration.toml");
/// Idle barriers per point: of the full form, and of the quick one.
const CALLS: [u32; 2] = [10_000, 1_000];
/// Nodes of the paper's barriers.
const NODES: [u32; 5] = [4, 8, 16, 32, 64];
/// Bytes of the broadcasts that are plotted.
const SIZES: [u32; 6] = [64, 256, 2_048, 16_384, 131_072, 1 << 20];
/// A megabyte of the paper's messages.
const MEGABYTE: u32 = 1 << 20;
/// Bytes of the broadcasts by nodes.
const QUARTER_MEGABYTE: u32 = MEGABYTE / 4;

/// Compares Figures 8 to 16 with our simulation, then simulates up to 65,536 nodes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach reproduce quadrics --quick                     a tenth of the barriers, and 4 Ki nodes
  pleach reproduce quadrics                             all of it, and 20 seeds; minutes
  pleach reproduce quadrics --quick --nodes 0 --sensitivity    which verdicts depend on which assumption
  pleach reproduce quadrics --format html --output quadrics.html
  pleach reproduce quadrics --nodes 0 --parameters mine.toml    the figures with other parameters

Exit status: 0 if the gated numbers hold, 1 if one does not.")]
pub(crate) struct ReproduceQuadricsArgs {
    /// A tenth of the barriers, at most 4,096 nodes beyond the paper, under load only the published broadcasts, and one seed.
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
    robustness: RobustnessArgs,
    #[command(flatten)]
    report: ReportArgs,
}

/// All results of the command.
#[derive(Serialize)]
struct QuadricsFindings {
    calls: u32,
    seed: u64,
    summary: Summary,
    parameters: QuadricsParameters,
    comparisons: Vec<Comparison>,
    gates: Vec<Gate>,
    congestion: Vec<CongestionPoint>,
    scale: Vec<QuadricsScalePoint>,
    roots: Vec<MulticastRootsPoint>,
    points: Vec<QuadricsPointTiming>,
    holds: bool,
}

pub(crate) fn run(arguments: &ReproduceQuadricsArgs) -> Result<CommandOutcome> {
    let (text, parameters) = QuadricsParameters::read(arguments.parameters.as_deref())?;
    if let Some(folder) = arguments.report.output.as_deref().and_then(Path::parent) {
        // Checked before the simulation, not after it.
        ensure!(folder == Path::new("") || folder.is_dir(), "the folder {} does not exist", folder.display());
    }
    let paper = read_paper()?;
    let calls = arguments.calls.unwrap_or(CALLS[usize::from(arguments.quick)]);
    let loaded = if arguments.quick { LoadedBroadcasts::Published } else { LoadedBroadcasts::All };
    let times = points::measure_all(all_points(loaded), &parameters, calls, arguments.seed)?;
    let most = arguments.nodes.unwrap_or(if arguments.quick { 1 << 12 } else { scale::MAX_NODES });
    let scale = scale::measure(&parameters, most, arguments.seed)?;
    let roots = if scale.is_empty() { Vec::new() } else { scale::roots(&parameters)? };
    let ExperimentTrial { rows: comparisons, mut gates } = compare(&paper, &times)?;
    gates.extend(scale_gates(&scale, &roots));
    let trial = |text: &str, seed: u64| {
        let parameters = QuadricsParameters::parse(text)?;
        let times =
            points::measure_all(all_points(LoadedBroadcasts::Published), &parameters, calls.min(CALLS[1]), seed)?;
        compare(&paper, &times)
    };
    let robustness =
        arguments.robustness.measure(arguments.quick, &text, &paper.calibration, arguments.seed, trial)?;
    let findings = QuadricsFindings {
        calls,
        seed: arguments.seed,
        holds: all_hold(&comparisons, &gates) && robustness.holds(),
        summary: Summary::new(&comparisons, &paper.calibration, robustness),
        parameters,
        comparisons,
        gates,
        congestion: congestion(&times)?,
        scale,
        roots,
        points: times.all(),
    };
    arguments.report.write(&findings, output::table, output::html)?;
    Ok(if findings.holds { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

/// The broadcasts that are simulated under load, which take longest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LoadedBroadcasts {
    /// Those whose numbers are published (the quick form).
    Published,
    /// All of them, by size and by nodes.
    All,
}

/// The sizes of the published broadcasts under load, by *hbcast* from main memory to 64 nodes.
const PUBLISHED_LOADED: [u32; 2] = [2_048, MEGABYTE];

fn read_paper() -> Result<PublishedPaper> {
    PublishedPaper::read("quadrics", PUBLISHED, CALIBRATION)
}

fn compare(paper: &PublishedPaper, times: &QuadricsTimes) -> Result<ExperimentTrial> {
    let mut rows = Vec::new();
    for row in &paper.published {
        let ours = number(times, &row.id).with_context(|| format!("{} in published.csv", row.id))?;
        rows.push(Comparison::new(row, ours, &paper.calibration, "", remark(&row.id)));
    }
    Ok(ExperimentTrial { rows, gates: gates(times)? })
}

/// All points.
fn all_points(loaded: LoadedBroadcasts) -> Vec<QuadricsPoint> {
    let ping = |bytes, memory, by_mpi| QuadricsPoint::Ping { bytes, memory, by_mpi };
    let mut points = vec![
        ping(0, BufferMemory::Elan, false),
        ping(64, BufferMemory::Elan, false),
        ping(0, BufferMemory::Elan, true),
        ping(MEGABYTE, BufferMemory::Elan, false),
        ping(MEGABYTE, BufferMemory::Main, false),
    ];
    for message_bytes in MESSAGE_SIZES {
        let barriers = [ElanBarrier::Gsync, ElanBarrier::Hgsync];
        points.extend(barriers.map(|barrier| QuadricsPoint::Congested { barrier, message_bytes }));
    }
    for load in BackgroundLoad::ALL {
        for barrier in ElanBarrier::ALL {
            points.extend(NODES.map(|nodes| QuadricsPoint::Barrier { barrier, nodes, load }));
        }
        if load != BackgroundLoad::Idle && loaded == LoadedBroadcasts::Published {
            let published = |bytes| broadcast_point(ElanBroadcast::Hbcast, BufferMemory::Main, 64, bytes, load);
            points.extend(PUBLISHED_LOADED.map(published));
            continue;
        }
        for (broadcast, memory) in ElanBroadcast::VARIANTS {
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
        ["slower", "ratio", load] => {
            let load = load_of(load)?;
            Ok(slower(times, ElanBarrier::Gsync, load)? / slower(times, ElanBarrier::Hgsync, load)?)
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

/// Statements that must hold, whatever the exact numbers.
fn gates(times: &QuadricsTimes) -> Result<Vec<Gate>> {
    let curve = congestion(times)?;
    let ratios: Vec<String> = curve
        .iter()
        .map(|point| {
            format!("{} KB {:.1}x", point.message_bytes >> 10, point.software_slower / point.hardware_slower)
        })
        .collect();
    let mut ahead = true;
    for nodes in NODES {
        let at = |barrier| times.of(QuadricsPoint::Barrier { barrier, nodes, load: BackgroundLoad::Idle });
        ahead &= at(ElanBarrier::Hgsync)? < at(ElanBarrier::Gsync)?;
    }
    Ok(vec![
        Gate::new(
            "uniform load on 64 nodes slows software more than hardware, with background messages of any size",
            ratios.join(", "),
            curve.iter().all(|point| point.software_slower > point.hardware_slower),
        ),
        Gate::new("idle: hardware barriers are faster than software barriers", "", ahead),
    ])
}

/// Statements beyond the paper.
fn scale_gates(scale: &[QuadricsScalePoint], roots: &[MulticastRootsPoint]) -> Vec<Gate> {
    let mut gates = Vec::new();
    if let (Some(first), Some(last)) = (scale.first(), scale.last()) {
        let grows = |us: fn(&QuadricsScalePoint) -> f64| us(last) - us(first);
        let (polled, tree) = (grows(|size| size.polled_us), grows(|size| size.tree_us));
        gates.push(Gate::new(
            "beyond the paper: a polled barrier grows less with the nodes than a tree barrier",
            format!("{polled:.2} and {tree:.2} us"),
            polled <= tree,
        ));
    }
    if let [one, two, four] = roots {
        gates.push(Gate::new(
            "beyond the paper: groups with separate roots do not wait for each other",
            "",
            two.megabytes_per_second > 1.5 * one.megabytes_per_second
                && four.megabytes_per_second > 1.5 * two.megabytes_per_second,
        ));
    }
    gates
}

/// The explanation of a number that is not reproduced.
fn remark(id: &str) -> Option<Remark> {
    let why = match id {
        "hbcast-main-uniform-64-2048" => {
            "most of it is the wait for one DMA slice of the background, whose length the paper does not give"
        }
        "hbcast-main-rate-complement-64-1048576" => {
            "the bus that the root reads and writes its data over explains a part: without it 96 MB/s; the paper names no other cause, and \
             here adapter memory is faster under this load, where the paper has main memory first"
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

#[cfg(test)]
mod tests {
    use super::super::calibration::Calibration;
    use super::super::published::PublishedNumber;
    use super::super::robustness::scale_parameter;
    use super::parameters::TEXT;
    use super::*;

    #[test]
    fn no_row_is_its_own_prediction() {
        let paper = read_paper().expect("the shipped files are valid");
        // Idle points suffice: nothing was calibrated on loaded ones.
        let is_idle = |row: &&PublishedNumber| ["uniform", "complement"].iter().all(|load| !row.id.contains(load));
        let rows: Vec<&PublishedNumber> = paper.published.iter().filter(is_idle).collect();
        let points: Vec<QuadricsPoint> =
            all_points(LoadedBroadcasts::Published).into_iter().filter(|point| !point.is_loaded()).collect();
        let run = |text: &str| -> Vec<Comparison> {
            let parameters = QuadricsParameters::parse(text).expect("in range");
            let times = points::measure_all(points.clone(), &parameters, 30, 1).expect("it runs");
            let compare = |row: &&PublishedNumber| {
                Comparison::new(row, number(&times, &row.id).expect("known"), &paper.calibration, "", None)
            };
            rows.iter().map(compare).collect()
        };
        let names = paper.calibration.calibrated.iter();
        let changed: Vec<Vec<Comparison>> =
            names.map(|name| run(&scale_parameter(TEXT, name, 1.1).expect("a number"))).collect();
        assert_eq!(Calibration::own_predictions(&run(TEXT), &changed), []);
    }

    #[test]
    fn every_parameter_has_one_origin() {
        let calibration = read_paper().expect("the shipped files are valid").calibration;
        assert_eq!(calibration.origins_missing(TEXT), [""; 0]);
    }
}
