//! `pleach tune`: times checksums and copy strategies per message size, and saves the fastest for later runs; with `--network`, what the
//! network costs.

mod network;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use checksum::tuning::{
    ChecksumChoice, ChecksumTuning, CopyStrategy, SIZE_CLASSES, SizeTiming, TimingCandidate, TimingSample,
    TuningCache, processor_identity, time_candidates,
};
use clap::Args;
use serde::Serialize;

use lab::CommandOutcome;
use lab::bench::checksum::format_size;
use lab::progress::{MESSAGE_AND_ETA, progress_bar};
use lab::report::ReportFormat;
use lab::report::{format_table, write_report};

/// Time the strong checksums on this machine, and save the fastest for each message size; or measure the network.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach tune                         time, show and save
  pleach tune --show                  show the saved result, or the default
  pleach tune --show --format json
  pleach launch --hosts a,b -- pleach tune --network    measure the network between hosts, for the choice of algorithms
  pleach tune --network --show                          show the saved costs of the network

The result is valid for this CPU model only. It is saved in PLEACH_CACHE, in XDG_CACHE_HOME/pleach or in
~/.cache/pleach; remove the file to undo it. A damaged file, or one of another CPU, is ignored. Only checksums
labelled strong (pleach bench checksum --detection) are candidates. It takes a few seconds on an otherwise idle
machine.

--network runs as a job, one rank on each host. Rank 0 saves the costs in the same folder, as network-costs.json; jobs whose
rank 0 is on that host choose the algorithms between hosts by them (PLEACH_NETWORK_COSTS names another file). An algorithm
decides in which order sums are rounded: keep one file where results must be the same to the last bit.")]
pub(crate) struct TuneArgs {
    /// Show the saved result; measure and save nothing.
    #[arg(long)]
    show: bool,
    /// Measure the network between the hosts of the job that this is a rank of.
    #[arg(long)]
    network: bool,
    /// Fewer rounds; takes a second.
    #[arg(long, conflicts_with_all = ["show", "network"])]
    quick: bool,
    /// Format of the report: table or json.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// File for the report [default: stdout]
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct TuneReport {
    /// Version of the field names.
    version: u32,
    processor: String,
    /// `timed now`, `kept` or `default`.
    source: &'static str,
    file: Option<PathBuf>,
    classes: Vec<SizeClassRow>,
}

#[derive(Serialize)]
struct SizeClassRow {
    up_to_bytes: usize,
    algorithm: &'static str,
    way: &'static str,
    /// Only if timed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    memcpy_gb_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<CandidateRow>,
}

#[derive(Serialize)]
struct CandidateRow {
    algorithm: &'static str,
    way: &'static str,
    median_gb_per_s: f64,
    slowest_gb_per_s: f64,
    fastest_gb_per_s: f64,
}

pub(crate) fn run(arguments: &TuneArgs) -> Result<CommandOutcome> {
    ensure!(arguments.format != ReportFormat::Html, "tune writes table or json");
    if arguments.network {
        return network::run(arguments);
    }
    let folder = TuningCache::user_default();
    if arguments.show {
        let saved = folder.as_ref().and_then(TuningCache::load);
        let source = if saved.is_some() { "kept" } else { "default" };
        let file = saved.is_some().then(|| folder.as_ref().map(TuningCache::file)).flatten();
        report(arguments, source, file, &saved.unwrap_or_default(), &[])?;
        return Ok(CommandOutcome::Passed);
    }
    let timings = measure(arguments.quick)?;
    let tuning = ChecksumTuning::from_timings(&timings);
    let saved = folder
        .context("neither PLEACH_CACHE nor XDG_CACHE_HOME nor HOME is set")
        .and_then(|folder| folder.save(&tuning).with_context(|| format!("cannot write {}", folder.file().display())));
    report(arguments, "timed now", saved.as_ref().ok().cloned(), &tuning, &timings)?;
    saved.context("the result was not saved").map(|_| CommandOutcome::Passed)
}

fn measure(quick: bool) -> Result<Vec<SizeTiming>> {
    let candidates: Vec<TimingCandidate> =
        std::iter::once(TimingCandidate::Memcpy).chain(TimingCandidate::strong()).collect();
    let (rounds, sample) = if quick { (3, Duration::from_micros(50)) } else { (11, Duration::from_micros(500)) };
    let bar = progress_bar(SIZE_CLASSES.len() as u64, MESSAGE_AND_ETA);
    let timings = SIZE_CLASSES.map(|bytes| {
        bar.set_message(format_size(bytes));
        let timing = time_candidates(&candidates, bytes, rounds, sample);
        bar.inc(1);
        timing
    });
    bar.finish_and_clear();
    Ok(timings.into())
}

fn report(
    arguments: &TuneArgs,
    source: &'static str,
    file: Option<PathBuf>,
    tuning: &ChecksumTuning,
    timings: &[SizeTiming],
) -> Result<()> {
    let classes = tuning
        .classes()
        .map(|(bytes, choice)| SizeClassRow::new(bytes, choice, timings.iter().find(|timing| timing.bytes == bytes)));
    let report = TuneReport { version: 1, processor: processor_identity(), source, file, classes: classes.collect() };
    let text = match arguments.format {
        ReportFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        _ => table(&report),
    };
    write_report(&text, arguments.output.as_deref())
}

impl SizeClassRow {
    fn new(bytes: usize, choice: ChecksumChoice, timing: Option<&SizeTiming>) -> Self {
        let samples = timing.map_or(&[][..], |timing| &timing.samples);
        let memcpy =
            samples.iter().find(|sample| sample.candidate == TimingCandidate::Memcpy).map(TimingSample::median);
        let candidates = samples.iter().filter_map(|sample| match sample.candidate {
            TimingCandidate::Code(algorithm, way) => Some(CandidateRow {
                algorithm: algorithm.name(),
                way: way.name(),
                median_gb_per_s: sample.median(),
                slowest_gb_per_s: sample.spread().0,
                fastest_gb_per_s: sample.spread().1,
            }),
            _ => None,
        });
        Self {
            up_to_bytes: bytes,
            algorithm: choice.algorithm.name(),
            way: choice.strategy.name(),
            memcpy_gb_per_s: memcpy,
            candidates: candidates.collect(),
        }
    }

