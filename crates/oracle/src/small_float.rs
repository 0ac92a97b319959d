//! 16-bit floats, by arithmetic instead of bit operations.
//!
//! In: the bits of an `f16` or `bf16`. Out: the same number as `f64`, exactly; and back, rounded once to nearest, ties to
//! even. `f64` represents every number of both formats, and their quanta, without rounding.

/// A binary format of 16 bits: sign, exponent, mantissa.
pub(crate) struct SmallFloat {
    mantissa_bits: i32,
    exponent_bits: i32,
}

pub(crate) const F16: SmallFloat = SmallFloat { mantissa_bits: 10, exponent_bits: 5 };
pub(crate) const BF16: SmallFloat = SmallFloat { mantissa_bits: 7, exponent_bits: 8 };

impl SmallFloat {
    pub(crate) fn decode(&self, bits: u16) -> f64 {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let exponent = i32::from(bits >> self.mantissa_bits) & self.top_exponent();
        let fraction = i32::from(bits) & (self.hidden_bit() - 1);
        if exponent == self.top_exponent() {
            return if fraction == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        let (mantissa, scale) = if exponent == 0 { (fraction, 1) } else { (fraction + self.hidden_bit(), exponent) };
        sign * f64::from(mantissa) * two_to(self.smallest_quantum() + scale - 1)
    }

    pub(crate) fn encode(&self, number: f64) -> u16 {
        if number.is_nan() {
            // Canonical: no sign, only the top bit of the mantissa.
            return (self.infinity() + self.hidden_bit() / 2) as u16;
        }
        let sign = if number.is_sign_negative() { 0x8000 } else { 0 };
        let magnitude = number.abs();
        // The spacing of numbers doubles with each exponent, starting with that of the subnormals.
        let mut exponent = 1;
        while exponent < self.top_exponent() && magnitude >= self.first_above(exponent) {
            exponent += 1;
        }
        if exponent == self.top_exponent() {
            return sign | self.infinity() as u16;
        }
        let steps = (magnitude / two_to(self.smallest_quantum() + exponent - 1)).round_ties_even() as i32;
        // In units of the spacing, a subnormal has no hidden bit, and a mantissa rounded up to the next power of two carries into
        // the exponent, and from the largest number into infinity: addition handles both.
        sign | ((exponent - 1) * self.hidden_bit() + steps) as u16
    }

    /// The nearest number of the format; equals decoding what [`Self::encode`] returns, without its search.
    #[inline]
    pub(crate) fn round(&self, number: f64) -> f64 {
        let too_large = self.first_above(self.top_exponent() - 1);
        // The power of two at or below the number, and the spacing of the format's numbers there.
        let power = f64::from_bits(number.to_bits() & f64::INFINITY.to_bits());
        let spacing = (power * two_to(-self.mantissa_bits)).max(two_to(self.smallest_quantum()));
        // Doubles from 2^52 to 2^53 spacings are one spacing apart: the sum is rounded, on a tie to even.
        let shift = spacing * (1.5 * two_to(52));
        let rounded = (number + shift) - shift;
        let is_infinite = number.abs() >= too_large || rounded.abs() >= too_large;
        let magnitude = if is_infinite { f64::INFINITY } else { rounded.abs() };
        if number.is_nan() { f64::NAN } else { magnitude.copysign(number) }
    }

    fn hidden_bit(&self) -> i32 {
        1 << self.mantissa_bits
    }

    fn top_exponent(&self) -> i32 {
        (1 << self.exponent_bits) - 1
    }

    fn infinity(&self) -> i32 {
        self.top_exponent() << self.mantissa_bits
    }

    /// The binary logarithm of the smallest positive number.
    fn smallest_quantum(&self) -> i32 {
        2 - (1 << (self.exponent_bits - 1)) - self.mantissa_bits
    }

    /// The smallest power of two that is too large for this exponent.
    fn first_above(&self, exponent: i32) -> f64 {
        two_to(self.smallest_quantum() + self.mantissa_bits + exponent)
    }
}

/// A power of two in the range of normal `f64`. Not `powi`, which is slow and has unspecified precision.
pub(crate) fn two_to(exponent: i32) -> f64 {
    assert!((-1022..=1023).contains(&exponent), "2^{exponent} is not a normal f64");
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_decoding_and_encoding() {
        for format in [F16, BF16] {
            for bits in 0..=u16::MAX {
                let number = format.decode(bits);
                if !number.is_nan() {
                    assert_eq!(format.encode(number), bits, "{number:e}");
                }
            }
        }
    }

    #[test]
    fn known_numbers_have_their_known_bits() {
        let f16 = [(1.0, 0x3c00), (-2.0, 0xc000), (65504.0, 0x7bff), (6.103515625e-5, 0x0400), (-0.0, 0x8000)];
        for (number, bits) in f16 {
            assert_eq!((F16.encode(number), F16.decode(bits)), (bits, number));
        }
        assert_eq!((F16.encode(f64::NAN), BF16.encode(f64::NAN)), (0x7e00, 0x7fc0));
        assert_eq!((BF16.encode(1.0), BF16.encode(3.140625)), (0x3f80, 0x4049));
        assert_eq!(F16.decode(1), 5.960464477539063e-8);
    }

    #[test]
    fn rounding_agrees_with_encoding_at_and_around_every_midpoint() {
        for format in [F16, BF16] {
            for bits in 0..format.infinity() as u16 {
                let (low, high) = (format.decode(bits), format.decode(bits + 1));
                let middle = if high.is_finite() { low + (high - low) / 2.0 } else { low * (1.0 + two_to(-9)) };
                for number in [low, middle, middle.next_up(), middle.next_down(), low.next_up()] {
                    for number in [number, -number] {
                        let expected = format.decode(format.encode(number));
                        assert_eq!(format.round(number).to_bits(), expected.to_bits(), "{number:e}");
                    }
                }
            }
            assert_eq!(format.round(f64::INFINITY), f64::INFINITY);
            assert!(format.round(f64::NAN).is_nan());
        }
    }

    #[test]
    fn halfway_goes_to_even_and_past_the_largest_to_infinity() {
        assert_eq!(F16.round(2049.0), 2048.0);
        assert_eq!(F16.round(2051.0), 2052.0);
        assert_eq!(F16.round(65519.9), 65504.0);
        assert_eq!(F16.round(65520.0), f64::INFINITY);
        assert_eq!(F16.round(-1e300), f64::NEG_INFINITY);
        assert_eq!(F16.round(2.0_f64.powi(-25)), 0.0);
        assert_eq!(F16.round(2.0_f64.powi(-25) * 1.5), 2.0_f64.powi(-24));
        assert_eq!(BF16.round(257.0), 256.0);
        assert_eq!(BF16.round(259.0), 260.0);
        assert_eq!(BF16.round(f64::from(f32::MAX)), f64::INFINITY);
    }
}
