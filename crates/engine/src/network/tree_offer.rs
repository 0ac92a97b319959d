//! A tree that was offered to a group, until the group uses it or does not (P-111).

use manager::message::GroupKey;
use protocol::aggregation::AggregationAction;
use units::{Epoch, GroupId, OpId, Rank, Time};

use super::leader_message::LeaderMessage;
use super::tree_stream::{TreeState, TreeStream};
use crate::aggregation::{TreeEdgeEvent, TreeEdges};

/// What the owner of the network must know or do about another tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchEvent {
    /// The first leader offers a tree; answer with [`super::LeaderNetwork::answer_offer`].
    Offered {
        /// The group.
        context: GroupId,
        /// Which offer: for the answer.
        term: Epoch,
        /// What the first leader says of the tree.
        description: Vec<u8>,
    },
    /// At the first leader: the group uses the tree that it offered.
    Switched {
        /// The group.
        context: GroupId,
        /// The tree.
        to: GroupKey,
    },
    /// At the first leader: the group does not use the tree that it offered.
    Rejected {
        /// The group.
        context: GroupId,
        /// The tree.
        tree: GroupKey,
    },
}

/// What a leader told about an offered tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SwitchVote {
    Accept(OpId),
    Reject,
}

/// A tree that was offered, until the group uses it or does not.
pub(super) struct TreeSwitch {
    pub(super) term: Epoch,
    /// Set once this leader has joined the tree.
    pub(super) stream: Option<Box<TreeStream>>,
    /// At the first leader: what each leader told.
    pub(super) votes: Vec<Option<SwitchVote>>,
    /// The operation of the failed tree from which the new one is used, once decided.
    pub(super) begins_at: Option<OpId>,
    /// Positions of leaders that have already left the new tree.
    pub(super) early_positions: Vec<(Rank, LeaderMessage)>,
    /// The new tree is lost before it was used.
    pub(super) is_lost: bool,
    /// At the first leader: when it gives up.
    pub(super) deadline: Time,
}

impl TreeSwitch {
    pub(super) fn new(term: Epoch, leaders: usize) -> Self {
        Self {
            term,
            stream: None,
            votes: vec![None; leaders],
            begins_at: None,
            early_positions: Vec::new(),
            is_lost: false,
            deadline: Time::NEVER,
        }
    }

    /// True if an operation with this number must not begin now.
    pub(super) fn holds_back(&self, next: OpId) -> bool {
        self.stream.is_some() && self.begins_at.is_none_or(|at| next.steps_from(at) >= 0)
    }

    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Something arrived over an edge of the new tree, which other leaders may use already. Nothing is complete before this leader takes
    /// part.
    pub(super) fn handle_tree(&mut self, input: TreeEdgeEvent, tree_edges: &mut TreeEdges) {
        let mut actions = Vec::new();
        if let Some(TreeState::Healthy(membership)) = self.stream.as_deref_mut().map(|stream| &mut stream.state) {
            membership.handle(tree_edges, input, &mut actions);
        }
        self.is_lost |= actions.iter().any(|action| matches!(action, AggregationAction::Failed { .. }));
    }

    /// A leader has left the new tree before this one uses it.
    pub(super) fn note_early_position(&mut self, from: Rank, leader_message: &LeaderMessage) {
        let is_known = self.early_positions.iter().any(|(known, _)| *known == from);
        if leader_message.term == self.term && !is_known {
            self.early_positions.push((from, leader_message.clone()));
        }
    }

    pub(super) fn leave(self, tree_edges: &mut TreeEdges) {
        if let Some(TreeStream { state: TreeState::Healthy(membership), .. }) = self.stream.map(|stream| *stream) {
            membership.leave(tree_edges);
        }
    }

    pub(super) fn key(&self) -> Option<GroupKey> {
        self.stream.as_ref().map(|stream| GroupKey { group: stream.opened.group, epoch: stream.opened.epoch })
    }
}
