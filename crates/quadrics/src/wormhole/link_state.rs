//! What happens to links: packets and bytes on each, what a fault plan damages or loses, and which links are down.
//!
//! A head that has to take a link that is down ends there: the switch before it drains the packet, and no answer comes back
//! ([`AckStatus::Unanswered`]). Of several ports, those whose links are down are not taken. The answers themselves are never damaged.

use simulator::fault::{LinkFaults, PacketFate};
use simulator::{FabricCounters, LinkErrorCounters};

use super::super::packet::{AckStatus, CircuitDestination};
use super::super::quaternary_tree::{ARITY, EliteSwitch, TreeLink};
use super::super::source_route::RouteTag;
use super::{CircuitPhase, WormholeEvent, WormholeNetwork};

/// The traffic of one link.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LinkTraffic {
    /// Packets whose heads took it.
    pub(crate) packets: u32,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// The faults of all links, and what was on them.
pub(super) struct LinkState {
    faults: LinkFaults,
    traffic: Vec<LinkTraffic>,
    errors: FabricCounters,
}

impl WormholeNetwork {
    /// Applies a fault plan, and counts the traffic of every link from now on.
    pub(crate) fn set_faults(&mut self, faults: LinkFaults) {
        let traffic = vec![LinkTraffic::default(); self.tree.links() as usize];
        self.links = Some(Box::new(LinkState { faults, traffic, errors: FabricCounters::default() }));
        self.schedule_link_changes();
    }

    /// Waiting heads look again when a link goes down or comes up.
    pub(super) fn schedule_link_changes(&mut self) {
        let Some(links) = &self.links else { return };
        for (at, link) in links.faults.changes().filter(|(at, _)| *at >= self.now) {
            self.queue.push(at, WormholeEvent::Grant { link: TreeLink(link) }.encode());
        }
    }

    /// Errors and losses so far.
    pub(crate) fn errors(&self) -> Option<&FabricCounters> {
        self.links.as_ref().map(|links| &links.errors)
    }

    /// The traffic of a link, and its errors.
    pub(crate) fn link_record(&self, link: u32) -> Option<(LinkTraffic, LinkErrorCounters)> {
        let links = self.links.as_ref()?;
        let errors = links.errors.links.get(&link).copied().unwrap_or_default();
        Some((*links.traffic.get(link as usize)?, errors))
    }

    #[inline]
    pub(super) fn count_traffic(&mut self, link: TreeLink, bytes: u32) {
        if let Some(links) = &mut self.links {
            let traffic = &mut links.traffic[link.0 as usize];
            traffic.packets += 1;
            traffic.bytes += u64::from(bytes);
        }
    }

    #[inline]
    pub(super) fn is_down(&self, link: TreeLink) -> bool {
        self.links.as_ref().is_some_and(|links| links.faults.is_down(link.0, self.now))
    }

    /// The first port of a tag, if the links of all its ports are down.
    pub(super) fn dead_end(&self, switch: EliteSwitch, tag: RouteTag) -> Option<TreeLink> {
        let mut links = (tag.first..=tag.last).map(|port| self.tree.out(switch, u32::from(port)));
        let first = links.clone().next()?;
        links.all(|link| self.is_down(link)).then_some(first)
    }

    /// The first up link of a switch, if all of them are down.
    pub(super) fn dead_end_up(&self, switch: EliteSwitch) -> Option<TreeLink> {
        self.dead_end(switch, RouteTag { first: ARITY as u8, last: (2 * ARITY - 1) as u8 })
    }

    /// A head ends before a link that is down.
    pub(super) fn end_head(&mut self, number: u32, link: TreeLink) {
        self.circuits[number as usize].cut_at = Some(link);
        self.head_arrived(number);
    }

    /// What became of the packet of a circuit on its links.
    pub(super) fn packet_status(&mut self, number: u32) -> AckStatus {
        let circuit = &self.circuits[number as usize];
        let (bytes, since, now) = (circuit.packet.bytes, circuit.streaming_since, self.now);
        debug_assert!(circuit.phase != CircuitPhase::Opening, "the packet has been sent");
        let Some(links) = &mut self.links else { return AckStatus::Success };
        if let Some(link) = circuit.cut_at {
            links.errors.note_lost_on_down_link(link.0);
            self.failed_link = Some(link);
            return AckStatus::Unanswered;
        }
        let mut status = AckStatus::Success;
        for channel in &circuit.channels {
            let link = channel / super::MAX_CHANNELS;
            let fate = if links.faults.was_down(link, (since, now)) {
                links.errors.note_lost_on_down_link(link);
                PacketFate::Lost
            } else {
                let fate = links.faults.fate(link, bytes, (since, now));
                match fate {
                    PacketFate::Intact => continue,
                    PacketFate::Damaged => links.errors.note_damaged(link),
                    PacketFate::Lost => links.errors.note_lost(link),
                }
                fate
            };
            self.failed_link = Some(TreeLink(link));
            status =
                status.max(if fate == PacketFate::Lost { AckStatus::Unanswered } else { AckStatus::NetworkError });
            if status == AckStatus::Unanswered && matches!(circuit.packet.to, CircuitDestination::Node(_)) {
                break; // It does not reach the links behind.
            }
        }
        status
    }

    /// The link to which the last failed packet owes its failure.
    pub(crate) fn failed_link(&self) -> Option<TreeLink> {
        self.failed_link
    }

    /// Forgets all circuits and events, as after a reset of all adapters; time, faults and counters go on.
    pub(crate) fn reset(&mut self, seed: u64) {
        let fresh = Self::new(self.parameters, seed).expect("the parameters were valid before");
        let old = std::mem::replace(self, fresh);
        (self.now, self.links, self.counters, self.trace) = (old.now, old.links, old.counters, old.trace);
        self.schedule_link_changes();
    }
}
