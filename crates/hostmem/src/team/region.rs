//! The memory that the ranks of one host share.
//!
//! A file in `/dev/shm` that only its owner may open. Rank 0 makes it under a name that nobody has, the others open it, and the
//! last to come takes the name away again: whatever happens later, nothing stays behind. All of its pages are reserved
//! when it is made, so that a full file system is an error then and no signal later. Each rank keeps a lock on one byte of
//! the file. The kernel drops the lock when the rank ends, however it ends; that is how the others notice.
//!
//! ```text
//! head      magic, version, size, ranks, how many have come, common posts, who runs where
//! block     one per rank: notes, posts, tallies, door, bell, contact
//! payload   one per rank: a ring of slots, the chunks of the pipe, a leaf for each channel, a few shares
//! ```
//! Words of the head and the blocks are only touched as atomics. Payload is bytes, which anyone of the team can change at any
//! time if it breaks the protocol: then results are wrong, and nothing worse, for payload never decides where to read or write.
//! Only [`super::cma_broadcast`] takes addresses from posts; they are sealed, lie in another process, and only the kernel follows them.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, FcntlArg, fallocate, fcntl};
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::block_claims::BlockClaims;
use super::cross_memory::CrossMemoryContact;
use super::descriptor::{OperationDescriptor, SignatureRecord};
use super::error::TeamJoinError;
use super::futex::WakeupFutex;
use super::oversubscription::{LastCpu, current_cpu};
use super::shared_word::{SharedCounter, TeamMemory};

/// Operations that a rank may be ahead of another.
pub(super) const CHANNELS: usize = 64;
/// Payload that has a place of its own in each channel.
pub(super) const LEAF_BYTES: usize = 1 << 10;
/// Payload that goes through a slot in one piece.
pub(super) const SLOT_BYTES: usize = 16 << 10;
/// Slots are cut from this.
pub(super) const RING_BYTES: usize = 256 << 10;
/// Payload of one step of the pipe.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// Steps that a rank may be ahead of another.
pub(super) const DEPTH: usize = 6;
/// Results that may lie about at a time.
const RESULT_SLOTS: usize = 4;
/// Most ranks of one host.
pub(super) const MAX_RANKS: u16 = 1024;

const MAGIC: u64 = u64::from_le_bytes(*b"pleach\xa7\x01");
/// Changes whenever the layout or a protocol does.
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
    come: AtomicU32,
    common: [OperationDescriptor<AtomicU64>; RESULT_SLOTS],
    /// By rank. Seldom written, and often read all at once.
    whereabouts: [LastCpu; MAX_RANKS as usize],
}

#[repr(C, align(128))]
struct RankBlock {
    notes: [SignatureRecord<AtomicU64>; CHANNELS],
    posts: [OperationDescriptor<AtomicU64>; CHANNELS],
    settled: SharedCounter<AtomicU64>,
    filled: SharedCounter<AtomicU64>,
    folded: SharedCounter<AtomicU64>,
    drained: SharedCounter<AtomicU64>,
    door: BlockClaims<AtomicU64>,
    bell: WakeupFutex,
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
    /// Taken away if the region goes before all have come. Only rank 0 has it.
    name: Option<PathBuf>,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread; what is in it is shared between processes
// anyway, under the protocols of `window` and `pipe`.
unsafe impl Send for TeamRegion {}

impl TeamRegion {
    /// Makes the region; the caller is rank 0.
    pub(super) fn create(name: &str, ranks: u16) -> Result<Self, TeamJoinError> {
        let (path, size, payload) = layout(name, ranks)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
        let file = options.open(&path)?;
        let made = Self::make(&file, size).and_then(|start| {
            lock(&file, 0)?;
            Ok(start)
        });
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
        region.come(0);
        head.magic.store(MAGIC, Ordering::Release);
        Ok(region)
    }

    fn make(file: &File, size: usize) -> Result<NonNull<u8>, TeamJoinError> {
        fallocate(file.as_fd(), FallocateFlags::empty(), 0, size as i64).map_err(io::Error::from)?;
        map(file, size)
    }

