//! Recovery after Pleach fails: the ranks compare their progress over the native MPI, which then does the remaining calls.
//!
//! A rank that sees a failure gives up every communicator between hosts and revokes it for the other ranks. On each communicator the
//! ranks then agree, over the native MPI, which calls all of them have completed and which any of them has (P-59 is the same idea one
//! layer below). A rank that had its result already, or needed none, is ahead. The native MPI replays the calls in between: a rank that
//! has completed one contributes its logged input again and discards the result. So no result is lost, and none is wrong.
//!
//! Calls that are left to the native MPI on purpose (`measured_call.rs`) are neither counted nor replayed: no rank does such a call while
//! another one may still need its help, because the ranks exchange their progress before it, and that exchange is the agreement of the
//! recovery if Pleach has failed at any of them. Where the ranks are in step, and so do such calls without an exchange, a rank that
//! sees a failure elsewhere defers the agreement to the next call that Pleach would have done.
//!
//! All of these calls are on communicators of their own, and non-blocking, also the agreement: a rank may wait in one communicator for
//! a rank that waits for it in another, or block in any function of the native MPI, whose progress engine then calls
//! `recovery_hook.rs`. With an MPI that has no such hook, a rank that blocks there while another needs it cannot help; the job ends
//! with that reason when the patience is over.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::abort::abort;
use crate::agreement::{AgreedProgress, TrialBallot};
use crate::bootstrap_channel::PendingAllreduce;
use crate::call_plan::CallPlan;
use crate::collective_call::CollectiveCall;
use crate::communicator_table::{self, OffloadedCommunicator};
use crate::log::log;
use crate::mpi_job::MpiJob;
use crate::native_calls;
use crate::native_mpi::invoke;
use crate::progress;
use crate::recovery_guard::RecoveryGuard;
use crate::replay_arguments;
use crate::replay_log::{LoggedInput, RecoveryState, ReplayLog, ReplayState, ReplayedCall};
use crate::requests;
use crate::ulfm::{self, NativeCallFailed};

/// So many calls on a communicator are non-blocking after those that are replayed: by then, all ranks have recovered everywhere.
const NON_BLOCKING_CALLS: u64 = 1000;

/// After a process has died, the launcher of the MPI has this long to end the job.
const LAUNCHER_TIMEOUT: Duration = Duration::from_secs(5);

/// Some communicator of this rank has failed.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
static FAILED_COMMUNICATORS: AtomicI64 = AtomicI64::new(0);
/// Some communicator has an agreement or replayed calls in flight.
static IS_UNSETTLED: AtomicBool = AtomicBool::new(false);

/// Why the first of them failed.
static REASON: Mutex<String> = Mutex::new(String::new());

fn reason() -> MutexGuard<'static, String> {
    REASON.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called by the progress engine of the native MPI, often: joins the recovery that other ranks have begun, and advances it.
#[inline]
pub(crate) fn advance_inside_mpi(job: &MpiJob) {
    /// Failures that were looked at.
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let failures = job.failures.count();
    let has_news = failures != SEEN.load(Ordering::Relaxed) && !has_failed();
    if !has_news && !IS_UNSETTLED.load(Ordering::Relaxed) {
        return;
    }
    let Some(_guard) = RecoveryGuard::try_lock() else { return };
    if has_news && join_other_ranks(job) {
        SEEN.store(failures, Ordering::Relaxed);
    }
    advance_all(job);
}

/// Other ranks have reported a failure: begins the recovery here. False to be called again: if a process has died, its launcher may end the job.
fn join_other_ranks(job: &MpiJob) -> bool {
    static SINCE: Mutex<Option<Instant>> = Mutex::new(None);
    let all = communicator_table::between_hosts().into_iter().map(|(_, offloaded)| offloaded);
    let mut communicators = all.filter(|offloaded| !ulfm::surrender_if_lost(job, offloaded));
    let found = communicators
        .find_map(|offloaded| offloaded.communicator.known_failure().map(|error| (&offloaded.communicator, error)));
    let Some((communicator, error)) = found else { return true };
    if error.lost_ranks().iter().any(|rank| communicator.is_process_lost(*rank)) {
        let mut since = SINCE.lock().unwrap_or_else(PoisonError::into_inner);
        if since.get_or_insert_with(Instant::now).elapsed() < LAUNCHER_TIMEOUT {
            return false;
        }
    }
    fail_all(job, &error.to_string());
    true
}

