//! Past the paper: a barrier that switches fold, as SHArP does, on the same wires (SH-3; QN-16 asks for what is beyond).
//!
//! Every node sends one word to its lowest switch. A switch that has heard from all four below sends one word up; the
//! topmost one sends it down, and every switch passes it on by all its ports. So no packet holds more than one link, and
//! nobody asks again when somebody is late: the last word to come is the one that completes the fold.

use units::{Rank, SimSpan};

use super::super::packet::{
    AckCombining, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, wire_bytes,
};
use super::super::quaternary_tree::{ARITY, EliteSwitch, TreeLink, TreeLinkEnd};
use super::super::wormhole::WormholeNetwork;
use super::collective_program::CollectiveSignal;
use super::{AdapterEvent, ElanAdapters, InFlightPacket};
use protocol::collective::quadrics::CallNumber;

/// What a switch takes to fold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchFoldCosts {
    /// From a word's arrival until it counts.
    pub receive: SimSpan,
    /// From the last word until the fold leaves, and for passing a result on.
    pub fold: SimSpan,
}

/// The barrier's state in all switches.
#[derive(Debug)]
pub(super) struct FoldedBarrier {
    costs: SwitchFoldCosts,
    /// Words that switches have heard, by their number.
    heard: Vec<u8>,
    call: CallNumber,
}

impl FoldedBarrier {
    pub(super) fn new(costs: SwitchFoldCosts, switches: u32) -> Self {
        Self { costs, heard: vec![0; switches as usize], call: CallNumber(0) }
    }
}

impl ElanAdapters {
    /// A rank has come: its word goes up.
    pub(super) fn contribute(&mut self, network: &mut WormholeNetwork, rank: Rank) {
        let Some(node) = self.job.as_ref().and_then(|job| job.members.node(rank)) else { return };
        let link = network.tree().injection(node);
        let told = self.command(node, network.now());
        let at = self.think(node, told, self.costs.thread);
        self.schedule(network, at, AdapterEvent::WordGoes(link));
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
                self.schedule(network, taken + self.notification(), AdapterEvent::Seen { node, signal });
            }
            TreeLinkEnd::Switch(switch) if network.tree().leads_up(link) => {
                self.schedule(network, at + receive, AdapterEvent::WordCounts(switch));
            }
            TreeLinkEnd::Switch(switch) => self.schedule(network, at + folding, AdapterEvent::PassDown(switch)),
        }
    }

    /// A word from below counts; the last one lets the fold go.
    pub(super) fn count_word(&mut self, network: &mut WormholeNetwork, switch: EliteSwitch) {
        let Some(fold) = &mut self.fold else { return };
        let heard = &mut fold.heard[network.tree().index(switch) as usize];
        *heard += 1;
        if u32::from(*heard) < ARITY {
            return;
        }
        *heard = 0;
        let at = network.now() + fold.costs.fold;
        let step = if switch.level + 1 < network.tree().dimension() {
            AdapterEvent::WordGoes(network.tree().out(switch, ARITY))
        } else {
            AdapterEvent::PassDown(switch)
        };
        self.schedule(network, at, step);
    }

    /// A switch passes the result on by all its ports.
    pub(super) fn pass_down(&mut self, network: &mut WormholeNetwork, switch: EliteSwitch) {
        for port in 0..ARITY {
            let link = network.tree().out(switch, port);
            self.send_word(network, link);
        }
    }
}
