//! What a message carries: bytes, or only their number; and bytes that are sent from where they lie.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// A message's payload. Size-only payloads let a simulated fabric grow to a million hosts; machines treat both
/// alike and do arithmetic only where there are bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// So many bytes that nobody looks at.
    Absent {
        /// How many.
        bytes: u32,
    },
    /// Real bytes.
    Bytes(PayloadBytes),
}

impl Payload {
    /// No bytes at all.
    pub const EMPTY: Self = Self::Absent { bytes: 0 };

    /// How many bytes there are, or would be.
    pub fn len(&self) -> u32 {
        match self {
            Self::Absent { bytes } => *bytes,
            Self::Bytes(bytes) => bytes.len() as u32,
        }
    }

    /// True if there is nothing, real or not.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are real.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Absent { .. } => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

/// Bytes, shared by all copies of a packet. A few are copied with it: that takes less time than to find room for them.
#[derive(Clone, Debug)]
pub struct PayloadBytes(ByteStorage);

#[derive(Clone, Debug)]
enum ByteStorage {
    Few { length: u8, bytes: [u8; INLINE_BYTES] },
    Many(Arc<[u8]>),
}

/// So many are few: one element of any type, with its place.
const INLINE_BYTES: usize = 16;

impl PayloadBytes {
    /// The bytes, to be changed; copied first if someone else has them too.
    pub fn make_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            ByteStorage::Few { length, bytes } => &mut bytes[..usize::from(*length)],
            ByteStorage::Many(bytes) => Arc::make_mut(bytes),
        }
    }

    #[inline]
    fn few(bytes: &[u8]) -> Option<Self> {
        let mut few = [0; INLINE_BYTES];
        few.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(ByteStorage::Few { length: bytes.len() as u8, bytes: few }))
    }
}

impl Deref for PayloadBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            ByteStorage::Few { length, bytes } => &bytes[..usize::from(*length)],
            ByteStorage::Many(bytes) => bytes,
        }
    }
}

impl PartialEq for PayloadBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for PayloadBytes {}

impl From<&[u8]> for PayloadBytes {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        Self::few(bytes).unwrap_or_else(|| Self(ByteStorage::Many(bytes.into())))
    }
}

impl From<Vec<u8>> for PayloadBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::few(&bytes).unwrap_or_else(|| Self(ByteStorage::Many(bytes.into())))
    }
}

