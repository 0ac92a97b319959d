//! `fi_getinfo`: what this provider offers, and whether that is what the application asks for.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::*;
use crate::endpoint_address::ADDRESS_BYTES;
use crate::envelope::INJECT_BYTES;
use crate::user_memory::MAX_PARTS;

/// The provider's name, and that of its fabric and its domain.
pub(crate) const NAME: &CStr = c"pleach";
/// No endpoint matches.
const ENODATA: c_int = 61;
const ENOMEM: c_int = 12;

const CAPABILITIES: u64 = FI_MSG
    | FI_TAGGED
    | FI_SEND
    | FI_RECV
    | FI_MULTI_RECV
    | FI_DIRECTED_RECV
    | FI_SOURCE
    | FI_LOCAL_COMM
    | FI_REMOTE_COMM;
const SEND_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;
const MAX_MESSAGE_BYTES: usize = 1 << 40;
const QUEUE_SIZE: usize = 1 << 16;
const OBJECTS: usize = 1 << 10;
const _: () = assert!(ADDRESS_BYTES <= 64, "MPIs reserve 64 bytes");

unsafe extern "C" {
    fn calloc(count: usize, size: usize) -> *mut c_void;
    fn strdup(text: *const c_char) -> *mut c_char;
}

/// Memory that libfabric frees with `free`; longer than its type, because newer versions have longer types.
fn allocate<T>() -> *mut T {
    // SAFETY: any size may be allocated; a null pointer is handled by the caller.
    unsafe { calloc(1, size_of::<T>() + SPARE_BYTES).cast() }
}

pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    _node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    place: *mut *mut FiInfo,
) -> c_int {
    // SAFETY: hints are valid where they are present.
    let hints = if flags & FI_PROV_ATTR_ONLY != 0 { None } else { unsafe { hints.as_ref() } };
    // SAFETY: as above.
    if hints.is_some_and(|hints| !unsafe { matches(hints) }) {
        return -ENODATA;
    }
    // SAFETY: as above.
    let Some(info) = (unsafe { build(version, hints) }) else { return -ENOMEM };
    // SAFETY: the caller wants the pointer there.
    unsafe { *place = info };
    0
}

/// Whether this provider does all that the hints ask for.
///
/// # Safety
/// The hints are valid.
unsafe fn matches(hints: &FiInfo) -> bool {
    let zero_or = |wanted: usize, limit: usize| wanted <= limit;
    if hints.caps & !CAPABILITIES != 0 || !matches!(hints.addr_format, 0 | FI_ADDR_PLEACH) {
        return false;
    }
    // SAFETY: attributes are valid where they are present.
    unsafe {
        let tx = hints.tx_attr.as_ref().is_none_or(|tx| {
            tx.caps & !CAPABILITIES == 0
                && tx.op_flags & !SEND_FLAGS == 0
                && tx.msg_order & !FI_ORDER_SAS == 0
                && tx.comp_order == 0
                && zero_or(tx.inject_size, INJECT_BYTES)
                && zero_or(tx.size, QUEUE_SIZE)
                && zero_or(tx.iov_limit, MAX_PARTS)
                && tx.rma_iov_limit == 0
        });
        let rx = hints.rx_attr.as_ref().is_none_or(|rx| {
            rx.caps & !CAPABILITIES == 0
                && rx.op_flags & !RECEIVE_FLAGS == 0
                && rx.msg_order & !FI_ORDER_SAS == 0
                && rx.comp_order == 0
                && zero_or(rx.size, QUEUE_SIZE)
                && zero_or(rx.iov_limit, MAX_PARTS)
        });
        let ep = hints.ep_attr.as_ref().is_none_or(|ep| {
            matches!(ep.kind, FI_EP_UNSPEC | FI_EP_RDM)
                && matches!(ep.protocol, 0 | FI_PROTO_PLEACH)
                && zero_or(ep.max_msg_size, MAX_MESSAGE_BYTES)
                && zero_or(ep.tx_ctx_cnt, 1)
                && zero_or(ep.rx_ctx_cnt, 1)
                && ep.auth_key_size == 0
        });
        let domain = hints.domain_attr.as_ref().is_none_or(|domain| {
            let is_named = |name: *const c_char| name.is_null() || CStr::from_ptr(name) == NAME;
            is_named(domain.name)
                && zero_or(domain.cq_data_size, size_of::<u64>())
                && domain.resource_mgmt <= FI_RM_ENABLED
                && domain.caps & !(FI_LOCAL_COMM | FI_REMOTE_COMM) == 0
                && domain.av_type <= FI_AV_TABLE
        });
        let fabric = hints
            .fabric_attr
            .as_ref()
            .is_none_or(|fabric| fabric.name.is_null() || CStr::from_ptr(fabric.name) == NAME);
        tx && rx && ep && domain && fabric
    }
}

