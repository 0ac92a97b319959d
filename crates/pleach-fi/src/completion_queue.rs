//! Completion queues: reading, waiting, and the text of errors.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::abi::*;
use crate::address_vector::write_text;
use crate::endpoint_state::{EAGAIN, EINVAL, ENOSYS};
use crate::objects::{CqObject, domain_of, hand_out, head, object, take_back};
use crate::queues::{CompletionQueue, WaitObject};
use crate::unsupported::{no_bind, object_ops, unsupported};

/// How long a waiting call polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// The longest sleep: timers of connections may be due.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

static CQ_FID: FiOps = object_ops(close_queue, no_bind, control);
static CQ: FiOpsCq = FiOpsCq {
    size: size_of::<FiOpsCq>(),
    read,
    readfrom: read_from,
    readerr: read_error,
    sread: wait_and_read,
    sreadfrom: wait_and_read_from,
    signal,
    strerror: describe,
    export_xpu: unsupported,
};

pub(crate) unsafe extern "C" fn open_queue(
    domain: *mut FidDomain,
    attributes: *mut FiCqAttr,
    place: *mut *mut Fid,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the application passes a domain that it opened; the attributes are valid by the interface.
    let (domain, attributes) = unsafe { (domain_of(domain), attributes.as_mut()) };
    let (mut format, mut wait_kind) = (FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE);
    if let Some(attributes) = attributes {
        if attributes.format == 0 {
            attributes.format = FI_CQ_FORMAT_CONTEXT;
        }
        (format, wait_kind) = (attributes.format, attributes.wait_obj);
    }
    if !(FI_CQ_FORMAT_CONTEXT..=FI_CQ_FORMAT_TAGGED).contains(&format) {
        return -ENOSYS;
    }
    let wait = match wait_kind {
        FI_WAIT_NONE => None,
        FI_WAIT_UNSPEC | FI_WAIT_FD => match WaitObject::new() {
            Ok(wait) => Some(wait),
            Err(error) => return -(error as c_int),
        },
        _ => return -ENOSYS,
    };
    let number = domain.lock().queues.completions.add(CompletionQueue::new(format, wait));
    let head = FidWith { fid: head(FI_CLASS_CQ, context, &CQ_FID), ops: &CQ };
    // SAFETY: the caller wants the pointer there.
    unsafe { hand_out(CqObject { head, domain: Arc::clone(domain), number }, place) };
    0
}

/// Bytes of an entry: each format is the beginning of the next.
fn entry_bytes(format: c_int) -> usize {
    match format {
        FI_CQ_FORMAT_CONTEXT => 8,
        FI_CQ_FORMAT_MSG => 24,
        FI_CQ_FORMAT_DATA => 40,
        _ => size_of::<FiCqTaggedEntry>(),
    }
}

