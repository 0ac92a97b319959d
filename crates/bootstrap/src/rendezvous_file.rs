//! A file in /dev/shm through which the ranks of one host find rank 0.
//!
//! Rank 0 creates it with mode 0600 and removes it when all ranks have joined. A file that a killed job left is detected by its
//! dead process and replaced. The file also contains a random secret, so a process that knows the secret runs as the same user.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{O_CLOEXEC, O_NOFOLLOW};

use super::auth::{random_bytes, to_hex};
use super::environment::fnv1a;
use super::host_identity;
use super::launcher::ProcessIdentity;

const FILE_MAGIC: &str = "pleach-file 1";
const MAX_FILE_BYTES: u64 = 1024;
const SHM_DIRECTORY: &str = "/dev/shm";

/// Content of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RendezvousRecord {
    pub(super) port: u16,
    pub(super) secret: String,
    process: u32,
    started: u64,
    network: u64,
    job: String,
}

/// A rendezvous file that rank 0 has written; removed when dropped.
#[derive(Debug)]
pub(super) struct RendezvousFile {
    path: PathBuf,
    inode: u64,
    pub(super) record: RendezvousRecord,
}

/// Why a rendezvous file could not be written or trusted.
#[derive(Debug)]
pub enum RendezvousFileError {
    /// Another job of this user with the same name is joining now.
    Taken {
        /// Its rank 0.
        process: u32,
    },
    /// The file has another owner, or other users can access it.
    Foreign(PathBuf),
    /// Rank 0 is in another network namespace.
    OtherNetwork,
    /// The file could not be created or read.
    Io(PathBuf, io::Error),
}

impl RendezvousFile {
    /// Publishes the port of rank 0.
    pub(super) fn create(job: &str, port: u16) -> Result<Self, RendezvousFileError> {
        Self::create_in(Path::new(SHM_DIRECTORY), job, port)
    }

