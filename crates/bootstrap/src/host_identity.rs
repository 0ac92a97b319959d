//! Which host a process is on, so that ranks of one host find each other for shared memory.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::mac::random_nonce;

/// Equal for two processes that reach each other over loopback and share memory: one boot of one kernel, one network
/// namespace, one /dev/shm, one user.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostIdentity(pub(super) String);

impl HostIdentity {
    /// This process's own.
    pub fn here() -> Self {
        // Where the kernel does not say, a process is a host of its own: slower, and never wrong.
        Self(kernel_identity().unwrap_or_else(|| format!("unknown {} {}", std::process::id(), random_hex())))
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

/// The number of this process's network namespace.
pub(super) fn network_namespace() -> Option<u64> {
    // The thread's: one thread of a process may have moved.
    fs::metadata("/proc/thread-self/ns/net").ok().map(|found| found.ino())
}

/// The name of this host, for people.
pub(super) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain: String = name.trim().chars().filter(|letter| !letter.is_control()).take(64).collect();
    if plain.is_empty() { "unknown".to_owned() } else { plain }
}

/// 128 random bits.
pub(super) fn random_hex() -> String {
    random_nonce().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_of_one_host_agree_and_random_numbers_do_not() {
        assert_eq!(HostIdentity::here(), std::thread::spawn(HostIdentity::here).join().expect("it returns"));
        assert_ne!(random_hex(), random_hex());
    }
}
