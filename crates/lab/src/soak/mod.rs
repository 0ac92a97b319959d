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
mod panic_note;
mod report;
mod run;
mod setup;
mod shrink;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

pub use canary::Canary;
pub use case::{SoakCase, SoakFabric, SoakGroup, SoakLink, SoakOperation};
pub use report::{FailedSeed, MinimisedCase, SoakReport};
pub use run::SoakOutcome;

use crate::CommandOutcome;
use crate::parallel::for_each_on_threads;
use crate::progress::StepProgress;
use crate::report::write_report;

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
    panic_note::install_hook();
    let report = match &arguments.case {
        Some(path) => replay_file(path, arguments.canary)?,
        None => {
            let (first, seeds) = arguments.seed.map_or((arguments.first, arguments.seeds), |seed| (seed, 1));
            ensure!(first + (seeds - 1) <= MAX_SEED, "--first and --seeds reach beyond the last seed, {MAX_SEED}");
            let progress = StepProgress::new("soak", seeds, "seeds");
            let report = soak(first, seeds, threads, arguments.canary, &progress)?;
            progress.finish();
            report
        }
    };
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
    let report = Mutex::new(SoakReport { first_seed: Some(first), seeds, threads, ..SoakReport::default() });
    for_each_on_threads(threads, first..first.saturating_add(seeds), |seed| {
        let outcome = SoakCase::draw(seed).run(canary).with_context(|| format!("seed {seed}"))?;
        let failure = (!outcome.is_clean()).then(|| FailedSeed {
            seed,
            problems: outcome.problems(),
            replay: replay_command(&format!("--seed {seed}"), canary),
        });
        if let Some(failure) = &failure {
            // At once: the rest of the soak may take hours.
            progress.note(&format!("seed {seed} failed: {}", failure.replay));
        }
        report.lock().expect("no thread panics while it holds the lock").add(seed, &outcome, failure);
        progress.advance(1);
        Ok(())
    })?;
    let mut report = report.into_inner().expect("all threads have ended");
    report.seconds = started.elapsed().as_secs_f64();
    report.seeds_per_minute = seeds as f64 * 60.0 / report.seconds.max(1e-9);
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
    let mut report = SoakReport { seeds: 1, threads: 1, seconds, ..SoakReport::default() };
    let failure = (!outcome.is_clean()).then(|| FailedSeed {
        seed: case.seed,
        problems: outcome.problems(),
        replay: replay_command(&format!("--case {}", path.display()), canary),
    });
    report.add(case.seed, &outcome, failure);
    if !outcome.is_clean() {
        report.minimised = Some(minimise(&case, canary)?);
    }
    Ok(report)
}

fn replay_command(what: &str, canary: Option<Canary>) -> String {
    let canary = canary.map_or_else(String::new, |canary| format!(" --canary {}", canary.name));
    format!("pleach soak {what}{canary}")
}

/// Makes a failing case smaller for as long as it fails in the same way.
///
/// # Errors
/// If the case is not valid.
pub fn minimise(case: &SoakCase, canary: Option<Canary>) -> Result<MinimisedCase> {
    let first = case.run(canary)?;
    let kind = first.kind();
    // A case that lost what its faults name is not valid, and does not count as failing.
    let shrunk = shrink::shrink(case, |case| case.run(canary).is_ok_and(|outcome| outcome.kind() == kind));
    let problems = shrunk.case.run(canary)?.problems();
    let may_be_smaller = shrunk.has_run_out_of_trials();
    Ok(MinimisedCase { problems, trials: shrunk.trials, may_be_smaller, case: shrunk.case.to_text() })
}
