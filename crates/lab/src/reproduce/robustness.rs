//! How far verdicts depend on what was assumed: other seeds, and every assumed parameter a fifth smaller or larger.
//!
//! In: an experiment as a function of its parameters and its seed. Out: how often each gated number and statement holds, and which
//! verdicts change with which parameter.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use super::calibration::Calibration;
use super::comparison::{Comparison, Gate};
use crate::report::{TableRows, with_header};

/// The change of an assumed parameter.
const CHANGE: f64 = 0.2;
/// Seeds of the full form.
const SEEDS: u32 = 20;

/// The arguments `--seeds` and `--sensitivity` of an experiment.
#[derive(Args)]
pub(crate) struct RobustnessArgs {
    /// Seeds for which the gated numbers must hold; all but the first with the extent of --quick [default: 20, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Also vary every assumed parameter by 20 % up and down, and report which verdicts change.
    #[arg(long)]
    sensitivity: bool,
}

/// One run of an experiment: its rows and its gates.
pub(crate) struct ExperimentTrial {
    pub rows: Vec<Comparison>,
    pub gates: Vec<Gate>,
}

/// What other seeds and other parameters change.
#[derive(Default, Serialize)]
pub(crate) struct Robustness {
    pub seeds: Vec<SeedSpread>,
    pub gates: Vec<GateSpread>,
    pub sensitivity: Vec<ParameterEffect>,
}

/// A gated number over all seeds.
#[derive(Serialize)]
pub(crate) struct SeedSpread {
    pub id: String,
    pub published: String,
    pub least: f64,
    pub median: f64,
    pub most: f64,
    pub matched: usize,
    pub seeds: usize,
}

/// A statement over all seeds.
#[derive(Serialize)]
pub(crate) struct GateSpread {
    pub statement: String,
    pub held: usize,
    pub seeds: usize,
}

/// The verdicts that change with a parameter.
#[derive(Serialize)]
pub(crate) struct ParameterEffect {
    pub parameter: String,
    /// In percent, or the other choice.
    pub change: String,
    /// Numbers that match now and did not, and the reverse. Gated ones have a star.
    pub gained: Vec<String>,
    pub lost: Vec<String>,
    /// Statements that are broken now.
    pub broken: Vec<String>,
}

impl RobustnessArgs {
    /// For an experiment without randomness.
    pub(crate) fn of_one_seed(sensitivity: bool) -> Self {
        Self { seeds: Some(1), sensitivity }
    }

    /// Repeats an experiment as requested. `trial` gets the text of the parameters and the seed.
    pub(crate) fn measure(
        &self,
        is_quick: bool,
        parameters: &str,
        calibration: &Calibration,
        first_seed: u64,
        trial: impl Fn(&str, u64) -> Result<ExperimentTrial>,
    ) -> Result<Robustness> {
        let seeds = self.seeds.unwrap_or(if is_quick { 1 } else { SEEDS });
        let mut robustness = Robustness::default();
        if seeds > 1 {
            let seeds = (0..u64::from(seeds)).map(|number| first_seed.wrapping_add(number));
            let trials: Vec<ExperimentTrial> = seeds.map(|seed| trial(parameters, seed)).collect::<Result<_>>()?;
            robustness.spread(&trials);
        }
        if self.sensitivity {
            let shipped = trial(parameters, first_seed)?;
            for (parameter, change, changed) in changed_parameters(parameters, calibration)? {
                let effect =
                    trial(&changed, first_seed).with_context(|| format!("with {parameter} changed: {change}"))?;
                robustness.sensitivity.push(ParameterEffect::of(parameter, change, &shipped, &effect));
            }
        }
        Ok(robustness)
    }
}

