//! One rank folds, the others take its result.
//!
//! With a CPU per rank, all fold at the same time and none waits for another's fold. Ranks that share CPUs would fold one after
//! the other. There, the first rank that sees all descriptors publishes its result in a *shared descriptor* that all ranks
//! may write: it holds the signature on which all agree, and the result if that is short. A longer result lies in a *result
//! slot* of the rank that published it. A rank that finds no result folds itself; several that do write the same bits.
//!
//! The result of operation `n` uses place `n mod RESULT_SLOTS`. A rank that takes it settles `n` only afterwards, and a rank
//! that writes to the place again first knows that all have settled `n`. A shared descriptor never goes back to an older
//! operation: only ranks that have not settled `n` write it for `n`. A rank that takes a result need not compare its
//! signature with all others: the rank that published it has done so, with the same signature. `loom_tests.rs` tries all
//! orders.

use super::buffers::CollectiveBuffers;
use super::descriptor::{CallSignature, OperationDescriptor, TeamVerb};
use super::local_team::Team;
use super::operation::{PayloadRoute, TeamOperation};
use super::region::TeamRegion;
use super::team_memory::TeamMemory;
use super::window::OperationWindow;

/// The place of an operation's result.
fn place<B: TeamMemory>(number: u64) -> usize {
    (number % B::RESULT_SLOTS as u64) as usize
}

/// The shared descriptor of an operation, once a rank has published its result with the same signature.
#[inline]
pub(super) fn find<B: TeamMemory>(
    memory: &B,
    number: u64,
    signature: CallSignature,
) -> Option<&OperationDescriptor<B::Word>> {
    let descriptor = memory.shared_descriptor(place::<B>(number));
    descriptor.observe(number).filter(|(posted, _)| *posted == signature).map(|_| descriptor)
}

/// Whether the place of an operation is free: all ranks are known to have settled its last user.
#[inline]
pub(super) fn is_free<B: TeamMemory>(window: &OperationWindow, number: u64) -> bool {
    window.knows_all_settled(number.saturating_sub(B::RESULT_SLOTS as u64))
}

/// Publishes the result of an operation; it is the payload, or is already in a result slot.
#[inline]
pub(super) fn leave<B: TeamMemory>(memory: &B, number: u64, signature: CallSignature, payload: &[u8], history: u64) {
    memory.shared_descriptor(place::<B>(number)).publish(number, 0, signature, payload, history);
}

impl Team {
    /// Takes the result of an operation, if another rank has published it. True if so.
    #[inline]
    pub(super) fn take_shared_result(&mut self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) -> bool {
        let (number, length) = (operation.number, operation.length());
        let Some(descriptor) = find(&self.region, number, operation.signature) else { return false };
        if operation.carries_history() {
            if descriptor.history() != operation.history {
                return false;
            }
            self.window.accept_before(&self.region, number);
        }
        if operation.route == PayloadRoute::Post {
            data.output().copy_from_slice(&descriptor.payload()[..length]);
            return true;
        }
        let rank = descriptor.first_word() as usize;
        // SAFETY: the rank has published its result, and does not write to the slot again before this rank has settled.
        let share = unsafe { self.region.result_slot(rank, place::<TeamRegion>(number), length) };
        data.output().copy_from_slice(share);
        true
    }

    /// Publishes the result of an operation, if other ranks need it and the place is free.
    #[inline]
    pub(super) fn publish_shared_result(&self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) {
        let (number, length) = (operation.number, operation.length());
        let is_for_all = matches!(operation.verb, TeamVerb::Barrier | TeamVerb::AllReduce);
        if !is_for_all || !is_free::<TeamRegion>(&self.window, number) {
            return;
        }
        let rank = (self.rank as u64).to_le_bytes();
        let payload = match operation.route {
            PayloadRoute::Post => data.output(),
            _ => {
                // SAFETY: all ranks have settled the last operation that used the slot, so that none reads it; it is read again only after
                // the shared descriptor.
                let share = unsafe { self.region.result_slot_mut(self.rank, place::<TeamRegion>(number), length) };
                share.copy_from_slice(data.output());
                &rank[..]
            }
        };
        leave(&self.region, number, operation.signature, payload, operation.history);
    }
}
