//! A compiled rule: its links resolved to channels, its probabilities to thresholds.

use std::ops::Range;

use topology::{Fabric, NodeId};
use units::{SimSpan, SimTime};

use super::effect::{FaultEffect, LinkOutcome, LinkStateChange};
use crate::packet::{ChannelId, DeviceCorruption, PacketCorruption};
use crate::packet_body::PacketPhase;
use faults::{FaultKind, FaultPlanError, FaultRule, PhaseFilter, Probability, RandomStream};

/// The channels of the fabric that rules refer to.
pub(crate) struct ChannelMap<'a> {
    pub fabric: &'a Fabric,
    /// From node, to node and adapter lane of each channel; a channel of a port without a cable leads to [`UNCABLED`].
    pub channels: Vec<(NodeId, NodeId, u8)>,
}

/// The destination of a port without a cable.
const UNCABLED: NodeId = NodeId(u32::MAX);

#[derive(Clone, Copy, Debug)]
pub(super) enum FaultTrigger {
    Always,
    Nth {
        first: u64,
        count: u64,
    },
    /// Random errors with this mean time between them; a packet is exposed for its time on the wire or for a fixed span.
    Mean {
        picos: f64,
        exposure: Option<f64>,
    },
    Probability(Probability),
    BitErrorRate(f64),
}

enum RuleScope {
    Everywhere,
    /// Sorted.
    Channels(Vec<ChannelId>),
}

pub(super) struct CompiledFaultRule {
    kind: FaultKind,
    scope: RuleScope,
    phase: PhaseFilter,
    pub(super) trigger: FaultTrigger,
    bits: u32,
    delay: SimSpan,
    /// When the rule applies.
    active: Range<SimTime>,
    stream: RandomStream,
    /// The last exposure and its probability: most packets of a run have one size.
    cached: (u64, Probability),
}

impl CompiledFaultRule {
    pub(super) fn new(
        plan: &FaultRule,
        seed: u64,
        number: u64,
        wiring: &ChannelMap<'_>,
    ) -> Result<Self, FaultPlanError> {
        let kind = *plan.kind.get_ref();
        let scope = match &plan.link {
            None if plan.lane.is_none() => RuleScope::Everywhere,
            Some(link) if link.get_ref() == "*" && plan.lane.is_none() => RuleScope::Everywhere,
            link => {
                let text = link.as_ref().map_or("*", |link| link.get_ref());
                let span = link.as_ref().map_or(plan.kind.span(), toml::Spanned::span);
                RuleScope::Channels(resolve(text, plan.lane, span, wiring)?)
            }
        };
        let bits = plan.bits.as_ref().map_or(1, |bits| *bits.get_ref());
        if bits == 0 || bits > 1024 {
            let span = plan.bits.as_ref().map_or(plan.kind.span(), toml::Spanned::span);
            return Err(FaultPlanError::new(span, "bits: from 1 to 1024"));
        }
        let delay = positive(plan.delay_ns.as_ref(), "delay-ns")?;
        if kind == FaultKind::Delay && delay.is_none() {
            return Err(FaultPlanError::new(plan.kind.span(), "a delay needs delay-ns"));
        }
        Ok(Self {
            kind,
            scope,
            phase: plan.phase,
            trigger: trigger(plan)?,
            bits,
            delay: SimSpan::from_picos((delay.unwrap_or(0.0) * 1e3) as u64),
            active: duration(plan)?,
            stream: RandomStream::new(seed, 0xfa01_7000 + number),
            cached: (0, Probability::new(0.0)),
        })
    }

    pub(super) fn watches(&self, channel: ChannelId) -> bool {
        match &self.scope {
            RuleScope::Everywhere => true,
            RuleScope::Channels(channels) => channels.binary_search(&channel).is_ok(),
        }
    }

    /// Whether the rule applies to packets that depart at this time.
    pub(super) fn is_active(&self, at: SimTime) -> bool {
        self.active.contains(&at)
    }

    pub(super) fn matches_phase(&self, phase: PacketPhase) -> bool {
        match self.phase {
            PhaseFilter::All => true,
            PhaseFilter::Reduce => phase == PacketPhase::Reduce,
            PhaseFilter::Broadcast => phase == PacketPhase::Broadcast,
        }
    }

    /// A random number of this departure alone: a channel starts one packet at a time.
    fn draw(&self, channel: ChannelId, start: SimTime, purpose: u64) -> u64 {
        self.stream.at(u64::from(channel).rotate_left(40) ^ start.as_picos().wrapping_mul(8).wrapping_add(purpose))
    }

