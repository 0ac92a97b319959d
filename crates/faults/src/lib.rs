//! Faults as data: one plan format for the simulator, the runtime and the tests.
//!
//! In: TOML. Out: rules ([`FaultPlan`]) whose strikes are drawn by name ([`RandomStream`]), so that a seed gives the same faults again.
//! Where a rule strikes (a cable, a port) and what a strike does is the business of each world.
#![forbid(unsafe_code)]

mod plan;
mod random;

pub use plan::{FaultKind, FaultPlan, FaultPlanError, FaultRule, PhaseFilter};
pub use random::{Probability, RandomStream};
