//! The job as calls see it: the native MPI, its ABI, this process's rank, and whether Pleach is in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pleach::{Communicator, FailureCounter};

use crate::abi::MpiAbi;
use crate::bootstrap_channel::BootstrapChannel;
use crate::completion::RequestCompletion;
use crate::configuration::ChoiceMode;
use crate::native_mpi::NativeMpi;
use crate::ulfm_functions::Ulfm;

pub(crate) struct MpiJob {
    pub(crate) mpi: &'static NativeMpi,
    pub(crate) abi: MpiAbi,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// The same on all ranks.
    pub(crate) choice: ChoiceMode,
    /// Vectors up to this many bytes are offloaded.
    pub(crate) max_bytes: usize,
    /// Inputs of each communicator's last calls are kept up to this many bytes, in case Pleach fails.
    pub(crate) replay_bytes: usize,
    /// The Pleach communicator of all ranks; none after the job is closed.
    pub(crate) world: Mutex<Option<Communicator>>,
    /// The key of the attribute by which each communicator of the native MPI reports that it is freed.
    pub(crate) key: i32,
    pub(crate) completion: RequestCompletion,
    /// Failures that Pleach has learned of.
    pub(crate) failures: FailureCounter,
    /// After a failure of Pleach, the ranks must have recovered within this time.
    pub(crate) patience: Duration,
    /// What the native MPI has for programs that go on after a rank's death; none if the launcher ends the job.
    pub(crate) ulfm: Option<Ulfm>,
}

static JOB: OnceLock<MpiJob> = OnceLock::new();
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// The job, while Pleach is in use.
#[inline]
pub(crate) fn job() -> Option<&'static MpiJob> {
    if IS_OPEN.load(Ordering::Acquire) { JOB.get() } else { None }
}

/// The job, also after it was closed.
pub(crate) fn last_job() -> Option<&'static MpiJob> {
    JOB.get()
}

/// Stores the job. Calls do not use it before [`set_open`].
pub(crate) fn install(job: MpiJob) -> &'static MpiJob {
    JOB.get_or_init(|| job)
}

/// From now on calls are offloaded.
pub(crate) fn set_open() {
    IS_OPEN.store(true, Ordering::Release);
}

/// From now on no call is offloaded. The job, if calls were offloaded before.
pub(crate) fn set_closed() -> Option<&'static MpiJob> {
    let was_open = IS_OPEN.swap(false, Ordering::AcqRel);
    JOB.get().filter(|_| was_open)
}

impl MpiJob {
    pub(crate) fn channel(&self, communicator: usize) -> BootstrapChannel<'_> {
        BootstrapChannel { mpi: self.mpi, abi: &self.abi, communicator }
    }

    /// The Pleach communicator of all ranks, unless the job is closed.
    pub(crate) fn world(&self) -> Option<Communicator> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the Pleach communicator of all ranks, because the job closes.
    pub(crate) fn take_world(&self) -> Option<Communicator> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
