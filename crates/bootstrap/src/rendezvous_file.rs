//! How the ranks of one host find rank 0 without being told where it is: a file in /dev/shm.
//!
//! Rank 0 creates it, nobody else can read it, and it is gone when all are there. What a killed job left behind is known by its
//! dead process and replaced. It also holds a random secret, so whoever can read it belongs to the user.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{O_CLOEXEC, O_NOFOLLOW};

use super::environment::fnv1a;
use super::host_identity;
use super::launcher::ProcessIdentity;

const FILE_MAGIC: &str = "pleach-notice 1";
const MAX_FILE_BYTES: u64 = 1024;
const SHM_DIRECTORY: &str = "/dev/shm";

/// What a notice says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RendezvousRecord {
    pub(super) port: u16,
    pub(super) secret: String,
    process: u32,
    started: u64,
    network: u64,
    job: String,
}

/// A notice that is up; dropped, it is taken down.
#[derive(Debug)]
pub(super) struct RendezvousFile {
    path: PathBuf,
    inode: u64,
    pub(super) posting: RendezvousRecord,
}

/// Why a notice could not be posted or believed.
#[derive(Debug)]
pub enum RendezvousFileError {
    /// Another job of this user has the same name and is meeting now.
    Taken {
        /// The process that waits there.
        process: u32,
    },
    /// The file belongs to somebody else, or others can write to it.
    Foreign(PathBuf),
    /// Rank 0 is in another network namespace.
    OtherNetwork,
    /// The file could not be made or read.
    Io(PathBuf, io::Error),
}

impl RendezvousFile {
    /// Tells the other ranks of this job where rank 0 listens.
    pub(super) fn post(job: &str, port: u16) -> Result<Self, RendezvousFileError> {
        Self::post_in(Path::new(SHM_DIRECTORY), job, port)
    }

    fn post_in(folder: &Path, job: &str, port: u16) -> Result<Self, RendezvousFileError> {
        let path = path_of(folder, job);
        let failed = |error| RendezvousFileError::Io(path.clone(), error);
        let own = ProcessIdentity::own().ok_or_else(|| failed(ErrorKind::NotFound.into()))?;
        let network = host_identity::network_namespace().unwrap_or(0);
        let (secret, job) = (host_identity::random_hex(), job.to_owned());
        let posting = RendezvousRecord { port, secret, process: own.id, started: own.started, network, job };
        for _ in 0..2 {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).custom_flags(O_CLOEXEC | O_NOFOLLOW);
            match options.open(&path) {
                Ok(mut file) => {
                    let inode = file.metadata().map_err(failed)?.ino();
                    let notice = Self { path: path.clone(), inode, posting };
                    file.write_all(notice.posting.to_line().as_bytes()).map_err(failed)?;
                    return Ok(notice);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => remove_stale(&path)?,
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(ErrorKind::AlreadyExists.into()))
    }
}

impl Drop for RendezvousFile {
    fn drop(&mut self) {
        // If it is not ours any more, somebody took us for dead.
        if self.path.symlink_metadata().is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Takes down the notice of a job whose rank 0 was killed before all had met. For whoever started the job, once it is over.
pub fn remove_stale_rendezvous_file(job: &str) {
    // If it is there and cannot be removed, nobody is harmed: a job's name is not used again.
    let _ = remove_stale(&path_of(Path::new(SHM_DIRECTORY), job));
}

/// What rank 0 has posted; `None` if there is nothing yet.
pub(super) fn read(job: &str) -> Result<Option<RendezvousRecord>, RendezvousFileError> {
    let found = read_in(Path::new(SHM_DIRECTORY), job)?;
    if found.as_ref().is_some_and(|posting| Some(posting.network) != host_identity::network_namespace().or(Some(0))) {
        return Err(RendezvousFileError::OtherNetwork);
    }
    Ok(found)
}

fn read_in(folder: &Path, job: &str) -> Result<Option<RendezvousRecord>, RendezvousFileError> {
    Ok(read_private_file(&path_of(folder, job))?
        .and_then(|text| RendezvousRecord::from_line(&text))
        .filter(|posting| posting.job == job))
}

/// The text of a notice of ours; `None` if there is none.
fn read_private_file(path: &Path) -> Result<Option<String>, RendezvousFileError> {
    let failed = |error| RendezvousFileError::Io(path.to_owned(), error);
    let opened =
        OpenOptions::new().read(true).custom_flags(O_CLOEXEC | O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path);
    let file: File = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // A link is ELOOP.
        Err(error) if matches!(error.raw_os_error(), Some(nix::libc::EACCES | nix::libc::ELOOP)) => {
            return Err(RendezvousFileError::Foreign(path.to_owned()));
        }
        Err(error) => return Err(failed(error)),
    };
    let found = file.metadata().map_err(failed)?;
    let is_ours = found.is_file() && found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if !is_ours {
        return Err(RendezvousFileError::Foreign(path.to_owned()));
    }
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Removes what a process left that is no more. A file that says nothing yet is being written, or its writer died at it.
fn remove_stale(path: &Path) -> Result<(), RendezvousFileError> {
    let mut patience = 20;
    loop {
        let Some(text) = read_private_file(path)? else { return Ok(()) };
        match RendezvousRecord::from_line(&text) {
            Some(posting) if ProcessIdentity::is_alive(posting.process, posting.started) => {
                return Err(RendezvousFileError::Taken { process: posting.process });
            }
            None if patience > 0 => {
                patience -= 1;
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Some(_) | None => {
                return match std::fs::remove_file(path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        Err(RendezvousFileError::Io(path.to_owned(), error))
                    }
                    _ => Ok(()),
                };
            }
        }
    }
}

fn path_of(folder: &Path, job: &str) -> PathBuf {
    folder.join(format!("pleach-{}-{:016x}", nix::unistd::geteuid(), fnv1a(job.as_bytes())))
}

impl RendezvousRecord {
    fn to_line(&self) -> String {
        let Self { port, secret, process, started, network, job } = self;
        format!("{FILE_MAGIC} {port} {secret} {process} {started} {network} {job}\n")
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut words = line.strip_suffix('\n')?.strip_prefix(FILE_MAGIC)?.strip_prefix(' ')?.splitn(6, ' ');
        let port = words.next()?.parse().ok().filter(|&port| port != 0)?;
        let secret = words.next()?.to_owned();
        let process = words.next()?.parse().ok()?;
        let started = words.next()?.parse().ok()?;
        let network = words.next()?.parse().ok()?;
        Some(Self { port, secret, process, started, network, job: words.next()?.to_owned() })
    }
}

impl fmt::Display for RendezvousFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { process } => write!(
                formatter,
                "another job of the same name is meeting on this host (process {process}): set PLEACH_JOB to a text of its \
                 own for each job"
            ),
            Self::Foreign(path) => write!(
                formatter,
                "{} belongs to another user or is open to others: set PLEACH_RENDEZVOUS=host:port or another PLEACH_JOB",
                path.display()
            ),
            Self::OtherNetwork => formatter
                .write_str("rank 0 is in another network namespace of this host: set PLEACH_RENDEZVOUS=host:port"),
            Self::Io(path, error) => {
                write!(formatter, "{}: {error}; PLEACH_RENDEZVOUS=host:port does without this file", path.display())
            }
        }
    }
}

