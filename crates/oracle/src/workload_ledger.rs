//! The ledger of a run of several groups: one [`Ledger`] for each operation, and what only shows in the whole.
//!
//! In: the events of every rank of every group, and what is left at the end. Out: a [`WorkloadVerdict`].
//!
//! Rules, besides those of a ledger:
//! - Ranks that fail an operation name the same cause.
//! - A result that is computed again has the same bits.
//! - An operation that starts after the last fault completes at every rank.
//! - When all operations are over, nothing is left: no slot, no buffer, no frame, no credit.

use std::fmt;

use units::{OpId, Rank};

use crate::ledger::{Expectation, Ledger};
use crate::verdict::{Violation, push_bounded};

/// One operation of one group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OperationPlace {
    /// The group.
    pub group: usize,
    /// Its position among the operations of the group.
    pub operation: usize,
}

/// What is wrong with a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkloadViolation {
    /// An operation of a group; the operation that the violation names is the segment.
    Operation {
        /// The operation.
        place: OperationPlace,
        /// What is wrong.
        violation: Violation,
    },
    /// Two ranks failed the same operation for different causes.
    CausesDiffer {
        /// The operation.
        place: OperationPlace,
        /// The rank that failed later.
        rank: Rank,
        /// Its cause.
        cause: String,
        /// The rank that failed first.
        first: Rank,
        /// That rank's cause.
        first_cause: String,
    },
    /// An operation did not end in time, or nothing could end it any more.
    Hung {
        /// The operation.
        place: OperationPlace,
    },
    /// An operation never started, because an earlier one did not end.
    NeverStarted {
        /// The operation.
        place: OperationPlace,
    },
    /// The run was stopped because packets multiplied.
    PacketStorm {
        /// How many times a packet crossed a link until then.
        hops: u64,
    },
    /// Something is left after the end.
    Leak {
        /// What.
        what: String,
        /// How much of it.
        count: u64,
    },
}

/// The verdict on a run of several groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WorkloadVerdict {
    /// The first [`MAX_LISTED`](crate::MAX_LISTED) violations.
    pub violations: Vec<WorkloadViolation>,
    /// The number of further violations.
    pub unlisted_violations: u64,
    /// Results compared with a reference.
    pub checked: u64,
    /// Results without bits, or compared only among ranks.
    pub cross_checked: u64,
    /// Operations that failed at a rank, with a cause.
    pub failed: u64,
    /// Operations that were judged.
    pub operations: u64,
}

struct OperationRecord {
    ledger: Ledger,
    first_failure: Option<(Rank, String)>,
}

/// The state needed to judge a run of several groups.
#[derive(Default)]
pub struct WorkloadLedger {
    groups: Vec<Vec<Option<OperationRecord>>>,
    hung: Option<OperationPlace>,
    has_storm: bool,
    verdict: WorkloadVerdict,
}

impl WorkloadLedger {
    /// An empty ledger for groups with so many operations each.
    pub fn new(operations: &[usize]) -> Self {
        let records = |count: &usize| std::iter::repeat_with(|| None).take(*count).collect();
        Self { groups: operations.iter().map(records).collect(), ..Self::default() }
    }

    /// An operation of so many ranks starts, in so many segments.
    pub fn begin(&mut self, place: OperationPlace, ranks: u32, segments: u32, expectation: Expectation) {
        let ledger = Ledger::new(ranks, segments, expectation);
        self.groups[place.group][place.operation] = Some(OperationRecord { ledger, first_failure: None });
    }

    /// The ledger of an operation; its operations are the segments.
    ///
    /// # Panics
    /// If the operation has not started: a defect of the caller.
    pub fn operation(&mut self, place: OperationPlace) -> &mut Ledger {
        &mut self.record(place).ledger
    }

    /// Records that a segment failed at `rank`, and why.
    pub fn record_failure(&mut self, place: OperationPlace, rank: Rank, segment: OpId, cause: String) {
        let record = self.record(place);
        record.ledger.record_failure(rank, segment, cause.clone());
        let (first, first_cause) = record.first_failure.get_or_insert((rank, cause.clone())).clone();
        if first_cause != cause {
            self.add(WorkloadViolation::CausesDiffer { place, rank, cause, first, first_cause });
        }
    }

    /// Records that the run was stopped because this operation hung.
    pub fn record_hang(&mut self, place: OperationPlace) {
        self.hung = Some(place);
        self.verdict.violations.insert(0, WorkloadViolation::Hung { place });
    }

    /// Records that the run was stopped after so many packet hops.
    pub fn record_storm(&mut self, hops: u64) {
        self.has_storm = true;
        self.verdict.violations.insert(0, WorkloadViolation::PacketStorm { hops });
    }

    /// Records that so much of something is left after the end.
    pub fn record_leftover(&mut self, what: &str, count: u64) {
        if count > 0 {
            self.add(WorkloadViolation::Leak { what: what.to_owned(), count });
        }
    }

    /// Ends the run.
    pub fn judge(self) -> WorkloadVerdict {
        let mut verdict = self.verdict;
        for (group, records) in self.groups.into_iter().enumerate() {
            for (operation, record) in records.into_iter().enumerate() {
                let place = OperationPlace { group, operation };
                // When one group hangs, the run stops before the others are done; when packets multiply, before any is.
                let was_stopped = self.has_storm || self.hung.is_some_and(|hung| hung.group != group);
                match record {
                    None if was_stopped => {}
                    None => verdict.add(WorkloadViolation::NeverStarted { place }),
                    Some(record) => verdict.absorb(place, record, was_stopped),
                }
            }
        }
        verdict
    }

