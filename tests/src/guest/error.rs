//! Errors of a guest; each names what to provide or shows what happened.

use std::fmt;
use std::io;

use namespaces::NamespaceError;

/// Why a guest could not be built, booted or used.
#[derive(Debug)]
pub enum GuestError {
    /// The machine lacks a prerequisite, which the text names.
    Missing(String),
    /// The network of the guests failed.
    Namespace(NamespaceError),
    /// A command on this machine failed.
    Command {
        /// The command line.
        line: String,
        /// How the command ended: its exit status, or that it exceeded its limit.
        ended: String,
        /// What the command wrote to standard error.
        stderr: String,
    },
    /// A file, pipe or process operation of this machine failed.
    Io {
        /// The operation.
        doing: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The guest ended, or did not act in time.
    Guest {
        /// What it should have done.
        expected: String,
        /// The console and the emulator's messages.
        console: String,
    },
    /// A command inside the guest failed.
    GuestCommand {
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

impl From<NamespaceError> for GuestError {
    fn from(error: NamespaceError) -> Self {
        match error {
            NamespaceError::Missing(what) => Self::Missing(what),
            other => Self::Namespace(other),
        }
    }
}

impl fmt::Display for GuestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(formatter, "the soft-RoCE guest needs {what}"),
            Self::Namespace(error) => error.fmt(formatter),
            Self::Command { line, ended, stderr } => write!(formatter, "`{line}` {ended}: {}", stderr.trim()),
            Self::Io { doing, source } => write!(formatter, "{doing}: {source}"),
            Self::Guest { expected, console } => {
                write!(formatter, "the guest did not {expected}; its console:\n{}", console.trim_end())
            }
            Self::GuestCommand { command, output } => {
                write!(formatter, "`{command}` failed in the guest: {}", output.trim_end())
            }
        }
    }
}

impl std::error::Error for GuestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Namespace(error) => Some(error),
            _ => None,
        }
    }
}