    fn chosen(&self) -> Option<&CandidateRow> {
        self.candidates.iter().find(|row| row.algorithm == self.algorithm && row.way == self.way)
    }
}

fn table(report: &TuneReport) -> String {
    let mut text = format!("Checksums of copied messages on {}\n\n", report.processor);
    let mut head: Vec<String> = ["up to", "checksum", "way"].map(str::to_owned).into();
    if let Some(class) = report.classes.first().filter(|class| !class.candidates.is_empty()) {
        head.extend(["GB/s", "of memcpy", "memcpy"].map(str::to_owned));
        head.extend(class.candidates.iter().map(|row| format!("{} {}", row.algorithm, short(row.way))));
    }
    let rows = report.classes.iter().enumerate().map(|(number, class)| {
        let up_to = if number + 1 < report.classes.len() { format_size(class.up_to_bytes) } else { "any".to_owned() };
        let mut row = vec![up_to, class.algorithm.to_owned(), class.way.to_owned()];
        if let (Some(chosen), Some(memcpy)) = (class.chosen(), class.memcpy_gb_per_s) {
            let rate = chosen.median_gb_per_s;
            row.extend([format!("{rate:.1}"), format!("{:.2}", rate / memcpy), format!("{memcpy:.1}")]);
            row.extend(class.candidates.iter().map(|row| format!("{:.1}", row.median_gb_per_s)));
        }
        row
    });
    text += &format_table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    text += &match (report.source, &report.file) {
        ("default", _) => {
            "\nNothing is saved for this CPU; this is the default. Run `pleach tune` to measure.\n".to_owned()
        }
        ("kept", Some(file)) => format!("\nSaved in {}\n", file.display()),
        (_, Some(file)) => format!("\nGB/s, medians. Saved in {}\n", file.display()),
        (_, None) => "\nGB/s, medians.\n".to_owned(),
    };
    text
}

fn short(way: &str) -> &str {
    if way == CopyStrategy::CopyThen.name() { "then" } else { way }
}
