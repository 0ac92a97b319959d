//! Which of the MPI's communicators have a twin in Pleach.
//!
//! A communicator gets its twin at its first blocking call that could be taken over: that call is made by all its ranks, which can
//! therefore agree over the communicator itself. An attribute of the communicator tells when it is freed, by whatever function, so that
//! its handle can mean another one later.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pleach::Communicator;

use crate::bootstrap_channel::BootstrapFailed;
use crate::call_statistics::FallbackReason;
use crate::collective_call::{CollectiveCall, RankAndSize};
use crate::mpi_job::{self, MpiJob};
use crate::native_mpi::{NativeMpi, invoke};
use crate::recovery;
use crate::replay_log::ReplayLog;

/// Twins at a time, at most: each has some shared memory.
const MOST_FORMED: i64 = 1024;

/// A communicator of the MPI's, as far as it is known here.
struct CommunicatorRecord {
    standing: Result<OffloadedCommunicator, FallbackReason>,
}

/// This rank in a communicator that has a twin.
pub(crate) struct OffloadedCommunicator {
    pub(crate) communicator: Communicator,
    pub(crate) position: RankAndSize,
    context: u32,
    has_failed: AtomicBool,
    completed: AtomicU64,
    is_between_hosts: bool,
    /// What the last calls brought, if it is between hosts. Within one nothing fails short of a rank's death, which nothing here can mend.
    kept: Mutex<ReplayLog>,
}

impl OffloadedCommunicator {
    fn new(communicator: Communicator, context: u32) -> Self {
        let (is_between_hosts, kept) = (communicator.hosts() > 1, Mutex::default());
        let position = RankAndSize { rank: communicator.rank(), size: communicator.size() };
        let (has_failed, completed) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { communicator, position, context, has_failed, completed, is_between_hosts, kept }
    }

    /// Keeps what a call brings, for the case that others need it once more.
    #[inline]
    pub(crate) fn keep(&self, call: &CollectiveCall, bytes: usize, input: impl FnOnce(&mut Vec<u8>) -> bool) {
        if self.is_between_hosts() {
            self.kept().push(self.completed(), call, bytes, input);
        }
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, ReplayLog> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_between_hosts(&self) -> bool {
        self.is_between_hosts
    }

    /// A call has come to its end.
    #[inline]
    pub(crate) fn complete(&self) {
        // Calls on one communicator come one after the other, so nobody else counts at the same time.
        self.completed.store(self.completed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// True if the MPI does everything here.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// From now on the MPI does everything here. True if that is news.
    pub(crate) fn give_up(&self) -> bool {
        !self.has_failed.swap(true, Ordering::Relaxed)
    }
}

impl Drop for OffloadedCommunicator {
    fn drop(&mut self) {
        if self.context != 0 {
            registry().contexts.remove(&self.context);
        }
        AGGREGATED.fetch_add(self.communicator.statistics().aggregated as i64, Ordering::Relaxed);
        FORMED.fetch_sub(1, Ordering::Relaxed);
    }
}

// The table: buckets of handles, each a line of the cache, and records beside them. Readers take no lock. A record is read only by
// whoever found its handle, and a communicator that somebody uses is not freed at the same time.

const BUCKETS: usize = 256;
const PLACES: usize = 8;

#[repr(align(64))]
struct HandleBucket([AtomicUsize; PLACES]);

static HANDLES: [HandleBucket; BUCKETS] = [const { HandleBucket([const { AtomicUsize::new(0) }; PLACES]) }; BUCKETS];
static RECORDS: [[AtomicPtr<CommunicatorRecord>; PLACES]; BUCKETS] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; PLACES] }; BUCKETS];
/// How many records are where no bucket had room.
static OVERFLOWN: AtomicUsize = AtomicUsize::new(0);
static FORMED: AtomicI64 = AtomicI64::new(0);
static EVER_FORMED: AtomicI64 = AtomicI64::new(0);
/// Operations that went through aggregation nodes, of twins that are no more.
static AGGREGATED: AtomicI64 = AtomicI64::new(0);

