//! The laboratory: reproductions of the papers, benchmarks, the demo, reports, and the judge of simulated runs.

pub mod bench;
pub mod demo;
pub mod latency_distribution;
pub mod local_fabric;
pub mod mpi;
mod nas_kernels;
pub mod number_format;
pub mod oracle_checker;
mod outcome;
pub mod report;
pub mod reproduce;

pub use outcome::CommandOutcome;
