//! Operations whose payload fits a descriptor, leaf or slot: they complete as soon as the descriptors they need are posted.

use super::buffers::CollectiveBuffers;
use super::descriptor::TeamVerb;
use super::error::TeamError;
use super::fold::{combine, fold_whole};
use super::local_team::Team;
use super::operation::{OperationStage, PayloadRoute, TeamOperation, TeamProgress};
use super::team_memory::TeamMemory;
use super::window::SignatureScope;

impl Team {
    /// A broadcast: only the root's descriptor counts. The signatures of the others are compared later.
    pub(super) fn receive(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<TeamProgress, TeamError> {
        let (number, root) = (operation.number, operation.root());
        if operation.differs {
            return Ok(TeamProgress::Pending); // Until all signatures are recorded; then every rank reports the same mismatch.
        }
        let Some(signature) = self.window.observe(&self.region, root, number) else {
            operation.awaiting = root as u16;
            return Ok(TeamProgress::Pending);
        };
        if signature != operation.signature {
            operation.differs = true;
            self.window.defer_comparison(number, operation.signature, SignatureScope::AllRanks);
            return Ok(TeamProgress::Pending);
        }
        operation.stage = OperationStage::Over;
        match operation.route {
            PayloadRoute::Post => {
                let payload = self.region.descriptor(root, self.window.channel(number)).payload();
                data.output().copy_from_slice(&payload[..operation.length()]);
            }
            PayloadRoute::Leaf => {
                // SAFETY: the descriptor was observed, and the root does not write the leaf again before this rank has settled.
                let leaf = unsafe { self.region.leaf(root, self.window.channel(number), operation.length()) };
                data.output().copy_from_slice(leaf);
            }
            PayloadRoute::Slot => {
                // SAFETY: the descriptor was observed, and the root does not write the slot again before this rank has settled.
                let slot = unsafe { self.region.slot(root, self.slot_of(root, number), operation.length()) };
                data.output().copy_from_slice(slot);
            }
            PayloadRoute::Pipe => {
                let offer = self.offer_of(root, operation)?;
                self.choose_route(operation, offer);
                if operation.stage == OperationStage::Direct {
                    return self.advance_direct(operation, data);
                }
            }
        }
        self.window.settle(&self.region, number);
        self.region.futex(self.rank).wake();
        if operation.stage == OperationStage::Over {
            Ok(TeamProgress::Done)
        } else {
            Ok(self.advance_large(operation, data))
        }
    }

    /// The descriptors of all ranks count. Once all are posted and agree, a small operation is folded at once.
    #[inline]
    pub(super) fn gather(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<TeamProgress, TeamError> {
        if self.oversubscription.is_shared
            && operation.route != PayloadRoute::Pipe
            && operation.verb != TeamVerb::Exchange
            && self.take_shared_result(operation, data)
        {
            return Ok(self.finish_small(operation));
        }
        while usize::from(operation.seen) < self.ranks {
            if usize::from(operation.seen) != self.rank {
                let Some(signature) = self.window.observe(&self.region, operation.seen.into(), operation.number)
                else {
                    operation.awaiting = operation.seen;
                    return Ok(TeamProgress::Pending);
                };
                operation.differs |= signature != operation.signature;
            }
            operation.seen += 1;
        }
        if operation.differs {
            operation.stage = OperationStage::Over;
            if operation.route == PayloadRoute::Pipe {
                self.pipeline.skip(operation.queue_position);
            }
            return Err(self.mismatch_error(operation.number));
        }
        self.check_history(operation)?;
        match operation.route {
            _ if operation.verb == TeamVerb::Exchange => self.read_parts(operation, data),
            PayloadRoute::Post => self.fold_posts(operation, data),
            PayloadRoute::Leaf => self.fold_leaves(operation, data),
            PayloadRoute::Slot => self.fold_slots(operation, data),
            PayloadRoute::Pipe => {
                operation.stage = OperationStage::Moving;
                return Ok(self.advance_large(operation, data));
            }
        }
        if self.oversubscription.is_shared {
            self.publish_shared_result(operation, data);
        }
        Ok(self.finish_small(operation))
    }

    #[inline]
    fn finish_small(&mut self, operation: &mut TeamOperation) -> TeamProgress {
        self.window.settle(&self.region, operation.number);
        self.region.futex(self.rank).wake();
        operation.stage = OperationStage::Over;
        TeamProgress::Done
    }

    #[inline]
    fn fold_posts(&mut self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) {
        let Some(kind) = operation.kind else { return };
        let (channel, length) = (self.window.channel(operation.number), operation.length());
        let contribution = |rank| self.region.descriptor(rank, channel).payload();
        if self.rank < 2 {
            // As in `fold_whole`: the first two ranks fold into their own contribution.
            let output = data.seed(0..length);
            for rank in std::iter::once(1 - self.rank).chain(2..self.ranks) {
                combine(kind, output, &contribution(rank)[..length]);
            }
            return;
        }
        let mut sum = contribution(0);
        for rank in 1..self.ranks {
            if rank == self.rank {
                combine(kind, &mut sum[..length], data.input());
            } else {
                combine(kind, &mut sum[..length], &contribution(rank)[..length]);
            }
        }
        data.output().copy_from_slice(&sum[..length]);
    }

    fn fold_leaves(&mut self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) {
        let Some(kind) = operation.kind else { return };
        let (channel, length) = (self.window.channel(operation.number), operation.length());
        fold_whole(kind, self.rank, self.ranks, data, 0..length, |rank, part| {
            // SAFETY: the descriptor was observed, and its owner does not write the leaf again before this rank has settled.
            let leaf = unsafe { self.region.leaf(rank, channel, length) };
            &leaf[part]
        });
    }

    fn fold_slots(&mut self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) {
        let Some(kind) = operation.kind else { return };
        let (number, length) = (operation.number, operation.length());
        fold_whole(kind, self.rank, self.ranks, data, 0..length, |rank, part| {
            // SAFETY: the descriptor was observed, and its owner does not write the slot again before this rank has settled.
            let slot = unsafe { self.region.slot(rank, self.slot_of(rank, number), length) };
            &slot[part]
        });
    }

    /// Reads this rank's part of every rank's bytes.
    fn read_parts(&mut self, operation: &TeamOperation, data: &mut CollectiveBuffers<'_>) {
        let (number, length) = (operation.number, operation.length());
        let channel = self.window.channel(number);
        for rank in 0..self.ranks {
            match operation.route {
                _ if rank == self.rank => data.take_part(rank, None),
                PayloadRoute::Post => {
                    data.take_part(rank, Some(&self.region.descriptor(rank, channel).payload()[..]))
                }
                PayloadRoute::Leaf => {
                    // SAFETY: the descriptor was observed, and its owner does not write the leaf again before this rank has settled.
                    data.take_part(rank, Some(unsafe { self.region.leaf(rank, channel, length) }));
                }
                PayloadRoute::Slot | PayloadRoute::Pipe => {
                    // SAFETY: the descriptor was observed, and its owner does not write the slot again before this rank has settled.
                    let slot = unsafe { self.region.slot(rank, self.slot_of(rank, number), length) };
                    data.take_part(rank, Some(slot));
                }
            }
        }
    }

    /// The offset of an operation's slot, from the observed descriptor of its owner.
    #[inline]
    fn slot_of(&self, rank: usize, number: u64) -> usize {
        self.region.descriptor(rank, self.window.channel(number)).first_word() as usize
    }
}
