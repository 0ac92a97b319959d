//! A finding: what was checked, what was found, its status, and advice. Field names are part of the JSON format.

use serde::Serialize;

use lab::report::format_table;

/// The status of a finding, from best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FindingStatus {
    /// As required.
    Good,
    /// Works, but could be better.
    Limited,
    /// Not available; features that need it do not work.
    Missing,
    /// Pleach does not work.
    Broken,
}

impl FindingStatus {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Limited => "limited",
            Self::Missing => "missing",
            Self::Broken => "BROKEN",
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub what: &'static str,
    pub verdict: FindingStatus,
    pub found: String,
    /// What to do, if anything.
    pub advice: Option<String>,
}

impl Finding {
    pub(super) fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: FindingStatus::Good, found: found.into(), advice: None }
    }

    pub(super) fn bad(
        what: &'static str,
        verdict: FindingStatus,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { what, verdict, found: found.into(), advice: Some(advice.into()) }
    }
}

#[derive(Serialize)]
pub(super) struct Diagnosis {
    version: &'static str,
    verdict: FindingStatus,
    findings: Vec<Finding>,
}

impl Diagnosis {
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        let verdict = findings.iter().map(|finding| finding.verdict).max().unwrap_or(FindingStatus::Good);
        Self { version: env!("CARGO_PKG_VERSION"), verdict, findings }
    }

    pub(super) fn worst(&self) -> FindingStatus {
        self.verdict
    }

    pub(super) fn table(&self) -> String {
        let row = |finding: &Finding| {
            vec![finding.what.to_owned(), finding.verdict.word().to_owned(), finding.found.clone()]
        };
        let mut rows = vec![["", "", ""].map(str::to_owned).to_vec()];
        rows.extend(self.findings.iter().map(row));
        let mut text = format_table(&rows).trim_start().to_owned();
        let advised: Vec<(&Finding, &String)> =
            self.findings.iter().filter_map(|finding| Some((finding, finding.advice.as_ref()?))).collect();
        if !advised.is_empty() {
            text.push_str("\nwhat to do\n");
            for (finding, advice) in advised {
                text.push_str(&format!("  {}: {advice}\n", finding.what));
            }
        }
        text
    }
}