/// What only those who form communicators need, one at a time.
struct Registry {
    overflow: BTreeMap<usize, *mut CommunicatorRecord>,
    /// Numbers of twins of which this process is a rank.
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

#[inline]
fn bucket(handle: usize) -> usize {
    handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 8)
}

#[inline]
fn find(handle: usize) -> Option<&'static CommunicatorRecord> {
    let bucket = bucket(handle);
    for (place, found) in HANDLES[bucket].0.iter().enumerate() {
        if found.load(Ordering::Acquire) == handle {
            // SAFETY: the record lives as long as the communicator, which our caller uses.
            return Some(unsafe { &*RECORDS[bucket][place].load(Ordering::Relaxed) });
        }
    }
    if OVERFLOWN.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: as above.
    registry().overflow.get(&handle).map(|record| unsafe { &**record })
}

fn insert(handle: usize, record: CommunicatorRecord) -> &'static CommunicatorRecord {
    let record = Box::into_raw(Box::new(record));
    let mut registry = registry();
    let bucket = bucket(handle);
    match HANDLES[bucket].0.iter().position(|found| found.load(Ordering::Relaxed) == 0) {
        Some(place) => {
            RECORDS[bucket][place].store(record, Ordering::Relaxed);
            HANDLES[bucket].0[place].store(handle, Ordering::Release);
        }
        None => {
            registry.overflow.insert(handle, record);
            OVERFLOWN.fetch_add(1, Ordering::Release);
        }
    }
    drop(registry);
    // SAFETY: as in `find`.
    unsafe { &*record }
}

fn remove(handle: usize) {
    let mut registry = registry();
    let bucket = bucket(handle);
    let place = HANDLES[bucket].0.iter().position(|found| found.load(Ordering::Relaxed) == handle);
    let record = match place {
        Some(place) => {
            HANDLES[bucket].0[place].store(0, Ordering::Release);
            Some(RECORDS[bucket][place].swap(std::ptr::null_mut(), Ordering::Relaxed))
        }
        None => registry.overflow.remove(&handle).inspect(|_| {
            OVERFLOWN.fetch_sub(1, Ordering::Release);
        }),
    };
    drop(registry);
    if let Some(record) = record.filter(|record| !record.is_null()) {
        // SAFETY: it came out of a box in `insert`, and nobody finds it any more.
        drop(unsafe { Box::from_raw(record) });
    }
}

/// A communicator is about to be freed.
pub(crate) fn settle(job: &MpiJob, communicator: usize) {
    if let Some(Ok(member)) = find(job.abi.handle(communicator)).map(|record| &record.standing)
        && member.is_between_hosts
    {
        recovery::settle(job, &[(communicator, member)]);
    }
}

/// All communicators are about to end.
pub(crate) fn settle_all(job: &MpiJob) {
    recovery::settle(job, &between_hosts());
}

/// All twins that are between hosts.
pub(crate) fn between_hosts() -> Vec<(usize, &'static OffloadedCommunicator)> {
    let found = handles().into_iter().filter_map(|handle| Some((handle, find(handle)?.standing.as_ref().ok()?)));
    found.filter(|(_, member)| member.is_between_hosts).collect()
}

/// This rank in a twin that was given up.
pub(crate) fn given_up(job: &MpiJob, communicator: usize) -> Option<&'static OffloadedCommunicator> {
    let member = find(job.abi.handle(communicator))?.standing.as_ref().ok()?;
    member.has_failed().then_some(member)
}

fn handles() -> Vec<usize> {
    let mut handles: Vec<usize> = registry().overflow.keys().copied().collect();
    handles.extend(HANDLES.iter().flat_map(|bucket| &bucket.0).map(|handle| handle.load(Ordering::Relaxed)));
    handles.retain(|handle| *handle != 0);
    handles
}

/// The job is over: no communicator has a twin any more.
pub(crate) fn forget_all() {
    handles().into_iter().for_each(remove);
}

/// How many communicators of this rank have had a twin so far.
pub(crate) fn formed() -> i64 {
    EVER_FORMED.load(Ordering::Relaxed)
}

