//! What is measured, each several times, with the median and the spread.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use transport::udp::LinkCut;

use super::endpoint_pair::{AlternatePaths, EndpointPair};

/// Microseconds, or a ratio, over several tries.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct TrialSummary {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl TrialSummary {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { median: values[values.len() / 2], least: values[0], most: values[values.len() - 1] }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// How long so many connections take from MIGRATED to ARMED, and from ARMED to MIGRATED, in microseconds.
pub(crate) fn measure_transitions(connections: usize, tries: usize) -> Result<(TrialSummary, TrialSummary)> {
    let mut twins = EndpointPair::new(connections, AlternatePaths::Armed)?;
    let (mut arming, mut migrating) = (Vec::new(), Vec::new());
    for _ in 0..tries {
        for _ in 0..2 {
            migrating.push(micros(twins.migrate()?));
            // An order to load waits until the migration before it has been answered (P-36), which is none of its cost.
            twins.settle()?;
            arming.push(micros(twins.arm()?));
        }
    }
    Ok((TrialSummary::of(arming), TrialSummary::of(migrating)))
}

/// What happens while messages bounce over all connections in turn.
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
    /// Mean time there and back without and with the happening, in microseconds.
    pub(crate) plain_us: TrialSummary,
    pub(crate) disturbed_us: TrialSummary,
    /// What the happening added, per connection.
    pub(crate) per_connection_us: TrialSummary,
    /// The longest that one message took while it happened.
    pub(crate) longest_us: TrialSummary,
}

/// Bounces messages over all connections in turn, four times each; it happens after the first round.
pub(crate) fn measure_disturbed_latency(
    connections: usize,
    bytes: usize,
    happening: Disturbance,
    tries: usize,
) -> Result<DisturbedLatency> {
    let (mut plain, mut disturbed, mut added, mut longest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..tries {
        let (quiet, _) = rounds(connections, bytes, None)?;
        let (loud, worst) = rounds(connections, bytes, Some(happening))?;
        plain.push(quiet);
        disturbed.push(loud);
        added.push((loud - quiet) * ROUNDS as f64);
        longest.push(worst);
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

/// The mean time of a message there and back, and the longest.
fn rounds(connections: usize, bytes: usize, happening: Option<Disturbance>) -> Result<(f64, f64)> {
    let mut twins = EndpointPair::new(connections, AlternatePaths::Armed)?;
    twins.prepare(bytes)?;
    for connection in 0..connections {
        twins.bounce(connection, bytes)?;
    }
    let (mut total, mut longest) = (0.0, 0.0f64);
    for round in 0..ROUNDS {
        if round == 1 {
            let began = std::time::Instant::now();
            match happening {
                Some(Disturbance::Migration) => twins.begin_migration()?,
                Some(Disturbance::Cut(cut)) => twins.cut(cut),
                None => {}
            }
            total += micros(began.elapsed());
        }
        for connection in 0..connections {
            let time = micros(twins.bounce(connection, bytes)?);
            total += time;
            longest = longest.max(time);
        }
    }
    Ok((total / (ROUNDS * twins.connections()) as f64, longest))
}

/// What an armed alternate costs while nothing fails.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct AlternateCost {
    pub(crate) bytes: usize,
    /// With one path.
    pub(crate) plain: TrialSummary,
    /// With an armed alternate.
    pub(crate) armed: TrialSummary,
    /// The median over tries of armed by plain, measured in turn.
    pub(crate) ratio: TrialSummary,
}

/// Time there and back, in microseconds, without and with an armed alternate.
pub(crate) fn latency_cost(bytes: usize, iterations: usize, tries: usize) -> Result<AlternateCost> {
    compare(bytes, tries, tries, |twins| {
        let mut times = Vec::with_capacity(iterations);
        for _ in 0..iterations {
            times.push(micros(twins.bounce(0, bytes)?));
        }
        Ok(TrialSummary::of(times).median)
    })
}

/// A stream scatters more than a median of many messages does: so many times more of them, each so many times shorter.
const SHORTER: usize = 8;

/// Megabytes a second one way, without and with an armed alternate.
pub(crate) fn bandwidth_cost(bytes: usize, count: u64, tries: usize) -> Result<AlternateCost> {
    let count = count.div_ceil(SHORTER as u64);
    compare(bytes, tries, SHORTER * tries, |twins| Ok(twins.stream(count, bytes)? / 1e6))
}

/// `pairs` of fresh candidates, each measured `turns` times.
fn compare(
    bytes: usize,
    pairs: usize,
    turns: usize,
    mut measure: impl FnMut(&mut EndpointPair) -> Result<f64>,
) -> Result<AlternateCost> {
    let mut values = [Vec::new(), Vec::new()];
    // Each time with fresh ones: where their memory and sockets happen to lie is worth a percent or two by itself.
    for _ in 0..pairs {
        let mut candidates =
            [EndpointPair::new(1, AlternatePaths::None)?, EndpointPair::new(1, AlternatePaths::Armed)?];
        for twins in &mut candidates {
            twins.prepare(bytes)?;
            measure(twins)?; // The first time is slower: windows open, memory is touched.
        }
        for turn in 0..turns {
            // Alternately first, so that a drift of the machine hits both alike.
            for index in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
                values[index].push(measure(&mut candidates[index])?);
            }
        }
    }
    let ratios = values[1].iter().zip(&values[0]).map(|(armed, plain)| armed / plain).collect();
    let [plain, armed] = values.map(TrialSummary::of);
    Ok(AlternateCost { bytes, plain, armed, ratio: TrialSummary::of(ratios) })
}

/// Bytes of memory that an idle connection takes at one end, from what the process grows by.
pub(crate) fn memory_per_connection() -> Result<f64> {
    let connections = 4096;
    let before = resident_bytes();
    let twins = EndpointPair::new(connections, AlternatePaths::Armed)?;
    let grown = resident_bytes().saturating_sub(before);
    Ok(grown as f64 / (2 * twins.connections()) as f64)
}

fn resident_bytes() -> u64 {
    super::super::process_memory_bytes("VmRSS")
}
