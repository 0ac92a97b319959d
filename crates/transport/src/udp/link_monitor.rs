//! Watches the kernel's view of links and addresses, so that an endpoint reacts at once to a lost link.
//!
//! The kernel sends a netlink message for every change. The monitor does not parse it: any message makes it read the
//! list of addresses again, which is the state that counts.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

/// Groups of rtnetlink: links, IPv4 addresses, IPv6 addresses (RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR).
const RTNETLINK_GROUPS: u32 = 0x1 | 0x10 | 0x100;

pub(crate) struct LinkMonitor {
    socket: OwnedFd,
}

impl LinkMonitor {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        use std::os::fd::AsRawFd;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, RTNETLINK_GROUPS))?;
        Ok(Self { socket })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True if anything has changed since the last call.
    pub(crate) fn has_changed(&self) -> bool {
        use std::os::fd::AsRawFd;
        let mut buffer = [0u8; 8192];
        let mut changed = false;
        // Bounded: the next call reads the rest. An overflow (ENOBUFS) means that messages were dropped.
        for _ in 0..64 {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(nix::errno::Errno::EAGAIN) => break,
                Ok(_) | Err(nix::errno::Errno::ENOBUFS) => changed = true,
                Err(_) => break,
            }
        }
        changed
    }
}

/// The addresses on links that are up and have a carrier.
pub(crate) fn live_addresses() -> io::Result<Vec<IpAddr>> {
    // LOWER_UP is the carrier itself; RUNNING follows it by up to a second.
    let live = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_LOWER_UP;
    let found = getifaddrs()?.filter(|interface| interface.flags.contains(live));
    Ok(found.filter_map(|interface| address_of(&interface)).collect())
}

/// The MTU of the link with this address; that of Ethernet if it is unknown.
pub fn link_mtu_bytes(address: IpAddr) -> u32 {
    let found = getifaddrs().ok().and_then(|mut links| links.find(|link| address_of(link) == Some(address)));
    let mtu =
        found.and_then(|link| std::fs::read_to_string(format!("/sys/class/net/{}/mtu", link.interface_name)).ok());
    mtu.and_then(|mtu| mtu.trim().parse().ok()).unwrap_or(if address.is_loopback() { 65_536 } else { 1_500 })
}

fn address_of(link: &InterfaceAddress) -> Option<IpAddr> {
    let address = link.address?;
    let four = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    four.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}
