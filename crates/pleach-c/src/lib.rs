//! Pleach for C. The header `include/pleach.h` documents each function; here each is mapped to the `pleach` crate.
//!
//! A panic becomes `PLEACH_INTERNAL` and never unwinds into C. Handles are boxes; a null pointer is `None`.

#![allow(clippy::missing_safety_doc)] // The header states the duties of callers, for all functions at once.

pub mod block_collectives;
mod status;

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use pleach::{Communicator, ElementType, LentRequest, Operator, ReductionKind};

use status::{PleachStatus, guard, join_failure};

/// A communicator, as C holds it.
pub struct CommunicatorHandle {
    communicator: Communicator,
}

/// A non-blocking operation, as C holds it.
pub struct RequestHandle {
    request: LentRequest,
}

/// Where the caller wants a handle; uninitialized before.
type HandleOut<'a, T> = Option<&'a mut MaybeUninit<Option<Box<T>>>>;

/// The communicator behind a handle.
fn communicator_of(handle: Option<&CommunicatorHandle>) -> Result<&Communicator, PleachStatus> {
    handle.map(|handle| &handle.communicator).ok_or_else(|| status::invalid_argument("the communicator is NULL"))
}

/// A slice over the caller's elements.
///
/// # Safety
/// `count` elements are there, and no other thread uses them while they are borrowed.
unsafe fn slice<'a, T>(place: *mut T, count: usize) -> Result<&'a mut [T], PleachStatus> {
    if count == 0 {
        return Ok(&mut []);
    }
    if place.is_null() || !place.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(status::invalid_argument("the vector is NULL, misaligned or too long"));
    }
    // SAFETY: the caller guarantees it.
    Ok(unsafe { std::slice::from_raw_parts_mut(place, count) })
}

/// The kind of a reduction, and the bytes of `count` elements.
fn reduction_of(count: usize, element: c_int, operator: c_int) -> Result<(ReductionKind, usize), PleachStatus> {
    let kind = kind(element, operator).ok_or_else(|| {
        status::invalid_argument(&format!(
            "type {element} or operator {operator} is unknown, or the operator is undefined for the type"
        ))
    })?;
    let length =
        count.checked_mul(kind.element_size()).ok_or_else(|| status::invalid_argument("too many elements"))?;
    Ok((kind, length))
}

fn kind(element: c_int, operator: c_int) -> Option<ReductionKind> {
    let element = ElementType::from_code(u8::try_from(element).ok()?)?;
    let operator = Operator::from_code(u8::try_from(operator).ok()?)?;
    // The types above F64 carry exact sums and are internal.
    (element <= ElementType::F64).then(|| ReductionKind::new(element, operator).ok())?
}

/// Stores a handle for the caller.
fn write_handle<T>(place: HandleOut<'_, T>, value: Option<T>) -> Result<(), PleachStatus> {
    let place = place.ok_or_else(|| status::invalid_argument("the place for the handle is NULL"))?;
    place.write(value.map(Box::new));
    Ok(())
}

/// See `pleach.h`, as for all functions.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_join(world: HandleOut<'_, CommunicatorHandle>) -> PleachStatus {
    guard(|| write_handle(world, Some(CommunicatorHandle { communicator: pleach::join().map_err(join_failure)? })))
}

/// Frees a communicator.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_free(communicator: Option<Box<CommunicatorHandle>>) {
    guard(|| {
        drop(communicator);
        Ok(())
    });
}

/// The caller's rank.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_rank(communicator: Option<&CommunicatorHandle>) -> u32 {
    communicator_of(communicator).map_or(0, Communicator::rank)
}

/// The number of ranks.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_size(communicator: Option<&CommunicatorHandle>) -> u32 {
    communicator_of(communicator).map_or(0, Communicator::size)
}

/// Duplicates a communicator.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_dup(
    communicator: Option<&CommunicatorHandle>,
    copy: HandleOut<'_, CommunicatorHandle>,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?.dup().map_err(join_failure)?;
        write_handle(copy, Some(CommunicatorHandle { communicator }))
    })
}

/// Splits a communicator.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_split(
    communicator: Option<&CommunicatorHandle>,
    colour: i32,
    key: i32,
    part: HandleOut<'_, CommunicatorHandle>,
) -> PleachStatus {
    guard(|| {
        let split = communicator_of(communicator)?.split(u32::try_from(colour).ok(), key).map_err(join_failure)?;
        write_handle(part, split.map(|communicator| CommunicatorHandle { communicator }))
    })
}

/// A communicator of the ranks that are not lost.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_shrink(
    communicator: Option<&CommunicatorHandle>,
    survivors: HandleOut<'_, CommunicatorHandle>,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?.shrink().map_err(join_failure)?;
        write_handle(survivors, Some(CommunicatorHandle { communicator }))
    })
}

/// Agreement of the ranks that are not lost: replaces the bits by those that all of them have set.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_agree(communicator: Option<&CommunicatorHandle>, bits: Option<&mut u64>) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        let bits = bits.ok_or_else(|| status::invalid_argument("bits is NULL"))?;
        *bits = communicator.agree(*bits)?;
        Ok(())
    })
}

/// Revokes a communicator: every operation in it fails, at every rank.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_revoke(communicator: Option<&CommunicatorHandle>) -> PleachStatus {
    guard(|| {
        communicator_of(communicator)?.revoke("the application called pleach_revoke");
        Ok(())
    })
}

/// A barrier.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_barrier(communicator: Option<&CommunicatorHandle>) -> PleachStatus {
    guard(|| Ok(communicator_of(communicator)?.barrier()?))
}

