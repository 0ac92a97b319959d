//! The address of an endpoint, as `fi_getname` returns it and address vectors hold it.
//!
//! ```text
//!  0  version   1  paths   2  host   4  datagram queue pair   8  identity   16  secret   32  paths
//! a path: 4 or 6   its network's prefix length   port (2)   address (4 or 16)
//! ```
//! At most 64 bytes: MPIs reserve no more. The secret reaches only those to whom the launcher passes the address; it proves that a
//! process that connects belongs to the job (P-119). The identity is random: a process that starts again is another peer. Endpoints with the same host may
//! share memory; whether they can, they try.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;

use units::QpNumber;

/// Bytes of every address; unused ones are zero.
pub(crate) const ADDRESS_BYTES: usize = 64;
const VERSION: u8 = 2;
/// The bit of the version byte for endpoints without checksums.
const UNCHECKED: u8 = 0x80;
const HEAD_BYTES: usize = 32;

/// What proves membership of the job.
pub(crate) type EndpointSecret = [u8; 16];

/// One path to an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EndpointPath {
    pub(crate) address: SocketAddr,
    /// Bits of the address that name its network.
    pub(crate) prefix: u8,
}

/// An endpoint's address.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EndpointAddress {
    /// Random; names the endpoint.
    pub(crate) identity: u64,
    /// Where it receives connection requests.
    pub(crate) datagrams: QpNumber,
    /// Known to the processes of the job; zero in Pleach's packets.
    pub(crate) secret: EndpointSecret,
    /// What endpoints that may share memory have in common; none for those that do not.
    pub(crate) host: Option<NonZeroU16>,
    /// Whether its messages have checksums. Endpoints that disagree do not connect.
    pub(crate) is_checked: bool,
    pub(crate) paths: Vec<EndpointPath>,
}

impl fmt::Debug for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}") // Without the secret.
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.paths.iter().enumerate() {
            write!(f, "{}{}", if index > 0 { "+" } else { "" }, path.address)?;
        }
        Ok(())
    }
}

impl EndpointAddress {
    pub(crate) fn to_bytes(&self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[0] = VERSION | if self.is_checked { 0 } else { UNCHECKED };
        bytes[2..4].copy_from_slice(&self.host.map_or(0, NonZeroU16::get).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.datagrams.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.identity.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.secret);
        let mut at = HEAD_BYTES;
        for path in &self.paths {
            let size = path_bytes(path);
            if at + size > ADDRESS_BYTES {
                break;
            }
            bytes[at + 1] = path.prefix;
            bytes[at + 2..at + 4].copy_from_slice(&path.address.port().to_le_bytes());
            match path.address.ip() {
                IpAddr::V4(four) => {
                    bytes[at] = 4;
                    bytes[at + 4..at + 8].copy_from_slice(&four.octets());
                }
                IpAddr::V6(six) => {
                    bytes[at] = 6;
                    bytes[at + 4..at + 20].copy_from_slice(&six.octets());
                }
            }
            at += size;
            bytes[1] += 1;
        }
        bytes
    }

