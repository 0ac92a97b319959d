//! What the rounds of a run gave, as a table and as JSON.

use std::time::Duration;

use serde::Serialize;

use super::judge::RoundVerdict;
use super::plan::ChaosPlan;
use crate::number_format::group_digits;
use crate::report::{format_table, with_header};

/// The most violations of a round that the text lists.
const MAX_LISTED_VIOLATIONS: usize = 8;

/// What a run of chaos gave.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChaosReport {
    /// Rounds that ran.
    pub rounds: u64,
    /// Rounds with a violation.
    pub failed_rounds: u64,
    /// How long it took.
    pub seconds: f64,
    /// Results compared with the expected bits.
    pub results: u64,
    /// Errors compared with those of the other ranks.
    pub errors: u64,
    /// By case, in the order of the first round of each.
    pub cases: Vec<CaseSummary>,
    /// Rounds with violations.
    pub failures: Vec<FailedRound>,
}

/// All rounds of a case.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CaseSummary {
    /// The name.
    pub case: String,
    /// Rounds that ran.
    pub rounds: u64,
    /// Rounds with a violation.
    pub failed: u64,
    /// Results compared with the expected bits.
    pub results: u64,
    /// Errors compared with those of the other ranks.
    pub errors: u64,
    /// Operations that aggregation nodes reduced, as ranks that finished counted them.
    pub aggregated: u64,
    /// The longest operation, in seconds: from the call to its result or error.
    pub longest_operation_seconds: f64,
    /// The longest round, in seconds.
    pub longest_round_seconds: f64,
}

/// A round with violations.
#[derive(Clone, Debug, Serialize)]
pub struct FailedRound {
    /// The case.
    pub case: String,
    /// The seed.
    pub seed: u64,
    /// The command that runs the round again.
    pub replay: String,
    /// The cluster, and what was done to it.
    pub plan: String,
    /// What is wrong.
    pub violations: Vec<String>,
}

/// The command that runs a round again.
pub(super) fn replay_command(plan: &ChaosPlan) -> String {
    format!("pleach chaos --case {} --seed {}", plan.case, plan.seed)
}

/// The line about a round that is over.
pub(super) fn progress_line(plan: &ChaosPlan, verdict: &RoundVerdict, took: Duration) -> String {
    let outcome = if verdict.violations.is_empty() { "ok" } else { "FAILED" };
    format!(
        "chaos: {} seed {}: {outcome}, {} results, {} errors agreed, longest operation {:.2} s, round {:.1} s",
        plan.case,
        plan.seed,
        group_digits(verdict.results),
        verdict.errors,
        verdict.longest_micros as f64 / 1e6,
        took.as_secs_f64()
    )
}

impl ChaosReport {
    /// Adds a round.
    pub(super) fn add(&mut self, plan: &ChaosPlan, verdict: RoundVerdict, took: Duration) {
        let has_failed = !verdict.violations.is_empty();
        self.rounds += 1;
        self.failed_rounds += u64::from(has_failed);
        self.results += verdict.results;
        self.errors += verdict.errors;
        let index = self.cases.iter().position(|summary| summary.case == plan.case).unwrap_or_else(|| {
            self.cases.push(CaseSummary { case: plan.case.to_owned(), ..CaseSummary::default() });
            self.cases.len() - 1
        });
        let summary = &mut self.cases[index];
        summary.rounds += 1;
        summary.failed += u64::from(has_failed);
        summary.results += verdict.results;
        summary.errors += verdict.errors;
        summary.aggregated += verdict.aggregated;
        let longest = verdict.longest_micros as f64 / 1e6;
        summary.longest_operation_seconds = summary.longest_operation_seconds.max(longest);
        summary.longest_round_seconds = summary.longest_round_seconds.max(took.as_secs_f64());
        if has_failed {
            self.failures.push(FailedRound {
                case: plan.case.to_owned(),
                seed: plan.seed,
                replay: replay_command(plan),
                plan: plan.to_string(),
                violations: verdict.violations,
            });
        }
    }

    /// The report as text.
    pub(super) fn table(&self) -> String {
        let header =
            ["case", "rounds", "failed", "results", "errors", "aggregated", "longest op s", "longest round s"];
        let rows = self.cases.iter().map(|summary| {
            [
                summary.case.clone(),
                summary.rounds.to_string(),
                summary.failed.to_string(),
                group_digits(summary.results),
                group_digits(summary.errors),
                group_digits(summary.aggregated),
                format!("{:.2}", summary.longest_operation_seconds),
                format!("{:.1}", summary.longest_round_seconds),
            ]
        });
        let mut text = format_table(&with_header(header, rows));
        text += &format!(
            "\n{} rounds in {:.0} s: {} results checked bit by bit, {} errors compared between ranks\n",
            group_digits(self.rounds),
            self.seconds,
            group_digits(self.results),
            group_digits(self.errors)
        );
        if self.failed_rounds == 0 {
            return text + "no violations\n";
        }
        text += &format!("{} of {} rounds FAILED\n", self.failed_rounds, self.rounds);
        for failure in &self.failures {
            text += &format!("\n{}\n  {}\n", failure.replay, failure.plan);
            for violation in failure.violations.iter().take(MAX_LISTED_VIOLATIONS) {
                text += &format!("  {violation}\n");
            }
        }
        text
    }
}
