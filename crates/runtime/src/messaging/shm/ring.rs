//! One writer, one reader, a ring of lines between them.
//!
//! An entry begins at a cache line with a word that says how long it is; the parcel follows at once, so that a short one is all in
//! that line. The reader waits at the word where the next entry will begin, and takes it when it is no longer zero. So the writer
//! clears the word behind an entry before it publishes the entry. An entry that would go over the end of the ring begins at its front;
//! the word `SKIP` says so.
//!
//! What the writer wrote comes before the word that it publishes, which the reader observes before it looks. What the reader looked
//! at comes before the count that it publishes, which the writer observes before it writes there again. The protocol is written
//! against [`Lines`], so that the same code runs on mapped memory and under a model checker (`models.rs`).

use crate::shm::word::Word;

pub(super) const WORD: usize = 8;
pub(super) const LINE: u64 = 64;
const SKIP: u64 = u64::MAX;

/// The memory of a ring, as both ends see it.
pub(super) trait Lines {
    /// The words of this memory.
    type Word: Word;
    /// Bytes of the ring, in whole lines.
    const BYTES: u64;
    /// The longest parcel: two must fit, or a writer could wait for room that there never is.
    const MOST_BYTES: usize = (Self::BYTES / 2 - 2 * LINE) as usize;

    /// The first word of the line that begins at this byte.
    fn word(&self, at: usize) -> &Self::Word;
    /// How many bytes the reader has done with.
    fn read(&self) -> &Self::Word;
}

/// The writer's side.
#[derive(Default)]
pub(super) struct Writer {
    written: u64,
    /// What the reader had read when it was last asked: its word is fetched only when there seems to be no room.
    read: u64,
}

/// The reader's side.
#[derive(Default)]
pub(super) struct Reader {
    read: u64,
}

/// A parcel in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Its first byte.
    pub(super) at: usize,
    /// How many there are.
    pub(super) length: usize,
}

/// The writer does not keep the rules: what its ring says cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

/// Bytes that an entry takes.
fn room_of(length: usize) -> u64 {
    ((WORD + length) as u64).next_multiple_of(LINE)
}

impl Writer {
    /// Room for a parcel, if there is any: the reader does not look there until it is published.
    pub(super) fn claim<L: Lines>(&mut self, lines: &L, length: usize) -> Option<Entry> {
        assert!(length <= L::MOST_BYTES, "a parcel of {length} bytes");
        let left = L::BYTES - self.written % L::BYTES;
        let start = if left < room_of(length) { self.written + left } else { self.written };
        // And the line behind it, whose word is cleared.
        let end = start + room_of(length) + LINE;
        if end - self.read > L::BYTES {
            // A count that cannot be leaves no room: the reader is at fault, and hears nothing more.
            self.read = lines.read().observe().clamp(self.read, self.written);
            if end - self.read > L::BYTES {
                return None;
            }
        }
        if start != self.written {
            lines.word(0).write(0);
            lines.word((self.written % L::BYTES) as usize).publish(SKIP);
            self.written = start;
        }
        Some(Entry { at: (start % L::BYTES) as usize + WORD, length })
    }

    /// What was claimed last is written.
    pub(super) fn publish<L: Lines>(&mut self, lines: &L, entry: Entry) {
        let start = self.written;
        self.written += room_of(entry.length);
        lines.word((self.written % L::BYTES) as usize).write(0);
        lines.word((start % L::BYTES) as usize).publish((entry.length as u64) << 1 | 1);
    }
}

impl Reader {
    /// Whether there is anything.
    #[inline]
    pub(super) fn has_more<L: Lines>(&self, lines: &L) -> bool {
        lines.word((self.read % L::BYTES) as usize).observe() != 0
    }

    /// The next parcel, if there is one: the writer leaves it alone until it is done with.
    pub(super) fn next<L: Lines>(&mut self, lines: &L) -> Result<Option<Entry>, Broken> {
        let mut word = lines.word((self.read % L::BYTES) as usize).observe();
        if word == SKIP && !self.read.is_multiple_of(L::BYTES) {
            self.read = self.read.next_multiple_of(L::BYTES);
            word = lines.word(0).observe();
        }
        if word == 0 {
            return Ok(None);
        }
        let at = (self.read % L::BYTES) as usize + WORD;
        let length = (word >> 1) as usize;
        if word & 1 == 0 || length > L::MOST_BYTES || (at + length) as u64 > L::BYTES {
            return Err(Broken);
        }
        Ok(Some(Entry { at, length }))
    }

    /// The parcel that came next has been looked at.
    pub(super) fn finish<L: Lines>(&mut self, lines: &L, entry: Entry) {
        self.read += room_of(entry.length);
        lines.read().publish(self.read);
    }
}
