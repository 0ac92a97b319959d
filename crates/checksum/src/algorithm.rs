//! The codes by name, number and strength.

use std::fmt;
use std::str::FromStr;

/// A code over bytes. Claim CK-2 names the first ten.
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
    /// CRC-32C, Castagnoli's.
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// XXH3 with 64 bits.
    Xxh3,
    /// A weighted sum of 64-bit words: the value of a sum of vectors is the sum of their values (see [`crate::linear`]).
    Linear,
}

/// How far a code can be trusted, as measured ([`crate::detection`]) and tabulated in docs/checksums.md.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Strength {
    /// Some of the errors tried go unnoticed.
    Weak,
    /// None did, but the value has only 32 bits and nothing is proven: a random error passes once in four thousand million.
    Fair,
    /// None did, and either a proof covers them (the cyclic codes) or the value has 64 bits.
    Strong,
}

impl Algorithm {
    /// In the order of their numbers.
    pub const ALL: [Self; 14] = [
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
        Self::Linear,
    ];

    /// What it is called on the command line and in reports.
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
            Self::Linear => "linear",
        }
    }

    /// Its number in messages; numbers stay as they are.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The algorithm with this number in messages.
    pub fn with_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.number() == number)
    }

    /// How many bits of a value may differ from zero.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Fletcher64 | Self::Fnv1a | Self::Crc64Nvme | Self::Xxh3 | Self::Linear => 64,
            _ => 32,
        }
    }

    /// Whether the polynomial promises what errors are found, not only chance.
    pub const fn is_cyclic(self) -> bool {
        matches!(self, Self::Crc32c | Self::Crc64Nvme)
    }

    /// How far it can be trusted. A test holds this against the measurement.
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
            | Self::SuperFast
            | Self::Linear => Strength::Weak,
        }
    }
}

impl Strength {
    /// As a word.
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

/// No algorithm is called so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownAlgorithm(String);

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Algorithm::ALL.map(Algorithm::name).join(", ");
        write!(formatter, "no checksum is called '{}'; there are {names}", self.0)
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
    fn names_and_numbers_lead_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            assert_eq!(Algorithm::with_number(algorithm.number()), Some(algorithm));
        }
        assert_eq!((Algorithm::with_number(0), Algorithm::with_number(200)), (None, None));
        let refused = "md5".parse::<Algorithm>().expect_err("there is none").to_string();
        assert!(refused.starts_with("no checksum is called 'md5'; there are sum32, "), "{refused}");
    }

    #[test]
    fn numbers_in_messages_stay() {
        assert_eq!(
            [Algorithm::Sum32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Xxh3].map(Algorithm::number),
            [1, 11, 12, 13]
        );
    }
}
