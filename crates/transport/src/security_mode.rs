//! How much packets between hosts are protected: one setting for trees, transfers and messages (P-124).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use manager::AuthKey;

use crate::udp::PacketSecurity;

/// How packets are protected. The later the stronger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SecurityMode {
    /// Messages carry checksums alone. Packets of operations keep their MACs, which are their checksums.
    Off,
    /// Every packet carries a MAC.
    Authenticate,
    /// Payloads are encrypted as well.
    Encrypt,
}

impl SecurityMode {
    /// The variable that sets it.
    pub const VARIABLE: &str = "PLEACH_SECURITY";

    /// From the environment; none if it is not set.
    ///
    /// # Errors
    /// If the variable has another value.
    pub fn from_environment() -> Result<Option<Self>, InvalidSecurityMode> {
        let value = std::env::var(Self::VARIABLE).ok().filter(|value| !value.is_empty());
        value.map(|value| value.parse()).transpose()
    }

    /// Without a setting: packets that never leave a host need no protection.
    pub fn default_for(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        if addresses.into_iter().all(|address| address.is_loopback()) { Self::Off } else { Self::Authenticate }
    }

    /// The protection of queue pairs between two ends that share a key.
    pub fn packets(self, key: AuthKey) -> PacketSecurity {
        match self {
            Self::Off => PacketSecurity::Off,
            Self::Authenticate => PacketSecurity::authenticate(key),
            Self::Encrypt => PacketSecurity::encrypt(key),
        }
    }
}

/// A text that is no security mode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidSecurityMode(String);

impl FromStr for SecurityMode {
    type Err = InvalidSecurityMode;

    fn from_str(text: &str) -> Result<Self, InvalidSecurityMode> {
        match text {
            "off" => Ok(Self::Off),
            "authenticate" => Ok(Self::Authenticate),
            "encrypt" => Ok(Self::Encrypt),
            other => Err(InvalidSecurityMode(other.chars().take(40).collect())),
        }
    }
}

impl fmt::Display for SecurityMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Authenticate => "authenticate",
            Self::Encrypt => "encrypt",
        })
    }
}

impl fmt::Display for InvalidSecurityMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not one of off, authenticate and encrypt", self.0)
    }
}

impl std::error::Error for InvalidSecurityMode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_reads_back_and_other_texts_are_rejected() {
        for mode in [SecurityMode::Off, SecurityMode::Authenticate, SecurityMode::Encrypt] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "on".parse::<SecurityMode>().expect_err("no mode");
        assert_eq!(error.to_string(), "\"on\" is not one of off, authenticate and encrypt");
    }

    #[test]
    fn packets_that_leave_a_host_are_authenticated() {
        let of =
            |texts: &[&str]| SecurityMode::default_for(texts.iter().map(|text| text.parse().expect("an address")));
        assert_eq!(of(&["127.0.0.1", "::1", "127.5.5.5"]), SecurityMode::Off);
        assert_eq!(of(&["127.0.0.1", "10.0.0.1"]), SecurityMode::Authenticate);
    }
}
