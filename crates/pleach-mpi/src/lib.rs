//! Pleach for unmodified MPI programs: preloaded, this library offloads barriers, broadcasts and reductions.
//!
//! ```text
//! LD_PRELOAD=/usr/lib/libpleach_mpi.so mpirun -n 4 program
//! ```
//! One binary serves Open MPI, MPICH and its derivatives, and the ABI of MPI-5. docs/mpi.md documents what is offloaded and how to
//! configure it, docs/decisions/0009-mpi-preload.md the design.
//!
//! Reading order, from the top: `wrappers` are the functions that programs call; `lifecycle` starts and ends offloading, configured by
//! `configuration` and reported by `call_statistics` and `explanation`. `offload` runs blocking calls and `requests` non-blocking ones,
//! both as `call_plan` says. `communicator_forming` and `communicator_table` map communicators; `recovery` and `replay_log` are for
//! failures of Pleach. At the bottom, `native_mpi`, `abi`, `datatypes` and `bootstrap_channel` are the MPI of the process.

mod abi;
mod bootstrap_channel;
mod call_plan;
mod call_statistics;
mod collective_call;
mod communicator_forming;
mod communicator_table;
mod completion;
mod configuration;
mod datatypes;
mod explanation;
mod generalized_request;
mod lifecycle;
mod local_addresses;
mod log;
mod mpi_job;
mod native_calls;
mod native_mpi;
mod offload;
mod packing;
mod progress;
mod recovery;
mod replay_log;
mod requests;
mod wrappers;
