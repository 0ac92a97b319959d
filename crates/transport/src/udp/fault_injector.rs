//! Faults that an endpoint commits itself on what it sends, from the same plans that the simulator obeys.
//!
//! A plan's links are here `"*"` or `"port 1"`, counted from zero; times run from when the endpoint was opened. Of the
//! kinds, those have a meaning that a network can do to a datagram: lose, flip, duplicate, delay, reorder, down.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

use faults::{FaultKind, FaultPlan, FaultPlanError, FaultRule, Probability, RandomStream};
use units::{Span, Time};
use wire::{Packet, rocev2};

use super::port::{UdpPort, UdpPortIndex};

/// How long an overtaken packet is held back.
const REORDER_DELAY: Duration = Duration::from_micros(200);

/// Datagrams that may be held back at once; more are lost.
const MAX_DELAYED: usize = 1 << 12;

/// Faults to commit.
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
    /// The probability of each bit.
    Bits(f64),
}

#[derive(Clone, Copy, Debug)]
struct PortOutage {
    port: Option<u8>,
    from: Time,
    until: Time,
}

/// What becomes of a packet.
#[derive(Default, Debug)]
pub(crate) struct DatagramFaults {
    pub lost: bool,
    pub doubled: bool,
    pub delay: Option<Duration>,
    /// Bits to flip after the ICRC was made; any number, to be taken modulo the packet's bits.
    pub flips: Vec<u64>,
}

impl DatagramFaults {
    /// Nothing happens to it.
    pub(crate) fn is_plain(&self) -> bool {
        !self.lost && !self.doubled && self.delay.is_none() && self.flips.is_empty()
    }
}

impl FaultInjector {
    /// The plan's faults.
    ///
    /// # Errors
    /// If a rule means nothing to a socket; the error says which and what would.
    pub fn from_plan(plan: &FaultPlan, seed: u64) -> Result<Self, FaultPlanError> {
        let seed = plan.seed.unwrap_or(seed);
        let mut mischief = Self::default();
        for (number, rule) in plan.rules.iter().enumerate() {
            let port = port_of(rule)?;
            let (kind, span) = (*rule.kind.get_ref(), rule.kind.span());
            match kind {
                FaultKind::Down => {
                    let micros = |value: f64| Time::from_picos((value.clamp(0.0, 1e12) * 1e6) as u64);
                    let from = rule.at_us.as_ref().map_or(0.0, |at| *at.get_ref());
                    let until = rule.for_us.as_ref().map_or(Time::NEVER, |span| micros(from + *span.get_ref()));
                    mischief.cuts.push(PortOutage { port, from: micros(from), until });
                }
                FaultKind::Lose | FaultKind::Flip | FaultKind::Duplicate | FaultKind::Delay | FaultKind::Reorder => {
                    mischief.rules.push(InjectionRule {
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
                    let message =
                        format!("{other:?} means nothing to a socket: lose, flip, duplicate, delay, reorder, down");
                    return Err(FaultPlanError::new(span, message));
                }
            }
        }
        Ok(mischief)
    }

    /// Loses one packet in `drop_one_in` and flips a bit in one in `corrupt_one_in`; zero: none.
    pub fn new(drop_one_in: u32, corrupt_one_in: u32) -> Self {
        let rule = |kind, one_in: u32| FaultRule::new(kind).with_probability(1.0 / f64::from(one_in));
        let wanted = [(FaultKind::Lose, drop_one_in), (FaultKind::Flip, corrupt_one_in)];
        let rules = wanted.into_iter().filter(|(_, one_in)| *one_in > 0).map(|(kind, one_in)| rule(kind, one_in));
        let plan = FaultPlan { seed: None, rules: rules.collect() };
        Self::from_plan(&plan, 1).expect("both kinds mean something to a socket")
    }

    /// What becomes of a packet of so many bytes that leaves by a port.
    pub(crate) fn judge(&mut self, port: UdpPortIndex, bytes: usize) -> DatagramFaults {
        let mut fate = DatagramFaults::default();
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
                FaultKind::Lose => fate.lost = true,
                FaultKind::Duplicate => fate.doubled = true,
                FaultKind::Delay | FaultKind::Reorder => {
                    fate.delay = Some(rule.delay.mul_f64(luck(1) as f64 / u64::MAX as f64));
                }
                _ => fate.flips.extend((0..u64::from(rule.bits)).map(|bit| luck(2 + bit))),
            }
        }
        fate
    }

    /// Whether a port is cut at a time by the plan; none if the plan cuts nothing.
    fn is_cut(&self, port: UdpPortIndex, now: Time) -> Option<bool> {
        let concerned = self.cuts.iter().filter(|cut| cut.port.is_none_or(|only| only == port.0));
        concerned.fold(None, |cut, outage| Some(cut == Some(true) || (outage.from <= now && now < outage.until)))
    }

