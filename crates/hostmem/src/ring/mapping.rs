//! The memory in which ranks of one host put parcels for each other.
//!
//! A file in `/dev/shm` that only its owner may open, made by rank 0 and without a name once all have come. Each rank holds a lock on one
//! byte of it, which the kernel drops when the rank ends, however it ends.
//!
//! ```text
//! head    magic, ranks, bytes of a ring, how many have come
//! bells   one per rank
//! rings   one from each rank to each: counts of what was read, slots, bytes
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, FcntlArg, fallocate, fcntl};
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::spsc_ring::{RingEntry, RingMemory, SLOT_BYTES};
use crate::team::futex::WakeupFutex;

const MAGIC: u64 = u64::from_le_bytes(*b"pleach\xa7\x81");
const PAGE: usize = 4096;
/// Bytes of a ring: two megabytes of it stay in the second cache of one core or the other.
pub(super) const RING_BYTES: usize = 1 << 20;
/// Slots of a ring: as many as short parcels a port has under way ([`super::ShmTransport::settings`]).
const SLOTS: usize = 64;
pub(super) const MAX_RANKS: usize = 64;

#[repr(C, align(4096))]
struct MappingHeader {
    magic: AtomicU64,
    ranks: AtomicU64,
    ring_bytes: AtomicU64,
    come: AtomicU64,
}

/// What a reader publishes. Only it writes them, and the writer seldom looks.
#[repr(C)]
struct ConsumedCounts {
    taken: AtomicU64,
    read: AtomicU64,
}

/// A ring as it is mapped. It knows nothing of how long it is: see [`RingMapping::ring`].
pub(super) struct MappedRing {
    start: NonNull<u8>,
}

// SAFETY: both ends of a ring are made to be used at once, and none is tied to a thread.
unsafe impl Send for MappedRing {}

const SLOT_ARRAY_BYTES: usize = SLOTS * SLOT_BYTES;
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

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())
}

