//! Applies a fault plan to what an endpoint sends; the simulator runs the same plans.
//!
//! The links of the plan are `"*"` or `"port 1"` here, counted from zero; times count from the opening of the endpoint.
//! Supported kinds are those that a network applies to a datagram: lose, flip, duplicate, delay, reorder, down.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

use faults::{FaultKind, FaultPlan, FaultPlanError, FaultRule, Probability, RandomStream};
use units::{Span, Time};
use wire::{Packet, rocev2};

use super::port::{UdpPort, UdpPortIndex};

/// How long a reordered packet is delayed.
const REORDER_DELAY: Duration = Duration::from_micros(200);

/// Datagrams that may be delayed at once; further ones are lost.
const MAX_DELAYED: usize = 1 << 12;

/// The faults of a plan.
#[derive(Clone, Default, Debug)]
pub struct FaultInjector {
    rules: Vec<InjectionRule>,
    cuts: Vec<PortOutage>,
}

#[derive(Clone, Debug)]
struct InjectionRule {
    kind: FaultKind,
    port: Option<u8>,
    trigger: InjectionTrigger,
    bits: u32,
    delay: Duration,
    stream: RandomStream,
    seen: u64,
}

#[derive(Clone, Copy, Debug)]
enum InjectionTrigger {
    Always,
    Nth {
        first: u64,
        count: u64,
    },
    Chance(Probability),
    /// The probability per bit.
    Bits(f64),
}

#[derive(Clone, Copy, Debug)]
struct PortOutage {
    port: Option<u8>,
    from: Time,
    until: Time,
}

/// The faults of one packet.
#[derive(Default, Debug)]
pub(crate) struct DatagramFaults {
    pub lost: bool,
    pub duplicated: bool,
    pub delay: Option<Duration>,
    /// Bits to flip behind the ICRC computation, modulo the bits of the packet.
    pub flips: Vec<u64>,
}

impl DatagramFaults {
    /// The packet is sent unchanged.
    pub(crate) fn is_none(&self) -> bool {
        !self.lost && !self.duplicated && self.delay.is_none() && self.flips.is_empty()
    }
}

impl FaultInjector {
    /// The faults of a plan.
    ///
    /// # Errors
    /// If a rule does not apply to a socket; the error names the rule and the supported ones.
    pub fn from_plan(plan: &FaultPlan, seed: u64) -> Result<Self, FaultPlanError> {
        let seed = plan.seed.unwrap_or(seed);
        let mut fault_injector = Self::default();
        for (number, rule) in plan.rules.iter().enumerate() {
            let port = port_of(rule)?;
            let (kind, span) = (*rule.kind.get_ref(), rule.kind.span());
            match kind {
                FaultKind::Down => {
                    let micros = |value: f64| Time::from_nanos((value.clamp(0.0, 1e12) * 1e3) as u64);
                    let from = rule.at_us.as_ref().map_or(0.0, |at| *at.get_ref());
                    let until = rule.for_us.as_ref().map_or(Time::NEVER, |span| micros(from + *span.get_ref()));
                    fault_injector.cuts.push(PortOutage { port, from: micros(from), until });
                }
                FaultKind::Lose | FaultKind::Flip | FaultKind::Duplicate | FaultKind::Delay | FaultKind::Reorder => {
                    fault_injector.rules.push(InjectionRule {
                        kind,
                        port,
                        trigger: trigger_of(rule)?,
                        bits: rule.bits.as_ref().map_or(1, |bits| *bits.get_ref()).min(64),
                        delay: rule.delay_ns.as_ref().map_or(REORDER_DELAY, |delay| {
                            Duration::from_nanos(delay.get_ref().clamp(0.0, 1e10) as u64)
                        }),
                        stream: RandomStream::new(seed, number as u64),
                        seen: 0,
                    });
                }
                other => {
                    let message = format!(
                        "{other:?} does not apply to a socket; supported: lose, flip, duplicate, delay, reorder, down"
                    );
                    return Err(FaultPlanError::new(span, message));
                }
            }
        }
        Ok(fault_injector)
    }

    /// Loses one packet in `drop_one_in` and flips a bit in one of `corrupt_one_in`; zero disables.
    pub fn new(drop_one_in: u32, corrupt_one_in: u32) -> Self {
        let rule = |kind, one_in: u32| FaultRule::new(kind).with_probability(1.0 / f64::from(one_in));
        let wanted = [(FaultKind::Lose, drop_one_in), (FaultKind::Flip, corrupt_one_in)];
        let rules = wanted.into_iter().filter(|(_, one_in)| *one_in > 0).map(|(kind, one_in)| rule(kind, one_in));
        let plan = FaultPlan { seed: None, rules: rules.collect() };
        Self::from_plan(&plan, 1).expect("both kinds apply to a socket")
    }

