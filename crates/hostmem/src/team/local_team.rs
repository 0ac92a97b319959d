//! The ranks of one host: starting operations and advancing them.

use std::io;
use std::time::Duration;

use super::buffer_offer::BufferOffer;
use super::buffers::CollectiveBuffers;
use super::cross_memory::CrossMemory;
use super::descriptor::TeamVerb;
use super::error::{TeamError, TeamJoinError};
use super::operation::{OperationStage, PayloadRoute, TeamCall, TeamOperation, TeamProgress};
use super::oversubscription::Oversubscription;
use super::pipeline::ChunkPipeline;
use super::region::{CHANNELS, DEPTH, TeamRegion};
use super::slot_ring::SlotRing;
use super::team_memory::TeamMemory;
use super::window::{ComparisonEffort, OperationWindow, SignatureScope};
use crate::cache_hints;

/// A rank's membership in the team of its host, in its own process (or thread).
pub struct Team {
    pub(super) region: TeamRegion,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) window: OperationWindow,
    pub(super) pipeline: ChunkPipeline,
    ring: SlotRing,
    pub(super) cross_memory: CrossMemory,
    /// Set when the ranks are out of step: every later operation fails.
    pub(super) broken: Option<TeamError>,
    /// Polls without progress in a row.
    pub(super) pauses: u32,
    pub(super) oversubscription: Oversubscription,
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "local rank {} of {}", self.rank, self.ranks)
    }
}

impl Team {
    /// Creates the shared memory of a team of `ranks`, under a name that is unused in `/dev/shm`. The caller is rank 0.
    ///
    /// # Errors
    /// If the name is in use or invalid, or `/dev/shm` is full.
    pub fn create(name: &str, ranks: u16) -> Result<Self, TeamJoinError> {
        Ok(Self::new(TeamRegion::create(name, ranks)?, 0))
    }

    /// Joins the team that rank 0 creates, now or within `timeout`, as `rank`.
    ///
    /// # Errors
    /// If rank 0 does not create it in time, if it has another owner or layout, or if the rank is taken.
    pub fn join(name: &str, rank: u16, ranks: u16, timeout: Duration) -> Result<Self, TeamJoinError> {
        Self::join_unless(name, rank, ranks, timeout, || false)
    }

