//! The manager: knows the nodes, admits jobs, opens and closes groups, hears of losses.
//!
//! In: messages with the connection they came over, lost connections, the time, and with each message a key that nobody
//! has seen before. Out: duties. What it does about nodes, jobs and groups stands in the files of those names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use units::{Epoch, Span, Time};

use super::action::{ManagerAction, ManagerEvent, PeerId};
use super::control_error::ControlError;
use super::edge_number_allocator::EdgeNumberAllocator;
use super::host_pattern::HostPattern;
use super::job_history::JobHistoryLog;
use super::limits::*;
use super::message::{Capacity, FromManager, GroupKey, NodeDescriptor, NodeReport, Quota, RequestId, ToManager};
use super::topology_plan::TopologyPlan;
use super::{AggregationNodeId, AuthKey, JobId, JobTicket};

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct ManagerSettings {
    /// The nodes' places, if they are laid down; they count more than what nodes say of themselves.
    pub topology: TopologyPlan,
    /// Hosts per leaf, and nodes per node, where the manager arranges the tree.
    pub fanout: usize,
    /// What a job gets that does not ask.
    pub default_quota: Quota,
    /// What a job gets at most.
    pub most_quota: Quota,
    /// How often nodes show that they live.
    pub beat: Span,
    /// A node that has been silent for so long is lost.
    pub node_silence: Span,
    /// A node whose connection broke has so long to come back before its groups are revoked.
    pub node_grace: Span,
    /// A job whose connections broke has so long to come back before its groups are removed.
    pub job_grace: Span,
    /// So long may it take until all seats of a group are taken, or given up.
    pub patience: Span,
}

impl Default for ManagerSettings {
    fn default() -> Self {
        let millis = |millis: u64| Span::from_micros(millis * 1_000);
        Self {
            topology: TopologyPlan::default(),
            fanout: 16,
            default_quota: Quota { groups: 64, operations: 4_096, bytes: 64 << 20 },
            most_quota: Quota { groups: 1_024, operations: 1 << 16, bytes: 4 << 30 },
            beat: millis(500),
            node_silence: millis(5_000),
            node_grace: millis(250),
            job_grace: millis(10_000),
            patience: millis(5_000),
        }
    }
}

/// What a group has of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reservation {
    pub job: JobId,
    pub operations: u32,
    pub bytes: u64,
}

/// Whether a node can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeLiveness {
    /// Registered, but it has not yet said what it holds.
    Arriving { peer: PeerId, heard_at: Time },
    /// There.
    Here { peer: PeerId, heard_at: Time, since: Time },
    /// Its connection broke.
    Away { since: Time },
    /// Given up.
    Lost,
}

