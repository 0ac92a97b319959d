//! The stream ledger accepts a correct stream and detects every kind of violation.

use oracle::{Expectation, StreamLedger, StreamVerdict, StreamViolation};
use proptest::prelude::*;

/// Sends `a`, `b`, `c`, …, delivers the given letters, and returns the verdict.
fn judge(sent: &str, delivered: &str) -> StreamVerdict {
    ledger(Expectation::MustComplete, sent, delivered).judge()
}

fn ledger(expectation: Expectation, sent: &str, delivered: &str) -> StreamLedger {
    let mut ledger = StreamLedger::new(expectation);
    for (number, letter) in sent.bytes().enumerate() {
        assert_eq!(ledger.record_sent(&[letter]), number as u64);
    }
    delivered.bytes().for_each(|letter| ledger.record_delivery(&[letter]));
    ledger
}

#[test]
fn a_correct_stream_is_clean() {
    let verdict = judge("abcabc", "abcabc");
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(verdict.checked, 6);
}

#[test]
fn lost_messages_are_detected() {
    assert_eq!(judge("abcd", "acd").violations, [StreamViolation::Lost { message: 1 }]);
    assert_eq!(judge("abcd", "abc").violations, [StreamViolation::Lost { message: 3 }]);
    assert_eq!(judge("aba", "ba").violations, [StreamViolation::Lost { message: 0 }]);
}

#[test]
fn duplicated_messages_are_detected() {
    assert_eq!(judge("abc", "abbc").violations, [StreamViolation::Duplicated { message: 1 }]);
    assert_eq!(judge("aa", "aaa").violations, [StreamViolation::Duplicated { message: 0 }]);
}

#[test]
fn reordered_messages_are_detected() {
    assert_eq!(judge("abcd", "acdb").violations, [StreamViolation::Reordered { message: 1, after: 3 }]);
}

#[test]
fn corrupted_messages_are_detected_and_not_reported_as_lost() {
    assert_eq!(judge("abcd", "axcd").violations, [StreamViolation::Corrupted { message: 1 }]);
    let two = [StreamViolation::Corrupted { message: 1 }, StreamViolation::Corrupted { message: 2 }];
    assert_eq!(judge("abcd", "axyd").violations, two);
    assert_eq!(judge("abcd", "abcx").violations, [StreamViolation::Corrupted { message: 3 }]);
}

#[test]
fn spurious_messages_are_detected() {
    assert_eq!(judge("abc", "axbc").violations, [StreamViolation::Spurious { position: 1 }]);
    assert_eq!(judge("abc", "abcx").violations, [StreamViolation::Spurious { position: 3 }]);
}

#[test]
fn a_failure_under_transient_faults_is_detected() {
    let mut ledger = ledger(Expectation::MustComplete, "ab", "ab");
    ledger.record_failure("retries used up".into());
    let violations = ledger.judge().violations;
    assert_eq!(violations, [StreamViolation::UnexpectedFailure { cause: "retries used up".into() }]);
    assert_eq!(violations[0].to_string(), "failed although all faults were transient (retries used up)");
}

#[test]
fn an_allowed_failure_may_lose_the_end_but_leaves_no_gap() {
    let mut cut = ledger(Expectation::MayFail, "abcd", "ab");
    cut.record_failure("cable pulled".into());
    let verdict = cut.judge();
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(verdict.undelivered_after_failure, 2);
    let mut hole = ledger(Expectation::MayFail, "abcd", "ac");
    hole.record_failure("cable pulled".into());
    assert_eq!(hole.judge().violations, [StreamViolation::Lost { message: 1 }]);
}

#[test]
fn stopping_without_a_failure_is_a_loss_even_where_failing_is_allowed() {
    let verdict = ledger(Expectation::MayFail, "abc", "ab").judge();
    assert_eq!(verdict.violations, [StreamViolation::Lost { message: 2 }]);
}

#[test]
fn messages_that_differ_only_in_length_are_different() {
    let mut ledger = StreamLedger::new(Expectation::MustComplete);
    ledger.record_sent(&[0; 8]);
    ledger.record_delivery(&[0; 9]);
    assert_eq!(ledger.judge().violations, [StreamViolation::Corrupted { message: 0 }]);
}

proptest! {
    #[test]
    fn only_the_same_sequence_is_clean(
        sent in prop::collection::vec(prop::collection::vec(0_u8..3, 0..3), 0..12),
        delivered in prop::collection::vec(prop::collection::vec(0_u8..3, 0..3), 0..12),
        take_sent: bool,
    ) {
        let delivered = if take_sent { sent.clone() } else { delivered };
        let mut ledger = StreamLedger::new(Expectation::MustComplete);
        sent.iter().for_each(|message| { ledger.record_sent(message); });
        delivered.iter().for_each(|message| ledger.record_delivery(message));
        prop_assert_eq!(ledger.judge().is_clean(), sent == delivered);
    }

    #[test]
    fn one_flipped_bit_is_a_corrupted_message(message in prop::collection::vec(any::<u8>(), 1..100), bit: prop::sample::Index) {
        let mut ledger = StreamLedger::new(Expectation::MustComplete);
        ledger.record_sent(&message);
        let mut flipped = message;
        let bit = bit.index(8 * flipped.len());
        flipped[bit / 8] ^= 1 << (bit % 8);
        ledger.record_delivery(&flipped);
        prop_assert_eq!(ledger.judge().violations, [StreamViolation::Corrupted { message: 0 }]);
    }
}
