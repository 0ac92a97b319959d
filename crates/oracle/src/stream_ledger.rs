//! Checks a point-to-point stream: each message exactly once, in order, unaltered.
//!
//! In: every message sent and every message delivered, as bytes. Out: a verdict. The ledger keeps a 128-bit digest of each
//! message. Equal messages are indistinguishable, so a test that needs the exact message of a violation numbers its messages;
//! a test that only needs a verdict need not.
//!
//! Rules: if the connection failed and may fail, the messages delivered must still be a prefix of those sent, without gaps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ledger::Expectation;
use crate::verdict::push_bounded;

/// The state needed to check one direction of one connection.
#[derive(Clone, Debug)]
pub struct StreamLedger {
    expectation: Expectation,
    sent: Vec<u128>,
    delivered: Vec<u128>,
    failure: Option<String>,
}

impl StreamLedger {
    /// An empty ledger.
    pub fn new(expectation: Expectation) -> Self {
        Self { expectation, sent: Vec::new(), delivered: Vec::new(), failure: None }
    }

    /// Records that the application passed a message to the sender. Returns its number, counted from zero.
    pub fn record_sent(&mut self, message: &[u8]) -> u64 {
        self.sent.push(digest(message));
        self.sent.len() as u64 - 1
    }

    /// Records that the receiver passed a message to the application.
    pub fn record_delivery(&mut self, message: &[u8]) {
        self.delivered.push(digest(message));
    }

    /// Records that the connection failed, and why.
    pub fn record_failure(&mut self, cause: String) {
        self.failure.get_or_insert(cause);
    }

    /// Ends the run: a message that has not arrived is lost.
    pub fn judge(self) -> StreamVerdict {
        let mut verdict = StreamVerdict { checked: self.delivered.len() as u64, ..StreamVerdict::default() };
        if let (Expectation::MustComplete, Some(cause)) = (self.expectation, &self.failure) {
            verdict.add(StreamViolation::UnexpectedFailure { cause: cause.clone() });
        }
        let mut missing = UndeliveredMessages::new(&self.sent);
        let mut unknown = Vec::new();
        let mut next = 0;
        for (position, digest) in self.delivered.iter().enumerate() {
            match missing.take(*digest, next) {
                DigestMatch::Here(message) if message >= next => next = message + 1,
                DigestMatch::Here(message) => {
                    verdict.add(StreamViolation::Reordered { message, after: next - 1 });
                }
                DigestMatch::Before(message) => verdict.add(StreamViolation::Duplicated { message }),
                DigestMatch::Never => unknown.push((position as u64, next)),
            }
        }
        self.judge_unknown_deliveries(&mut missing, unknown, &mut verdict, &mut next);
        let broken = self.expectation == Expectation::MayFail && self.failure.is_some();
        for message in missing.numbers() {
            if broken && message >= next {
                verdict.undelivered_after_failure += 1;
            } else {
                verdict.add(StreamViolation::Lost { message });
            }
        }
        verdict
    }

    /// An unknown delivery is a corrupted message if the message that was due at that position never arrived.
    fn judge_unknown_deliveries(
        &self,
        missing: &mut UndeliveredMessages,
        unknown: Vec<(u64, u64)>,
        verdict: &mut StreamVerdict,
        next: &mut u64,
    ) {
        let mut due_after = 0;
        for (position, due) in unknown {
            let due = due.max(due_after);
            if missing.remove(&self.sent, due) {
                due_after = due + 1;
                *next = due_after.max(*next);
                verdict.add(StreamViolation::Corrupted { message: due });
            } else {
                verdict.add(StreamViolation::Spurious { position });
            }
        }
    }
}

/// The verdict on a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamVerdict {
    /// The first [`crate::MAX_LISTED`] violations.
    pub violations: Vec<StreamViolation>,
    /// The number of further violations.
    pub unlisted_violations: u64,
    /// The number of deliveries checked.
    pub checked: u64,
    /// Messages after the last delivered one that were lost by an allowed failure.
    pub undelivered_after_failure: u64,
}

impl StreamVerdict {
    /// Whether there is no violation.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    fn add(&mut self, violation: StreamViolation) {
        push_bounded(&mut self.violations, &mut self.unlisted_violations, violation);
    }
}

