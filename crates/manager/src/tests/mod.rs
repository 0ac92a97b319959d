//! Manager, stewards and jobs in memory: a driver that delivers messages in any order, from a seed.

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

/// A generator for tests: the same numbers for the same seed.
pub(super) struct SeededRandom(u64);

impl SeededRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Less than `below`.
    pub(super) fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % below.max(1) as u64) as usize
    }

    fn key(&mut self) -> AuthKey {
        AuthKey(std::array::from_fn(|_| self.roll(256) as u8))
    }
}

/// Whom a message reaches. A pair of ends has one connection, which keeps the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ClusterEndpoint {
    Manager,
    Node(usize),
    Job(usize),
}

enum ClusterMessage {
    Up(ToManager),
    Down(FromManager),
    Order(NodeCommand),
    Answer(NodeReply),
}

/// A node: its steward, and seats that are only remembered.
pub(super) struct SimulatedNode {
    steward: NodeAgent,
    card: NodeDescriptor,
    pub(super) installed: BTreeMap<GroupKey, SeatSpec>,
    refuses: bool,
    alive: bool,
    connection: u64,
    /// Operations folded at each of its seats.
    folded: BTreeMap<GroupKey, u64>,
}

pub(super) struct SimulatedCluster {
    pub(super) manager: Manager,
    settings: ManagerSettings,
    pub(super) nodes: Vec<SimulatedNode>,
    /// What jobs were told.
    pub(super) heard: BTreeMap<usize, Vec<FromManager>>,
    wires: BTreeMap<(ClusterEndpoint, ClusterEndpoint), VecDeque<ClusterMessage>>,
    peers: BTreeMap<PeerId, ClusterEndpoint>,
    pub(super) now: Time,
    pub(super) dice: SeededRandom,
    next_request: u32,
    pub(super) events: Vec<ManagerEvent>,
}

pub(super) const ROOM: Capacity = Capacity { seats: 1_000, operations: 100_000, bytes: 1 << 40 };

pub(super) fn millis(millis: u64) -> Span {
    Span::from_micros(millis * 1_000)
}

pub(super) fn address(network: u8, index: usize) -> SocketAddr {
    SocketAddr::from(([10, network, (index >> 8) as u8, index as u8], 4791))
}

