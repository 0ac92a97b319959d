//! The progress engine of a process: its network, its failure detector and its connection to the manager.
//!
//! In: packets, events of other ranks, notifications of the manager. Out: results of operations between hosts, and failures of
//! communicators. Any thread that waits may drive it, under the lock of [`crate::shared_engine`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bootstrap::{FailureDetector, OobTarget, RankEvent};
use control::{ManagerClient, ManagerNotification};
use engine::aggregation::ReadySockets;
use engine::network::LeaderNetwork;
use manager::message::GroupKey;
use serde::{Deserialize, Serialize};
use units::{GroupId, Rank};

use crate::error::Error;

/// By then everything that a rank sent before it left has arrived.
const DEPARTED_AFTER: Duration = Duration::from_secs(2);

/// Messages between ranks beside operations. Serialized names are part of the protocol.
#[derive(Serialize, Deserialize)]
enum RankMessage {
    /// The ranks of this host called different operations; to ranks of the same host.
    #[serde(rename = "Verdict")]
    Mismatch {
        context: u32,
        #[serde(rename = "disagree")]
        what: String,
    },
    /// A communicator is unusable because of an internal error, or because a live rank is unreachable.
    Failed { context: u32, unreachable: Option<u32>, what: String },
    /// A rank cannot join a communicator, for a reason of its own.
    CannotJoin { context: u32, what: String },
    /// A leader has closed a communicator; to its first rank.
    #[serde(rename = "Freed")]
    Closed { context: u32 },
    /// A rank has completed its last operation; to rank 0.
    Leaving,
    /// All ranks have; from rank 0.
    AllLeave,
}

pub(crate) struct ProgressEngine {
    /// This process, in the communicator of all ranks.
    rank: u32,
    pub network: LeaderNetwork,
    pub failure_detector: Option<FailureDetector>,
    /// The connection to the manager, if this process has asked it for a tree.
    pub manager: Option<ManagerClient>,
    /// Ranks that were lost, the first one first.
    lost: Vec<u32>,
    /// Ranks that left in order, and when.
    left: Vec<(u32, Instant)>,
    failures: BTreeMap<GroupId, Error>,
    /// Communicators that a rank cannot join, with that rank and its reason.
    join_failures: BTreeMap<GroupId, (u32, String)>,
    /// How many failures of ranks and communicators this process has learned of.
    failure_count: Arc<AtomicU64>,
    /// The first rank of each communicator between hosts, in the communicator of all ranks.
    owners: BTreeMap<GroupId, u32>,
    /// The other ranks of each of them.
    others: BTreeMap<GroupId, Vec<u32>>,
    /// The trees that this process requested, and how many leaders still use each.
    trees: BTreeMap<GroupId, (GroupKey, usize)>,
    /// At rank 0: the ranks that have completed their last operation.
    leaving: BTreeSet<u32>,
    all_leave: bool,
}

impl ProgressEngine {
    pub(crate) fn new(rank: u32, network: LeaderNetwork, failure_detector: FailureDetector) -> Self {
        Self {
            rank,
            network,
            failure_detector: Some(failure_detector),
            manager: None,
            lost: Vec::new(),
            left: Vec::new(),
            failures: BTreeMap::new(),
            join_failures: BTreeMap::new(),
            failure_count: Arc::default(),
            owners: BTreeMap::new(),
            others: BTreeMap::new(),
            trees: BTreeMap::new(),
            leaving: BTreeSet::new(),
            all_leave: false,
        }
    }

    /// Makes all network progress that is possible now; true if there was any.
    pub(crate) fn progress(&mut self) -> bool {
        self.progress_at(ReadySockets::Any)
    }

    /// The same, for sockets that are known to be ready.
    pub(crate) fn progress_at(&mut self, ready: ReadySockets<'_>) -> bool {
        let was_busy = self.network.turn_on_sockets(ready);
        while let Some(context) = self.network.next_closed_group() {
            if let Some(owner) = self.owners.remove(&context) {
                self.send(OobTarget::Rank(owner), &RankMessage::Closed { context: context.0 });
            }
        }
        while let Some((context, error)) = self.network.next_failed_group() {
            // Other ranks may wait in it, although no operation is in flight here.
            let others = self.others.get(&context).cloned().unwrap_or_default();
            self.announce_failure(context, &error.into(), &[], &others);
        }
        was_busy
    }

