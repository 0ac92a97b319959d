//! The sending side of the driver: turns what a machine sends into packets on the channels of the network.
//!
//! In: frames and multicasts of a node or member. Out: packets injected into channels, or events deferred for messages that do not
//! travel on a link: between nodes on one switch, and control messages with a fixed delay ([`ControlPath::Fixed`]).

use std::rc::Rc;

use protocol::aggregation::{AggregationMessage, EdgeIndex};
use protocol::connection::{FramePath, FramePurpose, OutgoingFrame};
use units::{PathId, SimSpan, SimTime};

use super::alternate_path::AlternatePath;
use super::deferred_event::{DeferredEvent, EgressMessage};
use super::driver::CollectiveDriver;
use super::parameters::{ControlPath, Framing, ResendWidth};
use super::wiring::EdgeLink;
use crate::network::SimulatedNetwork;
use crate::packet::{PacketTarget, SimulatedPacket};
use crate::packet_body::{EdgeEnd, PacketBody, ParticipantIndex};

impl CollectiveDriver {
    fn delay_of(&self, network: &SimulatedNetwork, participant: ParticipantIndex) -> SimSpan {
        let parameters = network.parameters();
        if (participant as usize) < self.wiring.nodes.len() {
            parameters.switch_delay
        } else {
            parameters.adapter_delay
        }
    }

    pub(super) fn transmit(
        &mut self,
        network: &mut SimulatedNetwork,
        participant: ParticipantIndex,
        edge: EdgeIndex,
        outgoing: OutgoingFrame<AggregationMessage>,
    ) {
        if self.is_behind_port(participant) {
            return self.reduce_then_queue(network, participant, EgressMessage::Over { edge, outgoing });
        }
        let ready = network.now() + self.delay_of(network, participant) + self.sending(&outgoing.frame);
        self.inject_frame(network, participant, edge, outgoing, ready);
    }

    /// Injects a frame into the channel of an edge; it leaves at `ready`.
    pub(super) fn inject_frame(
        &mut self,
        network: &mut SimulatedNetwork,
        participant: ParticipantIndex,
        edge: EdgeIndex,
        outgoing: OutgoingFrame<AggregationMessage>,
        ready: SimTime,
    ) {
        let OutgoingFrame { frame, copies, purpose, path, migration } = outgoing;
        let frame_path = FramePath { path, migration };
        let EdgeLink { channel, peer } = self.wiring.link(participant, edge);
        let body = Rc::new(PacketBody::Edge { to: peer, frame_path, frame });
        let Some(channel) = channel else {
            return self.defer(network, ready, DeferredEvent::WithoutLink { to: peer, body });
        };
        let to = network.destination(channel);
        let own = AlternatePath { channel, flow: 0 };
        let alternate =
            if path == PathId(0) { None } else { self.alternate_paths.get(&EdgeEnd { participant, edge }) };
        let AlternatePath { channel, flow } = alternate.copied().unwrap_or(own);
        if let (ControlPath::Fixed { turnaround }, FramePurpose::Control) = (self.parameters.control, purpose) {
            // Without a link, but not past a cable that is down.
            if network.is_down(channel) {
                return;
            }
            // The turnaround includes the other end's delay before it sends.
            let on_the_way = turnaround - self.delay_of(network, peer.participant);
            return self.defer(network, network.now() + on_the_way, DeferredEvent::WithoutLink { to: peer, body });
        }
        let mut bytes = self.size(&body);
        if purpose == FramePurpose::Retransmission
            && self.parameters.resend_width == ResendWidth::Port
            && self.rank_of(participant).is_some()
        {
            bytes = bytes.div_ceil(u32::from(network.parameters().adapter_lanes));
        }
        for _ in 0..copies {
            let packet = SimulatedPacket::new(PacketTarget::Node, to.0, bytes, ready, Some(body.clone()));
            network.inject(channel, SimulatedPacket { flow, ..packet });
        }
    }

    pub(super) fn size(&self, body: &PacketBody) -> u32 {
        match self.parameters.framing {
            Framing::Full => body.framed_bytes(),
            Framing::FullWith { extra_header_bytes } => body.framed_bytes().saturating_add_signed(extra_header_bytes),
            Framing::PayloadOnly => body.payload_bytes(),
        }
    }

    /// Starts a multicast: from a node to its subtree, from a member up to the root and from there to all members.
    pub(super) fn multicast(
        &mut self,
        network: &mut SimulatedNetwork,
        participant: ParticipantIndex,
        message: AggregationMessage,
        copies: u8,
    ) {
        if self.rank_of(participant).is_some() {
            return self.inject_member_multicast(network, participant, message, copies);
        }
        if self.is_behind_port(participant) {
            return self.reduce_then_queue(network, participant, EgressMessage::Down { message, copies });
        }
        let ready = network.now() + network.parameters().switch_delay;
        self.inject_multicast(network, participant, message, copies, ready);
    }

    fn inject_member_multicast(
        &mut self,
        network: &mut SimulatedNetwork,
        participant: ParticipantIndex,
        message: AggregationMessage,
        copies: u8,
    ) {
        let (Some(tree), Some(channel)) =
            (self.member_multicast_table, self.wiring.link(participant, EdgeIndex(0)).channel)
        else {
            unreachable!("the member multicast tree is built for these operations, and hosts have cables")
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
        participant: ParticipantIndex,
        message: AggregationMessage,
        copies: u8,
        ready: SimTime,
    ) {
        let plane = message.plane();
        let root = self.wiring.root_of[participant as usize];
        let tree = self.multicast_tables[root as usize];
        let body = Rc::new(PacketBody::Multicast { root, message });
        let bytes = self.size(&body);
        let links = self.wiring.down(participant, plane);
        for _ in 0..copies {
            for link in &links {
                match link.channel {
                    Some(channel) => {
                        network.inject(
                            channel,
                            SimulatedPacket::new(PacketTarget::Tree, tree, bytes, ready, Some(body.clone())),
                        );
                    }
                    None => {
                        self.defer(network, ready, DeferredEvent::WithoutLink { to: link.peer, body: body.clone() })
                    }
                }
            }
        }
    }
}