pub(super) fn card(
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
    pub(super) fn new(seed: u64, settings: ManagerSettings, cards: Vec<NodeDescriptor>) -> Self {
        let mut dice = SeededRandom::new(seed);
        let node = |card: NodeDescriptor| SimulatedNode {
            steward: NodeAgent::new(&card.name, card.capacity.seats),
            card,
            installed: BTreeMap::new(),
            refuses: false,
            alive: true,
            connection: 0,
            folded: BTreeMap::new(),
        };
        let mut cluster = Self {
            manager: Manager::new(settings.clone(), dice.key()),
            settings,
            nodes: cards.into_iter().map(node).collect(),
            heard: BTreeMap::new(),
            wires: BTreeMap::new(),
            peers: BTreeMap::new(),
            now: Time::ZERO,
            dice,
            next_request: 0,
            events: Vec::new(),
        };
        (0..cluster.nodes.len()).for_each(|node| cluster.register(node));
        cluster.settle();
        cluster
    }

    fn peer_of(&self, end: ClusterEndpoint) -> PeerId {
        match end {
            ClusterEndpoint::Manager => PeerId(0),
            ClusterEndpoint::Node(index) => PeerId(1_000_000 * (1 + self.nodes[index].connection) + index as u64),
            ClusterEndpoint::Job(index) => PeerId(500_000 + index as u64),
        }
    }

    /// A node makes a new connection to the manager and says what it holds.
    pub(super) fn register(&mut self, index: usize) {
        self.nodes[index].connection += 1;
        let card = self.nodes[index].card.clone();
        let version = "0.1.0".to_owned();
        self.say(ClusterEndpoint::Node(index), ToManager::Register { request: RequestId(7), card, version });
        let seats = self.nodes[index].steward.held();
        self.say(ClusterEndpoint::Node(index), ToManager::Holding { seats });
        self.beat(index);
    }

    pub(super) fn beat(&mut self, index: usize) {
        let node = &self.nodes[index];
        let folded = |group: &GroupKey| node.folded.get(group).copied().unwrap_or(0);
        let seats = node.steward.seats();
        let seats = seats.into_iter().map(|group| SeatHeartbeat { group, operations: folded(&group) }).collect();
        self.say(ClusterEndpoint::Node(index), ToManager::Beat { seats, report: NodeReport::default() });
    }

    fn say(&mut self, from: ClusterEndpoint, message: ToManager) {
        self.peers.insert(self.peer_of(from), from);
        self.post(from, ClusterEndpoint::Manager, ClusterMessage::Up(through_json(&message)));
    }

    /// A job asks; the answer is in `heard`.
    pub(super) fn ask(&mut self, job: usize, make: impl FnOnce(RequestId) -> ToManager) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.say(ClusterEndpoint::Job(job), make(request));
        request
    }

    pub(super) fn open_job(&mut self, job: usize, quota: Option<Quota>) -> JobTicket {
        self.ask(job, |request| ToManager::OpenJob { request, name: format!("job {job}"), quota });
        self.settle();
        match self.heard.get_mut(&job).and_then(Vec::pop) {
            Some(FromManager::JobOpened { ticket, .. }) => ticket,
            other => panic!("no ticket but {other:?}"),
        }
    }

    pub(super) fn open_group(
        &mut self,
        job: usize,
        ticket: JobTicket,
        group: GroupRequest,
    ) -> Result<GroupDescriptor, ControlError> {
        let asked = self.ask(job, |request| ToManager::OpenGroup { request, ticket, group });
        self.settle();
        match self.heard.get_mut(&job).and_then(Vec::pop) {
            Some(FromManager::GroupOpened { request, group }) if request == asked => Ok(group),
            Some(FromManager::Refused { request, refusal }) if request == asked => Err(refusal),
            other => panic!("no answer but {other:?}"),
        }
    }

    pub(super) fn close_group(&mut self, job: usize, ticket: JobTicket, group: GroupKey) {
        let asked = self.ask(job, |request| ToManager::CloseGroup { request, ticket, group });
        self.settle();
        assert_eq!(self.heard.get_mut(&job).and_then(Vec::pop), Some(FromManager::Closed { request: asked }));
    }

    fn post(&mut self, from: ClusterEndpoint, to: ClusterEndpoint, parcel: ClusterMessage) {
        self.wires.entry((from, to)).or_default().push_back(parcel);
    }

    /// Delivers until nothing is under way, in an order that the dice choose.
    pub(super) fn settle(&mut self) {
        self.carry_out();
        loop {
            let busy: Vec<(ClusterEndpoint, ClusterEndpoint)> =
                self.wires.iter().filter(|(_, wire)| !wire.is_empty()).map(|(ends, _)| *ends).collect();
            if busy.is_empty() {
                return;
            }
            let (from, to) = busy[self.dice.roll(busy.len())];
            self.deliver(from, to);
        }
    }

    /// Delivers everything that is under way now and nothing that it brings about; false if there was nothing.
    pub(super) fn step(&mut self) -> bool {
        self.carry_out();
        let busy: Vec<((ClusterEndpoint, ClusterEndpoint), usize)> =
            self.wires.iter().filter(|(_, wire)| !wire.is_empty()).map(|(ends, wire)| (*ends, wire.len())).collect();
        for ((from, to), count) in &busy {
            (0..*count).for_each(|_| self.deliver(*from, *to));
        }
        !busy.is_empty()
    }

    fn deliver(&mut self, from: ClusterEndpoint, to: ClusterEndpoint) {
        let Some(parcel) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return };
        let fresh = self.dice.key();
        match (to, parcel) {
            (ClusterEndpoint::Manager, ClusterMessage::Up(message)) => {
                self.manager.handle_message(self.now, self.peer_of(from), message, fresh);
            }
            (ClusterEndpoint::Job(job), ClusterMessage::Down(message)) => {
                self.heard.entry(job).or_default().push(message)
            }
            (ClusterEndpoint::Node(node), _) if !self.nodes[node].alive => {}
            (ClusterEndpoint::Node(node), ClusterMessage::Down(FromManager::Order(order))) => {
                self.nodes[node].steward.handle_order(self.now, CommandSource::Manager, order);
            }
            (ClusterEndpoint::Node(node), ClusterMessage::Order(order)) => {
                let ClusterEndpoint::Node(above) = from else { panic!("only nodes pass orders on") };
                self.nodes[node].steward.handle_order(self.now, CommandSource::Node(PeerId(above as u64)), order);
            }
            (ClusterEndpoint::Node(node), ClusterMessage::Answer(answer)) => {
                let ClusterEndpoint::Node(below) = from else { panic!("only nodes answer") };
                let address = self.nodes[below].card.control;
                self.nodes[node].steward.handle_answer(self.now, address, answer);
            }
            (ClusterEndpoint::Node(_), ClusterMessage::Down(_)) => {}
            _ => panic!("a parcel to the wrong end"),
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(duty) = self.manager.poll_duty() {
            match duty {
                ManagerAction::Send { to, message } => {
                    // A connection that was replaced loses what is sent over it.
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
            while let Some(duty) = self.nodes[index].steward.poll_duty() {
                self.steward_duty(index, duty);
            }
        }
    }

    fn steward_duty(&mut self, index: usize, duty: NodeAgentAction) {
        let now = self.now;
        let node = &mut self.nodes[index];
        match duty {
            NodeAgentAction::Install(spec) => {
                let group = spec.key_of_group();
                let refusal =
                    ControlError::NodeFailed { node: node.card.name.clone(), why: "it does not want to".to_owned() };
                let outcome = if node.refuses { Err(refusal) } else { Ok(()) };
                if outcome.is_ok() {
                    assert!(node.installed.insert(group, *spec).is_none(), "a seat is taken once");
                }
                node.steward.handle_installed(now, group, outcome);
            }
            NodeAgentAction::Remove(group) => {
                node.installed.remove(&group);
            }
            NodeAgentAction::Answer { to: CommandSource::Manager, answer } => {
                self.say(ClusterEndpoint::Node(index), ToManager::Answer(answer))
            }
            NodeAgentAction::Answer { to: CommandSource::Node(above), answer } => {
                self.post(
                    ClusterEndpoint::Node(index),
                    ClusterEndpoint::Node(above.0 as usize),
                    ClusterMessage::Answer(through_json(&answer)),
                );
            }
            NodeAgentAction::Order { to, order } => {
                let below = self.nodes.iter().position(|node| node.card.control == to).expect("a node of ours");
                if self.nodes[below].alive {
                    self.post(
                        ClusterEndpoint::Node(index),
                        ClusterEndpoint::Node(below),
                        ClusterMessage::Order(through_json(&*order)),
                    );
                } else {
                    self.nodes[index].steward.handle_unreachable(now, to);
                }
            }
        }
    }

    /// Time passes; whoever is alive beats, and everyone acts on what is due.
    pub(super) fn pass(&mut self, time: Span) {
        let until = self.now + time;
        while self.now < until {
            self.now = (self.now + millis(100)).min(until);
            if self.manager.deadline() <= self.now {
                self.manager.handle_timeout(self.now);
            }
            for index in 0..self.nodes.len() {
                if self.nodes[index].alive {
                    self.nodes[index].steward.handle_timeout(self.now);
                    self.beat(index);
                }
            }
            self.settle();
        }
    }

    /// The node is gone, and everyone's connections to it.
    pub(super) fn kill(&mut self, index: usize) {
        self.nodes[index].alive = false;
        let (peer, control) = (self.peer_of(ClusterEndpoint::Node(index)), self.nodes[index].card.control);
        self.wires
            .retain(|(from, to), _| *from != ClusterEndpoint::Node(index) && *to != ClusterEndpoint::Node(index));
        self.manager.handle_lost(self.now, peer);
        for other in 0..self.nodes.len() {
            self.nodes[other].steward.handle_unreachable(self.now, control);
        }
        self.carry_out();
    }

    /// The node comes back with nothing, as a new process.
    pub(super) fn revive(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.steward = NodeAgent::new(&node.card.name, node.card.capacity.seats);
        node.installed.clear();
        node.alive = true;
        self.register(index);
    }

    pub(super) fn lose_job(&mut self, job: usize) {
        self.wires.retain(|(from, to), _| *from != ClusterEndpoint::Job(job) && *to != ClusterEndpoint::Job(job));
        self.manager.handle_lost(self.now, self.peer_of(ClusterEndpoint::Job(job)));
    }

    /// The manager dies and another begins; every node finds it.
    pub(super) fn restart_manager(&mut self) {
        self.wires.retain(|(from, to), _| *from != ClusterEndpoint::Manager && *to != ClusterEndpoint::Manager);
        let fresh = self.dice.key();
        self.manager = Manager::new(self.settings.clone(), fresh);
        for index in 0..self.nodes.len() {
            if self.nodes[index].alive {
                self.register(index);
            }
        }
        self.settle();
    }

    /// Nothing is reserved beyond what a node has, and every sum is that of its parts.
    pub(super) fn check_reservations(&self) {
        for (name, record) in &self.manager.nodes {
            let operations: u32 = record.holds.values().map(|hold| hold.operations).sum();
            let bytes: u64 = record.holds.values().map(|hold| hold.bytes).sum();
            let sums = Capacity { seats: record.holds.len() as u32, operations, bytes };
            assert_eq!(sums, record.reserved, "node {name}");
            let room = record.card.capacity;
            assert!(sums.seats <= room.seats && operations <= room.operations && bytes <= room.bytes, "node {name}");
        }
        for node in self.nodes.iter().filter(|node| node.alive) {
            let record = &self.manager.nodes[&node.card.name];
            for (group, spec) in &node.installed {
                let hold =
                    record.holds.get(group).unwrap_or_else(|| panic!("{group} is not reserved at {}", spec.name));
                assert_eq!((hold.operations, hold.bytes), (spec.window, spec.reserved_bytes()));
            }
        }
    }

    /// No seat, no reservation, no number is left.
    pub(super) fn check_empty(&self) {
        for node in self.nodes.iter().filter(|node| node.alive) {
            assert!(node.installed.is_empty(), "node {} still has seats", node.card.name);
            assert!(node.steward.seats().is_empty());
        }
        for (name, record) in &self.manager.nodes {
            assert_eq!(record.reserved, Capacity { seats: 0, operations: 0, bytes: 0 }, "node {name}");
        }
        assert!(self.manager.groups.is_empty(), "{:?}", self.manager.groups.keys());
        assert_eq!(self.manager.numbers.in_use(), 0);
    }

    /// The seat of a group at a node.
    pub(super) fn seat(&self, name: &str, group: GroupKey) -> Option<&SeatSpec> {
        self.nodes.iter().find(|node| node.card.name == name)?.installed.get(&group)
    }

    /// Holds an open group against what every tree must be, seen from what the nodes really installed.
    pub(super) fn check_tree(&self, asked: &GroupRequest, opened: &GroupDescriptor) {
        let group = opened.key_of_group();
        let held: BTreeSet<&str> = self
            .nodes
            .iter()
            .filter(|node| node.installed.contains_key(&group))
            .map(|node| node.card.name.as_str())
            .collect();
        let named: BTreeSet<&str> = opened.seats.iter().map(|seat| seat.name.as_str()).collect();
        assert_eq!(held, named, "the seats that are taken are those in the answer");
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
                SeatChild::Member { leader, rank } => {
                    assert!(seen.insert(*leader), "a leader hangs on one seat");
                    let asked = &asked.leaders[*leader as usize];
                    assert_eq!((&asked.addresses, asked.rank), (&child.addresses, *rank));
                    let up = opened.parent_of(*leader as usize).expect("every leader has a parent");
                    assert_eq!(
                        (up.edge, up.child.index(), up.node, up.name.as_str()),
                        (child.edge, position, seat.node, seat.name.as_str())
                    );
                    parts.push(FoldTree::Leader(*leader));
                }
                SeatChild::Seat { spec, .. } => {
                    // What the node below really installed, not what it was meant to.
                    let below = self.seat(&spec.name, seat.key_of_group()).expect("the seat below is taken");
                    let up = below.parent.as_ref().expect("it has a parent");
                    assert_eq!((up.edge, up.child.index(), up.node), (child.edge, position, seat.node));
                    let card = &self.nodes.iter().find(|node| node.card.name == seat.name).expect("it is ours").card;
                    assert_eq!(up.addresses, card.addresses);
                    parts.push(self.check_seat(asked, opened, below, edges, seen));
                }
            }
        }
        let lowest: Vec<u32> =
            parts.iter().map(|part| *part.leaders().iter().min().expect("nobody is empty")).collect();
        assert!(lowest.is_sorted(), "children are in the order of their lowest leaders");
        FoldTree::Fold(parts)
    }
}

/// Everything that is said in tests travels as it does in the world.
fn through_json<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T) -> T {
    let bytes = serde_json::to_vec(message).expect("it can be written");
    assert!(bytes.len() <= MAX_MESSAGE_BYTES);
    let read: T = serde_json::from_slice(&bytes).expect("it can be read");
    assert_eq!(*message, read);
    read
}
