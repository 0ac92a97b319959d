//! What a soak found.

use serde::{Serialize, Serializer};

use super::run::SoakOutcome;
use crate::number_format::group_digits;

/// The most failing seeds that are listed.
const MAX_LISTED_SEEDS: usize = 10;

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
    /// How many times a packet crossed a link.
    pub hops: u64,
    /// The most of them in one seed.
    pub most_hops: u64,
    /// The seed that has the most.
    pub busiest_seed: u64,
    /// Trees that failed, whose operations the hosts finished.
    pub failed_trees: u64,
    /// Operations that wanted a tree while none could be placed around what was down; the hosts did them.
    pub operations_without_tree: u64,
    /// The digest of all events of all seeds, in hexadecimal: two soaks are the same if and only if it is the same.
    #[serde(serialize_with = "as_hexadecimal")]
    pub trace: u64,
    /// How many seeds failed.
    pub failed_seeds: u64,
    /// The first of them, by seed.
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
    /// Whether the limit of trials was reached before nothing more could be removed.
    pub may_be_smaller: bool,
    /// The case, as `pleach soak --case` reads it.
    pub case: String,
}

fn as_hexadecimal<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:016x}"))
}

impl SoakReport {
    /// Adds the outcome of a seed, in any order.
    pub(super) fn add(&mut self, seed: u64, outcome: &SoakOutcome, failure: Option<FailedSeed>) {
        self.operations += outcome.verdict.operations;
        self.results_checked += outcome.verdict.checked;
        self.results_failed += outcome.verdict.failed;
        self.faulty_packets += outcome.faulty_packets;
        self.hops += outcome.hops;
        (self.most_hops, self.busiest_seed) = (self.most_hops, self.busiest_seed).max((outcome.hops, seed));
        self.failed_trees += u64::from(outcome.failed_trees);
        self.operations_without_tree += u64::from(outcome.operations_without_tree);
        self.trace = self.trace.wrapping_add(units::mix64(seed ^ units::mix64(outcome.trace)));
        self.failed_seeds += u64::from(failure.is_some());
        if let Some(failure) = failure {
            let at = self.failures.partition_point(|earlier| earlier.seed < seed);
            self.failures.insert(at, failure);
            self.failures.truncate(MAX_LISTED_SEEDS);
        }
    }

    /// The report as text.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{} seeds in {:.1} s on {} threads: {} seeds a minute\n\
             {} operations, {} results checked bit by bit, {} failed with the same error everywhere\n\
             {} faulty packets, {} failed trees whose operations the hosts finished, {} operations that found no tree\n\
             {} packet hops, at most {} in one seed ({})\n\
             trace {:016x}\n",
            group_digits(self.seeds),
            self.seconds,
            self.threads,
            group_digits(self.seeds_per_minute as u64),
            group_digits(self.operations),
            group_digits(self.results_checked),
            group_digits(self.results_failed),
            group_digits(self.faulty_packets),
            group_digits(self.failed_trees),
            group_digits(self.operations_without_tree),
            group_digits(self.hops),
            group_digits(self.most_hops),
            self.busiest_seed,
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
            let more = if minimised.may_be_smaller { " (more might make it smaller still)" } else { "" };
            text.push_str(&format!("\nThe first of them, made smaller in {} trials{more}:\n", minimised.trials));
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
