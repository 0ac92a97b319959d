//! Why an operation cannot complete, encoded in the 32-bit detail of a message.

use std::fmt;

/// The cause of an abort. Every member of the group gets it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AbortCause {
    /// Members disagree on element type, operator or length.
    Mismatch,
    /// The element type, operator and length cannot be folded.
    Unfoldable,
    /// The connection to a neighbour in the tree is lost; the neighbour's node number.
    LostPeer(u32),
    /// A cause that this version does not know.
    Other(u32),
}

/// The lower bits of the detail hold the node number.
const NODE_MASK: u32 = (1 << 28) - 1;

impl AbortCause {
    /// The detail on the wire.
    pub const fn code(self) -> u32 {
        match self {
            Self::Mismatch => 1 << 28,
            Self::Unfoldable => 2 << 28,
            Self::LostPeer(node) => 3 << 28 | node & NODE_MASK,
            Self::Other(code) => code,
        }
    }

    /// Decodes the detail on the wire.
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
            Self::Mismatch => f.write_str("members disagree on element type, operator or length"),
            Self::Unfoldable => {
                f.write_str("the nodes cannot fold this combination of element type, operator and length")
            }
            Self::LostPeer(peer) => write!(f, "neighbour number {peer} in the aggregation tree does not answer"),
            Self::Other(code) => write!(f, "abort code {code:#x}, unknown to this version"),
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
