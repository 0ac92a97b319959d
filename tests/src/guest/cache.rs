//! The cache of everything downloaded and built for the guest: `guest/` in cargo's target directory.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::GuestError;

/// A file that cargo puts into every target directory.
const MARK: &str = "CACHEDIR.TAG";

/// Another process may be downloading and building: half a minute, or a few minutes on a slow network.
const LOCK_LIMIT: Duration = Duration::from_secs(280);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The folder; this process holds it exclusively until the value is dropped.
pub(super) struct Cache {
    folder: PathBuf,
    /// Locked; the kernel releases the lock when the file is closed, however this process ends.
    _lock: File,
}

impl Cache {
    pub(super) fn open() -> Result<Self, GuestError> {
        let folder = target_directory()?.join("guest");
        create_folder(&folder)?;
        let path = folder.join("lock");
        let failed = |source| GuestError::io(format!("locking {}", path.display()), source);
        let lock = File::create(&path).map_err(failed)?;
        let deadline = Instant::now() + LOCK_LIMIT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { folder, _lock: lock }),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_POLL_INTERVAL),
                Err(TryLockError::WouldBlock) => {
                    let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "another process holds it");
                    return Err(failed(source));
                }
            }
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Creates an empty folder of this name and deletes what was there.
    pub(super) fn empty_folder(&self, name: &str) -> Result<PathBuf, GuestError> {
        let folder = self.path(name);
        remove_folder(&folder)?;
        create_folder(&folder)?;
        Ok(folder)
    }
}

pub(super) fn create_folder(folder: &Path) -> Result<(), GuestError> {
    std::fs::create_dir_all(folder).map_err(|source| GuestError::io(format!("making {}", folder.display()), source))
}

/// Removes a folder and its contents, if it exists.
pub(super) fn remove_folder(folder: &Path) -> Result<(), GuestError> {
    match std::fs::remove_dir_all(folder) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(GuestError::io(format!("removing {}", folder.display()), source))
        }
        _ => Ok(()),
    }
}

/// The target directory in which the running test or example was built.
fn target_directory() -> Result<PathBuf, GuestError> {
    let program = std::env::current_exe().map_err(|source| GuestError::io("finding the running program", source))?;
    let found = program.ancestors().find(|folder| folder.join(MARK).is_file());
    let found = found.ok_or_else(|| GuestError::Missing(format!("a cargo target directory above {program:?}")))?;
    Ok(found.to_owned())
}
