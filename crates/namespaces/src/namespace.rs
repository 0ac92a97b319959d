//! A network namespace with a name in `/run/netns`: created, used, and deleted on drop.
//!
//! A name identifies the process that created it (`pleach-net-PID-START-COUNT-ROLE`, where START is the start time of the
//! process). Stale names of killed processes are therefore distinguishable from names in use, even after the kernel reuses
//! a process id.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};

use crate::command::run;
use crate::error::NamespaceError;

/// Where iproute2 keeps the names.
const NAMES: &str = "/run/netns";
const PREFIX: &str = "pleach-net-";
/// The kernel reports a change of carrier at most once a second.
const LINK_UP_LIMIT: Duration = Duration::from_secs(10);
const LINK_UP_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The common first part of the names of a set of namespaces; unique on this machine.
#[derive(Debug)]
pub struct NamespaceSet {
    prefix: String,
}

impl NamespaceSet {
    /// A new set. The first one of a process also deletes the namespaces of processes that no longer exist.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn new() -> Result<Self, NamespaceError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        static SWEPT: OnceLock<()> = OnceLock::new();
        SWEPT.get_or_init(delete_stale_namespaces);
        let id = std::process::id();
        let started = process_start(id).ok_or_else(|| NamespaceError::Missing("a mounted /proc".to_owned()))?;
        Ok(Self { prefix: format!("{PREFIX}{id}-{started}-{}", COUNT.fetch_add(1, Ordering::Relaxed)) })
    }

    /// Creates a namespace of this set. The role, for example `host3`, ends its name and contains no hyphen.
    ///
    /// # Errors
    /// The machine or the user cannot create namespaces; the error names the missing prerequisite.
    pub fn create(&self, role: &str) -> Result<Namespace, NamespaceError> {
        let name = format!("{}-{role}", self.prefix);
        run(Command::new("ip").args(["netns", "add", &name]), "").map_err(explain_missing_support)?;
        Ok(Namespace { name })
    }
}

