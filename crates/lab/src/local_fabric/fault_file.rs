//! Fault plans from files, for this process.

use std::path::Path;

use faults::FaultPlanFileError;
use transport::udp::FaultInjector;

/// The variable by which ranks and nodes find the file.
pub const VARIABLE: &str = "PLEACH_FAULTS";

/// Reads a fault plan, with this process's id as seed.
///
/// # Errors
/// If the file cannot be read, or is not a plan for sockets.
pub fn read(path: &Path) -> Result<FaultInjector, FaultPlanFileError> {
    faults::read_plan(path, |plan| FaultInjector::from_plan(plan, u64::from(std::process::id())))
}
