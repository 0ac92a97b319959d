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

use self::parameters::Parameters;
use self::points::{Barrier, Cast, Load, Place, Point, Taken, Times};
use self::scale::{Roots, Size};
use super::published;
use super::verdict::{Comparison, Gate, Remark, Verdict};
use crate::Outcome;
use crate::report::deliver;
use crate::report::Format;

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
pub(crate) struct Arguments {
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
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Where to write it; standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Everything that the command found.
#[derive(Serialize)]
struct Findings {
    calls: u32,
    seed: u64,
    parameters: Parameters,
    comparisons: Vec<Comparison>,
    gates: Vec<Gate>,
    scale: Vec<Size>,
    roots: Vec<Roots>,
    points: Vec<Taken>,
    holds: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let parameters = Parameters::read(arguments.parameters.as_deref())?;
    if let Some(folder) = arguments.output.as_deref().and_then(Path::parent) {
        // Said before the work, not after it.
        ensure!(folder == Path::new("") || folder.is_dir(), "there is no folder {}", folder.display());
    }
    let rows = published::read(PUBLISHED).context("experiments/quadrics/published.csv")?;
    let calls = arguments.calls.unwrap_or(if arguments.quick { 1_000 } else { 10_000 });
    let loaded = if arguments.quick { &Cast::WAYS[Cast::WAYS.len() - 1..] } else { &Cast::WAYS };
    let times = points::measure_all(all_points(loaded), &parameters, calls, arguments.seed)?;
    let most = arguments.nodes.unwrap_or(if arguments.quick { 1 << 12 } else { scale::MOST });
    let scale = scale::measure(&parameters, most, arguments.seed)?;
    let roots = if scale.is_empty() { Vec::new() } else { scale::roots(&parameters)? };
    let mut comparisons = Vec::new();
    for row in &rows {
        let ours = number(&times, &row.id).with_context(|| format!("{} in published.csv", row.id))?;
        comparisons.push(Comparison::new(row, ours, Role::of(&row.id).words(), remark(&row.id)));
    }
    let gates = gates(&times, &scale, &roots)?;
    let matched = comparisons.iter().filter(|row| row.gated).all(|row| row.verdict == Verdict::Match);
    let holds = matched && gates.iter().all(|gate| gate.holds);
    let points = times.all();
    let findings =
        Findings { calls, seed: arguments.seed, parameters, comparisons, gates, scale, roots, points, holds };
    let text = match arguments.format {
        Format::Table => output::table(&findings),
        Format::Json => serde_json::to_string_pretty(&findings)? + "\n",
        Format::Html => output::html(&findings),
    };
    deliver(&text, arguments.output.as_deref())?;
    Ok(if findings.holds { Outcome::Right } else { Outcome::Wrong })
}

/// Everything that is simulated; of the broadcasts under load those that are named.
fn all_points(loaded: &[(Cast, Place)]) -> Vec<Point> {
    let ping = |bytes, place, by_mpi| Point::Ping { bytes, place, by_mpi };
    let mut points = vec![
        ping(0, Place::Elan, false),
        ping(64, Place::Elan, false),
        ping(0, Place::Elan, true),
        ping(MEGABYTE, Place::Elan, false),
        ping(MEGABYTE, Place::Main, false),
    ];
    for load in Load::ALL {
        for barrier in Barrier::ALL {
            points.extend(NODES.map(|nodes| Point::Barrier { barrier, nodes, load }));
        }
        let ways = if load == Load::Idle { &Cast::WAYS } else { loaded };
        for (way, place) in ways.iter().copied() {
            points.extend(SIZES.map(|bytes| cast(way, place, 64, bytes, load)));
            points.extend(NODES.map(|nodes| cast(way, place, nodes, QUARTER, load)));
        }
    }
    points
}

fn cast(cast: Cast, place: Place, nodes: u32, bytes: u32, load: Load) -> Point {
    Point::Broadcast { cast, bytes, place, nodes, load }
}

/// Our number for a published one, by its name.
fn number(times: &Times, id: &str) -> Result<f64> {
    let parts: Vec<&str> = id.split('-').collect();
    let rate = |point: Point, bytes: u32| Ok(f64::from(bytes) / times.of(point)?);
    let at_64 = |barrier, load| Point::Barrier { barrier, nodes: 64, load };
    match parts.as_slice() {
        ["ping", "rate", place] => {
            rate(Point::Ping { bytes: MEGABYTE, place: place_of(place)?, by_mpi: false }, MEGABYTE)
        }
        ["ping", "mpi"] => times.of(Point::Ping { bytes: 0, place: Place::Elan, by_mpi: true }),
        ["ping", bytes] => times.of(Point::Ping { bytes: bytes.parse()?, place: Place::Elan, by_mpi: false }),
        ["slower", barrier, load] => {
            let barrier = barrier_of(barrier)?;
            slower(times, barrier, load_of(load)?)
        }
        ["growth", barrier, load] => {
            let (barrier, load) = (barrier_of(barrier)?, load_of(load)?);
            let at = |nodes| times.of(Point::Barrier { barrier, nodes, load });
            Ok(100.0 * (at(64)? / at(4)? - 1.0))
        }
        ["below", barrier, load, us] => times.below(at_64(barrier_of(barrier)?, load_of(load)?), us.parse()?),
        ["above", barrier, load, us] => {
            Ok(100.0 - times.below(at_64(barrier_of(barrier)?, load_of(load)?), us.parse()?)?)
        }
        ["drop", place, few, many] => {
            let place = place_of(place)?;
            let of = |nodes: &str| -> Result<f64> {
                rate(cast(Cast::Hbcast, place, nodes.parse()?, QUARTER, Load::Idle), QUARTER)
            };
            Ok(100.0 * (1.0 - of(many)? / of(few)?))
        }
        [way @ ("bcast" | "hbcast"), rest @ ..] => broadcast_number(times, way, rest),
        [barrier, load, nodes] => {
            let (barrier, load) = (barrier_of(barrier)?, load_of(load)?);
            times.of(Point::Barrier { barrier, nodes: nodes.parse()?, load })
        }
        _ => bail!("no such number"),
    }
}

/// Of a broadcast: `[main-][rate-]load-nodes-bytes`.
fn broadcast_number(times: &Times, way: &str, rest: &[&str]) -> Result<f64> {
    let way = if way == "bcast" { Cast::Bcast } else { Cast::Hbcast };
    let (place, rest) = match rest {
        ["main", rest @ ..] => (Place::Main, rest),
        rest => (Place::Elan, rest),
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
fn slower(times: &Times, barrier: Barrier, load: Load) -> Result<f64> {
    let at = |load| times.of(Point::Barrier { barrier, nodes: 64, load });
    Ok(at(load)? / at(Load::Idle)?)
}

fn place_of(name: &str) -> Result<Place> {
    match name {
        "elan" => Ok(Place::Elan),
        "main" => Ok(Place::Main),
        _ => bail!("no such memory: {name}"),
    }
}

fn barrier_of(name: &str) -> Result<Barrier> {
    Barrier::ALL
        .into_iter()
        .find(|barrier| barrier.words() == name)
        .with_context(|| format!("no such barrier: {name}"))
}

fn load_of(name: &str) -> Result<Load> {
    Load::ALL.into_iter().find(|load| load.words() == name).with_context(|| format!("no such load: {name}"))
}

/// What a published number is to the parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// They were fitted to it: the ping, and the idle barriers on 16 nodes.
    Fitted,
    /// It set the noise of the hosts.
    Input,
    /// They predict it.
    Predicted,
}

impl Role {
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
fn gates(times: &Times, scale: &[Size], roots: &[Roots]) -> Result<Vec<Gate>> {
    let [software, hardware] = [Barrier::Gsync, Barrier::Hgsync].map(|barrier| slower(times, barrier, Load::Uniform));
    let ratio = software? / hardware?;
    let mut gates = vec![Gate {
        statement: format!(
            "uniform load on 64 nodes: software suffers at least {SUFFERS:.0} times more than hardware ({ratio:.1})"
        ),
        holds: ratio >= SUFFERS,
    }];
    let at = |barrier, nodes| times.of(Point::Barrier { barrier, nodes, load: Load::Idle });
    let mut ahead = true;
    for nodes in NODES {
        ahead &= at(Barrier::Hgsync, nodes)? < at(Barrier::Gsync, nodes)?;
    }
    gates.push(Gate { statement: "idle: hardware barriers are quicker than software barriers".into(), holds: ahead });
    if let (Some(first), Some(last)) = (scale.first(), scale.last()) {
        let grows = |us: fn(&Size) -> f64| us(last) - us(first);
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
