//! `pleach launch-rank`: prepares a process and becomes the user's program.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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

/// Exit status of a shell if there is no such program.
pub(crate) const NO_PROGRAM: u8 = 127;

/// True if there is certainly no such program: then one line can say so, before every rank does.
pub(crate) fn is_missing(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return !Path::new(program).exists();
    }
    let path = std::env::var_os("PATH");
    path.is_some_and(|path| !std::env::split_paths(&path).any(|folder| folder.join(program).exists()))
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
    Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { NO_PROGRAM } else { 126 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_missing_only_if_it_is_nowhere() {
        for (program, missing) in
            [("sh", false), ("/bin/sh", false), ("no-such-program", true), ("/no/such/program", true)]
        {
            assert_eq!(is_missing(OsStr::new(program)), missing, "{program}");
        }
    }
}
