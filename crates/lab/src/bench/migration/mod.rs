//! `pleach bench migration`: what it takes to arm and to move connections, and what it costs those who talk meanwhile.

mod endpoint_pair;
mod measure;
mod output;

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use transport::udp::LinkCut;

use measure::{AlternateCost, bandwidth_cost, latency_cost, memory_per_connection};
pub(crate) use measure::{
    Disturbance, DisturbedLatency, TrialSummary, measure_disturbed_latency, measure_transitions,
};

use crate::CommandOutcome;
use crate::report::ReportFormat;
use crate::report::write_report;

/// Arming, moving and cutting of 1 to 1,024 connections over loopback, and what armed alternates cost.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench migration
  pleach bench migration --quick
  pleach bench migration --format html --output migration.html

Hold still everything else on the machine while it runs; it takes about half a minute.")]
pub(crate) struct BenchMigrationArgs {
    /// Fewer connections, sizes and tries: a few seconds.
    #[arg(long)]
    quick: bool,
    /// How to report.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Where to write the report; the standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct MigrationBenchReport {
    tries: usize,
    transitions: Vec<TransitionTimes>,
    /// All connections migrate by hand while messages bounce.
    while_migrating: Vec<DisturbedLatency>,
    /// The first path is pulled, and the kernel says so.
    noticed_cut: Vec<DisturbedLatency>,
    /// The first path is pulled, and nobody says anything.
    silent_cut: Vec<DisturbedLatency>,
    latency_us: Vec<AlternateCost>,
    bandwidth_mb_per_s: Vec<AlternateCost>,
    bytes_per_idle_connection: f64,
}

#[derive(Serialize)]
struct TransitionTimes {
    connections: usize,
    /// From MIGRATED to ARMED at both ends, microseconds.
    arming_us: TrialSummary,
    /// From ARMED to MIGRATED at both ends, microseconds.
    migrating_us: TrialSummary,
}

pub(crate) fn run(arguments: &BenchMigrationArgs) -> Result<CommandOutcome> {
    let report = measure_all(arguments.quick)?;
    let text = match arguments.format {
        ReportFormat::Table => output::table(&report),
        ReportFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        ReportFormat::Html => output::html(&report),
    };
    write_report(&text, arguments.output.as_deref())?;
    Ok(CommandOutcome::Right)
}

fn measure_all(quick: bool) -> Result<MigrationBenchReport> {
    let counts: &[usize] = if quick { &[1, 16, 128] } else { &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] };
    let sizes: &[usize] = if quick { &[8, 4096] } else { &[8, 128, 1024, 8192, 65_536] };
    let (tries, pulled) = if quick { (3, 64) } else { (7, 512) };
    let (iterations, streamed) = if quick { (500, 50) } else { (5_000, 400) };
    let steps = counts.len() + 4 * sizes.len() + 2;
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(steps as u64), target)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {eta}")?);
    // Memory first: what connections add can be told only while nothing freed lies about.
    let bytes_per_idle_connection = memory_per_connection()?;
    bar.inc(1);
    let mut transitions_of = Vec::new();
    for connections in counts {
        bar.set_message(format!("{connections} connections"));
        let (arming_us, migrating_us) = measure_transitions(*connections, tries)?;
        transitions_of.push(TransitionTimes { connections: *connections, arming_us, migrating_us });
        bar.inc(1);
    }
    let bounce = |connections: usize, happening: Disturbance| -> Result<Vec<DisturbedLatency>> {
        sizes
            .iter()
            .map(|bytes| {
                bar.set_message(format!("{bytes} B over {connections} connections"));
                let done = measure_disturbed_latency(connections, *bytes, happening, tries.min(3));
                bar.inc(1);
                done
            })
            .collect()
    };
    let while_migrating = bounce(pulled, Disturbance::Migration)?;
    let noticed_cut = bounce(pulled, Disturbance::Cut(LinkCut::Noticed))?;
    let silent_cut = bounce(pulled, Disturbance::Cut(LinkCut::Silent))?;
    bar.set_message("armed against plain");
    let latency_us = sizes
        .iter()
        .map(|bytes| {
            bar.inc(1);
            latency_cost(*bytes, iterations, tries)
        })
        .collect::<Result<_>>()?;
    let bandwidth_mb_per_s = vec![bandwidth_cost(1 << 20, streamed, tries)?];
    bar.finish_and_clear();
    Ok(MigrationBenchReport {
        tries,
        transitions: transitions_of,
        while_migrating,
        noticed_cut,
        silent_cut,
        latency_us,
        bandwidth_mb_per_s,
        bytes_per_idle_connection,
    })
}
