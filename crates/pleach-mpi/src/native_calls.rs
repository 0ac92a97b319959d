//! Runs a collective call on the native MPI, blocking or non-blocking.
//!
//! A count goes to the plain function: of a call that Pleach can do it fits, whatever function the user called. Arrays of large counts go
//! to the function for them, and as arrays of plain ones to the plain function if this MPI lacks the other.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

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
    let (function, width) = non_blocking_function(mpi, call);
    let function = function.expect("every MPI has the non-blocking functions");
    if width == call.counts.width {
        // SAFETY: the caller guarantees it.
        return unsafe { pass!(function, call, request) };
    }
    let Some(counts) = PlainCounts::of(mpi, call) else { return NO_SUCH_FUNCTION };
    let call = CollectiveCall { counts: counts.kept(), ..*call };
    // SAFETY: as above.
    unsafe { pass!(function, &call, request) }
}

/// Runs a call with the blocking function of the native MPI.
///
/// # Safety
/// The arguments are valid, as those of the user.
pub(crate) unsafe fn run(mpi: &NativeMpi, call: &CollectiveCall) -> c_int {
    let (function, width) = blocking_function(mpi, call);
    let function = function.expect("every MPI has the blocking functions");
    if width == call.counts.width {
        // SAFETY: the caller guarantees it.
        return unsafe { pass!(function, call) };
    }
    let Some(counts) = PlainCounts::of(mpi, call) else { return NO_SUCH_FUNCTION };
    let call = CollectiveCall { counts: counts.arrays(), ..*call };
    // SAFETY: as above.
    unsafe { pass!(function, &call) }
}

/// A function, and the width of the counts in its arrays.
type FunctionAndWidth = (Option<MpiFunction>, CountWidth);

/// The function for arrays of this width, or that for plain ones.
fn by_width(width: CountWidth, plain: Option<MpiFunction>, large: Option<MpiFunction>) -> FunctionAndWidth {
    match (width, large) {
        (CountWidth::Large, Some(large)) => (Some(large), CountWidth::Large),
        _ => (plain, CountWidth::Plain),
    }
}

fn non_blocking_function(mpi: &NativeMpi, call: &CollectiveCall) -> FunctionAndWidth {
    let (real, width) = (&mpi.real, call.counts.width);
    let function = match call.collective {
        MpiCollective::Barrier => real.Ibarrier,
        MpiCollective::Broadcast => real.Ibcast,
        MpiCollective::Reduce => real.Ireduce,
        MpiCollective::AllReduce => real.Iallreduce,
        MpiCollective::ReduceScatter => real.Ireduce_scatter_block,
        MpiCollective::Scan => real.Iscan,
        MpiCollective::ExclusiveScan => real.Iexscan,
        MpiCollective::ReduceScatterV => return by_width(width, real.Ireduce_scatter, real.Ireduce_scatter_c),
        MpiCollective::AllGather => real.Iallgather,
        MpiCollective::AllGatherV => return by_width(width, real.Iallgatherv, real.Iallgatherv_c),
        MpiCollective::Gather => real.Igather,
        MpiCollective::Scatter => real.Iscatter,
        MpiCollective::AllToAll => real.Ialltoall,
    };
    (function, width)
}

fn blocking_function(mpi: &NativeMpi, call: &CollectiveCall) -> FunctionAndWidth {
    let (real, width) = (&mpi.real, call.counts.width);
    let function = match call.collective {
        MpiCollective::Barrier => real.Barrier,
        MpiCollective::Broadcast => real.Bcast,
        MpiCollective::Reduce => real.Reduce,
        MpiCollective::AllReduce => real.Allreduce,
        MpiCollective::ReduceScatter => real.Reduce_scatter_block,
        MpiCollective::Scan => real.Scan,
        MpiCollective::ExclusiveScan => real.Exscan,
        MpiCollective::ReduceScatterV => return by_width(width, real.Reduce_scatter, real.Reduce_scatter_c),
        MpiCollective::AllGather => real.Allgather,
        MpiCollective::AllGatherV => return by_width(width, real.Allgatherv, real.Allgatherv_c),
        MpiCollective::Gather => real.Gather,
        MpiCollective::Scatter => real.Scatter,
        MpiCollective::AllToAll => real.Alltoall,
    };
    (function, width)
}

/// Arrays of large counts as arrays of plain ones.
struct PlainCounts {
    counts: Vec<i32>,
    displacements: Vec<i32>,
}

impl PlainCounts {
    /// None if one does not fit.
    fn of(mpi: &NativeMpi, call: &CollectiveCall) -> Option<Self> {
        let CountArrays { counts, displacements, .. } = call.counts;
        let ranks = if counts == 0 { 0 } else { number_of_counts(mpi, call.communicator)? };
        // SAFETY: the user guarantees a count and, if any, a displacement for each rank.
        let (count, displacement) =
            unsafe { (|rank| call.counts.count(rank), |rank| call.counts.displacement(rank)) };
        let counts: Option<Vec<i32>> = (0..ranks).map(|rank| i32::try_from(count(rank)).ok()).collect();
        let ranks = if displacements == 0 { 0 } else { ranks };
        let displacements: Option<Vec<i32>> = (0..ranks).map(|rank| i32::try_from(displacement(rank)).ok()).collect();
        Some(Self { counts: counts?, displacements: displacements? })
    }

    /// As arrays that stay for good.
    fn kept(self) -> CountArrays {
        let (counts, displacements) = (kept_array(self.counts), kept_array(self.displacements));
        CountArrays { counts, displacements, width: CountWidth::Plain }
    }

    fn arrays(&self) -> CountArrays {
        let (counts, displacements) = (self.counts.as_ptr() as usize, self.displacements.as_ptr() as usize);
        CountArrays { counts, displacements, width: CountWidth::Plain }
    }
}

/// Arrays of counts for non-blocking calls: they must stay until the request is complete, and nothing tells when that is. Programs repeat
/// their calls with the same counts.
static KEPT_ARRAYS: Mutex<BTreeSet<Box<[i32]>>> = Mutex::new(BTreeSet::new());

/// The address of an array with these numbers that stays for good.
fn kept_array(numbers: Vec<i32>) -> usize {
    let mut kept = KEPT_ARRAYS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = kept.get(&numbers[..]) {
        return found.as_ptr() as usize;
    }
    let numbers = numbers.into_boxed_slice();
    let address = numbers.as_ptr() as usize; // The memory of a box does not move with it.
    kept.insert(numbers);
    address
}

/// The number of ranks from which a rank of a communicator receives.
fn number_of_counts(mpi: &NativeMpi, communicator: usize) -> Option<usize> {
    let (mut is_intercommunicator, mut size) = (0_i32, -1_i32);
    // SAFETY: the user's communicator, and places for the results.
    let status = unsafe {
        invoke!(mpi.real.Comm_test_inter?; communicator, &raw mut is_intercommunicator);
        let function = if is_intercommunicator == 0 { mpi.real.Comm_size } else { mpi.real.Comm_remote_size };
        invoke!(function?; communicator, &raw mut size)
    };
    (status == 0).then(|| usize::try_from(size).ok())?
}
