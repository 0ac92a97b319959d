//! What manager and node log, through `tracing`: a sentence for people, and the same as fields for machines.
//!
//! Nothing here is on the way of a packet. What strangers bring about is logged a few times a minute, and counted always.

use std::time::{Duration, Instant};

use manager::{Event, PeerId};
use tracing::{debug, info, warn};

use super::session::{Cause, Ended};

/// Where the manager's lines come from.
const MANAGER: &str = "pleach::manager";

/// Something happened that the manager's machine tells.
pub(super) fn event(event: &Event) {
    let words = event.to_string();
    match event {
        Event::NodeRegistered { name, node } => info!(target: MANAGER, node = %name, number = node.0, "{words}"),
        Event::NodeLost { name, why } => warn!(target: MANAGER, node = %name, why, "{words}"),
        Event::JobOpened { job, name } => info!(target: MANAGER, job = %id(job.0), name = %name, "{words}"),
        Event::JobAttached { job } => info!(target: MANAGER, job = %id(job.0), "{words}"),
        Event::JobClosed { job, why } => info!(target: MANAGER, job = %id(job.0), why = %why, "{words}"),
        Event::GroupOpened { group, job, nodes } => {
            let (group, epoch, nodes) = (group.group.0, group.epoch.0, nodes.len());
            info!(target: MANAGER, job = %id(job.0), group, epoch, nodes, "{words}");
        }
        Event::GroupRelearnt { group, job } => {
            info!(target: MANAGER, job = %id(job.0), group = group.group.0, epoch = group.epoch.0, "{words}");
        }
        Event::GroupRefused { job, refusal } => {
            warn!(target: MANAGER, job = %id(job.0), cause = refusal.cause(), "{words}");
        }
        Event::GroupRevoked { group, why } => {
            warn!(target: MANAGER, group = group.group.0, epoch = group.epoch.0, why = %why, "{words}");
        }
        Event::GroupClosed { group } => {
            info!(target: MANAGER, group = group.group.0, epoch = group.epoch.0, "{words}");
        }
        Event::Trouble { group, from, what } => {
            warn!(target: MANAGER, group = group.group.0, epoch = group.epoch.0, from = %from, what = %what, "{words}");
        }
        Event::Refused { refusal } => debug!(target: MANAGER, cause = refusal.cause(), "{words}"),
    }
}

/// A job's number as people write it.
fn id(job: u64) -> String {
    format!("{job:016x}")
}

/// Lines about connections that ended: as many as a person would read.
#[derive(Default)]
pub(super) struct Partings {
    began: Option<Instant>,
    said: u32,
    unsaid: u64,
}

/// Lines in a minute.
const MOST_LINES: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

impl Partings {
    pub(super) fn tell(&mut self, peer: PeerId, ended: &Ended) {
        let (connection, cause, why) = (peer.0, ended.cause.words(), ended.why.as_str());
        if ended.cause == Cause::Closed {
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
        if self.said == MOST_LINES {
            self.unsaid += 1;
            return;
        }
        self.said += 1;
        warn!(target: "pleach::control", connection, cause, why, "connection {connection} was dropped: {why}");
    }
}
