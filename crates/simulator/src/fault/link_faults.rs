//! Faults for a network that this crate does not simulate packet by packet: what becomes of a packet on a link, and when links are down.
//!
//! In: a plan, and the ends of every link. Out: a [`PacketFate`] for each packet on a link. Of the fault kinds it knows those of
//! [`LinkFaults::KINDS`]; the others need queues or headers of InfiniBand.

use std::collections::BTreeMap;
use std::ops::Range;

use topology::{Fabric, NodeId};
use units::SimTime;

use super::{ChannelMap, FabricFaultInjector, FaultKind, FaultPlan, FaultPlanError, LinkOutcome};
use crate::packet::ChannelId;
use crate::packet_body::PacketPhase;

/// What becomes of a packet on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketFate {
    /// It arrives as it was sent.
    Intact,
    /// It arrives with flipped bits.
    Damaged,
    /// It does not arrive.
    Lost,
}

/// The rules of a plan, for the links of a network.
#[derive(Default)]
pub struct LinkFaults {
    injector: FabricFaultInjector,
    /// Whether a rule watches each link.
    watched: Vec<bool>,
    outages: BTreeMap<ChannelId, Vec<Range<SimTime>>>,
}

impl LinkFaults {
    /// The kinds of fault that are known here.
    pub const KINDS: [FaultKind; 4] = [FaultKind::Flip, FaultKind::Lose, FaultKind::Down, FaultKind::Kill];

    /// Compiles a plan. Link `n` leads from `links[n].0` to `links[n].1`.
    ///
    /// # Errors
    /// A rule names a link or node that does not exist, or its values contradict each other.
    pub fn new(
        plan: &FaultPlan,
        seed: u64,
        fabric: &Fabric,
        links: &[(NodeId, NodeId)],
    ) -> Result<Self, FaultPlanError> {
        let channels = links.iter().map(|(from, to)| (*from, *to, 0)).collect();
        let injector = FabricFaultInjector::new(plan, seed, &ChannelMap { fabric, channels })?;
        let watched = match injector.rules.is_empty() {
            true => Vec::new(),
            false => (0..links.len()).map(|link| injector.watches(link as ChannelId)).collect(),
        };
        let outages = outages(&injector);
        Ok(Self { injector, watched, outages })
    }

    /// What becomes of a packet that is on a link from `start` to `end`.
    pub fn fate(&mut self, link: u32, bytes: u32, (start, end): (SimTime, SimTime)) -> PacketFate {
        if !self.watched.get(link as usize).is_some_and(|watched| *watched) {
            return PacketFate::Intact;
        }
        let effect = self.injector.apply_to(link, PacketPhase::Control, bytes, (start, end));
        match (effect.outcome, effect.corruption) {
            (LinkOutcome::Arrives, None) => PacketFate::Intact,
            (LinkOutcome::Arrives, Some(_)) => PacketFate::Damaged,
            (LinkOutcome::Lost | LinkOutcome::Overrun, _) => PacketFate::Lost,
        }
    }

    /// Whether a link is down at this time.
    pub fn is_down(&self, link: u32, at: SimTime) -> bool {
        self.was_down(link, (at, at))
    }

    /// Whether a link was down at any time from `start` to `end`, both included.
    pub fn was_down(&self, link: u32, (start, end): (SimTime, SimTime)) -> bool {
        let Some(outages) = self.outages.get(&link) else { return false };
        outages.iter().any(|outage| outage.start <= end && start < outage.end)
    }

    /// The times at which links go down or come up, with the link.
    pub fn changes(&self) -> impl Iterator<Item = (SimTime, u32)> + '_ {
        let times = |(link, outages): (&ChannelId, &Vec<Range<SimTime>>)| {
            let (link, ends) = (*link, |outage: &Range<SimTime>| [outage.start, outage.end]);
            outages.iter().flat_map(ends).filter(|at| *at != SimTime::NEVER).map(|at| (at, link)).collect::<Vec<_>>()
        };
        self.outages.iter().flat_map(times)
    }
}

/// When each link is down.
fn outages(injector: &FabricFaultInjector) -> BTreeMap<ChannelId, Vec<Range<SimTime>>> {
    let mut outages: BTreeMap<ChannelId, Vec<Range<SimTime>>> = BTreeMap::new();
    for change in &injector.changes {
        for channel in &change.channels {
            let of_link = outages.entry(*channel).or_default();
            let open = of_link.last_mut().filter(|outage| outage.end == SimTime::NEVER);
            match (open, change.down) {
                (None, true) => of_link.push(change.at..SimTime::NEVER),
                (Some(outage), false) => outage.end = change.at,
                (Some(_), true) | (None, false) => {}
            }
        }
    }
    outages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(plan: &str) -> Result<LinkFaults, FaultPlanError> {
        let fabric = Fabric::kary_ntree(4, 1).expect("a switch with four hosts");
        let links: Vec<(NodeId, NodeId)> = (0..4).map(|host| (NodeId(host), NodeId(4))).collect();
        LinkFaults::new(&FaultPlan::parse(plan)?, 1, &fabric, &links)
    }

    fn micros(micros: u64) -> SimTime {
        SimTime::from_picos(micros * 1_000_000)
    }

    #[test]
    fn a_link_is_down_from_the_start_to_the_end_of_its_rule() {
        let faults =
            faults("[[fault]]\nkind = \"down\"\nlink = \"H1-S0\"\nat-us = 10\nfor-us = 5\n").expect("a plan");
        assert!(faults.is_down(1, micros(10)) && faults.is_down(1, micros(14)));
        assert!(!faults.is_down(1, micros(9)) && !faults.is_down(1, micros(15)) && !faults.is_down(0, micros(12)));
        assert!(faults.was_down(1, (micros(1), micros(20))) && !faults.was_down(1, (micros(15), micros(20))));
        assert_eq!(faults.changes().collect::<Vec<_>>(), [(micros(10), 1), (micros(15), 1)]);
    }

    #[test]
    fn rules_strike_the_packets_of_their_link_alone() {
        let plan =
            "[[fault]]\nkind = \"flip\"\nlink = \"H2>S0\"\nnth = 2\n\n[[fault]]\nkind = \"lose\"\nlink = \"H3>S0\"\n";
        let mut faults = faults(plan).expect("a plan");
        let mut fate = |link, at| faults.fate(link, 378, (micros(at), micros(at + 1)));
        assert_eq!(
            [fate(2, 1), fate(2, 2), fate(2, 3)],
            [PacketFate::Intact, PacketFate::Damaged, PacketFate::Intact]
        );
        assert_eq!((fate(3, 1), fate(0, 2)), (PacketFate::Lost, PacketFate::Intact));
    }

    #[test]
    fn a_link_that_does_not_exist_is_an_error() {
        assert!(faults("[[fault]]\nkind = \"lose\"\nlink = \"H9-S0\"\n").is_err());
    }
}
