//! What the user of a connection learns about its paths.

use units::PathId;

use super::state::InvalidPathTransition;

/// Why traffic moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MigrationCause {
    /// The user asked for it.
    Manual,
    /// No response for too long.
    Timeout,
    /// The driver reported the path down.
    Down,
    /// Too many packets were damaged.
    Damage,
    /// The peer moved.
    Followed,
    /// A better path has been healthy for a while.
    Failback,
}

/// What the user learns about paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathEvent {
    /// Both ends have loaded this alternate.
    Armed(PathId),
    /// Traffic moved.
    Migrated {
        /// The old path.
        from: PathId,
        /// The new path.
        to: PathId,
        /// Why.
        cause: MigrationCause,
    },
    /// The path failed, and no other one is known to work.
    MigrationFailed(PathId),
    /// A dead path replies again, or one that was left replies while the current path is dead.
    Recovered(PathId),
    /// A path no longer replies.
    Lost(PathId),
}

/// Why an alternate cannot be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadPathError {
    /// It is the current path.
    InUse(PathId),
    /// There is no such path.
    Unknown(PathId),
    /// The state does not allow it.
    State(InvalidPathTransition),
}

impl std::fmt::Display for LoadPathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse(path) => write!(f, "{path} is the current path: load another one as the alternate"),
            Self::Unknown(path) => write!(f, "the connection has no {path}"),
            Self::State(wrong) => wrong.fmt(f),
        }
    }
}

impl std::error::Error for LoadPathError {}
