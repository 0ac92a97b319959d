//! Counters of completions and errors.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::endpoint_state::{EINVAL, ETIMEDOUT};
use crate::objects::{CntrObject, domain_of, hand_out, head, object, take_back};
use crate::queues::CompletionCounter;
use crate::unsupported::{no_bind, no_control, object_ops, unsupported};

static CNTR_FID: FiOps = object_ops(close_counter, no_bind, no_control);
static CNTR: FiOpsCntr = FiOpsCntr {
    size: size_of::<FiOpsCntr>(),
    read,
    readerr: read_errors,
    add,
    set,
    wait,
    adderr: add_errors,
    seterr: set_errors,
    export_xpu: unsupported,
};

pub(crate) unsafe extern "C" fn open_counter(
    domain: *mut FidDomain,
    attributes: *mut FiCntrAttr,
    place: *mut *mut Fid,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the attributes are valid by the interface.
    let counts_bytes = unsafe { attributes.as_ref() }.is_some_and(|attributes| attributes.events != 0);
    if counts_bytes {
        return -EINVAL;
    }
    // SAFETY: the application passes a domain that it opened.
    let domain = unsafe { domain_of(domain) };
    let number = domain.lock().queues.counters.add(CompletionCounter::default());
    let head = FidWith { fid: head(FI_CLASS_CNTR, context, &CNTR_FID), ops: &CNTR };
    // SAFETY: the caller wants the pointer there.
    unsafe { hand_out(CntrObject { head, domain: Arc::clone(domain), number }, place) };
    0
}

/// Makes progress, and returns the count of completions and of errors.
fn counts(counter: &CntrObject) -> (u64, u64) {
    counter.domain.note_call();
    let mut state = counter.domain.lock();
    let endpoints =
        state.queues.counters.get(counter.number).map(|found| found.endpoints.clone()).unwrap_or_default();
    state.progress(&endpoints);
    state.queues.counters.get(counter.number).map_or((0, 0), |found| (found.value, found.errors))
}

unsafe extern "C" fn read(fid: *mut Fid) -> u64 {
    // SAFETY: the application passes a counter that it opened.
    counts(unsafe { object::<CntrObject>(fid) }).0
}

unsafe extern "C" fn read_errors(fid: *mut Fid) -> u64 {
    // SAFETY: as above.
    counts(unsafe { object::<CntrObject>(fid) }).1
}

/// Changes the counts.
///
/// # Safety
/// `fid` is a counter of this provider.
unsafe fn change(fid: *mut Fid, change: impl FnOnce(&mut CompletionCounter)) -> c_int {
    // SAFETY: as this function's caller promises.
    let counter = unsafe { object::<CntrObject>(fid) };
    match counter.domain.lock().queues.counters.get_mut(counter.number) {
        Some(found) => {
            change(found);
            0
        }
        None => -EINVAL,
    }
}

unsafe extern "C" fn add(fid: *mut Fid, value: u64) -> c_int {
    // SAFETY: the application passes a counter that it opened.
    unsafe { change(fid, |counter| counter.value = counter.value.wrapping_add(value)) }
}

unsafe extern "C" fn set(fid: *mut Fid, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { change(fid, |counter| counter.value = value) }
}

unsafe extern "C" fn add_errors(fid: *mut Fid, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { change(fid, |counter| counter.errors = counter.errors.wrapping_add(value)) }
}

unsafe extern "C" fn set_errors(fid: *mut Fid, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { change(fid, |counter| counter.errors = value) }
}

/// Waits until so many completions are counted; an error ends the wait.
unsafe extern "C" fn wait(fid: *mut Fid, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: the application passes a counter that it opened.
    let counter = unsafe { object::<CntrObject>(fid) };
    let limit = u64::try_from(timeout).map(Duration::from_millis).ok();
    let (began, errors) = (Instant::now(), counts(counter).1);
    loop {
        let (value, failed) = counts(counter);
        if value >= threshold {
            return 0;
        }
        if failed != errors {
            return -FI_EAVAIL;
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            return -ETIMEDOUT;
        }
        std::thread::yield_now();
    }
}

unsafe extern "C" fn close_counter(fid: *mut Fid) -> c_int {
    // SAFETY: the application closes a counter that it opened.
    let counter = unsafe { take_back::<CntrObject>(fid) };
    counter.domain.lock().queues.counters.remove(counter.number);
    0
}