impl<const N: usize> From<[u8; N]> for PayloadBytes {
    fn from(bytes: [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl FromIterator<u8> for PayloadBytes {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Self {
        bytes.into_iter().collect::<Vec<u8>>().into()
    }
}

/// Where the room of bytes that nobody needs any more waits for as many others: most messages are as long as the one before, and to
/// ask for memory costs more than to fill it.
#[derive(Debug)]
pub struct BufferPool {
    rooms: Vec<Arc<[u8]>>,
    most: usize,
    /// Where there was room last.
    place: usize,
}

/// Looks for a free one. Those that are taken lie side by side.
const PROBES: usize = 2;

impl BufferPool {
    /// An empty one, for so many rooms at most: of no use if more are taken at a time.
    pub fn new(most: usize) -> Self {
        Self { rooms: Vec::new(), most: most.max(1), place: 0 }
    }

    /// A copy of these bytes.
    #[inline]
    pub fn copy(&mut self, bytes: &[u8]) -> PayloadBytes {
        PayloadBytes::few(bytes).unwrap_or_else(|| PayloadBytes(ByteStorage::Many(self.room_for(bytes))))
    }

    fn room_for(&mut self, bytes: &[u8]) -> Arc<[u8]> {
        for _ in 0..PROBES {
            let free = self.rooms.get_mut(self.place).and_then(Arc::get_mut);
            if let Some(room) = free.filter(|room| room.len() == bytes.len()) {
                room.copy_from_slice(bytes);
                return self.rooms[self.place].clone();
            }
            self.place = (self.place + 1) % self.most;
        }
        let new: Arc<[u8]> = bytes.into();
        match self.rooms.get_mut(self.place) {
            Some(room) => *room = new.clone(),
            None => {
                self.place = self.rooms.len();
                self.rooms.push(new.clone());
            }
        }
        new
    }
}

/// Part of somebody's buffer, which stays as it is while this exists: to be sent without a copy in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferSlice {
    buffer: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl BufferSlice {
    /// This part of a buffer.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn new(buffer: &Arc<Vec<u8>>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= buffer.len(), "it is part of the buffer");
        Self { buffer: Arc::clone(buffer), range }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }

    /// Some of them.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part(&self, range: Range<usize>) -> Self {
        assert!(range.end <= self.range.len(), "it is part of what is lent");
        Self::new(&self.buffer, self.range.start + range.start..self.range.start + range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_wherever_they_lie() {
        for length in 0..3 * INLINE_BYTES {
            let bytes: Vec<u8> = (0..length as u8).collect();
            let octets = PayloadBytes::from(bytes.as_slice());
            assert_eq!((&*octets, &octets), (bytes.as_slice(), &PayloadBytes::from(bytes.clone())));
            assert_eq!(Payload::Bytes(octets.clone()).len() as usize, length);
            let mut changed = octets.clone();
            changed.make_mut().iter_mut().for_each(|byte| *byte ^= 1);
            assert_eq!(&*octets, bytes.as_slice(), "a copy was changed, not these");
            assert_eq!(changed == octets, length == 0);
        }
    }

    #[test]
    fn a_shelf_gives_no_room_that_someone_needs() {
        let mut shelf = BufferPool::new(64);
        let mut needed: std::collections::VecDeque<(PayloadBytes, Vec<u8>)> = Default::default();
        for turn in 0..5_000_usize {
            // Lengths change now and then, and so does how many are needed at once.
            let bytes = vec![turn as u8; [100, 40, 8][turn / 700 % 3]];
            needed.push_back((shelf.copy(&bytes), bytes));
            while needed.len() > turn / 300 % 4 * 40 {
                needed.pop_front();
            }
            assert!(needed.iter().all(|(found, bytes)| **found == **bytes));
        }
        assert!(shelf.rooms.len() <= 64);
    }

    #[test]
    fn a_shelf_gives_the_same_room_again() {
        let mut shelf = BufferPool::new(64);
        let first = shelf.copy(&[1; 100]).as_ptr();
        assert!((0..100).all(|byte| shelf.copy(&[byte; 100]).as_ptr() == first));
        // As many as are needed at once, and no more.
        for turn in 0..100 {
            let taken: Vec<PayloadBytes> = (0..20).map(|child| shelf.copy(&[turn ^ child; 100])).collect();
            assert!(taken.iter().zip(0..).all(|(found, child)| **found == [turn ^ child; 100]));
        }
        assert!(shelf.rooms.len() <= 64);
        let rooms: Vec<*const u8> = shelf.rooms.iter().map(|room| room.as_ptr()).collect();
        let again: Vec<PayloadBytes> = (0..20).map(|_| shelf.copy(&[0; 100])).collect();
        assert!(again.iter().all(|octets| rooms.contains(&octets.as_ptr())), "nothing new was asked for");
    }

    #[test]
    fn a_queue_that_fits_a_shelf_asks_for_nothing_new() {
        let mut shelf = BufferPool::new(22);
        let mut queue: std::collections::VecDeque<PayloadBytes> =
            (0..20).map(|byte| shelf.copy(&[byte; 100])).collect();
        let mut rooms = std::collections::BTreeSet::new();
        for turn in 0..100 {
            queue.push_back(shelf.copy(&[turn; 100]));
            rooms.insert(queue[20].as_ptr());
            queue.pop_front();
        }
        assert!(rooms.len() <= 22, "{}", rooms.len());
    }
}
