//! Hosts around one bridge: each host is a namespace with one device.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command};

use crate::error::NamespaceError;
use crate::namespace::{Namespace, NamespaceSet};

/// A Linux bridge has at most 1,024 ports.
pub const MAX_HOSTS: usize = 1000;
/// Jumbo frames, the usual setting of clusters.
const DEFAULT_MTU_BYTES: u32 = 9000;
/// The device of each host.
const DEVICE: &str = "net0";

/// Hosts and the bridge between them. Dropping the network deletes them.
#[derive(Debug)]
pub struct NamespaceNetwork {
    hosts: Vec<Namespace>,
    bridge: Namespace,
}

/// A host of a [`NamespaceNetwork`].
#[derive(Debug, Clone, Copy)]
pub struct NamespaceHost<'network> {
    namespace: &'network Namespace,
    index: usize,
}

impl NamespaceNetwork {
    /// Creates `count` hosts, with jumbo frames (9,000 bytes), and returns once packets pass between them.
    ///
    /// # Errors
    /// The machine or the user cannot have such hosts; the error names the missing prerequisite.
    pub fn new(count: usize) -> Result<Self, NamespaceError> {
        Self::with_mtu(count, DEFAULT_MTU_BYTES)
    }

    /// The same with another MTU of all links.
    ///
    /// # Errors
    /// As [`Self::new`]; and the kernel rejects an MTU below 68 or above 65,535 bytes.
    pub fn with_mtu(count: usize, mtu_bytes: u32) -> Result<Self, NamespaceError> {
        if !(1..=MAX_HOSTS).contains(&count) {
            return Err(NamespaceError::HostCount(count));
        }
        let set = NamespaceSet::new()?;
        let bridge = set.create("switch")?;
        let hosts = (0..count).map(|host| set.create(&format!("host{host}"))).collect::<Result<_, _>>()?;
        let network = Self { hosts, bridge };
        network.connect(mtu_bytes)?;
        // One port for each host, and the bridge itself.
        network.bridge.wait_until_up(count + 1)?;
        Ok(network)
    }

    /// The number of hosts.
    pub fn count(&self) -> usize {
        self.hosts.len()
    }

    /// A host, counted from zero.
    ///
    /// # Panics
    /// The index is not below [`Self::count`].
    pub fn host(&self, index: usize) -> NamespaceHost<'_> {
        NamespaceHost { namespace: &self.hosts[index], index }
    }

    /// The names of all namespaces, as `ip netns` lists them.
    pub fn names(&self) -> Vec<&str> {
        self.hosts.iter().chain([&self.bridge]).map(Namespace::name).collect()
    }

    fn connect(&self, mtu_bytes: u32) -> Result<(), NamespaceError> {
        // The bridge acts as a switch and has no address. Without snooping it sends multicast to all ports; no querier
        // would keep the groups alive.
        let mut lines = format!(
            "link add name bridge mtu {mtu_bytes} type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n"
        );
        lines += "link set dev bridge addrgenmode none\nlink set dev bridge up\n";
        for (index, host) in self.hosts.iter().enumerate() {
            let far = format!("peer name {DEVICE} mtu {mtu_bytes} netns {}", host.name());
            lines += &format!("link add name port{index} mtu {mtu_bytes} type veth {far}\n");
            lines +=
                &format!("link set dev port{index} addrgenmode none\nlink set dev port{index} master bridge up\n");
        }
        self.bridge.ip(&lines)?;
        for index in 0..self.count() {
            let host = self.host(index);
            // Multicast needs a route of its own: the subnet route does not cover it.
            host.namespace.ip(&format!(
                "link set dev lo up\naddress add {}/16 broadcast + dev {DEVICE}\nlink set dev {DEVICE} up\n\
                 route add 224.0.0.0/4 dev {DEVICE}\n",
                host.address()
            ))?;
        }
        Ok(())
    }
}

impl Drop for NamespaceNetwork {
    fn drop(&mut self) {
        // A process that still runs on a host keeps the unnamed namespace alive; this removes its link nevertheless.
        let lines: String = (0..self.count()).map(|index| format!("link delete port{index}\n")).collect();
        let _ = self.bridge.ip(&lines);
    }
}

impl NamespaceHost<'_> {
    /// The host's address on the bridge.
    pub fn address(self) -> Ipv4Addr {
        let number = u16::try_from(self.index + 1).expect("MAX_HOSTS fits 16 bits");
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(10, 77, high, low)
    }

    /// The name of the host's namespace, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// The file with which a process can enter the host's namespace (`setns`).
    pub fn namespace_path(self) -> PathBuf {
        self.namespace.path()
    }

    /// Runs a closure in a thread on this host. Sockets that it opens and processes that it starts stay on the host.
    ///
    /// # Errors
    /// The thread could not enter the namespace. A panic of the closure continues in the caller.
    pub fn inside<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        self.namespace.inside(work)
    }

    /// Takes the host's link down: no packet passes from or to it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_link_down(self) -> Result<(), NamespaceError> {
        self.namespace.ip(&format!("link set dev {DEVICE} down\n")).map(drop)
    }

    /// Starts a command on this host. The caller must end it before it drops the network.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn start(self, command: &mut Command) -> Result<Child, NamespaceError> {
        let started = self.inside(|| command.spawn())?;
        started.map_err(|source| NamespaceError::io(format!("starting {:?}", command.get_program()), source))
    }
}
