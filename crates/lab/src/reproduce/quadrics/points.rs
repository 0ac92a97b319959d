//! The simulated configurations, and their measurement.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use protocol::collective::quadrics::{BroadcastSynchronization, QuadricsMembers};
use quadrics::{
    BroadcastBuffers, ElanCluster, ElanCollective, ElanTransport, ElanWorkload, HostWakeup, MemoryLocation,
    SaturationPattern,
};
use serde::Serialize;
use units::{Rank, SimSpan};

use super::MEGABYTE;
use super::parameters::{QuadricsHostNoise, QuadricsParameters};
use crate::latency_distribution::LatencyDistribution;
use crate::parallel::map_parallel;
use crate::progress::progress_bar;

/// Duration of the background traffic before the first measurement.
const WARM_UP: SimSpan = SimSpan::from_micros(1_000);
/// Maximum mean time of a call. One that takes longer does not end.
const TIMEOUT: SimSpan = SimSpan::from_micros(1_000_000);

/// The background traffic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BackgroundLoad {
    Idle,
    Complement,
    Uniform,
}

impl BackgroundLoad {
    pub(super) const ALL: [Self; 3] = [Self::Idle, Self::Complement, Self::Uniform];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Complement => "complement",
            Self::Uniform => "uniform",
        }
    }

    pub(super) fn pattern(self) -> Option<SaturationPattern> {
        match self {
            Self::Idle => None,
            Self::Complement => Some(SaturationPattern::Complement),
            Self::Uniform => Some(SaturationPattern::Uniform),
        }
    }
}

/// The three barriers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ElanBarrier {
    Gsync,
    Hgsync,
    Event,
}

impl ElanBarrier {
    pub(super) const ALL: [Self; 3] = [Self::Gsync, Self::Hgsync, Self::Event];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Gsync => "gsync",
            Self::Hgsync => "hgsync",
            Self::Event => "event",
        }
    }

    fn operation(self, parameters: &QuadricsParameters) -> ElanCollective {
        match self {
            Self::Gsync => ElanCollective::TreeBarrier,
            Self::Hgsync => polled_barrier(parameters, HostWakeup::Polling),
            Self::Event => polled_barrier(parameters, HostWakeup::Event),
        }
    }
}

/// The two broadcasts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ElanBroadcast {
    Bcast,
    Hbcast,
}

impl ElanBroadcast {
    /// The four variants that the paper compares. The last is the one whose numbers it gives for a loaded network.
    pub(super) const VARIANTS: [(Self, BufferMemory); 4] = [
        (Self::Bcast, BufferMemory::Elan),
        (Self::Hbcast, BufferMemory::Elan),
        (Self::Bcast, BufferMemory::Main),
        (Self::Hbcast, BufferMemory::Main),
    ];

    pub(super) fn label(self, memory: BufferMemory) -> &'static str {
        match (self, memory) {
            (Self::Bcast, BufferMemory::Elan) => "bcast, adapter memory",
            (Self::Bcast, BufferMemory::Main) => "bcast, main memory",
            (Self::Hbcast, BufferMemory::Elan) => "hbcast, adapter memory",
            (Self::Hbcast, BufferMemory::Main) => "hbcast, main memory",
        }
    }
}

/// The memory of the buffers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BufferMemory {
    Elan,
    Main,
}

impl BufferMemory {
    fn location(self) -> MemoryLocation {
        match self {
            Self::Elan => MemoryLocation::Elan,
            Self::Main => MemoryLocation::Main,
        }
    }
}

/// One simulated configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(super) enum QuadricsPoint {
    Ping {
        bytes: u32,
        #[serde(rename = "place")]
        memory: BufferMemory,
        by_mpi: bool,
    },
    Barrier {
        barrier: ElanBarrier,
        nodes: u32,
        load: BackgroundLoad,
    },
    Broadcast {
        #[serde(rename = "cast")]
        broadcast: ElanBroadcast,
        bytes: u32,
        #[serde(rename = "place")]
        memory: BufferMemory,
        nodes: u32,
        load: BackgroundLoad,
    },
    /// A barrier on 64 nodes under uniform load, with messages of this size in the background.
    Congested {
        barrier: ElanBarrier,
        message_bytes: u32,
    },
}

impl QuadricsPoint {
    #[cfg(test)]
    pub(super) fn is_loaded(&self) -> bool {
        match self {
            Self::Ping { .. } => false,
            Self::Barrier { load, .. } | Self::Broadcast { load, .. } => *load != BackgroundLoad::Idle,
            Self::Congested { .. } => true,
        }
    }

