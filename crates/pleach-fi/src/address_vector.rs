//! Address vectors: handles for addresses. As map and as table the handles are indices, which are never used again.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use crate::abi::*;
use crate::endpoint_address::{ADDRESS_BYTES, EndpointAddress};
use crate::endpoint_state::{EINVAL, ENOENT};
use crate::event_queue::report_insertion;
use crate::objects::{AvObject, domain_of, hand_out, head, object, take_back};
use crate::queues::AddressVector;
use crate::unsupported::{no_control, object_ops, unsupported};

static AV_FID: FiOps = object_ops(close_vector, bind_vector, no_control);
static AV: FiOpsAv = FiOpsAv {
    size: size_of::<FiOpsAv>(),
    insert,
    insertsvc: unsupported,
    insertsym: unsupported,
    remove,
    lookup,
    straddr: to_text,
    av_set: unsupported,
    insert_auth_key: unsupported,
    lookup_auth_key: unsupported,
    set_user_id: unsupported,
    lookup2: unsupported,
};

pub(crate) unsafe extern "C" fn open_vector(
    domain: *mut FidDomain,
    attributes: *mut FiAvAttr,
    place: *mut *mut Fid,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the application passes a domain that it opened.
    let domain = unsafe { domain_of(domain) };
    // SAFETY: the attributes are valid by the interface.
    if let Some(attributes) = unsafe { attributes.as_mut() } {
        if attributes.rx_ctx_bits > 0 || !attributes.name.is_null() {
            return -(crate::endpoint_state::ENOSYS); // Neither scalable endpoints nor vectors that processes share.
        }
        if attributes.kind == 0 {
            attributes.kind = FI_AV_TABLE;
        }
    }
    let number = domain.lock().queues.vectors.add(AddressVector::default());
    let head = FidWith { fid: head(FI_CLASS_AV, context, &AV_FID), ops: &AV };
    // SAFETY: the caller wants the pointer there.
    unsafe { hand_out(AvObject { head, domain: Arc::clone(domain), number }, place) };
    0
}

unsafe extern "C" fn insert(
    fid: *mut Fid,
    addresses: *const c_void,
    count: usize,
    handles: *mut FiAddr,
    _flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the application passes a vector that it opened.
    let vector = unsafe { object::<AvObject>(fid) };
    let mut state = vector.domain.lock();
    let Some(found) = state.queues.vectors.get_mut(vector.number) else { return -EINVAL };
    let mut inserted = 0;
    for index in 0..count {
        // SAFETY: the application passes `count` addresses of this provider's length.
        let bytes =
            unsafe { std::slice::from_raw_parts(addresses.cast::<u8>().add(index * ADDRESS_BYTES), ADDRESS_BYTES) };
        // An address without a secret is not from `fi_getname`: anyone could compute its MACs.
        let address = EndpointAddress::parse(bytes).filter(EndpointAddress::has_secret);
        let handle = address.map(|address| found.insert(address));
        inserted += u64::from(handle.is_some());
        if !handles.is_null() {
            // SAFETY: the application's list has `count` places.
            unsafe { *handles.add(index) = handle.unwrap_or(FI_ADDR_NOTAVAIL) };
        }
    }
    let queue = found.event_queue;
    drop(state);
    match queue {
        Some(queue) => {
            // SAFETY: the queue was bound, and lives longer than the vector by the interface.
            unsafe { report_insertion(queue as *const Fid, fid, context, inserted) };
            0
        }
        None => inserted as c_int,
    }
}

unsafe extern "C" fn remove(fid: *mut Fid, handles: *mut FiAddr, count: usize, _flags: u64) -> c_int {
    // SAFETY: the application passes a vector that it opened.
    let vector = unsafe { object::<AvObject>(fid) };
    let mut state = vector.domain.lock();
    let Some(found) = state.queues.vectors.get_mut(vector.number) else { return -EINVAL };
    let mut outcome = 0;
    for index in 0..count {
        // SAFETY: the application's list has `count` entries.
        if !found.remove(unsafe { *handles.add(index) }) {
            outcome = -ENOENT;
        }
    }
    outcome
}

unsafe extern "C" fn lookup(fid: *mut Fid, handle: FiAddr, target: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: the application passes a vector that it opened.
    let vector = unsafe { object::<AvObject>(fid) };
    let state = vector.domain.lock();
    let Some(address) = state.queues.vectors.get(vector.number).and_then(|found| found.get(handle)) else {
        return -ENOENT;
    };
    // SAFETY: `length` says how many bytes `target` has.
    unsafe { write_address(address, target, length) }
}

/// Copies an address to the application's memory, as far as it fits.
///
/// # Safety
/// `target` has `*length` bytes.
pub(crate) unsafe fn write_address(address: &EndpointAddress, target: *mut c_void, length: *mut usize) -> c_int {
    let bytes = address.to_bytes();
    // SAFETY: as this function's caller promises.
    unsafe {
        let space = (*length).min(bytes.len());
        if space > 0 && !target.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.cast(), space);
        }
        let is_short = *length < bytes.len();
        *length = bytes.len();
        if is_short { -FI_ETOOSMALL } else { 0 }
    }
}

unsafe extern "C" fn to_text(
    _: *mut Fid,
    address: *const c_void,
    target: *mut c_char,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the application passes an address of this provider's length.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), ADDRESS_BYTES) };
    let text = EndpointAddress::parse(bytes).map_or("?".to_owned(), |address| format!("pleach://{address}"));
    // SAFETY: `target` has `*length` bytes.
    unsafe {
        write_text(&text, target, *length);
        *length = text.len() + 1;
    }
    target
}

/// Copies a text to memory of the application, cut if need be, with a zero at the end.
///
/// # Safety
/// `target` has `space` bytes.
pub(crate) unsafe fn write_text(text: &str, target: *mut c_char, space: usize) {
    if target.is_null() || space == 0 {
        return;
    }
    let length = text.len().min(space - 1);
    // SAFETY: as this function's caller promises.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), target.cast(), length);
        *target.add(length) = 0;
    }
}

/// Insertions are reported to an event queue that is bound.
unsafe extern "C" fn bind_vector(fid: *mut Fid, other: *mut Fid, _flags: u64) -> c_int {
    // SAFETY: the application passes live objects.
    let (vector, class) = unsafe { (object::<AvObject>(fid), (*other).fclass) };
    if class != FI_CLASS_EQ {
        return -EINVAL;
    }
    match vector.domain.lock().queues.vectors.get_mut(vector.number) {
        Some(found) => found.event_queue = Some(other as usize),
        None => return -EINVAL,
    }
    0
}

unsafe extern "C" fn close_vector(fid: *mut Fid) -> c_int {
    // SAFETY: the application closes a vector that it opened.
    let vector = unsafe { take_back::<AvObject>(fid) };
    vector.domain.lock().queues.vectors.remove(vector.number);
    0
}
