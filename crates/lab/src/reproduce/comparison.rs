//! The comparison of a published number with ours and with that of a null model.

use std::fmt;

use serde::Serialize;

use super::calibration::{Calibration, RowLabel};
use super::published::{NumberGating, PublishedNumber};

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReproductionVerdict {
    /// The paper would print our number as it prints its own; a bound or a range holds.
    Equal,
    /// Within the tolerance.
    Match,
    /// Outside it.
    Differs,
    /// Does not follow from what the paper describes.
    NotReproducible,
}

impl ReproductionVerdict {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Match => "match",
            Self::Differs => "differs",
            Self::NotReproducible => "not reproducible",
        }
    }

    /// Whether the number is reproduced, to the printed precision or within the tolerance.
    pub(crate) fn is_match(self) -> bool {
        matches!(self, Self::Equal | Self::Match)
    }
}

/// One row of the comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub figure: String,
    pub id: String,
    pub claim: String,
    pub statement: String,
    pub published: String,
    pub ours: String,
    #[serde(skip)]
    pub published_value: f64,
    pub ours_value: f64,
    pub verdict: ReproductionVerdict,
    pub gated: bool,
    /// Not gated for the one reason that the null model passes as well.
    pub null_ungates: bool,
    pub label: RowLabel,
    /// The choice that an informed row rests on, or what an input sets.
    pub choice: String,
    /// The number of the null model, and whether it counts as a match as well.
    pub null: String,
    #[serde(skip)]
    pub null_value: f64,
    pub null_matches: bool,
    /// The configuration behind our number, where there are several.
    pub preset: String,
    /// An explanation, if the numbers differ.
    pub remark: String,
}

impl Comparison {
    /// Compares our value with the published one.
    pub(crate) fn new(
        published: &PublishedNumber,
        ours: f64,
        calibration: &Calibration,
        preset: &str,
        remark: Option<Remark>,
    ) -> Self {
        let is_match = published.matches(ours);
        let verdict = match &remark {
            _ if is_match && published.value.is_printed_as(ours) => ReproductionVerdict::Equal,
            _ if is_match => ReproductionVerdict::Match,
            Some(Remark::Impossible(_)) => ReproductionVerdict::NotReproducible,
            _ => ReproductionVerdict::Differs,
        };
        let remark = match remark {
            Some(Remark::Why(text) | Remark::Impossible(text)) if !is_match => text.to_string(),
            _ => String::new(),
        };
        let (label, choice) = calibration.label(&published.id);
        Self {
            figure: published.figure.clone(),
            id: published.id.clone(),
            claim: published.claim.clone(),
            statement: published.statement.clone(),
            published: published.value.format(published.unit),
            ours: published.unit.format(ours),
            published_value: published.value.reference(),
            ours_value: ours,
            verdict,
            gated: published.gating == NumberGating::Gated,
            null_ungates: published.gating == NumberGating::NullPasses,
            label,
            choice: choice.to_owned(),
            null: published.unit.format(published.null),
            null_value: published.null,
            null_matches: published.matches(published.null),
            preset: preset.into(),
            remark,
        }
    }

    /// The cells that every table of comparisons has: statement, published, ours, verdict, label, null model.
    pub(crate) fn cells(&self) -> [String; 6] {
        [
            self.marked_statement(),
            self.published.clone(),
            self.ours.clone(),
            self.verdict.label().to_owned(),
            self.label.name().to_owned(),
            self.marked_null(),
        ]
    }

    /// The statement, marked if it is gated.
    fn marked_statement(&self) -> String {
        format!("{}{}", self.statement, if self.gated { " *" } else { "" })
    }

    /// The number of the null model, marked if it counts as a match as well.
    fn marked_null(&self) -> String {
        format!("{}{}", self.null, if self.null_matches { " (matches)" } else { "" })
    }
}

/// The explanation of a number that is not reproduced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Remark {
    /// Why it differs.
    Why(&'static str),
    /// Why it cannot be reproduced.
    Impossible(&'static str),
}

/// A statement that must hold, whatever the exact numbers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Gate {
    /// The same for every seed.
    pub statement: String,
    /// Our numbers behind it.
    pub detail: String,
    pub holds: bool,
}

impl Gate {
    pub(crate) fn new(statement: impl Into<String>, detail: impl Into<String>, holds: bool) -> Self {
        Self { statement: statement.into(), detail: detail.into(), holds }
    }

    /// The statement with our numbers.
    pub(crate) fn sentence(&self) -> String {
        match self.detail.as_str() {
            "" => self.statement.clone(),
            detail => format!("{} ({detail})", self.statement),
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.holds { "holds " } else { "BROKEN" }, self.sentence())
    }
}

/// Whether every gated number and every gate holds.
pub(crate) fn all_hold(rows: &[Comparison], gates: &[Gate]) -> bool {
    rows.iter().filter(|row| row.gated).all(|row| row.verdict.is_match()) && gates.iter().all(|gate| gate.holds)
}

/// The verdict on all gated numbers.
pub(crate) fn gated_sentence(holds: bool) -> &'static str {
    if holds { "All gated numbers hold." } else { "A gated number does not hold." }
}

/// The explanations of the numbers that differ, each once.
pub(crate) fn explain_differences(rows: &[Comparison]) -> String {
    let mut explanations: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| !row.remark.is_empty()) {
        if !explanations.contains(&row.remark.as_str()) {
            explanations.push(&row.remark);
        }
    }
    explanations.iter().map(|remark| format!("  differs: {remark}\n")).collect()
}
