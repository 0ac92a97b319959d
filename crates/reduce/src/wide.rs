//! Sums of floats as integers: fixed-point numbers wide enough for every exponent.
//!
//! In: floats, or sums of floats. Out: their exact sum, or the nearest float. Integer addition is associative and
//! commutative, so a sum has the same bits for every order and tree (P-36).
//!
//! Layout, little-endian: a two's complement integer that counts the format's smallest subnormals, then a byte of
//! flags. All zeros is the empty sum; adding it changes nothing.
//!
//! | type | bytes | integer | flags | unit | addends before it may wrap |
//! |---|---|---|---|---|---|
//! | `wide-f32` | 40 | 0..39, 312 bits | 39 | 2^-149 | 2^34 |
//! | `wide-f64` | 272 | 0..271, 2168 bits | 271 | 2^-1074 | 2^69 |
//!
//! Flags are or-ed, never cleared: NaN, +∞, -∞, and one that says that something other than -0 was added. The four
//! upper flags are unused and pass unchanged. So every byte pattern is a valid sum, and none needs to be rejected.

use std::cmp::Ordering;

use crate::payload_element::PayloadElement;

/// Eight bytes of a sum, little-endian. Sums are modified in place: copying 272 bytes back and forth takes longer
/// than adding them.
pub(crate) type Limb = [u8; 8];
/// A wide `f32`.
pub(crate) type WideF32 = Wide<5>;
/// A wide `f64`.
pub(crate) type WideF64 = Wide<34>;
/// An exact sum. The highest eight bits are flags.
pub(crate) type Wide<const LIMBS: usize> = [Limb; LIMBS];

const NAN: u64 = 1 << FLAGS_AT;
const PLUS_INFINITY: u64 = 2 << FLAGS_AT;
const MINUS_INFINITY: u64 = 4 << FLAGS_AT;
const NOT_MINUS_ZERO: u64 = 8 << FLAGS_AT;

/// The lowest flag bit of the top limb.
const FLAGS_AT: u32 = 56;
const FLAGS: u64 = u64::MAX << FLAGS_AT;

/// A float that can be widened: its bits and their layout.
pub(crate) trait WidenableFloat: PayloadElement {
    const FRACTION_BITS: u32;
    const EXPONENT_BITS: u32;
    fn bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

macro_rules! float {
    ($number:ty, $wide:ty, $unsigned:ty, $exponent_bits:literal) => {
        impl WidenableFloat for $number {
            const FRACTION_BITS: u32 = <$number>::MANTISSA_DIGITS - 1;
            const EXPONENT_BITS: u32 = $exponent_bits;

            #[inline(always)]
            fn bits(self) -> u64 {
                self.to_bits().into()
            }

            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                Self::from_bits(bits as $unsigned)
            }
        }

        // The largest shift, the mantissa, a sign bit, and headroom for 2^32 of the largest number.
        const _: () = {
            let magnitude_bits = ((1 << $exponent_bits) - 3) + <$number>::MANTISSA_DIGITS as usize;
            assert!(8 * size_of::<$wide>() - 8 > magnitude_bits + 32);
        };
    };
}

float!(f32, WideF32, u32, 8);
float!(f64, WideF64, u64, 11);

/// Splits bytes into sums.
#[inline(always)]
pub(crate) fn cut<const LIMBS: usize>(bytes: &[u8]) -> &[Wide<LIMBS>] {
    bytes.as_chunks().0.as_chunks().0
}

/// Splits bytes into sums.
#[inline(always)]
pub(crate) fn cut_mut<const LIMBS: usize>(bytes: &mut [u8]) -> &mut [Wide<LIMBS>] {
    bytes.as_chunks_mut().0.as_chunks_mut().0
}

