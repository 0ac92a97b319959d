//! An MPI that outlives its ranks: Open MPI 5 with `--with-ft ulfm`.
//!
//! There the launcher does not end a job in which a process dies: calls that need the dead rank return an error, and the program revokes its
//! communicator, shrinks it and goes on (`MPIX_Comm_revoke`, `MPIX_Comm_shrink`, `MPIX_Comm_agree`). So Pleach neither waits for the
//! launcher nor recovers a communicator with a dead rank, or one that the program revoked. It surrenders it: its calls return the errors
//! that the native MPI defines for these cases, also those in flight. The standard allows that some ranks complete a collective call
//! and others do not, so nothing is replayed. A shrunken communicator is a new one, and Pleach forms its own for it.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use crate::bootstrap_channel::BootstrapChannel;
use crate::communicator_table::{self, OffloadedCommunicator};
use crate::mpi_job::MpiJob;
use crate::native_mpi::invoke;
use crate::progress;
use crate::replay_log::{RecoveryState, ReplayLog};

/// `MPI_ERR_PROC_FAILED` and `MPI_ERR_REVOKED` of Open MPI.
const PROCESS_FAILED: c_int = 75;
const REVOKED: c_int = 77;

/// Why a Pleach communicator is revoked when the program revokes its own.
const REVOKED_BY_PROGRAM: &str = "the program called MPIX_Comm_revoke";

/// The native MPI has its own failure detector. A call that Pleach fails waits for its report, but not longer than this.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// A call of the native MPI failed because a rank is dead or the communicator is revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NativeCallFailed;

/// True if a communicator that failed with this error is to be surrendered, not recovered.
pub(crate) fn surrenders_after(job: &MpiJob, communicator: &OffloadedCommunicator, error: &pleach::Error) -> bool {
    let is_dead = |rank: &u32| communicator.communicator.is_process_lost(*rank);
    let is_revoked = matches!(error, pleach::Error::Revoked { why } if why == REVOKED_BY_PROGRAM);
    job.ulfm.is_some() && (is_revoked || error.lost_ranks().iter().any(is_dead))
}

/// Surrenders a communicator if this error calls for it; true if it did.
pub(crate) fn surrender_after(job: &MpiJob, communicator: &OffloadedCommunicator, error: &pleach::Error) -> bool {
    let surrenders = surrenders_after(job, communicator, error);
    if surrenders {
        surrender(communicator, &mut communicator.replay_log());
    }
    surrenders
}

/// The same for a communicator that is known to have failed.
pub(crate) fn surrender_if_lost(job: &MpiJob, communicator: &OffloadedCommunicator) -> bool {
    let error = if job.ulfm.is_some() { communicator.communicator.known_failure() } else { None };
    error.is_some_and(|error| surrender_after(job, communicator, &error))
}

/// From now on calls on it fail as [`status`] says.
pub(crate) fn surrender(communicator: &OffloadedCommunicator, log: &mut ReplayLog) {
    // The native MPI may still write to the buffers of what was in flight.
    std::mem::forget(log.recovery.replace(RecoveryState::Surrendered));
    communicator.set_failed();
}

/// True if the communicator was surrendered.
pub(crate) fn is_surrendered(communicator: &OffloadedCommunicator) -> bool {
    matches!(communicator.replay_log().recovery, Some(RecoveryState::Surrendered))
}

/// The status of a call in flight on a surrendered communicator.
pub(crate) fn status(job: &MpiJob, handle: usize) -> c_int {
    match &job.ulfm {
        Some(ulfm) if ulfm.is_revoked(handle) => REVOKED,
        _ => PROCESS_FAILED,
    }
}

/// The status of a blocking call on a surrendered communicator, after the program's error handler was called. Waits until the native MPI knows
/// of the failure as well: the program asks it which ranks are dead.
#[cold]
pub(crate) fn fail_call(job: &MpiJob, communicator: &OffloadedCommunicator, handle: usize) -> c_int {
    let Some(ulfm) = &job.ulfm else { return PROCESS_FAILED };
    let known = communicator.communicator.known_failure();
    let dead = known.map_or(0, |error| error.lost_ranks().len()).max(1);
    let began = Instant::now();
    let is_known = || ulfm.is_revoked(handle) || ulfm.failed_ranks(job.mpi, handle) >= Some(dead);
    while !is_known() && began.elapsed() < DETECTION_TIMEOUT {
        progress::progress_mpi();
        std::thread::yield_now();
    }
    let status = status(job, handle);
    // SAFETY: the user's communicator, and an error class.
    unsafe { invoke!(ulfm.call_error_handler; handle, status as usize) };
    status
}

/// The program has revoked a communicator: ranks that wait in Pleach's, or recover it, must learn of that.
pub(crate) fn revoked(job: &MpiJob, handle: usize) {
    let (Some(ulfm), Some(Ok(communicator))) = (&job.ulfm, communicator_table::lookup(job, handle)) else { return };
    if communicator.recovery_handle() != 0 {
        // SAFETY: our own communicator.
        unsafe { invoke!(ulfm.revoke; communicator.recovery_handle()) };
    }
    communicator.communicator.revoke(REVOKED_BY_PROGRAM);
    surrender(communicator, &mut communicator.replay_log());
}

/// A communicator of the native MPI was created for this library: it has inherited the error handler of another one.
pub(crate) fn prepare_own_communicator(job: &MpiJob, communicator: usize) {
    if let Some(ulfm) = &job.ulfm {
        ulfm.return_errors(communicator);
    }
}

/// All ranks of the job that are left, in a communicator of the native MPI: the world itself without ULFM. Collective over them.
pub(crate) fn survivors(job: &MpiJob) -> Option<BootstrapChannel<'_>> {
    let Some(ulfm) = &job.ulfm else { return Some(job.channel(job.abi.world)) };
    let mut shrunken = 0_usize;
    // SAFETY: the world exists until the native MPI is finalized.
    let status = unsafe { invoke!(ulfm.shrink; job.abi.world, &raw mut shrunken) };
    (status == 0).then(|| {
        ulfm.return_errors(shrunken);
        job.channel(shrunken)
    })
}
