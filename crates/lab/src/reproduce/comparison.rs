//! The comparison of a published number with ours.

use std::fmt;

use serde::Serialize;

use super::published::PublishedNumber;

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReproductionVerdict {
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
            Self::Match => "match",
            Self::Differs => "differs",
            Self::NotReproducible => "not reproducible",
        }
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
    pub preset: String,
    /// An explanation, if the numbers differ.
    pub remark: String,
}

impl Comparison {
    /// Compares our value with the published one.
    pub(crate) fn new(published: &PublishedNumber, ours: f64, preset: &str, remark: Option<Remark>) -> Self {
        let is_near = (ours - published.value).abs() <= published.tolerance;
        let verdict = match &remark {
            _ if is_near => ReproductionVerdict::Match,
            Some(Remark::Impossible(_)) => ReproductionVerdict::NotReproducible,
            _ => ReproductionVerdict::Differs,
        };
        let remark = match remark {
            Some(Remark::Why(text) | Remark::Impossible(text)) if !is_near => text.to_string(),
            _ => String::new(),
        };
        Self {
            figure: published.figure.clone(),
            id: published.id.clone(),
            claim: published.claim.clone(),
            statement: published.statement.clone(),
            published: published.unit.format(published.value),
            ours: published.unit.format(ours),
            published_value: published.value,
            ours_value: ours,
            verdict,
            gated: published.gated,
            preset: preset.into(),
            remark,
        }
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
    pub statement: String,
    pub holds: bool,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.holds { "holds " } else { "BROKEN" }, self.statement)
    }
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
