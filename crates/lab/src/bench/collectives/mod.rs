//! `pleach bench collectives`: barriers, allreduces and broadcasts between processes, and Open MPI in the same run.
//!
//! Three cases: two ranks in shared memory; 16 hosts made of network namespaces, with one aggregation node; 64 processes on
//! loopback, each as if on its own host. In each case the contenders take turns, round by round, so that a busy machine slows
//! all of them. A fourth case is the memory of a node with many operations in flight.
//!
//! Reading order: `case.rs` says what is measured where, `contender.rs` runs one contender once, `rank.rs` (and `peer.c` for
//! MPI) is a process that is measured, `node_memory.rs` fills a node.

mod case;
pub(crate) mod contender;
mod node_memory;
pub(crate) mod output;
pub mod rank;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::CommandOutcome;
use crate::bench::TrialSummary;
use crate::bench::baseline::Baseline;
use crate::bench::samples::SampleBudget;
use crate::bench::steal_time::StealTime;
use crate::progress::progress_bar;
use crate::report::ReportArgs;
use case::CollectivesCase;
use contender::Contender;
use node_memory::NodeMemory;

/// The peer program for MPI: the same measures as `rank.rs`.
pub(super) const MPI_PEER_SOURCE: &str = include_str!("peer.c");
/// The program for gloo: the allreduces of `rank.rs`, for `pleach bench mpi --scene gloo`.
pub(super) const GLOO_PEER_SOURCE: &str = include_str!("gloo_peer.py");
/// The template of the progress bar.
pub(super) const PROGRESS: &str = "{bar:30} {pos}/{len} {msg} ({elapsed})";

/// Barrier, allreduce and broadcast between processes, compared with Open MPI if it is installed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench collectives
  pleach bench collectives --quick --scene loopback
  pleach bench collectives --against none --format json --output collectives.json

Run nothing else on the machine meanwhile. It takes some minutes. The scene \"namespaces\" needs root. For Open MPI, mpirun
and mpicc must be in the path (Debian: openmpi-bin, libopenmpi-dev).

Exit status: 0 if all results are correct; times are reported, not judged.")]
pub(crate) struct BenchCollectivesArgs {
    /// Fewer rounds and shorter batches.
    #[arg(long)]
    quick: bool,
    /// Run only this scene; may be given several times.
    #[arg(long)]
    scene: Vec<CollectivesCaseName>,
    /// What to compare with.
    #[arg(long, value_enum, default_value_t = Baseline::OpenMpi)]
    against: Baseline,
    /// Rounds, in each of which every contender runs once [default: 5, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    #[command(flatten)]
    report: ReportArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum CollectivesCaseName {
    /// Two ranks on one host.
    SharedMemory,
    /// 16 hosts made of network namespaces on one bridge.
    Namespaces,
    /// 64 processes over loopback, each as if on its own host.
    Loopback,
    /// The memory of a node with 1,000 groups and 10,000 operations in flight.
    NodeMemory,
}

/// The results of all cases.
#[derive(Serialize)]
struct CollectivesBenchReport {
    rounds: u32,
    processors: usize,
    open_mpi: Option<String>,
    scenes: Vec<CollectivesCaseReport>,
    node_memory: Option<NodeMemory>,
    /// Scenes that could not be measured, among the notes.
    failed: usize,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct CollectivesCaseReport {
    scene: CollectivesCaseName,
    title: String,
    rows: Vec<CollectivesRow>,
    /// The algorithms that Pleach chose in the last round.
    ways: Vec<String>,
}

/// One measure of one contender.
#[derive(Serialize)]
struct CollectivesRow {
    measure: String,
    contender: Contender,
    /// Time of one operation, over rounds.
    micros: TrialSummary,
    /// Processor time of one operation, of all ranks and nodes, over rounds.
    cpu_micros: TrialSummary,
    /// The time of Pleach over that of Open MPI, round by round.
    ratio: Option<TrialSummary>,
}

pub(crate) fn run(arguments: &BenchCollectivesArgs) -> Result<CommandOutcome> {
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 5 });
    let budget = if arguments.quick { SampleBudget::QUICK } else { SampleBudget::FULL };
    let wanted = |name: CollectivesCaseName| arguments.scene.is_empty() || arguments.scene.contains(&name);
    let mut notes = Vec::new();
    let open_mpi = arguments.against.find(MPI_PEER_SOURCE, &mut notes);
    let cases: Vec<CollectivesCase> = case::all().into_iter().filter(|case| wanted(case.name)).collect();
    let steps: u64 = cases.iter().map(|case| case.contenders(open_mpi.as_ref()).len() as u64).sum();
    let steps = steps * u64::from(rounds) + u64::from(wanted(CollectivesCaseName::NodeMemory));
    let bar = progress_bar(steps, PROGRESS);
    let before = StealTime::now();
    let (mut reports, mut failed) = (Vec::new(), 0);
    for case in &cases {
        match case.measure(open_mpi.as_ref(), rounds, budget, &bar) {
            Ok(report) => reports.push(report),
            Err(error) => {
                let text = format!("{}: {error:#}", case.title);
                // A case that was named must work. Otherwise the other cases are still worth reporting.
                anyhow::ensure!(arguments.scene.is_empty(), text);
                failed += 1;
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
        failed,
        notes,
    };
    arguments.report.write(&report, output::table, output::html)?;
    Ok(CommandOutcome::Passed)
}
