//! The driver of a simulated collective: delivers packets and timers to the machines and performs their actions.

use std::collections::BTreeMap;

use protocol::aggregation::{AckBarrierCounter, AggregationAction, AggregationMessage, Damage, EdgeIndex, Outbox};
use protocol::connection::{Frame, FramePath};
use topology::AggregationTree;
use units::{PathId, Rank, SimTime};

use super::aggregation_unit::UnitPorts;
use super::alternate_path::{AlternatePath, find_alternate_paths};
use super::deferred_event::{AggregationUnitPorts, DeferredEvent};
use super::host_software::HostSoftware;
use super::operation::SimulatedOperation;
use super::parameters::{CollectiveParameters, ContributionContents, LongVector, ReplicaSharing};
use super::replicas::replicas;
use super::sequence_state::OperationSequence;
use super::wiring::TreeWiring;
use super::wiring_builder::build_wiring;
use crate::arrival_check::{ArrivalCheck, check_arrival};
use crate::network::{DeliveredPacket, NetworkHandler, SimulatedNetwork};
use crate::packet::{ChannelId, DriverIndex};
use crate::packet_body::{EdgeEnd, ParticipantIndex};
use crate::processor::TransportService;
use crate::queue_pair::LinkNotification;
use crate::residue::FabricResidue;
use crate::slab::Slab;

/// The purpose of a timer, in its two highest bits.
const MACHINE_TIMER: u32 = 0;
const DEFERRED_EVENT: u32 = 1 << 30;
const TIMER_INDEX_MASK: u32 = DEFERRED_EVENT - 1;

pub(super) const NO_QUEUE_PAIRS: &str = "collectives have no queue pairs";

/// The machines of a collective and the state of the run.
pub(crate) struct CollectiveDriver {
    pub(super) parameters: CollectiveParameters,
    pub(super) wiring: TreeWiring,
    /// Where alternate paths start, for the edges that have one.
    pub(super) alternate_paths: BTreeMap<EdgeEnd, AlternatePath>,
    /// The multicast tree of each root.
    pub(super) multicast_tables: Vec<u32>,
    /// The multicast tree of the members, if they multicast themselves.
    pub(super) member_multicast_table: Option<u32>,
    /// The earliest timer that is set for each machine.
    timers: Vec<SimTime>,
    deferred: Slab<DeferredEvent>,
    /// The internal ports of the nodes, if they have any.
    pub(super) units: Option<AggregationUnitPorts>,
    /// The software of the hosts, during a measurement.
    pub(super) hosts: Option<Box<HostSoftware>>,
    /// The transport service of the message that a member is receiving.
    pub(super) service: TransportService,
    pub(super) outbox: Outbox,
    /// For each node above level 1, the replicas that share its contributions (ideal sharing).
    pub(super) replicas: Vec<Vec<ParticipantIndex>>,
    pub(super) sequence: OperationSequence,
    /// The number of its packets and timers, if others of an earlier tree may still be under way.
    pub(super) own_number: Option<DriverIndex>,
}

