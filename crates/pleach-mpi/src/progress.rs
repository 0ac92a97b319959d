//! Whoever waits in Pleach lets the MPI go on meanwhile: a message that another rank needs first may be on its way from here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::abi::AbiFamily;
use crate::mpi_job::MpiJob;
use crate::native_mpi::{MpiFunction, invoke};
use crate::requests;

/// How this MPI is told to go on.
enum ProgressMethod {
    /// By a function of Open MPI's own, which must not give up the processor meanwhile, however Open MPI is set: Pleach learns from how long
    /// the processor is away when it does so itself.
    OpenMpi { turn: MpiFunction, set_yielding: MpiFunction, is_yielding: usize },
    /// By the question whether a request is complete that never is. To probe for a message is not enough: MPICH looks only where such
    /// a message would come from.
    Question { test: MpiFunction, request: Mutex<usize> },
}

static TURN: OnceLock<ProgressMethod> = OnceLock::new();

/// Finds out how; false if there is no way.
pub(crate) fn prepare(job: &MpiJob) -> bool {
    let own = match job.abi.family {
        AbiFamily::OpenMpi => open_mpi(job),
        AbiFamily::Mpich | AbiFamily::Standard => None,
    };
    let turn = own.or_else(|| {
        let (test, request) = (job.mpi.real.Test?, requests::endless(job)?);
        Some(ProgressMethod::Question { test, request: Mutex::new(request) })
    });
    turn.is_some_and(|turn| TURN.set(turn).is_ok())
}

fn open_mpi(job: &MpiJob) -> Option<ProgressMethod> {
    let turn = job.mpi.library.function("opal_progress")?;
    let set_yielding = job.mpi.library.function("opal_progress_set_yield_when_idle")?;
    // SAFETY: it takes a truth value, and returns what was set before: in the lowest byte of its word.
    let is_yielding = unsafe { invoke!(set_yielding; 0_usize) } as u8 as usize;
    // SAFETY: as above.
    unsafe { invoke!(set_yielding; is_yielding) };
    Some(ProgressMethod::OpenMpi { turn, set_yielding, is_yielding })
}

/// Lets the MPI do what it has to do. Called by threads that are in a call of the MPI's.
pub(crate) fn progress_mpi() {
    match TURN.get() {
        // SAFETY: they take a truth value and nothing, and may be called at any time.
        Some(ProgressMethod::OpenMpi { turn, set_yielding, is_yielding }) => unsafe {
            invoke!(set_yielding; 0_usize);
            invoke!(turn;);
            invoke!(set_yielding; *is_yielding);
        },
        Some(ProgressMethod::Question { test, request }) => {
            // If another thread asks, the MPI goes on.
            if let Ok(mut request) = request.try_lock() {
                let mut is_complete = 0_i32;
                let mut status = [0_u64; 16];
                // SAFETY: our own request; the status has room for any MPI's.
                unsafe { invoke!(test; &raw mut *request, &raw mut is_complete, status.as_mut_ptr()) };
            }
        }
        None => {}
    }
}

/// There may be windows.
static HAS_WINDOWS: AtomicBool = AtomicBool::new(false);
/// What others did before a barrier is seen after so many turns, where it needs no more than to be looked at.
const TURNS: u32 = 8;

pub(crate) fn note_rma_window() {
    HAS_WINDOWS.store(true, Ordering::Relaxed);
}

/// A barrier is over.
#[inline]
pub(crate) fn after_barrier() {
    if HAS_WINDOWS.load(Ordering::Relaxed) {
        (0..TURNS).for_each(|_| progress_mpi());
    }
}

/// The job is over: nothing of ours is left in the MPI.
pub(crate) fn close(job: &MpiJob) {
    if let Some(ProgressMethod::Question { request, .. }) = TURN.get() {
        requests::complete_endless(job, &mut request.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
