//! The path-migration paper: Figures 5 to 12 (claims PM-5 to PM-7), over queue pairs on the loopback interface and in the
//! simulator.
//!
//! In: the published numbers, the parameters, and this machine. Out: each number compared with a model of the paper's adapter, which
//! decides the exit status. Beside it, never gated: the same number for the product's own queue pairs in the simulator, and on this
//! machine. Of these, what must be right is gated: every byte. The paper gives absolute times only in its plots, so shapes and ratios
//! are compared.

mod adapter_model;
mod cable_cuts;
mod output;
mod progress;
mod run_length;
mod simulated;
mod simulated_output;
mod slowdown_chart;
mod statistics;
mod transitions;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use super::comparison::{Comparison, Gate, Remark, all_hold};
use super::parameter_file::read_parameters;
use super::published::{NumberGating, PublishedNumber};
use super::published_paper::PublishedPaper;
use super::robustness::{ExperimentTrial, Robustness, RobustnessArgs};
use super::summary::Summary;
use crate::CommandOutcome;
use crate::nas_kernels::NasKernel;
use crate::report::ReportArgs;
use adapter_model::AdapterFigures;
use cable_cuts::{KernelCutResults, RunVariant};
use progress::MeasurementProgress;
use simulated::{MigrationParameters, SimulatedFigures};
use transitions::TransitionMeasurements;

const PUBLISHED: &str = include_str!("../../experiments/path-migration/published.csv");
const CALIBRATION: &str = include_str!("../../experiments/path-migration/calibration.toml");

/// Compares Figures 5 to 12 with our measurements and simulation.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach reproduce path-migration --simulated --quick   only the simulation, four cuts, one seed; the same result every time
  pleach reproduce path-migration --simulated           the simulation with sixteen cuts, and 20 seeds
  pleach reproduce path-migration --simulated --quick --sensitivity    which verdicts depend on which assumption
  pleach reproduce path-migration --quick               about a minute, and noisy
  pleach reproduce path-migration                       as in the paper, sixteen cuts; about 18 minutes
  pleach reproduce path-migration --format html --output path-migration.html

Run nothing else on the machine meanwhile.