    /// Cuts and mends ports as the plan says.
    pub(crate) fn cut_and_mend(&self, ports: &mut [UdpPort], now: Time) {
        for (index, port) in ports.iter_mut().enumerate() {
            if let Some(cut) = self.is_cut(UdpPortIndex(index as u8), now) {
                port.is_cut = cut;
            }
        }
    }

    /// True if there is nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.rules.is_empty() && self.cuts.is_empty()
    }
}

/// When to send a datagram that is held back, where, and the datagram.
type DelayedDatagram = (Time, (UdpPortIndex, SocketAddr), Vec<u8>);

/// Datagrams that the plan of faults delays.
#[derive(Default)]
pub(crate) struct DelayQueue {
    queue: BinaryHeap<Reverse<DelayedDatagram>>,
}

impl DelayQueue {
    /// When the next one is due.
    pub(crate) fn due(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// Does to a datagram what the plan of faults says.
    pub(crate) fn mishandle(
        &mut self,
        ports: &[UdpPort],
        now: Time,
        to: (UdpPortIndex, SocketAddr),
        mut datagram: Vec<u8>,
        fate: &DatagramFaults,
    ) {
        if fate.lost {
            return;
        }
        for flip in &fate.flips {
            let bit = (flip % (datagram.len() as u64 * 8)) as usize;
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        let at = now + Span::from_nanos(fate.delay.map_or(0, |delay| delay.as_nanos() as u64));
        for _ in 0..if fate.doubled { 2 } else { 1 } {
            if self.queue.len() < MAX_DELAYED {
                self.queue.push(Reverse((at, to, datagram.clone())));
            }
        }
        self.release(ports, now);
    }

    /// Sends what was held back long enough.
    pub(crate) fn release(&mut self, ports: &[UdpPort], now: Time) {
        while self.due().is_some_and(|at| at <= now) {
            let Some(Reverse((_, (port, to), datagram))) = self.queue.pop() else { return };
            // Whatever the kernel says to this one: it was to be mishandled anyway.
            let _ = ports[port.index()].send(to, &datagram, datagram.len());
        }
    }
}

/// A packet as the payload of a datagram of its own.
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
        FaultPlanError::new(link.span(), format!("{name:?} is no link of a socket: \"*\", or \"port 0\" and so on"))
    })
}

fn trigger_of(rule: &FaultRule) -> Result<InjectionTrigger, FaultPlanError> {
    if let Some(mean) = &rule.mean_us {
        let message = "mean-us means nothing to a socket: nth, probability or bit-error-rate";
        return Err(FaultPlanError::new(mean.span(), message));
    }
    Ok(match (&rule.nth, &rule.probability, &rule.bit_error_rate) {
        (Some(nth), ..) => InjectionTrigger::Nth { first: *nth.get_ref(), count: rule.count.unwrap_or(1) },
        (_, Some(probability), _) => InjectionTrigger::Chance(Probability::new(*probability.get_ref())),
        (_, _, Some(rate)) => InjectionTrigger::Bits(rate.get_ref().clamp(0.0, 1.0)),
        _ => InjectionTrigger::Always,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_strikes_where_and_when_it_says() {
        let text = "[[fault]]\nkind = \"lose\"\nlink = \"port 1\"\nnth = 3\ncount = 2\n\n\
                    [[fault]]\nkind = \"down\"\nlink = \"port 0\"\nat-us = 10.0\nfor-us = 5.0\n";
        let mut mischief =
            FaultInjector::from_plan(&FaultPlan::parse(text).expect("a plan"), 1).expect("for sockets");
        let lost: Vec<bool> = (0..6).map(|_| mischief.judge(UdpPortIndex(1), 100).lost).collect();
        assert_eq!(lost, [false, false, true, true, false, false]);
        assert!(mischief.judge(UdpPortIndex(0), 100).is_plain());
        let cut = |micros: u64| mischief.is_cut(UdpPortIndex(0), Time::from_picos(micros * 1_000_000));
        assert_eq!([9, 10, 14, 15].map(cut), [Some(false), Some(true), Some(true), Some(false)]);
        assert_eq!(mischief.is_cut(UdpPortIndex(1), Time::ZERO), None);
    }

    #[test]
    fn what_means_nothing_to_a_socket_is_an_error_that_says_what_would() {
        for (text, word) in [
            ("[[fault]]\nkind = \"kill\"\n", "Kill means nothing"),
            ("[[fault]]\nkind = \"lose\"\nlink = \"S0>S8\"\n", "is no link of a socket"),
            ("[[fault]]\nkind = \"flip\"\nmean-us = 3.0\n", "mean-us"),
        ] {
            let error = FaultInjector::from_plan(&FaultPlan::parse(text).expect("a plan"), 1).expect_err(word);
            assert!(error.message.contains(word), "{error}");
        }
        assert!(FaultPlan::parse("[[fault]]\nkind = \"sing\"\n").is_err());
    }
}
