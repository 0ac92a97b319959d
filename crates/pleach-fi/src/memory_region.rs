//! Memory regions. Messages need no registration; the calls succeed for applications that register anyway.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::*;
use crate::objects::{hand_out, head, take_back};
use crate::unsupported::{no_control, object_ops};

static REGION_FID: FiOps = object_ops(close_region, bind_region, no_control);
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

fn region(context: *mut c_void) -> FidMr {
    let fid = head(FI_CLASS_MR, context, &REGION_FID);
    FidMr { fid, mem_desc: std::ptr::null_mut(), key: NEXT_KEY.fetch_add(1, Ordering::Relaxed) }
}

pub(crate) unsafe extern "C" fn register(
    _: *mut Fid,
    _: *const c_void,
    _: usize,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    place: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller wants the pointer there.
    unsafe { hand_out(region(context), place) };
    0
}

pub(crate) unsafe extern "C" fn register_list(
    _: *mut Fid,
    _: *const Iovec,
    _: usize,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    place: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    unsafe { hand_out(region(context), place) };
    0
}

pub(crate) unsafe extern "C" fn register_attributes(
    _: *mut Fid,
    _: *const c_void,
    _: u64,
    place: *mut *mut FidMr,
) -> c_int {
    // SAFETY: as above.
    unsafe { hand_out(region(std::ptr::null_mut()), place) };
    0
}

unsafe extern "C" fn close_region(fid: *mut Fid) -> c_int {
    // SAFETY: the application closes a region that it registered.
    drop(unsafe { take_back::<FidMr>(fid) });
    0
}

unsafe extern "C" fn bind_region(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    0
}
