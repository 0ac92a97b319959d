//! Faults as rules, outside the network.
//!
//! In: a plan (`faults::FaultPlan`, from TOML) and a seed. Out: the effect on each departure that a rule watches, and the times at
//! which cables go down and come up. An effect is a pure function of the seed, the rule, the channel and the time, so a rule added
//! for one link does not change the faults of the others.

mod compiled_rule;
mod effect;
mod link_faults;

use std::collections::BTreeMap;

use units::{SimSpan, SimTime};

pub(crate) use compiled_rule::ChannelMap;
use compiled_rule::{CompiledFaultRule, FaultTrigger};
pub(crate) use effect::{FaultEffect, LinkOutcome, LinkStateChange};
pub use faults::{FaultKind, FaultPlan, FaultPlanError, FaultRule, PhaseFilter};
pub use link_faults::{LinkFaults, PacketFate};

use crate::packet::{ChannelId, SimulatedPacket};
use crate::packet_body::{PacketBody, PacketPhase};

/// The active rules and their counters.
#[derive(Default)]
pub(crate) struct FabricFaultInjector {
    rules: Vec<CompiledFaultRule>,
    changes: Vec<LinkStateChange>,
    /// Packets counted so far by the rules that count, by rule and channel.
    seen: BTreeMap<(usize, ChannelId), u64>,
}

impl FabricFaultInjector {
    /// No faults.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Compiles the rules of a plan for a fabric.
    pub(crate) fn new(plan: &FaultPlan, seed: u64, wiring: &ChannelMap<'_>) -> Result<Self, FaultPlanError> {
        let mut faults = Self::none();
        for (number, rule) in plan.rules.iter().enumerate() {
            let seed = plan.seed.unwrap_or(seed);
            if !rule.kind.get_ref().is_of_packets() {
                faults.changes.extend(compiled_rule::changes(rule, wiring)?);
            } else {
                faults.rules.push(CompiledFaultRule::new(rule, seed, number as u64, wiring)?);
            }
        }
        faults.changes.sort_by_key(|change| change.at);
        Ok(faults)
    }

    /// Whether any rule watches the departures on a channel.
    pub(crate) fn watches(&self, channel: ChannelId) -> bool {
        self.rules.iter().any(|rule| rule.watches(channel))
    }

    pub(crate) fn change_times(&self) -> Vec<SimTime> {
        self.changes.iter().map(|change| change.at).collect()
    }

    pub(crate) fn change(&self, number: u32) -> LinkStateChange {
        self.changes[number as usize].clone()
    }

    /// The effect of the rules on a packet that departs on a watched channel.
    pub(crate) fn apply_rules(
        &mut self,
        channel: ChannelId,
        packet: &SimulatedPacket,
        start: SimTime,
        end: SimTime,
    ) -> FaultEffect {
        let phase = packet.body.as_deref().map_or(PacketPhase::Control, PacketBody::phase);
        self.apply_to(channel, phase, packet.bytes, (start, end))
    }

    /// The effect of the rules on a packet of so many bytes that is on a channel from `start` to `end`.
    fn apply_to(
        &mut self,
        channel: ChannelId,
        phase: PacketPhase,
        bytes: u32,
        (start, end): (SimTime, SimTime),
    ) -> FaultEffect {
        let mut effect =
            FaultEffect { corruption: None, outcome: LinkOutcome::Arrives, duplicated: false, delay: SimSpan::ZERO };
        for (number, rule) in self.rules.iter_mut().enumerate() {
            if !rule.is_active(start) || !rule.watches(channel) || !rule.matches_phase(phase) {
                continue;
            }
            let hit = match rule.trigger {
                FaultTrigger::Nth { first, count } => {
                    let seen = self.seen.entry((number, channel)).or_default();
                    *seen += 1;
                    (first..first.saturating_add(count)).contains(seen)
                }
                _ => rule.triggers(channel, start, end, bytes),
            };
            if hit {
                rule.apply(channel, start, end, bytes, &mut effect);
            }
        }
        effect
    }
}
