//! Identifiers and keys of the control plane.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{Epoch, GroupId};

use super::serde_ids;

/// A connection to the manager. Its driver never reuses a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PeerId(pub u64);

/// The number of a job's credential (P-105). The driver has verified that the peer has its key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CredentialId(pub u64);

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Who sends a message to the manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlPeer {
    /// Its connection.
    pub id: PeerId,
    /// The job's credential by which it was let in; none if it knows the cluster's secret, or if there is none.
    pub credential: Option<CredentialId>,
}

/// A job that the manager admitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {:016x}", self.0)
    }
}

/// The number of an aggregation node, as its neighbours in a group use it. It never equals a rank: an abort has 28 bits for
/// a neighbour's number, and the highest of them is set in every node's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AggregationNodeId(pub u32);

impl AggregationNodeId {
    const MARK: u32 = 1 << 27;

    pub(super) fn from_count(count: u32) -> Self {
        Self(Self::MARK | count)
    }

    /// Converts a neighbour's number; `None` if it is a rank.
    pub fn from_peer(peer: u32) -> Option<Self> {
        (peer & Self::MARK != 0).then_some(Self(peer))
    }
}

/// One incarnation of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct GroupKey {
    /// The group.
    #[serde(with = "serde_ids::group")]
    pub group: GroupId,
    /// Its incarnation.
    #[serde(with = "serde_ids::epoch")]
    pub epoch: Epoch,
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.group, self.epoch)
    }
}

/// A secret key of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthKey(pub [u8; 16]);

impl AuthKey {
    /// Compares in constant time: the duration does not reveal where two keys differ.
    pub fn constant_time_eq(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl fmt::Debug for AuthKey {
    /// Hides the key, so that it never appears in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthKey(..)")
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
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| is_hex);
        number
            .map(|number| Self(number.to_be_bytes()))
            .ok_or_else(|| D::Error::custom("a key has 32 hexadecimal digits"))
    }
}

/// Proves that a request comes from the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobTicket {
    /// The job.
    pub job: JobId,
    /// Its key.
    pub key: AuthKey,
}
