//! Limits of shapes. Shapes come from scenario files, so every number is checked here.

use std::fmt;

/// Most nodes (hosts and switches together) of a fabric.
pub const MAX_NODES: u32 = 1 << 28;
/// Most switch levels of a tree, and most dimensions of a grid.
pub const MAX_LEVELS: usize = 16;
/// Most ports of one node.
pub const MAX_PORTS: u32 = 1 << 15;

/// Why a shape was rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShapeError {
    /// A number that must be at least one is zero.
    Zero {
        /// The name of the number.
        what: &'static str,
    },
    /// Too few or too many levels or dimensions.
    Depth {
        /// What is counted.
        what: &'static str,
        /// The number requested.
        asked: usize,
    },
    /// The lists of children and of parents have different lengths.
    UnequalLists {
        /// Length of the list of children.
        children: usize,
        /// Length of the list of parents.
        parents: usize,
    },
    /// Some node would need more ports than [`MAX_PORTS`].
    TooManyPorts {
        /// The level of that node.
        level: usize,
        /// The ports it would need.
        needed: u64,
    },
    /// The fabric would have more nodes than [`MAX_NODES`].
    TooManyNodes,
    /// The global ports of a dragonfly+ group cannot be divided evenly among the other groups.
    UnevenGlobalPorts {
        /// Global ports of one group.
        ports: u64,
        /// How many other groups there are.
        other_groups: u32,
    },
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { what } => write!(f, "{what} is zero; it must be at least 1"),
            Self::Depth { what, asked } => {
                write!(f, "{asked} {what} requested; between 1 and {MAX_LEVELS} are allowed")
            }
            Self::UnequalLists { children, parents } => {
                write!(
                    f,
                    "{children} levels of children but {parents} of parents; both lists need one number per level"
                )
            }
            Self::TooManyPorts { level, needed } => {
                write!(f, "a node of level {level} would need {needed} ports; at most {MAX_PORTS} are allowed")
            }
            Self::TooManyNodes => {
                write!(f, "the fabric would have more than {MAX_NODES} hosts and switches, which is the most allowed")
            }
            Self::UnevenGlobalPorts { ports, other_groups } => write!(
                f,
                "a group's {ports} global ports (spines x ports per spine) must be a multiple, at least once, \
                 of the {other_groups} other groups"
            ),
        }
    }
}

impl std::error::Error for ShapeError {}

/// Rejects zero.
pub(crate) fn at_least_one(what: &'static str, value: u32) -> Result<u32, ShapeError> {
    if value == 0 { Err(ShapeError::Zero { what }) } else { Ok(value) }
}

/// The product, if it is a valid number of nodes.
pub(crate) fn bounded_product(factors: impl IntoIterator<Item = u32>) -> Result<u32, ShapeError> {
    let mut product = 1u64;
    for factor in factors {
        product = product.saturating_mul(u64::from(factor));
        if product > u64::from(MAX_NODES) {
            return Err(ShapeError::TooManyNodes);
        }
    }
    Ok(product as u32)
}

/// The sum, if it is a valid number of nodes.
pub(crate) fn bounded_sum(parts: impl IntoIterator<Item = u32>) -> Result<u32, ShapeError> {
    let sum: u64 = parts.into_iter().map(u64::from).sum();
    if sum > u64::from(MAX_NODES) { Err(ShapeError::TooManyNodes) } else { Ok(sum as u32) }
}

/// Rejects more than [`MAX_PORTS`] ports.
pub(crate) fn bounded_ports(level: usize, needed: u64) -> Result<(), ShapeError> {
    if needed > u64::from(MAX_PORTS) { Err(ShapeError::TooManyPorts { level, needed }) } else { Ok(()) }
}

/// Rejects a fabric with no or too many levels or dimensions.
pub(crate) fn bounded_depth(what: &'static str, asked: usize) -> Result<(), ShapeError> {
    if (1..=MAX_LEVELS).contains(&asked) { Ok(()) } else { Err(ShapeError::Depth { what, asked }) }
}
