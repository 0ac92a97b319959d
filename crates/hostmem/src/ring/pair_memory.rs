//! The shared memory of two processes of one host that connect when they first need each other.
//!
//! A file in `/dev/shm` that only its owner may open. One process creates it under a random name, which it sends to the other; that one
//! maps it and removes the name. Each holds a lock on one byte of it, which the kernel drops when the process ends for any reason.
//!
//! ```text
//! header  magic, bytes of a ring; of each side: asleep, closed; of each ring: counts of consumed packets and bytes
//! slots   of the ring from the creator, then of the ring to it
//! bytes   likewise; their pages are reserved before the first long packet: an idle pair has 12 KiB
//! ```

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::sys::mman::munmap;
use nix::sys::statvfs::statvfs;

use super::mapped_ring::{ConsumedCounts, MappedRing, slot_array_bytes};
use super::ring_peer::RingPeer;
use crate::shm_file::{self, OpenFileError};

const MAGIC: u64 = u64::from_le_bytes(*b"pleach\xa7\x82");
const PAGE: usize = 4096;
/// Bytes of a ring for long packets: four of the longest. More would leave the caches of the two cores.
pub(super) const PAIR_RING_BYTES: usize = 256 << 10;
/// Slots of a ring: one page. A process may have a pair with each of many others, most of them idle.
pub(super) const PAIR_SLOTS: usize = 32;
const SLOT_ARRAY_BYTES: usize = slot_array_bytes(PAIR_SLOTS);
const SLOTS_END: usize = PAGE + 2 * SLOT_ARRAY_BYTES;
const SIZE: usize = SLOTS_END + 2 * PAIR_RING_BYTES;
const DIRECTORY: &str = "/dev/shm";
/// With less free space, no pair is created: containers often have little.
const MIN_FREE_BYTES: u64 = 16 << 20;

/// What one side tells the other.
#[repr(C, align(128))]
struct SideFlags {
    /// It sleeps, and wants to be woken by the next packet. The other side takes the flag back.
    asleep: AtomicU32,
    /// It has read all that it will read, and ends.
    closed: AtomicU32,
}

#[repr(C, align(4096))]
struct PairHeader {
    magic: AtomicU64,
    ring_bytes: AtomicU64,
    sides: [SideFlags; 2],
    counts: [ConsumedCounts; 2],
}

const _: () = assert!(size_of::<PairHeader>() == PAGE);

/// How the process at the other end ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerEnd {
    /// It closed its end.
    Closed,
    /// The process is gone, and closed nothing.
    Died,
}

/// Memory that this process shares with one other.
#[derive(Debug)]
pub struct PairMemory {
    start: NonNull<u8>,
    file: File,
    /// The creator's is 0.
    side: usize,
    /// Until the other side has removed it.
    path: Option<PathBuf>,
    has_reserved: bool,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for PairMemory {}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())
}

fn path_of(number: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("pleach-pair-{number:016x}"))
}