impl Robustness {
    fn spread(&mut self, trials: &[ExperimentTrial]) {
        let seeds = trials.len();
        for (place, row) in trials[0].rows.iter().enumerate().filter(|(_, row)| row.gated) {
            let mut values: Vec<f64> = trials.iter().map(|trial| trial.rows[place].ours_value).collect();
            values.sort_by(f64::total_cmp);
            self.seeds.push(SeedSpread {
                id: row.id.clone(),
                published: row.published.clone(),
                least: values[0],
                median: values[seeds / 2],
                most: values[seeds - 1],
                matched: trials.iter().filter(|trial| trial.rows[place].verdict.is_match()).count(),
                seeds,
            });
        }
        for (place, gate) in trials[0].gates.iter().enumerate() {
            let held = trials.iter().filter(|trial| trial.gates[place].holds).count();
            self.gates.push(GateSpread { statement: gate.statement.clone(), held, seeds });
        }
    }

    /// Whether every gated number and statement holds for every seed.
    pub(crate) fn holds(&self) -> bool {
        self.seeds.iter().all(|row| row.matched == row.seeds) && self.gates.iter().all(|gate| gate.held == gate.seeds)
    }

    /// Rows for the gated numbers and statements.
    pub(crate) fn seed_rows(&self) -> TableRows {
        let held = |held: usize, seeds: usize| format!("{held} of {seeds} seeds");
        let numbers = self.seeds.iter().map(|row| {
            let ours = [row.least, row.median, row.most].map(|value| format!("{value:.2}"));
            [row.id.clone(), row.published.clone(), ours.join(" / "), held(row.matched, row.seeds)]
        });
        let gates = self
            .gates
            .iter()
            .map(|gate| [gate.statement.clone(), String::new(), String::new(), held(gate.held, gate.seeds)]);
        with_header(["gated", "published", "least / median / most", "holds for"], numbers.chain(gates))
    }

    /// Rows for the parameters, with the verdicts that change.
    pub(crate) fn sensitivity_rows(&self) -> TableRows {
        let list = |names: &[String]| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
        let rows = self.sensitivity.iter().map(|effect| {
            [
                effect.parameter.clone(),
                effect.change.clone(),
                list(&effect.gained),
                list(&effect.lost),
                list(&effect.broken),
            ]
        });
        with_header(["assumed", "change", "now match", "no longer match", "statements broken"], rows)
    }
}

impl ParameterEffect {
    fn of(parameter: String, change: String, shipped: &ExperimentTrial, changed: &ExperimentTrial) -> Self {
        let flips = |to_match: bool| -> Vec<String> {
            let pairs = shipped.rows.iter().zip(&changed.rows);
            let flipped = pairs.filter(|(before, after)| {
                before.verdict.is_match() != after.verdict.is_match() && after.verdict.is_match() == to_match
            });
            flipped.map(|(row, _)| format!("{}{}", row.id, if row.gated { " *" } else { "" })).collect()
        };
        let broken = shipped.gates.iter().zip(&changed.gates).filter(|(before, after)| before.holds && !after.holds);
        Self {
            parameter,
            change,
            gained: flips(true),
            lost: flips(false),
            broken: broken.map(|(gate, _)| gate.statement.clone()).collect(),
        }
    }
}

/// Every assumed number a fifth smaller and larger, and every choice with its alternatives: the name, the change, and the text of
/// the parameters with it.
fn changed_parameters(parameters: &str, calibration: &Calibration) -> Result<Vec<(String, String, String)>> {
    let mut changed = Vec::new();
    for name in &calibration.assumed {
        for change in [-CHANGE, CHANGE] {
            let text = scale_parameter(parameters, name, 1.0 + change)?;
            changed.push((name.clone(), format!("{:+.0} %", 100.0 * change), text));
        }
    }
    for alternative in &calibration.alternatives {
        let text = change_parameter(parameters, &alternative.parameter, |_| Ok(alternative.value.clone()))?;
        changed.push((alternative.parameter.clone(), alternative.value.to_string(), text));
    }
    Ok(changed)
}

/// The text of a parameter file with one number multiplied. Whole numbers stay whole and change by at least one.
pub(crate) fn scale_parameter(text: &str, name: &str, factor: f64) -> Result<String> {
    change_parameter(text, name, |value| match value {
        toml::Value::Float(number) => Ok(toml::Value::Float(*number * factor)),
        toml::Value::Integer(number) => {
            let scaled = (*number as f64 * factor).round() as i64;
            let step = if factor < 1.0 { -1 } else { 1 };
            Ok(toml::Value::Integer(if scaled == *number { *number + step } else { scaled }))
        }
        other => bail!("{name} is {}, not a number", other.type_str()),
    })
}