/// True if Pleach has failed on some communicator, as far as this rank knows.
#[inline]
pub(crate) fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// Communicators of this rank that failed.
pub(crate) fn failed_communicators() -> i64 {
    FAILED_COMMUNICATORS.load(Ordering::Relaxed)
}

/// Completes a call that failed in Pleach; its status.
#[cold]
pub(crate) fn recover(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    communicator: &OffloadedCommunicator,
    error: &pleach::Error,
) -> c_int {
    if ulfm::surrender_after(job, communicator, error) {
        return fail_surrendered(job, call, communicator);
    }
    leave_death_to_launcher(communicator, error);
    if !communicator.is_between_hosts() {
        abort(job, &error.to_string()); // Within a host nothing fails but a rank's death.
    }
    fail_all(job, &error.to_string());
    if plan.overwrites_input(job, call) {
        // Part of the result may have overwritten the input.
        let log = communicator.replay_log();
        match log.input_of(communicator.completed()) {
            // SAFETY: the bytes came from there.
            Some((_, LoggedInput { bytes, .. })) => unsafe {
                bytes.as_ptr().copy_to_nonoverlapping(call.receive as *mut u8, bytes.len());
            },
            None => abort(job, "the input of an in-place call was too long for the replay log"),
        }
    }
    run_after_failure(job, call, communicator)
}

/// If a process has ended, its launcher ends the job, with that process's exit status: blocks until then, for some seconds at most.
#[cold]
pub(crate) fn leave_death_to_launcher(communicator: &OffloadedCommunicator, error: &pleach::Error) {
    if error.lost_ranks().iter().any(|rank| communicator.communicator.is_process_lost(*rank)) {
        std::thread::sleep(LAUNCHER_TIMEOUT);
    }
}

/// A non-blocking call on this communicator has failed in Pleach.
#[cold]
pub(crate) fn fail_non_blocking(job: &MpiJob, handle: usize, context: u32, error: &pleach::Error) {
    let Some(communicator) = communicator_table::of_context(handle, context) else {
        abort(job, &format!("{error} in a non-blocking call on a communicator that was freed"));
    };
    if ulfm::surrender_after(job, communicator, error) {
        return;
    }
    if has_failed() {
        return fail_all(job, &error.to_string());
    }
    leave_death_to_launcher(communicator, error);
    if !communicator.is_between_hosts() {
        abort(job, &format!("{error} in a non-blocking call")); // Within a host nothing fails but a rank's death.
    }
    fail_all(job, &error.to_string());
}

/// A non-blocking call that began while another thread gave up its communicator: if the ranks have agreed without it, it begins now, on the
/// communicator for recovery or on its own.
#[cold]
pub(crate) fn start_late_call(handle: usize, context: u32, number: u64, start: impl FnOnce(Option<usize>)) {
    let Some(communicator) = communicator_table::of_context(handle, context) else { return };
    let _guard = RecoveryGuard::lock();
    let mut log = communicator.replay_log();
    let Some(RecoveryState::Replaying(state)) = &mut log.recovery else { return };
    if number < state.next {
        return; // It was restarted with the others.
    }
    let is_replayed = number < state.end;
    state.next = number + 1;
    drop(log);
    start(is_replayed.then(|| communicator.recovery_handle()));
}

/// A communicator was formed while a failure may have become known: it must not miss that.
pub(crate) fn check_new(job: &MpiJob, communicator: &OffloadedCommunicator) {
    if !communicator.is_between_hosts() {
        return;
    }
    let known = communicator.communicator.known_failure().map(|error| error.to_string());
    if let Some(why) = known {
        fail_all(job, &why);
    } else if has_failed() {
        let _guard = RecoveryGuard::lock();
        fail(job, communicator, "Pleach failed on another communicator");
    }
}

/// A communicator is freed while no thread looks at all of them. The handle of its communicator for recovery, or zero.
pub(crate) fn forget(handle: usize) -> usize {
    let guard = RecoveryGuard::lock();
    let (recovery_handle, record) = communicator_table::remove(handle);
    // The native MPI may free it inside a call of ours, with references to it further up.
    #[expect(clippy::vec_box, reason = "references to the records must stay valid")]
    static FORGOTTEN: Mutex<Vec<Box<communicator_table::CommunicatorRecord>>> = Mutex::new(Vec::new());
    let mut forgotten = FORGOTTEN.lock().unwrap_or_else(PoisonError::into_inner);
    forgotten.extend(record);
    let unused = if guard.is_outermost() { std::mem::take(&mut *forgotten) } else { Vec::new() };
    drop((forgotten, guard));
    drop(unused);
    recovery_handle
}

