//! Non-blocking calls: each has a generalized request of the native MPI, completed when Pleach has completed the operation.
//!
//! The user waits and tests with functions of the native MPI. What advances Pleach meanwhile depends on the MPI. Open MPI calls us from its
//! progress engine. MPICH polls us while the user waits for the request, and a thread advances it otherwise. Any other MPI must allow a
//! thread to complete requests (`MPI_THREAD_MULTIPLE`).

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::libc;
use pleach::OwnedRequest;

use crate::call_plan::{self, CallPlan, OffloadedOperation};
use crate::collective_call::{CallOutcome, CollectiveCall, FallbackReason, MpiCollective, RankAndSize, ServedBy};
use crate::communicator_table;
use crate::completion::RequestCompletion;
use crate::generalized_request::{cancel, query};
use crate::mpi_job::{MpiJob, job, last_job};
use crate::native_mpi::invoke;
use crate::progress;
use crate::recovery;

/// How often the thread advances pending calls.
const ADVANCE_INTERVAL: Duration = Duration::from_micros(100);

/// A call in flight.
struct PendingCall {
    call: CollectiveCall,
    plan: CallPlan,
    position: RankAndSize,
    /// The generalized request.
    request: AtomicUsize,
    stage: Mutex<PendingStage>,
}

enum PendingStage {
    Running(OwnedRequest),
    /// The result is here, but not yet in the user's buffer.
    Arrived(Vec<u8>),
    Complete,
}

static PENDING: Mutex<Vec<Arc<PendingCall>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static CHANGED: Condvar = Condvar::new();
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PendingCall {
    /// Advances it; true if its result is here. Never blocks.
    fn advance(&self, job: &MpiJob) -> bool {
        let Ok(mut stage) = self.stage.try_lock() else { return false };
        let PendingStage::Running(started) = &*stage else { return matches!(*stage, PendingStage::Arrived(_)) };
        match started.poll() {
            Some(Ok(bytes)) => {
                *stage = PendingStage::Arrived(bytes);
                true
            }
            Some(Err(error)) => recovery::abort(job, &format!("{error} in a non-blocking call")),
            None => false,
        }
    }

    /// Advances it, and completes it if its result is here; true if it is complete.
    fn complete_if_arrived(&self, job: &MpiJob) -> bool {
        if self.advance(job) {
            self.complete(job);
            let mut list = lock(&PENDING);
            let before = list.len();
            list.retain(|other| !std::ptr::eq(Arc::as_ptr(other), self));
            COUNT.fetch_sub(before - list.len(), Ordering::Release);
        }
        self.stage.try_lock().is_ok_and(|stage| matches!(*stage, PendingStage::Complete))
    }

    /// Copies the result to the user and completes the request. Only for threads that may call the native MPI.
    fn complete(&self, job: &MpiJob) {
        let mut stage = lock(&self.stage);
        let PendingStage::Arrived(bytes) = &*stage else { return };
        if let Err(error) = call_plan::finish(job, &self.call, &self.plan, self.position, bytes) {
            recovery::abort(job, &format!("{error} in a non-blocking call"));
        }
        *stage = PendingStage::Complete;
        drop(stage);
        if let Some(complete) = job.mpi.real.Grequest_complete {
            // SAFETY: the request was started by us and completes once.
            unsafe { invoke!(complete; self.request.load(Ordering::Acquire)) };
        }
    }
}

/// Starts a call; `request` is the address for the user's request.
pub(crate) fn start(call: &CollectiveCall, request: usize) -> Result<CallOutcome, FallbackReason> {
    let job = job().ok_or(FallbackReason::Off)?;
    match job.completion {
        RequestCompletion::Impossible => return Err(FallbackReason::NoProgress),
        RequestCompletion::Disabled => return Err(FallbackReason::Disabled),
        _ if request == 0 => return Err(FallbackReason::Argument),
        _ => {}
    }
    let plan = CallPlan::of(job, call)?;
    let offloaded = communicator_table::lookup_formed(job, call.communicator)?;
    plan.check(job, call, offloaded.position)?;
    if offloaded.has_failed() {
        return Err(FallbackReason::Failed);
    }
    let bytes = plan.bytes;
    let stage = if bytes == 0 && call.collective != MpiCollective::Barrier {
        PendingStage::Arrived(Vec::new())
    } else {
        let input = call_plan::prepare(job, call, &plan, offloaded.position);
        match input.and_then(|input| OffloadedOperation::start(call, &plan, &offloaded.communicator, input)) {
            Ok(started) => PendingStage::Running(started),
            Err(error) => recovery::abort(job, &format!("{error} in a non-blocking call")),
        }
    };
    let pending = Arc::new(PendingCall {
        call: *call,
        plan,
        position: offloaded.position,
        request: AtomicUsize::new(0),
        stage: Mutex::new(stage),
    });
    let status = start_request(job, &pending, request);
    if status != 0 {
        recovery::abort(job, "MPI_Grequest_start failed");
    }
    // If a later call fails, this one cannot be replayed.
    offloaded.log_input(call, usize::MAX, |_| false);
    offloaded.complete();
    if pending.advance(job) {
        pending.complete(job);
    } else {
        prepare_progress(job);
        lock(&PENDING).push(pending);
        COUNT.fetch_add(1, Ordering::Release);
        CHANGED.notify_one();
    }
    Ok(CallOutcome { status, bytes, served_by: ServedBy::Pleach })
}

