//! `pleach simulate`: a scenario file in, a report out.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use simulator::scenario::{FIELDS, Scenario};

use lab::CommandOutcome;
use lab::oracle_checker::OracleChecker;
use lab::progress::progress_bar;
use lab::report::ReportArgs;
use lab::simulation_report::{self, SimulationReport};
use lab::text_file::read_text;

use crate::configuration::MAX_TEXT_BYTES;

/// Arguments of `pleach simulate`.
#[derive(clap::Args)]
pub(crate) struct SimulateArgs {
    /// Scenario file (TOML); scenarios/ has examples.
    #[arg(required_unless_present = "fields")]
    scenario: Option<PathBuf>,
    /// Overrides the seed of the scenario.
    #[arg(long)]
    seed: Option<u64>,
    /// Overrides the number of operations of the scenario.
    #[arg(long)]
    operations: Option<u32>,
    #[command(flatten)]
    report: ReportArgs,
    /// Lists every field of a scenario file, with its values and default.
    #[arg(long, exclusive = true)]
    fields: bool,
}

pub(crate) fn run(arguments: &SimulateArgs) -> Result<CommandOutcome> {
    if arguments.fields {
        print!("{}", fields());
        return Ok(CommandOutcome::Passed);
    }
    let path = arguments.scenario.as_ref().context("no scenario given")?;
    let file = path.display().to_string();
    let text = read_text(path, MAX_TEXT_BYTES)?;
    let mut scenario = Scenario::parse(&text, &file)?;
    scenario.seed = arguments.seed.unwrap_or(scenario.seed);
    if let Some(operations) = arguments.operations {
        if !scenario.can_run(operations) {
            bail!(
                "--operations {operations}: must be from 1 to 1000000, and at most 2^33 when multiplied by the members"
            );
        }
        scenario.operations = operations;
    }
    let report = simulate(&scenario, &file)?;
    arguments.report.write(&report, simulation_report::table, simulation_report::html)?;
    Ok(if report.has_violations() { CommandOutcome::Failed } else { CommandOutcome::Passed })
}

/// Runs a scenario and builds its report.
fn simulate(scenario: &Scenario, file: &str) -> Result<SimulationReport> {
    let bar = operations_bar(scenario);
    let started = Instant::now();
    let mut collective = scenario.collective(scenario.seed)?;
    let (parameters, plan) = (&scenario.collective, &scenario.plan);
    let mut checker =
        OracleChecker::new(scenario.seed, scenario.operations, &collective, parameters, plan, scenario.check);
    let timings = collective.run(scenario.operations, &mut checker, |done| bar.set_position(u64::from(done)));
    let elapsed = started.elapsed();
    bar.finish_and_clear();
    Ok(SimulationReport::new(scenario, file, &collective, &timings, checker.judge(), elapsed))
}

fn operations_bar(scenario: &Scenario) -> ProgressBar {
    let bar = progress_bar(u64::from(scenario.operations), "{msg}  {bar:40} {pos}/{len} operations, {eta} to go");
    bar.set_message(scenario.name.clone());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Every field of a scenario file.
fn fields() -> String {
    let mut text = String::new();
    let mut table = None;
    for field in FIELDS {
        if table != Some(field.table) {
            table = Some(field.table);
            let title = match field.table {
                "" => "At the top of the file".to_owned(),
                "fault" => "\n[[fault]], any number of times".to_owned(),
                name => format!("\n[{name}]"),
            };
            text.push_str(&format!("{title}\n"));
        }
        let default =
            if field.default.is_empty() { String::new() } else { format!(" (if absent: {})", field.default) };
        text.push_str(&format!("  {:<24}{}\n  {:<24}{}{default}\n", field.name, field.about, "", field.values));
    }
    text
}
