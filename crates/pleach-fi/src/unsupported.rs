//! Slots of libfabric's tables that this provider does not serve. None is empty: some callers do not look before they jump.

use std::ffi::{c_int, c_void};

use crate::abi::{FiOps, Fid, UnsupportedTable};
use crate::endpoint_state::ENOSYS;

pub(crate) extern "C" fn unsupported() -> isize {
    -(ENOSYS as isize)
}

pub(crate) unsafe extern "C" fn no_bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    -ENOSYS
}

pub(crate) unsafe extern "C" fn no_control(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    -ENOSYS
}

pub(crate) static UNSUPPORTED: UnsupportedTable =
    UnsupportedTable { size: size_of::<UnsupportedTable>(), calls: [unsupported; 16] };

/// The general operations of an object.
pub(crate) const fn object_ops(
    close: unsafe extern "C" fn(*mut Fid) -> c_int,
    bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
) -> FiOps {
    FiOps {
        size: size_of::<FiOps>(),
        close,
        bind,
        control,
        ops_open: unsupported,
        tostr: unsupported,
        ops_set: unsupported,
    }
}
