//! One pass over bytes: reading them, or copying them while reading.
//!
//! An algorithm is written once over a [`Pass`]; whether it also copies depends on the pass. So a checksum and a copy become one loop
//! without a second implementation.

use crate::prefetch::TargetCache;

/// Bytes from first to last, each processed once.
pub(crate) trait Pass: Sized {
    /// The number of remaining bytes.
    fn remaining(&self) -> usize;

    /// Splits off the next `count` bytes (or all, if fewer remain) as a pass of their own.
    fn split(&mut self, count: usize) -> Self;

    /// Calls `step` for whole chunks of `N` bytes in order. The rest remains.
    fn for_each_chunk<const N: usize>(&mut self, step: impl FnMut(&[u8; N]));

    /// All remaining bytes, for kernels with their own loop: the source, and the target of a copy.
    fn buffers(&mut self) -> (&[u8], Option<&mut [u8]>);

    /// The cache that holds the target of a copy.
    fn target(&self) -> TargetCache;
}

/// Only reads.
pub(crate) struct ReadPass<'a>(pub(crate) &'a [u8]);

/// Copies while reading. Source and target have one length.
pub(crate) struct CopyPass<'a> {
    from: &'a [u8],
    to: &'a mut [u8],
    target: TargetCache,
}

impl<'a> CopyPass<'a> {
    pub(crate) fn new(from: &'a [u8], to: &'a mut [u8], target: TargetCache) -> Self {
        assert_eq!(from.len(), to.len(), "source and target of a copy have the same length");
        Self { from, to, target }
    }
}

impl Pass for ReadPass<'_> {
    #[inline(always)]
    fn remaining(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn split(&mut self, count: usize) -> Self {
        let (now, later) = self.0.split_at(count.min(self.0.len()));
        self.0 = later;
        Self(now)
    }

    #[inline(always)]
    fn for_each_chunk<const N: usize>(&mut self, mut step: impl FnMut(&[u8; N])) {
        let (groups, rest) = self.0.as_chunks::<N>();
        for group in groups {
            step(group);
        }
        self.0 = rest;
    }

    #[inline(always)]
    fn buffers(&mut self) -> (&[u8], Option<&mut [u8]>) {
        (self.0, None)
    }

    #[inline(always)]
    fn target(&self) -> TargetCache {
        TargetCache::Local
    }
}

impl Pass for CopyPass<'_> {
    #[inline(always)]
    fn remaining(&self) -> usize {
        self.from.len()
    }

    #[inline(always)]
    fn split(&mut self, count: usize) -> Self {
        let count = count.min(self.from.len());
        let (now, later) = self.from.split_at(count);
        let (room, room_later) = std::mem::take(&mut self.to).split_at_mut(count);
        (self.from, self.to) = (later, room_later);
        Self { from: now, to: room, target: self.target }
    }

    #[inline(always)]
    fn for_each_chunk<const N: usize>(&mut self, mut step: impl FnMut(&[u8; N])) {
        let (groups, rest) = self.from.as_chunks::<N>();
        let (rooms, room_rest) = std::mem::take(&mut self.to).as_chunks_mut::<N>();
        for (group, room) in groups.iter().zip(rooms) {
            let seen = *group;
            *room = seen;
            step(&seen);
        }
        (self.from, self.to) = (rest, room_rest);
    }

    #[inline(always)]
    fn buffers(&mut self) -> (&[u8], Option<&mut [u8]>) {
        (self.from, Some(self.to))
    }

    #[inline(always)]
    fn target(&self) -> TargetCache {
        self.target
    }
}
