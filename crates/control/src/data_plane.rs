//! What the control side of a node asks of its data plane.

use manager::message::{GroupKey, NodeReport};
use manager::{ControlError, SeatSpec};

/// A group that cannot go on at this node, as the data plane found out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeatFailure {
    /// Which.
    pub group: GroupKey,
    /// What, in words: it reaches the job and the operator.
    pub what: String,
}

/// The seats of a node: taken, given up, asked how they fare. Nothing here may block.
pub trait DataPlane {
    /// Takes a seat. What hangs below `spec` is none of its business beyond the direct children.
    ///
    /// # Errors
    /// If it cannot be taken; nothing has changed then.
    fn install(&mut self, spec: &SeatSpec) -> Result<(), ControlError>;

    /// Gives up a seat and all that it held. A seat that is not there is no error.
    fn remove(&mut self, group: GroupKey);

    /// Operations that were folded at the seat of a group.
    fn operations(&self, group: GroupKey) -> u64;

    /// How things are now.
    fn report(&self) -> NodeReport;

    /// A group that ran into trouble since it was last asked; each is told once.
    fn next_trouble(&mut self) -> Option<SeatFailure> {
        None
    }
}