fn start_request(job: &MpiJob, pending: &Arc<PendingCall>, request: usize) -> c_int {
    let state = Arc::into_raw(Arc::clone(pending));
    let functions = (query as *const (), free as *const (), cancel as *const ());
    // SAFETY: the functions have the types that the standard and MPICH require; the state is ours until `free`.
    let status = unsafe {
        match job.completion {
            RequestCompletion::ByMpichPoll(start) => {
                invoke!(start; functions.0, functions.1, functions.2, poll as *const (), wait as *const (), state, request)
            }
            _ => match job.mpi.real.Grequest_start {
                Some(start) => invoke!(start; functions.0, functions.1, functions.2, state, request),
                None => -1,
            },
        }
    };
    // SAFETY: the native MPI has just written a handle there.
    let handle = unsafe { job.abi.read_handle(request) };
    pending.request.store(handle, Ordering::Release);
    status
}

/// Sets up whatever advances pending calls.
fn prepare_progress(job: &MpiJob) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| match job.completion {
        RequestCompletion::ByOpenMpiProgress(register) => {
            // SAFETY: the function lives as long as the process.
            let _ = unsafe { invoke!(register; on_open_mpi_progress as *const ()) };
        }
        RequestCompletion::ByMpichPoll(_) | RequestCompletion::ByThread => *lock(&THREAD) = start_thread(job),
        RequestCompletion::Impossible | RequestCompletion::Disabled => {}
    });
}

/// Whether the thread may call the native MPI.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MayComplete {
    Yes,
    No,
}

/// Advances all pending calls, and completes those whose results are here if this thread may. Returns how many these are.
fn advance_all(job: &MpiJob, may_complete: MayComplete) -> c_int {
    let Ok(mut pending) = PENDING.try_lock() else { return 0 };
    let mut arrived = Vec::new();
    pending.retain(|pending| {
        let has_arrived = pending.advance(job);
        if has_arrived {
            arrived.push(Arc::clone(pending));
        }
        !has_arrived
    });
    COUNT.fetch_sub(arrived.len(), Ordering::Release);
    drop(pending);
    if may_complete == MayComplete::Yes {
        arrived.iter().for_each(|pending| pending.complete(job));
    }
    arrived.len() as c_int
}

/// Called by Open MPI's progress engine.
extern "C" fn on_open_mpi_progress() -> c_int {
    if COUNT.load(Ordering::Acquire) == 0 {
        return 0;
    }
    last_job().map_or(0, |job| advance_all(job, MayComplete::Yes))
}

fn start_thread(job: &MpiJob) -> Option<JoinHandle<()>> {
    let is_by_thread = matches!(job.completion, RequestCompletion::ByThread);
    let may_complete = if is_by_thread { MayComplete::Yes } else { MayComplete::No };
    let work = move || {
        while !IS_CLOSED.load(Ordering::Acquire) {
            if let Some(job) = last_job() {
                advance_all(job, may_complete);
            }
            let pending = lock(&PENDING);
            let timeout = if pending.is_empty() { Duration::from_secs(1) } else { ADVANCE_INTERVAL };
            drop(CHANGED.wait_timeout(pending, timeout));
        }
    };
    // This thread inherits the mask: the program's signals must not interrupt it.
    // SAFETY: signal sets are plain numbers, and both are ours.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let thread = std::thread::Builder::new().name("pleach-mpi".to_owned()).spawn(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        thread.ok()
    }
}

/// Drops all pending calls and ends the thread.
pub(crate) fn close() {
    IS_CLOSED.store(true, Ordering::Release);
    let mut pending = lock(&PENDING);
    pending.clear();
    COUNT.store(0, Ordering::Release);
    CHANGED.notify_all();
    drop(pending);
    if let Some(thread) = lock(&THREAD).take() {
        let _ = thread.join();
    }
}

extern "C" fn free(state: *const PendingCall) -> c_int {
    // SAFETY: it came from `start_request`, and the native MPI frees a request once.
    drop(unsafe { Arc::from_raw(state) });
    0
}

/// MPICH polls this request.
extern "C" fn poll(state: *const PendingCall, _: usize) -> c_int {
    if let Some(job) = last_job() {
        // SAFETY: it came from `start_request`, and was not freed yet.
        unsafe { &*state }.complete_if_arrived(job);
    }
    0
}

/// MPICH blocks until these requests are complete.
extern "C" fn wait(count: c_int, states: *const *const PendingCall, _: f64, _: usize) -> c_int {
    let Some(job) = last_job() else { return 0 };
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: `count` of them are there, from `start_request`, and were not freed yet.
        let pending = unsafe { &**states.add(index) };
        let mut rounds = 0_u32;
        while !pending.complete_if_arrived(job) {
            rounds = rounds.saturating_add(1);
            if rounds.is_multiple_of(64) {
                progress::progress_mpi();
            }
            if rounds < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
    0
}
