//! The ranks of one host: starting operations and moving them on.

use std::io;
use std::time::Duration;

use super::data::Data;
use super::error::{Error, JoinError};
use super::fold::{combine, fold_whole};
use super::operation::{Call, Operation, Progress, Route, Stage};
use super::pipe::Pipe;
use super::post::{INLINE_BYTES, Verb};
use super::region::{CHANNELS, DEPTH, Region, SLOTS};
use super::wait::MOST_SPINS;
use super::window::{Listen, Whose, Window};
use super::word::Board;

/// How often an operation pauses before the reason is looked for. Often enough that a disagreement is found within a
/// millisecond; seldom enough that those who only have to wait a little do not disturb those they wait for.
const LOOK_EVERY: u32 = 256;

/// The ranks of one host that combine in shared memory. Each rank has one, in its own process (or thread).
pub struct Team {
    pub(super) region: Region,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) window: Window,
    pub(super) pipe: Pipe,
    /// The ranks did not agree on an operation that some of them were through with: nothing later can be trusted.
    broken: Option<Error>,
    /// How often no operation could go on, since one did.
    pauses: u32,
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
        Self {
            region,
            rank,
            ranks,
            window: Window::new(rank, ranks, CHANNELS),
            pipe: Pipe::new(rank, ranks, DEPTH),
            broken: None,
            pauses: 0,
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
    #[inline]
    pub fn start(&mut self, call: Call, data: &mut Data<'_>) -> Result<Operation, Error> {
        let mut operation = Operation::new(call, data, self.rank, self.ranks)?;
        match self.begin(&mut operation, data)? {
            // To move the operation would mean to wait until what was just written of it has left the store buffer, where
            // it stands behind the post.
            Progress::Done => Ok(Operation::OVER),
            Progress::Pending => Ok(operation),
        }
    }

    pub(super) fn begin(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Result<Progress, Error> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        if self.ranks == 1 {
            if operation.takes_result {
                data.seed(0..operation.length());
            }
            operation.stage = Stage::Over;
            return Ok(Progress::Done);
        }
        operation.number = self.window.start();
        if operation.route == Route::Pipe {
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
    pub fn poll(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Result<Progress, Error> {
        if operation.is_over() {
            return Ok(Progress::Done);
        }
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        data.check(operation.verb, operation.takes_result, operation.length())?;
        self.advance(operation, data)
    }

    fn advance(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Result<Progress, Error> {
        if operation.stage == Stage::Unposted {
            if self.window.must_hear(operation.number) {
                self.hear(Listen::ToBatches)?;
            }
            if let Err(rank) = self.may_post(operation) {
                operation.awaiting = rank as u16;
                return self.pause(operation);
            }
            self.post(operation, data);
            self.after_posting(operation);
        }
        let progress = match operation.stage {
            Stage::Unposted | Stage::Over => Progress::Done,
            Stage::Posted if operation.verb == Verb::Broadcast => self.receive(operation, data),
            Stage::Posted => self.gather(operation, data)?,
            Stage::Moving => self.advance_large(operation, data),
        };
        if progress == Progress::Pending {
            return self.pause(operation);
        }
        self.pauses = 0;
        Ok(progress)
    }

    /// Whether an operation may be posted; if not, the rank that must do something first.
    #[inline]
    fn may_post(&mut self, operation: &Operation) -> Result<(), usize> {
        self.window.may_post(&self.region, operation.number)?;
        if operation.route == Route::Slot && operation.gives(self.rank) {
            let last_user = operation.number.saturating_sub(SLOTS as u64);
            self.window.others_have_settled(&self.region, last_user)?;
        }
        Ok(())
    }

    /// Says what this rank does, and shows what it brings.
    #[inline]
    fn post(&mut self, operation: &Operation, data: &Data<'_>) {
        let payload = operation.shows(self.rank).then(|| {
            if !operation.gives(self.rank) {
                return &[][..];
            }
            match operation.route {
                Route::Post => data.input(),
                Route::Slot => {
                    let slot = slot_of(operation.number);
                    // SAFETY: `may_post` said that every rank has settled the slot's last operation, so that nobody
                    // reads the slot; it is read again only after the post below.
                    let slot = unsafe { self.region.slot_mut(self.rank, slot, operation.length()) };
                    slot.copy_from_slice(data.input());
                    &[]
                }
                Route::Pipe => &[],
            }
        });
        self.window.post(&self.region, operation.number, operation.claim, payload);
        self.region.bell(self.rank).ring();
    }

    /// A rank that gets no result need not wait for others to come; claims are compared later.
    #[inline]
    fn after_posting(&mut self, operation: &mut Operation) {
        let is_root = self.rank == operation.root();
        operation.stage = match (operation.verb, operation.route) {
            (Verb::Broadcast, Route::Pipe) if is_root => Stage::Moving,
            (Verb::Broadcast, _) if is_root => Stage::Over,
            (Verb::Reduce, Route::Post | Route::Slot) if !is_root => {
                self.window.leave(operation.number, operation.claim, Whose::Of(operation.root()));
                Stage::Over
            }
            _ => Stage::Posted,
        };
        if operation.stage != Stage::Posted && is_root {
            self.window.leave(operation.number, operation.claim, Whose::Everyones);
        }
    }

    /// The operation cannot go on. From time to time, looks around for the reason.
    #[inline]
    fn pause(&mut self, operation: &mut Operation) -> Result<Progress, Error> {
        self.pauses = self.pauses.wrapping_add(1);
        if self.pauses.is_multiple_of(LOOK_EVERY) {
            self.look_around(operation)?;
        }
        Ok(Progress::Pending)
    }

    /// Finds out whether this operation, or one before it, waits in vain because the ranks do not agree.
    #[cold]
    pub(super) fn look_around(&mut self, operation: &mut Operation) -> Result<(), Error> {
        self.hear(Listen::ToEach)?;
        self.audit()?;
        if operation.stage != Stage::Posted || operation.differs && operation.verb == Verb::Broadcast {
            return Ok(());
        }
        // A rank that takes its part for another may never post what is waited for. But it has noted what it claims.
        let number = operation.number;
        if operation.verb == Verb::Broadcast {
            let claim = self.window.read_note(&self.region, operation.root(), number);
            if claim.is_some_and(|claim| claim != operation.claim) {
                operation.differs = true;
                self.window.leave(number, operation.claim, Whose::Everyones);
                self.hear(Listen::ToEach)?;
            }
            return Ok(());
        }
        while usize::from(operation.seen) < self.ranks {
            if usize::from(operation.seen) != self.rank {
                match self.window.read_note(&self.region, operation.seen.into(), number) {
                    Some(claim) if claim != operation.claim => operation.differs = true,
                    _ => break,
                }
            }
            operation.seen += 1;
        }
        Ok(())
    }

    /// A broadcast: only the root's post counts. What the others claim is compared later.
    fn receive(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Progress {
        let (number, root) = (operation.number, operation.root());
        if operation.differs {
            return Progress::Pending; // Until all have been heard; then everyone says the same about it.
        }
        let Some(claim) = self.window.observe(&self.region, root, number) else {
            operation.awaiting = root as u16;
            return Progress::Pending;
        };
        if claim != operation.claim {
            operation.differs = true;
            self.window.leave(number, operation.claim, Whose::Everyones);
            return Progress::Pending;
        }
        operation.stage = Stage::Over;
        match operation.route {
            Route::Post => {
                let payload = self.region.post(root, self.window.channel(number)).payload();
                data.output().copy_from_slice(&payload[..operation.length()]);
            }
            Route::Slot => {
                // SAFETY: the post was observed, and the root does not write the slot again before this rank has settled.
                let slot = unsafe { self.region.slot(root, slot_of(number), operation.length()) };
                data.output().copy_from_slice(slot);
            }
            Route::Pipe => operation.stage = Stage::Moving,
        }
        self.window.settle(&self.region, number);
        self.region.bell(self.rank).ring();
        if operation.stage == Stage::Over { Progress::Done } else { self.advance_large(operation, data) }
    }

    /// Everyone's post counts. Once all are there and agree, a small operation is folded at once.
    #[inline]
    fn gather(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Result<Progress, Error> {
        while usize::from(operation.seen) < self.ranks {
            if usize::from(operation.seen) != self.rank {
                let Some(claim) = self.window.observe(&self.region, operation.seen.into(), operation.number) else {
                    operation.awaiting = operation.seen;
                    return Ok(Progress::Pending);
                };
                operation.differs |= claim != operation.claim;
            }
            operation.seen += 1;
        }
        if operation.differs {
            operation.stage = Stage::Over;
            if operation.route == Route::Pipe {
                self.pipe.skip(operation.place);
            }
            return Err(self.judge(operation.number));
        }
        self.look_back(operation)?;
        match operation.route {
            Route::Post => self.fold_posts(operation, data),
            Route::Slot => self.fold_slots(operation, data),
            Route::Pipe => {
                operation.stage = Stage::Moving;
                return Ok(self.advance_large(operation, data));
            }
        }
        self.window.settle(&self.region, operation.number);
        self.region.bell(self.rank).ring();
        operation.stage = Stage::Over;
        Ok(Progress::Done)
    }

    /// Everyone has come. Did all agree on what went before, where not everyone compared its claim with everyone's?
    #[inline]
    fn look_back(&mut self, operation: &Operation) -> Result<(), Error> {
        let (number, channel) = (operation.number, self.window.channel(operation.number));
        let payload = if operation.route == Route::Post { operation.length() } else { 0 };
        let history = |rank| self.region.post(rank, channel).history(payload);
        let Some(mine) = history(self.rank).filter(|_| operation.shows(self.rank)) else { return Ok(()) };
        if (0..self.ranks).all(|rank| history(rank) == Some(mine)) {
            self.window.trust_before(&self.region, number);
            return Ok(());
        }
        self.hear(Listen::ToEach)?;
        self.audit()
    }

    #[inline]
    fn fold_posts(&mut self, operation: &Operation, data: &mut Data<'_>) {
        let Some(kind) = operation.kind else { return };
        let (channel, length) = (self.window.channel(operation.number), operation.length());
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
        let (slot, length) = (slot_of(operation.number), operation.length());
        fold_whole(kind, self.rank, self.ranks, data, 0..length, |rank, part| {
            // SAFETY: the post was observed, and its owner does not write the slot again before this rank has settled.
            let slot = unsafe { self.region.slot(rank, slot, length) };
            &slot[part]
        });
    }

    /// Compares what others said about operations that are over.
    fn hear(&mut self, listen: Listen) -> Result<(), Error> {
        if !self.window.has_unheard() {
            return Ok(());
        }
        match self.window.hear(&self.region, listen) {
            Ok(settled_any) => {
                if settled_any {
                    self.region.bell(self.rank).ring();
                }
                Ok(())
            }
            Err(number) => Err(self.judge(number)),
        }
    }

    /// Compares what all said about operations that are over, where this rank had no need to.
    fn audit(&mut self) -> Result<(), Error> {
        self.window.audit(&self.region).map_err(|number| self.judge(number))
    }

    /// All have posted this operation, and not all claim the same. Every rank sees the same claims and so says the same.
    #[cold]
    fn judge(&mut self, number: u64) -> Error {
        let channel = self.window.channel(number);
        let claims: Vec<_> =
            (0..self.ranks).filter_map(|rank| self.region.note(rank, channel).observe(number)).collect();
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

/// The slot that an operation uses if its payload is not in the post.
fn slot_of(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}
