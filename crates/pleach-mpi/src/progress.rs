//! Progress of the native MPI while a rank waits in Pleach: another rank may first need a message that is on its way from here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::abi::AbiFamily;
use crate::generalized_request::{complete_endless, start_endless};
use crate::mpi_job::MpiJob;
use crate::native_mpi::{MpiFunction, invoke};

/// How to make this MPI progress.
enum ProgressMethod {
    /// By a function of Open MPI, which must not yield the CPU meanwhile, however Open MPI is configured: Pleach tunes its own waiting by
    /// how long the CPU is away when it yields.
    OpenMpi { progress: MpiFunction, set_yielding: MpiFunction, is_yielding: usize },
    /// By `MPI_Test` of a request that never completes. `MPI_Iprobe` is not enough: MPICH then polls only the transport of such a message.
    TestRequest { test: MpiFunction, request: Mutex<usize> },
}

static METHOD: OnceLock<ProgressMethod> = OnceLock::new();

/// Determines the method; false if there is none.
pub(crate) fn prepare(job: &MpiJob) -> bool {
    let own = match job.abi.family {
        AbiFamily::OpenMpi => open_mpi(job),
        AbiFamily::Mpich | AbiFamily::Standard => None,
    };
    let method = own.or_else(|| {
        let (test, request) = (job.mpi.real.Test?, start_endless(job)?);
        Some(ProgressMethod::TestRequest { test, request: Mutex::new(request) })
    });
    method.is_some_and(|method| METHOD.set(method).is_ok())
}

fn open_mpi(job: &MpiJob) -> Option<ProgressMethod> {
    let progress = job.mpi.library.function("opal_progress")?;
    let set_yielding = job.mpi.library.function("opal_progress_set_yield_when_idle")?;
    // SAFETY: it takes a truth value, and returns the previous one in the lowest byte of its word.
    let is_yielding = unsafe { invoke!(set_yielding; 0_usize) } as u8 as usize;
    // SAFETY: as above.
    unsafe { invoke!(set_yielding; is_yielding) };
    Some(ProgressMethod::OpenMpi { progress, set_yielding, is_yielding })
}

/// Makes the native MPI progress. For threads inside an MPI call.
pub(crate) fn progress_mpi() {
    match METHOD.get() {
        // SAFETY: they take a truth value and no argument, and may be called at any time.
        Some(ProgressMethod::OpenMpi { progress, set_yielding, is_yielding }) => unsafe {
            invoke!(set_yielding; 0_usize);
            invoke!(progress;);
            invoke!(set_yielding; *is_yielding);
        },
        Some(ProgressMethod::TestRequest { test, request }) => {
            // If another thread tests, the native MPI makes progress anyway.
            if let Ok(mut request) = request.try_lock() {
                let mut is_complete = 0_i32;
                let mut status = [0_u64; 16];
                // SAFETY: our own request; the status has room for that of any MPI.
                unsafe { invoke!(test; &raw mut *request, &raw mut is_complete, status.as_mut_ptr()) };
            }
        }
        None => {}
    }
}

/// The program has created RMA windows.
static HAS_WINDOWS: AtomicBool = AtomicBool::new(false);
/// Rounds of progress after which accesses that other ranks made before a barrier are visible, if they need only be polled.
const ROUNDS_AFTER_BARRIER: u32 = 8;

pub(crate) fn note_rma_window() {
    HAS_WINDOWS.store(true, Ordering::Relaxed);
}

/// Called after each barrier.
#[inline]
pub(crate) fn after_barrier() {
    if HAS_WINDOWS.load(Ordering::Relaxed) {
        (0..ROUNDS_AFTER_BARRIER).for_each(|_| progress_mpi());
    }
}

/// Frees what this library holds in the native MPI.
pub(crate) fn close(job: &MpiJob) {
    if let Some(ProgressMethod::TestRequest { request, .. }) = METHOD.get() {
        complete_endless(job, &mut request.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
