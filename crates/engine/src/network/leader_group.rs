//! The leaders of one communicator: their operations in order, through a tree or among themselves.
//!
//! In: operations, messages of other leaders, actions of the membership. Out: messages and contributions, and the result of
//! each operation, once. Two streams of operations, each in the same order at every leader: one among the hosts (term 0), one
//! through the tree (term of the tree). When the tree fails, its stream continues among the hosts from the first fragment
//! that any leader lacks, with the fold order of the tree: the same bits. In a tree whose results arrive by multicast,
//! broadcasts may be multicast and barriers polled. Rules: P-59, P-60, P-50 to P-53. `tree_switch` changes to another tree.

use std::collections::VecDeque;
use std::sync::Arc;

use manager::{DistributionSpec, FoldTree, GroupDescriptor};
use protocol::aggregation::{AckBarrierCounter, AggregationAction, OperationMode, OperationStartError};
use protocol::collective::{
    CollectiveOperation, CollectiveSchedule, FoldOrder, FoldTreeNode, ScheduleAction, ScheduleExecutor,
};
use protocol::{BufferPool, Payload};
use units::{Epoch, GroupId, OpId, Rank, Time};

use super::leader_message::{LeaderMessage, LeaderMessageKind};
use super::mesh::Mesh;
use super::operation_map::OperationMap;
use super::streams::StreamTable;
use super::tree_offer::{SwitchEvent, TreeSwitch};
use super::tree_operation::{LeaderNetworkError, OperationHandle, TreeMethod, TreeOperation};
use super::tree_stream::{TreeState, TreeStream};
use crate::aggregation::{Membership, TreeEdgeEvent, TreeEdges};

/// The term of the operations among the hosts.
pub(super) const HOST_STREAM: Epoch = Epoch(0);

/// Results of operations, in the order of completion.
pub(super) type OperationResults = Vec<(OperationHandle, Result<Vec<u8>, LeaderNetworkError>)>;

/// What a group uses of its process.
pub(super) struct GroupIo<'a> {
    pub tree_edges: &'a mut TreeEdges,
    pub mesh: &'a mut Mesh,
    pub streams: &'a mut StreamTable,
    pub results: &'a mut OperationResults,
    pub switch_events: &'a mut Vec<SwitchEvent>,
}

/// An operation that runs among the hosts.
pub(super) struct RunningSchedule {
    pub executor: ScheduleExecutor,
    /// None for a fragment of the tree's stream.
    pub handle: Option<OperationHandle>,
}

/// The leaders of a communicator, as one of them sees it.
pub(super) struct LeaderGroup {
    pub(super) context: GroupId,
    pub(super) leaders: Vec<Rank>,
    pub(super) me: Rank,
    pub(super) next_host_op: OpId,
    pub(super) running: OperationMap<(Epoch, OpId), RunningSchedule>,
    pub(super) early: VecDeque<(Rank, LeaderMessage)>,
    /// The fingerprints of the last operations: a late message with another one shows a mismatch.
    pub(super) recent: VecDeque<((Epoch, OpId), u32)>,
    pub(super) tree: Option<TreeStream>,
    /// The number of trees so far.
    pub(super) trees: u32,
    /// Another tree that was offered after this one failed.
    pub(super) switch: Option<TreeSwitch>,
    pub(super) broken: Option<LeaderNetworkError>,
    /// Empty between calls; keeps its allocation.
    pub(super) schedule_actions: Vec<ScheduleAction>,
    /// The schedules of the last kinds of operations among the hosts: the next one is often like one of them.
    pub(super) schedules: VecDeque<CollectiveSchedule>,
    /// Empty between calls; keeps its allocation.
    pub(super) actions: Vec<AggregationAction>,
}

