//! The calls of an endpoint, as libfabric names them: each reads its arguments and passes them to [`EndpointState`].

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::*;
use crate::address_vector::write_address;
use crate::domain::{DomainState, wait_descriptor};
use crate::endpoint_operations::{ReceiveRequest, SendRequest};
use crate::endpoint_state::{EINVAL, ENOSYS, EndpointState};
use crate::envelope::Envelope;
use crate::match_lists::{MessageSource, ReceiveFilter};
use crate::message_port::MessagePort;
use crate::objects::{AvObject, CntrObject, CqObject, EpObject, domain_of, hand_out, head, object, take_back};
use crate::remote_memory_calls::RMA;
use crate::unsupported::{UNSUPPORTED, object_ops, unsupported};
use crate::user_memory::UserBuffer;

static EP_FID: FiOps = object_ops(close_endpoint, bind_endpoint, control);
static EP: FiOpsEp = FiOpsEp {
    size: size_of::<FiOpsEp>(),
    cancel,
    getopt: get_option,
    setopt: set_option,
    tx_ctx: unsupported,
    rx_ctx: unsupported,
    rx_size_left: unsupported,
    tx_size_left: unsupported,
    export_xpu: unsupported,
};
static CM: FiOpsCm = FiOpsCm {
    size: size_of::<FiOpsCm>(),
    setname: unsupported,
    getname: get_name,
    getpeer: unsupported,
    connect: unsupported,
    listen: unsupported,
    accept: unsupported,
    reject: unsupported,
    shutdown: unsupported,
    join: unsupported,
};
static MSG: FiOpsMsg = FiOpsMsg {
    size: size_of::<FiOpsMsg>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};
static TAGGED: FiOpsTagged = FiOpsTagged {
    size: size_of::<FiOpsTagged>(),
    recv: trecv,
    recvv: trecvv,
    recvmsg: trecvmsg,
    send: tsend,
    sendv: tsendv,
    sendmsg: tsendmsg,
    inject: tinject,
    senddata: tsenddata,
    injectdata: tinjectdata,
};

pub(crate) unsafe extern "C" fn open_endpoint(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    place: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the application passes a domain that it opened, and information of this provider.
    let (domain, info) = unsafe { (domain_of(domain), info.as_ref()) };
    // SAFETY: the attributes are valid where they are present.
    let flags = info.map_or((0, 0), |info| unsafe {
        (info.tx_attr.as_ref().map_or(0, |tx| tx.op_flags), info.rx_attr.as_ref().map_or(0, |rx| rx.op_flags))
    });
    let port = match MessagePort::open() {
        Ok(port) => port,
        Err(why) => {
            crate::log::log(&why);
            return -EINVAL;
        }
    };
    let number = domain.lock().endpoints.add(EndpointState::new(port, flags.0, flags.1));
    let head = FidEp {
        fid: head(FI_CLASS_EP, context, &EP_FID),
        ops: &EP,
        cm: &CM,
        msg: &MSG,
        rma: &RMA,
        tagged: &TAGGED,
        atomic: &UNSUPPORTED,
        collective: &UNSUPPORTED,
    };
    // SAFETY: the caller wants the pointer there.
    unsafe { hand_out(EpObject { head, domain: Arc::clone(domain), number }, place) };
    0
}

pub(crate) unsafe extern "C" fn open_endpoint2(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    place: *mut *mut FidEp,
    _flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are those of the call without flags.
    unsafe { open_endpoint(domain, info, place, context) }
}

unsafe extern "C" fn close_endpoint(fid: *mut Fid) -> c_int {
    // SAFETY: the application closes an endpoint that it opened.
    let endpoint = unsafe { take_back::<EpObject>(fid) };
    let mut state = endpoint.domain.lock();
    for number in state.queues.completions.numbers() {
        if let Some(queue) = state.queues.completions.get_mut(number) {
            queue.endpoints.retain(|bound| *bound != endpoint.number);
        }
    }
    for number in state.queues.counters.numbers() {
        if let Some(counter) = state.queues.counters.get_mut(number) {
            counter.endpoints.retain(|bound| *bound != endpoint.number);
        }
    }
    let closed = state.endpoints.remove(endpoint.number);
    drop(state);
    if let Some(mut closed) = closed.filter(|closed| closed.is_enabled) {
        closed.port.close();
    }
    0
}

