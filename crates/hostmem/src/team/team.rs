//! The ranks of one host: starting operations and moving them on.

use std::io;
use std::time::Duration;

use super::buffers::CollectiveBuffers;
use super::cache_hints;
use super::cma_broadcast::BufferOffer;
use super::cross_memory::CrossMemory;
use super::descriptor::TeamVerb;
use super::error::{TeamError, TeamJoinError};
use super::operation::{OperationStage, PayloadRoute, TeamCall, TeamOperation, TeamProgress};
use super::oversubscription::Oversubscription;
use super::pipeline::ChunkPipeline;
use super::region::{CHANNELS, DEPTH, TeamRegion};
use super::shared_word::TeamMemory;
use super::slot_ring::SlotRing;
use super::wait::MAX_SPINS;
use super::window::{ComparisonEffort, OperationWindow, SignatureScope};

/// The ranks of one host that combine in shared memory. Each rank has one, in its own process (or thread).
pub struct Team {
    pub(super) region: TeamRegion,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) window: OperationWindow,
    pub(super) pipe: ChunkPipeline,
    ring: SlotRing,
    pub(super) reach: CrossMemory,
    /// The ranks are out of step: nothing later can be trusted.
    pub(super) broken: Option<TeamError>,
    /// How often no operation could go on, since one did.
    pub(super) pauses: u32,
    /// How long to spin.
    pub(super) spins: u32,
    pub(super) crowd: Oversubscription,
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "local rank {} of {}", self.rank, self.ranks)
    }
}

impl Team {
    /// Makes the shared memory of a team of `ranks`, under a name that nothing in `/dev/shm` has. The caller is rank 0.
    ///
    /// # Errors
    /// If the name is taken or not fit, or there is no room.
    pub fn create(name: &str, ranks: u16) -> Result<Self, TeamJoinError> {
        Ok(Self::new(TeamRegion::create(name, ranks)?, 0))
    }

    /// Joins as `rank` the team that rank 0 creates, now or within `patience`.
    ///
    /// # Errors
    /// If nobody creates it in time, if it is not ours or not what this rank expects, or if the rank is taken.
    pub fn join(name: &str, rank: u16, ranks: u16, patience: Duration) -> Result<Self, TeamJoinError> {
        Ok(Self::new(TeamRegion::join(name, rank, ranks, patience)?, rank))
    }

    fn new(region: TeamRegion, rank: u16) -> Self {
        let (rank, ranks) = (usize::from(rank), region.ranks());
        Self {
            region,
            rank,
            ranks,
            window: OperationWindow::new(rank, ranks, CHANNELS),
            pipe: ChunkPipeline::new(rank, ranks, DEPTH),
            ring: SlotRing::new(CHANNELS),
            reach: CrossMemory::new(),
            broken: None,
            pauses: 0,
            spins: MAX_SPINS,
            crowd: Oversubscription::new(),
        }
    }

    /// This rank, as counted on this host.
    pub fn rank(&self) -> u16 {
        self.rank as u16
    }

    /// How many ranks there are on this host.
    pub fn ranks(&self) -> u16 {
        self.ranks as u16
    }

    /// All ranks have mapped the memory; its name is gone from the file system.
    pub fn is_complete(&self) -> bool {
        self.region.is_complete()
    }

