//! Past the paper: allreduce of 8 bytes from 1 Ki to 1 Mi hosts, on full fat trees of switches with 36, 64 and 128 ports.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use simulator::collective::OperationPacing;
use topology::Fabric;

use super::parameters::{BenchmarkCaller, SharpHostNoise, SharpParameters};
use super::points::{AggregationRun, HostAlgorithm, ResultDelivery, measure_hosts};

/// Switch ports.
const RADICES: [u32; 3] = [36, 64, 128];
/// The least and the most hosts.
const LEAST: u32 = 1 << 10;
pub(super) const MOST: u32 = 1 << 20;

/// One size of one fabric.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SharpScalePoint {
    /// Ports of a switch.
    pub radix: u32,
    /// Hosts: no fewer than asked for, and as many as fill the last level evenly.
    pub hosts: u32,
    pub levels: usize,
    /// Microseconds with results by multicast.
    pub multicast_us: f64,
    /// Microseconds with results over connections.
    pub connections_us: f64,
    /// Microseconds of the hosts alone, up to the size to which they were asked for.
    pub hosts_us: Option<f64>,
}

/// Measures all sizes up to `most` hosts, and hosts among themselves up to `most_alone`.
pub(super) fn measure(
    parameters: &SharpParameters,
    most: u32,
    most_alone: u32,
    seed: u64,
) -> Result<Vec<SharpScalePoint>> {
    let sizes = std::iter::successors(Some(LEAST), |hosts| hosts.checked_mul(4)).take_while(|hosts| *hosts <= most);
    let jobs: Vec<(u32, u32)> = sizes.flat_map(|hosts| RADICES.map(|radix| (radix, hosts))).collect();
    let bar = ProgressBar::new(jobs.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} sizes: {msg}, {elapsed} so far")
            .expect("a constant template"),
    );
    bar.enable_steady_tick(Duration::from_secs(1)); // The largest take a minute and more.
    let mut found = Vec::new();
    // One after the other: the large ones take gigabytes.
    for (radix, hosts) in jobs {
        bar.set_message(format!("{hosts} hosts, {radix} ports"));
        found.push(one(parameters, radix, hosts, hosts <= most_alone, seed)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(found)
}

fn one(parameters: &SharpParameters, radix: u32, hosts: u32, alone: bool, seed: u64) -> Result<SharpScalePoint> {
    let children = children(radix, hosts);
    let hosts: u32 = children.iter().product();
    let down = |down| -> Result<f64> {
        // One tree uses one switch above each; the rest of a full fat tree would only take memory.
        let fabric = shape(&children, &vec![1; children.len()])?;
        let (caller, system) = (BenchmarkCaller::Mpi, SharpHostNoise::Quiet);
        let run = AggregationRun { fabric, bytes: 8, down, caller, system, calls: 1, pace: OperationPacing::Drained };
        let measured = run.measure(parameters, seed)?;
        Ok(measured.ok_or_else(|| anyhow!("a call of {hosts} hosts never ended"))?.mean_ns / 1e3)
    };
    let hosts_us = if alone {
        let half = radix / 2;
        let parents: Vec<u32> = (0..children.len()).map(|level| if level == 0 { 1 } else { half }).collect();
        let measured = measure_hosts(shape(&children, &parents)?, 8, HostAlgorithm::Kings, parameters, 1, seed)?;
        Some(measured.ok_or_else(|| anyhow!("a call among {hosts} hosts never ended"))?.mean_ns / 1e3)
    } else {
        None
    };
    Ok(SharpScalePoint {
        radix,
        hosts,
        levels: children.len(),
        multicast_us: down(ResultDelivery::Multicast)?,
        connections_us: down(ResultDelivery::Connections)?,
        hosts_us,
    })
}

/// How a fat tree of such switches branches, from the hosts up: half the ports lead down, at the top all may.
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
    fn trees_have_room_for_the_hosts_and_no_switch_has_too_many_children() {
        for radix in RADICES {
            for hosts in [1, 36, 37, LEAST, 70_000, MOST] {
                let children = children(radix, hosts);
                let (top, below) = children.split_last().expect("a level");
                assert!(children.iter().product::<u32>() >= hosts && *top <= radix, "{radix} {hosts} {children:?}");
                assert!(below.iter().all(|children| *children == radix / 2));
            }
        }
    }
}
