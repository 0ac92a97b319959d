//! Non-blocking calls: a generalized request of the MPI's for each, completed when Pleach is through with it.
//!
//! The user waits and tests with the MPI's own functions. Who moves Pleach on meanwhile depends on the MPI: Open MPI lets us into its own
//! progress; MPICH asks us whenever somebody waits for the request, and a thread goes on while nobody does. Any other MPI must let a thread
//! complete requests (`MPI_THREAD_MULTIPLE`).

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::libc;
use pleach::OwnedRequest;

use crate::abi::{AbiFamily, MpiAbi};
use crate::call_statistics::FallbackReason;
use crate::collective_call::{
    self, CallOutcome, CallPlan, CollectiveCall, MpiCollective, OffloadedOperation, RankAndSize, ServedBy,
};
use crate::communicator_table;
use crate::mpi_job::{MpiJob, job, last_job};
use crate::native_mpi::{MpiFunction, NativeMpi, invoke};
use crate::progress;
use crate::recovery;

/// How often the thread moves on what nobody waits for.
const PACE: Duration = Duration::from_micros(100);

/// How a request of ours is completed.
#[derive(Clone, Copy)]
pub(crate) enum RequestCompletion {
    /// In Open MPI's progress; the function that lets us into it.
    InProgress(MpiFunction),
    /// When MPICH asks; the function that starts a request that it asks about.
    WhenAsked(MpiFunction),
    /// By a thread.
    ByThread,
    /// Not at all.
    Impossible,
    /// Nor should it be.
    Unwanted,
}

impl RequestCompletion {
    pub(crate) fn of(mpi: &NativeMpi, abi: &MpiAbi, threads: i32) -> Self {
        let found = match abi.family {
            AbiFamily::OpenMpi => mpi.library.function("opal_progress_register").map(Self::InProgress),
            AbiFamily::Mpich => mpi.library.function("PMPIX_Grequest_start").map(Self::WhenAsked),
            AbiFamily::Standard => None,
        };
        let multiple = if abi.family == AbiFamily::Standard { 4096 } else { 3 };
        found.unwrap_or(if threads >= multiple { Self::ByThread } else { Self::Impossible })
    }
}

/// A call under way.
struct PendingCall {
    call: CollectiveCall,
    plan: CallPlan,
    position: RankAndSize,
    /// The MPI's request.
    request: AtomicUsize,
    stage: Mutex<PendingStage>,
}

enum PendingStage {
    Running(OwnedRequest),
    /// The result is here; the user's buffer does not have it yet.
    Arrived(Vec<u8>),
    Over,
}

static PENDING: Mutex<Vec<Arc<PendingCall>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEWS: Condvar = Condvar::new();
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PendingCall {
    /// Moves it on; true if its result is here. Never waits.
    fn advance(&self, job: &MpiJob) -> bool {
        let Ok(mut stage) = self.stage.try_lock() else { return false };
        let PendingStage::Running(started) = &*stage else { return matches!(*stage, PendingStage::Arrived(_)) };
        match started.poll() {
            Some(Ok(bytes)) => {
                *stage = PendingStage::Arrived(bytes);
                true
            }
            Some(Err(error)) => recovery::abort(job, &format!("{error}, in a non-blocking call")),
            None => false,
        }
    }

    /// Moves it on, and completes it if that suffices; true if it is over.
    fn complete_if_through(&self, job: &MpiJob) -> bool {
        if self.advance(job) {
            self.complete(job);
            let mut list = lock(&PENDING);
            let before = list.len();
            list.retain(|other| !std::ptr::eq(Arc::as_ptr(other), self));
            COUNT.fetch_sub(before - list.len(), Ordering::Release);
        }
        self.stage.try_lock().is_ok_and(|stage| matches!(*stage, PendingStage::Over))
    }

    /// Gives the user the result, and completes the request. Only for threads that may call the MPI.
    fn complete(&self, job: &MpiJob) {
        let mut stage = lock(&self.stage);
        let PendingStage::Arrived(bytes) = &*stage else { return };
        if let Err(error) = collective_call::finish(job, &self.call, &self.plan, self.position, bytes) {
            recovery::abort(job, &format!("{error}, in a non-blocking call"));
        }
        *stage = PendingStage::Over;
        drop(stage);
        if let Some(complete) = job.mpi.real.Grequest_complete {
            // SAFETY: the request was started by us and completes once.
            unsafe { invoke!(complete; self.request.load(Ordering::Acquire)) };
        }
    }
}

