//! Who is who on the control plane: jobs, nodes, keys.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A job that the manager admitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {:016x}", self.0)
    }
}

/// A node's number, as its neighbours in a group call it. Never the same as a rank: the highest of the 28 bits is set that
/// an abort has for a neighbour's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AggregationNodeId(pub u32);

impl AggregationNodeId {
    const MARK: u32 = 1 << 27;

    pub(super) fn from_count(count: u32) -> Self {
        Self(Self::MARK | count)
    }

    /// A neighbour's number, if it is a node's and not a rank.
    pub fn from_peer(peer: u32) -> Option<Self> {
        (peer & Self::MARK != 0).then_some(Self(peer))
    }
}

/// A secret of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthKey(pub [u8; 16]);

impl AuthKey {
    /// Compares in a time that does not tell where two keys differ.
    pub fn is(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl fmt::Debug for AuthKey {
    /// Keys do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Serialize for AuthKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        format!("{:032x}", u128::from_be_bytes(self.0)).serialize(to)
    }
}

impl<'d> Deserialize<'d> for AuthKey {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let sound = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| sound);
        number
            .map(|number| Self(number.to_be_bytes()))
            .ok_or_else(|| D::Error::custom("a key has 32 hexadecimal digits"))
    }
}

/// Shows that a request is the job's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobTicket {
    /// The job.
    pub job: JobId,
    /// Its key.
    pub key: AuthKey,
}
