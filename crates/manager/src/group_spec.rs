//! A group as the job requests it, as nodes install it, and as leaders use it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use units::{ChildIndex, Epoch, GroupId, QpNumber, Rank};

use super::ids::{AggregationNodeId, AuthKey, GroupKey, JobTicket};
use super::serde_ids;

/// A process that represents its host in a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupLeader {
    /// Its rank in the job.
    #[serde(with = "serde_ids::rank")]
    pub rank: Rank,
    /// The host's name.
    pub host: String,
    /// Its addresses, one per path.
    pub addresses: Vec<SocketAddr>,
}

/// How results reach the leaders (SH-1, SH-13).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DistributionSpec {
    /// Over the reliable connections of the tree.
    #[default]
    Edges,
    /// By multicast to this address, with repair over the connections.
    Multicast {
        /// The multicast address that all members join.
        to: SocketAddr,
    },
    /// Both ways: multicast for speed, the connections for reliability.
    Both {
        /// The multicast address that all members join.
        to: SocketAddr,
    },
}

impl DistributionSpec {
    /// The multicast address, if results use one.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Edges => None,
            Self::Multicast { to } | Self::Both { to } => Some(to),
        }
    }
}

/// A job's request for a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupRequest {
    /// The members, one per host or socket. Their positions are the leader indices of the descriptor.
    pub leaders: Vec<GroupLeader>,
    /// Operations in flight at once; the manager rounds up to a power of two.
    pub window: u32,
    /// Largest payload of one message.
    pub segment_bytes: u32,
    /// How results reach the leaders.
    pub distribution: DistributionSpec,
    /// Nodes to avoid, because they failed before.
    pub avoid: Vec<String>,
}

/// A seat to install, with its subtree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeatSpec {
    /// The job that owns the group.
    pub ticket: JobTicket,
    /// The group.
    #[serde(with = "serde_ids::group")]
    pub group: GroupId,
    /// Its incarnation.
    #[serde(with = "serde_ids::epoch")]
    pub epoch: Epoch,
    /// Authenticates the group's packets.
    pub key: AuthKey,
    /// The node of the seat.
    pub node: AggregationNodeId,
    /// Its name.
    pub name: String,
    /// Operations in flight at once; a power of two.
    pub window: u32,
    /// Largest payload of one message.
    pub segment_bytes: u32,
    /// How results reach the leaders.
    pub distribution: DistributionSpec,
    /// The edge to the parent; `None` for the root.
    pub parent: Option<ParentSpec>,
    /// The children in fold order: a child's position is its index. At least two.
    pub children: Vec<ChildSpec>,
}

/// The edge from a seat or a leader to its parent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParentSpec {
    /// The edge number: the queue pair at both ends.
    #[serde(with = "serde_ids::queue_pair")]
    pub edge: QpNumber,
    /// Index of this child at the parent.
    #[serde(with = "serde_ids::child")]
    pub child: ChildIndex,
    /// The parent.
    pub node: AggregationNodeId,
    /// Its name.
    pub name: String,
    /// Its addresses, one per path.
    pub addresses: Vec<SocketAddr>,
}

/// A child of a seat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildSpec {
    /// The edge number: the queue pair at both ends.
    #[serde(with = "serde_ids::queue_pair")]
    pub edge: QpNumber,
    /// Its addresses, one per path.
    pub addresses: Vec<SocketAddr>,
    /// Leader or seat.
    pub who: SeatChild,
}

/// What a child of a seat is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeatChild {
    /// A leader.
    Member {
        /// Its position among the group's leaders.
        leader: u32,
        /// Its rank in the job.
        #[serde(with = "serde_ids::rank")]
        rank: Rank,
        /// The name of its host; empty if there is no room for it in the message.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        host: String,
    },
    /// Another node's seat.
    Seat {
        /// Control address of the node.
        control: SocketAddr,
        /// The seat.
        spec: Box<SeatSpec>,
    },
}

/// The order in which operands are folded: a list folds its parts from first to last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FoldTree {
    /// One leader's operand, by leader index.
    Leader(u32),
    /// The fold of these, in this order.
    Fold(Vec<FoldTree>),
}

impl FoldTree {
    /// All leaders, in fold order.
    pub fn leaders(&self) -> Vec<u32> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found
    }

    fn collect(&self, into: &mut Vec<u32>) {
        match self {
            Self::Leader(leader) => into.push(*leader),
            Self::Fold(parts) => parts.iter().for_each(|part| part.collect(into)),
        }
    }
}

