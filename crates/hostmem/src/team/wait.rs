//! Waiting: spin, then yield the CPU, then sleep.
//!
//! The awaited rank may need the CPU on which this one spins, because there are more ranks than CPUs or because other programs
//! want them. Where ranks run is known ([`super::oversubscription`]): an awaited rank on this CPU gets it at once; if no
//! rank here is awaited, this one keeps it for a while. About other programs, the duration of a yield tells:
//!
//! - The CPU returns at once: nobody wants it. Spin longer the next time, because nothing is faster.
//! - It returns later: spin less.
//! - It returns much later: sleep, because the kernel schedules a thread that wakes before one that yields.
//!
//! A sleep ends when the awaited rank publishes something. It is short in any case, because the caller's check must run, and
//! because a rank that has died wakes nobody.

use std::time::Duration;

use transport::backoff::timed_yield;

use super::buffers::CollectiveBuffers;
use super::error::{TeamError, TeamWaitError};
use super::local_team::Team;
use super::operation::{OperationStage, PayloadRoute, TeamCall, TeamOperation, TeamProgress};
use super::oversubscription::MIN_SPINS;
use super::pipeline::PipelinePosition;
use super::team_memory::TeamMemory;
use crate::cache_hints;

/// Whether a wait may sleep, as the caller's check decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// Nothing else needs this thread.
    MaySleep,
    /// The check drives other work of the caller: the wait must not sleep.
    StayAwake,
}

/// Polls of a rank that shares its CPU with ranks it does not wait for: some 10 us.
const OVERSUBSCRIBED_SPINS: u32 = 1024;
/// Polls without a pause between them. A pause takes as long as the transfer of a cache line.
const EAGER_SPINS: u32 = 1024;
/// Pauses between the polls of a short operation, unless CPUs are scarce. See [`Team::pause_before_first_poll`].
const SHORT_OPERATION_PAUSES: u32 = 2;
/// Yields before the wait sleeps.
const YIELDS: u32 = 64;
/// A shorter yield: nobody else had the CPU. A longer one than the second: a program that is no rank had it.
const IMMEDIATE_YIELD: Duration = Duration::from_micros(1);
const LONG_YIELD: Duration = Duration::from_micros(100);
/// Yields to ranks before one of them is timed.
const YIELDS_PER_CLOCK: u32 = 16;
/// Polls between two checks.
const CHECK_EVERY: u32 = 128;
pub(super) const MAX_SLEEP: Duration = Duration::from_millis(1);

impl Team {
    /// Waits until an operation is over. Calls `check` now and then, which can end the wait.
    ///
    /// # Errors
    /// As [`Team::poll`], if the process of the awaited rank is gone, or if the check fails. After an error of the check the
    /// operation is still in progress.
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

    /// Starts an operation and waits until it is over. If it fails, this rank is out of step and every later operation of the
    /// team fails here.
    ///
    /// # Errors
    /// As [`Team::start`] and [`Team::wait`]. An operation that is complete when the check fails is a success.
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
        operation.is_borrowed = true;
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

