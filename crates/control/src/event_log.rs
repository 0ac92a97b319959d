//! What manager and node log, through `tracing`: a sentence for people, and the same as fields for machines.
//!
//! Nothing here is on the way of a packet. What strangers bring about is logged a few times a minute, and counted always.

use std::time::{Duration, Instant};

use manager::{ManagerEvent, PeerId};
use tracing::{debug, info, warn};

use super::session::{Disconnect, DisconnectCause};

/// Where the manager's lines come from.
const MANAGER_TARGET: &str = "pleach::manager";

/// Something happened that the manager's machine tells.
pub(super) fn manager_event(event: &ManagerEvent) {
    let words = event.to_string();
    match event {
        ManagerEvent::NodeRegistered { name, node } => {
            info!(target: MANAGER_TARGET, node = %name, number = node.0, "{words}")
        }
        ManagerEvent::NodeLost { name, why } => warn!(target: MANAGER_TARGET, node = %name, why, "{words}"),
        ManagerEvent::JobOpened { job, name } => {
            info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), name = %name, "{words}")
        }
        ManagerEvent::JobAttached { job } => info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), "{words}"),
        ManagerEvent::JobClosed { job, why } => {
            info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), why = %why, "{words}")
        }
        ManagerEvent::GroupOpened { group, job, nodes } => {
            let (group, epoch, nodes) = (group.group.0, group.epoch.0, nodes.len());
            info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), group, epoch, nodes, "{words}");
        }
        ManagerEvent::GroupRelearnt { group, job } => {
            info!(target: MANAGER_TARGET, job = %job_id_hex(job.0), group = group.group.0, epoch = group.epoch.0, "{words}");
        }
        ManagerEvent::GroupRefused { job, refusal } => {
            warn!(target: MANAGER_TARGET, job = %job_id_hex(job.0), cause = refusal.cause(), "{words}");
        }
        ManagerEvent::GroupRevoked { group, why } => {
            warn!(target: MANAGER_TARGET, group = group.group.0, epoch = group.epoch.0, why = %why, "{words}");
        }
        ManagerEvent::GroupClosed { group } => {
            info!(target: MANAGER_TARGET, group = group.group.0, epoch = group.epoch.0, "{words}");
        }
        ManagerEvent::Trouble { group, from, what } => {
            warn!(target: MANAGER_TARGET, group = group.group.0, epoch = group.epoch.0, from = %from, what = %what, "{words}");
        }
        ManagerEvent::Refused { refusal } => debug!(target: MANAGER_TARGET, cause = refusal.cause(), "{words}"),
    }
}

/// A job's number as people write it.
fn job_id_hex(job: u64) -> String {
    format!("{job:016x}")
}

/// Lines about connections that ended: as many as a person would read.
#[derive(Default)]
pub(super) struct DisconnectLog {
    began: Option<Instant>,
    said: u32,
    unsaid: u64,
}

/// Lines in a minute.
const MAX_LINES_PER_MINUTE: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

impl DisconnectLog {
    pub(super) fn tell(&mut self, peer: PeerId, ended: &Disconnect) {
        let (connection, cause, why) = (peer.0, ended.cause.words(), ended.why.as_str());
        if ended.cause == DisconnectCause::Closed {
            return debug!(target: "pleach::control", connection, cause, why, "connection {connection} ended: {why}");
        }
        let now = Instant::now();
        if self.began.is_none_or(|began| now.duration_since(began) >= MINUTE) {
            if self.unsaid > 0 {
                let unsaid = self.unsaid;
                warn!(target: "pleach::control", unsaid, "{unsaid} more connections were dropped in the last minute");
            }
            *self = Self { began: Some(now), said: 0, unsaid: 0 };
        }
        if self.said == MAX_LINES_PER_MINUTE {
            self.unsaid += 1;
            return;
        }
        self.said += 1;
        warn!(target: "pleach::control", connection, cause, why, "connection {connection} was dropped: {why}");
    }
}