/// Starts a call; `request` is where the user wants the request.
pub(crate) fn start(call: &CollectiveCall, request: usize) -> Result<CallOutcome, FallbackReason> {
    let job = job().ok_or(FallbackReason::Off)?;
    match job.completion {
        RequestCompletion::Impossible => return Err(FallbackReason::NoProgress),
        RequestCompletion::Unwanted => return Err(FallbackReason::Unwanted),
        _ if request == 0 => return Err(FallbackReason::Argument),
        _ => {}
    }
    let plan = CallPlan::of(job, call)?;
    let member = communicator_table::member_if_formed(job, call.communicator)?;
    plan.check(job, call, member.position)?;
    if member.has_failed() {
        return Err(FallbackReason::Failed);
    }
    let bytes = plan.bytes;
    let stage = if bytes == 0 && call.verb != MpiCollective::Barrier {
        PendingStage::Arrived(Vec::new())
    } else {
        let brought = collective_call::prepare(job, call, &plan, member.position);
        match brought.and_then(|brought| OffloadedOperation::launch(call, &plan, &member.communicator, brought)) {
            Ok(started) => PendingStage::Running(started),
            Err(error) => recovery::abort(job, &format!("{error}, in a non-blocking call")),
        }
    };
    let pending = Arc::new(PendingCall {
        call: *call,
        plan,
        position: member.position,
        request: AtomicUsize::new(0),
        stage: Mutex::new(stage),
    });
    let status = start_request(job, &pending, request);
    if status != 0 {
        recovery::abort(job, "the MPI starts no generalized request");
    }
    // Should a later call fail, this one cannot be repeated.
    member.keep(call, usize::MAX, |_| false);
    member.complete();
    if pending.advance(job) {
        pending.complete(job);
    } else {
        prepare_progress(job);
        lock(&PENDING).push(pending);
        COUNT.fetch_add(1, Ordering::Release);
        NEWS.notify_one();
    }
    Ok(CallOutcome { status, bytes, by: ServedBy::Pleach })
}

fn start_request(job: &MpiJob, pending: &Arc<PendingCall>, request: usize) -> c_int {
    let state = Arc::into_raw(Arc::clone(pending));
    let functions = (query as *const (), free as *const (), cancel as *const ());
    // SAFETY: the functions are of the types that the standard and MPICH want; the state is ours until `free`.
    let status = unsafe {
        match job.completion {
            RequestCompletion::WhenAsked(start) => {
                invoke!(start; functions.0, functions.1, functions.2, poll as *const (), wait as *const (), state, request)
            }
            _ => match job.mpi.real.Grequest_start {
                Some(start) => invoke!(start; functions.0, functions.1, functions.2, state, request),
                None => -1,
            },
        }
    };
    // SAFETY: the MPI has just put a handle there.
    let handle = unsafe { job.abi.read_handle(request) };
    pending.request.store(handle, Ordering::Release);
    status
}

/// Sees to it that somebody moves calls on.
fn prepare_progress(job: &MpiJob) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| match job.completion {
        // SAFETY: the function lives as long as the process.
        RequestCompletion::InProgress(register) => drop(unsafe { invoke!(register; in_progress as *const ()) }),
        RequestCompletion::WhenAsked(_) | RequestCompletion::ByThread => *lock(&THREAD) = start_thread(job),
        RequestCompletion::Impossible | RequestCompletion::Unwanted => {}
    });
}

/// Moves on everything, and completes what is through. Returns how many were.
fn turn(job: &MpiJob, completes: bool) -> c_int {
    let Ok(mut pending) = PENDING.try_lock() else { return 0 };
    let mut through = Vec::new();
    pending.retain(|pending| {
        let is_through = pending.advance(job);
        if is_through {
            through.push(Arc::clone(pending));
        }
        !is_through
    });
    COUNT.fetch_sub(through.len(), Ordering::Release);
    drop(pending);
    if completes {
        through.iter().for_each(|pending| pending.complete(job));
    }
    through.len() as c_int
}