    /// Whether a random trigger hits this departure.
    pub(super) fn triggers(&mut self, channel: ChannelId, start: SimTime, end: SimTime, bytes: u32) -> bool {
        let chance = match self.trigger {
            FaultTrigger::Always => return true,
            FaultTrigger::Nth { .. } => unreachable!("the caller counts packets"),
            FaultTrigger::Probability(chance) => chance,
            FaultTrigger::BitErrorRate(rate) => self.chance(u64::from(bytes), |bytes| {
                // 1 - (1 - rate)^bits, without losing small rates to rounding.
                -f64::exp_m1(bytes as f64 * 8.0 * f64::ln_1p(-rate))
            }),
            FaultTrigger::Mean { picos, exposure } => {
                let window = exposure.map_or(end.since(start).as_picos(), |fixed| fixed as u64);
                self.chance(window, |window| -f64::exp_m1(-(window as f64) / picos))
            }
        };
        chance.hits(self.draw(channel, start, 0))
    }

    fn chance(&mut self, size: u64, probability: impl Fn(u64) -> f64) -> Probability {
        if self.cached.0 != size {
            self.cached = (size, Probability::new(probability(size)));
        }
        self.cached.1
    }

    /// Applies the rule's fault to a departure.
    pub(super) fn apply(
        &self,
        channel: ChannelId,
        start: SimTime,
        end: SimTime,
        bytes: u32,
        effect: &mut FaultEffect,
    ) {
        let bits = || -> Vec<u32> {
            let pick = |number: u32| self.draw(channel, start, 2 + u64::from(number)) % (u64::from(bytes.max(1)) * 8);
            (0..self.bits).map(|number| pick(number) as u32).collect()
        };
        match self.kind {
            FaultKind::Flip => effect.corrupt(PacketCorruption::flipped(bits())),
            FaultKind::Memory => effect.corrupt_in_device(DeviceCorruption::Memory, bits()),
            FaultKind::Malform => effect.corrupt_in_device(DeviceCorruption::Malformed, Vec::new()),
            FaultKind::Misroute => effect.corrupt_in_device(DeviceCorruption::Misrouted, Vec::new()),
            FaultKind::Lose => effect.outcome = LinkOutcome::Lost,
            FaultKind::Overrun => effect.outcome = LinkOutcome::Overrun,
            FaultKind::Duplicate => effect.duplicated = true,
            FaultKind::Delay => {
                let most = self.delay.as_picos();
                effect.delay =
                    effect.delay + SimSpan::from_picos(self.draw(channel, start, 1) % most.saturating_add(1));
            }
            FaultKind::Reorder => {
                let packet_time = end.since(start).as_picos();
                let later = packet_time + 1 + self.draw(channel, start, 1) % (2 * packet_time + 1);
                effect.delay = effect.delay + SimSpan::from_picos(later);
            }
            FaultKind::Down | FaultKind::Kill => {
                unreachable!("link changes are not compiled to packet rules")
            }
        }
    }
}

fn trigger(plan: &FaultRule) -> Result<FaultTrigger, FaultPlanError> {
    let given = [
        plan.nth.as_ref().map(|value| ("nth", value.span())),
        plan.mean_us.as_ref().map(|value| ("mean-us", value.span())),
        plan.probability.as_ref().map(|value| ("probability", value.span())),
        plan.bit_error_rate.as_ref().map(|value| ("bit-error-rate", value.span())),
    ];
    let mut given = given.into_iter().flatten();
    if let (Some((first, _)), Some((second, span))) = (given.next(), given.next()) {
        return Err(FaultPlanError::new(span, format!("{first} and {second} exclude each other: keep one")));
    }
    if let Some(nth) = &plan.nth {
        if *nth.get_ref() == 0 {
            return Err(FaultPlanError::new(nth.span(), "nth: packets are counted from 1"));
        }
        return Ok(FaultTrigger::Nth { first: *nth.get_ref(), count: plan.count.unwrap_or(1) });
    }
    if let Some(mean) = positive(plan.mean_us.as_ref(), "mean-us")? {
        let exposure = positive(plan.exposure_ns.as_ref(), "exposure-ns")?.map(|nanos| nanos * 1e3);
        return Ok(FaultTrigger::Mean { picos: mean * 1e6, exposure });
    }
    for (name, value) in [("probability", &plan.probability), ("bit-error-rate", &plan.bit_error_rate)] {
        let Some(value) = value else { continue };
        if !(0.0..=1.0).contains(value.get_ref()) {
            return Err(FaultPlanError::new(value.span(), format!("{name}: from 0 to 1")));
        }
        return Ok(match name {
            "probability" => FaultTrigger::Probability(Probability::new(*value.get_ref())),
            _ => FaultTrigger::BitErrorRate(*value.get_ref()),
        });
    }
    Ok(FaultTrigger::Always)
}

fn positive(value: Option<&toml::Spanned<f64>>, name: &str) -> Result<Option<f64>, FaultPlanError> {
    let Some(value) = value else { return Ok(None) };
    if value.get_ref().is_finite() && *value.get_ref() > 0.0 {
        Ok(Some(*value.get_ref()))
    } else {
        Err(FaultPlanError::new(value.span(), format!("{name}: a number above 0")))
    }
}

