//! A seat is a node's place in one plane of one group's tree: who its children and parents are, and its slots.

use units::{ChildIndex, Epoch, GroupId, OpId, Psn};

use super::slot::Slot;
use super::{AbortCause, EdgeIndex, Message};

/// One of several trees over the same members (SE-7); a plain tree has plane zero only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Plane(pub u8);

/// The way up to one parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upward {
    /// Over this edge.
    pub edge: EdgeIndex,
    /// What the parent calls us.
    pub child: ChildIndex,
    /// The parent's plane.
    pub plane: Plane,
}

/// What it means for a contribution's arrival that the result has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultProves {
    /// There is one way up: no result without it, so nothing needs to be acknowledged (P-5).
    Arrival,
    /// Other planes may have made the result: only an acknowledgement proves anything.
    Nothing,
}

/// What a node must know to serve a group.
#[derive(Clone, Debug)]
pub struct SeatPlan {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The plane of its tree.
    pub plane: Plane,
    /// For each child, in fold order, the edges over which it may speak (several if its adapter is split).
    pub children: Vec<Vec<EdgeIndex>>,
    /// The parents, all of which get what is folded here; none for a root.
    pub parents: Vec<Upward>,
    /// What a result tells about the contribution sent up.
    pub result_proves: ResultProves,
    /// Operations that may be in flight at once.
    pub window: u32,
}

#[derive(Debug)]
pub(super) struct Seat {
    pub plan: SeatPlan,
    slots: Vec<Slot>,
    /// A child is lost: nothing that still misses it can complete.
    pub childless: Option<AbortCause>,
    /// All parents are lost: nothing that is folded here can go on.
    pub orphaned: Option<AbortCause>,
    /// The number under which each slot's fold went to the only parent, to confirm it by the result (P-5).
    sent: Vec<Option<Psn>>,
}

impl Seat {
    pub(super) fn new(plan: SeatPlan) -> Self {
        // A power of two, so that the ring of slots survives the wrap of operation numbers.
        let window = plan.window.clamp(1, units::limits::MAX_WINDOW).next_power_of_two();
        let slots = (0..window).map(|op| Slot::new(OpId(op))).collect();
        Self {
            plan: SeatPlan { window, ..plan },
            slots,
            childless: None,
            orphaned: None,
            sent: vec![None; window as usize],
        }
    }

    /// True if a message is meant for this seat.
    pub(super) fn serves(&self, message: &Message) -> bool {
        self.plan.group == message.header.group && self.plan.plane == message.plane()
    }

    pub(super) fn slot(&mut self, op: OpId) -> &mut Slot {
        let index = op.0 % self.plan.window;
        &mut self.slots[index as usize]
    }

    pub(super) fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }

    pub(super) fn sent(&mut self, op: OpId) -> &mut Option<Psn> {
        let index = op.0 % self.plan.window;
        &mut self.sent[index as usize]
    }

    /// The child that may speak under this index over this edge.
    pub(super) fn may_speak(&self, child: ChildIndex, edge: EdgeIndex) -> bool {
        self.plan.children.get(child.index()).is_some_and(|edges| edges.contains(&edge))
    }

    pub(super) fn is_parent(&self, edge: EdgeIndex) -> bool {
        self.plan.parents.iter().any(|parent| parent.edge == edge)
    }
}
