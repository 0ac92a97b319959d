//! The communicators of the native MPI that have an offloaded communicator in Pleach, by handle.
//!
//! A table of buckets of handles, each one cache line, with the records beside them. Readers take no lock. Only a caller that found a
//! handle reads its record, and the standard forbids to free a communicator that a call is using.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pleach::Communicator;

use crate::agreement::CallProgress;
use crate::call_statistics::CallMode;
use crate::choice_table::{CHOICE_NUMBERS, ChoiceTable};
use crate::collective_call::{CollectiveCall, FallbackReason, MpiCollective, RankAndSize};
use crate::configuration::ChoiceMode;
use crate::mpi_job::MpiJob;
use crate::replay_log::{LoggedInput, ReplayLog};

/// Operations in shared memory alone, between hosts, through aggregation nodes.
pub(crate) const OPERATION_KINDS: usize = 3;

/// Offloaded communicators at a time: each uses some shared memory.
const MAX_FORMED: i64 = 1024;

/// What is known of a communicator of the native MPI: its offloaded communicator, or why it has none.
pub(crate) struct CommunicatorRecord {
    offloaded: Result<OffloadedCommunicator, FallbackReason>,
}

impl CommunicatorRecord {
    fn offloaded(&self) -> Result<&OffloadedCommunicator, FallbackReason> {
        self.offloaded.as_ref().map_err(|reason| *reason)
    }
}

/// The Pleach communicator of a communicator of the native MPI.
pub(crate) struct OffloadedCommunicator {
    pub(crate) communicator: Communicator,
    pub(crate) position: RankAndSize,
    pub(crate) choices: ChoiceTable,
    context: u32,
    has_failed: AtomicBool,
    started: AtomicU64,
    completed: AtomicU64,
    is_between_hosts: bool,
    /// A communicator of the native MPI with the same ranks, for recovery alone; zero within one host. The calls on it are in the order in which
    /// this library makes them, whatever calls of the program are in progress at a rank.
    recovery_handle: usize,
    /// Inputs of the last calls, if the communicator is between hosts. Within one host nothing fails but a rank's death, after which
    /// replaying does not help.
    replay_log: Mutex<ReplayLog>,
    steps: StepTracker,
}

/// Whether all ranks of a communicator between hosts are known to have completed what Pleach did on it.
struct StepTracker {
    /// The ranks have exchanged something since the last call that Pleach did here.
    are_in_step: AtomicBool,
    /// The ranks agreed that Pleach does calls on other communicators of some of them.
    is_used_elsewhere: AtomicBool,
    /// Calls that Pleach did here, and calls that were left to the native MPI.
    pleach_calls: AtomicU64,
    native_calls: AtomicU64,
    /// Calls that Pleach did elsewhere, and the calls here when that number was last seen to grow.
    elsewhere: AtomicU64,
    calls_then: AtomicU64,
}

/// After so many calls on one communicator without any of Pleach on another one, there is none to be expected.
const CALLS_UNTIL_ALONE: u64 = 1 << 10;

/// Calls that Pleach did on all communicators between hosts.
static PLEACH_CALLS: AtomicU64 = AtomicU64::new(0);

impl OffloadedCommunicator {
    pub(crate) fn new(job: &MpiJob, communicator: Communicator, context: u32) -> Self {
        let choices = ChoiceTable::new(job.choice, (communicator.size(), communicator.hosts()));
        let steps = StepTracker {
            are_in_step: AtomicBool::new(true),
            is_used_elsewhere: AtomicBool::new(true), // Until they know better.
            pleach_calls: AtomicU64::new(0),
            native_calls: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
            calls_then: AtomicU64::new(0),
        };
        let (is_between_hosts, replay_log) = (communicator.hosts() > 1, Mutex::new(ReplayLog::new(job.replay_bytes)));
        let position = RankAndSize { rank: communicator.rank(), size: communicator.size() };
        let (has_failed, recovery_handle) = (AtomicBool::new(false), 0);
        let (started, completed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            communicator,
            position,
            choices,
            context,
            has_failed,
            started,
            completed,
            is_between_hosts,
            recovery_handle,
            replay_log,
            steps,
        }
    }

    /// Sets the communicator of the native MPI for recovery.
    pub(crate) fn with_recovery_handle(mut self, recovery_handle: usize) -> Self {
        self.recovery_handle = recovery_handle;
        self
    }

    pub(crate) fn recovery_handle(&self) -> usize {
        self.recovery_handle
    }

