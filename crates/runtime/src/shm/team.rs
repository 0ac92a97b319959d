//! The ranks of one host: starting operations and moving them on.

use std::io;
use std::time::Duration;

use super::data::Data;
use super::error::{Error, JoinError};
use super::fold::{combine, fold_whole};
use super::large::Move;
use super::operation::{Call, Operation, Progress, Route, Stage};
use super::pipe::Pipe;
use super::post::{INLINE_BYTES, Verb};
use super::region::{CHANNELS, DEPTH, Region};
use super::wait::MOST_SPINS;
use super::window::Window;
use super::word::Board;

/// The ranks of one host that combine in shared memory. Each rank has one, in its own process (or thread).
pub struct Team {
    pub(super) region: Region,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) window: Window,
    pub(super) pipe: Pipe,
    /// The ranks did not agree on an operation that some of them were through with: nothing later can be trusted.
    broken: Option<Error>,
    pub(super) is_crowded: bool,
    /// How long to spin.
    pub(super) spins: u32,
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
    pub fn create(name: &str, ranks: u16) -> Result<Self, JoinError> {
        Ok(Self::new(Region::create(name, ranks)?, 0))
    }

    /// Joins as `rank` the team that rank 0 creates, now or within `patience`.
    ///
    /// # Errors
    /// If nobody creates it in time, if it is not ours or not what this rank expects, or if the rank is taken.
    pub fn join(name: &str, rank: u16, ranks: u16, patience: Duration) -> Result<Self, JoinError> {
        Ok(Self::new(Region::join(name, rank, ranks, patience)?, rank))
    }

    fn new(region: Region, rank: u16) -> Self {
        let (rank, ranks) = (usize::from(rank), region.ranks());
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        Self {
            region,
            rank,
            ranks,
            window: Window::new(rank, ranks, CHANNELS),
            pipe: Pipe::new(rank, ranks, DEPTH),
            broken: None,
            is_crowded: ranks > processors,
            spins: MOST_SPINS,
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
    pub fn start(&mut self, call: Call, data: &mut Data<'_>) -> Result<Operation, Error> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let mut operation = Operation::new(call, data, self.rank, self.ranks)?;
        if self.ranks == 1 {
            if operation.takes_result {
                data.seed(0..operation.length);
            }
            operation.stage = Stage::Over;
            return Ok(operation);
        }
        operation.number = self.window.start();
        operation.route = if operation.is_large(self.ranks) {
            Route::Pipe { place: self.pipe.queue() }
        } else if operation.is_inline() {
            Route::Post
        } else {
            Route::Slot
        };
        let _ = self.advance(&mut operation, data)?;
        Ok(operation)
    }

    /// Moves an operation on as far as it goes without waiting. `data` are the buffers with which it was started.
    ///
    /// # Errors
    /// If the ranks do not agree on the operation. If that comes out only when some of them are through with it (a broadcast or a
    /// reduction), every later operation of every rank fails as well; otherwise only this one.
    #[inline]
    pub fn poll(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Result<Progress, Error> {
        if operation.is_over() {
            return Ok(Progress::Done);
        }
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        data.check(operation.verb, operation.takes_result, operation.length)?;
        self.advance(operation, data)
    }

    fn advance(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Result<Progress, Error> {
        if operation.stage == Stage::Unposted {
            if self.window.is_crowded() {
                self.hear()?;
            }
            if self.window.may_post(&self.region, operation.number).is_err() {
                self.hear()?; // Our own may be what is in the way.
                if let Err(rank) = self.window.may_post(&self.region, operation.number) {
                    operation.awaiting = rank;
                    return Ok(Progress::Pending);
                }
            }
            self.post(operation, data);
            if operation.is_over_once_posted() {
                self.window.leave(operation.number, operation.claim);
                operation.stage = Stage::Over;
                return Ok(Progress::Done);
            }
            operation.stage = Stage::Posted;
            if let (Verb::Broadcast, Route::Pipe { place }) = (operation.verb, operation.route)
                && self.rank == operation.root
            {
                // The root does not wait for others to come; claims are compared meanwhile.
                self.window.leave(operation.number, operation.claim);
                operation.stage = Stage::Moving(Move::new(place));
            }
        }
        let progress = match operation.stage {
            Stage::Posted if operation.verb == Verb::Broadcast => self.receive(operation, data),
            Stage::Posted => self.gather(operation, data)?,
            _ => self.advance_large(operation, data),
        };
        if progress == Progress::Pending && self.window.has_unheard() {
            self.hear()?;
        }
        Ok(progress)
    }

    /// Says what this rank does, and shows what it brings.
    #[inline]
    fn post(&mut self, operation: &Operation, data: &Data<'_>) {
        let mut payload: &[u8] = &[];
        if operation.gives(self.rank) {
            match operation.route {
                Route::Post => payload = data.input(),
                Route::Slot => {
                    let channel = self.window.channel(operation.number);
                    // SAFETY: `may_post` said that every rank has settled the channel's last operation, so that nobody
                    // reads the slot; it is read again only after the post below.
                    let slot = unsafe { self.region.slot_mut(self.rank, channel, operation.length) };
                    slot.copy_from_slice(data.input());
                }
                Route::Pipe { .. } => {}
            }
        }
        self.window.post(&self.region, operation.number, operation.claim, payload);
        self.region.bell(self.rank).ring();
    }

    /// A broadcast: only the root's post counts. What the others claim is compared later.
    fn receive(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Progress {
        let (number, root) = (operation.number, operation.root);
        if operation.differs {
            return Progress::Pending; // Until all have been heard; then everyone says the same about it.
        }
        let Some(claim) = self.window.observe(&self.region, root, number) else {
            operation.awaiting = root;
            return Progress::Pending;
        };
        if claim != operation.claim {
            operation.differs = true;
            self.window.leave(number, operation.claim);
            return Progress::Pending;
        }
        let channel = self.window.channel(number);
        match operation.route {
            Route::Post => {
                let payload = self.region.post(root, channel).payload();
                data.output().copy_from_slice(&payload[..operation.length]);
            }
            Route::Slot => {
                // SAFETY: the post was observed, and the root does not write the slot again before this rank has settled.
                let slot = unsafe { self.region.slot(root, channel, operation.length) };
                data.output().copy_from_slice(slot);
            }
            Route::Pipe { place } => {
                // Not before: once settled, the root's post may make room for a later one.
                self.window.leave(number, operation.claim);
                operation.stage = Stage::Moving(Move::new(place));
                return self.advance_large(operation, data);
            }
        }
        if self.ranks == 2 {
            self.window.settle(&self.region, number);
            self.region.bell(self.rank).ring();
        } else {
            self.window.leave(number, operation.claim);
        }
        operation.stage = Stage::Over;
        Progress::Done
    }

    /// Everyone's post counts. Once all are there and agree, a small operation is folded at once.
    #[inline]
    fn gather(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Result<Progress, Error> {
        while operation.seen < self.ranks {
            if operation.seen != self.rank {
                let Some(claim) = self.window.observe(&self.region, operation.seen, operation.number) else {
                    operation.awaiting = operation.seen;
                    return Ok(Progress::Pending);
                };
                operation.differs |= claim != operation.claim;
            }
            operation.seen += 1;
        }
        if operation.differs {
            operation.stage = Stage::Over;
            if let Route::Pipe { place } = operation.route {
                self.pipe.skip(place);
            }
            return Err(self.judge(operation.number));
        }
        match operation.route {
            Route::Post => self.fold_posts(operation, data),
            Route::Slot => self.fold_slots(operation, data),
            Route::Pipe { place } => {
                operation.stage = Stage::Moving(Move::new(place));
                return Ok(self.advance_large(operation, data));
            }
        }
        self.window.settle(&self.region, operation.number);
        self.region.bell(self.rank).ring();
        operation.stage = Stage::Over;
        if self.window.has_unheard() {
            self.hear()?; // All that was posted before is here as well.
        }
        Ok(Progress::Done)
    }

    #[inline]
    fn fold_posts(&mut self, operation: &Operation, data: &mut Data<'_>) {
        let Some(kind) = operation.kind else { return };
        let (channel, length) = (self.window.channel(operation.number), operation.length);
        let mut mine = [0; INLINE_BYTES];
        mine[..length].copy_from_slice(data.input());
        let brought = |rank| if rank == self.rank { mine } else { self.region.post(rank, channel).payload() };
        let mut sum = brought(0);
        for rank in 1..self.ranks {
            combine(kind, &mut sum[..length], &brought(rank)[..length]);
        }
        data.output().copy_from_slice(&sum[..length]);
    }

    fn fold_slots(&mut self, operation: &Operation, data: &mut Data<'_>) {
        let Some(kind) = operation.kind else { return };
        let (channel, length) = (self.window.channel(operation.number), operation.length);
        fold_whole(kind, self.rank, self.ranks, data, 0..length, |rank, part| {
            // SAFETY: the post was observed, and its owner does not write the slot again before this rank has settled.
            let slot = unsafe { self.region.slot(rank, channel, length) };
            &slot[part]
        });
    }

    /// Compares what others said about operations that are over.
    pub(super) fn hear(&mut self) -> Result<(), Error> {
        match self.window.hear(&self.region) {
            Ok(settled_any) => {
                if settled_any {
                    self.region.bell(self.rank).ring();
                }
                Ok(())
            }
            Err(number) => Err(self.judge(number)),
        }
    }

    /// All have posted this operation, and not all claim the same. Every rank sees the same claims and so says the same.
    #[cold]
    fn judge(&mut self, number: u64) -> Error {
        let channel = self.window.channel(number);
        let claims: Vec<_> =
            (0..self.ranks).filter_map(|rank| self.region.post(rank, channel).observe(number)).collect();
        let first = claims.first().map(|(first, _)| *first);
        let odd = claims.iter().position(|(claim, _)| Some(*claim) != first);
        let (Some(first), Some(rank), true) = (first, odd, claims.len() == self.ranks) else {
            self.broken = Some(Error::Garbled { operation: number });
            return Error::Garbled { operation: number };
        };
        let error = Error::Mismatch { operation: number, first, rank: rank as u16, other: claims[rank].0 };
        if claims.iter().any(|(claim, _)| claim.is_rooted()) {
            self.broken = Some(error);
        } else {
            self.window.settle(&self.region, number);
        }
        self.region.bell(self.rank).ring();
        error
    }
}