/// What is offered, with the choices of the hints.
///
/// # Safety
/// The hints are valid.
unsafe fn build(version: u32, hints: Option<&FiInfo>) -> Option<*mut FiInfo> {
    let info: *mut FiInfo = allocate();
    let (tx, rx): (*mut FiTxAttr, *mut FiRxAttr) = (allocate(), allocate());
    let (ep, domain): (*mut FiEpAttr, *mut FiDomainAttr) = (allocate(), allocate());
    let fabric: *mut FiFabricAttr = allocate();
    if info.is_null() || tx.is_null() || rx.is_null() || ep.is_null() || domain.is_null() || fabric.is_null() {
        return None;
    }
    // SAFETY: all were just allocated and zeroed; attributes of the hints are valid where they are present.
    unsafe {
        (*info).caps = hints.map_or(CAPABILITIES, |hints| {
            let secondary = FI_LOCAL_COMM | FI_REMOTE_COMM;
            // Directions belong to what was asked for.
            if hints.caps == 0 { CAPABILITIES } else { hints.caps | secondary | FI_SEND | FI_RECV }
        });
        (*info).addr_format = FI_ADDR_PLEACH;
        (*info).src_addrlen = 0;
        let tx_hints = hints.and_then(|hints| hints.tx_attr.as_ref());
        *tx = FiTxAttr {
            caps: (*info).caps
                & !(FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM),
            mode: 0,
            op_flags: tx_hints.map_or(0, |tx| tx.op_flags),
            msg_order: FI_ORDER_SAS,
            comp_order: 0,
            inject_size: INJECT_BYTES,
            size: QUEUE_SIZE,
            iov_limit: MAX_PARTS,
            rma_iov_limit: 0,
            tclass: 0,
        };
        let rx_hints = hints.and_then(|hints| hints.rx_attr.as_ref());
        *rx = FiRxAttr {
            caps: (*info).caps & !(FI_SEND | FI_LOCAL_COMM | FI_REMOTE_COMM),
            mode: 0,
            op_flags: rx_hints.map_or(0, |rx| rx.op_flags),
            msg_order: FI_ORDER_SAS,
            comp_order: 0,
            total_buffered_recv: 0,
            size: QUEUE_SIZE,
            iov_limit: MAX_PARTS,
        };
        (*ep).kind = FI_EP_RDM;
        (*ep).protocol = FI_PROTO_PLEACH;
        (*ep).protocol_version = 1;
        (*ep).max_msg_size = MAX_MESSAGE_BYTES;
        (*ep).mem_tag_format = 0xaaaa_aaaa_aaaa_aaaa;
        (*ep).tx_ctx_cnt = 1;
        (*ep).rx_ctx_cnt = 1;
        fill_domain(&mut *domain, hints.and_then(|hints| hints.domain_attr.as_ref()));
        (*fabric).name = strdup(NAME.as_ptr());
        (*fabric).prov_version = FI_VERSION;
        (*fabric).api_version = version;
        ((*info).tx_attr, (*info).rx_attr, (*info).ep_attr) = (tx, rx, ep);
        ((*info).domain_attr, (*info).fabric_attr) = (domain, fabric);
    }
    Some(info)
}

/// # Safety
/// The place was allocated and zeroed by [`allocate`].
unsafe fn fill_domain(domain: &mut FiDomainAttr, hints: Option<&FiDomainAttr>) {
    let chosen =
        |pick: fn(&FiDomainAttr) -> c_int, default| hints.map(pick).filter(|value| *value != 0).unwrap_or(default);
    // SAFETY: the name is a constant.
    domain.name = unsafe { strdup(NAME.as_ptr()) };
    // Every level works with one lock per domain; some callers demand exactly theirs.
    domain.threading = chosen(|hints| hints.threading, FI_THREAD_SAFE);
    domain.control_progress = chosen(|hints| hints.control_progress, FI_PROGRESS_AUTO);
    domain.data_progress = chosen(|hints| hints.data_progress, FI_PROGRESS_MANUAL);
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.av_type = chosen(|hints| hints.av_type, FI_AV_MAP);
    domain.mr_key_size = size_of::<u64>();
    domain.cq_data_size = size_of::<u64>();
    domain.cq_cnt = OBJECTS;
    domain.ep_cnt = OBJECTS;
    domain.tx_ctx_cnt = OBJECTS;
    domain.rx_ctx_cnt = OBJECTS;
    domain.max_ep_tx_ctx = 1;
    domain.max_ep_rx_ctx = 1;
    domain.cntr_cnt = OBJECTS;
    domain.mr_iov_limit = 1;
    domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
    domain.mr_cnt = 1 << 20;
}
