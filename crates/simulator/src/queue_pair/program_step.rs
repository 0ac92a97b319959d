//! The steps of a host's program: compute, send, wait for messages, load and migrate paths.

use topology::NodeId;
use units::{PathId, SimSpan, SimTime};

/// The program of a host.
#[derive(Clone, Debug)]
pub struct HostProgram {
    /// The host.
    pub host: NodeId,
    /// The steps, in order.
    pub steps: Vec<ProgramStep>,
}

/// One step. Connections are numbered in the order of the run's parameters; the host is one of their ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramStep {
    /// Computes for a time.
    Compute(SimSpan),
    /// Waits until a time.
    Until(SimTime),
    /// Posts a send without waiting for its completion.
    Send {
        /// The connection.
        connection: usize,
        /// Bytes of the message.
        length: u32,
    },
    /// Waits for the next message.
    Receive {
        /// The connection.
        connection: usize,
    },
    /// Loads an alternate path; the report counts whether it was accepted.
    Load {
        /// The connection.
        connection: usize,
        /// The path to load.
        path: PathId,
    },
    /// Migrates to the armed alternate; the report counts whether it was accepted.
    Migrate {
        /// The connection.
        connection: usize,
    },
    /// Waits until this end has armed an alternate path.
    WaitArmed {
        /// The connection.
        connection: usize,
    },
    /// Waits until this end has migrated a number of times.
    WaitMigrations {
        /// The connection.
        connection: usize,
        /// Migrations since the start.
        times: u32,
    },
    /// Records the time.
    Mark,
}

impl ProgramStep {
    pub(super) fn connection(&self) -> Option<usize> {
        match self {
            Self::Send { connection, .. }
            | Self::Receive { connection }
            | Self::Load { connection, .. }
            | Self::Migrate { connection }
            | Self::WaitArmed { connection }
            | Self::WaitMigrations { connection, .. } => Some(*connection),
            Self::Compute(_) | Self::Until(_) | Self::Mark => None,
        }
    }
}
