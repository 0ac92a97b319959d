//! Beyond the paper: a barrier that the switches fold, as SHArP does, over the same links (SH-3; QN-16 asks for such extensions).
//!
//! Every node sends one word to its lowest switch. A switch that has received a word from all four below sends one word up; the
//! topmost one sends it down, and every switch forwards it by all its ports. So no packet holds more than one link, and no node
//! polls when another is late: the last word to arrive completes the fold.

use units::Rank;

use super::super::packet::{
    AckCombining, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, wire_bytes,
};
use super::super::quaternary_tree::{ARITY, EliteSwitch, TreeLink, TreeLinkEnd};
use super::super::wormhole::WormholeNetwork;
use super::dma_message::CollectiveSignal;
use super::workload::SwitchFoldCosts;
use super::{AdapterEvent, ElanAdapters, InFlightPacket};
use protocol::collective::quadrics::CallNumber;

/// The state of the barrier in all switches.
#[derive(Debug)]
pub(super) struct FoldedBarrier {
    costs: SwitchFoldCosts,
    /// Words received, by the number of the switch.
    received: Vec<u8>,
    call: CallNumber,
}

impl FoldedBarrier {
    pub(super) fn new(costs: SwitchFoldCosts, switches: u32) -> Self {
        Self { costs, received: vec![0; switches as usize], call: CallNumber(0) }
    }
}

impl ElanAdapters {
    /// A rank enters the barrier: its word goes up.
    pub(super) fn contribute(&mut self, network: &mut WormholeNetwork, rank: Rank) {
        let Some(node) = self.job.as_ref().and_then(|job| job.members.node(rank)) else { return };
        let link = network.tree().injection(node);
        let commanded = self.command(node, network.now());
        let at = self.run_thread(node, commanded, self.costs.thread);
        self.schedule(network, at, AdapterEvent::SendWord(link));
    }

    pub(super) fn send_word(&mut self, network: &mut WormholeNetwork, link: TreeLink) {
        let tag = self.packets.insert(InFlightPacket::Word(link));
        let (priority, closing) = (CircuitPriority::Low, CircuitClosing::Acknowledgement);
        let to = CircuitDestination::Link(link);
        network.send(CircuitPacket {
            from: 0,
            to,
            bytes: wire_bytes(8),
            priority,
            closing,
            combining: AckCombining::Worst,
            slowest: None,
            attempt: 0,
            tag,
        });
    }

    /// A word has crossed a link.
    pub(super) fn word_arrived(&mut self, network: &mut WormholeNetwork, link: TreeLink, at: units::SimTime) {
        let Some(fold) = &self.fold else { return };
        let SwitchFoldCosts { receive, fold: folding } = fold.costs;
        match network.tree().end(link) {
            TreeLinkEnd::Node(node) => {
                let signal = CollectiveSignal::Release { call: fold.call };
                let taken = self.input(node, at);
                self.schedule(network, taken + self.notification(), AdapterEvent::HostSees { node, signal });
            }
            TreeLinkEnd::Switch(switch) if network.tree().leads_up(link) => {
                self.schedule(network, at + receive, AdapterEvent::CountWord(switch));
            }
            TreeLinkEnd::Switch(switch) => self.schedule(network, at + folding, AdapterEvent::ForwardDown(switch)),
        }
    }

    /// A word from below counts; the last one completes the fold.
    pub(super) fn count_word(&mut self, network: &mut WormholeNetwork, switch: EliteSwitch) {
        let Some(fold) = &mut self.fold else { return };
        let received = &mut fold.received[network.tree().index(switch) as usize];
        *received += 1;
        if u32::from(*received) < ARITY {
            return;
        }
        *received = 0;
        let at = network.now() + fold.costs.fold;
        let step = if switch.level + 1 < network.tree().dimension() {
            AdapterEvent::SendWord(network.tree().out(switch, ARITY))
        } else {
            AdapterEvent::ForwardDown(switch)
        };
        self.schedule(network, at, step);
    }

    /// A switch forwards the result by all its ports.
    pub(super) fn forward_down(&mut self, network: &mut WormholeNetwork, switch: EliteSwitch) {
        for port in 0..ARITY {
            let link = network.tree().out(switch, port);
            self.send_word(network, link);
        }
    }
}
