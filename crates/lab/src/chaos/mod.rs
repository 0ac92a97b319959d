//! `pleach chaos`: real processes on hosts made of network namespaces, while processes and links fail; every result and every error is
//! judged.
//!
//! A round is a cluster (a manager, aggregation nodes, the ranks of one job on several hosts), a workload of random collectives, and what is
//! done to them. A case and a seed determine all of it; only the timing of the machine differs between two runs.
//!
//! Reading order: `plan` is a round as data, `case` has all named cases, `draw` draws the cluster, `workload` is what ranks compute, `rank` is
//! a rank's process, `cluster` starts and harms processes, `round` runs one, `judge` judges it.

mod case;
mod cluster;
mod draw;
mod judge;
mod plan;
pub mod rank;
mod rank_report;
mod report;
mod round;
mod workload;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::CommandOutcome;
use crate::local_fabric::signals::{SignalQueue, TERMINATION};
use crate::report::write_report;
use crate::report::{format_table, with_header};
use case::{CASES, ChaosCase};
pub use report::{CaseSummary, ChaosReport, FailedRound};
use report::{progress_line, replay_command};

/// Runs collectives on real processes while processes and links fail, and judges every result and every error.
#[derive(Args)]
#[command(after_help = "\
A round starts a manager, aggregation nodes and the ranks of a job as processes on hosts made of network namespaces. The ranks run random
collectives (0 bytes to 1 MiB) while processes are killed or stopped and links are cut, flap, lose, corrupt, duplicate or reorder packets.
A judge that shares no code with the library checks that every result has the right bits; that all ranks that are left get the same error,
and only if ranks are lost; that the smaller side of a partition is told; and that every call returns in time. Needs root, iproute2 and nftables.

Examples:
  sudo pleach chaos --minutes 10                       all cases in turn, with new seeds
  sudo pleach chaos --case mtu-lowered --minutes 2     one case only
  sudo pleach chaos --case two-ranks-killed --seed 7   replay one round
  pleach chaos --list                                  the cases
  sudo pleach chaos --minutes 60 --format json --output chaos.json

Exit status: 0 if no round fails, 1 if one does, 2 if an argument is wrong or hosts cannot be created.")]
pub struct ChaosArgs {
    /// How long; the last round may take longer [default: 10, or one round if there is a seed]
    #[arg(long, value_name = "MINUTES", value_parser = parse_minutes)]
    minutes: Option<f64>,
    /// Seed of the first round; the following rounds have the following seeds [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Run this case only.
    #[arg(long, value_name = "NAME", value_parser = find_case)]
    case: Option<&'static str>,
    /// List the cases and exit.
    #[arg(long)]
    list: bool,
    /// Format of the report.
    #[arg(long, value_enum, default_value_t = ChaosFormat::Table)]
    format: ChaosFormat,
    /// File to write the report to [default: the standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<std::path::PathBuf>,
}

/// The format of the report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ChaosFormat {
    /// Text for the terminal.
    Table,
    /// One JSON object with stable field names.
    Json,
}

const DEFAULT_MINUTES: f64 = 10.0;
const MAX_MINUTES: f64 = 60.0 * 24.0 * 365.0;

fn parse_minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if minutes > 0.0 && minutes <= MAX_MINUTES {
        Ok(minutes)
    } else {
        Err("not a positive number of minutes".to_owned())
    }
}

fn find_case(name: &str) -> Result<&'static str, String> {
    let names = || CASES.iter().map(|case| case.name).collect::<Vec<_>>().join(", ");
    ChaosCase::find(name).map(|case| case.name).ok_or_else(|| format!("no such case; the cases are {}", names()))
}

/// Runs rounds until the time is over.
///
/// # Errors
/// Hosts cannot be created, a process does not start, or the user interrupts.
pub fn run(arguments: &ChaosArgs) -> Result<CommandOutcome> {
    if arguments.list {
        let rows = CASES.iter().map(|case| [case.name.to_owned(), case.about.to_owned()]);
        write_report(&format_table(&with_header(["case", "what happens"], rows)), None)?;
        return Ok(CommandOutcome::Passed);
    }
    // Before any thread: they inherit the mask.
    let signals = SignalQueue::take_over(TERMINATION).context("cannot handle signals")?;
    let report = run_rounds(arguments, &signals)?;
    let text = match arguments.format {
        ChaosFormat::Table => report.table(),
        ChaosFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    write_report(&text, arguments.output.as_deref())?;
    Ok(if report.failed_rounds == 0 { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

fn run_rounds(arguments: &ChaosArgs, signals: &SignalQueue) -> Result<ChaosReport> {
    let limit = match (arguments.minutes, arguments.seed) {
        (Some(minutes), _) => Duration::from_secs_f64(minutes * 60.0),
        // One round.
        (None, Some(_)) => Duration::ZERO,
        (None, None) => Duration::from_secs_f64(DEFAULT_MINUTES * 60.0),
    };
    let cases: Vec<&ChaosCase> =
        CASES.iter().filter(|case| arguments.case.is_none_or(|name| name == case.name)).collect();
    let first_seed = arguments.seed.unwrap_or_else(seed_from_clock);
    let (began, mut report) = (Instant::now(), ChaosReport::default());
    for number in 0.. {
        let case = cases[number as usize % cases.len()];
        let plan = case.plan(first_seed.wrapping_add(number));
        let round_began = Instant::now();
        let verdict = round::run(&plan, signals).with_context(|| replay_command(&plan))?;
        let took = round_began.elapsed();
        note(&progress_line(&plan, &verdict, took));
        for violation in &verdict.violations {
            note(&format!("  {violation}"));
        }
        if !verdict.violations.is_empty() {
            note(&format!("  {plan}\n  again: {}", replay_command(&plan)));
        }
        report.add(&plan, verdict, took);
        if began.elapsed() >= limit {
            break;
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// Differs from run to run; small enough to type.
fn seed_from_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() % 100_000_000)
}

/// A line on the standard error, which may be closed.
fn note(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
