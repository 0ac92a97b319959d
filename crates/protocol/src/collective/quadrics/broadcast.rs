//! *bcast* and *hbcast*: the members synchronise until every buffer is ready, then the root sends the data (QN-10).
//!
//! *bcast* synchronises up the tree, and the data itself releases the receivers. *hbcast* synchronises by a polled
//! barrier; where the members are not contiguous it is a *bcast* whose data goes down the tree.

use units::Rank;

use super::members::QuadricsMembers;
use super::polled_barrier::{PollBackoff, PolledBarrier};
use super::tree_barrier::TreeBarrier;
use super::{CallNumber, PollOutcome, QuadricsAction};

/// How the members synchronise before the data is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BroadcastSynchronization {
    /// *bcast*: up the tree.
    Tree,
    /// *hbcast*: by a polled barrier, if the members are contiguous.
    Poll(PollBackoff),
}

/// One rank's state machine for the broadcasts of a group. The root has the data.
#[derive(Clone, Debug)]
pub struct SynchronizedBroadcast {
    members: QuadricsMembers,
    rank: Rank,
    tree: TreeBarrier,
    test: Option<PolledBarrier>,
    /// The call of data that arrived before this rank was released, which may happen with *hbcast*.
    early: Option<CallNumber>,
    /// All members are known to be ready.
    synchronised: bool,
}

impl SynchronizedBroadcast {
    /// The machine of a rank; none if the rank is not a member.
    pub fn new(members: QuadricsMembers, rank: Rank, synchronisation: BroadcastSynchronization) -> Option<Self> {
        let test = match synchronisation {
            BroadcastSynchronization::Tree => None,
            BroadcastSynchronization::Poll(back_off) => PolledBarrier::new(&members, rank, back_off),
        };
        let tree = TreeBarrier::new(members.clone(), rank)?;
        Some(Self { members, rank, tree, test, early: None, synchronised: false })
    }

    /// The call that this rank is in, or enters next.
    pub fn call(&self) -> CallNumber {
        self.tree.call()
    }

    /// This rank enters: its buffer is ready.
    pub fn enter(&mut self, out: &mut Vec<QuadricsAction>) {
        match &mut self.test {
            Some(test) => {
                // The tree only counts calls in this case.
                self.tree.await_release();
                test.enter(out);
            }
            None => {
                if self.tree.enter_quietly(out) {
                    self.send(out);
                }
            }
        }
    }

    /// A child reports that all ranks below it have entered.
    pub fn handle_ready(&mut self, from: Rank, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        if self.test.is_none() && self.tree.note_ready(from, call) && self.tree.climb(out) {
            self.send(out);
        }
    }

    /// True if this rank has entered a call; its node answers polls with this.
    pub fn has_entered(&self, call: CallNumber) -> bool {
        self.test.as_ref().is_some_and(|test| test.has_entered(call))
    }

    /// The root receives the outcome of a poll.
    pub fn handle_poll_outcome(&mut self, call: CallNumber, verdict: PollOutcome, out: &mut Vec<QuadricsAction>) {
        if let Some(test) = &mut self.test {
            test.handle_poll_outcome(call, verdict, out);
        }
    }

    /// The root's pause between polls is over.
    pub fn handle_timer(&mut self, out: &mut Vec<QuadricsAction>) {
        if let Some(test) = &mut self.test {
            test.handle_timer(out);
        }
    }

    /// The end token of a successful poll has arrived: the root sends the data, the others wait for it.
    pub fn handle_release(&mut self, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        let Some(test) = &mut self.test else { return };
        let mut over = Vec::new();
        test.handle_release(call, &mut over);
        if over.is_empty() {
            return;
        }
        self.synchronised = true;
        if self.rank == self.members.root() {
            out.push(QuadricsAction::DataToAll { call });
        }
        if self.early == Some(call) {
            self.complete(call, out);
        }
    }

    /// The data has arrived. For the root, the source event of its DMA serves as well.
    pub fn handle_data(&mut self, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        if call != self.call() || !self.tree.is_waiting_in(call) {
            return;
        }
        if self.test.is_some() && !self.synchronised {
            self.early = Some(call); // The end token is on its way; the polled barrier needs it to count calls.
            return;
        }
        if self.members.contiguous().is_none() && self.rank != self.members.root() {
            self.tree.pass_on(out, |to| QuadricsAction::Data { to, call });
        }
        self.complete(call, out);
    }

    /// All members are ready: the root sends the data.
    fn send(&mut self, out: &mut Vec<QuadricsAction>) {
        let call = self.call();
        if self.members.contiguous().is_some() {
            out.push(QuadricsAction::DataToAll { call });
        } else {
            self.tree.pass_on(out, |to| QuadricsAction::Data { to, call });
        }
    }

    fn complete(&mut self, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        (self.early, self.synchronised) = (None, false);
        self.tree.finish(call, out);
    }
}
