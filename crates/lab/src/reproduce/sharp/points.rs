//! What is simulated: who calls what on how many hosts; and its measurement.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use protocol::collective::{Algorithm, Collective as Operation};
use reduce::{ElementType, Kind, Operator};
use serde::Serialize;
use simulator::Way;
use simulator::collective::{
    Calls, Collective, CollectiveParameters, Contents, Distribution, Measured, Pace, UnitParameters,
};
use simulator::fault::Plan;
use simulator::host_collective::{HostCollective, HostCollectiveParameters};
use simulator::technology::Width;
use topology::Fabric;
use units::Span;

use super::parameters::{Caller, Parameters, System};
use crate::reproduce::cores::on_all_cores;

/// How long nobody wonders where something is.
const PATIENCE: Span = Span::from_micros(10_000);

/// How results come back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Down {
    Connections,
    Both,
    Multicast,
}

/// How hosts do without the network's help.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Among {
    /// Recursive k-ing whose messages come as datagrams (HPC-X on hosts).
    Kings,
    /// Recursive doubling over connections (MVAPICH-2, Open MPI).
    Doubling,
}

/// One thing to simulate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(super) enum Point {
    /// The native benchmark.
    Native { hosts: u32, bytes: u32, system: System },
    /// MPI as in Table III.
    MpiOverNative { hosts: u32, bytes: u32 },
    /// MPI over aggregation.
    Aggregation { hosts: u32, bytes: u32, down: Down },
    /// MPI over hosts.
    Hosts { hosts: u32, bytes: u32, among: Among },
}

/// A point and what was measured there.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Taken {
    #[serde(flatten)]
    pub point: Point,
    #[serde(flatten)]
    pub measured: Measured,
}

/// Times of all points.
pub(super) struct Times(pub BTreeMap<Point, Measured>);

impl Times {
    /// In microseconds.
    pub(super) fn of(&self, point: Point) -> f64 {
        self.0.get(&point).expect("every point that a number needs is measured").mean_ns / 1e3
    }

    pub(super) fn taken(&self) -> Vec<Taken> {
        self.0.iter().map(|(point, measured)| Taken { point: *point, measured: *measured }).collect()
    }
}

/// Measures all points, on as many cores as there are.
pub(super) fn measure_all(points: &[Point], parameters: &Parameters, calls: u32, seed: u64) -> Result<Times> {
    let bar = ProgressBar::new(points.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} points, {eta} left").expect("a constant template"),
    );
    let measured = on_all_cores(points, |point| {
        let measured = measure(*point, parameters, calls, seed);
        bar.inc(1);
        measured
    })?;
    bar.finish_and_clear();
    Ok(Times(points.iter().copied().zip(measured).collect()))
}

fn measure(point: Point, parameters: &Parameters, calls: u32, seed: u64) -> Result<Measured> {
    let few = 3; // Without randomness one call is like the other; the first is not counted.
    let aggregation = |hosts, bytes, down, caller, system, calls, pace| {
        let run = Aggregation { fabric: testbed(parameters, hosts)?, bytes, down, caller, system, calls, pace };
        run.measure(parameters, seed)
    };
    let measured = match point {
        // The native benchmark is a tight loop with the default of Table VI; see the README for why.
        Point::Native { hosts, bytes, system } => {
            let calls = if system == System::Noisy { calls } else { few };
            aggregation(hosts, bytes, Down::Both, Caller::Native, system, calls, Pace::BackToBack)?
        }
        Point::MpiOverNative { hosts, bytes } => {
            aggregation(hosts, bytes, Down::Both, Caller::MpiOverNative, System::Quiet, few, Pace::Drained)?
        }
        Point::Aggregation { hosts, bytes, down } => {
            aggregation(hosts, bytes, down, Caller::Mpi, System::Quiet, few, Pace::Drained)?
        }
        Point::Hosts { hosts, bytes, among } => {
            measure_hosts(testbed(parameters, hosts)?, bytes, among, parameters, few, seed)?
        }
    };
    measured.ok_or_else(|| anyhow!("a call never ended at {point:?}"))
}

/// A run of allreduce through aggregation nodes.
pub(super) struct Aggregation {
    pub fabric: Arc<Fabric>,
    pub bytes: u32,
    pub down: Down,
    pub caller: Caller,
    pub system: System,
    pub calls: u32,
    pub pace: Pace,
}

impl Aggregation {
    pub(super) fn measure(self, parameters: &Parameters, seed: u64) -> Result<Option<Measured>> {
        let segment = parameters.unit.segment_bytes;
        let unit: UnitParameters = parameters.unit_of_node();
        let mut collective = CollectiveParameters::new(Contents::SizeOnly { bytes: self.bytes.min(segment) });
        collective.policy.acknowledge_every = 1; // As adapters do: every message on a connection is acknowledged.
        // No timer ever strikes: nothing is lost here, and what waits at a port need not be repeated.
        (collective.policy.timeout, collective.repair_after) = (PATIENCE, PATIENCE);
        collective.window = parameters.unit.window;
        collective.unit = Some(unit);
        collective.host = Some(parameters.costs(self.caller, self.system));
        collective.distribution = match self.down {
            Down::Connections => Distribution::Connections,
            Down::Both => Distribution::Both,
            Down::Multicast => Distribution::Multicast,
        };
        let segments = self.bytes.div_ceil(segment).max(1);
        let calls = Calls { count: self.calls, segments, pace: self.pace };
        let link = parameters.link();
        let run = Collective::new(self.fabric, link, collective, &Plan::default(), seed, Width::X4);
        Ok(run.map_err(|error| anyhow!("{error}"))?.measure(calls, seed))
    }
}

/// A run of allreduce among hosts alone; of barrier, if there is nothing to add.
pub(super) fn measure_hosts(
    fabric: Arc<Fabric>,
    bytes: u32,
    among: Among,
    parameters: &Parameters,
    calls: u32,
    seed: u64,
) -> Result<Option<Measured>> {
    let kind = Kind::new(ElementType::F32, Operator::Sum).map_err(|error| anyhow!("{error}"))?;
    let (algorithm, way) = match among {
        Among::Kings => (Algorithm::RecursiveKing { radix: parameters.hosts.radix }, Way::Datagram),
        Among::Doubling => (Algorithm::RecursiveDoubling, Way::Connection),
    };
    let operation = HostCollectiveParameters {
        algorithm,
        collective: if bytes == 0 { Operation::Barrier } else { Operation::AllReduce { kind } },
        bytes,
        mtu: parameters.mtu(),
        costs: parameters.costs(Caller::Mpi, System::Quiet),
        way,
    };
    let run = HostCollective::new(fabric, parameters.link(), operation);
    let calls = Calls { count: calls, segments: 1, pace: Pace::Drained };
    Ok(run.map_err(|error| anyhow!("{error}"))?.measure(calls, seed))
}

/// The testbed with so many hosts, spread evenly over the leaf switches (SH-7), with as many ways up as down.
fn testbed(parameters: &Parameters, hosts: u32) -> Result<Arc<Fabric>> {
    let leaves = parameters.fabric.leaves.min(hosts);
    ensure!(hosts.is_multiple_of(leaves), "{hosts} hosts do not spread evenly over {leaves} leaf switches");
    let per_leaf = hosts / leaves;
    Ok(Arc::new(Fabric::xgft(&[per_leaf, leaves], &[1, per_leaf]).map_err(|error| anyhow!("{error}"))?))
}
