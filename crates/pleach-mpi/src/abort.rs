//! The end of a job that cannot continue.

use std::time::Duration;

use crate::log::log;
use crate::mpi_job::MpiJob;
use crate::native_mpi::invoke;

/// Launchers forward what ranks write, and some drop what they have not forwarded when a rank aborts the job: the reason would be lost.
const FORWARDING_TIME: Duration = Duration::from_millis(250);

/// Aborts the job: better no result than a wrong one.
pub(crate) fn abort(job: &MpiJob, why: &str) -> ! {
    log(&format!("aborting the job: {why}"));
    std::thread::sleep(FORWARDING_TIME);
    if let Some(abort) = job.mpi.real.Abort {
        // SAFETY: the world exists until the native MPI is finalized.
        unsafe { invoke!(abort; job.abi.world, 1_usize) };
    }
    std::process::abort()
}
