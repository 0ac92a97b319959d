//! Copy strategies, choices, and tables of choices by message size.

use std::fmt;

use crate::algorithm::{Algorithm, Strength};
use crate::oneshot::{copy_then, copy_to, value};
use crate::prefetch::TargetCache;

/// How a checksum is combined with a copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum CopyStrategy {
    /// No copy: bytes are only read.
    Alone,
    /// A block is copied, then read while it is in the cache.
    CopyThen,
    /// Copied and checksummed in one pass.
    Fused,
}

impl CopyStrategy {
    /// All strategies.
    pub const ALL: [Self; 3] = [Self::Alone, Self::CopyThen, Self::Fused];

    /// The name in tables and tuning files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::CopyThen => "copy-then",
            Self::Fused => "fused",
        }
    }
}

impl fmt::Display for CopyStrategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// How to checksum a message that is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumChoice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// [`CopyStrategy::CopyThen`] or [`CopyStrategy::Fused`].
    pub strategy: CopyStrategy,
}

impl ChecksumChoice {
    /// Copies bytes, and returns their checksum.
    #[inline]
    pub fn copy(self, from: &[u8], to: &mut [u8]) -> u64 {
        self.copy_to(from, to, TargetCache::Local)
    }

    /// As [`ChecksumChoice::copy`], with a hint about the cache that holds the target.
    #[inline]
    pub fn copy_to(self, from: &[u8], to: &mut [u8], target: TargetCache) -> u64 {
        match self.strategy {
            CopyStrategy::Fused => copy_to(self.algorithm, from, to, target),
            CopyStrategy::CopyThen | CopyStrategy::Alone => copy_then(self.algorithm, from, to),
        }
    }

    /// The checksum of bytes without a copy.
    #[inline]
    pub fn value(self, bytes: &[u8]) -> u64 {
        value(self.algorithm, bytes)
    }

    pub(super) fn is_sound(self) -> bool {
        self.algorithm.strength() == Strength::Strong && self.strategy != CopyStrategy::Alone
    }
}

/// The largest message of each class; longer ones count as the last class.
pub const SIZE_CLASSES: [usize; 9] =
    [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// A choice for every size class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumTuning {
    pub(super) choices: [ChecksumChoice; SIZE_CLASSES.len()],
}

impl Default for ChecksumTuning {
    /// CRC-32C up to 4 KiB, where it detects any three bit errors and is fastest; beyond, CRC-64/NVME, which costs no more there and misses
    /// one random error in 2^64. Copies in one pass.
    fn default() -> Self {
        let algorithm = |bytes| if bytes <= 4 << 10 { Algorithm::Crc32c } else { Algorithm::Crc64Nvme };
        Self {
            choices: SIZE_CLASSES
                .map(|bytes| ChecksumChoice { algorithm: algorithm(bytes), strategy: CopyStrategy::Fused }),
        }
    }
}

impl ChecksumTuning {
    /// The choice for a message of this many bytes.
    #[inline]
    pub fn choose(&self, bytes: usize) -> ChecksumChoice {
        let class = SIZE_CLASSES.iter().position(|largest| bytes <= *largest);
        self.choices[class.unwrap_or(SIZE_CLASSES.len() - 1)]
    }

    /// All choices, with the largest message of each class.
    pub fn classes(&self) -> impl Iterator<Item = (usize, ChecksumChoice)> {
        SIZE_CLASSES.into_iter().zip(self.choices)
    }
}
