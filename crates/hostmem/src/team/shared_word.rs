//! A word that ranks share, and the two orderings that the protocols need.
//!
//! The protocols of [`super::window`] and [`super::pipeline`] are written against this trait, so that the same code runs on the
//! atomics of a mapped region and on those of a model checker.

use std::sync::atomic::{AtomicU64, Ordering};

use super::block_claims::BlockClaims;
use super::descriptor::{OperationDescriptor, SignatureRecord};

/// As a rule, one writer and any number of readers.
pub(crate) trait SharedWord {
    /// Reads; whoever wrote the value with [`SharedWord::publish`] wrote everything before it as well.
    fn observe(&self) -> u64;
    /// Writes; whatever this rank wrote or read before is done before anyone observes the value.
    fn publish(&self, value: u64);
    /// Reads what an observed word has made safe to read.
    fn read(&self) -> u64;
    /// Writes what a word published later will make visible.
    fn write(&self, value: u64);
    /// Observes, and publishes another value if this is the one expected. For the few words that have two writers.
    ///
    /// # Errors
    /// What was observed instead.
    fn exchange(&self, expected: u64, value: u64) -> Result<(), u64>;
}

impl SharedWord for AtomicU64 {
    #[inline(always)]
    fn observe(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn publish(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn write(&self, value: u64) {
        self.store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn exchange(&self, expected: u64, value: u64) -> Result<(), u64> {
        self.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }
}

/// A count that one rank raises and the others watch. Alone in its pair of cache lines: processors fetch them in pairs.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct SharedCounter<W>(pub W);

/// What the protocols see of shared memory.
pub(super) trait TeamMemory {
    /// The words of this memory.
    type Word: SharedWord;
    /// How many common posts there are.
    const RESULT_SLOTS: usize;

    /// Where `rank` notes the operations of `channel`.
    fn note(&self, rank: usize, channel: usize) -> &SignatureRecord<Self::Word>;
    /// Where `rank` posts the operations of `channel`.
    fn post(&self, rank: usize, channel: usize) -> &OperationDescriptor<Self::Word>;
    /// Where any rank may leave the result of an operation.
    fn common_post(&self, place: usize) -> &OperationDescriptor<Self::Word>;
    /// How many operations `rank` has settled.
    fn settled(&self, rank: usize) -> &Self::Word;
    /// How many steps of the pipe `rank` has filled.
    fn filled(&self, rank: usize) -> &Self::Word;
    /// How many steps of the pipe `rank` has folded its slice of.
    fn folded(&self, rank: usize) -> &Self::Word;
    /// How many steps of the pipe `rank` reads no more.
    fn drained(&self, rank: usize) -> &Self::Word;
    /// Where `rank` lets roots of large broadcasts in.
    fn door(&self, rank: usize) -> &BlockClaims<Self::Word>;
}
