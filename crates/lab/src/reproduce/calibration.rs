//! What was calibrated on what: `experiments/*/calibration.toml`, from which every published number gets its label.
//!
//! In: the file and the published numbers. Out: a label for each row. A row that the file does not name is predicted, so whoever
//! uses a number must write it down. [`Calibration::own_predictions`] finds rows that were forgotten.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

#[cfg(test)]
use super::comparison::Comparison;
use super::published::PublishedNumber;

/// How a published number relates to the parameters and the structure of the model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RowLabel {
    /// The number was used to set a parameter.
    Calibrated,
    /// Nothing about the row or its structure was decided after seeing it.
    Predicted,
    /// A structure or a choice was made after seeing it.
    Informed,
    /// It sets a part of the model that no other table depends on.
    Input,
}

impl RowLabel {
    pub(crate) const ALL: [Self; 4] = [Self::Calibrated, Self::Predicted, Self::Informed, Self::Input];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::Predicted => "predicted",
            Self::Informed => "informed",
            Self::Input => "input",
        }
    }
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CalibrationFile {
    #[serde(default)]
    calibrated: Vec<CalibratedTable>,
    #[serde(default)]
    informed: Vec<InformedTable>,
    #[serde(default)]
    input: Vec<InputTable>,
    /// Parameters that are printed in the paper or on a data sheet.
    #[serde(default)]
    given: Vec<String>,
    /// Parameters that are neither given nor calibrated.
    #[serde(default)]
    assumed: Vec<String>,
    /// Choices among kinds of which no other can be tried.
    #[serde(default)]
    chosen: Vec<String>,
    /// Choices among kinds, and what else could have been chosen.
    #[serde(default)]
    alternative: Vec<Alternative>,
    claims_without_row: BTreeMap<String, String>,
}

/// Another value of a parameter that is no number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Alternative {
    pub parameter: String,
    pub value: toml::Value,
}

