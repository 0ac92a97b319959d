//! What the steps came to: one row each, a table, and the verdict.

use std::fmt;
use std::time::Duration;

use crate::test_count::TestCount;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// Some of it could not be tested; the reason names what and why.
    Skipped(String),
}

/// What a step hands back.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    pub(crate) tests: TestCount,
    pub(crate) note: String,
}

/// A step that has run.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) step: &'static str,
    pub(crate) finished: Finished,
    pub(crate) took: Duration,
}

/// All steps that have run, in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
}

/// What a skipped test means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skips {
    /// Someone's own machine: said, and no more.
    AreTold,
    /// Continuous integration: nobody reads what a passing run says.
    AreFailures,
}

/// Whether a run must contain tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    SomeTests,
    Nothing,
}

impl Skips {
    /// Judges by the variable `CI`, which every common service sets to `true`.
    pub(crate) fn from_environment(ci: Option<&str>) -> Self {
        match ci {
            None | Some("" | "0" | "false") => Self::AreTold,
            Some(_) => Self::AreFailures,
        }
    }
}

impl Report {
    /// All tests of all steps.
    pub(crate) fn tests(&self) -> TestCount {
        let mut total = TestCount::default();
        for row in &self.rows {
            total += row.finished.tests;
        }
        total
    }

    /// Why the run as a whole has failed; empty if it has passed.
    pub(crate) fn faults(&self, skips: Skips, demand: Demand) -> Vec<String> {
        let mut faults: Vec<String> = self.rows.iter().filter_map(|row| row.fault(skips)).collect();
        if demand == Demand::SomeTests && self.tests().ran() == 0 {
            faults.push("failed: not a single test ran".to_owned());
        }
        faults
    }
}

impl Row {
    fn fault(&self, skips: Skips) -> Option<String> {
        match (&self.finished.outcome, skips) {
            (Outcome::Failed, _) => Some(format!("failed: {}", self.step)),
            (Outcome::Skipped(why), Skips::AreFailures) => {
                Some(format!("failed: {} (skipped, and CI is set): {why}", self.step))
            }
            (Outcome::Passed | Outcome::Skipped(_), _) => None,
        }
    }

    fn remark(&self) -> String {
        let Finished { outcome, tests, note } = &self.finished;
        let count = match (tests.ran(), tests.skipped) {
            (0, _) => String::new(),
            (_, 0) => tests.to_string(),
            (_, skipped) => format!("{tests}, {skipped} left out"),
        };
        let why = if let Outcome::Skipped(why) = outcome { why } else { "" };
        [count.as_str(), note, why].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.step.len()).max().unwrap_or(0);
        writeln!(formatter, "\n{:width$}  {:8} {:>9}", "step", "result", "time")?;
        for row in &self.rows {
            let seconds = row.took.as_secs_f64();
            let line = format!("{:width$}  {:8} {seconds:>7.1} s  {}", row.step, row.finished.outcome, row.remark());
            writeln!(formatter, "{}", line.trim_end())?;
        }
        let total: Duration = self.rows.iter().map(|row| row.took).sum();
        writeln!(formatter, "{:width$}  {:8} {:>7.1} s", "total", "", total.as_secs_f64())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::Skipped(_) => "skipped",
        })
    }
}

impl Finished {
    pub(crate) fn passed(note: impl Into<String>) -> Self {
        Self { outcome: Outcome::Passed, tests: TestCount::default(), note: note.into() }
    }

    pub(crate) fn failed(note: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed, tests: TestCount::default(), note: note.into() }
    }

    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Self { outcome: Outcome::Skipped(why.into()), tests: TestCount::default(), note: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome, passed: u64) -> Report {
        let tests = TestCount { passed, ..TestCount::default() };
        let finished = Finished { outcome, tests, note: String::new() };
        Report { rows: vec![Row { step: "tests", finished, took: Duration::from_millis(1500) }] }
    }

    #[test]
    fn a_skipped_test_is_a_failure_only_in_ci() {
        let skipped = report(Outcome::Skipped("no mpirun".to_owned()), 1);
        assert!(skipped.faults(Skips::AreTold, Demand::SomeTests).is_empty());
        let faults = skipped.faults(Skips::AreFailures, Demand::SomeTests);
        assert_eq!(faults, ["failed: tests (skipped, and CI is set): no mpirun"]);
    }

    #[test]
    fn ci_counts_as_set_unless_it_says_no() {
        assert_eq!(Skips::from_environment(Some("true")), Skips::AreFailures);
        for unset in [None, Some(""), Some("false"), Some("0")] {
            assert_eq!(Skips::from_environment(unset), Skips::AreTold);
        }
    }

    #[test]
    fn a_run_without_a_single_test_has_failed() {
        let empty = report(Outcome::Passed, 0);
        assert_eq!(empty.faults(Skips::AreTold, Demand::SomeTests), ["failed: not a single test ran"]);
        assert!(empty.faults(Skips::AreTold, Demand::Nothing).is_empty());
    }

    #[test]
    fn the_table_shows_result_time_and_count() {
        let table = report(Outcome::Passed, 12).to_string();
        assert!(table.contains("tests  passed       1.5 s  12 passed, 0 failed\n"), "{table}");
    }
}
