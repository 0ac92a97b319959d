//! Generalized requests of the native MPI that never complete by themselves, and the callbacks that all of ours share.

use std::ffi::c_int;

use crate::mpi_job::{MpiJob, last_job};
use crate::native_mpi::invoke;

/// Starts a request that never completes by itself.
pub(crate) fn start_endless(job: &MpiJob) -> Option<usize> {
    let mut request = 0_usize;
    let functions = (query as *const (), free_nothing as *const (), cancel as *const ());
    let start = job.mpi.real.Grequest_start?;
    // SAFETY: the functions have the types that the standard requires; MPICH uses the lower half of the request.
    let status = unsafe { invoke!(start; functions.0, functions.1, functions.2, 0_usize, &raw mut request) };
    (status == 0).then_some(request)
}

/// Completes such a request.
pub(crate) fn complete_endless(job: &MpiJob, request: &mut usize) {
    let real = &job.mpi.real;
    if let (Some(complete), Some(wait)) = (real.Grequest_complete, real.Wait) {
        let mut status = [0_u64; 16];
        // SAFETY: our own request; the status has room for that of any MPI.
        unsafe {
            invoke!(complete; *request);
            invoke!(wait; &raw mut *request, status.as_mut_ptr());
        }
    }
}

extern "C" fn free_nothing(_: usize) -> c_int {
    0
}

/// Sets the status: nothing received, not cancelled.
pub(crate) extern "C" fn query(_: usize, status: usize) -> c_int {
    let Some(job) = last_job() else { return 0 };
    let real = &job.mpi.real;
    if let (Some(set_elements), Some(set_cancelled)) = (real.Status_set_elements, real.Status_set_cancelled) {
        // SAFETY: the native MPI's own status.
        unsafe {
            invoke!(set_elements; status, job.abi.byte, 0_usize);
            invoke!(set_cancelled; status, 0_usize);
        }
    }
    0
}

/// Collective calls cannot be cancelled.
pub(crate) extern "C" fn cancel(_: usize, _: c_int) -> c_int {
    0
}