/// The text of a parameter file with one value changed. A name is `table.key`, or `table.0.key` in a list of tables.
fn change_parameter(text: &str, name: &str, change: impl Fn(&toml::Value) -> Result<toml::Value>) -> Result<String> {
    let mut file = toml::Value::Table(text.parse::<toml::Table>()?);
    let mut value = &mut file;
    for key in name.split('.') {
        let inner = match key.parse::<usize>() {
            Ok(index) => value.get_mut(index),
            Err(_) => value.get_mut(key),
        };
        value = inner.with_context(|| format!("there is no parameter {name}"))?;
    }
    *value = change(value)?;
    Ok(toml::to_string(&file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: &str = "[unit]\nfold-ns = 200.0\nwindow = 2\nkind = \"x\"\n[[fault]]\nexposure-ns = 10.0\n";

    fn calibration(text: &str) -> Calibration {
        Calibration::parse(&format!("{text}\n[claims-without-row]\n"), &[]).expect("valid")
    }

    #[test]
    fn one_number_is_scaled() {
        let of = |name: &str, factor: f64| -> toml::Table {
            scale_parameter(PARAMETERS, name, factor).expect("a number").parse().expect("valid TOML")
        };
        assert_eq!(of("unit.fold-ns", 1.2)["unit"]["fold-ns"].as_float(), Some(240.0));
        assert_eq!(of("unit.window", 1.2)["unit"]["window"].as_integer(), Some(3));
        assert_eq!(of("unit.window", 0.8)["unit"]["window"].as_integer(), Some(1));
        assert_eq!(of("fault.0.exposure-ns", 0.8)["fault"][0]["exposure-ns"].as_float(), Some(8.0));
        let error = |name: &str| scale_parameter(PARAMETERS, name, 1.2).unwrap_err().to_string();
        assert_eq!(error("unit.gone"), "there is no parameter unit.gone");
        assert_eq!(error("unit.kind"), "unit.kind is string, not a number");
    }

    #[test]
    fn a_gate_that_one_seed_breaks_does_not_hold() {
        let trial =
            |holds: bool| ExperimentTrial { rows: Vec::new(), gates: vec![Gate::new("a statement", "", holds)] };
        let arguments = RobustnessArgs { seeds: Some(3), sensitivity: false };
        let measure = |broken: u64| {
            arguments
                .measure(false, PARAMETERS, &calibration(""), 7, |_, seed| Ok(trial(seed != broken)))
                .expect("it runs")
        };
        assert!(measure(1).holds());
        let robustness = measure(9);
        assert!(!robustness.holds());
        assert_eq!(robustness.gates[0].held, 2);
    }

    #[test]
    fn a_parameter_that_breaks_a_statement_is_named() {
        let arguments = RobustnessArgs { seeds: None, sensitivity: true };
        let assumed = "assumed = [\"unit.fold-ns\", \"unit.window\"]\n\
                       [[alternative]]\nparameter = \"unit.kind\"\nvalue = \"slow\"\n";
        let run = |text: &str, _: u64| {
            let file: toml::Table = text.parse()?;
            let fold = file["unit"]["fold-ns"].as_float().unwrap_or_default();
            Ok(ExperimentTrial {
                rows: Vec::new(),
                gates: vec![Gate::new(
                    "folds are quick",
                    "",
                    fold < 220.0 && file["unit"]["kind"].as_str() == Some("x"),
                )],
            })
        };
        let robustness = arguments.measure(true, PARAMETERS, &calibration(assumed), 1, run).expect("it runs");
        let broken: Vec<(&str, &str)> = robustness
            .sensitivity
            .iter()
            .filter(|effect| !effect.broken.is_empty())
            .map(|effect| (effect.parameter.as_str(), effect.change.as_str()))
            .collect();
        assert_eq!(broken, [("unit.fold-ns", "+20 %"), ("unit.kind", "\"slow\"")]);
        assert!(robustness.seeds.is_empty(), "--quick has one seed");
    }
}
