//! A host's end of a link, and every way to cut it.
//!
//! What a host is told of its own link, measured on Linux 6.18 and mostly kept true by the tests of `tests/hosts.rs`. The
//! other hosts are told nothing, whatever is cut; only with direct wiring [`Link::down`] unplugs the other host.
//!
//! | cut | its next send | netlink | a socket with `IP_RECVERR` |
//! |---|---|---|---|
//! | [`Link::down`] | `ENETUNREACH` | at once | |
//! | [`Link::remove_address`] | `ENETUNREACH` | at once | |
//! | [`Link::unplug`] | succeeds | at once: no carrier | `EHOSTUNREACH` after 3 s |
//! | [`Link::drop_silently`] | succeeds | | `EHOSTUNREACH` after about 30 s |
//!
//! "At once" is below a millisecond, but the kernel tells of carriers at most once a second: the second of two changes
//! may wait that long.
//!
//! What waits for a neighbour's hardware address is charged to the socket that sent it, 208 KiB at most. A socket with a
//! smaller send buffer blocks then (`EAGAIN`), for its other links too. After a cut heals, the next try to resolve the
//! address may be a second away.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::Hosts;
use super::error::HostsError;
use super::firewall::{self, Corruption, Trouble};
use super::namespace::Namespace;

/// The kernel's own limit on the segments of one large packet.
const MANY_SEGMENTS: u32 = 65535;

/// Which way packets go, seen from the host that holds this end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the host.
    In,
    /// From the host.
    Out,
    /// Both ways.
    Both,
}

/// A host's end of a link.
///
/// Every cut can be made twice, and healed twice, except that an address can be removed only once.
#[derive(Debug, Clone, Copy)]
pub struct Link<'hosts> {
    hosts: &'hosts Hosts,
    host: usize,
    link: usize,
}

/// A device at one end of a wire.
#[derive(Debug)]
struct End<'hosts> {
    namespace: &'hosts Namespace,
    device: String,
}

/// The name of the switch's device for a host and a link.
pub(super) fn port(host: usize, link: usize) -> String {
    format!("port{host}_{link}")
}

impl<'hosts> Link<'hosts> {
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

    /// The host turns its device off.
    ///
    /// # Errors
    /// The command failed; so for all cuts.
    pub fn down(self) -> Result<(), HostsError> {
        self.near().set("down")
    }

    /// The host turns its device on.
    ///
    /// # Errors
    /// The command failed.
    pub fn up(self) -> Result<(), HostsError> {
        self.near().set("up")
    }

    /// Somebody pulls the cable out of the switch: the host's device stays on and loses its carrier. With direct wiring
    /// the device of the other host goes down.
    ///
    /// # Errors
    /// The command failed.
    pub fn unplug(self) -> Result<(), HostsError> {
        self.far().set("down")
    }

    /// Somebody plugs the cable in again.
    ///
    /// # Errors
    /// The command failed.
    pub fn plug_in(self) -> Result<(), HostsError> {
        self.far().set("up")
    }

    /// The host gives up its addresses on this link.
    ///
    /// # Errors
    /// The command failed, for example because the addresses are gone already.
    pub fn remove_address(self) -> Result<(), HostsError> {
        self.near().namespace.ip(&self.address_lines("delete")).map(drop)
    }

    /// The host has its addresses again.
    ///
    /// # Errors
    /// The command failed.
    pub fn restore_address(self) -> Result<(), HostsError> {
        self.near().namespace.ip(&self.address_lines("replace")).map(drop)
    }

    /// The wire loses everything, address resolution too, and tells nobody. A one-way cut leaves the other way open only
    /// between hosts that know each other's hardware address: they do after the first datagram, for 15 seconds at least.
    ///
    /// # Errors
    /// The command failed.
    pub fn drop_silently(self, direction: Direction) -> Result<(), HostsError> {
        self.trouble(direction, &Trouble::DropAll)
    }

    /// The wire loses one UDP datagram in so many, by chance.
    ///
    /// # Errors
    /// The command failed.
    pub fn lose(self, direction: Direction, one_in: u32) -> Result<(), HostsError> {
        self.trouble(direction, &Trouble::Lose { one_in })
    }

    /// The wire flips bits of UDP datagrams in such a way that they are delivered.
    ///
    /// # Errors
    /// The command failed.
    pub fn corrupt(self, direction: Direction, corruption: Corruption) -> Result<(), HostsError> {
        self.trouble(direction, &Trouble::Corrupt(corruption))
    }

    /// The wire carries everything again, both ways, as it was sent. With direct wiring both hosts have the same wire.
    ///
    /// # Errors
    /// The command failed.
    pub fn let_through(self) -> Result<(), HostsError> {
        for end in [self.near(), self.far()] {
            end.namespace.nft(&firewall::end_all(&end.device))?;
            end.segments(MANY_SEGMENTS)?;
        }
        Ok(())
    }

    /// Undoes every cut.
    ///
    /// # Errors
    /// A command failed.
    pub fn heal(self) -> Result<(), HostsError> {
        self.let_through()?;
        self.restore_address()?;
        self.plug_in()?;
        self.up()
    }

    fn trouble(self, direction: Direction, trouble: &Trouble) -> Result<(), HostsError> {
        let (near, far) = (self.near(), self.far());
        let ways = match direction {
            Direction::In => vec![(&far, &near)],
            Direction::Out => vec![(&near, &far)],
            Direction::Both => vec![(&far, &near), (&near, &far)],
        };
        for (sending, receiving) in ways {
            if trouble.strikes_single_datagrams() {
                sending.segments(1)?;
            }
            receiving.namespace.nft(&firewall::script(&receiving.device, trouble))?;
        }
        Ok(())
    }

    fn near(self) -> End<'hosts> {
        End { namespace: &self.hosts.namespaces[self.host], device: self.device() }
    }

    fn far(self) -> End<'hosts> {
        match &self.hosts.switch {
            Some(switch) => End { namespace: switch, device: port(self.host, self.link) },
            None => End { namespace: &self.hosts.namespaces[1 - self.host], device: self.device() },
        }
    }

    /// Lines for `ip` that do something with both addresses of this end.
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

impl End<'_> {
    fn set(&self, state: &str) -> Result<(), HostsError> {
        self.namespace.ip(&format!("link set dev {} {state}\n", self.device)).map(drop)
    }

    /// Limits the segments that go onto the wire as one packet. Without a limit the wire would lose, or strike, all
    /// datagrams of one UDP_SEGMENT call as if they were one.
    fn segments(&self, count: u32) -> Result<(), HostsError> {
        self.namespace.ip(&format!("link set dev {} gso_max_segs {count}\n", self.device)).map(drop)
    }
}