Exit status: 0 if every result is correct and the gated numbers of the simulation hold, 1 if not.")]
pub(crate) struct ReproducePathMigrationArgs {
    /// Runs of 2 seconds with four cuts, fewer connections and trials, and one seed.
    #[arg(long)]
    quick: bool,
    /// Seconds of a run without faults [default: 10, or 2 with --quick]
    #[arg(long)]
    seconds: Option<f64>,
    /// Number of cable cuts of the product, one in each run, spread evenly over the run; every other cut is silent, the others are noticed by
    /// one end [default: 16, or 4 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    cuts: Option<u32>,
    /// Simulate only: both kinds of cut at --cuts moments each.
    #[arg(long, conflicts_with = "seconds")]
    simulated: bool,
    /// Seed of the simulated computing times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Parameter file to use instead of experiments/path-migration/parameters.toml.
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
    #[command(flatten)]
    robustness: RobustnessArgs,
    #[command(flatten)]
    report: ReportArgs,
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
struct MeasurementEffort {
    length: Duration,
    cuts: u32,
    quick: bool,
}

impl ReproducePathMigrationArgs {
    fn effort(&self) -> Result<MeasurementEffort> {
        let (seconds, cuts) = if self.quick { (2.0, 4) } else { (10.0, 16) };
        let seconds = self.seconds.unwrap_or(seconds);
        ensure!((0.1..=3600.0).contains(&seconds), "--seconds {seconds}: must be from 0.1 to 3600");
        Ok(MeasurementEffort {
            length: Duration::from_secs_f64(seconds),
            cuts: self.cuts.unwrap_or(cuts),
            quick: self.quick || seconds < 1.0,
        })
    }
}

/// All results of the command.
#[derive(Serialize)]
struct PathMigrationFindings {
    seed: u64,
    summary: Summary,
    /// Published, and by the model of the paper's adapter.
    comparisons: Vec<Comparison>,
    adapter: AdapterFigures,
    /// The product's own queue pairs in the simulator. No number of theirs is gated.
    product: Vec<Comparison>,
    simulated: SimulatedFigures,
    gates: Vec<Gate>,
    /// This machine, if it was measured.
    #[serde(flatten)]
    measured: Option<MeasuredFindings>,
    holds: bool,
}

/// The results on this machine.
#[derive(Serialize)]
struct MeasuredFindings {
    seconds: f64,
    cuts: u32,
    cores: usize,
    transitions: TransitionMeasurements,
    kernels: Vec<KernelCutResults>,
    /// The numbers that are measured. None is gated.
    measured: Vec<Comparison>,
    /// Numbers without a measurement: a single cut is of one kind only, and on a busy machine a run may end before its cut.
    missing: Vec<String>,
    /// Targets are reported, not gated: a busy machine would miss them.
    targets: Vec<Gate>,
}

fn read_paper() -> Result<PublishedPaper> {
    PublishedPaper::read("path-migration", PUBLISHED, CALIBRATION)
}

fn compare(paper: &PublishedPaper, adapter: &AdapterFigures) -> Result<ExperimentTrial> {
    let mut rows = Vec::new();
    for number in &paper.published {
        let (ours, of) =
            adapter.value(&number.id).with_context(|| format!("unknown id in published.csv: {}", number.id))?;
        let remark = adapter_model::remark(&number.id);
        rows.push(Comparison::new(number, ours, &paper.calibration, &of, remark));
    }
    Ok(ExperimentTrial { rows, gates: adapter.gates() })
}

/// The product's own queue pairs in the simulator, where they have such a number.
fn compare_product(paper: &PublishedPaper, simulated: &SimulatedFigures) -> Vec<Comparison> {
    let row = |number: &PublishedNumber| {
        let (ours, of) = simulated.value(&number.id)?;
        let number = PublishedNumber { gating: NumberGating::Reported, ..number.clone() };
        let remark = remark_on_simulated(&number.id, ours, number.value.reference());
        Some(Comparison::new(&number, ours, &paper.calibration, &of, remark))
    };
    paper.published.iter().filter_map(row).collect()
}

pub(crate) fn run(arguments: &ReproducePathMigrationArgs) -> Result<CommandOutcome> {
    let effort = arguments.effort()?;
    let paper = read_paper()?;
    let shipped = ("experiments/path-migration/parameters.toml", simulated::TEXT);
    let (text, parameters) = read_parameters(arguments.parameters.as_deref(), shipped, MigrationParameters::parse)?;
    let measured_ms =
        if arguments.simulated { 0 } else { transitions::EXPECTED_MS + cable_cuts::expected_ms(effort) };
    let progress = MeasurementProgress::new(simulated::EXPECTED_MS + measured_ms);
    let simulated = simulated::simulate(parameters, effort.cuts, arguments.seed, &progress)?;
    let robustness = other_trials(arguments, &text, &paper)?;
    let measured = if arguments.simulated { None } else { Some(measure(effort, &paper, &progress)?) };
    progress.end();
    let adapter = adapter_model::simulate(&parameters, adapter_model::CABLE_PULLS, arguments.seed)?;
    let ExperimentTrial { rows: comparisons, mut gates } = compare(&paper, &adapter)?;
    gates.extend(simulated_gates(&simulated));
    gates.extend(measured.as_ref().map(|measured| correctness_gate(&measured.kernels)));
    let findings = PathMigrationFindings {
        seed: arguments.seed,
        holds: all_hold(&comparisons, &gates) && robustness.holds(),
        summary: Summary::new(&comparisons, &paper.calibration, robustness),
        product: compare_product(&paper, &simulated),
        simulated,
        comparisons,
        adapter,
        gates,
        measured,
    };
    arguments.report.write(&findings, output::table, output::html)?;
    Ok(if findings.holds { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

/// The model of the paper's adapter with other seeds and other parameters.
fn other_trials(arguments: &ReproducePathMigrationArgs, text: &str, paper: &PublishedPaper) -> Result<Robustness> {
    let is_quick = arguments.quick || arguments.seconds.is_some_and(|seconds| seconds < 1.0);
    let trial = |text: &str, seed: u64| {
        let parameters = MigrationParameters::parse(text)?;
        compare(paper, &adapter_model::simulate(&parameters, adapter_model::CABLE_PULLS, seed)?)
    };
    arguments.robustness.measure(is_quick, text, &paper.calibration, arguments.seed, trial)
}

fn measure(
    effort: MeasurementEffort,
    paper: &PublishedPaper,
    progress: &MeasurementProgress,
) -> Result<MeasuredFindings> {
    let transitions = transitions::measure(effort.quick, progress)?;
    let kernels = cable_cuts::measure_all(effort, progress)?;
    let (mut measured, mut missing) = (Vec::new(), Vec::new());
    for mut number in paper.published.iter().filter(|row| !SIMULATED_ONLY.contains(&row.id.as_str())).cloned() {
        number.gating = NumberGating::Reported;
        // Numbers within the error of the measurement count as equal.
        if let Some(error) = error(&number.id, &kernels) {
            number.tolerance = number.tolerance.max(2.0 * error);
        }
        let Some((ours, of)) = ours(&number.id, &transitions, &kernels) else {
            missing.push(number.id);
            continue;
        };
        let remark = remark(&number.id, ours, number.value.reference());
        measured.push(Comparison::new(&number, ours, &paper.calibration, &of, remark));
    }
    Ok(MeasuredFindings {
        seconds: effort.length.as_secs_f64(),
        cuts: effort.cuts,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        targets: targets(&transitions, &kernels),
        transitions,
        kernels,
        measured,
        missing,
    })
}

/// Numbers that are not measured on this machine.
const SIMULATED_ONLY: [&str; 10] = [
    "arming-latency",
    "affected-iterations",
    "affected-cut",
    "is-a-over-b",
    "is-free-a-over-b",
    "is-fault-over-free",
    "ft-many",
    "lu-many",
    "ft-many-over-few",
    "lu-many-over-few",
];

/// Our number, and the configuration of its measurement.
fn ours(id: &str, transitions: &TransitionMeasurements, kernels: &[KernelCutResults]) -> Option<(f64, String)> {
    let of = |kernel: NasKernel| kernels.iter().find(|results| results.kernel == kernel);
    let lost = |kernel, candidate| {
        // Runs of a few iterations have no iterations around the cut to compare with.
        let lost = of(kernel)?.lost(candidate).or_else(|| of(kernel)?.slower(candidate))?;
        Some((lost.median, format!("{} runs, {:+.1} to {:+.1} %", lost.count, lost.low, lost.high)))
    };
    let cost_of_alternates = |kernel| {
        let cost = of(kernel)?.armed_over_plain;
        Some((cost.median, format!("{} pairs of short runs, \u{b1} {:.1}", cost.count, cost.error)))
    };
    match id {
        "lead-few" => Some((transitions.few.lead_percent, transitions.few.label())),
        "lead-many" => Some((transitions.many.lead_percent, transitions.many.label())),
        "migrating-connections" => Some(transitions.by_connections()),
        "migrating-size" => Some(transitions::by_size(&transitions.while_migrating)),
        "cut-size" => Some(transitions::by_size(&transitions.silent_cut)),
        "is-free" => cost_of_alternates(NasKernel::IntegerSort),
        "ft-free" => cost_of_alternates(NasKernel::Fourier),
        "lu-free" => cost_of_alternates(NasKernel::Wavefront),
        "ft-fault" => lost(NasKernel::Fourier, RunVariant::Silent),
        "lu-fault" => lost(NasKernel::Wavefront, RunVariant::Silent),
        _ => None,
    }
}

/// The standard error of our number, if known.
fn error(id: &str, kernels: &[KernelCutResults]) -> Option<f64> {
    let kernel = match id {
        "is-free" => NasKernel::IntegerSort,
        "ft-free" => NasKernel::Fourier,
        "lu-free" => NasKernel::Wavefront,
        _ => return None,
    };
    Some(kernels.iter().find(|results| results.kernel == kernel)?.armed_over_plain.error)
}

/// The explanation of a measured number that differs.
fn remark(id: &str, ours: f64, published: f64) -> Option<Remark> {
    Some(Remark::Why(match id {
        "lead-few" | "lead-many" => {
            "the paper measures adapter firmware, we measure packets; by their number arming should cost more (a probe and a \
             reply of each end against one packet), which was not measured separately"
        }
        "ft-fault" | "lu-fault" if ours < published => {
            "the loss is smaller, but the kernels are smaller than class B and the loss is measured within the run; the paper \
             does not give the time after which its adapters abandon a path"
        }
        _ => "not explained; the spread in the tables below shows how much of it may be noise",
    }))
}

/// The explanation of a simulated number that differs.
fn remark_on_simulated(id: &str, simulated: f64, published: f64) -> Option<Remark> {
    Some(Remark::Why(match id {
        "lead-few" | "lead-many" => {
            "the product has no firmware: packets cost their time on the wire and adapters a fixed delay, so arming, which \
             takes more packets, costs more"
        }
        "migrating-size" => {
            "the added time is a wait for some packets on the wire, a few hundredths of a microsecond for each connection, and \
             depends on other packets in flight: a ratio of such differences says little"
        }
        "affected-iterations" | "arming-latency" => {
            "the paper's adapters delay one message for each queue pair; ours send the packets of all transitions at once, and only \
             messages behind them in a queue wait"
        }
        "ft-many" | "lu-many" | "ft-fault" | "lu-fault" if simulated < published => {
            "a silent cut costs each queue pair two timeouts of 5 and 10 ms here; the paper does not give the time after which its \
             adapters abandon a path"
        }
        _ => "not explained",
    }))
}

/// Statements that must hold, whatever the exact numbers.
fn simulated_gates(simulated: &SimulatedFigures) -> Vec<Gate> {
    let fits = [simulated.arming_fit.r_squared, simulated.migrating_fit.r_squared];
    let silent = simulated.kernels.iter().filter_map(|kernel| Some((kernel.silent_ms?, kernel.noticed_ms?)));
    vec![
        Gate::new(
            "the product, simulated: both transitions grow linearly with the connections (R\u{b2} at least 0.99)",
            format!("{:.4} and {:.4}", fits[0], fits[1]),
            fits.iter().all(|fit| *fit >= 0.99),
        ),
        Gate::new(
            "the product, simulated: every message of every kernel arrives once, in order and unaltered, and a cut that is noticed costs less than a silent one",
            "",
            silent.clone().count() == simulated.kernels.len()
                && silent.clone().all(|(silent, noticed)| noticed.median < silent.median),
        ),
    ]
}

/// The one gate on measured runs.
fn correctness_gate(kernels: &[KernelCutResults]) -> Gate {
    let runs: usize = kernels.iter().map(|results| results.runs.len()).sum();
    Gate::new(
        "measured: every byte of every run equals that of the same kernel in memory, and every result is correct",
        format!("{runs} runs"),
        kernels.iter().all(|results| results.wrong == 0),
    )
}

fn targets(transitions: &TransitionMeasurements, kernels: &[KernelCutResults]) -> Vec<Gate> {
    let fits = [&transitions.arming_fit, &transitions.migrating_fit].map(|fit| fit.r_squared);
    let mut targets = vec![Gate::new(
        "both transitions grow linearly (R\u{b2} at least 0.95)",
        format!("{:.3} and {:.3}", fits[0], fits[1]),
        fits.iter().all(|fit| *fit >= 0.95),
    )];
    for results in kernels {
        let name = results.kernel.name();
        if results.kernel != NasKernel::IntegerSort {
            let worst = results.worst_median();
            let statement = format!("{name} with one cut in 10 s loses at most 2 %");
            targets.push(Gate::new(statement, format!("{worst:+.1} %"), worst <= 2.0));
        }
        let cost = results.armed_over_plain;
        targets.push(Gate::new(
            format!("{name} with armed alternates takes at most 1 % longer"),
            format!("{:+.1} \u{b1} {:.1} %", cost.median, cost.error),
            cost.median + 2.0 * cost.error <= 1.0,
        ));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::super::calibration::Calibration;
    use super::super::robustness::scale_parameter;
    use super::*;

    #[test]
    fn no_row_is_its_own_prediction() {
        let paper = read_paper().expect("the shipped files are valid");
        let run = |text: &str| {
            let parameters = MigrationParameters::parse(text).expect("in range");
            let adapter = adapter_model::simulate(&parameters, 1, 1).expect("it runs");
            compare(&paper, &adapter).expect("all numbers are known").rows
        };
        let names = paper.calibration.calibrated.iter();
        let changed: Vec<Vec<Comparison>> =
            names.map(|name| run(&scale_parameter(simulated::TEXT, name, 1.1).expect("a number"))).collect();
        assert_eq!(Calibration::own_predictions(&run(simulated::TEXT), &changed), []);
    }

    #[test]
    fn every_parameter_has_one_origin() {
        let calibration = read_paper().expect("the shipped files are valid").calibration;
        assert_eq!(calibration.origins_missing(simulated::TEXT), [""; 0]);
    }
}
