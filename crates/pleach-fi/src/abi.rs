//! The binary interface of libfabric, as far as a provider needs it: structures, operation tables, numbers.
//!
//! Written from the documented layout; the sizes are asserted below. Structures and tables only grow at their end (libfabric 1.17
//! to 2.6): this file has those of 1.17. Memory that libfabric frees or that newer versions read beyond these fields is
//! allocated with room to spare ([`SPARE_BYTES`]). Every table is complete: some callers jump into empty slots.

use std::ffi::{c_char, c_int, c_void};

/// Zeroed bytes behind every structure that libfabric may take for a newer, longer one.
pub(crate) const SPARE_BYTES: usize = 512;

pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// The newest interface that this provider serves.
pub(crate) const FI_VERSION: u32 = version(2, 6);

/// An address handle: an index into an address vector.
pub(crate) type FiAddr = u64;
pub(crate) const FI_ADDR_UNSPEC: FiAddr = u64::MAX;
pub(crate) const FI_ADDR_NOTAVAIL: FiAddr = u64::MAX;

// Capabilities, operation flags and completion flags.
pub(crate) const FI_MSG: u64 = 1 << 1;
pub(crate) const FI_TAGGED: u64 = 1 << 3;
pub(crate) const FI_RECV: u64 = 1 << 10;
pub(crate) const FI_SEND: u64 = 1 << 11;
pub(crate) const FI_MULTI_RECV: u64 = 1 << 16;
pub(crate) const FI_RMA: u64 = 1 << 2;
pub(crate) const FI_READ: u64 = 1 << 8;
pub(crate) const FI_REMOTE_READ: u64 = 1 << 12;
pub(crate) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub(crate) const FI_PEEK: u64 = 1 << 19;
pub(crate) const FI_COMPLETION: u64 = 1 << 24;
pub(crate) const FI_INJECT: u64 = 1 << 25;
pub(crate) const FI_INJECT_COMPLETE: u64 = 1 << 26;
pub(crate) const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
pub(crate) const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub(crate) const FI_MATCH_COMPLETE: u64 = 1 << 31;
pub(crate) const FI_LOCAL_COMM: u64 = 1 << 51;
pub(crate) const FI_REMOTE_COMM: u64 = 1 << 52;
pub(crate) const FI_SOURCE: u64 = 1 << 57;
pub(crate) const FI_DISCARD: u64 = 1 << 58;
pub(crate) const FI_DIRECTED_RECV: u64 = 1 << 59;
pub(crate) const FI_CLAIM: u64 = 1 << 59;
pub(crate) const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;
pub(crate) const FI_PROV_ATTR_ONLY: u64 = 1 << 54;

pub(crate) const FI_ORDER_SAS: u64 = 1 << 8;

// Error numbers beyond those of the system.
pub(crate) const FI_EAVAIL: i32 = 259;
pub(crate) const FI_ETOOSMALL: i32 = 257;
pub(crate) const FI_EOPBADSTATE: i32 = 258;
pub(crate) const FI_ECRC: i32 = 264;
pub(crate) const FI_ETRUNC: i32 = 265;
pub(crate) const FI_ENOAV: i32 = 267;

// Classes of objects.
pub(crate) const FI_CLASS_FABRIC: usize = 1;
pub(crate) const FI_CLASS_DOMAIN: usize = 2;
pub(crate) const FI_CLASS_EP: usize = 3;
pub(crate) const FI_CLASS_AV: usize = 11;
pub(crate) const FI_CLASS_MR: usize = 12;
pub(crate) const FI_CLASS_EQ: usize = 13;
pub(crate) const FI_CLASS_CQ: usize = 14;
pub(crate) const FI_CLASS_CNTR: usize = 15;

