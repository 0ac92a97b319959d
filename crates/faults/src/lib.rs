//! Faults as data: one plan format for the simulator, the runtime and the tests.
//!
//! In: TOML. Out: rules ([`FaultPlan`]) whose random numbers are drawn by name ([`RandomStream`]), so that a seed repeats the faults.
//! The simulator and the runtime each decide where a rule applies (a cable, a port) and what it does there.
#![forbid(unsafe_code)]

mod plan;
mod plan_file;
mod random;

pub use plan::{FaultKind, FaultPlan, FaultPlanError, FaultRule, PhaseFilter};
pub use plan_file::{FaultPlanFileError, read_plan};
pub use random::{Probability, RandomStream};
