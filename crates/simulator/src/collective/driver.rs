//! The driver: gives machines what arrives, and does what they ask.

use std::collections::BTreeMap;
use std::rc::Rc;

use protocol::aggregation::{AckBarrierCounter, AggregationAction, AggregationMessage, Damage, EdgeIndex, Outbox};
use protocol::connection::{Frame, FramePath, FramePurpose, OutgoingFrame};
use topology::AggregationTree;
use units::{PathId, Rank, SimSpan, SimTime};
use wire::aggregation::AggregationMessageKind;

use super::aggregation_unit::UnitPorts;
use super::alternate_path::{AlternatePath, find_alternate_paths};
use super::deferred_event::{AggregationUnitPorts, DeferredEvent, EgressMessage};
use super::measure::HostSoftware;
use super::operation_sequence::OperationSequence;
use super::parameters::{CollectiveParameters, ControlPath, Framing, ReplicaSharing, ResendWidth};
use super::wiring::{EdgeEnd, EdgeLink, ParticipantIndex, TreeWiring, build_wiring};
use crate::network::{
    ChannelId, DeliveredPacket as PacketArrival, EndToEndCheck, NetworkHandler, PacketTarget, SimulatedNetwork,
    SimulatedPacket, check_end_to_end,
};
use crate::packet_body::PacketBody;
use crate::processor::TransportService;
use crate::queue_pair::LinkNotification;

/// What an alarm is for, in its two highest bits.
const TIMER: u32 = 0;
const MAIL: u32 = 1 << 30;
const NUMBER: u32 = MAIL - 1;

pub(super) const NO_QUEUE_PAIRS: &str = "collectives have no queue pairs";

/// The machines, and what the run needs to know of them.
pub(super) struct CollectiveDriver {
    pub(super) parameters: CollectiveParameters,
    pub(super) wiring: TreeWiring,
    /// How second paths begin, for the edges that have one.
    detours: BTreeMap<EdgeEnd, AlternatePath>,
    /// The planted tree of each root's multicasts.
    planted: Vec<u32>,
    /// The planted tree of the members' own multicasts, if they speak to all.
    casts: Option<u32>,
    /// When each machine's alarm is set; later ones are ignored.
    alarms: Vec<SimTime>,
    mail: Vec<Option<DeferredEvent>>,
    free_mail: Vec<u32>,
    in_mail: usize,
    /// The internal ports of the nodes, if they have any.
    pub(super) units: Option<AggregationUnitPorts>,
    /// The software of the hosts, while it is measured.
    pub(super) hosts: Option<Box<HostSoftware>>,
    /// How what a member is being handed came.
    pub(super) way: TransportService,
    pub(super) outbox: Outbox,
    /// For each node above level 1, those that share what reaches it (ideal sharing).
    sharers: Vec<Vec<ParticipantIndex>>,
    pub(super) course: OperationSequence,
}

impl CollectiveDriver {
    pub(super) fn new(
        tree: &AggregationTree,
        network: &mut SimulatedNetwork,
        parameters: CollectiveParameters,
        seed: u64,
    ) -> Self {
        let mut wiring = build_wiring(tree, network, &parameters);
        let detours = match &parameters.alternates {
            Some(alternates) => find_alternate_paths(&mut wiring, network, alternates),
            None => BTreeMap::new(),
        };
        let planted = wiring.branches.drain(..).map(|branches| network.plant(branches)).collect();
        let casts = wiring.casts.take().map(|branches| network.plant(branches));
        let census = parameters.task.is_cast().then(|| AckBarrierCounter::new(parameters.window)).flatten();
        let leavers = if parameters.task.is_by_multicast() { wiring.members.len() } else { 0 };
        let parties = wiring.nodes.len() + wiring.members.len();
        let sharers = match parameters.sharing {
            ReplicaSharing::AboveLevelOne if parameters.spatial_copies() > 1 => sharers(tree),
            _ => Vec::new(),
        };
        let units = parameters.unit.map(|unit| UnitPorts::new(unit, wiring.nodes.len()));
        let mut driver = Self {
            units,
            hosts: None,
            way: TransportService::Connection,
            parameters,
            wiring,
            detours,
            planted,
            casts,
            alarms: vec![SimTime::NEVER; parties],
            mail: Vec::new(),
            free_mail: Vec::new(),
            in_mail: 0,
            outbox: Outbox::default(),
            sharers,
            course: OperationSequence::new(census, leavers, seed),
        };
        for end in driver.detours.keys().copied().collect::<Vec<_>>() {
            driver.watch(network, end.party); // Paths are probed from the start.
        }
        driver
    }

