//! What a node's control agent asks of the node's data plane.

use manager::message::{GroupKey, NodeReport};
use manager::{ControlError, SeatSpec};

/// A group that failed at this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeatFailure {
    /// The group.
    pub group: GroupKey,
    /// The reason, for the job and the operator.
    pub what: String,
}

/// The seats of a node. No method may block.
pub trait DataPlane {
    /// Installs a seat. Of the subtree in `spec`, only the direct children matter.
    ///
    /// # Errors
    /// If the seat cannot be installed; nothing has changed then.
    fn install(&mut self, spec: &SeatSpec) -> Result<(), ControlError>;

    /// Removes a seat and releases its resources. A missing seat is not an error.
    fn remove(&mut self, group: GroupKey);

    /// Operations folded at the seat of a group.
    fn operations(&self, group: GroupKey) -> u64;

    /// Current statistics.
    fn report(&mut self) -> NodeReport;

    /// The next failed group; each is reported once.
    fn next_failure(&mut self) -> Option<SeatFailure> {
        None
    }
}
