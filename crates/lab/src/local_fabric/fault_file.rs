//! Plans of faults for processes, from files.

use std::path::Path;

use anyhow::{Context, Result};
use transport::udp::FaultInjector;

/// The variable that names such a file to ranks and nodes.
pub const VARIABLE: &str = "PLEACH_FAULTS";

/// The faults that a file describes, drawn for this process.
pub fn read(path: &Path) -> Result<FaultInjector> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("the faults in {name}"))?;
    let plan = faults::FaultPlan::parse(&text).with_context(|| format!("the faults in {name}"))?;
    FaultInjector::from_plan(&plan, u64::from(std::process::id())).with_context(|| format!("the faults in {name}"))
}
