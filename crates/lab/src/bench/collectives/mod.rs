//! `pleach bench collectives`: barriers, allreduces and broadcasts between processes, beside Open MPI in the same run.
//!
//! Three scenes: two ranks in shared memory; 16 hosts made of network namespaces, with one aggregation node; 64 processes on
//! loopback, each as if on a host of its own. In each, the contenders take turns, round by round, so that a busy machine hurts
//! all of them. Then the memory of a node that has much to do.
//!
//! Reading order: `scene.rs` says what is measured where, `contender.rs` runs one contender once, `rank.rs` (and `peer.c` for
//! MPI) is a process that is measured, `node_memory.rs` fills a node.

mod case;
pub(crate) mod contender;
mod node_memory;
pub(crate) mod output;
pub mod rank;

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::CommandOutcome;
use crate::bench::migration::TrialSummary;
use crate::bench::mpi::installation::MpiInstallation;
use crate::bench::steal_time::StealTime;
use crate::report::ReportFormat;
use crate::report::write_report;
use case::CollectivesCase;
use contender::Contender;
use node_memory::NodeMemory;

/// Barriers, allreduces and broadcasts between processes, beside Open MPI where it is installed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench collectives
  pleach bench collectives --quick --scene loopback
  pleach bench collectives --against none --format json --output collectives.json

Hold still everything else on the machine while it runs; it takes some minutes. The scene of namespaces needs root. For Open
MPI, mpirun and mpicc must be in the path (Debian: openmpi-bin, libopenmpi-dev).

Exit status: 0 if all results were right; the figures are reported, not judged.")]
pub(crate) struct BenchCollectivesArgs {
    /// Fewer rounds and shorter batches.
    #[arg(long)]
    quick: bool,
    /// Only this scene; may be given several times.
    #[arg(long)]
    scene: Vec<CollectivesCaseName>,
    /// The other contender.
    #[arg(long, value_enum, default_value_t = Baseline::OpenMpi)]
    against: Baseline,
    /// How often the contenders take turns; 5 if not said, 1 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// How to report.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Where to write the report; the standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum CollectivesCaseName {
    /// Two ranks of one host.
    SharedMemory,
    /// 16 hosts made of network namespaces on one bridge.
    Namespaces,
    /// 64 processes over loopback, each as if on a host of its own.
    Loopback,
    /// The memory of a node with 1,000 groups and 10,000 operations in flight.
    NodeMemory,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Baseline {
    /// Open MPI, if it is installed.
    #[value(name = "openmpi")]
    OpenMpi,
    /// Nobody.
    None,
}

/// Everything that was measured.
#[derive(Serialize)]
struct CollectivesBenchReport {
    rounds: u32,
    processors: usize,
    open_mpi: Option<String>,
    scenes: Vec<CollectivesCaseReport>,
    node_memory: Option<NodeMemory>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct CollectivesCaseReport {
    scene: CollectivesCaseName,
    title: String,
    rows: Vec<CollectivesRow>,
    /// How ours went about it, in the last round.
    ways: Vec<String>,
}

/// One measure of one contender.
#[derive(Serialize)]
struct CollectivesRow {
    measure: String,
    contender: Contender,
    /// Of one operation, over rounds.
    micros: TrialSummary,
    /// Processor time of one operation, of all ranks and nodes.
    cpu_micros: TrialSummary,
    /// Our time over that of the other contender, round by round.
    ratio: Option<TrialSummary>,
}

pub(crate) fn run(arguments: &BenchCollectivesArgs) -> Result<CommandOutcome> {
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 5 });
    let pace = if arguments.quick { contender::SampleBudget::QUICK } else { contender::SampleBudget::CALM };
    let wanted = |name: CollectivesCaseName| arguments.scene.is_empty() || arguments.scene.contains(&name);
    let mut notes = Vec::new();
    let open_mpi = match arguments.against {
        Baseline::None => None,
        Baseline::OpenMpi => {
            MpiInstallation::open_mpi().map_err(|error| notes.push(format!("without Open MPI: {error:#}"))).ok()
        }
    };
    let scenes: Vec<CollectivesCase> = case::all().into_iter().filter(|scene| wanted(scene.name)).collect();
    let steps: u64 = scenes.iter().map(|scene| scene.contenders(open_mpi.as_ref()).len() as u64).sum();
    let bar = progress(steps * u64::from(rounds) + u64::from(wanted(CollectivesCaseName::NodeMemory)));
    let before = StealTime::now();
    let mut reports = Vec::new();
    for scene in &scenes {
        match scene.measure(open_mpi.as_ref(), rounds, pace, &bar) {
            Ok(report) => reports.push(report),
            Err(error) => {
                let text = format!("{}: {error:#}", scene.title);
                // What was asked for by name must work; otherwise the other scenes are worth having.
                anyhow::ensure!(arguments.scene.is_empty(), text);
                notes.push(text);
            }
        }
    }
    let node_memory = if wanted(CollectivesCaseName::NodeMemory) {
        bar.set_message("memory of a node");
        Some(node_memory::measure()?)
    } else {
        None
    };
    bar.finish_and_clear();
    notes.extend(before.note_since(StealTime::now()));
    let report = CollectivesBenchReport {
        rounds,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        open_mpi: open_mpi.as_ref().map(|mpi| mpi.version.clone()),
        scenes: reports,
        node_memory,
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

pub(crate) fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
