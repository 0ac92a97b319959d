//! The local address from which the kernel reaches a peer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The local address that the kernel's routes choose for packets to a peer. Sends nothing.
///
/// # Errors
/// If no route leads to the peer.
pub fn local_address_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_loopback() {
        let towards = |peer: &str| local_address_towards(peer.parse().expect("an address")).expect("a route");
        assert!(towards("127.0.0.1:9").is_loopback());
        // A kernel without IPv6 has no route to its loopback.
        assert!(
            local_address_towards((Ipv6Addr::LOCALHOST, 9).into()).is_ok_and(|own| own.is_loopback()) || !has_ipv6()
        );
    }

    fn has_ipv6() -> bool {
        UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
    }
}
