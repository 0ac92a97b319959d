//! `pleach simulate`: a scenario file in, a report out.

use std::fs;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use simulator::scenario::{FIELDS, Scenario};

use lab::CommandOutcome;
use lab::oracle_checker::OracleChecker;
use lab::report::{self, ReportFormat, SimulationReport};

/// Arguments of `pleach simulate`.
#[derive(clap::Args)]
pub(crate) struct SimulateArgs {
    /// The scenario, a TOML file; see scenarios/ for a dozen.
    #[arg(required_unless_present = "fields")]
    scenario: Option<PathBuf>,
    /// Instead of the scenario's seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Instead of the scenario's number of operations.
    #[arg(long)]
    operations: Option<u32>,
    /// How to report.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Where to write the report; the standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Lists every field of a scenario file, with its values and default.
    #[arg(long, exclusive = true)]
    fields: bool,
}

pub(crate) fn run(arguments: &SimulateArgs) -> Result<CommandOutcome> {
    if arguments.fields {
        print!("{}", fields());
        return Ok(CommandOutcome::Right);
    }
    let path = arguments.scenario.as_ref().context("no scenario given")?;
    let file = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
    let mut scenario = Scenario::parse(&text, &file)?;
    scenario.seed = arguments.seed.unwrap_or(scenario.seed);
    if let Some(operations) = arguments.operations {
        if !scenario.bears(operations) {
            bail!("--operations {operations}: from 1 to 1000000, and times the members at most 2^33");
        }
        scenario.operations = operations;
    }
    let report = simulate(&scenario, &file)?;
    let text = match arguments.format {
        ReportFormat::Table => report::table(&report),
        ReportFormat::Json => report::json(&report),
        ReportFormat::Html => report::html(&report),
    };
    report::write_report(&text, arguments.output.as_deref())?;
    Ok(if report.oracle.objects() { CommandOutcome::Wrong } else { CommandOutcome::Right })
}

/// Runs a scenario and gathers what there is to say.
fn simulate(scenario: &Scenario, file: &str) -> Result<SimulationReport> {
    let bar = progress(scenario);
    let started = Instant::now();
    let mut collective = scenario.collective(scenario.seed)?;
    let (parameters, plan) = (&scenario.collective, &scenario.plan);
    let mut judge =
        OracleChecker::new(scenario.seed, scenario.operations, &collective, parameters, plan, scenario.check);
    let timings = collective.run(scenario.operations, &mut judge, |done| bar.set_position(u64::from(done)));
    let elapsed = started.elapsed();
    bar.finish_and_clear();
    Ok(SimulationReport::new(scenario, file, &collective, &timings, judge.judge(), elapsed))
}

/// A bar on the standard error, if somebody looks at it; it shows only when the work lasts.
fn progress(scenario: &Scenario) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(u64::from(scenario.operations)), target);
    let style = "{msg}  {bar:40} {pos}/{len} operations, {eta} to go";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is right"));
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
                "" => "At the head of the file".to_owned(),
                "fault" => "\n[[fault]], as often as wanted".to_owned(),
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
