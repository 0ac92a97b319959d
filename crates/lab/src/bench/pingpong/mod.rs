//! `pleach bench pingpong`: latency and bandwidth of checked messages between two processes, as NetPIPE measures them.
//!
//! In each round two processes bounce messages of every size with and without a checksum, batch by batch in turn, and then two
//! processes of Open MPI bounce the same sizes. So a busy machine hurts all of them. Reading order: `player.rs` (and `peer.c` for MPI)
//! is a process that is measured, `contest.rs` starts them and hears what they say, `output.rs` writes it down.

mod output;
pub mod rank;
mod runner;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::CommandOutcome;
use crate::bench::migration::TrialSummary;
use crate::bench::steal_time::StealTime;
use crate::report::ReportFormat;
use crate::report::write_report;
use runner::{OpenMpiPingpong, PingpongTimes};

/// Latency and bandwidth of checked messages between two processes, beside Open MPI.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench pingpong
  pleach bench pingpong --transport shm --checksum crc-32c
  pleach bench pingpong --paths 2 --against none --format html --output pingpong.html

Hold still everything else on the machine while it runs. For Open MPI, mpirun and mpicc must be in the path (Debian:
openmpi-bin, libopenmpi-dev); messages of ours are checked, those of Open MPI are not.

Exit status: 0 if every message came back as it was sent; the figures are reported, not judged.")]
pub(crate) struct BenchPingpongArgs {
    /// How messages travel.
    #[arg(long, value_enum, default_value_t = PingpongTransport::Udp)]
    transport: PingpongTransport,
    /// What covers them: auto (as tuned), off, or a name out of docs/checksums.md.
    #[arg(long, default_value = "auto")]
    checksum: rank::PingpongChecksum,
    /// Paths over which long messages are spread; only for udp.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    paths: u8,
    /// The other contender.
    #[arg(long, value_enum, default_value_t = Baseline::OpenMpi)]
    against: Baseline,
    /// How often the contenders take turns; 5 if not said, 1 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Fewer sizes, shorter batches.
    #[arg(long)]
    quick: bool,
    /// How to report.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Where to write the report; the standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// How messages travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PingpongTransport {
    /// Queue pairs over UDP on the loopback interface; Open MPI over TCP there.
    Udp,
    /// Rings in shared memory; Open MPI in shared memory too.
    Shm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Baseline {
    /// Open MPI, if it is installed.
    #[value(name = "openmpi")]
    OpenMpi,
    /// Nobody.
    None,
}

const SIZES: [usize; 11] = [8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const QUICK_SIZES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];

/// Everything that was measured.
#[derive(Serialize)]
struct PingpongBenchReport {
    transport: PingpongTransport,
    checksum: String,
    paths: u8,
    rounds: u32,
    open_mpi: Option<String>,
    rows: Vec<PingpongRow>,
    notes: Vec<String>,
}

/// One size. Times are one way, in microseconds.
#[derive(Serialize)]
struct PingpongRow {
    bytes: usize,
    checked_us: TrialSummary,
    gigabytes_per_second: f64,
    unchecked_us: Option<TrialSummary>,
    open_mpi_us: Option<TrialSummary>,
    /// Our time with checksums over that without, round by round.
    cost: Option<TrialSummary>,
    /// Our time with checksums over Open MPI's, round by round.
    of_open_mpi: Option<TrialSummary>,
}

/// Our time with checksums over that without, at each size, round by round.
pub(crate) fn checksum_cost(
    transport: PingpongTransport,
    sizes: &[usize],
    rounds: u32,
) -> Result<Vec<(usize, TrialSummary)>> {
    let covers = [rank::PingpongChecksum::Auto, rank::PingpongChecksum::Off];
    let mut ratios = vec![Vec::new(); sizes.len()];
    for _ in 0..rounds {
        let times = runner::play(transport, &covers, 1, sizes, 0.02)?;
        let median = |bytes: usize, cover: &rank::PingpongChecksum| {
            let cover = cover.to_string();
            let found = times.iter().find(|times| times.bytes == bytes && times.cover == cover);
            found.map_or(f64::NAN, PingpongTimes::median)
        };
        for (bytes, ratios) in sizes.iter().zip(&mut ratios) {
            ratios.push(median(*bytes, &covers[0]) / median(*bytes, &covers[1]));
        }
    }
    Ok(sizes.iter().copied().zip(ratios.into_iter().map(TrialSummary::of)).collect())
}

pub(crate) fn run(arguments: &BenchPingpongArgs) -> Result<CommandOutcome> {
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 5 });
    let sizes: &[usize] = if arguments.quick { &QUICK_SIZES } else { &SIZES };
    let seconds = if arguments.quick { 0.01 } else { 0.05 };
    let mut notes = Vec::new();
    let open_mpi = match arguments.against {
        Baseline::None => None,
        Baseline::OpenMpi => {
            OpenMpiPingpong::find().map_err(|error| notes.push(format!("without Open MPI: {error:#}"))).ok()
        }
    };
    let mut covers = vec![arguments.checksum.clone()];
    if arguments.checksum != rank::PingpongChecksum::Off {
        covers.push(rank::PingpongChecksum::Off);
    }
    let before = StealTime::now();
    let (mut ours, mut theirs): (Vec<Vec<PingpongTimes>>, Vec<Vec<PingpongTimes>>) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(runner::play(arguments.transport, &covers, arguments.paths, sizes, seconds)?);
        if let Some(mpi) = &open_mpi {
            theirs.push(mpi.play(arguments.transport, sizes, seconds)?);
        }
    }
    notes.extend(before.note_since(StealTime::now()));
    let micros = |rounds: &[Vec<PingpongTimes>], bytes: usize, cover: &str| -> Option<Vec<f64>> {
        let of_round = |times: &Vec<PingpongTimes>| {
            times.iter().find(|t| t.bytes == bytes && t.cover == cover).map(PingpongTimes::median)
        };
        rounds.iter().map(of_round).collect::<Option<Vec<f64>>>().filter(|values| !values.is_empty())
    };
    let ratio =
        |above: &[f64], below: &[f64]| TrialSummary::of(above.iter().zip(below).map(|(a, b)| a / b).collect());
    let rows = sizes.iter().filter_map(|&bytes| {
        let checked = micros(&ours, bytes, &covers[0].to_string())?;
        let unchecked = covers.get(1).and_then(|cover| micros(&ours, bytes, &cover.to_string()));
        let open_mpi = micros(&theirs, bytes, runner::OPEN_MPI);
        let figure = TrialSummary::of(checked.clone());
        Some(PingpongRow {
            bytes,
            gigabytes_per_second: bytes as f64 / figure.median / 1e3,
            checked_us: figure,
            cost: unchecked.as_ref().map(|unchecked| ratio(&checked, unchecked)),
            of_open_mpi: open_mpi.as_ref().map(|theirs| ratio(&checked, theirs)),
            unchecked_us: unchecked.map(TrialSummary::of),
            open_mpi_us: open_mpi.map(TrialSummary::of),
        })
    });
    let report = PingpongBenchReport {
        transport: arguments.transport,
        checksum: covers[0].to_string(),
        paths: arguments.paths,
        rounds,
        open_mpi: open_mpi.as_ref().map(|mpi| mpi.version.clone()),
        rows: rows.collect(),
        notes,
    };
    let text = match arguments.format {
        ReportFormat::Table => output::table(&report),
        ReportFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        ReportFormat::Html => output::html(&report),
    };
    write_report(&text, arguments.output.as_deref())?;
    Ok(CommandOutcome::Right)
}
