//! `pleach bench checksum`: the speed of each checksum on this machine, and which errors it detects.

mod detection;
mod output;

use std::time::Duration;

use anyhow::Result;
use checksum::tuning::{SizeTiming, TimingCandidate, TimingSample, processor_identity, time_candidates};
use checksum::{Algorithm, CrcKernel};
use clap::Args;
use serde::Serialize;

pub use output::format_size;

use crate::CommandOutcome;
use crate::progress::{MESSAGE_AND_ETA, progress_bar};
use crate::report::ReportArgs;

/// GB/s of every checksum alone, after a copy and fused with it, compared with memcpy; or, with --detection, which errors
/// each detects.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench checksum
  pleach bench checksum --quick --algorithm crc-32c --algorithm crc-64-nvme
  pleach bench checksum --format html --output checksums.html
  pleach bench checksum --detection

Rates are of one core. All messages use the same buffer, so messages up to a MiB are in the caches. All candidates take
turns at each size, and memcpy runs after each candidate whose share of memcpy is given. Run nothing else on the machine
meanwhile. It takes about a minute, with --quick a few seconds.")]
pub(crate) struct BenchChecksumArgs {
    /// Measure only this checksum; may be given several times [default: all]
    #[arg(long = "algorithm", value_name = "NAME")]
    algorithms: Vec<Algorithm>,
    /// Fewer sizes and rounds.
    #[arg(long)]
    quick: bool,
    /// Instead, inject errors of many kinds and count those that each checksum misses.
    #[arg(long)]
    detection: bool,
    /// Errors of each kind, with --detection.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    trials: u64,
    /// Seed of the errors, with --detection.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    report: ReportArgs,
}

#[derive(Serialize)]
struct ChecksumBenchReport {
    /// Version of the field names.
    version: u32,
    processor: String,
    kernel: &'static str,
    sizes: Vec<SizeRow>,
}

#[derive(Serialize)]
struct SizeRow {
    bytes: usize,
    rounds: usize,
    rates: Vec<RateRow>,
}

#[derive(Serialize)]
struct RateRow {
    /// A checksum, `memcpy` or `reading`.
    name: &'static str,
    /// `alone`, `copy-then` or `fused`; none for `memcpy` and `reading`.
    way: Option<&'static str>,
    strength: Option<&'static str>,
    median_gb_per_s: f64,
    slowest_gb_per_s: f64,
    fastest_gb_per_s: f64,
    /// For strong checksums that copy: the median of ratios, each of a sample and the memcpy right after it. For others: the
    /// ratio of the medians.
    of_memcpy: f64,
}

pub(crate) fn run(arguments: &BenchChecksumArgs) -> Result<CommandOutcome> {
    let algorithms = if arguments.algorithms.is_empty() { &Algorithm::ALL[..] } else { &arguments.algorithms };
    if arguments.detection {
        return detection::run(arguments, algorithms);
    }
    let report = measure(arguments.quick, algorithms)?;
    arguments.report.write(&report, output::table, output::html)?;
    Ok(CommandOutcome::Passed)
}

const SIZES: [usize; 12] =
    [64, 256, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
const FEW_SIZES: [usize; 4] = [64, 4 << 10, 32 << 10, 1 << 20];

fn measure(quick: bool, algorithms: &[Algorithm]) -> Result<ChecksumBenchReport> {
    let wanted = |candidate: &TimingCandidate| matches!(candidate, TimingCandidate::Code(algorithm, _) if algorithms.contains(algorithm));
    let codes = TimingCandidate::codes().filter(wanted);
    let candidates: Vec<TimingCandidate> =
        [TimingCandidate::Memcpy, TimingCandidate::Reading].into_iter().chain(codes).collect();
    let sizes = if quick { &FEW_SIZES[..] } else { &SIZES[..] };
    let bar = progress_bar(sizes.len() as u64, MESSAGE_AND_ETA);
    let sizes = sizes.iter().map(|bytes| {
        bar.set_message(format_size(*bytes));
        let rounds = if quick { 5 } else { rounds(*bytes) };
        // Short samples, so that other activity of the machine disturbs few of them.
        let timing = time_candidates(&candidates, *bytes, rounds, Duration::from_micros(200));
        bar.inc(1);
        SizeRow::new(&timing)
    });
    let sizes: Vec<SizeRow> = sizes.collect();
    bar.finish_and_clear();
    Ok(ChecksumBenchReport { version: 1, processor: processor_identity(), kernel: CrcKernel::best().name(), sizes })
}

/// Large messages take long, and few calls give a stable sample.
fn rounds(bytes: usize) -> usize {
    if bytes <= 1 << 20 { 25 } else { 7 }
}

impl SizeRow {
    fn new(timing: &SizeTiming) -> Self {
        let memcpy = timing
            .samples
            .iter()
            .find(|sample| sample.candidate == TimingCandidate::Memcpy)
            .map_or(f64::NAN, TimingSample::median);
        let rates = timing.samples.iter().map(|sample| RateRow::new(sample, memcpy)).collect();
        let rounds = timing.samples.first().map_or(0, |sample| sample.gigabytes_per_second.len());
        Self { bytes: timing.bytes, rounds, rates }
    }
}

impl RateRow {
    fn new(sample: &TimingSample, memcpy: f64) -> Self {
        let (name, way, strength) = match sample.candidate {
            TimingCandidate::Memcpy => ("memcpy", None, None),
            TimingCandidate::Reading => ("reading", None, None),
            TimingCandidate::Code(algorithm, way) => {
                (algorithm.name(), Some(way.name()), Some(algorithm.strength().name()))
            }
        };
        let (slowest, fastest) = sample.spread();
        let median = sample.median();
        Self {
            name,
            way,
            strength,
            median_gb_per_s: median,
            slowest_gb_per_s: slowest,
            fastest_gb_per_s: fastest,
            of_memcpy: sample.share_of_memcpy().unwrap_or(median / memcpy),
        }
    }
}
