//! What is simulated: who does what on how many nodes, idle or loaded; and its measurement.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use protocol::collective::quadrics::{Members, Synchronisation};
use serde::Serialize;
use quadrics::{Buffers, Cluster, FloodPattern, Memory, Operation, Task, Via, Wake};
use units::{Rank, Span};

use super::MEGABYTE;
use super::parameters::{Hosts, Parameters};
use crate::distribution::Distribution;
use crate::reproduce::cores::on_all_cores;

/// How long the background runs before anything is measured.
const WARM_UP: Span = Span::from_micros(1_000);
/// No call takes so long on average, unless it never ends.
const PATIENCE: Span = Span::from_micros(1_000_000);

/// What the network does besides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Load {
    Idle,
    Complement,
    Uniform,
}

impl Load {
    pub(super) const ALL: [Self; 3] = [Self::Idle, Self::Complement, Self::Uniform];

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Complement => "complement",
            Self::Uniform => "uniform",
        }
    }

    pub(super) fn pattern(self) -> Option<FloodPattern> {
        match self {
            Self::Idle => None,
            Self::Complement => Some(FloodPattern::Complement),
            Self::Uniform => Some(FloodPattern::Uniform),
        }
    }
}

/// The three barriers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Barrier {
    Gsync,
    Hgsync,
    Event,
}

impl Barrier {
    pub(super) const ALL: [Self; 3] = [Self::Gsync, Self::Hgsync, Self::Event];

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Gsync => "gsync",
            Self::Hgsync => "hgsync",
            Self::Event => "event",
        }
    }
}

/// The two broadcasts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cast {
    Bcast,
    Hbcast,
}

impl Cast {
    /// The four that the paper compares; the last is the one whose numbers it prints for a loaded network.
    pub(super) const WAYS: [(Self, Place); 4] = [
        (Self::Bcast, Place::Elan),
        (Self::Hbcast, Place::Elan),
        (Self::Bcast, Place::Main),
        (Self::Hbcast, Place::Main),
    ];

    pub(super) fn words(self, place: Place) -> &'static str {
        match (self, place) {
            (Self::Bcast, Place::Elan) => "bcast, adapter memory",
            (Self::Bcast, Place::Main) => "bcast, main memory",
            (Self::Hbcast, Place::Elan) => "hbcast, adapter memory",
            (Self::Hbcast, Place::Main) => "hbcast, main memory",
        }
    }
}

/// Where buffers are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Place {
    Elan,
    Main,
}

impl Place {
    fn memory(self) -> Memory {
        match self {
            Self::Elan => Memory::Elan,
            Self::Main => Memory::Main,
        }
    }
}

/// One thing to simulate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(super) enum Point {
    Ping { bytes: u32, place: Place, by_mpi: bool },
    Barrier { barrier: Barrier, nodes: u32, load: Load },
    Broadcast { cast: Cast, bytes: u32, place: Place, nodes: u32, load: Load },
}

impl Point {
    /// How much work it is, roughly: what takes longest begins first.
    fn weight(&self, calls: u32) -> u64 {
        let (load, us) = match self {
            Self::Ping { .. } => (Load::Idle, 1),
            Self::Barrier { barrier: Barrier::Gsync, load, .. } => (*load, 400),
            Self::Barrier { load, .. } => (*load, 10),
            Self::Broadcast { bytes, load, .. } => (*load, 200 + u64::from(*bytes) / 25),
        };
        u64::from(self.calls(calls)) * us * if load == Load::Idle { 1 } else { 30 }
    }

    /// How often it is done, if an idle barrier is done `calls` times: what is loaded takes long, and data even longer.
    pub(super) fn calls(&self, calls: u32) -> u32 {
        let of = match self {
            Self::Ping { .. } => return 1,
            Self::Barrier { load: Load::Idle, .. } => calls,
            Self::Barrier { barrier: Barrier::Hgsync, nodes: 64, .. } => calls,
            Self::Barrier { barrier: Barrier::Gsync, nodes: 4 | 64, .. } => calls / 10,
            Self::Barrier { barrier: Barrier::Gsync, .. } => calls / 40,
            Self::Barrier { .. } => calls / 10,
            Self::Broadcast { bytes: ..=4096, load: Load::Idle, .. } => calls / 10,
            Self::Broadcast { bytes: ..=4096, .. } => calls / 50,
            // Thousands of packets average by themselves.
            Self::Broadcast { bytes: MEGABYTE.., .. } => return (calls / 10_000).max(1),
            Self::Broadcast { .. } => return (calls / 5_000).max(1),
        };
        of.max(3)
    }
}

/// A point and what was measured there.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Taken {
    #[serde(flatten)]
    pub point: Point,
    pub calls: u32,
    pub latency: Distribution,
    /// Shares below certain times, in percent, that the paper speaks of.
    pub below: Vec<Share>,
}

/// How many took less than so much.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Share {
    pub us: f64,
    pub percent: f64,
}

/// The times that the paper speaks of.
const TIMES: [f64; 4] = [9.0, 20.0, 30.0, 605.0];

/// Everything that was measured.
pub(super) struct Times(BTreeMap<Point, Taken>);

