//! How many files a coordinator may open: it has at least one connection to each rank.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files that a process needs besides those for ranks.
const RESERVED_FILES: u64 = 512;

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
