//! Edges of an aggregation tree: connections between a member or node and its neighbours, and how results use them.

use units::ChildIndex;

/// An edge of a member or node: its connection to one neighbour in the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeIndex(pub u16);

impl EdgeIndex {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One of several trees over the same members (SE-7). A single tree is plane zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Plane(pub u8);

/// The link to one parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParentLink {
    /// The edge to the parent.
    pub edge: EdgeIndex,
    /// Our child index at the parent.
    pub child: ChildIndex,
    /// The parent's plane.
    pub plane: Plane,
}

/// Whether a result acknowledges the contribution that was sent to the parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImplicitAck {
    /// There is one parent and no result without the contribution, so the result acknowledges it (P-5).
    ByResult,
    /// Other planes may have produced the result, so only an acknowledgement counts.
    Never,
}

/// How a node delivers results to its children (SH-13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownwardDelivery {
    /// By one multicast packet; a child that misses it requests a repair (P-40).
    Multicast,
    /// Over the children's reliable connections.
    Connections,
    /// Both: the multicast for latency, the connections for reliability.
    Both,
}

impl DownwardDelivery {
    pub(super) const fn has_multicast(self) -> bool {
        matches!(self, Self::Multicast | Self::Both)
    }

    pub(super) const fn has_connections(self) -> bool {
        matches!(self, Self::Connections | Self::Both)
    }
}
