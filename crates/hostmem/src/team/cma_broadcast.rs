//! Large broadcasts straight from the root's memory into the receivers'.
//!
//! The root offers its buffer in its post if it has lent it for as long as the operation takes, and if all ranks can reach each
//! other's memory. Receivers then pull, and let the root push if they have lent theirs as well: see [`super::block_claims`]. Bytes are
//! copied once, and both processors do it. Otherwise the vector goes through the pipe.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use super::block_claims::{CopySide, MAX_BLOCKS};
use super::buffers::CollectiveBuffers;
use super::descriptor::{CallSignature, INLINE_BYTES};
use super::error::TeamError;
use super::operation::{OperationStage, TeamOperation, TeamProgress};
use super::shared_word::TeamMemory;
use super::team::Team;
use super::wait::MAX_SLEEP;

/// Shorter vectors go through the pipe as quickly. The more receivers, the more it counts that a root need not wait for them
/// there, and that what one has read is in a cache that the others share.
fn least_bytes(ranks: usize) -> usize {
    match ranks {
        0..=2 => 64 << 10,
        3..=4 => 1 << 20,
        _ => usize::MAX,
    }
}

/// Copied by one call of the kernel: enough that the call hardly counts, little enough that both sides have something to do.
const LEAST_BLOCK: usize = 32 << 10;
const MOST_BLOCK: usize = 1 << 20;
const PAGE: usize = 4096;

/// Where a rank has its vector, as it says in its post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BufferOffer {
    /// It goes through the pipe.
    Nothing,
    Address(u64),
}

impl BufferOffer {
    /// As payload of a post: the address, and something to tell it from garbage.
    pub(super) fn to_payload(self, number: u64, claim: CallSignature) -> [u8; 16] {
        let address = match self {
            Self::Nothing => 0,
            Self::Address(address) => address,
        };
        let mut payload = [0; 16];
        payload[..8].copy_from_slice(&address.to_le_bytes());
        payload[8..].copy_from_slice(&claim.after(address, number).to_le_bytes());
        payload
    }

    /// Nothing that a rank of ours would say if there is no offer.
    fn from_payload(payload: &[u8; INLINE_BYTES], number: u64, claim: CallSignature) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| payload[at + byte]));
        let (address, seal) = (word(0), word(8));
        if seal != claim.after(address, number) {
            return None;
        }
        Some(if address == 0 { Self::Nothing } else { Self::Address(address) })
    }
}

impl Team {
    /// What this rank offers in the post of a large broadcast. A receiver opens its door first.
    pub(super) fn offer(&mut self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) -> BufferOffer {
        if operation.length() < least_bytes(self.ranks) || !self.is_complete() {
            return BufferOffer::Nothing;
        }
        let is_mutual = self.reach.is_mutual(self.rank, self.region.contacts());
        if !is_mutual || !operation.is_lent || !self.reach.is_reachable(data.input()) {
            return BufferOffer::Nothing;
        }
        let address = if operation.takes_result {
            self.region.door(self.rank).open(operation.number);
            data.output().as_mut_ptr().expose_provenance()
        } else {
            data.input().as_ptr().expose_provenance()
        };
        BufferOffer::Address(address as u64)
    }

    /// What another rank offers in a post that was observed.
    pub(super) fn offer_of(&self, rank: usize, operation: &TeamOperation) -> Result<BufferOffer, TeamError> {
        let payload = self.region.post(rank, self.window.channel(operation.number)).payload();
        BufferOffer::from_payload(&payload, operation.number, operation.claim)
            .ok_or(TeamError::Garbled { operation: operation.number })
    }