/// Starts a non-blocking call on a communicator that has failed.
#[cold]
pub(crate) fn start_after_failure(
    job: &MpiJob,
    call: &CollectiveCall,
    communicator: &OffloadedCommunicator,
    request: usize,
) -> c_int {
    let number = communicator.completed();
    begin_if_deferred(job, communicator);
    let Ok(end) = wait_for_agreement(job, communicator, Some(job.patience)) else {
        return fail_surrendered(job, call, communicator);
    };
    let _guard = RecoveryGuard::lock();
    let handle = if number < end { begin_replayed_call(communicator, number) } else { call.communicator };
    communicator.complete();
    let mut started = 0_usize;
    // SAFETY: the user's own arguments.
    let status =
        unsafe { native_calls::start(job.mpi, &CollectiveCall { communicator: handle, ..*call }, &mut started) };
    // SAFETY: the user's own place for the request.
    unsafe { job.abi.write_handle(request, started) };
    status
}

/// Fails a call on a surrendered communicator; its status.
fn fail_surrendered(job: &MpiJob, call: &CollectiveCall, communicator: &OffloadedCommunicator) -> c_int {
    ulfm::fail_call(job, communicator, job.abi.handle(call.communicator))
}

/// This rank begins a call that is replayed; the communicator for it.
fn begin_replayed_call(communicator: &OffloadedCommunicator, number: u64) -> usize {
    if let Some(RecoveryState::Replaying(state)) = &mut communicator.replay_log().recovery {
        state.next = number + 1;
    }
    communicator.recovery_handle()
}

/// Gives up every communicator between hosts.
fn fail_all(job: &MpiJob, why: &str) {
    let _guard = RecoveryGuard::lock();
    if !HAS_FAILED.swap(true, Ordering::Relaxed) {
        *reason() = why.to_owned();
        if job.rank == 0 {
            log(&format!("{why}; the native MPI serves communicators between hosts from here on"));
        }
    }
    for (_, communicator) in communicator_table::between_hosts() {
        fail(job, communicator, why);
    }
}

fn fail(job: &MpiJob, communicator: &OffloadedCommunicator, why: &str) {
    if ulfm::surrender_if_lost(job, communicator) {
        return;
    }
    let mut log = communicator.replay_log();
    if log.is_occupied {
        return; // The thread that occupies it does this afterwards.
    }
    let is_news = communicator.set_failed();
    let needs_help = communicator.needs_exchange() || log.first_in_flight().is_some();
    if log.recovery.is_none() && needs_help {
        begin(job, communicator, &mut log);
    }
    drop(log);
    if is_news {
        communicator.communicator.revoke(why);
        FAILED_COMMUNICATORS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Pleach has failed, at this rank or at another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PleachFailed;

/// A communicator between hosts on which no recovery begins: its thread exchanges values with the other ranks, or does a call on the
/// native MPI after that. Another thread would disturb the order of these calls.
pub(crate) struct OccupiedCommunicator<'a> {
    job: &'a MpiJob,
    communicator: &'a OffloadedCommunicator,
}

/// Occupies a communicator until the result is dropped.
pub(crate) fn occupy<'a>(
    job: &'a MpiJob,
    communicator: &'a OffloadedCommunicator,
) -> Result<OccupiedCommunicator<'a>, PleachFailed> {
    let mut log = communicator.replay_log();
    if communicator.has_failed() || log.recovery.is_some() {
        return Err(PleachFailed);
    }
    log.is_occupied = true;
    Ok(OccupiedCommunicator { job, communicator })
}

impl Drop for OccupiedCommunicator<'_> {
    fn drop(&mut self) {
        self.communicator.replay_log().is_occupied = false;
        if has_failed() && !self.communicator.has_failed() {
            let _guard = RecoveryGuard::lock();
            fail(self.job, self.communicator, "Pleach failed on another communicator");
        }
    }
}

