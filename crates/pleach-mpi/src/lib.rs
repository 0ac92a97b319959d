//! Pleach for MPI programs as they are: preloaded, this library takes over barriers, broadcasts and reductions.
//!
//! ```text
//! LD_PRELOAD=/usr/lib/libpleach_mpi.so mpirun -n 4 program
//! ```
//! One binary for Open MPI, MPICH and its relatives, and the ABI of MPI-5. docs/mpi.md says what is taken over and how to set it up,
//! docs/decisions/0009-mpi-preload.md why it is made so.
//!
//! Reading order: `wrappers` has the functions that programs call; `collective_call` is one call on its way; `communicator_table` says whom it concerns,
//! `datatypes` what it folds; `mpi_job` is the beginning and the end, `configuration` the settings, `explanation` what
//! is told instead of a run; `requests` are non-blocking calls; `recovery` and `replay_log` are what happens when
//! Pleach fails. `native_mpi`, `abi` and `bootstrap_channel` are the MPI as it is found.

mod abi;
mod bootstrap_channel;
mod call_statistics;
mod collective_call;
mod communicator_table;
mod configuration;
mod datatypes;
mod explanation;
mod mpi_job;
mod native_mpi;
mod packing;
mod progress;
mod recovery;
mod replay_log;
mod requests;
mod wrappers;
