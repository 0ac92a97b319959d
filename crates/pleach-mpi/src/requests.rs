//! Non-blocking calls: each has a generalized request of the native MPI, completed when Pleach has completed the operation.
//!
//! The user waits and tests with functions of the native MPI. What advances Pleach meanwhile depends on the MPI. Open MPI calls us from its
//! progress engine. MPICH polls us while the user waits for the request, and a thread advances it otherwise. Any other MPI must allow a
//! thread to complete requests (`MPI_THREAD_MULTIPLE`). If Pleach fails, the native MPI does the calls in flight again, from the user's
//! buffers, which Pleach does not touch before it has a result.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::libc;
use pleach::OwnedRequest;

use crate::abort::abort;
use crate::call_plan::{self, CallPlan, OffloadedOperation};
use crate::call_statistics::CallMode;
use crate::choice_table::ChoiceKey;
use crate::collective_call::{
    CallOutcome, CollectiveCall, FallbackReason, MpiCollective, OwnedCounts, RankAndSize, ServedBy,
};
use crate::communicator_table::{self, OffloadedCommunicator};
use crate::completion::RequestCompletion;
use crate::configuration::ChoiceMode;
use crate::generalized_request::{self, cancel};
use crate::mpi_job::{MpiJob, job, last_job};
use crate::native_mpi::invoke;
use crate::progress;
use crate::recovery;
use crate::recovery_guard::RecoveryGuard;
use crate::replay_log::LoggedInput;
use crate::trial::Way;
use crate::ulfm::{self, NativeCallFailed};

/// How often the thread advances pending calls.
const ADVANCE_INTERVAL: Duration = Duration::from_micros(100);

/// A call in flight.
struct PendingCall {
    call: CollectiveCall,
    /// The counts to which it refers.
    _counts: OwnedCounts,
    plan: CallPlan,
    position: RankAndSize,
    /// The communicator, by handle and context.
    handle: usize,
    context: u32,
    /// The number of the call there; none if it needs no communication.
    number: Option<u64>,
    /// The generalized request.
    request: AtomicUsize,
    /// What the user's wait returns.
    status: AtomicI32,
    stage: Mutex<PendingStage>,
}

enum PendingStage {
    Running(OwnedRequest),
    /// Pleach has failed; recovery decides what becomes of it.
    Failed(pleach::Error),
    /// The native MPI does it, with this request of its own.
    Native(usize),
    /// The result is here, but not yet in the user's buffer.
    Arrived(Vec<u8>),
    /// The native MPI has written the result there.
    ArrivedInPlace,
    /// The communicator was surrendered: the request completes with an error.
    Surrendered,
    Complete,
}

impl PendingStage {
    fn has_arrived(&self) -> bool {
        matches!(self, Self::Arrived(_) | Self::ArrivedInPlace | Self::Surrendered)
    }

    fn needs_native_mpi(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Native(_))
    }
}

static PENDING: Mutex<Vec<Arc<PendingCall>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static CHANGED: Condvar = Condvar::new();
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

