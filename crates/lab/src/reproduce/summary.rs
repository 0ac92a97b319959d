//! What stands at the top of every report: rows by label, and how many a null model also matches; then seeds, sensitivity and the
//! claims without a row.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::calibration::{Calibration, RowLabel};
use super::comparison::{Comparison, Gate, ReproductionVerdict, gated_sentence};
use super::robustness::Robustness;
use crate::report::{PageSection, PageVerdict, ReportPage, TableRows, format_table, with_header};

/// The top of a report.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub labels: Vec<LabelCount>,
    /// Parameters of the model by origin.
    pub calibrated_parameters: usize,
    pub input_parameters: usize,
    pub given_parameters: usize,
    pub assumed_parameters: usize,
    /// Choices without an alternative that can be tried.
    pub chosen_parameters: usize,
    /// Rows that are not gated because the null model passes as well.
    pub ungated_by_null: Vec<String>,
    #[serde(flatten)]
    pub robustness: Robustness,
    pub claims_without_row: BTreeMap<String, String>,
}

/// The rows with one label, or all of them.
#[derive(Clone, Copy, Default, Serialize)]
pub(crate) struct LabelCount {
    /// None for all rows.
    pub label: Option<RowLabel>,
    pub rows: usize,
    /// Within the tolerance, bound or range; and of these, as the paper would print them.
    pub matched: usize,
    pub equal: usize,
    /// Rows that the null model matches as well.
    pub null_matched: usize,
    pub gated: usize,
    pub gated_matched: usize,
    /// Rows that are not gated because the null model passes as well.
    pub null_ungates: usize,
}

impl LabelCount {
    fn of(rows: &[Comparison], label: Option<RowLabel>) -> Self {
        let mut count = Self { label, ..Self::default() };
        for row in rows.iter().filter(|row| label.is_none_or(|label| row.label == label)) {
            let (matched, null) = (usize::from(row.verdict.is_match()), usize::from(row.null_matches));
            let gated = usize::from(row.gated);
            count.rows += 1;
            count.matched += matched;
            count.equal += usize::from(row.verdict == ReproductionVerdict::Equal);
            count.null_matched += null;
            count.gated += gated;
            count.gated_matched += gated * matched;
            count.null_ungates += usize::from(row.null_ungates);
        }
        count
    }
}

impl Summary {
    pub(crate) fn new(rows: &[Comparison], calibration: &Calibration, robustness: Robustness) -> Self {
        let by_label = RowLabel::ALL.into_iter().map(Some).chain([None]);
        Self {
            labels: by_label.map(|label| LabelCount::of(rows, label)).collect(),
            calibrated_parameters: calibration.calibrated.len(),
            input_parameters: calibration.inputs.len(),
            given_parameters: calibration.given.len(),
            assumed_parameters: calibration.assumed.len(),
            chosen_parameters: calibration.chosen.len(),
            ungated_by_null: rows.iter().filter(|row| row.null_ungates).map(|row| row.id.clone()).collect(),
            robustness,
            claims_without_row: calibration.claims_without_row.clone(),
        }
    }

    fn label_rows(&self) -> TableRows {
        let header =
            ["label", "rows", "match", "of these equal", "null model", "gated", "gated match", "ungated by null"];
        with_header(
            header,
            self.labels.iter().map(|count| {
                let numbers = [
                    count.rows,
                    count.matched,
                    count.equal,
                    count.null_matched,
                    count.gated,
                    count.gated_matched,
                    count.null_ungates,
                ];
                let [a, b, c, d, e, f, g] = numbers.map(|number| number.to_string());
                [count.label.map_or("all", RowLabel::name).to_owned(), a, b, c, d, e, f, g]
            }),
        )
    }

    fn explanation(&self) -> String {
        format!(
            "Parameters: {} calibrated, {} set by inputs, {} given, {} assumed, {} chosen without an alternative. Equal: as the paper would print it. Null model: no \
             effect, no overhead, a flat curve. The tolerance of a gated row is smaller than its effect, the difference between the \
             published number and the null model's. Not gated, since the null model passes as well: {}.",
            self.calibrated_parameters,
            self.input_parameters,
            self.given_parameters,
            self.assumed_parameters,
            self.chosen_parameters,
            if self.ungated_by_null.is_empty() { "none".to_owned() } else { self.ungated_by_null.join(", ") }
        )
    }

