//! Forms the offloaded communicator that belongs to a communicator of the native MPI.
//!
//! That happens at its first blocking call that Pleach could do: all its ranks make that call, and so can agree over the
//! communicator itself. An attribute of the communicator reports when it is freed, by whatever function, since its handle may then
//! denote another one.

use std::cell::Cell;
use std::ffi::c_int;

use crate::bootstrap_channel::BootstrapFailed;
use crate::choice_table;
use crate::collective_call::FallbackReason;
use crate::communicator_table::{self as table, OffloadedCommunicator};
use crate::configuration::ChoiceMode;
use crate::log::log;
use crate::mpi_job::{MpiJob, job};
use crate::native_mpi::{NativeMpi, invoke};
use crate::recovery;
use crate::ulfm;

thread_local! {
    /// True while this thread forms a communicator: collective calls that the native MPI makes meanwhile are not offloaded.
    static IS_FORMING: Cell<bool> = const { Cell::new(false) };
}

/// The offloaded communicator of a communicator, formed now if the communicator is new. Collective over its ranks.
#[inline]
pub(crate) fn lookup_or_form(
    job: &MpiJob,
    communicator: usize,
) -> Result<&'static OffloadedCommunicator, FallbackReason> {
    table::lookup(job, communicator).unwrap_or_else(|| form(job, job.abi.handle(communicator)))
}

#[cold]
fn form(job: &MpiJob, handle: usize) -> Result<&'static OffloadedCommunicator, FallbackReason> {
    if handle == job.abi.null_communicator || handle == 0 {
        return Err(FallbackReason::Argument);
    }
    if IS_FORMING.replace(true) {
        return Err(FallbackReason::NotYetFormed);
    }
    let formed = try_form(job, handle);
    IS_FORMING.set(false);
    if matches!(formed, Err(FallbackReason::Argument)) {
        return Err(FallbackReason::Argument); // Not a communicator, so it cannot have an attribute.
    }
    let found = table::insert(handle, formed);
    // SAFETY: the communicator is the user's, the key is ours.
    let set = job.mpi.real.Comm_set_attr.map(|set| unsafe { invoke!(set; handle, job.key, handle) });
    if set != Some(0) {
        // Without the attribute a freed handle would be mistaken for a later one. This fails only when memory runs out.
        log("MPI_Comm_set_attr failed, so Pleach cannot track when the communicator is freed; aborting");
        std::process::abort();
    }
    found.inspect(|offloaded| recovery::check_new(job, offloaded))
}

fn try_form(job: &MpiJob, handle: usize) -> Result<OffloadedCommunicator, FallbackReason> {
    let mut is_intercommunicator = 0_i32;
    let test = job.mpi.real.Comm_test_inter.ok_or(FallbackReason::NotFormed)?;
    // SAFETY: the user's communicator, and a place for the answer.
    if unsafe { invoke!(test; handle, &raw mut is_intercommunicator) } != 0 {
        return Err(FallbackReason::Argument);
    }
    if is_intercommunicator != 0 {
        return Err(FallbackReason::Intercommunicator);
    }
    let (rank, size) = job.channel(handle).rank_and_size().ok_or(FallbackReason::Argument)?;
    if size == 1 {
        return Err(FallbackReason::OneRank);
    }
    // Ranks of another world find that out as well, and do not wait for a message; they may not even have this library.
    let ranks = world_ranks(job, handle, size).ok_or(FallbackReason::OtherWorld)?;
    let context = agree_on_context(job, handle, rank)?;
    table::reserve();
    let world = job.world();
    let formed = world.map_or_else(
        || Err("the job is closed".to_owned()),
        |world| {
            let group = world.create_group(context, ranks).map_err(|error| error.to_string());
            group.map(|communicator| OffloadedCommunicator::new(job, communicator, context))
        },
    );
    match job.channel(handle).all_agree(rank, formed.is_ok()) {
        Ok(()) => {
            table::count_formed();
            let formed = formed.map_err(|_| FallbackReason::NotFormed)?;
            let formed = create_recovery_communicator(job, handle, formed).ok_or(FallbackReason::NotFormed)?;
            inherit_choices(job, handle, &formed);
            Ok(formed)
        }
        Err(dissenter) => {
            if let Err(error) = &formed {
                table::release_context(context);
                table::unreserve();
                if dissenter == Some(rank) {
                    log(&format!("the native MPI serves a communicator of {size} ranks: {error}"));
                }
            }
            Err(FallbackReason::NotFormed)
        }
    }
}

/// Creates the communicator of the native MPI on which the ranks recover, if they are on several hosts. Collective; `None` at all ranks
/// if the native MPI cannot create one.
pub(crate) fn create_recovery_communicator(
    job: &MpiJob,
    handle: usize,
    formed: OffloadedCommunicator,
) -> Option<OffloadedCommunicator> {
    if !formed.is_between_hosts() {
        return Some(formed);
    }
    // Not a duplicate: that would call the program's functions for its attributes.
    let created = same_ranks(job, handle);
    let channel = job.channel(handle);
    let all_created = channel.all_agree(formed.position.rank, created.is_some()).is_ok();
    created.filter(|_| all_created).map(|created| {
        ulfm::prepare_own_communicator(job, created);
        formed.with_recovery_handle(created)
    })
}