unsafe extern "C" fn bind_endpoint(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: the application passes live objects.
    let (endpoint, class) = unsafe { (object::<EpObject>(fid), (*other).fclass) };
    let mut state = endpoint.domain.lock();
    let DomainState { endpoints, queues } = &mut *state;
    let Some(found) = endpoints.get_mut(endpoint.number) else { return -EINVAL };
    match class {
        FI_CLASS_AV => {
            // SAFETY: its class says that it is an address vector.
            found.vector = Some(unsafe { object::<AvObject>(other) }.number);
        }
        FI_CLASS_CQ => {
            // SAFETY: its class says that it is a completion queue.
            let number = unsafe { object::<CqObject>(other) }.number;
            let Some(queue) = queues.completions.get_mut(number) else { return -EINVAL };
            let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
            for (bit, targets) in [(FI_SEND, &mut found.send_targets), (FI_RECV, &mut found.receive_targets)] {
                if flags & bit != 0 {
                    (targets.queue, targets.is_selective) = (Some(number), is_selective);
                }
            }
            if !queue.endpoints.contains(&endpoint.number) {
                queue.endpoints.push(endpoint.number);
                if let Some(Err(error)) = queue.wait.as_ref().map(|wait| wait.add_endpoint(wait_descriptor(found))) {
                    return -(error as c_int);
                }
            }
        }
        FI_CLASS_CNTR => {
            // SAFETY: its class says that it is a counter.
            let number = unsafe { object::<CntrObject>(other) }.number;
            for (bit, targets) in [(FI_SEND, &mut found.send_targets), (FI_RECV, &mut found.receive_targets)] {
                if flags & bit != 0 {
                    targets.counter = Some(number);
                }
            }
            let Some(counter) = queues.counters.get_mut(number) else { return -EINVAL };
            counter.endpoints.push(endpoint.number);
        }
        FI_CLASS_EQ => {}
        _ => return -EINVAL,
    }
    0
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the application passes an endpoint that it opened.
    let endpoint = unsafe { object::<EpObject>(fid) };
    let mut state = endpoint.domain.lock();
    let Some(found) = state.endpoints.get_mut(endpoint.number) else { return -EINVAL };
    match command {
        FI_ENABLE if found.vector.is_none() => -FI_ENOAV,
        FI_ENABLE => {
            found.is_enabled = true;
            0
        }
        FI_GETOPSFLAG | FI_SETOPSFLAG if argument.is_null() => -EINVAL,
        FI_GETOPSFLAG | FI_SETOPSFLAG => {
            // SAFETY: the argument points to flags, of which one bit names the direction.
            let flags = unsafe { &mut *argument.cast::<u64>() };
            let targets = if *flags & FI_SEND != 0 { &mut found.send_targets } else { &mut found.receive_targets };
            if command == FI_GETOPSFLAG {
                *flags = targets.op_flags;
            } else {
                targets.op_flags = *flags & !(FI_SEND | FI_RECV);
            }
            0
        }
        _ => -ENOSYS,
    }
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: the application passes an endpoint that it opened.
    let endpoint = unsafe { object::<EpObject>(fid) };
    let mut state = endpoint.domain.lock();
    let DomainState { endpoints, queues } = &mut *state;
    match endpoints.get_mut(endpoint.number) {
        Some(found) => found.cancel(queues, context as usize),
        None => -(EINVAL as isize),
    }
}

