//! A network of its own for guests and this machine's programs: one namespace with a bridge, a tap device per guest.
//!
//! RoCE's ICRC covers the IP addresses, so nothing may translate them on the way: the emulator's built-in network
//! would. Traffic stays inside the namespace; the namespace goes with the [`Network`].

use std::ffi::OsStr;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::error::GuestError;
use super::process::{run_bounded, succeed};

/// This machine's address in the namespace; guests have the addresses after it.
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
pub(super) const PREFIX_BITS: u8 = 24;

/// Room for a RoCE packet of the largest path MTU, 4096 bytes, with its headers.
pub(super) const LINK_MTU_BYTES: u32 = 9000;

/// Namespaces are named `pleach-guest-PROCESS-NUMBER`, so that one left behind by a killed process can be told.
const NAME_PREFIX: &str = "pleach-guest-";

/// Where `ip` keeps the namespaces that it names.
const NAMES: &str = "/run/netns";

/// What the kernel's list of TCP sockets says of one that listens.
const LISTENING: &str = "0A";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const BRIDGE: &str = "bridge0";
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// A namespace, deleted when dropped.
pub struct Network {
    name: String,
    guests: AtomicU8,
}

/// What a guest needs to know of its place in the network.
pub(super) struct Place {
    pub(super) tap: String,
    pub(super) address: Ipv4Addr,
    /// The hardware address, different for each guest.
    pub(super) hardware: String,
}

impl Network {
    /// Makes a namespace with a bridge that has [`HOST_ADDRESS`].
    ///
    /// # Errors
    /// Not root, or no `ip` (Debian's iproute2), or a kernel without namespaces or bridges.
    pub fn create() -> Result<Self, GuestError> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        delete_left_behind()?;
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAME_PREFIX}{}-{number}", std::process::id());
        ip(&["netns", "add", &name])?;
        let network = Self { name, guests: AtomicU8::new(0) }; // From here on dropping it deletes the namespace.
        let mtu = LINK_MTU_BYTES.to_string();
        network.ip(&["link", "set", "lo", "up"])?;
        network.ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        network.ip(&["link", "set", BRIDGE, "mtu", &mtu, "up"])?;
        network.ip(&["address", "add", &format!("{HOST_ADDRESS}/{PREFIX_BITS}"), "dev", BRIDGE])?;
        Ok(network)
    }

    /// The namespace's name, as in `ip netns exec NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command of this machine that will run inside the namespace.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a closure in a thread of its own inside the namespace. Sockets that it opens stay there.
    ///
    /// # Errors
    /// The thread could not move. A panic of the closure goes on in the caller.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, GuestError> {
        let path = Path::new(NAMES).join(&self.name);
        let failed = |source| GuestError::io(format!("entering {}", path.display()), source);
        let entrance = File::open(&path).map_err(failed)?;
        let moved = move || {
            move_into_link_name_space(entrance.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        match std::thread::scope(|scope| scope.spawn(moved).join()) {
            Ok(result) => result.map_err(|code: rustix::io::Errno| failed(code.into())),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Waits until a program of this machine listens at a TCP port of the namespace. Connecting would tell sooner,
    /// but a ping-pong's server takes one connection only.
    ///
    /// # Errors
    /// None does in time.
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
        Err(GuestError::io(format!("waiting for a program that listens at port {port}"), source))
    }

    /// A tap device on the bridge, and an address for whoever is behind it.
    pub(super) fn add_place(&self) -> Result<Place, GuestError> {
        let number = self.guests.fetch_add(1, Ordering::Relaxed);
        let [first, second, third, host] = HOST_ADDRESS.octets();
        let own = host.checked_add(1 + number).filter(|&own| own < u8::MAX).expect("a network has few guests");
        let tap = format!("tap{number}");
        let mtu = LINK_MTU_BYTES.to_string();
        self.ip(&["tuntap", "add", "dev", &tap, "mode", "tap"])?;
        self.ip(&["link", "set", &tap, "mtu", &mtu, "master", BRIDGE, "up"])?;
        let address = Ipv4Addr::new(first, second, third, own);
        Ok(Place { tap, address, hardware: format!("52:54:00:91:00:{own:02x}") })
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), GuestError> {
        ip(&[&["-netns", &self.name], arguments].concat())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Nobody is left to tell; the next network deletes what stays behind.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), GuestError> {
    succeed(Command::new("ip").args(arguments), COMMAND_LIMIT).map(drop).map_err(|error| match error {
        GuestError::Missing(_) => GuestError::Missing("the program `ip` (Debian's package iproute2)".to_owned()),
        GuestError::Command { message, .. } if message.contains("not permitted") => {
            GuestError::Missing("root: it makes a network namespace".to_owned())
        }
        other => other,
    })
}

/// Deletes the namespaces of processes that were killed before they could.
fn delete_left_behind() -> Result<(), GuestError> {
    let listed = match run_bounded(Command::new("ip").args(["netns", "list"]), COMMAND_LIMIT) {
        Ok(output) => output.stdout,
        Err(GuestError::Missing(_)) => return Ok(()), // Told by whoever needs `ip`.
        Err(error) => return Err(error),
    };
    for name in left_behind(&String::from_utf8_lossy(&listed), |process| Path::new("/proc").join(process).exists()) {
        // Another process may be quicker; gone is gone.
        let _ = ip(&["netns", "delete", name]);
    }
    Ok(())
}

/// Whether the kernel's list of TCP sockets has one that listens at the port: `0: LOCAL:PORT REMOTE:PORT STATE …`.
fn is_listening(sockets: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&end)) && words.nth(1) == Some(LISTENING)
    })
}

/// Our namespaces in a list of `ip netns list` whose process is gone.
fn left_behind(list: &str, is_alive: impl Fn(&str) -> bool) -> Vec<&str> {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let ours = names.filter(|name| {
        let process = name.strip_prefix(NAME_PREFIX).and_then(|rest| rest.split_once('-'));
        process.is_some_and(|(process, _)| process.parse::<u32>().is_ok() && !is_alive(process))
    });
    ours.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_is_told_from_a_connected_one() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            0: 00000000:4853 00000000:0000 0A 00000000:00000000\n   \
            1: 0100007F:1F90 0100007F:4854 01 00000000:00000000\n";
        assert!(is_listening(list, 18515));
        assert!(!is_listening(list, 8080) && !is_listening(list, 18516) && !is_listening("", 18515));
    }

    #[test]
    fn only_namespaces_of_dead_processes_are_left_behind() {
        let list = "pleach-guest-12-0 (id: 3)\nother\npleach-guest-13-1\npleach-guest-x-1\npleach-guest-14\n";
        assert_eq!(left_behind(list, |process| process == "13"), ["pleach-guest-12-0"]);
    }
}