/// How many operations went through aggregation nodes, as this rank spoke for its host.
pub(crate) fn aggregated() -> i64 {
    let living = between_hosts().into_iter().map(|(_, member)| member.communicator.statistics().aggregated as i64);
    AGGREGATED.load(Ordering::Relaxed) + living.sum::<i64>()
}

thread_local! {
    /// This thread is forming a twin: what the MPI calls meanwhile is its own affair.
    static IS_FORMING: Cell<bool> = const { Cell::new(false) };
}

/// This rank in the twin of a communicator, or why there is none.
#[inline]
fn member(job: &MpiJob, communicator: usize) -> Option<Result<&'static OffloadedCommunicator, FallbackReason>> {
    let record = find(job.abi.handle(communicator))?;
    Some(match &record.standing {
        Ok(member) => Ok(member),
        Err(why) => Err(*why),
    })
}

/// The same; a communicator that is met for the first time gets its twin now. All its ranks call this.
#[inline]
pub(crate) fn member_or_form(
    job: &MpiJob,
    communicator: usize,
) -> Result<&'static OffloadedCommunicator, FallbackReason> {
    member(job, communicator).unwrap_or_else(|| form(job, job.abi.handle(communicator)))
}

/// The same, for calls that may not wait for others.
#[inline]
pub(crate) fn member_if_formed(
    job: &MpiJob,
    communicator: usize,
) -> Result<&'static OffloadedCommunicator, FallbackReason> {
    member(job, communicator).unwrap_or(Err(FallbackReason::NotYetFormed))
}

#[cold]
fn form(job: &MpiJob, handle: usize) -> Result<&'static OffloadedCommunicator, FallbackReason> {
    if handle == job.abi.null_communicator || handle == 0 {
        return Err(FallbackReason::Argument);
    }
    if IS_FORMING.replace(true) {
        return Err(FallbackReason::NotYetFormed);
    }
    let standing = twin(job, handle);
    IS_FORMING.set(false);
    if matches!(standing, Err(FallbackReason::Argument)) {
        return Err(FallbackReason::Argument); // It is no communicator, and takes no attribute.
    }
    let record = insert(handle, CommunicatorRecord { standing });
    // Without the attribute nobody would tell that the communicator is freed. That does not happen short of lack of memory.
    // SAFETY: the communicator is the user's, the key is ours.
    let set = job.mpi.real.Comm_set_attr.map(|set| unsafe { invoke!(set; handle, job.key, handle) });
    if set != Some(0) {
        mpi_job::log("a communicator takes no attribute: Pleach cannot know when it is freed");
        std::process::abort();
    }
    match &record.standing {
        Ok(member) => Ok(member),
        Err(why) => Err(*why),
    }
}