impl fmt::Display for StreamVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let violations = self.violations.len() as u64 + self.unlisted_violations;
        write!(f, "{violations} violations; {} deliveries checked", self.checked)?;
        self.violations.iter().try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}

/// A violation of a stream. Messages are numbered from zero in the order of sending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamViolation {
    /// A message was sent and never delivered.
    Lost {
        /// The message.
        message: u64,
    },
    /// A message was delivered again.
    Duplicated {
        /// The message.
        message: u64,
    },
    /// A message was delivered after one that was sent later.
    Reordered {
        /// The message that came too late.
        message: u64,
        /// The latest message that was delivered before it.
        after: u64,
    },
    /// A message was delivered with other bytes.
    Corrupted {
        /// The message that was due at this position and arrived nowhere else.
        message: u64,
    },
    /// A delivery matches no message, and none is missing at its position.
    Spurious {
        /// The position in the order of delivery, from zero.
        position: u64,
    },
    /// The connection failed although the run had only transient faults.
    UnexpectedFailure {
        /// The failure's cause.
        cause: String,
    },
}

impl fmt::Display for StreamViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { message } => write!(f, "message {message}: never delivered"),
            Self::Duplicated { message } => write!(f, "message {message}: delivered again"),
            Self::Reordered { message, after } => {
                write!(f, "message {message}: delivered after message {after}")
            }
            Self::Corrupted { message } => write!(f, "message {message}: delivered with other bytes"),
            Self::Spurious { position } => write!(f, "delivery {position}: no such message was sent"),
            Self::UnexpectedFailure { cause } => write!(f, "failed although all faults were transient ({cause})"),
        }
    }
}

/// The undelivered messages, by digest.
struct UndeliveredMessages {
    by_digest: BTreeMap<u128, BTreeSet<u64>>,
    first_with: BTreeMap<u128, u64>,
}

enum DigestMatch {
    /// A message that was missing; it no longer is.
    Here(u64),
    /// Every message with this digest has been delivered already.
    Before(u64),
    Never,
}

impl UndeliveredMessages {
    fn new(sent: &[u128]) -> Self {
        let mut missing = Self { by_digest: BTreeMap::new(), first_with: BTreeMap::new() };
        for (number, digest) in sent.iter().enumerate() {
            missing.by_digest.entry(*digest).or_default().insert(number as u64);
            missing.first_with.entry(*digest).or_insert(number as u64);
        }
        missing
    }

    /// Of equal messages, takes one that keeps the order if there is one.
    fn take(&mut self, digest: u128, next: u64) -> DigestMatch {
        let Some(numbers) = self.by_digest.get_mut(&digest) else {
            return DigestMatch::Never;
        };
        let number = numbers.range(next..).next().or_else(|| numbers.first()).copied();
        match number {
            Some(number) => {
                numbers.remove(&number);
                DigestMatch::Here(number)
            }
            None => DigestMatch::Before(self.first_with[&digest]),
        }
    }

    fn remove(&mut self, sent: &[u128], number: u64) -> bool {
        let digest = sent.get(number as usize);
        digest.and_then(|digest| self.by_digest.get_mut(digest)).is_some_and(|numbers| numbers.remove(&number))
    }

    fn numbers(&self) -> BTreeSet<u64> {
        self.by_digest.values().flatten().copied().collect()
    }
}

/// Two independent multiplicative hashes of 64 bits. They resist accidental faults, not attacks.
fn digest(message: &[u8]) -> u128 {
    let mut halves = [0x243f_6a88_85a3_08d3_u64, 0x1319_8a2e_0370_7344 ^ message.len() as u64];
    for chunk in message.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u64::from_le_bytes(word);
        halves[0] = mix(halves[0] ^ word, 0x9e37_79b9_7f4a_7c15);
        halves[1] = mix(halves[1].wrapping_add(word), 0xc2b2_ae3d_27d4_eb4f);
    }
    u128::from(halves[0]) << 64 | u128::from(halves[1])
}

fn mix(number: u64, odd: u64) -> u64 {
    let product = number.wrapping_mul(odd);
    (product ^ (product >> 29)).wrapping_mul(odd).rotate_left(31)
}
