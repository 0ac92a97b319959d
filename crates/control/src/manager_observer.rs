//! Who watches a manager from within its process, such as a web page.

use std::time::{Duration, Instant};

use manager::ManagerEvent;
use manager::status::ManagerStatus;

/// The manager at one moment.
#[derive(Clone, Debug)]
pub struct ManagerSnapshot {
    /// The whole status, however long.
    pub status: ManagerStatus,
    /// Time since the start of the process.
    pub uptime: Duration,
    /// Control connections.
    pub connections: usize,
}

/// Gets the events and the status of a manager. The manager's thread calls it, so no method may block.
pub trait ManagerObserver: Send {
    /// When the next status is wanted.
    fn status_due(&self) -> Instant;

    /// The status.
    fn observe_status(&mut self, snapshot: ManagerSnapshot);

    /// An event, just after it was logged.
    fn observe_event(&mut self, event: &ManagerEvent);
}
