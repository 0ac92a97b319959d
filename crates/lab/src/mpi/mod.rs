//! MPI installations: their launchers, and the library that is preloaded into their programs.

pub mod launcher;
pub mod library;
