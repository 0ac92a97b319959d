//! Reads what nextest and libtest print: how many tests passed and failed, and which failed.

use std::fmt;
use std::ops::AddAssign;

/// Tests by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TestCount {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Ignored, or excluded by a filter.
    pub(crate) skipped: u64,
}

impl TestCount {
    /// Adds up all summaries in the output of `cargo nextest run` or `cargo test`.
    ///
    /// Nextest prints the output of a failed test indented, with libtest's summary; those summaries do not count.
    pub(crate) fn read(output: &str) -> Self {
        let mut total = Self::default();
        for line in output.lines() {
            if let Some(rest) = line.trim_start().strip_prefix("Summary [") {
                total += rest.split_once("run:").map_or(Self::default(), |(_, counts)| Self::from_parts(counts, ','));
            } else if let Some(rest) = line.strip_prefix("test result: ") {
                total += rest.split_once(". ").map_or(Self::default(), |(_, counts)| Self::from_parts(counts, ';'));
            }
        }
        total
    }

    pub(crate) fn ran(&self) -> u64 {
        self.passed + self.failed
    }

    /// Reads `44 passed (2 slow), 1 failed, 1 timed out` and similar.
    fn from_parts(counts: &str, separator: char) -> Self {
        let mut total = Self::default();
        for part in without_parentheses(counts).split(separator) {
            let Some((number, what)) = part.trim().split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what.trim() {
                "passed" => total.passed += number,
                "failed" | "timed out" | "exec failed" => total.failed += number,
                "skipped" | "ignored" | "filtered out" => total.skipped += number,
                _ => {} // Benches, and the time it took.
            }
        }
        total
    }
}

/// The names of the tests that nextest lists as failed or timed out, each once.
pub(crate) fn failed_tests(output: &str) -> Vec<String> {
    let failed = ["FAIL [", "TIMEOUT [", "ABORT [", "SIG"];
    let mut names: Vec<String> = output
        .lines()
        .filter(|line| failed.iter().any(|mark| line.trim_start().starts_with(mark)))
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl AddAssign for TestCount {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for TestCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)
    }
}

fn without_parentheses(text: &str) -> String {
    let mut depth = 0_u32;
    let outside = |character: &char| match character {
        '(' => {
            depth += 1;
            false
        }
        ')' => {
            depth = depth.saturating_sub(1);
            false
        }
        _ => depth == 0,
    };
    text.chars().filter(outside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_nextest_is_read() {
        let output =
            "     Summary [   0.123s] 46 tests run: 43 passed (2 slow, 1 flaky), 2 failed, 1 timed out, 5 skipped";
        assert_eq!(TestCount::read(output), TestCount { passed: 43, failed: 3, skipped: 5 });
    }

    #[test]
    fn failed_tests_are_named_once() {
        let output = "        PASS [   0.010s] ( 4/12) pleach::jobs fine\n\
                      \x20       FAIL [   3.630s] ( 3/12) pleach::jobs a::bad\n\
                      \x20    TIMEOUT [ 300.630s] ( 5/12) wire late\n\
                      \x20       FAIL [   3.630s] ( 3/12) pleach::jobs a::bad";
        assert_eq!(failed_tests(output), ["a::bad", "late"]);
    }

    #[test]
    fn a_cancelled_run_of_nextest_is_read() {
        let output = "     Summary [   0.1s] 2/9 tests run: 1 passed, 1 failed, 0 skipped";
        assert_eq!(TestCount::read(output), TestCount { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_failed_test_shown_by_nextest_counts_once() {
        let output = "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.6s\n\
                      ────────────\n     Summary [   0.1s] 9 tests run: 8 passed, 1 failed, 0 skipped";
        assert_eq!(TestCount::read(output), TestCount { passed: 8, failed: 1, skipped: 0 });
    }

    #[test]
    fn summaries_of_several_test_binaries_add_up() {
        let output = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s\n\
                      test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s";
        assert_eq!(TestCount::read(output), TestCount { passed: 7, failed: 2, skipped: 3 });
    }

    #[test]
    fn output_without_a_summary_counts_nothing() {
        assert_eq!(TestCount::read("error: could not compile `wire`"), TestCount::default());
    }

    #[test]
    fn the_closing_line_is_plain() {
        assert_eq!(TestCount { passed: 7, failed: 0, skipped: 3 }.to_string(), "7 passed, 0 failed");
    }
}
