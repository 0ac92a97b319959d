//! The results of the steps: a row for each, a table, and the reasons why the run failed.

use std::fmt;
use std::time::Duration;

use crate::test_count::TestCount;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// Some tests could not run; the text says which and why.
    Skipped(String),
}

/// The result of a step.
#[derive(Debug)]
pub(crate) struct StepResult {
    pub(crate) outcome: Outcome,
    pub(crate) tests: TestCount,
    /// The names of the tests that failed.
    pub(crate) failed_tests: Vec<String>,
    pub(crate) note: String,
}

/// A completed step.
#[derive(Debug)]
pub(crate) struct StepReport {
    pub(crate) step: &'static str,
    pub(crate) finished: StepResult,
    pub(crate) took: Duration,
}

/// All completed steps, in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<StepReport>,
}

/// How skipped tests are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skips {
    /// They are reported: a developer reads the output.
    Reported,
    /// They fail the run: in continuous integration nobody reads the output of a run that passed.
    Failures,
}

/// Whether a run must include tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestRequirement {
    SomeTests,
    None,
}

impl Skips {
    /// Reads the value of the variable `CI`, which the usual services set to `true`.
    pub(crate) fn from_environment(ci: Option<&str>) -> Self {
        match ci {
            None | Some("" | "0" | "false") => Self::Reported,
            Some(_) => Self::Failures,
        }
    }
}

impl Report {
    /// The sum of all steps.
    pub(crate) fn tests(&self) -> TestCount {
        let mut total = TestCount::default();
        for row in &self.rows {
            total += row.finished.tests;
        }
        total
    }

    /// The reasons why the run failed; empty if it passed.
    pub(crate) fn failures(&self, skips: Skips, requirement: TestRequirement) -> Vec<String> {
        let mut failures: Vec<String> = self.rows.iter().filter_map(|row| row.failure(skips)).collect();
        if requirement == TestRequirement::SomeTests && self.tests().ran() == 0 {
            failures.push("failed: no test ran".to_owned());
        }
        failures
    }
}

impl StepReport {
    fn failure(&self, skips: Skips) -> Option<String> {
        match (&self.finished.outcome, skips) {
            (Outcome::Failed, _) => Some(format!("failed: {}", self.step)),
            (Outcome::Skipped(reason), Skips::Failures) => {
                Some(format!("failed: {} (skipped, and CI is set): {reason}", self.step))
            }
            (Outcome::Passed | Outcome::Skipped(_), _) => None,
        }
    }

    fn remark(&self) -> String {
        let StepResult { outcome, tests, note, .. } = &self.finished;
        let count = match (tests.ran(), tests.skipped) {
            (0, _) => String::new(),
            (_, 0) => tests.to_string(),
            (_, skipped) => format!("{tests}, {skipped} omitted"),
        };
        let reason = if let Outcome::Skipped(reason) = outcome { reason } else { "" };
        [count.as_str(), note, reason].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
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

impl StepResult {
    fn without_tests(outcome: Outcome, note: impl Into<String>) -> Self {
        Self { outcome, tests: TestCount::default(), failed_tests: Vec::new(), note: note.into() }
    }

    pub(crate) fn passed(note: impl Into<String>) -> Self {
        Self::without_tests(Outcome::Passed, note)
    }

    pub(crate) fn failed(note: impl Into<String>) -> Self {
        Self::without_tests(Outcome::Failed, note)
    }

    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self::without_tests(Outcome::Skipped(reason.into()), "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome, passed: u64) -> Report {
        let tests = TestCount { passed, ..TestCount::default() };
        let finished = StepResult { outcome, tests, failed_tests: Vec::new(), note: String::new() };
        Report { rows: vec![StepReport { step: "tests", finished, took: Duration::from_millis(1500) }] }
    }

    #[test]
    fn a_skipped_test_is_a_failure_only_in_ci() {
        let skipped = report(Outcome::Skipped("no mpirun".to_owned()), 1);
        assert!(skipped.failures(Skips::Reported, TestRequirement::SomeTests).is_empty());
        let failures = skipped.failures(Skips::Failures, TestRequirement::SomeTests);
        assert_eq!(failures, ["failed: tests (skipped, and CI is set): no mpirun"]);
    }

    #[test]
    fn ci_counts_as_set_unless_it_is_empty_0_or_false() {
        assert_eq!(Skips::from_environment(Some("true")), Skips::Failures);
        for unset in [None, Some(""), Some("false"), Some("0")] {
            assert_eq!(Skips::from_environment(unset), Skips::Reported);
        }
    }

    #[test]
    fn a_run_without_tests_has_failed() {
        let empty = report(Outcome::Passed, 0);
        assert_eq!(empty.failures(Skips::Reported, TestRequirement::SomeTests), ["failed: no test ran"]);
        assert!(empty.failures(Skips::Reported, TestRequirement::None).is_empty());
    }

    #[test]
    fn the_table_shows_result_time_and_count() {
        let table = report(Outcome::Passed, 12).to_string();
        assert!(table.contains("tests  passed       1.5 s  12 passed, 0 failed\n"), "{table}");
    }
}