impl PairMemory {
    /// Creates memory under a number that no other pair has.
    ///
    /// # Errors
    /// If there is little space, or the file system refuses.
    pub fn create(number: u64) -> io::Result<Self> {
        let space = statvfs(DIRECTORY)?;
        if space.blocks_available() * space.fragment_size() < MIN_FREE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("less than 16 MiB are free in {DIRECTORY}"),
            ));
        }
        let path = path_of(number);
        let file = shm_file::create_partly(&path, SIZE, SLOTS_END)?;
        let mapped = Self::map(file, 0, Some(path.clone()));
        let pair = mapped.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        pair.head().ring_bytes.store(PAIR_RING_BYTES as u64, Ordering::Relaxed);
        pair.head().magic.store(MAGIC, Ordering::Release);
        Ok(pair)
    }

    /// Joins the process that created memory under this number, and removes the name.
    ///
    /// # Errors
    /// If there is no such memory in this process's view of the host, or it is not usable.
    pub fn join(number: u64) -> io::Result<Self> {
        let path = path_of(number);
        let file = match shm_file::open_existing(&path, SIZE) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(io::Error::from(io::ErrorKind::NotFound)),
            Err(OpenFileError::Io(error)) => return Err(error),
            Err(OpenFileError::WrongOwner) => return Err(invalid("the memory has a wrong owner or mode")),
            Err(OpenFileError::SizeMismatch { .. }) => return Err(invalid("the memory has another layout")),
        };
        let pair = Self::map(file, 1, None)?;
        let head = pair.head();
        let layout = (head.magic.load(Ordering::Acquire), head.ring_bytes.load(Ordering::Relaxed));
        if layout != (MAGIC, PAIR_RING_BYTES as u64) {
            return Err(invalid("the memory has another layout"));
        }
        std::fs::remove_file(path)?;
        Ok(pair)
    }

    fn map(file: File, side: usize, path: Option<PathBuf>) -> io::Result<Self> {
        if !shm_file::lock_rank(&file, side)? {
            return Err(invalid("another process has joined the memory already"));
        }
        let start = shm_file::map(&file, SIZE)?;
        Ok(Self { start, file, side, path, has_reserved: false })
    }

    /// The rings to the other side and from it.
    ///
    /// # Safety
    /// They are not used after this value is dropped.
    pub(super) unsafe fn rings(&self) -> RingPeer<PAIR_SLOTS, PAIR_RING_BYTES> {
        let ring = |direction: usize| {
            let counts = NonNull::from(&self.head().counts[direction]);
            // SAFETY: both are within the mapping.
            unsafe {
                let slots = self.start.add(PAGE + direction * SLOT_ARRAY_BYTES);
                MappedRing::new(counts, slots, self.start.add(SLOTS_END + direction * PAIR_RING_BYTES))
            }
        };
        RingPeer::new(ring(self.side), ring(1 - self.side))
    }

    /// Reserves the pages for long packets to the other side; only the first call does anything.
    #[inline]
    pub(super) fn reserve_bytes(&mut self) -> io::Result<()> {
        if self.has_reserved { Ok(()) } else { self.reserve_bytes_now() }
    }

    #[cold]
    fn reserve_bytes_now(&mut self) -> io::Result<()> {
        let start = SLOTS_END + self.side * PAIR_RING_BYTES;
        shm_file::reserve(&self.file, start..start + PAIR_RING_BYTES)?;
        self.has_reserved = true;
        Ok(())
    }

    /// This side sleeps, or is awake again.
    pub(super) fn set_asleep(&self, is_asleep: bool) {
        self.head().sides[self.side].asleep.store(is_asleep.into(), Ordering::SeqCst);
    }

    /// Whether the other side must be woken. There is no fence, so it may just have fallen asleep unseen; it polls once more before
    /// it does, and its sleep is bounded.
    #[inline]
    pub(super) fn take_asleep(&self) -> bool {
        let asleep = &self.head().sides[1 - self.side].asleep;
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::AcqRel) != 0
    }

    /// This side ends.
    pub(super) fn close(&self) {
        self.head().sides[self.side].closed.store(1, Ordering::Release);
    }

    /// Whether the other side closed its end.
    #[inline]
    pub(super) fn is_peer_closed(&self) -> bool {
        self.head().sides[1 - self.side].closed.load(Ordering::Acquire) != 0
    }

    /// Whether the other side ended, and how.
    pub(super) fn peer_end(&self) -> Option<PeerEnd> {
        if self.is_peer_closed() {
            return Some(PeerEnd::Closed);
        }
        let is_alive = shm_file::is_rank_alive(&self.file, 1 - self.side).unwrap_or(true);
        (!is_alive).then_some(PeerEnd::Died)
    }

    fn head(&self) -> &PairHeader {
        // SAFETY: the mapping begins with a page for it; all of its fields are atomics, and any bits are a value.
        unsafe { self.start.cast().as_ref() }
    }
}

impl Drop for PairMemory {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path); // The other side may have removed it.
        }
        // SAFETY: mapped with this size; rings in it are not used any more, as `rings` was promised.
        let _ = unsafe { munmap(self.start.cast(), SIZE) };
    }
}
