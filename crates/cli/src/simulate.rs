//! `pleach simulate`: scenario files in, a report out; several combinations or files in, a comparison out.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use simulator::scenario::{FIELDS, RunProgress, Scenario, ScenarioVariant, SweptField};

use lab::CommandOutcome;
use lab::parallel::map_parallel;
use lab::progress::{StepProgress, StepShare};
use lab::report::ReportArgs;
use lab::simulated_run::SimulatedRun;
use lab::simulation_report::{self, RunCost, SimulationComparison, SimulationReport};
use lab::text_file::read_text;

use crate::configuration::MAX_TEXT_BYTES;

/// Arguments of `pleach simulate`.
#[derive(clap::Args)]
pub(crate) struct SimulateArgs {
    /// Scenario files (TOML); scenarios/ has examples.
    #[arg(required_unless_present = "fields")]
    scenarios: Vec<PathBuf>,
    /// Overrides the seed of the scenario.
    #[arg(long)]
    seed: Option<u64>,
    /// Overrides the number of operations of the scenario.
    #[arg(long)]
    operations: Option<u32>,
    /// Sets a field, or runs all combinations of several values: link.rate=EDR,HDR fabric.children=\[8,8\],\[16,16\]
    #[arg(
        long = "set",
        help = "Sets a field, or runs all combinations of several values: link.rate=EDR,HDR fabric.children=[8,8],[16,16]",
        value_name = "FIELD=VALUE[,VALUE...]",
        value_parser = SweptField::parse
    )]
    set: Vec<SweptField>,
    /// Compares several scenario files in one table.
    #[arg(long)]
    compare: bool,
    /// Also writes a comparison as CSV to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
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
    ensure!(arguments.scenarios.len() == 1 || arguments.compare, "several scenarios need --compare");
    let mut jobs = Vec::new();
    for path in &arguments.scenarios {
        jobs.extend(variants(arguments, path)?);
    }
    match &jobs[..] {
        [job] if !arguments.compare && arguments.csv.is_none() => report_one(arguments, job),
        _ => compare(arguments, &jobs),
    }
}

/// A scenario to run.
struct SimulationJob {
    file: String,
    /// What the file and `--set` change from the defaults.
    changed: Vec<(String, String)>,
    variant: ScenarioVariant,
}

/// The combinations of a file.
fn variants(arguments: &SimulateArgs, path: &Path) -> Result<Vec<SimulationJob>> {
    let file = path.display().to_string();
    let text = read_text(path, MAX_TEXT_BYTES)?;
    let mut jobs = Vec::new();
    for mut variant in Scenario::parse_variants(&text, &file, &arguments.set)? {
        let scenario = &mut variant.scenario;
        scenario.seed = arguments.seed.unwrap_or(scenario.seed);
        if let Some(operations) = arguments.operations
            && !scenario.set_operations(operations)
        {
            bail!(
                "--operations {operations}: must be from 1 to 1000000 (100000 of a job), and at most 2^33 when multiplied by the members"
            );
        }
        let changed = simulation_report::changed_fields(&text, &variant.settings);
        jobs.push(SimulationJob { file: file.clone(), changed, variant });
    }
    Ok(jobs)
}

/// Runs one scenario and writes its report.
fn report_one(arguments: &SimulateArgs, job: &SimulationJob) -> Result<CommandOutcome> {
    let scenario = &job.variant.scenario;
    let progress = StepProgress::new(&scenario.name, scenario.total_operations(), "operations");
    let report = simulate(scenario, &job.file, &progress)?.with_changes(job.changed.clone());
    progress.finish();
    arguments.report.write(&report, simulation_report::table, simulation_report::html)?;
    Ok(outcome(report.has_violations() || report.has_failures()))
}

/// Runs all jobs on all cores and writes their comparison.
fn compare(arguments: &SimulateArgs, jobs: &[SimulationJob]) -> Result<CommandOutcome> {
    let operations = jobs.iter().map(|job| job.variant.scenario.total_operations()).sum();
    let progress = StepProgress::new(&format!("{} runs", jobs.len()), operations, "operations");
    let reports = map_parallel(jobs, |job| {
        let report = simulate(&job.variant.scenario, &job.file, &progress);
        let report = report.map(|report| report.with_changes(job.changed.clone()));
        report.with_context(|| format!("{} {}", job.file, settings_text(&job.variant.settings)))
    })?;
    progress.finish();
    let settings = jobs.iter().map(|job| job.variant.settings.clone());
    let comparison = SimulationComparison::new(settings.zip(reports).collect());
    if let Some(path) = &arguments.csv {
        let text = comparison.csv();
        std::fs::write(path, text).map_err(|error| anyhow!("cannot write {}: {error}", path.display()))?;
    }
    arguments.report.write(&comparison, simulation_report::comparison_table, simulation_report::comparison_html)?;
    Ok(outcome(comparison.has_failures()))
}

fn outcome(has_failed: bool) -> CommandOutcome {
    if has_failed { CommandOutcome::Failed } else { CommandOutcome::Passed }
}

fn settings_text(settings: &[(String, String)]) -> String {
    settings.iter().map(|(field, value)| format!("{field}={value}")).collect::<Vec<_>>().join(" ")
}

/// Runs a scenario and builds its report.
fn simulate(scenario: &Scenario, file: &str, progress: &StepProgress) -> Result<SimulationReport> {
    let started = Instant::now();
    let mut run = SimulatedRun::set_up(scenario)?;
    let set_up = started.elapsed();
    let mut checker = run.checker(scenario);
    let started = Instant::now();
    // Flows alone are one operation, done in parts.
    let mut share = StepShare::new(progress);
    let timings = run.run(scenario, &mut checker, |reached| match reached {
        RunProgress::Share(reached) => share.reach(reached),
        RunProgress::Operations(_) if scenario.runs_flows_alone() => share.reach(1.0),
        RunProgress::Operations(_) => progress.advance(1),
    });
    let cost = RunCost { set_up, run: started.elapsed() };
    Ok(SimulationReport::new(scenario, file, &run, &timings, checker.judge(), cost))
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
                "job" => "\n[[job]], any number of times".to_owned(),
                "traffic" => "\n[[traffic]], any number of times".to_owned(),
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
