//! `pleach soak`: random groups, operations and faults in a simulated fabric, seed after seed, judged by the oracle.
//!
//! A seed determines a case ([`SoakCase`]): a fabric, jobs with their groups, the operations of each group, and faults. The simulator
//! runs it with the machines of the product, and the oracle judges every result. A failing case is made as small as possible.
//!
//! Reading order: `case` is the data, `draw` draws it, `setup` hands it to the simulator, `judge` connects the oracle, `run` does all
//! three, `shrink` minimises, `canary` breaks the product on purpose.

mod canary;
mod case;
mod draw;
mod judge;
mod report;
mod run;
mod setup;
mod shrink;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

pub use canary::Canary;
pub use case::{SoakCase, SoakFabric, SoakGroup, SoakLink, SoakOperation};
pub use report::{FailedSeed, MinimisedCase, SoakReport};
pub use run::SoakOutcome;

use crate::CommandOutcome;
use crate::parallel::map_on_threads;
use crate::progress::StepProgress;
use crate::report::write_report;
use report::MAX_LISTED_SEEDS;

/// Runs random groups, operations and faults in a simulated fabric and checks every result.
#[derive(Args)]
#[command(after_help = "\
Each seed draws a fabric, jobs, groups, operations (barrier, broadcast, reduce, allreduce; 0 bytes to 1 MiB) and faults of every kind.
The oracle checks that every result has the right bits and is delivered once, that ranks agree on errors, that everything completes
once the faults are over, and that no slot, buffer, frame or credit is left at the end.

Examples:
  pleach soak --seeds 10000
  pleach soak --seed 4711                            replay one seed
  pleach soak --seeds 100000 --output failure.toml   write the first failing case, made as small as possible, to a file
  pleach soak --case failure.toml                    replay that file
  pleach soak --seeds 1000 --format json | jq .failures[].replay

Exit status: 0 if no seed fails, 1 if one does, 2 if an argument or a file is wrong.")]
pub struct SoakArgs {
    /// Number of seeds.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=MAX_SEED))]
    first: u64,
    /// Replay this seed only.
    #[arg(long, conflicts_with_all = ["seeds", "first"], value_parser = clap::value_parser!(u64).range(0..=MAX_SEED))]
    seed: Option<u64>,
    /// Replay the case in this file only.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "first", "seed"])]
    case: Option<PathBuf>,
    /// Number of threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Format of the report.
    #[arg(long, value_enum, default_value_t = SoakFormat::Table)]
    format: SoakFormat,
    /// File to write the first failing case to, made as small as possible.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Break the product on purpose, to see that it is found out (only in builds for tests).
    #[arg(long, value_name = "NAME", hide = true, value_parser = Canary::find)]
    canary: Option<Canary>,
}

/// The largest seed: TOML has no larger integers, and a case contains its seed.
const MAX_SEED: u64 = i64::MAX as u64;

/// The format of the report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SoakFormat {
    /// Text for the terminal.
    Table,
    /// One JSON object with stable field names.
    Json,
}

