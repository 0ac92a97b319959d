//! What the leaders of a group do when their tree fails: they continue its stream among themselves (P-59, P-60).
//!
//! In: the loss of the tree, positions of other leaders. Out: the position of this leader, and the fragments that any leader
//! lacks, replayed with the fold order of the tree.

use protocol::Payload;
use protocol::aggregation::AbortCause;
use protocol::collective::{CollectiveOperation, CollectiveSchedule, ScheduleExecutor};
use units::{OpId, Rank};

use super::leader_group::{GroupIo, HOST_STREAM, LeaderGroup, RunningSchedule};
use super::leader_message::{LeaderMessage, LeaderMessageKind};
use super::tree_operation::{LeaderNetworkError, ReplayFragment, TreeMethod};
use super::tree_stream::{TreeState, TreeStream};

impl LeaderGroup {
    pub(super) fn tree_failed(&mut self, op: OpId, cause: AbortCause, group_io: &mut GroupIo<'_>) {
        let tree = self.tree.as_ref();
        let operation =
            tree.and_then(|tree| tree.operations.iter().find(|operation| operation.fragment_of(op).is_some()));
        // No node compares multicast or polled fragments: the leader that finds the mismatch reports it.
        let is_unreported = operation.is_none_or(|operation| operation.method == TreeMethod::Multicast);
        match cause {
            AbortCause::Mismatch if is_unreported && self.broken.is_none() => {
                let term = tree.map_or(HOST_STREAM, |tree| tree.term);
                self.report_mismatch(term, op, group_io);
            }
            // A rank that a node does not reach may reach the other ranks. If it has ended, the failure detector names it.
            AbortCause::LostPeer(_) => self.fall_back(group_io),
            AbortCause::Mismatch | AbortCause::Unfoldable => self.fail(LeaderNetworkError::Mismatch, group_io),
            AbortCause::Other(_) => self.fail(LeaderNetworkError::ProtocolError, group_io),
        }
    }

    /// Leaves the failed tree. Reports the position of this leader to the others (P-59).
    pub(super) fn fall_back(&mut self, group_io: &mut GroupIo<'_>) {
        let size = self.leaders.len();
        let Some(tree) = &mut self.tree else { return };
        if self.broken.is_some() || !matches!(tree.state, TreeState::Healthy(_)) {
            return;
        }
        let position = tree.unfinished.front().copied().unwrap_or(tree.next);
        let mut positions = vec![None; size];
        positions[self.me.index()] = Some(position);
        if let TreeState::Healthy(membership) =
            std::mem::replace(&mut tree.state, TreeState::FallingBack { positions })
        {
            membership.leave(group_io.tree_edges);
        }
        let (term, kind) = (tree.term, LeaderMessageKind::FallbackPosition);
        let context = self.context;
        let leader_message =
            LeaderMessage { context, term, op: position, kind, fingerprint: 0, payload: Payload::EMPTY };
        self.write_to_all(&leader_message, group_io);
        self.resume_when_all_reported(group_io);
    }

    /// Another leader leaves the tree, and reports its position.
    pub(super) fn handle_position(&mut self, from: Rank, leader_message: &LeaderMessage, group_io: &mut GroupIo<'_>) {
        if !self.tree.as_ref().is_some_and(|tree| tree.term == leader_message.term) {
            if let Some(switch) = &mut self.switch {
                switch.note_early_position(from, leader_message);
            }
            return;
        }
        self.fall_back(group_io);
        if let Some(TreeStream { state: TreeState::FallingBack { positions }, .. }) = &mut self.tree {
            positions[from.index()].get_or_insert(leader_message.op);
        }
        self.resume_when_all_reported(group_io);
    }

    /// When all leaders have reported, the stream continues from the first fragment that any leader lacks.
    pub(super) fn resume_when_all_reported(&mut self, group_io: &mut GroupIo<'_>) {
        let Some(tree) = &mut self.tree else { return };
        let TreeState::FallingBack { positions } = &tree.state else { return };
        let Some(positions) = positions.iter().copied().collect::<Option<Vec<OpId>>>() else { return };
        let next = tree.next;
        let base = positions.into_iter().min_by_key(|position| position.steps_from(next)).unwrap_or(next);
        tree.state = TreeState::FallenBack;
        let again: Vec<ReplayFragment> = tree
            .replay_log
            .iter()
            .filter(|replay_fragment| replay_fragment.op.steps_from(base) >= 0)
            .cloned()
            .collect();
        // A leader that lacks a fragment keeps the others within the window beyond it.
        if again.len() as i64 != i64::from(next.steps_from(base)).max(0) {
            return self.fail(LeaderNetworkError::ProtocolError, group_io);
        }
        for replay_fragment in again {
            self.replay(replay_fragment, group_io);
        }
        self.issue_fragments(group_io);
    }

    pub(super) fn replay(&mut self, replay_fragment: ReplayFragment, group_io: &mut GroupIo<'_>) {
        let Some(tree) = &self.tree else { return };
        let (algorithm, bytes) = (replay_fragment.algorithm(), replay_fragment.payload.len());
        let (term, order) = (tree.term, tree.order.clone());
        let plan = if algorithm.is_ordered() {
            CollectiveSchedule::ordered(algorithm, replay_fragment.collective, self.me, order, bytes)
        } else {
            CollectiveSchedule::new(algorithm, replay_fragment.collective, self.me, self.size(), bytes)
        };
        let payload = match replay_fragment.collective {
            CollectiveOperation::Barrier => Payload::SizeOnly { bytes },
            _ => replay_fragment.payload,
        };
        match plan.and_then(|plan| ScheduleExecutor::new(plan, payload)) {
            Ok(executor) => {
                self.run_schedule(term, replay_fragment.op, RunningSchedule { executor, handle: None }, group_io)
            }
            Err(_) => self.fail(LeaderNetworkError::Mismatch, group_io),
        }
    }
}