    pub(super) fn migrations(&self) -> u32 {
        self.wiring.migrations()
    }

    pub(super) fn ranks(&self) -> u32 {
        self.wiring.members.len() as u32
    }

    pub(super) fn memory(&self) -> usize {
        use protocol::aggregation::{AggregationMember, AggregationNode};
        self.wiring.members.capacity() * size_of::<AggregationMember>()
            + self.wiring.nodes.capacity() * size_of::<AggregationNode>()
    }

    #[cfg(feature = "sabotage")]
    pub(super) fn sabotage(&mut self, node: usize, sabotage: protocol::aggregation::SlotMutation) {
        self.wiring.nodes[node].set_sabotage(sabotage);
    }

    /// Whether nothing is under way.
    pub(super) fn is_at_rest(&self, network: &SimulatedNetwork) -> bool {
        network.packets_in_flight() == 0 && self.in_mail == 0
    }

    /// Gives a machine a frame, a multicast or a report of damage, and does what it asks.
    pub(super) fn feed(&mut self, network: &mut SimulatedNetwork, end: EdgeEnd, input: MachineInput<'_>) {
        if self.rank_of(end.party).is_some_and(|rank| self.course.has_left(rank)) {
            return;
        }
        let now = network.now();
        let mut outbox = std::mem::take(&mut self.outbox);
        let (party, edge) = (end.party as usize, end.edge);
        self.way = if matches!(input, MachineInput::Multicast(_)) {
            TransportService::Datagram
        } else {
            TransportService::Connection
        };
        let timed_out = matches!(input, MachineInput::Timeout);
        match self.wiring.nodes.get_mut(party) {
            Some(node) => match input {
                MachineInput::Frame(came, frame) => node.handle_frame(now, edge, came, frame, &mut outbox),
                MachineInput::Multicast(message) => node.handle_multicast(now, edge, message, &mut outbox),
                MachineInput::Damage(damage) => node.handle_damage(now, edge, damage, &mut outbox),
                MachineInput::Shared(message) => node.handle_shared(now, edge, message, &mut outbox),
                MachineInput::PathDown(path) => node.handle_path_down(now, edge, path, &mut outbox),
                MachineInput::Timeout => node.handle_timeout(now, &mut outbox),
            },
            None => {
                let member = &mut self.wiring.members[party - self.wiring.nodes.len()];
                match input {
                    MachineInput::Frame(came, frame) => member.handle_frame(now, edge, came, frame, &mut outbox),
                    MachineInput::Multicast(message) => member.handle_multicast(now, edge, message, &mut outbox),
                    MachineInput::Damage(damage) => member.handle_damage(now, edge, damage, &mut outbox),
                    MachineInput::Shared(_) => unreachable!("only nodes share"),
                    MachineInput::PathDown(path) => member.handle_path_down(now, edge, path, &mut outbox),
                    MachineInput::Timeout => member.handle_timeout(now, &mut outbox),
                }
            }
        }
        if outbox.is_empty() && !timed_out && self.detours.is_empty() {
            self.outbox = outbox; // Nothing to do, and then, without paths to probe, the machine's alarm is as it was.
            return;
        }
        self.carry_out(network, end.party, outbox);
    }

    /// Does all duties of a machine, then looks at its alarm.
    pub(super) fn carry_out(&mut self, network: &mut SimulatedNetwork, party: ParticipantIndex, mut outbox: Outbox) {
        for duty in outbox.drain() {
            match duty {
                AggregationAction::Transmit { edge, outgoing } => self.transmit(network, party, edge, outgoing),
                AggregationAction::Multicast { message, copies } => self.multicast(network, party, message, copies),
                AggregationAction::Complete { .. } | AggregationAction::Failed { .. } if self.hosts.is_some() => {
                    self.came_to_host(network, self.rank(party), &duty);
                }
                AggregationAction::Reduced { .. } => {
                    let at = network.now() + network.parameters().switch_delay;
                    self.course.round.reduced.get_or_insert(at);
                }
                AggregationAction::Complete { op, result } => {
                    self.note_completion(network, self.rank(party), op, result)
                }
                AggregationAction::Failed { op, cause } => self.note_failure_of(self.rank(party), op, cause),
            }
        }
        self.outbox = outbox;
        self.watch(network, party);
    }

