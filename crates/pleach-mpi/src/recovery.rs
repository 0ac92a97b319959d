//! Recovery after Pleach fails: the ranks compare their progress over the native MPI, which then does the remaining calls.
//!
//! A rank that sees a failure gives up every communicator between hosts and revokes it for the other ranks. On each communicator the
//! ranks then agree, over the native MPI, which calls all of them have completed and which any of them has (P-59 is the same idea one
//! layer below). A rank that had its result already, or needed none, is ahead. The native MPI replays the calls in between: a rank that
//! has completed one contributes its logged input again and discards the result. So no result is lost, and none is wrong.
//!
//! All of these calls are non-blocking, also the agreement: a rank may wait in one communicator for a rank that waits for it in
//! another. What recovery cannot resolve is a rank that blocks in some other function of the native MPI while another needs it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::call_plan::CallPlan;
use crate::collective_call::{CollectiveCall, MpiCollective};
use crate::communicator_table::{self, OffloadedCommunicator};
use crate::log::log;
use crate::mpi_job::MpiJob;
use crate::native_calls;
use crate::native_mpi::invoke;
use crate::replay_log::{RecoveryState, ReplayLog, ReplayedCall};

/// Some communicator of this rank has failed.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
static FAILED_COMMUNICATORS: AtomicI64 = AtomicI64::new(0);

/// True if Pleach has failed on some communicator, as far as this rank knows.
#[inline]
pub(crate) fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// Communicators of this rank that failed.
pub(crate) fn failed_communicators() -> i64 {
    FAILED_COMMUNICATORS.load(Ordering::Relaxed)
}

/// Completes a call that failed in Pleach; its status.
#[cold]
pub(crate) fn recover(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    communicator: &OffloadedCommunicator,
    error: &pleach::Error,
) -> c_int {
    if !communicator.is_between_hosts() {
        abort(job, &error.to_string()); // Within a host nothing fails but a rank's death.
    }
    if !HAS_FAILED.swap(true, Ordering::Relaxed) && job.rank == 0 {
        log(&format!("{error}; the native MPI serves communicators between hosts from here on"));
    }
    for (handle, other) in communicator_table::between_hosts() {
        let mut log = other.replay_log();
        if log.recovery.is_none() {
            begin(job, handle, other, &mut log);
            other.communicator.revoke(&error.to_string());
        }
        if other.set_failed() {
            FAILED_COMMUNICATORS.fetch_add(1, Ordering::Relaxed);
        }
    }
    if plan.overwrites_input(job, call) {
        // Part of the result may have overwritten the input.
        let log = communicator.replay_log();
        match log.input_of(communicator.completed()) {
            // SAFETY: the bytes came from there.
            Some((_, bytes)) => unsafe {
                bytes.as_ptr().copy_to_nonoverlapping(call.receive as *mut u8, bytes.len());
            },
            None => abort(job, "the input of an in-place call was too long for the replay log"),
        }
    }
    run_after_failure(job, call, communicator)
}

fn begin(job: &MpiJob, handle: usize, communicator: &OffloadedCommunicator, log: &mut ReplayLog) {
    let own = communicator.completed() as i64;
    match job.channel(handle).start_all_reduce_min(vec![own, -own]) {
        Some(pending) => log.recovery = Some(RecoveryState::Agreeing(pending)),
        None => abort(job, "MPI_Iallreduce failed"),
    }
}

/// Does a call on a communicator that has failed.
pub(crate) fn run_after_failure(job: &MpiJob, call: &CollectiveCall, communicator: &OffloadedCommunicator) -> c_int {
    let number = communicator.completed();
    let last_replayed = wait_for_agreement(job, communicator);
    communicator.complete();
    if number > last_replayed {
        // SAFETY: the user's own arguments.
        return unsafe { native_calls::run(job.mpi, call) };
    }
    // Non-blocking, as at the ranks that replay this call.
    let mut request = start(job, call);
    wait_until(job, || test(job, &mut request).then_some(()));
    0
}

/// Called before a call that was never offloaded: it must follow the replayed ones.
pub(crate) fn before_native_call(job: &MpiJob, communicator: usize) {
    if let Some(communicator) = communicator_table::failed(job, communicator) {
        wait_for_agreement(job, communicator);
    }
}

/// Called before a communicator is freed: replays the calls that other ranks still need.
pub(crate) fn settle(job: &MpiJob, communicator: usize) {
    if let Some(Ok(offloaded)) = communicator_table::lookup(job, communicator)
        && offloaded.is_between_hosts()
    {
        settle_each(job, &[(communicator, offloaded)]);
    }
}

