//! Pleach for unmodified MPI programs: preloaded, this library offloads barriers, broadcasts and reductions, and, where that is faster
//! or asked for, gathers, scatters and alltoalls.
//!
//! ```text
//! LD_PRELOAD=/usr/lib/libpleach_mpi.so mpirun -n 4 program
//! ```
//! One binary serves Open MPI, MPICH and its derivatives, and the ABI of MPI-5. docs/mpi.md documents what is offloaded and how to
//! configure it, docs/decisions/0009-mpi-preload.md the design.
//!
//! Reading order, from the top: `wrappers` are the functions that programs call, with `profiler` in between; `lifecycle` starts and ends offloading, configured by
//! `configuration` and reported by `call_statistics` and `explanation`. `offload` runs blocking calls and `requests` non-blocking ones,
//! both as `call_plan` says, and `block_plan` where ranks have different parts of a vector. `communicator_forming` and `communicator_table` map communicators; `recovery`, `recovery_guard`,
//! `recovery_hook`, `replay_log` and `replay_arguments` are for failures of Pleach, `ulfm` and `ulfm_functions` for MPIs whose programs go on after a rank's death. `choice_table` says whether Pleach or the native MPI does a call, `trial` decides it by measured times, and
//! `measured_call` and `exchange` run the calls of a trial. At the bottom, `native_mpi`, `abi`, `datatypes` and `bootstrap_channel` are the MPI of the process.

mod abi;
mod abort;
mod agreement;
mod block_plan;
mod bootstrap_channel;
mod call_plan;
mod call_statistics;
mod choice_table;
mod collective_call;
mod communicator_forming;
mod communicator_table;
mod completion;
mod configuration;
mod datatypes;
mod exchange;
mod explanation;
mod generalized_request;
mod lifecycle;
mod local_addresses;
mod log;
mod measured_call;
mod mpi_job;
mod native_calls;
mod native_mpi;
mod offload;
mod packing;
mod profiler;
mod progress;
mod recovery;
mod recovery_guard;
mod recovery_hook;
mod replay_arguments;
mod replay_log;
mod requests;
mod size_class;
mod trial;
mod trial_budget;
mod trial_report;
mod typed_buffer;
mod ulfm;
mod ulfm_functions;
mod wrappers;
