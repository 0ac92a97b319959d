//! The migration states of a path, and the transitions between them (PM-1).

use std::fmt;

/// The state of an end's alternate path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathState {
    /// No alternate is loaded: the initial state, and the state after a migration.
    Migrated,
    /// An alternate is loaded, but the peer has not confirmed it.
    Rearm,
    /// Both ends have loaded one: a migration needs no preparation.
    Armed,
}

/// The cause of a transition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathTransition {
    /// An alternate is loaded, by the user or by the connection.
    Load,
    /// The peer replies on the alternate and has loaded one too.
    Agree,
    /// Traffic moves to another path.
    Migrate,
    /// The alternate is dead or was removed.
    Unload,
}

/// A transition that the state does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidPathTransition {
    /// The state.
    pub state: PathState,
    /// The transition.
    pub asked: PathTransition,
}

/// Every allowed transition: from, by, to. All others are errors.
pub const PATH_TRANSITIONS: &[(PathState, PathTransition, PathState)] = &[
    (PathState::Migrated, PathTransition::Load, PathState::Rearm),
    // The path fails before an alternate is armed: an untried path is better than none (PM-8).
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
    /// The state after a transition.
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
        write!(f, "a path in state {} does not allow {:?}", self.state, self.asked)
    }
}

impl std::error::Error for InvalidPathTransition {}
