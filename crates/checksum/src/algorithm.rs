//! The checksum algorithms by name, number and strength.

use std::fmt;
use std::str::FromStr;

/// A checksum algorithm. Claim CK-2 names the first ten.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Algorithm {
    /// The sum of 32-bit words.
    Sum32,
    /// The exclusive or of 32-bit words.
    Xor32,
    /// RFC 1950: two sums of bytes modulo 65,521.
    Adler32,
    /// Two sums of 32-bit words modulo 2^32 - 1.
    Fletcher64,
    /// Bob Jenkins' one-at-a-time.
    Jenkins,
    /// FNV-1a with 64 bits, byte by byte.
    Fnv1a,
    /// FNV-1a with 32 bits, but 32-bit word by word: what the speeds of claim CK-2 imply.
    Fnv1aWords,
    /// Knuth's multiplicative hash, 32-bit word by word.
    Knuth,
    /// Austin Appleby's MurmurHash2A.
    Murmur2a,
    /// Paul Hsieh's SuperFastHash.
    SuperFast,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// XXH3 with 64 bits.
    Xxh3,
}

/// How reliably an algorithm detects errors, as measured ([`crate::detection`]) and tabulated in docs/checksums.md.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Strength {
    /// Some of the tested errors go undetected.
    Weak,
    /// It detects all tested errors, but has only 32 bits and no proof: one random error in four thousand million goes undetected.
    Fair,
    /// It detects all tested errors, and either a proof covers them (the CRCs) or it has 64 bits.
    Strong,
}

impl Algorithm {
    /// In the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Sum32,
        Self::Xor32,
        Self::Adler32,
        Self::Fletcher64,
        Self::Jenkins,
        Self::Fnv1a,
        Self::Fnv1aWords,
        Self::Knuth,
        Self::Murmur2a,
        Self::SuperFast,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Xxh3,
    ];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum32 => "sum32",
            Self::Xor32 => "xor32",
            Self::Adler32 => "adler-32",
            Self::Fletcher64 => "fletcher-64",
            Self::Jenkins => "jenkins",
            Self::Fnv1a => "fnv-1a",
            Self::Fnv1aWords => "fnv-1a-words",
            Self::Knuth => "knuth",
            Self::Murmur2a => "murmur-2a",
            Self::SuperFast => "superfast",
            Self::Crc32c => "crc-32c",
            Self::Crc64Nvme => "crc-64-nvme",
            Self::Xxh3 => "xxh3",
        }
    }
    /// The number in messages; numbers never change.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The algorithm with this number in messages.
    pub fn with_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.number() == number)
    }

    /// The bits of a checksum that can be set.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Fletcher64 | Self::Fnv1a | Self::Crc64Nvme | Self::Xxh3 => 64,
            _ => 32,
        }
    }

    /// Whether the polynomial guarantees which errors are detected.
    pub const fn is_cyclic(self) -> bool {
        matches!(self, Self::Crc32c | Self::Crc64Nvme)
    }

    /// How reliably it detects errors. A test compares this with the measurement.
    pub const fn strength(self) -> Strength {
        match self {
            Self::Crc32c | Self::Crc64Nvme | Self::Xxh3 | Self::Fnv1a => Strength::Strong,
            Self::Murmur2a => Strength::Fair,
            Self::Sum32
            | Self::Xor32
            | Self::Adler32
            | Self::Fletcher64
            | Self::Fnv1aWords
            | Self::Knuth
            | Self::Jenkins
            | Self::SuperFast => Strength::Weak,
        }
    }
}

impl Strength {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weak => "weak",
            Self::Fair => "fair",
            Self::Strong => "strong",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// An unknown algorithm name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownAlgorithm(String);

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Algorithm::ALL.map(Algorithm::name).join(", ");
        write!(formatter, "no checksum is named '{}'; the checksums are {names}", self.0)
    }
}

impl std::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        found.ok_or_else(|| UnknownAlgorithm(name.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_round_trip() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            assert_eq!(Algorithm::with_number(algorithm.number()), Some(algorithm));
        }
        assert_eq!((Algorithm::with_number(0), Algorithm::with_number(200)), (None, None));
        let rejected = "md5".parse::<Algorithm>().expect_err("md5 is not supported").to_string();
        assert!(rejected.starts_with("no checksum is named 'md5'; the checksums are sum32, "), "{rejected}");
    }

    #[test]
    fn numbers_in_messages_never_change() {
        assert_eq!(
            [Algorithm::Sum32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Xxh3].map(Algorithm::number),
            [1, 11, 12, 13]
        );
    }
}
