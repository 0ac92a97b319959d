//! A ring in mapped memory: where its counts, slots and bytes are.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::spsc_ring::{RingEntry, RingMemory, SLOT_BYTES};

/// Bytes of so many slots of a ring.
pub(super) const fn slot_array_bytes(slots: usize) -> usize {
    slots * SLOT_BYTES
}

/// What a reader has consumed. Only the reader writes it, and the writer seldom reads it.
#[repr(C, align(128))]
pub(super) struct ConsumedCounts {
    taken: AtomicU64,
    read: AtomicU64,
}

/// A mapped ring with this many slots, and bytes for long packets. It does not keep the mapping alive.
pub(super) struct MappedRing<const SLOTS: usize, const BYTES: usize> {
    counts: NonNull<ConsumedCounts>,
    slots: NonNull<u8>,
    bytes: NonNull<u8>,
}

// SAFETY: both ends of a ring may be used at the same time, and none is tied to a thread.
unsafe impl<const SLOTS: usize, const BYTES: usize> Send for MappedRing<SLOTS, BYTES> {}

impl<const SLOTS: usize, const BYTES: usize> MappedRing<SLOTS, BYTES> {
    const SLOT_ARRAY_BYTES: usize = slot_array_bytes(SLOTS);

    /// The ring with these parts.
    ///
    /// # Safety
    /// They are in a mapping: counts; `SLOTS` slots; `BYTES`; aligned to lines. The ring is not used after the
    /// mapping is removed.
    pub(super) unsafe fn new(counts: NonNull<ConsumedCounts>, slots: NonNull<u8>, bytes: NonNull<u8>) -> Self {
        Self { counts, slots, bytes }
    }

    /// The bytes of an entry. Only between `claim` and `publish`, or between `next` and `finish`.
    ///
    /// # Safety
    /// The protocol returned the entry and has not released it yet. A peer that breaks the protocol can change bytes while they are
    /// read; then they are wrong, but their length and destination come from a copy.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // Entries do not overlap, and the protocol returns each once.
    pub(super) unsafe fn bytes(&self, entry: RingEntry) -> &mut [u8] {
        let RingEntry { at, length } = entry;
        let start = if at < Self::SLOT_ARRAY_BYTES {
            assert!(at + length <= Self::SLOT_ARRAY_BYTES);
            // SAFETY: within the slots.
            unsafe { self.slots.add(at) }
        } else {
            assert!(at + length <= Self::SLOT_ARRAY_BYTES + BYTES);
            // SAFETY: within the bytes.
            unsafe { self.bytes.add(at - Self::SLOT_ARRAY_BYTES) }
        };
        // SAFETY: within the ring; by the protocol, the other end does not access it.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    #[inline(always)]
    fn counts(&self) -> &ConsumedCounts {
        // SAFETY: they are atomics, and any bits are a value.
        unsafe { self.counts.as_ref() }
    }
}

impl<const SLOTS: usize, const BYTES: usize> RingMemory for MappedRing<SLOTS, BYTES> {
    type Word = AtomicU64;
    const SLOTS: u64 = SLOTS as u64;
    const BYTES: u64 = BYTES as u64;

    #[inline(always)]
    fn slot(&self, index: usize) -> &AtomicU64 {
        assert!(index < SLOTS);
        // SAFETY: within the slots, and aligned; both ends use words at the beginning of slots as atomics.
        unsafe { self.slots.add(index * SLOT_BYTES).cast().as_ref() }
    }

    #[inline(always)]
    fn taken(&self) -> &AtomicU64 {
        &self.counts().taken
    }

    #[inline(always)]
    fn read(&self) -> &AtomicU64 {
        &self.counts().read
    }
}