    /// The faults of a packet of this size that leaves by a port.
    pub(crate) fn faults_for(&mut self, port: UdpPortIndex, bytes: usize) -> DatagramFaults {
        let mut faults = DatagramFaults::default();
        for rule in self.rules.iter_mut().filter(|rule| rule.port.is_none_or(|only| only == port.0)) {
            rule.seen += 1;
            let luck = |draw: u64| rule.stream.at(rule.seen * 128 + draw);
            let hits = match rule.trigger {
                InjectionTrigger::Always => true,
                InjectionTrigger::Nth { first, count } => (first..first.saturating_add(count)).contains(&rule.seen),
                InjectionTrigger::Chance(chance) => chance.hits(luck(0)),
                InjectionTrigger::Bits(rate) => {
                    Probability::new(1.0 - (1.0 - rate).powf(bytes as f64 * 8.0)).hits(luck(0))
                }
            };
            if !hits {
                continue;
            }
            match rule.kind {
                FaultKind::Lose => faults.lost = true,
                FaultKind::Duplicate => faults.duplicated = true,
                FaultKind::Delay | FaultKind::Reorder => {
                    faults.delay = Some(rule.delay.mul_f64(luck(1) as f64 / u64::MAX as f64));
                }
                _ => faults.flips.extend((0..u64::from(rule.bits)).map(|bit| luck(2 + bit))),
            }
        }
        faults
    }

    /// Whether the plan cuts a port at a time; none if no rule cuts this port.
    fn is_cut(&self, port: UdpPortIndex, now: Time) -> Option<bool> {
        let concerned = self.cuts.iter().filter(|cut| cut.port.is_none_or(|only| only == port.0));
        concerned.fold(None, |cut, outage| Some(cut == Some(true) || (outage.from <= now && now < outage.until)))
    }

    /// Cuts and restores ports according to the plan.
    pub(crate) fn apply_outages(&self, ports: &mut [UdpPort], now: Time) {
        for (index, port) in ports.iter_mut().enumerate() {
            if let Some(cut) = self.is_cut(UdpPortIndex(index as u8), now) {
                port.is_cut = cut;
            }
        }
    }

    /// True if the plan has no faults.
    pub(crate) fn is_idle(&self) -> bool {
        self.rules.is_empty() && self.cuts.is_empty()
    }
}

/// When to send a delayed datagram, where to, and the datagram.
type DelayedDatagram = (Time, (UdpPortIndex, SocketAddr), Vec<u8>);

/// Datagrams that the fault plan delays.
#[derive(Default)]
pub(crate) struct DelayQueue {
    queue: BinaryHeap<Reverse<DelayedDatagram>>,
}

