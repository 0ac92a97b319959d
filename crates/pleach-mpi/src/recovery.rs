//! When Pleach fails in the middle: the ranks find out over the MPI how far each has come, and the MPI does the rest.
//!
//! A rank that hears of a failure gives up every communicator between hosts, tells the others so, and asks on each of them, over the MPI,
//! which calls have been completed by all ranks and by any (P-62 is the same thought one floor below). Whoever had its result already, or
//! needed none, is ahead. The calls between are done once more, by the MPI: those who have completed one bring what they brought then, and
//! drop the result. So nobody's result is lost, and none is wrong.
//!
//! All of these calls are non-blocking, and so are the questions: a rank may wait in one communicator for somebody who waits for it in
//! another. What this cannot mend is a rank that waits in some other function of the MPI for one that needs its help.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bootstrap_channel::PendingAllreduce;
use crate::collective_call::{self, CallPlan, CollectiveCall, MpiCollective};
use crate::communicator_table::{self, OffloadedCommunicator};
use crate::mpi_job::{FAILURES, MpiJob, log};
use crate::native_mpi::invoke;
use crate::replay_log::ReplayLog;

/// What becomes of a communicator that Pleach does not serve any more.
pub(crate) enum RecoveryState {
    /// The ranks ask each other how far they have come.
    Asking(PendingAllreduce),
    /// Calls up to `most` are done without blocking; those of them that are done once more for others are under way.
    Repeating { most: u64, repeated: Vec<ReplayedCall> },
}

/// A call under way on the MPI, and its buffers.
pub(crate) struct ReplayedCall {
    request: usize,
    _buffers: [Vec<u8>; 2],
}

/// Some communicator is in transition.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// True if Pleach has failed somewhere, as far as this rank knows.
#[inline]
pub(crate) fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// Ends a call that Pleach could not: its status.
#[cold]
pub(crate) fn recover(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    member: &OffloadedCommunicator,
    error: &pleach::Error,
) -> c_int {
    if !member.is_between_hosts() {
        abort(job, &error.to_string()); // Within a host nothing fails, short of a rank's death.
    }
    if !HAS_FAILED.swap(true, Ordering::Relaxed) && job.rank == 0 {
        log(&format!("{error}; from here on the MPI does what goes between hosts"));
    }
    for (handle, member) in communicator_table::between_hosts() {
        let mut kept = member.kept();
        if kept.transition.is_none() {
            begin(job, handle, member, &mut kept);
            member.communicator.abandon(&error.to_string());
        }
        if member.give_up() {
            FAILURES.fetch_add(1, Ordering::Relaxed);
        }
    }
    if plan.overwrites_input(job, call) {
        // Half of the result may stand where the input was.
        let kept = member.kept();
        match kept.of(member.completed()) {
            // SAFETY: the bytes came from there.
            Some((_, bytes)) => unsafe {
                bytes.as_ptr().copy_to_nonoverlapping(call.receive as *mut u8, bytes.len());
            },
            None => abort(job, "a call worked in place on a vector that was too long to be kept"),
        }
    }
    pass(job, call, member)
}

fn begin(job: &MpiJob, handle: usize, member: &OffloadedCommunicator, kept: &mut ReplayLog) {
    let own = member.completed() as i64;
    match job.words(handle).ask_least(vec![own, -own]) {
        Some(asked) => kept.transition = Some(RecoveryState::Asking(asked)),
        None => abort(job, "the MPI carries no word"),
    }
}

/// Does a call on a communicator that was given up.
pub(crate) fn pass(job: &MpiJob, call: &CollectiveCall, member: &OffloadedCommunicator) -> c_int {
    let number = member.completed();
    let most = resolve(job, member);
    member.complete();
    if number > most {
        // SAFETY: the user's own arguments.
        return unsafe { collective_call::run_on_mpi(job.mpi, call) };
    }
    // Others do this one without blocking, since they may have it as one to repeat.
    let mut request = start(job, call);
    wait_for(job, || test(job, &mut request).then_some(()));
    0
}

/// A call that was never Pleach's is about to be made: it comes after those that are repeated.
pub(crate) fn before_other_call(job: &MpiJob, communicator: usize) {
    if let Some(member) = communicator_table::given_up(job, communicator) {
        resolve(job, member);
    }
}

