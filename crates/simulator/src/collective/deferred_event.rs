//! What happens beside the links: messages inside a switch, the passage of a unit's port, and the software of hosts.
//!
//! In: a packet for a node that sits behind an internal port, or one that it sends. Out: the same, after it had its turn at
//! the port ([`super::aggregation_unit`]). Everything that waits is mail: it has a number, and the alarm of that number opens it.

use std::rc::Rc;

use protocol::Payload;
use protocol::aggregation::{AggregationMessage, EdgeIndex};
use protocol::connection::{Frame, FramePath, OutgoingFrame};
use units::{Rank, SimSpan};
use wire::aggregation::AggregationMessageKind;

use super::aggregation_unit::{EgressKind, PortGrant, UnitPorts};
use super::driver::{CollectiveDriver, MachineInput, NO_QUEUE_PAIRS};
use super::measure::HostSoftwareEvent;
use super::wiring::{EdgeEnd, ParticipantIndex};
use crate::network::{ChannelId, SimulatedNetwork};
use crate::packet_body::PacketBody;

/// Something that will happen beside the links.
pub(super) enum DeferredEvent {
    /// A machine hears of something.
    Beside { to: EdgeEnd, body: Rc<PacketBody> },
    /// A packet for a node could be through its port, were that idle.
    AtPort { node: ParticipantIndex, coming: IngressPacket },
    /// A packet has come through.
    Passed { coming: IngressPacket },
    /// A node has something to send.
    Leaving { node: ParticipantIndex, departure: EgressMessage },
    /// A node's port is free, and something waits there.
    PortFree { node: ParticipantIndex },
    /// A member comes late to the operation that is running.
    Comes { rank: Rank, own: Option<Payload> },
    /// A host's software comes to this.
    Host { rank: Rank, event: HostSoftwareEvent },
}

/// A packet on its way to a node.
pub(super) struct IngressPacket {
    channel: ChannelId,
    bytes: u32,
    body: Rc<PacketBody>,
}

/// What a node sends.
pub(super) enum EgressMessage {
    /// A frame over an edge.
    Over { edge: EdgeIndex, outgoing: OutgoingFrame<AggregationMessage> },
    /// A multicast to all below.
    Down { message: AggregationMessage, copies: u8 },
}

/// The ports of all nodes.
pub(super) type AggregationUnitPorts = UnitPorts<IngressPacket, EgressMessage>;

impl EgressMessage {
    fn message(&self) -> Option<&AggregationMessage> {
        match self {
            Self::Over { outgoing: OutgoingFrame { frame: Frame::Data { message, .. }, .. }, .. } => Some(message),
            Self::Over { .. } => None,
            Self::Down { message, .. } => Some(message),
        }
    }
}

impl CollectiveDriver {
    /// Whether a machine is a node behind an internal port.
    pub(super) fn is_behind_port(&self, party: ParticipantIndex) -> bool {
        self.units.is_some() && (party as usize) < self.wiring.nodes.len()
    }

    /// What a host's message takes to reach the adapter.
    pub(super) fn sending(&self, frame: &Frame<AggregationMessage>) -> SimSpan {
        match (&self.parameters.host, frame) {
            (Some(costs), Frame::Data { message, .. }) => costs.sending(message.payload.len()),
            _ => SimSpan::ZERO,
        }
    }

    /// A sound packet has come: it goes to whom it is for, through the port if there is one.
    pub(super) fn admit(
        &mut self,
        network: &mut SimulatedNetwork,
        channel: ChannelId,
        bytes: u32,
        body: Rc<PacketBody>,
    ) {
        let party = match &*body {
            PacketBody::Edge { to, .. } => Some(to.party),
            PacketBody::Multicast { root, .. } => self.wiring.hearer(channel, *root).map(|end| end.party),
            PacketBody::Transport { .. } => None,
        };
        match party.filter(|party| self.is_behind_port(*party)) {
            Some(node) => {
                let at = network.now() + network.parameters().switch_delay;
                self.send_mail(
                    network,
                    at,
                    DeferredEvent::AtPort { node, coming: IngressPacket { channel, bytes, body } },
                );
            }
            None => self.hand_in(network, channel, &body),
        }
    }

