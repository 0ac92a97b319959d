//! Waiting: spin, then let others have the processor, then sleep.
//!
//! Whoever is waited for may need the processor on which one spins, because there are more ranks than processors or because
//! others want the processors too. Of ranks one knows it ([`super::oversubscription`]): one that is awaited gets the processor at once, and
//! if none on this processor is, nobody gets it for a while. Of strangers, how long the processor is away when it is given up tells:
//!
//! - It comes back at once: nobody wants it. Spin longer the next time, for nothing is quicker.
//! - It stays away: spin less.
//! - It stays away for long: better sleep, since one who wakes is served first.
//!
//! Sleep ends when the awaited rank publishes something, and is short in any case, because the caller wants to look around, and
//! because a rank that has ended rings no bell.

use std::time::{Duration, Instant};

use super::buffers::CollectiveBuffers;
use super::cache_hints;
use super::error::{TeamError, TeamWaitError};
use super::operation::{OperationStage, PayloadRoute, TeamCall, TeamOperation, TeamProgress};
use super::pipeline::PipelinePosition;
use super::team::Team;

/// What the caller's check says about sleeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// Nothing else needs this thread.
    MaySleep,
    /// The caller has something under way that the check moves on: the wait stays awake.
    StayAwake,
}

/// Polls of a wait before it gives up the processor: at most about 50 us.
pub(super) const MAX_SPINS: u32 = 8192;
const MIN_SPINS: u32 = 4;
/// Polls by a rank that shares its processor with others, while it waits for none of them: some 10 us.
const OVERSUBSCRIBED_SPINS: u32 = 1024;
/// Polls without a pause between them. A pause takes as long as a cache line takes to come.
const EAGER_SPINS: u32 = 1024;
/// Pauses between those of a brief operation, unless processors are short. See [`Team::await_posts`].
const BRIEF_PAUSES: u32 = 2;
/// How often the processor is given up before the wait sleeps.
const YIELDS: u32 = 64;
/// The processor was away for less: nobody else had it. For more: someone who is no rank.
const AT_ONCE: Duration = Duration::from_micros(1);
const SOON: Duration = Duration::from_micros(100);
/// How often a rank gives way to others before it looks how long they take.
const LOOK_AT_CLOCK_EVERY: u32 = 16;
/// Polls between two checks.
const CHECK_EVERY: u32 = 128;
pub(super) const MAX_SLEEP: Duration = Duration::from_millis(1);

impl Team {
    /// Waits until an operation is over. `check` is called now and then and can end the wait.
    ///
    /// # Errors
    /// As [`Team::poll`], if the process of the awaited rank is gone, or if the check says so. After an error of the check the
    /// operation is still under way.
    #[inline]
    pub fn wait<E>(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
        check: impl FnMut() -> Result<WaitMode, E>,
    ) -> Result<(), TeamWaitError<E>> {
        if operation.is_over() || self.poll(operation, data).map_err(TeamWaitError::Team)? == TeamProgress::Done {
            return Ok(());
        }
        self.wait_long(operation, data, check)
    }

    /// Starts an operation and waits until it is over. If it does not end well, this rank is out of step and every later operation
    /// of the team fails here.
    ///
    /// # Errors
    /// As [`Team::start`] and [`Team::wait`]. What was done when the check wanted to end the wait is done.
    #[inline]
    pub fn run<E>(
        &mut self,
        call: TeamCall,
        data: &mut CollectiveBuffers<'_>,
        check: impl FnMut() -> Result<WaitMode, E>,
    ) -> Result<(), TeamWaitError<E>> {
        let mut lent = RunGuard { team: self, operation: TeamOperation::OVER };
        let RunGuard { team, operation } = &mut lent;
        operation.prepare(call, data, team.rank, team.ranks).map_err(TeamWaitError::Team)?;
        operation.is_lent = true;
        if team.begin(operation, data).map_err(TeamWaitError::Team)? == TeamProgress::Done {
            return Ok(());
        }
        match team.wait_long(operation, data, check) {
            Err(TeamWaitError::Check(error)) => match team.poll(operation, data).map_err(TeamWaitError::Team)? {
                TeamProgress::Done => Ok(()),
                TeamProgress::Pending => Err(TeamWaitError::Check(error)),
            },
            result => result,
        }
    }

    /// This rank has posted an operation and is about to look for the others' posts.
    ///
    /// Ranks that come at the same time do best not to look at once: whoever looks before the other has written takes a copy
    /// of the line, which must be taken back before it can be written, and then comes late for the next operation, so that
    /// the next time it is the other who looks too early.
    #[inline]
    pub(super) fn await_posts(&self, operation: &TeamOperation) {
        if !operation.is_brief() || self.crowd.is_here || self.spins <= EAGER_SPINS {
            return;
        }
        std::hint::spin_loop();
        if operation.route == PayloadRoute::Leaf && self.ranks == 2 {
            let channel = self.window.channel(operation.number);
            let length = operation.length();
            cache_hints::prefetch(self.region.leaf_start(1 - self.rank, channel, length), length);
        }
    }

