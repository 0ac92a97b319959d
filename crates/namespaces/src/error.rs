//! Errors of namespaces and of the networks between them.

use std::fmt;
use std::io;

/// Why a namespace could not be created or used.
#[derive(Debug)]
pub enum NamespaceError {
    /// The machine or the user lacks a prerequisite, which the text names.
    Missing(String),
    /// The number of hosts is zero or exceeds [`MAX_HOSTS`](crate::MAX_HOSTS).
    HostCount(usize),
    /// A command failed.
    Command {
        /// The command line; for a batch, also the line of the batch that failed.
        line: String,
        /// What the command wrote to standard error.
        stderr: String,
    },
    /// A file or process operation failed.
    Io {
        /// The operation.
        doing: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl NamespaceError {
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Io { doing: doing.into(), source }
    }
}

impl fmt::Display for NamespaceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(formatter, "hosts in network namespaces need {what}"),
            Self::HostCount(count) => {
                write!(formatter, "cannot create {count} hosts: the number must be 1 to {}", crate::MAX_HOSTS)
            }
            Self::Command { line, stderr } => write!(formatter, "`{line}` failed: {}", stderr.trim()),
            Self::Io { doing, source } => write!(formatter, "{doing}: {source}"),
        }
    }
}

impl std::error::Error for NamespaceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Missing(_) | Self::HostCount(_) | Self::Command { .. } => None,
        }
    }
}
