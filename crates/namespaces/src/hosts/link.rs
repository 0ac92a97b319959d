//! A host's end of a link, and every way to cut it.
//!
//! What the kernel reports to a host about a cut of its own link, measured on Linux 6.18; the tests in `tests/hosts.rs` check
//! most of it. The kernel reports nothing to the other hosts; only with direct wiring [`HostLink::down`] unplugs the other host.
//!
//! | cut | its next send | netlink | a socket with `IP_RECVERR` |
//! |---|---|---|---|
//! | [`HostLink::down`] | `ENETUNREACH` | at once | |
//! | [`HostLink::remove_address`] | `ENETUNREACH` | at once | |
//! | [`HostLink::unplug`] | succeeds | at once: no carrier | `EHOSTUNREACH` after 3 s |
//! | [`HostLink::drop_silently`] | succeeds | | `EHOSTUNREACH` after about 30 s |
//!
//! "At once" is below a millisecond, but the kernel reports carrier changes at most once a second: the second of two changes
//! may be reported that much later.
//!
//! Packets that wait for a neighbour's hardware address count against the send buffer of their socket, 208 KiB at most. A
//! socket with a smaller send buffer then blocks (`EAGAIN`), also for its other links. After a cut heals, the kernel may
//! retry address resolution only a second later.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::error::NamespaceError;
use crate::namespace::Namespace;

use super::Hosts;
use super::link_fault::{self, Corruption, FaultEnd, LinkFault};

/// The kernel's default limit on the segments of one large packet.
const DEFAULT_MAX_SEGMENTS: u32 = 65535;

/// The direction of packets, seen from the host at this end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Towards the host.
    In,
    /// From the host.
    Out,
    /// Both ways.
    Both,
}

/// A host's end of a link.
///
/// Every cut and every heal may be repeated, except that an address can be removed only once.
#[derive(Debug, Clone, Copy)]
pub struct HostLink<'hosts> {
    hosts: &'hosts Hosts,
    host: usize,
    link: usize,
}

/// The device at one end of a link.
#[derive(Debug)]
struct LinkDevice<'hosts> {
    namespace: &'hosts Namespace,
    device: String,
}

/// The name of the switch's device for a host and a link.
pub(super) fn port(host: usize, link: usize) -> String {
    format!("port{host}_{link}")
}

impl<'hosts> HostLink<'hosts> {
    pub(super) fn new(hosts: &'hosts Hosts, host: usize, link: usize) -> Self {
        Self { hosts, host, link }
    }