/// A network namespace; dropping it deletes it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// The name, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file with which a process can enter the namespace (`setns`).
    pub fn path(&self) -> PathBuf {
        PathBuf::from(NAMES).join(&self.name)
    }

    /// Runs commands of `ip` in the namespace, one per line, and stops at the first failure. Returns their output.
    ///
    /// # Errors
    /// A command failed; [`NamespaceError::Missing`] if the kernel lacks the device type.
    pub fn ip(&self, lines: &str) -> Result<String, NamespaceError> {
        run(Command::new("ip").args(["-n", &self.name, "-batch", "-"]), lines).map_err(explain_missing_devices)
    }

    /// Runs commands of `tc` in the namespace, one per line, and stops at the first failure.
    ///
    /// # Errors
    /// A command failed.
    pub fn tc(&self, lines: &str) -> Result<(), NamespaceError> {
        run(Command::new("tc").args(["-n", &self.name, "-batch", "-"]), lines).map(drop)
    }

    /// Applies a script of `nft` in the namespace, all of it or nothing.
    ///
    /// # Errors
    /// The script failed.
    pub fn nft(&self, script: &str) -> Result<(), NamespaceError> {
        run(self.command("nft").args(["-f", "-"]), script).map(drop)
    }

    /// Sets kernel parameters of the namespace: pairs of a path below `/proc/sys/net` and a value.
    ///
    /// # Errors
    /// A parameter does not exist or rejects the value.
    pub fn configure(&self, settings: &[(&str, &str)]) -> Result<(), NamespaceError> {
        self.inside(|| {
            for (name, value) in settings {
                let path = Path::new("/proc/sys/net").join(name);
                let written = fs::write(&path, value);
                written
                    .map_err(|source| NamespaceError::io(format!("writing {value} to {}", path.display()), source))?;
            }
            Ok(())
        })?
    }

    /// A command that will run in the namespace. `ip` starts it: a program that does not exist shows only as exit status
    /// 255.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a closure in a new thread that has entered the namespace. Sockets that it opens and processes that it starts
    /// stay in the namespace after it returns.
    ///
    /// # Errors
    /// The thread could not enter. A panic of the closure continues in the caller.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        let path = self.path();
        let file =
            File::open(&path).map_err(|source| NamespaceError::io(format!("opening {}", path.display()), source))?;
        let enter_and_work = move || match setns(file, CloneFlags::CLONE_NEWNET) {
            Ok(()) => Ok(work()),
            Err(code) => Err(NamespaceError::io(format!("entering {}", path.display()), code.into())),
        };
        match std::thread::scope(|scope| scope.spawn(enter_and_work).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Waits until so many devices of the namespace are up. Before that, a bridge may drop packets, and the state of a link
    /// reads as down.
    ///
    /// # Errors
    /// They are not up in time.
    pub fn wait_until_up(&self, devices: usize) -> Result<(), NamespaceError> {
        let deadline = Instant::now() + LINK_UP_LIMIT;
        loop {
            let listed = self.ip("link show up\n")?;
            if listed.lines().filter(|line| line.contains(" state UP ")).count() >= devices {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(NamespaceError::Command {
                    line: format!("ip -n {} link show up", self.name),
                    stderr: format!("fewer than {devices} devices are up after {LINK_UP_LIMIT:?}:\n{listed}"),
                });
            }
            std::thread::sleep(LINK_UP_POLL_INTERVAL);
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A failure cannot be reported here; the next process deletes the name.
        let _ = run(Command::new("ip").args(["netns", "delete", &self.name]), "");
    }
}

/// The first `ip netns add` fails without the capability, and in a kernel without namespaces.
fn explain_missing_support(error: NamespaceError) -> NamespaceError {
    match error {
        NamespaceError::Command { stderr, .. }
            if ["not permitted", "Permission denied", "Invalid argument"]
                .iter()
                .any(|text| stderr.contains(text)) =>
        {
            NamespaceError::Missing(format!(
                "root (CAP_NET_ADMIN and CAP_SYS_ADMIN), and a kernel with network namespaces ({})",
                stderr.trim()
            ))
        }
        other => other,
    }
}

fn explain_missing_devices(error: NamespaceError) -> NamespaceError {
    match error {
        NamespaceError::Command { stderr, .. }
            if stderr.contains("Unknown device type") || stderr.contains("not supported") =>
        {
            NamespaceError::Missing(format!("veth and bridge devices in the kernel ({})", stderr.trim()))
        }
        other => other,
    }
}

/// Deletes the namespaces of processes that no longer exist. Best effort: another process may do the same concurrently.
fn delete_stale_namespaces() {
    let names = fs::read_dir(NAMES).into_iter().flatten().flatten().map(|entry| entry.file_name());
    for name in names.filter_map(|name| name.into_string().ok()) {
        if creator(&name).is_some_and(|(process, started)| process_start(process) != Some(started)) {
            let _ = run(Command::new("ip").args(["netns", "delete", &name]), "");
        }
    }
}

/// The process that created a namespace, and its start time; none if the name has another form.
fn creator(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let process = parts.next()?.parse().ok()?;
    let started = parts.next()?.parse().ok()?;
    let _count: u32 = parts.next()?.parse().ok()?;
    (parts.next().is_some() && parts.next().is_none()).then_some((process, started))
}

/// The start time of a process in clock ticks; none if there is no such process.
fn process_start(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).ok()?;
    // The name in parentheses may contain spaces and parentheses.
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_form_have_a_creator() {
        assert_eq!(creator("pleach-net-12-345-0-host3"), Some((12, 345)));
        for other in
            ["pleach-net-12", "pleach-12-0-host3", "pleach-net-x-1-0-a", "pleach-net-1-2-0-a-b", "net-1-2-0-a"]
        {
            assert_eq!(creator(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_that_has_ended_has_no_start_time() {
        let mut child = Command::new("true").spawn().expect("the program true exists");
        child.wait().expect("it ends");
        assert_eq!(process_start(child.id()), None);
        assert!(process_start(std::process::id()).is_some());
    }
}