    fn create_in(folder: &Path, job: &str, port: u16) -> Result<Self, RendezvousFileError> {
        let path = path_of(folder, job);
        let failed = |error| RendezvousFileError::Io(path.clone(), error);
        let own = ProcessIdentity::own().ok_or_else(|| failed(ErrorKind::NotFound.into()))?;
        let network = host_identity::network_namespace().unwrap_or(0);
        let (secret, job) = (to_hex(&random_bytes::<16>().map_err(failed)?), job.to_owned());
        let record = RendezvousRecord { port, secret, process: own.id, started: own.started, network, job };
        for _ in 0..2 {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).custom_flags(O_CLOEXEC | O_NOFOLLOW);
            match options.open(&path) {
                Ok(mut file) => {
                    let inode = file.metadata().map_err(failed)?.ino();
                    let created = Self { path: path.clone(), inode, record };
                    file.write_all(created.record.to_line().as_bytes()).map_err(failed)?;
                    return Ok(created);
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
        // If the inode differs, another process considered this one dead and replaced the file.
        if self.path.symlink_metadata().is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes the file of a job whose rank 0 was killed before all ranks had joined. For launchers, after the job has ended.
pub fn remove_stale_rendezvous_file(job: &str) {
    // A failure is harmless: job names are not reused.
    let _ = remove_stale(&path_of(Path::new(SHM_DIRECTORY), job));
}

/// What rank 0 has published; `None` if there is no complete file yet.
pub(super) fn read(job: &str) -> Result<Option<RendezvousRecord>, RendezvousFileError> {
    let found = read_in(Path::new(SHM_DIRECTORY), job)?;
    if found.as_ref().is_some_and(|record| Some(record.network) != host_identity::network_namespace().or(Some(0))) {
        return Err(RendezvousFileError::OtherNetwork);
    }
    Ok(found)
}

fn read_in(folder: &Path, job: &str) -> Result<Option<RendezvousRecord>, RendezvousFileError> {
    Ok(read_private_file(&path_of(folder, job))?
        .and_then(|text| RendezvousRecord::from_line(&text))
        .filter(|record| record.job == job))
}

/// The text of a file that only this user can access; `None` if there is none.
fn read_private_file(path: &Path) -> Result<Option<String>, RendezvousFileError> {
    let failed = |error| RendezvousFileError::Io(path.to_owned(), error);
    let opened =
        OpenOptions::new().read(true).custom_flags(O_CLOEXEC | O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path);
    let file: File = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // Opening a symbolic link fails with ELOOP.
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

/// Removes the file of a dead process. An incomplete file is being written, or its writer died.
fn remove_stale(path: &Path) -> Result<(), RendezvousFileError> {
    let mut attempts_left = 20;
    loop {
        let Some(text) = read_private_file(path)? else { return Ok(()) };
        match RendezvousRecord::from_line(&text) {
            Some(record) if ProcessIdentity::is_alive(record.process, record.started) => {
                return Err(RendezvousFileError::Taken { process: record.process });
            }
            None if attempts_left > 0 => {
                attempts_left -= 1;
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
                "another job with the same name is joining on this host (process {process}): set PLEACH_JOB to a different \\
                 text for each job"
            ),
            Self::Foreign(path) => write!(
                formatter,
                "{} has the wrong owner or mode (expected your user ID and 0600): remove it, or set PLEACH_RENDEZVOUS=host:port",
                path.display()
            ),
            Self::OtherNetwork => formatter
                .write_str("rank 0 is in another network namespace of this host: set PLEACH_RENDEZVOUS=host:port"),
            Self::Io(path, error) => {
                write!(formatter, "{}: {error}; set PLEACH_RENDEZVOUS=host:port to avoid this file", path.display())
            }
        }
    }
}

impl std::error::Error for RendezvousFileError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    fn job(name: &str) -> String {
        format!("rendezvous file test {name} {}", std::process::id())
    }

    #[test]
    fn a_file_is_read_as_written_and_removed_when_dropped() {
        let job = job("written");
        assert_eq!(read(&job).expect("readable"), None);
        let file = RendezvousFile::create(&job, 1234).expect("/dev/shm is writable");
        assert_eq!(file.path.metadata().expect("the file exists").mode() & 0o777, 0o600);
        assert_eq!(read(&job).expect("own file"), Some(file.record.clone()));
        drop(file);
        assert_eq!(read(&job).expect("readable"), None);
    }

    #[test]
    fn a_live_job_keeps_its_file_and_a_dead_one_does_not() {
        let job = job("twice");
        let file = RendezvousFile::create(&job, 1234).expect("/dev/shm is writable");
        assert!(
            matches!(RendezvousFile::create(&job, 9), Err(RendezvousFileError::Taken { process }) if process == std::process::id())
        );
        let mut dead = file.record.clone();
        dead.started += 1;
        std::fs::write(&file.path, dead.to_line()).expect("own file");
        let next = RendezvousFile::create(&job, 9).expect("the old one is dead");
        drop(file);
        assert_eq!(
            read(&job).expect("own file").map(|record| record.port),
            Some(9),
            "the old one does not remove it"
        );
        drop(next);
    }

    /// Runs a shell command as an unprivileged user of this host; true if it succeeds.
    fn stranger_can(command: &str, path: &Path) -> bool {
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", command, "sh"]).arg(path).uid(65_534).gid(65_534);
        shell.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("a shell").success()
    }

    /// Plays another user: only root can become one.
    #[test]
    fn another_user_of_the_host_learns_nothing_and_changes_nothing() {
        if !nix::unistd::geteuid().is_root() {
            return namespaces::skip_test("only root can run a process as another user");
        }
        let own = job("attacked");
        let file = RendezvousFile::create(&own, 1234).expect("/dev/shm is writable");
        let target = file.path.with_extension("stolen");
        for attack in ["cat $1", "echo x > $1", "rm -f $1 && ! test -e $1", "chmod 666 $1", "truncate -s 0 $1"] {
            assert!(!stranger_can(attack, &file.path), "{attack}");
        }
        assert!(!stranger_can(&format!("mv $1 {}", target.display()), &file.path));
        assert_eq!(read(&own).expect("own file"), Some(file.record.clone()));
        // One who knows a job's name gets ahead of it: the job does not start, and says why, but believes nothing.
        let squatted = job("squatted");
        let path = path_of(Path::new(SHM_DIRECTORY), &squatted);
        let line = RendezvousRecord { job: squatted.clone(), ..file.record.clone() }.to_line();
        assert!(stranger_can(&format!("umask 077; printf '{}\\n' > $1", line.trim_end()), &path));
        assert!(matches!(read(&squatted), Err(RendezvousFileError::Foreign(_))));
        assert!(matches!(RendezvousFile::create(&squatted, 9), Err(RendezvousFileError::Foreign(_))));
        std::fs::remove_file(&path).expect("root removes it");
    }

    #[test]
    fn an_incomplete_file_is_ignored_and_replaced() {
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
        assert_eq!(read(&job).expect("own file"), None);
        drop(RendezvousFile::create(&job, 9).expect("its writer never completes it"));
    }

    #[test]
    fn a_file_that_others_can_read_or_a_link_is_rejected() {
        let job = job("open");
        let file = RendezvousFile::create(&job, 1234).expect("/dev/shm is writable");
        std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(0o644)).expect("own file");
        assert!(matches!(read(&job), Err(RendezvousFileError::Foreign(_))));
        assert!(matches!(RendezvousFile::create(&job, 9), Err(RendezvousFileError::Foreign(_))));
        std::fs::remove_file(&file.path).expect("own file");
        std::os::unix::fs::symlink("/etc/hostname", &file.path).expect("free");
        assert!(matches!(read(&job), Err(RendezvousFileError::Foreign(_))));
        std::fs::remove_file(&file.path).expect("own file");
    }
}
