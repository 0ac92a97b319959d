//! The polynomials, and the constants that the wide kernels derive from them.

use super::scalar::{self, ByteTables};

/// A polynomial with the constants that kernels derive from it.
pub(crate) trait Polynomial: Copy {
    /// Bits of the register.
    const WIDTH: u32;
    /// A register of ones.
    const ONES: u64 = u64::MAX >> (64 - Self::WIDTH);
    /// True for the polynomial of x86's CRC32 instruction.
    const IS_CRC32C: bool;

    /// The factors that move 128 bits so many bits further on ([`fold_constants`]).
    fn fold_constants<const BITS: u32>(self) -> [u64; 2];
    /// The constants that reduce 128 bits to the register ([`reduction_constants`]).
    #[cfg(target_arch = "x86_64")]
    fn reduction_constants(self) -> [u64; 3];
    /// Lookup tables.
    fn tables(&self) -> &ByteTables;
}

/// A polynomial that is known at compile time, and its constants with it.
pub(crate) trait FixedPolynomial: Copy {
    /// Bits of the register.
    const WIDTH: u32;
    /// The polynomial without its highest power, lowest power first: as a right-shifting register uses it.
    const REVERSED: u64;
}

impl<P: FixedPolynomial> Polynomial for P {
    const WIDTH: u32 = P::WIDTH;
    const IS_CRC32C: bool = P::REVERSED == Crc32cPolynomial::REVERSED;

    #[inline]
    fn fold_constants<const BITS: u32>(self) -> [u64; 2] {
        const { fold_constants(P::REVERSED, P::WIDTH, BITS) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn reduction_constants(self) -> [u64; 3] {
        const { reduction_constants(P::REVERSED, P::WIDTH) }
    }

    #[inline]
    fn tables(&self) -> &ByteTables {
        const { &scalar::tables(P::REVERSED) }
    }
}

/// CRC-32C (RFC 3720), 0x1EDC6F41.
#[derive(Clone, Copy)]
pub(crate) struct Crc32cPolynomial;
/// CRC-64/NVME (NVM Command Set Specification 1.0d, 5.2.1.3.4), 0xAD93D23594C93659.
#[derive(Clone, Copy)]
pub(crate) struct Crc64NvmePolynomial;

/// The ICRC's polynomial, which is Ethernet's, 0x04C11DB7.
#[derive(Clone, Copy)]
pub(crate) struct IcrcPolynomial;
/// The VCRC's polynomial, 0x100B.
#[derive(Clone, Copy)]
pub(crate) struct VcrcPolynomial;

impl FixedPolynomial for Crc32cPolynomial {
    const WIDTH: u32 = 32;
    const REVERSED: u64 = 0x1edc_6f41_u32.reverse_bits() as u64;
}

impl FixedPolynomial for Crc64NvmePolynomial {
    const WIDTH: u32 = 64;
    const REVERSED: u64 = 0xad93_d235_94c9_3659_u64.reverse_bits();
}

impl FixedPolynomial for IcrcPolynomial {
    const WIDTH: u32 = 32;
    const REVERSED: u64 = 0x04c1_1db7_u32.reverse_bits() as u64;
}

impl FixedPolynomial for VcrcPolynomial {
    const WIDTH: u32 = 16;
    const REVERSED: u64 = 0x100b_u16.reverse_bits() as u64;
}

/// x to the power of `exponent`, modulo the polynomial; bit 63 of the result is the coefficient of 1.
const fn power_modulo(reversed: u64, width: u32, exponent: u32) -> u64 {
    let mut value = 1u64 << (width - 1);
    let mut count = 0;
    while count < exponent {
        value = (value >> 1) ^ if value & 1 == 1 { reversed } else { 0 };
        count += 1;
    }
    value << (64 - width)
}

/// The factors for the two halves of 128 bits that move them `bits` further on.
///
/// The first half in memory has the powers from x^64 on. The product of two such 64-bit numbers is one position too low, that is times
/// x: hence one less in each exponent.
pub(super) const fn fold_constants(reversed: u64, width: u32, bits: u32) -> [u64; 2] {
    [power_modulo(reversed, width, bits + 63), power_modulo(reversed, width, bits - 1)]
}

/// The constants that reduce 128 bits to the register. In order: x^127; the quotient of x^128 by the polynomial and the polynomial itself,
/// both without the coefficient of 1, lowest power last.
///
/// A polynomial of fewer than 64 bits is multiplied by the power of x that makes it one of 64. The remainder is then that of the short one
/// times the same power, which puts it into the low bits, where a short register is.
#[cfg(target_arch = "x86_64")]
pub(super) const fn reduction_constants(reversed: u64, width: u32) -> [u64; 3] {
    let polynomial = reversed.reverse_bits();
    // x^128 minus x^64 times the polynomial; the quotient's highest coefficient is that x^64.
    let mut rest = (polynomial as u128) << 64;
    let mut quotient = 0u64;
    let mut place = 64;
    while place > 0 {
        place -= 1;
        if (rest >> (64 + place)) & 1 == 1 {
            quotient |= 1 << place;
            rest ^= ((1u128 << 64) | polynomial as u128) << place;
        }
    }
    let further = power_modulo(reversed, width, 63 + width) >> (64 - width);
    [further, (quotient.reverse_bits() << 1) | 1, (reversed << 1) | 1]
}
