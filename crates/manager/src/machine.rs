//! The manager's state machine: knows the nodes, admits jobs, opens and closes groups, and detects losses.
//!
//! In: messages with the connection they came over, lost connections, the time, and with each message a fresh random key.
//! Out: actions. The handlers for nodes, jobs and groups are in the files of those names.

use std::collections::{BTreeMap, VecDeque};

use units::{Epoch, Span, Time};

use super::action::{ManagerAction, ManagerEvent};
use super::control_error::ControlError;
use super::edge_number_allocator::EdgeNumberAllocator;
use super::job_history::JobHistoryLog;
use super::limits::*;
use super::message::{FromManager, GroupKey, Quota, RequestId, ToManager};
use super::records::{GroupRecord, JobOwner, JobRecord, NodeRecord};
use super::topology_plan::TopologyPlan;
use super::{AuthKey, ControlPeer, CredentialId, JobId, JobTicket, PeerId};

/// The operator's settings.
#[derive(Clone, Debug)]
pub struct ManagerSettings {
    /// The operator's plan of the tree; it overrides the registrations of nodes.
    pub topology: TopologyPlan,
    /// Hosts per leaf, and child nodes per node, where the manager arranges the tree.
    pub fanout: usize,
    /// Quota of a job that does not ask for one.
    pub default_quota: Quota,
    /// Largest quota that a job can get.
    pub max_quota: Quota,
    /// Interval between heartbeats of a node.
    pub heartbeat_interval: Span,
    /// A node that has been silent for this long is lost.
    pub node_timeout: Span,
    /// Time for a node to reconnect before its groups are revoked.
    pub node_grace: Span,
    /// Time for a job to reconnect before its groups are removed.
    pub job_grace: Span,
    /// Longest time to install or remove all seats of a group.
    pub setup_timeout: Span,
}

impl Default for ManagerSettings {
    fn default() -> Self {
        let millis = |millis: u64| Span::from_micros(millis * 1_000);
        Self {
            topology: TopologyPlan::default(),
            fanout: 16,
            default_quota: Quota { groups: 64, operations: 4_096, bytes: 64 << 20 },
            max_quota: Quota { groups: 1_024, operations: 1 << 16, bytes: 4 << 30 },
            heartbeat_interval: millis(500),
            node_timeout: millis(5_000),
            node_grace: millis(250),
            job_grace: millis(10_000),
            setup_timeout: millis(5_000),
        }
    }
}

/// The manager's state machine.
#[derive(Debug)]
pub struct Manager {
    pub(super) settings: ManagerSettings,
    pub(super) nodes: BTreeMap<String, NodeRecord>,
    pub(super) node_of_peer: BTreeMap<PeerId, String>,
    pub(super) jobs: BTreeMap<JobId, JobRecord>,
    /// Histories of jobs that ended, oldest first.
    pub(super) finished_jobs: VecDeque<JobHistoryLog>,
    pub(super) groups: BTreeMap<GroupKey, GroupRecord>,
    pub(super) numbers: EdgeNumberAllocator,
    pub(super) epoch: Epoch,
    pub(super) next_group: u32,
    pub(super) next_job: u64,
    pub(super) next_node: u32,
    pub(super) counters: BTreeMap<&'static str, u64>,
    /// Refused groups, by cause.
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// Operations that nodes have reported, over all groups.
    pub(super) operations: u64,
    pub(super) wake_at: Time,
    actions: VecDeque<ManagerAction>,
}

impl Manager {
    /// A manager without nodes and jobs. Its first numbers come from `fresh`, so that they are unlikely to collide with
    /// those of an earlier manager, which nodes may still use.
    pub fn new(settings: ManagerSettings, fresh: AuthKey) -> Self {
        let word = |at: usize| u32::from_le_bytes([fresh.0[at], fresh.0[at + 1], fresh.0[at + 2], fresh.0[at + 3]]);
        Self {
            settings,
            nodes: BTreeMap::new(),
            node_of_peer: BTreeMap::new(),
            jobs: BTreeMap::new(),
            finished_jobs: VecDeque::new(),
            groups: BTreeMap::new(),
            numbers: EdgeNumberAllocator::new(word(0)),
            epoch: Epoch(word(4)),
            next_group: word(8),
            next_job: u64::from(word(12)) << 32,
            next_node: 0,
            counters: BTreeMap::new(),
            refused: BTreeMap::new(),
            operations: 0,
            wake_at: Time::NEVER,
            actions: VecDeque::new(),
        }
    }

    /// When to call [`Self::handle_timeout`]; [`Time::NEVER`] if nothing is due.
    pub fn deadline(&self) -> Time {
        self.wake_at
    }

    /// The next action for the driver.
    pub fn poll_action(&mut self) -> Option<ManagerAction> {
        self.actions.pop_front()
    }

