//! Judges a round: every result and every error at every rank.
//!
//! In: the plan, and what each rank reported. Out: violations. The judge has its own expected values (`workload.rs`) and its own view of
//! who must name whom; it shares no code with the product.

use std::collections::BTreeMap;

use super::plan::{ChaosPlan, ExpectedOutcome, RankSet};
use super::rank::AfterLoss;
use super::rank_report::{ChaosRankReport, ReportedError};
use super::workload::{OperationName, digest};

/// What is known about a rank.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct RankLog {
    pub reports: Vec<ChaosRankReport>,
    /// Lines that are no reports.
    pub malformed_lines: Vec<String>,
    pub end: RankEnd,
}

/// How a rank ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RankEnd {
    /// By itself, with success.
    Exited,
    /// As the plan says.
    Killed,
    /// It had not returned in time; where it was.
    Hung(String),
    /// Otherwise; how.
    Died(String),
}

/// What the judge found.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct RoundVerdict {
    pub violations: Vec<String>,
    /// Results compared with the expected bits.
    pub results: u64,
    /// Errors compared with those of other ranks.
    pub errors: u64,
    /// Operations that aggregation nodes reduced.
    pub aggregated: u64,
    /// The longest operation, from call to return.
    pub longest_micros: u64,
}

struct RoundJudge<'a> {
    plan: &'a ChaosPlan,
    logs: &'a [RankLog],
    verdict: RoundVerdict,
    /// The ranks of each communicator, by generation.
    members: Vec<Vec<u32>>,
}

/// Judges a round.
pub(super) fn judge(plan: &ChaosPlan, logs: &[RankLog]) -> RoundVerdict {
    let members = vec![(0..plan.shape.ranks()).collect()];
    let mut judge = RoundJudge { plan, logs, verdict: RoundVerdict::default(), members };
    judge.check_ends();
    judge.check_members();
    judge.check_results();
    judge.check_stop_polls();
    judge.check_outcome();
    judge.verdict
}

