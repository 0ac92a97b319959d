//! The leaders of one communicator: their operations in order, through a tree or among themselves.
//!
//! In: operations, letters, what the membership tells. Out: letters and contributions, and each operation's end, once.
//! Two streams of operations, each in the same order at every leader: one among the hosts (term 0), one through the tree
//! (term of the tree). When the tree breaks, its stream goes on among the hosts from the first piece that anyone lacks, with
//! the fold order of the tree: the same bits. In a tree whose results come by multicast, broadcasts may be cast and barriers
//! tested. Rules: P-62, P-63, P-94 to P-97.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use manager::{AggregationNodeId, DistributionSpec, FoldTree, GroupDescriptor};
use protocol::aggregation::{AbortCause, AckBarrierCounter, AggregationAction, OperationMode, OperationStartError};
use protocol::collective::{
    CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, FoldOrder, FoldTreeNode, ScheduleAction as Play,
    ScheduleExecutor,
};
use protocol::{BufferPool, Payload};
use units::{Epoch, GroupId, OpId, Rank};

use super::leader_message::{LeaderMessage, LeaderMessageKind};
use super::mesh::Mesh;
use super::tree_operation::{LeaderNetworkError, OperationHandle, ReplayFragment, TreeMethod, TreeOperation};
use crate::aggregation::{Membership, TreeEdgeEvent, TreeEdges};

/// Letters for operations that have not begun here. More than this from peers of our own job is a mistake.
const MAX_EARLY_MESSAGES: usize = 1 << 14;
/// Operations of which it is remembered what they were.
const MAX_RECENT_OPERATIONS: usize = 64;
/// The stream of operations among the hosts.
const HOST_STREAM: Epoch = Epoch(0);

/// The ends of operations, as they come.
pub(super) type OperationResults = Vec<(OperationHandle, Result<Vec<u8>, LeaderNetworkError>)>;

/// What a group needs of the process around it.
pub(super) struct GroupIo<'a> {
    pub wires: &'a mut TreeEdges,
    pub mesh: &'a mut Mesh,
    pub ends: &'a mut OperationResults,
}

struct TreeStream {
    opened: GroupDescriptor,
    /// Which of the group's streams it is: all leaders count its trees alike.
    term: Epoch,
    order: Arc<FoldOrder>,
    state: TreeState,
    /// The number of the next piece.
    next: OpId,
    /// Pieces without a result, in the order of their numbers.
    unfinished: VecDeque<OpId>,
    /// The last pieces, done or not: a leader that has the result of `m` may be asked for `m - window + 1` (P-62).
    kept: VecDeque<ReplayFragment>,
    /// Room for what they brought.
    shelf: BufferPool,
    operations: VecDeque<TreeOperation>,
    /// When all must be heard; none if leaders cannot cast.
    census: Option<AckBarrierCounter>,
}

enum TreeState {
    Sound(Box<Membership>),
    /// The tree is broken; who stands where is being found out.
    Falling {
        stands: Vec<Option<OpId>>,
    },
    /// The hosts play what the tree did.
    Fallen,
}

/// An operation that one leader plays.
struct RunningSchedule {
    player: ScheduleExecutor,
    /// None for a piece of the tree's stream.
    ticket: Option<OperationHandle>,
}

/// The leaders of a communicator, as one of them sees it.
pub(super) struct LeaderGroup {
    context: GroupId,
    leaders: Vec<Rank>,
    me: Rank,
    next_host: OpId,
    playing: BTreeMap<(Epoch, OpId), RunningSchedule>,
    early: VecDeque<(Rank, LeaderMessage)>,
    /// What the last operations were: a letter for one of them that says otherwise comes from a rank that disagrees.
    recent: VecDeque<((Epoch, OpId), u32)>,
    tree: Option<TreeStream>,
    /// Trees so far.
    trees: u32,
    broken: Option<LeaderNetworkError>,
    plays: Vec<Play>,
    /// Room for what the membership tells.
    told: Vec<AggregationAction>,
}