/// These communicators are not used any more: repeats what others still need of them.
pub(crate) fn settle(job: &MpiJob, through: &[(usize, &OffloadedCommunicator)]) {
    // All at once: somebody may wait in the last of them.
    for (handle, member) in through {
        let mut kept = member.kept();
        if kept.transition.is_none() {
            begin(job, *handle, member, &mut kept);
        }
    }
    for (_, member) in through {
        resolve(job, member);
        wait_for(job, || match &member.kept().transition {
            Some(RecoveryState::Repeating { repeated, .. }) => repeated.is_empty().then_some(()),
            _ => None,
        });
    }
}

/// Waits until it is known how far the ranks are; the number of the last call that is done without blocking.
fn resolve(job: &MpiJob, member: &OffloadedCommunicator) -> u64 {
    wait_for(job, || match &member.kept().transition {
        Some(RecoveryState::Repeating { most, .. }) => Some(*most),
        _ => None,
    })
}

/// Moves all transitions on until `done` has something.
fn wait_for<R>(job: &MpiJob, mut done: impl FnMut() -> Option<R>) -> R {
    loop {
        if let Some(result) = done() {
            return result;
        }
        for (_, member) in communicator_table::between_hosts() {
            turn(job, member);
        }
        std::thread::yield_now();
    }
}

fn turn(job: &MpiJob, member: &OffloadedCommunicator) {
    let mut kept = member.kept();
    match kept.transition.take() {
        Some(RecoveryState::Asking(mut asked)) => match test(job, asked.request()) {
            true => {
                let (least, most) = (asked.values()[0] as u64, -asked.values()[1] as u64);
                let repeated = (least..member.completed()).map(|number| repeat(job, &kept, number)).collect();
                kept.transition = Some(RecoveryState::Repeating { most, repeated });
            }
            false => kept.transition = Some(RecoveryState::Asking(asked)),
        },
        Some(RecoveryState::Repeating { most, mut repeated }) => {
            repeated.retain_mut(|repeated| !test(job, &mut repeated.request));
            kept.transition = Some(RecoveryState::Repeating { most, repeated });
        }
        None => {}
    }
}

/// Starts a call again that this rank has completed.
fn repeat(job: &MpiJob, kept: &ReplayLog, number: u64) -> ReplayedCall {
    let Some((call, bytes)) = kept.of(number) else {
        abort(job, "another rank needs what this one brought to an earlier call, and that was not kept");
    };
    let mut call = *call;
    let mut buffers = [bytes.to_vec(), vec![0; bytes.len()]];
    if call.verb == MpiCollective::Broadcast {
        (call.count, call.datatype) = (bytes.len() as i64, job.abi.byte);
        call.receive = buffers[0].as_mut_ptr() as usize;
    } else {
        (call.send, call.receive) = (buffers[0].as_ptr() as usize, buffers[1].as_mut_ptr() as usize);
    }
    ReplayedCall { request: start(job, &call), _buffers: buffers }
}

/// Starts a call on the MPI; its request.
fn start(job: &MpiJob, call: &CollectiveCall) -> usize {
    let mut request = 0_usize;
    // SAFETY: the user's own arguments, or buffers as long as the call wants, which outlive the request.
    if unsafe { collective_call::start_on_mpi(job.mpi, call, &mut request) } != 0 {
        abort(job, "the MPI could not do a call instead of Pleach");
    }
    request
}

/// True if a request is complete.
fn test(job: &MpiJob, request: &mut usize) -> bool {
    let Some(test) = job.mpi.real.Test else { abort(job, "the MPI has no MPI_Test") };
    let mut is_complete = 0_i32;
    let mut status = [0_u64; 16];
    // SAFETY: our own request, of which MPICH uses the lower half; the status has room for any MPI's.
    if unsafe { invoke!(test; &raw mut *request, &raw mut is_complete, status.as_mut_ptr()) } != 0 {
        abort(job, "the MPI could not do a call instead of Pleach");
    }
    is_complete != 0
}

/// Better no result than a wrong one.
pub(crate) fn abort(job: &MpiJob, why: &str) -> ! {
    log(&format!("the job is aborted: {why}"));
    if let Some(abort) = job.mpi.real.Abort {
        // SAFETY: the world is there until it is finalized.
        unsafe { invoke!(abort; job.abi.world, 1_usize) };
    }
    std::process::abort()
}