/// Runs the soak.
///
/// # Errors
/// If a file cannot be read or written.
pub fn run(arguments: &SoakArgs) -> Result<CommandOutcome> {
    let threads = arguments.threads.map_or_else(available_threads, usize::from);
    // A machine that panics is a finding, and the report has its message.
    std::panic::set_hook(Box::new(|_| ()));
    let report = match &arguments.case {
        Some(path) => replay_file(path, arguments.canary)?,
        None => {
            let (first, seeds) = arguments.seed.map_or((arguments.first, arguments.seeds), |seed| (seed, 1));
            let progress = StepProgress::new("soak", seeds, "seeds");
            let report = soak(first, seeds, threads, arguments.canary, &progress)?;
            progress.finish();
            report
        }
    };
    let _ = std::panic::take_hook();
    if let (Some(path), Some(minimised)) = (&arguments.output, &report.minimised) {
        std::fs::write(path, &minimised.case).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("wrote {}", path.display());
    }
    let text = match arguments.format {
        SoakFormat::Table => report.table(),
        SoakFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    write_report(&text, None)?;
    Ok(if report.failed_seeds == 0 { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs so many seeds and minimises the first that fails.
///
/// # Errors
/// If a drawn case is not valid: a defect of the soak.
pub fn soak(
    first: u64,
    seeds: u64,
    threads: usize,
    canary: Option<Canary>,
    progress: &StepProgress,
) -> Result<SoakReport> {
    let started = Instant::now();
    let all: Vec<u64> = (first..first.saturating_add(seeds)).collect();
    let outcomes = map_on_threads(threads, &all, |seed| {
        let outcome = SoakCase::draw(*seed).run(canary).with_context(|| format!("seed {seed}"))?;
        if !outcome.is_clean() {
            // At once: the rest of the soak may take hours.
            progress.note(&format!("seed {seed} failed: {}", replay_command(*seed, canary)));
        }
        progress.advance(1);
        Ok(outcome)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let mut report = SoakReport {
        first_seed: Some(first),
        seeds,
        threads,
        seconds,
        seeds_per_minute: seeds as f64 * 60.0 / seconds.max(1e-9),
        ..SoakReport::default()
    };
    let mut trace = 0u64;
    for (seed, outcome) in all.iter().zip(&outcomes) {
        add(&mut report, outcome);
        trace = units::mix64(trace ^ outcome.trace);
        if !outcome.is_clean() && report.failures.len() < MAX_LISTED_SEEDS {
            let (problems, replay) = (outcome.problems(), replay_command(*seed, canary));
            report.failures.push(FailedSeed { seed: *seed, problems, replay });
        }
    }
    report.trace = format!("{trace:016x}");
    if let Some(failure) = report.failures.first() {
        progress.note(&format!("making the case of seed {} smaller", failure.seed));
        report.minimised = Some(minimise(&SoakCase::draw(failure.seed), canary)?);
    }
    Ok(report)
}

/// Runs the case in a file; if it fails, it is minimised as well.
fn replay_file(path: &std::path::Path, canary: Option<Canary>) -> Result<SoakReport> {
    let started = Instant::now();
    let case = SoakCase::read(path)?;
    let outcome = case.run(canary).with_context(|| path.display().to_string())?;
    let seconds = started.elapsed().as_secs_f64();
    let trace = format!("{:016x}", outcome.trace);
    let mut report = SoakReport { seeds: 1, threads: 1, seconds, trace, ..SoakReport::default() };
    add(&mut report, &outcome);
    if !outcome.is_clean() {
        let replay = format!("pleach soak --case {}", path.display());
        report.failures.push(FailedSeed { seed: case.seed, problems: outcome.problems(), replay });
        report.minimised = Some(minimise(&case, canary)?);
    }
    Ok(report)
}

fn add(report: &mut SoakReport, outcome: &SoakOutcome) {
    report.operations += outcome.verdict.operations;
    report.results_checked += outcome.verdict.checked;
    report.results_failed += outcome.verdict.failed;
    report.faulty_packets += outcome.faulty_packets;
    report.failed_trees += u64::from(outcome.failed_trees);
    report.failed_seeds += u64::from(!outcome.is_clean());
}

fn replay_command(seed: u64, canary: Option<Canary>) -> String {
    let canary = canary.map_or_else(String::new, |canary| format!(" --canary {}", canary.name));
    format!("pleach soak --seed {seed}{canary}")
}

/// Makes a failing case smaller for as long as it fails in the same way.
///
/// # Errors
/// If the case is not valid.
pub fn minimise(case: &SoakCase, canary: Option<Canary>) -> Result<MinimisedCase> {
    let kind = case.run(canary)?.kind();
    // A case that lost what its faults name is not valid, and does not count as failing.
    let shrunk = shrink::shrink(case, |case| case.run(canary).is_ok_and(|outcome| outcome.kind() == kind));
    let problems = shrunk.case.run(canary)?.problems();
    Ok(MinimisedCase { problems, trials: shrunk.trials, case: shrunk.case.to_text() })
}
