//! libfabric's calls for a peer's memory: reads are served, the others are not.

use std::ffi::c_void;

use crate::abi::*;
use crate::domain::DomainState;
use crate::endpoint_state::EINVAL;
use crate::objects::{EpObject, object};
use crate::remote_read::RemoteRead;
use crate::unsupported::unsupported;

pub(crate) static RMA: FiOpsRma = FiOpsRma {
    size: size_of::<FiOpsRma>(),
    read,
    readv,
    readmsg,
    write: unsupported,
    writev: unsupported,
    writemsg: unsupported,
    inject: unsupported,
    writedata: unsupported,
    injectdata: unsupported,
};

/// What a call says.
struct ReadCall {
    part: Iovec,
    from: FiAddr,
    offset: u64,
    key: u64,
    context: *mut c_void,
    flags: Option<u64>,
}

/// # Safety
/// `endpoint` is an endpoint of this provider, and the memory is valid as the interface demands.
unsafe fn start_read(endpoint: *mut FidEp, call: ReadCall) -> isize {
    // SAFETY: as this function's caller promises.
    let endpoint = unsafe { object::<EpObject>(endpoint.cast()) };
    let mut state = endpoint.domain.lock();
    let DomainState { endpoints, queues } = &mut *state;
    let Some(found) = endpoints.get_mut(endpoint.number) else { return -(EINVAL as isize) };
    if !found.is_enabled {
        return -(FI_EOPBADSTATE as isize);
    }
    let address = found.vector.and_then(|vector| queues.vectors.get(vector)?.get(call.from));
    let Some(from) = address.map(|address| found.source_at(address)) else { return -(EINVAL as isize) };
    let flags = call.flags.unwrap_or(found.send_targets.op_flags);
    let read = RemoteRead {
        start: call.part.base.cast(),
        length: call.part.len,
        context: call.context as usize,
        wants_completion: found.send_targets.wants(flags),
        from,
        key: call.key,
        offset: call.offset,
    };
    // SAFETY: as this function's caller promises.
    unsafe { found.read_remote(queues, read) }
}

// SAFETY, for all calls below: the application passes an endpoint that it opened, and memory that stays valid as the interface
// demands; they only pass their arguments on.

unsafe extern "C" fn read(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: FiAddr,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let part = Iovec { base: buf, len };
    // SAFETY: see above.
    unsafe { start_read(ep, ReadCall { part, from, offset, key, context, flags: None }) }
}

unsafe extern "C" fn readv(
    ep: *mut FidEp,
    iov: *const Iovec,
    _: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    if count != 1 || iov.is_null() {
        return -(EINVAL as isize);
    }
    // SAFETY: see above.
    unsafe { start_read(ep, ReadCall { part: *iov, from, offset, key, context, flags: None }) }
}

unsafe extern "C" fn readmsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize {
    // SAFETY: see above.
    unsafe {
        let msg = &*msg;
        if msg.iov_count != 1 || msg.rma_iov_count != 1 || msg.iov.is_null() || msg.rma_iov.is_null() {
            return -(EINVAL as isize);
        }
        let (part, remote) = (*msg.iov, &*msg.rma_iov);
        if remote.len != part.len {
            return -(EINVAL as isize);
        }
        let (offset, key) = (remote.addr, remote.key);
        start_read(ep, ReadCall { part, from: msg.addr, offset, key, context: msg.context, flags: Some(flags) })
    }
}
