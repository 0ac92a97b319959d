//! Why an operation cannot complete, in the 32 bits that a message has for it.

use std::fmt;

/// The cause of an abort, as every member of the group hears it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AbortCause {
    /// Members disagree on element type, operator or length.
    Mismatch,
    /// A type and operator that do not go together, or a length that does not fit.
    Unfoldable,
    /// A neighbour in the tree is lost; its number among the fabric's nodes.
    LostPeer(u32),
    /// A cause that this version does not know.
    Other(u32),
}

/// Node numbers share the word with the cause.
const NODE_MASK: u32 = (1 << 28) - 1;

impl AbortCause {
    /// For the wire.
    pub const fn code(self) -> u32 {
        match self {
            Self::Mismatch => 1 << 28,
            Self::Unfoldable => 2 << 28,
            Self::LostPeer(node) => 3 << 28 | node & NODE_MASK,
            Self::Other(code) => code,
        }
    }

    /// From the wire.
    pub const fn from_code(code: u32) -> Self {
        match code >> 28 {
            1 => Self::Mismatch,
            2 => Self::Unfoldable,
            3 => Self::LostPeer(code & NODE_MASK),
            _ => Self::Other(code),
        }
    }
}

impl fmt::Display for AbortCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch => f.write_str("members disagree on type, operator or length"),
            Self::Unfoldable => f.write_str("type, operator and length do not go together"),
            Self::LostPeer(node) => write!(f, "node {node} of the tree does not answer"),
            Self::Other(code) => write!(f, "cause {code:#x}, unknown to this version"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_survive_the_wire() {
        for cause in [AbortCause::Mismatch, AbortCause::Unfoldable, AbortCause::LostPeer(0xfff_ffff)] {
            assert_eq!(AbortCause::from_code(cause.code()), cause);
        }
        assert_eq!(AbortCause::from_code(7), AbortCause::Other(7));
    }
}
