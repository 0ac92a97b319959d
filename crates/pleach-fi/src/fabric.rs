//! Fabric and domain: the objects from which the application opens all others.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::address_vector::open_vector;
use crate::completion_queue::{is_ready_to_wait, open_queue};
use crate::counter::open_counter;
use crate::domain::Domain;
use crate::endpoint_calls::{open_endpoint, open_endpoint2};
use crate::endpoint_state::{EAGAIN, EINVAL};
use crate::event_queue::open_event_queue;
use crate::memory_region::{register, register_attributes, register_list};
use crate::objects::{DomainHandle, hand_out, head, take_back};
use crate::unsupported::{no_bind, no_control, object_ops, unsupported};

static FABRIC_FID: FiOps = object_ops(close_fabric, no_bind, no_control);
static FABRIC: FiOpsFabric = FiOpsFabric {
    size: size_of::<FiOpsFabric>(),
    domain: open_domain,
    passive_ep: unsupported,
    eq_open: open_event_queue,
    wait_open: unsupported,
    trywait: try_wait,
    domain2: open_domain2,
};
static DOMAIN_FID: FiOps = object_ops(close_domain, bind_domain, no_control);
static DOMAIN: FiOpsDomain = FiOpsDomain {
    size: size_of::<FiOpsDomain>(),
    av_open: open_vector,
    cq_open: open_queue,
    endpoint: open_endpoint,
    scalable_ep: unsupported,
    cntr_open: open_counter,
    poll_open: unsupported,
    stx_ctx: unsupported,
    srx_ctx: unsupported,
    query_atomic: unsupported,
    query_collective: unsupported,
    endpoint2: open_endpoint2,
    xpu_ctx: unsupported,
};
static MEMORY: FiOpsMr =
    FiOpsMr { size: size_of::<FiOpsMr>(), reg: register, regv: register_list, regattr: register_attributes };

/// `fi_fabric`.
pub(crate) unsafe extern "C" fn open_fabric(
    attributes: *mut FiFabricAttr,
    place: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    if attributes.is_null() || place.is_null() {
        return -EINVAL;
    }
    // SAFETY: the attributes are valid by the interface.
    let api_version = unsafe { (*attributes).api_version };
    let fabric = FidFabric { fid: head(FI_CLASS_FABRIC, context, &FABRIC_FID), ops: &FABRIC, api_version };
    // SAFETY: the caller wants the pointer there.
    unsafe { hand_out(fabric, place) };
    0
}

unsafe extern "C" fn close_fabric(fid: *mut Fid) -> c_int {
    // SAFETY: the application closes a fabric that it opened.
    drop(unsafe { take_back::<FidFabric>(fid) });
    0
}

unsafe extern "C" fn open_domain(
    _: *mut FidFabric,
    _: *mut FiInfo,
    place: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    let domain = match Domain::open() {
        Ok(domain) => domain,
        Err(error) => {
            crate::log::log(&format!("cannot start the progress thread: {error}"));
            return -EAGAIN;
        }
    };
    let fid = head(FI_CLASS_DOMAIN, context, &DOMAIN_FID);
    let handle = DomainHandle { head: FidDomain { fid, ops: &DOMAIN, mr: &MEMORY }, domain };
    // SAFETY: the caller wants the pointer there.
    unsafe { hand_out(handle, place) };
    0
}

unsafe extern "C" fn open_domain2(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    place: *mut *mut FidDomain,
    _flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are those of the call without flags.
    unsafe { open_domain(fabric, info, place, context) }
}

unsafe extern "C" fn close_domain(fid: *mut Fid) -> c_int {
    // SAFETY: the application closes a domain that it opened.
    let handle = unsafe { take_back::<DomainHandle>(fid) };
    handle.domain.close();
    0
}

/// Event queues may be bound; there are no asynchronous events of memory regions.
unsafe extern "C" fn bind_domain(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    0
}

/// `fi_trywait`: whether the application may sleep on the wait objects of these queues.
unsafe extern "C" fn try_wait(_: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` entries by the interface.
        let fid = unsafe { *fids.add(index) };
        // SAFETY: they are live objects of this provider.
        if unsafe { (*fid).fclass == FI_CLASS_CQ && !is_ready_to_wait(fid) } {
            return -EAGAIN;
        }
    }
    0
}