impl std::error::Error for RendezvousFileError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn job(name: &str) -> String {
        format!("notice test {name} {}", std::process::id())
    }

    #[test]
    fn a_notice_is_read_as_posted_and_gone_when_dropped() {
        let job = job("posted");
        assert_eq!(read(&job).expect("no trouble"), None);
        let notice = RendezvousFile::post(&job, 1234).expect("/dev/shm can be written to");
        assert_eq!(notice.path.metadata().expect("it is there").mode() & 0o777, 0o600);
        assert_eq!(read(&job).expect("ours"), Some(notice.posting.clone()));
        drop(notice);
        assert_eq!(read(&job).expect("no trouble"), None);
    }

    #[test]
    fn a_living_job_keeps_its_name_and_a_dead_one_does_not() {
        let job = job("twice");
        let notice = RendezvousFile::post(&job, 1234).expect("/dev/shm can be written to");
        assert!(
            matches!(RendezvousFile::post(&job, 9), Err(RendezvousFileError::Taken { process }) if process == std::process::id())
        );
        let mut dead = notice.posting.clone();
        dead.started += 1;
        std::fs::write(&notice.path, dead.to_line()).expect("ours");
        let next = RendezvousFile::post(&job, 9).expect("the old one is dead");
        drop(notice);
        assert_eq!(
            read(&job).expect("ours").map(|posting| posting.port),
            Some(9),
            "the old one does not take it down"
        );
        drop(next);
    }

    #[test]
    fn half_a_notice_is_none_and_is_replaced() {
        let job = job("half");
        let path = path_of(Path::new(SHM_DIRECTORY), &job);
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .expect("free")
            .write_all(b"pleach-no")
            .expect("room");
        assert_eq!(read(&job).expect("ours"), None);
        drop(RendezvousFile::post(&job, 9).expect("nobody completes it"));
    }

    #[test]
    fn a_notice_that_others_can_read_or_a_link_is_not_believed() {
        let job = job("open");
        let notice = RendezvousFile::post(&job, 1234).expect("/dev/shm can be written to");
        std::fs::set_permissions(&notice.path, std::fs::Permissions::from_mode(0o644)).expect("ours");
        assert!(matches!(read(&job), Err(RendezvousFileError::Foreign(_))));
        assert!(matches!(RendezvousFile::post(&job, 9), Err(RendezvousFileError::Foreign(_))));
        std::fs::remove_file(&notice.path).expect("ours");
        std::os::unix::fs::symlink("/etc/hostname", &notice.path).expect("free");
        assert!(matches!(read(&job), Err(RendezvousFileError::Foreign(_))));
        std::fs::remove_file(&notice.path).expect("ours");
    }
}
