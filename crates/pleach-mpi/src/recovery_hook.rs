//! Recovery while a rank is inside a function of the native MPI: its progress engine calls us.
//!
//! A program may complete a collective call and then block in any other function, such as a receive, while another rank lacks the result
//! and needs this rank's help. Open MPI and MPICH since 4.2 have hooks in their progress engines. Other MPIs have none.

use std::ffi::c_int;

use crate::abi::AbiFamily;
use crate::mpi_job::{MpiJob, job};
use crate::native_mpi::invoke;
use crate::recovery;

/// `MPIX_STREAM_NULL` of MPICH: no particular stream.
const MPICH_NO_STREAM: usize = 0x3c00_0000;
/// What a poll function of MPICH returns: call again, or never again.
const MPICH_PENDING: c_int = 0;
const MPICH_DONE: c_int = 1;

/// Registers the hook, if this MPI has one.
pub(crate) fn register(job: &MpiJob) {
    let name = match job.abi.family {
        AbiFamily::OpenMpi => "opal_progress_register",
        AbiFamily::Mpich => "PMPIX_Async_start",
        AbiFamily::Standard => return,
    };
    let Some(register) = job.mpi.library.function(name) else { return };
    // SAFETY: the functions live as long as the process, and need no state.
    unsafe {
        match job.abi.family {
            AbiFamily::OpenMpi => invoke!(register; on_open_mpi_progress as *const ()),
            _ => invoke!(register; on_mpich_progress as *const (), 0_usize, MPICH_NO_STREAM),
        };
    }
}

extern "C" fn on_open_mpi_progress() -> c_int {
    if let Some(job) = job() {
        recovery::advance_inside_mpi(job);
    }
    0
}

extern "C" fn on_mpich_progress(_: usize) -> c_int {
    let Some(job) = job() else { return MPICH_DONE };
    recovery::advance_inside_mpi(job);
    MPICH_PENDING
}