    fn rank(&self, party: ParticipantIndex) -> Rank {
        Rank(party - self.wiring.nodes.len() as u32)
    }

    /// Sets a machine's alarm if it wants one earlier than it has.
    fn watch(&mut self, network: &mut SimulatedNetwork, party: ParticipantIndex) {
        let index = party as usize;
        let deadline = match self.wiring.nodes.get(index) {
            Some(node) => node.deadline(),
            None => self.wiring.members[index - self.wiring.nodes.len()].deadline(),
        };
        if deadline < self.alarms[index] {
            self.alarms[index] = deadline;
            network.set_alarm(deadline.max(network.now()), TIMER | party);
        }
    }

    fn delay_of(&self, network: &SimulatedNetwork, party: ParticipantIndex) -> SimSpan {
        let parameters = network.parameters();
        if (party as usize) < self.wiring.nodes.len() { parameters.switch_delay } else { parameters.adapter_delay }
    }

    fn transmit(
        &mut self,
        network: &mut SimulatedNetwork,
        party: ParticipantIndex,
        edge: EdgeIndex,
        outgoing: OutgoingFrame<AggregationMessage>,
    ) {
        if self.is_behind_port(party) {
            return self.leave(network, party, EgressMessage::Over { edge, outgoing });
        }
        let ready = network.now() + self.delay_of(network, party) + self.sending(&outgoing.frame);
        self.inject_frame(network, party, edge, outgoing, ready);
    }

    /// Puts a frame on the cable that an edge stands for, to leave when it is ready.
    pub(super) fn inject_frame(
        &mut self,
        network: &mut SimulatedNetwork,
        party: ParticipantIndex,
        edge: EdgeIndex,
        outgoing: OutgoingFrame<AggregationMessage>,
        ready: SimTime,
    ) {
        let OutgoingFrame { frame, copies, purpose, path, migration } = outgoing;
        let came = FramePath { path, migration };
        let EdgeLink { channel, far } = self.wiring.wire(party, edge);
        let body = Rc::new(PacketBody::Edge { to: far, came, frame });
        let Some(channel) = channel else {
            return self.send_mail(network, ready, DeferredEvent::Beside { to: far, body });
        };
        let to = network.destination(channel);
        let own = AlternatePath { channel, flow: 0 };
        let detour = if path == PathId(0) { None } else { self.detours.get(&EdgeEnd { party, edge }) };
        let AlternatePath { channel, flow } = detour.copied().unwrap_or(own);
        if let (ControlPath::Fixed { turnaround }, FramePurpose::Control) = (self.parameters.control, purpose) {
            // Beside the links, but not past a dead one.
            if network.is_down(channel) {
                return;
            }
            // What the other end takes to send is part of the turn-round.
            let on_the_way = turnaround - self.delay_of(network, far.party);
            return self.send_mail(network, network.now() + on_the_way, DeferredEvent::Beside { to: far, body });
        }
        let mut bytes = self.size(&body);
        if purpose == FramePurpose::Repeat
            && self.parameters.resend_width == ResendWidth::Port
            && self.rank_of(party).is_some()
        {
            bytes = bytes.div_ceil(u32::from(network.parameters().adapter_lanes));
        }
        for _ in 0..copies {
            let packet = SimulatedPacket::new(PacketTarget::Node, to.0, bytes, ready, Some(body.clone()));
            network.inject(channel, SimulatedPacket { flow, ..packet });
        }
    }

    fn rank_of(&self, party: ParticipantIndex) -> Option<Rank> {
        (party as usize >= self.wiring.nodes.len()).then(|| self.rank(party))
    }

    pub(super) fn size(&self, body: &PacketBody) -> u32 {
        match self.parameters.framing {
            Framing::Full => body.framed_bytes(),
            Framing::PayloadOnly => body.payload_bytes(),
        }
    }

