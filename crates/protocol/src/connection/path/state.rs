//! The migration states of a path, and the moves between them (PM-1).

use std::fmt;

/// Where an end stands with its alternate path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathState {
    /// No alternate is loaded; the state in which a connection begins and in which a migration leaves it.
    Migrated,
    /// An alternate is loaded, but the other end has not said so too.
    Rearm,
    /// Both ends have one: a migration takes no preparation.
    Armed,
}

/// What moves an end from one state to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathTransition {
    /// An alternate is loaded, by the user or by the connection itself.
    Load,
    /// The other end answers on the alternate and has loaded one too.
    Agree,
    /// Traffic moves to another path.
    Migrate,
    /// The alternate is dead or was taken away.
    Unload,
}

/// A move that the state does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidPathTransition {
    /// The state.
    pub state: PathState,
    /// The move that was asked for.
    pub asked: PathTransition,
}

/// Every allowed move: from, by, to. What is not here is refused.
pub const PATH_TRANSITIONS: &[(PathState, PathTransition, PathState)] = &[
    (PathState::Migrated, PathTransition::Load, PathState::Rearm),
    // The path fails before anything could be armed: better an untried path than none (PM-8).
    (PathState::Migrated, PathTransition::Migrate, PathState::Migrated),
    (PathState::Rearm, PathTransition::Load, PathState::Rearm),
    (PathState::Rearm, PathTransition::Agree, PathState::Armed),
    (PathState::Rearm, PathTransition::Migrate, PathState::Migrated),
    (PathState::Rearm, PathTransition::Unload, PathState::Migrated),
    (PathState::Armed, PathTransition::Load, PathState::Rearm),
    (PathState::Armed, PathTransition::Migrate, PathState::Migrated),
    (PathState::Armed, PathTransition::Unload, PathState::Migrated),
];

impl PathState {
    /// The state after a move.
    pub fn after(self, asked: PathTransition) -> Result<Self, InvalidPathTransition> {
        let allowed = PATH_TRANSITIONS.iter().find(|(from, by, _)| (*from, *by) == (self, asked));
        allowed.map(|(_, _, to)| *to).ok_or(InvalidPathTransition { state: self, asked })
    }
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Migrated => "MIGRATED",
            Self::Rearm => "REARM",
            Self::Armed => "ARMED",
        })
    }
}

impl fmt::Display for InvalidPathTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a path in state {} cannot {:?}", self.state, self.asked)
    }
}

impl std::error::Error for InvalidPathTransition {}