    /// A node wants to send: folding takes its time, then the packet waits for the port.
    pub(super) fn leave(&mut self, network: &mut SimulatedNetwork, node: ParticipantIndex, departure: EgressMessage) {
        let folded = match departure.message().map(|message| message.header.kind) {
            Some(AggregationMessageKind::Contribution) => true,
            Some(AggregationMessageKind::Result) => self.wiring.is_root(node),
            _ => false,
        };
        let fold = self.units.as_ref().map_or(SimSpan::ZERO, |units| units.parameters.fold);
        let at = network.now() + if folded { fold } else { SimSpan::ZERO };
        self.send_mail(network, at, DeferredEvent::Leaving { node, departure });
    }

    /// The time of a piece of mail has come.
    pub(super) fn open_mail(&mut self, network: &mut SimulatedNetwork, mail: DeferredEvent) {
        match mail {
            DeferredEvent::Beside { to, body } => match &*body {
                PacketBody::Edge { to, came, frame } => self.hand_in_frame(network, *to, *came, frame),
                PacketBody::Multicast { message, .. } => self.feed(network, to, MachineInput::Multicast(message)),
                PacketBody::Transport { .. } => unreachable!("{NO_QUEUE_PAIRS}"),
            },
            DeferredEvent::AtPort { node, coming } => {
                let (channel, bytes) = (coming.channel, coming.bytes);
                self.at_port(network, node, |units| units.wait_in(node as usize, channel, coming, bytes));
            }
            DeferredEvent::Passed { coming: IngressPacket { channel, body, .. } } => {
                self.hand_in(network, channel, &body)
            }
            DeferredEvent::Leaving { node, departure } => self.queue_up(network, node, departure),
            DeferredEvent::PortFree { node } => self.at_port(network, node, |units| units.is_asked(node as usize)),
            DeferredEvent::Comes { rank, own } => self.begin(network, rank, own),
            DeferredEvent::Host { rank, event } => self.host_event(network, rank, event),
        }
    }

    /// A packet takes its place at the port.
    fn queue_up(&mut self, network: &mut SimulatedNetwork, node: ParticipantIndex, departure: EgressMessage) {
        let bytes = self.size_of(node, &departure);
        let passage = match (&departure, departure.message()) {
            (EgressMessage::Over { .. }, Some(message)) if message.header.kind == AggregationMessageKind::Result => {
                EgressKind::HandedDown(message.op())
            }
            _ => EgressKind::Packet,
        };
        self.at_port(network, node, |units| units.wait_out(node as usize, departure, bytes, passage));
    }

    /// Something changes at a port; then whoever may pass does.
    fn at_port(
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
                PortGrant::In(coming, passed) => {
                    self.send_mail(network, passed + receive, DeferredEvent::Passed { coming })
                }
                PortGrant::Out(departure) => self.depart(network, node, departure),
            }
        }
        if let Some(at) = self.units.as_mut().and_then(|units| units.ask_again_at(node as usize)) {
            self.send_mail(network, at, DeferredEvent::PortFree { node });
        }
    }

    /// Its head enters the switch, which passes it on.
    fn depart(&mut self, network: &mut SimulatedNetwork, node: ParticipantIndex, departure: EgressMessage) {
        let ready = network.now() + network.parameters().switch_delay;
        match departure {
            EgressMessage::Over { edge, outgoing } => self.inject_frame(network, node, edge, outgoing, ready),
            EgressMessage::Down { message, copies } => self.inject_multicast(network, node, message, copies, ready),
        }
    }

    fn size_of(&self, node: ParticipantIndex, departure: &EgressMessage) -> u32 {
        let body = match departure {
            EgressMessage::Over { edge, outgoing } => PacketBody::Edge {
                to: self.wiring.wire(node, *edge).far,
                came: FramePath { path: outgoing.path, migration: outgoing.migration },
                frame: outgoing.frame.clone(),
            },
            EgressMessage::Down { message, .. } => {
                PacketBody::Multicast { root: self.wiring.root_of[node as usize], message: message.clone() }
            }
        };
        self.size(&body)
    }
}