    fn claim_rows(&self) -> TableRows {
        with_header(
            ["claim", "why it has no row"],
            self.claims_without_row.iter().map(|(claim, why)| [claim.clone(), why.clone()]),
        )
    }

    /// The table at the top, as text.
    pub(crate) fn head_text(&self) -> String {
        format!("{}{}\n", format_table(&self.label_rows()), self.explanation())
    }

    /// Seeds, sensitivity and claims without a row, as text.
    pub(crate) fn tail_text(&self) -> String {
        let mut text = String::new();
        for (title, rows) in self.tail() {
            let _ = writeln!(text, "{title}\n{}", format_table(&rows));
        }
        text
    }

    /// What held or failed, in one sentence.
    fn verdict(&self, gates: &[Gate], holds: bool) -> PageVerdict {
        let all = self.labels.last().copied().unwrap_or_default();
        let held = gates.iter().filter(|gate| gate.holds).count();
        let sentence = format!(
            "{} {} of {} gated numbers match, {held} of {} statements hold; of all {} numbers {} match.",
            gated_sentence(holds),
            all.gated_matched,
            all.gated,
            gates.len(),
            all.rows,
            all.matched
        );
        if holds { PageVerdict::held(sentence) } else { PageVerdict::failed(sentence) }
    }

    /// The start of a page: the verdict, and the rows by label.
    pub(crate) fn page(&self, title: &str, gates: &[Gate], holds: bool) -> ReportPage {
        let labels = PageSection::new("Rows by label").table(&self.label_rows()).paragraph(&self.explanation());
        ReportPage::new(title, self.verdict(gates, holds)).section(labels)
    }

    /// The rest as sections of a page.
    pub(crate) fn tail_sections(&self) -> impl Iterator<Item = PageSection> {
        self.tail().into_iter().map(|(title, rows)| PageSection::new(title).table(&rows))
    }

    fn tail(&self) -> Vec<(&'static str, TableRows)> {
        let mut tables = Vec::new();
        if !self.robustness.gates.is_empty() || !self.robustness.seeds.is_empty() {
            tables.push(("Gated numbers and statements over all seeds", self.robustness.seed_rows()));
        }
        if !self.robustness.sensitivity.is_empty() {
            let title = "Sensitivity: verdicts that change if an assumed parameter is a fifth smaller or larger";
            tables.push((title, self.robustness.sensitivity_rows()));
        }
        tables.push(("Claims without a row", self.claim_rows()));
        tables
    }
}

/// The statements that must hold, as a section of a page.
pub(crate) fn gate_section(gates: &[Gate]) -> PageSection {
    let rows = gates.iter().map(|gate| [if gate.holds { "holds" } else { "broken" }.to_owned(), gate.sentence()]);
    PageSection::new("Statements that must hold").table(&with_header(["", "statement"], rows))
}

#[cfg(test)]
mod tests {
    use super::super::published::read_published;
    use super::*;

    #[test]
    fn rows_that_the_null_model_matches_are_counted_apart() {
        let published =
            "head\n4,a,22,%,2,yes,0,SE-14,loses\n4,b,0,%,2,null,0,SE-14,loses nothing\n4,c,9,%,2,no,0,SE-14,c";
        let published = read_published(published).expect("valid");
        let calibration = "[[informed]]\nrows = [\"c\"]\nchoice = \"a shape\"\n[claims-without-row]\n";
        let calibration = Calibration::parse(calibration, &published).expect("valid");
        let rows: Vec<Comparison> = published
            .iter()
            .zip([21.0, 0.2, 99.0])
            .map(|(row, ours)| Comparison::new(row, ours, &calibration, "", None))
            .collect();
        let summary = Summary::new(&rows, &calibration, Robustness::default());
        let all = summary.labels.last().expect("all rows");
        assert_eq!([all.rows, all.matched, all.equal, all.null_matched], [3, 2, 1, 1]);
        assert_eq!([all.gated, all.gated_matched, all.null_ungates], [1, 1, 1]);
        assert_eq!(summary.ungated_by_null, ["b"]);
        assert!(summary.head_text().contains("informed       1      0"), "{}", summary.head_text());
    }
}
