//! The network side of a process: its sockets, its connections to other processes, its places in trees.
//!
//! In: operations between the leaders of hosts, to start and to ask after; packets and time from the kernel. Out: packets,
//! and each operation's end. Nothing here blocks: [`LeaderNetwork::turn`] does what can be done now.

mod leader_group;
mod leader_message;
mod mesh;
#[cfg(test)]
mod tests;
mod tree_operation;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use manager::GroupDescriptor;
use manager::message::GroupKey;
use protocol::collective::{CollectiveOperation, InterHostMethod};
use units::{GroupId, QpNumber, Rank, Span, Time};

pub use mesh::MeshConfig;
pub use tree_operation::{LeaderNetworkError, OperationHandle};

use crate::aggregation::{Membership, MulticastSocket, ReadySockets, TreeEdgeCounters, TreeEdgeEvent, TreeEdges};
use leader_group::{GroupIo, LeaderGroup, OperationResults};
use leader_message::LeaderMessage;
use mesh::{Mesh, MeshEvent};
use transport::Clock;
use transport::edges::timer_queue::TimerQueue;
use tree_operation::TreeMethod;

/// Letters for groups that we have not yet entered.
const MAX_UNCLAIMED_MESSAGES: usize = 1 << 12;

/// Who has all it wants still acknowledges for so long what others repeat: their last word may have been lost, or our answer.
pub const LINGER: Duration = Duration::from_millis(200);

/// What somebody cast and was not yet heard of is kept for so long after it left.
pub const MAX_LINGER: Duration = Duration::from_secs(10);

fn span(duration: Duration) -> Span {
    Span::from_picos(duration.as_nanos() as u64 * 1000)
}

/// A group that nobody here needs any more.
#[derive(Clone, Copy, Debug)]
struct LingeringGroup {
    since: Time,
    /// It answers until then, and longer if something of ours may be missing somewhere.
    until: Time,
    context: GroupId,
}

/// Who wants to be called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TimerOwner {
    Peer(Rank),
    Group(GroupId),
}

/// The network side of a process.
pub struct LeaderNetwork {
    wires: TreeEdges,
    mesh: Option<Mesh>,
    groups: BTreeMap<GroupId, LeaderGroup>,
    /// Which group's edge a number is.
    edges: BTreeMap<QpNumber, GroupId>,
    /// Which group's tree has an identity at the manager.
    trees: BTreeMap<GroupId, GroupId>,
    alarms: TimerQueue<TimerOwner>,
    inputs: Vec<TreeEdgeEvent>,
    events: Vec<MeshEvent>,
    ends: OperationResults,
    /// In order: most are taken as soon as they are there.
    done: OperationResults,
    /// Letters that came before we entered their group.
    unclaimed: Vec<(Rank, LeaderMessage)>,
    /// Groups that nobody here needs any more, and until when they answer.
    departing: VecDeque<LingeringGroup>,
    /// Groups that are gone, until somebody asks.
    departed: Vec<GroupId>,
    lost: Option<Rank>,
    next_ticket: u64,
}

impl LeaderNetwork {
    /// Opens a socket at each address.
    ///
    /// # Errors
    /// If an address cannot be had.
    pub fn open(addresses: &[SocketAddr], mischief: transport::udp::FaultInjector) -> io::Result<Self> {
        Ok(Self {
            wires: TreeEdges::open(addresses, mischief)?,
            mesh: None,
            groups: BTreeMap::new(),
            edges: BTreeMap::new(),
            trees: BTreeMap::new(),
            alarms: TimerQueue::default(),
            inputs: Vec::new(),
            events: Vec::new(),
            ends: Vec::new(),
            done: Vec::new(),
            unclaimed: Vec::new(),
            departing: VecDeque::new(),
            departed: Vec::new(),
            lost: None,
            next_ticket: 0,
        })
    }