    /// As [`Self::join`], until `is_cancelled` returns true: rank 0 cannot create it.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn join_unless(
        name: &str,
        rank: u16,
        ranks: u16,
        timeout: Duration,
        is_cancelled: impl FnMut() -> bool,
    ) -> Result<Self, TeamJoinError> {
        Ok(Self::new(TeamRegion::join(name, rank, ranks, timeout, is_cancelled)?, rank))
    }

    fn new(region: TeamRegion, rank: u16) -> Self {
        let (rank, ranks) = (usize::from(rank), region.ranks());
        Self {
            region,
            rank,
            ranks,
            window: OperationWindow::new(rank, ranks, CHANNELS),
            pipeline: ChunkPipeline::new(rank, ranks, DEPTH),
            ring: SlotRing::new(CHANNELS),
            cross_memory: CrossMemory::new(),
            broken: None,
            pauses: 0,
            oversubscription: Oversubscription::new(),
        }
    }

    /// The local rank.
    pub fn rank(&self) -> u16 {
        self.rank as u16
    }

    /// The number of ranks on this host.
    pub fn ranks(&self) -> u16 {
        self.ranks as u16
    }

    /// All ranks have mapped the memory; its file is unlinked.
    pub fn is_complete(&self) -> bool {
        self.region.is_complete()
    }

    /// A rank whose process has ended, or that has left. Asks the kernel about every rank.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn lost_rank(&self) -> io::Result<Option<u16>> {
        if !self.is_complete() {
            return Ok(None);
        }
        for rank in (0..self.ranks).filter(|&rank| rank != self.rank) {
            if !self.region.is_alive(rank)? {
                return Ok(Some(rank as u16));
            }
        }
        Ok(None)
    }

    /// Starts an operation. Never waits: if all channels are in use, later polls post it. The operation may be over already.
    ///
    /// # Errors
    /// If the arguments are invalid; then the operation has not started, and the ranks are out of step unless all of them got
    /// the same error. Or as [`Team::poll`].
    #[inline]
    pub fn start(&mut self, call: TeamCall, data: &mut CollectiveBuffers<'_>) -> Result<TeamOperation, TeamError> {
        let mut operation = TeamOperation::OVER;
        operation.prepare(call, data, self.rank, self.ranks)?;
        match self.begin(&mut operation, data)? {
            // Moving the operation would wait until its last writes have left the store buffer, where they queue behind the
            // descriptor.
            TeamProgress::Done => Ok(TeamOperation::OVER),
            TeamProgress::Pending => Ok(operation),
        }
    }

    pub(super) fn begin(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<TeamProgress, TeamError> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        if self.ranks == 1 {
            match operation.verb {
                TeamVerb::Exchange => data.take_part(0, None),
                _ if operation.takes_result => {
                    data.seed(0..operation.length());
                }
                _ => {}
            }
            operation.stage = OperationStage::Over;
            return Ok(TeamProgress::Done);
        }
        operation.number = self.window.start();
        if operation.route == PayloadRoute::Pipe {
            operation.queue_position = self.pipeline.enqueue();
        }
        self.advance(operation, data)
    }

    /// Advances an operation as far as possible without waiting. `data` are the buffers it was started with.
    ///
    /// # Errors
    /// If the signatures of the ranks differ. If some ranks have completed the operation before (a broadcast or a reduction),
    /// every later operation of every rank fails as well; otherwise only this one.
    #[inline]
    pub fn poll(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<TeamProgress, TeamError> {
        if operation.is_over() {
            return Ok(TeamProgress::Done);
        }
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        data.check(operation.verb, operation.takes_result, operation.length())?;
        self.advance(operation, data)
    }

    fn advance(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<TeamProgress, TeamError> {
        if operation.stage == OperationStage::Unposted {
            if self.window.must_compare(operation.number) {
                self.compare_unchecked(ComparisonEffort::FullBatches)?;
            }
            if let Err(rank) = self.may_post(operation) {
                operation.awaiting = rank as u16;
                return self.pause(operation);
            }
            self.post(operation, data);
            self.set_stage_after_post(operation);
            if operation.stage == OperationStage::Posted {
                self.pause_before_first_poll(operation);
            }
        }
        let progress = match operation.stage {
            OperationStage::Unposted | OperationStage::Over => TeamProgress::Done,
            OperationStage::Posted if operation.verb == TeamVerb::Broadcast => self.receive(operation, data)?,
            OperationStage::Posted => self.gather(operation, data)?,
            OperationStage::Moving => self.advance_large(operation, data),
            OperationStage::Direct => self.advance_direct(operation, data)?,
        };
        if progress == TeamProgress::Pending {
            return self.pause(operation);
        }
        self.pauses = 0;
        Ok(progress)
    }

    /// Whether an operation may be posted; if not, the rank that must act first.
    #[inline]
    fn may_post(&mut self, operation: &TeamOperation) -> Result<(), usize> {
        self.window.may_post(&self.region, operation.number)?;
        if operation.route == PayloadRoute::Slot && operation.contributes(self.rank) {
            let reservation = self.ring.reserve(operation.length());
            self.window.others_have_settled(&self.region, reservation.settled)?;
        }
        Ok(())
    }

    /// Posts the signature and the payload of this rank.
    #[inline]
    fn post(&mut self, operation: &mut TeamOperation, data: &mut CollectiveBuffers<'_>) {
        if operation.verb == TeamVerb::Broadcast && operation.route == PayloadRoute::Pipe {
            return self.post_offer(operation, data);
        }
        let offset;
        let payload = match operation.route {
            _ if !operation.posts_descriptor(self.rank) => None,
            PayloadRoute::Post if operation.contributes(self.rank) => Some(data.input()),
            PayloadRoute::Leaf if operation.contributes(self.rank) => {
                let channel = self.window.channel(operation.number);
                // SAFETY: `may_post` has checked that every rank has settled the last operation of this channel, so that no rank reads
                // the leaf; it is read again only after the post below.
                let leaf = unsafe { self.region.leaf_mut(self.rank, channel, operation.length()) };
                leaf.copy_from_slice(data.input());
                if !self.oversubscription.is_shared {
                    cache_hints::demote(leaf);
                }
                Some(&[][..])
            }
            PayloadRoute::Slot if operation.contributes(self.rank) => {
                let reservation = self.ring.reserve(operation.length());
                self.ring.commit(operation.number, reservation);
                // SAFETY: `may_post` has checked that every rank has settled the operations that used this part of the ring, so that no
                // rank reads it; it is read again only after the post below.
                let slot = unsafe { self.region.slot_mut(self.rank, reservation.offset(), operation.length()) };
                slot.copy_from_slice(data.input());
                offset = (reservation.offset() as u64).to_le_bytes();
                Some(&offset[..])
            }
            _ => Some(&[][..]),
        };
        operation.history = self.window.post(&self.region, operation.number, operation.signature, payload);
        if payload.is_some() && !self.oversubscription.is_shared {
            cache_hints::demote(self.region.descriptor(self.rank, self.window.channel(operation.number)));
        }
        self.region.futex(self.rank).wake();
    }

    /// A large broadcast: the root posts the address of its vector, if it may be read there, and the receivers those of theirs.
    fn post_offer(&mut self, operation: &mut TeamOperation, data: &mut CollectiveBuffers<'_>) {
        let offer = self.offer(operation, data);
        let payload = offer.to_payload(operation.number, operation.signature);
        operation.history = self.window.post(&self.region, operation.number, operation.signature, Some(&payload));
        self.region.futex(self.rank).wake();
        if !operation.takes_result {
            self.choose_route(operation, offer);
        }
    }

    /// Takes the route that the root offers.
    pub(super) fn choose_route(&mut self, operation: &mut TeamOperation, offer: BufferOffer) {
        operation.stage = match offer {
            BufferOffer::Nothing => OperationStage::Moving,
            BufferOffer::Address(_) => {
                self.pipeline.skip(operation.queue_position);
                OperationStage::Direct
            }
        };
    }

    /// A rank that gets no result need not wait for others; signatures are compared later.
    #[inline]
    fn set_stage_after_post(&mut self, operation: &mut TeamOperation) {
        let is_root = self.rank == operation.root();
        operation.stage = match (operation.verb, operation.route) {
            (TeamVerb::Broadcast, PayloadRoute::Pipe) if is_root => operation.stage,
            (TeamVerb::Broadcast, _) if is_root => OperationStage::Over,
            (TeamVerb::Reduce, PayloadRoute::Post | PayloadRoute::Leaf | PayloadRoute::Slot) if !is_root => {
                self.window.defer_comparison(
                    operation.number,
                    operation.signature,
                    SignatureScope::Rank(operation.root()),
                );
                OperationStage::Over
            }
            _ => OperationStage::Posted,
        };
        if operation.stage != OperationStage::Posted && is_root {
            self.window.defer_comparison(operation.number, operation.signature, SignatureScope::AllRanks);
        }
    }
}