/// Folds two slices of sums.
pub(crate) fn fold<const LIMBS: usize>(accumulator: &mut [u8], operand: &[u8]) {
    for (place, sum) in cut_mut::<LIMBS>(accumulator).iter_mut().zip(cut::<LIMBS>(operand)) {
        // Runs of eleven limbs (33 are three runs) are unrolled, so that the carry stays in the processor's flag.
        let (place_runs, place_rest) = place[..LIMBS - 1].as_chunks_mut::<11>();
        let (sum_runs, sum_rest) = sum[..LIMBS - 1].as_chunks::<11>();
        let mut carry = false;
        for (place_run, sum_run) in place_runs.iter_mut().zip(sum_runs) {
            carry = add_limbs(place_run, sum_run, carry);
        }
        carry = add_limbs(place_rest, sum_rest, carry);
        let (mine, theirs) = (u64::from_le_bytes(place[LIMBS - 1]), u64::from_le_bytes(sum[LIMBS - 1]));
        let integer = (mine & !FLAGS) + (theirs & !FLAGS) + u64::from(carry);
        place[LIMBS - 1] = ((integer & !FLAGS) | ((mine | theirs) & FLAGS)).to_le_bytes();
    }
}

/// Writes one number as a sum: two limbs hold it, with zeros below and sign extension above.
#[inline]
pub(crate) fn widen<F: WidenableFloat, const LIMBS: usize>(number: F, place: &mut Wide<LIMBS>) {
    let addend = Addend::of(number);
    *place = [[0; 8]; LIMBS];
    place[addend.limb] = addend.low.to_le_bytes();
    place[addend.limb + 1] = addend.high.to_le_bytes();
    place[addend.limb + 2..].fill(addend.above.to_le_bytes());
    let top = u64::from_le_bytes(place[LIMBS - 1]);
    place[LIMBS - 1] = ((top & !FLAGS) | addend.flags).to_le_bytes();
}

/// Adds one number. Above its two limbs it adds the sign extension until that and the carry cancel out.
#[inline]
pub(crate) fn accumulate<F: WidenableFloat, const LIMBS: usize>(sum: &mut Wide<LIMBS>, number: F) {
    let addend = Addend::of(number);
    let flags = (u64::from_le_bytes(sum[LIMBS - 1]) & FLAGS) | addend.flags;
    let (two, above) = sum[addend.limb..].split_at_mut(2);
    let mut carry = add_limbs(two, &[addend.low.to_le_bytes(), addend.high.to_le_bytes()], false);
    for limb in above {
        if carry == (addend.above != 0) {
            break;
        }
        carry = add_limbs(std::slice::from_mut(limb), &[addend.above.to_le_bytes()], carry);
    }
    let top = u64::from_le_bytes(sum[LIMBS - 1]);
    sum[LIMBS - 1] = ((top & !FLAGS) | flags).to_le_bytes();
}

/// The nearest float, ties to even; infinity beyond the largest.
#[inline]
pub(crate) fn round<F: WidenableFloat, const LIMBS: usize>(sum: &Wide<LIMBS>) -> F {
    let top = u64::from_le_bytes(sum[LIMBS - 1]);
    let flags = top & FLAGS;
    let infinity = ((1 << F::EXPONENT_BITS) - 1) << F::FRACTION_BITS;
    let sign = 1 << (F::EXPONENT_BITS + F::FRACTION_BITS);
    let (plus, minus) = (flags & PLUS_INFINITY != 0, flags & MINUS_INFINITY != 0);
    F::from_bits(if flags & NAN != 0 || (plus && minus) {
        infinity | (1 << (F::FRACTION_BITS - 1))
    } else if plus {
        infinity
    } else if minus {
        infinity | sign
    } else {
        let negative = (top >> (FLAGS_AT - 1)) & 1 == 1;
        let bits = nearest::<F, LIMBS>(sum, if negative { u64::MAX } else { 0 }).min(infinity);
        let minus_zero = bits == 0 && flags & NOT_MINUS_ZERO == 0;
        if negative || minus_zero { bits | sign } else { bits }
    })
}

