//! Checksums of whole messages, with or without a copy.

use crate::algorithm::Algorithm;
use crate::algorithm_state::AlgorithmState;
use crate::crc::{self, Crc32cPolynomial, Crc64NvmePolynomial, Polynomial};
use crate::pass::{CopyPass, Pass, ReadPass};
use crate::prefetch::TargetCache;
use crate::state::ChecksumState;
use crate::vector_width::VectorWidth;
use crate::xxh3;

/// Bytes per block of [`copy_then`]: source and copy fit well into the L1 cache of any processor.
const BLOCK: usize = 8 << 10;

/// The checksum of these bytes. Checksums of fewer than 64 bits are in the low bits.
#[inline]
pub fn value(algorithm: Algorithm, bytes: &[u8]) -> u64 {
    match algorithm {
        // These three are used for small messages too, and skip what only incremental checksums need.
        Algorithm::Crc32c => crc::update(Crc32cPolynomial, Crc32cPolynomial::ONES, bytes) ^ Crc32cPolynomial::ONES,
        Algorithm::Crc64Nvme => {
            crc::update(Crc64NvmePolynomial, Crc64NvmePolynomial::ONES, bytes) ^ Crc64NvmePolynomial::ONES
        }
        Algorithm::Xxh3 => xxh3::oneshot(ReadPass(bytes)),
        _ => oneshot(algorithm, VectorWidth::best(), ReadPass(bytes)),
    }
}

/// Copies bytes and returns their checksum, in one pass: each byte is loaded once.
///
/// The checksum covers the bytes as they were loaded, whatever happens to the copy.
#[inline]
pub fn copy(algorithm: Algorithm, from: &[u8], to: &mut [u8]) -> u64 {
    copy_to(algorithm, from, to, TargetCache::Local)
}

/// As [`copy`], with a hint about the cache that holds the target. It affects only the speed.
#[inline]
pub fn copy_to(algorithm: Algorithm, from: &[u8], to: &mut [u8], target: TargetCache) -> u64 {
    match algorithm {
        Algorithm::Crc32c => {
            crc::copy(Crc32cPolynomial, Crc32cPolynomial::ONES, from, to, target) ^ Crc32cPolynomial::ONES
        }
        Algorithm::Crc64Nvme => {
            crc::copy(Crc64NvmePolynomial, Crc64NvmePolynomial::ONES, from, to, target) ^ Crc64NvmePolynomial::ONES
        }
        Algorithm::Xxh3 => xxh3::oneshot(CopyPass::new(from, to, target)),
        _ => oneshot(algorithm, VectorWidth::best(), CopyPass::new(from, to, target)),
    }
}

/// Copies bytes block by block, and checksums each block while it is in the cache.
///
/// The checksum covers the bytes at `from`.
pub fn copy_then(algorithm: Algorithm, from: &[u8], to: &mut [u8]) -> u64 {
    assert_eq!(from.len(), to.len(), "source and target of a copy have the same length");
    if from.len() <= BLOCK {
        to.copy_from_slice(from);
        return value(algorithm, from);
    }
    let mut state = ChecksumState::new(algorithm, from.len() as u64);
    for (block, room) in from.chunks(BLOCK).zip(to.chunks_mut(BLOCK)) {
        room.copy_from_slice(block);
        state.update(block);
    }
    state.finish()
}

/// The checksum of all bytes of a pass, with vectors of this width where the algorithm is a plain loop.
pub(crate) fn oneshot(algorithm: Algorithm, width: VectorWidth, mut pass: impl Pass) -> u64 {
    let length = pass.remaining() as u64;
    let mut progress = AlgorithmState::new(algorithm, length);
    let words = pass.remaining() / progress.unit() * progress.unit();
    width.absorb(&mut progress, pass.split(words));
    let mut tail = [0; 8];
    let left = pass.remaining();
    pass.for_each_chunk(|[byte]: &[u8; 1]| {
        tail.rotate_left(1);
        tail[7] = *byte;
    });
    progress.finish(&tail[8 - left..], length)
}
