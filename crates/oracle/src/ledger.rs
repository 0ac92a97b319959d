//! The ledger of a run: who delivered what, compared at once and then forgotten.
//!
//! In: the reference of each operation, then every delivery and failure, in any order. Out: a verdict.
//! Memory: two bits per rank and operation, and the references of operations still under way; never the
//! deliveries themselves.
//!
//! Rules:
//! - A rank delivers an operation at most once, with the reference's bits.
//! - Without a reference, the first delivery is the measure: ranks that deliver must agree.
//! - Nobody goes on from an operation that waits for all before all have come.
//! - A rank either delivers or fails, never both, never neither: a hang is a violation even where failing
//!   is allowed.

use units::{OpId, Rank};

use crate::verdict::{PartialFailure, Verdict, Violation};

/// What the faults of a run allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expectation {
    /// Soft faults only: everything must complete.
    MustComplete,
    /// Hard faults: a failure with a cause is allowed, a wrong or doubled result never.
    MayFail,
}

/// Everything that must be remembered to judge a run of collective operations.
#[derive(Clone, Debug)]
pub struct Ledger {
    ranks: u32,
    expectation: Expectation,
    ops: Vec<OpRecord>,
    delivered: Bitmap,
    failed: Bitmap,
    verdict: Verdict,
}

#[derive(Clone, Debug, Default)]
struct OpRecord {
    measure: DeliveryBaseline,
    come: u32,
    delivered: u32,
    failed: u32,
    cause: Option<String>,
}

/// What a delivery is compared with.
#[derive(Clone, Debug, Default)]
enum DeliveryBaseline {
    #[default]
    Nothing,
    FirstDelivery {
        rank: Rank,
        bytes: Box<[u8]>,
    },
    Reference {
        bytes: Box<[u8]>,
        element_bytes: usize,
    },
    /// All ranks have delivered; only doubles can come now.
    Done,
}

impl Ledger {
    /// An empty ledger for operations 0 to `ops - 1` of ranks 0 to `ranks - 1`.
    pub fn new(ranks: u32, ops: u32, expectation: Expectation) -> Self {
        let pairs = ranks as usize * ops as usize;
        Self {
            ranks,
            expectation,
            ops: vec![OpRecord::default(); ops as usize],
            delivered: Bitmap::new(pairs),
            failed: Bitmap::new(pairs),
            verdict: Verdict::default(),
        }
    }

    /// True if a reference would still be of use: nobody has delivered the operation yet and none is given.
    pub fn wants_reference(&self, op: OpId) -> bool {
        self.ops.get(op.index()).is_some_and(|record| matches!(record.measure, DeliveryBaseline::Nothing))
    }

    /// Gives the reference of an operation, which must come before its first delivery.
    ///
    /// # Panics
    /// If the operation is unknown, or has a reference or a delivery already: the caller's error.
    pub fn expect(&mut self, op: OpId, reference: Vec<u8>, element_bytes: usize) {
        assert!(element_bytes > 0, "an element has at least one byte");
        assert!(self.wants_reference(op), "{op} is unknown, or its reference comes too late");
        self.ops[op.index()].measure = DeliveryBaseline::Reference { bytes: reference.into(), element_bytes };
    }

    /// `rank` got a result of `op`.
    pub fn record_delivery(&mut self, rank: Rank, op: OpId, bytes: &[u8]) {
        let Some(pair) = self.pair(rank, op) else { return };
        if self.delivered.set(pair) {
            return self.verdict.add(Violation::DeliveredTwice { rank, op });
        }
        if self.failed.get(pair) {
            self.verdict.add(Violation::DeliveredAndFailed { rank, op, cause: self.cause(op) });
        }
        let record = &mut self.ops[op.index()];
        record.delivered += 1;
        let violation = match &record.measure {
            DeliveryBaseline::Nothing => {
                record.measure = DeliveryBaseline::FirstDelivery { rank, bytes: bytes.into() };
                self.verdict.only_agreed += 1;
                None
            }
            DeliveryBaseline::FirstDelivery { rank: first, bytes: measure } => {
                self.verdict.only_agreed += 1;
                disagreement(rank, *first, op, measure, bytes)
            }
            DeliveryBaseline::Reference { bytes: reference, element_bytes } => {
                self.verdict.checked += 1;
                difference(rank, op, reference, bytes, *element_bytes)
            }
            DeliveryBaseline::Done => unreachable!("every rank's bit is set when an operation is done"),
        };
        if record.delivered == self.ranks {
            record.measure = DeliveryBaseline::Done;
        }
        if let Some(violation) = violation {
            self.verdict.add(violation);
        }
    }

