//! The simulated configurations, and their measurement.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use protocol::collective::{CollectiveAlgorithm, CollectiveOperation as Operation};
use reduce::{ElementType, Operator, ReductionKind};
use serde::Serialize;
use simulator::TransportService;
use simulator::collective::{
    AggregationUnitParameters, CallLatency, CallWorkload, CollectiveParameters, ContributionContents,
    DownwardDelivery, OperationPacing, SimulatedCollective,
};
use simulator::fault::FaultPlan;
use simulator::host_collective::{HostCollective, HostCollectiveParameters};
use simulator::link_rate::LinkWidth;
use topology::Fabric;
use units::Span;

use super::parameters::{BenchmarkCaller, SharpHostNoise, SharpParameters};
use crate::parallel::map_parallel;
use crate::progress::progress_bar;

/// Longer than any operation: no timer expires.
const TIMEOUT: Span = Span::from_micros(10_000);

/// How results travel delivery the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SharpResultDelivery {
    Connections,
    Both,
    Multicast,
}

/// An allreduce among hosts without aggregation nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum HostAlgorithm {
    /// Recursive k-ing with datagrams (HPC-X on hosts).
    #[serde(rename = "kings")]
    RecursiveKing,
    /// Recursive doubling over connections (MVAPICH-2, Open MPI).
    #[serde(rename = "doubling")]
    RecursiveDoubling,
}

/// One simulated configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(super) enum SharpPoint {
    /// The native benchmark.
    Native { hosts: u32, bytes: u32, system: SharpHostNoise },
    /// MPI as in Table III.
    MpiOverNative { hosts: u32, bytes: u32 },
    /// MPI over aggregation.
    Aggregation {
        hosts: u32,
        bytes: u32,
        #[serde(rename = "down")]
        delivery: SharpResultDelivery,
    },
    /// MPI among hosts alone.
    Hosts {
        hosts: u32,
        bytes: u32,
        #[serde(rename = "among")]
        algorithm: HostAlgorithm,
    },
}

/// A point and its measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SharpPointTiming {
    #[serde(flatten)]
    pub point: SharpPoint,
    #[serde(flatten)]
    pub measured: CallLatency,
}

/// Times of all points.
pub(super) struct SharpTimes(pub BTreeMap<SharpPoint, CallLatency>);

impl SharpTimes {
    /// The mean of a point, in microseconds.
    pub(super) fn of(&self, point: SharpPoint) -> f64 {
        self.0.get(&point).expect("every point of a published number is measured").mean_ns / 1e3
    }

    pub(super) fn taken(&self) -> Vec<SharpPointTiming> {
        self.0.iter().map(|(point, measured)| SharpPointTiming { point: *point, measured: *measured }).collect()
    }
}

/// Measures all points on all cores.
pub(super) fn measure_all(
    points: &[SharpPoint],
    parameters: &SharpParameters,
    calls: u32,
    seed: u64,
) -> Result<SharpTimes> {
    let bar = progress_bar(points.len() as u64, "{bar:40} {pos}/{len} points, {eta} left");
    let measured = map_parallel(points, |point| {
        let measured = measure(*point, parameters, calls, seed);
        bar.inc(1);
        measured
    })?;
    bar.finish_and_clear();
    Ok(SharpTimes(points.iter().copied().zip(measured).collect()))
}

fn measure(point: SharpPoint, parameters: &SharpParameters, calls: u32, seed: u64) -> Result<CallLatency> {
    let few = 3; // Without randomness all calls are equal, except the first, which is not counted.
    let aggregation = |hosts, bytes, delivery, caller, system, calls, pace| {
        let run =
            AggregationRun { fabric: testbed(parameters, hosts)?, bytes, delivery, caller, system, calls, pace };
        run.measure(parameters, seed)
    };
    let measured = match point {
        // The native benchmark is a tight loop with the default of Table VI; the README explains why.
        SharpPoint::Native { hosts, bytes, system } => {
            let calls = if system == SharpHostNoise::Noisy { calls } else { few };
            aggregation(
                hosts,
                bytes,
                SharpResultDelivery::Both,
                BenchmarkCaller::Native,
                system,
                calls,
                OperationPacing::BackToBack,
            )?
        }
        SharpPoint::MpiOverNative { hosts, bytes } => aggregation(
            hosts,
            bytes,
            SharpResultDelivery::Both,
            BenchmarkCaller::MpiOverNative,
            SharpHostNoise::Quiet,
            few,
            OperationPacing::Drained,
        )?,
        SharpPoint::Aggregation { hosts, bytes, delivery } => aggregation(
            hosts,
            bytes,
            delivery,
            BenchmarkCaller::Mpi,
            SharpHostNoise::Quiet,
            few,
            OperationPacing::Drained,
        )?,
        SharpPoint::Hosts { hosts, bytes, algorithm } => {
            measure_hosts(testbed(parameters, hosts)?, bytes, algorithm, parameters, few, seed)?
        }
    };
    measured.ok_or_else(|| anyhow!("a call did not end at {point:?}"))
}

