//! The two CRCs at the end of an InfiniBand packet (IB specification volume 1, 7.8; claim SE-6).
//!
//! Both process bits in wire order, low bit of each byte first, start from ones and are complemented at the end; both are sent low byte
//! first. Polynomials: ICRC 0x04C11DB7, as Ethernet; VCRC 0x100B. Polynomial, seed and complement of the VCRC agree with two
//! published implementations, the packet generator of Mellanox (OpenIB, 2004) and the capture library of Endace; the ICRC agrees
//! with the sample packet in the former and with scapy.

use crate::TargetCache;
use crate::crc::{self, IcrcPolynomial, Polynomial, VcrcPolynomial};

/// The invariant CRC, computed incrementally: the caller masks the fields that switches may change, and passes the rest unchanged.
#[derive(Clone, Debug)]
pub struct Icrc {
    register: u64,
}

impl Default for Icrc {
    fn default() -> Self {
        Self { register: IcrcPolynomial::ONES }
    }
}

impl Icrc {
    /// Starts a packet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes of the packet.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.register = crc::update(IcrcPolynomial, self.register, bytes);
    }

    /// Adds the next bytes of the packet, and copies them.
    ///
    /// # Panics
    /// If `to` has another length.
    #[inline]
    pub fn copy(&mut self, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "source and target of a copy have the same length");
        self.register = crc::copy(IcrcPolynomial, self.register, from, to, TargetCache::Local);
    }

    /// The CRC; it is sent low byte first.
    #[inline]
    pub fn finish(self) -> u32 {
        (self.register ^ IcrcPolynomial::ONES) as u32
    }
}

/// The variant CRC of everything before it in the frame, ICRC included; it is sent low byte first.
pub fn vcrc(bytes: &[u8]) -> u16 {
    (crc::update(VcrcPolynomial, VcrcPolynomial::ONES, bytes) ^ VcrcPolynomial::ONES) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, bit by bit, as a shift register.
    fn by_shift_register(bytes: &[u8], width: u32, polynomial: u32) -> u32 {
        let ones = u32::MAX >> (32 - width);
        let reversed = polynomial.reverse_bits() >> (32 - width);
        let mut register = ones;
        for byte in bytes {
            for bit in 0..8 {
                let feedback = (register ^ u32::from(byte >> bit)) & 1;
                register = (register >> 1) ^ (reversed * feedback);
            }
        }
        register ^ ones
    }

    fn icrc(bytes: &[u8]) -> u32 {
        let mut icrc = Icrc::new();
        icrc.update(bytes);
        icrc.finish()
    }

    #[test]
    fn check_values_hold() {
        assert_eq!(icrc(b"123456789"), 0xcbf4_3926);
        // In no catalogue: computed independently, by the definition.
        assert_eq!(vcrc(b"123456789"), 0x0a3d);
        assert_eq!(vcrc(b""), 0);
    }

    #[test]
    fn the_reversed_polynomial_matches_the_published_tables() {
        // Entries 0x80 and 0x01 of the published tables.
        let difference = |byte: u8| by_shift_register(&[byte], 16, 0x100b) ^ by_shift_register(&[0], 16, 0x100b);
        assert_eq!(difference(0x80), 0xd008);
        assert_eq!(difference(0x01), 0x1ba1);
    }

    proptest! {
        #[test]
        fn crcs_agree_with_the_shift_register(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            prop_assert_eq!(u32::from(vcrc(&bytes)), by_shift_register(&bytes, 16, 0x100b));
            prop_assert_eq!(icrc(&bytes), by_shift_register(&bytes, 32, 0x04c1_1db7));
            prop_assert_eq!(icrc(&bytes), crc32fast::hash(&bytes), "an independent implementation");
        }

        #[test]
        fn parts_give_the_same_result_as_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..600), cut in any::<proptest::sample::Index>()) {
            let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
            let mut pieces = Icrc::new();
            pieces.update(head);
            let mut copied = vec![0; tail.len()];
            pieces.copy(tail, &mut copied);
            prop_assert_eq!(copied, tail);
            prop_assert_eq!(pieces.finish(), icrc(&bytes));
        }
    }
}