    /// Moves a direct broadcast on.
    pub(super) fn advance_direct(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<TeamProgress, TeamError> {
        let is_done = if operation.takes_result { self.pull(operation, data)? } else { self.push(operation, data)? };
        if !is_done {
            return Ok(TeamProgress::Pending);
        }
        operation.stage = OperationStage::Over;
        Ok(TeamProgress::Done)
    }

    /// The receiver's part. True if the vector is there.
    fn pull(&mut self, operation: &mut TeamOperation, data: &mut CollectiveBuffers<'_>) -> Result<bool, TeamError> {
        let (number, root, length) = (operation.number, operation.root(), operation.length());
        let BufferOffer::Address(address) = self.offer_of(root, operation)? else {
            return Err(TeamError::Garbled { operation: number });
        };
        operation.awaiting = root as u16;
        let lost = TeamError::Lost { rank: root as u16 };
        let door = self.region.door(self.rank);
        if door.is_for(number) {
            let blocks = block_count(length);
            while let Some(place) = door.claim(number, blocks, CopySide::Receiver) {
                let block = block(length, place);
                let from = address + block.start as u64;
                self.reach.pull(root, from, &mut data.output()[block]).map_err(|_| lost)?;
            }
            if !door.is_left_alone(number, blocks) {
                let has_withdrawn = self.region.door(root).has_withdrawn(number);
                return if has_withdrawn { Err(self.why_withdrawn(operation, root)) } else { Ok(false) };
            }
        } else {
            self.reach.pull(root, address, data.output()).map_err(|_| lost)?;
        }
        // If the root had taken its buffer back, that comes before whatever it did to it then.
        fence(Ordering::Acquire);
        if self.region.door(root).has_withdrawn(number) {
            return Err(self.why_withdrawn(operation, root));
        }
        self.region.door(self.rank).take(number);
        self.window.settle(&self.region, number);
        self.region.bell(self.rank).ring();
        Ok(true)
    }

    /// A rank has taken its buffer back: since the ranks disagree, of which it may have heard first, or since it goes.
    #[cold]
    fn why_withdrawn(&mut self, operation: &mut TeamOperation, rank: usize) -> TeamError {
        self.look_around(operation).err().unwrap_or(TeamError::Lost { rank: rank as u16 })
    }

    /// The root's part. True if all receivers have the vector.
    fn push(&mut self, operation: &mut TeamOperation, data: &CollectiveBuffers<'_>) -> Result<bool, TeamError> {
        let (number, length) = (operation.number, operation.length());
        let blocks = block_count(length);
        let mut is_done = true;
        for rank in (0..self.ranks).filter(|&rank| rank != self.rank) {
            let door = self.region.door(rank);
            if door.has_taken(number) {
                continue;
            }
            let lost = TeamError::Lost { rank: rank as u16 };
            if door.has_withdrawn(number) {
                return Err(self.why_withdrawn(operation, rank));
            }
            if is_done {
                operation.awaiting = rank as u16;
            }
            is_done = false;
            // One that claims something else lets us in nowhere.
            if self.window.observe(&self.region, rank, number) != Some(operation.claim) {
                continue;
            }
            let BufferOffer::Address(address) = self.offer_of(rank, operation)? else { continue };
            if let Some(place) = self.region.door(rank).claim(number, blocks, CopySide::Root) {
                let block = block(length, place);
                let to = address + block.start as u64;
                self.reach.push(rank, to, &data.input()[block]).map_err(|_| lost)?;
                self.region.door(rank).set_done(number, place + 1);
                self.region.bell(self.rank).ring();
            }
        }
        Ok(is_done)
    }

    /// The buffers are about to go, and the operation is not over: nobody may touch them any more.
    #[cold]
    pub(super) fn retract(&mut self, operation: &TeamOperation) {
        let number = operation.number;
        let door = self.region.door(self.rank);
        door.withdraw(number);
        fence(Ordering::SeqCst);
        // What the root has begun takes it some microseconds.
        let is_there = || self.region.is_there(operation.root()).unwrap_or(true);
        let is_open = operation.takes_result && door.close(number);
        while is_open && !door.is_left_alone(number, block_count(operation.length())) && is_there() {
            std::thread::sleep(MAX_SLEEP / 10);
        }
    }
}

fn block_bytes(length: usize) -> usize {
    let fair = (length / 4).clamp(LEAST_BLOCK, MOST_BLOCK).max(length / MAX_BLOCKS as usize + 1);
    fair.next_multiple_of(PAGE)
}

fn block_count(length: usize) -> u64 {
    length.div_ceil(block_bytes(length)) as u64
}

fn block(length: usize, place: u64) -> Range<usize> {
    let start = place as usize * block_bytes(length);
    start..length.min(start + block_bytes(length))
}
