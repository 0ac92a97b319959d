//! One rank folds, the others take its result.
//!
//! Where every rank has a processor, all fold at the same time and nobody waits for another's fold. Where ranks share processors
//! they fold one after the other, and that takes as long as all folds together. There, the first who sees everyone's post
//! leaves its result for the others, in a *common post* that all ranks may write: it has the claim on which all agree,
//! and the result if that is short. A longer one lies in a *share* of the rank that left it. It is an offer: who finds none folds,
//! and if several do, they write the same bits.
//!
//! A result of operation `n` is left at place `n mod shares`. Whoever takes it settles `n` only afterwards, and whoever writes to
//! the place again knows before that all have settled `n`. Nor does a common post ever go back: it is written for `n` by
//! ranks that have not settled `n`. Who takes a result need not compare its claim with everyone's: the rank that left it
//! has, and claims the same. `models.rs` tries all orders.

use super::buffers::CollectiveBuffers;
use super::descriptor::{CallSignature, OperationDescriptor, TeamVerb};
use super::operation::{PayloadRoute, TeamOperation};
use super::region::TeamRegion;
use super::shared_word::TeamMemory;
use super::team::Team;
use super::window::OperationWindow;

/// Where the result of an operation is left.
fn place<B: TeamMemory>(number: u64) -> usize {
    (number % B::RESULT_SLOTS as u64) as usize
}

/// The common post of an operation, once a rank has left its result there, if all ranks claim what this one does.
#[inline]
pub(super) fn find<B: TeamMemory>(
    board: &B,
    number: u64,
    claim: CallSignature,
) -> Option<&OperationDescriptor<B::Word>> {
    let post = board.common_post(place::<B>(number));
    post.observe(number).filter(|(claimed, _)| *claimed == claim).map(|_| post)
}

/// Whether the place of an operation is free: all are known to have settled the last that was there.
#[inline]
pub(super) fn is_free<B: TeamMemory>(window: &OperationWindow, number: u64) -> bool {
    window.knows_settled(number.saturating_sub(B::RESULT_SLOTS as u64))
}

/// Leaves the result of an operation, which is the payload or has been written to a share.
#[inline]
pub(super) fn leave<B: TeamMemory>(board: &B, number: u64, claim: CallSignature, payload: &[u8], history: u64) {
    board.common_post(place::<B>(number)).publish(number, 0, claim, payload, history);
}

impl Team {
    /// Takes the result of an operation, if another rank has left it. True if so.
    #[inline]
    pub(super) fn take_share(&mut self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) -> bool {
        let (number, length) = (operation.number, operation.length());
        let Some(post) = find(&self.region, number, operation.claim) else { return false };
        if operation.tells_history() {
            if post.history() != operation.history {
                return false;
            }
            self.window.trust_before(&self.region, number);
        }
        if operation.route == PayloadRoute::Post {
            data.output().copy_from_slice(&post.payload()[..length]);
            return true;
        }
        let rank = post.first_word() as usize;
        // SAFETY: the rank has left its result there, and does not write to the place again before this rank has settled.
        let share = unsafe { self.region.share(rank, place::<TeamRegion>(number), length) };
        data.output().copy_from_slice(share);
        true
    }

    /// Leaves the result of an operation for the others, if they need it and the place is free.
    #[inline]
    pub(super) fn give_share(&self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) {
        let (number, length) = (operation.number, operation.length());
        let is_for_all = matches!(operation.verb, TeamVerb::Barrier | TeamVerb::AllReduce);
        if !is_for_all || !is_free::<TeamRegion>(&self.window, number) {
            return;
        }
        let rank = (self.rank as u64).to_le_bytes();
        let payload = match operation.route {
            PayloadRoute::Post => data.output(),
            _ => {
                // SAFETY: all have settled the last operation whose result was there, so that nobody reads it; it is read
                // again only after the common post.
                let share = unsafe { self.region.share_mut(self.rank, place::<TeamRegion>(number), length) };
                share.copy_from_slice(data.output());
                &rank[..]
            }
        };
        leave(&self.region, number, operation.claim, payload, operation.history);
    }
}
