//! How the leaders of a group whose tree has failed change to another tree (P-111, P-112).
//!
//! In: a tree that the first leader got from the manager. Out: all leaders use it from the same operation on, or none does. The first
//! leader decides, when all leaders have joined the tree and told where their operation in progress ends. Until then a leader begins
//! no further operation, so that the operation from which the tree is used has begun nowhere.

use manager::GroupDescriptor;
use manager::message::GroupKey;
use protocol::Payload;
use units::{Epoch, OpId, Rank, Span, Time};

use super::leader_group::{GroupIo, LeaderGroup};
use super::leader_message::{LeaderMessage, LeaderMessageKind};
use super::tree_offer::{SwitchEvent, SwitchVote, TreeSwitch};
use super::tree_operation::{TreeMethod, TreeOperation};
use super::tree_stream::{TreeState, TreeStream};

/// How long the first leader waits for the others. Those that wait begin no operation meanwhile.
const VOTE_TIMEOUT: Span = Span::from_micros(1_000_000);
/// The leader that asks the manager, and decides.
const DECIDER: Rank = Rank(0);

impl LeaderGroup {
    /// The tree that was offered and is not used yet.
    pub(super) fn offered_tree(&self) -> Option<GroupKey> {
        self.switch.as_ref().and_then(TreeSwitch::key)
    }

    /// At the first leader: offers a tree to all. False, and nothing happens, if the group cannot use it now.
    pub(super) fn offer_tree(
        &mut self,
        now: Time,
        opened: GroupDescriptor,
        description: Vec<u8>,
        group_io: &mut GroupIo<'_>,
    ) -> bool {
        let has_failed = |tree: &TreeStream| matches!(tree.state, TreeState::FallenBack);
        if self.me != DECIDER || self.switch.is_some() || !self.tree.as_ref().is_some_and(has_failed) {
            return false;
        }
        let (term, kind) = (Epoch(self.trees + 1), LeaderMessageKind::TreeOffer);
        let payload = Payload::Bytes(description.into());
        let offer = LeaderMessage { context: self.context, term, op: OpId(0), kind, fingerprint: 0, payload };
        self.write_to_all(&offer, group_io);
        self.switch = Some(TreeSwitch { deadline: now + VOTE_TIMEOUT, ..TreeSwitch::new(term, self.leaders.len()) });
        self.answer_offer(term, Some(opened), group_io);
        true
    }

    /// Joins an offered tree, if it can be understood and its order is that of the failed one, and tells the first leader.
    pub(super) fn answer_offer(&mut self, term: Epoch, opened: Option<GroupDescriptor>, group_io: &mut GroupIo<'_>) {
        if self.broken.is_some() || self.switch.as_ref().is_none_or(|switch| switch.term != term) {
            return; // The offer was withdrawn.
        }
        // P-111: the same order gives the same bits.
        let fits = |opened: &GroupDescriptor| self.tree.as_ref().is_some_and(|tree| tree.opened.fold == opened.fold);
        let stream = opened.filter(fits).and_then(|opened| self.join_tree(group_io.tree_edges, opened));
        let vote = match (&stream, &self.tree) {
            (Some(_), Some(tree)) => SwitchVote::Accept(tree.end_of_current_operation()),
            _ => SwitchVote::Reject,
        };
        if let Some(switch) = &mut self.switch {
            switch.stream = stream.map(Box::new);
        }
        if self.me == DECIDER {
            return self.note_vote(DECIDER, vote, group_io);
        }
        let (kind, op) = match vote {
            SwitchVote::Accept(op) => (LeaderMessageKind::SwitchAccept, op),
            SwitchVote::Reject => (LeaderMessageKind::SwitchReject, OpId(0)),
        };
        let answer = self.switch_message(term, kind, op);
        group_io.mesh.write(group_io.tree_edges, self.leaders[DECIDER.index()], &answer);
    }

    fn switch_message(&self, term: Epoch, kind: LeaderMessageKind, op: OpId) -> LeaderMessage {
        LeaderMessage { context: self.context, term, op, kind, fingerprint: 0, payload: Payload::EMPTY }
    }

    pub(super) fn handle_switch_message(
        &mut self,
        from: Rank,
        leader_message: LeaderMessage,
        group_io: &mut GroupIo<'_>,
    ) {
        let LeaderMessage { term, op, kind, .. } = leader_message;
        if self.broken.is_some() || term != Epoch(self.trees + 1) {
            return; // Of an earlier tree.
        }
        match kind {
            LeaderMessageKind::TreeOffer if from == DECIDER && self.me != DECIDER && self.switch.is_none() => {
                self.switch = Some(TreeSwitch::new(term, self.leaders.len()));
                let description = leader_message.payload.bytes().unwrap_or_default().to_vec();
                group_io.switch_events.push(SwitchEvent::Offered { context: self.context, term, description });
            }
            LeaderMessageKind::SwitchAccept => self.note_vote(from, SwitchVote::Accept(op), group_io),
            LeaderMessageKind::SwitchReject => self.note_vote(from, SwitchVote::Reject, group_io),
            LeaderMessageKind::SwitchCommit if from == DECIDER => self.commit_switch(op, group_io),
            LeaderMessageKind::SwitchAbort if from == DECIDER => self.abort_switch(group_io),
            _ => {}
        }
    }

