//! Finds the process that started all ranks on this host, to name a job that has no name.
//!
//! It is the nearest ancestor that is not itself a rank: `mpirun sh -c program` has a shell in between, which has the
//! variables of its rank.

use std::fs;

/// A process by its ID and start time: unlike the ID alone, the pair is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessIdentity {
    pub(super) id: u32,
    pub(super) started: u64,
    parent: u32,
}

impl ProcessIdentity {
    /// Looks up a process; `None` if it does not exist.
    pub(super) fn look_up(id: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The second field is the name in parentheses, and a name may contain anything, even parentheses.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { id, started, parent })
    }

    pub(super) fn own() -> Option<Self> {
        Self::look_up(std::process::id())
    }

    pub(super) fn is_alive(id: u32, started: u64) -> bool {
        Self::look_up(id).is_some_and(|process| process.started == started)
    }
}

/// A name for the launcher, given the variables that identify a rank.
pub(super) fn launcher_name(marks: &[(&str, &str)]) -> Option<String> {
    /// More than the number of processes between any launcher and its ranks.
    const MAX_GENERATIONS: usize = 64;
    let mut process = ProcessIdentity::own()?;
    for _ in 0..MAX_GENERATIONS {
        let parent = ProcessIdentity::look_up(process.parent)?;
        if !has_variables(parent.id, marks) {
            return Some(format!("launcher-{}-{}", parent.id, parent.started));
        }
        process = parent;
    }
    None
}

/// True if this process was started with all of these variables. An unreadable environment belongs to another user.
fn has_variables(id: u32, marks: &[(&str, &str)]) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{id}/environ")) else { return false };
    let has = |name: &str, value: &str| {
        environment.split(|&byte| byte == 0).any(|line| {
            line.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) == Some(value.as_bytes())
        })
    };
    !marks.is_empty() && marks.iter().all(|(name, value)| has(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_under_its_own_start_only() {
        let own = ProcessIdentity::own().expect("there is a /proc");
        assert!(ProcessIdentity::is_alive(own.id, own.started));
        assert!(!ProcessIdentity::is_alive(own.id, own.started + 1));
    }

    #[test]
    fn the_launcher_is_the_nearest_ancestor_that_is_no_rank() {
        let own = ProcessIdentity::own().expect("there is a /proc");
        let parent = ProcessIdentity::look_up(own.parent).expect("the test process has a parent");
        let name = launcher_name(&[("A_VARIABLE_THAT_NOBODY_HAS", "1")]);
        assert_eq!(name, Some(format!("launcher-{}-{}", parent.id, parent.started)));
    }

    #[test]
    fn a_shell_in_between_has_the_variables_of_its_rank() {
        let mut shell =
            std::process::Command::new("sleep").arg("5").env("PLEACH_TEST_MARK", "7").spawn().expect("sleep");
        // The variables change when the new program starts.
        let seen = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            has_variables(shell.id(), &[("PLEACH_TEST_MARK", "7")])
        });
        let others = [
            has_variables(shell.id(), &[("PLEACH_TEST_MARK", "8")]),
            has_variables(shell.id(), &[("PLEACH_TEST", "7")]),
        ];
        shell.kill().expect("it runs");
        shell.wait().expect("it was killed");
        assert!(seen);
        assert_eq!(others, [false, false]);
    }
}