/// A new communicator with the same ranks.
fn same_ranks(job: &MpiJob, handle: usize) -> Option<usize> {
    let real = &job.mpi.real;
    let (mut group, mut created) = (0_usize, 0_usize);
    // SAFETY: handles fit a word; on a little-endian machine a handle of 32 bits is the lower half of its word.
    let status = unsafe {
        invoke!(real.Comm_group?; handle, &raw mut group);
        let status = invoke!(real.Comm_create?; handle, group, &raw mut created);
        invoke!(real.Group_free?; &raw mut group);
        status
    };
    (status == 0 && created != 0 && created != job.abi.null_communicator).then_some(created)
}

/// Starts with the choices of communicators of the same layout, if all ranks have learned the same there.
fn inherit_choices(job: &MpiJob, handle: usize, formed: &OffloadedCommunicator) {
    if job.choice != ChoiceMode::Measure {
        return;
    }
    let learned = choice_table::learned((formed.position.size, formed.communicator.hosts()));
    let mut digests = [learned.digest(), -learned.digest()];
    if job.channel(handle).all_reduce_min(&mut digests).is_ok() && digests[0] == -digests[1] {
        formed.choices.inherit(learned);
    }
}

/// Agrees on a context that no rank uses, if all ranks can form a communicator.
fn agree_on_context(job: &MpiJob, handle: usize, rank: u32) -> Result<u32, FallbackReason> {
    let channel = job.channel(handle);
    let can_form = !recovery::has_failed() && job.world().is_some() && table::has_room();
    loop {
        let mut ballot = [i64::from(can_form), -i64::from(table::propose_context())];
        channel.all_reduce_min(&mut ballot).map_err(|BootstrapFailed| FallbackReason::NotFormed)?;
        if ballot[0] == 0 {
            return Err(FallbackReason::NotFormed);
        }
        // Two threads of a process may agree on the same context with different ranks: then all try again.
        let context = u32::try_from(-ballot[1]).map_err(|_| FallbackReason::NotFormed)?;
        let is_free = table::reserve_context(context);
        match channel.all_agree(rank, is_free) {
            Ok(()) => return Ok(context),
            Err(_) if is_free => table::release_context(context),
            Err(_) => {}
        }
    }
}

/// The ranks of a communicator in `MPI_COMM_WORLD`; none if some are of another world.
fn world_ranks(job: &MpiJob, handle: usize, size: u32) -> Option<Vec<u32>> {
    let real = &job.mpi.real;
    let (mut group, mut world) = (0_usize, 0_usize);
    let own: Vec<i32> = (0..size as i32).collect();
    let mut translated = vec![-1_i32; own.len()];
    // SAFETY: groups are handles, which fit a word, and both lists have `own.len()` elements. On a little-endian machine a handle of
    // 32 bits is the lower half of its word.
    unsafe {
        invoke!(real.Comm_group?; handle, &raw mut group);
        invoke!(real.Comm_group?; job.abi.world, &raw mut world);
        invoke!(real.Group_translate_ranks?; group, own.len(), own.as_ptr(), world, translated.as_mut_ptr());
        invoke!(real.Group_free?; &raw mut group);
        invoke!(real.Group_free?; &raw mut world);
    }
    translated.into_iter().map(|rank| u32::try_from(rank).ok().filter(|rank| *rank < job.size)).collect()
}

/// Creates the key of the attribute whose deletion callback removes a communicator from the table.
pub(crate) fn create_key(mpi: &NativeMpi) -> Option<i32> {
    let mut key = 0_i32;
    // SAFETY: the functions have the types that the standard requires, and live as long as the process.
    let status = unsafe {
        invoke!(mpi.real.Comm_create_keyval?; do_not_copy as *const (), on_delete as *const (), &raw mut key, 0_usize)
    };
    (status == 0).then_some(key)
}

/// The attribute is not copied: a duplicate is another communicator.
extern "C" fn do_not_copy(_: usize, _: c_int, _: usize, _: usize, _: usize, is_copied: Option<&mut c_int>) -> c_int {
    if let Some(is_copied) = is_copied {
        *is_copied = 0;
    }
    0
}

/// A communicator is freed. The attribute's value is its handle.
extern "C" fn on_delete(_: usize, _: c_int, handle: usize, _: usize) -> c_int {
    let mut recovery_handle = recovery::forget(handle);
    if let (Some(job), true) = (job(), recovery_handle != 0)
        && let Some(free) = job.mpi.real.Comm_free
    {
        // SAFETY: our own communicator. All ranks are in the function that frees the program's one.
        unsafe { invoke!(free; &raw mut recovery_handle) };
    }
    0
}
