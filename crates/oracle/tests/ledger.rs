//! The ledger accepts a correct run and detects every kind of violation.

use oracle::{
    Expectation, Ledger, MAX_LISTED, PartialFailure, Reduction, ReductionElement, ReductionOperator, ReferenceOrder,
    Verdict, Violation, reference,
};
use units::{OpId, Rank};

const SUM: Reduction = Reduction { element: ReductionElement::F64, operator: ReductionOperator::Sum, count: 4 };
const RANKS: u32 = 3;
const OPS: u32 = 2;

fn result(op: OpId) -> Vec<u8> {
    reference(11, op, &SUM, &ReferenceOrder::flat(RANKS))
}

fn ledger(expectation: Expectation) -> Ledger {
    let mut ledger = Ledger::new(RANKS, OPS, expectation);
    for op in (0..OPS).map(OpId) {
        ledger.set_reference(op, result(op), SUM.element_bytes());
    }
    ledger
}

fn pairs() -> impl Iterator<Item = (Rank, OpId)> {
    (0..OPS).flat_map(|op| (0..RANKS).map(move |rank| (Rank(rank), OpId(op))))
}

/// Delivers everything correctly, except for the given pair.
fn run_without(expectation: Expectation, except: (Rank, OpId)) -> Ledger {
    let mut ledger = ledger(expectation);
    for (rank, op) in pairs().filter(|pair| *pair != except) {
        ledger.record_delivery(rank, op, &result(op));
    }
    ledger
}

const CULPRIT: (Rank, OpId) = (Rank(1), OpId(1));

fn only_violation(verdict: Verdict) -> Violation {
    assert_eq!(verdict.violation_count(), 1, "{verdict}");
    assert!(!verdict.is_clean());
    verdict.violations[0].clone()
}

#[test]
fn a_correct_run_is_clean_and_reports_how_much_was_checked() {
    let mut ledger = ledger(Expectation::MustComplete);
    for (rank, op) in pairs() {
        ledger.record_delivery(rank, op, &result(op));
    }
    let verdict = ledger.judge();
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!((verdict.checked, verdict.cross_checked, verdict.failed), (6, 0, 0));
}

#[test]
fn wrong_bits_are_detected_and_shown() {
    let mut ledger = run_without(Expectation::MayFail, CULPRIT);
    let mut bytes = vec![0; 32];
    bytes.copy_from_slice(&result(CULPRIT.1));
    bytes[16] ^= 1;
    bytes[31] ^= 0x80;
    ledger.record_delivery(CULPRIT.0, CULPRIT.1, &bytes);
    let right = result(CULPRIT.1);
    let violation = only_violation(ledger.judge());
    let (rank, op) = CULPRIT;
    let (expected, got) = (right[16..24].to_vec(), bytes[16..24].to_vec());
    assert_eq!(violation, Violation::WrongBits { rank, op, element: 2, differing: 2, expected, got });
    let text = violation.to_string();
    assert!(text.starts_with("op 1, rank 1: element 2 is 0x") && text.ends_with("; 2 differ"), "{text}");
}

#[test]
fn a_lost_contribution_is_wrong_bits() {
    let mut ledger = Ledger::new(RANKS, 1, Expectation::MustComplete);
    ledger.set_reference(OpId(0), result(OpId(0)), 8);
    let incomplete = reference(11, OpId(0), &SUM, &ReferenceOrder::flat(RANKS - 1));
    (0..RANKS).for_each(|rank| ledger.record_delivery(Rank(rank), OpId(0), &incomplete));
    let verdict = ledger.judge();
    assert_eq!(verdict.violation_count(), u64::from(RANKS));
}

#[test]
fn a_wrong_length_is_detected() {
    let (rank, op) = CULPRIT;
    let mut ledger = run_without(Expectation::MayFail, CULPRIT);
    ledger.record_delivery(rank, op, &result(op)[..24]);
    assert_eq!(only_violation(ledger.judge()), Violation::WrongLength { rank, op, expected: 32, got: 24 });
}

#[test]
fn a_second_delivery_is_detected_even_when_the_operation_is_complete() {
    let (rank, op) = CULPRIT;
    let mut ledger = run_without(Expectation::MayFail, CULPRIT);
    ledger.record_delivery(rank, op, &result(op));
    ledger.record_delivery(rank, op, &result(op));
    assert_eq!(only_violation(ledger.judge()), Violation::DeliveredTwice { rank, op });
}

