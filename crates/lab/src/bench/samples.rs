//! Samples of collective operations: how ranks report them, and how one run of a benchmark collects them.
//!
//! Rank 0 prints, in the order of the measures: `note TEXT` once, then for each measure `begin NAME` and `end JSON`, where
//! the JSON is a [`MeasureTimes`]. `rank.rs` does so with Pleach, `peer.c` with MPI.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use namespaces::NamespaceNetwork;
use serde::{Deserialize, Serialize};

use super::rank_processes::next_line;
use crate::local_fabric::LocalFabric;
use crate::local_fabric::child_process::{ChildProcess, OutputLine};

/// A rank that starts or measures for longer without a result has hung.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(120);

/// How much is measured in one run.
#[derive(Clone, Copy)]
pub(crate) struct SampleBudget {
    /// Batches of each measure.
    pub(crate) batches: u32,
    /// Seconds of each batch.
    pub(crate) seconds: f64,
}

impl SampleBudget {
    pub(crate) const QUICK: Self = Self { batches: 3, seconds: 0.03 };
    pub(crate) const FULL: Self = Self { batches: 7, seconds: 0.1 };
    /// Between hosts a start takes long, and one run measures many operations.
    pub(crate) const HOSTS_QUICK: Self = Self { batches: 5, seconds: 0.05 };
    pub(crate) const HOSTS: Self = Self { batches: 5, seconds: 0.1 };
}

/// Where the ranks of a run are.
#[derive(Clone, Copy)]
pub(crate) enum BenchPlacement<'a> {
    /// On this host, with shared memory.
    OneHost,
    /// On this host, over the loopback interface.
    Loopback,
    /// On the first hosts made of network namespaces.
    Namespaces { network: &'a NamespaceNetwork, ranks_per_host: u32 },
}

/// What rank 0 reports of one measure.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct MeasureTimes {
    pub measure: String,
    /// Operations in each batch.
    pub iterations: u32,
    /// Microseconds of one operation, batch by batch.
    pub micros: Vec<f64>,
    /// Processor time of one operation, summed over all ranks.
    pub cpu_micros: f64,
}

/// One measure in one run.
pub(crate) struct BenchSample {
    /// Median over batches of the time of one operation.
    pub micros: f64,
    /// Processor time of one operation, of all ranks and aggregation nodes.
    pub cpu_micros: f64,
}

/// One run: a sample for each measure.
pub(crate) struct BenchRun {
    pub samples: Vec<BenchSample>,
    /// Which algorithm Pleach chose for 8 bytes, as rank 0 explains it; none from MPI ranks.
    pub explanation: Option<String>,
}

/// Collects the samples that rank 0 prints. Adds the processor time of the aggregation nodes during each measure.
pub(crate) fn collect_samples(
    output: &Receiver<OutputLine>,
    measures: &[&str],
    nodes: Option<&LocalFabric>,
    processes: &[ChildProcess],
) -> Result<BenchRun> {
    let mut samples: Vec<BenchSample> = Vec::new();
    let mut explanation = None;
    let node_micros = || nodes.map_or(0.0, LocalFabric::processor_micros);
    let mut before = 0.0;
    while samples.len() < measures.len() {
        let line = next_line(output, Instant::now() + MEASURE_TIMEOUT, processes)?;
        if line.starts_with("begin ") {
            before = node_micros();
        } else if let Some(text) = line.strip_prefix("note ") {
            explanation = Some(text.to_owned());
        } else if let Some(text) = line.strip_prefix("end ") {
            let spent = node_micros() - before;
            let times: MeasureTimes =
                serde_json::from_str(text).with_context(|| format!("malformed result from rank 0: {line:?}"))?;
            let expected = measures[samples.len()];
            ensure!(times.measure == expected, "rank 0 reports {} instead of {expected}", times.measure);
            let operations = f64::from(times.iterations) * times.micros.len() as f64;
            let mut sorted = times.micros;
            sorted.sort_by(f64::total_cmp);
            let micros =
                *sorted.get(sorted.len() / 2).with_context(|| format!("{expected}: rank 0 sent no batch"))?;
            samples.push(BenchSample { micros, cpu_micros: times.cpu_micros + spent / operations });
        }
    }
    Ok(BenchRun { samples, explanation })
}
