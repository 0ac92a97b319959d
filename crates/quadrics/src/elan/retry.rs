//! Packets that fail are sent again: at once after a network error, and after a timeout that doubles if no answer comes.
//!
//! After too many attempts in a row the destination counts as lost: the DMA ends, and a collective to which it belongs fails.

use units::{Rank, SimSpan, SimTime};

use super::super::packet::{AckStatus, CircuitDestination};
use super::super::quaternary_tree::{ARITY, TreeLinkEnd};
use super::super::wormhole::WormholeNetwork;
use super::ElanAdapters;

/// When a source gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryPolicy {
    /// How long a source waits for a missing answer; doubles each time.
    pub timeout: SimSpan,
    /// Missing answers in a row after which the destination counts as lost.
    pub retry_limit: u8,
    /// Network errors in a row after which it does.
    pub refusal_limit: u16,
}

impl RetryPolicy {
    /// What adapters do if nothing else is set.
    pub const USUAL: Self = Self { timeout: SimSpan::from_micros(100), retry_limit: 7, refusal_limit: 1_000 };
}

/// The attempts of one packet.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct PacketAttempts {
    refusals: u16,
    timeouts: u8,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextAttempt {
    /// The packet is sent again at this time.
    At(SimTime),
    /// The destination counts as lost.
    Never,
}

impl PacketAttempts {
    /// The number of attempts so far.
    pub(super) fn count(self) -> u32 {
        u32::from(self.refusals) + u32::from(self.timeouts)
    }

    /// Counts a failed attempt whose status the source knows at `at`.
    pub(super) fn fail(&mut self, policy: RetryPolicy, answer: AckStatus, at: SimTime) -> NextAttempt {
        if answer == AckStatus::Unanswered {
            if self.timeouts >= policy.retry_limit {
                return NextAttempt::Never;
            }
            let wait = policy.timeout.times(1 << u32::from(self.timeouts).min(30));
            self.timeouts += 1;
            return NextAttempt::At(at + wait);
        }
        if self.refusals >= policy.refusal_limit {
            return NextAttempt::Never;
        }
        self.refusals += 1;
        NextAttempt::At(at)
    }
}

/// A destination that a collective's packet did not reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LostDestination {
    pub(crate) from: Rank,
    pub(crate) to: Rank,
}

impl ElanAdapters {
    /// A source gives up: the running collective fails.
    pub(super) fn lose_destination(&mut self, network: &WormholeNetwork, from: u32, to: CircuitDestination) {
        let (from, to) = (self.rank_of(from), self.rank_of(unreached(network, to)));
        let (Some(from), Some(to), Some(job)) = (from, to, &mut self.job) else { return };
        job.lost.get_or_insert(LostDestination { from, to });
    }
}

/// The first node that the packet which failed last did not reach.
fn unreached(network: &WormholeNetwork, to: CircuitDestination) -> u32 {
    let (first, last) = match to {
        CircuitDestination::Node(node) => (node, node),
        CircuitDestination::Range { first, last, .. } => (first, last),
        CircuitDestination::Link(_) => (0, 0),
    };
    let tree = network.tree();
    let Some(link) = network.failed_link().filter(|link| !tree.leads_up(*link)) else { return first };
    let below = match tree.end(link) {
        TreeLinkEnd::Node(node) => node..=node,
        TreeLinkEnd::Switch(switch) => *tree.below(switch, 0).start()..=*tree.below(switch, ARITY - 1).end(),
    };
    first.max(*below.start()).min(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_answers_wait_longer_each_time_and_network_errors_do_not_wait() {
        let policy = RetryPolicy { timeout: SimSpan::from_micros(10), retry_limit: 2, refusal_limit: 1 };
        let (mut attempts, at) = (PacketAttempts::default(), SimTime::ZERO);
        assert_eq!(attempts.fail(policy, AckStatus::NetworkError, at), NextAttempt::At(at));
        assert_eq!(attempts.fail(policy, AckStatus::Unanswered, at), NextAttempt::At(at + SimSpan::from_micros(10)));
        assert_eq!(attempts.fail(policy, AckStatus::Unanswered, at), NextAttempt::At(at + SimSpan::from_micros(20)));
        assert_eq!(attempts.fail(policy, AckStatus::Unanswered, at), NextAttempt::Never);
        assert_eq!(attempts.fail(policy, AckStatus::NetworkError, at), NextAttempt::Never);
        assert_eq!(attempts.count(), 3);
    }
}