    /// An estimate of the work: the longest points start first.
    fn weight(&self, calls: u32) -> u64 {
        let (load, us) = match self {
            Self::Ping { .. } => (BackgroundLoad::Idle, 1),
            Self::Barrier { barrier: ElanBarrier::Gsync, load, .. } => (*load, 400),
            Self::Barrier { load, .. } => (*load, 10),
            Self::Broadcast { bytes, load, .. } => (*load, 200 + u64::from(*bytes) / 25),
            Self::Congested { barrier: ElanBarrier::Gsync, .. } => (BackgroundLoad::Uniform, 400),
            Self::Congested { .. } => (BackgroundLoad::Uniform, 10),
        };
        u64::from(self.calls(calls)) * us * if load == BackgroundLoad::Idle { 1 } else { 30 }
    }

    /// The number of calls, if an idle barrier has `calls`: loaded points take long, and data even longer.
    pub(super) fn calls(&self, calls: u32) -> u32 {
        let count = match self {
            Self::Ping { .. } => return 1,
            Self::Barrier { load: BackgroundLoad::Idle, .. } => calls,
            Self::Barrier { barrier: ElanBarrier::Hgsync, nodes: 64, .. } => calls,
            Self::Barrier { barrier: ElanBarrier::Gsync, nodes: 4 | 64, .. } => calls / 10,
            Self::Barrier { barrier: ElanBarrier::Gsync, .. } => calls / 40,
            Self::Barrier { .. } => calls / 10,
            Self::Congested { barrier: ElanBarrier::Gsync, .. } => calls / 40,
            Self::Congested { .. } => calls / 4,
            Self::Broadcast { bytes: ..=4096, load: BackgroundLoad::Idle, .. } => calls,
            Self::Broadcast { bytes: ..=4096, .. } => calls / 50,
            // Thousands of packets average out within one call.
            Self::Broadcast { bytes: MEGABYTE.., .. } => return (calls / 10_000).max(1),
            Self::Broadcast { .. } => return (calls / 5_000).max(1),
        };
        count.max(3)
    }
}

/// A point and its measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct QuadricsPointTiming {
    #[serde(flatten)]
    pub point: QuadricsPoint,
    pub calls: u32,
    pub latency: LatencyDistribution,
    /// Shares below the times that the paper mentions, in percent.
    pub below: Vec<ShareBelow>,
}

/// The share of calls below a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ShareBelow {
    pub us: f64,
    pub percent: f64,
}

/// The times that the paper mentions.
const TIMES: [f64; 4] = [9.0, 20.0, 30.0, 605.0];

/// The measurements of all points.
pub(super) struct QuadricsTimes(BTreeMap<QuadricsPoint, QuadricsPointTiming>);

impl QuadricsTimes {
    /// The mean, in microseconds.
    pub(super) fn of(&self, point: QuadricsPoint) -> Result<f64> {
        Ok(self.get(point)?.latency.mean_ns / 1e3)
    }

    pub(super) fn get(&self, point: QuadricsPoint) -> Result<&QuadricsPointTiming> {
        self.0.get(&point).with_context(|| format!("{point:?} was not measured"))
    }

    /// The share below a time, in percent.
    pub(super) fn below(&self, point: QuadricsPoint, us: f64) -> Result<f64> {
        let shares = &self.get(point)?.below;
        let share = shares.iter().find(|share| share.us == us);
        share.map(|share| share.percent).with_context(|| format!("the share below {us} us was not counted"))
    }

    pub(super) fn all(&self) -> Vec<QuadricsPointTiming> {
        self.0.values().cloned().collect()
    }
}

/// Measures all points on all cores.
pub(super) fn measure_all(
    mut points: Vec<QuadricsPoint>,
    parameters: &QuadricsParameters,
    calls: u32,
    seed: u64,
) -> Result<QuadricsTimes> {
    points.sort();
    points.dedup();
    points.sort_by_key(|point| std::cmp::Reverse(point.weight(calls)));
    let bar = progress_bar(points.len() as u64, "{bar:40} {pos}/{len} points, {elapsed} so far");
    let measured = map_parallel(&points, |point| {
        let timing = measure(*point, parameters, point.calls(calls), seed);
        bar.inc(1);
        timing
    })?;
    bar.finish_and_clear();
    Ok(QuadricsTimes(points.into_iter().zip(measured).collect()))
}

