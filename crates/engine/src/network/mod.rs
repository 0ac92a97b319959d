//! The network side of a process: its sockets, its connections to other processes, its memberships in trees.
//!
//! In: operations among the leaders of hosts; packets and time from the kernel. Out: packets, and the result of each
//! operation. Nothing blocks: [`LeaderNetwork::turn`] does what can be done now.

mod host_schedule;
mod leader_group;
mod leader_message;
mod mesh;
mod operation_map;
mod streams;
#[cfg(test)]
mod tests;
mod tree_fallback;
mod tree_offer;
mod tree_operation;
mod tree_stream;
mod tree_switch;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use manager::GroupDescriptor;
use manager::message::GroupKey;
use protocol::collective::{CollectiveAlgorithm, InterHostMethod, ScheduledCollective};
use units::{Epoch, GroupId, QpNumber, Rank, Span, Time};

pub use mesh::MeshConfig;
pub use streams::StreamBuffers;
pub use tree_offer::SwitchEvent;
pub use tree_operation::{LeaderNetworkError, OperationHandle};

use crate::aggregation::{Membership, MulticastSocket, ReadySockets, TreeEdgeCounters, TreeEdgeEvent, TreeEdges};
use leader_group::{GroupIo, LeaderGroup, OperationResults};
use leader_message::{LeaderMessage, LeaderMessageKind};
use mesh::{Mesh, MeshEvent, mesh_rank};
use streams::{StreamTable, WholeMessage};
use transport::Clock;
use transport::edges::TransferSink as _;
use transport::timer_queue::TimerQueue;
use tree_operation::TreeMethod;

/// Messages for groups that this process has not entered yet.
const MAX_UNCLAIMED_MESSAGES: usize = 1 << 12;

/// How long a process that has all its results still acknowledges retransmissions: the last message or its acknowledgement
/// may have been lost.
pub const LINGER: Duration = Duration::from_millis(200);

/// How long a process keeps unacknowledged multicasts after it left their group.
pub const MAX_LINGER: Duration = Duration::from_secs(10);

fn span(duration: Duration) -> Span {
    Span::from_nanos(duration.as_nanos() as u64)
}

/// A group that this process has left.
#[derive(Clone, Copy, Debug)]
struct LingeringGroup {
    since: Time,
    /// It answers until then, and longer if a peer may still miss something.
    until: Time,
    context: GroupId,
}

/// The owner of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TimerOwner {
    Peer(Rank),
    Group(GroupId),
    Streams,
}

/// The network side of a process.
pub struct LeaderNetwork {
    tree_edges: TreeEdges,
    mesh: Option<Mesh>,
    groups: BTreeMap<GroupId, LeaderGroup>,
    /// Operations on long vectors.
    streams: StreamTable,
    /// The group of each edge.
    edges: BTreeMap<QpNumber, GroupId>,
    /// The group of each tree, by the tree's identity at the manager.
    trees: BTreeMap<GroupId, GroupId>,
    timers: TimerQueue<TimerOwner>,
    inputs: Vec<TreeEdgeEvent>,
    events: Vec<MeshEvent>,
    results: OperationResults,
    switch_events: Vec<SwitchEvent>,
    /// Sorted by handle: most are taken as soon as they are complete.
    done: OperationResults,
    /// Messages that arrived before this process entered their group.
    unclaimed: Vec<(Rank, LeaderMessage)>,
    /// Groups that were left and still answer.
    lingering: VecDeque<LingeringGroup>,
    /// Groups that are closed and not reported yet.
    closed: Vec<GroupId>,
    lost: Option<Rank>,
    /// Groups that have failed and are not reported yet.
    failed: Vec<(GroupId, LeaderNetworkError)>,
    next_handle: u64,
}

impl LeaderNetwork {
    /// Opens a socket at each address.
    ///
    /// # Errors
    /// If the kernel does not bind an address.
    pub fn open(addresses: &[SocketAddr], fault_injector: transport::udp::FaultInjector) -> io::Result<Self> {
        Ok(Self {
            tree_edges: TreeEdges::open(addresses, fault_injector)?,
            mesh: None,
            groups: BTreeMap::new(),
            streams: StreamTable::default(),
            edges: BTreeMap::new(),
            trees: BTreeMap::new(),
            timers: TimerQueue::default(),
            inputs: Vec::new(),
            events: Vec::new(),
            results: Vec::new(),
            switch_events: Vec::new(),
            done: Vec::new(),
            unclaimed: Vec::new(),
            lingering: VecDeque::new(),
            closed: Vec::new(),
            lost: None,
            failed: Vec::new(),
            next_handle: 0,
        })
    }