impl LeaderGroup {
    /// A group without a tree. `me` is our place among the leaders.
    pub(super) fn new(context: GroupId, leaders: Vec<Rank>, me: Rank) -> Self {
        Self {
            context,
            leaders,
            me,
            next_host: OpId(0),
            playing: BTreeMap::new(),
            early: VecDeque::new(),
            recent: VecDeque::new(),
            tree: None,
            trees: 0,
            broken: None,
            plays: Vec::new(),
            told: Vec::new(),
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.leaders.len() as u32
    }

    pub(super) fn leaders(&self) -> &[Rank] {
        &self.leaders
    }

    /// The tree that serves the group, and whether it is sound.
    pub(super) fn tree(&self) -> Option<(&GroupDescriptor, bool)> {
        self.tree.as_ref().map(|tree| (&tree.opened, matches!(tree.state, TreeState::Sound(_))))
    }

    pub(super) fn membership(&self) -> Option<&Membership> {
        match self.tree.as_ref().map(|tree| &tree.state) {
            Some(TreeState::Sound(membership)) => Some(membership),
            _ => None,
        }
    }

    /// Uses a tree from now on. All leaders do so between the same two operations, when none is under way.
    ///
    /// # Errors
    /// If the plan is none for this group.
    pub(super) fn plant(&mut self, wires: &mut TreeEdges, opened: GroupDescriptor) -> Result<(), LeaderNetworkError> {
        let order = fold_order(&opened.fold, self.size()).ok_or(LeaderNetworkError::Confused)?;
        let place = opened.leaders.len() == self.leaders.len();
        let membership = Membership::join(wires, &opened, self.me.index()).ok().filter(|_| place);
        let membership = membership.ok_or(LeaderNetworkError::Confused)?;
        self.trees += 1;
        let may_cast = matches!(opened.distribution, DistributionSpec::Multicast { .. });
        // One more than are kept, and one for what is on its way.
        let shelf = BufferPool::new(2 * opened.window as usize + 2);
        self.tree = Some(TreeStream {
            shelf,
            census: AckBarrierCounter::new(opened.window).filter(|_| may_cast),
            opened,
            term: Epoch(self.trees),
            order: Arc::new(order),
            state: TreeState::Sound(Box::new(membership)),
            next: OpId(0),
            unfinished: VecDeque::new(),
            kept: VecDeque::new(),
            operations: VecDeque::new(),
        });
        Ok(())
    }

    /// Does without its tree again. All leaders do so between the same two operations, when none is under way.
    pub(super) fn uproot(&mut self, wires: &mut TreeEdges) {
        if let Some(TreeStream { state: TreeState::Sound(membership), .. }) = self.tree.take() {
            membership.leave(wires);
        }
    }

    /// Starts an operation among the hosts.
    pub(super) fn start_among_hosts(
        &mut self,
        ticket: OperationHandle,
        algorithm: CollectiveAlgorithm,
        collective: CollectiveOperation,
        data: Vec<u8>,
        around: &mut GroupIo<'_>,
    ) {
        if let Some(error) = self.broken {
            return around.ends.push((ticket, Err(error)));
        }
        let op = self.next_host;
        self.next_host = op.next();
        let contributes = match collective {
            CollectiveOperation::Broadcast { root } => root == self.me,
            CollectiveOperation::Barrier => false,
            _ => true,
        };
        let bytes = data.len() as u32;
        let payload = if contributes { Payload::Bytes(data.into()) } else { Payload::Absent { bytes } };
        let player = CollectiveSchedule::new(algorithm, collective, self.me, self.size(), bytes)
            .and_then(|plan| ScheduleExecutor::new(plan, payload));
        match player {
            Ok(player) => self.play(HOST_STREAM, op, RunningSchedule { player, ticket: Some(ticket) }, around),
            Err(_) => self.break_with(LeaderNetworkError::Disagree, around),
        }
    }

    /// Starts an operation through the tree.
    pub(super) fn start_in_tree(
        &mut self,
        ticket: OperationHandle,
        way: TreeMethod,
        collective: CollectiveOperation,
        data: Vec<u8>,
        around: &mut GroupIo<'_>,
    ) {
        if let Some(error) = self.broken {
            return around.ends.push((ticket, Err(error)));
        }
        let tree = self.tree.as_mut().expect("the caller has seen it");
        let way = if tree.census.is_some() { way } else { TreeMethod::Folded };
        let segment_bytes = tree.opened.segment_bytes;
        tree.operations.push_back(TreeOperation::new(Some(ticket), way, collective, data, segment_bytes));
        self.pump(around);
    }

    /// Nobody here starts anything any more: if there were casts of late, a last census shows that everyone has them.
    pub(super) fn conclude(&mut self, around: &mut GroupIo<'_>) {
        let is_open = |tree: &&mut TreeStream| tree.census.is_some_and(|census| census.is_open());
        let is_sound = |tree: &&mut TreeStream| matches!(tree.state, TreeState::Sound(_));
        if let Some(tree) = self.tree.as_mut().filter(is_open).filter(is_sound) {
            tree.operations.push_back(TreeOperation::census());
            self.pump(around);
        }
    }

    /// True if nobody can still need anything of this leader, as far as the tree goes.
    pub(super) fn is_settled(&self) -> bool {
        let has_all =
            |tree: &TreeStream| tree.operations.iter().all(|operation| operation.issued == operation.pieces);
        self.broken.is_some()
            || self.membership().is_none_or(|membership| membership.is_settled())
                && self.tree.as_ref().is_none_or(has_all)
    }

    /// Gives the tree as many pieces as it takes, in order.
    fn pump(&mut self, around: &mut GroupIo<'_>) {
        while self.broken.is_none() {
            let Some(tree) = &mut self.tree else { return };
            let mut operations = tree.operations.iter();
            let Some(place) = operations.position(|operation| operation.issued < operation.pieces) else { return };
            let operation = &mut tree.operations[place];
            let mut manner = operation.manner(self.me);
            if manner == OperationMode::Cast && tree.census.is_some_and(|census| census.is_due()) {
                // P-95: between operations as one of its own, for which nobody waits; within one as a piece that is folded.
                if operation.issued == 0 {
                    tree.operations.insert(place, TreeOperation::census());
                    continue;
                }
                manner = OperationMode::Folded;
            }
            if operation.issued == 0 {
                operation.first = tree.next;
            }
            let (contribution, kept) = operation.contribution(self.me, &mut tree.shelf);
            let (op, mut done) = (kept.op, std::mem::take(&mut self.told));
            match &mut tree.state {
                TreeState::Sound(membership) => {
                    match membership.start_as(around.wires, contribution, manner, &mut done) {
                        Ok(started) => debug_assert_eq!(started, op),
                        Err(OperationStartError::WindowFull | OperationStartError::Behind) => return,
                        Err(OperationStartError::NoWayUp(cause)) => return self.tree_failed(op, cause, around),
                    }
                }
                TreeState::Falling { .. } => return,
                // No more at a time than a tree would take: results come in order, and memory is bounded.
                TreeState::Fallen if tree.unfinished.len() >= tree.opened.window as usize => return,
                TreeState::Fallen => {}
            }
            operation.issued += 1;
            if let Some(census) = &mut tree.census {
                match manner {
                    OperationMode::Cast => census.note_cast(),
                    OperationMode::Folded | OperationMode::Tested(_) => census.note_contributions(),
                }
            }
            tree.next = op.next();
            tree.unfinished.push_back(op);
            let played = matches!(tree.state, TreeState::Fallen).then(|| kept.clone());
            tree.kept.push_back(kept);
            if tree.kept.len() > 2 * tree.opened.window as usize {
                tree.kept.pop_front();
            }
            if let Some(kept) = played {
                self.play_kept(kept, around);
            }
            self.hear(done, around);
        }
    }

    /// Takes what came over the tree's edge.
    pub(super) fn handle_tree(&mut self, input: TreeEdgeEvent, around: &mut GroupIo<'_>) {
        let mut done = std::mem::take(&mut self.told);
        if let Some(TreeStream { state: TreeState::Sound(membership), .. }) = &mut self.tree {
            membership.handle(around.wires, input, &mut done);
        }
        self.tree_told(done, around);
    }

    /// The member's time has come.
    pub(super) fn handle_timeout(&mut self, around: &mut GroupIo<'_>) {
        let mut done = std::mem::take(&mut self.told);
        if let Some(TreeStream { state: TreeState::Sound(membership), .. }) = &mut self.tree {
            membership.handle_timeout(around.wires, &mut done);
        }
        self.tree_told(done, around);
    }

    fn hear(&mut self, mut done: Vec<AggregationAction>, around: &mut GroupIo<'_>) {
        for duty in done.drain(..) {
            match duty {
                AggregationAction::Complete { op, result } => self.finish_piece(op, &result, around),
                AggregationAction::Failed { op, cause } => self.tree_failed(op, cause, around),
                AggregationAction::Transmit { .. }
                | AggregationAction::Multicast { .. }
                | AggregationAction::Reduced { .. } => {}
            }
        }
        self.told = done;
    }

    fn tree_told(&mut self, done: Vec<AggregationAction>, around: &mut GroupIo<'_>) {
        self.hear(done, around);
        if self.membership().is_some_and(Membership::is_deaf) {
            self.fall(around);
        }
        self.pump(around);
    }

    fn finish_piece(&mut self, op: OpId, result: &Payload, around: &mut GroupIo<'_>) {
        let Some(tree) = &mut self.tree else { return };
        // What was played again for others is known here already.
        let Some(place) = tree.unfinished.iter().position(|unfinished| *unfinished == op) else { return };
        take_at(&mut tree.unfinished, place);
        let found = tree.operations.iter().position(|operation| operation.piece_of(op).is_some());
        let Some(place) = found else { return };
        let operation = &mut tree.operations[place];
        let piece = operation.piece_of(op).expect("just found");
        if !operation.finish(self.me, piece, result) {
            return self.break_with(LeaderNetworkError::Confused, around);
        }
        if operation.finished == operation.pieces
            && let Some(operation) = take_at(&mut tree.operations, place)
        {
            around.ends.extend(operation.ticket.map(|ticket| (ticket, Ok(operation.data))));
        }
    }

    fn tree_failed(&mut self, op: OpId, cause: AbortCause, around: &mut GroupIo<'_>) {
        let tree = self.tree.as_ref();
        let operation =
            tree.and_then(|tree| tree.operations.iter().find(|operation| operation.piece_of(op).is_some()));
        // Of what is cast or tested no node hears: whoever finds out tells the others.
        let is_news = operation.is_none_or(|operation| operation.way == TreeMethod::Multicast);
        match cause {
            AbortCause::Mismatch if is_news && self.broken.is_none() => {
                let term = tree.map_or(HOST_STREAM, |tree| tree.term);
                self.disagree(term, op, around);
            }
            AbortCause::LostPeer(peer) if AggregationNodeId::from_peer(peer).is_some() => self.fall(around),
            AbortCause::LostPeer(rank) => self.break_with(LeaderNetworkError::RankLost(Rank(rank)), around),
            AbortCause::Mismatch | AbortCause::Unfoldable => self.break_with(LeaderNetworkError::Disagree, around),
            AbortCause::Other(_) => self.break_with(LeaderNetworkError::Confused, around),
        }
    }

    /// Leaves the tree: it is broken. Tells the others where we stand (P-62).
    pub(super) fn fall(&mut self, around: &mut GroupIo<'_>) {
        let size = self.leaders.len();
        let Some(tree) = &mut self.tree else { return };
        if self.broken.is_some() || !matches!(tree.state, TreeState::Sound(_)) {
            return;
        }
        let stand = tree.unfinished.front().copied().unwrap_or(tree.next);
        let mut stands = vec![None; size];
        stands[self.me.index()] = Some(stand);
        if let TreeState::Sound(membership) = std::mem::replace(&mut tree.state, TreeState::Falling { stands }) {
            membership.leave(around.wires);
        }
        let (term, subject) = (tree.term, LeaderMessageKind::Stand);
        let context = self.context;
        let letter = LeaderMessage { context, term, op: stand, subject, fingerprint: 0, payload: Payload::EMPTY };
        self.write_to_all(&letter, around);
        self.settle(around);
    }

    /// When all have said where they stand, the stream goes on from the first piece that anyone lacks.
    fn settle(&mut self, around: &mut GroupIo<'_>) {
        let Some(tree) = &mut self.tree else { return };
        let TreeState::Falling { stands } = &tree.state else { return };
        let Some(stands) = stands.iter().copied().collect::<Option<Vec<OpId>>>() else { return };
        let next = tree.next;
        let base = stands.into_iter().min_by_key(|stand| stand.steps_from(next)).unwrap_or(next);
        tree.state = TreeState::Fallen;
        let again: Vec<ReplayFragment> =
            tree.kept.iter().filter(|kept| kept.op.steps_from(base) >= 0).cloned().collect();
        // Whoever lacks a piece has not let the others go further than the window beyond it.
        if again.len() as i64 != i64::from(next.steps_from(base)).max(0) {
            return self.break_with(LeaderNetworkError::Confused, around);
        }
        for kept in again {
            self.play_kept(kept, around);
        }
        self.pump(around);
    }

    fn play_kept(&mut self, kept: ReplayFragment, around: &mut GroupIo<'_>) {
        let Some(tree) = &self.tree else { return };
        let (algorithm, bytes) = (kept.algorithm(), kept.payload.len());
        let (term, order) = (tree.term, tree.order.clone());
        let plan = if algorithm.is_ordered() {
            CollectiveSchedule::ordered(algorithm, kept.collective, self.me, order, bytes)
        } else {
            CollectiveSchedule::new(algorithm, kept.collective, self.me, self.size(), bytes)
        };
        let payload = match kept.collective {
            CollectiveOperation::Barrier => Payload::Absent { bytes },
            _ => kept.payload,
        };
        match plan.and_then(|plan| ScheduleExecutor::new(plan, payload)) {
            Ok(player) => self.play(term, kept.op, RunningSchedule { player, ticket: None }, around),
            Err(_) => self.break_with(LeaderNetworkError::Disagree, around),
        }
    }

    /// Plays an operation, beginning with what has come early.
    fn play(&mut self, term: Epoch, op: OpId, mut playing: RunningSchedule, around: &mut GroupIo<'_>) {
        playing.player.start(&mut self.plays);
        self.playing.insert((term, op), playing);
        self.carry_out(term, op, around);
        let is_for = |letter: &LeaderMessage| (letter.term, letter.op) == (term, op);
        let mut waiting = std::mem::take(&mut self.early);
        waiting.retain(|(from, letter)| {
            let fits = is_for(letter);
            if fits {
                self.handle_round(*from, letter, around);
            }
            !fits
        });
        self.early.append(&mut waiting);
    }

    fn carry_out(&mut self, term: Epoch, op: OpId, around: &mut GroupIo<'_>) {
        let Some(playing) = self.playing.get(&(term, op)) else { return };
        let fingerprint = playing.player.plan().fingerprint();
        for play in std::mem::take(&mut self.plays) {
            match play {
                Play::Send { to, round, payload } => {
                    let subject = LeaderMessageKind::Round(round as u16);
                    let letter = LeaderMessage { context: self.context, term, op, subject, fingerprint, payload };
                    around.mesh.write(around.wires, self.leaders[to.index()], &letter);
                }
                Play::Complete { result } => {
                    let Some(playing) = self.playing.remove(&(term, op)) else { continue };
                    self.recent.push_back(((term, op), fingerprint));
                    if self.recent.len() > MAX_RECENT_OPERATIONS {
                        self.recent.pop_front();
                    }
                    match playing.ticket {
                        Some(ticket) => {
                            let result = result.bytes().map(<[u8]>::to_vec).unwrap_or_default();
                            around.ends.push((ticket, Ok(result)));
                        }
                        None => self.finish_piece(op, &result, around),
                    }
                }
                Play::Failed { .. } => self.disagree(term, op, around),
            }
        }
    }

    /// A leader of this group has written.
    pub(super) fn handle_letter(&mut self, from: Rank, letter: LeaderMessage, around: &mut GroupIo<'_>) {
        let Some(from) = self.leaders.iter().position(|leader| *leader == from) else { return };
        let from = Rank(from as u32);
        match letter.subject {
            LeaderMessageKind::Round(_) => {
                self.handle_round(from, &letter, around);
                self.pump(around);
            }
            LeaderMessageKind::Stand => {
                if self.tree.as_ref().is_some_and(|tree| tree.term == letter.term) {
                    self.fall(around);
                    if let Some(TreeStream { state: TreeState::Falling { stands }, .. }) = &mut self.tree {
                        stands[from.index()].get_or_insert(letter.op);
                    }
                    self.settle(around);
                }
            }
            LeaderMessageKind::Disagree => self.break_with(LeaderNetworkError::Disagree, around),
        }
    }

    fn handle_round(&mut self, from: Rank, letter: &LeaderMessage, around: &mut GroupIo<'_>) {
        let LeaderMessageKind::Round(round) = letter.subject else { return };
        let (term, op) = (letter.term, letter.op);
        let Some(playing) = self.playing.get_mut(&(term, op)) else {
            if self.may_begin(term, op) && self.early.len() < MAX_EARLY_MESSAGES {
                self.early.push_back((from, letter.clone()));
            } else if self.recent.iter().any(|(name, was)| *name == (term, op) && *was != letter.fingerprint) {
                self.disagree(term, op, around);
            }
            return;
        };
        if playing.player.plan().fingerprint() != letter.fingerprint {
            return self.disagree(term, op, around);
        }
        playing.player.handle_message(from, u32::from(round), letter.payload.clone(), &mut self.plays);
        self.carry_out(term, op, around);
    }

    /// True if an operation may yet begin here.
    fn may_begin(&self, term: Epoch, op: OpId) -> bool {
        if term == HOST_STREAM {
            return op.steps_from(self.next_host) >= 0;
        }
        match &self.tree {
            Some(tree) if tree.term == term => {
                op.steps_from(tree.next) >= 0 || !matches!(tree.state, TreeState::Fallen)
            }
            // Of a tree that the others have and we have not yet heard of.
            _ => term.0 > self.trees,
        }
    }

    /// The ranks do not do the same: everyone must hear it.
    fn disagree(&mut self, term: Epoch, op: OpId, around: &mut GroupIo<'_>) {
        let (context, subject) = (self.context, LeaderMessageKind::Disagree);
        let letter = LeaderMessage { context, term, op, subject, fingerprint: 0, payload: Payload::EMPTY };
        self.write_to_all(&letter, around);
        self.break_with(LeaderNetworkError::Disagree, around);
    }

    /// Ranks behind this leader disagree: everyone must hear it, once.
    pub(super) fn disagree_for_others(&mut self, around: &mut GroupIo<'_>) {
        if self.broken.is_none() {
            self.disagree(HOST_STREAM, self.next_host, around);
        }
    }

    fn write_to_all(&self, letter: &LeaderMessage, around: &mut GroupIo<'_>) {
        for leader in self.leaders.iter().filter(|leader| **leader != self.leaders[self.me.index()]) {
            around.mesh.write(around.wires, *leader, letter);
        }
    }

    /// Nothing can be done together any more: whatever is under way fails, and whatever comes.
    pub(super) fn break_with(&mut self, error: LeaderNetworkError, around: &mut GroupIo<'_>) {
        let error = *self.broken.get_or_insert(error);
        self.early.clear();
        for (_, playing) in std::mem::take(&mut self.playing) {
            around.ends.extend(playing.ticket.map(|ticket| (ticket, Err(error))));
        }
        if let Some(tree) = &mut self.tree {
            let tickets = tree.operations.drain(..).filter_map(|operation| operation.ticket);
            around.ends.extend(tickets.map(|ticket| (ticket, Err(error))));
            tree.unfinished.clear();
            tree.kept.clear();
        }
    }

    /// Leaves the tree, for good.
    pub(super) fn close(self, wires: &mut TreeEdges) {
        if let Some(TreeStream { state: TreeState::Sound(membership), .. }) = self.tree {
            membership.leave(wires);
        }
    }
}

/// Takes one out of a queue: most often the first.
fn take_at<T>(queue: &mut VecDeque<T>, place: usize) -> Option<T> {
    if place == 0 { queue.pop_front() } else { queue.remove(place) }
}

fn fold_order(fold: &FoldTree, size: u32) -> Option<FoldOrder> {
    let order = FoldOrder::from_tree(size, fold, |place| match place {
        FoldTree::Leader(leader) => FoldTreeNode::Rank(Rank(*leader)),
        FoldTree::Fold(parts) => FoldTreeNode::Node(parts.iter().collect()),
    });
    order.ok()
}
