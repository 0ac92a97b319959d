//! Messages that the user matches (P-118), and lent memory.

use std::sync::{Arc, Mutex};

use units::Rank;

use super::harness::{MessagingHarness, bytes};
use crate::LentBytes;
use crate::messaging::{
    LentBytesMut, MessageArrival, MessageCompletion, MessageMatching, MessagePostError, MessagingEndpoint,
    MessagingSettings, PeerLossCause, RailIndex,
};

const A: Rank = Rank(0);
const B: Rank = Rank(1);

#[derive(Debug)]
struct SendLoan(Vec<u8>);

impl LentBytes for SendLoan {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns its bytes when the loan ends.
#[derive(Debug)]
struct ReceiveLoan {
    bytes: Vec<u8>,
    home: Arc<Mutex<Option<Vec<u8>>>>,
}

impl LentBytesMut for ReceiveLoan {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for ReceiveLoan {
    fn drop(&mut self) {
        *self.home.lock().expect("one thread") = Some(std::mem::take(&mut self.bytes));
    }
}

fn harness(rails: u8, settings: MessagingSettings) -> MessagingHarness {
    let mut harness = MessagingHarness::new(settings, 2, rails, 1);
    for rank in [A, B] {
        let endpoint = harness.endpoint(rank);
        let old = std::mem::replace(endpoint, MessagingEndpoint::new(settings));
        *endpoint = old.with_matching(MessageMatching::ByUser);
    }
    harness
}

fn arrivals(harness: &mut MessagingHarness) -> Vec<MessageArrival> {
    harness.run();
    std::iter::from_fn(|| harness.endpoint(B).poll_arrival()).collect()
}

fn send_lent(harness: &mut MessagingHarness, tag: u64, note: u128, data: Vec<u8>) -> Arc<dyn LentBytes> {
    let (now, loan): (_, Arc<dyn LentBytes>) = (harness.now, Arc::new(SendLoan(data)));
    harness.endpoint(A).send_lent(now, B, (tag, note), Arc::clone(&loan)).expect("posted");
    harness.execute_actions(A);
    loan
}

#[test]
fn messages_are_passed_up_in_order_and_accepted_in_any() {
    let mut harness = harness(2, MessagingSettings::default());
    harness.corruption.one_in = 5;
    harness.corruption.bits = 1;
    let lengths = [0, 8, 1_000, 100_000, 16_384, 40_000];
    let mut loans = Vec::new();
    for (tag, length) in lengths.into_iter().enumerate() {
        let data = bytes(tag as u64, length);
        if length > 16_384 {
            loans.push(send_lent(&mut harness, tag as u64, 1 << 100 | tag as u128, data));
        } else {
            harness.send(A, B, tag as u64, data);
        }
    }
    let found = arrivals(&mut harness);
    assert_eq!(found.iter().map(MessageArrival::tag).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(found.iter().map(|arrival| arrival.length() as usize).collect::<Vec<_>>(), lengths);
    let mut homes = Vec::new();
    for arrival in found.into_iter().rev() {
        let (now, tag, length) = (harness.now, arrival.tag(), arrival.length() as usize);
        match arrival.note() {
            None => {
                let data = harness.endpoint(B).accept_eager(now, arrival).expect("intact");
                assert!(data == bytes(tag, length));
            }
            Some(note) => {
                assert_eq!(note, 1 << 100 | u128::from(tag));
                let home = Arc::new(Mutex::new(None));
                let loan = Box::new(ReceiveLoan { bytes: vec![0; length], home: Arc::clone(&home) });
                harness.endpoint(B).accept_transfer(now, arrival, loan).expect("posted");
                homes.push((tag, length, home));
            }
        }
        harness.execute_actions(B);
    }
    harness.drain();
    for (tag, length, home) in homes {
        assert!(home.lock().expect("one thread").as_ref() == Some(&bytes(tag, length)), "tag {tag}");
    }
    let sent = harness.completions.iter().filter(|(rank, _)| *rank == A).count();
    assert_eq!(sent, lengths.len());
    drop(harness);
    assert!(loans.iter().all(|loan| Arc::strong_count(loan) == 1), "no packet refers to the memory");
}

/// Lent memory is sent by a rendezvous even if it is short or empty: the sender learns that it was received.
#[test]
fn a_short_loan_completes_when_it_is_accepted_or_discarded() {
    for (length, accepts) in [(0, true), (5, true), (5, false), (70_000, false)] {
        let mut harness = harness(1, MessagingSettings::default());
        send_lent(&mut harness, 1, 9, bytes(1, length));
        let arrival = arrivals(&mut harness).pop().expect("one");
        assert!(harness.completions.is_empty(), "nobody has decided");
        let now = harness.now;
        if accepts {
            let loan = ReceiveLoan { bytes: vec![0; length], home: Arc::default() };
            harness.endpoint(B).accept_transfer(now, arrival, Box::new(loan)).expect("posted");
        } else {
            harness.endpoint(B).discard(now, arrival);
        }
        harness.execute_actions(B);
        harness.run();
        let sent = |(rank, completion): &(Rank, MessageCompletion)| {
            *rank == A && matches!(completion, MessageCompletion::Sent { .. })
        };
        assert!(harness.completions.iter().any(sent), "{length} bytes, accepted: {accepts}");
    }
}

#[test]
fn unaccepted_messages_keep_their_credit() {
    let settings = MessagingSettings { credit_bytes: 80_000, ..MessagingSettings::default() };
    let mut harness = harness(1, settings);
    for number in 0..40 {
        harness.send(A, B, number, bytes(number, 8_000));
    }
    let mut waiting = arrivals(&mut harness);
    assert!(waiting.len() < 10, "{} messages exceed the credit", waiting.len());
    let mut seen = Vec::new();
    while !waiting.is_empty() {
        for arrival in waiting.drain(..) {
            seen.push(arrival.tag());
            let now = harness.now;
            harness.endpoint(B).accept_eager(now, arrival).expect("intact");
            harness.execute_actions(B);
        }
        waiting = arrivals(&mut harness);
    }
    assert!(seen.into_iter().eq(0..40));
}

#[test]
fn a_long_message_of_a_lost_peer_is_not_accepted() {
    let mut harness = harness(1, MessagingSettings::default());
    send_lent(&mut harness, 1, 0, bytes(1, 50_000));
    let arrival = arrivals(&mut harness).pop().expect("one");
    harness.cut(B, A, RailIndex(0));
    let now = harness.now;
    let loan = Box::new(ReceiveLoan { bytes: vec![0; 50_000], home: Arc::default() });
    let refused = harness.endpoint(B).accept_transfer(now, arrival, loan).expect_err("it never comes");
    assert_eq!(refused, MessagePostError::Lost(A, PeerLossCause::Unreachable));
}
