//! The shared memory through which ranks of one host exchange packets.
//!
//! A file in `/dev/shm` that only its owner may open. Rank 0 creates it; it is unlinked once all ranks have joined. Each rank
//! holds a lock on one byte of it, which the kernel drops when the rank's process ends for any reason.
//!
//! ```text
//! header  magic, ranks, bytes of a ring, how many have joined
//! futexes one per rank
//! rings   one from each rank to each: counts of consumed packets and bytes, slots, bytes
//! ```

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::mman::munmap;

use super::mapped_ring::{MappedRing, slot_array_bytes};
use crate::futex::WakeupFutex;
use crate::shm_file::{self, OpenFileError};

const MAGIC: u64 = u64::from_le_bytes(*b"pleach\xa7\x81");
const PAGE: usize = 4096;
/// Bytes of a ring: the rings of both directions fit the second-level caches of the two cores.
pub(super) const RING_BYTES: usize = 1 << 20;
/// Slots of a ring: as many as the messaging machine has short packets in flight ([`super::ShmTransport::settings`]).
pub(super) const RING_SLOTS: usize = 64;
pub(super) const MAX_RANKS: usize = 64;

#[repr(C, align(4096))]
struct MappingHeader {
    magic: AtomicU64,
    ranks: AtomicU64,
    ring_bytes: AtomicU64,
    joined: AtomicU64,
}

const SLOT_ARRAY_BYTES: usize = slot_array_bytes(RING_SLOTS);
const RING_SIZE: usize = PAGE + SLOT_ARRAY_BYTES + RING_BYTES;

pub(super) struct RingMapping {
    start: NonNull<u8>,
    size: usize,
    ranks: usize,
    file: File,
    name: Option<PathBuf>,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for RingMapping {}

const NOT_CREATED: &str = "local rank 0 did not create the shared memory in time; is it running?";
const OTHER_LAYOUT: &str =
    "the shared memory has another size or number of ranks; do all ranks run the same version?";
const WRONG_OWNER: &str = "the shared memory has a wrong owner or mode (expected this user, 0600)";

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())
}

impl RingMapping {
    /// Creates the memory as rank 0, or opens it as another rank.
    pub(super) fn open(name: &str, rank: usize, ranks: usize, timeout: Duration) -> io::Result<Self> {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if name.is_empty() || name.len() > 128 || !is_plain {
            return Err(invalid("a name of shared memory has up to 128 letters, digits, '-' and '_'"));
        }
        if rank >= ranks || ranks > MAX_RANKS {
            return Err(invalid("at most 64 ranks of one host exchange packets in shared memory"));
        }
        let path = PathBuf::from("/dev/shm").join(name);
        let size = rings_at(ranks) + ranks * ranks * RING_SIZE;
        let deadline = Instant::now() + timeout;
        let file = if rank == 0 { shm_file::create(&path, size)? } else { open_existing(&path, size, deadline)? };
        if !shm_file::lock_rank(&file, rank)? {
            return Err(invalid("another process has joined the shared memory as this rank"));
        }
        let start = shm_file::map(&file, size)?;
        let mapping = Self { start, size, ranks, file, name: Some(path) };
        mapping.initialise(rank, deadline)?;
        Ok(mapping)
    }

    fn initialise(&self, rank: usize, deadline: Instant) -> io::Result<()> {
        let head = self.head();
        if rank == 0 {
            head.ranks.store(self.ranks as u64, Ordering::Relaxed);
            head.ring_bytes.store(RING_BYTES as u64, Ordering::Relaxed);
            head.magic.store(MAGIC, Ordering::Release);
        }
        while head.magic.load(Ordering::Acquire) != MAGIC {
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, NOT_CREATED));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let found = [&head.ranks, &head.ring_bytes].map(|word| word.load(Ordering::Relaxed));
        if found != [self.ranks as u64, RING_BYTES as u64] {
            return Err(invalid(OTHER_LAYOUT));
        }
        head.joined.fetch_add(1, Ordering::AcqRel);
        while head.joined.load(Ordering::Acquire) < self.ranks as u64 {
            if Instant::now() >= deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "not all local ranks joined the shared memory in time; are they running?",
                ));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Unlinks the file: nothing stays behind, whatever happens later.
    pub(super) fn unlink(&mut self) {
        if let Some(path) = self.name.take() {
            // Every rank tries.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Whether the process of a rank is alive.
    pub(super) fn is_alive(&self, rank: usize) -> bool {
        shm_file::is_rank_alive(&self.file, rank).unwrap_or(true)
    }

    fn head(&self) -> &MappingHeader {
        // SAFETY: the mapping begins with a page for it; all of its fields are atomics, and any bits are a value.
        unsafe { self.start.cast().as_ref() }
    }

    pub(super) fn futex(&self, rank: usize) -> &WakeupFutex {
        assert!(rank < self.ranks);
        // SAFETY: `rings_at` reserves a futex for each rank behind the header; its fields are atomics.
        unsafe { &*self.start.as_ptr().add(PAGE + rank * size_of::<WakeupFutex>()).cast::<WakeupFutex>() }
    }

    /// The ring from one rank to another.
    ///
    /// # Safety
    /// It is not used after the mapping is dropped.
    pub(super) unsafe fn ring(&self, from: usize, to: usize) -> MappedRing<RING_SLOTS, RING_BYTES> {
        assert!(from < self.ranks && to < self.ranks);
        // SAFETY: `open` reserved a ring from each rank to each. It begins with a page for its counts; slots and bytes follow.
        unsafe {
            let counts = self.start.add(rings_at(self.ranks) + (from * self.ranks + to) * RING_SIZE);
            let slots = counts.add(PAGE);
            MappedRing::new(counts.cast(), slots, slots.add(SLOT_ARRAY_BYTES))
        }
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        self.unlink();
        // SAFETY: mapped with this size; references into it borrow from `self`.
        let _ = unsafe { munmap(self.start.cast(), self.size) };
    }
}

fn rings_at(ranks: usize) -> usize {
    (PAGE + ranks * size_of::<WakeupFutex>()).next_multiple_of(PAGE)
}

/// Waits until rank 0 has created the file.
fn open_existing(path: &Path, size: usize, deadline: Instant) -> io::Result<File> {
    loop {
        match shm_file::open_existing(path, size) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => {}
            Err(OpenFileError::Io(error)) => return Err(error),
            Err(OpenFileError::WrongOwner) => return Err(invalid(WRONG_OWNER)),
            Err(OpenFileError::SizeMismatch { .. }) => return Err(invalid(OTHER_LAYOUT)),
        }
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, NOT_CREATED));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}
