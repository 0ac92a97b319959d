//! The driver's handling of deferred events ([`super::deferred_event`]).
//!
//! In: a packet to or from a node behind an internal port. Out: the same packet after it has passed the port
//! ([`super::aggregation_unit`]).

use std::rc::Rc;

use protocol::aggregation::AggregationMessage;
use protocol::connection::{Frame, FramePath};
use units::SimSpan;
use wire::aggregation::AggregationMessageKind;

use super::aggregation_unit::{EgressKind, PortGrant};
use super::deferred_event::{AggregationUnitPorts, DeferredEvent, EgressMessage, IngressPacket};
use super::driver::{CollectiveDriver, MachineInput, NO_QUEUE_PAIRS};
use crate::network::SimulatedNetwork;
use crate::packet::ChannelId;
use crate::packet_body::{PacketBody, ParticipantIndex};

impl CollectiveDriver {
    /// Whether a participant is a node behind an internal port.
    pub(super) fn is_behind_port(&self, participant: ParticipantIndex) -> bool {
        self.units.is_some() && (participant as usize) < self.wiring.nodes.len()
    }

    /// The time of a host's message from the processor to the adapter.
    pub(super) fn sending(&self, frame: &Frame<AggregationMessage>) -> SimSpan {
        match (&self.parameters.host, frame) {
            (Some(costs), Frame::Data { message, .. }) => costs.sending(message.payload.len()),
            _ => SimSpan::ZERO,
        }
    }

    /// Delivers an intact packet, through the internal port if the node has one.
    pub(crate) fn admit(
        &mut self,
        network: &mut SimulatedNetwork,
        channel: ChannelId,
        bytes: u32,
        body: Rc<PacketBody>,
    ) {
        let participant = match &*body {
            PacketBody::Edge { to, .. } => Some(to.participant),
            PacketBody::Multicast { root, .. } => {
                self.wiring.multicast_receiver(channel, *root).map(|end| end.participant)
            }
            PacketBody::Host { .. } | PacketBody::Flow(_) | PacketBody::Transport { .. } => None,
        };
        match participant.filter(|participant| self.is_behind_port(*participant)) {
            Some(node) => {
                let at = network.now() + network.parameters().switch_delay;
                self.defer(
                    network,
                    at,
                    DeferredEvent::AtPort { node, packet: IngressPacket { channel, bytes, body } },
                );
            }
            None => self.deliver_body(network, channel, &body),
        }
    }

    /// A node sends: first the time of the reduction, then the packet waits for the port.
    pub(super) fn reduce_then_queue(
        &mut self,
        network: &mut SimulatedNetwork,
        node: ParticipantIndex,
        egress: EgressMessage,
    ) {
        let folded = match egress.message().map(|message| message.header.kind) {
            Some(AggregationMessageKind::Contribution) => true,
            Some(AggregationMessageKind::Result) => self.wiring.is_root(node),
            _ => false,
        };
        let fold = self.units.as_ref().map_or(SimSpan::ZERO, |units| units.parameters.fold);
        let at = network.now() + if folded { fold } else { SimSpan::ZERO };
        self.defer(network, at, DeferredEvent::ReadyToLeave { node, egress });
    }

    /// Handles a deferred event whose time has come.
    pub(super) fn handle_deferred(&mut self, network: &mut SimulatedNetwork, deferred: DeferredEvent) {
        match deferred {
            DeferredEvent::WithoutLink { to, body } => match &*body {
                PacketBody::Edge { to, frame_path, frame } => self.deliver_frame(network, *to, *frame_path, frame),
                PacketBody::Multicast { message, .. } => {
                    self.handle_input(network, to, MachineInput::Multicast(message))
                }
                PacketBody::Host { .. } | PacketBody::Flow(_) | PacketBody::Transport { .. } => {
                    unreachable!("{NO_QUEUE_PAIRS}")
                }
            },
            DeferredEvent::AtPort { node, packet } => {
                let (channel, bytes) = (packet.channel, packet.bytes);
                self.update_port(network, node, |units| units.queue_ingress(node as usize, channel, packet, bytes));
            }
            DeferredEvent::Passed { packet: IngressPacket { channel, body, .. } } => {
                self.deliver_body(network, channel, &body)
            }
            DeferredEvent::ReadyToLeave { node, egress } => self.queue_at_port(network, node, egress),
            DeferredEvent::PortFree { node } => {
                self.update_port(network, node, |units| units.handle_wake_up(node as usize))
            }
            DeferredEvent::LateEntry { rank, own } => self.begin_late(network, rank, own),
            DeferredEvent::Host { rank, event } => self.host_event(network, rank, event),
        }
    }

    /// Queues a packet at its node's port.
    fn queue_at_port(&mut self, network: &mut SimulatedNetwork, node: ParticipantIndex, egress: EgressMessage) {
        let bytes = self.size_of(node, &egress);
        let passage = match (&egress, egress.message()) {
            (EgressMessage::Over { .. }, Some(message)) if message.header.kind == AggregationMessageKind::Result => {
                EgressKind::ResultCopy(message.op())
            }
            _ => EgressKind::Packet,
        };
        self.update_port(network, node, |units| units.queue_egress(node as usize, egress, bytes, passage));
    }

    /// Changes the state of a port, then lets the granted packets pass.
    fn update_port(
        &mut self,
        network: &mut SimulatedNetwork,
        node: ParticipantIndex,
        change: impl FnOnce(&mut AggregationUnitPorts),
    ) {
        let Some(units) = &mut self.units else { return };
        change(units);
        let receive = units.parameters.receive;
        while let Some(turn) = self.units.as_mut().and_then(|units| units.next(node as usize, network.now())) {
            match turn {
                PortGrant::In(packet, passed) => {
                    self.defer(network, passed + receive, DeferredEvent::Passed { packet })
                }
                PortGrant::Out(egress) => self.enter_switch(network, node, egress),
            }
        }
        if let Some(at) = self.units.as_mut().and_then(|units| units.next_wake_up(node as usize)) {
            self.defer(network, at, DeferredEvent::PortFree { node });
        }
    }

    /// The head of a packet enters the switch, which forwards it.
    fn enter_switch(&mut self, network: &mut SimulatedNetwork, node: ParticipantIndex, egress: EgressMessage) {
        let ready = network.now() + network.parameters().switch_delay;
        match egress {
            EgressMessage::Over { edge, outgoing } => self.inject_frame(network, node, edge, outgoing, ready),
            EgressMessage::Down { message, copies } => self.inject_multicast(network, node, message, copies, ready),
        }
    }

    fn size_of(&self, node: ParticipantIndex, egress: &EgressMessage) -> u32 {
        let body = match egress {
            EgressMessage::Over { edge, outgoing } => PacketBody::Edge {
                to: self.wiring.link(node, *edge).peer,
                frame_path: FramePath { path: outgoing.path, migration: outgoing.migration },
                frame: outgoing.frame.clone(),
            },
            EgressMessage::Down { message, .. } => {
                PacketBody::Multicast { root: self.wiring.root_of[node as usize], message: message.clone() }
            }
        };
        self.size(&body)
    }
}
