//! A CRC of 64 bits by a secret polynomial: the part of a MAC that reads the sums of a long message ([`crate::SecretHash`]).
//!
//! In: secret random numbers, once; then bytes. Out: a hash. Whoever does not know the polynomial finds
//! two messages of one length with the same hash only by chance: their difference must be a multiple of the polynomial, and of the 2^58
//! irreducible ones a message of n bytes is a multiple of at most n / 8 (H. Krawczyk, LFSR-based Hashing and Authentication, CRYPTO '94).
//!
//! A hash by itself reveals the polynomial. It must not be sent, only be put into a pseudo-random function together with the length of
//! the message.

use std::sync::OnceLock;

use super::CrcKernel;
use super::polynomial::{Polynomial, fold_constants, reduction_constants};
use super::scalar::{self, ByteTables};

const WIDTH: u32 = 64;
/// How far kernels move bits.
const FOLD_DISTANCES: [u32; 9] = [128, 256, 384, 512, 768, 1024, 1536, 2048, 4096];

/// A hash function with a secret.
pub(crate) struct SecretCrc64 {
    folds: [[u64; 2]; FOLD_DISTANCES.len()],
    reduction: [u64; 3],
    reversed: u64,
    /// For processors without carry-less multiplication.
    tables: OnceLock<Box<ByteTables>>,
}

impl std::fmt::Debug for SecretCrc64 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretCrc64(..)")
    }
}

impl SecretCrc64 {
    /// By the first irreducible polynomial among numbers that only those who share the secret can draw. About one in 32 is.
    pub(crate) fn new(mut draw: impl FnMut() -> u64) -> Self {
        loop {
            // Its coefficients below x^64; that of 1 is never zero.
            let polynomial = draw() | 1;
            if is_irreducible(polynomial) {
                return Self::by(polynomial.reverse_bits());
            }
        }
    }

    fn by(reversed: u64) -> Self {
        Self {
            folds: FOLD_DISTANCES.map(|bits| fold_constants(reversed, WIDTH, bits)),
            reduction: reduction_constants(reversed, WIDTH),
            reversed,
            tables: OnceLock::new(),
        }
    }

    /// The register after these bytes; at the beginning it has ones. Only for supported kernels.
    pub(crate) fn update(&self, kernel: CrcKernel, register: u64, bytes: &[u8]) -> u64 {
        kernel.update(self, register, bytes)
    }
}

impl Polynomial for &SecretCrc64 {
    const WIDTH: u32 = WIDTH;
    const IS_CRC32C: bool = false;