/// A usable group: what its leaders need to know. The leader that requested it sends it to the others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupDescriptor {
    /// The group.
    #[serde(with = "serde_ids::group")]
    pub group: GroupId,
    /// Its incarnation.
    #[serde(with = "serde_ids::epoch")]
    pub epoch: Epoch,
    /// Authenticates the group's packets.
    pub key: AuthKey,
    /// Operations in flight at once; a power of two.
    pub window: u32,
    /// Largest payload of one message.
    pub segment_bytes: u32,
    /// How results reach the leaders.
    pub distribution: DistributionSpec,
    /// Every seat of the tree, the root first.
    pub seats: Vec<SeatAddress>,
    /// For each leader of the request, in its order, the seat to which it is attached.
    pub leaders: Vec<LeaderAttachment>,
    /// The fold order of the whole tree, for algorithms that must produce the same bits without the tree.
    pub fold: FoldTree,
}

/// The node of a seat and its addresses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeatAddress {
    /// The node.
    pub node: AggregationNodeId,
    /// Its name.
    pub name: String,
    /// Its addresses, one per path.
    pub addresses: Vec<SocketAddr>,
}

/// The attachment of a leader to a seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaderAttachment {
    /// Position in [`GroupDescriptor::seats`].
    pub seat: u32,
    /// The edge number: the queue pair at both ends.
    #[serde(with = "serde_ids::queue_pair")]
    pub edge: QpNumber,
    /// Index of the leader among the seat's children.
    #[serde(with = "serde_ids::child")]
    pub child: ChildIndex,
}

impl GroupDescriptor {
    /// The group and its incarnation.
    pub fn group_key(&self) -> GroupKey {
        GroupKey { group: self.group, epoch: self.epoch }
    }

    /// The edge from a leader to its seat; `None` if there is no such leader.
    pub fn parent_of(&self, leader: usize) -> Option<ParentSpec> {
        let place = self.leaders.get(leader)?;
        let seat = self.seats.get(place.seat as usize)?;
        Some(ParentSpec {
            edge: place.edge,
            child: place.child,
            node: seat.node,
            name: seat.name.clone(),
            addresses: seat.addresses.clone(),
        })
    }

    /// The name of a node of this group.
    pub fn node_name(&self, node: AggregationNodeId) -> Option<&str> {
        self.seats.iter().find(|seat| seat.node == node).map(|seat| seat.name.as_str())
    }
}

/// Bytes that a seat reserves: a payload per child and one for the result, for every operation of the window.
pub fn reserved_bytes(window: u32, children: usize, segment_bytes: u32) -> u64 {
    u64::from(window).saturating_mul(children as u64 + 1).saturating_mul(u64::from(segment_bytes))
}

/// Upper bounds for the encoded size of a member and of a seat, without addresses and names.
const MAX_ENCODED_MEMBER_BYTES: usize = 112;
const MAX_ENCODED_SEAT_BYTES: usize = 512;
/// The field around a member's host.
const ENCODED_HOST_FIELD_BYTES: usize = 10;

/// Encoded size of addresses, with quotes and commas.
fn encoded_address_bytes(addresses: &[SocketAddr]) -> usize {
    addresses.iter().map(|address| address.to_string().len() + 3).sum()
}

impl SeatSpec {
    /// The group and its incarnation.
    pub fn group_key(&self) -> GroupKey {
        GroupKey { group: self.group, epoch: self.epoch }
    }

    /// The bytes that the seat reserves.
    pub fn reserved_bytes(&self) -> u64 {
        reserved_bytes(self.window, self.children.len(), self.segment_bytes)
    }

    /// The seats directly below.
    pub fn seats_below(&self) -> impl Iterator<Item = (SocketAddr, &SeatSpec)> {
        self.children.iter().filter_map(|child| match &child.who {
            SeatChild::Seat { control, spec } => Some((*control, &**spec)),
            SeatChild::Member { .. } => None,
        })
    }

    /// Leaves out the names of hosts, which only operators read.
    pub(super) fn remove_hosts(&mut self) {
        for child in &mut self.children {
            match &mut child.who {
                SeatChild::Member { host, .. } => host.clear(),
                SeatChild::Seat { spec, .. } => spec.remove_hosts(),
            }
        }
    }

    /// An upper bound for the size of the encoded message.
    pub fn max_encoded_bytes(&self) -> usize {
        let parent = self.parent.iter().map(|parent| parent.name.len() + encoded_address_bytes(&parent.addresses));
        let below = self.children.iter().map(|child| {
            let deeper = match &child.who {
                SeatChild::Seat { spec, .. } => spec.max_encoded_bytes(),
                SeatChild::Member { host, .. } => host.len() + ENCODED_HOST_FIELD_BYTES,
            };
            MAX_ENCODED_MEMBER_BYTES + encoded_address_bytes(&child.addresses) + deeper
        });
        MAX_ENCODED_SEAT_BYTES + self.name.len() + parent.sum::<usize>() + below.sum::<usize>()
    }
}
