//! Runs a collective call on the native MPI, blocking or non-blocking.

use std::ffi::c_int;

use crate::collective_call::{CollectiveCall, MpiCollective};
use crate::native_mpi::{MpiFunction, NativeMpi, invoke};

/// Starts a call with the non-blocking function of the native MPI.
///
/// # Safety
/// The arguments are valid, as those of the user, until the request is complete.
pub(crate) unsafe fn start(mpi: &NativeMpi, call: &CollectiveCall, request: &mut usize) -> c_int {
    let CollectiveCall { send, receive, count, datatype, operator, root, communicator, .. } = *call;
    let real = &mpi.real;
    let function = match call.collective {
        MpiCollective::Barrier => real.Ibarrier,
        MpiCollective::Broadcast => real.Ibcast,
        MpiCollective::Reduce => real.Ireduce,
        MpiCollective::AllReduce => real.Iallreduce,
        MpiCollective::ReduceScatter => real.Ireduce_scatter_block,
        MpiCollective::Scan => real.Iscan,
        MpiCollective::ExclusiveScan => real.Iexscan,
    };
    let function = function.expect("every MPI has the non-blocking functions");
    let request = &raw mut *request;
    // SAFETY: the caller guarantees it.
    unsafe {
        match call.collective {
            MpiCollective::Barrier => invoke!(function; communicator, request),
            MpiCollective::Broadcast => invoke!(function; receive, count, datatype, root, communicator, request),
            MpiCollective::Reduce => {
                invoke!(function; send, receive, count, datatype, operator, root, communicator, request)
            }
            _ => invoke!(function; send, receive, count, datatype, operator, communicator, request),
        }
    }
}

/// Runs a call with the blocking function of the native MPI.
///
/// # Safety
/// The arguments are valid, as those of the user.
pub(crate) unsafe fn run(mpi: &NativeMpi, call: &CollectiveCall) -> c_int {
    let CollectiveCall { send, receive, count, datatype, operator, root, communicator, .. } = *call;
    let real = &mpi.real;
    let function = |function: Option<MpiFunction>| function.expect("every MPI has the blocking functions");
    // SAFETY: the caller guarantees it.
    unsafe {
        match call.collective {
            MpiCollective::Barrier => invoke!(function(real.Barrier); communicator),
            MpiCollective::Broadcast => invoke!(function(real.Bcast); receive, count, datatype, root, communicator),
            MpiCollective::Reduce => {
                invoke!(function(real.Reduce); send, receive, count, datatype, operator, root, communicator)
            }
            MpiCollective::AllReduce => {
                invoke!(function(real.Allreduce); send, receive, count, datatype, operator, communicator)
            }
            MpiCollective::ReduceScatter => {
                invoke!(function(real.Reduce_scatter_block); send, receive, count, datatype, operator, communicator)
            }
            MpiCollective::Scan => {
                invoke!(function(real.Scan); send, receive, count, datatype, operator, communicator)
            }
            MpiCollective::ExclusiveScan => {
                invoke!(function(real.Exscan); send, receive, count, datatype, operator, communicator)
            }
        }
    }
}