pub(crate) const FI_EP_UNSPEC: c_int = 0;
pub(crate) const FI_EP_RDM: c_int = 3;
pub(crate) const FI_AV_MAP: c_int = 1;
pub(crate) const FI_AV_TABLE: c_int = 2;
pub(crate) const FI_THREAD_SAFE: c_int = 1;
pub(crate) const FI_PROGRESS_AUTO: c_int = 1;
pub(crate) const FI_PROGRESS_MANUAL: c_int = 2;
pub(crate) const FI_RM_ENABLED: c_int = 2;
/// A provider's own address format: the uppermost bit is set.
pub(crate) const FI_ADDR_PLEACH: u32 = 1 << 31 | 0x504c;
/// A provider's own protocol.
pub(crate) const FI_PROTO_PLEACH: u32 = 1 << 31 | 0x504c;
pub(crate) const FI_CQ_FORMAT_CONTEXT: c_int = 1;
pub(crate) const FI_CQ_FORMAT_MSG: c_int = 2;
pub(crate) const FI_CQ_FORMAT_DATA: c_int = 3;
pub(crate) const FI_CQ_FORMAT_TAGGED: c_int = 4;
pub(crate) const FI_WAIT_NONE: c_int = 0;
pub(crate) const FI_WAIT_UNSPEC: c_int = 1;
pub(crate) const FI_WAIT_FD: c_int = 3;
pub(crate) const FI_GETWAIT: c_int = 5;
pub(crate) const FI_ENABLE: c_int = 6;
pub(crate) const FI_GETOPSFLAG: c_int = 2;
pub(crate) const FI_SETOPSFLAG: c_int = 3;
pub(crate) const FI_GETWAITOBJ: c_int = 16;
pub(crate) const FI_OPT_MIN_MULTI_RECV: c_int = 0;
pub(crate) const FI_AV_COMPLETE: u32 = 5;

#[repr(C)]
pub(crate) struct FiTxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) inject_size: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
    pub(crate) rma_iov_limit: usize,
    pub(crate) tclass: u32,
}

#[repr(C)]
pub(crate) struct FiRxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) total_buffered_recv: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
}

#[repr(C)]
pub(crate) struct FiEpAttr {
    pub(crate) kind: c_int,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: usize,
    pub(crate) msg_prefix_size: usize,
    pub(crate) max_order_raw_size: usize,
    pub(crate) max_order_war_size: usize,
    pub(crate) max_order_waw_size: usize,
    pub(crate) mem_tag_format: u64,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
}

#[repr(C)]
pub(crate) struct FiDomainAttr {
    pub(crate) domain: *mut c_void,
    pub(crate) name: *mut c_char,
    pub(crate) threading: c_int,
    pub(crate) control_progress: c_int,
    pub(crate) data_progress: c_int,
    pub(crate) resource_mgmt: c_int,
    pub(crate) av_type: c_int,
    pub(crate) mr_mode: c_int,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) cq_cnt: usize,
    pub(crate) ep_cnt: usize,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) max_ep_tx_ctx: usize,
    pub(crate) max_ep_rx_ctx: usize,
    pub(crate) max_ep_stx_ctx: usize,
    pub(crate) max_ep_srx_ctx: usize,
    pub(crate) cntr_cnt: usize,
    pub(crate) mr_iov_limit: usize,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) auth_key: *mut u8,
    pub(crate) auth_key_size: usize,
    pub(crate) max_err_data: usize,
    pub(crate) mr_cnt: usize,
    pub(crate) tclass: u32,
}

#[repr(C)]
pub(crate) struct FiFabricAttr {
    pub(crate) fabric: *mut c_void,
    pub(crate) name: *mut c_char,
    pub(crate) prov_name: *mut c_char,
    pub(crate) prov_version: u32,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FiInfo {
    pub(crate) next: *mut FiInfo,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: usize,
    pub(crate) dest_addrlen: usize,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut Fid,
    pub(crate) tx_attr: *mut FiTxAttr,
    pub(crate) rx_attr: *mut FiRxAttr,
    pub(crate) ep_attr: *mut FiEpAttr,
    pub(crate) domain_attr: *mut FiDomainAttr,
    pub(crate) fabric_attr: *mut FiFabricAttr,
    pub(crate) nic: *mut c_void,
}

/// The head of every object.
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) fclass: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const FiOps,
}

/// An object with one table of operations: fabric, address vector, queues, counter.
#[repr(C)]
pub(crate) struct FidWith<T> {
    pub(crate) fid: Fid,
    pub(crate) ops: *const T,
}

#[repr(C)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsFabric,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsDomain,
    pub(crate) mr: *const FiOpsMr,
}