/// A broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_broadcast(
    communicator: Option<&CommunicatorHandle>,
    buffer: *mut u8,
    length: usize,
    root: u32,
) -> PleachStatus {
    // SAFETY: the header requires it of the caller.
    guard(|| Ok(communicator_of(communicator)?.broadcast(unsafe { slice(buffer, length) }?, root)?))
}

/// An allreduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_all_reduce(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut u8,
    count: usize,
    element: c_int,
    operator: c_int,
) -> PleachStatus {
    guard(|| {
        let (kind, length) = reduction_of(count, element, operator)?;
        // SAFETY: the header requires it of the caller.
        let vector = unsafe { slice(vector, length) }?;
        Ok(communicator_of(communicator)?.all_reduce_bytes(vector, kind)?)
    })
}

/// A reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_reduce(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut u8,
    count: usize,
    element: c_int,
    operator: c_int,
    root: u32,
) -> PleachStatus {
    guard(|| {
        let (kind, length) = reduction_of(count, element, operator)?;
        // SAFETY: the header requires it of the caller.
        let vector = unsafe { slice(vector, length) }?;
        Ok(communicator_of(communicator)?.reduce_bytes(vector, kind, root)?)
    })
}

/// An exact sum of `float`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_all_reduce_exact_f32(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut f32,
    count: usize,
) -> PleachStatus {
    // SAFETY: the header requires it of the caller.
    guard(|| Ok(communicator_of(communicator)?.all_reduce_exact(unsafe { slice(vector, count) }?)?))
}

/// An exact sum of `double`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_all_reduce_exact_f64(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut f64,
    count: usize,
) -> PleachStatus {
    // SAFETY: the header requires it of the caller.
    guard(|| Ok(communicator_of(communicator)?.all_reduce_exact(unsafe { slice(vector, count) }?)?))
}

/// Starts a barrier.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_start_barrier(
    communicator: Option<&CommunicatorHandle>,
    request: HandleOut<'_, RequestHandle>,
) -> PleachStatus {
    guard(|| {
        let started = communicator_of(communicator)?.start_lent_barrier()?;
        write_handle(request, Some(RequestHandle { request: started }))
    })
}

/// Starts a broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_start_broadcast(
    communicator: Option<&CommunicatorHandle>,
    buffer: *mut u8,
    length: usize,
    root: u32,
    request: HandleOut<'_, RequestHandle>,
) -> PleachStatus {
    guard(|| {
        // SAFETY: the header requires it of the caller, until the request has been waited for.
        let started = unsafe {
            let bytes = slice(buffer, length)?;
            communicator_of(communicator)?.start_lent_broadcast(bytes.as_mut_ptr(), length, root)?
        };
        write_handle(request, Some(RequestHandle { request: started }))
    })
}

/// Starts an allreduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_start_all_reduce(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut u8,
    count: usize,
    element: c_int,
    operator: c_int,
    request: HandleOut<'_, RequestHandle>,
) -> PleachStatus {
    guard(|| {
        let (kind, length) = reduction_of(count, element, operator)?;
        // SAFETY: the header requires it of the caller, until the request has been waited for.
        let started = unsafe {
            let bytes = slice(vector, length)?;
            communicator_of(communicator)?.start_lent_all_reduce(bytes.as_mut_ptr(), length, kind)?
        };
        write_handle(request, Some(RequestHandle { request: started }))
    })
}

/// Starts a reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_start_reduce(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut u8,
    count: usize,
    element: c_int,
    operator: c_int,
    root: u32,
    request: HandleOut<'_, RequestHandle>,
) -> PleachStatus {
    guard(|| {
        let (kind, length) = reduction_of(count, element, operator)?;
        // SAFETY: the header requires it of the caller, until the request has been waited for.
        let started = unsafe {
            let bytes = slice(vector, length)?;
            communicator_of(communicator)?.start_lent_reduce(bytes.as_mut_ptr(), length, kind, root)?
        };
        write_handle(request, Some(RequestHandle { request: started }))
    })
}

/// Whether an operation is complete.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_test(request: Option<&RequestHandle>) -> c_int {
    let mut is_complete = true;
    guard(|| {
        is_complete = request.is_none_or(|started| started.request.test());
        Ok(())
    });
    c_int::from(is_complete)
}

/// Blocks until an operation is complete.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_wait(request: Option<Box<RequestHandle>>) -> PleachStatus {
    guard(|| Ok(request.map_or(Ok(()), |started| started.request.wait())?))
}

/// The message of the last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_message() -> *const c_char {
    status::message()
}

/// The first rank of the last `PLEACH_RANK_LOST` of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_lost_rank() -> u32 {
    status::with_lost_ranks(|ranks| ranks.first().copied().unwrap_or(0))
}

/// The ranks of the last `PLEACH_RANK_LOST` or `PLEACH_CUT_OFF` of this thread: writes at most `capacity` of them, and returns how many
/// there are.
///
/// # Safety
/// `ranks` has room for `capacity` numbers, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_lost_ranks(ranks: *mut u32, capacity: usize) -> usize {
    status::with_lost_ranks(|lost| {
        if !ranks.is_null() {
            // SAFETY: the caller's promise.
            unsafe { lost.as_ptr().copy_to_nonoverlapping(ranks, lost.len().min(capacity)) };
        }
        lost.len()
    })
}

/// Bytes of one element.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_element_size(element: c_int, operator: c_int) -> usize {
    kind(element, operator).map_or(0, |kind| kind.element_size())
}
