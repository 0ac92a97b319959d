//! One network namespace: made under a name of our own, used, deleted.
//!
//! Names say which process made them (`pleach-net-PID-START-COUNT-ROLE`, with the time at which the process started): so what a
//! killed one left behind can be told from what a living one uses, even when its number is used again.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, setns};

use super::error::NamespaceError;

/// Where iproute2 keeps the names.
const NAMES: &str = "/run/netns";
const PREFIX: &str = "pleach-net-";

/// A namespace that we made; dropped, it is deleted.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

/// The first part of the names of all namespaces of one network.
pub(crate) fn new_name_prefix() -> Result<String, NamespaceError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static SWEPT: OnceLock<()> = OnceLock::new();
    SWEPT.get_or_init(sweep);
    let id = std::process::id();
    let started = start_of(id).ok_or_else(|| NamespaceError::Missing("a mounted /proc".to_owned()))?;
    Ok(format!("{PREFIX}{id}-{started}-{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

impl Namespace {
    pub(crate) fn create(set: &str, role: &str) -> Result<Self, NamespaceError> {
        let name = format!("{set}-{role}");
        run(Command::new("ip").args(["netns", "add", &name]), "").map_err(lack_of_support)?;
        Ok(Self { name })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(NAMES).join(&self.name)
    }

    /// Runs commands of `ip` here, one a line; the first that fails ends them.
    pub(crate) fn ip(&self, lines: &str) -> Result<String, NamespaceError> {
        run(Command::new("ip").args(["-n", &self.name, "-batch", "-"]), lines).map_err(lack_of_devices)
    }

    /// Runs a closure in a thread of its own that has moved here.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        let path = self.path();
        let entrance =
            File::open(&path).map_err(|source| NamespaceError::io(format!("opening {}", path.display()), source))?;
        let moved = move || match setns(entrance, CloneFlags::CLONE_NEWNET) {
            Ok(()) => Ok(work()),
            Err(code) => Err(NamespaceError::io(format!("moving into {}", path.display()), code.into())),
        };
        match std::thread::scope(|scope| scope.spawn(moved).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Nobody to tell if it fails; the next process sweeps.
        let _ = run(Command::new("ip").args(["netns", "delete", &self.name]), "");
    }
}

/// Runs a command with a text as its standard input, and returns what it wrote.
fn run(command: &mut Command, input: &str) -> Result<String, NamespaceError> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => NamespaceError::Missing("the program ip (Debian package iproute2)".to_owned()),
        _ => NamespaceError::io(format!("running `{line}`"), source),
    };
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().map_err(failed)?;
    let stdin = child.stdin.take().expect("it is piped");
    // It reads all before it writes more than a line. If it ended early, what it said is worth more than a closed pipe.
    let _ = { stdin }.write_all(input.as_bytes());
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(NamespaceError::Command { line, said: String::from_utf8_lossy(&output.stderr).into_owned() })
}

/// Without the right, or in a kernel without namespaces, the first `ip netns add` says so.
fn lack_of_support(error: NamespaceError) -> NamespaceError {
    match error {
        NamespaceError::Command { said, .. }
            if ["not permitted", "Permission denied", "Invalid argument"].iter().any(|word| said.contains(word)) =>
        {
            NamespaceError::Missing(format!(
                "root (CAP_NET_ADMIN and CAP_SYS_ADMIN), and a kernel with network namespaces ({})",
                said.trim()
            ))
        }
        other => other,
    }
}

fn lack_of_devices(error: NamespaceError) -> NamespaceError {
    match error {
        NamespaceError::Command { said, .. }
            if said.contains("Unknown device type") || said.contains("not supported") =>
        {
            NamespaceError::Missing(format!("veth and bridge devices in the kernel ({})", said.trim()))
        }
        other => other,
    }
}

/// Deletes the namespaces of processes that are no more. Best effort: another process may sweep at the same time.
fn sweep() {
    let names = fs::read_dir(NAMES).into_iter().flatten().flatten().map(|entry| entry.file_name());
    for name in names.filter_map(|name| name.into_string().ok()) {
        if maker(&name).is_some_and(|(process, started)| start_of(process) != Some(started)) {
            let _ = run(Command::new("ip").args(["netns", "delete", &name]), "");
        }
    }
}

/// The process that made a namespace of this name, and when it started; `None` if it is not one of ours.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let process = parts.next()?.parse().ok()?;
    let started = parts.next()?.parse().ok()?;
    let _count: u32 = parts.next()?.parse().ok()?;
    (parts.next().is_some() && parts.next().is_none()).then_some((process, started))
}

/// When a process started, in the kernel's ticks; `None` if it is no more.
fn start_of(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).ok()?;
    // The name in parentheses may hold anything, spaces too.
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_own_shape_have_a_maker() {
        assert_eq!(maker("pleach-net-12-345-0-host3"), Some((12, 345)));
        for other in
            ["pleach-net-12", "pleach-12-0-host3", "pleach-net-x-1-0-a", "pleach-net-1-2-0-a-b", "net-1-2-0-a"]
        {
            assert_eq!(maker(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_that_is_gone_has_no_start() {
        let mut child = Command::new("true").spawn().expect("there is a true");
        child.wait().expect("it ends");
        assert_eq!(start_of(child.id()), None);
        assert!(start_of(std::process::id()).is_some());
    }
}
