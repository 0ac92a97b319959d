//! Elements of a payload and the operators on them.
//!
//! In: two elements, the accumulator's first. Out: one. This module and `half_floats` implement the rules for NaN,
//! zeros and overflow that the head of the crate states, one pair of elements at a time.

/// A fixed-size little-endian element of a payload.
pub(crate) trait PayloadElement: Copy {
    /// Encoded size in bytes, padding included.
    const SIZE: usize;
    /// Reads exactly [`PayloadElement::SIZE`] bytes.
    fn load(bytes: &[u8]) -> Self;
    /// Writes exactly [`PayloadElement::SIZE`] bytes.
    fn store(self, place: &mut [u8]);
}

/// An element with addition, multiplication and an order.
pub(crate) trait ArithmeticElement: PayloadElement {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;
    /// True if this number may be the source of a minimum or maximum that came out as `result`.
    fn gives(self, result: Self) -> bool;
}

/// An element with bitwise operators.
pub(crate) trait BitwiseElement: ArithmeticElement {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

macro_rules! element {
    ($number:ty) => {
        impl PayloadElement for $number {
            const SIZE: usize = size_of::<$number>();

            #[inline(always)]
            fn load(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("the loop passes whole elements"))
            }

            #[inline(always)]
            fn store(self, place: &mut [u8]) {
                place.copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}
pub(crate) use element;

macro_rules! integer {
    ($($number:ty),*) => {$(
        element!($number);

        impl ArithmeticElement for $number {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                self.min(other)
            }

            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                self.max(other)
            }

            #[inline(always)]
            fn gives(self, result: Self) -> bool {
                self == result
            }
        }

        impl BitwiseElement for $number {
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    )*};
}

integer!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! float {
    ($number:ty, $nan:literal) => {
        element!($number);

        impl ArithmeticElement for $number {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                let sum = self + other;
                if sum.is_nan() { Self::from_bits($nan) } else { sum }
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                let product = self * other;
                if product.is_nan() { Self::from_bits($nan) } else { product }
            }

            // If neither is below the other, the bits are equal or both are zeros of different sign. Combining the
            // bits keeps the former and gives -0 for the latter. Selects instead of branches, so that the loop
            // vectorises.
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let equal = Self::from_bits(self.to_bits() | other.to_bits());
                let ordered = if self < other { self } else { equal };
                let ordered = if other < self { other } else { ordered };
                if self.is_nan() | other.is_nan() { Self::from_bits($nan) } else { ordered }
            }

            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                let equal = Self::from_bits(self.to_bits() & other.to_bits());
                let ordered = if self > other { self } else { equal };
                let ordered = if other > self { other } else { ordered };
                if self.is_nan() | other.is_nan() { Self::from_bits($nan) } else { ordered }
            }

            #[inline(always)]
            fn gives(self, result: Self) -> bool {
                (self.to_bits() == result.to_bits()) | (self.is_nan() & result.is_nan())
            }
        }
    };
}

float!(f32, 0x7fc0_0000);
float!(f64, 0x7ff8_0000_0000_0000);
