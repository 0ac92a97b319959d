//! Size classes of vectors, by powers of four: calls of one class and operation are taken for equally fast.

/// The number of classes.
pub(crate) const SIZE_CLASSES: usize = 13;

/// A class of vector lengths: up to 8 bytes, up to 32, and so on; the last one has no upper bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(crate) struct SizeClass(u8);

impl SizeClass {
    #[inline]
    pub(crate) fn of(bytes: usize) -> Self {
        let eights = bytes.saturating_sub(1) >> 3;
        let bits = usize::BITS - eights.leading_zeros();
        Self(bits.div_ceil(2).min(SIZE_CLASSES as u32 - 1) as u8)
    }

    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..SIZE_CLASSES as u8).map(Self)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }

    /// The longest vector of the class, unless it is the last one.
    pub(crate) fn most_bytes(self) -> Option<u64> {
        (self.index() + 1 < SIZE_CLASSES).then(|| 8 << (2 * self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_is_in_the_first_class_that_holds_it() {
        for bytes in (0..5000).chain([1 << 20, (2 << 20) + 1, (32 << 20) - 1, 32 << 20, (32 << 20) + 1, usize::MAX]) {
            let class = SizeClass::of(bytes);
            assert!(class.most_bytes().is_none_or(|most| bytes as u64 <= most), "{bytes} in {class:?}");
            let before = SizeClass::all().take_while(|other| *other < class).last();
            let before = before.and_then(SizeClass::most_bytes);
            assert!(before.is_none_or(|most| bytes as u64 > most), "{bytes} in {class:?}");
        }
        assert_eq!(SizeClass::all().nth(11).and_then(SizeClass::most_bytes), Some(32 << 20));
    }
}
