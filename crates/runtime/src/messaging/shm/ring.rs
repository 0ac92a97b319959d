//! One writer, one reader, a ring of bytes between them.
//!
//! An entry is a word with its length, then a parcel, and begins at a cache line. One that would go over the end of the ring begins at
//! its front; the word `SKIP` says so. The writer's bytes come before its count (release), which the reader observes before it
//! looks at them (acquire); the reader's looks come before its count, which the writer observes before it writes there again.

use std::sync::atomic::Ordering;

use super::mapping::{Mapping, RING_BYTES};

const SIZE: u64 = RING_BYTES as u64;
const WORD: usize = 8;
const LINE: u64 = 64;
const SKIP: u64 = u64::MAX;
/// The longest parcel: two must fit.
pub(super) const MOST_BYTES: usize = RING_BYTES / 2 - LINE as usize;

/// The writer's side.
pub(super) struct Writer {
    from: usize,
    to: usize,
    written: u64,
    /// What the reader had read when it was last asked: its word is fetched only when there seems to be no room.
    read: u64,
}

/// The reader's side.
pub(super) struct Reader {
    from: usize,
    to: usize,
    read: u64,
}

/// The writer does not keep the rules: what its ring says cannot be.
pub(super) struct Broken;

impl Writer {
    pub(super) fn new(from: usize, to: usize) -> Self {
        Self { from, to, written: 0, read: 0 }
    }

    /// Puts a parcel into the ring. False if there is no room.
    pub(super) fn write(&mut self, mapping: &Mapping, parcel: &[u8]) -> bool {
        assert!(parcel.len() <= MOST_BYTES, "a parcel of {} bytes", parcel.len());
        let (counts, bytes) = mapping.ring(self.from, self.to);
        let needed = (WORD + parcel.len()) as u64;
        let left = SIZE - self.written % SIZE;
        let start = if left < needed { self.written + left } else { self.written };
        let end = (start + needed).next_multiple_of(LINE);
        if end - self.read > SIZE {
            self.read = counts.read.0.load(Ordering::Acquire);
            // A count that cannot be leaves no room: the reader is at fault, and hears nothing more.
            if self.read > self.written || end - self.read > SIZE {
                self.read = self.read.min(self.written);
                return false;
            }
        }
        if start != self.written {
            // SAFETY: a word at a line's beginning, within the ring and, by the counts, not looked at by the reader.
            unsafe { bytes.add((self.written % SIZE) as usize).cast::<u64>().write(SKIP) };
        }
        let at = (start % SIZE) as usize;
        // SAFETY: `needed` bytes from `at` are within the ring and, by the counts, not looked at by the reader; the parcel is ours.
        unsafe {
            bytes.add(at).cast::<u64>().write(parcel.len() as u64);
            std::ptr::copy_nonoverlapping(parcel.as_ptr(), bytes.add(at + WORD), parcel.len());
        }
        self.written = end;
        counts.written.0.store(end, Ordering::Release);
        true
    }
}

impl Reader {
    pub(super) fn new(from: usize, to: usize) -> Self {
        Self { from, to, read: 0 }
    }

    /// Whether there is anything.
    pub(super) fn has_more(&self, mapping: &Mapping) -> bool {
        mapping.ring(self.from, self.to).0.written.0.load(Ordering::Acquire) != self.read
    }

    /// Lets `look` see the next parcel, where it lies. False if there is none.
    pub(super) fn read(&mut self, mapping: &Mapping, look: impl FnOnce(&mut [u8])) -> Result<bool, Broken> {
        let (counts, bytes) = mapping.ring(self.from, self.to);
        let written = counts.written.0.load(Ordering::Acquire);
        if written == self.read {
            return Ok(false);
        }
        if written < self.read || written - self.read > SIZE || !self.read.is_multiple_of(LINE) {
            return Err(Broken);
        }
        // SAFETY: a word at a line's beginning within the ring; by the counts, the writer leaves it alone.
        let mut length = unsafe { bytes.add((self.read % SIZE) as usize).cast::<u64>().read() };
        if length == SKIP {
            self.read = (self.read + 1).next_multiple_of(SIZE);
            if self.read >= written {
                return Err(Broken);
            }
            // SAFETY: as above.
            length = unsafe { bytes.cast::<u64>().read() };
        }
        let at = (self.read % SIZE) as usize;
        let end = (self.read + WORD as u64).checked_add(length).map(|end| end.next_multiple_of(LINE));
        if length > MOST_BYTES as u64
            || at + WORD + length as usize > RING_BYTES
            || end.is_none_or(|end| end > written)
        {
            return Err(Broken);
        }
        // SAFETY: within the ring, as just checked, and by the counts left alone by the writer until `read` is published. One that
        // breaks the rules can change bytes that are looked at; then they are wrong, and where they go was decided by a copy.
        look(unsafe { std::slice::from_raw_parts_mut(bytes.add(at + WORD), length as usize) });
        self.read = end.unwrap_or(written);
        counts.read.0.store(self.read, Ordering::Release);
        Ok(true)
    }
}