#[test]
fn a_hang_is_detected_even_where_failing_is_allowed() {
    let (rank, op) = CULPRIT;
    for expectation in [Expectation::MustComplete, Expectation::MayFail] {
        let violation = only_violation(run_without(expectation, CULPRIT).judge());
        assert_eq!(violation, Violation::NeverDelivered { rank, op });
        assert_eq!(violation.to_string(), "op 1, rank 1: neither delivered nor failed");
    }
}

#[test]
fn a_failure_under_transient_faults_is_detected() {
    let (rank, op) = CULPRIT;
    let mut ledger = run_without(Expectation::MustComplete, CULPRIT);
    ledger.record_failure(rank, op, "link lost".into());
    let cause = "link lost".into();
    assert_eq!(only_violation(ledger.judge()), Violation::UnexpectedFailure { rank, op, cause });
}

#[test]
fn a_failure_under_permanent_faults_is_allowed_and_reported() {
    let (rank, op) = CULPRIT;
    let mut ledger = run_without(Expectation::MayFail, CULPRIT);
    ledger.record_failure(rank, op, "node killed".into());
    ledger.record_failure(rank, op, "node killed".into());
    let verdict = ledger.judge();
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(verdict.failed, 1);
    assert_eq!(
        verdict.partial_failures,
        [PartialFailure { op, delivered: 2, failed: 1, cause: "node killed".into() }]
    );
}

#[test]
fn delivering_and_failing_is_detected_in_either_order() {
    let (rank, op) = CULPRIT;
    let both = Violation::DeliveredAndFailed { rank, op, cause: "late".into() };
    let mut ledger = run_without(Expectation::MayFail, CULPRIT);
    ledger.record_failure(rank, op, "late".into());
    ledger.record_delivery(rank, op, &result(op));
    assert_eq!(only_violation(ledger.judge()), both);
    let mut ledger = run_without(Expectation::MayFail, CULPRIT);
    ledger.record_delivery(rank, op, &result(op));
    ledger.record_failure(rank, op, "late".into());
    assert_eq!(only_violation(ledger.judge()), both);
}

#[test]
fn unknown_ranks_and_operations_are_detected() {
    for (rank, op) in [(Rank(RANKS), OpId(0)), (Rank(0), OpId(OPS))] {
        let mut ledger = run_without(Expectation::MayFail, CULPRIT);
        ledger.record_delivery(CULPRIT.0, CULPRIT.1, &result(CULPRIT.1));
        ledger.record_delivery(rank, op, &[]);
        assert_eq!(only_violation(ledger.judge()), Violation::UnknownRankOrOp { rank, op });
    }
}

#[test]
fn without_a_reference_ranks_must_agree() {
    let mut ledger = Ledger::new(RANKS, 1, Expectation::MayFail);
    assert!(ledger.needs_reference(OpId(0)));
    ledger.record_delivery(Rank(2), OpId(0), &[1, 2, 3]);
    assert!(!ledger.needs_reference(OpId(0)));
    ledger.record_delivery(Rank(0), OpId(0), &[1, 2, 3]);
    ledger.record_delivery(Rank(1), OpId(0), &[1, 2, 4]);
    let verdict = ledger.judge();
    assert_eq!((verdict.checked, verdict.cross_checked), (0, 3));
    let disagreement = Violation::Disagreement { rank: Rank(1), first: Rank(2), op: OpId(0), byte: 2 };
    assert_eq!(only_violation(verdict), disagreement);
}

#[test]
fn a_barrier_is_an_operation_of_no_bytes() {
    let mut ledger = Ledger::new(RANKS, 1, Expectation::MustComplete);
    ledger.set_reference(OpId(0), vec![], 1);
    (0..RANKS).for_each(|rank| ledger.record_delivery(Rank(rank), OpId(0), &[]));
    assert!(ledger.judge().is_clean());
}

#[test]
fn a_large_failed_run_lists_a_few_violations_and_counts_the_rest() {
    let (ranks, ops) = (1_728, 1_000);
    let mut ledger = Ledger::new(ranks, ops, Expectation::MustComplete);
    for op in (0..ops).map(OpId) {
        ledger.set_reference(op, vec![0; 256], 8);
        (1..ranks).for_each(|rank| ledger.record_delivery(Rank(rank), op, &[0; 256]));
    }
    let verdict = ledger.judge();
    assert_eq!(verdict.violations.len(), MAX_LISTED);
    assert_eq!(verdict.violation_count(), u64::from(ops));
    assert_eq!(verdict.checked, u64::from(ops) * u64::from(ranks - 1));
    assert!(verdict.to_string().ends_with(&format!("and {} more", u64::from(ops) - MAX_LISTED as u64)));
}
