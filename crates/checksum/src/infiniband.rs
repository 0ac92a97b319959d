//! The two codes at the end of an InfiniBand packet (IB specification volume 1, 7.8; claim SE-6).
//!
//! Both read bits in the order of the wire, low bit of each byte first, start from ones and are
//! complemented at the end; both are sent low byte first. Polynomials: ICRC 0x04C11DB7, as Ethernet;
//! VCRC 0x100B. Polynomial, seed and complement of the VCRC agree with two published implementations, the
//! packet generator of Mellanox (OpenIB, 2004) and the capture library of Endace; the ICRC agrees with the
//! sample packet in the former and with scapy.

use crate::TargetCache;
use crate::crc::{self, IcrcPolynomial, Polynomial, VcrcPolynomial};

/// The invariant CRC, fed in pieces: the caller masks what switches may change and feeds the rest as it lies.
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

    /// Takes the next bytes of the packet.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.register = crc::update::<IcrcPolynomial>(self.register, bytes);
    }

    /// Takes the next bytes of the packet and copies them to where it is put together.
    ///
    /// # Panics
    /// If `to` is of another length.
    #[inline]
    pub fn copy(&mut self, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "a copy is as long as what is copied");
        self.register = crc::copy::<IcrcPolynomial>(self.register, from, to, TargetCache::Own);
    }

    /// The code; it goes on the wire low byte first.
    #[inline]
    pub fn finish(self) -> u32 {
        (self.register ^ IcrcPolynomial::ONES) as u32
    }
}

/// The variant CRC of everything before it in the frame, ICRC included; it goes on the wire low byte first.
pub fn vcrc(bytes: &[u8]) -> u16 {
    (crc::update::<VcrcPolynomial>(VcrcPolynomial::ONES, bytes) ^ VcrcPolynomial::ONES) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, bit by bit: the code's remainder as a shift register makes it.
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
        // In no catalogue: computed apart from this code, by the definition.
        assert_eq!(vcrc(b"123456789"), 0x0a3d);
        assert_eq!(vcrc(b""), 0);
    }

    #[test]
    fn the_reversed_polynomial_is_the_one_others_print() {
        // Entries 0x80 and 0x01 of the published tables.
        let difference = |byte: u8| by_shift_register(&[byte], 16, 0x100b) ^ by_shift_register(&[0], 16, 0x100b);
        assert_eq!(difference(0x80), 0xd008);
        assert_eq!(difference(0x01), 0x1ba1);
    }

    proptest! {
        #[test]
        fn codes_agree_with_the_shift_register(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            prop_assert_eq!(u32::from(vcrc(&bytes)), by_shift_register(&bytes, 16, 0x100b));
            prop_assert_eq!(icrc(&bytes), by_shift_register(&bytes, 32, 0x04c1_1db7));
            prop_assert_eq!(icrc(&bytes), crc32fast::hash(&bytes), "another's implementation");
        }

        #[test]
        fn pieces_count_as_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..600), cut in any::<proptest::sample::Index>()) {
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