fn measure(
    point: QuadricsPoint,
    parameters: &QuadricsParameters,
    calls: u32,
    seed: u64,
) -> Result<QuadricsPointTiming> {
    let took = match point {
        QuadricsPoint::Ping { bytes, memory, by_mpi } => {
            let mut cluster = cluster(parameters, None, BackgroundLoad::Idle, QuadricsHostNoise::Noisy, seed)?;
            let via = if by_mpi { ElanTransport::Tports } else { ElanTransport::Rdma };
            let far = parameters.nodes() - 1;
            vec![cluster.ping(0, far, bytes, memory.location(), via).context("a ping did not arrive")?]
        }
        QuadricsPoint::Barrier { barrier, nodes, load } => {
            let mut cluster = cluster(parameters, None, load, QuadricsHostNoise::Noisy, seed)?;
            run(&mut cluster, parameters, barrier.operation(parameters), nodes, calls)?
        }
        QuadricsPoint::Congested { barrier, message_bytes } => {
            let background = parameters.background(SaturationPattern::Uniform, Some(message_bytes));
            let costs = parameters.costs(QuadricsHostNoise::Noisy);
            let mut cluster = ElanCluster::new(parameters.fabric(None), costs, Some(background), seed)
                .context("these parameters describe no valid network")?;
            run(&mut cluster, parameters, barrier.operation(parameters), 64, calls)?
        }
        QuadricsPoint::Broadcast { broadcast, bytes, memory, nodes, load } => {
            let synchronisation = match broadcast {
                ElanBroadcast::Bcast => BroadcastSynchronization::Tree,
                ElanBroadcast::Hbcast => BroadcastSynchronization::Poll(parameters.back_off()),
            };
            let memory = memory.location();
            let operation =
                ElanCollective::Broadcast { synchronisation, bytes, memory, buffers: BroadcastBuffers::Global };
            let mut cluster = cluster(parameters, None, load, QuadricsHostNoise::Noisy, seed)?;
            run(&mut cluster, parameters, operation, nodes, calls)?
        }
    };
    let share = |us: f64| {
        let below = took.iter().filter(|span| span.as_nanos_f64() < us * 1e3).count();
        ShareBelow { us, percent: 100.0 * below as f64 / took.len() as f64 }
    };
    let below = TIMES.map(share).to_vec();
    let latency = LatencyDistribution::of(took).with_context(|| format!("no call was measured at {point:?}"))?;
    Ok(QuadricsPointTiming { point, calls, latency, below })
}

pub(super) fn polled_barrier(parameters: &QuadricsParameters, wake: HostWakeup) -> ElanCollective {
    ElanCollective::PolledBarrier { wake, back_off: parameters.back_off() }
}

pub(super) fn cluster(
    parameters: &QuadricsParameters,
    dimension: Option<u32>,
    load: BackgroundLoad,
    hosts: QuadricsHostNoise,
    seed: u64,
) -> Result<ElanCluster> {
    let background = load.pattern().map(|pattern| parameters.background(pattern, None));
    let cluster = ElanCluster::new(parameters.fabric(dimension), parameters.costs(hosts), background, seed);
    cluster.context("these parameters describe no valid network")
}

/// Runs calls on the first `nodes` nodes, after the warm-up of the background.
pub(super) fn run(
    cluster: &mut ElanCluster,
    parameters: &QuadricsParameters,
    operation: ElanCollective,
    nodes: u32,
    calls: u32,
) -> Result<Vec<SimSpan>> {
    cluster.pass(WARM_UP);
    let members =
        QuadricsMembers::range(0, nodes, Rank(0), parameters.arity()).map_err(|error| anyhow!("{error}"))?;
    let timeout = TIMEOUT.times(u64::from(calls));
    let task = ElanWorkload { operation, members, processes: 1, multicast_root: 0, calls, patience: timeout };
    cluster.run(&task).with_context(|| timeout_message(operation, nodes))
}

/// The error of a call that does not end.
pub(super) fn timeout_message(operation: ElanCollective, nodes: u32) -> String {
    let what = match operation {
        ElanCollective::TreeBarrier => "a software barrier".to_owned(),
        ElanCollective::PolledBarrier { .. } => "a hardware barrier".to_owned(),
        ElanCollective::FoldedBarrier(_) => "a folded barrier".to_owned(),
        ElanCollective::Broadcast { bytes, .. } => format!("a broadcast of {bytes} bytes"),
    };
    format!("with these parameters {what} on {nodes} nodes takes more than a second of virtual time")
}
