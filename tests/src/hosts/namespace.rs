//! One network namespace: made under a name of our own, used, deleted.
//!
//! Names say which process made them (`pleach-PID-COUNT-ROLE`), so that tests in parallel do not meet, and so that what
//! a killed run left behind can be told from what a living one uses.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::error::HostsError;

/// Where iproute2 keeps the names.
const NAMES: &str = "/run/netns";
const PREFIX: &str = "pleach";

/// A namespace that we made; dropped, it is deleted.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
}

/// The first part of the names of all namespaces of one set of hosts.
pub(super) fn new_set() -> String {
    static SWEPT: OnceLock<()> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Before the first name of this process: what bears its number now was left by an earlier bearer.
    SWEPT.get_or_init(|| sweep(std::process::id()));
    format!("{PREFIX}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

impl Namespace {
    pub(super) fn create(set: &str, role: &str) -> Result<Self, HostsError> {
        let name = format!("{set}-{role}");
        run(Command::new("ip").args(["netns", "add", &name]), "").map_err(lack_of_support)?;
        Ok(Self { name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs commands of `ip` here, one a line; the first that fails ends them.
    pub(super) fn ip(&self, lines: &str) -> Result<String, HostsError> {
        run(Command::new("ip").args(["-n", &self.name, "-batch", "-"]), lines)
    }

    /// Gives a script to `nft` here; it takes effect as a whole or not at all.
    pub(super) fn nft(&self, script: &str) -> Result<(), HostsError> {
        run(self.command("nft").args(["-f", "-"]), script).map(drop)
    }

    /// Sets kernel parameters of this namespace, given as path below `net` and value.
    pub(super) fn configure(&self, settings: &[(&str, &str)]) -> Result<(), HostsError> {
        self.inside(|| {
            for (name, value) in settings {
                let path = Path::new("/proc/sys/net").join(name);
                let written = fs::write(&path, value);
                written.map_err(|source| HostsError::io(format!("writing {value} to {}", path.display()), source))?;
            }
            Ok(())
        })?
    }

    /// A command that will run here.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a closure in a thread of its own that has moved here.
    pub(super) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, HostsError> {
        let path = PathBuf::from(NAMES).join(&self.name);
        let entrance =
            File::open(&path).map_err(|source| HostsError::io(format!("opening {}", path.display()), source))?;
        let moved = move || match move_into_link_name_space(entrance.as_fd(), Some(LinkNameSpaceType::Network)) {
            Ok(()) => Ok(work()),
            Err(code) => Err(HostsError::io(format!("moving into {}", path.display()), code.into())),
        };
        match std::thread::scope(|scope| scope.spawn(moved).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("ip").args(["netns", "delete", &self.name]), "") {
            eprintln!("left behind: {error}");
        }
    }
}

/// Runs a command with a text as its standard input, and returns what it wrote.
pub(super) fn run(command: &mut Command, input: &str) -> Result<String, HostsError> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let failed = |source| HostsError::io(format!("running `{line}`"), source);
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().map_err(failed)?;
    let stdin = child.stdin.take().expect("it is piped");
    // The tools read everything before they write more than a line, so this does not block. One that ended early has
    // closed the pipe; what it said is worth more than that.
    let _ = { stdin }.write_all(input.as_bytes());
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    if !input.is_empty() {
        line = format!("{line} <<< {}", input.trim_end());
    }
    Err(HostsError::Command { line, said: String::from_utf8_lossy(&output.stderr).into_owned() })
}

/// Root of a container may lack the right, and a kernel may lack namespaces; both are told when one is made.
fn lack_of_support(error: HostsError) -> HostsError {
    match error {
        HostsError::Command { said, .. } if said.contains("not permitted") || said.contains("Invalid argument") => {
            HostsError::Missing(format!(
                "the right to make network namespaces, and a kernel with them ({})",
                said.trim()
            ))
        }
        other => other,
    }
}

/// Deletes the namespaces of processes that are no more. Best effort: another process may sweep at the same time.
fn sweep(own: u32) {
    let names = fs::read_dir(NAMES).into_iter().flatten().flatten().map(|entry| entry.file_name());
    for name in names.filter_map(|name| name.into_string().ok()) {
        let Some(maker) = maker(&name) else { continue };
        if maker == own || !Path::new("/proc").join(maker.to_string()).exists() {
            let _ = run(Command::new("ip").args(["netns", "delete", &name]), "");
        }
    }
}

/// The process that made a namespace of this name; `None` if it is not one of ours.
fn maker(name: &str) -> Option<u32> {
    let mut parts = name.split('-');
    if parts.next() != Some(PREFIX) {
        return None;
    }
    let maker = parts.next()?.parse().ok()?;
    let _count: u32 = parts.next()?.parse().ok()?;
    (parts.next().is_some() && parts.next().is_none()).then_some(maker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_own_shape_have_a_maker() {
        assert_eq!(maker("pleach-12-0-host3"), Some(12));
        for other in ["pleach", "pleach-12", "pleach-12-0", "pleach-x-0-host", "mine-12-0-host", "pleach-1-0-a-b"] {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
