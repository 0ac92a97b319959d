//! The processes that a benchmark starts: reads what rank 0 prints, and checks that all exit with success.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::local_fabric::child_process::{ChildProcess, OutputLine};
use crate::local_fabric::describe_exit_status;

/// A run that takes longer has hung.
pub(super) const RUN_TIMEOUT: Duration = Duration::from_secs(300);
/// Ranks have this long to exit after the last result.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The next line of rank 0.
pub(super) fn next_line(
    output: &Receiver<OutputLine>,
    deadline: Instant,
    processes: &[ChildProcess],
) -> Result<String> {
    match output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok((_, Some(line))) => Ok(line),
        _ => {
            let errors: String = processes.iter().map(ChildProcess::last_stderr_lines).collect();
            bail!("rank 0 ended, or gave no result for too long, before the last result{errors}")
        }
    }
}

/// Waits until all processes have exited, all with success.
pub(super) fn wait_for_success(processes: &mut [ChildProcess]) -> Result<()> {
    for process in processes {
        let status = process.kill_and_wait_after(EXIT_TIMEOUT);
        ensure!(
            status.success(),
            "{} {}{}",
            process.name(),
            describe_exit_status(status),
            process.last_stderr_lines()
        );
    }
    Ok(())
}