#[repr(C)]
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FidEp {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsEp,
    pub(crate) cm: *const FiOpsCm,
    pub(crate) msg: *const FiOpsMsg,
    pub(crate) rma: *const FiOpsRma,
    pub(crate) tagged: *const FiOpsTagged,
    pub(crate) atomic: *const UnsupportedTable,
    pub(crate) collective: *const UnsupportedTable,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Iovec {
    pub(crate) base: *mut c_void,
    pub(crate) len: usize,
}

#[repr(C)]
pub(crate) struct FiMsg {
    pub(crate) iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: FiAddr,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiMsgTagged {
    pub(crate) iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: FiAddr,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

/// A completion in its longest format; shorter formats are its beginnings.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FiCqTaggedEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
}

#[repr(C)]
pub(crate) struct FiCqErrEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
}

#[repr(C)]
pub(crate) struct FiEqEntry {
    pub(crate) fid: *mut Fid,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiAvAttr {
    pub(crate) kind: c_int,
    pub(crate) rx_ctx_bits: c_int,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

#[repr(C)]
pub(crate) struct FiCqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct FiCntrAttr {
    pub(crate) events: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) wait_set: *mut c_void,
    pub(crate) flags: u64,
}

/// What `fi_prov_ini` returns. libfabric writes to `context`.
#[repr(C)]
pub(crate) struct FiProvider {
    pub(crate) version: u32,
    pub(crate) fi_version: u32,
    pub(crate) context: [*mut c_void; 4],
    pub(crate) name: *const c_char,
    pub(crate) getinfo: GetInfoCall,
    pub(crate) fabric: unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    pub(crate) cleanup: extern "C" fn(),
}

pub(crate) type GetInfoCall =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const FiInfo, *mut *mut FiInfo) -> c_int;

/// A slot that this provider does not serve. Called with whatever arguments; it reads none.
pub(crate) type UnsupportedCall = extern "C" fn() -> isize;

/// A table of which no slot is served: remote memory access, atomics, collectives. Longer than any of them.
#[repr(C)]
pub(crate) struct UnsupportedTable {
    pub(crate) size: usize,
    pub(crate) calls: [UnsupportedCall; 16],
}

#[repr(C)]
pub(crate) struct FiOps {
    pub(crate) size: usize,
    pub(crate) close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(crate) bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(crate) control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
    pub(crate) ops_open: UnsupportedCall,
    pub(crate) tostr: UnsupportedCall,
    pub(crate) ops_set: UnsupportedCall,
}

#[repr(C)]
pub(crate) struct FiOpsFabric {
    pub(crate) size: usize,
    pub(crate) domain: unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int,
    pub(crate) passive_ep: UnsupportedCall,
    pub(crate) eq_open: unsafe extern "C" fn(*mut FidFabric, *mut c_void, *mut *mut Fid, *mut c_void) -> c_int,
    pub(crate) wait_open: UnsupportedCall,
    pub(crate) trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
    pub(crate) domain2:
        unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, u64, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct FiOpsDomain {
    pub(crate) size: usize,
    pub(crate) av_open: unsafe extern "C" fn(*mut FidDomain, *mut FiAvAttr, *mut *mut Fid, *mut c_void) -> c_int,
    pub(crate) cq_open: unsafe extern "C" fn(*mut FidDomain, *mut FiCqAttr, *mut *mut Fid, *mut c_void) -> c_int,
    pub(crate) endpoint: unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) scalable_ep: UnsupportedCall,
    pub(crate) cntr_open: unsafe extern "C" fn(*mut FidDomain, *mut FiCntrAttr, *mut *mut Fid, *mut c_void) -> c_int,
    pub(crate) poll_open: UnsupportedCall,
    pub(crate) stx_ctx: UnsupportedCall,
    pub(crate) srx_ctx: UnsupportedCall,
    pub(crate) query_atomic: UnsupportedCall,
    pub(crate) query_collective: UnsupportedCall,
    pub(crate) endpoint2:
        unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, u64, *mut c_void) -> c_int,
    pub(crate) xpu_ctx: UnsupportedCall,
}

