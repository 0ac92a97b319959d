//! The scene "kernels": the papers' experiment on programs of their kind. Kernels in the shape of the NAS benchmarks, unmodified, over the
//! libfabric provider, on eight hosts with two networks: with and without checksums (CK-10), and while a cable is pulled (PM-6 to PM-8).
//!
//! Every run verifies its own result. The program is `kernels.c`; `two_network_cluster.rs` starts it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use serde::Serialize;

use super::two_network_cluster::{CablePull, PlannedPull, ProgramOutcome, ProviderChecksums, TwoNetworkCluster};
use crate::bench::TrialSummary;
use crate::bench::mpi_installation::MpiInstallation;
use crate::mpi::provider_library;
use crate::progress::progress_bar;
use crate::report::{TableRows, with_header};

const SOURCE: &str = include_str!("kernels.c");
const KERNELS: [&str; 6] = ["IS", "FT", "LU", "CG", "MG", "EP"];
/// Ranks, each on a host of its own.
const RANKS: usize = 8;
const PULLS: [CablePull; 2] = [CablePull::Noticed, CablePull::Silent];
/// A kernel repeats its work until it takes about this long.
const FULL_SECONDS: f64 = 2.0;
const QUICK_SECONDS: f64 = 0.3;
const MOST_REPETITIONS: f64 = 10_000.0;

/// How much is run.
#[derive(Clone, Copy)]
pub(super) struct KernelPlan {
    seconds: f64,
    rounds: u32,
    /// Moments at which the cable is pulled, in each way.
    moments: u32,
}

impl KernelPlan {
    pub(super) fn quick(rounds: u32) -> Self {
        Self { seconds: QUICK_SECONDS, rounds, moments: 2 }
    }

    pub(super) fn full(rounds: u32) -> Self {
        Self { seconds: FULL_SECONDS, rounds, moments: 16 }
    }
}

/// The results of all kernels.
#[derive(Serialize)]
pub(super) struct KernelsReport {
    mpi: String,
    ranks: usize,
    rows: Vec<KernelRow>,
}

#[derive(Serialize)]
struct KernelRow {
    kernel: &'static str,
    repetitions: u32,
    /// Seconds without a fault.
    without_checksums: TrialSummary,
    with_checksums: TrialSummary,
    /// With over without, round by round.
    checksum_ratio: TrialSummary,
    /// Seconds, with checksums, of the runs in which a cable was pulled.
    noticed: TrialSummary,
    silent: TrialSummary,
    /// Runs, and those of which the result was wrong.
    runs: u32,
    wrong: u32,
}

/// Runs the kernels with these names, or all.
///
/// # Errors
/// If Open MPI, the provider or namespaces are missing, or a run ends early.
pub(super) fn run(plan: KernelPlan, names: &[String], mpi: Option<&Path>) -> Result<KernelsReport> {
    let unknown = names.iter().find(|name| !KERNELS.contains(&name.as_str()));
    ensure!(
        unknown.is_none(),
        "unknown kernel {}; known are {}",
        unknown.map_or("", String::as_str),
        KERNELS.join(", ")
    );
    let mpi = match mpi {
        Some(named) => MpiInstallation::named(named, SOURCE)?,
        None => MpiInstallation::named(Path::new("mpirun.openmpi"), SOURCE)
            .or_else(|_| MpiInstallation::open_mpi(SOURCE))
            .context("the scene \"kernels\" needs Open MPI")?,
    };
    ensure!(mpi.is_open_mpi(), "the scene \"kernels\" needs Open MPI, not {}", mpi.version);
    let scratch = std::env::temp_dir().join(format!("pleach-bench-kernels-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let rows = provider_library::folder(&scratch).and_then(|provider| {
        let cluster = TwoNetworkCluster::new(&mpi, RANKS, &provider, &scratch)?;
        let wanted = |kernel: &&&str| names.is_empty() || names.iter().any(|name| name == **kernel);
        let kernels: Vec<&'static str> = KERNELS.iter().filter(wanted).copied().collect();
        let runs = u64::from(1 + 2 * plan.rounds + 2 * plan.moments) * kernels.len() as u64;
        let bar = progress_bar(runs, "kernels");
        let rows =
            kernels.into_iter().map(|kernel| measure(&cluster, kernel, plan, &bar)).collect::<Result<Vec<_>>>();
        bar.finish_and_clear();
        rows
    });
    let _ = std::fs::remove_dir_all(&scratch);
    Ok(KernelsReport { mpi: mpi.short_name(), ranks: RANKS, rows: rows? })
}

fn measure(
    cluster: &TwoNetworkCluster<'_>,
    kernel: &'static str,
    plan: KernelPlan,
    bar: &ProgressBar,
) -> Result<KernelRow> {
    let (mut runs, mut wrong) = (0, 0);
    let mut run = |repetitions: u32, checksums, pull| -> Result<f64> {
        let arguments = [kernel.to_owned(), u32::to_string(&repetitions)];
        let ProgramOutcome { seconds, is_right, .. } = cluster.run(&arguments, checksums, pull)?;
        bar.inc(1);
        runs += 1;
        wrong += u32::from(!is_right);
        Ok(seconds)
    };
    let once = run(1, ProviderChecksums::On, None)?;
    let repetitions = (plan.seconds / once.max(1e-6)).clamp(1.0, MOST_REPETITIONS) as u32;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        without.push(run(repetitions, ProviderChecksums::Off, None)?);
        with.push(run(repetitions, ProviderChecksums::On, None)?);
    }
    let ratio = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let (without_checksums, with_checksums) = (TrialSummary::of(without), TrialSummary::of(with.clone()));
    let typical = with.iter().copied().fold(f64::INFINITY, f64::min);
    let mut faulty = PULLS.map(|_| Vec::new());
    for moment in 0..plan.moments {
        for (kind, times) in PULLS.into_iter().zip(&mut faulty) {
            let after = typical * (f64::from(moment) + 0.5) / f64::from(plan.moments);
            let pull = PlannedPull { kind, host: moment as usize % RANKS, after: Duration::from_secs_f64(after) };
            times.push(run(repetitions, ProviderChecksums::On, Some(pull))?);
        }
    }
    let [noticed, silent] = faulty.map(TrialSummary::of);
    let checksum_ratio = TrialSummary::of(ratio);
    Ok(KernelRow {
        kernel,
        repetitions,
        without_checksums,
        with_checksums,
        checksum_ratio,
        noticed,
        silent,
        runs,
        wrong,
    })
}

/// Title and rows of the table.
pub(super) fn section(report: &KernelsReport) -> (String, TableRows) {
    let row = |row: &KernelRow| {
        let [without, with, noticed, silent] =
            [row.without_checksums, row.with_checksums, row.noticed, row.silent].map(|seconds| seconds.to_string());
        let (ratio, verdict) = (row.checksum_ratio.to_string(), format!("{} of {}", row.runs - row.wrong, row.runs));
        [row.kernel.to_owned(), without, with, ratio, noticed, silent, verdict]
    };
    let header =
        ["kernel", "no checksums, s", "checksums, s", "ratio", "cable pulled, noticed, s", "silent, s", "right"];
    let title =
        format!("Kernels over the libfabric provider, {}, {} hosts with two networks; s", report.mpi, report.ranks);
    (title, with_header(header, report.rows.iter().map(row)))
}

impl KernelsReport {
    pub(super) fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.wrong == 0)
    }
}
