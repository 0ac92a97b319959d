//! The laboratory: reproductions of the papers, benchmarks, the demo, the soak, reports, and the oracle checks of simulated runs.

pub mod bench;
pub mod chaos;
mod cpu_time;
pub mod demo;
mod job_checker;
mod latency_distribution;
pub mod local_fabric;
pub mod mpi;
mod nas_kernels;
pub mod number_format;
pub mod oracle_checker;
mod outcome;
pub mod parallel;
pub mod progress;
mod reference_fold;
pub mod report;
pub mod reproduce;
pub mod simulated_run;
pub mod simulation_report;
pub mod soak;
pub mod text_file;

pub use outcome::CommandOutcome;
