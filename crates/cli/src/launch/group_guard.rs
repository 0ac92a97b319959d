//! `pleach launch-guard`: ends what ranks started when their supervisor is killed.
//!
//! The kernel ends only the supervisor's own children with it, and a rank is often a child of a shell. In, by the guard's stdin: lines
//! `watch GROUP` and `forget GROUP`. The stream ends with the supervisor, however that ends; then all groups that are left are killed.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use lab::local_fabric::own_executable;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The guard of a supervisor; it ends when this is dropped.
pub(super) struct GroupGuard(Child);

impl GroupGuard {
    pub(super) fn start() -> io::Result<Self> {
        let mut command = Command::new(own_executable().map_err(io::Error::other)?);
        // In a group of its own: the terminal's signals are for the supervisor. Without the streams of the supervisor, whose readers
        // wait for their end.
        command.arg("launch-guard").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    /// The group of a process that has just been started.
    pub(super) fn watch(&mut self, group: Pid) {
        self.say("watch", group);
    }

    /// The group has ended: soon its number may belong to another.
    pub(super) fn forget(&mut self, group: Pid) {
        self.say("forget", group);
    }

    fn say(&mut self, word: &str, group: Pid) {
        // If somebody has killed the guard, the supervisor cleans up without.
        let _ = self.0.stdin.as_mut().map(|stdin| writeln!(stdin, "{word} {group}"));
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs until stdin ends.
pub(crate) fn run() -> ExitCode {
    // A group whose leader the kernel has just ended keeps its number while it has other processes; no other gets it so soon.
    for group in groups_at_the_end(io::stdin().lock()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    ExitCode::SUCCESS
}

fn groups_at_the_end(input: impl BufRead) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        let Some((word, group)) = line.split_once(' ') else { continue };
        // Zero would be the guard's own group, one all processes of the user.
        let Some(group) = group.parse().ok().filter(|group| *group > 1) else { continue };
        if word == "watch" {
            groups.insert(group);
        } else if word == "forget" {
            groups.remove(&group);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_were_not_forgotten_are_left() {
        let said = "watch 12\nwatch 13\nwatch 0\nwatch 1\nwatch -1\nwatch x\nforget 12\nforget 99\nwatch 14\n";
        assert_eq!(groups_at_the_end(said.as_bytes()), BTreeSet::from([13, 14]));
    }
}
