//! The laboratory: reproductions of the papers, benchmarks, the demo, reports, and the judge of simulated runs.

pub mod bench;
pub mod demo;
pub mod distribution;
pub mod fabric;
pub mod judge;
mod kernels;
pub mod mpi;
mod outcome;
pub mod report;
pub mod reproduce;
pub mod words;

pub use outcome::Outcome;
