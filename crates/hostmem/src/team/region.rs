//! The memory that the ranks of one host share.
//!
//! A file in `/dev/shm` that only its owner may open. Rank 0 creates it under an unused name, the others open it, and the last
//! one to join unlinks it: nothing stays behind, whatever happens later. All pages are reserved at creation, so that a full
//! file system is an error then and no signal later. Each rank holds a lock on one byte of the file. The kernel drops the
//! lock when the rank's process ends for any reason; that is how the others notice.
//!
//! ```text
//! header    magic, version, size, ranks, how many have joined, shared descriptors, the CPU of each rank
//! block     one per rank: signature records, descriptors, counters, block claims, futex, cross-memory contact
//! payload   one per rank: a ring of slots, the chunks of the pipeline, a leaf for each channel, a few result slots
//! ```
//! Words of the header and the blocks are only accessed as atomics. Payload is bytes, which any rank of the team can change at
//! any time if it breaks the protocol: then results are wrong, and nothing worse, because payload never decides where to read
//! or write. Only [`super::cma_broadcast`] takes addresses from descriptors; they carry a check word, lie in another process,
//! and only the kernel dereferences them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::mman::munmap;

use super::block_claims::BlockClaims;
use super::cross_memory::CrossMemoryContact;
use super::descriptor::{OperationDescriptor, SignatureRecord};
use super::error::TeamJoinError;
use super::last_cpu::{LastCpu, current_cpu};
use super::team_memory::TeamMemory;
use crate::futex::WakeupFutex;
use crate::shared_word::SharedCounter;
use crate::shm_file::{self, OpenFileError};

/// Operations that a rank may be ahead of another.
pub(super) const CHANNELS: usize = 64;
/// Payload that fits the leaf of a channel.
pub(super) const LEAF_BYTES: usize = 1 << 10;
/// Payload that fits a slot.
pub(super) const SLOT_BYTES: usize = 16 << 10;
/// Slots are allocated from this ring.
pub(super) const RING_BYTES: usize = 256 << 10;
/// Payload of one step of the pipeline.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// Steps that a rank may be ahead of another.
pub(super) const DEPTH: usize = 6;
/// Results that may be published at a time.
const RESULT_SLOTS: usize = 4;
/// The most ranks of one host.
pub(super) const MAX_RANKS: u16 = 1024;

const MAGIC: u64 = u64::from_le_bytes(*b"pleach\xa7\x01");
/// Changes with the layout and the protocols.
const VERSION: u64 = 6;
const PAGE: usize = 4096;
const LEAVES_OFFSET: usize = RING_BYTES + DEPTH * CHUNK_BYTES;
const RESULT_SLOTS_OFFSET: usize = LEAVES_OFFSET + CHANNELS * LEAF_BYTES;
const PAYLOAD_BYTES: usize = RESULT_SLOTS_OFFSET + RESULT_SLOTS * SLOT_BYTES;
const MAX_NAME_BYTES: usize = 128;

#[repr(C, align(4096))]
struct RegionHeader {
    /// Written last.
    magic: AtomicU64,
    version: AtomicU64,
    size: AtomicU64,
    ranks: AtomicU64,
    joined: AtomicU32,
    shared_descriptors: [OperationDescriptor<AtomicU64>; RESULT_SLOTS],
    /// By rank. Seldom written, and often read all at once.
    last_cpus: [LastCpu; MAX_RANKS as usize],
}

#[repr(C, align(128))]
struct RankBlock {
    signature_records: [SignatureRecord<AtomicU64>; CHANNELS],
    descriptors: [OperationDescriptor<AtomicU64>; CHANNELS],
    settled: SharedCounter<AtomicU64>,
    filled: SharedCounter<AtomicU64>,
    folded: SharedCounter<AtomicU64>,
    drained: SharedCounter<AtomicU64>,
    block_claims: BlockClaims<AtomicU64>,
    futex: WakeupFutex,
    contact: CrossMemoryContact,
}

#[cfg(test)]
pub(super) const BLOCK_BYTES: usize = size_of::<RankBlock>();

const _: () = assert!(size_of::<RegionHeader>() == PAGE && PAYLOAD_BYTES.is_multiple_of(PAGE));

