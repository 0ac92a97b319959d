//! Runs a collective call on the native MPI, blocking or non-blocking.
//!
//! A count goes to the plain function: of a call that Pleach can do it fits, whatever function the user called. Arrays of large counts go
//! to the function for them, and as arrays of plain ones to the plain function if this MPI lacks the other.

use std::ffi::c_int;

use crate::collective_call::{CollectiveCall, CountArrays, CountWidth, MpiCollective};
use crate::native_mpi::{MpiFunction, NativeMpi, invoke};

/// The status of a function that the native MPI lacks: `MPI_ERR_COUNT`, the same in every MPI. Only those for large counts may be missing.
pub(crate) const NO_SUCH_FUNCTION: c_int = 2;

/// Passes the arguments of a call to a function, and others after them.
macro_rules! pass {
    ($function:expr, $call:expr $(, $last:expr)*) => {{
        let CollectiveCall { send, receive, count, datatype, operator, root, communicator, .. } = *$call;
        let CollectiveCall { receive_count, receive_datatype, counts: CountArrays { counts, displacements, .. }, .. } = *$call;
        match $call.collective {
            MpiCollective::Barrier => invoke!($function; communicator $(, $last)*),
            MpiCollective::Broadcast => invoke!($function; receive, count, datatype, root, communicator $(, $last)*),
            MpiCollective::Reduce => {
                invoke!($function; send, receive, count, datatype, operator, root, communicator $(, $last)*)
            }
            MpiCollective::AllReduce
            | MpiCollective::ReduceScatter
            | MpiCollective::Scan
            | MpiCollective::ExclusiveScan => {
                invoke!($function; send, receive, count, datatype, operator, communicator $(, $last)*)
            }
            MpiCollective::ReduceScatterV => {
                invoke!($function; send, receive, counts, datatype, operator, communicator $(, $last)*)
            }
            MpiCollective::AllGather | MpiCollective::AllToAll => {
                invoke!(
                    $function; send, count, datatype, receive, receive_count, receive_datatype, communicator $(, $last)*
                )
            }
            MpiCollective::AllGatherV => {
                invoke!(
                    $function; send, count, datatype, receive, counts, displacements, receive_datatype, communicator
                    $(, $last)*
                )
            }
            MpiCollective::Gather | MpiCollective::Scatter => {
                invoke!(
                    $function; send, count, datatype, receive, receive_count, receive_datatype, root, communicator
                    $(, $last)*
                )
            }
        }
    }};
}

/// Starts a call with the non-blocking function of the native MPI.
///
/// # Safety
/// The arguments are valid, as those of the user, until the request is complete.
pub(crate) unsafe fn start(mpi: &NativeMpi, call: &CollectiveCall, request: &mut usize) -> c_int {
    // SAFETY: the caller guarantees it; on a little-endian machine a handle of 32 bits is the lower half of its word.
    unsafe { start_at(mpi, call, &raw mut *request as usize) }
}

/// The same, with an address for the request.
///
/// # Safety
/// As [`start`], and there is room for a handle at that address.
pub(crate) unsafe fn start_at(mpi: &NativeMpi, call: &CollectiveCall, request: usize) -> c_int {
    let Some(function) = non_blocking_function(mpi, call) else { return NO_SUCH_FUNCTION };
    // SAFETY: the caller guarantees it.
    unsafe { pass!(function, call, request) }
}

/// Runs a call with the blocking function of the native MPI.
///
/// # Safety
/// The arguments are valid, as those of the user.
pub(crate) unsafe fn run(mpi: &NativeMpi, call: &CollectiveCall) -> c_int {
    let Some(function) = blocking_function(mpi, call) else { return NO_SUCH_FUNCTION };
    // SAFETY: the caller guarantees it.
    unsafe { pass!(function, call) }
}

/// The function for arrays of counts of this width. An MPI without large counts has only the plain one.
fn by_width(width: CountWidth, plain: Option<MpiFunction>, large: Option<MpiFunction>) -> Option<MpiFunction> {
    match width {
        CountWidth::Large => large,
        CountWidth::Plain => plain,
    }
}

/// Whether the native MPI has the function of a call: without it nobody could finish the call if Pleach failed.
pub(crate) fn has_function(mpi: &NativeMpi, call: &CollectiveCall) -> bool {
    blocking_function(mpi, call).is_some()
}

fn non_blocking_function(mpi: &NativeMpi, call: &CollectiveCall) -> Option<MpiFunction> {
    let (real, width) = (&mpi.real, call.counts.width);
    match call.collective {
        MpiCollective::Barrier => real.Ibarrier,
        MpiCollective::Broadcast => real.Ibcast,
        MpiCollective::Reduce => real.Ireduce,
        MpiCollective::AllReduce => real.Iallreduce,
        MpiCollective::ReduceScatter => real.Ireduce_scatter_block,
        MpiCollective::Scan => real.Iscan,
        MpiCollective::ExclusiveScan => real.Iexscan,
        MpiCollective::ReduceScatterV => by_width(width, real.Ireduce_scatter, real.Ireduce_scatter_c),
        MpiCollective::AllGather => real.Iallgather,
        MpiCollective::AllGatherV => by_width(width, real.Iallgatherv, real.Iallgatherv_c),
        MpiCollective::Gather => real.Igather,
        MpiCollective::Scatter => real.Iscatter,
        MpiCollective::AllToAll => real.Ialltoall,
    }
}

fn blocking_function(mpi: &NativeMpi, call: &CollectiveCall) -> Option<MpiFunction> {
    let (real, width) = (&mpi.real, call.counts.width);
    match call.collective {
        MpiCollective::Barrier => real.Barrier,
        MpiCollective::Broadcast => real.Bcast,
        MpiCollective::Reduce => real.Reduce,
        MpiCollective::AllReduce => real.Allreduce,
        MpiCollective::ReduceScatter => real.Reduce_scatter_block,
        MpiCollective::Scan => real.Scan,
        MpiCollective::ExclusiveScan => real.Exscan,
        MpiCollective::ReduceScatterV => by_width(width, real.Reduce_scatter, real.Reduce_scatter_c),
        MpiCollective::AllGather => real.Allgather,
        MpiCollective::AllGatherV => by_width(width, real.Allgatherv, real.Allgatherv_c),
        MpiCollective::Gather => real.Gather,
        MpiCollective::Scatter => real.Scatter,
        MpiCollective::AllToAll => real.Alltoall,
    }
}