/// In an exchange on an occupied communicator, the ranks agreed that Pleach has failed.
#[cold]
pub(crate) fn join(job: &MpiJob, communicator: &OffloadedCommunicator, agreed: &AgreedProgress) {
    let why = "Pleach failed at another rank";
    let guard = RecoveryGuard::lock();
    let mut log = communicator.replay_log();
    let state = begin_replay(job, communicator, &log, agreed);
    log.recovery = Some(state.unwrap_or(RecoveryState::Surrendered));
    IS_UNSETTLED.store(true, Ordering::Relaxed);
    drop(log);
    drop(guard);
    if communicator.set_failed() {
        communicator.communicator.revoke(why);
        FAILED_COMMUNICATORS.fetch_add(1, Ordering::Relaxed);
    }
    fail_all(job, why);
}

/// True if the ranks of a failed communicator have not begun to agree, since they are in step.
pub(crate) fn has_deferred(communicator: &OffloadedCommunicator) -> bool {
    communicator.replay_log().recovery.is_none()
}

fn begin(job: &MpiJob, communicator: &OffloadedCommunicator, log: &mut ReplayLog) {
    let values =
        AgreedProgress::encode(communicator.progress(log), communicator.has_failed(), &TrialBallot::default());
    match start_agreement(job, communicator, values) {
        Ok(pending) => {
            log.recovery = Some(RecoveryState::Agreeing(pending));
            IS_UNSETTLED.store(true, Ordering::Relaxed);
        }
        Err(NativeCallFailed) => ulfm::surrender(communicator, log),
    }
}

/// Starts the exchange of progress on the communicator for recovery.
pub(crate) fn start_agreement(
    job: &MpiJob,
    communicator: &OffloadedCommunicator,
    values: Vec<i64>,
) -> Result<PendingAllreduce, NativeCallFailed> {
    match job.channel(communicator.recovery_handle()).start_all_reduce_min(values) {
        Some(pending) => Ok(pending),
        None if job.ulfm.is_some() => Err(NativeCallFailed),
        None => abort(job, "MPI_Iallreduce failed"),
    }
}

/// Does a call on a communicator that has failed.
pub(crate) fn run_after_failure(job: &MpiJob, call: &CollectiveCall, communicator: &OffloadedCommunicator) -> c_int {
    let number = communicator.completed();
    begin_if_deferred(job, communicator);
    let Ok(end) = wait_for_agreement(job, communicator, Some(job.patience)) else {
        return fail_surrendered(job, call, communicator);
    };
    if number > end + NON_BLOCKING_CALLS {
        communicator.complete();
        // SAFETY: the user's own arguments.
        return unsafe { native_calls::run(job.mpi, call) };
    }
    // Non-blocking, as at the ranks that replay this call. Later calls as well: another rank may need this one on another communicator.
    let started = if number < end {
        let _guard = RecoveryGuard::lock();
        start(job, &CollectiveCall { communicator: begin_replayed_call(communicator, number), ..*call })
    } else {
        start(job, call)
    };
    communicator.complete();
    let done = started.and_then(|mut request| {
        wait_until(job, None, || match test(job, &mut request) {
            Ok(is_complete) => is_complete.then_some(Ok(())),
            Err(failed) => Some(Err(failed)),
        })
    });
    match done {
        Ok(()) => 0,
        Err(NativeCallFailed) => {
            ulfm::surrender(communicator, &mut communicator.replay_log());
            fail_surrendered(job, call, communicator)
        }
    }
}

fn begin_if_deferred(job: &MpiJob, communicator: &OffloadedCommunicator) {
    let _guard = RecoveryGuard::lock();
    let mut log = communicator.replay_log();
    if log.recovery.is_none() {
        begin(job, communicator, &mut log);
    }
}

/// A call was completed although its communicator failed meanwhile: other ranks may need it again.
#[cold]
pub(crate) fn replay_late_completion(job: &MpiJob, communicator: &OffloadedCommunicator) {
    let _guard = RecoveryGuard::lock();
    let mut log = communicator.replay_log();
    // If the ranks have not agreed yet, the call is replayed then.
    if let Some(RecoveryState::Replaying(mut state)) =
        log.recovery.take_if(|state| matches!(state, RecoveryState::Replaying(_)))
    {
        let numbers = state.next..communicator.completed().min(state.end);
        state.next = state.next.max(numbers.end);
        let calls: Result<Vec<_>, _> = numbers.map(|number| replay(job, communicator, &log, number)).collect();
        log.recovery = Some(match calls {
            Ok(calls) => {
                state.calls.extend(calls);
                RecoveryState::Replaying(state)
            }
            Err(NativeCallFailed) => RecoveryState::Surrendered,
        });
        IS_UNSETTLED.store(true, Ordering::Relaxed);
    }
}

