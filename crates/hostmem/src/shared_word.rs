//! A 64-bit word in shared memory, and the two memory orderings that the protocols need.
//!
//! The protocols are written against this trait, so that the same code runs on the atomics of a mapped region and on those
//! of a model checker.

use std::sync::atomic::{AtomicU64, Ordering};

/// As a rule, one writer and any number of readers.
pub(crate) trait SharedWord {
    /// Reads (acquire): everything before the [`SharedWord::publish`] of the value is visible afterwards.
    fn observe(&self) -> u64;
    /// Writes (release): all earlier reads and writes of this rank happen before another rank observes the value.
    fn publish(&self, value: u64);
    /// Reads a word that an observed word has made safe to read.
    fn read(&self) -> u64;
    /// Writes a word that a later published word makes visible.
    fn write(&self, value: u64);
    /// Observes the word, and publishes `value` if it holds `expected`. For the few words with two writers.
    ///
    /// # Errors
    /// The observed value, if it differs from `expected`.
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

/// A count that one rank raises and the others poll. Alone in its pair of cache lines: processors fetch lines in pairs.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct SharedCounter<W>(pub W);
