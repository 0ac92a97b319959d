//! Headers of Pleach's own opcodes, which only two Pleach endpoints use.
//!
//! The IB specification (9.2) reserves the opcodes from 0xc0 on for manufacturers. Pleach uses them for what reliable
//! connections lack: the packets received beyond the first missing one ([`SackBitmap`]), and a liveness probe of a
//! path that does not consume sequence numbers ([`ProbeToken`]). Both are a big-endian number of eight bytes.

use units::Psn;

use crate::ParseError;
use crate::bytes::{prefix, prefix_mut};

/// Selective acknowledgement: the packets received beyond the first missing one.
///
/// The BTH of the packet that carries it has the number of the first missing packet, and its AETH is a NAK with
/// [`crate::NakCause::PsnSequence`]. Bit `i`, counted from the lowest, stands for the packet `i + 1` after the
/// missing one. A clear bit proves nothing: the packet is late, lost, or arrived too far ahead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SackBitmap(pub u64);

/// The number in a probe that its reply repeats, so that the sender can match them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ProbeToken(pub u64);

impl SackBitmap {
    /// Encoded size in bytes.
    pub const SIZE: usize = 8;
    /// How many packets beyond the first missing one the bitmap covers.
    pub const REACH: u32 = u64::BITS;

    /// Records that `psn` arrived; ignores numbers out of reach.
    pub const fn insert(&mut self, first_missing: Psn, psn: Psn) {
        self.0 |= Self::bit(first_missing, psn);
    }

    /// True if `psn` is recorded as received.
    pub const fn contains(self, first_missing: Psn, psn: Psn) -> bool {
        self.0 & Self::bit(first_missing, psn) != 0
    }

    /// The numbers recorded as received, in order.
    pub fn numbers(self, first_missing: Psn) -> impl Iterator<Item = Psn> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let lowest = (bits != 0).then(|| bits.trailing_zeros())?;
            bits &= bits - 1;
            Some(Psn::new(first_missing.get() + 1 + lowest))
        })
    }

    /// The bit of `psn`; zero if it is out of reach.
    const fn bit(first_missing: Psn, psn: Psn) -> u64 {
        match psn.distance_from(first_missing) {
            distance @ 1..=Self::REACH => 1 << (distance - 1),
            _ => 0,
        }
    }

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(Self(u64::from_be_bytes(*prefix(bytes)?)))
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, buffer: &mut [u8]) {
        *prefix_mut(buffer) = self.0.to_be_bytes();
    }
}

impl ProbeToken {
    /// Encoded size in bytes.
    pub const SIZE: usize = 8;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(Self(u64::from_be_bytes(*prefix(bytes)?)))
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, buffer: &mut [u8]) {
        *prefix_mut(buffer) = self.0.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_bit_is_the_packet_after_the_missing_one() {
        // Near 2^24, so that the numbers wrap.
        let missing = Psn::new(0xff_fffe);
        let mut sack = SackBitmap::default();
        sack.insert(missing, Psn::new(0xff_ffff));
        sack.insert(missing, Psn::new(1));
        assert_eq!(sack, SackBitmap(0b101));
        assert_eq!(sack.numbers(missing).collect::<Vec<_>>(), [Psn::new(0xff_ffff), Psn::new(1)]);
    }

    #[test]
    fn numbers_out_of_reach_are_ignored() {
        let missing = Psn::new(10);
        let mut sack = SackBitmap::default();
        for psn in [9, 10, 10 + SackBitmap::REACH + 1, 10 + (1 << 23)] {
            sack.insert(missing, Psn::new(psn));
            assert!(!sack.contains(missing, Psn::new(psn)));
        }
        assert_eq!(sack, SackBitmap(0));
        sack.insert(missing, Psn::new(10 + SackBitmap::REACH));
        assert_eq!(sack, SackBitmap(1 << 63));
    }

    proptest! {
        #[test]
        fn numbers_round_trip_to_bits(bits: u64, missing: u32) {
            let (sent, missing) = (SackBitmap(bits), Psn::new(missing));
            let mut noted = SackBitmap::default();
            for psn in sent.numbers(missing) {
                prop_assert!(sent.contains(missing, psn));
                noted.insert(missing, psn);
            }
            prop_assert_eq!(noted, sent);
        }
    }
}
