//! A range of a shared buffer, to be sent without a copy.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Memory that belongs to the user, lent for a send. The bytes do not change while the loan exists.
pub trait LentBytes: fmt::Debug + Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// A buffer that several packets share: a vector, or memory of the user.
#[derive(Clone, Debug)]
pub enum SharedBytes {
    /// A vector.
    Owned(Arc<Vec<u8>>),
    /// Memory of the user; it is free when all clones are gone.
    Lent(Arc<dyn LentBytes>),
}

impl SharedBytes {
    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(vector) => vector,
            Self::Lent(loan) => loan.bytes(),
        }
    }

    /// The vector, copied if it is still shared; an empty one for lent memory, whose loan ends.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Owned(vector) => Arc::unwrap_or_clone(vector),
            Self::Lent(_) => Vec::new(),
        }
    }
}

/// A range of a shared buffer. The bytes do not change while it exists.
#[derive(Clone, Debug)]
pub struct BufferSlice {
    buffer: SharedBytes,
    range: Range<usize>,
}

impl BufferSlice {
    /// A range of a buffer.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn new(buffer: &SharedBytes, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= buffer.bytes().len(), "the range exceeds the buffer");
        Self { buffer: buffer.clone(), range }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[self.range.clone()]
    }

    /// A range of these bytes.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part(&self, range: Range<usize>) -> Self {
        assert!(range.end <= self.range.len(), "the range exceeds the slice");
        Self::new(&self.buffer, self.range.start + range.start..self.range.start + range.end)
    }
}

impl PartialEq for BufferSlice {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for BufferSlice {}