    /// From now on, payloads leave and arrive encrypted only (P-125).
    pub fn encrypt_payloads(&mut self) {
        self.tree_edges.encrypt_payloads();
    }

    /// The bound addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.tree_edges.addresses()
    }

    /// The clock of the machines.
    pub fn clock(&self) -> Clock {
        self.tree_edges.clock()
    }

    /// When the network did something last.
    pub fn now(&self) -> Time {
        self.tree_edges.now()
    }

    /// Packets counted so far.
    pub fn counters(&self) -> TreeEdgeCounters {
        self.tree_edges.counters()
    }

    /// Sets the addresses of all ranks. Must come before the first group.
    pub fn connect_mesh(&mut self, config: MeshConfig) {
        let mesh = Mesh::new(config);
        mesh.add_edges(&mut self.tree_edges);
        self.mesh = Some(mesh);
    }

    /// Enters a group of leaders, without a tree. The context identifies the group among all groups of the job that share two
    /// leaders; `me` is the index of this leader.
    ///
    /// # Panics
    /// If [`Self::connect_mesh`] was not called, or the context is in use.
    pub fn enter(&mut self, context: GroupId, leaders: Vec<Rank>, me: Rank) {
        assert!(self.mesh.is_some(), "connect_mesh comes before the first group");
        self.streams.open_group(context);
        let before = self.groups.insert(context, LeaderGroup::new(context, leaders, me));
        assert!(before.is_none(), "{context:?} is in use");
        if let Some(lost) = self.lost {
            self.rank_lost(lost);
        }
        let (ours, others) = std::mem::take(&mut self.unclaimed)
            .into_iter()
            .partition(|(_, leader_message)| leader_message.context == context);
        self.unclaimed = others;
        for (from, leader_message) in ours {
            self.with_group(context, |group, group_io| group.handle_message(from, leader_message, group_io));
        }
    }

    /// Leaves a group. It stays for [`LINGER`], because other leaders may still need its answers.
    pub fn leave(&mut self, context: GroupId) {
        if self.groups.contains_key(&context) {
            self.with_group(context, LeaderGroup::withdraw_offer);
            self.with_group(context, LeaderGroup::finish_multicasts);
            self.tree_edges.flush();
            let now = self.tree_edges.clock().now();
            self.lingering.push_back(LingeringGroup { since: now, until: now + span(LINGER), context });
        }
    }

    /// A group that is closed after it was left.
    pub fn next_closed_group(&mut self) -> Option<GroupId> {
        self.closed.pop()
    }

    /// True if every process has acknowledged all messages.
    pub fn is_drained(&self) -> bool {
        self.streams.is_drained()
            && self.mesh.as_ref().is_none_or(Mesh::is_drained)
            && self.groups.values().all(LeaderGroup::is_settled)
    }

    #[cold]
    fn close_lingering(&mut self, now: Time) {
        while self.lingering.front().is_some_and(|left| left.until <= now) {
            let Some(left) = self.lingering.pop_front() else { return };
            let context = left.context;
            let is_settled = self.groups.get(&context).is_none_or(LeaderGroup::is_settled);
            if !is_settled && now.since(left.since) < span(MAX_LINGER) {
                self.lingering.push_back(LingeringGroup { until: now + span(LINGER), ..left });
                continue;
            }
            if let Some(group) = self.groups.remove(&context) {
                self.edges.retain(|_, owner| *owner != context);
                self.trees.retain(|_, owner| *owner != context);
                self.timers.cancel(TimerOwner::Group(context));
                self.streams.close_group(context);
                group.close(&mut self.tree_edges);
                self.closed.push(context);
            }
        }
    }

    /// Attaches a tree to a group. All leaders do so between the same two operations, when none is in progress.
    ///
    /// # Errors
    /// If the plan is not for this group.
    pub fn attach_tree(&mut self, context: GroupId, opened: GroupDescriptor) -> Result<(), LeaderNetworkError> {
        let group = self.groups.get_mut(&context).ok_or(LeaderNetworkError::ProtocolError)?;
        self.trees.insert(opened.group, context);
        group.attach_tree(&mut self.tree_edges, opened)?;
        if let Some(membership) = group.membership() {
            self.edges.insert(membership.edge(), context);
        }
        Ok(())
    }

    /// Detaches the tree of a group. All leaders do so between the same two operations, when none is in progress.
    pub fn detach_tree(&mut self, context: GroupId) {
        if let Some(group) = self.groups.get_mut(&context) {
            group.detach_tree(&mut self.tree_edges);
            self.edges.retain(|_, owner| *owner != context);
            self.trees.retain(|_, owner| *owner != context);
        }
    }

    /// The multicasts that a group has received.
    pub fn multicasts_received(&self, context: GroupId) -> u64 {
        self.groups.get(&context).and_then(LeaderGroup::membership).map_or(0, Membership::multicasts_received)
    }

    /// The tree of a group, and whether it is healthy.
    pub fn tree(&self, context: GroupId) -> Option<(&GroupDescriptor, bool)> {
        self.groups.get(&context)?.tree()
    }

    /// The caller knows that the tree of a group has failed.
    pub fn tree_lost(&mut self, key: GroupKey) {
        let found = self.groups.iter().find(|(_, group)| {
            group.tree().is_some_and(|(opened, _)| (opened.group, opened.epoch) == (key.group, key.epoch))
                || group.offered_tree() == Some(key)
        });
        if let Some(context) = found.map(|(context, _)| *context) {
            self.with_group(context, |group, group_io| group.lose_tree(key, group_io));
        }
    }

    /// True if [`Self::offer_tree`] could be used for a group.
    pub fn needs_tree(&self, context: GroupId) -> bool {
        let has_left = self.lingering.iter().any(|group| group.context == context);
        !has_left && self.groups.get(&context).is_some_and(LeaderGroup::needs_tree)
    }

    /// At the first leader of a group whose tree has failed: offers another tree to all leaders (P-111). They get `description`, from
    /// which they must make the same descriptor. False, and nothing happens, if the group cannot use a tree now.
    pub fn offer_tree(&mut self, context: GroupId, opened: GroupDescriptor, description: Vec<u8>) -> bool {
        if !self.needs_tree(context) {
            return false;
        }
        let now = self.tree_edges.clock().now();
        let mut is_offered = false;
        self.with_staged_tree(context, Some(opened), |group, opened, group_io| {
            is_offered = opened.is_some_and(|opened| group.offer_tree(now, opened, description, group_io));
        });
        is_offered
    }

    /// Answers [`SwitchEvent::Offered`]; none if the description makes no sense.
    pub fn answer_offer(&mut self, context: GroupId, term: Epoch, opened: Option<GroupDescriptor>) {
        self.with_staged_tree(context, opened, |group, opened, group_io| group.answer_offer(term, opened, group_io));
    }

    /// What happened about offered trees.
    pub fn next_switch_event(&mut self) -> Option<SwitchEvent> {
        (!self.switch_events.is_empty()).then(|| self.switch_events.remove(0))
    }

    /// Runs a step of a group that may join a tree, and notes whose packets those of the tree are.
    fn with_staged_tree(
        &mut self,
        context: GroupId,
        opened: Option<GroupDescriptor>,
        act: impl FnOnce(&mut LeaderGroup, Option<GroupDescriptor>, &mut GroupIo<'_>),
    ) {
        let attached = self.groups.get(&context).and_then(|group| {
            let opened = opened.as_ref()?;
            let edge = opened.leaders.get(group.me.index())?.edge;
            Some((edge, GroupKey { group: opened.group, epoch: opened.epoch }))
        });
        self.with_group(context, |group, group_io| act(group, opened, group_io));
        let has_joined = |key: GroupKey| {
            let group = self.groups.get(&context);
            let is_used = |group: &LeaderGroup| {
                group.tree().is_some_and(|(opened, _)| (opened.group, opened.epoch) == (key.group, key.epoch))
            };
            group.is_some_and(|group| group.offered_tree() == Some(key) || is_used(group))
        };
        if let Some((edge, key)) = attached.filter(|(_, key)| has_joined(*key)) {
            self.edges.retain(|_, owner| *owner != context); // Of the failed tree.
            self.trees.retain(|_, owner| *owner != context);
            self.edges.insert(edge, context);
            self.trees.insert(key.group, context);
        }
        self.tree_edges.flush();
    }

    /// The caller knows that a rank is lost: every group with it fails.
    pub fn rank_lost(&mut self, rank: Rank) {
        self.fail_groups_of(rank, LeaderNetworkError::RankLost(rank));
    }

    fn fail_groups_of(&mut self, rank: Rank, error: LeaderNetworkError) {
        self.lost.get_or_insert(rank);
        if let Some(mesh) = &mut self.mesh {
            mesh.lose(rank);
        }
        self.streams.release(rank);
        let contexts: Vec<GroupId> = self
            .groups
            .iter()
            .filter(|(_, group)| group.leaders().contains(&rank))
            .map(|(context, _)| *context)
            .collect();
        for context in contexts {
            self.fail_group(context, error);
        }
    }

    /// Fails a group, and reports it: no operation may be in flight here that would return the error, while another rank waits for
    /// this one.
    fn fail_group(&mut self, context: GroupId, error: LeaderNetworkError) {
        if self.groups.get(&context).is_some_and(|group| group.failure().is_none()) {
            self.failed.push((context, error));
        }
        self.with_group(context, |group, group_io| group.fail(error, group_io));
    }

    /// A group that has failed.
    pub fn next_failed_group(&mut self) -> Option<(GroupId, LeaderNetworkError)> {
        self.failed.pop()
    }

    /// The caller knows that a rank has left with all its results.
    pub fn rank_left(&mut self, rank: Rank) {
        if let Some(mesh) = &mut self.mesh {
            mesh.release(rank);
        }
        self.streams.release(rank);
    }

    /// The ranks of this host disagree on an operation: all leaders must learn of it.
    pub fn report_mismatch(&mut self, context: GroupId) {
        self.with_group(context, LeaderGroup::report_local_mismatch);
        self.tree_edges.flush();
    }

    /// Starts an operation among the leaders of a group; roots are indexes among them. All leaders start the same operations in
    /// the same order by the same method. The data returns with the result, or the part of it that is this leader's.
    pub fn start(
        &mut self,
        context: GroupId,
        method: InterHostMethod,
        collective: impl Into<ScheduledCollective>,
        data: Vec<u8>,
    ) -> OperationHandle {
        let collective = collective.into();
        let operation = collective.operation;
        let handle = OperationHandle(self.next_handle);
        self.next_handle += 1;
        if data.len() > 1 << 30 {
            self.done.push((handle, Err(LeaderNetworkError::TooLong)));
            return handle;
        }
        self.with_group(context, |group, group_io| match method {
            InterHostMethod::SingleHost => group_io.results.push((handle, Ok(data))),
            InterHostMethod::Aggregation | InterHostMethod::Multicast
                if group.tree().is_none() || !operation.can_aggregate() =>
            {
                group.fail(LeaderNetworkError::ProtocolError, group_io);
            }
            InterHostMethod::Aggregation => {
                group.start_in_tree(handle, TreeMethod::Folded, operation, data, group_io)
            }
            InterHostMethod::Multicast => {
                group.start_in_tree(handle, TreeMethod::Multicast, operation, data, group_io)
            }
            InterHostMethod::PointToPoint(algorithm) => {
                group.start_among_hosts(handle, algorithm, &collective, data, group_io)
            }
        });
        if self.streams.has_questions() {
            self.progress_streams();
        }
        self.timers.set(TimerOwner::Streams, self.streams.deadline());
        self.tree_edges.flush();
        handle
    }

    /// As [`Self::start`], among the hosts by an algorithm that can stream, in the caller's memory: the result is there when
    /// [`Self::take`] returns an empty one.
    ///
    /// The memory must stay valid until then, or until [`Self::cancel`].
    pub fn start_stream(
        &mut self,
        context: GroupId,
        algorithm: CollectiveAlgorithm,
        collective: impl Into<ScheduledCollective>,
        buffers: StreamBuffers,
    ) -> OperationHandle {
        let handle = OperationHandle(self.next_handle);
        self.next_handle += 1;
        let Some(bytes) = u32::try_from(buffers.len()).ok().filter(|bytes| *bytes <= 1 << 30) else {
            self.done.push((handle, Err(LeaderNetworkError::TooLong)));
            return handle;
        };
        let Some(group) = self.groups.get_mut(&context) else {
            self.done.push((handle, Err(LeaderNetworkError::ProtocolError)));
            return handle;
        };
        match group.begin_stream(algorithm, &collective.into(), bytes) {
            Ok((op, schedule)) => {
                let memory = (group.leaders().to_vec(), buffers);
                let key = (context, op);
                self.streams.start(&mut self.tree_edges, key, handle, schedule, memory, &mut self.results);
            }
            Err(LeaderNetworkError::Mismatch) => {
                self.with_group(context, LeaderGroup::report_local_mismatch);
                self.done.push((handle, Err(LeaderNetworkError::Mismatch)));
            }
            Err(error) => self.done.push((handle, Err(error))),
        }
        self.progress_streams();
        handle
    }

    /// Forgets an operation: its memory is not used any more, and it has no result.
    pub fn cancel(&mut self, handle: OperationHandle) {
        self.streams.cancel(handle);
        self.results.retain(|(held, _)| *held != handle);
        self.take(handle);
    }

    /// Hands whole messages of running operations to their groups.
    fn dispatch_arrived(&mut self) {
        // A message may complete an operation, after which nothing else of it is expected; it never makes another one arrive.
        let mut arrived = self.streams.take_arrived();
        for WholeMessage { from, name, fingerprint, payload } in arrived.drain(..) {
            let (context, term, op) = (name.group, name.epoch, name.operation);
            let kind = LeaderMessageKind::Round(name.round);
            let leader_message = LeaderMessage { context, term, op, kind, fingerprint, payload };
            self.with_group(context, |group, group_io| group.handle_message(from, leader_message, group_io));
        }
        self.streams.return_arrived(arrived);
    }

    /// Does what parts and acknowledgements demand.
    fn progress_streams(&mut self) {
        self.dispatch_arrived();
        for stray in self.streams.take_strays() {
            let (context, op) = (stray.header.name.group, stray.header.name.operation);
            match self.groups.get(&context) {
                Some(group) if group.contradicts(op, stray.header.fingerprint) => {
                    self.with_group(context, LeaderGroup::report_local_mismatch);
                }
                // The operation is over, or the whole group.
                _ => self.streams.acknowledge_all(&mut self.tree_edges, &stray),
            }
        }
        for context in self.streams.take_mismatches() {
            self.with_group(context, LeaderGroup::report_local_mismatch);
        }
        for context in self.streams.take_corrupted() {
            self.fail_group(context, LeaderNetworkError::Corrupted);
        }
        self.streams.drive(&mut self.tree_edges, &mut self.results);
        self.collect_results();
        self.timers.set(TimerOwner::Streams, self.streams.deadline());
    }

    /// The result of an operation, once.
    pub fn take(&mut self, handle: OperationHandle) -> Option<Result<Vec<u8>, LeaderNetworkError>> {
        let place = self.done.binary_search_by_key(&handle, |(handle, _)| *handle).ok()?;
        Some(self.done.remove(place).1)
    }

    /// The socket that receives the results of a group's tree, if they arrive only by multicast.
    pub fn multicast_socket(&self, context: GroupId) -> Option<Arc<MulticastSocket>> {
        self.groups.get(&context)?.membership()?.multicast_socket().cloned()
    }

    /// Does all that can be done now; true if there was anything.
    pub fn turn(&mut self) -> bool {
        self.turn_on_sockets(ReadySockets::Any)
    }

    /// As [`Self::turn`], with the sockets that are known to be ready.
    pub fn turn_on_sockets(&mut self, ready: ReadySockets<'_>) -> bool {
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut busy = self.tree_edges.receive_from(ready, &mut inputs, &mut self.streams);
        self.tree_edges.poll_links(&mut inputs);
        busy |= !inputs.is_empty();
        for input in inputs.drain(..) {
            self.handle(input);
        }
        self.inputs = inputs;
        let now = self.tree_edges.now();
        while let Some(owner) = self.timers.pop_expired(now) {
            busy = true;
            self.handle_timer(owner);
        }
        if !self.lingering.is_empty() {
            self.close_lingering(now);
        }
        // If nothing has arrived, no timer was due and the own process did nothing, there is nothing new to do: a thread that waits turns
        // here many times. Results may wait for an acknowledgement, after which the streams are idle.
        let has_news = self.streams.take_changed() | busy;
        let has_work = !self.streams.is_idle() || !self.results.is_empty();
        if (has_news && has_work) || self.streams.has_more() || self.streams.has_questions() {
            self.streams.set_time(now);
            self.progress_streams();
        }
        self.tree_edges.flush();
        busy || self.streams.has_more()
    }

    /// Not inlined, like all rare code: the code of every operation stays together in the instruction cache.
    #[inline(never)]
    fn handle_timer(&mut self, owner: TimerOwner) {
        match owner {
            TimerOwner::Peer(rank) => {
                if let Some(mesh) = &mut self.mesh {
                    mesh.handle_timeout(&mut self.tree_edges, rank, &mut self.events);
                }
                self.dispatch_mesh_events();
            }
            TimerOwner::Group(context) => self.with_group(context, LeaderGroup::handle_timeout),
            TimerOwner::Streams => {
                for (rank, silence) in self.streams.handle_timeouts(&self.tree_edges) {
                    self.fail_groups_of(rank, LeaderNetworkError::Silent { rank, silence });
                }
            }
        }
    }

    /// The descriptors to wait on.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tree_edges.sockets()
    }

    /// The time until the next timer; none if no timer is armed.
    pub fn next_timeout(&self) -> Option<Duration> {
        let close_at = self.lingering.front().map_or(Time::NEVER, |group| group.until);
        let at = self.timers.earliest().min(close_at);
        let timer = (at != Time::NEVER).then(|| self.tree_edges.clock().until(at));
        timer.into_iter().chain(self.tree_edges.next_timeout()).min()
    }

    fn handle(&mut self, input: TreeEdgeEvent) {
        let (TreeEdgeEvent::Frame { edge, .. }
        | TreeEdgeEvent::Damage { edge }
        | TreeEdgeEvent::PathDown { edge, .. }
        | TreeEdgeEvent::PathUp { edge, .. }) = input
        else {
            let TreeEdgeEvent::Multicast { group, .. } = input else { return };
            if let Some(context) = self.trees.get(&group).copied() {
                self.with_group(context, |group, group_io| group.handle_tree(input, group_io));
            }
            return;
        };
        if let Some(context) = self.edges.get(&edge).copied() {
            return self.with_group(context, |group, group_io| group.handle_tree(input, group_io));
        }
        self.handle_mesh(edge, input);
    }

    #[inline(never)]
    fn handle_mesh(&mut self, edge: QpNumber, input: TreeEdgeEvent) {
        if let (TreeEdgeEvent::PathDown { path, .. }, Some(rank)) = (&input, mesh_rank(edge)) {
            self.streams.handle_path_down(&self.tree_edges, rank, *path);
        }
        let Some(mesh) = &mut self.mesh else { return };
        let Some(rank) = mesh.rank(edge) else { return };
        mesh.handle(&mut self.tree_edges, rank, input, &mut self.events);
        self.dispatch_mesh_events();
    }

    fn dispatch_mesh_events(&mut self) {
        self.update_peer_timers();
        while !self.events.is_empty() {
            for event in std::mem::take(&mut self.events) {
                match event {
                    MeshEvent::Lost { rank, silence } => {
                        self.fail_groups_of(rank, LeaderNetworkError::Silent { rank, silence })
                    }
                    MeshEvent::Message { from, leader_message }
                        if self.groups.contains_key(&leader_message.context) =>
                    {
                        let context = leader_message.context;
                        self.with_group(context, |group, group_io| {
                            group.handle_message(from, leader_message, group_io)
                        });
                    }
                    MeshEvent::Message { from, leader_message } => {
                        // A tree is offered only to those who have entered the group: this one has left it.
                        if self.unclaimed.len() < MAX_UNCLAIMED_MESSAGES && !leader_message.kind.is_about_switches() {
                            self.unclaimed.push((from, leader_message));
                        }
                    }
                }
            }
        }
    }

    /// Runs a step of a group; then updates timers and collects results.
    fn with_group(&mut self, context: GroupId, act: impl FnOnce(&mut LeaderGroup, &mut GroupIo<'_>)) {
        let (Some(group), Some(mesh)) = (self.groups.get_mut(&context), &mut self.mesh) else { return };
        let Self { tree_edges, streams, results, switch_events, .. } = self;
        let mut group_io = GroupIo { tree_edges, mesh, streams, results, switch_events };
        act(group, &mut group_io);
        self.timers.set(TimerOwner::Group(context), group.deadline());
        if let Some(error) = group.failure() {
            self.streams.fail_group(context, error, &mut self.results);
        }
        self.collect_results();
        self.update_peer_timers();
    }

    fn collect_results(&mut self) {
        if self.results.is_empty() || self.streams.is_far_ahead() {
            return; // The caller waits until its peers have caught up.
        }
        for (handle, end) in self.results.drain(..) {
            let place = self.done.partition_point(|(before, _)| *before < handle);
            self.done.insert(place, (handle, end));
        }
    }

    fn update_peer_timers(&mut self) {
        while let Some((rank, deadline)) = self.mesh.as_mut().and_then(Mesh::next_touched) {
            self.timers.set(TimerOwner::Peer(rank), deadline);
        }
    }
}
