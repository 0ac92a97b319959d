//! One pass over bytes: looking at them, or carrying them to another place while looking.
//!
//! An algorithm is written once over a pass; whether it also copies is the pass' business. That is how a checksum and a
//! copy become one loop without a second text.

use crate::prefetch::TargetCache;

/// Bytes from first to last, each seen once.
pub(crate) trait Pass: Sized {
    /// How many bytes are left.
    fn left(&self) -> usize;

    /// Cuts off the next `count` bytes (all, if fewer are left) as a pass of their own.
    fn split(&mut self, count: usize) -> Self;

    /// Shows whole groups of `N` bytes, one after the other. What is less than a group stays left.
    fn each<const N: usize>(&mut self, step: impl FnMut(&[u8; N]));

    /// All that is left, for those who go their own way: where it lies, and where it shall lie as well.
    fn ends(&mut self) -> (&[u8], Option<&mut [u8]>);

    /// Whose cache has the lines of the copy.
    fn target(&self) -> TargetCache;
}

/// Only looks.
pub(crate) struct ReadPass<'a>(pub(crate) &'a [u8]);

/// Copies what it shows. Both ends are of one length.
pub(crate) struct CopyPass<'a> {
    from: &'a [u8],
    to: &'a mut [u8],
    target: TargetCache,
}

impl<'a> CopyPass<'a> {
    pub(crate) fn new(from: &'a [u8], to: &'a mut [u8], target: TargetCache) -> Self {
        assert_eq!(from.len(), to.len(), "a copy needs as much room as there are bytes");
        Self { from, to, target }
    }
}

impl Pass for ReadPass<'_> {
    #[inline(always)]
    fn left(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn split(&mut self, count: usize) -> Self {
        let (now, later) = self.0.split_at(count.min(self.0.len()));
        self.0 = later;
        Self(now)
    }

    #[inline(always)]
    fn each<const N: usize>(&mut self, mut step: impl FnMut(&[u8; N])) {
        let (groups, rest) = self.0.as_chunks::<N>();
        for group in groups {
            step(group);
        }
        self.0 = rest;
    }

    #[inline(always)]
    fn ends(&mut self) -> (&[u8], Option<&mut [u8]>) {
        (self.0, None)
    }

    #[inline(always)]
    fn target(&self) -> TargetCache {
        TargetCache::Own
    }
}

impl Pass for CopyPass<'_> {
    #[inline(always)]
    fn left(&self) -> usize {
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
    fn each<const N: usize>(&mut self, mut step: impl FnMut(&[u8; N])) {
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
    fn ends(&mut self) -> (&[u8], Option<&mut [u8]>) {
        (self.from, Some(self.to))
    }

    #[inline(always)]
    fn target(&self) -> TargetCache {
        self.target
    }
}
