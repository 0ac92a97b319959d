//! What `pleach launch` and `pleach launch-host` say to each other before the ranks of a host run.
//!
//! The launcher asks by lines to the host's stdin ([`RESERVE`], the job, [`START`]). The host answers by lines of its stdout that begin with
//! [`PREFIX`]: a login script may print others before.

use std::fmt;
use std::io::{self, Write};

/// Asks for a port.
pub(super) const RESERVE: &str = "reserve";
/// All hosts are ready: the ranks start.
pub(super) const START: &str = "start";
const PREFIX: &str = "pleach-launch-host ";

/// An answer of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HostAnswer {
    /// A TCP port that is free.
    Port(u16),
    /// The ranks can start.
    Ready,
    /// There is no such program.
    NoProgram,
    /// The ranks cannot start, and why.
    Obstacle(String),
}

impl HostAnswer {
    /// Prints it at once.
    pub(super) fn send(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{PREFIX}{self}").and_then(|()| out.flush())
    }

    /// None if the line is not an answer.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let words = line.strip_prefix(PREFIX)?.trim_end();
        match words.split_once(' ').unwrap_or((words, "")) {
            ("port", port) => port.parse().ok().map(Self::Port),
            ("ready", _) => Some(Self::Ready),
            ("no-program", _) => Some(Self::NoProgram),
            ("obstacle", why) => Some(Self::Obstacle(why.to_owned())),
            _ => None,
        }
    }
}

/// As it is sent.
impl fmt::Display for HostAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "port {port}"),
            Self::Ready => f.write_str("ready"),
            Self::NoProgram => f.write_str("no-program"),
            Self::Obstacle(why) => write!(f, "obstacle {}", why.replace('\n', " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_sent_and_other_lines_are_none() {
        let obstacle = HostAnswer::Obstacle("it has no folder /a b".to_owned());
        for answer in [HostAnswer::Port(7411), HostAnswer::Ready, HostAnswer::NoProgram, obstacle] {
            let mut line = Vec::new();
            answer.send(&mut line).expect("memory");
            let line = String::from_utf8(line).expect("text");
            assert_eq!(line.lines().count(), 1);
            assert_eq!(HostAnswer::parse(line.trim_end_matches('\n')), Some(answer));
        }
        for other in ["", "Welcome to host a", "pleach-launch-host port x", "pleach-launch-host unknown"] {
            assert_eq!(HostAnswer::parse(other), None, "{other}");
        }
    }
}
