//! Pleach for C. The header, `include/pleach.h`, says what each function does; here is how it reaches `pleach`.
//!
//! Nothing unwinds into C: a panic becomes `PLEACH_BROKEN`. Handles are boxes; a null pointer is `None`.

#![allow(clippy::missing_safety_doc)] // What callers owe is in the header, for all functions at once.

mod status;

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use pleach::{Communicator, ElementType, Operator, ReductionKind, Request};

use status::{PleachStatus, guard, no_job};

/// A communicator, as C holds it.
pub struct CommunicatorHandle {
    communicator: Communicator,
}

/// An operation under way, as C holds it.
pub struct RequestHandle {
    request: Request<'static, u8>,
}

/// A place for a handle, which may hold anything before.
type HandleOut<'a, T> = Option<&'a mut MaybeUninit<Option<Box<T>>>>;

/// The communicator behind a handle.
fn reach(handle: Option<&CommunicatorHandle>) -> Result<&Communicator, PleachStatus> {
    handle.map(|handle| &handle.communicator).ok_or_else(|| status::argument("no communicator"))
}

/// The caller's elements.
///
/// # Safety
/// So many are there, and nobody else uses them while they are borrowed.
unsafe fn slice<'a, T>(place: *mut T, count: usize) -> Result<&'a mut [T], PleachStatus> {
    if count == 0 {
        return Ok(&mut []);
    }
    if place.is_null() || !place.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(status::argument("no vector, or one of an impossible length"));
    }
    // SAFETY: so the caller says.
    Ok(unsafe { std::slice::from_raw_parts_mut(place, count) })
}

/// What is folded, and the bytes of so many elements.
fn fold(count: usize, element: c_int, operator: c_int) -> Result<(ReductionKind, usize), PleachStatus> {
    let kind = kind(element, operator).ok_or_else(|| {
        status::argument(&format!("type {element} and operator {operator} are unknown, or do not go together"))
    })?;
    let length = count.checked_mul(kind.element_size()).ok_or_else(|| status::argument("too many elements"))?;
    Ok((kind, length))
}

fn kind(element: c_int, operator: c_int) -> Option<ReductionKind> {
    let element = ElementType::from_code(u8::try_from(element).ok()?)?;
    let operator = Operator::from_code(u8::try_from(operator).ok()?)?;
    // What exact sums travel as is no type for users.
    (element <= ElementType::F64).then(|| ReductionKind::new(element, operator).ok())?
}

/// Puts a handle where the caller wants it.
fn give<T>(place: HandleOut<'_, T>, value: Option<T>) -> Result<(), PleachStatus> {
    let place = place.ok_or_else(|| status::argument("no place for the handle"))?;
    place.write(value.map(Box::new));
    Ok(())
}

/// See `pleach.h`; so for all functions.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_join(world: HandleOut<'_, CommunicatorHandle>) -> PleachStatus {
    guard(|| give(world, Some(CommunicatorHandle { communicator: pleach::join().map_err(no_job)? })))
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
    reach(communicator).map_or(0, Communicator::rank)
}

/// How many ranks there are.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_size(communicator: Option<&CommunicatorHandle>) -> u32 {
    reach(communicator).map_or(0, Communicator::size)
}

/// A twin of a communicator.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_dup(
    communicator: Option<&CommunicatorHandle>,
    twin: HandleOut<'_, CommunicatorHandle>,
) -> PleachStatus {
    guard(|| {
        let communicator = reach(communicator)?.dup().map_err(no_job)?;
        give(twin, Some(CommunicatorHandle { communicator }))
    })
}

/// A part of a communicator.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_split(
    communicator: Option<&CommunicatorHandle>,
    colour: i32,
    key: i32,
    part: HandleOut<'_, CommunicatorHandle>,
) -> PleachStatus {
    guard(|| {
        let split = reach(communicator)?.split(u32::try_from(colour).ok(), key).map_err(no_job)?;
        give(part, split.map(|communicator| CommunicatorHandle { communicator }))
    })
}

/// A barrier.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_barrier(communicator: Option<&CommunicatorHandle>) -> PleachStatus {
    guard(|| Ok(reach(communicator)?.barrier()?))
}

/// A broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_broadcast(
    communicator: Option<&CommunicatorHandle>,
    buffer: *mut u8,
    length: usize,
    root: u32,
) -> PleachStatus {
    // SAFETY: the header demands it.
    guard(|| Ok(reach(communicator)?.broadcast(unsafe { slice(buffer, length) }?, root)?))
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
        let (kind, length) = fold(count, element, operator)?;
        // SAFETY: the header demands it.
        let vector = unsafe { slice(vector, length) }?;
        Ok(reach(communicator)?.all_reduce_bytes(vector, kind)?)
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
        let (kind, length) = fold(count, element, operator)?;
        // SAFETY: the header demands it.
        let vector = unsafe { slice(vector, length) }?;
        Ok(reach(communicator)?.reduce_bytes(vector, kind, root)?)
    })
}

/// An exact sum of floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_all_reduce_exact_f32(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut f32,
    count: usize,
) -> PleachStatus {
    // SAFETY: the header demands it.
    guard(|| Ok(reach(communicator)?.all_reduce_exact(unsafe { slice(vector, count) }?)?))
}

/// An exact sum of doubles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_all_reduce_exact_f64(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut f64,
    count: usize,
) -> PleachStatus {
    // SAFETY: the header demands it.
    guard(|| Ok(reach(communicator)?.all_reduce_exact(unsafe { slice(vector, count) }?)?))
}

/// Starts a barrier.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_start_barrier(
    communicator: Option<&CommunicatorHandle>,
    request: HandleOut<'_, RequestHandle>,
) -> PleachStatus {
    guard(|| give(request, Some(RequestHandle { request: reach(communicator)?.start_barrier()? })))
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
        // SAFETY: the header demands it, until the request has been waited for.
        let started = reach(communicator)?.start_broadcast(unsafe { slice(buffer, length) }?, root)?;
        give(request, Some(RequestHandle { request: started }))
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
        let (kind, length) = fold(count, element, operator)?;
        // SAFETY: the header demands it.
        let vector = unsafe { slice(vector, length) }?;
        let started = reach(communicator)?.start_all_reduce_bytes(vector, kind)?;
        give(request, Some(RequestHandle { request: started }))
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
        let (kind, length) = fold(count, element, operator)?;
        // SAFETY: the header demands it.
        let vector = unsafe { slice(vector, length) }?;
        let started = reach(communicator)?.start_reduce_bytes(vector, kind, root)?;
        give(request, Some(RequestHandle { request: started }))
    })
}

/// Whether an operation is over.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_test(request: Option<&RequestHandle>) -> c_int {
    let mut is_over = true;
    guard(|| {
        is_over = request.is_none_or(|started| started.request.test());
        Ok(())
    });
    c_int::from(is_over)
}

/// Waits for an operation.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_wait(request: Option<Box<RequestHandle>>) -> PleachStatus {
    guard(|| Ok(request.map_or(Ok(()), |started| started.request.wait())?))
}

/// What went wrong last in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_message() -> *const c_char {
    status::message()
}

/// The rank that was lost last, as this thread heard it.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_lost_rank() -> u32 {
    status::lost_rank()
}

/// Bytes of one element.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_element_size(element: c_int, operator: c_int) -> usize {
    kind(element, operator).map_or(0, |kind| kind.element_size())
}