unsafe extern "C" fn get_option(
    fid: *mut Fid,
    _level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> c_int {
    // SAFETY: the application passes an endpoint that it opened.
    let endpoint = unsafe { object::<EpObject>(fid) };
    let state = endpoint.domain.lock();
    let Some(found) = state.endpoints.get(endpoint.number) else { return -EINVAL };
    if option != FI_OPT_MIN_MULTI_RECV {
        return -ENOSYS;
    }
    // SAFETY: `length` says how many bytes `value` has.
    unsafe {
        if *length < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        value.cast::<usize>().write_unaligned(found.min_multi_receive);
        *length = size_of::<usize>();
    }
    0
}

unsafe extern "C" fn set_option(
    fid: *mut Fid,
    _level: c_int,
    option: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the application passes an endpoint that it opened.
    let endpoint = unsafe { object::<EpObject>(fid) };
    let mut state = endpoint.domain.lock();
    let Some(found) = state.endpoints.get_mut(endpoint.number) else { return -EINVAL };
    if option != FI_OPT_MIN_MULTI_RECV {
        return -ENOSYS;
    }
    if length != size_of::<usize>() || value.is_null() {
        return -EINVAL;
    }
    // SAFETY: the value has the length of a size.
    found.min_multi_receive = unsafe { value.cast::<usize>().read_unaligned() };
    0
}

unsafe extern "C" fn get_name(fid: *mut Fid, target: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: the application passes an endpoint that it opened.
    let endpoint = unsafe { object::<EpObject>(fid) };
    let state = endpoint.domain.lock();
    let Some(found) = state.endpoints.get(endpoint.number) else { return -EINVAL };
    // SAFETY: `length` says how many bytes `target` has.
    unsafe { write_address(&found.port.own, target, length) }
}

/// Starts a send; `flags` none: those of the endpoint.
///
/// # Safety
/// `endpoint` is an endpoint of this provider, and the memory is valid as the interface demands.
unsafe fn start_send(
    endpoint: *mut FidEp,
    buffer: Option<UserBuffer>,
    (to, envelope): (FiAddr, Envelope),
    context: *mut c_void,
    flags: Option<u64>,
    is_inject: bool,
) -> isize {
    // SAFETY: as this function's caller promises.
    let endpoint = unsafe { object::<EpObject>(endpoint.cast()) };
    let Some(buffer) = buffer else { return -(EINVAL as isize) };
    let mut state = endpoint.domain.lock();
    let DomainState { endpoints, queues } = &mut *state;
    let Some(found) = endpoints.get_mut(endpoint.number) else { return -(EINVAL as isize) };
    if !found.is_enabled {
        return -(FI_EOPBADSTATE as isize);
    }
    let address = found.vector.and_then(|vector| queues.vectors.get(vector)?.get(to));
    let Some(to) = address.map(|address| found.source_at(address)) else { return -(EINVAL as isize) };
    let flags = flags.unwrap_or(found.send_targets.op_flags);
    let request = SendRequest { buffer, envelope, context: context as usize, flags, is_inject };
    // SAFETY: as this function's caller promises.
    unsafe { found.send(queues, to, request) }
}

/// Starts a receive; `flags` none: those of the endpoint.
///
/// # Safety
/// `endpoint` is an endpoint of this provider, and the memory is valid as the interface demands.
unsafe fn start_receive(
    endpoint: *mut FidEp,
    buffer: Option<UserBuffer>,
    (from, tag): (FiAddr, Option<(u64, u64)>),
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    // SAFETY: as this function's caller promises.
    let endpoint = unsafe { object::<EpObject>(endpoint.cast()) };
    let Some(buffer) = buffer else { return -(EINVAL as isize) };
    let mut state = endpoint.domain.lock();
    let DomainState { endpoints, queues } = &mut *state;
    let Some(found) = endpoints.get_mut(endpoint.number) else { return -(EINVAL as isize) };
    if !found.is_enabled {
        return -(FI_EOPBADSTATE as isize);
    }
    let source: Option<MessageSource> = if from == FI_ADDR_UNSPEC {
        None
    } else {
        let address = found.vector.and_then(|vector| queues.vectors.get(vector)?.get(from));
        let Some(address) = address else { return -(EINVAL as isize) };
        Some(found.source_at(address))
    };
    let (bits, ignore) = tag.unwrap_or((0, 0));
    let filter = ReceiveFilter { source, tag: bits, ignore };
    let flags = flags.unwrap_or_else(|| found.receive_op_flags());
    let request = ReceiveRequest { buffer, is_tagged: tag.is_some(), filter, context: context as usize, flags };
    found.post_receive(queues, request)
}

const UNTAGGED: Envelope = Envelope { tag: None, data: None };

fn tagged(tag: u64) -> Envelope {
    Envelope { tag: Some(tag), data: None }
}

fn one(start: *const c_void, length: usize) -> Option<UserBuffer> {
    Some(UserBuffer::one(start.cast_mut().cast(), length))
}

// SAFETY, for all calls below: the application passes an endpoint that it opened, and memory that stays valid as the interface
// demands; they only pass their arguments on.

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: see above.
    unsafe { start_receive(ep, one(buf, len), (from, None), context, None) }
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const Iovec,
    _: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: see above.
    unsafe { start_receive(ep, UserBuffer::from_list(iov, count), (from, None), context, None) }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    // SAFETY: see above.
    unsafe {
        let msg = &*msg;
        let buffer = UserBuffer::from_list(msg.iov, msg.iov_count);
        start_receive(ep, buffer, (msg.addr, None), msg.context, Some(flags))
    }
}

