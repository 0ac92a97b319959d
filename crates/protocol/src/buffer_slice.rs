//! A range of a shared buffer, to be sent without a copy.

use std::ops::Range;
use std::sync::Arc;

/// A range of a shared buffer. The bytes do not change while it exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferSlice {
    buffer: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl BufferSlice {
    /// A range of a buffer.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn new(buffer: &Arc<Vec<u8>>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= buffer.len(), "the range exceeds the buffer");
        Self { buffer: Arc::clone(buffer), range }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
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