    /// Where packets may be sent.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.wires.addresses()
    }

    /// Its clock.
    pub fn clock(&self) -> Clock {
        self.wires.clock()
    }

    /// What was seen of packets so far.
    pub fn counters(&self) -> TreeEdgeCounters {
        self.wires.counters()
    }

    /// Learns who is where; nothing can be said to anyone before.
    pub fn meet(&mut self, plan: MeshConfig) {
        let mesh = Mesh::new(plan);
        mesh.string(&mut self.wires);
        self.mesh = Some(mesh);
    }

    /// Enters a group of leaders, without a tree. The context names it among all groups of the job in which two leaders
    /// meet; `me` is our place.
    ///
    /// # Panics
    /// If nobody has been met, or the context is in use.
    pub fn enter(&mut self, context: GroupId, leaders: Vec<Rank>, me: Rank) {
        assert!(self.mesh.is_some(), "ranks are met before a group is entered");
        let before = self.groups.insert(context, LeaderGroup::new(context, leaders, me));
        assert!(before.is_none(), "{context:?} is in use");
        if let Some(lost) = self.lost {
            self.rank_lost(lost);
        }
        let (ours, others) =
            std::mem::take(&mut self.unclaimed).into_iter().partition(|(_, letter)| letter.context == context);
        self.unclaimed = others;
        for (from, letter) in ours {
            self.with_group(context, |group, around| group.handle_letter(from, letter, around));
        }
    }

    /// Leaves a group, after [`LINGER`]: nobody here wants anything of it, but the others may not have all yet.
    pub fn leave(&mut self, context: GroupId) {
        if self.groups.contains_key(&context) {
            self.with_group(context, LeaderGroup::conclude);
            self.wires.flush();
            let now = self.wires.clock().now();
            self.departing.push_back(LingeringGroup { since: now, until: now + span(LINGER), context });
        }
    }

    /// A group that was left for good.
    pub fn next_departed(&mut self) -> Option<GroupId> {
        self.departed.pop()
    }

    /// True if every process has acknowledged what was said to it.
    pub fn is_drained(&self) -> bool {
        self.mesh.as_ref().is_none_or(Mesh::is_drained) && self.groups.values().all(LeaderGroup::is_settled)
    }

    #[cold]
    fn depart(&mut self, now: Time) {
        while self.departing.front().is_some_and(|departure| departure.until <= now) {
            let Some(departure) = self.departing.pop_front() else { return };
            let context = departure.context;
            let is_settled = self.groups.get(&context).is_none_or(LeaderGroup::is_settled);
            if !is_settled && now.since(departure.since) < span(MAX_LINGER) {
                self.departing.push_back(LingeringGroup { until: now + span(LINGER), ..departure });
                continue;
            }
            if let Some(group) = self.groups.remove(&context) {
                self.edges.retain(|_, owner| *owner != context);
                self.trees.retain(|_, owner| *owner != context);
                self.alarms.forget(TimerOwner::Group(context));
                group.close(&mut self.wires);
                self.departed.push(context);
            }
        }
    }

    /// Gives a group a tree. All its leaders do so between the same two operations, when none is under way.
    ///
    /// # Errors
    /// If the plan is none for this group.
    pub fn plant(&mut self, context: GroupId, opened: GroupDescriptor) -> Result<(), LeaderNetworkError> {
        let group = self.groups.get_mut(&context).ok_or(LeaderNetworkError::Confused)?;
        self.trees.insert(opened.group, context);
        group.plant(&mut self.wires, opened)?;
        if let Some(membership) = group.membership() {
            self.edges.insert(membership.edge(), context);
        }
        Ok(())
    }

    /// Takes a group's tree away again. All its leaders do so between the same two operations, when none is under way.
    pub fn uproot(&mut self, context: GroupId) {
        if let Some(group) = self.groups.get_mut(&context) {
            group.uproot(&mut self.wires);
            self.edges.retain(|_, owner| *owner != context);
            self.trees.retain(|_, owner| *owner != context);
        }
    }

    /// Multicasts of a group that came.
    pub fn heard(&self, context: GroupId) -> u64 {
        self.groups.get(&context).and_then(LeaderGroup::membership).map_or(0, Membership::heard)
    }

    /// The tree of a group, and whether it is sound.
    pub fn tree(&self, context: GroupId) -> Option<(&GroupDescriptor, bool)> {
        self.groups.get(&context)?.tree()
    }

    /// Somebody knows that a group's tree is of no use any more.
    pub fn tree_lost(&mut self, key: GroupKey) {
        let found = self.groups.iter().find(|(_, group)| {
            group.tree().is_some_and(|(opened, _)| (opened.group, opened.epoch) == (key.group, key.epoch))
        });
        if let Some(context) = found.map(|(context, _)| *context) {
            self.with_group(context, LeaderGroup::fall);
        }
    }

    /// Somebody knows that a rank is gone: every group with it is broken.
    pub fn rank_lost(&mut self, rank: Rank) {
        self.lost.get_or_insert(rank);
        if let Some(mesh) = &mut self.mesh {
            mesh.lose(rank);
        }
        let contexts: Vec<GroupId> = self
            .groups
            .iter()
            .filter(|(_, group)| group.leaders().contains(&rank))
            .map(|(context, _)| *context)
            .collect();
        for context in contexts {
            self.with_group(context, |group, around| group.break_with(LeaderNetworkError::RankLost(rank), around));
        }
    }

    /// Somebody knows that a rank has left: it has all it wants.
    pub fn rank_left(&mut self, rank: Rank) {
        if let Some(mesh) = &mut self.mesh {
            mesh.let_go(rank);
        }
    }

    /// The ranks that we lead do not agree on an operation: all leaders must hear so.
    pub fn disagree(&mut self, context: GroupId) {
        self.with_group(context, LeaderGroup::disagree_for_others);
        self.wires.flush();
    }

    /// Starts an operation among the leaders of a group; roots are places among them. All leaders start the same ones in
    /// the same order by the same method. The data comes back, changed, when it is done.
    pub fn start(
        &mut self,
        context: GroupId,
        method: InterHostMethod,
        collective: CollectiveOperation,
        data: Vec<u8>,
    ) -> OperationHandle {
        let ticket = OperationHandle(self.next_ticket);
        self.next_ticket += 1;
        if data.len() > 1 << 30 {
            self.done.push((ticket, Err(LeaderNetworkError::TooLong)));
            return ticket;
        }
        self.with_group(context, |group, around| match method {
            InterHostMethod::OneParty => around.ends.push((ticket, Ok(data))),
            InterHostMethod::Aggregation | InterHostMethod::Multicast if group.tree().is_none() => {
                group.break_with(LeaderNetworkError::Confused, around);
            }
            InterHostMethod::Aggregation => group.start_in_tree(ticket, TreeMethod::Folded, collective, data, around),
            InterHostMethod::Multicast => {
                group.start_in_tree(ticket, TreeMethod::Multicast, collective, data, around)
            }
            InterHostMethod::Hosts(algorithm) => group.start_among_hosts(ticket, algorithm, collective, data, around),
        });
        self.wires.flush();
        ticket
    }

    /// The end of an operation, once.
    pub fn take(&mut self, ticket: OperationHandle) -> Option<Result<Vec<u8>, LeaderNetworkError>> {
        let place = self.done.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        Some(self.done.remove(place).1)
    }

    /// Where the results of a group's tree come, if nothing else brings them.
    pub fn ear(&self, context: GroupId) -> Option<Arc<MulticastSocket>> {
        self.groups.get(&context)?.membership()?.ear().cloned()
    }

    /// Does everything that can be done now; true if something was.
    pub fn turn(&mut self) -> bool {
        self.turn_at(ReadySockets::Any)
    }

    /// The same, where something is known to have come.
    pub fn turn_at(&mut self, ready: ReadySockets<'_>) -> bool {
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut busy = self.wires.receive_at(ready, &mut inputs);
        self.wires.look_at_links(&mut inputs);
        for input in inputs.drain(..) {
            self.handle(input);
        }
        self.inputs = inputs;
        let now = self.wires.now();
        while let Some(sleeper) = self.alarms.ring(now) {
            busy = true;
            self.wake(sleeper);
        }
        if !self.departing.is_empty() {
            self.depart(now);
        }
        self.wires.flush();
        busy
    }

    /// Apart, as all that is rare: what happens with every operation stays together.
    #[inline(never)]
    fn wake(&mut self, sleeper: TimerOwner) {
        match sleeper {
            TimerOwner::Peer(rank) => {
                if let Some(mesh) = &mut self.mesh {
                    mesh.handle_timeout(&mut self.wires, rank, &mut self.events);
                }
                self.read_mail();
            }
            TimerOwner::Group(context) => self.with_group(context, LeaderGroup::handle_timeout),
        }
    }

    /// What to wait on.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.wires.sockets()
    }

    /// How long nothing is to be done if nothing comes.
    pub fn patience(&self) -> Option<Duration> {
        let departure = self.departing.front().map(|departure| departure.until);
        let alarm = self.alarms.next().into_iter().chain(departure).min().map(|at| self.wires.clock().until(at));
        alarm.into_iter().chain(self.wires.due()).min()
    }

    fn handle(&mut self, input: TreeEdgeEvent) {
        let (TreeEdgeEvent::Frame { edge, .. }
        | TreeEdgeEvent::Damage { edge }
        | TreeEdgeEvent::PathDown { edge, .. }
        | TreeEdgeEvent::PathUp { edge, .. }) = input
        else {
            let TreeEdgeEvent::Multicast { group, .. } = input else { return };
            if let Some(context) = self.trees.get(&group).copied() {
                self.with_group(context, |group, around| group.handle_tree(input, around));
            }
            return;
        };
        if let Some(context) = self.edges.get(&edge).copied() {
            return self.with_group(context, |group, around| group.handle_tree(input, around));
        }
        self.handle_mesh(edge, input);
    }

    #[inline(never)]
    fn handle_mesh(&mut self, edge: QpNumber, input: TreeEdgeEvent) {
        let Some(mesh) = &mut self.mesh else { return };
        let Some(rank) = mesh.rank(edge) else { return };
        mesh.handle(&mut self.wires, rank, input, &mut self.events);
        self.read_mail();
    }

    fn read_mail(&mut self) {
        self.look_at_peers();
        while !self.events.is_empty() {
            for event in std::mem::take(&mut self.events) {
                match event {
                    MeshEvent::Lost { rank } => self.rank_lost(rank),
                    MeshEvent::Letter { from, letter } if self.groups.contains_key(&letter.context) => {
                        let context = letter.context;
                        self.with_group(context, |group, around| group.handle_letter(from, letter, around));
                    }
                    MeshEvent::Letter { from, letter } => {
                        if self.unclaimed.len() < MAX_UNCLAIMED_MESSAGES {
                            self.unclaimed.push((from, letter));
                        }
                    }
                }
            }
        }
    }

    /// Lets a group do something, and looks after what follows from it.
    fn with_group(&mut self, context: GroupId, act: impl FnOnce(&mut LeaderGroup, &mut GroupIo<'_>)) {
        let (Some(group), Some(mesh)) = (self.groups.get_mut(&context), &mut self.mesh) else { return };
        let mut around = GroupIo { wires: &mut self.wires, mesh, ends: &mut self.ends };
        act(group, &mut around);
        let deadline = group.membership().map_or(units::Time::NEVER, |membership| membership.deadline());
        self.alarms.set(TimerOwner::Group(context), deadline);
        for (ticket, end) in self.ends.drain(..) {
            let place = self.done.partition_point(|(before, _)| *before < ticket);
            self.done.insert(place, (ticket, end));
        }
        self.look_at_peers();
    }

    fn look_at_peers(&mut self) {
        while let Some((rank, deadline)) = self.mesh.as_mut().and_then(Mesh::next_touched) {
            self.alarms.set(TimerOwner::Peer(rank), deadline);
        }
    }
}
