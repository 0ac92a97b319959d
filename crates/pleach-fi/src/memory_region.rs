//! Memory regions. Messages need no registration; what peers may read is kept by its key, which the application chooses (`mr_mode` 0).

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::*;
use crate::domain::Domain;
use crate::endpoint_state::EINVAL;
use crate::objects::{domain_of, hand_out, head, take_back};
use crate::registered_memory::RegisteredMemory;
use crate::unsupported::{no_control, object_ops};

static REGION_FID: FiOps = object_ops(close_region, bind_region, no_control);
/// Keys of memory that no peer uses.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);
/// Another region has the key.
const ENOKEY: c_int = 126;

/// A region, as the application holds it.
#[repr(C)]
struct RegionHandle {
    head: FidMr,
    /// Where peers find it; none if they may not use it.
    registered: Option<(Arc<Domain>, u64)>,
}

/// # Safety
/// `domain` is a live domain, and `place` is where the caller wants the pointer.
unsafe fn open_region(
    domain: *mut Fid,
    parts: &[Iovec],
    (access, key): (u64, u64),
    context: *mut c_void,
    place: *mut *mut FidMr,
) -> c_int {
    let fid = head(FI_CLASS_MR, context, &REGION_FID);
    let mut region = RegionHandle { head: FidMr { fid, mem_desc: std::ptr::null_mut(), key }, registered: None };
    if access & (FI_REMOTE_READ | FI_REMOTE_WRITE) == 0 {
        region.head.key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
    } else {
        let [part] = parts else { return -EINVAL };
        // SAFETY: as this function's caller promises.
        let domain = unsafe { domain_of(domain.cast()) };
        let regions = &mut domain.lock().queues.regions;
        if regions.contains_key(&key) {
            return -ENOKEY;
        }
        regions.insert(key, RegisteredMemory { start: part.base as usize, length: part.len, access });
        region.registered = Some((Arc::clone(domain), key));
    }
    // SAFETY: the caller wants the pointer there.
    unsafe { hand_out(region, place) };
    0
}

pub(crate) unsafe extern "C" fn register(
    domain: *mut Fid,
    start: *const c_void,
    length: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    place: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let part = Iovec { base: start.cast_mut(), len: length };
    // SAFETY: the arguments are the caller's.
    unsafe { open_region(domain, &[part], (access, key), context, place) }
}

pub(crate) unsafe extern "C" fn register_list(
    domain: *mut Fid,
    parts: *const Iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    place: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the list has so many entries.
    let parts = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(parts, count) } };
    // SAFETY: the arguments are the caller's.
    unsafe { open_region(domain, parts, (access, key), context, place) }
}

pub(crate) unsafe extern "C" fn register_attributes(
    domain: *mut Fid,
    attributes: *const c_void,
    _flags: u64,
    place: *mut *mut FidMr,
) -> c_int {
    // SAFETY: the caller passes attributes, and their list has so many entries.
    unsafe {
        let FiMrAttr { mr_iov, iov_count, access, requested_key, context, .. } = &*attributes.cast::<FiMrAttr>();
        let parts = if *iov_count == 0 { &[][..] } else { std::slice::from_raw_parts(*mr_iov, *iov_count) };
        open_region(domain, parts, (*access, *requested_key), *context, place)
    }
}

unsafe extern "C" fn close_region(fid: *mut Fid) -> c_int {
    // SAFETY: the application closes a region that it registered.
    let region = unsafe { take_back::<RegionHandle>(fid) };
    if let Some((domain, key)) = &region.registered {
        domain.lock().queues.regions.remove(key);
    }
    0
}

unsafe extern "C" fn bind_region(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    0
}
