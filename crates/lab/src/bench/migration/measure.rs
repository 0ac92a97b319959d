//! The measurements, each repeated several times.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use transport::udp::LinkCut;

use super::endpoint_pair::{AlternatePaths, EndpointPair};
use crate::bench::TrialSummary;

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Times of the transitions of so many connections: from MIGRATED to ARMED and from ARMED to MIGRATED, in microseconds.
pub(crate) fn measure_transitions(connections: usize, tries: usize) -> Result<(TrialSummary, TrialSummary)> {
    let mut endpoints = EndpointPair::new(connections, AlternatePaths::Armed)?;
    let (mut arming, mut migrating) = (Vec::new(), Vec::new());
    for _ in 0..tries {
        for _ in 0..2 {
            migrating.push(micros(endpoints.migrate()?));
            // Loading a path waits until the previous migration is acknowledged (P-21). That wait is not part of arming.
            endpoints.settle()?;
            arming.push(micros(endpoints.arm()?));
        }
    }
    Ok((TrialSummary::of(arming), TrialSummary::of(migrating)))
}

/// The event during an exchange of messages over all connections in turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbance {
    Migration,
    Cut(LinkCut),
}

/// Messages of one size over many connections.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct DisturbedLatency {
    pub(crate) connections: usize,
    pub(crate) bytes: usize,
    /// Mean round-trip time without and with the event, in microseconds.
    pub(crate) plain_us: TrialSummary,
    pub(crate) disturbed_us: TrialSummary,
    /// Time that the event added, per connection.
    pub(crate) per_connection_us: TrialSummary,
    /// The longest round trip of the disturbed exchange.
    pub(crate) longest_us: TrialSummary,
}

/// Exchanges messages over all connections in turn, four times each. The event happens after the first round.
pub(crate) fn measure_disturbed_latency(
    connections: usize,
    bytes: usize,
    disturbance: Disturbance,
    tries: usize,
) -> Result<DisturbedLatency> {
    let (mut plain, mut disturbed, mut added, mut longest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..tries {
        let (plain_mean, _) = exchange(connections, bytes, None)?;
        let (disturbed_mean, max) = exchange(connections, bytes, Some(disturbance))?;
        plain.push(plain_mean);
        disturbed.push(disturbed_mean);
        added.push((disturbed_mean - plain_mean) * ROUNDS as f64);
        longest.push(max);
    }
    Ok(DisturbedLatency {
        connections,
        bytes,
        plain_us: TrialSummary::of(plain),
        disturbed_us: TrialSummary::of(disturbed),
        per_connection_us: TrialSummary::of(added),
        longest_us: TrialSummary::of(longest),
    })
}

const ROUNDS: usize = 4;

/// The mean round-trip time and the longest.
fn exchange(connections: usize, bytes: usize, disturbance: Option<Disturbance>) -> Result<(f64, f64)> {
    let mut endpoints = EndpointPair::new(connections, AlternatePaths::Armed)?;
    endpoints.prepare(bytes)?;
    for connection in 0..connections {
        endpoints.round_trip(connection, bytes)?;
    }
    let (mut total, mut longest) = (0.0, 0.0f64);
    for round in 0..ROUNDS {
        if round == 1 {
            let began = std::time::Instant::now();
            match disturbance {
                Some(Disturbance::Migration) => endpoints.begin_migration()?,
                Some(Disturbance::Cut(cut)) => endpoints.cut(cut),
                None => {}
            }
            total += micros(began.elapsed());
        }
        for connection in 0..connections {
            let time = micros(endpoints.round_trip(connection, bytes)?);
            total += time;
            longest = longest.max(time);
        }
    }
    Ok((total / (ROUNDS * endpoints.connections()) as f64, longest))
}

/// The cost of an armed alternate path while nothing fails.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct AlternateCost {
    pub(crate) bytes: usize,
    /// With one path.
    pub(crate) plain: TrialSummary,
    /// With an armed alternate.
    pub(crate) armed: TrialSummary,
    /// Armed over plain, measured in turn.
    pub(crate) ratio: TrialSummary,
}

/// Round-trip time, in microseconds, without and with an armed alternate.
pub(crate) fn latency_cost(bytes: usize, iterations: usize, tries: usize) -> Result<AlternateCost> {
    compare(bytes, tries, tries, |endpoints| {
        let mut times = Vec::with_capacity(iterations);
        for _ in 0..iterations {
            times.push(micros(endpoints.round_trip(0, bytes)?));
        }
        Ok(TrialSummary::of(times).median)
    })
}

/// One stream scatters more than a median of many messages: streams are this many times shorter, and this many times as many.
const STREAM_SPLIT: usize = 8;

/// Megabytes per second in one direction, without and with an armed alternate.
pub(crate) fn bandwidth_cost(bytes: usize, count: u64, tries: usize) -> Result<AlternateCost> {
    let count = count.div_ceil(STREAM_SPLIT as u64);
    compare(bytes, tries, STREAM_SPLIT * tries, |endpoints| Ok(endpoints.stream(count, bytes)? / 1e6))
}

/// Compares fresh endpoints with and without an alternate, `pairs` times, each measured `turns` times.
fn compare(
    bytes: usize,
    pairs: usize,
    turns: usize,
    mut measure: impl FnMut(&mut EndpointPair) -> Result<f64>,
) -> Result<AlternateCost> {
    let mut values = [Vec::new(), Vec::new()];
    // Fresh endpoints each time: the placement of their memory and sockets alone makes a difference of one or two percent.
    for _ in 0..pairs {
        let mut candidates =
            [EndpointPair::new(1, AlternatePaths::None)?, EndpointPair::new(1, AlternatePaths::Armed)?];
        for endpoints in &mut candidates {
            endpoints.prepare(bytes)?;
            measure(endpoints)?; // The first time is slower: windows open, memory is touched.
        }
        for turn in 0..turns {
            // The first one alternates, so that a drift of the machine affects both alike.
            for index in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
                values[index].push(measure(&mut candidates[index])?);
            }
        }
    }
    let ratios = values[1].iter().zip(&values[0]).map(|(armed, plain)| armed / plain).collect();
    let [plain, armed] = values.map(TrialSummary::of);
    Ok(AlternateCost { bytes, plain, armed, ratio: TrialSummary::of(ratios) })
}

/// Bytes of an idle connection at one end, from the growth of this process.
pub(crate) fn memory_per_connection() -> Result<f64> {
    let connections = 4096;
    let before = resident_bytes();
    let endpoints = EndpointPair::new(connections, AlternatePaths::Armed)?;
    let grown = resident_bytes().saturating_sub(before);
    Ok(grown as f64 / (2 * endpoints.connections()) as f64)
}

fn resident_bytes() -> u64 {
    crate::bench::process_memory_bytes("VmRSS")
}
