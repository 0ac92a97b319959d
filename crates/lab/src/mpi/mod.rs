//! MPI installations: their launchers, and the libraries that their programs load.

pub mod mpi_launcher;
pub mod preload_library;
pub mod provider_library;