    /// Logs the input of a call, in case other ranks need it again. `bytes` is its length.
    #[inline]
    pub(crate) fn log_input(
        &self,
        call: &CollectiveCall,
        mode: CallMode,
        bytes: impl FnOnce() -> usize,
        input: impl FnOnce(&mut LoggedInput) -> bool,
    ) {
        if self.is_between_hosts() {
            self.steps.are_in_step.store(false, Ordering::Relaxed);
            self.steps.pleach_calls.fetch_add(1, Ordering::Relaxed);
            PLEACH_CALLS.fetch_add(1, Ordering::Relaxed);
            let number = self.completed();
            self.started.store(number + 1, Ordering::Relaxed);
            self.replay_log().push(number, call, mode, bytes(), input);
        }
    }

    /// Distinguishes the communicator from all others, past and present.
    pub(crate) fn context(&self) -> u32 {
        self.context
    }

    /// Counts a call that was left to the native MPI.
    pub(crate) fn count_native(&self) {
        self.steps.native_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// True if Pleach lately did calls on other communicators between hosts.
    pub(crate) fn is_used_elsewhere(&self) -> bool {
        let StepTracker { pleach_calls, native_calls, elsewhere, calls_then, .. } = &self.steps;
        let here = pleach_calls.load(Ordering::Relaxed);
        if self.replay_log().first_in_flight().is_some() {
            return true; // A non-blocking call is as if elsewhere: it may fail while this rank is in other calls here.
        }
        let now_elsewhere = PLEACH_CALLS.load(Ordering::Relaxed).saturating_sub(here);
        let calls = here + native_calls.load(Ordering::Relaxed);
        if elsewhere.swap(now_elsewhere, Ordering::Relaxed) < now_elsewhere {
            calls_then.store(calls, Ordering::Relaxed);
            return true;
        }
        let then = calls_then.load(Ordering::Relaxed);
        now_elsewhere > 0 && calls - then < CALLS_UNTIL_ALONE
    }

    /// The ranks have exchanged something: all of them have completed what Pleach did so far.
    pub(crate) fn set_in_step(&self, is_used_elsewhere: bool) {
        self.steps.are_in_step.store(true, Ordering::Relaxed);
        self.steps.is_used_elsewhere.store(is_used_elsewhere, Ordering::Relaxed);
    }

    /// True if a call must not be left to the native MPI without an exchange: a rank might block in it that another rank needs for
    /// its recovery. The same on all ranks.
    pub(crate) fn needs_exchange(&self) -> bool {
        let StepTracker { are_in_step, is_used_elsewhere, .. } = &self.steps;
        self.is_between_hosts && (!are_in_step.load(Ordering::Relaxed) || is_used_elsewhere.load(Ordering::Relaxed))
    }

    pub(crate) fn replay_log(&self) -> MutexGuard<'_, ReplayLog> {
        self.replay_log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_between_hosts(&self) -> bool {
        self.is_between_hosts
    }

    /// Whether gathers, scatters and alltoalls are left to the native MPI without a trial: between hosts each one that turned out slower
    /// would cost an exchange, where a call that Pleach does not know costs nothing.
    #[inline]
    pub(crate) fn leaves_blocks(&self, job: &MpiJob, collective: MpiCollective) -> bool {
        collective.copies_blocks() && self.is_between_hosts && job.choice == ChoiceMode::Measure
    }

    /// Counts a completed call, or a non-blocking one that was started. True if the communicator has failed meanwhile.
    #[inline]
    pub(crate) fn complete(&self) -> bool {
        // Calls on one communicator follow each other, so no other thread counts at the same time.
        self.completed.store(self.completed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if !self.is_between_hosts {
            return false;
        }
        // Another thread sets the failure and then reads the count: one of the two sees what the other wrote.
        fence(Ordering::SeqCst);
        self.has_failed()
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// How far this rank has come. Non-blocking calls in flight are not complete, nor are those after them.
    pub(crate) fn progress(&self, log: &ReplayLog) -> CallProgress {
        let (past, started) = (self.completed(), self.started.load(Ordering::Relaxed));
        CallProgress { completed: log.first_in_flight().unwrap_or(past).min(past), started: started.max(past) }
    }

    /// True if the native MPI does all calls on this communicator.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// From now on the native MPI does all calls on this communicator. True if it did not before.
    pub(crate) fn set_failed(&self) -> bool {
        let is_news = !self.has_failed.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        is_news
    }
}

impl Drop for OffloadedCommunicator {
    fn drop(&mut self) {
        if self.context != 0 {
            release_context(self.context);
        }
        if self.position.rank == 0 {
            self.choices.add_to(&mut *chosen());
        }
        for (ended, count) in ENDED.iter().zip(operations_of(&self.communicator)) {
            ended.fetch_add(count, Ordering::Relaxed);
        }
        FORMED.fetch_sub(1, Ordering::Relaxed);
    }
}

const BUCKETS: usize = 256;
const SLOTS: usize = 8;

#[repr(align(64))]
struct HandleBucket([AtomicUsize; SLOTS]);

static HANDLES: [HandleBucket; BUCKETS] = [const { HandleBucket([const { AtomicUsize::new(0) }; SLOTS]) }; BUCKETS];
static RECORDS: [[AtomicPtr<CommunicatorRecord>; SLOTS]; BUCKETS] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS] }; BUCKETS];
/// Records whose bucket was full.
static OVERFLOWN: AtomicUsize = AtomicUsize::new(0);
static FORMED: AtomicI64 = AtomicI64::new(0);
static EVER_FORMED: AtomicI64 = AtomicI64::new(0);
/// What [`operations`] returns, of offloaded communicators that were freed.
static ENDED: [AtomicI64; OPERATION_KINDS] = [const { AtomicI64::new(0) }; OPERATION_KINDS];