unsafe extern "C" fn send(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: see above.
    unsafe { start_send(ep, one(buf, len), (to, UNTAGGED), context, None, false) }
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const Iovec,
    _: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: see above.
    unsafe { start_send(ep, UserBuffer::from_list(iov, count), (to, UNTAGGED), context, None, false) }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    // SAFETY: see above.
    unsafe {
        let msg = &*msg;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let buffer = UserBuffer::from_list(msg.iov, msg.iov_count);
        start_send(ep, buffer, (msg.addr, Envelope { tag: None, data }), msg.context, Some(flags), false)
    }
}

unsafe extern "C" fn inject(ep: *mut FidEp, buf: *const c_void, len: usize, to: FiAddr) -> isize {
    // SAFETY: see above.
    unsafe { start_send(ep, one(buf, len), (to, UNTAGGED), std::ptr::null_mut(), None, true) }
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    let envelope = Envelope { tag: None, data: Some(data) };
    // SAFETY: see above.
    unsafe { start_send(ep, one(buf, len), (to, envelope), context, None, false) }
}

unsafe extern "C" fn injectdata(ep: *mut FidEp, buf: *const c_void, len: usize, data: u64, to: FiAddr) -> isize {
    let envelope = Envelope { tag: None, data: Some(data) };
    // SAFETY: see above.
    unsafe { start_send(ep, one(buf, len), (to, envelope), std::ptr::null_mut(), None, true) }
}

unsafe extern "C" fn trecv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: FiAddr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see above.
    unsafe { start_receive(ep, one(buf, len), (from, Some((tag, ignore))), context, None) }
}

unsafe extern "C" fn trecvv(
    ep: *mut FidEp,
    iov: *const Iovec,
    _: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see above.
    unsafe { start_receive(ep, UserBuffer::from_list(iov, count), (from, Some((tag, ignore))), context, None) }
}

unsafe extern "C" fn trecvmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    // SAFETY: see above.
    unsafe {
        let msg = &*msg;
        let buffer = UserBuffer::from_list(msg.iov, msg.iov_count);
        start_receive(ep, buffer, (msg.addr, Some((msg.tag, msg.ignore))), msg.context, Some(flags))
    }
}

unsafe extern "C" fn tsend(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see above.
    unsafe { start_send(ep, one(buf, len), (to, tagged(tag)), context, None, false) }
}

unsafe extern "C" fn tsendv(
    ep: *mut FidEp,
    iov: *const Iovec,
    _: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see above.
    unsafe { start_send(ep, UserBuffer::from_list(iov, count), (to, tagged(tag)), context, None, false) }
}

unsafe extern "C" fn tsendmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    // SAFETY: see above.
    unsafe {
        let msg = &*msg;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let buffer = UserBuffer::from_list(msg.iov, msg.iov_count);
        let envelope = Envelope { tag: Some(msg.tag), data };
        start_send(ep, buffer, (msg.addr, envelope), msg.context, Some(flags), false)
    }
}

unsafe extern "C" fn tinject(ep: *mut FidEp, buf: *const c_void, len: usize, to: FiAddr, tag: u64) -> isize {
    // SAFETY: see above.
    unsafe { start_send(ep, one(buf, len), (to, tagged(tag)), std::ptr::null_mut(), None, true) }
}

unsafe extern "C" fn tsenddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let envelope = Envelope { tag: Some(tag), data: Some(data) };
    // SAFETY: see above.
    unsafe { start_send(ep, one(buf, len), (to, envelope), context, None, false) }
}

unsafe extern "C" fn tinjectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: FiAddr,
    tag: u64,
) -> isize {
    let envelope = Envelope { tag: Some(tag), data: Some(data) };
    // SAFETY: see above.
    unsafe { start_send(ep, one(buf, len), (to, envelope), std::ptr::null_mut(), None, true) }
}
