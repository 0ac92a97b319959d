//! One writer, one reader, and between them slots for short parcels and a ring of bytes for long ones.
//!
//! Every parcel has a slot, in turn. A slot begins with a word that says which parcel it is and how long; a short parcel follows at
//! once, so that the shortest are all in the line that the reader looks at, and nothing but that line changes hands. A longer one lies in
//! the ring of bytes where the one before it ended, or at the front if it would go over the end: both ends know where that is. The
//! reader waits at the word of the next slot, and takes it when it has the number of the parcel that comes next. What lies there until
//! then is the word of an earlier one, and nobody need clear it.
//!
//! What the writer wrote comes before the word that it publishes, which the reader observes before it looks. What the reader looked
//! at comes before the counts that it publishes, which the writer observes before it writes there again. The protocol is written
//! against [`RingMemory`], so that the same code runs on mapped memory and under a model checker (`models.rs`).

use crate::team::shared_word::SharedWord;

pub(super) const CACHE_LINE_BYTES: u64 = 64;
const WORD_BYTES: usize = 8;
/// Bytes of a slot: two lines, because processors fetch lines in pairs.
pub(super) const SLOT_BYTES: usize = 2 * CACHE_LINE_BYTES as usize;
/// Bytes of the longest parcel that lies in its slot.
pub(super) const MAX_INLINE_BYTES: usize = SLOT_BYTES - WORD_BYTES;

/// The memory between two ends: slots, then bytes.
pub(super) trait RingMemory {
    /// The words of this memory.
    type Word: SharedWord;
    /// How many slots there are, a power of two.
    const SLOTS: u64;
    /// Bytes behind the slots, in whole lines.
    const BYTES: u64;
    /// The longest parcel: two must fit, or a writer could wait for room that there never is.
    const MOST_BYTES: usize = (Self::BYTES / 2) as usize;

    /// The first word of a slot.
    fn slot(&self, index: usize) -> &Self::Word;
    /// How many parcels the reader has done with.
    fn taken(&self) -> &Self::Word;
    /// How many bytes of long parcels the reader has done with, and of gaps before them.
    fn read(&self) -> &Self::Word;
}

/// The writer's side.
#[derive(Default)]
pub(super) struct RingWriter {
    sent: u64,
    written: u64,
    /// What the reader had taken and read when it was last asked: its words are fetched only when there seems to be no room.
    taken: u64,
    read: u64,
}

/// The reader's side.
#[derive(Default)]
pub(super) struct RingReader {
    taken: u64,
    read: u64,
}

/// A parcel in the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RingEntry {
    /// Its first byte, counted from the first slot.
    pub(super) at: usize,
    /// How many there are.
    pub(super) length: usize,
}

/// The writer does not keep the rules: what its slot says cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RingCorrupted;

/// What a slot says of the parcel before which so many have been sent.
fn word_of(sent: u64, length: usize) -> u64 {
    (length as u64) << 32 | number_of(sent)
}

/// A parcel's number in its slot: from one, so that fresh memory has none.
#[inline]
fn number_of(sent: u64) -> u64 {
    u64::from((sent as u32).wrapping_add(1))
}

fn index_of<L: RingMemory>(count: u64) -> usize {
    (count % L::SLOTS) as usize
}

/// Where a long parcel lies if so many bytes lie before it, and where the next would: as counts of bytes.
fn place_of<L: RingMemory>(before: u64, length: usize) -> (u64, u64) {
    let room = (length as u64).next_multiple_of(CACHE_LINE_BYTES);
    let left = L::BYTES - before % L::BYTES;
    let start = if left < room { before + left } else { before };
    (start, start + room)
}

/// Where the parcel is that lies in its slot, or begins at this count of bytes.
#[inline]
fn entry_of<L: RingMemory>(count: u64, start: u64, length: usize) -> RingEntry {
    let at = if length <= MAX_INLINE_BYTES {
        index_of::<L>(count) * SLOT_BYTES + WORD_BYTES
    } else {
        L::SLOTS as usize * SLOT_BYTES + (start % L::BYTES) as usize
    };
    RingEntry { at, length }
}

impl RingWriter {
    /// Room for a parcel, if there is any: the reader does not look there until it is published.
    #[inline]
    pub(super) fn claim<L: RingMemory>(&mut self, lines: &L, length: usize) -> Option<RingEntry> {
        assert!(length <= L::MOST_BYTES, "a parcel of {length} bytes");
        // A count that cannot be leaves no room: the reader is at fault, and hears nothing more.
        if self.sent - self.taken >= L::SLOTS {
            self.taken = lines.taken().observe().clamp(self.taken, self.sent);
            if self.sent - self.taken >= L::SLOTS {
                return None;
            }
        }
        let mut start = 0;
        if length > MAX_INLINE_BYTES {
            let end;
            (start, end) = place_of::<L>(self.written, length);
            if end - self.read > L::BYTES {
                self.read = lines.read().observe().clamp(self.read, self.written);
                if end - self.read > L::BYTES {
                    return None;
                }
            }
        }
        Some(entry_of::<L>(self.sent, start, length))
    }

    /// What was claimed last is written.
    #[inline]
    pub(super) fn publish<L: RingMemory>(&mut self, lines: &L, entry: RingEntry) {
        if entry.length > MAX_INLINE_BYTES {
            (_, self.written) = place_of::<L>(self.written, entry.length);
        }
        lines.slot(index_of::<L>(self.sent)).publish(word_of(self.sent, entry.length));
        self.sent += 1;
    }
}

impl RingReader {
    /// Whether there is anything.
    #[inline]
    pub(super) fn has_more<L: RingMemory>(&self, lines: &L) -> bool {
        u64::from(lines.slot(index_of::<L>(self.taken)).observe() as u32) == number_of(self.taken)
    }

    /// The next parcel, if there is one: the writer leaves it alone until it is done with.
    #[inline]
    pub(super) fn next<L: RingMemory>(&mut self, lines: &L) -> Result<Option<RingEntry>, RingCorrupted> {
        let word = lines.slot(index_of::<L>(self.taken)).observe();
        if u64::from(word as u32) != number_of(self.taken) {
            return Ok(None);
        }
        let length = (word >> 32) as usize;
        if length > L::MOST_BYTES {
            return Err(RingCorrupted);
        }
        let start = if length > MAX_INLINE_BYTES { place_of::<L>(self.read, length).0 } else { 0 };
        Ok(Some(entry_of::<L>(self.taken, start, length)))
    }

    /// The parcel that came next has been looked at.
    #[inline]
    pub(super) fn finish<L: RingMemory>(&mut self, lines: &L, entry: RingEntry) {
        if entry.length > MAX_INLINE_BYTES {
            (_, self.read) = place_of::<L>(self.read, entry.length);
            lines.read().publish(self.read);
        }
        self.taken += 1;
        lines.taken().publish(self.taken);
    }
}