/// Brings the ranks of a communicator together in Pleach.
fn twin(job: &MpiJob, handle: usize) -> Result<OffloadedCommunicator, FallbackReason> {
    let mut is_between_groups = 0_i32;
    let test = job.mpi.real.Comm_test_inter.ok_or(FallbackReason::NotFormed)?;
    // SAFETY: the user's communicator, and a place for the answer.
    if unsafe { invoke!(test; handle, &raw mut is_between_groups) } != 0 {
        return Err(FallbackReason::Argument);
    }
    if is_between_groups != 0 {
        return Err(FallbackReason::BetweenGroups);
    }
    let words = job.words(handle);
    let (rank, size) = words.place().ok_or(FallbackReason::Argument)?;
    if size == 1 {
        return Err(FallbackReason::Alone);
    }
    // Ranks of another world see that too, and do not wait for a word from us; they may not even have this library.
    let ranks = world_ranks(job, handle, size).ok_or(FallbackReason::Foreign)?;
    let world = job.world();
    let can = !recovery::has_failed() && world.is_some() && FORMED.load(Ordering::Relaxed) < MOST_FORMED;
    let context = loop {
        let mut registry = registry();
        let proposal = registry.next_context;
        registry.next_context += 1;
        drop(registry);
        let mut ballot = [i64::from(can), -i64::from(proposal)];
        words.least(&mut ballot).map_err(|BootstrapFailed| FallbackReason::NotFormed)?;
        if ballot[0] == 0 {
            return Err(FallbackReason::NotFormed);
        }
        // Two threads of a process may agree on the same number with different others: then all try again.
        let context = u32::try_from(-ballot[1]).map_err(|_| FallbackReason::NotFormed)?;
        let mut registry = self::registry();
        registry.next_context = registry.next_context.max(context + 1);
        let is_free = registry.contexts.insert(context);
        drop(registry);
        match words.all(rank, is_free) {
            Ok(()) => break context,
            Err(_) if is_free => drop(self::registry().contexts.remove(&context)),
            Err(_) => {}
        }
    };
    FORMED.fetch_add(1, Ordering::Relaxed);
    let world = world.ok_or(FallbackReason::NotFormed)?;
    let formed =
        world.bring_together(context, ranks).map(|communicator| OffloadedCommunicator::new(communicator, context));
    match words.all(rank, formed.is_ok()) {
        Ok(()) => {
            EVER_FORMED.fetch_add(1, Ordering::Relaxed);
            formed.map_err(|_| FallbackReason::NotFormed)
        }
        Err(who) => {
            if let Err(error) = &formed {
                registry().contexts.remove(&context);
                FORMED.fetch_sub(1, Ordering::Relaxed);
                if who == Some(rank) {
                    mpi_job::log(&format!("a communicator of {size} ranks is left to the MPI: {error}"));
                }
            }
            Err(FallbackReason::NotFormed)
        }
    }
}

/// The ranks of a communicator, as the world counts them; none if some are not of this world.
fn world_ranks(job: &MpiJob, handle: usize, size: u32) -> Option<Vec<u32>> {
    let real = &job.mpi.real;
    let (mut group, mut world) = (0_usize, 0_usize);
    let own: Vec<i32> = (0..size as i32).collect();
    let mut theirs = vec![-1_i32; own.len()];
    // SAFETY: groups are handles, which fit a word, and the lists are as long as said. Little-endian: a handle of 32 bits is the lower
    // half of its word.
    unsafe {
        invoke!(real.Comm_group?; handle, &raw mut group);
        invoke!(real.Comm_group?; job.abi.world, &raw mut world);
        invoke!(real.Group_translate_ranks?; group, own.len(), own.as_ptr(), world, theirs.as_mut_ptr());
        invoke!(real.Group_free?; &raw mut group);
        invoke!(real.Group_free?; &raw mut world);
    }
    theirs.into_iter().map(|rank| u32::try_from(rank).ok().filter(|rank| *rank < job.size)).collect()
}

/// The world has its twin from the start.
pub(crate) fn enter_world(job: &MpiJob, communicator: Communicator) {
    FORMED.fetch_add(1, Ordering::Relaxed);
    EVER_FORMED.fetch_add(1, Ordering::Relaxed);
    insert(job.abi.world, CommunicatorRecord { standing: Ok(OffloadedCommunicator::new(communicator, 0)) });
}

/// A key for attributes of communicators whose deletion is told to us.
pub(crate) fn create_key(mpi: &NativeMpi) -> Option<i32> {
    let mut key = 0_i32;
    // SAFETY: the functions are of the types that the standard wants, and live as long as the process.
    let status = unsafe {
        invoke!(mpi.real.Comm_create_keyval?; do_not_copy as *const (), forget as *const (), &raw mut key, 0_usize)
    };
    (status == 0).then_some(key)
}

/// A copy of a communicator is another one.
extern "C" fn do_not_copy(_: usize, _: c_int, _: usize, _: usize, _: usize, is_copied: Option<&mut c_int>) -> c_int {
    if let Some(is_copied) = is_copied {
        *is_copied = 0;
    }
    0
}

/// A communicator is freed. Its handle came as the attribute's value, whole.
extern "C" fn forget(_: usize, _: c_int, handle: usize, _: usize) -> c_int {
    remove(handle);
    0
}
