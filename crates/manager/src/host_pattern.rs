//! Patterns for the hosts that a node serves: a name, a name with `*`, an address, or a network in CIDR notation.

use std::net::IpAddr;

use super::control_error::ControlError;
use super::group_spec::GroupLeader;
use super::limits::MAX_NAME_BYTES;

/// A set of hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostPattern {
    /// The host of this name.
    Name(String),
    /// Hosts whose names match; `*` matches any text.
    Glob(String),
    /// Hosts with an address in this network.
    Network {
        /// Its address.
        address: IpAddr,
        /// Length of the prefix in bits.
        prefix: u32,
    },
}

/// How exactly a pattern names a host; greater is more exact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct MatchSpecificity(u32);

impl HostPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// If the text is not a pattern.
    pub fn parse(text: &str) -> Result<Self, ControlError> {
        let invalid =
            || ControlError::malformed("a host pattern is a name, a name with *, an address, or address/bits");
        if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid());
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| invalid())?;
            let prefix: u32 = prefix.parse().map_err(|_| invalid())?;
            return if prefix <= address_bits(address) {
                Ok(Self::Network { address, prefix })
            } else {
                Err(invalid())
            };
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network { address, prefix: address_bits(address) });
        }
        Ok(if text.contains('*') { Self::Glob(text.to_owned()) } else { Self::Name(text.to_owned()) })
    }

    /// How exactly the pattern names a leader's host; `None` if it does not match.
    pub(super) fn specificity(&self, leader: &GroupLeader) -> Option<MatchSpecificity> {
        match self {
            Self::Name(name) => (*name == leader.host).then_some(MatchSpecificity(1_000)),
            Self::Glob(glob) => {
                let literal = glob.bytes().filter(|byte| *byte != b'*').count() as u32;
                glob_matches(glob.as_bytes(), leader.host.as_bytes()).then_some(MatchSpecificity(literal))
            }
            Self::Network { address, prefix } => {
                let inside = leader.addresses.iter().any(|of| is_in_network(of.ip(), *address, *prefix));
                // Counted from the longest prefix, so that a full address is as exact in either family.
                inside.then_some(MatchSpecificity(500 + prefix + 128 - address_bits(*address)))
            }
        }
    }
}

fn address_bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn is_in_network(address: IpAddr, network: IpAddr, prefix: u32) -> bool {
    let differ = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
        _ => return false,
    };
    differ.leading_zeros() >= prefix
}

/// True if a text matches a pattern with `*`. On a mismatch the last `*` takes one more byte, so it ends after at most
/// length times length steps.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at_glob, mut at_text) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at_text < text.len() {
        if glob.get(at_glob) == Some(&b'*') {
            star = Some((at_glob, at_text));
            at_glob += 1;
        } else if glob.get(at_glob) == Some(&text[at_text]) {
            at_glob += 1;
            at_text += 1;
        } else if let Some((after, taken)) = star {
            star = Some((after, taken + 1));
            at_glob = after + 1;
            at_text = taken + 1;
        } else {
            return false;
        }
    }
    glob[at_glob..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Rank;

    fn leader(host: &str, address: &str) -> GroupLeader {
        let addresses = vec![address.parse().expect("an address")];
        GroupLeader { rank: Rank(0), host: host.to_owned(), addresses }
    }

    #[test]
    fn hosts_match_by_name_glob_address_and_network() {
        let host = leader("rack3-node17", "10.3.0.17:4791");
        for good in ["rack3-node17", "rack3-*", "*", "*-node*", "r*3*7", "10.3.0.17", "10.3.0.0/16", "0.0.0.0/0"] {
            assert!(HostPattern::parse(good).unwrap().specificity(&host).is_some(), "{good}");
        }
        for bad in ["rack3", "rack4-*", "*x", "10.3.0.18", "10.4.0.0/16", "::/0", "rack3-node17x"] {
            assert!(HostPattern::parse(bad).unwrap().specificity(&host).is_none(), "{bad}");
        }
        for garbage in ["", "10.0.0.0/33", "10.0.0.0/x", "a/8", "two words", "::/129"] {
            assert!(HostPattern::parse(garbage).is_err(), "{garbage}");
        }
    }

    #[test]
    fn a_more_exact_pattern_has_a_higher_specificity() {
        let host = leader("rack3-node17", "10.3.0.17:4791");
        let order = ["*", "rack*", "rack3-*", "10.0.0.0/8", "10.3.0.0/24", "10.3.0.17", "rack3-node17"];
        let specificities: Vec<_> =
            order.iter().map(|text| HostPattern::parse(text).unwrap().specificity(&host).unwrap()).collect();
        assert!(specificities.is_sorted_by(|a, b| a < b), "{specificities:?}");
    }
}