    #[inline(never)]
    fn wait_long<E>(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
        mut check: impl FnMut() -> Result<WaitMode, E>,
    ) -> Result<(), TeamWaitError<E>> {
        let mut attention = WaitMode::MaySleep;
        let (mut polls, mut yields) = (0u32, 0);
        let (mut enough, mut may_spin) = (self.first_polls(), true);
        let mut at = self.headway(operation);
        if self.crowd.is_here && self.awaits_someone_here(operation) {
            yields = self.give_way();
        }
        loop {
            let pauses = match polls {
                0..=EAGER_SPINS if self.crowd.is_here => 0,
                0..=EAGER_SPINS if operation.is_brief() && self.spins > EAGER_SPINS => BRIEF_PAUSES,
                0..=EAGER_SPINS => 0,
                _ => 1,
            };
            (0..pauses).for_each(|_| std::hint::spin_loop());
            if self.poll(operation, data).map_err(TeamWaitError::Team)? == TeamProgress::Done {
                return Ok(());
            }
            polls = polls.saturating_add(1);
            if polls.is_multiple_of(CHECK_EVERY) {
                attention = check().map_err(TeamWaitError::Check)?;
            }
            if polls < enough {
                continue;
            }
            let now = self.headway(operation);
            if at != now {
                // Whoever makes headway will soon make more.
                (at, polls, yields, enough, may_spin) = (now, 0, 0, self.first_polls(), true);
                continue;
            }
            let awaits_someone_here = self.awaits_someone_here(operation);
            if may_spin && !awaits_someone_here {
                let spins = if self.crowd.is_here { OVERSUBSCRIBED_SPINS } else { self.spins };
                (enough, may_spin) = (polls.saturating_add(spins), false);
                continue;
            }
            if yields < YIELDS || attention == WaitMode::StayAwake {
                yields = if self.give_up_processor() < SOON { yields + 1 } else { YIELDS };
                continue;
            }
            attention = check().map_err(TeamWaitError::Check)?;
            if self.nap(operation, data).map_err(TeamWaitError::Team)? == TeamProgress::Done {
                return Ok(());
            }
        }
    }

    /// Polls before this rank asks itself who else needs the processor.
    fn first_polls(&self) -> u32 {
        if self.crowd.is_here { 1 } else { MIN_SPINS }
    }

    /// Lets a rank on this processor go first. How many times to have given up the processor that counts for.
    ///
    /// As a rule it is the only time in a wait, and to look at the clock twice takes a tenth of it. So it does so only now and then,
    /// and as long as strangers are about.
    fn give_way(&mut self) -> u32 {
        self.crowd.given_way = self.crowd.given_way.wrapping_add(1);
        if !self.crowd.is_disturbed && !self.crowd.given_way.is_multiple_of(LOOK_AT_CLOCK_EVERY) {
            std::thread::yield_now();
            return 1;
        }
        if self.give_up_processor() < SOON { 1 } else { YIELDS }
    }

    /// Lets others have the processor, and learns for how long to spin the next time, unless they are ranks. How long they had it.
    fn give_up_processor(&mut self) -> Duration {
        let began = Instant::now();
        std::thread::yield_now();
        let away = began.elapsed();
        self.crowd.is_disturbed = away >= SOON;
        if !self.crowd.is_here {
            self.spins =
                if away < AT_ONCE { (self.spins * 2).min(MAX_SPINS) } else { (self.spins / 2).max(MIN_SPINS) };
        }
        away
    }

    /// How far an operation has come. Of a large one it is enough to know how far the pipe is.
    fn headway(&self, operation: &TeamOperation) -> (u16, OperationStage, PipelinePosition) {
        (operation.seen, operation.stage, self.pipe.at)
    }

    /// Sleeps at the bell of the awaited rank.
    fn nap(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<TeamProgress, TeamError> {
        self.look_around(operation)?;
        let awaiting = usize::from(operation.awaiting);
        let ticket = self.region.bell(awaiting).come();
        let polled = self.poll(operation, data);
        if polled == Ok(TeamProgress::Pending) {
            self.region.bell(awaiting).sleep(ticket, MAX_SLEEP);
        }
        self.region.bell(awaiting).leave();
        if polled? == TeamProgress::Done {
            return Ok(TeamProgress::Done);
        }
        // First whether it is there, then what it left behind: one that has done its part may go.
        let is_there = awaiting == self.rank || !self.is_complete() || self.region.is_there(awaiting).unwrap_or(true);
        if !is_there {
            self.look_around(operation)?;
        }
        let progress = self.poll(operation, data)?;
        if progress == TeamProgress::Pending && !is_there && usize::from(operation.awaiting) == awaiting {
            return Err(TeamError::Lost { rank: awaiting as u16 });
        }
        Ok(progress)
    }
}

/// An operation whose buffers the caller has lent until it is over. If it will never be, for whatever reason, they are taken back.
struct RunGuard<'t> {
    team: &'t mut Team,
    operation: TeamOperation,
}

impl Drop for RunGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.operation.is_over() {
            self.team.abandon(&self.operation);
        }
    }
}