unsafe extern "C" fn read(fid: *mut Fid, target: *mut c_void, count: usize) -> isize {
    // SAFETY: the arguments are the caller's.
    unsafe { read_from(fid, target, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn read_from(fid: *mut Fid, target: *mut c_void, count: usize, sources: *mut FiAddr) -> isize {
    // SAFETY: the application passes a queue that it opened.
    let queue = unsafe { object::<CqObject>(fid) };
    queue.domain.note_call();
    let mut state = queue.domain.lock();
    state.progress_queue(queue.number);
    let queues = &mut state.queues;
    let Some(found) = queues.completions.get_mut(queue.number) else { return -(EINVAL as isize) };
    if !found.errors.is_empty() && found.entries.is_empty() {
        return -(FI_EAVAIL as isize);
    }
    let size = entry_bytes(found.format);
    let mut done = 0;
    while done < count
        && let Some(entry) = found.entries.pop_front()
    {
        let written = entry.to_abi();
        // SAFETY: the application's memory has `count` entries of the queue's format.
        unsafe {
            let place = target.cast::<u8>().add(done * size);
            std::ptr::copy_nonoverlapping((&raw const written).cast::<u8>(), place, size);
        }
        if !sources.is_null() {
            let source = entry.source.and_then(|(vector, identity)| queues.vectors.get(vector)?.handle_of(identity));
            // SAFETY: the application's list has `count` places.
            unsafe { *sources.add(done) = source.unwrap_or(FI_ADDR_NOTAVAIL) };
        }
        done += 1;
    }
    found.settle();
    if done == 0 { -(EAGAIN as isize) } else { done as isize }
}

unsafe extern "C" fn read_error(fid: *mut Fid, target: *mut FiCqErrEntry, _flags: u64) -> isize {
    // SAFETY: the application passes a queue that it opened.
    let queue = unsafe { object::<CqObject>(fid) };
    let mut state = queue.domain.lock();
    let Some(found) = state.queues.completions.get_mut(queue.number) else { return -(EINVAL as isize) };
    let Some(error) = found.errors.pop_front() else { return -(EAGAIN as isize) };
    found.settle();
    let entry = error.entry.to_abi();
    // SAFETY: the application's memory holds an error entry. Its fields are set one by one: newer versions have more. The
    // description is in `describe`, not in `err_data`.
    unsafe {
        (*target).op_context = entry.op_context;
        (*target).flags = entry.flags;
        (*target).len = entry.len;
        (*target).buf = entry.buf;
        (*target).data = entry.data;
        (*target).tag = entry.tag;
        (*target).olen = error.excess;
        (*target).err = error.error;
        (*target).prov_errno = error.detail;
        (*target).err_data_size = 0;
    }
    1
}

unsafe extern "C" fn wait_and_read(
    fid: *mut Fid,
    target: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the arguments are the caller's.
    unsafe { wait_and_read_from(fid, target, count, std::ptr::null_mut(), condition, timeout) }
}

unsafe extern "C" fn wait_and_read_from(
    fid: *mut Fid,
    target: *mut c_void,
    count: usize,
    sources: *mut FiAddr,
    _condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the application passes a queue that it opened.
    let queue = unsafe { object::<CqObject>(fid) };
    let limit = u64::try_from(timeout).map_or(Duration::MAX, Duration::from_millis);
    let began = Instant::now();
    loop {
        // SAFETY: the arguments are the caller's.
        let found = unsafe { read_from(fid, target, count, sources) };
        let waited = began.elapsed();
        if found != -(EAGAIN as isize) || waited >= limit {
            return found;
        }
        if waited < SPIN {
            std::hint::spin_loop();
            continue;
        }
        // A copy of the descriptor: the lock is not held while the thread sleeps.
        let descriptor = {
            let mut state = queue.domain.lock();
            if !state.fall_asleep_for(queue.number) {
                continue;
            }
            let wait = state.queues.completions.get(queue.number).and_then(|found| found.wait.as_ref());
            wait.and_then(|wait| wait.epoll.0.as_fd().try_clone_to_owned().ok())
        };
        let Some(descriptor) = descriptor else { return -(ENOSYS as isize) };
        let sleep = LONGEST_SLEEP.min(limit.saturating_sub(waited));
        let millis = PollTimeout::from(sleep.as_millis().clamp(1, 1000) as u16);
        let _ = poll(&mut [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)], millis);
        // Another thread's `fi_cq_signal` ends the wait.
        let mut state = queue.domain.lock();
        if state.queues.completions.get_mut(queue.number).is_some_and(CompletionQueue::take_signal) {
            return -(EAGAIN as isize);
        }
    }
}

unsafe extern "C" fn signal(fid: *mut Fid) -> c_int {
    // SAFETY: the application passes a queue that it opened.
    let queue = unsafe { object::<CqObject>(fid) };
    if let Some(found) = queue.domain.lock().queues.completions.get_mut(queue.number) {
        found.signal();
    }
    0
}

/// The cause of an error, by the `prov_errno` of its entry.
unsafe extern "C" fn describe(
    fid: *mut Fid,
    number: c_int,
    _data: *const c_void,
    target: *mut c_char,
    space: usize,
) -> *const c_char {
    // SAFETY: the application passes a queue that it opened.
    let queue = unsafe { object::<CqObject>(fid) };
    let state = queue.domain.lock();
    let text = state.queues.loss(number).unwrap_or(match number {
        crate::endpoint_state::ENOMSG => "no message matches",
        crate::endpoint_state::ECANCELED => "canceled",
        _ => "see the error number",
    });
    if target.is_null() || space == 0 {
        return c"endpoint lost; pass a buffer to fi_cq_strerror to learn the cause".as_ptr();
    }
    // SAFETY: the application's memory has `space` bytes.
    unsafe { write_text(text, target, space) };
    target
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the application passes a queue that it opened.
    let queue = unsafe { object::<CqObject>(fid) };
    let state = queue.domain.lock();
    let wait = state.queues.completions.get(queue.number).and_then(|found| found.wait.as_ref());
    match (command, wait) {
        (FI_GETWAIT, Some(wait)) => {
            // SAFETY: for a descriptor the argument points to an integer.
            unsafe { *argument.cast::<c_int>() = wait.epoll.0.as_raw_fd() };
            0
        }
        (FI_GETWAITOBJ, wait) => {
            // SAFETY: the argument points to the kind of wait object.
            unsafe { *argument.cast::<c_int>() = if wait.is_some() { FI_WAIT_FD } else { FI_WAIT_NONE } };
            0
        }
        _ => -ENOSYS,
    }
}

/// Whether a thread may sleep on this queue: after progress there is nothing to read.
///
/// # Safety
/// `fid` is a completion queue of this provider.
pub(crate) unsafe fn is_ready_to_wait(fid: *mut Fid) -> bool {
    // SAFETY: as this function's caller promises.
    let queue = unsafe { object::<CqObject>(fid) };
    let mut state = queue.domain.lock();
    state.progress_queue(queue.number);
    let is_empty = state.queues.completions.get(queue.number).is_none_or(CompletionQueue::is_empty);
    is_empty && state.fall_asleep_for(queue.number)
}

unsafe extern "C" fn close_queue(fid: *mut Fid) -> c_int {
    // SAFETY: the application closes a queue that it opened.
    let queue = unsafe { take_back::<CqObject>(fid) };
    queue.domain.lock().queues.completions.remove(queue.number);
    0
}
