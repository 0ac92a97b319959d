//! The state of the hosts' software while calls are measured.

use units::SimTime;

use super::call_latency::{CallStatistics, CallWorkload};
use crate::processor::{HostCosts, HostProcessors};

/// The software of all hosts.
pub(super) struct HostSoftware {
    pub(super) calls: CallWorkload,
    pub(super) window: u32,
    pub(super) costs: HostCosts,
    pub(super) processors: HostProcessors,
    pub(super) each: Vec<Progress>,
    pub(super) over: u32,
    pub(super) failed: bool,
    pub(super) statistics: CallStatistics,
}

/// The progress of a host's present call.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) calls: u32,
    pub(super) started: SimTime,
    /// Segments that are posted or being posted.
    pub(super) posted: u32,
    /// The last of them is being posted.
    pub(super) is_posting: bool,
    pub(super) taken: u32,
}