    /// `rank` has come to `op`.
    pub fn record_arrival(&mut self, rank: Rank, op: OpId) {
        if self.pair(rank, op).is_some() {
            self.ops[op.index()].come += 1;
        }
    }

    /// `rank` goes on from `op`, which waits for all: everyone must have come.
    pub fn record_departure(&mut self, rank: Rank, op: OpId) {
        if self.pair(rank, op).is_none() {
            return;
        }
        let absent = self.ranks.saturating_sub(self.ops[op.index()].come);
        if absent > 0 {
            self.verdict.add(Violation::LeftTooSoon { rank, op, absent });
        }
    }

    /// `rank` was told that `op` failed, and why.
    pub fn record_failure(&mut self, rank: Rank, op: OpId, cause: String) {
        let Some(pair) = self.pair(rank, op) else { return };
        if self.failed.set(pair) {
            return; // Hearing of one failure twice harms nobody.
        }
        self.verdict.failed += 1;
        let record = &mut self.ops[op.index()];
        record.failed += 1;
        record.cause.get_or_insert_with(|| cause.clone());
        if self.delivered.get(pair) {
            self.verdict.add(Violation::DeliveredAndFailed { rank, op, cause });
        } else if self.expectation == Expectation::MustComplete {
            self.verdict.add(Violation::FailedThoughSoft { rank, op, cause });
        }
    }

    /// The run has ended: whoever has neither a result nor a failure will never have one.
    pub fn judge(self) -> Verdict {
        let mut verdict = self.verdict;
        for (position, record) in self.ops.iter().enumerate() {
            let op = OpId(position as u32);
            if record.delivered > 0 && record.failed > 0 {
                let cause = record.cause.clone().unwrap_or_default();
                verdict.add_split(PartialFailure { op, delivered: record.delivered, failed: record.failed, cause });
            }
            if record.delivered == self.ranks {
                continue;
            }
            for rank in 0..self.ranks {
                let pair = position * self.ranks as usize + rank as usize;
                if !self.delivered.get(pair) && !self.failed.get(pair) {
                    verdict.add(Violation::NeverDelivered { rank: Rank(rank), op });
                }
            }
        }
        verdict
    }

    /// Where the bits of a rank and operation lie; a violation if the run has no such pair.
    fn pair(&mut self, rank: Rank, op: OpId) -> Option<usize> {
        if rank.0 < self.ranks && op.index() < self.ops.len() {
            return Some(op.index() * self.ranks as usize + rank.index());
        }
        self.verdict.add(Violation::UnknownRankOrOp { rank, op });
        None
    }

    fn cause(&self, op: OpId) -> String {
        self.ops[op.index()].cause.clone().unwrap_or_default()
    }
}

fn difference(rank: Rank, op: OpId, reference: &[u8], got: &[u8], element_bytes: usize) -> Option<Violation> {
    if reference.len() != got.len() {
        return Some(Violation::LengthWrong { rank, op, expected: reference.len(), got: got.len() });
    }
    if reference == got {
        return None;
    }
    let elements = reference.chunks(element_bytes).zip(got.chunks(element_bytes)).enumerate();
    let mut differing = elements.filter(|(_, (expected, got))| expected != got);
    let (element, (expected, got)) = differing.next()?;
    Some(Violation::WrongBits {
        rank,
        op,
        element,
        differing: 1 + differing.count(),
        expected: expected.to_vec(),
        got: got.to_vec(),
    })
}

fn disagreement(rank: Rank, first: Rank, op: OpId, measure: &[u8], got: &[u8]) -> Option<Violation> {
    if measure.len() != got.len() {
        return Some(Violation::LengthWrong { rank, op, expected: measure.len(), got: got.len() });
    }
    let byte = measure.iter().zip(got).position(|(one, other)| one != other)?;
    Some(Violation::Disagreement { rank, first, op, byte })
}

#[derive(Clone, Debug)]
struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    fn new(bits: usize) -> Self {
        Self { words: vec![0; bits.div_ceil(64)] }
    }

    fn get(&self, bit: usize) -> bool {
        self.words[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Sets the bit and says whether it was set before.
    fn set(&mut self, bit: usize) -> bool {
        let before = self.get(bit);
        self.words[bit / 64] |= 1 << (bit % 64);
        before
    }
}
