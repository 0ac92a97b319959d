//! Packet sequence numbers: 24 bits that wrap, as in InfiniBand.

use std::fmt;

/// A 24-bit packet sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = (1 << 24) - 1;
    /// How far ahead of another a number may be and still be later: half of the number space.
    const HALF: u32 = 1 << 23;

    /// Keeps the low 24 bits.
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// The number, below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number after this one.
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// The number before this one.
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// The number of steps from `earlier` to this one, modulo 2^24.
    pub const fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }

    /// Whether this number comes before `other` within half of the number space.
    pub const fn is_before(self, other: Self) -> bool {
        let ahead = other.distance_from(self);
        ahead != 0 && ahead < Self::HALF
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_at_24_bits() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.next(), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), last);
        assert!(last.is_before(Psn::new(3)));
        assert!(!Psn::new(3).is_before(last));
        assert!(!last.is_before(last));
        assert_eq!(Psn::new(3).distance_from(last), 4);
    }
}
