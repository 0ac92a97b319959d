//! How the generalized requests of non-blocking calls are completed with this MPI.

use crate::abi::{AbiFamily, MpiAbi};
use crate::native_mpi::{MpiFunction, NativeMpi};

/// How the generalized request of a non-blocking call is completed.
#[derive(Clone, Copy)]
pub(crate) enum RequestCompletion {
    /// In Open MPI's progress engine; the function that registers a callback there.
    ByOpenMpiProgress(MpiFunction),
    /// When MPICH polls; the function that starts a request with a poll callback.
    ByMpichPoll(MpiFunction),
    /// By a thread of this library.
    ByThread,
    /// This MPI provides no way.
    Impossible,
    /// Non-blocking calls are not offloaded.
    Disabled,
}

impl RequestCompletion {
    pub(crate) fn of(mpi: &NativeMpi, abi: &MpiAbi, thread_level: i32) -> Self {
        let found = match abi.family {
            AbiFamily::OpenMpi => mpi.library.function("opal_progress_register").map(Self::ByOpenMpiProgress),
            AbiFamily::Mpich => mpi.library.function("PMPIX_Grequest_start").map(Self::ByMpichPoll),
            AbiFamily::Standard => None,
        };
        let multiple = if abi.family == AbiFamily::Standard { 4096 } else { 3 };
        found.unwrap_or(if thread_level >= multiple { Self::ByThread } else { Self::Impossible })
    }
}