/// Parameters, each a number of its own, and the rows that set them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CalibratedTable {
    parameters: Vec<String>,
    rows: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InformedTable {
    rows: Vec<String>,
    choice: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputTable {
    rows: Vec<String>,
    sets: String,
    /// Parameters that these rows set.
    #[serde(default)]
    parameters: Vec<String>,
}

/// The labels of all rows, the parameters by origin, and the claims without a row.
#[derive(Debug)]
pub(crate) struct Calibration {
    labels: BTreeMap<String, (RowLabel, String)>,
    pub calibrated: Vec<String>,
    pub inputs: Vec<String>,
    pub given: Vec<String>,
    pub assumed: Vec<String>,
    pub chosen: Vec<String>,
    pub alternatives: Vec<Alternative>,
    /// Why a claim has no row.
    pub claims_without_row: BTreeMap<String, String>,
}

impl Calibration {
    /// Reads the file for these rows.
    ///
    /// # Errors
    /// If a pattern matches no row, or a row has two labels.
    pub(crate) fn parse(text: &str, published: &[PublishedNumber]) -> Result<Self> {
        let file: CalibrationFile = toml::from_str(text)?;
        let mut labels: BTreeMap<String, (RowLabel, String)> = BTreeMap::new();
        let mut put = |rows: &[String], label: RowLabel, choice: &str| -> Result<()> {
            for pattern in rows {
                let ids: Vec<&str> =
                    published.iter().map(|row| row.id.as_str()).filter(|id| is_like(id, pattern)).collect();
                ensure!(!ids.is_empty(), "no published number is called {pattern}");
                for id in ids {
                    let (other, _) = labels.entry(id.to_owned()).or_insert((label, choice.to_owned()));
                    ensure!(*other == label, "{id} is both {} and {}", other.name(), label.name());
                }
            }
            Ok(())
        };
        for table in &file.calibrated {
            let parameters = table.parameters.join(", ");
            put(&table.rows, RowLabel::Calibrated, &format!("sets {parameters}")).context(parameters)?;
        }
        for table in &file.input {
            put(&table.rows, RowLabel::Input, &table.sets)?;
        }
        for table in &file.informed {
            put(&table.rows, RowLabel::Informed, &table.choice)?;
        }
        let covered = |claim: &str| published.iter().any(|row| row.claim == claim);
        for claim in file.claims_without_row.keys() {
            ensure!(!covered(claim), "{claim} has a row, and is listed as a claim without one");
        }
        Ok(Self {
            labels,
            calibrated: file.calibrated.into_iter().flat_map(|table| table.parameters).collect(),
            inputs: file.input.into_iter().flat_map(|table| table.parameters).collect(),
            given: file.given,
            assumed: file.assumed,
            chosen: file.chosen,
            alternatives: file.alternative,
            claims_without_row: file.claims_without_row,
        })
    }

    /// The label of a row, and the choice behind it.
    pub(crate) fn label(&self, id: &str) -> (RowLabel, &str) {
        self.labels.get(id).map_or((RowLabel::Predicted, ""), |(label, choice)| (*label, choice))
    }

    /// Rows labelled predicted or informed that are the very number of a calibrated row: equal to it as shipped, and equal to it
    /// still after each calibrated parameter has been changed. Each run has the rows in the same order.
    #[cfg(test)]
    pub(crate) fn own_predictions(shipped: &[Comparison], changed: &[Vec<Comparison>]) -> Vec<(String, String)> {
        let is_same = |one: usize, other: usize| {
            let runs = std::iter::once(shipped).chain(changed.iter().map(Vec::as_slice));
            runs.map(|rows| (rows[one].ours_value, rows[other].ours_value)).all(|(one, other)| one == other)
        };
        let of = |wanted: &[RowLabel]| -> Vec<usize> {
            (0..shipped.len()).filter(|row| wanted.contains(&shipped[*row].label)).collect()
        };
        let mut found = Vec::new();
        for row in of(&[RowLabel::Predicted, RowLabel::Informed]) {
            // A constant is nobody's prediction: what no calibrated number moves was not calibrated.
            let moves = changed.iter().any(|rows| rows[row].ours_value != shipped[row].ours_value);
            for used in of(&[RowLabel::Calibrated]) {
                if moves && is_same(row, used) {
                    found.push((shipped[row].id.clone(), shipped[used].id.clone()));
                }
            }
        }
        found
    }

    /// Parameters of a file that have no origin, or several. Each is named `table.key`, or `table.0.key` in a list of tables that is not
    /// listed as a whole. Texts outside of tables are no parameters.
    #[cfg(test)]
    pub(crate) fn origins_missing(&self, parameters: &str) -> Vec<String> {
        let file: toml::Table = parameters.parse().expect("valid TOML");
        let lists = [&self.calibrated, &self.inputs, &self.given, &self.assumed, &self.chosen];
        let mut listed: Vec<&String> = lists.into_iter().flatten().collect();
        let mut names = Vec::new();
        for (name, value) in file.iter().filter(|(_, value)| !value.is_str()) {
            match value {
                toml::Value::Table(table) => names.extend(table.keys().map(|key| format!("{name}.{key}"))),
                toml::Value::Array(tables) if !listed.contains(&name) => {
                    let tables = tables.iter().filter_map(toml::Value::as_table).enumerate();
                    names.extend(
                        tables.flat_map(|(number, table)| {
                            table.keys().map(move |key| format!("{name}.{number}.{key}"))
                        }),
                    );
                }
                _ => names.push(name.clone()),
            }
        }
        // A choice that is no number is an alternative only.
        for Alternative { parameter, .. } in &self.alternatives {
            if !listed.contains(&parameter) {
                listed.push(parameter);
            }
        }
        let wrong = |name: &&String| listed.iter().filter(|other| **other == *name).count() != 1;
        let unknown = listed.iter().filter(|name| !names.contains(name)).map(|name| (*name).clone());
        names.iter().filter(wrong).cloned().chain(unknown).collect()
    }
}

/// Whether an id is like a pattern, in which `*` stands for any text.
fn is_like(id: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => id == pattern,
        Some((head, rest)) => {
            let Some(tail) = id.strip_prefix(head) else { return false };
            (0..=tail.len()).filter(|at| tail.is_char_boundary(*at)).any(|at| is_like(&tail[at..], rest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::published::read_published;
    use super::*;

    const PUBLISHED: &str = "head\nVI,vi-rc-1024,5.51,us,10%,yes,0,SH-13,a\nV,v-sharp-1024,5.49,us,10%,yes,0,SH-12,b\n\
                             V,v-sharp-2048,8.44,us,10%,yes,0,SH-12,c";

    fn labelled(text: &str) -> Result<Calibration> {
        let text = format!("{text}\n[claims-without-row]\nSH-1 = \"a mechanism\"\n");
        Calibration::parse(&text, &read_published(PUBLISHED).expect("valid"))
    }

    /// A simulator with one parameter, by which all times scale.
    fn run(calibration: &Calibration, parameter: f64) -> Vec<Comparison> {
        let rows = read_published(PUBLISHED).expect("valid");
        let times = [5.5, 5.5, 8.4].map(|us| us * parameter);
        rows.iter().zip(times).map(|(row, ours)| Comparison::new(row, ours, calibration, "", None)).collect()
    }

    #[test]
    fn a_calibrated_number_under_another_name_is_not_a_prediction() {
        let used = "[[calibrated]]\nparameters = [\"unit.fold-ns\"]\nrows = [\"vi-rc-1024\"]\n";
        let forgotten = labelled(used).expect("valid");
        let found = Calibration::own_predictions(&run(&forgotten, 1.0), &[run(&forgotten, 1.1)]);
        assert_eq!(found, [("v-sharp-1024".to_owned(), "vi-rc-1024".to_owned())]);
        let written_down = labelled(&used.replace("vi-rc-1024", "*-1024")).expect("valid");
        let found = Calibration::own_predictions(&run(&written_down, 1.0), &[run(&written_down, 1.1)]);
        assert_eq!(found, []);
    }

    #[test]
    fn a_row_has_one_label_and_a_pattern_matches_a_row() {
        let informed = |rows: &str| format!("[[informed]]\nrows = [\"{rows}\"]\nchoice = \"a shape\"\n");
        let calibrated = "[[calibrated]]\nparameters = [\"x\"]\nrows = [\"v-*-1024\"]\n".to_owned();
        let error = labelled(&(calibrated.clone() + &informed("*-1024"))).unwrap_err();
        assert_eq!(format!("{error:#}"), "v-sharp-1024 is both calibrated and informed");
        let error = labelled(&informed("v-sharp-4096")).unwrap_err();
        assert_eq!(format!("{error:#}"), "no published number is called v-sharp-4096");
        let fine = labelled(&(calibrated + &informed("vi-*"))).expect("valid");
        assert_eq!(fine.label("vi-rc-1024"), (RowLabel::Informed, "a shape"));
        assert_eq!(fine.label("v-sharp-2048"), (RowLabel::Predicted, ""));
    }

    #[test]
    fn every_parameter_has_one_origin() {
        let calibration = labelled("given = [\"link.wire-ns\"]\nassumed = [\"unit.window\", \"unit.gone\"]").unwrap();
        let parameters = "name = \"a preset\"\n[link]\nwire-ns = 1.0\n[unit]\nwindow = 4\nfold-ns = 2.0\n[[fault]]\nkind = \"flip\"\n";
        let missing = calibration.origins_missing(parameters);
        assert_eq!(missing, ["fault.0.kind", "unit.fold-ns", "unit.gone"]);
    }
}
