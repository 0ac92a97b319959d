//! Faults as rules, outside the fabric.
//!
//! In: a plan (`faults::FaultPlan`, from TOML) and a seed. Out: for each departure that a rule watches, its fate; and the
//! times at which cables go down and come up. A fate is a pure function of the seed, the rule, the channel and the
//! time, so a rule added for one link leaves the luck of all others as it was.

mod compiled_rule;

use std::collections::BTreeMap;

use units::{SimSpan, SimTime};

pub(crate) use compiled_rule::ChannelMap;
use compiled_rule::{CompiledFaultRule, FaultTrigger};
pub use faults::{FaultKind, FaultPlan, FaultPlanError, FaultRule, PhaseFilter};

use crate::network::{ChannelId, DeviceCorruption, PacketCorruption, SimulatedPacket};
use crate::packet_body::{PacketBody, PacketPhase};

/// What becomes of a departing packet.
pub(crate) struct FaultEffect {
    pub harm: Option<PacketCorruption>,
    pub ending: LinkOutcome,
    pub doubled: bool,
    pub delay: SimSpan,
}

/// Whether it gets to the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkOutcome {
    Arrives,
    /// It vanishes.
    Lost,
    /// It is sent without credit and does not fit.
    Overrun,
}

/// A change of the world: some channels go down, or come up.
#[derive(Clone, Debug)]
pub(crate) struct LinkStateChange {
    pub at: SimTime,
    pub channels: Vec<ChannelId>,
    pub down: bool,
}

/// The rules in force, and what they remember.
#[derive(Default)]
pub(crate) struct FabricFaultInjector {
    rules: Vec<CompiledFaultRule>,
    changes: Vec<LinkStateChange>,
    /// Packets seen so far by the rules that count, by rule and channel.
    seen: BTreeMap<(usize, ChannelId), u64>,
}

impl FabricFaultInjector {
    /// No faults.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// The rules of a plan over a fabric.
    pub(crate) fn new(plan: &FaultPlan, seed: u64, wiring: &ChannelMap<'_>) -> Result<Self, FaultPlanError> {
        let mut faults = Self::none();
        for (number, rule) in plan.rules.iter().enumerate() {
            let seed = plan.seed.unwrap_or(seed);
            if matches!(rule.kind.get_ref(), FaultKind::Down | FaultKind::Kill) {
                faults.changes.extend(compiled_rule::changes(rule, wiring)?);
            } else {
                faults.rules.push(CompiledFaultRule::new(rule, seed, number as u64, wiring)?);
            }
        }
        faults.changes.sort_by_key(|change| change.at);
        Ok(faults)
    }

    /// Whether any rule looks at what departs on a channel.
    pub(crate) fn watches(&self, channel: ChannelId) -> bool {
        self.rules.iter().any(|rule| rule.watches(channel))
    }

    pub(crate) fn change_times(&self) -> Vec<SimTime> {
        self.changes.iter().map(|change| change.at).collect()
    }

    pub(crate) fn change(&self, number: u32) -> LinkStateChange {
        self.changes[number as usize].clone()
    }

    /// Decides what becomes of a packet that departs on a watched channel.
    pub(crate) fn judge(
        &mut self,
        channel: ChannelId,
        packet: &SimulatedPacket,
        start: SimTime,
        end: SimTime,
    ) -> FaultEffect {
        let mut fate = FaultEffect { harm: None, ending: LinkOutcome::Arrives, doubled: false, delay: SimSpan::ZERO };
        let phase = packet.body.as_deref().map_or(PacketPhase::Control, PacketBody::phase);
        for (number, rule) in self.rules.iter_mut().enumerate() {
            if !rule.watches(channel) || !rule.concerns(phase) {
                continue;
            }
            let hit = match rule.trigger {
                FaultTrigger::Nth { first, count } => {
                    let seen = self.seen.entry((number, channel)).or_default();
                    *seen += 1;
                    (first..first.saturating_add(count)).contains(seen)
                }
                _ => rule.strikes(channel, start, end, packet.bytes),
            };
            if hit {
                rule.apply(channel, start, end, packet.bytes, &mut fate);
            }
        }
        fate
    }
}

impl FaultEffect {
    fn hurt(&mut self, harm: PacketCorruption) {
        match &mut self.harm {
            Some(present) => present.add(harm),
            absent => *absent = Some(harm),
        }
    }

    fn spoil(&mut self, inside: DeviceCorruption, bits: Vec<u32>) {
        self.hurt(PacketCorruption::inside(inside, bits));
    }
}
