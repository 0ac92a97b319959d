//! The progress engine of a process: its network, its failure detector and its connection to the manager.
//!
//! In: packets, events of other ranks, notifications of the manager. Out: results of operations between hosts, and failures of
//! communicators. Any thread that waits may drive it, under the lock of [`crate::shared_engine`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bootstrap::secure_channel::{SECRET_KEY_BYTES, open_bytes, seal_bytes};
use bootstrap::{FailureDetector, OobSendError, OobTarget, RankEvent};
use control::{ManagerClient, ManagerNotification};
use engine::aggregation::ReadySockets;
use engine::network::{LeaderNetwork, SwitchEvent};
use manager::message::GroupKey;
use manager::{GroupDescriptor, GroupRequest};
use serde::{Deserialize, Serialize};
use units::{GroupId, Rank};

use crate::error::Error;
use crate::failure_agreement::{FailureAgreement, FailureMessage, OutgoingMessages, ReportedFailure};
use crate::lost_nodes::{LossReport, LostNodes, describe_loss};
use crate::survivor_agreement::{AgreementMessage, AgreementMessages, AgreementOutcome, SurvivorAgreement};
use crate::tree_renewal::{OwnedTree, PendingRenewal, TreeRenewal, describe_tree, key_of};

/// By then everything that a rank sent before it left has arrived.
const DEPARTED_AFTER: Duration = Duration::from_secs(2);
/// Turns of the network between two looks at failed trees.
const TURNS_PER_RENEWAL: u32 = 1024;
/// Messages that wait for the failure detector at most; then those that it does not take are dropped.
const MAX_UNSENT: usize = 4096;

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
    /// About failures on which the ranks agree.
    Failure(FailureMessage),
    /// About agreements of ranks that are left.
    Agreement(AgreementMessage),
    /// A rank cannot join a communicator, for a reason of its own.
    CannotJoin { context: u32, what: String },
    /// A leader has closed a communicator; to its first rank.
    #[serde(rename = "Freed")]
    Closed { context: u32 },
    /// A rank has completed its last operation; to the coordinator.
    Leaving,
    /// All ranks have; from the coordinator.
    AllLeave,
}

/// Whether the failure detector will report a rank that this one misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LossDetection {
    Expected,
    /// It would have: the process lives, and has only closed the communicator.
    Overdue,
}

/// Whether the tree of a communicator works.
pub(crate) enum TreeCondition {
    /// It does; its description.
    Works(String),
    /// It does not, and why.
    Failed(String),
}

pub(crate) struct ProgressEngine {
    /// This process, in the communicator of all ranks.
    rank: u32,
    pub network: LeaderNetwork,
    pub failure_detector: Option<FailureDetector>,
    /// The connection to the manager, if this process has asked it for a tree.
    pub manager: Option<ManagerClient>,
    /// Failures on which the ranks agree.
    failures: FailureAgreement,
    agreements: SurvivorAgreement,
    /// Messages that the failure detector could not take yet.
    unsent: VecDeque<(OobTarget, Vec<u8>)>,
    /// Ranks that left in order, and when.
    left: Vec<(u32, Instant)>,
    /// Communicators that a rank cannot join, with that rank and its reason.
    join_failures: BTreeMap<GroupId, (u32, String)>,
    /// How many failures of ranks and communicators this process has learned of.
    failure_count: Arc<AtomicU64>,
    /// The first rank of each communicator between hosts, in the communicator of all ranks.
    owners: BTreeMap<GroupId, u32>,
    /// The other ranks of each of them.
    others: BTreeMap<GroupId, Vec<u32>>,
    /// Nodes whose loss the manager has reported.
    pub lost_nodes: LostNodes,
    loss_report: LossReport,
    /// The last revoked tree of each communicator whose tree this process requested, and what happened to it.
    revoked_trees: BTreeMap<GroupId, (GroupKey, String)>,
    /// The trees that this process requested.
    renewal: TreeRenewal,
    /// Encrypts trees that are offered to other leaders. None before this process has taken part in a tree.
    offer_key: Option<[u8; SECRET_KEY_BYTES]>,
    /// Turns so far.
    turns: u32,
    /// The network has sockets that nobody waits on yet.
    pub has_new_sockets: bool,
    /// At the coordinator: the ranks that have completed their last operation.
    leaving: BTreeSet<u32>,
    /// This rank has completed its last operation.
    is_leaving: bool,
    all_leave: bool,
}