#[repr(C)]
pub(crate) struct FiOpsMr {
    pub(crate) size: usize,
    pub(crate) reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regv: unsafe extern "C" fn(
        *mut Fid,
        *const Iovec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regattr: unsafe extern "C" fn(*mut Fid, *const c_void, u64, *mut *mut FidMr) -> c_int,
}

#[repr(C)]
pub(crate) struct FiOpsAv {
    pub(crate) size: usize,
    pub(crate) insert: unsafe extern "C" fn(*mut Fid, *const c_void, usize, *mut FiAddr, u64, *mut c_void) -> c_int,
    pub(crate) insertsvc: UnsupportedCall,
    pub(crate) insertsym: UnsupportedCall,
    pub(crate) remove: unsafe extern "C" fn(*mut Fid, *mut FiAddr, usize, u64) -> c_int,
    pub(crate) lookup: unsafe extern "C" fn(*mut Fid, FiAddr, *mut c_void, *mut usize) -> c_int,
    pub(crate) straddr: unsafe extern "C" fn(*mut Fid, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub(crate) av_set: UnsupportedCall,
    pub(crate) insert_auth_key: UnsupportedCall,
    pub(crate) lookup_auth_key: UnsupportedCall,
    pub(crate) set_user_id: UnsupportedCall,
    pub(crate) lookup2: UnsupportedCall,
}

#[repr(C)]
pub(crate) struct FiOpsEp {
    pub(crate) size: usize,
    pub(crate) cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize,
    pub(crate) getopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub(crate) setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub(crate) tx_ctx: UnsupportedCall,
    pub(crate) rx_ctx: UnsupportedCall,
    pub(crate) rx_size_left: UnsupportedCall,
    pub(crate) tx_size_left: UnsupportedCall,
    pub(crate) export_xpu: UnsupportedCall,
}

#[repr(C)]
pub(crate) struct FiOpsCm {
    pub(crate) size: usize,
    pub(crate) setname: UnsupportedCall,
    pub(crate) getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub(crate) getpeer: UnsupportedCall,
    pub(crate) connect: UnsupportedCall,
    pub(crate) listen: UnsupportedCall,
    pub(crate) accept: UnsupportedCall,
    pub(crate) reject: UnsupportedCall,
    pub(crate) shutdown: UnsupportedCall,
    pub(crate) join: UnsupportedCall,
}

#[repr(C)]
pub(crate) struct FiOpsMsg {
    pub(crate) size: usize,
    pub(crate) recv: unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, FiAddr, *mut c_void) -> isize,
    pub(crate) recvv:
        unsafe extern "C" fn(*mut FidEp, *const Iovec, *mut *mut c_void, usize, FiAddr, *mut c_void) -> isize,
    pub(crate) recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
    pub(crate) send:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, FiAddr, *mut c_void) -> isize,
    pub(crate) sendv:
        unsafe extern "C" fn(*mut FidEp, *const Iovec, *mut *mut c_void, usize, FiAddr, *mut c_void) -> isize,
    pub(crate) sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr) -> isize,
    pub(crate) senddata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, FiAddr, *mut c_void) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr) -> isize,
}

#[repr(C)]
pub(crate) struct FiRmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FiMsgRma {
    pub(crate) iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: FiAddr,
    pub(crate) rma_iov: *const FiRmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiOpsRma {
    pub(crate) size: usize,
    pub(crate) read:
        unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, FiAddr, u64, u64, *mut c_void) -> isize,
    pub(crate) readv: unsafe extern "C" fn(
        *mut FidEp,
        *const Iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) readmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
    pub(crate) write: UnsupportedCall,
    pub(crate) writev: UnsupportedCall,
    pub(crate) writemsg: UnsupportedCall,
    pub(crate) inject: UnsupportedCall,
    pub(crate) writedata: UnsupportedCall,
    pub(crate) injectdata: UnsupportedCall,
}

/// The fields of `fi_mr_attr` that all versions have.
#[repr(C)]
pub(crate) struct FiMrAttr {
    pub(crate) mr_iov: *const Iovec,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
}

#[repr(C)]
pub(crate) struct FiOpsTagged {
    pub(crate) size: usize,
    pub(crate) recv:
        unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, FiAddr, u64, u64, *mut c_void) -> isize,
    pub(crate) recvv: unsafe extern "C" fn(
        *mut FidEp,
        *const Iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
    pub(crate) send:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, FiAddr, u64, *mut c_void) -> isize,
    pub(crate) sendv:
        unsafe extern "C" fn(*mut FidEp, *const Iovec, *mut *mut c_void, usize, FiAddr, u64, *mut c_void) -> isize,
    pub(crate) sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr, u64) -> isize,
    pub(crate) senddata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, FiAddr, u64, *mut c_void) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr, u64) -> isize,
}