    /// Pauses between posting an operation and the first poll of the others' descriptors.
    ///
    /// Ranks that arrive at the same time should not poll at once. A rank that polls before the other has written takes a copy
    /// of the line, which must be invalidated before the write; it then is late for the next operation, and the next time the
    /// other rank polls too early.
    #[inline]
    pub(super) fn pause_before_first_poll(&self, operation: &TeamOperation) {
        if !operation.is_short()
            || self.oversubscription.is_shared
            || self.oversubscription.spins.get() <= EAGER_SPINS
        {
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
        let mut wait_mode = WaitMode::MaySleep;
        let (mut polls, mut yields) = (0u32, 0);
        let (mut enough, mut may_spin) = (self.first_polls(), true);
        let mut at = self.position_of(operation);
        if self.oversubscription.is_shared && self.awaits_rank_on_this_cpu(operation) {
            yields = self.yield_to_rank();
        }
        loop {
            let pauses = match polls {
                0..=EAGER_SPINS if self.oversubscription.is_shared => 0,
                0..=EAGER_SPINS if operation.is_short() && self.oversubscription.spins.get() > EAGER_SPINS => {
                    SHORT_OPERATION_PAUSES
                }
                0..=EAGER_SPINS => 0,
                _ => 1,
            };
            (0..pauses).for_each(|_| std::hint::spin_loop());
            if self.poll(operation, data).map_err(TeamWaitError::Team)? == TeamProgress::Done {
                return Ok(());
            }
            polls = polls.saturating_add(1);
            if polls.is_multiple_of(CHECK_EVERY) {
                wait_mode = check().map_err(TeamWaitError::Check)?;
            }
            if polls < enough {
                continue;
            }
            let now = self.position_of(operation);
            if at != now {
                // An operation that makes progress will soon make more.
                (at, polls, yields, enough, may_spin) = (now, 0, 0, self.first_polls(), true);
                continue;
            }
            let awaits_rank_on_this_cpu = self.awaits_rank_on_this_cpu(operation);
            if may_spin && !awaits_rank_on_this_cpu {
                let spins = if self.oversubscription.is_shared {
                    OVERSUBSCRIBED_SPINS
                } else {
                    self.oversubscription.spins.get()
                };
                (enough, may_spin) = (polls.saturating_add(spins), false);
                continue;
            }
            if yields < YIELDS || wait_mode == WaitMode::StayAwake {
                yields = if self.yield_cpu() < LONG_YIELD { yields + 1 } else { YIELDS };
                continue;
            }
            wait_mode = check().map_err(TeamWaitError::Check)?;
            if self.sleep_once(operation, data).map_err(TeamWaitError::Team)? == TeamProgress::Done {
                return Ok(());
            }
        }
    }

    /// Polls before this rank checks who else needs the CPU.
    fn first_polls(&self) -> u32 {
        if self.oversubscription.is_shared { 1 } else { MIN_SPINS }
    }

    /// Yields to a rank on this CPU; returns how many yields that counts for.
    ///
    /// As a rule this is the only yield of a wait, and two clock reads take a tenth of it. So only every few yields are timed,
    /// and all of them while another program wants the CPU.
    fn yield_to_rank(&mut self) -> u32 {
        self.oversubscription.yields_to_ranks = self.oversubscription.yields_to_ranks.wrapping_add(1);
        if !self.oversubscription.is_contended
            && !self.oversubscription.yields_to_ranks.is_multiple_of(YIELDS_PER_CLOCK)
        {
            std::thread::yield_now();
            return 1;
        }
        if self.yield_cpu() < LONG_YIELD { 1 } else { YIELDS }
    }

    /// Yields the CPU; returns how long it was away. Learns from that how long to spin, unless ranks share this CPU.
    fn yield_cpu(&mut self) -> Duration {
        let away = timed_yield();
        self.oversubscription.is_contended = away >= LONG_YIELD;
        if !self.oversubscription.is_shared {
            let spins = &self.oversubscription.spins;
            if away < IMMEDIATE_YIELD { spins.double() } else { spins.halve() }
        }
        away
    }

    /// Whether a rank that shares this CPU must act before this operation can proceed.
    fn awaits_rank_on_this_cpu(&mut self, operation: &TeamOperation) -> bool {
        // A rank that has posted a barrier or an allreduce waits for the same ranks as this one. Otherwise it is unknown.
        let all_wait = operation.stage == OperationStage::Posted && !operation.signature.is_rooted();
        let channel = self.window.channel(operation.number);
        let Self { region, oversubscription, .. } = self;
        oversubscription.check_neighbours(region, self.rank, |rank| {
            !all_wait || region.descriptor(rank, channel).observe(operation.number).is_none()
        })
    }

    /// The progress of an operation. Of a large one, the position of the pipeline is enough.
    fn position_of(&self, operation: &TeamOperation) -> (u16, OperationStage, PipelinePosition) {
        (operation.seen, operation.stage, self.pipeline.at)
    }

    /// Sleeps on the futex of the awaited rank.
    fn sleep_once(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<TeamProgress, TeamError> {
        self.look_for_mismatch(operation)?;
        let awaiting = usize::from(operation.awaiting);
        let since = self.region.futex(awaiting).register();
        let polled = self.poll(operation, data);
        if polled == Ok(TeamProgress::Pending) {
            self.region.futex(awaiting).wait(since, MAX_SLEEP);
        }
        self.region.futex(awaiting).unregister();
        if polled? == TeamProgress::Done {
            return Ok(TeamProgress::Done);
        }
        // First whether the rank is alive, then what it published: a rank that has done its part may exit.
        let is_alive = awaiting == self.rank || !self.is_complete() || self.region.is_alive(awaiting).unwrap_or(true);
        if !is_alive {
            self.look_for_mismatch(operation)?;
        }
        let progress = self.poll(operation, data)?;
        if progress == TeamProgress::Pending && !is_alive && usize::from(operation.awaiting) == awaiting {
            return Err(TeamError::RankLost { rank: awaiting as u16 });
        }
        Ok(progress)
    }
}

/// An operation that uses the caller's buffers until it is over. Dropped before that, it withdraws the buffers.
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
