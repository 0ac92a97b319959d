//! `libpleach-fi.so`: a libfabric provider. It carries the messages of MPI programs, unmodified, over Pleach's messaging engine:
//! every byte is covered by a checksum from memory to memory, and a link that fails is replaced by another.
//!
//! libfabric loads it from the directory in `FI_PROVIDER_PATH` and calls [`fi_prov_ini`], its only export.
//!
//! Reading order: `abi` is libfabric's binary interface. `provider_info` says what is offered; `fabric` opens the objects
//! (`address_vector`, `completion_queue`, `counter`, `endpoint_calls`), which the lock of a `domain` protects. An
//! `endpoint_state` matches messages with receives (`match_lists`, `endpoint_operations`); its `message_port` sends and receives them,
//! over connections that `peer_connection` and, within a host, `shared_memory` make. docs/libfabric.md explains its use.

#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
mod address_vector;
mod completion_queue;
mod connection_request;
mod connection_security;
mod counter;
mod domain;
mod endpoint_address;
mod endpoint_calls;
mod endpoint_operations;
mod endpoint_state;
mod envelope;
mod event_queue;
mod event_sender;
mod fabric;
mod host_identity;
mod local_paths;
mod log;
mod match_lists;
mod memory_region;
mod message_port;
mod number_map;
mod objects;
mod path_log;
mod peer_connection;
mod provider_info;
mod queues;
mod registered_memory;
mod remote_memory_calls;
mod remote_read;
mod shared_memory;
mod unsupported;
mod user_memory;

use abi::FiProvider;

extern "C" fn cleanup() {}

/// Describes this provider to libfabric, which writes to the description and keeps it: each call returns its own.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut std::ffi::c_void {
    let provider = FiProvider {
        version: abi::version(0, 2),
        fi_version: abi::FI_VERSION,
        context: [std::ptr::null_mut(); 4],
        name: provider_info::NAME.as_ptr(),
        getinfo: provider_info::getinfo,
        fabric: fabric::open_fabric,
        cleanup,
    };
    Box::into_raw(Box::new(provider)).cast()
}
