//! Which addresses of this host an endpoint uses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

use crate::endpoint_address::EndpointPath;

/// Addresses, separated by commas, one per path; the same variable as for everything else in Pleach.
const ADDRESSES: &str = "PLEACH_ADDRESSES";
/// Bridges that exist on many hosts with the same address, and lead to none of them.
const LOCAL_BRIDGES: [&str; 5] = ["docker", "virbr", "br-", "cni", "podman"];

/// The addresses to bind, in the order of preference: those of the environment, else those of all links, else loopback.
///
/// # Errors
/// If the environment has something that is not an address.
pub(crate) fn local_paths() -> Result<Vec<EndpointPath>, String> {
    let all: Vec<(IpAddr, u8, bool)> = getifaddrs().into_iter().flatten().filter_map(usable).collect();
    let prefix = |wanted: IpAddr| all.iter().find(|(ip, ..)| *ip == wanted).map_or(32, |(_, prefix, _)| *prefix);
    let path = |ip: IpAddr, prefix| EndpointPath { address: SocketAddr::new(ip, 0), prefix };
    if let Some(list) = std::env::var(ADDRESSES).ok().filter(|list| !list.trim().is_empty()) {
        let parse = |text: &str| {
            let text = text.trim();
            let ip = text.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
            ip.map(|ip| path(ip, prefix(ip))).map_err(|_| format!("{ADDRESSES} is {list:?}: {text:?} is no address"))
        };
        return list.split(',').map(parse).collect();
    }
    let mut found: Vec<EndpointPath> =
        all.iter().filter(|(.., is_loopback)| !is_loopback).map(|(ip, prefix, _)| path(*ip, *prefix)).collect();
    found.sort_by_key(|path| path.address.is_ipv6());
    if found.iter().any(|path| path.address.is_ipv4()) {
        found.retain(|path| path.address.is_ipv4());
    }
    if found.is_empty() {
        found.push(path(Ipv4Addr::LOCALHOST.into(), 8));
    }
    Ok(found)
}

/// The address of a link that is up, its prefix length, and whether it is loopback.
fn usable(link: InterfaceAddress) -> Option<(IpAddr, u8, bool)> {
    let is_up = link.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING);
    if !is_up || LOCAL_BRIDGES.iter().any(|name| link.interface_name.starts_with(name)) {
        return None;
    }
    let is_loopback = link.flags.contains(InterfaceFlags::IFF_LOOPBACK);
    let (address, mask) = (link.address?, link.netmask?);
    if let (Some(address), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
        return Some((address.ip().into(), mask.ip().to_bits().count_ones() as u8, is_loopback));
    }
    let (address, mask) = (address.as_sockaddr_in6()?, mask.as_sockaddr_in6()?);
    // Link-local addresses are useless without the name of the link.
    let is_link_local = address.ip().is_unicast_link_local();
    (!is_link_local).then(|| (address.ip().into(), mask.ip().to_bits().count_ones() as u8, is_loopback))
}

/// Whether packets to an address never leave this host.
pub(crate) fn is_here(remote: IpAddr) -> bool {
    remote.is_loopback() || getifaddrs().into_iter().flatten().filter_map(usable).any(|(ip, ..)| ip == remote)
}

/// The longest packets on the way to an address: what its link carries, or loopback if it is an address of this host.
pub(crate) fn link_bytes(own: IpAddr, remote: IpAddr) -> u32 {
    let loopback = transport::udp::link_mtu_bytes(Ipv4Addr::LOCALHOST.into());
    if is_here(remote) { loopback } else { transport::udp::link_mtu_bytes(own) }
}
