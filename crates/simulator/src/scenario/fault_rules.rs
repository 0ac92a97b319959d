//! The fault rules of a scenario, checked against the fabric before the run is set up.

use toml::Spanned;
use topology::Fabric;

use super::error::SpannedError;
use crate::fault::{ChannelMap, FabricFaultInjector, FaultKind, FaultPlan, FaultRule, PhaseFilter};

/// The most rules of a plan: each may list every cable.
const MAX_RULES: usize = 256;

/// The plan, if it matches the fabric. `lanes` is the number of channels of an adapter port.
pub(super) fn plan(
    rules: Vec<Spanned<FaultRule>>,
    seed: Option<u64>,
    fabric: &Fabric,
    lanes: u8,
) -> Result<FaultPlan, SpannedError> {
    if let Some(one_too_many) = rules.get(MAX_RULES) {
        let message = format!("{} rules; at most {MAX_RULES} are allowed", rules.len());
        return Err(SpannedError::new(one_too_many.span(), message));
    }
    for rule in &rules {
        check_fields(rule.get_ref(), rule.span())?;
    }
    let plan = FaultPlan { seed, rules: rules.into_iter().map(Spanned::into_inner).collect() };
    if !plan.rules.is_empty() {
        let wiring = ChannelMap { fabric, channels: channels(fabric, lanes) };
        FabricFaultInjector::new(&plan, 0, &wiring).map_err(|error| SpannedError::new(error.span, error.message))?;
    }
    Ok(plan)
}

/// Both directions of every cable, lane by lane where adapters are split. Only the names matter here, not the order.
fn channels(fabric: &Fabric, lanes: u8) -> Vec<(topology::NodeId, topology::NodeId, u8)> {
    let mut channels = Vec::new();
    for cable in fabric.cables() {
        let lanes = if fabric.is_host(cable.a.node) || fabric.is_host(cable.b.node) { lanes } else { 1 };
        for lane in 0..lanes {
            channels.extend([(cable.a.node, cable.b.node, lane), (cable.b.node, cable.a.node, lane)]);
        }
    }
    channels
}

/// Rejects fields that do not apply to a rule's kind. The simulator ignores them; in a file they are a mistake.
fn check_fields(rule: &FaultRule, whole: std::ops::Range<usize>) -> Result<(), SpannedError> {
    use FaultKind::{Delay, Down, Flip, Kill, Memory};
    let kind = *rule.kind.get_ref();
    let hard = matches!(kind, Down | Kill);
    let place = |given: Option<std::ops::Range<usize>>, fits: bool| given.filter(|_| !fits);
    fn at<T>(field: Option<&Spanned<T>>) -> Option<std::ops::Range<usize>> {
        field.map(Spanned::span)
    }
    let at_kind = |given: bool| given.then(|| rule.kind.span());
    let misplaced = [
        ("link", place(at(rule.link.as_ref()), kind != Kill), "is for every kind but kill"),
        ("node", place(at(rule.node.as_ref()), kind == Kill), "is for kill"),
        ("lane", place(at_kind(rule.lane.is_some()), kind != Kill), "is for every kind but kill"),
        ("phase", place(at_kind(rule.phase != PhaseFilter::All), !hard), "is not for down and kill"),
        ("nth", place(at(rule.nth.as_ref()), !hard), "is not for down and kill"),
        ("count", place(at_kind(rule.count.is_some()), rule.nth.is_some()), "goes with nth"),
        ("mean-us", place(at(rule.mean_us.as_ref()), !hard), "is not for down and kill"),
        ("exposure-ns", place(at(rule.exposure_ns.as_ref()), rule.mean_us.is_some()), "goes with mean-us"),
        ("probability", place(at(rule.probability.as_ref()), !hard), "is not for down and kill"),
        ("bit-error-rate", place(at(rule.bit_error_rate.as_ref()), !hard), "is not for down and kill"),
        ("bits", place(at(rule.bits.as_ref()), matches!(kind, Flip | Memory)), "is for flip and memory"),
        ("delay-ns", place(at(rule.delay_ns.as_ref()), kind == Delay), "is for delay"),
    ];
    if let Some((name, Some(span), why)) = misplaced.into_iter().find(|(_, span, _)| span.is_some()) {
        return Err(SpannedError::new(span, format!("{name} {why}")));
    }
    if rule.count == Some(0) {
        return Err(SpannedError::new(whole, "count: at least 1"));
    }
    for (name, value) in [("delay-ns", &rule.delay_ns), ("at-us", &rule.at_us), ("for-us", &rule.for_us)] {
        if let Some(value) = value
            && *value.get_ref() > MAX_TIME
        {
            return Err(SpannedError::new(value.span(), format!("{name}: at most 1e9")));
        }
    }
    Ok(())
}

/// The longest time of a rule, in its own unit: far beyond any run, far below where picoseconds overflow.
const MAX_TIME: f64 = 1e9;
