//! A seat is a node's place in one plane of one group's tree: who its children and parents are, and its slots.

use units::{ChildIndex, Epoch, GroupId, OpId, Psn};

use super::slot::{Slot, SlotHistory};
use super::{AbortCause, AggregationMessage, EdgeIndex};

/// One of several trees over the same members (SE-7); a plain tree has plane zero only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Plane(pub u8);

/// The way up to one parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParentLink {
    /// Over this edge.
    pub edge: EdgeIndex,
    /// What the parent calls us.
    pub child: ChildIndex,
    /// The parent's plane.
    pub plane: Plane,
}

/// What it means for a contribution's arrival that the result has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImplicitAck {
    /// There is one way up: no result without it, so nothing needs to be acknowledged (P-5).
    Arrival,
    /// Other planes may have made the result: only an acknowledgement proves anything.
    Nothing,
}

/// How a result goes to those below (SH-13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownwardDelivery {
    /// In one packet that the network copies; whoever misses it asks (P-20).
    Multicast,
    /// Over the children's connections, which are reliable.
    Connections,
    /// Both: the multicast for speed, the connections for certainty.
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

/// What a node must know to serve a group.
#[derive(Clone, Debug)]
pub struct SeatConfig {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The plane of its tree.
    pub plane: Plane,
    /// For each child, in fold order, the edges over which it may speak (several if its adapter is split).
    pub children: Vec<Vec<EdgeIndex>>,
    /// The parents, all of which get what is folded here; none for a root.
    pub parents: Vec<ParentLink>,
    /// What a result tells about the contribution sent up.
    pub result_proves: ImplicitAck,
    /// How results go down.
    pub distribution: DownwardDelivery,
    /// Operations that may be in flight at once.
    pub window: u32,
}

/// A place in the ring of slots. A slot is made when something comes for it, and freed when nobody can want it any more.
#[derive(Debug)]
enum SlotEntry {
    /// No state but the operation that it is for, or that it was for.
    Free {
        op: OpId,
        past: SlotHistory,
    },
    Used(Box<Slot>),
}

#[derive(Debug)]
pub(super) struct Seat {
    pub plan: SeatConfig,
    slots: Vec<SlotEntry>,
    /// A child is lost: nothing that still misses it can complete.
    pub childless: Option<AbortCause>,
    /// All parents are lost: nothing that is folded here can go on.
    pub orphaned: Option<AbortCause>,
    /// The furthest operation that anyone spoke of.
    latest: OpId,
    /// The number under which each slot's fold went to the only parent, to confirm it by the result (P-5).
    sent: Vec<Option<Psn>>,
}

impl Seat {
    pub(super) fn new(plan: SeatConfig) -> Self {
        // A power of two, so that the ring of slots survives the wrap of operation numbers.
        let window = plan.window.clamp(1, units::limits::MAX_GROUP_WINDOW).next_power_of_two();
        let slots = (0..window).map(|op| SlotEntry::Free { op: OpId(op), past: SlotHistory::Unknown }).collect();
        Self {
            plan: SeatConfig { window, ..plan },
            slots,
            childless: None,
            orphaned: None,
            latest: OpId(0),
            sent: vec![None; window as usize],
        }
    }

    /// True if a message is meant for this seat.
    pub(super) fn serves(&self, message: &AggregationMessage) -> bool {
        self.plan.group == message.header.group && self.plan.plane == message.plane()
    }

    /// The slot of an operation, made if it is not there.
    pub(super) fn slot(&mut self, op: OpId) -> &mut Slot {
        let window = self.plan.window;
        // Further ahead than members can be, it is nobody's (P-11).
        let is_near = op.steps_from(self.latest) <= 2 * window as i32;
        if is_near && op.steps_from(self.latest) > 0 {
            self.latest = op;
        }
        let place = &mut self.slots[(op.0 % window) as usize];
        let at = match place {
            SlotEntry::Free { op, .. } => *op,
            SlotEntry::Used(slot) => slot.op(),
        };
        // Casts go by without a word to the nodes: what the slot missed is over for everyone (P-96).
        if is_near && op.steps_from(at) > window as i32 {
            *place = SlotEntry::Free { op: OpId(op.0.wrapping_sub(window)), past: SlotHistory::Delivered };
        }
        if let SlotEntry::Free { op, past } = *place {
            *place = SlotEntry::Used(Box::new(Slot::new(op, past)));
        }
        let SlotEntry::Used(slot) = place else { unreachable!("just made") };
        slot
    }

    /// The slots that are in use.
    pub(super) fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().filter_map(|place| match place {
            SlotEntry::Free { .. } => None,
            SlotEntry::Used(slot) => Some(&mut **slot),
        })
    }

    /// For each operation in flight, the bytes that are kept for it.
    pub(super) fn held(&self) -> impl Iterator<Item = u64> + '_ {
        self.slots.iter().filter_map(|place| match place {
            SlotEntry::Free { .. } => None,
            SlotEntry::Used(slot) => slot.held(),
        })
    }

    /// Frees the slot of an operation whose result is on reliable connections to everyone who needs it.
    pub(super) fn release(&mut self, op: OpId) {
        let index = op.0 % self.plan.window;
        let place = &mut self.slots[index as usize];
        if matches!(place, SlotEntry::Used(slot) if slot.op() == op) {
            *place = SlotEntry::Free { op, past: SlotHistory::Delivered };
        }
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
