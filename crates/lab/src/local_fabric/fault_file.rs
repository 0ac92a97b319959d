//! Fault plans from files.

use std::path::Path;

use anyhow::{Context, Result};
use transport::udp::FaultInjector;

/// The variable by which ranks and nodes find the file.
pub const VARIABLE: &str = "PLEACH_FAULTS";

/// Reads a fault plan, with this process's id as seed.
pub fn read(path: &Path) -> Result<FaultInjector> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the fault plan {name}"))?;
    let plan = faults::FaultPlan::parse(&text).with_context(|| format!("cannot read the fault plan {name}"))?;
    FaultInjector::from_plan(&plan, u64::from(std::process::id()))
        .with_context(|| format!("cannot read the fault plan {name}"))
}