/// A run of allreduce through aggregation nodes.
pub(super) struct AggregationRun {
    pub fabric: Arc<Fabric>,
    pub bytes: u32,
    pub delivery: SharpResultDelivery,
    pub caller: BenchmarkCaller,
    pub system: SharpHostNoise,
    pub calls: u32,
    pub pace: OperationPacing,
}

impl AggregationRun {
    pub(super) fn measure(self, parameters: &SharpParameters, seed: u64) -> Result<Option<CallLatency>> {
        let segment = parameters.unit.segment_bytes;
        let unit: AggregationUnitParameters = parameters.unit_of_node();
        let mut collective =
            CollectiveParameters::new(ContributionContents::SizeOnly { bytes: self.bytes.min(segment) });
        collective.policy.acknowledge_every = 1; // As adapters do: every message on a connection is acknowledged.
        // No timer expires: nothing is lost here, and packets that wait at a port need no retransmission.
        (collective.policy.timeout, collective.repair_after) = (TIMEOUT, TIMEOUT);
        collective.window = parameters.unit.window;
        collective.framing = parameters.framing();
        collective.unit = Some(unit);
        collective.host = Some(parameters.costs(self.caller, self.system));
        collective.distribution = match self.delivery {
            SharpResultDelivery::Connections => DownwardDelivery::Connections,
            SharpResultDelivery::Both => DownwardDelivery::Both,
            SharpResultDelivery::Multicast => DownwardDelivery::Multicast,
        };
        let segments = self.bytes.div_ceil(segment).max(1);
        let calls = CallWorkload { count: self.calls, segments, pace: self.pace };
        let link = parameters.link();
        let run = SimulatedCollective::new(self.fabric, link, collective, &FaultPlan::default(), seed, LinkWidth::X4);
        Ok(run.map_err(|error| anyhow!("{error}"))?.measure(calls, seed))
    }
}

/// A run of allreduce among hosts alone; of barrier if `bytes` is zero.
pub(super) fn measure_hosts(
    fabric: Arc<Fabric>,
    bytes: u32,
    host_algorithm: HostAlgorithm,
    parameters: &SharpParameters,
    calls: u32,
    seed: u64,
) -> Result<Option<CallLatency>> {
    let kind = ReductionKind::new(ElementType::F32, Operator::Sum).map_err(|error| anyhow!("{error}"))?;
    let (algorithm, service) = match host_algorithm {
        HostAlgorithm::RecursiveKing => {
            (CollectiveAlgorithm::RecursiveKing { radix: parameters.hosts.radix }, TransportService::Datagram)
        }
        HostAlgorithm::RecursiveDoubling => (CollectiveAlgorithm::RecursiveDoubling, TransportService::Connection),
    };
    let operation = HostCollectiveParameters {
        algorithm,
        collective: if bytes == 0 { Operation::Barrier } else { Operation::AllReduce { kind } },
        bytes,
        mtu: parameters.mtu(),
        costs: match host_algorithm {
            HostAlgorithm::RecursiveKing => parameters.costs(BenchmarkCaller::Mpi, SharpHostNoise::Quiet),
            HostAlgorithm::RecursiveDoubling => parameters.costs_of_matching(),
        },
        service,
    };
    let run = HostCollective::new(fabric, parameters.link(), operation);
    let calls = CallWorkload { count: calls, segments: 1, pace: OperationPacing::Drained };
    Ok(run.map_err(|error| anyhow!("{error}"))?.measure(calls, seed))
}

/// The testbed with so many hosts, spread evenly over the leaf switches (SH-7), without oversubscription.
fn testbed(parameters: &SharpParameters, hosts: u32) -> Result<Arc<Fabric>> {
    let leaves = parameters.fabric.leaves.min(hosts);
    ensure!(hosts.is_multiple_of(leaves), "{hosts} hosts do not spread evenly over {leaves} leaf switches");
    let per_leaf = hosts / leaves;
    Ok(Arc::new(Fabric::xgft(&[per_leaf, leaves], &[1, per_leaf]).map_err(|error| anyhow!("{error}"))?))
}
