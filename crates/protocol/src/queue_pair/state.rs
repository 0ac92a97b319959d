//! The states of a queue pair, and the transitions between them (PM-1; IB specification, 10.3.1).

use std::fmt;

/// What a queue pair can do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QpState {
    /// Nothing: it is new, or was reset.
    Reset,
    /// It has its port and partition; receives may be posted.
    Init,
    /// It knows its peer and accepts packets, but does not send.
    ReadyToReceive,
    /// It sends and receives.
    ReadyToSend,
    /// Nothing: posted requests were flushed.
    Error,
}

/// The cause of a transition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QpTransition {
    /// Sets port and partition.
    Initialise,
    /// Sets the peer.
    Connect,
    /// Allows sending.
    Open,
    /// An unrecoverable error, or the user's request.
    Fail,
    /// Resets everything.
    Clear,
}

/// A transition that the state does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidQpTransition {
    /// The state.
    pub state: QpState,
    /// The transition.
    pub asked: QpTransition,
}

/// Every allowed transition: from, by, to. All others are errors.
pub const QP_TRANSITIONS: &[(QpState, QpTransition, QpState)] = &[
    (QpState::Reset, QpTransition::Initialise, QpState::Init),
    (QpState::Reset, QpTransition::Clear, QpState::Reset),
    (QpState::Init, QpTransition::Connect, QpState::ReadyToReceive),
    (QpState::Init, QpTransition::Fail, QpState::Error),
    (QpState::Init, QpTransition::Clear, QpState::Reset),
    (QpState::ReadyToReceive, QpTransition::Open, QpState::ReadyToSend),
    (QpState::ReadyToReceive, QpTransition::Fail, QpState::Error),
    (QpState::ReadyToReceive, QpTransition::Clear, QpState::Reset),
    (QpState::ReadyToSend, QpTransition::Fail, QpState::Error),
    (QpState::ReadyToSend, QpTransition::Clear, QpState::Reset),
    (QpState::Error, QpTransition::Fail, QpState::Error),
    (QpState::Error, QpTransition::Clear, QpState::Reset),
];

impl QpState {
    /// The state after a transition.
    pub fn after(self, asked: QpTransition) -> Result<Self, InvalidQpTransition> {
        let allowed = QP_TRANSITIONS.iter().find(|(from, by, _)| (*from, *by) == (self, asked));
        allowed.map(|(_, _, to)| *to).ok_or(InvalidQpTransition { state: self, asked })
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::Error => "ERROR",
        })
    }
}

impl fmt::Display for InvalidQpTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a queue pair in state {} does not allow {:?}", self.state, self.asked)
    }
}

impl std::error::Error for InvalidQpTransition {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::path::{PATH_TRANSITIONS, PathState};

    /// The graph under review: `state_graph.txt` shows every allowed transition; no other is allowed.
    #[test]
    fn the_drawn_graph_is_the_reviewed_one() {
        let mut drawn = String::new();
        for (from, by, to) in QP_TRANSITIONS {
            drawn += &format!("queue pair  {from:8} --{by:?}--> {to}\n");
        }
        for (from, by, to) in PATH_TRANSITIONS {
            drawn += &format!("path        {from:8} --{by:?}--> {to}\n");
        }
        assert_eq!(drawn, include_str!("state_graph.txt"), "change the snapshot only after review:\n{drawn}");
    }

    #[test]
    fn what_the_table_does_not_have_is_a_typed_error() {
        let wrong = QpState::Reset.after(QpTransition::Open).expect_err("RESET does not allow Open");
        assert_eq!(wrong.to_string(), "a queue pair in state RESET does not allow Open");
        let pairs = QP_TRANSITIONS.iter().map(|(from, by, _)| (*from, *by));
        let unique: std::collections::BTreeSet<_> = pairs.collect();
        assert_eq!(unique.len(), QP_TRANSITIONS.len(), "a state and a move lead to one state");
        assert!(PathState::Migrated.after(crate::connection::path::PathTransition::Agree).is_err());
    }
}