    fn record(&mut self, place: OperationPlace) -> &mut OperationRecord {
        self.groups[place.group][place.operation].as_mut().expect("the operation has started")
    }

    fn add(&mut self, violation: WorkloadViolation) {
        self.verdict.add(violation);
    }
}

impl WorkloadVerdict {
    /// Whether there is no violation.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    fn add(&mut self, violation: WorkloadViolation) {
        push_bounded(&mut self.violations, &mut self.unlisted_violations, violation);
    }

    fn absorb(&mut self, place: OperationPlace, record: OperationRecord, was_stopped: bool) {
        let mut of_operation = record.ledger.judge();
        if was_stopped {
            of_operation.violations.retain(|violation| !matches!(violation, Violation::NeverDelivered { .. }));
        }
        self.operations += 1;
        self.checked += of_operation.checked;
        self.cross_checked += of_operation.cross_checked;
        self.failed += of_operation.failed;
        self.unlisted_violations += of_operation.unlisted_violations;
        for violation in of_operation.violations {
            self.add(WorkloadViolation::Operation { place, violation });
        }
    }
}

impl fmt::Display for OperationPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}, operation {}", self.group, self.operation)
    }
}

impl fmt::Display for WorkloadViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation { place, violation } => write!(f, "{place}, segment {violation}"),
            Self::CausesDiffer { place, rank, cause, first, first_cause } => {
                write!(f, "{place}: {rank} failed because {cause}, but {first} because {first_cause}")
            }
            Self::Hung { place } => write!(f, "{place}: neither completed nor failed in time"),
            Self::PacketStorm { hops } => write!(f, "packets multiply: stopped after {hops} packet hops"),
            Self::NeverStarted { place } => write!(f, "{place}: never started, because an earlier one did not end"),
            Self::Leak { what, count } => write!(f, "{count} {what} left after the end"),
        }
    }
}

impl fmt::Display for WorkloadVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let violations = self.violations.len() as u64 + self.unlisted_violations;
        write!(f, "{violations} violations in {} operations", self.operations)?;
        self.violations.iter().try_for_each(|violation| write!(f, "\n  {violation}"))?;
        if self.unlisted_violations > 0 {
            write!(f, "\n  and {} more", self.unlisted_violations)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: OperationPlace = OperationPlace { group: 0, operation: 0 };

    fn two_ranks(expectation: Expectation) -> WorkloadLedger {
        let mut ledger = WorkloadLedger::new(&[1]);
        ledger.begin(PLACE, 2, 1, expectation);
        ledger
    }

    #[test]
    fn a_run_that_was_stopped_because_packets_multiply_has_that_violation_alone() {
        let mut ledger = WorkloadLedger::new(&[2, 1]);
        ledger.begin(PLACE, 2, 1, Expectation::MustComplete);
        ledger.record_storm(7);
        let verdict = ledger.judge();
        assert_eq!(verdict.violations, [WorkloadViolation::PacketStorm { hops: 7 }], "{verdict}");
    }

    #[test]
    fn a_run_in_which_all_ranks_deliver_is_clean() {
        let mut ledger = two_ranks(Expectation::MustComplete);
        for rank in [Rank(0), Rank(1)] {
            ledger.operation(PLACE).record_delivery(rank, OpId(0), &[1, 2]);
        }
        let verdict = ledger.judge();
        assert!(verdict.is_clean() && verdict.operations == 1, "{verdict}");
    }

    #[test]
    fn ranks_must_name_the_same_cause() {
        let mut ledger = two_ranks(Expectation::MayFail);
        ledger.record_failure(PLACE, Rank(0), OpId(0), "host 3 is gone".to_owned());
        ledger.record_failure(PLACE, Rank(1), OpId(0), "host 4 is gone".to_owned());
        let verdict = ledger.judge();
        assert!(matches!(verdict.violations[..], [WorkloadViolation::CausesDiffer { .. }]), "{verdict}");
    }

    #[test]
    fn what_is_left_and_what_never_started_are_violations() {
        let mut ledger = WorkloadLedger::new(&[1]);
        ledger.record_leftover("slots", 0);
        ledger.record_leftover("credits", 3);
        let text = ledger.judge().to_string();
        assert!(
            text.contains("3 credits left") && text.contains("never started") && !text.contains("slots"),
            "{text}"
        );
    }

    #[test]
    fn an_operation_that_hangs_is_named_even_if_all_have_its_result_and_others_are_not_blamed() {
        let mut ledger = WorkloadLedger::new(&[1, 2]);
        for group in [0, 1] {
            ledger.begin(OperationPlace { group, operation: 0 }, 2, 1, Expectation::MustComplete);
        }
        for rank in [Rank(0), Rank(1)] {
            ledger.operation(PLACE).record_delivery(rank, OpId(0), &[1, 2]);
        }
        ledger.record_hang(PLACE);
        let verdict = ledger.judge();
        assert_eq!(verdict.violations, [WorkloadViolation::Hung { place: PLACE }], "{verdict}");
    }

    #[test]
    fn a_result_that_is_computed_again_must_have_the_same_bits() {
        let mut ledger = two_ranks(Expectation::MustComplete);
        for rank in [Rank(0), Rank(1)] {
            ledger.operation(PLACE).record_delivery(rank, OpId(0), &[1, 2]);
        }
        ledger.operation(PLACE).record_recomputation(Rank(0), OpId(0), &[1, 3], (&[1, 2], 1));
        assert!(ledger.judge().to_string().contains("element 1 is 0x03"));
    }
}
