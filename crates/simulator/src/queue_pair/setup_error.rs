//! Why queue pairs cannot be set up, and the checks of a connection plan.

use std::fmt;

use topology::{Fabric, NodeId};

use super::parameters::{ConnectionPlan, MAX_MESSAGE_BYTES};
use crate::fault::FaultPlanError;

/// Why queue pairs or messaging cannot be set up.
#[derive(Debug)]
pub enum TransportSetupError {
    /// The fault plan does not match the fabric.
    Plan(FaultPlanError),
    /// The fabric has no route between two hosts.
    NoRoute {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// A number is outside its range.
    OutOfRange(&'static str),
}

impl fmt::Display for TransportSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => write!(f, "fault plan: {error}"),
            Self::NoRoute { from, to } => write!(f, "no route from {from:?} to {to:?}"),
            Self::OutOfRange(what) => write!(f, "out of range: {what}"),
        }
    }
}

impl std::error::Error for TransportSetupError {}

/// Checks the numbers of a connection plan.
pub(super) fn check_connection(fabric: &Fabric, plan: &ConnectionPlan) -> Result<(), TransportSetupError> {
    let [one, other] = &plan.ends;
    if !fabric.is_host(one.host) || !fabric.is_host(other.host) || one.host == other.host {
        return Err(TransportSetupError::OutOfRange("ends: two different hosts of the fabric"));
    }
    if !(1..=units::limits::MAX_PATHS).contains(&usize::from(plan.paths)) {
        return Err(TransportSetupError::OutOfRange("paths: 1 to 16"));
    }
    let mtus = units::limits::MIN_MTU..=units::limits::MAX_MTU;
    if !plan.mtu.is_power_of_two() || !mtus.contains(&plan.mtu) {
        return Err(TransportSetupError::OutOfRange("mtu: 256, 512, 1024, 2048 or 4096"));
    }
    for end in &plan.ends {
        if end.messages.iter().any(|message| message.length > MAX_MESSAGE_BYTES) {
            return Err(TransportSetupError::OutOfRange("length: at most 1 MiB"));
        }
        let most = protocol::queue_pair::MAX_POSTED_REQUESTS;
        if end.sends_at_once == 0 || end.sends_at_once > most || end.receives == 0 || end.receives as usize > most {
            return Err(TransportSetupError::OutOfRange("sends at once and receives: 1 to 16384"));
        }
    }
    Ok(())
}
