//! The receiving side of the driver: delivers the body of an intact packet to the machines.
//!
//! In: a body and the channel on which it arrived. Out: inputs to the node or member at the end of the edge, to the nodes below it on
//! the same switch (multicast), and to its replicas (ideal sharing, [`super::ReplicaSharing::AboveLevelOne`]).

use protocol::aggregation::{AggregationMessage, EdgeIndex};
use protocol::connection::{Frame, FramePath};
use wire::aggregation::AggregationMessageKind;

use super::driver::{CollectiveDriver, MachineInput, NO_QUEUE_PAIRS};
use crate::network::SimulatedNetwork;
use crate::packet::ChannelId;
use crate::packet_body::{EdgeEnd, PacketBody};

impl CollectiveDriver {
    /// Delivers an intact packet's body to its machine.
    pub(super) fn deliver_body(&mut self, network: &mut SimulatedNetwork, channel: ChannelId, body: &PacketBody) {
        match body {
            PacketBody::Edge { to, frame_path, frame } => self.deliver_frame(network, *to, *frame_path, frame),
            PacketBody::Multicast { root, message } => {
                if let Some(to) = self.wiring.multicast_receiver(channel, *root) {
                    self.deliver_multicast(network, to, message);
                }
            }
            PacketBody::Host { .. } | PacketBody::Flow(_) | PacketBody::Transport { .. } => {
                unreachable!("{NO_QUEUE_PAIRS}")
            }
        }
    }

    /// Delivers a frame to its machine, and to the replicas that share it.
    pub(super) fn deliver_frame(
        &mut self,
        network: &mut SimulatedNetwork,
        to: EdgeEnd,
        frame_path: FramePath,
        frame: &Frame<AggregationMessage>,
    ) {
        self.handle_input(network, to, MachineInput::Frame(frame_path, frame));
        if !self.replicas.is_empty() {
            self.share(network, to, frame);
        }
    }

    /// Delivers a multicast that arrived over a cable to the machine, and to the nodes below it on the same switch.
    fn deliver_multicast(&mut self, network: &mut SimulatedNetwork, to: EdgeEnd, message: &AggregationMessage) {
        self.handle_input(network, to, MachineInput::Multicast(message));
        if (to.participant as usize) < self.wiring.nodes.len() {
            for position in 0..self.wiring.co_located(to.participant).len() {
                let node = self.wiring.co_located(to.participant)[position];
                self.handle_input(network, node, MachineInput::Multicast(message));
            }
        }
    }

    /// Ideal sharing: a contribution that reached one replica above level 1 reaches the others immediately.
    fn share(&mut self, network: &mut SimulatedNetwork, to: EdgeEnd, frame: &Frame<AggregationMessage>) {
        let Frame::Data { message, .. } = frame else {
            return;
        };
        if message.header.kind != AggregationMessageKind::Contribution {
            return;
        }
        let Some(others) = self.replicas.get_mut(to.participant as usize).map(std::mem::take) else {
            return;
        };
        for participant in &others {
            // Nodes above level 1 have one edge per child, and replicas number their children alike.
            let edge = EdgeIndex(message.header.child.0);
            self.handle_input(network, EdgeEnd { participant: *participant, edge }, MachineInput::Shared(message));
        }
        self.replicas[to.participant as usize] = others;
    }
}
