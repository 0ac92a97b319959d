//! How many files a process may open. A coordinator has at least one connection to each rank; and every rank keeps some files back until all
//! have joined: one that runs out of them later could only die, and the others would not learn why.

use std::fs::File;
use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files that a process needs besides those for ranks.
const RESERVED_FILES: u64 = 512;

/// Open files that a process holds for those that it will need. Drop it when it needs them.
#[derive(Debug)]
pub struct FileReserve {
    _files: Vec<File>,
}

impl FileReserve {
    /// Holds so many.
    ///
    /// # Errors
    /// The process may not open as many.
    pub fn hold(files: usize) -> io::Result<Self> {
        let files: io::Result<Vec<File>> = (0..files).map(|_| File::open("/")).collect();
        files.map(|files| Self { _files: files })
    }
}

/// Why a process may not open enough files.
#[derive(Debug)]
pub(super) enum FileLimitError {
    /// The system's limit for this process.
    TooLow {
        allowed: u64,
    },
    Io(io::Error),
}

/// Thousands of ranks need thousands of files; the usual soft limit is 1,024.
pub(super) fn raise_file_limit(size: u32, paths: usize) -> Result<(), FileLimitError> {
    // One connection for the rendezvous, and one for each path if there are several.
    let paths = if paths > 1 { paths as u64 } else { 0 };
    let wanted = u64::from(size) * (1 + paths) + RESERVED_FILES;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| FileLimitError::Io(error.into()))?;
    if soft >= wanted {
        return Ok(());
    }
    if hard < u64::from(size) + RESERVED_FILES / 4 {
        return Err(FileLimitError::TooLow { allowed: hard });
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).map_err(|error| FileLimitError::Io(error.into()))
}
