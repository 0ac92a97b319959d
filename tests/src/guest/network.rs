//! The network of guests and of this machine's programs: one namespace with a bridge, and a tap device per guest.
//!
//! RoCE's ICRC covers the IP addresses, so nothing may translate them: the emulator's built-in network does. Traffic stays
//! inside the namespace, which is deleted with the [`GuestNetwork`].

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use namespaces::{Namespace, NamespaceSet};

use super::error::GuestError;

/// This machine's address in the namespace; guests have the addresses after it.
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
pub(super) const PREFIX_BITS: u8 = 24;

/// Room for a RoCE packet of the largest path MTU, 4096 bytes, with its headers.
pub(super) const LINK_MTU_BYTES: u32 = 9000;

/// The state of a listening socket in the kernel's list of TCP sockets.
const LISTENING: &str = "0A";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const BRIDGE: &str = "bridge0";

/// A namespace with a bridge; dropping it deletes it.
pub struct GuestNetwork {
    namespace: Namespace,
    guests: AtomicU8,
}

/// How a guest connects to the network.
pub(super) struct GuestPort {
    pub(super) tap: String,
    pub(super) address: Ipv4Addr,
    /// The MAC address, different for each guest.
    pub(super) mac_address: String,
}

impl GuestNetwork {
    /// Creates a namespace with a bridge that has [`HOST_ADDRESS`].
    ///
    /// # Errors
    /// Not root, or no `ip` (Debian's iproute2), or a kernel without namespaces or bridges.
    pub fn create() -> Result<Self, GuestError> {
        let namespace = NamespaceSet::new()?.create("guests")?;
        namespace.ip(&format!(
            "link set lo up\nlink add {BRIDGE} type bridge\nlink set {BRIDGE} mtu {LINK_MTU_BYTES} up\n\
             address add {HOST_ADDRESS}/{PREFIX_BITS} dev {BRIDGE}\n"
        ))?;
        Ok(Self { namespace, guests: AtomicU8::new(0) })
    }

    /// The namespace's name, as in `ip netns exec NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// A command of this machine that will run inside the namespace.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// Runs a closure in a new thread inside the namespace. Sockets that it opens stay there.
    ///
    /// # Errors
    /// The thread could not enter the namespace. A panic of the closure continues in the caller.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, GuestError> {
        Ok(self.namespace.inside(work)?)
    }

    /// Waits until a program of this machine listens on a TCP port of the namespace. A connection would detect it sooner,
    /// but the server of a ping-pong accepts only one.
    ///
    /// # Errors
    /// No program listens in time.
    pub fn wait_listening(&self, port: u16, limit: Duration) -> Result<(), GuestError> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            let read =
                |list: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{list}")).unwrap_or_default();
            if is_listening(&self.inside(|| read("tcp") + &read("tcp6"))?, port) {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
        Err(GuestError::io(format!("waiting for a program that listens on port {port}"), source))
    }

    /// Adds a tap device to the bridge, with addresses for the guest behind it.
    pub(super) fn add_port(&self) -> Result<GuestPort, GuestError> {
        let number = self.guests.fetch_add(1, Ordering::Relaxed);
        let [first, second, third, host] = HOST_ADDRESS.octets();
        let last =
            host.checked_add(1 + number).filter(|&last| last < u8::MAX).expect("the subnet has room for guests");
        let tap = format!("tap{number}");
        self.namespace.ip(&format!(
            "tuntap add dev {tap} mode tap\nlink set {tap} mtu {LINK_MTU_BYTES} master {BRIDGE} up\n"
        ))?;
        let address = Ipv4Addr::new(first, second, third, last);
        Ok(GuestPort { tap, address, mac_address: format!("52:54:00:91:00:{last:02x}") })
    }
}

/// Whether the kernel's list of TCP sockets has one that listens on the port: `0: LOCAL:PORT REMOTE:PORT STATE …`.
fn is_listening(sockets: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&end)) && words.nth(1) == Some(LISTENING)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_differs_from_a_connected_one() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            0: 00000000:4853 00000000:0000 0A 00000000:00000000\n   \
            1: 0100007F:1F90 0100007F:4854 01 00000000:00000000\n";
        assert!(is_listening(list, 18515));
        assert!(!is_listening(list, 8080) && !is_listening(list, 18516) && !is_listening("", 18515));
    }
}
