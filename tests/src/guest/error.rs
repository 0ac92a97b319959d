//! What can go wrong with a guest; each error says what to do or shows what was seen.

use std::fmt;
use std::io;

/// Why a guest could not be built, booted or talked to.
#[derive(Debug)]
pub enum GuestError {
    /// This machine lacks something; the text says what.
    Missing(String),
    /// A command on this machine failed.
    Command {
        /// The command as one would type it.
        line: String,
        /// How it ended: its exit status, or that it took too long.
        ended: String,
        /// What it wrote to its standard error.
        message: String,
    },
    /// A file, pipe or process of this machine failed.
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The guest died, or did not do something in time.
    Guest {
        /// What was expected of it.
        expected: String,
        /// Its console and the emulator's messages, from the start.
        console: String,
    },
    /// The guest obeyed a command of ours, and the command failed.
    Task {
        /// The command.
        command: String,
        /// How it ended, and what it wrote.
        output: String,
    },
}

impl GuestError {
    pub(super) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Io { doing: doing.into(), source }
    }
}

impl fmt::Display for GuestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(formatter, "the soft-RoCE guest needs {what}"),
            Self::Command { line, ended, message } => write!(formatter, "`{line}` {ended}: {}", message.trim()),
            Self::Io { doing, source } => write!(formatter, "{doing}: {source}"),
            Self::Guest { expected, console } => {
                write!(formatter, "the guest did not {expected}; its console:\n{}", console.trim_end())
            }
            Self::Task { command, output } => write!(formatter, "`{command}` in the guest: {}", output.trim_end()),
        }
    }
}

impl std::error::Error for GuestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