impl Times {
    /// The mean, in microseconds.
    pub(super) fn of(&self, point: Point) -> Result<f64> {
        Ok(self.get(point)?.latency.mean_ns / 1e3)
    }

    pub(super) fn get(&self, point: Point) -> Result<&Taken> {
        self.0.get(&point).with_context(|| format!("{point:?} was not measured"))
    }

    /// The share below a time, in percent.
    pub(super) fn below(&self, point: Point, us: f64) -> Result<f64> {
        let shares = &self.get(point)?.below;
        let share = shares.iter().find(|share| share.us == us);
        share.map(|share| share.percent).with_context(|| format!("nobody counted what is below {us} us"))
    }

    pub(super) fn all(&self) -> Vec<Taken> {
        self.0.values().cloned().collect()
    }
}

/// Measures all points, on as many cores as there are.
pub(super) fn measure_all(mut points: Vec<Point>, parameters: &Parameters, calls: u32, seed: u64) -> Result<Times> {
    points.sort();
    points.dedup();
    points.sort_by_key(|point| std::cmp::Reverse(point.weight(calls)));
    let bar = ProgressBar::new(points.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} points, {elapsed} so far").expect("a constant template"),
    );
    let measured = on_all_cores(&points, |point| {
        let taken = measure(*point, parameters, point.calls(calls), seed);
        bar.inc(1);
        taken
    })?;
    bar.finish_and_clear();
    Ok(Times(points.into_iter().zip(measured).collect()))
}

fn measure(point: Point, parameters: &Parameters, calls: u32, seed: u64) -> Result<Taken> {
    let took = match point {
        Point::Ping { bytes, place, by_mpi } => {
            let mut cluster = cluster(parameters, None, Load::Idle, Hosts::Noisy, seed)?;
            let via = if by_mpi { Via::Tports } else { Via::Rdma };
            let far = parameters.nodes() - 1;
            vec![cluster.ping(0, far, bytes, place.memory(), via).context("a ping never came")?]
        }
        Point::Barrier { barrier, nodes, load } => {
            let operation = match barrier {
                Barrier::Gsync => Operation::TreeBarrier,
                Barrier::Hgsync => tested(parameters, Wake::Polling),
                Barrier::Event => tested(parameters, Wake::Event),
            };
            let mut cluster = cluster(parameters, None, load, Hosts::Noisy, seed)?;
            run(&mut cluster, parameters, operation, nodes, calls)?
        }
        Point::Broadcast { cast, bytes, place, nodes, load } => {
            let synchronisation = match cast {
                Cast::Bcast => Synchronisation::Tree,
                Cast::Hbcast => Synchronisation::Test(parameters.back_off()),
            };
            let memory = place.memory();
            let operation = Operation::Broadcast { synchronisation, bytes, memory, buffers: Buffers::Global };
            let mut cluster = cluster(parameters, None, load, Hosts::Noisy, seed)?;
            run(&mut cluster, parameters, operation, nodes, calls)?
        }
    };
    let share = |us: f64| {
        let below = took.iter().filter(|span| span.as_nanos_f64() < us * 1e3).count();
        Share { us, percent: 100.0 * below as f64 / took.len() as f64 }
    };
    let below = TIMES.map(share).to_vec();
    let latency = Distribution::of(took).with_context(|| format!("nothing was measured at {point:?}"))?;
    Ok(Taken { point, calls, latency, below })
}

pub(super) fn tested(parameters: &Parameters, wake: Wake) -> Operation {
    Operation::TestBarrier { wake, back_off: parameters.back_off() }
}

pub(super) fn cluster(
    parameters: &Parameters,
    dimension: Option<u32>,
    load: Load,
    hosts: Hosts,
    seed: u64,
) -> Result<Cluster> {
    let background = load.pattern().map(|pattern| parameters.background(pattern));
    let cluster = Cluster::new(parameters.fabric(dimension), parameters.costs(hosts), background, seed);
    cluster.context("these parameters make no network")
}

/// Runs calls by the first `nodes` nodes, once the background is on its way.
pub(super) fn run(
    cluster: &mut Cluster,
    parameters: &Parameters,
    operation: Operation,
    nodes: u32,
    calls: u32,
) -> Result<Vec<Span>> {
    cluster.pass(WARM_UP);
    let members = Members::range(0, nodes, Rank(0), parameters.arity()).map_err(|error| anyhow!("{error}"))?;
    let patience = PATIENCE.times(u64::from(calls));
    let task = Task { operation, members, processes: 1, multicast_root: 0, calls, patience };
    cluster.run(&task).with_context(|| never_ended(operation, nodes))
}

/// Why there is nothing to report.
pub(super) fn never_ended(operation: Operation, nodes: u32) -> String {
    let what = match operation {
        Operation::TreeBarrier => "a software barrier".to_owned(),
        Operation::TestBarrier { .. } => "a hardware barrier".to_owned(),
        Operation::FoldedBarrier(_) => "a folded barrier".to_owned(),
        Operation::Broadcast { bytes, .. } => format!("a broadcast of {bytes} bytes"),
    };
    format!("with these parameters {what} on {nodes} nodes takes more than a second of virtual time")
}
