//! The ledger of a run: compares every delivery at once and does not keep it.
//!
//! In: the reference of each operation, then every delivery and failure, in any order. Out: a verdict.
//! Memory: two bits per rank and operation, and the references of operations in progress; never the deliveries themselves.
//!
//! Rules:
//! - A rank delivers an operation at most once, with the bits of the reference.
//! - Without a reference, the first delivery is the baseline: ranks that deliver must agree.
//! - A rank leaves a synchronizing operation only after all ranks have entered it.
//! - A rank either delivers or fails, never both, never neither: a hang is a violation even where failing is allowed.

use units::{OpId, Rank};

use crate::verdict::{PartialFailure, Verdict, Violation};

/// What the faults of a run allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expectation {
    /// Transient faults only: everything must complete.
    MustComplete,
    /// Permanent faults: a failure with a cause is allowed, a wrong or duplicate result never.
    MayFail,
}

/// The state needed to check a run of collective operations.
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
    baseline: DeliveryBaseline,
    entered: u32,
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
    /// All ranks have delivered; only a duplicate can follow.
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

    /// Whether a reference is still useful: none is set, and no rank has delivered the operation.
    pub fn needs_reference(&self, op: OpId) -> bool {
        self.ops.get(op.index()).is_some_and(|record| matches!(record.baseline, DeliveryBaseline::Nothing))
    }

    /// Sets the reference of an operation, before its first delivery.
    ///
    /// # Panics
    /// The operation is unknown, or has a reference or a delivery already: a defect of the caller.
    pub fn set_reference(&mut self, op: OpId, reference: Vec<u8>, element_bytes: usize) {
        assert!(element_bytes > 0, "an element must have at least one byte");
        assert!(self.needs_reference(op), "{op} is unknown, or has a reference or a delivery already");
        self.ops[op.index()].baseline = DeliveryBaseline::Reference { bytes: reference.into(), element_bytes };
    }

    /// Records that `rank` received a result of `op`.
    pub fn record_delivery(&mut self, rank: Rank, op: OpId, bytes: &[u8]) {
        if !self.count_delivery(rank, op) {
            return;
        }
        let record = &mut self.ops[op.index()];
        let violation = match &record.baseline {
            DeliveryBaseline::Nothing => {
                record.baseline = DeliveryBaseline::FirstDelivery { rank, bytes: bytes.into() };
                self.verdict.cross_checked += 1;
                None
            }
            DeliveryBaseline::FirstDelivery { rank: first, bytes: baseline } => {
                self.verdict.cross_checked += 1;
                disagreement(rank, *first, op, baseline, bytes)
            }
            DeliveryBaseline::Reference { bytes: reference, element_bytes } => {
                self.verdict.checked += 1;
                difference(rank, op, reference, bytes, *element_bytes)
            }
            DeliveryBaseline::Done => unreachable!("in a complete operation every rank's bit is set"),
        };
        if record.delivered == self.ranks {
            record.baseline = DeliveryBaseline::Done;
        }
        if let Some(violation) = violation {
            self.verdict.add(violation);
        }
    }

    /// As [`Self::record_delivery`], in an operation whose ranks have different results: with the reference of this rank, and the bytes of
    /// an element.
    pub fn record_own_delivery(
        &mut self,
        rank: Rank,
        op: OpId,
        bytes: &[u8],
        (reference, element_bytes): (&[u8], usize),
    ) {
        if self.count_delivery(rank, op) {
            self.verdict.checked += 1;
            if let Some(violation) = difference(rank, op, reference, bytes, element_bytes) {
                self.verdict.add(violation);
            }
        }
    }

    /// Counts a delivery. False if there is nothing to compare: it is a duplicate, or of an unknown rank or operation.
    fn count_delivery(&mut self, rank: Rank, op: OpId) -> bool {
        let Some(pair) = self.pair(rank, op) else { return false };
        if self.delivered.set(pair) {
            self.verdict.add(Violation::DeliveredTwice { rank, op });
            return false;
        }
        if self.failed.get(pair) {
            self.verdict.add(Violation::DeliveredAndFailed { rank, op, cause: self.cause(op) });
        }
        self.ops[op.index()].delivered += 1;
        true
    }

    /// Records that a result of `op`, which `rank` has, was computed again: the bits must be those of the reference. An element has
    /// so many bytes.
    pub fn record_recomputation(
        &mut self,
        rank: Rank,
        op: OpId,
        bytes: &[u8],
        (reference, element_bytes): (&[u8], usize),
    ) {
        if let Some(violation) = difference(rank, op, reference, bytes, element_bytes) {
            self.verdict.add(violation);
        }
    }

    /// Records that `op` has ended at `rank`, which gets no result: every rank but the root of a reduce.
    pub fn record_completion(&mut self, rank: Rank, op: OpId) {
        if !self.count_delivery(rank, op) {
            return;
        }
        self.verdict.cross_checked += 1;
        let record = &mut self.ops[op.index()];
        if record.delivered == self.ranks {
            record.baseline = DeliveryBaseline::Done;
        }
    }

    /// Records that `rank` has entered `op`.
    pub fn record_arrival(&mut self, rank: Rank, op: OpId) {
        if self.pair(rank, op).is_some() {
            self.ops[op.index()].entered += 1;
        }
    }

    /// Records that `rank` leaves `op`, which synchronizes: all ranks must have entered.
    pub fn record_departure(&mut self, rank: Rank, op: OpId) {
        if self.pair(rank, op).is_none() {
            return;
        }
        let absent = self.ranks.saturating_sub(self.ops[op.index()].entered);
        if absent > 0 {
            self.verdict.add(Violation::LeftBarrierEarly { rank, op, absent });
        }
    }

    /// Records that `op` failed at `rank`, and why.
    pub fn record_failure(&mut self, rank: Rank, op: OpId, cause: String) {
        let Some(pair) = self.pair(rank, op) else { return };
        if self.failed.set(pair) {
            return; // A second report of the same failure does no harm.
        }
        self.verdict.failed += 1;
        let record = &mut self.ops[op.index()];
        record.failed += 1;
        record.cause.get_or_insert_with(|| cause.clone());
        if self.delivered.get(pair) {
            self.verdict.add(Violation::DeliveredAndFailed { rank, op, cause });
        } else if self.expectation == Expectation::MustComplete {
            self.verdict.add(Violation::UnexpectedFailure { rank, op, cause });
        }
    }

    /// The run ended before the operations from this one on had begun: nobody has their results.
    pub fn forget_from(&mut self, op: OpId) {
        self.ops.truncate(op.index());
    }

    /// Ends the run: a rank without a result and a failure of an operation never gets one.
    pub fn judge(self) -> Verdict {
        let mut verdict = self.verdict;
        for (position, record) in self.ops.iter().enumerate() {
            let op = OpId(position as u32);
            if record.delivered > 0 && record.failed > 0 {
                let cause = record.cause.clone().unwrap_or_default();
                verdict.add_partial_failure(PartialFailure {
                    op,
                    delivered: record.delivered,
                    failed: record.failed,
                    cause,
                });
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

    /// The bit position of a rank and operation; a violation if the run has no such pair.
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
        return Some(Violation::WrongLength { rank, op, expected: reference.len(), got: got.len() });
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

fn disagreement(rank: Rank, first: Rank, op: OpId, baseline: &[u8], got: &[u8]) -> Option<Violation> {
    if baseline.len() != got.len() {
        return Some(Violation::WrongLength { rank, op, expected: baseline.len(), got: got.len() });
    }
    let byte = baseline.iter().zip(got).position(|(one, other)| one != other)?;
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

    /// Sets the bit and returns whether it was set before.
    fn set(&mut self, bit: usize) -> bool {
        let before = self.get(bit);
        self.words[bit / 64] |= 1 << (bit % 64);
        before
    }
}
