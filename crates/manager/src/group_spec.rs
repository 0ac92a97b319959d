//! What a group is, to those who ask for it and to those who serve it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use units::{ChildIndex, Epoch, GroupId, QpNumber, Rank};

use super::message::GroupKey;
use super::{AggregationNodeId, AuthKey, JobTicket, serde_ids};

/// A process that takes part in a group for its host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupLeader {
    /// Its rank in the job.
    #[serde(with = "serde_ids::rank")]
    pub rank: Rank,
    /// The host's name.
    pub host: String,
    /// Where packets may be sent, one address per path.
    pub addresses: Vec<SocketAddr>,
}

/// How results go down (SH-1, SH-13).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DistributionSpec {
    /// Over the reliable connections of the tree.
    #[default]
    Edges,
    /// By multicast to this address, with repair over the connections.
    Multicast {
        /// The address and port that all members join.
        to: SocketAddr,
    },
    /// Both ways: the multicast for speed, the connections for certainty.
    Both {
        /// The address and port that all members join.
        to: SocketAddr,
    },
}

impl DistributionSpec {
    /// Where multicast packets go, if there are any.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Edges => None,
            Self::Multicast { to } | Self::Both { to } => Some(to),
        }
    }
}

/// A job asks for a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupRequest {
    /// The members, one per host or socket. Their positions are the leader indices of the answer.
    pub leaders: Vec<GroupLeader>,
    /// Operations in flight at once; the manager rounds up to a power of two.
    pub window: u32,
    /// Largest payload of one message.
    pub segment_bytes: u32,
    /// How results go down.
    pub distribution: DistributionSpec,
    /// Nodes that the job does not want, because they failed it.
    pub avoid: Vec<String>,
}

/// A seat to be taken, with all that hangs below it.
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
    /// The node that takes the seat.
    pub node: AggregationNodeId,
    /// Its name.
    pub name: String,
    /// Operations in flight at once; a power of two.
    pub window: u32,
    /// Largest payload of one message.
    pub segment_bytes: u32,
    /// How results go down.
    pub distribution: DistributionSpec,
    /// The way up; none for the root.
    pub parent: Option<ParentSpec>,
    /// The children in fold order: a child's position is its index. At least two.
    pub children: Vec<ChildSpec>,
}

/// The way up from a seat or a leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParentSpec {
    /// The connection's number: the queue pair at both ends.
    #[serde(with = "serde_ids::queue_pair")]
    pub edge: QpNumber,
    /// What the parent calls us.
    #[serde(with = "serde_ids::child")]
    pub child: ChildIndex,
    /// The parent.
    pub node: AggregationNodeId,
    /// Its name.
    pub name: String,
    /// Where packets for it go, one address per path.
    pub addresses: Vec<SocketAddr>,
}

/// A child of a seat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildSpec {
    /// The connection's number: the queue pair at both ends.
    #[serde(with = "serde_ids::queue_pair")]
    pub edge: QpNumber,
    /// Where packets for it go, one address per path.
    pub addresses: Vec<SocketAddr>,
    /// Who it is.
    pub who: SeatChild,
}

/// Who a child is.
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
    },
    /// Another node's seat.
    Seat {
        /// Where the node takes orders.
        control: SocketAddr,
        /// The seat.
        spec: Box<SeatSpec>,
    },
}

/// In which order operands are folded: a list folds its parts from first to last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FoldTree {
    /// One leader's operand, by leader index.
    Leader(u32),
    /// The fold of these, in this order.
    Fold(Vec<FoldTree>),
}

impl FoldTree {
    /// Every leader in the order in which its operand is first touched.
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

/// A group that can be used: all that its leaders must know. Whoever asked tells the other leaders.
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
    /// How results go down.
    pub distribution: DistributionSpec,
    /// Every seat of the tree, the root first.
    pub seats: Vec<SeatAddress>,
    /// For each leader of the request, in its order, the seat above it.
    pub leaders: Vec<LeaderAttachment>,
    /// The fold order of the whole tree, for whoever must give the same bits without it.
    pub fold: FoldTree,
}

/// A seat, as leaders see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeatAddress {
    /// The node.
    pub node: AggregationNodeId,
    /// Its name.
    pub name: String,
    /// Where packets for it go, one address per path.
    pub addresses: Vec<SocketAddr>,
}

/// A leader's place below a seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaderAttachment {
    /// Position in [`GroupDescriptor::seats`].
    pub seat: u32,
    /// The connection's number: the queue pair at both ends.
    #[serde(with = "serde_ids::queue_pair")]
    pub edge: QpNumber,
    /// What the seat calls the leader.
    #[serde(with = "serde_ids::child")]
    pub child: ChildIndex,
}

impl GroupDescriptor {
    /// One incarnation of the group, by name.
    pub fn key_of_group(&self) -> GroupKey {
        GroupKey { group: self.group, epoch: self.epoch }
    }

    /// The way up of one leader; none if there is no such leader.
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

    /// The name of a lost neighbour, if it is a node of this group.
    pub fn node_name(&self, node: AggregationNodeId) -> Option<&str> {
        self.seats.iter().find(|seat| seat.node == node).map(|seat| seat.name.as_str())
    }
}

/// Bytes that a seat reserves: a payload per child and one for the result, for every operation of the window.
pub fn reserved_bytes(window: u32, children: usize, segment_bytes: u32) -> u64 {
    u64::from(window).saturating_mul(children as u64 + 1).saturating_mul(u64::from(segment_bytes))
}

/// More bytes than the words around a member take in a message, and those around a seat.
const MAX_ENCODED_MEMBER_BYTES: usize = 112;
const MAX_ENCODED_SEAT_BYTES: usize = 512;

/// Bytes of addresses in a message, with quotes and commas.
fn encoded_address_bytes(addresses: &[SocketAddr]) -> usize {
    addresses.iter().map(|address| address.to_string().len() + 3).sum()
}

impl SeatSpec {
    /// One incarnation of the group, by name.
    pub fn key_of_group(&self) -> GroupKey {
        GroupKey { group: self.group, epoch: self.epoch }
    }

    /// What the seat reserves.
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

    /// At least as many bytes as the message takes when it travels.
    pub fn weight(&self) -> usize {
        let parent = self.parent.iter().map(|parent| parent.name.len() + encoded_address_bytes(&parent.addresses));
        let below = self.children.iter().map(|child| {
            let deeper = match &child.who {
                SeatChild::Seat { spec, .. } => spec.weight(),
                SeatChild::Member { .. } => 0,
            };
            MAX_ENCODED_MEMBER_BYTES + encoded_address_bytes(&child.addresses) + deeper
        });
        MAX_ENCODED_SEAT_BYTES + self.name.len() + parent.sum::<usize>() + below.sum::<usize>()
    }
}
