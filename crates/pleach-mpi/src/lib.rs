//! Pleach for MPI programs as they are: preloaded, this library takes over barriers, broadcasts and reductions.
//!
//! ```text
//! LD_PRELOAD=/usr/lib/libpleach_mpi.so mpirun -n 4 program
//! ```
//! One binary for Open MPI, MPICH and its relatives, and the ABI of MPI-5. docs/mpi.md says what is taken over and how to set it up,
//! docs/decisions/0009-mpi-preload.md why it is made so.
//!
//! Reading order: `entry` has the functions that programs call; `calls` is one call on its way; `communicators` says whom it concerns,
//! `types` what it folds; `job` is the beginning and the end, `wish` the settings, `explanation` what
//! is told instead of a run; `requests` are non-blocking calls; `recovery` and `kept` are what happens when
//! Pleach fails. `real`, `abi` and `words` are the MPI as it is found.

mod abi;
mod calls;
mod communicators;
mod entry;
mod explanation;
mod job;
mod kept;
mod packing;
mod progress;
mod real;
mod recovery;
mod requests;
mod tally;
mod types;
mod wish;
mod words;
