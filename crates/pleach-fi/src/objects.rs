//! Objects that the application holds by pointer: a head in libfabric's layout, then ours.

use std::ffi::c_void;
use std::sync::Arc;

use crate::abi::{FiOps, FiOpsAv, FiOpsCntr, FiOpsCq, Fid, FidDomain, FidEp, FidWith};
use crate::domain::Domain;

/// A domain, as the application holds it.
#[repr(C)]
pub(crate) struct DomainHandle {
    pub(crate) head: FidDomain,
    pub(crate) domain: Arc<Domain>,
}

/// The domain of a handle from the application.
///
/// # Safety
/// The handle is a live one of this provider.
pub(crate) unsafe fn domain_of<'a>(handle: *const FidDomain) -> &'a Arc<Domain> {
    // SAFETY: as this function's caller promises.
    unsafe { &object::<DomainHandle>(handle.cast()).domain }
}

/// An object of a domain.
#[repr(C)]
pub(crate) struct DomainObject<H> {
    pub(crate) head: H,
    pub(crate) domain: Arc<Domain>,
    /// Its number in the domain's state.
    pub(crate) number: usize,
}

pub(crate) type CqObject = DomainObject<FidWith<FiOpsCq>>;
pub(crate) type CntrObject = DomainObject<FidWith<FiOpsCntr>>;
pub(crate) type AvObject = DomainObject<FidWith<FiOpsAv>>;
pub(crate) type EpObject = DomainObject<FidEp>;

/// The head of an object.
pub(crate) fn head(fclass: usize, context: *mut c_void, ops: &'static FiOps) -> Fid {
    Fid { fclass, context, ops }
}

/// Hands an object to the application.
///
/// # Safety
/// `place` is where the caller of libfabric wants the pointer.
pub(crate) unsafe fn hand_out<T, P>(object: T, place: *mut *mut P) {
    // SAFETY: `place` is valid by the interface; `T` begins with the head that `P` is.
    unsafe { *place = Box::into_raw(Box::new(object)).cast() };
}

/// The object behind a pointer from the application.
///
/// # Safety
/// `fid` points to a live object that [`hand_out`] made from a `T`.
pub(crate) unsafe fn object<'a, T>(fid: *const Fid) -> &'a T {
    // SAFETY: as this function's caller promises.
    unsafe { &*fid.cast::<T>() }
}

/// Takes an object back that the application closes.
///
/// # Safety
/// As [`object`], and nobody uses it afterwards.
pub(crate) unsafe fn take_back<T>(fid: *mut Fid) -> Box<T> {
    // SAFETY: as this function's caller promises.
    unsafe { Box::from_raw(fid.cast::<T>()) }
}