    /// A rank that has come and whose process is gone, or that has left. Asks the kernel about every rank.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn lost_rank(&self) -> io::Result<Option<u16>> {
        if !self.is_complete() {
            return Ok(None);
        }
        for rank in (0..self.ranks).filter(|&rank| rank != self.rank) {
            if !self.region.is_there(rank)? {
                return Ok(Some(rank as u16));
            }
        }
        Ok(None)
    }

    /// Starts an operation. Never waits: if all channels are taken, later polls go on. The operation may be over already.
    ///
    /// # Errors
    /// If the arguments make no sense; then the operation has not started, and the ranks are out of step unless all of them
    /// got the same error. Or as [`Team::poll`].
    #[inline]
    pub fn start(&mut self, call: TeamCall, data: &mut CollectiveBuffers<'_>) -> Result<TeamOperation, TeamError> {
        let mut operation = TeamOperation::OVER;
        operation.prepare(call, data, self.rank, self.ranks)?;
        match self.begin(&mut operation, data)? {
            // To move the operation would mean to wait until what was just written of it has left the store buffer, where
            // it stands behind the post.
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
            if operation.takes_result {
                data.seed(0..operation.length());
            }
            operation.stage = OperationStage::Over;
            return Ok(TeamProgress::Done);
        }
        operation.number = self.window.start();
        if operation.route == PayloadRoute::Pipe {
            operation.place = self.pipe.queue();
        }
        self.advance(operation, data)
    }

    /// Moves an operation on as far as it goes without waiting. `data` are the buffers with which it was started.
    ///
    /// # Errors
    /// If the ranks do not agree on the operation. If that comes out only when some of them are through with it (a broadcast or a
    /// reduction), every later operation of every rank fails as well; otherwise only this one.
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
            if self.window.must_hear(operation.number) {
                self.hear(ComparisonEffort::ToBatches)?;
            }
            if let Err(rank) = self.may_post(operation) {
                operation.awaiting = rank as u16;
                return self.pause(operation);
            }
            self.post(operation, data);
            self.after_posting(operation);
            if operation.stage == OperationStage::Posted {
                self.await_posts(operation);
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

    /// Whether an operation may be posted; if not, the rank that must do something first.
    #[inline]
    fn may_post(&mut self, operation: &TeamOperation) -> Result<(), usize> {
        self.window.may_post(&self.region, operation.number)?;
        if operation.route == PayloadRoute::Slot && operation.gives(self.rank) {
            let room = self.ring.room(operation.length());
            self.window.others_have_settled(&self.region, room.settled)?;
        }
        Ok(())
    }

    /// Says what this rank does, and shows what it brings.
    #[inline]
    fn post(&mut self, operation: &mut TeamOperation, data: &mut CollectiveBuffers<'_>) {
        if operation.verb == TeamVerb::Broadcast && operation.route == PayloadRoute::Pipe {
            return self.post_offer(operation, data);
        }
        let offset;
        let payload = match operation.route {
            _ if !operation.shows(self.rank) => None,
            PayloadRoute::Post if operation.gives(self.rank) => Some(data.input()),
            PayloadRoute::Leaf if operation.gives(self.rank) => {
                let channel = self.window.channel(operation.number);
                // SAFETY: `may_post` said that every rank has settled the last operation of this channel, so that nobody reads
                // the leaf; it is read again only after the post below.
                let leaf = unsafe { self.region.leaf_mut(self.rank, channel, operation.length()) };
                leaf.copy_from_slice(data.input());
                if !self.crowd.is_here {
                    cache_hints::demote(leaf);
                }
                Some(&[][..])
            }
            PayloadRoute::Slot if operation.gives(self.rank) => {
                let room = self.ring.room(operation.length());
                self.ring.cut(operation.number, room);
                // SAFETY: `may_post` said that every rank has settled the operations that used this part of the ring, so that
                // nobody reads it; it is read again only after the post below.
                let slot = unsafe { self.region.slot_mut(self.rank, room.offset(), operation.length()) };
                slot.copy_from_slice(data.input());
                offset = (room.offset() as u64).to_le_bytes();
                Some(&offset[..])
            }
            _ => Some(&[][..]),
        };
        operation.history = self.window.post(&self.region, operation.number, operation.claim, payload);
        if payload.is_some() && !self.crowd.is_here {
            cache_hints::demote(self.region.post(self.rank, self.window.channel(operation.number)));
        }
        self.region.bell(self.rank).ring();
    }

    /// A large broadcast: the root shows where the vector is, if it may be fetched there, and the others where theirs may be put.
    fn post_offer(&mut self, operation: &mut TeamOperation, data: &mut CollectiveBuffers<'_>) {
        let offer = self.offer(operation, data);
        let payload = offer.to_payload(operation.number, operation.claim);
        operation.history = self.window.post(&self.region, operation.number, operation.claim, Some(&payload));
        self.region.bell(self.rank).ring();
        if !operation.takes_result {
            self.take_way(operation, offer);
        }
    }

    /// The way that the root offers.
    pub(super) fn take_way(&mut self, operation: &mut TeamOperation, offer: BufferOffer) {
        operation.stage = match offer {
            BufferOffer::Nothing => OperationStage::Moving,
            BufferOffer::Address(_) => {
                self.pipe.skip(operation.place);
                OperationStage::Direct
            }
        };
    }

    /// A rank that gets no result need not wait for others to come; claims are compared later.
    #[inline]
    fn after_posting(&mut self, operation: &mut TeamOperation) {
        let is_root = self.rank == operation.root();
        operation.stage = match (operation.verb, operation.route) {
            (TeamVerb::Broadcast, PayloadRoute::Pipe) if is_root => operation.stage,
            (TeamVerb::Broadcast, _) if is_root => OperationStage::Over,
            (TeamVerb::Reduce, PayloadRoute::Post | PayloadRoute::Leaf | PayloadRoute::Slot) if !is_root => {
                self.window.leave(operation.number, operation.claim, SignatureScope::Of(operation.root()));
                OperationStage::Over
            }
            _ => OperationStage::Posted,
        };
        if operation.stage != OperationStage::Posted && is_root {
            self.window.leave(operation.number, operation.claim, SignatureScope::Everyones);
        }
    }
}
