//! Large broadcasts directly from the root's memory into the receivers' (cross memory attach).
//!
//! The root offers its buffer in its descriptor if the buffer stays valid for the whole operation and all ranks can access
//! each other's memory. Receivers then pull; they let the root push if their buffers stay valid as well: see
//! [`super::block_claims`]. Bytes are copied once, by both processors. Otherwise the vector goes through the pipeline.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use super::block_claims::{CopySide, MAX_BLOCKS};
use super::buffer_offer::BufferOffer;
use super::buffers::CollectiveBuffers;
use super::error::TeamError;
use super::local_team::Team;
use super::operation::{OperationStage, TeamOperation, TeamProgress};
use super::team_memory::TeamMemory;
use super::wait::MAX_SLEEP;

/// The pipeline is as fast for shorter vectors. With more receivers, it counts more that a root need not wait for them there,
/// and that a chunk that one has read is in a cache that the others share.
fn least_bytes(ranks: usize) -> usize {
    match ranks {
        0..=2 => 64 << 10,
        3..=4 => 1 << 20,
        _ => usize::MAX,
    }
}

/// Bytes copied by one system call: enough to hide the cost of the call, few enough that both sides get blocks.
const LEAST_BLOCK: usize = 32 << 10;
const MOST_BLOCK: usize = 1 << 20;
const PAGE: usize = 4096;

impl Team {
    /// The offer of this rank in the descriptor of a large broadcast. A receiver opens its block claims first.
    pub(super) fn offer(&mut self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) -> BufferOffer {
        if operation.length() < least_bytes(self.ranks) || !self.is_complete() {
            return BufferOffer::Nothing;
        }
        let is_mutual = self.cross_memory.is_mutual(self.rank, self.region.contacts());
        if !is_mutual || !operation.is_borrowed || !self.cross_memory.is_reachable(data.input()) {
            return BufferOffer::Nothing;
        }
        let address = if operation.takes_result {
            self.region.block_claims(self.rank).open(operation.number);
            data.output().as_mut_ptr().expose_provenance()
        } else {
            data.input().as_ptr().expose_provenance()
        };
        BufferOffer::Address(address as u64)
    }

    /// The offer in the observed descriptor of another rank.
    pub(super) fn offer_of(&self, rank: usize, operation: &TeamOperation) -> Result<BufferOffer, TeamError> {
        let payload = self.region.descriptor(rank, self.window.channel(operation.number)).payload();
        BufferOffer::from_payload(&payload, operation.number, operation.signature)
            .ok_or(TeamError::CorruptMemory { operation: operation.number })
    }

    /// Advances a direct broadcast.
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

    /// The receiver's part. True if the vector is complete.
    fn pull(&mut self, operation: &mut TeamOperation, data: &mut CollectiveBuffers<'_>) -> Result<bool, TeamError> {
        let (number, root, length) = (operation.number, operation.root(), operation.length());
        let BufferOffer::Address(address) = self.offer_of(root, operation)? else {
            return Err(TeamError::CorruptMemory { operation: number });
        };
        operation.awaiting = root as u16;
        let lost = TeamError::RankLost { rank: root as u16 };
        let block_claims = self.region.block_claims(self.rank);
        if block_claims.is_for(number) {
            let blocks = block_count(length);
            while let Some(place) = block_claims.claim(number, blocks, CopySide::Receiver) {
                let block = block(length, place);
                let from = address + block.start as u64;
                self.cross_memory.pull(root, from, &mut data.output()[block]).map_err(|_| lost)?;
            }
            if !block_claims.is_root_done(number, blocks) {
                let has_withdrawn = self.region.block_claims(root).has_withdrawn(number);
                return if has_withdrawn { Err(self.withdrawal_error(operation, root)) } else { Ok(false) };
            }
        } else {
            self.cross_memory.pull(root, address, data.output()).map_err(|_| lost)?;
        }
        // If the root has withdrawn its buffer, it did so before it changed the buffer.
        fence(Ordering::Acquire);
        if self.region.block_claims(root).has_withdrawn(number) {
            return Err(self.withdrawal_error(operation, root));
        }
        self.region.block_claims(self.rank).take(number);
        self.window.settle(&self.region, number);
        self.region.futex(self.rank).wake();
        Ok(true)
    }

    /// Why a rank has withdrawn its buffer: it may have found a mismatch first, or its process is ending.
    #[cold]
    fn withdrawal_error(&mut self, operation: &mut TeamOperation, rank: usize) -> TeamError {
        self.look_for_mismatch(operation).err().unwrap_or(TeamError::RankLost { rank: rank as u16 })
    }

    /// The root's part. True if all receivers have the vector.
    fn push(&mut self, operation: &mut TeamOperation, data: &CollectiveBuffers<'_>) -> Result<bool, TeamError> {
        let (number, length) = (operation.number, operation.length());
        let blocks = block_count(length);
        let mut is_done = true;
        for rank in (0..self.ranks).filter(|&rank| rank != self.rank) {
            let block_claims = self.region.block_claims(rank);
            if block_claims.has_taken(number) {
                continue;
            }
            let lost = TeamError::RankLost { rank: rank as u16 };
            if block_claims.has_withdrawn(number) {
                return Err(self.withdrawal_error(operation, rank));
            }
            if is_done {
                operation.awaiting = rank as u16;
            }
            is_done = false;
            // A rank with another signature has opened no claims for this operation.
            if self.window.observe(&self.region, rank, number) != Some(operation.signature) {
                continue;
            }
            let BufferOffer::Address(address) = self.offer_of(rank, operation)? else { continue };
            if let Some(place) = self.region.block_claims(rank).claim(number, blocks, CopySide::Root) {
                let block = block(length, place);
                let to = address + block.start as u64;
                self.cross_memory.push(rank, to, &data.input()[block]).map_err(|_| lost)?;
                self.region.block_claims(rank).set_done(number, place + 1);
                self.region.futex(self.rank).wake();
            }
        }
        Ok(is_done)
    }

    /// The buffers become invalid before the operation is over: no rank may access them any more.
    #[cold]
    pub(super) fn withdraw_buffers(&mut self, operation: &TeamOperation) {
        let number = operation.number;
        let block_claims = self.region.block_claims(self.rank);
        block_claims.withdraw(number);
        fence(Ordering::SeqCst);
        // A copy that the root has begun takes some microseconds.
        let is_alive = || self.region.is_alive(operation.root()).unwrap_or(true);
        let is_open = operation.takes_result && block_claims.close(number);
        while is_open && !block_claims.is_root_done(number, block_count(operation.length())) && is_alive() {
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
