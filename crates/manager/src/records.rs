//! What the manager stores about nodes, jobs and groups.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use units::Time;

use super::group_spec::GroupDescriptor;
use super::host_pattern::HostPattern;
use super::job_history::JobHistoryLog;
use super::limits::MAX_NAME_BYTES;
use super::message::{Capacity, FromManager, GroupKey, NodeDescriptor, NodeReport, Quota, RequestId};
use super::validate;
use super::{AggregationNodeId, AuthKey, ControlPeer, CredentialId, JobId, JobTicket, PeerId};

/// What one group reserves at one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reservation {
    pub job: JobId,
    pub operations: u32,
    pub bytes: u64,
}

/// Whether a node can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeLiveness {
    /// Registered, but its first heartbeat has not come: it may not have reported all seats that it holds.
    Registering { peer: PeerId, last_received_at: Time },
    /// Usable.
    Alive { peer: PeerId, last_received_at: Time, since: Time },
    /// Its connection broke less than `node_grace` ago.
    Disconnected { since: Time },
    /// Its groups are revoked.
    Lost,
}

impl NodeLiveness {
    pub(super) fn peer(self) -> Option<PeerId> {
        match self {
            Self::Registering { peer, .. } | Self::Alive { peer, .. } => Some(peer),
            Self::Disconnected { .. } | Self::Lost => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct NodeRecord {
    pub number: AggregationNodeId,
    pub descriptor: NodeDescriptor,
    pub patterns: Vec<HostPattern>,
    pub liveness: NodeLiveness,
    pub reservations: BTreeMap<GroupKey, Reservation>,
    /// The sums over `reservations`.
    pub reserved: Capacity,
    pub report: NodeReport,
    pub version: String,
}

impl NodeRecord {
    pub(super) fn reserve(&mut self, group: GroupKey, reservation: Reservation) {
        self.release(group);
        self.reservations.insert(group, reservation);
        self.reserved.seats += 1;
        self.reserved.operations = self.reserved.operations.saturating_add(reservation.operations);
        self.reserved.bytes = self.reserved.bytes.saturating_add(reservation.bytes);
    }

    pub(super) fn release(&mut self, group: GroupKey) {
        if let Some(reservation) = self.reservations.remove(&group) {
            self.reserved.seats -= 1;
            self.reserved.operations = self.reserved.operations.saturating_sub(reservation.operations);
            self.reserved.bytes = self.reserved.bytes.saturating_sub(reservation.bytes);
        }
    }

    pub(super) fn release_all(&mut self) {
        self.reservations.clear();
        self.reserved = Capacity { seats: 0, operations: 0, bytes: 0 };
    }
}

/// Who may use a job, apart from holders of the cluster's secret (P-105).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JobOwner {
    /// Nobody else: it was opened with the secret.
    Cluster,
    /// Holders of this credential.
    Credential(CredentialId),
    /// The first that attaches with its ticket: nodes reported the job after a restart, and they do not know the credential.
    Unknown,
}

impl JobOwner {
    pub(super) fn of(peer: ControlPeer) -> Self {
        peer.credential.map_or(Self::Cluster, Self::Credential)
    }
}

/// Who says that a job has its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JobNumberSource {
    /// The manager chose it, or a node that holds a seat of the job reported it.
    Manager,
    /// Only the job itself, after the manager restarted.
    Job,
}

#[derive(Debug)]
pub(super) struct JobRecord {
    pub history: JobHistoryLog,
    pub key: AuthKey,
    pub owner: JobOwner,
    pub number_source: JobNumberSource,
    pub quota: Quota,
    pub peers: BTreeSet<PeerId>,
    pub groups: BTreeSet<GroupKey>,
    /// When the last of its connections broke.
    pub detached_at: Option<Time>,
    /// Notifications for when it re-attaches; only the newest are kept.
    pub pending_notifications: VecDeque<FromManager>,
}

impl JobRecord {
    pub(super) fn new(ticket: JobTicket, name: &str, quota: Quota) -> Self {
        Self {
            history: JobHistoryLog::new(ticket.job, &truncate_name(name)),
            key: ticket.key,
            owner: JobOwner::Unknown,
            number_source: JobNumberSource::Manager,
            quota,
            peers: BTreeSet::new(),
            groups: BTreeSet::new(),
            detached_at: None,
            pending_notifications: VecDeque::new(),
        }
    }

    pub(super) fn rename(&mut self, name: &str) {
        self.history.name = truncate_name(name);
    }
}

fn truncate_name(name: &str) -> String {
    let mut name = validate::sanitize_text(name);
    name.truncate((0..=MAX_NAME_BYTES).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0));
    name
}

#[derive(Debug)]
pub(super) struct GroupRecord {
    pub job: JobId,
    /// The nodes with a seat, the root first.
    pub seats: Vec<String>,
    /// For each seat, the position of the one above it; empty if the group was recovered from nodes.
    pub parents: Vec<Option<u32>>,
    /// Zero if the group was recovered from nodes.
    pub leaders: u32,
    pub window: u32,
    /// Operations that its nodes have reported.
    pub operations: u64,
    pub opened_at: Time,
    pub state: GroupState,
}

#[derive(Debug)]
pub(super) enum GroupState {
    /// The root has the command to install its seat and the subtree.
    Opening {
        from: Option<PeerId>,
        request: RequestId,
        reply: Box<GroupDescriptor>,
        deadline: Time,
    },
    Open,
    /// Seats are being removed; the closers get their reply when all seats are.
    Closing {
        strategy: RemovalStrategy,
        closers: Vec<(PeerId, RequestId)>,
        retry_at: Time,
    },
}

/// How a removal reaches the seats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RemovalStrategy {
    /// From the root down the tree, as they were installed.
    Tree,
    /// The manager commands each node: the tree may be broken.
    Direct,
}

impl GroupRecord {
    pub(super) fn forget_peer(&mut self, peer: PeerId) {
        match &mut self.state {
            GroupState::Opening { from, .. } if *from == Some(peer) => *from = None,
            GroupState::Closing { closers, .. } => closers.retain(|(closer, _)| *closer != peer),
            _ => {}
        }
    }
}