pub(super) struct TeamRegion {
    start: NonNull<u8>,
    size: usize,
    ranks: usize,
    payload: usize,
    file: File,
    /// Unlinked if the region is dropped before all ranks have joined. Only rank 0 has it.
    name: Option<PathBuf>,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread; its contents are shared between processes
// anyway, under the protocols of `window` and `pipeline`.
unsafe impl Send for TeamRegion {}

impl TeamRegion {
    /// Creates the region; the caller is rank 0.
    pub(super) fn create(name: &str, ranks: u16) -> Result<Self, TeamJoinError> {
        let (path, size, payload) = layout(name, ranks)?;
        let file = shm_file::create(&path, size)?;
        let made = lock(&file, 0).and_then(|()| Ok(shm_file::map(&file, size)?));
        let start = match made {
            Ok(start) => start,
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
        };
        let region = Self { start, size, ranks: ranks.into(), payload, file, name: Some(path) };
        let head = region.head();
        head.version.store(VERSION, Ordering::Relaxed);
        head.size.store(size as u64, Ordering::Relaxed);
        head.ranks.store(ranks.into(), Ordering::Relaxed);
        region.register(0);
        head.magic.store(MAGIC, Ordering::Release);
        Ok(region)
    }

    /// Maps the region that rank 0 creates, now or within `timeout`, unless it is known that rank 0 does not.
    pub(super) fn join(
        name: &str,
        rank: u16,
        ranks: u16,
        timeout: Duration,
        mut is_cancelled: impl FnMut() -> bool,
    ) -> Result<Self, TeamJoinError> {
        let (path, size, payload) = layout(name, ranks)?;
        if rank == 0 || rank >= ranks {
            return Err(TeamJoinError::NoSuchRank { rank, ranks });
        }
        let deadline = Instant::now() + timeout;
        let file = loop {
            match shm_file::open_existing(&path, size).map_err(|error| join_error(error, size))? {
                Some(file) => break file,
                None if is_cancelled() => return Err(TeamJoinError::Cancelled),
                None if Instant::now() >= deadline => return Err(TeamJoinError::Timeout),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        lock(&file, rank)?;
        let start = shm_file::map(&file, size)?;
        let mut region = Self { start, size, ranks: ranks.into(), payload, file, name: None };
        while region.head().magic.load(Ordering::Acquire) != MAGIC {
            if Instant::now() >= deadline {
                return Err(TeamJoinError::Timeout);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        let head = region.head();
        let found = [&head.version, &head.size, &head.ranks].map(|word| word.load(Ordering::Relaxed));
        let expected = [VERSION, size as u64, ranks.into()];
        if found != expected {
            return Err(TeamJoinError::LayoutMismatch { found, expected });
        }
        if region.register(rank) == u32::from(ranks) {
            region.name = Some(path);
            region.unlink();
        }
        Ok(region)
    }

    /// Registers a rank; returns how many ranks have mapped the region.
    fn register(&self, rank: u16) -> u32 {
        self.blocks()[usize::from(rank)].contact.publish_address();
        self.head().last_cpus[usize::from(rank)].set(current_cpu());
        self.head().joined.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn unlink(&mut self) {
        if let Some(path) = self.name.take() {
            // Rank 0 and the last rank to join may both try.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Whether the process of a rank is alive. Asks the kernel.
    pub(super) fn is_alive(&self, rank: usize) -> io::Result<bool> {
        shm_file::is_rank_alive(&self.file, rank)
    }

    /// All ranks have mapped the region.
    pub(super) fn is_complete(&self) -> bool {
        self.head().joined.load(Ordering::Acquire) as usize >= self.ranks
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// The CPU of each rank.
    #[inline(always)]
    pub(super) fn last_cpus(&self) -> &[LastCpu] {
        &self.head().last_cpus[..self.ranks]
    }

    #[inline(always)]
    pub(super) fn futex(&self, rank: usize) -> &WakeupFutex {
        &self.blocks()[rank].futex
    }

    /// How the ranks access each other's memory, by rank.
    pub(super) fn contacts(&self) -> impl Iterator<Item = &CrossMemoryContact> + Clone {
        self.blocks().iter().map(|block| &block.contact)
    }

    /// A slot.
    ///
    /// # Safety
    /// By the protocol of [`super::window`], the owner does not write the slot while the slice lives.
    #[inline]
    pub(super) unsafe fn slot(&self, rank: usize, offset: usize, length: usize) -> &[u8] {
        let start = self.slot_start(rank, offset, length);
        // SAFETY: within the mapping (checked just now), initialised by the kernel; not written, as the caller guarantees.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// A slot of this rank, to write.
    ///
    /// # Safety
    /// By the protocol of [`super::window`], no rank reads the slot while the slice lives, and `rank` is the caller's own.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the memory is not the region's but the team's")]
    pub(super) unsafe fn slot_mut(&self, rank: usize, offset: usize, length: usize) -> &mut [u8] {
        let start = self.slot_start(rank, offset, length);
        // SAFETY: as in `slot`; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// A leaf.
    ///
    /// # Safety
    /// As [`TeamRegion::slot`].
    #[inline]
    pub(super) unsafe fn leaf(&self, rank: usize, channel: usize, length: usize) -> &[u8] {
        let start = self.leaf_start(rank, channel, length);
        // SAFETY: as in `slot`.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// A leaf of this rank, to write.
    ///
    /// # Safety
    /// As [`TeamRegion::slot_mut`].
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the memory is not the region's but the team's")]
    pub(super) unsafe fn leaf_mut(&self, rank: usize, channel: usize, length: usize) -> &mut [u8] {
        let start = self.leaf_start(rank, channel, length);
        // SAFETY: as in `slot_mut`.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// A result slot.
    ///
    /// # Safety
    /// By the protocol of [`super::shared_result`], the owner does not write the slot while the slice lives.
    #[inline]
    pub(super) unsafe fn result_slot(&self, rank: usize, place: usize, length: usize) -> &[u8] {
        let start = self.result_slot_start(rank, place, length);
        // SAFETY: as in `slot`.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// A result slot of this rank, to write.
    ///
    /// # Safety
    /// By the protocol of [`super::shared_result`], no rank reads the slot while the slice lives, and `rank` is the caller's own.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the memory is not the region's but the team's")]
    pub(super) unsafe fn result_slot_mut(&self, rank: usize, place: usize, length: usize) -> &mut [u8] {
        let start = self.result_slot_start(rank, place, length);
        // SAFETY: as in `slot_mut`.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// A part of a chunk of the pipeline.
    ///
    /// # Safety
    /// By the protocol of [`super::pipeline`], no rank writes this part while the slice lives.
    #[inline]
    pub(super) unsafe fn chunk(&self, rank: usize, chunk: usize, part: std::ops::Range<usize>) -> &[u8] {
        let start = self.chunk_start(rank, chunk, &part);
        // SAFETY: within the mapping (checked just now), initialised by the kernel; not written, as the caller guarantees.
        unsafe { std::slice::from_raw_parts(start, part.len()) }
    }

    /// A part of a chunk, to write.
    ///
    /// # Safety
    /// By the protocol of [`super::pipeline`], no other rank accesses this part while the slice lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the memory is not the region's but the team's")]
    pub(super) unsafe fn chunk_mut(&self, rank: usize, chunk: usize, part: std::ops::Range<usize>) -> &mut [u8] {
        let start = self.chunk_start(rank, chunk, &part);
        // SAFETY: as in `chunk`; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(start, part.len()) }
    }

    #[inline]
    fn slot_start(&self, rank: usize, offset: usize, length: usize) -> *mut u8 {
        assert!(rank < self.ranks && length <= SLOT_BYTES);
        // A corrupt offset leads to wrong bytes, but to bytes of the ring.
        self.payload_at(rank * PAYLOAD_BYTES + offset.min(RING_BYTES - length))
    }

    #[inline]
    pub(super) fn leaf_start(&self, rank: usize, channel: usize, length: usize) -> *mut u8 {
        assert!(rank < self.ranks && channel < CHANNELS && length <= LEAF_BYTES);
        self.payload_at(rank * PAYLOAD_BYTES + LEAVES_OFFSET + channel * LEAF_BYTES)
    }

    #[inline]
    fn result_slot_start(&self, rank: usize, place: usize, length: usize) -> *mut u8 {
        assert!(place < RESULT_SLOTS && length <= SLOT_BYTES);
        // A corrupt rank leads to wrong bytes, but to bytes of a result slot.
        let rank = rank.min(self.ranks - 1);
        self.payload_at(rank * PAYLOAD_BYTES + RESULT_SLOTS_OFFSET + place * SLOT_BYTES)
    }

    #[inline]
    fn chunk_start(&self, rank: usize, chunk: usize, part: &std::ops::Range<usize>) -> *mut u8 {
        assert!(rank < self.ranks && chunk < DEPTH && part.start <= part.end && part.end <= CHUNK_BYTES);
        self.payload_at(rank * PAYLOAD_BYTES + RING_BYTES + chunk * CHUNK_BYTES + part.start)
    }

    #[inline]
    fn payload_at(&self, offset: usize) -> *mut u8 {
        // SAFETY: the callers have checked rank, slot, leaf, result slot and chunk; `layout` reserves all of them behind `payload`.
        unsafe { self.start.as_ptr().add(self.payload + offset) }
    }

    #[inline(always)]
    fn head(&self) -> &RegionHeader {
        // SAFETY: the mapping begins with a page for it; all of its fields are atomics, and any bits are a value.
        unsafe { self.start.cast().as_ref() }
    }

    #[inline(always)]
    fn blocks(&self) -> &[RankBlock] {
        // SAFETY: `layout` puts `ranks` blocks behind the header; all of their fields are atomics, and any bits are a value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(size_of::<RegionHeader>()).cast(), self.ranks) }
    }
}

impl Drop for TeamRegion {
    fn drop(&mut self) {
        self.unlink();
        // SAFETY: mapped with this size; slices and references into it borrow from `self`.
        let _ = unsafe { munmap(self.start.cast(), self.size) };
    }
}

impl TeamMemory for TeamRegion {
    type Word = AtomicU64;
    const RESULT_SLOTS: usize = RESULT_SLOTS;

    #[inline(always)]
    fn signature_record(&self, rank: usize, channel: usize) -> &SignatureRecord<AtomicU64> {
        &self.blocks()[rank].signature_records[channel]
    }

    #[inline(always)]
    fn descriptor(&self, rank: usize, channel: usize) -> &OperationDescriptor<AtomicU64> {
        &self.blocks()[rank].descriptors[channel]
    }

    #[inline(always)]
    fn shared_descriptor(&self, place: usize) -> &OperationDescriptor<AtomicU64> {
        &self.head().shared_descriptors[place]
    }

    #[inline(always)]
    fn settled(&self, rank: usize) -> &AtomicU64 {
        &self.blocks()[rank].settled.0
    }

    #[inline(always)]
    fn filled(&self, rank: usize) -> &AtomicU64 {
        &self.blocks()[rank].filled.0
    }

    #[inline(always)]
    fn folded(&self, rank: usize) -> &AtomicU64 {
        &self.blocks()[rank].folded.0
    }

    #[inline(always)]
    fn drained(&self, rank: usize) -> &AtomicU64 {
        &self.blocks()[rank].drained.0
    }

    #[inline(always)]
    fn block_claims(&self, rank: usize) -> &BlockClaims<AtomicU64> {
        &self.blocks()[rank].block_claims
    }
}

/// The path and size of the file, and the offset of the payload.
fn layout(name: &str, ranks: u16) -> Result<(PathBuf, usize, usize), TeamJoinError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(TeamJoinError::BadName(name.into()));
    }
    if ranks == 0 || ranks > MAX_RANKS {
        return Err(TeamJoinError::TooManyRanks { ranks, most: MAX_RANKS });
    }
    let payload = (size_of::<RegionHeader>() + usize::from(ranks) * size_of::<RankBlock>()).next_multiple_of(PAGE);
    let size = payload + usize::from(ranks) * PAYLOAD_BYTES;
    Ok((Path::new("/dev/shm").join(name), size, payload))
}

/// Locks the byte of a rank until the file is closed.
fn lock(file: &File, rank: u16) -> Result<(), TeamJoinError> {
    if shm_file::lock_rank(file, rank.into())? { Ok(()) } else { Err(TeamJoinError::RankTaken { rank }) }
}

fn join_error(error: OpenFileError, expected: usize) -> TeamJoinError {
    match error {
        OpenFileError::Io(error) => TeamJoinError::Io(error),
        OpenFileError::WrongOwner => TeamJoinError::WrongOwner,
        OpenFileError::SizeMismatch { found } => TeamJoinError::SizeMismatch { found, expected: expected as u64 },
    }
}