impl CollectiveDriver {
    pub(crate) fn new(
        tree: &AggregationTree,
        network: &mut SimulatedNetwork,
        parameters: CollectiveParameters,
        seed: u64,
    ) -> Self {
        let mut wiring = build_wiring(tree, network, &parameters);
        let alternate_paths = match &parameters.alternate_paths {
            Some(alternates) => find_alternate_paths(&mut wiring, network, alternates),
            None => BTreeMap::new(),
        };
        let multicast_tables =
            wiring.branches.drain(..).map(|branches| network.add_multicast_table(branches)).collect();
        let member_multicast_table =
            wiring.member_branches.take().map(|branches| network.add_multicast_table(branches));
        let ack_barrier = parameters
            .operation
            .is_multicast_broadcast()
            .then(|| AckBarrierCounter::new(parameters.window))
            .flatten();
        let leavers = if parameters.operation.is_by_multicast() { wiring.members.len() } else { 0 };
        let parties = wiring.nodes.len() + wiring.members.len();
        let replicas = match parameters.sharing {
            ReplicaSharing::AboveLevelOne if parameters.spatial_copies() > 1 => replicas(tree),
            _ => Vec::new(),
        };
        let units = parameters.unit.map(|unit| UnitPorts::new(unit, wiring.nodes.len()));
        let mut driver = Self {
            units,
            hosts: None,
            service: TransportService::Connection,
            parameters,
            wiring,
            alternate_paths,
            multicast_tables,
            member_multicast_table,
            timers: vec![SimTime::NEVER; parties],
            deferred: Slab::default(),
            outbox: Outbox::default(),
            replicas,
            sequence: OperationSequence::new(ack_barrier, leavers, seed),
            own_number: None,
        };
        for end in driver.alternate_paths.keys().copied().collect::<Vec<_>>() {
            driver.arm_timer(network, end.participant); // Probing starts at once.
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

    /// Whether a packet or a timer belongs to the machines of an earlier tree.
    fn is_of_earlier_tree(&self, network: &SimulatedNetwork) -> bool {
        self.own_number.is_some_and(|own| own != network.driver())
    }

    /// What the driver does next is its own, whatever the last event was.
    pub(super) fn take_over(&self, network: &mut SimulatedNetwork) {
        if let Some(own) = self.own_number {
            network.set_driver(own);
        }
    }

    /// Whether no packet and no event is pending.
    pub(super) fn is_at_rest(&self, network: &SimulatedNetwork) -> bool {
        network.packets_in_flight() == 0 && self.deferred.is_empty()
    }

    /// A damaged packet has arrived on a channel. Only the channel is reliable: every machine at its end is told.
    pub(crate) fn handle_damage(&mut self, network: &mut SimulatedNetwork, channel: ChannelId, damage: Damage) {
        let ends: Vec<EdgeEnd> = self.wiring.ends(channel).collect();
        for end in ends {
            self.handle_input(network, end, MachineInput::Damage(damage));
        }
    }

    /// Sets what the next operations are. What members multicast, if they do, was decided when the driver was made.
    pub(crate) fn set_operation(
        &mut self,
        operation: SimulatedOperation,
        contents: ContributionContents,
        long_vector: Option<LongVector>,
    ) {
        let parameters = &mut self.parameters;
        (parameters.operation, parameters.contents, parameters.long_vector) = (operation, contents, long_vector);
    }

    /// What the machines hold although no operation is in progress.
    pub(crate) fn residue(&self) -> FabricResidue {
        let loads = self.wiring.nodes.iter().map(protocol::aggregation::AggregationNode::load);
        let (slots, slot_bytes) =
            loads.fold((0, 0), |(slots, bytes), load| (slots + u64::from(load.in_flight), bytes + load.bytes));
        let frames: usize = self.wiring.nodes.iter().map(|node| node.unacknowledged()).sum();
        let member_frames: usize = self.wiring.members.iter().map(|member| member.unacknowledged()).sum();
        let multicasts: usize = self.wiring.members.iter().map(|member| member.multicasts_retained()).sum();
        FabricResidue {
            slots,
            slot_bytes,
            frames: (frames + member_frames) as u64,
            multicasts: multicasts as u64,
            ..FabricResidue::default()
        }
    }

    /// Passes an input to a machine and performs the resulting actions.
    pub(super) fn handle_input(&mut self, network: &mut SimulatedNetwork, end: EdgeEnd, input: MachineInput<'_>) {
        if self.rank_of(end.participant).is_some_and(|rank| self.sequence.has_left(rank)) {
            return;
        }
        let now = network.machine_time();
        let mut outbox = std::mem::take(&mut self.outbox);
        let (participant, edge) = (end.participant as usize, end.edge);
        self.service = if matches!(input, MachineInput::Multicast(_)) {
            TransportService::Datagram
        } else {
            TransportService::Connection
        };
        let timed_out = matches!(input, MachineInput::Timeout);
        match self.wiring.nodes.get_mut(participant) {
            Some(node) => match input {
                MachineInput::Frame(frame_path, frame) => {
                    node.handle_frame(now, edge, frame_path, frame, &mut outbox)
                }
                MachineInput::Multicast(message) => node.handle_multicast(now, edge, message, &mut outbox),
                MachineInput::Damage(damage) => node.handle_damage(now, edge, damage, &mut outbox),
                MachineInput::Shared(message) => node.handle_contribution_copy(now, edge, message, &mut outbox),
                MachineInput::PathDown(path) => node.handle_path_down(now, edge, path, &mut outbox),
                MachineInput::Timeout => node.handle_timeout(now, &mut outbox),
            },
            None => {
                let member = &mut self.wiring.members[participant - self.wiring.nodes.len()];
                match input {
                    MachineInput::Frame(frame_path, frame) => {
                        member.handle_frame(now, edge, frame_path, frame, &mut outbox)
                    }
                    MachineInput::Multicast(message) => member.handle_multicast(now, edge, message, &mut outbox),
                    MachineInput::Damage(damage) => member.handle_damage(now, edge, damage, &mut outbox),
                    MachineInput::Shared(_) => unreachable!("only nodes have replicas"),
                    MachineInput::PathDown(path) => member.handle_path_down(now, edge, path, &mut outbox),
                    MachineInput::Timeout => member.handle_timeout(now, &mut outbox),
                }
            }
        }
        if outbox.is_empty() && !timed_out && self.alternate_paths.is_empty() {
            self.outbox = outbox; // No action and no path to probe: the machine's deadline has not changed.
            return;
        }
        self.perform_actions(network, end.participant, outbox);
    }

    /// Performs the actions of a machine, then updates its timer.
    pub(super) fn perform_actions(
        &mut self,
        network: &mut SimulatedNetwork,
        participant: ParticipantIndex,
        mut outbox: Outbox,
    ) {
        for action in outbox.drain() {
            match action {
                AggregationAction::Transmit { edge, outgoing } => self.transmit(network, participant, edge, outgoing),
                AggregationAction::Multicast { message, copies } => {
                    self.multicast(network, participant, message, copies)
                }
                AggregationAction::Complete { .. } | AggregationAction::Failed { .. } if self.hosts.is_some() => {
                    self.notify_host(network, self.rank(participant), &action);
                }
                AggregationAction::Reduced { .. } => {
                    let at = network.now() + network.parameters().switch_delay;
                    self.sequence.run.reduced.get_or_insert(at);
                }
                AggregationAction::Complete { op, result } => {
                    self.note_completion(network, self.rank(participant), op, result)
                }
                AggregationAction::Failed { op, cause } => {
                    self.note_machine_failure(self.rank(participant), op, cause)
                }
            }
        }
        self.outbox = outbox;
        self.arm_timer(network, participant);
    }

    fn rank(&self, participant: ParticipantIndex) -> Rank {
        Rank(participant - self.wiring.nodes.len() as u32)
    }

    /// Sets a machine's timer if its deadline is earlier than the timer that is set.
    fn arm_timer(&mut self, network: &mut SimulatedNetwork, participant: ParticipantIndex) {
        let index = participant as usize;
        let deadline = SimTime::from(match self.wiring.nodes.get(index) {
            Some(node) => node.deadline(),
            None => self.wiring.members[index - self.wiring.nodes.len()].deadline(),
        });
        if deadline < self.timers[index] {
            self.timers[index] = deadline;
            network.set_timer(deadline.max(network.now()), MACHINE_TIMER | participant);
        }
    }

    pub(super) fn rank_of(&self, participant: ParticipantIndex) -> Option<Rank> {
        (participant as usize >= self.wiring.nodes.len()).then(|| self.rank(participant))
    }

    /// Schedules an event that does not travel on a link.
    pub(super) fn defer(&mut self, network: &mut SimulatedNetwork, at: SimTime, event: DeferredEvent) {
        let number = self.deferred.insert(event);
        network.set_timer(at, DEFERRED_EVENT | number);
    }
}

/// An input to a node or a member.
pub(super) enum MachineInput<'a> {
    Frame(FramePath, &'a Frame<AggregationMessage>),
    Multicast(&'a AggregationMessage),
    Damage(Damage),
    Shared(&'a AggregationMessage),
    PathDown(PathId),
    Timeout,
}

impl NetworkHandler for CollectiveDriver {
    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        if self.is_of_earlier_tree(network) {
            return;
        }
        let (channel, bytes) = (arrival.channel, arrival.bytes);
        match check_arrival(network, arrival) {
            Some(ArrivalCheck::Intact(body)) => self.admit(network, channel, bytes, body),
            Some(ArrivalCheck::Damaged(damage)) => self.handle_damage(network, channel, damage),
            None => {}
        }
    }

    fn handle_idle_source(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("collectives have no source channels")
    }

    fn handle_timer(&mut self, network: &mut SimulatedNetwork, number: u32) {
        if self.is_of_earlier_tree(network) {
            return;
        }
        if number & DEFERRED_EVENT != 0 {
            let event = self.deferred.remove(number & TIMER_INDEX_MASK).expect("a deferred event has one timer");
            return self.handle_deferred(network, event);
        }
        // A timer that was later set to an earlier time expires twice; ignore the second time.
        if self.timers[number as usize] > network.now() {
            return;
        }
        self.timers[number as usize] = SimTime::NEVER;
        self.handle_input(network, EdgeEnd { participant: number, edge: EdgeIndex(0) }, MachineInput::Timeout);
    }

    fn handle_link_change(&mut self, network: &mut SimulatedNetwork, channels: &[ChannelId]) {
        if self.parameters.alternate_paths.is_none_or(|alternates| alternates.notice == LinkNotification::Silent) {
            return;
        }
        self.take_over(network);
        // The next probe detects a path that is up again.
        let down: Vec<ChannelId> = channels.iter().copied().filter(|channel| network.is_down(*channel)).collect();
        let paths: Vec<(EdgeEnd, u8)> = self.wiring.paths_on(&self.alternate_paths, &down).collect();
        for (end, path) in paths {
            self.handle_input(network, end, MachineInput::PathDown(PathId(path)));
        }
    }
}
