//! Exchanges of all ranks of a communicator inside a collective call: they agree on times, and start together.
//!
//! Every rank of a communicator must make each of its collective calls, in the same order, and the standard lets each call synchronize
//! the ranks. So an exchange may be part of any blocking call, broadcasts and reduces included; a correct program cannot deadlock in it.
//!
//! Within one host, Pleach itself exchanges the values. Between hosts the native MPI does, with the values and the non-blocking
//! function that recovery uses: if Pleach has failed at another rank, its recovery and this exchange are one and the same operation.

use std::time::Instant;

use pleach::Operator;

use crate::abort::abort;
use crate::agreement::{AgreedProgress, TrialBallot};
use crate::communicator_table::OffloadedCommunicator;
use crate::mpi_job::MpiJob;
use crate::recovery::{self, PleachFailed};
use crate::trial::RoundTimes;
use crate::trial_budget;
use crate::ulfm::{self, NativeCallFailed};

/// Tests of an exchange before the first yield of the CPU, and between two of them.
const TESTS_PER_YIELD: u32 = 32;

/// Exchanges this rank's times and budget; what all ranks agree on. Fails if Pleach has failed at any rank: the communicator is then
/// in recovery. Between hosts, the caller has occupied the communicator.
pub(crate) fn exchange(
    job: &MpiJob,
    offloaded: &OffloadedCommunicator,
    times: RoundTimes,
) -> Result<TrialBallot, PleachFailed> {
    let ballot = TrialBallot {
        elapsed_ns: trial_budget::elapsed_ns(),
        exchange_ns: offloaded.choices.own_exchange_ns(),
        lost_ns: trial_budget::lost_ns(),
        is_used_elsewhere: offloaded.is_used_elsewhere(),
        times,
    };
    let began = Instant::now();
    let agreed = if offloaded.is_between_hosts() {
        between_hosts(job, offloaded, &ballot)?
    } else {
        within_host(job, offloaded, &ballot)?
    };
    offloaded.choices.set_exchange_ns(began.elapsed().as_nanos() as u64, agreed.exchange_ns);
    Ok(agreed)
}

fn within_host(
    job: &MpiJob,
    offloaded: &OffloadedCommunicator,
    ballot: &TrialBallot,
) -> Result<TrialBallot, PleachFailed> {
    let mut values = ballot.encode();
    match offloaded.communicator.all_reduce(&mut values, Operator::Min) {
        Ok(()) => Ok(TrialBallot::decode(&values)),
        Err(error) if ulfm::surrender_after(job, offloaded, &error) => Err(PleachFailed),
        Err(error) => {
            recovery::leave_death_to_launcher(offloaded, &error);
            abort(job, &error.to_string()) // Within a host nothing fails but a rank's death.
        }
    }
}

fn between_hosts(
    job: &MpiJob,
    offloaded: &OffloadedCommunicator,
    ballot: &TrialBallot,
) -> Result<TrialBallot, PleachFailed> {
    let values = AgreedProgress::encode(offloaded.progress(&offloaded.replay_log()), false, ballot);
    let given_up = |NativeCallFailed| {
        ulfm::surrender(offloaded, &mut offloaded.replay_log());
        PleachFailed
    };
    let mut pending = recovery::start_agreement(job, offloaded, values).map_err(given_up)?;
    let mut tests = 0_u32;
    while !recovery::test(job, pending.request()).map_err(given_up)? {
        tests = tests.wrapping_add(1);
        if tests.is_multiple_of(TESTS_PER_YIELD) {
            if recovery::has_failed() {
                recovery::advance_all(job); // Another thread's communicators may be in recovery.
            }
            std::thread::yield_now();
        }
    }
    let agreed = AgreedProgress::decode(pending.values());
    if agreed.has_failed {
        recovery::join(job, offloaded, &agreed);
        return Err(PleachFailed);
    }
    offloaded.set_in_step(agreed.ballot.is_used_elsewhere);
    Ok(agreed.ballot)
}
