//! The state of a connection's end after a run.

use std::collections::BTreeMap;

use protocol::connection::path::{MigrationCause, PathEvent, PathState};
use protocol::queue_pair::{QpError, QpState};
use units::{PathId, SimTime};

/// The report of one end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionEndReport {
    /// The state of the queue pair.
    pub state: QpState,
    /// The state of migration.
    pub path_state: PathState,
    /// The path on which it sends.
    pub path: PathId,
    /// Migrations, by cause.
    pub migrations: BTreeMap<MigrationCause, u32>,
    /// How often an alternate path was armed.
    pub armed: u32,
    /// How often a path was lost.
    pub lost: u32,
    /// How often a path recovered.
    pub recovered: u32,
    /// How often a migration failed because no path was left.
    pub stranded: u32,
    /// Messages whose delivery is acknowledged.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// The time of the last acknowledged or received message.
    pub last: SimTime,
    /// When the connection failed.
    pub failed_at: Option<SimTime>,
    /// Why the connection failed.
    pub failure: Option<QpError>,
}

impl Default for ConnectionEndReport {
    fn default() -> Self {
        Self {
            state: QpState::Reset,
            path_state: PathState::Migrated,
            path: PathId(0),
            migrations: BTreeMap::new(),
            armed: 0,
            lost: 0,
            recovered: 0,
            stranded: 0,
            sent: 0,
            received: 0,
            last: SimTime::ZERO,
            failed_at: None,
            failure: None,
        }
    }
}

impl ConnectionEndReport {
    pub(super) fn note(&mut self, event: PathEvent) {
        match event {
            PathEvent::Armed(_) => self.armed += 1,
            PathEvent::Migrated { cause, .. } => *self.migrations.entry(cause).or_default() += 1,
            PathEvent::MigrationFailed(_) => self.stranded += 1,
            PathEvent::Recovered(_) => self.recovered += 1,
            PathEvent::Lost(_) => self.lost += 1,
        }
    }
}