    /// Parses an address; none if it is not one of ours.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ADDRESS_BYTES] = bytes.get(..ADDRESS_BYTES)?.try_into().ok()?;
        let is_checked = bytes[0] & UNCHECKED == 0;
        if bytes[0] & !UNCHECKED != VERSION {
            return None;
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let datagrams = QpNumber(u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")));
        let mut rest = &bytes[HEAD_BYTES..];
        let mut paths = Vec::new();
        for _ in 0..bytes[1] {
            let (head, tail) = rest.split_first_chunk::<4>()?;
            let port = u16::from_le_bytes([head[2], head[3]]);
            let (ip, tail): (IpAddr, _) = match head[0] {
                4 => tail.split_first_chunk::<4>().map(|(ip, tail)| (Ipv4Addr::from(*ip).into(), tail))?,
                6 => tail.split_first_chunk::<16>().map(|(ip, tail)| (Ipv6Addr::from(*ip).into(), tail))?,
                _ => return None,
            };
            paths.push(EndpointPath { address: SocketAddr::new(ip, port), prefix: head[1].min(128) });
            rest = tail;
        }
        let secret = bytes[16..32].try_into().expect("sixteen bytes");
        let host = NonZeroU16::new(u16::from_le_bytes([bytes[2], bytes[3]]));
        (!paths.is_empty()).then_some(Self { identity: word(8), datagrams, secret, host, is_checked, paths })
    }

    /// Whether the secret is known; it is not in the address of a peer that connected before the application named it.
    pub(crate) fn has_secret(&self) -> bool {
        self.secret != EndpointSecret::default()
    }

    /// The same without what must not be in packets.
    pub(crate) fn public(&self) -> Self {
        Self { secret: EndpointSecret::default(), ..self.clone() }
    }
}

/// How many of these paths fit into an address.
pub(crate) fn fitting_paths(paths: &[EndpointPath]) -> usize {
    let mut left = ADDRESS_BYTES - HEAD_BYTES;
    paths.iter().take_while(|path| left.checked_sub(path_bytes(path)).inspect(|rest| left = *rest).is_some()).count()
}

fn path_bytes(path: &EndpointPath) -> usize {
    if path.address.is_ipv4() { 8 } else { 20 }
}

/// The paths between two endpoints, as pairs of indices (first, second): those on one network, else those of one family. Both ends
/// compute the same from the same addresses, if the end with the lower identity is first.
pub(crate) fn common_paths(first: &EndpointAddress, second: &EndpointAddress) -> Vec<(usize, usize)> {
    let mut used = vec![false; second.paths.len()];
    let mut pairs = Vec::new();
    let mut take = |wanted: &dyn Fn(&EndpointPath, &EndpointPath) -> bool, pairs: &mut Vec<(usize, usize)>| {
        for (index, path) in first.paths.iter().enumerate() {
            if pairs.iter().any(|(taken, _)| *taken == index) {
                continue;
            }
            let free = |(other, remote): &(usize, &EndpointPath)| !used[*other] && wanted(path, remote);
            if let Some((other, _)) = second.paths.iter().enumerate().find(free) {
                used[other] = true;
                pairs.push((index, other));
            }
        }
    };
    take(&is_same_network, &mut pairs);
    if pairs.is_empty() {
        take(&|path, remote| path.address.is_ipv4() == remote.address.is_ipv4(), &mut pairs);
    }
    pairs
}

fn is_same_network(first: &EndpointPath, second: &EndpointPath) -> bool {
    match (first.address.ip(), second.address.ip()) {
        (IpAddr::V4(own), IpAddr::V4(other)) => {
            (own.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(first.prefix)
        }
        (IpAddr::V6(own), IpAddr::V6(other)) => {
            (own.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(first.prefix)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(identity: u64, paths: &[&str]) -> EndpointAddress {
        let path = |text: &&str| EndpointPath { address: text.parse().expect("an address"), prefix: 24 };
        let paths = paths.iter().map(path).collect();
        EndpointAddress {
            identity,
            datagrams: QpNumber(17),
            secret: [7; 16],
            host: NonZeroU16::new(9),
            is_checked: true,
            paths,
        }
    }

    #[test]
    fn an_address_reads_back() {
        for paths in [&["10.0.0.1:9"][..], &["10.0.0.1:9", "10.0.1.1:80", "1.2.3.4:5", "9.9.9.9:9"], &["[::1]:77"]] {
            let full = address(5, paths);
            assert_eq!(EndpointAddress::parse(&full.to_bytes()), Some(full.clone()));
            assert!(full.has_secret() && !full.public().has_secret());
        }
    }

    #[test]
    fn paths_beyond_the_space_are_left_out() {
        let five = address(1, &["1.1.1.1:1", "2.2.2.2:2", "3.3.3.3:3", "4.4.4.4:4", "5.5.5.5:5"]);
        assert_eq!(fitting_paths(&five.paths), 4);
        assert_eq!(EndpointAddress::parse(&five.to_bytes()).map(|read| read.paths.len()), Some(4));
    }

    #[test]
    fn foreign_bytes_are_rejected() {
        assert_eq!(EndpointAddress::parse(&[0; 64]), None);
        assert_eq!(EndpointAddress::parse(&[1; 10]), None);
        let mut bytes = address(1, &["1.1.1.1:1"]).to_bytes();
        bytes[1] = 9;
        assert_eq!(EndpointAddress::parse(&bytes), None, "more paths than bytes");
        bytes[1] = 0;
        assert_eq!(EndpointAddress::parse(&bytes), None, "no path");
    }

    #[test]
    fn paths_pair_by_network() {
        let first = address(1, &["10.0.0.1:1", "10.0.1.1:2", "10.0.9.1:3"]);
        let second = address(2, &["10.0.1.2:1", "10.0.0.2:2"]);
        assert_eq!(common_paths(&first, &second), [(0, 1), (1, 0)]);
        let elsewhere = address(3, &["192.168.0.1:1"]);
        assert_eq!(common_paths(&first, &elsewhere), [(0, 0)], "routed: any of the same family");
        assert_eq!(common_paths(&first, &address(3, &["[::1]:1"])), []);
    }
}
