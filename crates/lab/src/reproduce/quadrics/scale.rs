//! Past the paper: barriers on up to 65,536 nodes, tested by multicast, folded in the switches or up a tree, idle and under
//! load, on the same wires; and groups that multicast at the same time by way of several roots.

use anyhow::{Context, Result};
use quadrics::{ElanCollective, GroupedMulticasts, HostWakeup, MulticastRule, QsnetParameters};
use serde::Serialize;
use units::Span;

use super::parameters::{QuadricsHostNoise, QuadricsParameters};
use super::points::{BackgroundLoad, cluster, never_ended, polled_barrier};
use crate::reproduce::parallel::map_parallel;
use protocol::collective::quadrics::QuadricsMembers;
use quadrics::ElanWorkload;
use units::Rank;

/// The most nodes.
pub(super) const MOST: u32 = 1 << 16;
/// Dimensions from which on to measure: the testbed's.
const LEAST_DIMENSION: u32 = 3;

/// One size.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct QuadricsScalePoint {
    pub nodes: u32,
    /// Microseconds.
    pub tested_us: f64,
    pub folded_us: f64,
    pub tree_us: f64,
    pub tested_loaded_us: Option<f64>,
    pub folded_loaded_us: Option<f64>,
}

/// Groups that multicast at the same time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct MulticastRootsPoint {
    pub roots: u32,
    pub channels: u32,
    pub groups: u32,
    /// Megabytes a second that each group gets.
    pub megabytes_per_second: f64,
}

/// A barrier on so many dimensions.
#[derive(Clone, Copy)]
struct ScaleJob {
    dimension: u32,
    operation: ElanCollective,
    load: BackgroundLoad,
}

/// Measures all sizes up to `most` nodes, on all cores.
pub(super) fn measure(parameters: &QuadricsParameters, most: u32, seed: u64) -> Result<Vec<QuadricsScalePoint>> {
    let dimensions: Vec<u32> =
        (LEAST_DIMENSION..16).take_while(|dimension| 4u64.pow(*dimension) <= u64::from(most)).collect();
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
        let place = jobs
            .iter()
            .position(|job| job.dimension == dimension && job.operation == operation && job.load == load)?;
        Some(times[place])
    };
    let size = |dimension: u32| {
        let idle =
            |number: usize| of(dimension, operations[number], BackgroundLoad::Idle).context("every size is measured");
        let loaded = |number: usize| of(dimension, operations[number], BackgroundLoad::Uniform);
        Ok(QuadricsScalePoint {
            nodes: 4u32.pow(dimension),
            tested_us: idle(0)?,
            folded_us: idle(1)?,
            tree_us: idle(2)?,
            tested_loaded_us: loaded(0),
            folded_loaded_us: loaded(1),
        })
    };
    dimensions.into_iter().map(size).collect()
}

/// Microseconds of a barrier, on average. Hosts are quiet here: with so many of them noise would be all that is seen.
fn one(parameters: &QuadricsParameters, job: ScaleJob, seed: u64) -> Result<f64> {
    let ScaleJob { dimension, operation, load } = job;
    let nodes = 4u32.pow(dimension);
    let mut cluster = cluster(parameters, Some(dimension), load, QuadricsHostNoise::Quiet, seed)?;
    let (warm_up, calls) = match load {
        BackgroundLoad::Idle => (Span::ZERO, 2),
        // The background of many nodes takes long: a few barriers must do.
        _ => (Span::from_micros(60), 20_480u32.div_ceil(nodes).clamp(2, 200)),
    };
    cluster.pass(warm_up);
    let members = QuadricsMembers::range(0, nodes, Rank(0), parameters.arity())?;
    let patience = Span::from_micros(1_000_000).times(u64::from(calls));
    let task = ElanWorkload { operation, members, processes: 1, multicast_root: 0, calls, patience };
    let took = cluster.run(&task).with_context(|| never_ended(operation, nodes))?;
    Ok(took.iter().map(|span| span.as_nanos_f64()).sum::<f64>() / took.len() as f64 / 1e3)
}

/// Four groups on the testbed, with one root and with several.
pub(super) fn roots(parameters: &QuadricsParameters) -> Result<Vec<MulticastRootsPoint>> {
    let groups = 4;
    let one = |(roots, channels): (u32, u32)| {
        let rule = MulticastRule::Serialised { roots };
        let fabric = QsnetParameters { rule, channels, ..parameters.fabric(None) };
        let megabytes_per_second = GroupedMulticasts::megabytes_per_second(fabric, groups, 1_000)
            .with_context(|| format!("multicasts over {roots} roots never ended"))?;
        Ok(MulticastRootsPoint { roots, channels, groups, megabytes_per_second })
    };
    [(1, 2), (2, 2), (4, 4)].into_iter().map(one).collect()
}
