//! *bcast* and *hbcast*: first everyone's buffer must be there, then the data comes (QN-10).
//!
//! *bcast* synchronises up the tree, and the data itself releases the receivers. *hbcast* synchronises by a tested
//! multicast; where the members are not contiguous it is a *bcast* whose data goes down the tree.

use units::Rank;

use super::members::QuadricsMembers;
use super::polled_barrier::{PollBackoff, PolledBarrier};
use super::tree_barrier::TreeBarrier;
use super::{CallNumber, PollOutcome, QuadricsAction};

/// How everyone learns that all buffers are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BroadcastSynchronization {
    /// *bcast*: up the tree.
    Tree,
    /// *hbcast*: by a tested multicast, if the members are contiguous.
    Test(PollBackoff),
}

/// One rank's part in the broadcasts of a group; the root has the data.
#[derive(Clone, Debug)]
pub struct SynchronizedBroadcast {
    members: QuadricsMembers,
    rank: Rank,
    tree: TreeBarrier,
    test: Option<PolledBarrier>,
    /// Data that came before this rank knew that all are there, as it may under *hbcast*.
    early: Option<CallNumber>,
    /// Whether all are known to be there.
    synchronised: bool,
}

impl SynchronizedBroadcast {
    /// A rank's part; none if it is no member.
    pub fn new(members: QuadricsMembers, rank: Rank, synchronisation: BroadcastSynchronization) -> Option<Self> {
        let test = match synchronisation {
            BroadcastSynchronization::Tree => None,
            BroadcastSynchronization::Test(back_off) => PolledBarrier::new(&members, rank, back_off),
        };
        let tree = TreeBarrier::new(members.clone(), rank)?;
        Some(Self { members, rank, tree, test, early: None, synchronised: false })
    }

    /// The call that this rank is in, or will enter next.
    pub fn call(&self) -> CallNumber {
        self.tree.call()
    }

    /// This rank calls: its buffer is there.
    pub fn enter(&mut self, out: &mut Vec<QuadricsAction>) {
        match &mut self.test {
            Some(test) => {
                // The tree only counts the calls then.
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

    /// A child says that everyone below it has come.
    pub fn handle_ready(&mut self, from: Rank, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        if self.test.is_none() && self.tree.note_ready(from, call) && self.tree.climb(out) {
            self.send(out);
        }
    }

    /// Whether this rank has come to a call: what its node answers to a test.
    pub fn has_come_to(&self, call: CallNumber) -> bool {
        self.test.as_ref().is_some_and(|test| test.has_come_to(call))
    }

    /// The root hears what a test came to.
    pub fn handle_verdict(&mut self, call: CallNumber, verdict: PollOutcome, out: &mut Vec<QuadricsAction>) {
        if let Some(test) = &mut self.test {
            test.handle_verdict(call, verdict, out);
        }
    }

    /// The root has waited.
    pub fn handle_alarm(&mut self, out: &mut Vec<QuadricsAction>) {
        if let Some(test) = &mut self.test {
            test.handle_alarm(out);
        }
    }

    /// The end token of a test that holds comes by: the root sends the data, the others wait for it.
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

    /// The data has come whole. The root hears of it by the source event of its DMA, which is as good.
    pub fn handle_data(&mut self, call: CallNumber, out: &mut Vec<QuadricsAction>) {
        if call != self.call() || !self.tree.is_waiting_in(call) {
            return;
        }
        if self.test.is_some() && !self.synchronised {
            self.early = Some(call); // The token is on its way, and the test counts calls by it.
            return;
        }
        if self.members.contiguous().is_none() && self.rank != self.members.root() {
            self.tree.pass_on(out, |to| QuadricsAction::Data { to, call });
        }
        self.complete(call, out);
    }

    /// All are there: the root's turn.
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