/// Called before a call that was never offloaded: it must follow the replayed ones.
pub(crate) fn before_native_call(job: &MpiJob, communicator: usize) {
    if let Some(communicator) = communicator_table::failed(job, communicator)
        && !has_deferred(communicator)
    {
        let _ = wait_for_agreement(job, communicator, Some(job.patience)); // The native call itself fails if it must.
    }
}

/// Called before a communicator is freed: replays the calls that other ranks still need.
pub(crate) fn settle(job: &MpiJob, communicator: usize) {
    if let Some(Ok(offloaded)) = communicator_table::lookup(job, communicator)
        && offloaded.is_between_hosts()
    {
        settle_each(job, &[offloaded]);
    }
}

/// The same, for all communicators.
pub(crate) fn settle_all(job: &MpiJob) {
    let communicators: Vec<_> =
        communicator_table::between_hosts().into_iter().map(|(_, offloaded)| offloaded).collect();
    settle_each(job, &communicators);
}

fn settle_each(job: &MpiJob, communicators: &[&OffloadedCommunicator]) {
    // Non-blocking calls in flight first: what is complete everywhere need not be replayed.
    for communicator in communicators {
        let is_done = || communicator.has_failed() || communicator.replay_log().first_in_flight().is_none();
        wait_until(job, None, || is_done().then_some(()));
    }
    for communicator in communicators {
        ulfm::surrender_if_lost(job, communicator);
    }
    // Begin on all before waiting for any: another rank may wait in the last of them.
    communicators.iter().for_each(|communicator| begin_if_deferred(job, communicator));
    // Without a limit: a rank may free a communicator, or end, long before another one.
    for communicator in communicators {
        let _ = wait_for_agreement(job, communicator, None);
        wait_until(job, None, || {
            let log = communicator.replay_log();
            let has_replayed = match &log.recovery {
                Some(RecoveryState::Replaying(state)) => state.calls.is_empty(),
                Some(RecoveryState::Surrendered) => true,
                Some(RecoveryState::Agreeing(_)) | None => false,
            };
            (has_replayed && log.first_in_flight().is_none()).then_some(())
        });
    }
}

/// Blocks until the ranks have agreed; the number of the first call after those that are replayed. Fails if the communicator is surrendered.
/// Aborts the job after `limit`.
fn wait_for_agreement(
    job: &MpiJob,
    communicator: &OffloadedCommunicator,
    limit: Option<Duration>,
) -> Result<u64, NativeCallFailed> {
    wait_until(job, limit, || match &communicator.replay_log().recovery {
        Some(RecoveryState::Replaying(state)) => Some(Ok(state.end)),
        Some(RecoveryState::Surrendered) => Some(Err(NativeCallFailed)),
        Some(RecoveryState::Agreeing(_)) | None => None,
    })
}

/// Advances the recovery of all communicators until `done` returns something. Aborts the job after `limit`.
fn wait_until<R>(job: &MpiJob, limit: Option<Duration>, mut done: impl FnMut() -> Option<R>) -> R {
    let began = Instant::now();
    loop {
        if let Some(result) = done() {
            return result;
        }
        advance_all(job);
        // Other ranks may first need a message, or this rank's part of a non-blocking call, before they take part.
        progress::progress_mpi();
        requests::advance(job);
        if limit.is_some_and(|limit| began.elapsed() > limit) {
            abort(
                job,
                &format!(
                    "{}, and within {} s some rank did not take part in the recovery: it computes, or blocks outside the MPI, or in a \
                     function that this MPI does not let Pleach interrupt; to wait longer, set PLEACH_PATIENCE to more seconds",
                    reason(),
                    began.elapsed().as_secs()
                ),
            );
        }
        std::thread::yield_now();
    }
}

/// Advances the recovery of all communicators, if there is any.
pub(crate) fn advance_all(job: &MpiJob) {
    let _guard = RecoveryGuard::lock();
    let mut is_unsettled = false;
    for (_, communicator) in communicator_table::between_hosts() {
        is_unsettled |= advance(job, communicator);
    }
    IS_UNSETTLED.store(is_unsettled, Ordering::Relaxed);
}