    /// At the first leader: decides when all have voted.
    fn note_vote(&mut self, from: Rank, vote: SwitchVote, group_io: &mut GroupIo<'_>) {
        if self.me != DECIDER {
            return;
        }
        let Some(switch) = self.switch.as_mut().filter(|switch| switch.begins_at.is_none()) else { return };
        switch.votes[from.index()] = Some(vote);
        if vote == SwitchVote::Reject {
            return self.decide_against(group_io);
        }
        let Some(votes) = switch.votes.iter().copied().collect::<Option<Vec<SwitchVote>>>() else { return };
        let ends = votes.into_iter().filter_map(|vote| match vote {
            SwitchVote::Accept(op) => Some(op),
            SwitchVote::Reject => None,
        });
        let Some(last) = ends.reduce(|last, op| if op.steps_from(last) > 0 { op } else { last }) else { return };
        switch.deadline = Time::NEVER;
        let commit = self.switch_message(Epoch(self.trees + 1), LeaderMessageKind::SwitchCommit, last);
        self.write_to_all(&commit, group_io);
        self.commit_switch(last, group_io);
    }

    /// At the first leader: the offer has taken too long.
    pub(super) fn expire_offer(&mut self, group_io: &mut GroupIo<'_>) {
        let now = group_io.tree_edges.now();
        if self.switch.as_ref().is_some_and(|switch| switch.deadline <= now) {
            self.decide_against(group_io);
        }
    }

    /// At the first leader, before it leaves: nobody may wait for its decision.
    pub(super) fn withdraw_offer(&mut self, group_io: &mut GroupIo<'_>) {
        if self.me == DECIDER && self.switch.as_ref().is_some_and(|switch| switch.begins_at.is_none()) {
            self.decide_against(group_io);
        }
    }

    fn decide_against(&mut self, group_io: &mut GroupIo<'_>) {
        let abort = self.switch_message(Epoch(self.trees + 1), LeaderMessageKind::SwitchAbort, OpId(0));
        self.write_to_all(&abort, group_io);
        self.abort_switch(group_io);
    }

    fn abort_switch(&mut self, group_io: &mut GroupIo<'_>) {
        self.trees += 1; // All leaders count the offers alike.
        self.drop_switch(group_io);
        self.issue_fragments(group_io);
    }

    /// Forgets an offered tree.
    pub(super) fn drop_switch(&mut self, group_io: &mut GroupIo<'_>) {
        let Some(switch) = self.switch.take() else { return };
        if self.me == DECIDER
            && let Some(tree) = switch.key()
        {
            group_io.switch_events.push(SwitchEvent::Rejected { context: self.context, tree });
        }
        switch.leave(group_io.tree_edges);
    }

    fn commit_switch(&mut self, begins_at: OpId, group_io: &mut GroupIo<'_>) {
        if let Some(switch) = self.switch.as_mut().filter(|switch| switch.stream.is_some()) {
            switch.begins_at = Some(begins_at);
            self.issue_fragments(group_io);
        }
    }

    /// The caller knows that a tree has failed, which may be an offered one.
    pub(super) fn lose_tree(&mut self, key: GroupKey, group_io: &mut GroupIo<'_>) {
        match &mut self.switch {
            Some(switch) if switch.key() == Some(key) => switch.is_lost = true,
            _ => self.fall_back(group_io),
        }
    }

    /// Changes to the offered tree if all operations before it are complete here (P-112). True if the group has done so.
    pub(super) fn change_tree(&mut self, group_io: &mut GroupIo<'_>) -> bool {
        let (Some(switch), Some(tree)) = (&self.switch, &self.tree) else { return false };
        let is_complete = matches!(tree.state, TreeState::FallenBack)
            && switch.begins_at == Some(tree.next)
            && tree.unfinished.is_empty()
            && tree.operations.iter().all(|operation| operation.issued == 0);
        if !is_complete || self.broken.is_some() {
            return false;
        }
        let (Some(switch), Some(old)) = (self.switch.take(), self.tree.take()) else { return false };
        let (Some(mut stream), term) = (switch.stream, switch.term) else { return false };
        let to = GroupKey { group: stream.opened.group, epoch: stream.opened.epoch };
        // Acknowledgement barriers of the old tree are not needed: all of its operations are complete.
        let waiting = old.operations.into_iter().filter(|operation| operation.handle.is_some());
        let can_multicast = stream.ack_barrier.is_some();
        let segment_bytes = stream.opened.segment_bytes;
        stream.operations.extend(waiting.map(|operation| {
            let method = if can_multicast { operation.method } else { TreeMethod::Folded };
            TreeOperation::new(operation.handle, method, operation.collective, operation.data, segment_bytes)
        }));
        self.trees = term.0;
        self.tree = Some(*stream);
        if self.me == DECIDER {
            group_io.switch_events.push(SwitchEvent::Switched { context: self.context, to });
        }
        if switch.is_lost {
            self.fall_back(group_io);
        }
        for (from, leader_message) in switch.early_positions {
            self.handle_position(from, &leader_message, group_io);
        }
        true
    }
}
