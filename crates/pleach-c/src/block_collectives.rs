//! Collectives in which ranks contribute or get different parts of a vector.

use std::ffi::c_int;

use pleach::Communicator;

use super::{CommunicatorHandle, communicator_of, reduction_of, slice};
use crate::status::{PleachStatus, guard, invalid_argument};

/// The caller's bytes, which are only read.
///
/// # Safety
/// `count` elements are there, and nobody changes them while they are borrowed.
unsafe fn input_slice<'a, T>(place: *const T, count: usize) -> Result<&'a [T], PleachStatus> {
    if count == 0 {
        return Ok(&[]);
    }
    if place.is_null() || !place.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(invalid_argument("the input is NULL, misaligned or too long"));
    }
    // SAFETY: the caller guarantees it.
    Ok(unsafe { std::slice::from_raw_parts(place, count) })
}

/// The blocks of all ranks together.
fn total(communicator: &Communicator, bytes: usize) -> Result<usize, PleachStatus> {
    bytes.checked_mul(communicator.size() as usize).ok_or_else(|| invalid_argument("too many bytes"))
}

/// One count per rank, this rank's, and their sum.
///
/// # Safety
/// As many counts as ranks are there.
unsafe fn counts_of<'a>(
    communicator: &Communicator,
    counts: *const usize,
) -> Result<(&'a [usize], usize, usize), PleachStatus> {
    // SAFETY: the caller guarantees it.
    let counts = unsafe { input_slice(counts, communicator.size() as usize) }?;
    let total = counts.iter().try_fold(0_usize, |sum, count| sum.checked_add(*count));
    let total = total.ok_or_else(|| invalid_argument("too many bytes"))?;
    Ok((counts, counts[communicator.rank() as usize], total))
}

/// What a rank has to pass where only the root's buffer counts.
fn at_root(communicator: &Communicator, root: u32, bytes: usize) -> usize {
    if communicator.rank() == root { bytes } else { 0 }
}

/// A reduce-scatter of equal blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_reduce_scatter(
    communicator: Option<&CommunicatorHandle>,
    input: *const u8,
    output: *mut u8,
    count: usize,
    element: c_int,
    operator: c_int,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        let (kind, length) = reduction_of(count, element, operator)?;
        let lengths = vec![length; communicator.size() as usize];
        // SAFETY: the header requires it of the caller.
        let (input, output) = unsafe { (input_slice(input, total(communicator, length)?)?, slice(output, length)?) };
        Ok(communicator.reduce_scatter_v_bytes(input, output, &lengths, kind)?)
    })
}

/// A reduce-scatter of different blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_reduce_scatter_v(
    communicator: Option<&CommunicatorHandle>,
    input: *const u8,
    output: *mut u8,
    counts: *const usize,
    element: c_int,
    operator: c_int,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        // SAFETY: the header requires it of the caller.
        let (counts, own, all) = unsafe { counts_of(communicator, counts) }?;
        let (kind, length) = reduction_of(own, element, operator)?;
        let (_, all_bytes) = reduction_of(all, element, operator)?;
        let lengths: Vec<usize> = counts.iter().map(|count| count * kind.element_size()).collect();
        // SAFETY: the header requires it of the caller.
        let (input, output) = unsafe { (input_slice(input, all_bytes)?, slice(output, length)?) };
        Ok(communicator.reduce_scatter_v_bytes(input, output, &lengths, kind)?)
    })
}

/// A scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_scan(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut u8,
    count: usize,
    element: c_int,
    operator: c_int,
) -> PleachStatus {
    guard(|| {
        let (kind, length) = reduction_of(count, element, operator)?;
        // SAFETY: the header requires it of the caller.
        Ok(communicator_of(communicator)?.scan_bytes(unsafe { slice(vector, length) }?, kind)?)
    })
}

