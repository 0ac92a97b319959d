//! Reduces 128 folded bits to the register.

use std::arch::x86_64::*;

use crate::crc::polynomial::Polynomial;

/// The register after 128 bits, from a register of zeros.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(super) fn reduce_to_register<P: Polynomial>(polynomial: P, bits: __m128i) -> u64 {
    if P::IS_CRC32C {
        // The CRC32 instruction has this polynomial only.
        let first = _mm_crc32_u64(0, _mm_cvtsi128_si64(bits) as u64);
        return _mm_crc32_u64(first, _mm_extract_epi64::<1>(bits) as u64);
    }
    let [further, quotient, polynomial] = polynomial.reduction_constants();
    // The first half times x^128 and the second times x^64: 128 bits to be divided by the polynomial.
    let times = _mm_clmulepi64_si128::<0x00>(bits, _mm_cvtsi64_si128(further as i64));
    let dividend = _mm_xor_si128(times, _mm_srli_si128::<8>(bits));
    // Barrett: the product with the quotient of x^128 is how often the polynomial divides it.
    let divisor = _mm_set_epi64x(polynomial as i64, quotient as i64);
    let often = _mm_clmulepi64_si128::<0x00>(dividend, divisor);
    let taken = _mm_clmulepi64_si128::<0x10>(often, divisor);
    let rest = _mm_xor_si128(dividend, taken);
    // The contribution of the polynomial's coefficient of 1, left out above; a shorter polynomial has none there.
    let once = if P::WIDTH == 64 { _mm_cvtsi128_si64(often) as u64 } else { 0 };
    _mm_extract_epi64::<1>(rest) as u64 ^ once
}

/// The register after fewer than eight bytes, given as a number with the first byte lowest.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(super) fn update_few_bytes<P: Polynomial>(polynomial: P, before: u64, bytes: u64, count: usize) -> u64 {
    if count == 0 {
        return before;
    }
    let shift = 8 * count as u32;
    // As many bytes of the register take part as were added; the others move down.
    let bits = _mm_set_epi64x(((before ^ bytes) << (64 - shift)) as i64, 0);
    reduce_to_register(polynomial, bits) ^ (before >> shift)
}