    /// Starts a multicast: at a node to all below it, cable by cable; at a member up to the root and from there to all.
    fn multicast(
        &mut self,
        network: &mut SimulatedNetwork,
        party: ParticipantIndex,
        message: AggregationMessage,
        copies: u8,
    ) {
        if self.rank_of(party).is_some() {
            return self.inject_cast(network, party, message, copies);
        }
        if self.is_behind_port(party) {
            return self.leave(network, party, EgressMessage::Down { message, copies });
        }
        let ready = network.now() + network.parameters().switch_delay;
        self.inject_multicast(network, party, message, copies, ready);
    }

    fn inject_cast(
        &mut self,
        network: &mut SimulatedNetwork,
        party: ParticipantIndex,
        message: AggregationMessage,
        copies: u8,
    ) {
        let (Some(tree), Some(channel)) = (self.casts, self.wiring.wire(party, EdgeIndex(0)).channel) else {
            unreachable!("members speak to all only where that is planned, and hosts are cabled")
        };
        let ready = network.now() + network.parameters().adapter_delay;
        let body = Rc::new(PacketBody::Multicast { root: 0, message });
        let bytes = self.size(&body);
        for _ in 0..copies {
            network.inject(channel, SimulatedPacket::new(PacketTarget::Tree, tree, bytes, ready, Some(body.clone())));
        }
    }

    pub(super) fn inject_multicast(
        &mut self,
        network: &mut SimulatedNetwork,
        party: ParticipantIndex,
        message: AggregationMessage,
        copies: u8,
        ready: SimTime,
    ) {
        let plane = message.plane();
        let root = self.wiring.root_of[party as usize];
        let tree = self.planted[root as usize];
        let body = Rc::new(PacketBody::Multicast { root, message });
        let bytes = self.size(&body);
        let wires = self.wiring.down(party, plane);
        for _ in 0..copies {
            for wire in &wires {
                match wire.channel {
                    Some(channel) => {
                        network.inject(
                            channel,
                            SimulatedPacket::new(PacketTarget::Tree, tree, bytes, ready, Some(body.clone())),
                        );
                    }
                    None => {
                        self.send_mail(network, ready, DeferredEvent::Beside { to: wire.far, body: body.clone() })
                    }
                }
            }
        }
    }

    /// Something will happen beside the links.
    pub(super) fn send_mail(&mut self, network: &mut SimulatedNetwork, at: SimTime, mail: DeferredEvent) {
        let mail = Some(mail);
        let number = match self.free_mail.pop() {
            Some(number) => {
                self.mail[number as usize] = mail;
                number
            }
            None => {
                self.mail.push(mail);
                self.mail.len() as u32 - 1
            }
        };
        self.in_mail += 1;
        network.set_alarm(at, MAIL | number);
    }

    /// Hands a sound packet's body to whom it is for.
    pub(super) fn hand_in(&mut self, network: &mut SimulatedNetwork, channel: ChannelId, body: &PacketBody) {
        match body {
            PacketBody::Edge { to, came, frame } => self.hand_in_frame(network, *to, *came, frame),
            PacketBody::Multicast { root, message } => {
                if let Some(to) = self.wiring.hearer(channel, *root) {
                    self.hand_in_multicast(network, to, message);
                }
            }
            PacketBody::Transport { .. } => unreachable!("{NO_QUEUE_PAIRS}"),
        }
    }

    /// A frame reaches its machine, and those that share what it gets.
    pub(super) fn hand_in_frame(
        &mut self,
        network: &mut SimulatedNetwork,
        to: EdgeEnd,
        came: FramePath,
        frame: &Frame<AggregationMessage>,
    ) {
        self.feed(network, to, MachineInput::Frame(came, frame));
        if !self.sharers.is_empty() {
            self.share(network, to, frame);
        }
    }

    /// A multicast reaches a machine over a cable; those below it on the same switch hear it too.
    fn hand_in_multicast(&mut self, network: &mut SimulatedNetwork, to: EdgeEnd, message: &AggregationMessage) {
        self.feed(network, to, MachineInput::Multicast(message));
        if (to.party as usize) < self.wiring.nodes.len() {
            for position in 0..self.wiring.inside(to.party).len() {
                let inside = self.wiring.inside(to.party)[position];
                self.feed(network, inside, MachineInput::Multicast(message));
            }
        }
    }