    /// Opens a communicator of these ranks between hosts. Its first rank owns the tree, if it gets one.
    pub(crate) fn open_communicator(&mut self, context: GroupId, ranks: &[u32], leaders: Vec<Rank>, host: Rank) {
        self.owners.insert(context, leaders[0].0);
        self.others.insert(context, ranks.iter().copied().filter(|rank| *rank != self.rank).collect());
        self.network.enter(context, leaders, host);
    }

    pub(crate) fn close_communicator(&mut self, context: GroupId) {
        self.network.leave(context);
        self.failures.remove(&context);
        self.others.remove(&context);
        self.join_failures.remove(&context);
    }

    /// Registers a tree that this process requested, used by so many leaders.
    pub(crate) fn own_tree(&mut self, context: GroupId, key: GroupKey, leaders: usize) {
        self.trees.insert(context, (key, leaders));
    }

    /// Returns a tree that this process requested to the manager.
    pub(crate) fn release_tree(&mut self, context: GroupId) {
        if let (Some((key, _)), Some(manager)) = (self.trees.remove(&context), &mut self.manager) {
            let _ = manager.close_group(key); // If that fails, the manager closes it with the job.
        }
    }

    fn send(&mut self, to: OobTarget, message: &RankMessage) {
        if let (Some(detector), Ok(bytes)) = (&mut self.failure_detector, serde_json::to_vec(message)) {
            let _ = detector.send(to, &bytes); // A rank that cannot be reached has left or is lost.
        }
    }

    /// Handles notifications of the manager and events of other ranks.
    pub(crate) fn poll_events(&mut self) {
        self.poll_manager();
        while let Some(event) = self.failure_detector.as_mut().and_then(FailureDetector::turn) {
            match event {
                RankEvent::Lost { rank } => {
                    self.lost.push(rank);
                    self.count_failure();
                    self.network.rank_lost(Rank(rank));
                }
                RankEvent::Left { rank } => {
                    self.left.push((rank, Instant::now()));
                    self.network.rank_left(Rank(rank));
                }
                RankEvent::Message { from, bytes } => {
                    if let Ok(message) = serde_json::from_slice(&bytes) {
                        self.handle_message(from, message);
                    }
                }
            }
        }
    }

    fn handle_message(&mut self, from: u32, message: RankMessage) {
        match message {
            RankMessage::Mismatch { context, what } => {
                self.failures.entry(GroupId(context)).or_insert(Error::Mismatch { what });
                self.count_failure();
            }
            RankMessage::Failed { context, unreachable, what } => {
                // The rank that another one cannot reach may be this one.
                let lost = unreachable.map(|rank| if rank == self.rank { from } else { rank });
                let error = lost.map_or(Error::Internal { what }, |rank| Error::RankLost { rank });
                self.failures.entry(GroupId(context)).or_insert(error);
                self.count_failure();
            }
            RankMessage::CannotJoin { context, what } => {
                let error = Error::Internal { what: format!("rank {from} cannot join: {what}") };
                self.failures.entry(GroupId(context)).or_insert(error);
                self.join_failures.entry(GroupId(context)).or_insert((from, what));
                self.count_failure();
            }
            RankMessage::Closed { context } => {
                let context = GroupId(context);
                let Some((_, users)) = self.trees.get_mut(&context) else { return };
                *users = users.saturating_sub(1);
                if *users == 0 {
                    self.release_tree(context);
                }
            }
            RankMessage::Leaving => {
                self.leaving.insert(from);
            }
            RankMessage::AllLeave => self.all_leave = true,
        }
    }

    fn poll_manager(&mut self) {
        while let Some(notification) = self.manager.as_mut().and_then(ManagerClient::poll_notification) {
            match notification {
                ManagerNotification::Revoked { group, .. } => self.network.tree_lost(group),
                // Each of its trees is revoked on its own, and the hosts continue without.
                ManagerNotification::JobRevoked { .. } => {}
            }
        }
    }

