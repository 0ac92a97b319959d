//! *hgsync*: everyone writes the number of its call into a word; the root's multicast tests all words at once, and the end
//! token of a test that holds releases all (QN-9). If somebody is late the root asks again, ever more rarely.

use units::{Rank, Span};

use super::members::QuadricsMembers;
use super::{CallNumber, PollOutcome, QuadricsAction};

/// How long the root waits before it asks again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollBackoff {
    /// After the first test that fails; twice as long after each further one.
    pub first: Span,
    /// At most.
    pub most: Span,
}

/// One rank's part in the barriers of a group whose nodes are contiguous.
#[derive(Clone, Debug)]
pub struct PolledBarrier {
    rank: Rank,
    root: Rank,
    back_off: PollBackoff,
    /// Calls that this rank has entered: the word that is tested.
    entered: u32,
    /// Calls that are over here.
    over: u32,
    failed: u32,
    asking: bool,
}

impl PolledBarrier {
    /// A rank's part; none if it is no member or no multicast reaches exactly the members.
    pub fn new(members: &QuadricsMembers, rank: Rank, back_off: PollBackoff) -> Option<Self> {
        members.node(rank)?;
        members.contiguous()?;
        let root = members.root();
        Some(Self::of(rank, root, back_off))
    }

    /// The part of whoever tests, where the driver knows the members: all who hear its multicast.
    pub fn tester(back_off: PollBackoff) -> Self {
        Self::of(Rank(0), Rank(0), back_off)
    }

    const fn of(rank: Rank, root: Rank, back_off: PollBackoff) -> Self {
        Self { rank, root, back_off, entered: 0, over: 0, failed: 0, asking: false }
    }

    /// The call that this rank is in, or will enter next.
    pub const fn call(&self) -> CallNumber {
        CallNumber(self.over)
    }

    /// This rank enters; again before the call is over changes nothing.
    pub fn enter(&mut self, out: &mut Vec<QuadricsAction>) {
        if self.entered != self.over {
            return;
        }
        self.entered = self.entered.wrapping_add(1);
        if self.rank == self.root {
            (self.failed, self.asking) = (0, true);
            out.push(QuadricsAction::Test { call: self.call() });
        }
    }

    /// Whether this rank has come to a call: what its node answers to a test.
    pub const fn has_come_to(&self, call: CallNumber) -> bool {
        self.entered > call.0
    }

    /// The root hears what a test came to.
    pub fn handle_verdict(&mut self, call: CallNumber, verdict: PollOutcome, out: &mut Vec<QuadricsAction>) {
        if !self.asking || call != self.call() {
            return;
        }
        match verdict {
            PollOutcome::All => self.asking = false, // The end token is on its way, to the root too.
            PollOutcome::Damaged => out.push(QuadricsAction::Test { call }),
            PollOutcome::NotAll => {
                let doubled = self.back_off.first.times(1 << self.failed.min(32));
                self.failed = self.failed.saturating_add(1);
                out.push(QuadricsAction::Wait { span: doubled.min(self.back_off.most) });
            }
        }
    }

    /// The root has waited.
    pub fn handle_alarm(&mut self, out: &mut Vec<QuadricsAction>) {
        if self.asking {
            out.push(QuadricsAction::Test { call: self.call() });
        }
    }

    /// The end token of a test that holds comes by.
    pub fn handle_release(&mut self, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        if call != self.call() || !self.has_come_to(call) {
            return;
        }
        self.over = self.entered;
        self.asking = false;
        out.push(QuadricsAction::Complete { call });
    }
}
