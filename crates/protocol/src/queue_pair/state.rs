//! The states of a queue pair, and the moves between them (PM-1; IB specification, 10.3.1).

use std::fmt;

/// What a queue pair can do now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QpState {
    /// Nothing: it has just been made, or been cleared.
    Reset,
    /// It has its port and partition; receives may be posted.
    Init,
    /// It knows the other end and takes its packets, but does not send.
    ReadyToReceive,
    /// Everything.
    ReadyToSend,
    /// Nothing any more: what was posted is given back.
    Error,
}

/// What moves a queue pair from one state to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QpMove {
    /// Gets its port and partition.
    Initialise,
    /// Hears who the other end is.
    Connect,
    /// May send from now on.
    Open,
    /// Something cannot be repaired, or the user says so.
    Fail,
    /// Forgets everything.
    Clear,
}

/// A move that the state does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongMove {
    /// The state.
    pub state: QpState,
    /// The move that was asked for.
    pub asked: QpMove,
}

/// Every allowed move: from, by, to. What is not here is refused.
pub const QP_MOVES: &[(QpState, QpMove, QpState)] = &[
    (QpState::Reset, QpMove::Initialise, QpState::Init),
    (QpState::Reset, QpMove::Clear, QpState::Reset),
    (QpState::Init, QpMove::Connect, QpState::ReadyToReceive),
    (QpState::Init, QpMove::Fail, QpState::Error),
    (QpState::Init, QpMove::Clear, QpState::Reset),
    (QpState::ReadyToReceive, QpMove::Open, QpState::ReadyToSend),
    (QpState::ReadyToReceive, QpMove::Fail, QpState::Error),
    (QpState::ReadyToReceive, QpMove::Clear, QpState::Reset),
    (QpState::ReadyToSend, QpMove::Fail, QpState::Error),
    (QpState::ReadyToSend, QpMove::Clear, QpState::Reset),
    (QpState::Error, QpMove::Fail, QpState::Error),
    (QpState::Error, QpMove::Clear, QpState::Reset),
];

impl QpState {
    /// The state after a move.
    pub fn after(self, asked: QpMove) -> Result<Self, WrongMove> {
        let allowed = QP_MOVES.iter().find(|(from, by, _)| (*from, *by) == (self, asked));
        allowed.map(|(_, _, to)| *to).ok_or(WrongMove { state: self, asked })
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

impl fmt::Display for WrongMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a queue pair in state {} cannot {:?}", self.state, self.asked)
    }
}

impl std::error::Error for WrongMove {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::path::{PATH_MOVES, PathState};

    /// The graph under review: `tests/state_graph.txt` shows every allowed move, and nothing else is allowed.
    #[test]
    fn the_drawn_graph_is_the_reviewed_one() {
        let mut drawn = String::new();
        for (from, by, to) in QP_MOVES {
            drawn += &format!("queue pair  {from:8} --{by:?}--> {to}\n");
        }
        for (from, by, to) in PATH_MOVES {
            drawn += &format!("path        {from:8} --{by:?}--> {to}\n");
        }
        assert_eq!(drawn, include_str!("state_graph.txt"), "change the snapshot only after review:\n{drawn}");
    }

    #[test]
    fn what_the_table_does_not_have_is_a_typed_error() {
        let wrong = QpState::Reset.after(QpMove::Open).expect_err("not from RESET");
        assert_eq!(wrong.to_string(), "a queue pair in state RESET cannot Open");
        let pairs = QP_MOVES.iter().map(|(from, by, _)| (*from, *by));
        let unique: std::collections::BTreeSet<_> = pairs.collect();
        assert_eq!(unique.len(), QP_MOVES.len(), "a state and a move lead to one state");
        assert!(PathState::Migrated.after(crate::connection::path::PathMove::Agree).is_err());
    }
}