impl ProgressEngine {
    pub(crate) fn new(
        rank: u32,
        network: LeaderNetwork,
        failure_detector: FailureDetector,
        loss_report: LossReport,
    ) -> Self {
        Self {
            rank,
            network,
            failure_detector: Some(failure_detector),
            manager: None,
            failures: FailureAgreement::default(),
            agreements: SurvivorAgreement::default(),
            unsent: VecDeque::new(),
            left: Vec::new(),
            join_failures: BTreeMap::new(),
            failure_count: Arc::default(),
            owners: BTreeMap::new(),
            others: BTreeMap::new(),
            lost_nodes: LostNodes::default(),
            loss_report,
            revoked_trees: BTreeMap::new(),
            renewal: TreeRenewal::default(),
            offer_key: None,
            turns: 0,
            has_new_sockets: false,
            leaving: BTreeSet::new(),
            is_leaving: false,
            all_leave: false,
        }
    }

    /// This process, in the communicator of all ranks.
    pub(crate) fn rank(&self) -> u32 {
        self.rank
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
            self.announce_failure(
                context,
                &Error::between_hosts(error, self.rank),
                &[],
                &others,
                LossDetection::Expected,
            );
        }
        while let Some(event) = self.network.next_switch_event() {
            self.handle_switch_event(event);
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS_PER_RENEWAL) {
            self.renew_trees(); // A thread that is never idle does not poll for events.
        }
        was_busy
    }

    #[cold]
    fn handle_switch_event(&mut self, event: SwitchEvent) {
        match event {
            SwitchEvent::Offered { context, term, description } => {
                let plain = self.offer_key.and_then(|key| open_bytes(&key, &description).ok());
                let opened = plain.and_then(|plain| serde_json::from_slice(&plain).ok());
                self.network.answer_offer(context, term, opened);
                self.has_new_sockets = true;
            }
            SwitchEvent::Switched { context, to } => self.renewal.note_switched(Instant::now(), context, to),
            SwitchEvent::Rejected { context, tree } => self.renewal.note_rejected(context, tree),
        }
    }

    /// Asks the manager for another tree where one has failed, and offers it to the leaders.
    fn renew_trees(&mut self) {
        let (network, is_leaving) = (&self.network, self.is_leaving);
        let needs_tree = |context| !is_leaving && network.needs_tree(context);
        let Some((context, opened)) =
            self.renewal.poll(Instant::now(), &mut self.manager, &self.lost_nodes, needs_tree)
        else {
            return;
        };
        let description = serde_json::to_vec(&opened).ok();
        let sealed = description.zip(self.offer_key).and_then(|(plain, key)| seal_bytes(&key, &plain).ok());
        let is_offered = sealed.is_some_and(|sealed| self.network.offer_tree(context, opened.clone(), sealed));
        self.renewal.note_offer(context, &opened, is_offered);
        self.has_new_sockets = true;
    }

    /// Sets the key for offers of trees.
    pub(crate) fn set_offer_key(&mut self, key: [u8; SECRET_KEY_BYTES]) {
        self.offer_key = Some(key);
    }

    /// The request to the manager in progress, which has the connection to it.
    pub(crate) fn take_pending_renewal(&mut self) -> Option<PendingRenewal> {
        self.renewal.take_pending()
    }

    /// A tree that this process requested is in use, and is replaced if it fails.
    pub(crate) fn confirm_tree(&mut self, context: GroupId) {
        self.renewal.confirm(context);
    }

    /// Opens a communicator of these ranks between hosts. Its first rank owns the tree, if it gets one.
    pub(crate) fn open_communicator(&mut self, context: GroupId, ranks: &[u32], leaders: Vec<Rank>, host: Rank) {
        self.owners.insert(context, leaders[0].0);
        self.others.insert(context, ranks.iter().copied().filter(|rank| *rank != self.rank).collect());
        self.network.enter(context, leaders, host);
    }

    pub(crate) fn close_communicator(&mut self, context: GroupId) {
        self.network.leave(context);
        self.failures.close(context);
        self.agreements.close(context);
        self.others.remove(&context);
        self.join_failures.remove(&context);
        self.revoked_trees.remove(&context);
    }

    /// Registers a tree that this process requested.
    pub(crate) fn own_tree(&mut self, context: GroupId, request: GroupRequest, opened: &GroupDescriptor) {
        self.renewal.trees.insert(context, OwnedTree::new(Instant::now(), request, opened));
    }

    /// Returns a tree that this process requested to the manager.
    pub(crate) fn release_tree(&mut self, context: GroupId) {
        let Some(tree) = self.renewal.trees.remove(&context) else { return };
        match &mut self.manager {
            // If that fails, the manager closes it with the job.
            Some(manager) => drop(manager.close_group(tree.key)),
            None => self.renewal.return_later(tree.key),
        }
    }

    fn send(&mut self, to: OobTarget, message: &RankMessage) {
        if let Ok(bytes) = serde_json::to_vec(message) {
            self.unsent.push_back((to, bytes));
            self.send_unsent();
        }
    }

    /// Sends messages in order, as far as the failure detector takes them: not while the job has no coordinator.
    fn send_unsent(&mut self) {
        let Some(detector) = &mut self.failure_detector else { return self.unsent.clear() };
        while let Some((to, bytes)) = self.unsent.front() {
            if detector.send(*to, bytes) == Err(OobSendError::WouldBlock) && self.unsent.len() < MAX_UNSENT {
                return;
            }
            self.unsent.pop_front(); // A rank that cannot be reached has left or is lost.
        }
    }

    fn send_failures(&mut self, messages: OutgoingMessages) {
        messages.into_iter().for_each(|(to, message)| self.send(to, &RankMessage::Failure(message)));
    }

    /// Handles notifications of the manager and events of other ranks.
    pub(crate) fn poll_events(&mut self) {
        self.poll_manager();
        self.renew_trees();
        self.send_unsent();
        while let Some(event) = self.failure_detector.as_mut().and_then(FailureDetector::turn) {
            match event {
                RankEvent::Lost { ranks } => {
                    self.failures.ranks_lost(ranks.clone());
                    self.lose(&ranks);
                }
                RankEvent::CutOff { ranks } => {
                    self.failures.cut_off(ranks.clone());
                    self.lose(&ranks);
                }
                RankEvent::NewCoordinator { .. } => {
                    let messages = self.failures.coordinator_changed();
                    self.send_failures(messages);
                    let messages = self.agreements.coordinator_changed();
                    self.send_agreements(messages);
                    if self.is_leaving {
                        self.send(OobTarget::Coordinator, &RankMessage::Leaving);
                    }
                }
                RankEvent::Left { rank } => {
                    self.left.push((rank, Instant::now()));
                    self.network.rank_left(Rank(rank));
                    self.decide_agreements();
                }
                RankEvent::Message { from, bytes } => {
                    if let Ok(message) = serde_json::from_slice(&bytes) {
                        self.handle_message(from, message);
                    }
                }
            }
        }
        // P-99: a rank that does not answer may be one of those about which a verdict follows.
        if !self.failure_detector.as_ref().is_some_and(FailureDetector::is_deciding) {
            let overdue = self.failures.tick(Instant::now());
            self.send_failures(overdue);
        }
    }

    fn lose(&mut self, ranks: &[u32]) {
        self.count_failure();
        ranks.iter().for_each(|rank| self.network.rank_lost(Rank(*rank)));
        self.decide_agreements();
    }

    /// Votes in an agreement of the ranks of a communicator that are left; its number.
    pub(crate) fn vote(&mut self, communicator: (GroupId, &[u32]), bits: u64, next_context: u32) -> u64 {
        let (number, messages) = self.agreements.vote(communicator, self.rank, bits, next_context);
        self.send_agreements(messages);
        number
    }

    /// The outcome of an agreement, once it is known; an error if this process is cut off.
    pub(crate) fn agreement_outcome(&self, context: GroupId, number: u64) -> Option<Result<AgreementOutcome, Error>> {
        let outcome = self.agreements.outcome(context, number).cloned().map(Ok);
        outcome.or_else(|| self.failures.cut_off_error().map(Err))
    }

    /// Ranks that are lost, have left, or have completed their last operation: they will not vote.
    fn gone_ranks(&self) -> BTreeSet<u32> {
        let gone = self.failures.lost_ranks().chain(self.left.iter().map(|(rank, _)| *rank));
        gone.chain(self.leaving.iter().copied()).collect()
    }

    fn decide_agreements(&mut self) {
        let gone = self.gone_ranks();
        let messages = self.agreements.decide(|rank| gone.contains(&rank));
        self.send_agreements(messages);
    }

    fn send_agreements(&mut self, messages: AgreementMessages) {
        messages.into_iter().for_each(|(to, message)| self.send(to, &RankMessage::Agreement(message)));
    }

    fn handle_message(&mut self, from: u32, message: RankMessage) {
        match message {
            RankMessage::Mismatch { context, what } => {
                self.failures.add(GroupId(context), Error::Mismatch { what });
                self.count_failure();
            }
            RankMessage::Failure(message) => {
                let is_news = matches!(message, FailureMessage::Announce(_));
                let answers = self.failures.handle(Instant::now(), from, message);
                if is_news {
                    self.count_failure();
                }
                self.send_failures(answers);
            }
            RankMessage::Agreement(message) => {
                let gone = self.gone_ranks();
                let messages = self.agreements.handle(message, |rank| gone.contains(&rank));
                self.send_agreements(messages);
            }
            RankMessage::CannotJoin { context, what } => {
                // For a rank that needs nothing of that one to form the communicator, and has done so.
                let error = Error::Revoked { why: format!("rank {from} cannot join: {what}") };
                self.failures.add(GroupId(context), error);
                self.join_failures.entry(GroupId(context)).or_insert((from, what));
                self.count_failure();
            }
            RankMessage::Closed { context } => {
                let context = GroupId(context);
                let Some(tree) = self.renewal.trees.get_mut(&context) else { return };
                tree.users = tree.users.saturating_sub(1);
                if tree.users == 0 {
                    self.release_tree(context);
                }
            }
            RankMessage::Leaving => {
                self.leaving.insert(from);
                self.decide_agreements();
            }
            RankMessage::AllLeave => self.all_leave = true,
        }
    }

    fn poll_manager(&mut self) {
        while let Some(notification) = self.manager.as_mut().and_then(ManagerClient::poll_notification) {
            match notification {
                ManagerNotification::Revoked { group, node, why } => {
                    self.note_loss(group, node.as_deref(), &why);
                    self.network.tree_lost(group);
                    if let Some(node) = node {
                        self.renewal.note_lost_node(group);
                        self.lost_nodes.add(Instant::now(), node);
                    }
                }
                // Each of its trees is revoked on its own, and the hosts continue without.
                ManagerNotification::JobRevoked { .. } => {}
            }
        }
    }

    /// Keeps what happened to a tree, and tells the user: the job continues, and is slower.
    fn note_loss(&mut self, group: GroupKey, node: Option<&str>, why: &str) {
        let owned = self.renewal.trees.iter().find(|(_, tree)| tree.key == group).map(|(context, _)| *context);
        let opened = owned.and_then(|context| self.network.tree(context)).map(|(opened, _)| opened);
        let address = |name: &str| opened?.seats.iter().find(|seat| seat.name == name)?.addresses.first().copied();
        let node = node.map(|name| (name, address(name)));
        if let Some(context) = owned {
            self.revoked_trees.insert(context, (group, describe_loss(node, why)));
        }
        if self.rank != 0 {
            return;
        }
        if let Some(line) = self.loss_report.line(Instant::now(), node, why) {
            let _ = std::io::stderr().write_all(line.as_bytes()); // In one write. Without stderr there is nobody to tell.
        }
    }

    /// The tree of a communicator, if this process is a leader of it.
    pub(crate) fn tree_condition(&self, context: GroupId) -> Option<TreeCondition> {
        let (opened, is_healthy) = self.network.tree(context)?;
        if is_healthy {
            return Some(TreeCondition::Works(describe_tree(opened)));
        }
        let revoked = self.revoked_trees.get(&context).filter(|(key, _)| *key == key_of(opened));
        let why = revoked
            .map_or_else(|| format!("the tree of group {} has failed", opened.group.0), |(_, why)| why.clone());
        Some(TreeCondition::Failed(why))
    }

    /// Reports that this process has completed its last operation.
    pub(crate) fn announce_leaving(&mut self) {
        self.is_leaving = true;
        self.send(OobTarget::Coordinator, &RankMessage::Leaving);
    }

    /// True if no other rank needs this process. The coordinator collects who is leaving, and tells the others when all are.
    pub(crate) fn may_leave(&mut self, size: u32) -> bool {
        if !self.all_leave && !self.leaving.is_empty() {
            self.all_leave = self.gone_ranks().len() >= size as usize;
            if self.all_leave {
                self.send(OobTarget::All, &RankMessage::AllLeave);
            }
        }
        self.all_leave
    }

    /// True if other ranks need this one as their coordinator.
    pub(crate) fn is_coordinator_needed(&self) -> bool {
        self.failure_detector.as_ref().is_some_and(FailureDetector::is_needed)
    }

    /// When [`Self::poll_events`] has something to do at the latest, if anything is expected.
    pub(crate) fn next_event_timeout(&self) -> Option<Duration> {
        self.failure_detector.as_ref().and_then(FailureDetector::next_timeout)
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
        self.failures.is_lost(rank)
    }

    /// Why a communicator of these ranks is unusable, if it is.
    pub(crate) fn failure_of(&self, context: GroupId, ranks: &[u32]) -> Option<Error> {
        self.failures.failure_of(context, ranks)
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
        Some(Error::RanksLost { ranks: vec![*rank] })
    }

    /// Tells other ranks that a communicator is unusable. After a mismatch: the ranks of this host, since other hosts find out by
    /// themselves. After any other failure: all ranks, through the coordinator, so that all return the same error.
    pub(crate) fn announce_failure(
        &mut self,
        context: GroupId,
        error: &Error,
        same_host: &[u32],
        all_others: &[u32],
        detection: LossDetection,
    ) {
        let mut ranks = all_others.to_vec();
        ranks.push(self.rank);
        if self.failures.failure_of(context, &ranks).is_some() {
            return;
        }
        let failure = match error {
            Error::Mismatch { what } => {
                self.failures.add(context, error.clone());
                self.count_failure();
                let message = RankMessage::Mismatch { context: context.0, what: what.clone() };
                return same_host.iter().for_each(|rank| self.send(OobTarget::Rank(*rank), &message));
            }
            Error::Unreachable { from, to, silence } => ReportedFailure::Unreachable {
                from: *from,
                to: *to,
                silent_ms: silence.as_millis().try_into().unwrap_or(u32::MAX),
            },
            Error::Revoked { why } => ReportedFailure::Revoked { why: why.clone() },
            Error::Internal { what } => ReportedFailure::Internal { what: what.clone() },
            Error::RanksLost { ranks } => match self.left.iter().find(|(rank, _)| ranks.contains(rank)) {
                Some((rank, _)) => ReportedFailure::Departed { rank: *rank },
                None => match (detection, ranks.first()) {
                    (LossDetection::Overdue, Some(rank)) => ReportedFailure::Departed { rank: *rank },
                    _ => return, // The failure detector tells all.
                },
            },
            Error::CutOff { .. } | Error::InvalidArgument { .. } => return,
        };
        let messages = self.failures.report(context, failure, &ranks);
        self.send_failures(messages);
    }
}
