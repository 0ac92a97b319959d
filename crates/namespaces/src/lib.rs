//! Hosts on one machine, for benchmarks, demos and `pleach launch`: network namespaces around one bridge.
//!
//! ```no_run
//! let network = namespaces::Network::new(4)?;
//! let server = network.host(0).start(std::process::Command::new("sleep").arg("1"))?;
//! let socket = network.host(1).inside(|| std::net::UdpSocket::bind((network.host(1).address(), 0)))??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Host `h` has an address in 10.77.0.0/16 on a device `net0`, and a loopback of its own. The bridge sits in a namespace of its
//! own, so the machine's own network is not touched. Multicast goes to all hosts. Dropped, everything is gone; what a killed
//! process left is swept when the next network is made. Needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN) and iproute2.

mod error;
mod namespace;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub use error::NamespaceError;

use namespace::Namespace;

/// A bridge of Linux has at most 1,024 ports.
pub const MAX_HOSTS: usize = 1000;
/// Jumbo frames, as clusters use them.
const MTU: u32 = 9000;
const DEVICE: &str = "net0";
/// The kernel tells of carriers at most once a second.
const READY_LIMIT: Duration = Duration::from_secs(10);
const READY_INTERVAL: Duration = Duration::from_millis(10);

/// Hosts and the bridge between them. Dropped, they are gone.
#[derive(Debug)]
pub struct NamespaceNetwork {
    hosts: Vec<Namespace>,
    switch: Namespace,
}

/// One of the hosts.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceHost<'network> {
    namespace: &'network Namespace,
    index: usize,
}

impl NamespaceNetwork {
    /// Makes so many hosts, and returns when packets pass between them.
    ///
    /// # Errors
    /// This machine or user cannot have such hosts; the error says what is missing.
    pub fn new(count: usize) -> Result<Self, NamespaceError> {
        if !(1..=MAX_HOSTS).contains(&count) {
            return Err(NamespaceError::Count(count));
        }
        let set = namespace::new_name_prefix()?;
        let switch = Namespace::create(&set, "switch")?;
        let hosts =
            (0..count).map(|host| Namespace::create(&set, &format!("host{host}"))).collect::<Result<_, _>>()?;
        let network = Self { hosts, switch };
        network.wire()?;
        network.wait_until_up()?;
        Ok(network)
    }

    /// How many hosts there are.
    pub fn count(&self) -> usize {
        self.hosts.len()
    }

    /// A host, counted from zero.
    ///
    /// # Panics
    /// There is no such host.
    pub fn host(&self, index: usize) -> NamespaceHost<'_> {
        NamespaceHost { namespace: &self.hosts[index], index }
    }

    /// The names of all namespaces, as `ip netns` lists them.
    pub fn names(&self) -> Vec<&str> {
        self.hosts.iter().chain([&self.switch]).map(Namespace::name).collect()
    }

    fn wire(&self) -> Result<(), NamespaceError> {
        // A bridge is a switch: it has no address of its own. Without snooping multicast goes to all ports; there is no
        // querier here that would keep groups alive.
        let mut lines =
            format!("link add name bridge mtu {MTU} type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n");
        lines += "link set dev bridge addrgenmode none\nlink set dev bridge up\n";
        for (index, host) in self.hosts.iter().enumerate() {
            let far = format!("peer name {DEVICE} mtu {MTU} netns {}", host.name());
            lines += &format!("link add name port{index} mtu {MTU} type veth {far}\n");
            lines +=
                &format!("link set dev port{index} addrgenmode none\nlink set dev port{index} master bridge up\n");
        }
        self.switch.ip(&lines)?;
        for index in 0..self.count() {
            let host = self.host(index);
            // Without the last line there would be no route for multicast, which has no address to look up.
            host.namespace.ip(&format!(
                "link set dev lo up\naddress add {}/16 broadcast + dev {DEVICE}\nlink set dev {DEVICE} up\n\
                 route add 224.0.0.0/4 dev {DEVICE}\n",
                host.address()
            ))?;
        }
        Ok(())
    }

    /// Before its port is up, a bridge drops what is sent.
    fn wait_until_up(&self) -> Result<(), NamespaceError> {
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let listed = self.switch.ip("link show up\n")?;
            if listed.lines().filter(|line| line.contains(" state UP ")).count() > self.count() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let line = format!("ip -n {} link show up", self.switch.name());
                return Err(NamespaceError::Command {
                    line,
                    said: format!("not all up in {READY_LIMIT:?}:\n{listed}"),
                });
            }
            std::thread::sleep(READY_INTERVAL);
        }
    }
}

impl Drop for NamespaceNetwork {
    fn drop(&mut self) {
        // A process that is still on a host keeps its namespace alive without a name; its link goes all the same.
        let lines: String = (0..self.count()).map(|index| format!("link delete port{index}\n")).collect();
        let _ = self.switch.ip(&lines);
    }
}

impl NamespaceHost<'_> {
    /// Its address on the bridge.
    pub fn address(self) -> Ipv4Addr {
        let number = u16::try_from(self.index + 1).expect("there are at most a thousand");
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(10, 77, high, low)
    }

    /// The name of its namespace, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// A file by which a process can move there (setns).
    pub fn entrance(self) -> PathBuf {
        self.namespace.path()
    }

    /// Runs a closure in a thread on this host. Sockets that it opens and processes that it starts stay there.
    ///
    /// # Errors
    /// The thread could not move there. A panic of the closure goes on in the caller.
    pub fn inside<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        self.namespace.inside(work)
    }

    /// Starts a command on this host. The caller ends it before the network is dropped.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(self, command: &mut Command) -> Result<Child, NamespaceError> {
        let started = self.inside(|| command.spawn())?;
        started.map_err(|source| NamespaceError::io(format!("starting {:?}", command.get_program()), source))
    }
}