    /// Processes a message. `fresh` is a new random key, which may become the key of a job or a group.
    pub fn handle_message(&mut self, now: Time, peer: ControlPeer, message: ToManager, fresh: AuthKey) {
        let from = peer.id;
        if let Err(error) = self.check_rights(peer.credential, &message) {
            return self.reject(from, message.request(), error);
        }
        let (request, outcome) = match message {
            ToManager::OpenJob { request, name, quota } => {
                (request, self.open_job(now, peer, request, &name, quota, fresh))
            }
            ToManager::AttachJob { request, ticket, name, quota } => {
                (request, self.attach_job(now, peer, request, ticket, &name, quota))
            }
            ToManager::OpenGroup { request, ticket, group } => {
                (request, self.open_group(now, from, request, ticket, group, fresh))
            }
            ToManager::CloseGroup { request, ticket, group } => {
                (request, self.close_group(now, from, request, ticket, group))
            }
            ToManager::CloseJob { request, ticket } => (request, self.close_job(now, from, request, ticket)),
            ToManager::JobFailure { ticket, group, what } => {
                (RequestId(0), self.job_failure(now, ticket, group, &what))
            }
            ToManager::Register { request, node, version } => {
                (request, self.register(now, from, request, node, &version))
            }
            ToManager::HeldSeats { seats } => (RequestId(0), self.held_seats(now, from, seats)),
            ToManager::Heartbeat { seats, report } => (RequestId(0), self.heartbeat(now, from, seats, report)),
            ToManager::NodeFailure { group, what } => (RequestId(0), self.node_failure(now, from, group, &what)),
            ToManager::Reply(reply) => (RequestId(0), self.node_reply(now, from, reply)),
            ToManager::Status { request } => {
                self.send(from, FromManager::Status { request, status: self.status() });
                (request, Ok(()))
            }
            ToManager::JobHistory { request, job } => (request, self.job_history(now, from, request, &job)),
            ToManager::RevokeJob { request, job, why } => (request, self.revoke_job(now, from, request, job, &why)),
        };
        if let Err(error) = outcome {
            self.reject(from, request, error);
        }
    }

    fn reject(&mut self, to: PeerId, request: RequestId, error: ControlError) {
        self.count("requests refused");
        self.log(ManagerEvent::RequestRejected { error: error.clone() });
        self.send(to, FromManager::Rejected { request, error });
    }

    /// A peer with a job's credential may open jobs and use those that were opened under it (P-105), and nothing else.
    fn check_rights(&self, credential: Option<CredentialId>, message: &ToManager) -> Result<(), ControlError> {
        let Some(credential) = credential else { return Ok(()) };
        match message {
            ToManager::OpenJob { .. } => Ok(()),
            ToManager::AttachJob { ticket, .. } => match self.jobs.get(&ticket.job).map(|record| record.owner) {
                None | Some(JobOwner::Unknown) => Ok(()),
                Some(owner) if owner == JobOwner::Credential(credential) => Ok(()),
                Some(_) => Err(ControlError::WrongTicket),
            },
            ToManager::OpenGroup { ticket, .. }
            | ToManager::CloseGroup { ticket, .. }
            | ToManager::CloseJob { ticket, .. }
            | ToManager::JobFailure { ticket, .. } => {
                let owner = self.jobs.get(&ticket.job).map(|record| record.owner);
                // Of a job that the manager does not know, the request itself says so.
                let is_owner = owner.is_none_or(|owner| owner == JobOwner::Credential(credential));
                if is_owner { Ok(()) } else { Err(ControlError::WrongTicket) }
            }
            ToManager::Register { .. }
            | ToManager::HeldSeats { .. }
            | ToManager::Heartbeat { .. }
            | ToManager::NodeFailure { .. }
            | ToManager::Reply(_)
            | ToManager::Status { .. }
            | ToManager::JobHistory { .. }
            | ToManager::RevokeJob { .. } => Err(ControlError::NotPermitted),
        }
    }

    /// Processes the loss of a connection.
    pub fn handle_disconnect(&mut self, now: Time, peer: PeerId) {
        if let Some(name) = self.node_of_peer.remove(&peer) {
            self.node_disconnected(now, &name);
        }
        self.job_disconnected(now, peer);
        for record in self.groups.values_mut() {
            record.forget_peer(peer);
        }
    }

    /// Expires nodes, jobs and groups whose deadline has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.wake_at = Time::NEVER;
        self.expire_nodes(now);
        self.expire_jobs(now);
        self.expire_groups(now);
    }

    /// True if any job is admitted.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// True if a node or a job uses the connection.
    pub fn is_registered(&self, peer: PeerId) -> bool {
        self.node_of_peer.contains_key(&peer) || self.jobs.values().any(|record| record.peers.contains(&peer))
    }

    pub(super) fn send(&mut self, to: PeerId, message: FromManager) {
        self.actions.push_back(ManagerAction::Send { to, message: Box::new(message) });
    }

    pub(super) fn close(&mut self, peer: PeerId) {
        self.actions.push_back(ManagerAction::Close(peer));
    }

    pub(super) fn log(&mut self, event: ManagerEvent) {
        self.actions.push_back(ManagerAction::Log(event));
    }

    /// Counts an event that the driver saw, such as a dropped connection.
    pub fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    pub(super) fn wake_by(&mut self, time: Time) {
        self.wake_at = self.wake_at.min(time);
    }

    /// Finds the job of a ticket and verifies the key.
    pub(super) fn authenticate(&mut self, ticket: JobTicket) -> Result<&mut JobRecord, ControlError> {
        let record = self.jobs.get_mut(&ticket.job).filter(|record| record.key.constant_time_eq(&ticket.key));
        record.ok_or(ControlError::WrongTicket)
    }

    pub(super) fn notify_job(&mut self, job: JobId, message: FromManager) {
        let Some(record) = self.jobs.get_mut(&job) else { return };
        if record.peers.is_empty() {
            if record.pending_notifications.len() == MAX_PENDING_NOTIFICATIONS {
                record.pending_notifications.pop_front();
            }
            return record.pending_notifications.push_back(message);
        }
        for peer in record.peers.clone() {
            self.send(peer, message.clone());
        }
    }
}

/// Notifications that the manager keeps for a disconnected job.
const MAX_PENDING_NOTIFICATIONS: usize = 64;
const _: () = assert!(MAX_PENDING_NOTIFICATIONS < MAX_GROUPS);
