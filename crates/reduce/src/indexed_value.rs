//! A value with its index: the elements of `minloc` and `maxloc`.
//!
//! In: two pairs. Out: the pair with the minimum or maximum value; if both have it, the smaller index. The value
//! follows the rules of `min` and `max`.

use crate::payload_element::{ArithmeticElement, PayloadElement};

const INDEX_SIZE: usize = size_of::<i32>();

#[derive(Clone, Copy)]
pub(crate) struct IndexedValue<V> {
    value: V,
    index: i32,
}

impl<V: ArithmeticElement> IndexedValue<V> {
    /// C aligns the index to its own size and the pair to its larger member.
    const INDEX_AT: usize = if V::SIZE > INDEX_SIZE { V::SIZE } else { INDEX_SIZE };

    #[inline(always)]
    pub(crate) fn minimum(self, other: Self) -> Self {
        self.choose(other, self.value.minimum(other.value))
    }

    #[inline(always)]
    pub(crate) fn maximum(self, other: Self) -> Self {
        self.choose(other, self.value.maximum(other.value))
    }

    /// The losing value's index is replaced by the largest one, so that the minimum picks the winner: selects instead
    /// of branches, because the winner is not predictable.
    #[inline(always)]
    fn choose(self, other: Self, value: V) -> Self {
        let mine = if self.value.gives(value) { self.index } else { i32::MAX };
        let theirs = if other.value.gives(value) { other.index } else { i32::MAX };
        Self { value, index: mine.min(theirs) }
    }
}

impl<V: ArithmeticElement> PayloadElement for IndexedValue<V> {
    const SIZE: usize = 2 * Self::INDEX_AT;

    #[inline(always)]
    fn load(bytes: &[u8]) -> Self {
        let index = &bytes[Self::INDEX_AT..Self::INDEX_AT + INDEX_SIZE];
        Self { value: V::load(&bytes[..V::SIZE]), index: i32::load(index) }
    }

    #[inline(always)]
    fn store(self, place: &mut [u8]) {
        self.value.store(&mut place[..V::SIZE]);
        place[V::SIZE..Self::INDEX_AT].fill(0);
        self.index.store(&mut place[Self::INDEX_AT..Self::INDEX_AT + INDEX_SIZE]);
        place[Self::INDEX_AT + INDEX_SIZE..].fill(0);
    }
}
