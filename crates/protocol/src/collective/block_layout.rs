//! How a vector is divided into one block per rank.
//!
//! In: the length of each rank's block. Out: the range of each. All ranks of an operation use the same layout (P-102), except that in an
//! alltoall the blocks of a rank are those that it exchanges with each other rank.

use std::fmt;

use units::Rank;

use super::step::{MAX_RANKS, VectorRange};

/// The blocks of a vector, one per rank, in rank order and without gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockLayout {
    /// The first byte of each block, and the end of the last.
    boundaries: Box<[u32]>,
    digest: u32,
}

impl BlockLayout {
    /// From the length of each block in bytes.
    ///
    /// # Errors
    /// If there are no blocks, too many, or their lengths together exceed 32 bits.
    pub fn from_lengths(lengths: impl IntoIterator<Item = u32>) -> Result<Self, BlockLayoutError> {
        let boundaries = boundaries(lengths)?;
        let digest = digest(&boundaries);
        Ok(Self { boundaries, digest })
    }

    /// Blocks of equal length.
    ///
    /// # Errors
    /// As [`Self::from_lengths`].
    pub fn equal(size: u32, block_bytes: u32) -> Result<Self, BlockLayoutError> {
        if size > MAX_RANKS {
            return Err(BlockLayoutError::Size(size));
        }
        Self::from_lengths((0..size).map(|_| block_bytes))
    }

    /// The blocks that participant `me` of an alltoall exchanges, where each participant represents so many members, and each member has
    /// `block_bytes` for each member of every participant. The same bytes go to a participant as come from it.
    ///
    /// # Errors
    /// As [`Self::from_lengths`]; also if `me` is not a participant.
    pub fn of_pairs(members: &[u32], me: u32, block_bytes: u32) -> Result<Self, BlockLayoutError> {
        let unknown = BlockLayoutError::UnknownRank(Rank(me));
        let mine = u64::from(*members.get(me as usize).ok_or(unknown)?) * u64::from(block_bytes);
        let lengths = members.iter().map(|theirs| u32::try_from(mine * u64::from(*theirs)).unwrap_or(u32::MAX));
        let boundaries = boundaries(lengths)?;
        // Of what all participants have in common.
        let digest = digest(&[members, &[block_bytes]].concat());
        Ok(Self { boundaries, digest })
    }

    /// The number of blocks, and of ranks.
    pub fn size(&self) -> u32 {
        self.boundaries.len() as u32 - 1
    }

    /// The length of all blocks together.
    pub fn bytes(&self) -> u32 {
        self.boundaries[self.boundaries.len() - 1]
    }

    /// The block of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn block(&self, rank: u32) -> VectorRange {
        VectorRange { start: self.boundary(rank), end: self.boundary(rank + 1) }
    }

    pub(super) fn boundary(&self, index: u32) -> u32 {
        self.boundaries[index as usize]
    }

    /// True if no block ends inside an element.
    pub(super) fn has_whole(&self, element_bytes: u32) -> bool {
        self.boundaries.iter().all(|boundary| boundary.is_multiple_of(element_bytes))
    }

    /// A digest of everything on which the ranks must agree.
    pub(super) fn digest(&self) -> u32 {
        self.digest
    }
}

fn boundaries(lengths: impl IntoIterator<Item = u32>) -> Result<Box<[u32]>, BlockLayoutError> {
    let mut boundaries = vec![0_u32];
    let mut end = 0_u32;
    for length in lengths {
        end = end.checked_add(length).ok_or(BlockLayoutError::TooLong)?;
        boundaries.push(end);
    }
    match boundaries.len() as u64 - 1 {
        size @ 1.. if size <= u64::from(MAX_RANKS) => Ok(boundaries.into()),
        size => Err(BlockLayoutError::Size(u32::try_from(size).unwrap_or(u32::MAX))),
    }
}

fn digest(numbers: &[u32]) -> u32 {
    checksum::crc32c(&[&numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>()])
}

/// Why there is no such layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockLayoutError {
    /// No ranks, or more than [`MAX_RANKS`].
    Size(u32),
    /// A rank outside the group.
    UnknownRank(Rank),
    /// The blocks together exceed 32 bits.
    TooLong,
}

impl fmt::Display for BlockLayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "a vector cannot have {size} blocks (1 to {MAX_RANKS} are supported)"),
            Self::UnknownRank(rank) => write!(f, "{rank} is not in the group"),
            Self::TooLong => f.write_str("the blocks of all ranks together exceed 4 GiB"),
        }
    }
}

impl std::error::Error for BlockLayoutError {}