    #[inline]
    fn fold_constants<const BITS: u32>(self) -> [u64; 2] {
        self.folds[const { position_of(BITS) }]
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn reduction_constants(self) -> [u64; 3] {
        self.reduction
    }

    #[inline]
    fn tables(&self) -> &ByteTables {
        self.tables.get_or_init(|| Box::new(scalar::tables(self.reversed)))
    }
}

const fn position_of(bits: u32) -> usize {
    let mut place = 0;
    while FOLD_DISTANCES[place] != bits {
        place += 1;
    }
    place
}

/// Whether x^64 plus these lower powers has no divisor (M. Rabin's test): it divides x^(2^64) - x, and has nothing in common with
/// x^(2^32) - x, which contains all polynomials whose degree divides 32.
fn is_irreducible(polynomial: u64) -> bool {
    const X: u64 = 2;
    // An even number of coefficients, with that of x^64: x + 1 divides it.
    if polynomial.count_ones() % 2 == 1 {
        return false;
    }
    let square = |power: u64| multiply(power, power, polynomial);
    let half = (0..32).fold(X, |power, _| square(power));
    let whole = (0..32).fold(half, |power, _| square(power));
    whole == X && greatest_common_divisor(1 << 64 | u128::from(polynomial), u128::from(half ^ X)) == 1
}

/// The product modulo x^64 plus these lower powers.
fn multiply(a: u64, b: u64, polynomial: u64) -> u64 {
    (0..64).rev().fold(0, |sum, power| {
        let shifted = sum << 1 ^ if sum >> 63 == 1 { polynomial } else { 0 };
        shifted ^ if b >> power & 1 == 1 { a } else { 0 }
    })
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        while a.leading_zeros() <= b.leading_zeros() {
            a ^= b << (b.leading_zeros() - a.leading_zeros());
            if a == 0 {
                break;
            }
        }
        (a, b) = (b, a);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_harness::{self, GUARD_BYTES, random_bytes};

    /// Numbers of a generator that anyone can predict.
    fn numbers(seed: u8) -> impl FnMut() -> u64 {
        let bytes = random_bytes(8 * 4096, seed.into());
        let mut at = 0;
        move || {
            at += 8;
            u64::from_le_bytes(std::array::from_fn(|index| bytes[at - 8 + index]))
        }
    }

    #[test]
    fn products_of_polynomials_are_told_from_irreducible_ones() {
        // The first has the divisor x + 1; the others are in published tables of irreducible polynomials.
        assert!(!is_irreducible(0x42f0_e1eb_a9ea_3693));
        assert!(is_irreducible(0x1b) && is_irreducible(0b1_1101));
        for (a, b) in [(0x0000_0001_0000_008d_u128, 0x0000_0001_0000_00c5_u128), (0x1_8000_0057, 0x1_0000_00af)] {
            let product = (0..33).fold(0_u128, |sum, bit| sum ^ if b >> bit & 1 == 1 { a << bit } else { 0 });
            assert!(!is_irreducible(product as u64), "{product:x}");
        }
    }

    #[test]
    fn about_one_number_in_thirty_two_is_taken() {
        let mut draw = numbers(1);
        let taken = (0..4096).filter(|_| is_irreducible(draw() | 1)).count();
        assert!((90..=180).contains(&taken), "{taken} of 4096");
    }

    #[test]
    fn every_kernel_agrees_with_the_shift_register() {
        let reversed = 0x1b_u64.reverse_bits();
        let secret = SecretCrc64::by(reversed);
        let source = random_bytes(4096, 2);
        let mut target = vec![0; 4096 + 64 + 2 * GUARD_BYTES];
        for length in (0..700).chain([1024, 1408, 4000, 4096]) {
            let bytes = &source[..length];
            let wanted = bytes.iter().fold(u64::MAX, |register, byte| {
                (0..8).fold(register ^ u64::from(*byte), |value, _| value >> 1 ^ (reversed * (value & 1)))
            });
            for kernel in CrcKernel::ALL.into_iter().filter(|kernel| kernel.is_available()) {
                assert_eq!(kernel.update(&secret, u64::MAX, bytes), wanted, "{length} bytes, {}", kernel.name());
                let name = format_args!("{}", kernel.name());
                kernel_harness::check_copy(bytes, &mut target, length % 64, wanted, name, |bytes, room, whose| {
                    kernel.copy(&secret, u64::MAX, bytes, room, whose)
                });
            }
        }
    }

    #[test]
    fn a_change_that_a_public_crc_misses_changes_the_hash() {
        // A multiple of the public polynomial: some bytes, and then what takes the register back to where it would be without them.
        let public = |bytes: &[u8]| crate::value(crate::Algorithm::Crc64Nvme, bytes);
        let mut multiple = [0; 24];
        multiple[8] = 1;
        let difference = public(&multiple[..16]) ^ public(&[0; 16]);
        multiple[16..].copy_from_slice(&difference.to_le_bytes());
        let message = random_bytes(24, 3);
        let changed: Vec<u8> = message.iter().zip(multiple).map(|(byte, add)| byte ^ add).collect();
        assert_eq!(public(&message), public(&changed));
        for seed in 4..20 {
            let secret = SecretCrc64::new(numbers(seed));
            let hash = |bytes: &[u8]| secret.update(CrcKernel::best(), u64::MAX, bytes);
            assert_ne!(hash(&message), hash(&changed));
        }
    }
}
