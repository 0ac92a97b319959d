//! What a message carries: bytes, or only their number; and bytes that are sent from where they lie.

use std::ops::Range;
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
    /// Real bytes, shared by all copies of a packet.
    Bytes(Arc<[u8]>),
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

/// Part of somebody's buffer, which stays as it is while this exists: to be sent without a copy in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lent {
    buffer: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Lent {
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
