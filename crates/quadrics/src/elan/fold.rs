//! Past the paper: a barrier that switches fold, as SHArP does, on the same wires (SH-3; QN-16 asks for what is beyond).
//!
//! Every node sends one word to its lowest switch. A switch that has heard from all four below sends one word up; the
//! topmost one sends it down, and every switch passes it on by all its ports. So no packet holds more than one link, and
//! nobody asks again when somebody is late: the last word to come is the one that completes the fold.

use units::{Rank, Span};

use super::super::packet::{Closing, Combining, Destination, Packet, Priority, wire_bytes};
use super::super::tree::{ARITY, End, Link, Switch};
use super::super::wormhole::Wormhole;
use super::program::Signal;
use super::{Elans, InFlight, Step};
use protocol::collective::quadrics::Call;

/// What a switch takes to fold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoldCosts {
    /// From a word's arrival until it counts.
    pub receive: Span,
    /// From the last word until the fold leaves, and for passing a result on.
    pub fold: Span,
}

/// The barrier's state in all switches.
#[derive(Debug)]
pub(super) struct Fold {
    costs: FoldCosts,
    /// Words that switches have heard, by their number.
    heard: Vec<u8>,
    call: Call,
}

impl Fold {
    pub(super) fn new(costs: FoldCosts, switches: u32) -> Self {
        Self { costs, heard: vec![0; switches as usize], call: Call(0) }
    }
}

impl Elans {
    /// A rank has come: its word goes up.
    pub(super) fn contribute(&mut self, network: &mut Wormhole, rank: Rank) {
        let Some(node) = self.job.as_ref().and_then(|job| job.members.node(rank)) else { return };
        let link = network.tree().injection(node);
        let told = self.command(node, network.now());
        let at = self.think(node, told, self.costs.thread);
        self.schedule(network, at, Step::WordGoes(link));
    }

    pub(super) fn send_word(&mut self, network: &mut Wormhole, link: Link) {
        let tag = self.packets.insert(InFlight::Word(link));
        let (priority, closing) = (Priority::Low, Closing::Acknowledgement);
        let to = Destination::Link(link);
        network.send(Packet {
            from: 0,
            to,
            bytes: wire_bytes(8),
            priority,
            closing,
            combining: Combining::Worst,
            slowest: None,
            tag,
        });
    }

    /// A word has crossed a link.
    pub(super) fn word_arrived(&mut self, network: &mut Wormhole, link: Link, at: units::Time) {
        let Some(fold) = &self.fold else { return };
        let FoldCosts { receive, fold: folding } = fold.costs;
        match network.tree().end(link) {
            End::Node(node) => {
                let signal = Signal::Release { call: fold.call };
                let taken = self.input(node, at);
                self.schedule(network, taken + self.notification(), Step::Seen { node, signal });
            }
            End::Switch(switch) if network.tree().leads_up(link) => {
                self.schedule(network, at + receive, Step::WordCounts(switch));
            }
            End::Switch(switch) => self.schedule(network, at + folding, Step::PassDown(switch)),
        }
    }

    /// A word from below counts; the last one lets the fold go.
    pub(super) fn count_word(&mut self, network: &mut Wormhole, switch: Switch) {
        let Some(fold) = &mut self.fold else { return };
        let heard = &mut fold.heard[network.tree().index(switch) as usize];
        *heard += 1;
        if u32::from(*heard) < ARITY {
            return;
        }
        *heard = 0;
        let at = network.now() + fold.costs.fold;
        let step = if switch.level + 1 < network.tree().dimension() {
            Step::WordGoes(network.tree().out(switch, ARITY))
        } else {
            Step::PassDown(switch)
        };
        self.schedule(network, at, step);
    }

    /// A switch passes the result on by all its ports.
    pub(super) fn pass_down(&mut self, network: &mut Wormhole, switch: Switch) {
        for port in 0..ARITY {
            let link = network.tree().out(switch, port);
            self.send_word(network, link);
        }
    }
}