    /// The host's address on this link.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 7, self.link as u8, self.host as u8 + 1)
    }

    /// The host's IPv6 address on this link.
    pub fn address_v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 7, self.link as u16, 0, 0, 0, 0, self.host as u16 + 1)
    }

    /// The name of the host's device.
    pub fn device(self) -> String {
        format!("link{}", self.link)
    }

    /// Sets the host's device down.
    ///
    /// # Errors
    /// The command failed.
    pub fn down(self) -> Result<(), NamespaceError> {
        self.near().set_state("down")
    }

    /// Sets the host's device up.
    ///
    /// # Errors
    /// The command failed.
    pub fn up(self) -> Result<(), NamespaceError> {
        self.near().set_state("up")
    }

    /// Unplugs the cable at the switch: the host's device stays on and loses its carrier. With direct wiring the device of
    /// the other host goes down.
    ///
    /// # Errors
    /// The command failed.
    pub fn unplug(self) -> Result<(), NamespaceError> {
        self.far().set_state("down")
    }

    /// Plugs the cable in again.
    ///
    /// # Errors
    /// The command failed.
    pub fn plug_in(self) -> Result<(), NamespaceError> {
        self.far().set_state("up")
    }

    /// Moves the cable to another switch: the host then reaches only hosts whose cables were moved as well. For switched wiring;
    /// there is no way back.
    ///
    /// # Errors
    /// The command failed, for example because the hosts are wired directly.
    pub fn move_to_other_switch(self) -> Result<(), NamespaceError> {
        let far = self.far();
        let other = format!("other{}", self.link);
        let lines = format!("link set dev {other} up\nlink set dev {} master {other}\n", far.device);
        // The first cable that moves creates the switch.
        let kind = "type bridge forward_delay 0 stp_state 0 mcast_snooping 0";
        let _ = far.namespace.ip(&format!("link add name {other} {kind}\n"));
        far.namespace.ip(&lines).map(drop)
    }

    /// Removes the host's addresses on this link.
    ///
    /// # Errors
    /// The command failed, for example because the addresses were removed before.
    pub fn remove_address(self) -> Result<(), NamespaceError> {
        self.near().namespace.ip(&self.address_lines("delete")).map(drop)
    }

    /// Restores the host's addresses.
    ///
    /// # Errors
    /// The command failed.
    pub fn restore_address(self) -> Result<(), NamespaceError> {
        self.near().namespace.ip(&self.address_lines("replace")).map(drop)
    }

    /// The link drops everything, also address resolution, and reports nothing. A one-way cut leaves the other direction open
    /// only between hosts that know each other's hardware address: they do after the first datagram, for at least 15
    /// seconds.
    ///
    /// # Errors
    /// The command failed.
    pub fn drop_silently(self, direction: Direction) -> Result<(), NamespaceError> {
        self.install(direction, &LinkFault::DropAll)
    }

    /// The link loses one UDP datagram in so many, at random.
    ///
    /// # Errors
    /// The command failed.
    pub fn lose(self, direction: Direction, one_in: u32) -> Result<(), NamespaceError> {
        self.install(direction, &LinkFault::Lose { one_in })
    }

    /// The link flips bits of UDP datagrams and still delivers them.
    ///
    /// # Errors
    /// The command failed.
    pub fn corrupt(self, direction: Direction, corruption: Corruption) -> Result<(), NamespaceError> {
        self.install(direction, &LinkFault::Corrupt(corruption))
    }

    /// The link delivers one UDP datagram in so many twice, at random.
    ///
    /// # Errors
    /// The command failed; Linux can duplicate packets of a sender since 5.16.
    pub fn duplicate(self, direction: Direction, one_in: u32) -> Result<(), NamespaceError> {
        self.install(direction, &LinkFault::Duplicate { one_in })
    }

    /// Later packets overtake one UDP datagram in so many, at random.
    ///
    /// # Errors
    /// The command failed; Linux can do it since 5.16, with the queueing discipline HTB.
    pub fn reorder(self, direction: Direction, one_in: u32) -> Result<(), NamespaceError> {
        self.install(direction, &LinkFault::Reorder { one_in })
    }

    /// Changes the MTU of the host's device. [`Self::heal`] does not restore it.
    ///
    /// # Errors
    /// The command failed.
    pub fn set_mtu(self, bytes: u32) -> Result<(), NamespaceError> {
        let near = self.near();
        near.namespace.ip(&format!("link set dev {} mtu {bytes}\n", near.device)).map(drop)
    }

    /// Removes all faults of packets in both directions. With direct wiring both hosts share the link.
    ///
    /// # Errors
    /// The command failed.
    pub fn clear_faults(self) -> Result<(), NamespaceError> {
        for end in [self.near(), self.far()] {
            end.namespace.nft(&link_fault::clear_script(&end.device))?;
            end.namespace.tc(&link_fault::no_queue_line(&end.device))?;
            end.set_max_segments(DEFAULT_MAX_SEGMENTS)?;
        }
        Ok(())
    }

    /// Undoes every cut.
    ///
    /// # Errors
    /// A command failed.
    pub fn heal(self) -> Result<(), NamespaceError> {
        self.clear_faults()?;
        self.restore_address()?;
        self.plug_in()?;
        self.up()
    }

    fn install(self, direction: Direction, fault: &LinkFault) -> Result<(), NamespaceError> {
        let (near, far) = (self.near(), self.far());
        let directions = match direction {
            Direction::In => vec![(&far, &near)],
            Direction::Out => vec![(&near, &far)],
            Direction::Both => vec![(&far, &near), (&near, &far)],
        };
        for (sending, receiving) in directions {
            if fault.affects_single_datagrams() {
                sending.set_max_segments(1)?;
            }
            if matches!(fault, LinkFault::Reorder { .. }) {
                sending.namespace.tc(&link_fault::slow_queue_lines(&sending.device))?;
            }
            let end = match fault.end() {
                FaultEnd::Sending => sending,
                FaultEnd::Receiving => receiving,
            };
            end.namespace.nft(&link_fault::install_script(&end.device, fault))?;
        }
        Ok(())
    }

    fn near(self) -> LinkDevice<'hosts> {
        LinkDevice { namespace: &self.hosts.namespaces[self.host], device: self.device() }
    }

    fn far(self) -> LinkDevice<'hosts> {
        match &self.hosts.switch {
            Some(switch) => LinkDevice { namespace: switch, device: port(self.host, self.link) },
            None => LinkDevice { namespace: &self.hosts.namespaces[1 - self.host], device: self.device() },
        }
    }

    /// Commands of `ip` that apply a verb to both addresses of this end.
    pub(super) fn address_lines(self, verb: &str) -> String {
        let device = self.device();
        let mut lines = format!("address {verb} {}/24 dev {device}\n", self.address());
        if Path::new("/proc/sys/net/ipv6").exists() {
            let usable_at_once = if verb == "delete" { "" } else { " nodad" };
            lines += &format!("address {verb} {}/64 dev {device}{usable_at_once}\n", self.address_v6());
        }
        lines
    }
}

impl LinkDevice<'_> {
    fn set_state(&self, state: &str) -> Result<(), NamespaceError> {
        self.namespace.ip(&format!("link set dev {} {state}\n", self.device)).map(drop)
    }

    /// Limits the segments that the device sends as one packet. Without a limit a fault would hit all datagrams of one
    /// UDP_SEGMENT call as if they were one.
    fn set_max_segments(&self, count: u32) -> Result<(), NamespaceError> {
        self.namespace.ip(&format!("link set dev {} gso_max_segs {count}\n", self.device)).map(drop)
    }
}
