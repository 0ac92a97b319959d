//! Headers of Pleach's own packets, which only two Pleach ends speak to each other.
//!
//! The IB specification (9.2) leaves the codes from 0xc0 on to manufacturers. Ours say what reliable connections
//! cannot say there: which packets arrived past the first missing one ([`SackBitmap`]), and whether a path lives
//! without touching the numbers of the packets on it ([`ProbeToken`]). Both are a number of eight bytes, high byte first.

use units::Psn;

use crate::ParseError;
use crate::bytes::{head, room};

/// Which packets arrived although an earlier one is missing.
///
/// The base header of the packet that carries it has the number of the first missing one, its acknowledge header
/// refuses with [`crate::NakCause::PsnSequence`]. Bit `i`, counted from the lowest, speaks of the packet that comes
/// `i + 1` after the missing one. A clear bit says nothing: the packet is late, lost, or arrived too far ahead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SackBitmap(pub u64);

/// What a probe carries and its reply brings back, so that its sender knows which probe is answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ProbeToken(pub u64);

impl SackBitmap {
    /// Bytes it takes.
    pub const SIZE: usize = 8;
    /// How many packets past the first missing one it speaks of.
    pub const REACH: u32 = u64::BITS;

    /// Notes that `psn` arrived; a number out of reach is left out.
    pub const fn insert(&mut self, first_missing: Psn, psn: Psn) {
        self.0 |= Self::bit(first_missing, psn);
    }

    /// True if it says that `psn` arrived.
    pub const fn contains(self, first_missing: Psn, psn: Psn) -> bool {
        self.0 & Self::bit(first_missing, psn) != 0
    }

    /// The numbers that it says arrived, in their order.
    pub fn numbers(self, first_missing: Psn) -> impl Iterator<Item = Psn> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let lowest = (bits != 0).then(|| bits.trailing_zeros())?;
            bits &= bits - 1;
            Some(Psn::new(first_missing.get() + 1 + lowest))
        })
    }

    /// The bit that speaks of `psn`; none if no bit does.
    const fn bit(first_missing: Psn, psn: Psn) -> u64 {
        match psn.distance_from(first_missing) {
            distance @ 1..=Self::REACH => 1 << (distance - 1),
            _ => 0,
        }
    }

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(Self(u64::from_be_bytes(*head(bytes)?)))
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, buffer: &mut [u8]) {
        *room(buffer) = self.0.to_be_bytes();
    }
}

impl ProbeToken {
    /// Bytes it takes.
    pub const SIZE: usize = 8;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(Self(u64::from_be_bytes(*head(bytes)?)))
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, buffer: &mut [u8]) {
        *room(buffer) = self.0.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_bit_is_the_packet_after_the_missing_one() {
        // Around the end of the ring, so that the numbers wrap.
        let missing = Psn::new(0xff_fffe);
        let mut arrived = SackBitmap::default();
        arrived.insert(missing, Psn::new(0xff_ffff));
        arrived.insert(missing, Psn::new(1));
        assert_eq!(arrived, SackBitmap(0b101));
        assert_eq!(arrived.numbers(missing).collect::<Vec<_>>(), [Psn::new(0xff_ffff), Psn::new(1)]);
    }

    #[test]
    fn what_is_out_of_reach_is_left_out() {
        let missing = Psn::new(10);
        let mut arrived = SackBitmap::default();
        for psn in [9, 10, 10 + SackBitmap::REACH + 1, 10 + (1 << 23)] {
            arrived.insert(missing, Psn::new(psn));
            assert!(!arrived.contains(missing, Psn::new(psn)));
        }
        assert_eq!(arrived, SackBitmap(0));
        arrived.insert(missing, Psn::new(10 + SackBitmap::REACH));
        assert_eq!(arrived, SackBitmap(1 << 63));
    }

    proptest! {
        #[test]
        fn numbers_lead_back_to_their_bits(bits: u64, missing: u32) {
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
