//! Beyond the paper: barriers on up to 65,536 nodes, polled by multicast, folded in the switches or along a tree, idle and under
//! load, on the same network; and groups that multicast at the same time through several roots.

use anyhow::{Context, Result};
use quadrics::{ElanCollective, GroupedMulticasts, HostWakeup, MulticastRule, QsnetParameters};
use serde::Serialize;
use units::SimSpan;

use super::parameters::{QuadricsHostNoise, QuadricsParameters};
use super::points::{BackgroundLoad, cluster, polled_barrier, timeout_message};
use crate::parallel::map_parallel;
use protocol::collective::quadrics::QuadricsMembers;
use quadrics::ElanWorkload;
use units::Rank;

/// Maximum number of nodes.
pub(super) const MAX_NODES: u32 = 1 << 16;
/// The smallest dimension: the testbed's.
const MIN_DIMENSION: u32 = 3;

/// One size.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct QuadricsScalePoint {
    pub nodes: u32,
    /// Mean times in microseconds, on an idle network and under uniform load.
    #[serde(rename = "tested_us")]
    pub polled_us: f64,
    pub folded_us: f64,
    pub tree_us: f64,
    #[serde(rename = "tested_loaded_us")]
    pub polled_loaded_us: Option<f64>,
    pub folded_loaded_us: Option<f64>,
}

/// Groups that multicast at the same time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct MulticastRootsPoint {
    pub roots: u32,
    pub channels: u32,
    pub groups: u32,
    /// Megabytes per second of each group.
    pub megabytes_per_second: f64,
}

/// One barrier to simulate.
#[derive(Clone, Copy)]
struct ScaleJob {
    dimension: u32,
    operation: ElanCollective,
    load: BackgroundLoad,
}

/// Measures all sizes up to `max_nodes` on all cores.
pub(super) fn measure(parameters: &QuadricsParameters, max_nodes: u32, seed: u64) -> Result<Vec<QuadricsScalePoint>> {
    let dimensions: Vec<u32> =
        (MIN_DIMENSION..16).take_while(|dimension| 4u64.pow(*dimension) <= u64::from(max_nodes)).collect();
    let operations = [
        polled_barrier(parameters, HostWakeup::Polling),
        ElanCollective::FoldedBarrier(parameters.fold()),
        ElanCollective::TreeBarrier,
    ];
    let mut jobs = Vec::new();
    for dimension in dimensions.iter().rev().copied() {
        jobs.extend(operations.map(|operation| ScaleJob { dimension, operation, load: BackgroundLoad::Idle }));
        let loaded = operations[..2].iter();
        jobs.extend(loaded.map(|operation| ScaleJob {
            dimension,
            operation: *operation,
            load: BackgroundLoad::Uniform,
        }));
    }
    let times = map_parallel(&jobs, |job| one(parameters, *job, seed))?;
    let of = |dimension: u32, operation: ElanCollective, load: BackgroundLoad| {
        let index = jobs
            .iter()
            .position(|job| job.dimension == dimension && job.operation == operation && job.load == load)?;
        Some(times[index])
    };
    let size = |dimension: u32| {
        let idle = |number: usize| {
            of(dimension, operations[number], BackgroundLoad::Idle).context("a size was not measured")
        };
        let loaded = |number: usize| of(dimension, operations[number], BackgroundLoad::Uniform);
        Ok(QuadricsScalePoint {
            nodes: 4u32.pow(dimension),
            polled_us: idle(0)?,
            folded_us: idle(1)?,
            tree_us: idle(2)?,
            polled_loaded_us: loaded(0),
            folded_loaded_us: loaded(1),
        })
    };
    dimensions.into_iter().map(size).collect()
}

/// Mean microseconds of a barrier. Hosts have no noise here: with so many of them it would hide everything else.
fn one(parameters: &QuadricsParameters, job: ScaleJob, seed: u64) -> Result<f64> {
    let ScaleJob { dimension, operation, load } = job;
    let nodes = 4u32.pow(dimension);
    let mut cluster = cluster(parameters, Some(dimension), load, QuadricsHostNoise::Quiet, seed)?;
    let (warm_up, calls) = match load {
        BackgroundLoad::Idle => (SimSpan::ZERO, 2),
        // The background of many nodes is expensive to simulate: a few barriers must suffice.
        _ => (SimSpan::from_micros(60), 20_480u32.div_ceil(nodes).clamp(2, 200)),
    };
    cluster.pass(warm_up);
    let members = QuadricsMembers::range(0, nodes, Rank(0), parameters.arity())?;
    let timeout = SimSpan::from_micros(1_000_000).times(u64::from(calls));
    let task = ElanWorkload { operation, members, processes: 1, multicast_root: 0, calls, patience: timeout };
    let took = cluster.run(&task).with_context(|| timeout_message(operation, nodes))?;
    Ok(took.iter().map(|span| span.as_nanos_f64()).sum::<f64>() / took.len() as f64 / 1e3)
}

/// Four groups on the testbed, with one root and with several.
pub(super) fn roots(parameters: &QuadricsParameters) -> Result<Vec<MulticastRootsPoint>> {
    let groups = 4;
    let one = |(roots, channels): (u32, u32)| {
        let rule = MulticastRule::Serialised { roots };
        let fabric = QsnetParameters { rule, channels, ..parameters.fabric(None) };
        let megabytes_per_second = GroupedMulticasts::megabytes_per_second(fabric, groups, 1_000)
            .with_context(|| format!("multicasts through {roots} roots did not end"))?;
        Ok(MulticastRootsPoint { roots, channels, groups, megabytes_per_second })
    };
    [(1, 2), (2, 2), (4, 4)].into_iter().map(one).collect()
}
