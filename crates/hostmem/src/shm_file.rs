//! A file in `/dev/shm` that the ranks of one host map.
//!
//! Only its owner may open it. All pages are reserved at creation, so that a full file system is an error then and no signal
//! later. Each rank locks one byte of it; the kernel drops the lock when the rank's process ends for any reason.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

use nix::fcntl::{FallocateFlags, FcntlArg, fallocate, fcntl};
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

/// Why an existing file is not usable.
#[derive(Debug)]
pub(crate) enum OpenFileError {
    Io(io::Error),
    /// The file belongs to another user, or other users may open it.
    WrongOwner,
    /// The file has another size.
    SizeMismatch {
        found: u64,
    },
}

impl From<io::Error> for OpenFileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Creates the file under an unused name, with all pages reserved.
pub(crate) fn create(path: &Path, size: usize) -> io::Result<File> {
    create_partly(path, size, size)
}

/// Creates the file under an unused name, with the first pages reserved. The others are reserved by [`reserve`] before they are used.
pub(crate) fn create_partly(path: &Path, size: usize, reserved: usize) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
    let file = options.open(path)?;
    let sized = reserve(&file, 0..reserved).and_then(|()| file.set_len(size as u64));
    if let Err(error) = sized {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// Reserves pages: without it, a full file system would be a signal at the first write.
pub(crate) fn reserve(file: &File, range: Range<usize>) -> io::Result<()> {
    let (start, length) = (range.start as i64, range.len() as i64);
    fallocate(file.as_fd(), FallocateFlags::empty(), start, length).map_err(io::Error::from)
}

/// Opens the file of another rank; none if it does not exist yet or is still empty.
pub(crate) fn open_existing(path: &Path, size: usize) -> Result<Option<File>, OpenFileError> {
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let found = file.metadata()?;
    // SAFETY: takes nothing, cannot fail.
    let user = unsafe { libc::geteuid() };
    if !found.is_file() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(OpenFileError::WrongOwner);
    }
    match found.len() {
        0 => Ok(None),
        length if length == size as u64 => Ok(Some(file)),
        found => Err(OpenFileError::SizeMismatch { found }),
    }
}

/// Maps the file. The caller unmaps it.
pub(crate) fn map(file: &File, size: usize) -> io::Result<NonNull<u8>> {
    let length = NonZeroUsize::new(size).expect("a mapping has a header");
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice. The file keeps its size: only its owner can open it, and no
    // rank truncates it.
    let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file.as_fd(), 0) };
    Ok(start.map_err(io::Error::from)?.cast())
}

/// Locks the byte of a rank until the file is closed. False if another process holds it.
pub(crate) fn lock_rank(file: &File, rank: usize) -> io::Result<bool> {
    match fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&rank_lock(rank))) {
        Ok(_) => Ok(true),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the process of a rank is alive: whether another process holds its lock.
pub(crate) fn is_rank_alive(file: &File, rank: usize) -> io::Result<bool> {
    let mut lock = rank_lock(rank);
    fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

fn rank_lock(rank: usize) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: rank as i64,
        l_len: 1,
        l_pid: 0,
    }
}
