//! `pleach bench migration`: times of arming and migrating connections, and their cost for messages under way.

mod endpoint_pair;
mod measure;
mod output;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use transport::udp::LinkCut;

use measure::{AlternateCost, bandwidth_cost, latency_cost, memory_per_connection};
pub(crate) use measure::{Disturbance, DisturbedLatency, measure_disturbed_latency, measure_transitions};

use crate::CommandOutcome;
use crate::bench::TrialSummary;
use crate::progress::{MESSAGE_AND_ETA, progress_bar};
use crate::report::ReportArgs;

/// Path migration: arming, migrating and cutting 1 to 1,024 connections over loopback, and the cost of armed alternates.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench migration
  pleach bench migration --quick
  pleach bench migration --format html --output migration.html

Run nothing else on the machine meanwhile. It takes about half a minute.")]
pub(crate) struct BenchMigrationArgs {
    /// Fewer connections, sizes and trials: a few seconds.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    report: ReportArgs,
}

#[derive(Serialize)]
struct MigrationBenchReport {
    tries: usize,
    transitions: Vec<TransitionTimes>,
    /// All connections migrate by hand while messages are exchanged.
    while_migrating: Vec<DisturbedLatency>,
    /// The first path is cut, and the kernel reports it.
    noticed_cut: Vec<DisturbedLatency>,
    /// The first path is cut silently.
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
    arguments.report.write(&report, output::table, output::html)?;
    Ok(CommandOutcome::Passed)
}

fn measure_all(quick: bool) -> Result<MigrationBenchReport> {
    let counts: &[usize] = if quick { &[1, 16, 128] } else { &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] };
    let sizes: &[usize] = if quick { &[8, 4096] } else { &[8, 128, 1024, 8192, 65_536] };
    let (tries, disturbed) = if quick { (3, 64) } else { (7, 512) };
    let (iterations, streamed) = if quick { (500, 50) } else { (5_000, 400) };
    let steps = counts.len() + 4 * sizes.len() + 2;
    let bar = progress_bar(steps as u64, MESSAGE_AND_ETA);
    // Memory first: growth can be measured only while the allocator holds no freed memory.
    let bytes_per_idle_connection = memory_per_connection()?;
    bar.inc(1);
    let mut transitions = Vec::new();
    for connections in counts {
        bar.set_message(format!("{connections} connections"));
        let (arming_us, migrating_us) = measure_transitions(*connections, tries)?;
        transitions.push(TransitionTimes { connections: *connections, arming_us, migrating_us });
        bar.inc(1);
    }
    let by_size = |connections: usize, disturbance: Disturbance| -> Result<Vec<DisturbedLatency>> {
        sizes
            .iter()
            .map(|bytes| {
                bar.set_message(format!("{bytes} B over {connections} connections"));
                let latency = measure_disturbed_latency(connections, *bytes, disturbance, tries.min(3));
                bar.inc(1);
                latency
            })
            .collect()
    };
    let while_migrating = by_size(disturbed, Disturbance::Migration)?;
    let noticed_cut = by_size(disturbed, Disturbance::Cut(LinkCut::Noticed))?;
    let silent_cut = by_size(disturbed, Disturbance::Cut(LinkCut::Silent))?;
    bar.set_message("armed compared with plain");
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
        transitions,
        while_migrating,
        noticed_cut,
        silent_cut,
        latency_us,
        bandwidth_mb_per_s,
        bytes_per_idle_connection,
    })
}
