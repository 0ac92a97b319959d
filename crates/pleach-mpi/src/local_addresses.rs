//! Addresses of this host and their networks.

use std::net::IpAddr;

/// This host's addresses with the prefix lengths of their networks, IPv4 first.
pub(crate) fn local_addresses() -> Vec<(IpAddr, u8)> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let mut addresses: Vec<(IpAddr, u8)> = interfaces
        .filter_map(|interface| {
            let (address, mask) = (interface.address?, interface.netmask?);
            if let (Some(address), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
                return Some((IpAddr::V4(address.ip()), mask.ip().to_bits().count_ones() as u8));
            }
            let (address, mask) = (address.as_sockaddr_in6()?, mask.as_sockaddr_in6()?);
            // Link-local addresses are useless without the name of the link.
            let is_link_local = address.ip().is_unicast_link_local();
            (!is_link_local).then(|| (IpAddr::V6(address.ip()), mask.ip().to_bits().count_ones() as u8))
        })
        .collect();
    addresses.sort_by_key(|(address, _)| address.is_ipv6());
    addresses
}

/// The prefix length of a local address's network.
pub(crate) fn prefix_of(address: IpAddr) -> u8 {
    local_addresses().into_iter().find(|(own, _)| *own == address).map_or(32, |(_, prefix)| prefix)
}

/// True if this host has an address on the network of that address.
pub(crate) fn is_on_same_network(address: IpAddr, prefix: u8) -> bool {
    local_addresses().into_iter().any(|(own, _)| match (own, address) {
        (IpAddr::V4(own), IpAddr::V4(address)) => {
            (own.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(prefix)
        }
        (IpAddr::V6(own), IpAddr::V6(address)) => {
            (own.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(prefix)
        }
        _ => false,
    })
}
