//! `pleach launch-rank`: prepares a process and becomes the user's program.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Args;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};

#[derive(Args)]
pub(crate) struct LaunchRankArgs {
    /// Process with which this one ends.
    #[arg(long)]
    parent: i32,
    /// Network namespace to run in.
    #[arg(long)]
    namespace: Option<PathBuf>,
    /// Program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Executes the program; returns only if that fails.
pub(crate) fn run(arguments: &LaunchRankArgs) -> anyhow::Result<ExitCode> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // If the parent ended before the line above, no signal arrives.
    anyhow::ensure!(nix::unistd::getppid().as_raw() == arguments.parent, "the launcher has ended");
    if let Some(path) = &arguments.namespace {
        let entrance = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        setns(entrance, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("cannot enter the namespace {}", path.display()))?;
    }
    SigSet::empty().thread_set_mask()?; // The launcher's mask is inherited.
    let (program, rest) = arguments.program.split_first().context("no program")?;
    let error = Command::new(program).args(rest).exec();
    eprintln!("error: cannot run {}: {error}", program.display());
    // As shells do.
    Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 }))
}
