//! Waiting: spin, then let others have the processor, then sleep.
//!
//! Whoever is waited for may need the processor on which one spins, because there are more ranks than processors or because
//! others want the processors too. So spinning that was in vain is shorter the next time. Giving up the processor costs
//! little where all who want it are ranks, but on a busy machine it comes back late, and one who wakes from sleep is
//! served first. Sleep ends when the awaited rank publishes something, and is short in any case, because the caller
//! wants to look around, and because a rank that has ended rings no bell.

use std::time::Duration;

use super::data::Data;
use super::error::{Error, WaitError};
use super::operation::{Call, Operation, Progress, Stage};
use super::pipe::At;
use super::team::Team;

/// What the caller's check says about sleeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attention {
    /// Nothing else needs this thread.
    MaySleep,
    /// The caller has something under way that the check moves on: the wait stays awake.
    StayAwake,
}

/// Polls of a wait before it gives up the processor: at most about 50 us. Halved whenever the wait came to sleep all the same,
/// for then the awaited rank probably needs this very processor; doubled whenever it did not.
pub(super) const MOST_SPINS: u32 = 8192;
const LEAST_SPINS: u32 = 4;
/// Polls without a pause between them. A pause takes as long as a cache line takes to come.
const EAGER_SPINS: u32 = 1024;
/// How often the processor is given up before the wait sleeps: more often where there are more ranks than processors.
const YIELDS: u32 = 64;
/// Polls between two checks.
const CHECK_EVERY: u32 = 128;
const NAP: Duration = Duration::from_millis(1);

impl Team {
    /// Waits until an operation is over. `check` is called now and then and can end the wait.
    ///
    /// # Errors
    /// As [`Team::poll`], if the process of the awaited rank is gone, or if the check says so. After an error of the check the
    /// operation is still under way.
    #[inline]
    pub fn wait<E>(
        &mut self,
        operation: &mut Operation,
        data: &mut Data<'_>,
        check: impl FnMut() -> Result<Attention, E>,
    ) -> Result<(), WaitError<E>> {
        if operation.is_over() || self.poll(operation, data).map_err(WaitError::Team)? == Progress::Done {
            return Ok(());
        }
        self.wait_long(operation, data, check)
    }

    /// Starts an operation and waits until it is over.
    ///
    /// # Errors
    /// As [`Team::start`] and [`Team::wait`].
    #[inline]
    pub fn run<E>(
        &mut self,
        call: Call,
        data: &mut Data<'_>,
        check: impl FnMut() -> Result<Attention, E>,
    ) -> Result<(), WaitError<E>> {
        let mut operation = Operation::new(call, data, self.rank, self.ranks).map_err(WaitError::Team)?;
        match self.begin(&mut operation, data).map_err(WaitError::Team)? {
            Progress::Done => Ok(()),
            Progress::Pending => self.wait_long(&mut operation, data, check),
        }
    }

    fn wait_long<E>(
        &mut self,
        operation: &mut Operation,
        data: &mut Data<'_>,
        mut check: impl FnMut() -> Result<Attention, E>,
    ) -> Result<(), WaitError<E>> {
        let mut attention = Attention::MaySleep;
        let mut polls = 0u32;
        let mut was_in_vain = false;
        let mut at = self.headway(operation);
        loop {
            if self.poll(operation, data).map_err(WaitError::Team)? == Progress::Done {
                if !was_in_vain {
                    self.spins = (self.spins + self.spins / 8 + 1).min(MOST_SPINS);
                }
                return Ok(());
            }
            polls = polls.saturating_add(1);
            if polls.is_multiple_of(CHECK_EVERY) {
                attention = check().map_err(WaitError::Check)?;
            }
            if polls <= self.spins {
                if polls > EAGER_SPINS {
                    std::hint::spin_loop();
                }
                continue;
            }
            let now = self.headway(operation);
            if at != now {
                (at, polls) = (now, 0); // Whoever makes headway will soon make more.
                continue;
            }
            if !was_in_vain {
                was_in_vain = true;
                self.spins = (self.spins / 2).max(LEAST_SPINS);
            }
            if polls <= self.spins + YIELDS || attention == Attention::StayAwake {
                std::thread::yield_now();
                continue;
            }
            attention = check().map_err(WaitError::Check)?;
            if self.nap(operation, data).map_err(WaitError::Team)? == Progress::Done {
                return Ok(());
            }
        }
    }

    /// How far an operation has come. Of a large one it is enough to know how far the pipe is.
    fn headway(&self, operation: &Operation) -> (u16, Stage, At) {
        (operation.seen, operation.stage, self.pipe.at)
    }

    /// Sleeps at the bell of the awaited rank.
    fn nap(&mut self, operation: &mut Operation, data: &mut Data<'_>) -> Result<Progress, Error> {
        self.look_around(operation)?;
        let awaiting = usize::from(operation.awaiting);
        let ticket = self.region.bell(awaiting).come();
        let polled = self.poll(operation, data);
        if polled == Ok(Progress::Pending) {
            self.region.bell(awaiting).sleep(ticket, NAP);
        }
        self.region.bell(awaiting).leave();
        if polled? == Progress::Done {
            return Ok(Progress::Done);
        }
        // First whether it is there, then what it left behind: one that has done its part may go.
        let is_there = awaiting == self.rank || !self.is_complete() || self.region.is_there(awaiting).unwrap_or(true);
        if !is_there {
            self.look_around(operation)?;
        }
        let progress = self.poll(operation, data)?;
        if progress == Progress::Pending && !is_there && usize::from(operation.awaiting) == awaiting {
            return Err(Error::Lost { rank: awaiting as u16 });
        }
        Ok(progress)
    }
}
