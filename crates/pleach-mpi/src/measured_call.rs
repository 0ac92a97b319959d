//! Blocking calls that are part of a trial, or that are left to the native MPI because it is faster.
//!
//! Recovery limits what may be left to it. A rank that blocks in the native MPI cannot help another one that lacks the result of an
//! earlier call of Pleach. So between hosts the ranks exchange their progress first, unless they have done so since Pleach's last call
//! here, and Pleach does nothing on their other communicators. After the exchange every rank is in the same call and needs no help. Calls that
//! are left to the native MPI are neither counted nor logged for recovery.

use std::ffi::c_int;
use std::time::Instant;

use crate::call_plan::CallPlan;
use crate::choice_table::ChoiceKey;
use crate::collective_call::{CallOutcome, CollectiveCall, FallbackReason, ServedBy};
use crate::communicator_table::OffloadedCommunicator;
use crate::exchange::exchange;
use crate::mpi_job::MpiJob;
use crate::native_calls;
use crate::offload;
use crate::recovery::{self, PleachFailed};
use crate::trial::{RoundProgress, RoundTimes, Timing, Trial, TrialCall, Way};
use crate::trial_budget;

/// A blocking call on an offloaded communicator.
#[derive(Clone, Copy)]
pub(crate) struct MeasuredCall<'a> {
    pub(crate) job: &'a MpiJob,
    pub(crate) call: &'a CollectiveCall,
    pub(crate) plan: &'a CallPlan,
    pub(crate) offloaded: &'a OffloadedCommunicator,
    pub(crate) key: ChoiceKey,
}

impl MeasuredCall<'_> {
    /// Leaves a call to the native MPI, which is faster.
    pub(crate) fn leave(&self) -> CallOutcome {
        let exchanges = u64::from(self.offloaded.needs_exchange());
        let outcome = match self.run_natively(Timing::WarmUp) {
            Ok((status, _)) => self.outcome(status, FallbackReason::Slower),
            Err(PleachFailed) => return self.run_after_failure(),
        };
        if self.offloaded.is_between_hosts() {
            self.offloaded.choices.count_native(self.key, exchanges);
        }
        outcome
    }

    /// Does the call as the trial says.
    #[cold]
    pub(crate) fn try_both_ways(&self) -> CallOutcome {
        let choices = &self.offloaded.choices;
        if choices.renew_if_fixed(self.key) {
            return offload::run_by_pleach(self.job, self.call, self.plan, self.offloaded);
        }
        let mut trial = choices.trial(self.key);
        if trial.call().is_none() {
            let Ok(agreed) = self.exchange(RoundTimes::default()) else { return self.run_after_failure() };
            if let Err(settlement) = trial.begin(agreed.budget(), choices.cost(self.key)) {
                trial_budget::add_lost(settlement.lost_ns);
                choices.settle(self.key, trial, settlement);
                return match settlement.way {
                    Way::Pleach => offload::run_by_pleach(self.job, self.call, self.plan, self.offloaded),
                    Way::Native => self.leave(),
                };
            }
        }
        let TrialCall { way, timing } = trial.call().expect("a round is in progress");
        trial_budget::count_call();
        let done = match way {
            Way::Pleach => self.run_by_pleach(timing),
            Way::Native => self
                .run_natively(timing)
                .map(|(status, time_ns)| (self.outcome(status, FallbackReason::Tried), time_ns)),
        };
        let Ok((outcome, time_ns)) = done else { return self.run_after_failure() };
        if !self.offloaded.has_failed() {
            self.record(trial, time_ns);
        }
        outcome
    }

    /// Adds a time to the trial; after the last one of a round, the ranks agree.
    fn record(&self, mut trial: Trial, time_ns: u64) {
        let choices = &self.offloaded.choices;
        if trial.record(time_ns) == RoundProgress::More {
            return choices.keep(self.key, trial);
        }
        if let Ok(agreed) = self.exchange(trial.own_times()) {
            let settlement = trial.conclude(&agreed.times, choices.cost(self.key));
            trial_budget::add_lost(settlement.lost_ns);
            trial_budget::count_round();
            choices.settle(self.key, trial, settlement);
        }
    }

    /// With its time in nanoseconds.
    fn run_by_pleach(&self, timing: Timing) -> Result<(CallOutcome, u64), PleachFailed> {
        if timing == Timing::Timed {
            self.exchange(RoundTimes::default())?;
        }
        let began = Instant::now();
        let outcome = offload::run_by_pleach(self.job, self.call, self.plan, self.offloaded);
        Ok((outcome, began.elapsed().as_nanos() as u64))
    }

    /// The status, and the time in nanoseconds without the exchange.
    fn run_natively(&self, timing: Timing) -> Result<(c_int, u64), PleachFailed> {
        let Self { job, call, offloaded, .. } = *self;
        let needs_exchange = timing == Timing::Timed || offloaded.needs_exchange();
        let occupied = match needs_exchange && offloaded.is_between_hosts() {
            true => Some(recovery::occupy(job, offloaded)?),
            false => None,
        };
        if needs_exchange {
            exchange(job, offloaded, RoundTimes::default())?;
        }
        if offloaded.is_between_hosts() {
            offloaded.count_native();
        }
        let began = (timing == Timing::Timed).then(Instant::now);
        // SAFETY: the user's own arguments.
        let status = unsafe { native_calls::run(job.mpi, call) };
        let time_ns = began.map_or(0, |began| began.elapsed().as_nanos() as u64);
        drop(occupied);
        Ok((status, time_ns))
    }

    fn exchange(&self, times: RoundTimes) -> Result<crate::agreement::TrialBallot, PleachFailed> {
        let _occupied = match self.offloaded.is_between_hosts() {
            true => Some(recovery::occupy(self.job, self.offloaded)?),
            false => None,
        };
        exchange(self.job, self.offloaded, times)
    }

    fn run_after_failure(&self) -> CallOutcome {
        self.outcome(recovery::run_after_failure(self.job, self.call, self.offloaded), FallbackReason::Failed)
    }

    fn outcome(&self, status: c_int, reason: FallbackReason) -> CallOutcome {
        CallOutcome { status, bytes: self.plan.bytes, served_by: ServedBy::Native(reason) }
    }
}