/// An exclusive scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_exclusive_scan(
    communicator: Option<&CommunicatorHandle>,
    vector: *mut u8,
    count: usize,
    element: c_int,
    operator: c_int,
) -> PleachStatus {
    guard(|| {
        let (kind, length) = reduction_of(count, element, operator)?;
        // SAFETY: the header requires it of the caller.
        Ok(communicator_of(communicator)?.exclusive_scan_bytes(unsafe { slice(vector, length) }?, kind)?)
    })
}

/// An allgather of equal blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_all_gather(
    communicator: Option<&CommunicatorHandle>,
    input: *const u8,
    output: *mut u8,
    bytes: usize,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        // SAFETY: the header requires it of the caller.
        let (input, output) = unsafe { (input_slice(input, bytes)?, slice(output, total(communicator, bytes)?)?) };
        Ok(communicator.all_gather(input, output)?)
    })
}

/// An allgather of different blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_all_gather_v(
    communicator: Option<&CommunicatorHandle>,
    input: *const u8,
    output: *mut u8,
    byte_counts: *const usize,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        // SAFETY: the header requires it of the caller.
        let (counts, own, all) = unsafe { counts_of(communicator, byte_counts) }?;
        // SAFETY: as above.
        let (input, output) = unsafe { (input_slice(input, own)?, slice(output, all)?) };
        Ok(communicator.all_gather_v(input, output, counts)?)
    })
}

/// A gather of equal blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_gather(
    communicator: Option<&CommunicatorHandle>,
    input: *const u8,
    output: *mut u8,
    bytes: usize,
    root: u32,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        let all = at_root(communicator, root, total(communicator, bytes)?);
        // SAFETY: the header requires it of the caller.
        let (input, output) = unsafe { (input_slice(input, bytes)?, slice(output, all)?) };
        Ok(communicator.gather(input, output, root)?)
    })
}

/// A gather of different blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_gather_v(
    communicator: Option<&CommunicatorHandle>,
    input: *const u8,
    output: *mut u8,
    byte_counts: *const usize,
    root: u32,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        // SAFETY: the header requires it of the caller.
        let (counts, own, all) = unsafe { counts_of(communicator, byte_counts) }?;
        // SAFETY: as above.
        let (input, output) = unsafe { (input_slice(input, own)?, slice(output, at_root(communicator, root, all))?) };
        Ok(communicator.gather_v(input, output, counts, root)?)
    })
}

/// A scatter of equal blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_scatter(
    communicator: Option<&CommunicatorHandle>,
    input: *const u8,
    output: *mut u8,
    bytes: usize,
    root: u32,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        let all = at_root(communicator, root, total(communicator, bytes)?);
        // SAFETY: the header requires it of the caller.
        let (input, output) = unsafe { (input_slice(input, all)?, slice(output, bytes)?) };
        Ok(communicator.scatter(input, output, root)?)
    })
}

/// A scatter of different blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_scatter_v(
    communicator: Option<&CommunicatorHandle>,
    input: *const u8,
    output: *mut u8,
    byte_counts: *const usize,
    root: u32,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        // SAFETY: the header requires it of the caller.
        let (counts, own, all) = unsafe { counts_of(communicator, byte_counts) }?;
        // SAFETY: as above.
        let (input, output) = unsafe { (input_slice(input, at_root(communicator, root, all))?, slice(output, own)?) };
        Ok(communicator.scatter_v(input, output, counts, root)?)
    })
}

/// An alltoall.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_all_to_all(
    communicator: Option<&CommunicatorHandle>,
    input: *const u8,
    output: *mut u8,
    bytes: usize,
) -> PleachStatus {
    guard(|| {
        let communicator = communicator_of(communicator)?;
        let all = total(communicator, bytes)?;
        // SAFETY: the header requires it of the caller.
        let (input, output) = unsafe { (input_slice(input, all)?, slice(output, all)?) };
        Ok(communicator.all_to_all(input, output)?)
    })
}
