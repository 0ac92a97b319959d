//! The costs of a network, from the times of two collectives on it.
//!
//! In: how long a short and a long allreduce took, and how fast this machine folds. Out: the costs with which the model estimates just
//! these times; so estimates for other lengths, algorithms and numbers of hosts are to scale.

use reduce::ReductionKind;

use super::cost_model::TransportCosts;
use crate::collective::{CollectiveAlgorithm, CollectiveOperation};

/// The algorithm and length of the short allreduce: one message in each round, and nothing but messages.
pub const SHORT_PROBE: (CollectiveAlgorithm, u32) = (CollectiveAlgorithm::RecursiveDoubling, 8);
/// The algorithm and length of the long one: every byte is on the wire once in each direction for each host, and is folded once.
pub const LONG_PROBE: (CollectiveAlgorithm, u32) = (CollectiveAlgorithm::Ring, 1 << 20);
/// A further message in a round costs this part of the first one: sending and receiving it, without the way between the hosts.
const NEXT_MESSAGE_SHARE: u64 = 4;
/// Beyond these, a measurement is wrong, or the costs no longer matter.
const MESSAGE_NS: std::ops::RangeInclusive<u64> = 10..=100_000_000;
const BYTE_PS: std::ops::RangeInclusive<u64> = 1..=10_000_000;

/// What was measured among so many hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkProbe {
    /// Hosts that took part.
    pub hosts: u32,
    /// The reduction of both allreduces.
    pub kind: ReductionKind,
    /// Time of [`SHORT_PROBE`].
    pub short_ns: u64,
    /// Time of [`LONG_PROBE`].
    pub long_ns: u64,
    /// Folding one byte, in picoseconds.
    pub fold_byte_ps: u64,
}

impl TransportCosts {
    /// The costs that explain a measurement.
    pub fn fitted(probe: &NetworkProbe) -> Self {
        let all_reduce = CollectiveOperation::AllReduce { kind: probe.kind };
        let estimate = |costs: Self, (algorithm, bytes): (CollectiveAlgorithm, u32)| {
            costs.point_to_point_ns(algorithm, &all_reduce, probe.hosts, bytes)
        };
        let nothing = Self { message_ns: 0, next_message_ns: 0, byte_ps: 0, fold_byte_ps: 0 };
        // The model is linear in its costs: with one of them set, the estimate is that cost times how often it is paid.
        let rounds = estimate(Self { message_ns: 1, ..nothing }, SHORT_PROBE).max(1);
        let message_ns = (probe.short_ns / rounds).clamp(*MESSAGE_NS.start(), *MESSAGE_NS.end());
        let fold_byte_ps = probe.fold_byte_ps.clamp(*BYTE_PS.start(), *BYTE_PS.end());
        let without_wire = estimate(Self { message_ns, fold_byte_ps, ..nothing }, LONG_PROBE);
        let bytes = estimate(Self { byte_ps: 1000, ..nothing }, LONG_PROBE).max(1);
        let wire_ps = probe.long_ns.saturating_sub(without_wire).saturating_mul(1000) / bytes;
        let byte_ps = wire_ps.clamp(*BYTE_PS.start(), *BYTE_PS.end());
        Self { message_ns, next_message_ns: message_ns / NEXT_MESSAGE_SHARE, byte_ps, fold_byte_ps }
    }

    /// True if they can be the costs of a network: a file may say anything.
    pub fn are_plausible(&self) -> bool {
        let messages = [self.message_ns, self.next_message_ns];
        let bytes = [self.byte_ps, self.fold_byte_ps];
        MESSAGE_NS.contains(&self.message_ns)
            && messages.iter().all(|ns| ns <= MESSAGE_NS.end())
            && bytes.iter().all(|ps| BYTE_PS.contains(ps))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MEASURED_KIND, TransportClass};
    use super::*;

    #[test]
    fn costs_are_found_again_from_the_times_that_they_predict() {
        for (message_ns, byte_ps, fold_byte_ps) in [(6_000, 200, 100), (1_300, 80, 30), (50_000, 8_000, 100)] {
            let costs = TransportCosts { message_ns, next_message_ns: message_ns / 4, byte_ps, fold_byte_ps };
            for hosts in [2, 3, 4, 7, 16] {
                let collective = CollectiveOperation::AllReduce { kind: MEASURED_KIND };
                let time = |(algorithm, bytes)| costs.point_to_point_ns(algorithm, &collective, hosts, bytes);
                let (short_ns, long_ns) = (time(SHORT_PROBE), time(LONG_PROBE));
                let fitted = TransportCosts::fitted(&NetworkProbe {
                    hosts,
                    kind: MEASURED_KIND,
                    short_ns,
                    long_ns,
                    fold_byte_ps,
                });
                let is_near = |found: u64, real: u64| found.abs_diff(real) * 50 <= real;
                assert!(is_near(fitted.message_ns, message_ns), "{hosts} hosts: {fitted:?}");
                assert!(is_near(fitted.byte_ps, byte_ps), "{hosts} hosts: {fitted:?}");
                assert!(fitted.are_plausible());
            }
        }
    }

    #[test]
    fn times_that_cannot_be_are_no_reason_to_fail() {
        for (short_ns, long_ns) in [(0, 0), (u64::MAX, u64::MAX), (u64::MAX, 0), (1, u64::MAX)] {
            let probe = NetworkProbe { hosts: 2, kind: MEASURED_KIND, short_ns, long_ns, fold_byte_ps: 0 };
            assert!(TransportCosts::fitted(&probe).are_plausible());
        }
        let costs = TransportClass::Datagrams.costs();
        assert!(costs.are_plausible());
        assert!(!TransportCosts { message_ns: 0, ..costs }.are_plausible());
        assert!(!TransportCosts { byte_ps: u64::MAX, ..costs }.are_plausible());
    }
}