thread_local! {
    /// Open MPI's progress engine has called us: when we test a request of its own, it calls us again.
    static IS_ADVANCING: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PendingCall {
    /// Advances it in Pleach; true if its result is here. Never blocks, and does not call the native MPI.
    fn advance(&self) -> bool {
        let Ok(mut stage) = self.stage.try_lock() else { return false };
        let PendingStage::Running(started) = &*stage else { return stage.has_arrived() };
        match started.poll() {
            Some(Ok(bytes)) => *stage = PendingStage::Arrived(bytes),
            Some(Err(error)) => *stage = PendingStage::Failed(error),
            None => {}
        }
        stage.has_arrived()
    }

    /// Advances it in the native MPI, or begins the recovery, if Pleach has failed; true if its result is here.
    fn advance_after_failure(&self, job: &MpiJob) -> bool {
        let Ok(mut stage) = self.stage.try_lock() else { return false };
        match &mut *stage {
            PendingStage::Native(request) => {
                match recovery::test(job, request) {
                    Ok(true) => *stage = PendingStage::ArrivedInPlace,
                    Ok(false) => {}
                    Err(NativeCallFailed) => *stage = PendingStage::Surrendered,
                }
                stage.has_arrived()
            }
            PendingStage::Failed(error) => {
                let error = error.clone();
                drop(stage);
                recovery::fail_non_blocking(job, self.handle, self.context, &error);
                if self.is_surrendered() {
                    *lock(&self.stage) = PendingStage::Surrendered;
                    return true;
                }
                if let Some(number) = self.number {
                    recovery::start_late_call(self.handle, self.context, number, |recovery_handle| {
                        self.restart(job, recovery_handle.unwrap_or(self.call.communicator));
                    });
                }
                false
            }
            _ => stage.has_arrived(),
        }
    }

    fn is_surrendered(&self) -> bool {
        communicator_table::of_context(self.handle, self.context).is_some_and(ulfm::is_surrendered)
    }

    /// Lets the native MPI do it on this communicator, from the user's buffers, which have no result yet; false if it is complete.
    fn restart(&self, job: &MpiJob, communicator: usize) -> bool {
        let mut stage = lock(&self.stage);
        if !matches!(*stage, PendingStage::Running(_) | PendingStage::Failed(_) | PendingStage::Arrived(_)) {
            return false;
        }
        let call = CollectiveCall { communicator, ..self.call };
        *stage = match recovery::start(job, &call) {
            Ok(request) => PendingStage::Native(request),
            Err(NativeCallFailed) => PendingStage::Surrendered,
        };
        true
    }

    /// Advances it, and completes it if its result is here; true if it is complete.
    fn complete_if_arrived(&self, job: &MpiJob) -> bool {
        if self.advance() || self.advance_after_failure(job) {
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
        if let PendingStage::Arrived(bytes) = &*stage
            && let Err(error) = call_plan::finish(job, &self.call, &self.plan, self.position, bytes)
        {
            abort(job, &format!("{error} in a non-blocking call"));
        }
        if !stage.has_arrived() {
            return;
        }
        if matches!(*stage, PendingStage::Surrendered) {
            self.status.store(ulfm::status(job, self.handle), Ordering::Release);
        }
        *stage = PendingStage::Complete;
        drop(stage);
        if let Some(number) = self.number
            && let Some(offloaded) = communicator_table::of_context(self.handle, self.context)
        {
            offloaded.replay_log().complete(number);
        }
        if let Some(complete) = job.mpi.real.Grequest_complete {
            // SAFETY: the request was started by us and completes once.
            unsafe { invoke!(complete; self.request.load(Ordering::Acquire)) };
        }
    }
}

/// Starts a call; `request` is the address for the user's request.
pub(crate) fn start(call: &CollectiveCall, request: usize) -> Result<CallOutcome, FallbackReason> {
    let job = serving_job(request)?;
    let plan = CallPlan::of(job, call)?;
    let offloaded = communicator_table::lookup_formed(job, call.communicator)?;
    if offloaded.leaves_blocks(job, call.collective) {
        return Err(FallbackReason::BlocksBetweenHosts);
    }
    let plan = plan.completed(job, call, offloaded.position)?;
    let way = offloaded.choices.way(ChoiceKey::of(call.collective, plan.bytes));
    // As blocking calls. An exchange would block. Ranks that do not know of a failure yet do such a call without any agreement.
    let is_before_agreement = !offloaded.has_failed() || recovery::has_deferred(offloaded);
    if way == Way::Native && !offloaded.needs_exchange() && is_before_agreement {
        return Err(FallbackReason::Slower);
    }
    let bytes = plan.bytes;
    let communicates = bytes > 0 || call.collective == MpiCollective::Barrier;
    if offloaded.has_failed() && communicates {
        let status = recovery::start_after_failure(job, call, offloaded, request);
        return Ok(CallOutcome { status, bytes, served_by: ServedBy::Native(FallbackReason::Failed) });
    }
    let stage =
        if communicates { start_operation(job, call, &plan, offloaded) } else { PendingStage::Arrived(Vec::new()) };
    // SAFETY: the user guarantees counts for all ranks.
    let counts = unsafe { OwnedCounts::of(&call.counts, offloaded.position.size as usize) };
    let pending = Arc::new(PendingCall {
        call: CollectiveCall { counts: counts.arrays(), ..*call },
        _counts: counts,
        plan,
        position: offloaded.position,
        handle: job.abi.handle(call.communicator),
        context: offloaded.context(),
        number: communicates.then(|| offloaded.completed()),
        request: AtomicUsize::new(0),
        status: AtomicI32::new(0),
        stage: Mutex::new(stage),
    });
    let status = start_request(job, &pending, request);
    if status != 0 {
        abort(job, "MPI_Grequest_start failed");
    }
    if communicates {
        let input = |into: &mut LoggedInput| call_plan::input_of(job, call, &plan, offloaded.position, into);
        offloaded.log_input(call, CallMode::NonBlocking, || plan.input_bytes(call, offloaded.position), input);
    }
    let has_arrived = pending.advance();
    if !has_arrived {
        // In the list before it counts: recovery finds every call in flight there.
        prepare_progress(job);
        lock(&PENDING).push(Arc::clone(&pending));
        COUNT.fetch_add(1, Ordering::Release);
        CHANGED.notify_one();
    }
    if communicates {
        offloaded.complete();
    }
    if has_arrived {
        pending.complete(job);
    } else {
        pending.advance_after_failure(job);
    }
    Ok(CallOutcome { status, bytes, served_by: ServedBy::Pleach })
}

/// The job, if it serves non-blocking calls.
fn serving_job(request: usize) -> Result<&'static MpiJob, FallbackReason> {
    let job = job().ok_or(FallbackReason::Off)?;
    match job.completion {
        RequestCompletion::Impossible => Err(FallbackReason::NoProgress),
        RequestCompletion::Disabled => Err(FallbackReason::Disabled),
        _ if request == 0 => Err(FallbackReason::Argument),
        _ if job.choice == ChoiceMode::Native => Err(FallbackReason::Chosen),
        _ => Ok(job),
    }
}

fn start_operation(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    offloaded: &OffloadedCommunicator,
) -> PendingStage {
    let input = call_plan::prepare(job, call, plan, offloaded.position);
    let target = (&offloaded.communicator, offloaded.position);
    match input.and_then(|input| OffloadedOperation::start(call, plan, target, input)) {
        Ok(started) => PendingStage::Running(started),
        Err(error) => PendingStage::Failed(error),
    }
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
    let Ok(pending) = PENDING.try_lock() else { return 0 };
    // The native MPI is not called while the list is locked: its progress engine calls us.
    let is_ready = |pending: &&Arc<PendingCall>| {
        pending.advance() || pending.stage.try_lock().is_ok_and(|stage| stage.needs_native_mpi())
    };
    let ready: Vec<Arc<PendingCall>> = pending.iter().filter(is_ready).cloned().collect();
    drop(pending);
    if may_complete == MayComplete::No {
        return 0;
    }
    ready.iter().filter(|pending| pending.complete_if_arrived(job)).count() as c_int
}

/// Advances the calls in flight. For threads inside an MPI call of the user.
pub(crate) fn advance(job: &MpiJob) {
    advance_all(job, MayComplete::Yes);
}

/// Recovery has come to a call in flight: the native MPI does it. False if it is complete after all.
pub(crate) fn restart(job: &MpiJob, offloaded: &OffloadedCommunicator, number: u64) -> bool {
    let is_it =
        |pending: &&Arc<PendingCall>| (pending.context, pending.number) == (offloaded.context(), Some(number));
    let found = lock(&PENDING).iter().find(is_it).cloned();
    found.is_some_and(|pending| pending.restart(job, offloaded.recovery_handle()))
}

/// Called by Open MPI's progress engine.
extern "C" fn on_open_mpi_progress() -> c_int {
    if COUNT.load(Ordering::Acquire) == 0 || RecoveryGuard::is_held() || IS_ADVANCING.replace(true) {
        return 0;
    }
    let advanced = last_job().map_or(0, |job| advance_all(job, MayComplete::Yes));
    IS_ADVANCING.set(false);
    advanced
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
            let is_open =
                |pending: &Arc<PendingCall>| pending.stage.try_lock().map_or(true, |stage| !stage.has_arrived());
            let timeout = if pending.iter().any(is_open) { ADVANCE_INTERVAL } else { Duration::from_secs(1) };
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

/// Sets the status. What it returns is the error of the request.
extern "C" fn query(state: *const PendingCall, status: usize) -> c_int {
    generalized_request::query(0, status);
    // SAFETY: it came from `start_request`, and was not freed yet.
    unsafe { &*state }.status.load(Ordering::Acquire)
}

extern "C" fn free(state: *const PendingCall) -> c_int {
    // SAFETY: it came from `start_request`, and the native MPI frees a request once.
    drop(unsafe { Arc::from_raw(state) });
    0
}

/// MPICH polls this request. Its `MPI_Wait` does nothing else meanwhile, not even progress, so the recovery goes on here.
extern "C" fn poll(state: *const PendingCall, _: usize) -> c_int {
    if let Some(job) = last_job() {
        // SAFETY: it came from `start_request`, and was not freed yet.
        if !unsafe { &*state }.complete_if_arrived(job) {
            recovery::advance_inside_mpi(job);
        }
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
                if recovery::has_failed() {
                    recovery::advance_all(job);
                }
            }
            if rounds < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
    0
}