/// Measured choices of offloaded communicators that were freed.
static CHOSEN: Mutex<[i64; CHOICE_NUMBERS]> = Mutex::new([0; CHOICE_NUMBERS]);

fn chosen() -> MutexGuard<'static, [i64; CHOICE_NUMBERS]> {
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that is needed only to form and free communicators.
struct Registry {
    overflow: BTreeMap<usize, *mut CommunicatorRecord>,
    /// Contexts of offloaded communicators of which this process is a rank.
    contexts: BTreeSet<u32>,
    next_context: u32,
}

// SAFETY: the pointers are to records that the table owns.
unsafe impl Send for Registry {}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { overflow: BTreeMap::new(), contexts: BTreeSet::new(), next_context: 1 });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context to propose to the other ranks.
pub(crate) fn propose_context() -> u32 {
    let mut registry = registry();
    registry.next_context += 1;
    registry.next_context - 1
}

/// Reserves a context that the ranks agreed on. False if this process uses it already.
pub(crate) fn reserve_context(context: u32) -> bool {
    let mut registry = registry();
    registry.next_context = registry.next_context.max(context + 1);
    registry.contexts.insert(context)
}

pub(crate) fn release_context(context: u32) {
    registry().contexts.remove(&context);
}

/// True if another communicator may be offloaded.
pub(crate) fn has_room() -> bool {
    FORMED.load(Ordering::Relaxed) < MAX_FORMED
}

/// Reserves room for an offloaded communicator; its drop returns it.
pub(crate) fn reserve() {
    FORMED.fetch_add(1, Ordering::Relaxed);
}

/// Returns reserved room for which no offloaded communicator exists.
pub(crate) fn unreserve() {
    FORMED.fetch_sub(1, Ordering::Relaxed);
}

pub(crate) fn count_formed() {
    EVER_FORMED.fetch_add(1, Ordering::Relaxed);
}

#[inline]
fn bucket(handle: usize) -> usize {
    handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 8)
}

#[inline]
fn find(handle: usize) -> Option<&'static CommunicatorRecord> {
    let bucket = bucket(handle);
    for (slot, found) in HANDLES[bucket].0.iter().enumerate() {
        if found.load(Ordering::Acquire) == handle {
            // SAFETY: the record lives as long as the communicator, which the caller is using.
            return Some(unsafe { &*RECORDS[bucket][slot].load(Ordering::Relaxed) });
        }
    }
    if OVERFLOWN.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: as above.
    registry().overflow.get(&handle).map(|record| unsafe { &**record })
}

/// Adds a communicator.
pub(crate) fn insert(
    handle: usize,
    offloaded: Result<OffloadedCommunicator, FallbackReason>,
) -> Result<&'static OffloadedCommunicator, FallbackReason> {
    let record = Box::into_raw(Box::new(CommunicatorRecord { offloaded }));
    let mut registry = registry();
    let bucket = bucket(handle);
    match HANDLES[bucket].0.iter().position(|found| found.load(Ordering::Relaxed) == 0) {
        Some(slot) => {
            RECORDS[bucket][slot].store(record, Ordering::Relaxed);
            HANDLES[bucket].0[slot].store(handle, Ordering::Release);
        }
        None => {
            registry.overflow.insert(handle, record);
            OVERFLOWN.fetch_add(1, Ordering::Release);
        }
    }
    drop(registry);
    // SAFETY: as in `find`.
    unsafe { &*record }.offloaded()
}