impl DelayQueue {
    /// When the next datagram is due.
    pub(crate) fn due(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// Applies faults to a datagram.
    pub(crate) fn apply(
        &mut self,
        ports: &[UdpPort],
        now: Time,
        to: (UdpPortIndex, SocketAddr),
        mut datagram: Vec<u8>,
        faults: &DatagramFaults,
    ) {
        if faults.lost {
            return;
        }
        for flip in &faults.flips {
            let bit = (flip % (datagram.len() as u64 * 8)) as usize;
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        let at = now + Span::from_nanos(faults.delay.map_or(0, |delay| delay.as_nanos() as u64));
        for _ in 0..if faults.duplicated { 2 } else { 1 } {
            if self.queue.len() < MAX_DELAYED {
                self.queue.push(Reverse((at, to, datagram.clone())));
            }
        }
        self.release(ports, now);
    }

    /// Sends the datagrams that are due.
    pub(crate) fn release(&mut self, ports: &[UdpPort], now: Time) {
        while self.due().is_some_and(|at| at <= now) {
            let Some(Reverse((_, (port, to), datagram))) = self.queue.pop() else { return };
            // An error is one more loss in a test of losses.
            let _ = ports[port.index()].send(to, &datagram, datagram.len());
        }
    }
}

/// A packet encoded as one datagram.
pub(crate) fn encode_datagram(packet: &Packet<'_>, flow: &rocev2::Flow) -> Vec<u8> {
    let mut bytes = vec![0; packet.size()];
    let length = rocev2::emit(packet, flow, &mut bytes);
    bytes.truncate(length);
    bytes
}

fn port_of(rule: &FaultRule) -> Result<Option<u8>, FaultPlanError> {
    let Some(link) = &rule.link else { return Ok(None) };
    let name = link.get_ref().trim();
    if name == "*" {
        return Ok(None);
    }
    let number = name.strip_prefix("port ").and_then(|number| number.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        FaultPlanError::new(
            link.span(),
            format!("{name:?} is not a link of a socket; use \"*\", \"port 0\", \"port 1\" ..."),
        )
    })
}

fn trigger_of(rule: &FaultRule) -> Result<InjectionTrigger, FaultPlanError> {
    if let Some(mean) = &rule.mean_us {
        let message = "mean-us does not apply to a socket; use nth, probability or bit-error-rate";
        return Err(FaultPlanError::new(mean.span(), message));
    }
    if let Some(time) = rule.at_us.as_ref().or(rule.for_us.as_ref()) {
        let message = "at-us and for-us apply only to down at a socket; other rules apply all the time";
        return Err(FaultPlanError::new(time.span(), message));
    }
    for (name, value) in [("probability", &rule.probability), ("bit-error-rate", &rule.bit_error_rate)] {
        // Not a number is not in the range either.
        if let Some(value) = value.as_ref().filter(|value| !(0.0..=1.0).contains(value.get_ref())) {
            let message = format!("{name} is {}; it must be from 0 to 1", value.get_ref());
            return Err(FaultPlanError::new(value.span(), message));
        }
    }
    Ok(match (&rule.nth, &rule.probability, &rule.bit_error_rate) {
        (Some(nth), ..) => InjectionTrigger::Nth { first: *nth.get_ref(), count: rule.count.unwrap_or(1) },
        (_, Some(probability), _) => InjectionTrigger::Chance(Probability::new(*probability.get_ref())),
        (_, _, Some(rate)) => InjectionTrigger::Bits(*rate.get_ref()),
        _ => InjectionTrigger::Always,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_applies_to_its_port_and_time() {
        let text = "[[fault]]\nkind = \"lose\"\nlink = \"port 1\"\nnth = 3\ncount = 2\n\n\
                    [[fault]]\nkind = \"down\"\nlink = \"port 0\"\nat-us = 10.0\nfor-us = 5.0\n";
        let mut fault_injector =
            FaultInjector::from_plan(&FaultPlan::parse(text).expect("a plan"), 1).expect("for sockets");
        let lost: Vec<bool> = (0..6).map(|_| fault_injector.faults_for(UdpPortIndex(1), 100).lost).collect();
        assert_eq!(lost, [false, false, true, true, false, false]);
        assert!(fault_injector.faults_for(UdpPortIndex(0), 100).is_none());
        let cut = |micros: u64| fault_injector.is_cut(UdpPortIndex(0), Time::from_nanos(micros * 1_000));
        assert_eq!([9, 10, 14, 15].map(cut), [Some(false), Some(true), Some(true), Some(false)]);
        assert_eq!(fault_injector.is_cut(UdpPortIndex(1), Time::ZERO), None);
    }

    #[test]
    fn an_unsupported_rule_is_an_error_that_names_the_supported_ones() {
        for (text, word) in [
            ("[[fault]]\nkind = \"kill\"\n", "Kill does not apply"),
            ("[[fault]]\nkind = \"lose\"\nprobability = -3.0\n", "must be from 0 to 1"),
            ("[[fault]]\nkind = \"lose\"\nprobability = nan\n", "must be from 0 to 1"),
            ("[[fault]]\nkind = \"flip\"\nbit-error-rate = 1.5\n", "must be from 0 to 1"),
            ("[[fault]]\nkind = \"lose\"\nlink = \"S0>S8\"\n", "is not a link of a socket"),
            ("[[fault]]\nkind = \"flip\"\nmean-us = 3.0\n", "mean-us"),
            ("[[fault]]\nkind = \"lose\"\nfor-us = 3.0\n", "apply only to down"),
        ] {
            let error = FaultInjector::from_plan(&FaultPlan::parse(text).expect("a plan"), 1).expect_err(word);
            assert!(error.message.contains(word), "{error}");
        }
        assert!(FaultPlan::parse("[[fault]]\nkind = \"sing\"\n").is_err());
    }
}
