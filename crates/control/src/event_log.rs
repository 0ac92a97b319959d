//! Log lines of manager and node, through `tracing`: a sentence, and the same data as fields.
//!
//! No packet passes here. Events that unauthenticated peers can cause are logged at a limited rate, and always counted.

use std::time::{Duration, Instant};

use manager::{ManagerEvent, PeerId};
use tracing::{debug, info, warn};

use super::disconnect::{Disconnect, DisconnectCause};

/// Target of the manager's log lines.
const MANAGER_TARGET: &str = "pleach::manager";

/// Logs an event of the manager.
pub(super) fn manager_event(event: &ManagerEvent) {
    let text = event.to_string();
    match event {
        ManagerEvent::NodeRegistered { name, node } => {
            info!(target: MANAGER_TARGET, node = %name, number = node.0, "{text}")
        }
        ManagerEvent::NodeLost { name, why } => warn!(target: MANAGER_TARGET, node = %name, why, "{text}"),
        ManagerEvent::JobOpened { job, name } => {
            info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), name = %name, "{text}")
        }
        ManagerEvent::JobAttached { job } => info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), "{text}"),
        ManagerEvent::JobClosed { job, why } => {
            info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), why = %why, "{text}")
        }
        ManagerEvent::GroupOpened { group, job, nodes } => {
            let (group, epoch, nodes) = (group.group.0, group.epoch.0, nodes.len());
            info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), group, epoch, nodes, "{text}");
        }
        ManagerEvent::GroupRecovered { group, job } => {
            info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), group = group.group.0, epoch = group.epoch.0, "{text}");
        }
        ManagerEvent::GroupRefused { job, error } => {
            warn!(target: MANAGER_TARGET, job = %job_id_hex(job.0), cause = error.cause(), "{text}");
        }
        ManagerEvent::GroupRevoked { group, why } => {
            warn!(target: MANAGER_TARGET, group = group.group.0, epoch = group.epoch.0, why = %why, "{text}");
        }
        ManagerEvent::GroupClosed { group } => {
            info!(target: MANAGER_TARGET, group = group.group.0, epoch = group.epoch.0, "{text}");
        }
        ManagerEvent::Failure { group, from, what } => {
            warn!(target: MANAGER_TARGET, group = group.group.0, epoch = group.epoch.0, from = %from, what = %what, "{text}");
        }
        ManagerEvent::RequestRejected { error } => debug!(target: MANAGER_TARGET, cause = error.cause(), "{text}"),
    }
}

/// A job's number as 16 hexadecimal digits.
fn job_id_hex(job: u64) -> String {
    format!("{job:016x}")
}

/// Logs ended connections, at a limited rate.
#[derive(Default)]
pub(super) struct DisconnectLog {
    began: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

/// Lines per minute.
const MAX_LINES_PER_MINUTE: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

impl DisconnectLog {
    pub(super) fn note(&mut self, peer: PeerId, disconnect: &Disconnect) {
        let (connection, cause, why) = (peer.0, disconnect.cause.label(), disconnect.why.as_str());
        if disconnect.cause == DisconnectCause::Closed {
            return debug!(target: "pleach::control", connection, cause, why, "connection {connection} closed: {why}");
        }
        let now = Instant::now();
        if self.began.is_none_or(|began| now.duration_since(began) >= MINUTE) {
            if self.suppressed > 0 {
                let suppressed = self.suppressed;
                warn!(target: "pleach::control", suppressed, "{suppressed} more connections were dropped in the last minute");
            }
            *self = Self { began: Some(now), logged: 0, suppressed: 0 };
        }
        if self.logged == MAX_LINES_PER_MINUTE {
            self.suppressed += 1;
            return;
        }
        self.logged += 1;
        warn!(target: "pleach::control", connection, cause, why, "connection {connection} dropped: {why}");
    }
}
