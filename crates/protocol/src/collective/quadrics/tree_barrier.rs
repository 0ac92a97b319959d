//! *gsync*: 'ready' goes up a balanced tree; the root releases everyone with a multicast or, where the members are not
//! contiguous, down the same tree (QN-9).

use units::Rank;

use super::members::QuadricsMembers;
use super::{CallNumber, QuadricsAction};

/// One rank's part in the barriers of a group.
#[derive(Clone, Debug)]
pub struct TreeBarrier {
    members: QuadricsMembers,
    rank: Rank,
    /// The call that this rank is in, or will enter next.
    call: CallNumber,
    entered: bool,
    told: bool,
    /// Calls for which each child has said 'ready'.
    ready: Vec<u32>,
}

impl TreeBarrier {
    /// A rank's part; none if it is no member.
    pub fn new(members: QuadricsMembers, rank: Rank) -> Option<Self> {
        members.node(rank)?;
        let ready = vec![0; members.children(rank) as usize];
        Some(Self { members, rank, call: CallNumber(0), entered: false, told: false, ready })
    }

    /// The call that this rank is in, or will enter next.
    pub const fn call(&self) -> CallNumber {
        self.call
    }

    /// Who takes part.
    pub const fn members(&self) -> &QuadricsMembers {
        &self.members
    }

    /// This rank enters; again before the call is over changes nothing.
    pub fn enter(&mut self, out: &mut Vec<QuadricsAction>) {
        if self.enter_quietly(out) {
            self.release(out);
        }
    }

    /// Enters without releasing anybody; true as [`Self::climb`].
    pub(super) fn enter_quietly(&mut self, out: &mut Vec<QuadricsAction>) -> bool {
        self.entered = true;
        self.climb(out)
    }

    /// Enters where others see to it that all come: nothing goes up.
    pub(super) fn await_release(&mut self) {
        (self.entered, self.told) = (true, true);
    }

    /// A child says that everyone below it has come.
    pub fn handle_ready(&mut self, from: Rank, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        if self.note_ready(from, call) && self.climb(out) {
            self.release(out);
        }
    }

    /// Notes it; false if it says nothing new.
    pub(super) fn note_ready(&mut self, from: Rank, call: CallNumber) -> bool {
        let Some(index) = self.members.index_of_child(self.rank, from) else { return false };
        let ready = &mut self.ready[index as usize];
        // A child is one call ahead at most: it is released by the call before.
        if *ready != call.0 || call.0 > self.call.0.wrapping_add(1) {
            return false;
        }
        *ready = ready.wrapping_add(1);
        true
    }

    /// Tells the parent once all below have come; true at the root, whose duty it then is to release everyone.
    pub(super) fn climb(&mut self, out: &mut Vec<QuadricsAction>) -> bool {
        let everyone = self.ready.iter().all(|ready| *ready > self.call.0);
        if !self.entered || self.told || !everyone {
            return false;
        }
        self.told = true;
        match self.members.parent(self.rank) {
            Some(to) => out.push(QuadricsAction::Ready { to, call: self.call }),
            None => return true,
        }
        false
    }

    fn release(&mut self, out: &mut Vec<QuadricsAction>) {
        let call = self.call;
        if self.members.contiguous().is_some() {
            // It reaches the root too, which is over when its own copy comes.
            return out.push(QuadricsAction::ReleaseAll { call });
        }
        self.pass_on(out, |to| QuadricsAction::Release { to, call });
        self.finish(call, out);
    }

    pub(super) fn pass_on(&self, out: &mut Vec<QuadricsAction>, duty: impl Fn(Rank) -> QuadricsAction) {
        let children = 0..self.members.children(self.rank);
        out.extend(children.filter_map(|index| self.members.child(self.rank, index)).map(duty));
    }

    /// The word that all have come; twice, or for a call that this rank is not in, it says nothing.
    pub fn handle_release(&mut self, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        if !self.is_waiting_in(call) {
            return;
        }
        if self.members.contiguous().is_none() {
            self.pass_on(out, |to| QuadricsAction::Release { to, call });
        }
        self.finish(call, out);
    }

    pub(super) fn is_waiting_in(&self, call: CallNumber) -> bool {
        call == self.call && self.told
    }

    pub(super) fn finish(&mut self, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        self.call = CallNumber(call.0.wrapping_add(1));
        (self.entered, self.told) = (false, false);
        out.push(QuadricsAction::Complete { call });
    }
}