impl RingMapping {
    /// Makes the memory as rank 0, or finds it as another.
    pub(super) fn open(name: &str, rank: usize, ranks: usize, patience: Duration) -> io::Result<Self> {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if name.is_empty() || name.len() > 128 || !is_plain {
            return Err(wrong("a name has up to 128 letters, digits, - and _"));
        }
        if rank >= ranks || ranks > MAX_RANKS {
            return Err(wrong("at most 64 ranks of one host exchange parcels in memory"));
        }
        let path = PathBuf::from("/dev/shm").join(name);
        let size = rings_at(ranks) + ranks * ranks * RING_SIZE;
        let deadline = Instant::now() + patience;
        let file = if rank == 0 { make(&path, size)? } else { find(&path, size, deadline)? };
        fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&byte_of(rank))).map_err(io::Error::from)?;
        let length = NonZeroUsize::new(size).expect("it has a head");
        // SAFETY: a new mapping at a place of the kernel's choice, unmapped by `drop`. The file keeps its size: only its owner
        // can open it, and no end of ours cuts it.
        let start = unsafe {
            mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, file.as_fd(), 0)
        };
        let start = start.map_err(io::Error::from)?.cast();
        let mapping = Self { start, size, ranks, file, name: Some(path) };
        mapping.agree(rank, deadline)?;
        Ok(mapping)
    }

    fn agree(&self, rank: usize, deadline: Instant) -> io::Result<()> {
        let head = self.head();
        if rank == 0 {
            head.ranks.store(self.ranks as u64, Ordering::Relaxed);
            head.ring_bytes.store(RING_BYTES as u64, Ordering::Relaxed);
            head.magic.store(MAGIC, Ordering::Release);
        }
        while head.magic.load(Ordering::Acquire) != MAGIC {
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "rank 0 has not made the memory"));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let found = [&head.ranks, &head.ring_bytes].map(|word| word.load(Ordering::Relaxed));
        if found != [self.ranks as u64, RING_BYTES as u64] {
            return Err(wrong("the memory was made for others"));
        }
        head.come.fetch_add(1, Ordering::AcqRel);
        while head.come.load(Ordering::Acquire) < self.ranks as u64 {
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "not all ranks have come"));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// All have come: whatever happens later, nothing stays behind.
    pub(super) fn take_name_away(&mut self) {
        if let Some(path) = self.name.take() {
            // Every rank tries.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Whether the process of a rank is there.
    pub(super) fn is_there(&self, rank: usize) -> bool {
        let mut byte = byte_of(rank);
        let asked = fcntl(self.file.as_fd(), FcntlArg::F_OFD_GETLK(&mut byte));
        asked.is_err() || i32::from(byte.l_type) != libc::F_UNLCK
    }

    fn head(&self) -> &MappingHeader {
        // SAFETY: the mapping begins with a page for it; all of its fields are atomics, and any bits are a value.
        unsafe { self.start.cast().as_ref() }
    }

    pub(super) fn bell(&self, rank: usize) -> &WakeupFutex {
        assert!(rank < self.ranks);
        // SAFETY: `rings_at` left room for a bell of each rank behind the head; its fields are atomics.
        unsafe { &*self.start.as_ptr().add(PAGE + rank * size_of::<WakeupFutex>()).cast::<WakeupFutex>() }
    }

    /// The ring from one rank to another.
    ///
    /// # Safety
    /// It is not used when the mapping is gone.
    pub(super) unsafe fn ring(&self, from: usize, to: usize) -> MappedRing {
        assert!(from < self.ranks && to < self.ranks);
        // SAFETY: `open` made room for a ring from each to each.
        MappedRing { start: unsafe { self.start.add(rings_at(self.ranks) + (from * self.ranks + to) * RING_SIZE) } }
    }
}

impl RingMemory for MappedRing {
    type Word = AtomicU64;
    const SLOTS: u64 = SLOTS as u64;
    const BYTES: u64 = RING_BYTES as u64;

    #[inline(always)]
    fn slot(&self, index: usize) -> &AtomicU64 {
        assert!(index < SLOTS);
        // SAFETY: within the slots, and aligned; both ends use words at the beginning of slots as atomics.
        unsafe { self.start.add(PAGE + index * SLOT_BYTES).cast().as_ref() }
    }

    #[inline(always)]
    fn taken(&self) -> &AtomicU64 {
        &self.counts().taken
    }

    #[inline(always)]
    fn read(&self) -> &AtomicU64 {
        &self.counts().read
    }
}

impl MappedRing {
    /// A ring begins with a page for its counts; its slots and bytes follow.
    #[inline(always)]
    fn counts(&self) -> &ConsumedCounts {
        // SAFETY: they are atomics, and any bits are a value.
        unsafe { self.start.cast().as_ref() }
    }

    /// The bytes of an entry. Only between `claim` and `publish`, or between `next` and `finish`.
    ///
    /// # Safety
    /// The entry is one that the protocol gave out and that is not given back yet. One who breaks the rules at the other end can change
    /// bytes that are looked at; then they are wrong, and where they go was decided by a copy.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // Entries do not overlap, and the protocol gives each out once.
    pub(super) unsafe fn bytes(&self, entry: RingEntry) -> &mut [u8] {
        assert!(entry.at + entry.length <= SLOT_ARRAY_BYTES + RING_BYTES);
        // SAFETY: within the ring; by the protocol, the other end leaves it alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(PAGE + entry.at).as_ptr(), entry.length) }
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        self.take_name_away();
        // SAFETY: mapped by `open` with this size; references into it borrow from `self`.
        let _ = unsafe { munmap(self.start.cast(), self.size) };
    }
}

fn rings_at(ranks: usize) -> usize {
    (PAGE + ranks * size_of::<WakeupFutex>()).next_multiple_of(PAGE)
}

fn make(path: &PathBuf, size: usize) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
    let file = options.open(path)?;
    // All pages are reserved, so that a full file system is an error now and no signal later.
    if let Err(error) = fallocate(file.as_fd(), FallocateFlags::empty(), 0, size as i64) {
        let _ = std::fs::remove_file(path);
        return Err(error.into());
    }
    Ok(file)
}

fn find(path: &PathBuf, size: usize, deadline: Instant) -> io::Result<File> {
    loop {
        let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
        match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
            Ok(file) => {
                let found = file.metadata()?;
                // SAFETY: takes nothing, cannot fail.
                let user = unsafe { libc::geteuid() };
                if !found.is_file() || found.uid() != user || found.mode() & 0o077 != 0 {
                    return Err(wrong("the memory is not ours"));
                }
                if found.len() == size as u64 {
                    return Ok(file);
                }
                if found.len() != 0 {
                    return Err(wrong("the memory was made for others"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "rank 0 has not made the memory"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn byte_of(rank: usize) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: rank as i64,
        l_len: 1,
        l_pid: 0,
    }
}
