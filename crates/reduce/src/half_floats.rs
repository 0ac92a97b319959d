//! The two 16-bit floats.
//!
//! In: two numbers. Out: one, computed in `f32` and rounded back. For `f16` this is the correctly rounded result,
//! because 24 bits of mantissa hold twice 11 and two more; for `bf16` likewise, except for products so small that
//! `f32` has already rounded them.
//!
//! The conversions are written here because those of `half` query the processor's features for every element and fold
//! only 0.4 GB/s. These have no branches, so the surrounding loop vectorises. The tests compare them with `half`'s.

use half::{bf16, f16};

use crate::payload_element::{ArithmeticElement, PayloadElement, element};

macro_rules! half {
    ($number:ty, $nan:literal, $widen:ident, $narrow:ident) => {
        element!($number);

        impl ArithmeticElement for $number {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                let sum = $widen(self.to_bits()) + $widen(other.to_bits());
                Self::from_bits(if sum.is_nan() { $nan } else { $narrow(sum) as u16 })
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                let product = $widen(self.to_bits()) * $widen(other.to_bits());
                Self::from_bits(if product.is_nan() { $nan } else { $narrow(product) as u16 })
            }

            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let ordered = from_key(key(self.to_bits()).min(key(other.to_bits())));
                let nan = self.is_nan() | other.is_nan();
                Self::from_bits(if nan { $nan } else { ordered })
            }

            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                let ordered = from_key(key(self.to_bits()).max(key(other.to_bits())));
                let nan = self.is_nan() | other.is_nan();
                Self::from_bits(if nan { $nan } else { ordered })
            }

            #[inline(always)]
            fn gives(self, result: Self) -> bool {
                (self.to_bits() == result.to_bits()) | (self.is_nan() & result.is_nan())
            }
        }
    };
}

half!(f16, 0x7e00, widen_f16, narrow_f16);
half!(bf16, 0x7fc0, widen_bf16, narrow_bf16);

#[inline(always)]
fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds a number that is not NaN, to nearest, ties to even.
#[inline(always)]
fn narrow_bf16(number: f32) -> u32 {
    let bits = number.to_bits();
    bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16
}

/// After the shift the exponent is 112 too small, and twice that for infinities and NaN. Subnormals get a leading
/// bit, which a subtraction removes again; a product would do too, but processors are slow on `f32` subnormals.
#[inline(always)]
fn widen_f16(bits: u16) -> f32 {
    const LEADING_BIT: u32 = 113 << 23;
    let sign = u32::from(bits & 0x8000) << 16;
    let shifted = u32::from(bits & 0x7fff) << 13;
    let subnormal = (f32::from_bits(shifted + LEADING_BIT) - f32::from_bits(LEADING_BIT)).to_bits();
    let beyond = if shifted < 0x1f << 23 { 0 } else { 112 << 23 };
    let normal = shifted + (112 << 23) + beyond;
    f32::from_bits(sign | if shifted < 1 << 23 { subnormal } else { normal })
}

/// Rounds a number that is not NaN. Computes three ranges and selects one, to avoid branches.
#[inline(always)]
fn narrow_f16(number: f32) -> u32 {
    // 65520 is halfway between the largest f16 and the next value, and rounds up.
    const FIRST_INFINITE: u32 = 0x477f_f000;
    const FIRST_NORMAL: u32 = (127 - 14) << 23;
    // The last mantissa bit of this number equals that of f16's subnormals: adding it rounds to them.
    const SUBNORMAL_ROUNDER: f32 = 0.5;
    let sign = (number.to_bits() >> 16) & 0x8000;
    let bits = number.to_bits() & 0x7fff_ffff;
    let normal = bits.wrapping_sub(112 << 23).wrapping_add(0xfff + ((bits >> 13) & 1)) >> 13;
    let subnormal = (f32::from_bits(bits) + SUBNORMAL_ROUNDER).to_bits().wrapping_sub(SUBNORMAL_ROUNDER.to_bits());
    let finite = if bits < FIRST_NORMAL { subnormal } else { normal };
    sign | if bits < FIRST_INFINITE { finite } else { 0x7c00 }
}

/// An integer that sorts like the float, -0 below +0: negative floats have their magnitude inverted. Comparisons then
/// need no conversion to `f32`.
#[inline(always)]
fn key(bits: u16) -> i16 {
    let bits = bits as i16;
    bits ^ ((bits >> 15) & 0x7fff)
}

#[inline(always)]
fn from_key(key: i16) -> u16 {
    (key ^ ((key >> 15) & 0x7fff)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (widen_f16(bits), f16::from_bits(bits).to_f32_const());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "f16 {bits:#06x}");
            let (ours, theirs) = (widen_bf16(bits), bf16::from_bits(bits).to_f32_const());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "bf16 {bits:#06x}");
        }
    }

    #[test]
    fn numbers_around_every_rounding_border_narrow_as_the_half_crate_does() {
        // All upper halves, with the lower bits at and next to every rounding boundary.
        let borders = (0..13).flat_map(|place| [1u32 << place, (1 << place) - 1, (1 << place) + 1]);
        let lower: Vec<u32> = borders.flat_map(|b| (0..8).map(move |top| (top << 13) | (b & 0x1fff))).collect();
        for upper in 0..=u32::from(u16::MAX) {
            for number in lower.iter().map(|lower| f32::from_bits((upper << 16) | lower)) {
                if !number.is_nan() {
                    assert_eq!(narrow_f16(number), u32::from(f16::from_f32_const(number).to_bits()), "{number:e}");
                    assert_eq!(narrow_bf16(number), u32::from(bf16::from_f32_const(number).to_bits()), "{number:e}");
                }
            }
        }
    }
}
