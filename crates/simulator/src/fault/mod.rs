//! Faults as rules, outside the fabric.
//!
//! In: a plan (`faults::Plan`, from TOML) and a seed. Out: for each departure that a rule watches, its fate; and the
//! times at which cables go down and come up. A fate is a pure function of the seed, the rule, the channel and the
//! time, so a rule added for one link leaves the luck of all others as it was.

mod rule;

use std::collections::BTreeMap;

use units::{Span, Time};

pub use faults::{FaultKind, PhaseFilter, Plan, PlanError, RulePlan};
pub(crate) use rule::Wiring;
use rule::{Rule, Trigger};

use crate::body::{Body, Phase};
use crate::network::{ChannelId, Harm, Inside, Packet};

/// What becomes of a departing packet.
pub(crate) struct Fate {
    pub harm: Option<Harm>,
    pub ending: Ending,
    pub doubled: bool,
    pub delay: Span,
}

/// Whether it gets to the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Arrives,
    /// It vanishes.
    Lost,
    /// It is sent without credit and does not fit.
    Overrun,
}

/// A change of the world: some channels go down, or come up.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub at: Time,
    pub channels: Vec<ChannelId>,
    pub down: bool,
}

/// The rules in force, and what they remember.
#[derive(Default)]
pub(crate) struct Faults {
    rules: Vec<Rule>,
    changes: Vec<Change>,
    /// Packets seen so far by the rules that count, by rule and channel.
    seen: BTreeMap<(usize, ChannelId), u64>,
}

impl Faults {
    /// No faults.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// The rules of a plan over a fabric.
    pub(crate) fn new(plan: &Plan, seed: u64, wiring: &Wiring<'_>) -> Result<Self, PlanError> {
        let mut faults = Self::none();
        for (number, rule) in plan.rules.iter().enumerate() {
            let seed = plan.seed.unwrap_or(seed);
            if matches!(rule.kind.get_ref(), FaultKind::Down | FaultKind::Kill) {
                faults.changes.extend(rule::changes(rule, wiring)?);
            } else {
                faults.rules.push(Rule::new(rule, seed, number as u64, wiring)?);
            }
        }
        faults.changes.sort_by_key(|change| change.at);
        Ok(faults)
    }

    /// Whether any rule looks at what departs on a channel.
    pub(crate) fn watches(&self, channel: ChannelId) -> bool {
        self.rules.iter().any(|rule| rule.watches(channel))
    }

    pub(crate) fn change_times(&self) -> Vec<Time> {
        self.changes.iter().map(|change| change.at).collect()
    }

    pub(crate) fn change(&self, number: u32) -> Change {
        self.changes[number as usize].clone()
    }

    /// Decides what becomes of a packet that departs on a watched channel.
    pub(crate) fn judge(&mut self, channel: ChannelId, packet: &Packet, start: Time, end: Time) -> Fate {
        let mut fate = Fate { harm: None, ending: Ending::Arrives, doubled: false, delay: Span::ZERO };
        let phase = packet.body.as_deref().map_or(Phase::Control, Body::phase);
        for (number, rule) in self.rules.iter_mut().enumerate() {
            if !rule.watches(channel) || !rule.concerns(phase) {
                continue;
            }
            let hit = match rule.trigger {
                Trigger::Nth { first, count } => {
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

impl Fate {
    fn hurt(&mut self, harm: Harm) {
        match &mut self.harm {
            Some(present) => present.add(harm),
            absent => *absent = Some(harm),
        }
    }

    fn spoil(&mut self, inside: Inside, bits: Vec<u32>) {
        self.hurt(Harm::inside(inside, bits));
    }
}
