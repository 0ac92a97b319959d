//! A published number beside ours, and what to say about it.

use std::fmt;

use serde::Serialize;

use super::published::PublishedNumber;

/// How a number came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReproductionVerdict {
    /// Within the tolerance.
    Match,
    /// Outside it.
    Differs,
    /// Cannot come out of what the paper describes.
    NotReproducible,
}

impl ReproductionVerdict {
    pub(crate) fn words(self) -> &'static str {
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
    /// A sentence where it differs.
    pub remark: String,
}

impl Comparison {
    /// Holds our value against the published one.
    pub(crate) fn new(published: &PublishedNumber, ours: f64, preset: &str, remark: Option<Remark>) -> Self {
        let near = (ours - published.value).abs() <= published.tolerance;
        let verdict = match &remark {
            _ if near => ReproductionVerdict::Match,
            Some(Remark::Impossible(_)) => ReproductionVerdict::NotReproducible,
            _ => ReproductionVerdict::Differs,
        };
        let remark = match remark {
            Some(Remark::Why(text) | Remark::Impossible(text)) if !near => text.to_string(),
            _ => String::new(),
        };
        Self {
            figure: published.figure.clone(),
            id: published.id.clone(),
            claim: published.claim.clone(),
            statement: published.statement.clone(),
            published: published.unit.show(published.value),
            ours: published.unit.show(ours),
            published_value: published.value,
            ours_value: ours,
            verdict,
            gated: published.gated,
            preset: preset.into(),
            remark,
        }
    }
}

/// What is known about a number that does not come out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Remark {
    /// Why it differs.
    Why(&'static str),
    /// Why it cannot come out.
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

/// Why some of these numbers differ, each reason once.
pub(crate) fn explain_differences(rows: &[Comparison]) -> String {
    let mut said: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| !row.remark.is_empty()) {
        if !said.contains(&row.remark.as_str()) {
            said.push(&row.remark);
        }
    }
    said.iter().map(|remark| format!("  differs: {remark}\n")).collect()
}
