//! A seat: a node's part in one plane of one group's tree, with its children, its parents and its slots.

use units::{ChildIndex, Epoch, GroupId, OpId, Psn};

use super::pace::SeatPace;
use super::slot::{Slot, SlotHistory};
use super::{AbortCause, AggregationMessage, DownwardDelivery, EdgeIndex, ImplicitAck, ParentLink, Plane};

/// The configuration of a node for one group.
#[derive(Clone, Debug)]
pub struct SeatConfig {
    /// The group.
    pub group: GroupId,
    /// The group's epoch.
    pub epoch: Epoch,
    /// The plane of the group's tree.
    pub plane: Plane,
    /// For each child, in fold order, the edges over which it may send; several if its adapter is split.
    pub children: Vec<Vec<EdgeIndex>>,
    /// The parents, each of which gets the fold; none at a root.
    pub parents: Vec<ParentLink>,
    /// Whether a result acknowledges the contribution to the parent.
    pub implicit_ack: ImplicitAck,
    /// How results go to the children.
    pub distribution: DownwardDelivery,
    /// The number of operations that may be in flight at once.
    pub window: u32,
}

/// An entry in the ring of slots. A slot is allocated with the first message for it, and freed when no child can need
/// it.
#[derive(Debug)]
enum SlotEntry {
    /// No state except the next or the last operation.
    Free {
        op: OpId,
        past: SlotHistory,
    },
    Used(Box<Slot>),
}

#[derive(Debug)]
pub(super) struct Seat {
    pub config: SeatConfig,
    slots: Vec<SlotEntry>,
    /// A child is lost: operations without its contribution cannot complete.
    pub lost_child: Option<AbortCause>,
    /// All parents are lost: folds cannot go up.
    pub lost_parents: Option<AbortCause>,
    /// The highest operation that any message named.
    latest: OpId,
    /// The sequence number of each slot's fold on the only parent's connection, to confirm it by the result (P-5).
    sent: Vec<Option<Psn>>,
    /// How fast its operations proceed.
    pub pace: SeatPace,
}

impl Seat {
    pub(super) fn new(config: SeatConfig) -> Self {
        // A power of two, so that the ring stays consistent when operation numbers wrap.
        let window = config.window.clamp(1, units::limits::MAX_GROUP_WINDOW).next_power_of_two();
        let slots = (0..window).map(|op| SlotEntry::Free { op: OpId(op), past: SlotHistory::Unknown }).collect();
        Self {
            config: SeatConfig { window, ..config },
            slots,
            lost_child: None,
            lost_parents: None,
            latest: OpId(0),
            sent: vec![None; window as usize],
            pace: SeatPace::default(),
        }
    }

    /// True if a message belongs to this group and plane.
    pub(super) fn serves(&self, message: &AggregationMessage) -> bool {
        self.config.group == message.header.group && self.config.plane == message.plane()
    }

    /// The slot of an operation; allocates it if needed.
    pub(super) fn slot(&mut self, op: OpId) -> &mut Slot {
        let window = self.config.window;
        // No member can be further ahead than this (P-30).
        let is_near = op.steps_from(self.latest) <= 2 * window as i32;
        if is_near && op.steps_from(self.latest) > 0 {
            self.latest = op;
        }
        let entry = &mut self.slots[(op.0 % window) as usize];
        let at = match entry {
            SlotEntry::Free { op, .. } => *op,
            SlotEntry::Used(slot) => slot.op(),
        };
        // Nodes may not see members' multicasts: operations that the slot missed are over for all members (P-52).
        if is_near && op.steps_from(at) > window as i32 {
            *entry = SlotEntry::Free { op: OpId(op.0.wrapping_sub(window)), past: SlotHistory::Delivered };
        }
        if let SlotEntry::Free { op, past } = *entry {
            *entry = SlotEntry::Used(Box::new(Slot::new(op, past)));
        }
        let SlotEntry::Used(slot) = entry else { unreachable!("just made") };
        slot
    }

    /// The slots that are in use.
    pub(super) fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().filter_map(|entry| match entry {
            SlotEntry::Free { .. } => None,
            SlotEntry::Used(slot) => Some(&mut **slot),
        })
    }

    /// The payload bytes held for each operation in flight.
    pub(super) fn held(&self) -> impl Iterator<Item = u64> + '_ {
        self.slots.iter().filter_map(|entry| match entry {
            SlotEntry::Free { .. } => None,
            SlotEntry::Used(slot) => slot.held(),
        })
    }

    /// Frees the slot of an operation whose result is on reliable connections to all children.
    pub(super) fn release(&mut self, op: OpId) {
        let index = op.0 % self.config.window;
        let entry = &mut self.slots[index as usize];
        if matches!(entry, SlotEntry::Used(slot) if slot.op() == op) {
            *entry = SlotEntry::Free { op, past: SlotHistory::Delivered };
        }
    }

    pub(super) fn sent(&mut self, op: OpId) -> &mut Option<Psn> {
        let index = op.0 % self.config.window;
        &mut self.sent[index as usize]
    }

    /// True if the child may send over this edge (P-32).
    pub(super) fn is_authorized(&self, child: ChildIndex, edge: EdgeIndex) -> bool {
        self.config.children.get(child.index()).is_some_and(|edges| edges.contains(&edge))
    }

    pub(super) fn is_parent(&self, edge: EdgeIndex) -> bool {
        self.config.parents.iter().any(|parent| parent.edge == edge)
    }
}
