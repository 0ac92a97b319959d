//! What a soak found.

use serde::Serialize;

use crate::number_format::group_digits;

/// The most failing seeds that are listed.
pub(super) const MAX_LISTED_SEEDS: usize = 10;

/// What a soak found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SoakReport {
    /// The first seed; none if a file was replayed.
    pub first_seed: Option<u64>,
    /// Seeds that ran.
    pub seeds: u64,
    /// Threads.
    pub threads: usize,
    /// How long it took.
    pub seconds: f64,
    /// Seeds in a minute.
    pub seeds_per_minute: f64,
    /// Operations that were judged.
    pub operations: u64,
    /// Results compared with the oracle's reference, bit by bit.
    pub results_checked: u64,
    /// Results that ranks did not get because hosts could not reach each other.
    pub results_failed: u64,
    /// Packets that faults damaged, lost or duplicated.
    pub faulty_packets: u64,
    /// Trees that failed, whose operations the hosts finished.
    pub failed_trees: u64,
    /// The digest of all events of all seeds: two soaks are the same if and only if it is the same.
    pub trace: String,
    /// How many seeds failed.
    pub failed_seeds: u64,
    /// The first of them.
    pub failures: Vec<FailedSeed>,
    /// The first failing case, made as small as possible.
    pub minimised: Option<MinimisedCase>,
}

/// A seed that failed.
#[derive(Clone, Debug, Serialize)]
pub struct FailedSeed {
    /// The seed.
    pub seed: u64,
    /// What is wrong.
    pub problems: Vec<String>,
    /// The command that replays it.
    pub replay: String,
}

/// A failing case that was made smaller.
#[derive(Clone, Debug, Serialize)]
pub struct MinimisedCase {
    /// What is wrong with it.
    pub problems: Vec<String>,
    /// Cases that were tried.
    pub trials: u32,
    /// The case, as `pleach soak --case` reads it.
    pub case: String,
}

impl SoakReport {
    /// The report as text.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{} seeds in {:.1} s on {} threads: {} seeds a minute\n\
             {} operations, {} results checked bit by bit, {} failed with the same error everywhere\n\
             {} faulty packets, {} failed trees whose operations the hosts finished\n\
             trace {}\n",
            group_digits(self.seeds),
            self.seconds,
            self.threads,
            group_digits(self.seeds_per_minute as u64),
            group_digits(self.operations),
            group_digits(self.results_checked),
            group_digits(self.results_failed),
            group_digits(self.faulty_packets),
            group_digits(self.failed_trees),
            self.trace,
        );
        if self.failed_seeds == 0 {
            text.push_str("no violations\n");
            return text;
        }
        text.push_str(&format!("{} of {} seeds FAILED\n", group_digits(self.failed_seeds), group_digits(self.seeds)));
        for failure in &self.failures {
            text.push_str(&format!("\n{}\n", failure.replay));
            for problem in failure.problems.iter().take(MAX_LISTED_PROBLEMS) {
                text.push_str(&format!("  {problem}\n"));
            }
        }
        if let Some(minimised) = &self.minimised {
            text.push_str(&format!("\nThe first of them, made smaller in {} trials:\n", minimised.trials));
            for problem in minimised.problems.iter().take(MAX_LISTED_PROBLEMS) {
                text.push_str(&format!("  {problem}\n"));
            }
            text.push_str(&format!("\n{}", minimised.case));
        }
        text
    }
}

/// The most problems of a seed that the text lists.
const MAX_LISTED_PROBLEMS: usize = 5;
