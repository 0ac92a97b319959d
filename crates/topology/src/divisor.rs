//! Division by a number that is known in advance, without the divide instruction.
//!
//! In: a divisor, once. Out: quotients and remainders of numbers below 2^33. A packet hop needs
//! four of them; multiplication by the reciprocal keeps a hop within a few nanoseconds.

/// A divisor below 2^29 and its reciprocal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    value: u32,
    reciprocal: u64,
}

impl Divisor {
    const SHIFT: u32 = 63;

    pub(crate) fn new(value: u32) -> Self {
        assert!((1..1 << 29).contains(&value), "the divisor must be between 1 and 2^29 - 1");
        Self { value, reciprocal: (1 << Self::SHIFT) / u64::from(value) + 1 }
    }

    pub(crate) const fn value(self) -> u32 {
        self.value
    }

    /// Exact, because the reciprocal is too large by at most `value` / 2^63 and the error times
    /// the number stays below one: 2^33 * 2^29 < 2^63.
    #[inline]
    pub(crate) const fn divide(self, number: u64) -> u32 {
        debug_assert!(number < 1 << 33);
        ((number as u128 * self.reciprocal as u128) >> Self::SHIFT) as u32
    }

    #[inline]
    pub(crate) const fn remainder(self, number: u64) -> u32 {
        (number - self.divide(number) as u64 * self.value as u64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reciprocals_divide_as_the_instruction_does(
            number in 0u64..=u64::from(u32::MAX),
            value in prop_oneof![1u32..200, 1u32..1 << 29],
        ) {
            let divisor = Divisor::new(value);
            prop_assert_eq!(u64::from(divisor.divide(number)), number / u64::from(value));
            prop_assert_eq!(u64::from(divisor.remainder(number)), number % u64::from(value));
        }

        #[test]
        fn multiples_and_their_neighbours_are_exact(value in 1u32..1 << 29, times in 1u64..1 << 4) {
            let divisor = Divisor::new(value);
            let multiple = u64::from(value) * times;
            prop_assert_eq!(u64::from(divisor.divide(multiple)), times);
            prop_assert_eq!(u64::from(divisor.divide(multiple - 1)), times - 1);
        }
    }
}