    /// Maps the region that rank 0 makes, or will have made within `patience`.
    pub(super) fn join(name: &str, rank: u16, ranks: u16, patience: Duration) -> Result<Self, TeamJoinError> {
        let (path, size, payload) = layout(name, ranks)?;
        if rank == 0 || rank >= ranks {
            return Err(TeamJoinError::NoSuchRank { rank, ranks });
        }
        let deadline = Instant::now() + patience;
        let file = loop {
            match open_made(&path, size)? {
                Some(file) => break file,
                None if Instant::now() >= deadline => return Err(TeamJoinError::NobodyMadeIt),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        lock(&file, rank)?;
        let start = map(&file, size)?;
        let mut region = Self { start, size, ranks: ranks.into(), payload, file, name: None };
        while region.head().magic.load(Ordering::Acquire) != MAGIC {
            if Instant::now() >= deadline {
                return Err(TeamJoinError::NobodyMadeIt);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        let head = region.head();
        let found = [&head.version, &head.size, &head.ranks].map(|word| word.load(Ordering::Relaxed));
        let expected = [VERSION, size as u64, ranks.into()];
        if found != expected {
            return Err(TeamJoinError::OtherLayout { found, expected });
        }
        if region.come(rank) == u32::from(ranks) {
            region.name = Some(path);
            region.take_name_away();
        }
        Ok(region)
    }

    /// One more has mapped the region. How many have.
    fn come(&self, rank: u16) -> u32 {
        self.blocks()[usize::from(rank)].contact.introduce();
        self.head().whereabouts[usize::from(rank)].tell(current_cpu());
        self.head().come.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn take_name_away(&mut self) {
        if let Some(path) = self.name.take() {
            // Rank 0 and the last to come may both try.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Whether the process of a rank is there. Asks the kernel.
    pub(super) fn is_there(&self, rank: usize) -> io::Result<bool> {
        let mut byte = flock(rank as u16);
        fcntl(self.file.as_fd(), FcntlArg::F_OFD_GETLK(&mut byte))?;
        Ok(i32::from(byte.l_type) != libc::F_UNLCK)
    }

    /// All ranks have mapped the region.
    pub(super) fn is_complete(&self) -> bool {
        self.head().come.load(Ordering::Acquire) as usize >= self.ranks
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Where the ranks run, in their order.
    #[inline(always)]
    pub(super) fn whereabouts(&self) -> &[LastCpu] {
        &self.head().whereabouts[..self.ranks]
    }

    #[inline(always)]
    pub(super) fn bell(&self, rank: usize) -> &WakeupFutex {
        &self.blocks()[rank].bell
    }

    /// How the ranks reach each other's memory, in their order.
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
        // SAFETY: within the mapping (checked just now), initialised by the kernel; not written, says the caller.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// A slot of this rank, to write.
    ///
    /// # Safety
    /// By the protocol of [`super::window`], nobody reads the slot while the slice lives, and `rank` is the caller's own.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the memory is not the region's but the team's")]
    pub(super) unsafe fn slot_mut(&self, rank: usize, offset: usize, length: usize) -> &mut [u8] {
        let start = self.slot_start(rank, offset, length);
        // SAFETY: as in `slot`; nobody else touches it, says the caller.
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

    /// A share.
    ///
    /// # Safety
    /// By the protocol of [`super::shared_result`], the owner does not write the share while the slice lives.
    #[inline]
    pub(super) unsafe fn share(&self, rank: usize, place: usize, length: usize) -> &[u8] {
        let start = self.share_start(rank, place, length);
        // SAFETY: as in `slot`.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// A share of this rank, to write.
    ///
    /// # Safety
    /// By the protocol of [`super::shared_result`], nobody reads the share while the slice lives, and `rank` is the caller's own.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the memory is not the region's but the team's")]
    pub(super) unsafe fn share_mut(&self, rank: usize, place: usize, length: usize) -> &mut [u8] {
        let start = self.share_start(rank, place, length);
        // SAFETY: as in `slot_mut`.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// A part of a chunk of the pipe.
    ///
    /// # Safety
    /// By the protocol of [`super::pipeline`], nobody writes this part while the slice lives.
    #[inline]
    pub(super) unsafe fn chunk(&self, rank: usize, chunk: usize, part: std::ops::Range<usize>) -> &[u8] {
        let start = self.chunk_start(rank, chunk, &part);
        // SAFETY: within the mapping (checked just now), initialised by the kernel; not written, says the caller.
        unsafe { std::slice::from_raw_parts(start, part.len()) }
    }

    /// A part of a chunk, to write.
    ///
    /// # Safety
    /// By the protocol of [`super::pipeline`], nobody else touches this part while the slice lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the memory is not the region's but the team's")]
    pub(super) unsafe fn chunk_mut(&self, rank: usize, chunk: usize, part: std::ops::Range<usize>) -> &mut [u8] {
        let start = self.chunk_start(rank, chunk, &part);
        // SAFETY: as in `chunk`; nobody else touches it, says the caller.
        unsafe { std::slice::from_raw_parts_mut(start, part.len()) }
    }

    #[inline]
    fn slot_start(&self, rank: usize, offset: usize, length: usize) -> *mut u8 {
        assert!(rank < self.ranks && length <= SLOT_BYTES);
        // Garbage instead of an offset leads to wrong bytes, but to bytes of the ring.
        self.payload_at(rank * PAYLOAD_BYTES + offset.min(RING_BYTES - length))
    }

    #[inline]
    pub(super) fn leaf_start(&self, rank: usize, channel: usize, length: usize) -> *mut u8 {
        assert!(rank < self.ranks && channel < CHANNELS && length <= LEAF_BYTES);
        self.payload_at(rank * PAYLOAD_BYTES + LEAVES_OFFSET + channel * LEAF_BYTES)
    }

    #[inline]
    fn share_start(&self, rank: usize, place: usize, length: usize) -> *mut u8 {
        assert!(place < RESULT_SLOTS && length <= SLOT_BYTES);
        // Garbage instead of a rank leads to wrong bytes, but to bytes of a share.
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
        // SAFETY: the callers have checked rank, slot, leaf, share and chunk; `layout` made room for all of them behind `payload`.
        unsafe { self.start.as_ptr().add(self.payload + offset) }
    }

    #[inline(always)]
    fn head(&self) -> &RegionHeader {
        // SAFETY: the mapping begins with a page for it; all of its fields are atomics, and any bits are a value.
        unsafe { self.start.cast().as_ref() }
    }

    #[inline(always)]
    fn blocks(&self) -> &[RankBlock] {
        // SAFETY: `layout` put `ranks` blocks behind the head; all of their fields are atomics, and any bits are a value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(size_of::<RegionHeader>()).cast(), self.ranks) }
    }
}

impl Drop for TeamRegion {
    fn drop(&mut self) {
        self.take_name_away();
        // SAFETY: mapped by `map` with this size; slices and references into it borrow from `self`.
        let _ = unsafe { munmap(self.start.cast(), self.size) };
    }
}

impl TeamMemory for TeamRegion {
    type Word = AtomicU64;
    const RESULT_SLOTS: usize = RESULT_SLOTS;

    #[inline(always)]
    fn note(&self, rank: usize, channel: usize) -> &SignatureRecord<AtomicU64> {
        &self.blocks()[rank].notes[channel]
    }

    #[inline(always)]
    fn post(&self, rank: usize, channel: usize) -> &OperationDescriptor<AtomicU64> {
        &self.blocks()[rank].posts[channel]
    }

    #[inline(always)]
    fn common_post(&self, place: usize) -> &OperationDescriptor<AtomicU64> {
        &self.head().common[place]
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
    fn door(&self, rank: usize) -> &BlockClaims<AtomicU64> {
        &self.blocks()[rank].door
    }
}

/// Where the file is, how large, and where in it payload begins.
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

/// Opens the file if it has been made and has its size. It must be ours.
fn open_made(path: &Path, size: usize) -> Result<Option<File>, TeamJoinError> {
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let found = file.metadata()?;
    // SAFETY: takes nothing, cannot fail.
    let user = unsafe { libc::geteuid() };
    if !found.is_file() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(TeamJoinError::NotOurs);
    }
    match found.len() {
        0 => Ok(None), // Still being made.
        length if length == size as u64 => Ok(Some(file)),
        length => Err(TeamJoinError::OtherSize { found: length, expected: size as u64 }),
    }
}

fn map(file: &File, size: usize) -> Result<NonNull<u8>, TeamJoinError> {
    let length = NonZeroUsize::new(size).expect("a region has a head");
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice; `TeamRegion` unmaps it. The file keeps its size: nobody but its
    // owner can open it, and no end of ours cuts it.
    let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file.as_fd(), 0) };
    Ok(start.map_err(io::Error::from)?.cast())
}

/// Holds the byte of a rank until the file is closed.
fn lock(file: &File, rank: u16) -> Result<(), TeamJoinError> {
    match fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&flock(rank))) {
        Ok(_) => Ok(()),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Err(TeamJoinError::SeatTaken { rank }),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

fn flock(rank: u16) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: rank.into(),
        l_len: 1,
        l_pid: 0,
    }
}