/// The link changes of a `down` or `kill` rule.
pub(super) fn changes(plan: &FaultRule, wiring: &ChannelMap<'_>) -> Result<Vec<LinkStateChange>, FaultPlanError> {
    let channels = match plan.kind.get_ref() {
        FaultKind::Kill => {
            let name = plan.node.as_ref();
            let name = name
                .ok_or_else(|| FaultPlanError::new(plan.kind.span(), "kill needs node, such as \"S3\" or \"H7\""))?;
            let node = find(name.get_ref(), name.span(), wiring)?;
            let touches = |(_, (from, to, _)): &(usize, &(NodeId, NodeId, u8))| *from == node || *to == node;
            wiring.channels.iter().enumerate().filter(touches).map(|(channel, _)| channel as ChannelId).collect()
        }
        _ => {
            let link = plan.link.as_ref();
            let link =
                link.ok_or_else(|| FaultPlanError::new(plan.kind.span(), "down needs link, such as \"S0-S8\""))?;
            resolve(link.get_ref(), plan.lane, link.span(), wiring)?
        }
    };
    let Range { start, end } = duration(plan)?;
    let mut changes = vec![LinkStateChange { at: start, channels: channels.clone(), down: true }];
    if end != SimTime::NEVER {
        changes.push(LinkStateChange { at: end, channels, down: false });
    }
    Ok(changes)
}

/// From the start of a rule to its end, or permanently.
fn duration(plan: &FaultRule) -> Result<Range<SimTime>, FaultPlanError> {
    let micros = |value: f64| SimSpan::from_picos((value * 1e6) as u64);
    let at = plan.at_us.as_ref().map_or(0.0, |at| *at.get_ref());
    if !at.is_finite() || at < 0.0 {
        let span = plan.at_us.as_ref().map_or(plan.kind.span(), toml::Spanned::span);
        return Err(FaultPlanError::new(span, "at-us: a number from 0 on"));
    }
    let start = SimTime::ZERO + micros(at);
    let length = positive(plan.for_us.as_ref(), "for-us")?;
    Ok(start..length.map_or(SimTime::NEVER, |length| start + micros(length)))
}

/// The channels of a link name.
fn resolve(
    text: &str,
    lane: Option<u8>,
    span: Range<usize>,
    wiring: &ChannelMap<'_>,
) -> Result<Vec<ChannelId>, FaultPlanError> {
    let pick = |matches: &dyn Fn(NodeId, NodeId) -> bool| -> Vec<ChannelId> {
        let fits = |(_, (from, to, on)): &(usize, &(NodeId, NodeId, u8))| {
            *to != UNCABLED && matches(*from, *to) && lane.is_none_or(|lane| lane == *on)
        };
        wiring.channels.iter().enumerate().filter(fits).map(|(channel, _)| channel as ChannelId).collect()
    };
    let found = if text == "*" {
        pick(&|_, _| true)
    } else if let Some(levels) = text.strip_prefix("level ") {
        let (a, one_way, b) = ends(levels, &span)?;
        let level = |text: &str| {
            let wrong =
                |_| FaultPlanError::new(span.clone(), format!("'{text}' is not a level; write \"level 1-2\""));
            text.trim().parse::<u8>().map_err(wrong)
        };
        let (a, b) = (level(a)?, level(b)?);
        let of = |node| wiring.fabric.level(node);
        pick(&|from, to| (of(from), of(to)) == (a, b) || !one_way && (of(from), of(to)) == (b, a))
    } else {
        let (a, one_way, b) = ends(text, &span)?;
        let (a, b) = (find(a, span.clone(), wiring)?, find(b, span.clone(), wiring)?);
        pick(&|from, to| (from, to) == (a, b) || !one_way && (from, to) == (b, a))
    };
    if found.is_empty() {
        return Err(FaultPlanError::new(span, format!("no cable of this fabric is '{text}'")));
    }
    Ok(found)
}

/// Splits `a-b` (both directions) or `a>b` (one direction).
fn ends<'t>(text: &'t str, span: &Range<usize>) -> Result<(&'t str, bool, &'t str), FaultPlanError> {
    if let Some((a, b)) = text.split_once('>') {
        return Ok((a, true, b));
    }
    let wrong = || {
        let forms = "\"S0>S8\" (one direction), \"S0-S8\" (both), \"level 1-2\" or \"*\"";
        FaultPlanError::new(span.clone(), format!("'{text}' is not a link; write {forms}"))
    };
    text.split_once('-').map(|(a, b)| (a, false, b)).ok_or_else(wrong)
}

fn find(name: &str, span: Range<usize>, wiring: &ChannelMap<'_>) -> Result<NodeId, FaultPlanError> {
    let fabric = wiring.fabric;
    let unknown = || {
        let (hosts, switches) = (fabric.hosts() - 1, fabric.switches() - 1);
        FaultPlanError::new(span, format!("no node '{name}': hosts are H0 to H{hosts}, switches S0 to S{switches}"))
    };
    fabric.find(name.trim()).ok_or_else(unknown)
}