/// The same, for all communicators.
pub(crate) fn settle_all(job: &MpiJob) {
    settle_each(job, &communicator_table::between_hosts());
}

fn settle_each(job: &MpiJob, communicators: &[(usize, &OffloadedCommunicator)]) {
    // Begin on all before waiting for any: another rank may wait in the last of them.
    for (handle, communicator) in communicators {
        let mut log = communicator.replay_log();
        if log.recovery.is_none() {
            begin(job, *handle, communicator, &mut log);
        }
    }
    for (_, communicator) in communicators {
        wait_for_agreement(job, communicator);
        wait_until(job, || match &communicator.replay_log().recovery {
            Some(RecoveryState::Replaying { calls, .. }) => calls.is_empty().then_some(()),
            _ => None,
        });
    }
}

/// Blocks until the ranks have agreed; the number of the last call that is replayed.
fn wait_for_agreement(job: &MpiJob, communicator: &OffloadedCommunicator) -> u64 {
    wait_until(job, || match &communicator.replay_log().recovery {
        Some(RecoveryState::Replaying { last_replayed, .. }) => Some(*last_replayed),
        _ => None,
    })
}

/// Advances the recovery of all communicators until `done` returns something.
fn wait_until<R>(job: &MpiJob, mut done: impl FnMut() -> Option<R>) -> R {
    loop {
        if let Some(result) = done() {
            return result;
        }
        for (_, communicator) in communicator_table::between_hosts() {
            advance(job, communicator);
        }
        std::thread::yield_now();
    }
}

fn advance(job: &MpiJob, communicator: &OffloadedCommunicator) {
    let mut log = communicator.replay_log();
    match log.recovery.take() {
        Some(RecoveryState::Agreeing(mut pending)) => match test(job, pending.request()) {
            true => {
                let (all_completed, last_replayed) = (pending.values()[0] as u64, -pending.values()[1] as u64);
                let numbers = all_completed..communicator.completed();
                let calls = numbers.map(|number| replay(job, &log, number)).collect();
                log.recovery = Some(RecoveryState::Replaying { last_replayed, calls });
            }
            false => log.recovery = Some(RecoveryState::Agreeing(pending)),
        },
        Some(RecoveryState::Replaying { last_replayed, mut calls }) => {
            calls.retain_mut(|call| !test(job, &mut call.request));
            log.recovery = Some(RecoveryState::Replaying { last_replayed, calls });
        }
        None => {}
    }
}

/// Starts a call again that this rank has completed.
fn replay(job: &MpiJob, log: &ReplayLog, number: u64) -> ReplayedCall {
    let Some((call, bytes)) = log.input_of(number) else {
        abort(job, "another rank needs this rank's input of an earlier call, which is no longer in the replay log");
    };
    let mut call = *call;
    let mut buffers = [bytes.to_vec(), vec![0; bytes.len()]];
    if call.collective == MpiCollective::Broadcast {
        (call.count, call.datatype) = (bytes.len() as i64, job.abi.byte);
        call.receive = buffers[0].as_mut_ptr() as usize;
    } else {
        (call.send, call.receive) = (buffers[0].as_ptr() as usize, buffers[1].as_mut_ptr() as usize);
    }
    ReplayedCall { request: start(job, &call), _buffers: buffers }
}

/// Starts a call on the native MPI; its request.
fn start(job: &MpiJob, call: &CollectiveCall) -> usize {
    let mut request = 0_usize;
    // SAFETY: the user's own arguments, or buffers as long as the call requires, which outlive the request.
    if unsafe { native_calls::start(job.mpi, call, &mut request) } != 0 {
        abort(job, "the native MPI failed to replay a call");
    }
    request
}

/// True if a request is complete.
fn test(job: &MpiJob, request: &mut usize) -> bool {
    let Some(test) = job.mpi.real.Test else { abort(job, "the native MPI has no MPI_Test") };
    let mut is_complete = 0_i32;
    let mut status = [0_u64; 16];
    // SAFETY: our own request, of which MPICH uses the lower half; the status has room for that of any MPI.
    if unsafe { invoke!(test; &raw mut *request, &raw mut is_complete, status.as_mut_ptr()) } != 0 {
        abort(job, "the native MPI failed to replay a call");
    }
    is_complete != 0
}

/// Aborts the job: better no result than a wrong one.
pub(crate) fn abort(job: &MpiJob, why: &str) -> ! {
    log(&format!("aborting the job: {why}"));
    if let Some(abort) = job.mpi.real.Abort {
        // SAFETY: the world exists until the native MPI is finalized.
        unsafe { invoke!(abort; job.abi.world, 1_usize) };
    }
    std::process::abort()
}