    /// Reports that this process has completed its last operation.
    pub(crate) fn announce_leaving(&mut self, rank: u32) {
        if rank == 0 {
            self.leaving.insert(0);
        } else {
            self.send(OobTarget::Rank(0), &RankMessage::Leaving);
        }
    }

    /// True if no other rank needs this process. Rank 0 collects who is leaving, and tells the others when all are.
    pub(crate) fn may_leave(&mut self, rank: u32, size: u32) -> bool {
        if rank == 0 && !self.all_leave {
            let lost = self.lost.iter().filter(|rank| !self.leaving.contains(rank)).count();
            self.all_leave = self.leaving.len() + lost >= size as usize;
            if self.all_leave {
                self.send(OobTarget::All, &RankMessage::AllLeave);
            }
        }
        self.all_leave
    }

    /// Tells the other ranks of a communicator that this one cannot join it: they wait for it.
    pub(crate) fn announce_join_failure(&mut self, context: GroupId, ranks: &[u32], what: &str) {
        let message = RankMessage::CannotJoin { context: context.0, what: what.to_owned() };
        let me = self.rank;
        ranks.iter().filter(|rank| **rank != me).for_each(|rank| self.send(OobTarget::Rank(*rank), &message));
    }

    /// The rank that cannot join a communicator, and its reason.
    pub(crate) fn join_failure(&self, context: GroupId) -> Option<&(u32, String)> {
        self.join_failures.get(&context)
    }

    /// Grows with every failure that this process learns of.
    pub(crate) fn failure_count(&self) -> &Arc<AtomicU64> {
        &self.failure_count
    }

    fn count_failure(&self) {
        self.failure_count.fetch_add(1, Ordering::Release);
    }

    /// True if the failure detector has reported this rank as lost: its process has ended, or nothing comes from it any more.
    pub(crate) fn is_lost(&self, rank: u32) -> bool {
        self.lost.contains(&rank)
    }

    /// Why a communicator of these ranks is unusable, if it is.
    pub(crate) fn failure_of(&self, context: GroupId, ranks: &[u32]) -> Option<Error> {
        let lost = self.lost.iter().find(|lost| ranks.contains(lost));
        let lost = lost.map(|rank| Error::RankLost { rank: *rank });
        lost.or_else(|| self.failures.get(&context).cloned())
    }

    /// An error if one of these ranks has left while this process still waits: what was awaited since `waiting_since` and has not
    /// arrived will not arrive.
    pub(crate) fn departed_rank(&self, ranks: &[u32], waiting_since: &mut Option<Instant>) -> Option<Error> {
        if self.left.is_empty() {
            return None;
        }
        let since = *waiting_since.get_or_insert_with(Instant::now);
        let (rank, _) = self.left.iter().find(|(rank, left)| {
            ranks.contains(rank) && left.elapsed() > DEPARTED_AFTER && since.elapsed() > DEPARTED_AFTER
        })?;
        Some(Error::RankLost { rank: *rank })
    }

    /// Tells other ranks that a communicator is unusable. After a mismatch: the ranks of this host, since other hosts find out by
    /// themselves. After any other failure: all ranks, except for the loss of a rank, which the failure detector reports to all.
    pub(crate) fn announce_failure(
        &mut self,
        context: GroupId,
        error: &Error,
        same_host: &[u32],
        all_others: &[u32],
    ) {
        if self.failures.insert(context, error.clone()).is_some() {
            return;
        }
        self.count_failure();
        let failed = |unreachable| RankMessage::Failed { context: context.0, unreachable, what: error.to_string() };
        let (message, to) = match error {
            Error::Mismatch { what } => (RankMessage::Mismatch { context: context.0, what: what.clone() }, same_host),
            Error::RankLost { rank } if !self.lost.contains(rank) => (failed(Some(*rank)), all_others),
            Error::Internal { .. } => (failed(None), all_others),
            Error::RankLost { .. } | Error::InvalidArgument { .. } => return,
        };
        for rank in to {
            self.send(OobTarget::Rank(*rank), &message);
        }
    }
}
