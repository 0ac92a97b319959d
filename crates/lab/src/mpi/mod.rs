//! MPI installations: their launchers, and the library that is preloaded into their programs.

pub mod mpi_launcher;
pub mod preload_library;