/// Removes a communicator that is freed. The handle of its communicator for recovery, or zero, and its record.
pub(crate) fn remove(handle: usize) -> (usize, Option<Box<CommunicatorRecord>>) {
    let mut registry = registry();
    let bucket = bucket(handle);
    let slot = HANDLES[bucket].0.iter().position(|found| found.load(Ordering::Relaxed) == handle);
    let record = match slot {
        Some(slot) => {
            HANDLES[bucket].0[slot].store(0, Ordering::Release);
            Some(RECORDS[bucket][slot].swap(std::ptr::null_mut(), Ordering::Relaxed))
        }
        None => registry.overflow.remove(&handle).inspect(|_| {
            OVERFLOWN.fetch_sub(1, Ordering::Release);
        }),
    };
    drop(registry);
    if let Some(record) = record.filter(|record| !record.is_null()) {
        // SAFETY: it came out of a box in `insert`, and its handle is no longer in the table.
        let record = unsafe { Box::from_raw(record) };
        return (record.offloaded().map_or(0, |offloaded| offloaded.recovery_handle), Some(record));
    }
    (0, None)
}

/// All offloaded communicators that are between hosts, with their handles.
pub(crate) fn between_hosts() -> Vec<(usize, &'static OffloadedCommunicator)> {
    offloaded().filter(|(_, member)| member.is_between_hosts).collect()
}

fn offloaded() -> impl Iterator<Item = (usize, &'static OffloadedCommunicator)> {
    handles().into_iter().filter_map(|handle| Some((handle, find(handle)?.offloaded().ok()?)))
}

/// The measured choices on all communicators of which this process is rank 0.
pub(crate) fn choices() -> Vec<i64> {
    let mut numbers = chosen().to_vec();
    offloaded()
        .filter(|(_, member)| member.position.rank == 0)
        .for_each(|(_, member)| member.choices.add_to(&mut numbers));
    numbers
}

/// The offloaded communicator with this handle and context, if it still exists.
pub(crate) fn of_context(handle: usize, context: u32) -> Option<&'static OffloadedCommunicator> {
    find(handle)?.offloaded().ok().filter(|offloaded| offloaded.context == context)
}

/// An offloaded communicator that has failed.
pub(crate) fn failed(job: &MpiJob, communicator: usize) -> Option<&'static OffloadedCommunicator> {
    let member = find(job.abi.handle(communicator))?.offloaded().ok()?;
    member.has_failed().then_some(member)
}

fn handles() -> Vec<usize> {
    let mut handles: Vec<usize> = registry().overflow.keys().copied().collect();
    handles.extend(HANDLES.iter().flat_map(|bucket| &bucket.0).map(|handle| handle.load(Ordering::Relaxed)));
    handles.retain(|handle| *handle != 0);
    handles
}

/// Removes all communicators, since the job closes.
pub(crate) fn clear() {
    handles().into_iter().for_each(|handle| drop(remove(handle)));
}

/// How many communicators of this rank were offloaded so far.
pub(crate) fn formed() -> i64 {
    EVER_FORMED.load(Ordering::Relaxed)
}

/// How many operations this rank has done in shared memory alone; as a leader, between hosts; and of those, through aggregation nodes.
pub(crate) fn operations() -> [i64; OPERATION_KINDS] {
    let ended = ENDED.each_ref().map(|count| count.load(Ordering::Relaxed));
    let living = offloaded().map(|(_, member)| operations_of(&member.communicator));
    living.fold(ended, |sums, counts| std::array::from_fn(|kind| sums[kind] + counts[kind]))
}

fn operations_of(communicator: &Communicator) -> [i64; OPERATION_KINDS] {
    let statistics = communicator.statistics();
    let through_nodes = statistics.aggregated + statistics.multicast;
    [statistics.within_host, statistics.between_hosts, through_nodes].map(|count| count as i64)
}

/// The offloaded communicator of a communicator, or why it has none; nothing if the communicator is unknown.
#[inline]
pub(crate) fn lookup(
    job: &MpiJob,
    communicator: usize,
) -> Option<Result<&'static OffloadedCommunicator, FallbackReason>> {
    find(job.abi.handle(communicator)).map(CommunicatorRecord::offloaded)
}

/// The same, for calls that must not block to form one.
#[inline]
pub(crate) fn lookup_formed(
    job: &MpiJob,
    communicator: usize,
) -> Result<&'static OffloadedCommunicator, FallbackReason> {
    lookup(job, communicator).unwrap_or(Err(FallbackReason::NotYetFormed))
}

/// Adds `MPI_COMM_WORLD`.
pub(crate) fn insert_world(job: &MpiJob, offloaded: OffloadedCommunicator) {
    reserve();
    count_formed();
    let _ = insert(job.abi.world, Ok(offloaded));
}