/// True if something is still in flight.
fn advance(job: &MpiJob, communicator: &OffloadedCommunicator) -> bool {
    let mut log = communicator.replay_log();
    let state = match log.recovery.take() {
        None => return false,
        Some(RecoveryState::Agreeing(mut pending)) => match test(job, pending.request()) {
            Ok(true) => begin_replay(job, communicator, &log, &AgreedProgress::decode(pending.values())),
            Ok(false) => Ok(RecoveryState::Agreeing(pending)),
            Err(failed) => Err(failed),
        },
        Some(RecoveryState::Replaying(mut state)) => {
            let mut has_failed = false;
            state.calls.retain_mut(|call| match test(job, &mut call.request) {
                Ok(is_complete) => !is_complete,
                Err(NativeCallFailed) => {
                    has_failed = true;
                    false
                }
            });
            if has_failed { Err(NativeCallFailed) } else { Ok(RecoveryState::Replaying(state)) }
        }
        Some(RecoveryState::Surrendered) => Ok(RecoveryState::Surrendered),
    };
    let Ok(state) = state else {
        ulfm::surrender(communicator, &mut log);
        return false;
    };
    let is_unsettled = match &state {
        RecoveryState::Replaying(state) => !state.calls.is_empty(),
        RecoveryState::Agreeing(_) => true,
        RecoveryState::Surrendered => false,
    };
    log.recovery = Some(state);
    is_unsettled
}

/// Starts the calls again that some rank lacks: those that this rank has completed, and its non-blocking ones in flight.
fn begin_replay(
    job: &MpiJob,
    communicator: &OffloadedCommunicator,
    log: &ReplayLog,
    agreed: &AgreedProgress,
) -> Result<RecoveryState, NativeCallFailed> {
    let numbers = agreed.all_completed..communicator.completed().min(agreed.any_started);
    let (end, next) = (agreed.any_started, numbers.end);
    let mut calls = Vec::new();
    for number in numbers {
        if !(log.is_in_flight(number) && requests::restart(job, communicator, number)) {
            calls.push(replay(job, communicator, log, number)?);
        }
    }
    Ok(RecoveryState::Replaying(ReplayState { end, next, calls }))
}

/// Starts a call again that this rank has completed.
fn replay(
    job: &MpiJob,
    communicator: &OffloadedCommunicator,
    log: &ReplayLog,
    number: u64,
) -> Result<ReplayedCall, NativeCallFailed> {
    let Some((call, input)) = log.input_of(number) else {
        abort(job, "another rank needs this rank's input of an earlier call, which is no longer in the replay log");
    };
    let call = CollectiveCall { communicator: communicator.recovery_handle(), ..*call };
    let (call, buffers) = replay_arguments::of(job, &call, communicator.position, input);
    Ok(ReplayedCall { request: start(job, &call)?, _buffers: buffers })
}

/// Starts a call on the native MPI; its request.
pub(crate) fn start(job: &MpiJob, call: &CollectiveCall) -> Result<usize, NativeCallFailed> {
    let mut request = 0_usize;
    // SAFETY: the user's own arguments, or buffers as long as the call requires, which outlive the request.
    let status = unsafe { native_calls::start(job.mpi, call, &mut request) };
    check_native_call(job, status).map(|()| request)
}

/// Without ULFM, a call of the native MPI that recovery needs must succeed.
fn check_native_call(job: &MpiJob, status: c_int) -> Result<(), NativeCallFailed> {
    match status {
        0 => Ok(()),
        _ if job.ulfm.is_some() => Err(NativeCallFailed),
        _ => abort(job, "the native MPI failed to replay a call"),
    }
}

/// True if a request is complete.
pub(crate) fn test(job: &MpiJob, request: &mut usize) -> Result<bool, NativeCallFailed> {
    let Some(test) = job.mpi.real.Test else { abort(job, "the native MPI has no MPI_Test") };
    let mut is_complete = 0_i32;
    let mut status = [0_u64; 16];
    // SAFETY: our own request, of which MPICH uses the lower half; the status has room for that of any MPI.
    let tested = unsafe { invoke!(test; &raw mut *request, &raw mut is_complete, status.as_mut_ptr()) };
    check_native_call(job, tested).map(|()| is_complete != 0)
}
