//! `pleach tune --network`: measures, as a job of its own, what the network between its hosts costs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use pleach::{Communicator, NetworkCosts};
use serde::Serialize;

use lab::CommandOutcome;
use lab::report::{ReportFormat, format_table, write_report};

use super::TuneArgs;

#[derive(Serialize)]
struct NetworkReport {
    /// Version of the field names.
    version: u32,
    /// `measured now`, `kept` or `default`.
    source: &'static str,
    file: Option<PathBuf>,
    costs: Option<NetworkCosts>,
}

pub(super) fn run(arguments: &TuneArgs) -> Result<CommandOutcome> {
    let file = NetworkCosts::default_file();
    if arguments.show {
        let costs = NetworkCosts::for_jobs(std::env::var("PLEACH_NETWORK_COSTS").ok().as_deref())?;
        let source = if costs.is_some() { "kept" } else { "default" };
        return show(arguments, source, file.filter(|_| costs.is_some()), costs);
    }
    let world = pleach::join()?;
    let measured = measure(&world);
    if world.rank() > 0 {
        // Rank 0's file counts for all, and all have the same result.
        return Ok(measured.map_or(CommandOutcome::Failed, |_| CommandOutcome::Passed));
    }
    let costs = measured?;
    let file = file.context("neither PLEACH_CACHE nor XDG_CACHE_HOME nor HOME is set: the costs were not saved")?;
    costs.save(&file).with_context(|| format!("cannot write {}", file.display()))?;
    show(arguments, "measured now", Some(file), Some(costs))
}

fn measure(world: &Communicator) -> Result<NetworkCosts> {
    ensure!(
        world.hosts() > 1,
        "this measures the network between hosts, and all ranks are on one host: start it on several, such as \
         `pleach launch --hosts a,b -- pleach tune --network`"
    );
    world.measure_network().context("nothing was measured or saved")
}

fn show(
    arguments: &TuneArgs,
    source: &'static str,
    file: Option<PathBuf>,
    costs: Option<NetworkCosts>,
) -> Result<CommandOutcome> {
    let report = NetworkReport { version: 1, source, file, costs };
    let text = match arguments.format {
        ReportFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        _ => table(report.costs.as_ref(), report.file.as_deref()),
    };
    write_report(&text, arguments.output.as_deref())?;
    Ok(CommandOutcome::Passed)
}

fn table(costs: Option<&NetworkCosts>, file: Option<&Path>) -> String {
    let Some(costs) = costs else {
        return "Nothing was measured: jobs use the usual costs of UDP over Ethernet.\n\
                `pleach launch --hosts a,b -- pleach tune --network` measures.\n"
            .to_owned();
    };
    let micros = |ns: u64| format!("{:.2} us", ns as f64 / 1000.0);
    let rate = |ps: u64| format!("{:.2} GB/s", 1000.0 / ps.max(1) as f64);
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    let mut text = format!("The network between {} hosts\n\n", costs.hosts);
    text += &format_table(&[
        row("allreduce, 8 B, recursive doubling", micros(costs.short_ns)),
        row("allreduce, 1 MiB, ring", micros(costs.long_ns)),
        row("one message", micros(costs.message_ns)),
        row("each further message of a round", micros(costs.next_message_ns)),
        row("bytes on the wire", rate(costs.byte_ps)),
        row("folding", rate(costs.fold_byte_ps)),
    ]);
    if let Some(file) = file {
        text +=
            &format!("\nIn {}; jobs whose rank 0 is on this host choose their algorithms by it.\n", file.display());
    }
    text
}
