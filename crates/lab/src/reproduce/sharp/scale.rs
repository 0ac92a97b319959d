//! Beyond the paper: allreduce of 8 bytes on 1 Ki to 1 Mi hosts, on full fat trees of switches with 36, 64 and 128 ports.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::Serialize;
use simulator::collective::OperationPacing;
use topology::Fabric;

use super::parameters::{BenchmarkCaller, SharpHostNoise, SharpParameters};
use super::points::{AggregationRun, HostAlgorithm, SharpResultDelivery, measure_hosts};
use crate::progress::progress_bar;

/// Ports of a switch.
const RADICES: [u32; 3] = [36, 64, 128];
/// Minimum and maximum number of hosts.
const MIN_HOSTS: u32 = 1 << 10;
pub(super) const MAX_HOSTS: u32 = 1 << 20;

/// One size of one fabric.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SharpScalePoint {
    /// Ports of a switch.
    pub radix: u32,
    /// Hosts: at least as many as requested, rounded up to fill the last level evenly.
    pub hosts: u32,
    pub levels: usize,
    /// Microseconds with results by multicast.
    pub multicast_us: f64,
    /// Microseconds with results over connections.
    pub connections_us: f64,
    /// Microseconds of the hosts alone, up to the requested size.
    pub hosts_us: Option<f64>,
}

/// Measures all sizes up to `max_hosts`, and hosts alone up to `max_alone`.
pub(super) fn measure(
    parameters: &SharpParameters,
    max_hosts: u32,
    max_alone: u32,
    seed: u64,
) -> Result<Vec<SharpScalePoint>> {
    let sizes =
        std::iter::successors(Some(MIN_HOSTS), |hosts| hosts.checked_mul(4)).take_while(|hosts| *hosts <= max_hosts);
    let jobs: Vec<(u32, u32)> = sizes.flat_map(|hosts| RADICES.map(|radix| (radix, hosts))).collect();
    let bar = progress_bar(jobs.len() as u64, "{bar:40} {pos}/{len} sizes: {msg}, {elapsed} so far");
    bar.enable_steady_tick(Duration::from_secs(1)); // The largest take a minute and more.
    let mut found = Vec::new();
    // One after the other: the largest need gigabytes.
    for (radix, hosts) in jobs {
        bar.set_message(format!("{hosts} hosts, {radix} ports"));
        found.push(one(parameters, radix, hosts, hosts <= max_alone, seed)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(found)
}

fn one(parameters: &SharpParameters, radix: u32, hosts: u32, alone: bool, seed: u64) -> Result<SharpScalePoint> {
    let children = children(radix, hosts);
    let hosts: u32 = children.iter().product();
    let aggregated = |delivery| -> Result<f64> {
        // A tree uses one parent of each switch; the rest of a full fat tree would only need memory.
        let fabric = shape(&children, &vec![1; children.len()])?;
        let (caller, system) = (BenchmarkCaller::Mpi, SharpHostNoise::Quiet);
        let run =
            AggregationRun { fabric, bytes: 8, delivery, caller, system, calls: 1, pace: OperationPacing::Drained };
        let measured = run.measure(parameters, seed)?;
        Ok(measured.ok_or_else(|| anyhow!("a call of {hosts} hosts did not end"))?.mean_ns / 1e3)
    };
    let hosts_us = if alone {
        let half = radix / 2;
        let parents: Vec<u32> = (0..children.len()).map(|level| if level == 0 { 1 } else { half }).collect();
        let measured =
            measure_hosts(shape(&children, &parents)?, 8, HostAlgorithm::RecursiveKing, parameters, 1, seed)?;
        Some(measured.ok_or_else(|| anyhow!("a call among {hosts} hosts did not end"))?.mean_ns / 1e3)
    } else {
        None
    };
    Ok(SharpScalePoint {
        radix,
        hosts,
        levels: children.len(),
        multicast_us: aggregated(SharpResultDelivery::Multicast)?,
        connections_us: aggregated(SharpResultDelivery::Connections)?,
        hosts_us,
    })
}

/// The children of each level of a fat tree of such switches, from the hosts up: half the ports lead down, at the top all.
fn children(radix: u32, hosts: u32) -> Vec<u32> {
    let half = radix / 2;
    let (mut children, mut left) = (Vec::new(), hosts);
    while left > radix {
        children.push(half);
        left = left.div_ceil(half);
    }
    children.push(left.max(1));
    children
}

fn shape(children: &[u32], parents: &[u32]) -> Result<Arc<Fabric>> {
    Ok(Arc::new(Fabric::xgft(children, parents).map_err(|error| anyhow!("{error}"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_hold_all_hosts_and_no_switch_has_too_many_children() {
        for radix in RADICES {
            for hosts in [1, 36, 37, MIN_HOSTS, 70_000, MAX_HOSTS] {
                let children = children(radix, hosts);
                let (top, below) = children.split_last().expect("a level");
                assert!(children.iter().product::<u32>() >= hosts && *top <= radix, "{radix} {hosts} {children:?}");
                assert!(below.iter().all(|children| *children == radix / 2));
            }
        }
    }
}