impl NodeLiveness {
    pub(super) fn peer(self) -> Option<PeerId> {
        match self {
            Self::Arriving { peer, .. } | Self::Here { peer, .. } => Some(peer),
            Self::Away { .. } | Self::Lost => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct NodeRecord {
    pub number: AggregationNodeId,
    pub card: NodeDescriptor,
    pub patterns: Vec<HostPattern>,
    pub presence: NodeLiveness,
    pub holds: BTreeMap<GroupKey, Reservation>,
    /// The sums over `holds`.
    pub reserved: Capacity,
    pub report: NodeReport,
    pub version: String,
}

impl NodeRecord {
    pub(super) fn hold(&mut self, group: GroupKey, hold: Reservation) {
        self.release(group);
        self.holds.insert(group, hold);
        self.reserved.seats += 1;
        self.reserved.operations = self.reserved.operations.saturating_add(hold.operations);
        self.reserved.bytes = self.reserved.bytes.saturating_add(hold.bytes);
    }

    pub(super) fn release(&mut self, group: GroupKey) {
        if let Some(hold) = self.holds.remove(&group) {
            self.reserved.seats -= 1;
            self.reserved.operations = self.reserved.operations.saturating_sub(hold.operations);
            self.reserved.bytes = self.reserved.bytes.saturating_sub(hold.bytes);
        }
    }

    pub(super) fn release_all(&mut self) {
        self.holds.clear();
        self.reserved = Capacity { seats: 0, operations: 0, bytes: 0 };
    }
}

#[derive(Debug)]
pub(super) struct JobRecord {
    pub account: JobHistoryLog,
    pub key: AuthKey,
    pub quota: Quota,
    pub peers: BTreeSet<PeerId>,
    pub groups: BTreeSet<GroupKey>,
    /// When the last of its connections broke.
    pub detached_at: Option<Time>,
    /// What it would have been told meanwhile; the newest only.
    pub missed: VecDeque<FromManager>,
}

/// The machine.
#[derive(Debug)]
pub struct Manager {
    pub(super) settings: ManagerSettings,
    pub(super) nodes: BTreeMap<String, NodeRecord>,
    pub(super) node_of_peer: BTreeMap<PeerId, String>,
    pub(super) jobs: BTreeMap<JobId, JobRecord>,
    /// Of jobs that are gone, oldest first.
    pub(super) past: VecDeque<JobHistoryLog>,
    pub(super) groups: BTreeMap<GroupKey, super::groups::GroupRecord>,
    pub(super) numbers: EdgeNumberAllocator,
    pub(super) epoch: Epoch,
    pub(super) next_group: u32,
    pub(super) next_job: u64,
    pub(super) next_node: u32,
    pub(super) counters: BTreeMap<&'static str, u64>,
    /// Groups that were refused, by cause.
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// Operations that nodes have reported of groups.
    pub(super) operations: u64,
    pub(super) wake_at: Time,
    duties: VecDeque<ManagerAction>,
}

impl Manager {
    /// A manager that knows nobody. From `fresh` come the first numbers that it hands out, so that those of an earlier
    /// manager, which nodes may still use, are not likely to be met.
    pub fn new(settings: ManagerSettings, fresh: AuthKey) -> Self {
        let words = |at: usize| u32::from_le_bytes([fresh.0[at], fresh.0[at + 1], fresh.0[at + 2], fresh.0[at + 3]]);
        Self {
            settings,
            nodes: BTreeMap::new(),
            node_of_peer: BTreeMap::new(),
            jobs: BTreeMap::new(),
            past: VecDeque::new(),
            groups: BTreeMap::new(),
            numbers: EdgeNumberAllocator::new(words(0)),
            epoch: Epoch(words(4)),
            next_group: words(8),
            next_job: u64::from(words(12)) << 32,
            next_node: 0,
            counters: BTreeMap::new(),
            refused: BTreeMap::new(),
            operations: 0,
            wake_at: Time::NEVER,
            duties: VecDeque::new(),
        }
    }

    /// When [`Self::handle_timeout`] wants to be called; [`Time::NEVER`] if it need not be.
    pub fn deadline(&self) -> Time {
        self.wake_at
    }

    /// The next thing to do.
    pub fn poll_duty(&mut self) -> Option<ManagerAction> {
        self.duties.pop_front()
    }

    /// A message came. `fresh` is a key that nobody has seen: it may become a job's or a group's.
    pub fn handle_message(&mut self, now: Time, from: PeerId, message: ToManager, fresh: AuthKey) {
        let (request, done) = match message {
            ToManager::OpenJob { request, name, quota } => {
                (request, self.open_job(now, from, request, &name, quota, fresh))
            }
            ToManager::AttachJob { request, ticket, name, quota } => {
                (request, self.attach_job(now, from, request, ticket, &name, quota))
            }
            ToManager::OpenGroup { request, ticket, group } => {
                (request, self.open_group(now, from, request, ticket, group, fresh))
            }
            ToManager::CloseGroup { request, ticket, group } => {
                (request, self.close_group(now, from, request, ticket, group))
            }
            ToManager::CloseJob { request, ticket } => (request, self.close_job(now, from, request, ticket)),
            ToManager::JobTrouble { ticket, group, what } => {
                (RequestId(0), self.job_trouble(now, ticket, group, &what))
            }
            ToManager::Register { request, card, version } => {
                (request, self.register(now, from, request, card, &version))
            }
            ToManager::Holding { seats } => (RequestId(0), self.holding(now, from, seats)),
            ToManager::Beat { seats, report } => (RequestId(0), self.beat(now, from, seats, report)),
            ToManager::NodeTrouble { group, what } => (RequestId(0), self.node_trouble(now, from, group, &what)),
            ToManager::Answer(answer) => (RequestId(0), self.answer(now, from, answer)),
            ToManager::Status { request } => {
                self.send(from, FromManager::Status { request, status: self.status() });
                (request, Ok(()))
            }
            ToManager::Explain { request, job } => (request, self.explain(now, from, request, &job)),
            ToManager::RevokeJob { request, job, why } => (request, self.revoke_job(now, from, request, job, &why)),
        };
        if let Err(refusal) = done {
            self.count("requests refused");
            self.log(ManagerEvent::Refused { refusal: refusal.clone() });
            self.send(from, FromManager::Refused { request, refusal });
        }
    }

    /// A connection is gone.
    pub fn handle_lost(&mut self, now: Time, peer: PeerId) {
        if let Some(name) = self.node_of_peer.remove(&peer) {
            self.node_away(now, &name);
        }
        self.job_peer_lost(now, peer);
        for record in self.groups.values_mut() {
            record.forget_peer(peer);
        }
    }

    /// Gives up on whoever is overdue.
    pub fn handle_timeout(&mut self, now: Time) {
        self.wake_at = Time::NEVER;
        self.overdue_nodes(now);
        self.overdue_jobs(now);
        self.overdue_groups(now);
    }

    /// True if a job has been admitted and is not over.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// True if a connection speaks for a node or a job.
    pub fn knows(&self, peer: PeerId) -> bool {
        self.node_of_peer.contains_key(&peer) || self.jobs.values().any(|record| record.peers.contains(&peer))
    }

    pub(super) fn send(&mut self, to: PeerId, message: FromManager) {
        self.duties.push_back(ManagerAction::Send { to, message: Box::new(message) });
    }

    pub(super) fn close(&mut self, peer: PeerId) {
        self.duties.push_back(ManagerAction::Close(peer));
    }

    pub(super) fn log(&mut self, event: ManagerEvent) {
        self.duties.push_back(ManagerAction::Log(event));
    }

    /// Counts something that its driver saw, such as a connection that was closed.
    pub fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    pub(super) fn wake_by(&mut self, time: Time) {
        self.wake_at = self.wake_at.min(time);
    }

    /// The job whose ticket this is.
    pub(super) fn known(&mut self, ticket: JobTicket) -> Result<&mut JobRecord, ControlError> {
        let record = self.jobs.get_mut(&ticket.job).filter(|record| record.key.is(&ticket.key));
        record.ok_or(ControlError::WrongTicket)
    }

    pub(super) fn tell_job(&mut self, job: JobId, message: FromManager) {
        let Some(record) = self.jobs.get_mut(&job) else { return };
        if record.peers.is_empty() {
            if record.missed.len() == MAX_PENDING_NOTIFICATIONS {
                record.missed.pop_front();
            }
            return record.missed.push_back(message);
        }
        for peer in record.peers.clone() {
            self.send(peer, message.clone());
        }
    }
}

/// Notices that are kept for a job that is away.
const MAX_PENDING_NOTIFICATIONS: usize = 64;
const _: () = assert!(MAX_PENDING_NOTIFICATIONS < MAX_GROUPS);
