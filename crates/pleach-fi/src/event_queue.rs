//! Event queues. Only address vectors report here, and only if the application asks for it.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::endpoint_state::EAGAIN;
use crate::objects::{hand_out, head, object, take_back};
use crate::unsupported::{no_bind, no_control, object_ops, unsupported};

/// Events that wait to be read; the application asked for each by a call of its own.
const MAX_EVENTS: usize = 1 << 16;

#[repr(C)]
struct EqObject {
    head: FidWith<FiOpsEq>,
    events: Mutex<VecDeque<(usize, usize, u64)>>,
}

static EQ_FID: FiOps = object_ops(close_queue, no_bind, no_control);
static EQ: FiOpsEq = FiOpsEq {
    size: size_of::<FiOpsEq>(),
    read,
    readerr: read_error,
    write: unsupported,
    sread: wait_and_read,
    strerror: describe,
};

pub(crate) unsafe extern "C" fn open_event_queue(
    _: *mut FidFabric,
    _: *mut c_void,
    place: *mut *mut Fid,
    context: *mut c_void,
) -> c_int {
    let head = FidWith { fid: head(FI_CLASS_EQ, context, &EQ_FID), ops: &EQ };
    // SAFETY: the caller wants the pointer there.
    unsafe { hand_out(EqObject { head, events: Mutex::default() }, place) };
    0
}

/// Reports that an address vector has taken `count` addresses.
///
/// # Safety
/// `queue` is a live event queue of this provider.
pub(crate) unsafe fn report_insertion(queue: *const Fid, vector: *mut Fid, context: *mut c_void, count: u64) {
    // SAFETY: as this function's caller promises.
    let queue = unsafe { object::<EqObject>(queue) };
    let mut events = queue.events.lock().unwrap_or_else(PoisonError::into_inner);
    if events.len() < MAX_EVENTS {
        events.push_back((vector as usize, context as usize, count));
    }
}

unsafe extern "C" fn read(fid: *mut Fid, event: *mut u32, target: *mut c_void, length: usize, _flags: u64) -> isize {
    // SAFETY: the application passes an event queue that it opened.
    let queue = unsafe { object::<EqObject>(fid) };
    let mut events = queue.events.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((vector, context, data)) = events.front().copied() else { return -(EAGAIN as isize) };
    if length < size_of::<FiEqEntry>() {
        return -(FI_ETOOSMALL as isize);
    }
    events.pop_front();
    // SAFETY: the application's memory has `length` bytes, enough for an entry.
    unsafe {
        *event = FI_AV_COMPLETE;
        target.cast::<FiEqEntry>().write(FiEqEntry {
            fid: vector as *mut Fid,
            context: context as *mut c_void,
            data,
        });
    }
    size_of::<FiEqEntry>() as isize
}

unsafe extern "C" fn read_error(_: *mut Fid, _: *mut c_void, _: u64) -> isize {
    -(EAGAIN as isize)
}

unsafe extern "C" fn wait_and_read(
    fid: *mut Fid,
    event: *mut u32,
    target: *mut c_void,
    length: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    let limit = u64::try_from(timeout).map(Duration::from_millis).ok();
    let began = Instant::now();
    loop {
        // SAFETY: the arguments are the caller's.
        let found = unsafe { read(fid, event, target, length, flags) };
        if found != -(EAGAIN as isize) || limit.is_some_and(|limit| began.elapsed() >= limit) {
            return found;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

unsafe extern "C" fn describe(_: *mut Fid, _: c_int, _: *const c_void, _: *mut c_char, _: usize) -> *const c_char {
    c"no error".as_ptr()
}

unsafe extern "C" fn close_queue(fid: *mut Fid) -> c_int {
    // SAFETY: the application closes a queue that it opened.
    drop(unsafe { take_back::<EqObject>(fid) });
    0
}