#[repr(C)]
pub(crate) struct FiOpsCq {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut Fid, *mut c_void, usize) -> isize,
    pub(crate) readfrom: unsafe extern "C" fn(*mut Fid, *mut c_void, usize, *mut FiAddr) -> isize,
    pub(crate) readerr: unsafe extern "C" fn(*mut Fid, *mut FiCqErrEntry, u64) -> isize,
    pub(crate) sread: unsafe extern "C" fn(*mut Fid, *mut c_void, usize, *const c_void, c_int) -> isize,
    pub(crate) sreadfrom:
        unsafe extern "C" fn(*mut Fid, *mut c_void, usize, *mut FiAddr, *const c_void, c_int) -> isize,
    pub(crate) signal: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(crate) strerror: unsafe extern "C" fn(*mut Fid, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    pub(crate) export_xpu: UnsupportedCall,
}

#[repr(C)]
pub(crate) struct FiOpsCntr {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut Fid) -> u64,
    pub(crate) readerr: unsafe extern "C" fn(*mut Fid) -> u64,
    pub(crate) add: unsafe extern "C" fn(*mut Fid, u64) -> c_int,
    pub(crate) set: unsafe extern "C" fn(*mut Fid, u64) -> c_int,
    pub(crate) wait: unsafe extern "C" fn(*mut Fid, u64, c_int) -> c_int,
    pub(crate) adderr: unsafe extern "C" fn(*mut Fid, u64) -> c_int,
    pub(crate) seterr: unsafe extern "C" fn(*mut Fid, u64) -> c_int,
    pub(crate) export_xpu: UnsupportedCall,
}

#[repr(C)]
pub(crate) struct FiOpsEq {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut Fid, *mut u32, *mut c_void, usize, u64) -> isize,
    pub(crate) readerr: unsafe extern "C" fn(*mut Fid, *mut c_void, u64) -> isize,
    pub(crate) write: UnsupportedCall,
    pub(crate) sread: unsafe extern "C" fn(*mut Fid, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
    pub(crate) strerror: unsafe extern "C" fn(*mut Fid, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

// The layout of 64-bit systems, libfabric 1.17.
const _: () = {
    assert!(size_of::<FiTxAttr>() == 80 && size_of::<FiRxAttr>() == 64 && size_of::<FiEpAttr>() == 96);
    assert!(size_of::<FiDomainAttr>() == 192 && size_of::<FiFabricAttr>() == 32 && size_of::<FiInfo>() == 120);
    assert!(size_of::<Fid>() == 24 && size_of::<FidWith<FiOpsAv>>() == 32 && size_of::<FidFabric>() == 40);
    assert!(size_of::<FidDomain>() == 40 && size_of::<FidMr>() == 40 && size_of::<FidEp>() == 80);
    assert!(size_of::<FiMsg>() == 48 && size_of::<FiMsgTagged>() == 64 && size_of::<Iovec>() == 16);
    assert!(size_of::<FiCqTaggedEntry>() == 48 && size_of::<FiCqErrEntry>() == 80 && size_of::<FiEqEntry>() == 24);
    assert!(size_of::<FiAvAttr>() == 48 && size_of::<FiCqAttr>() == 40 && size_of::<FiCntrAttr>() == 24);
    assert!(size_of::<FiProvider>() == 72 && size_of::<FiOps>() == 56 && size_of::<FiOpsFabric>() == 56);
    assert!(size_of::<FiOpsDomain>() == 104 && size_of::<FiOpsMr>() == 32 && size_of::<FiOpsAv>() == 96);
    assert!(size_of::<FiOpsEp>() == 72 && size_of::<FiOpsCm>() == 80 && size_of::<FiOpsMsg>() == 80);
    assert!(size_of::<FiOpsRma>() == 80 && size_of::<FiMsgRma>() == 64 && size_of::<FiRmaIov>() == 24);
    assert!(size_of::<FiMrAttr>() == 48);
    assert!(size_of::<FiOpsTagged>() == 80 && size_of::<FiOpsCq>() == 72 && size_of::<FiOpsCntr>() == 72);
    assert!(size_of::<FiOpsEq>() == 48);
};
