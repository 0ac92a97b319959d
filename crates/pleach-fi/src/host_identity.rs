//! What tells endpoints that they may be on one host.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU16;
use std::os::unix::fs::MetadataExt;

/// A file with faults to inject, as everywhere in Pleach.
pub(crate) const FAULTS: &str = "PLEACH_FAULTS";
/// "off" keeps messages within a host on UDP.
const SHARED_MEMORY: &str = "PLEACH_SHARED_MEMORY";

/// What the endpoints of this host have in common; none if they are not to share memory. Faults are injected into packets over UDP
/// only, so whoever asks for faults gets them.
pub(crate) fn host_of_environment() -> Option<NonZeroU16> {
    let is_set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if is_set(SHARED_MEMORY).is_some_and(|value| value == "off" || value == "0") || is_set(FAULTS).is_some() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    std::fs::read("/proc/sys/kernel/random/boot_id").ok()?.hash(&mut hasher);
    // Containers of one host have different ones if they are meant to be apart; so do the hosts of a test.
    for namespace in ["/proc/thread-self/ns/net", "/dev/shm"] {
        let found = std::fs::metadata(namespace).ok()?;
        (found.dev(), found.ino()).hash(&mut hasher);
    }
    nix::unistd::geteuid().as_raw().hash(&mut hasher);
    NonZeroU16::new((hasher.finish() as u16).max(1))
}
