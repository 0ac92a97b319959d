//! *hgsync*: every rank writes its call number into a word; the root's multicast polls all words at once, and the end
//! token of a successful poll releases all ranks (QN-9). If a rank is late the root polls again, with growing pauses.

use units::{Rank, Span};

use super::members::QuadricsMembers;
use super::{CallNumber, PollOutcome, QuadricsAction};

/// The root's pauses between polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollBackoff {
    /// After the first poll that fails; it doubles after each further one.
    pub first: Span,
    /// The longest pause.
    pub max: Span,
}

/// One rank's state machine for the barriers of a group whose nodes are contiguous.
#[derive(Clone, Debug)]
pub struct PolledBarrier {
    rank: Rank,
    root: Rank,
    backoff: PollBackoff,
    /// Calls that this rank has entered: the polled word.
    entered: u32,
    /// Calls that are complete at this rank.
    over: u32,
    failed_polls: u32,
    polling: bool,
}

impl PolledBarrier {
    /// The machine of a rank; none if the rank is not a member or the members are not contiguous.
    pub fn new(members: &QuadricsMembers, rank: Rank, backoff: PollBackoff) -> Option<Self> {
        members.node(rank)?;
        members.contiguous()?;
        let root = members.root();
        Some(Self::of(rank, root, backoff))
    }

    /// The machine of a poller whose driver knows the members: all receivers of its multicast.
    pub fn poller(backoff: PollBackoff) -> Self {
        Self::of(Rank(0), Rank(0), backoff)
    }

    const fn of(rank: Rank, root: Rank, backoff: PollBackoff) -> Self {
        Self { rank, root, backoff, entered: 0, over: 0, failed_polls: 0, polling: false }
    }

    /// The call that this rank is in, or enters next.
    pub const fn call(&self) -> CallNumber {
        CallNumber(self.over)
    }

    /// This rank enters. Entering again before the call is complete changes nothing.
    pub fn enter(&mut self, out: &mut Vec<QuadricsAction>) {
        if self.entered != self.over {
            return;
        }
        self.entered = self.entered.wrapping_add(1);
        if self.rank == self.root {
            (self.failed_polls, self.polling) = (0, true);
            out.push(QuadricsAction::Poll { call: self.call() });
        }
    }

    /// True if this rank has entered a call; its node answers polls with this.
    pub const fn has_entered(&self, call: CallNumber) -> bool {
        self.entered > call.0
    }

    /// The root receives the outcome of a poll.
    pub fn handle_poll_outcome(&mut self, call: CallNumber, outcome: PollOutcome, out: &mut Vec<QuadricsAction>) {
        if !self.polling || call != self.call() {
            return;
        }
        match outcome {
            PollOutcome::AllEntered => self.polling = false, // The end token is on its way, to the root too.
            PollOutcome::Damaged => out.push(QuadricsAction::Poll { call }),
            PollOutcome::SomeMissing => {
                let doubled = self.backoff.first.times(1 << self.failed_polls.min(32));
                self.failed_polls = self.failed_polls.saturating_add(1);
                out.push(QuadricsAction::Wait { span: doubled.min(self.backoff.max) });
            }
        }
    }

    /// The root's pause between polls is over.
    pub fn handle_timer(&mut self, out: &mut Vec<QuadricsAction>) {
        if self.polling {
            out.push(QuadricsAction::Poll { call: self.call() });
        }
    }

    /// The end token of a successful poll has arrived.
    pub fn handle_release(&mut self, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        if call != self.call() || !self.has_entered(call) {
            return;
        }
        self.over = self.entered;
        self.polling = false;
        out.push(QuadricsAction::Complete { call });
    }
}
