//! CRCs that process the low bit of each byte first, for messages and packets.
//!
//! In: a register, the bytes, and perhaps where to copy them. Out: the register after them. The register starts as ones and is
//! complemented at the end; the caller does both, so that the CRC can be computed incrementally.
//!
//! Bytes are a polynomial over GF(2), the first bit with the highest power. Wide kernels keep several parts of it in vector registers
//! and *fold*: a part times a power of x, modulo the CRC's polynomial, has the same remainder as the part that many bits further on.
//! All powers are computed here from the polynomial alone, at compile time unless it is a secret ([`SecretCrc64`]).

mod kernel;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod polynomial;
mod scalar;
mod secret;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use kernel::CrcKernel;
pub(crate) use polynomial::{Crc32cPolynomial, Crc64NvmePolynomial, IcrcPolynomial, Polynomial, VcrcPolynomial};
pub(crate) use secret::SecretCrc64;

use crate::prefetch::TargetCache;

/// The register after these bytes.
#[inline]
pub(crate) fn update<P: Polynomial>(polynomial: P, register: u64, bytes: &[u8]) -> u64 {
    CrcKernel::best().update(polynomial, register, bytes)
}

/// The register after these bytes, which are also copied to `to`.
#[inline]
pub(crate) fn copy<P: Polynomial>(
    polynomial: P,
    register: u64,
    from: &[u8],
    to: &mut [u8],
    target: TargetCache,
) -> u64 {
    CrcKernel::best().copy(polynomial, register, from, to, target)
}
