//! Manager, agents and jobs in memory: a driver that delivers messages in a seeded random order.

mod failures;
mod job_history;
mod malformed_input;
mod placement;
mod reservations;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use units::{Rank, Span, Time};

use super::limits::MAX_MESSAGE_BYTES;
use super::message::*;
use super::*;

/// A random generator for tests: the same seed gives the same numbers.
pub(super) struct SeededRandom(u64);

impl SeededRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number less than `limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (units::splitmix64(&mut self.0) % limit.max(1) as u64) as usize
    }

    fn key(&mut self) -> AuthKey {
        AuthKey(std::array::from_fn(|_| self.below(256) as u8))
    }
}

/// Sender or receiver of a message. Each pair has one connection, which preserves the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ClusterEndpoint {
    Manager,
    Node(usize),
    Job(usize),
}

enum ClusterMessage {
    Up(ToManager),
    Down(FromManager),
    Command(NodeCommand),
    Reply(NodeReply),
}

/// A node: its agent, and the seats that it has installed.
pub(super) struct SimulatedNode {
    agent: NodeAgent,
    descriptor: NodeDescriptor,
    pub(super) installed: BTreeMap<GroupKey, SeatSpec>,
    rejects: bool,
    alive: bool,
    connection: u64,
    /// Operations folded at each of its seats.
    folded: BTreeMap<GroupKey, u64>,
}

pub(super) struct SimulatedCluster {
    pub(super) manager: Manager,
    settings: ManagerSettings,
    pub(super) nodes: Vec<SimulatedNode>,
    /// Messages that jobs received.
    pub(super) received: BTreeMap<usize, Vec<FromManager>>,
    /// Credentials of jobs; those without one have the cluster's secret.
    pub(super) credentials: BTreeMap<usize, CredentialId>,
    queues: BTreeMap<(ClusterEndpoint, ClusterEndpoint), VecDeque<ClusterMessage>>,
    peers: BTreeMap<PeerId, ClusterEndpoint>,
    pub(super) now: Time,
    pub(super) random: SeededRandom,
    next_request: u32,
    pub(super) events: Vec<ManagerEvent>,
}

pub(super) const LARGE_CAPACITY: Capacity = Capacity { seats: 1_000, operations: 100_000, bytes: 1 << 40 };

pub(super) fn millis(millis: u64) -> Span {
    Span::from_micros(millis * 1_000)
}

pub(super) fn address(network: u8, index: usize) -> SocketAddr {
    SocketAddr::from(([10, network, (index >> 8) as u8, index as u8], 4791))
}

pub(super) fn descriptor(
    index: usize,
    name: &str,
    parents: &[&str],
    serves: &[&str],
    capacity: Capacity,
) -> NodeDescriptor {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    NodeDescriptor {
        name: name.to_owned(),
        addresses: vec![address(200, index), address(201, index)],
        control: address(202, index),
        parents: owned(parents),
        serves: owned(serves),
        capacity,
    }
}

/// Leaders on hosts of these numbers.
pub(super) fn leaders(hosts: impl IntoIterator<Item = usize>) -> Vec<GroupLeader> {
    let leader = |(rank, host): (usize, usize)| GroupLeader {
        rank: Rank(rank as u32),
        host: format!("host{host}"),
        addresses: vec![address(1, host)],
    };
    hosts.into_iter().enumerate().map(leader).collect()
}

pub(super) fn request(leaders: Vec<GroupLeader>, window: u32, segment_bytes: u32) -> GroupRequest {
    GroupRequest { leaders, window, segment_bytes, distribution: DistributionSpec::Edges, avoid: Vec::new() }
}

impl SimulatedCluster {
    pub(super) fn new(seed: u64, settings: ManagerSettings, descriptors: Vec<NodeDescriptor>) -> Self {
        let mut random = SeededRandom::new(seed);
        let node = |descriptor: NodeDescriptor| SimulatedNode {
            agent: NodeAgent::new(&descriptor.name, descriptor.capacity.seats),
            descriptor,
            installed: BTreeMap::new(),
            rejects: false,
            alive: true,
            connection: 0,
            folded: BTreeMap::new(),
        };
        let mut cluster = Self {
            manager: Manager::new(settings.clone(), random.key()),
            settings,
            nodes: descriptors.into_iter().map(node).collect(),
            received: BTreeMap::new(),
            credentials: BTreeMap::new(),
            queues: BTreeMap::new(),
            peers: BTreeMap::new(),
            now: Time::ZERO,
            random,
            next_request: 0,
            events: Vec::new(),
        };
        (0..cluster.nodes.len()).for_each(|node| cluster.register(node));
        cluster.deliver_all();
        cluster
    }

    fn peer_of(&self, end: ClusterEndpoint) -> PeerId {
        match end {
            ClusterEndpoint::Manager => PeerId(0),
            ClusterEndpoint::Node(index) => PeerId(1_000_000 * (1 + self.nodes[index].connection) + index as u64),
            ClusterEndpoint::Job(index) => PeerId(500_000 + index as u64),
        }
    }

    fn credential_of(&self, end: ClusterEndpoint) -> Option<CredentialId> {
        match end {
            ClusterEndpoint::Job(index) => self.credentials.get(&index).copied(),
            ClusterEndpoint::Manager | ClusterEndpoint::Node(_) => None,
        }
    }

    /// A node opens a new connection to the manager and reports its seats.
    pub(super) fn register(&mut self, index: usize) {
        self.nodes[index].connection += 1;
        let descriptor = self.nodes[index].descriptor.clone();
        let version = "0.1.0".to_owned();
        self.send_to_manager(
            ClusterEndpoint::Node(index),
            ToManager::Register { request: RequestId(7), node: descriptor, version },
        );
        let seats = self.nodes[index].agent.held_seats();
        self.send_to_manager(ClusterEndpoint::Node(index), ToManager::HeldSeats { seats });
        self.heartbeat(index);
    }

    pub(super) fn heartbeat(&mut self, index: usize) {
        let node = &self.nodes[index];
        let folded = |group: &GroupKey| node.folded.get(group).copied().unwrap_or(0);
        let seats = node.agent.seats();
        let seats = seats.into_iter().map(|group| SeatHeartbeat { group, operations: folded(&group) }).collect();
        self.send_to_manager(
            ClusterEndpoint::Node(index),
            ToManager::Heartbeat { seats, report: Some(NodeReport::default()) },
        );
    }

    fn send_to_manager(&mut self, from: ClusterEndpoint, message: ToManager) {
        self.peers.insert(self.peer_of(from), from);
        self.post(from, ClusterEndpoint::Manager, ClusterMessage::Up(through_json(&message)));
    }

    /// A job sends a request; the reply will be in `received`.
    pub(super) fn send_request(&mut self, job: usize, make: impl FnOnce(RequestId) -> ToManager) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.send_to_manager(ClusterEndpoint::Job(job), make(request));
        request
    }

    pub(super) fn open_job(&mut self, job: usize, quota: Option<Quota>) -> JobTicket {
        self.send_request(job, |request| ToManager::OpenJob { request, name: format!("job {job}"), quota });
        self.deliver_all();
        match self.received.get_mut(&job).and_then(Vec::pop) {
            Some(FromManager::JobOpened { ticket, .. }) => ticket,
            other => panic!("expected a ticket, got {other:?}"),
        }
    }

    pub(super) fn open_group(
        &mut self,
        job: usize,
        ticket: JobTicket,
        group: GroupRequest,
    ) -> Result<GroupDescriptor, ControlError> {
        let asked = self.send_request(job, |request| ToManager::OpenGroup { request, ticket, group });
        self.deliver_all();
        match self.received.get_mut(&job).and_then(Vec::pop) {
            Some(FromManager::GroupOpened { request, group }) if request == asked => Ok(group),
            Some(FromManager::Rejected { request, error }) if request == asked => Err(error),
            other => panic!("expected a reply, got {other:?}"),
        }
    }

    pub(super) fn close_group(&mut self, job: usize, ticket: JobTicket, group: GroupKey) {
        let asked = self.send_request(job, |request| ToManager::CloseGroup { request, ticket, group });
        self.deliver_all();
        assert_eq!(self.received.get_mut(&job).and_then(Vec::pop), Some(FromManager::Closed { request: asked }));
    }

    fn post(&mut self, from: ClusterEndpoint, to: ClusterEndpoint, message: ClusterMessage) {
        self.queues.entry((from, to)).or_default().push_back(message);
    }

    /// Delivers messages in random order until none is left.
    pub(super) fn deliver_all(&mut self) {
        self.run_actions();
        loop {
            let busy: Vec<(ClusterEndpoint, ClusterEndpoint)> =
                self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(ends, _)| *ends).collect();
            if busy.is_empty() {
                return;
            }
            let (from, to) = busy[self.random.below(busy.len())];
            self.deliver(from, to);
        }
    }

    /// Delivers the messages that are queued now, but not their consequences; false if there was none.
    pub(super) fn step(&mut self) -> bool {
        self.run_actions();
        let busy: Vec<((ClusterEndpoint, ClusterEndpoint), usize)> = self
            .queues
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(ends, queue)| (*ends, queue.len()))
            .collect();
        for ((from, to), count) in &busy {
            (0..*count).for_each(|_| self.deliver(*from, *to));
        }
        !busy.is_empty()
    }

    fn deliver(&mut self, from: ClusterEndpoint, to: ClusterEndpoint) {
        let Some(message) = self.queues.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return };
        let fresh = self.random.key();
        match (to, message) {
            (ClusterEndpoint::Manager, ClusterMessage::Up(message)) => {
                let peer = ControlPeer { id: self.peer_of(from), credential: self.credential_of(from) };
                self.manager.handle_message(self.now, peer, message, fresh);
            }
            (ClusterEndpoint::Job(job), ClusterMessage::Down(message)) => {
                self.received.entry(job).or_default().push(message)
            }
            (ClusterEndpoint::Node(node), _) if !self.nodes[node].alive => {}
            (ClusterEndpoint::Node(node), ClusterMessage::Down(FromManager::Command(command))) => {
                self.nodes[node].agent.handle_command(self.now, CommandSource::Manager, command);
            }
            (ClusterEndpoint::Node(node), ClusterMessage::Command(command)) => {
                let ClusterEndpoint::Node(above) = from else { panic!("only nodes forward commands") };
                self.nodes[node].agent.handle_command(self.now, CommandSource::Node(PeerId(above as u64)), command);
            }
            (ClusterEndpoint::Node(node), ClusterMessage::Reply(reply)) => {
                let ClusterEndpoint::Node(below) = from else { panic!("only nodes reply") };
                let address = self.nodes[below].descriptor.control;
                self.nodes[node].agent.handle_reply(self.now, address, reply);
            }
            (ClusterEndpoint::Node(_), ClusterMessage::Down(_)) => {}
            _ => panic!("message for the wrong endpoint"),
        }
        self.run_actions();
    }

    fn run_actions(&mut self) {
        while let Some(action) = self.manager.poll_action() {
            match action {
                ManagerAction::Send { to, message } => {
                    // Messages over a replaced connection are lost.
                    let end = self.peers.get(&to).copied().filter(|end| self.peer_of(*end) == to);
                    if let Some(end) = end {
                        self.post(ClusterEndpoint::Manager, end, ClusterMessage::Down(through_json(&*message)));
                    }
                }
                ManagerAction::Close(_) => {}
                ManagerAction::Log(event) => self.events.push(event),
            }
        }
        for index in 0..self.nodes.len() {
            while let Some(action) = self.nodes[index].agent.poll_action() {
                self.agent_action(index, action);
            }
        }
    }

    fn agent_action(&mut self, index: usize, action: NodeAgentAction) {
        let now = self.now;
        let node = &mut self.nodes[index];
        match action {
            NodeAgentAction::Install(spec) => {
                let group = spec.group_key();
                let error = ControlError::NodeFailed {
                    node: node.descriptor.name.clone(),
                    why: "rejected by the test".to_owned(),
                };
                let outcome = if node.rejects { Err(error) } else { Ok(()) };
                if outcome.is_ok() {
                    assert!(node.installed.insert(group, *spec).is_none(), "a seat is installed once");
                }
                node.agent.handle_installed(now, group, outcome);
            }
            NodeAgentAction::Remove(group) => {
                node.installed.remove(&group);
            }
            NodeAgentAction::Reply { to: CommandSource::Manager, reply } => {
                self.send_to_manager(ClusterEndpoint::Node(index), ToManager::Reply(reply))
            }
            NodeAgentAction::Reply { to: CommandSource::Node(above), reply } => {
                self.post(
                    ClusterEndpoint::Node(index),
                    ClusterEndpoint::Node(above.0 as usize),
                    ClusterMessage::Reply(through_json(&reply)),
                );
            }
            NodeAgentAction::Command { to, command } => {
                let below =
                    self.nodes.iter().position(|node| node.descriptor.control == to).expect("a node of the cluster");
                if self.nodes[below].alive {
                    self.post(
                        ClusterEndpoint::Node(index),
                        ClusterEndpoint::Node(below),
                        ClusterMessage::Command(through_json(&*command)),
                    );
                } else {
                    self.nodes[index].agent.handle_unreachable(now, to);
                }
            }
        }
    }

    /// Advances the time; live nodes send heartbeats, and expired timers fire.
    pub(super) fn advance(&mut self, time: Span) {
        let until = self.now + time;
        while self.now < until {
            self.now = (self.now + millis(100)).min(until);
            if self.manager.deadline() <= self.now {
                self.manager.handle_timeout(self.now);
            }
            for index in 0..self.nodes.len() {
                if self.nodes[index].alive {
                    self.nodes[index].agent.handle_timeout(self.now);
                    self.heartbeat(index);
                }
            }
            self.deliver_all();
        }
    }

    /// Kills a node and breaks its connections.
    pub(super) fn kill(&mut self, index: usize) {
        self.nodes[index].alive = false;
        let (peer, control) = (self.peer_of(ClusterEndpoint::Node(index)), self.nodes[index].descriptor.control);
        self.queues
            .retain(|(from, to), _| *from != ClusterEndpoint::Node(index) && *to != ClusterEndpoint::Node(index));
        self.manager.handle_disconnect(self.now, peer);
        for other in 0..self.nodes.len() {
            self.nodes[other].agent.handle_unreachable(self.now, control);
        }
        self.run_actions();
    }

    /// Restarts the node as a new process without seats.
    pub(super) fn restart_node(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.agent = NodeAgent::new(&node.descriptor.name, node.descriptor.capacity.seats);
        node.installed.clear();
        node.alive = true;
        self.register(index);
    }

    pub(super) fn lose_job(&mut self, job: usize) {
        self.queues.retain(|(from, to), _| *from != ClusterEndpoint::Job(job) && *to != ClusterEndpoint::Job(job));
        self.manager.handle_disconnect(self.now, self.peer_of(ClusterEndpoint::Job(job)));
    }

    /// Replaces the manager by a new one; every live node registers again.
    pub(super) fn restart_manager(&mut self) {
        self.queues.retain(|(from, to), _| *from != ClusterEndpoint::Manager && *to != ClusterEndpoint::Manager);
        let fresh = self.random.key();
        self.manager = Manager::new(self.settings.clone(), fresh);
        for index in 0..self.nodes.len() {
            if self.nodes[index].alive {
                self.register(index);
            }
        }
        self.deliver_all();
    }

    /// Checks that no node is overbooked and that every sum matches its parts.
    pub(super) fn check_reservations(&self) {
        for (name, record) in &self.manager.nodes {
            let operations: u32 = record.reservations.values().map(|reservation| reservation.operations).sum();
            let bytes: u64 = record.reservations.values().map(|reservation| reservation.bytes).sum();
            let sums = Capacity { seats: record.reservations.len() as u32, operations, bytes };
            assert_eq!(sums, record.reserved, "node {name}");
            let room = record.descriptor.capacity;
            assert!(sums.seats <= room.seats && operations <= room.operations && bytes <= room.bytes, "node {name}");
        }
        for node in self.nodes.iter().filter(|node| node.alive) {
            let record = &self.manager.nodes[&node.descriptor.name];
            for (group, spec) in &node.installed {
                let reservation = record
                    .reservations
                    .get(group)
                    .unwrap_or_else(|| panic!("{group} is not reserved at {}", spec.name));
                assert_eq!((reservation.operations, reservation.bytes), (spec.window, spec.reserved_bytes()));
            }
        }
    }

    /// Checks that no seat, reservation or edge number is left.
    pub(super) fn check_empty(&self) {
        for node in self.nodes.iter().filter(|node| node.alive) {
            assert!(node.installed.is_empty(), "node {} still has seats", node.descriptor.name);
            assert!(node.agent.seats().is_empty());
        }
        for (name, record) in &self.manager.nodes {
            assert_eq!(record.reserved, Capacity { seats: 0, operations: 0, bytes: 0 }, "node {name}");
        }
        assert!(self.manager.groups.is_empty(), "{:?}", self.manager.groups.keys());
        assert_eq!(self.manager.numbers.in_use(), 0);
    }

    /// The seat of a group at a node.
    pub(super) fn seat(&self, name: &str, group: GroupKey) -> Option<&SeatSpec> {
        self.nodes.iter().find(|node| node.descriptor.name == name)?.installed.get(&group)
    }

    /// Checks an open group against the rules for trees, based on what the nodes have installed.
    pub(super) fn check_tree(&self, asked: &GroupRequest, opened: &GroupDescriptor) {
        let group = opened.group_key();
        let held: BTreeSet<&str> = self
            .nodes
            .iter()
            .filter(|node| node.installed.contains_key(&group))
            .map(|node| node.descriptor.name.as_str())
            .collect();
        let named: BTreeSet<&str> = opened.seats.iter().map(|seat| seat.name.as_str()).collect();
        assert_eq!(held, named, "the installed seats are those of the descriptor");
        assert_eq!(named.len(), opened.seats.len(), "a node has one seat of a group");
        let root = self.seat(&opened.seats[0].name, group).expect("the root has its seat");
        assert!(root.parent.is_none());
        let mut edges = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let fold = self.check_seat(asked, opened, root, &mut edges, &mut seen);
        assert_eq!(seen.len(), asked.leaders.len(), "every leader once");
        assert_eq!(edges.len(), asked.leaders.len() + opened.seats.len() - 1, "every edge has its own number");
        assert_eq!(fold, opened.fold);
    }

    fn check_seat(
        &self,
        asked: &GroupRequest,
        opened: &GroupDescriptor,
        seat: &SeatSpec,
        edges: &mut BTreeSet<u32>,
        seen: &mut BTreeSet<u32>,
    ) -> FoldTree {
        assert!(seat.children.len() >= 2, "a seat with one child is trimmed");
        assert_eq!((seat.key, seat.window), (opened.key, opened.window));
        assert!(seat.window.is_power_of_two() && seat.window >= asked.window);
        let mut parts = Vec::new();
        for (position, child) in seat.children.iter().enumerate() {
            assert!((2..1 << 23).contains(&child.edge.0) && edges.insert(child.edge.0), "an edge has its own number");
            match &child.who {
                SeatChild::Member { leader, rank, host } => {
                    assert!(seen.insert(*leader), "a leader is attached to one seat");
                    let asked = &asked.leaders[*leader as usize];
                    assert_eq!((&asked.addresses, asked.rank, &asked.host), (&child.addresses, *rank, host));
                    let up = opened.parent_of(*leader as usize).expect("every leader has a parent");
                    assert_eq!(
                        (up.edge, up.child.index(), up.node, up.name.as_str()),
                        (child.edge, position, seat.node, seat.name.as_str())
                    );
                    parts.push(FoldTree::Leader(*leader));
                }
                SeatChild::Seat { spec, .. } => {
                    // Compares with what the child node installed, not with what it was sent.
                    let below = self.seat(&spec.name, seat.group_key()).expect("the child seat is installed");
                    let up = below.parent.as_ref().expect("it has a parent");
                    assert_eq!((up.edge, up.child.index(), up.node), (child.edge, position, seat.node));
                    let descriptor = &self
                        .nodes
                        .iter()
                        .find(|node| node.descriptor.name == seat.name)
                        .expect("a node of the cluster")
                        .descriptor;
                    assert_eq!(up.addresses, descriptor.addresses);
                    parts.push(self.check_seat(asked, opened, below, edges, seen));
                }
            }
        }
        let lowest: Vec<u32> =
            parts.iter().map(|part| *part.leaders().iter().min().expect("a subtree has leaders")).collect();
        assert!(lowest.is_sorted(), "children are in the order of their lowest leaders");
        FoldTree::Fold(parts)
    }
}

/// Encodes and decodes a message, as a real connection does.
fn through_json<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T) -> T {
    let bytes = serde_json::to_vec(message).expect("the message encodes");
    assert!(bytes.len() <= MAX_MESSAGE_BYTES);
    let read: T = serde_json::from_slice(&bytes).expect("the message decodes");
    assert_eq!(*message, read);
    read
}
