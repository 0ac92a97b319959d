//! A ring between one writer and one reader: slots for short packets, and a ring of bytes for long ones.
//!
//! Every packet has a slot, in turn. A slot begins with a word that holds the number and length of its packet; a short packet
//! follows at once, so that the shortest are in the line that the reader polls, and only that line is transferred. A longer
//! packet lies in the ring of bytes where the one before it ended, or at the front if it would cross the end: both ends
//! compute the same place. The reader polls the word of the next slot, and takes the packet when the word has its number. Until
//! then the slot holds the word of an earlier packet, which need not be cleared.
//!
//! The writer's bytes come before the word that it publishes, which the reader observes before it reads. The reader's reads come
//! before the counts that it publishes, which the writer observes before it writes there again. The protocol is written
//! against [`RingMemory`], so that the same code runs on mapped memory and under a model checker (`loom_tests.rs`).

use crate::shared_word::SharedWord;

pub(super) const CACHE_LINE_BYTES: u64 = 64;
const WORD_BYTES: usize = 8;
/// Bytes of a slot: two lines, because processors fetch lines in pairs.
pub(super) const SLOT_BYTES: usize = 2 * CACHE_LINE_BYTES as usize;
/// Bytes of the longest packet that fits its slot.
pub(super) const MAX_INLINE_BYTES: usize = SLOT_BYTES - WORD_BYTES;

/// The memory between two ends: slots, then bytes.
pub(super) trait RingMemory {
    /// The words of this memory.
    type Word: SharedWord;
    /// The number of slots, a power of two.
    const SLOTS: u64;
    /// Bytes behind the slots, in whole lines.
    const BYTES: u64;
    /// The longest packet: two must fit, or a writer could wait for space that never becomes free.
    const MAX_PACKET_BYTES: usize = (Self::BYTES / 2) as usize;

    /// The first word of a slot.
    fn slot(&self, index: usize) -> &Self::Word;
    /// The packets that the reader has consumed.
    fn taken(&self) -> &Self::Word;
    /// The bytes of long packets that the reader has consumed, with the gaps before them.
    fn read(&self) -> &Self::Word;
}

/// The writer's side.
#[derive(Default)]
pub(super) struct RingWriter {
    sent: u64,
    written: u64,
    /// What the reader had consumed at the last look: the writer reads its counts only when there seems to be no space.
    taken: u64,
    read: u64,
}

/// The reader's side.
#[derive(Default)]
pub(super) struct RingReader {
    taken: u64,
    read: u64,
}

/// A packet in the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RingEntry {
    /// The offset of its first byte, from the first slot.
    pub(super) at: usize,
    /// Its bytes.
    pub(super) length: usize,
}

/// The writer breaks the protocol: a slot holds an impossible length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RingCorrupted;

/// The word of the packet after `sent` others.
fn word_of(sent: u64, length: usize) -> u64 {
    (length as u64) << 32 | number_of(sent)
}

/// The number of a packet in its slot: from one, because fresh memory is zero.
#[inline]
fn number_of(sent: u64) -> u64 {
    u64::from((sent as u32).wrapping_add(1))
}

fn index_of<L: RingMemory>(count: u64) -> usize {
    (count % L::SLOTS) as usize
}

/// The start of a long packet behind `before` bytes, and that of its successor, as counts of bytes.
fn place_of<L: RingMemory>(before: u64, length: usize) -> (u64, u64) {
    let room = (length as u64).next_multiple_of(CACHE_LINE_BYTES);
    let left = L::BYTES - before % L::BYTES;
    let start = if left < room { before + left } else { before };
    (start, start + room)
}

/// The entry of a packet in its slot, or of a long one that begins at this count of bytes.
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
    /// Claims space for a packet, if there is any: the reader does not read it until it is published.
    #[inline]
    pub(super) fn claim<L: RingMemory>(&mut self, lines: &L, length: usize) -> Option<RingEntry> {
        assert!(length <= L::MAX_PACKET_BYTES, "a packet of {length} bytes");
        // An impossible count leaves no space: the reader breaks the protocol, and gets nothing more.
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

    /// Publishes the entry that was claimed last.
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
    /// Whether a packet is available.
    #[inline]
    pub(super) fn has_more<L: RingMemory>(&self, lines: &L) -> bool {
        u64::from(lines.slot(index_of::<L>(self.taken)).observe() as u32) == number_of(self.taken)
    }

    /// The next packet, if there is one: the writer does not overwrite it until it is finished.
    #[inline]
    pub(super) fn next<L: RingMemory>(&mut self, lines: &L) -> Result<Option<RingEntry>, RingCorrupted> {
        let word = lines.slot(index_of::<L>(self.taken)).observe();
        if u64::from(word as u32) != number_of(self.taken) {
            return Ok(None);
        }
        let length = (word >> 32) as usize;
        if length > L::MAX_PACKET_BYTES {
            return Err(RingCorrupted);
        }
        let start = if length > MAX_INLINE_BYTES { place_of::<L>(self.read, length).0 } else { 0 };
        Ok(Some(entry_of::<L>(self.taken, start, length)))
    }

    /// Releases the packet that `next` returned.
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
