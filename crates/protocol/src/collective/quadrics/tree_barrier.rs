//! *gsync*: "ready" signals go up a balanced tree; the root releases all members by a multicast or, where the members
//! are not contiguous, down the same tree (QN-9).

use units::Rank;

use super::members::QuadricsMembers;
use super::{CallNumber, QuadricsAction};

/// One rank's state machine for the barriers of a group.
#[derive(Clone, Debug)]
pub struct TreeBarrier {
    members: QuadricsMembers,
    rank: Rank,
    /// The call that this rank is in, or enters next.
    call: CallNumber,
    entered: bool,
    reported: bool,
    /// For each child, the number of calls for which it is ready.
    ready: Vec<u32>,
}

impl TreeBarrier {
    /// The machine of a rank; none if the rank is not a member.
    pub fn new(members: QuadricsMembers, rank: Rank) -> Option<Self> {
        members.node(rank)?;
        let ready = vec![0; members.children(rank) as usize];
        Some(Self { members, rank, call: CallNumber(0), entered: false, reported: false, ready })
    }

    /// The call that this rank is in, or enters next.
    pub const fn call(&self) -> CallNumber {
        self.call
    }

    /// The members.
    pub const fn members(&self) -> &QuadricsMembers {
        &self.members
    }

    /// This rank enters. Entering again before the call is complete changes nothing.
    pub fn enter(&mut self, out: &mut Vec<QuadricsAction>) {
        if self.enter_quietly(out) {
            self.release(out);
        }
    }

    /// Enters without releasing the others; returns the same as [`Self::climb`].
    pub(super) fn enter_quietly(&mut self, out: &mut Vec<QuadricsAction>) -> bool {
        self.entered = true;
        self.climb(out)
    }

    /// Enters where a polled barrier synchronises: no signals go up.
    pub(super) fn await_release(&mut self) {
        (self.entered, self.reported) = (true, true);
    }

    /// A child reports that all ranks below it have entered.
    pub fn handle_ready(&mut self, from: Rank, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        if self.note_ready(from, call) && self.climb(out) {
            self.release(out);
        }
    }

    /// Records the report; false if it is not new.
    pub(super) fn note_ready(&mut self, from: Rank, call: CallNumber) -> bool {
        let Some(index) = self.members.index_of_child(self.rank, from) else { return false };
        let ready = &mut self.ready[index as usize];
        // A child is at most one call ahead: the previous call released it.
        if *ready != call.0 || call.0 > self.call.0.wrapping_add(1) {
            return false;
        }
        *ready = ready.wrapping_add(1);
        true
    }

    /// Tells the parent once all ranks below have entered; true at the root, which must then release all members.
    pub(super) fn climb(&mut self, out: &mut Vec<QuadricsAction>) -> bool {
        let all_ready = self.ready.iter().all(|ready| *ready > self.call.0);
        if !self.entered || self.reported || !all_ready {
            return false;
        }
        self.reported = true;
        match self.members.parent(self.rank) {
            Some(to) => out.push(QuadricsAction::Ready { to, call: self.call }),
            None => return true,
        }
        false
    }

    fn release(&mut self, out: &mut Vec<QuadricsAction>) {
        let call = self.call;
        if self.members.contiguous().is_some() {
            // The multicast reaches the root too and completes its call.
            return out.push(QuadricsAction::ReleaseAll { call });
        }
        self.pass_on(out, |to| QuadricsAction::Release { to, call });
        self.finish(call, out);
    }

    pub(super) fn pass_on(&self, out: &mut Vec<QuadricsAction>, action: impl Fn(Rank) -> QuadricsAction) {
        let children = 0..self.members.children(self.rank);
        out.extend(children.filter_map(|index| self.members.child(self.rank, index)).map(action));
    }

    /// All members have entered. Duplicates, and releases of calls that this rank is not in, are ignored.
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
        call == self.call && self.reported
    }

    pub(super) fn finish(&mut self, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        self.call = CallNumber(call.0.wrapping_add(1));
        (self.entered, self.reported) = (false, false);
        out.push(QuadricsAction::Complete { call });
    }
}