    /// Ideal sharing: a contribution that reached one replica above level 1 reaches the others at once.
    fn share(&mut self, network: &mut SimulatedNetwork, to: EdgeEnd, frame: &Frame<AggregationMessage>) {
        let Frame::Data { message, .. } = frame else {
            return;
        };
        if message.header.kind != AggregationMessageKind::Contribution {
            return;
        }
        let Some(others) = self.sharers.get_mut(to.party as usize).map(std::mem::take) else {
            return;
        };
        for party in &others {
            // Nodes above level 1 have one edge per child, and replicas number their children alike.
            let edge = EdgeIndex(message.header.child.0);
            self.feed(network, EdgeEnd { party: *party, edge }, MachineInput::Shared(message));
        }
        self.sharers[to.party as usize] = others;
    }
}

pub(super) enum MachineInput<'a> {
    Frame(FramePath, &'a Frame<AggregationMessage>),
    Multicast(&'a AggregationMessage),
    Damage(Damage),
    Shared(&'a AggregationMessage),
    PathDown(PathId),
    Timeout,
}

/// For each node above level 1, its replicas: other nodes of the same level that fold the same hosts in the same brackets,
/// and so number their children alike.
fn sharers(tree: &AggregationTree) -> Vec<Vec<ParticipantIndex>> {
    let shapes = tree.shapes();
    let mut replicas: BTreeMap<(u8, u32), Vec<ParticipantIndex>> = BTreeMap::new();
    for (index, node) in tree.nodes.iter().enumerate() {
        replicas.entry((node.level, shapes[index])).or_default().push(index as ParticipantIndex);
    }
    let others = |index: usize| -> Vec<ParticipantIndex> {
        let level = tree.nodes[index].level;
        if level < 2 {
            return Vec::new();
        }
        replicas[&(level, shapes[index])].iter().copied().filter(|other| *other as usize != index).collect()
    };
    (0..tree.nodes.len()).map(others).collect()
}

impl NetworkHandler for CollectiveDriver {
    fn arrived(&mut self, network: &mut SimulatedNetwork, arrival: PacketArrival) {
        let Some(body) = arrival.body else { return };
        let Some(harm) = arrival.harm else {
            return self.admit(network, arrival.channel, arrival.bytes, body);
        };
        let damage = if harm.known_at == SimTime::NEVER {
            match check_end_to_end(&body, arrival.bytes, &harm) {
                EndToEndCheck::Passed(body) => {
                    return self.admit(network, arrival.channel, arrival.bytes, Rc::new(body));
                }
                EndToEndCheck::Bad => {
                    network.counters.end_to_end += 1;
                    Damage::Here
                }
            }
        } else if harm.marked {
            Damage::Marked
        } else {
            Damage::Here
        };
        // Nothing in a damaged packet can be believed but the cable it came on.
        let ends: Vec<EdgeEnd> = self.wiring.ends(arrival.channel).collect();
        for end in ends {
            self.feed(network, end, MachineInput::Damage(damage));
        }
    }

    fn refill(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("collectives have no sources")
    }

    fn alarm(&mut self, network: &mut SimulatedNetwork, number: u32) {
        if number & MAIL != 0 {
            let number = number & NUMBER;
            let mail = self.mail[number as usize].take().expect("an alarm for mail has mail");
            self.free_mail.push(number);
            self.in_mail -= 1;
            return self.open_mail(network, mail);
        }
        // An alarm that was since set earlier goes off twice; the second time there is nothing to do.
        if self.alarms[number as usize] > network.now() {
            return;
        }
        self.alarms[number as usize] = SimTime::NEVER;
        self.feed(network, EdgeEnd { party: number, edge: EdgeIndex(0) }, MachineInput::Timeout);
    }

    fn channels_changed(&mut self, network: &mut SimulatedNetwork, channels: &[ChannelId]) {
        if self.parameters.alternates.is_none_or(|alternates| alternates.notice == LinkNotification::Silent) {
            return;
        }
        // That a path is up again is found out by the next probe.
        let down: Vec<ChannelId> = channels.iter().copied().filter(|channel| network.is_down(*channel)).collect();
        let paths: Vec<(EdgeEnd, u8)> = self.wiring.paths_on(&self.detours, &down).collect();
        for (end, path) in paths {
            self.feed(network, end, MachineInput::PathDown(PathId(path)));
        }
    }
}