/// The bits of the float nearest to a sum's magnitude; at least those of infinity if it is too large.
///
/// The magnitude is never materialised. Negation keeps the zeros below the lowest non-zero limb, negates that limb
/// and inverts those above.
#[inline(always)]
fn nearest<F: WidenableFloat, const LIMBS: usize>(sum: &Wide<LIMBS>, sign: u64) -> u64 {
    // Sign extension replaces the flags above the integer.
    let signed = |at: usize| match u64::from_le_bytes(sum[at]) {
        top if at == LIMBS - 1 => (top & !FLAGS) | (sign & FLAGS),
        limb => limb,
    };
    let Some(lowest) = (0..LIMBS).find(|at| signed(*at) != 0) else {
        return 0;
    };
    let highest = (lowest + 1..LIMBS).rev().find(|at| signed(*at) != sign).unwrap_or(lowest);
    let magnitude = |at: usize| match at.cmp(&lowest) {
        Ordering::Less => 0,
        Ordering::Equal => (signed(at) ^ sign).wrapping_sub(sign),
        Ordering::Greater => signed(at) ^ sign,
    };
    let length = 64 * (highest as u32 + 1) - magnitude(highest).leading_zeros();
    // The bits that do not fit the mantissa are shifted out and decide the rounding.
    let shift = length.saturating_sub(F::FRACTION_BITS + 1);
    let (limb, bit) = ((shift / 64) as usize, shift % 64);
    let next = if limb < highest { magnitude(limb + 1) } else { 0 };
    let mantissa = (((u128::from(next) << 64) | u128::from(magnitude(limb))) >> bit) as u64;
    // The leading bit of the mantissa adds one to the exponent. Rounding up to the next power of two carries into the
    // exponent, and from the largest number into infinity.
    let below = (u64::from(shift) << F::FRACTION_BITS) + mantissa;
    if shift == 0 {
        return below;
    }
    let (limb, bit) = (((shift - 1) / 64) as usize, (shift - 1) % 64);
    let half = (magnitude(limb) >> bit) & 1 == 1;
    let rest = lowest < limb || magnitude(limb) & ((1 << bit) - 1) != 0;
    below + u64::from(half && (rest || mantissa & 1 == 1))
}

/// The addend of one float: its mantissa, shifted into two limbs, and its sign extension for all limbs above.
struct Addend {
    limb: usize,
    low: u64,
    high: u64,
    above: u64,
    flags: u64,
}

impl Addend {
    #[inline(always)]
    fn of<F: WidenableFloat>(number: F) -> Self {
        let bits = number.bits();
        let fraction = bits & ((1 << F::FRACTION_BITS) - 1);
        let infinite_exponent = (1_u64 << F::EXPONENT_BITS) - 1;
        let exponent = (bits >> F::FRACTION_BITS) & infinite_exponent;
        let negative = bits >> (F::FRACTION_BITS + F::EXPONENT_BITS) == 1;
        if exponent == infinite_exponent {
            let flag = match (fraction, negative) {
                (0, false) => PLUS_INFINITY,
                (0, true) => MINUS_INFINITY,
                _ => NAN,
            };
            return Self { limb: 0, low: 0, high: 0, above: 0, flags: flag | NOT_MINUS_ZERO };
        }
        // Subnormals have the shift of the smallest normal numbers and no leading bit.
        let leading = u64::from(exponent != 0);
        let mantissa = fraction | (leading << F::FRACTION_BITS);
        let shift = exponent - leading;
        let shifted = i128::from(mantissa) << (shift % 64);
        let signed = if negative { -shifted } else { shifted };
        let minus_zero = negative && mantissa == 0;
        Self {
            limb: (shift / 64) as usize,
            low: signed as u64,
            high: (signed >> 64) as u64,
            above: (signed >> 127) as u64,
            flags: if minus_zero { 0 } else { NOT_MINUS_ZERO },
        }
    }
}

#[inline(always)]
fn add_limbs(places: &mut [Limb], summands: &[Limb], mut carry: bool) -> bool {
    for (place, summand) in places.iter_mut().zip(summands) {
        let (sum, first) = u64::from_le_bytes(*place).overflowing_add(u64::from_le_bytes(*summand));
        let (sum, second) = sum.overflowing_add(carry.into());
        *place = sum.to_le_bytes();
        carry = first | second;
    }
    carry
}
