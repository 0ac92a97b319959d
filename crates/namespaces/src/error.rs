//! What can go wrong with hosts; each error says what is missing or shows what was seen.

use std::fmt;
use std::io;

/// Why hosts could not be made or used.
#[derive(Debug)]
pub enum NamespaceError {
    /// This machine or user lacks something that hosts need; the text says what.
    Missing(String),
    /// No hosts, or more than a bridge has ports.
    Count(usize),
    /// A command failed.
    Command {
        /// The command as one would type it.
        line: String,
        /// What it wrote to its standard error.
        said: String,
    },
    /// A file or a process failed.
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
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
            Self::Count(count) => write!(formatter, "{count} hosts: there may be 1 to {}", super::MAX_HOSTS),
            Self::Command { line, said } => write!(formatter, "`{line}` failed: {}", said.trim()),
            Self::Io { doing, source } => write!(formatter, "{doing}: {source}"),
        }
    }
}

impl std::error::Error for NamespaceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Missing(_) | Self::Count(_) | Self::Command { .. } => None,
        }
    }
}