impl LeaderGroup {
    /// A group without a tree. `me` is the index of this leader.
    pub(super) fn new(context: GroupId, leaders: Vec<Rank>, me: Rank) -> Self {
        Self {
            context,
            leaders,
            me,
            next_host_op: OpId(0),
            running: OperationMap::default(),
            early: VecDeque::new(),
            recent: VecDeque::new(),
            tree: None,
            trees: 0,
            switch: None,
            broken: None,
            schedule_actions: Vec::new(),
            schedules: VecDeque::new(),
            actions: Vec::new(),
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.leaders.len() as u32
    }

    /// Why the group has failed.
    pub(super) fn failure(&self) -> Option<LeaderNetworkError> {
        self.broken
    }

    pub(super) fn leaders(&self) -> &[Rank] {
        &self.leaders
    }

    /// The tree of the group, and whether it is healthy.
    pub(super) fn tree(&self) -> Option<(&GroupDescriptor, bool)> {
        self.tree.as_ref().map(|tree| (&tree.opened, matches!(tree.state, TreeState::Healthy(_))))
    }

    pub(super) fn membership(&self) -> Option<&Membership> {
        match self.tree.as_ref().map(|tree| &tree.state) {
            Some(TreeState::Healthy(membership)) => Some(membership),
            _ => None,
        }
    }

    /// Attaches a tree. All leaders do so between the same two operations, when none is in progress.
    ///
    /// # Errors
    /// If the plan is not for this group.
    pub(super) fn attach_tree(
        &mut self,
        tree_edges: &mut TreeEdges,
        opened: GroupDescriptor,
    ) -> Result<(), LeaderNetworkError> {
        let stream = self.join_tree(tree_edges, opened).ok_or(LeaderNetworkError::ProtocolError)?;
        self.trees += 1;
        self.tree = Some(stream);
        Ok(())
    }

    /// Joins a tree: the stream of its operations. None if the plan is not for this group.
    pub(super) fn join_tree(&self, tree_edges: &mut TreeEdges, opened: GroupDescriptor) -> Option<TreeStream> {
        let order = fold_order(&opened.fold, self.size())?;
        if opened.leaders.len() != self.leaders.len() {
            return None;
        }
        let membership = Membership::join(tree_edges, &opened, self.me.index()).ok()?;
        let can_multicast = matches!(opened.distribution, DistributionSpec::Multicast { .. });
        // One more than the replay log holds, and one for the fragment in flight.
        let pool = BufferPool::new(2 * opened.window as usize + 2);
        Some(TreeStream {
            pool,
            ack_barrier: AckBarrierCounter::new(opened.window).filter(|_| can_multicast),
            opened,
            term: Epoch(self.trees + 1),
            order: Arc::new(order),
            state: TreeState::Healthy(Box::new(membership)),
            next: OpId(0),
            unfinished: VecDeque::new(),
            replay_log: VecDeque::new(),
            operations: VecDeque::new(),
        })
    }

    /// Detaches the tree. All leaders do so between the same two operations, when none is in progress.
    pub(super) fn detach_tree(&mut self, tree_edges: &mut TreeEdges) {
        if let Some(switch) = self.switch.take() {
            switch.leave(tree_edges);
        }
        if let Some(TreeStream { state: TreeState::Healthy(membership), .. }) = self.tree.take() {
            membership.leave(tree_edges);
        }
    }

    /// Starts an operation through the tree.
    pub(super) fn start_in_tree(
        &mut self,
        handle: OperationHandle,
        method: TreeMethod,
        collective: CollectiveOperation,
        data: Vec<u8>,
        group_io: &mut GroupIo<'_>,
    ) {
        if let Some(error) = self.broken {
            return group_io.results.push((handle, Err(error)));
        }
        let tree = self.tree.as_mut().expect("the caller checked that there is a tree");
        let method = if tree.ack_barrier.is_some() { method } else { TreeMethod::Folded };
        let segment_bytes = tree.opened.segment_bytes;
        tree.operations.push_back(TreeOperation::new(Some(handle), method, collective, data, segment_bytes));
        self.issue_fragments(group_io);
    }

    /// No more operations start here: after recent multicasts, a last acknowledgement barrier shows that every leader has them.
    pub(super) fn finish_multicasts(&mut self, group_io: &mut GroupIo<'_>) {
        let is_open = |tree: &&mut TreeStream| tree.ack_barrier.is_some_and(|ack_barrier| ack_barrier.is_open());
        let is_sound = |tree: &&mut TreeStream| matches!(tree.state, TreeState::Healthy(_));
        if let Some(tree) = self.tree.as_mut().filter(is_open).filter(is_sound) {
            tree.operations.push_back(TreeOperation::ack_barrier());
            self.issue_fragments(group_io);
        }
    }

    /// True if no other leader can still need anything from this one through the tree.
    pub(super) fn is_settled(&self) -> bool {
        let has_all =
            |tree: &TreeStream| tree.operations.iter().all(|operation| operation.issued == operation.fragments);
        // Nobody may wait for a decision of a leader that is gone.
        let is_undecided = self.switch.as_ref().is_some_and(|switch| switch.deadline() != Time::NEVER);
        self.broken.is_some()
            || !is_undecided
                && self.membership().is_none_or(|membership| membership.is_settled())
                && self.tree.as_ref().is_none_or(has_all)
    }

    /// Issues as many fragments as the tree accepts, and continues with the next tree where the operations of this one end.
    pub(super) fn issue_fragments(&mut self, group_io: &mut GroupIo<'_>) {
        self.issue_in_current_tree(group_io);
        while self.change_tree(group_io) {
            self.issue_in_current_tree(group_io);
        }
    }

    /// Issues as many fragments as the tree accepts, in order.
    fn issue_in_current_tree(&mut self, group_io: &mut GroupIo<'_>) {
        while self.broken.is_none() {
            let Some(tree) = &mut self.tree else { return };
            let mut operations = tree.operations.iter();
            let Some(place) = operations.position(|operation| operation.issued < operation.fragments) else { return };
            let operation = &mut tree.operations[place];
            if operation.issued == 0 && self.switch.as_ref().is_some_and(|switch| switch.holds_back(tree.next)) {
                return;
            }
            let mut mode = operation.mode(self.me);
            if mode == OperationMode::Multicast && tree.ack_barrier.is_some_and(|ack_barrier| ack_barrier.is_due()) {
                // P-51: between operations as an operation of its own, for which no user waits; within one as an aggregated fragment.
                if operation.issued == 0 {
                    tree.operations.insert(place, TreeOperation::ack_barrier());
                    continue;
                }
                mode = OperationMode::Aggregated;
            }
            if operation.issued == 0 {
                operation.first = tree.next;
            }
            let (contribution, replay_fragment) = operation.contribution(self.me, &mut tree.pool);
            let (op, mut done) = (replay_fragment.op, std::mem::take(&mut self.actions));
            match &mut tree.state {
                TreeState::Healthy(membership) => {
                    match membership.start_with_mode(group_io.tree_edges, contribution, mode, &mut done) {
                        Ok(started) => debug_assert_eq!(started, op),
                        Err(OperationStartError::WindowFull | OperationStartError::OperationsPending) => return,
                        Err(OperationStartError::ParentsLost(cause)) => return self.tree_failed(op, cause, group_io),
                    }
                }
                TreeState::FallingBack { .. } => return,
                // No more at a time than a tree accepts: results arrive in order, and memory is bounded.
                TreeState::FallenBack if tree.unfinished.len() >= tree.opened.window as usize => return,
                TreeState::FallenBack => {}
            }
            operation.issued += 1;
            if let Some(ack_barrier) = &mut tree.ack_barrier {
                match mode {
                    OperationMode::Multicast => ack_barrier.note_multicast(),
                    OperationMode::Aggregated | OperationMode::Polled(_) => ack_barrier.note_contributions(),
                }
            }
            tree.next = op.next();
            tree.unfinished.push_back(op);
            let replayed = matches!(tree.state, TreeState::FallenBack).then(|| replay_fragment.clone());
            tree.replay_log.push_back(replay_fragment);
            if tree.replay_log.len() > 2 * tree.opened.window as usize {
                tree.replay_log.pop_front();
            }
            if let Some(replay_fragment) = replayed {
                self.replay(replay_fragment, group_io);
            }
            self.handle_actions(done, group_io);
        }
    }

    /// Handles what arrived over the tree's edge.
    pub(super) fn handle_tree(&mut self, input: TreeEdgeEvent, group_io: &mut GroupIo<'_>) {
        let mut done = std::mem::take(&mut self.actions);
        if let Some(TreeStream { state: TreeState::Healthy(membership), .. }) = &mut self.tree {
            membership.handle(group_io.tree_edges, input, &mut done);
        } else if let Some(switch) = &mut self.switch {
            switch.handle_tree(input, group_io.tree_edges);
        }
        self.after_tree_actions(done, group_io);
    }

    /// The deadline of the member or of an offered tree has passed.
    pub(super) fn handle_timeout(&mut self, group_io: &mut GroupIo<'_>) {
        self.expire_offer(group_io);
        let mut done = std::mem::take(&mut self.actions);
        if let Some(TreeStream { state: TreeState::Healthy(membership), .. }) = &mut self.tree {
            membership.handle_timeout(group_io.tree_edges, &mut done);
        }
        self.after_tree_actions(done, group_io);
    }

    fn handle_actions(&mut self, mut done: Vec<AggregationAction>, group_io: &mut GroupIo<'_>) {
        for action in done.drain(..) {
            match action {
                AggregationAction::Complete { op, result } => {
                    let term = self.tree.as_ref().map_or(HOST_STREAM, |tree| tree.term);
                    self.finish_fragment(term, op, &result, group_io)
                }
                AggregationAction::Failed { op, cause } => self.tree_failed(op, cause, group_io),
                AggregationAction::Transmit { .. }
                | AggregationAction::Multicast { .. }
                | AggregationAction::Reduced { .. } => {}
            }
        }
        self.actions = done;
    }

    fn after_tree_actions(&mut self, done: Vec<AggregationAction>, group_io: &mut GroupIo<'_>) {
        self.handle_actions(done, group_io);
        if self.membership().is_some_and(Membership::has_lost_multicast) {
            self.fall_back(group_io);
        }
        self.issue_fragments(group_io);
    }

    /// A fragment of the stream with this term is complete.
    pub(super) fn finish_fragment(&mut self, term: Epoch, op: OpId, result: &Payload, group_io: &mut GroupIo<'_>) {
        // A fragment of an earlier tree may be replayed for other leaders when this one has gone on to the next tree.
        let Some(tree) = self.tree.as_mut().filter(|tree| tree.term == term) else { return };
        // This leader already has the result of a fragment that was replayed for others.
        let Some(place) = tree.unfinished.iter().position(|unfinished| *unfinished == op) else { return };
        remove_at(&mut tree.unfinished, place);
        let found = tree.operations.iter().position(|operation| operation.fragment_of(op).is_some());
        let Some(place) = found else { return };
        let operation = &mut tree.operations[place];
        let fragment = operation.fragment_of(op).expect("the operation was found by its fragment");
        if !operation.finish(self.me, fragment, result) {
            return self.fail(LeaderNetworkError::ProtocolError, group_io);
        }
        if operation.finished == operation.fragments
            && let Some(operation) = remove_at(&mut tree.operations, place)
        {
            group_io.results.extend(operation.handle.map(|handle| (handle, Ok(operation.data))));
        }
    }

    /// Handles a message of a leader of this group.
    pub(super) fn handle_message(&mut self, from: Rank, leader_message: LeaderMessage, group_io: &mut GroupIo<'_>) {
        let Some(from) = self.leaders.iter().position(|leader| *leader == from) else { return };
        let from = Rank(from as u32);
        match leader_message.kind {
            LeaderMessageKind::Round(_) => {
                self.handle_round(from, &leader_message, group_io);
                self.issue_fragments(group_io);
            }
            LeaderMessageKind::FallbackPosition => self.handle_position(from, &leader_message, group_io),
            LeaderMessageKind::TreeOffer
            | LeaderMessageKind::SwitchAccept
            | LeaderMessageKind::SwitchReject
            | LeaderMessageKind::SwitchCommit
            | LeaderMessageKind::SwitchAbort => self.handle_switch_message(from, leader_message, group_io),
            LeaderMessageKind::Mismatch => self.fail(LeaderNetworkError::Mismatch, group_io),
        }
    }

    /// The ranks called different operations: reports it to all leaders.
    pub(super) fn report_mismatch(&mut self, term: Epoch, op: OpId, group_io: &mut GroupIo<'_>) {
        let (context, kind) = (self.context, LeaderMessageKind::Mismatch);
        let leader_message = LeaderMessage { context, term, op, kind, fingerprint: 0, payload: Payload::EMPTY };
        self.write_to_all(&leader_message, group_io);
        self.fail(LeaderNetworkError::Mismatch, group_io);
    }

    /// The ranks of this host disagree: reports it to all leaders, once.
    pub(super) fn report_local_mismatch(&mut self, group_io: &mut GroupIo<'_>) {
        if self.broken.is_none() {
            self.report_mismatch(HOST_STREAM, self.next_host_op, group_io);
        }
    }

    pub(super) fn write_to_all(&self, leader_message: &LeaderMessage, group_io: &mut GroupIo<'_>) {
        for leader in self.leaders.iter().filter(|leader| **leader != self.leaders[self.me.index()]) {
            group_io.mesh.write(group_io.tree_edges, *leader, leader_message);
        }
    }

    /// Fails all operations in progress and all later ones.
    pub(super) fn fail(&mut self, error: LeaderNetworkError, group_io: &mut GroupIo<'_>) {
        let error = *self.broken.get_or_insert(error);
        self.early.clear();
        self.drop_switch(group_io);
        for (_, running) in self.running.drain() {
            group_io.results.extend(running.handle.map(|handle| (handle, Err(error))));
        }
        if let Some(tree) = &mut self.tree {
            let handles = tree.operations.drain(..).filter_map(|operation| operation.handle);
            group_io.results.extend(handles.map(|handle| (handle, Err(error))));
            tree.unfinished.clear();
            tree.replay_log.clear();
        }
    }

    /// When the member or an offered tree needs attention at the latest.
    pub(super) fn deadline(&self) -> Time {
        let member = self.membership().map_or(Time::NEVER, Membership::deadline);
        member.min(self.switch.as_ref().map_or(Time::NEVER, TreeSwitch::deadline))
    }

    /// Leaves the tree for good.
    pub(super) fn close(self, tree_edges: &mut TreeEdges) {
        if let Some(switch) = self.switch {
            switch.leave(tree_edges);
        }
        if let Some(TreeStream { state: TreeState::Healthy(membership), .. }) = self.tree {
            membership.leave(tree_edges);
        }
    }
}

/// Removes an element of a queue, most often the first.
fn remove_at<T>(queue: &mut VecDeque<T>, place: usize) -> Option<T> {
    if place == 0 { queue.pop_front() } else { queue.remove(place) }
}

fn fold_order(fold: &FoldTree, size: u32) -> Option<FoldOrder> {
    let order = FoldOrder::from_tree(size, fold, |place| match place {
        FoldTree::Leader(leader) => FoldTreeNode::Rank(Rank(*leader)),
        FoldTree::Fold(parts) => FoldTreeNode::Node(parts.iter().collect()),
    });
    order.ok()
}