extern "C" fn in_progress() -> c_int {
    if COUNT.load(Ordering::Acquire) == 0 {
        return 0;
    }
    last_job().map_or(0, |job| turn(job, true))
}

fn start_thread(job: &MpiJob) -> Option<JoinHandle<()>> {
    let completes = matches!(job.completion, RequestCompletion::ByThread);
    let work = move || {
        while !IS_CLOSED.load(Ordering::Acquire) {
            if let Some(job) = last_job() {
                turn(job, completes);
            }
            let pending = lock(&PENDING);
            let patience = if pending.is_empty() { Duration::from_secs(1) } else { PACE };
            drop(NEWS.wait_timeout(pending, patience));
        }
    };
    // The program's signals are not for this thread, which inherits the mask.
    // SAFETY: masks are plain numbers, and both are ours.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let thread = std::thread::Builder::new().name("pleach-mpi".to_owned()).spawn(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        thread.ok()
    }
}

/// The job is over.
pub(crate) fn close() {
    IS_CLOSED.store(true, Ordering::Release);
    let mut pending = lock(&PENDING);
    pending.clear();
    COUNT.store(0, Ordering::Release);
    NEWS.notify_all();
    drop(pending);
    if let Some(thread) = lock(&THREAD).take() {
        let _ = thread.join(); // It has nothing to say.
    }
}

/// A request of the MPI's that does not complete by itself.
pub(crate) fn endless(job: &MpiJob) -> Option<usize> {
    let mut request = 0_usize;
    let functions = (query as *const (), free_nothing as *const (), cancel as *const ());
    let start = job.mpi.real.Grequest_start?;
    // SAFETY: the functions are of the types that the standard wants; the request has a place, of which MPICH uses the lower half.
    let status = unsafe { invoke!(start; functions.0, functions.1, functions.2, 0_usize, &raw mut request) };
    (status == 0).then_some(request)
}

/// Completes one of those.
pub(crate) fn complete_endless(job: &MpiJob, request: &mut usize) {
    let real = &job.mpi.real;
    if let (Some(complete), Some(wait)) = (real.Grequest_complete, real.Wait) {
        let mut status = [0_u64; 16];
        // SAFETY: our own request; the status has room for any MPI's.
        unsafe {
            invoke!(complete; *request);
            invoke!(wait; &raw mut *request, status.as_mut_ptr());
        }
    }
}

extern "C" fn free_nothing(_: usize) -> c_int {
    0
}

/// What a status shall say: that nothing was received, and nothing cancelled.
extern "C" fn query(_: usize, status: usize) -> c_int {
    let Some(job) = last_job() else { return 0 };
    let real = &job.mpi.real;
    if let (Some(set_elements), Some(set_cancelled)) = (real.Status_set_elements, real.Status_set_cancelled) {
        // SAFETY: the MPI's own status.
        unsafe {
            invoke!(set_elements; status, job.abi.byte, 0_usize);
            invoke!(set_cancelled; status, 0_usize);
        }
    }
    0
}

extern "C" fn free(state: *const PendingCall) -> c_int {
    // SAFETY: it came from `start_request`, and the MPI frees a request once.
    drop(unsafe { Arc::from_raw(state) });
    0
}

/// Collective calls cannot be cancelled.
extern "C" fn cancel(_: usize, _: c_int) -> c_int {
    0
}

/// MPICH asks, because somebody is interested in this request.
extern "C" fn poll(state: *const PendingCall, _: usize) -> c_int {
    if let Some(job) = last_job() {
        // SAFETY: it came from `start_request`, and was not freed yet.
        unsafe { &*state }.complete_if_through(job);
    }
    0
}

/// MPICH waits for these requests.
extern "C" fn wait(count: c_int, states: *const *const PendingCall, _: f64, _: usize) -> c_int {
    let Some(job) = last_job() else { return 0 };
    for place in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: so many are there, from `start_request`, and were not freed yet.
        let pending = unsafe { &**states.add(place) };
        let mut rounds = 0_u32;
        while !pending.complete_if_through(job) {
            rounds = rounds.saturating_add(1);
            if rounds.is_multiple_of(64) {
                progress::progress_mpi();
            }
            if rounds < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
    0
}