impl RoundJudge<'_> {
    fn violation(&mut self, what: String) {
        self.verdict.violations.push(what);
    }

    fn ranks(&self) -> RankSet {
        (0..self.plan.shape.ranks()).collect()
    }

    fn check_ends(&mut self) {
        for (rank, log) in self.logs.iter().enumerate() {
            match &log.end {
                RankEnd::Exited | RankEnd::Killed => {}
                RankEnd::Hung(where_it_was) => self.violation(format!("rank {rank} hangs: {where_it_was}")),
                RankEnd::Died(how) => self.violation(format!("rank {rank} {how}")),
            }
            // A rank that is killed may leave half a line.
            if let (Some(line), true) = (log.malformed_lines.first(), log.end != RankEnd::Killed) {
                self.violation(format!("rank {rank} printed {line:?}"));
            }
        }
    }

    /// All ranks of a new communicator must have the same list of its members.
    fn check_members(&mut self) {
        for (rank, log) in self.logs.iter().enumerate() {
            for report in &log.reports {
                let ChaosRankReport::Shrunk { generation, members, .. } = report else { continue };
                match self.members.get(*generation as usize) {
                    None => self.members.push(members.clone()),
                    Some(known) if known == members => {}
                    Some(known) => {
                        let what = format!(
                            "rank {rank} shrank to {members:?}, others to {known:?} (generation {generation})"
                        );
                        self.verdict.violations.push(what);
                    }
                }
            }
        }
    }

    fn check_results(&mut self) {
        let logs = self.logs;
        // Digests of results that all ranks share.
        let mut shared: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for (rank, log) in (0u32..).zip(logs) {
            for report in &log.reports {
                match report {
                    ChaosRankReport::Result { generation, index, digest, micros, .. } => {
                        self.verdict.longest_micros = self.verdict.longest_micros.max(*micros);
                        self.check_result(rank, (*generation, *index), *digest, &mut shared);
                    }
                    ChaosRankReport::Failed { micros, .. } => {
                        self.verdict.longest_micros = self.verdict.longest_micros.max(*micros);
                    }
                    ChaosRankReport::Finished { aggregated } => self.verdict.aggregated += aggregated,
                    _ => {}
                }
            }
        }
    }

    fn check_result(
        &mut self,
        rank: u32,
        (generation, index): (u32, u64),
        found: u64,
        shared: &mut BTreeMap<(u32, u64), u64>,
    ) {
        self.verdict.results += 1;
        let name = OperationName { seed: self.plan.seed, generation, index };
        let Some(members) = self.members.get(generation as usize) else {
            return self
                .violation(format!("rank {rank} has a result of generation {generation}, which nobody formed"));
        };
        let Some(position) = members.iter().position(|member| *member == rank) else {
            return self
                .violation(format!("rank {rank} is not a member of generation {generation}, but has a result"));
        };
        let operation = name.operation(members.len());
        let compute = || digest(&name.expected(operation, members, position));
        let expected = if operation.collective.has_one_result() {
            *shared.entry((generation, index)).or_insert_with(compute)
        } else {
            compute()
        };
        if found != expected {
            let what =
                format!("WRONG RESULT at rank {rank}: operation {index} of generation {generation}, {operation:?}");
            self.violation(what);
        }
    }

    /// All ranks must hear the same.
    fn check_stop_polls(&mut self) {
        let mut said: BTreeMap<(u32, u64), (u32, bool)> = BTreeMap::new();
        for (rank, log) in (0u32..).zip(self.logs) {
            for report in &log.reports {
                let ChaosRankReport::Result { generation, index, is_end: Some(is_end), .. } = report else {
                    continue;
                };
                let (first, known) = *said.entry((*generation, *index)).or_insert((rank, *is_end));
                if known != *is_end {
                    let what = format!(
                        "WRONG RESULT: stop poll {index} of generation {generation} said {known} to rank {first}, \
                         {is_end} to rank {rank}"
                    );
                    self.verdict.violations.push(what);
                }
            }
        }
    }

    fn check_outcome(&mut self) {
        match &self.plan.expectation {
            ExpectedOutcome::Completes => self.check_completion(),
            ExpectedOutcome::RanksLost(lost) => self.check_survivors(lost),
            ExpectedOutcome::Divided { smaller } => {
                self.check_survivors(smaller);
                self.check_cut_off(smaller);
            }
            ExpectedOutcome::OneWay { suspects } => self.check_one_way(suspects),
            ExpectedOutcome::CannotJoin { because } => self.check_join_failures(because),
            ExpectedOutcome::CompletesOrCannotJoin => {
                let is_failure = |report: &ChaosRankReport| matches!(report, ChaosRankReport::JoinFailed { .. });
                if self.logs.iter().any(|log| log.reports.iter().any(is_failure)) {
                    self.check_join_failures("");
                } else {
                    self.check_completion();
                }
            }
        }
    }

    fn check_completion(&mut self) {
        for rank in self.ranks() {
            if let Some((generation, error)) = self.errors_of(rank).first() {
                self.violation(format!(
                    "rank {rank} failed although nothing was lost: {error} (generation {generation})"
                ));
            } else if !self.has_finished(rank) {
                self.violation(format!("rank {rank} did not finish; its last report: {}", self.last_report(rank)));
            }
        }
    }

    /// All ranks that are left name the same ranks, and only lost ones, communicator by communicator.
    fn check_survivors(&mut self, lost: &RankSet) {
        let survivors: Vec<u32> = self.ranks().difference(lost).copied().collect();
        let mut named = RankSet::new();
        for generation in 0..self.members.len() as u32 {
            let mut agreed: Option<(u32, ReportedError)> = None;
            for rank in &survivors {
                let error =
                    self.errors_of(*rank).into_iter().find(|(of, _)| *of == generation).map(|(_, error)| error);
                let Some(error) = error else { continue };
                self.verdict.errors += 1;
                match (&agreed, &error) {
                    (Some((first, known)), _) if *known != error => {
                        let what = format!("ranks disagree: rank {first} says \"{known}\", rank {rank} \"{error}\"");
                        self.verdict.violations.push(what);
                    }
                    (Some(_), _) => {}
                    (None, ReportedError::RanksLost { ranks }) if ranks.iter().all(|rank| lost.contains(rank)) => {
                        named.extend(ranks);
                        agreed = Some((*rank, error));
                    }
                    (None, _) => {
                        let what = format!("rank {rank}: \"{error}\", but ranks {lost:?} are lost");
                        self.verdict.violations.push(what);
                        agreed = Some((*rank, error));
                    }
                }
            }
        }
        self.check_survivors_end(&survivors, &named, lost);
    }

    fn check_survivors_end(&mut self, survivors: &[u32], named: &RankSet, lost: &RankSet) {
        for rank in survivors {
            if self.errors_of(*rank).is_empty() {
                let last = self.last_report(*rank);
                self.violation(format!(
                    "rank {rank} was not told that ranks {lost:?} are lost; its last report: {last}"
                ));
            } else if self.plan.after_loss == AfterLoss::Shrink && !self.has_finished(*rank) {
                let last = self.last_report(*rank);
                self.violation(format!(
                    "rank {rank} did not go on with the ranks that are left; its last report: {last}"
                ));
            }
        }
        if self.plan.after_loss == AfterLoss::Shrink && named != lost {
            self.violation(format!("ranks {lost:?} are lost, but only {named:?} were named"));
        }
    }

    /// The smaller side is told, and all its ranks hear the same.
    fn check_cut_off(&mut self, smaller: &RankSet) {
        let larger: Vec<u32> = self.ranks().difference(smaller).copied().collect();
        for rank in smaller {
            self.verdict.errors += 1;
            match self.errors_of(*rank).first() {
                Some((_, ReportedError::CutOff { ranks })) if *ranks == larger => {}
                Some((_, error)) => {
                    let what = format!("rank {rank} is cut off from ranks {larger:?}, but is told: {error}");
                    self.violation(what);
                }
                None => {
                    let last = self.last_report(*rank);
                    self.violation(format!("rank {rank} is cut off and was not told; its last report: {last}"));
                }
            }
        }
    }

    /// All ranks get one error about the suspects. If these are named as lost, they may be told that they are cut off.
    fn check_one_way(&mut self, suspects: &RankSet) {
        let mut agreed: Option<(u32, ReportedError)> = None;
        for rank in self.ranks() {
            let Some((_, error)) = self.errors_of(rank).into_iter().next() else {
                let last = self.last_report(rank);
                self.violation(format!(
                    "rank {rank} was not told that ranks {suspects:?} do not answer; last report: {last}"
                ));
                continue;
            };
            self.verdict.errors += 1;
            let is_fit = match &error {
                // No rank is lost to itself.
                ReportedError::RanksLost { ranks } => {
                    ranks.iter().all(|lost| *lost != rank && suspects.contains(lost))
                }
                ReportedError::Unreachable { from, to } => suspects.contains(from) || suspects.contains(to),
                ReportedError::CutOff { .. } => suspects.contains(&rank),
                ReportedError::Other { .. } => false,
            };
            if !is_fit {
                self.violation(format!("rank {rank}: \"{error}\", but only packets of ranks {suspects:?} are lost"));
            }
            if suspects.contains(&rank) && matches!(error, ReportedError::CutOff { .. }) {
                continue;
            }
            match &agreed {
                Some((first, known)) if *known != error => {
                    self.violation(format!("ranks disagree: rank {first} says \"{known}\", rank {rank} \"{error}\""));
                }
                Some(_) => {}
                None => agreed = Some((rank, error)),
            }
        }
    }

    fn check_join_failures(&mut self, because: &str) {
        let mut reasons = Vec::new();
        for (rank, log) in self.logs.iter().enumerate() {
            self.verdict.errors += 1;
            let mut reports = log.reports.iter();
            let failure = reports.find_map(|report| match report {
                ChaosRankReport::JoinFailed { millis, why } => Some((*millis, why.clone())),
                // It had joined already: its part needed nothing of the rank that cannot.
                ChaosRankReport::Failed { error: ReportedError::Other { what }, micros, .. }
                    if what.contains("cannot join: ") && !what.contains("internal error") =>
                {
                    Some((*micros / 1_000, what.clone()))
                }
                _ => None,
            });
            match failure {
                Some((millis, why)) => reasons.push((rank, millis, why)),
                None => {
                    let last = self.last_report(rank as u32);
                    self.verdict
                        .violations
                        .push(format!("rank {rank} was not told why others cannot join; its last report: {last}"));
                }
            }
        }
        for (rank, millis, why) in &reasons {
            if *millis > LOCAL_CAUSE_MILLIS {
                self.violation(format!("rank {rank} was told only after {millis} ms: {why}"));
            }
        }
        if !reasons.iter().any(|(_, _, why)| why.contains(because)) {
            self.violation(format!("no rank says \"{because}\": {reasons:?}"));
        }
    }

    /// Errors of a rank, with the generation of each.
    fn errors_of(&self, rank: u32) -> Vec<(u32, ReportedError)> {
        let failed = |report: &ChaosRankReport| match report {
            ChaosRankReport::Failed { generation, error, .. } => Some((*generation, error.clone())),
            ChaosRankReport::ShrinkFailed { generation, why } => {
                Some((*generation + 1, ReportedError::Other { what: format!("shrink failed: {why}") }))
            }
            ChaosRankReport::JoinFailed { why, .. } => {
                Some((0, ReportedError::Other { what: format!("join failed: {why}") }))
            }
            _ => None,
        };
        self.logs[rank as usize].reports.iter().filter_map(failed).collect()
    }

    fn has_finished(&self, rank: u32) -> bool {
        matches!(self.logs[rank as usize].reports.last(), Some(ChaosRankReport::Finished { .. }))
    }

    fn last_report(&self, rank: u32) -> String {
        self.logs[rank as usize].reports.last().map_or_else(|| "none".to_owned(), |report| format!("{report:?}"))
    }
}

/// A cause on one host is told to all ranks within this time.
const LOCAL_CAUSE_MILLIS: u64 = 20_000;

#[cfg(test)]
mod tests;
