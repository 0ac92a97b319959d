//! Identifies the host of a process, so that ranks of one host can use shared memory.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::auth::{random_bytes, to_hex};

/// Equal for two processes that can reach each other over loopback and share memory: same boot of the same kernel, same network
/// namespace, same /dev/shm, same user.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostIdentity(pub(super) String);

impl HostIdentity {
    /// The host of this process.
    pub fn current() -> Self {
        // Without an identity from the kernel, the process counts as a host of its own: slower, but never wrong.
        Self(kernel_identity().unwrap_or_else(|| format!("unknown {} {}", std::process::id(), unique_suffix())))
    }
}

impl fmt::Display for HostIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn kernel_identity() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let memory = fs::metadata("/dev/shm").ok()?.dev();
    Some(format!("{} {} {memory} {}", boot.trim(), network_namespace()?, nix::unistd::geteuid()))
}

/// The inode of this process's network namespace.
pub(super) fn network_namespace() -> Option<u64> {
    // That of the thread: one thread of a process may have changed its namespace.
    fs::metadata("/proc/thread-self/ns/net").ok().map(|found| found.ino())
}

/// The name of this host, for error messages.
pub(super) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain: String = name.trim().chars().filter(|character| !character.is_control()).take(64).collect();
    if plain.is_empty() { "unknown".to_owned() } else { plain }
}

/// Differs between processes that have the same number on different hosts. It is not a secret, so the time will do if the kernel
/// has no random numbers.
fn unique_suffix() -> String {
    random_bytes::<16>().map_or_else(|_| format!("{:?}", std::time::SystemTime::now()), |bytes| to_hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_one_host_agree() {
        assert_eq!(HostIdentity::current(), std::thread::spawn(HostIdentity::current).join().expect("it returns"));
        assert_ne!(unique_suffix(), unique_suffix());
    }
}
