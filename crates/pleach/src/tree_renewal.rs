//! Gets another tree for a communicator whose tree has failed (P-113).
//!
//! The owner of a tree asks the manager again, ever less often, in a thread of its own: nobody waits for the answer. The leaders then
//! agree from which operation on they use the new tree (`engine::network`).

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use bootstrap::start_quiet_thread;
use control::ManagerClient;
use manager::message::GroupKey;
use manager::{DistributionSpec, FoldTree, GroupDescriptor, GroupRequest};
use protocol::aggregation::BASE_SEGMENT_BYTES;
use units::GroupId;

use crate::lost_nodes::LostNodes;

/// The manager is asked again after this time, and then after twice as long each time.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// A tree that has worked for so long did not fail because of what it is.
const PROVEN_AFTER: Duration = Duration::from_secs(60);
/// So many requests do without the nodes that were lost; then the manager decides whether they are well.
const CAUTIOUS_ATTEMPTS: u32 = 2;
/// How often trees are looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// A tree that this process requested.
pub(crate) struct OwnedTree {
    pub(crate) key: GroupKey,
    pub(crate) request: GroupRequest,
    pub(crate) fold: FoldTree,
    /// How many leaders still use it.
    pub(crate) users: usize,
    /// Since when the group has it.
    since: Instant,
    /// It has failed.
    is_failed: bool,
    /// Requests since the last tree that worked for long.
    attempts: u32,
    /// When the manager is asked next; none while the tree works or another is offered.
    next_attempt: Option<Instant>,
    offered: Option<OfferedTree>,
    /// The manager has revoked it because it lost a node. It also revokes trees in which a node finds a neighbour silent.
    has_lost_node: bool,
    /// The communicator uses it: the tests of its formation are over.
    is_confirmed: bool,
}

/// Another tree, about which the leaders have not decided.
struct OfferedTree {
    key: GroupKey,
    has_lost_node: bool,
}

impl OwnedTree {
    pub(crate) fn new(now: Instant, request: GroupRequest, opened: &GroupDescriptor) -> Self {
        Self {
            key: key_of(opened),
            users: request.leaders.len(),
            request,
            fold: opened.fold.clone(),
            since: now,
            is_failed: false,
            attempts: 0,
            next_attempt: None,
            offered: None,
            has_lost_node: false,
            is_confirmed: false,
        }
    }

    /// True if the manager should be asked now for another tree in place of one that has failed.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.offered.is_some() || !self.is_confirmed {
            return false;
        }
        if !std::mem::replace(&mut self.is_failed, true) && now.duration_since(self.since) > PROVEN_AFTER {
            self.attempts = 0;
        }
        let delay = FIRST_DELAY.saturating_mul(1 << self.attempts.min(8)).min(MAX_DELAY);
        *self.next_attempt.get_or_insert(now + delay) <= now
    }

    /// What to ask for next.
    fn next_request(&mut self, now: Instant, lost_nodes: &LostNodes) -> GroupRequest {
        let avoid = if self.attempts < CAUTIOUS_ATTEMPTS { lost_nodes.to_avoid(now) } else { Vec::new() };
        if !self.has_lost_node {
            // Multicasts may not have arrived. Never again by multicast, because operations that wait for the next tree were prepared for
            // the last one.
            self.request.distribution = DistributionSpec::Edges;
            // Or long packets have not: the MTU of a path may have become smaller, and the next tree would fail like the last one.
            self.request.segment_bytes = self.request.segment_bytes.min(BASE_SEGMENT_BYTES as u32);
        }
        self.attempts += 1;
        self.next_attempt = None;
        GroupRequest { avoid, ..self.request.clone() }
    }
}

pub(crate) fn key_of(opened: &GroupDescriptor) -> GroupKey {
    GroupKey { group: opened.group, epoch: opened.epoch }
}

/// A tree, for people.
pub(crate) fn describe_tree(opened: &GroupDescriptor) -> String {
    format!("group {} on {} nodes", opened.group.0, opened.seats.len())
}

/// What a request to the manager brought.
struct RenewalReply {
    client: ManagerClient,
    context: Option<GroupId>,
    opened: Option<GroupDescriptor>,
}

/// A request to the manager in progress.
pub(crate) struct PendingRenewal(Receiver<RenewalReply>);

impl PendingRenewal {
    /// Waits for the manager's answer, and returns the connection.
    pub(crate) fn wait(self, timeout: Duration) -> Option<ManagerClient> {
        self.0.recv_timeout(timeout).ok().map(|reply| reply.client)
    }
}

/// The trees that this process requested, and the request in progress.
#[derive(Default)]
pub(crate) struct TreeRenewal {
    pub(crate) trees: BTreeMap<GroupId, OwnedTree>,
    /// Trees that nobody uses any more, and the manager does not know so.
    unused: Vec<GroupKey>,
    pending: Option<Receiver<RenewalReply>>,
    next_look: Option<Instant>,
}

impl TreeRenewal {
    /// The manager has revoked a tree because it lost one of its nodes.
    pub(crate) fn note_lost_node(&mut self, key: GroupKey) {
        for tree in self.trees.values_mut() {
            tree.has_lost_node |= tree.key == key;
            if let Some(offered) = tree.offered.as_mut().filter(|offered| offered.key == key) {
                offered.has_lost_node = true;
            }
        }
    }

    /// Nobody uses a tree any more, and the manager must learn of it.
    pub(crate) fn return_later(&mut self, key: GroupKey) {
        self.unused.push(key);
    }

    /// Looks for a reply of the manager, and asks it where a tree has failed. A tree to offer to the leaders of a communicator.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        manager: &mut Option<ManagerClient>,
        lost_nodes: &LostNodes,
        needs_tree: impl Fn(GroupId) -> bool,
    ) -> Option<(GroupId, GroupDescriptor)> {
        let has_nothing = self.trees.is_empty() && self.unused.is_empty() && self.pending.is_none();
        if has_nothing || self.next_look.is_some_and(|at| at > now) {
            return None;
        }
        self.next_look = Some(now + INTERVAL);
        if let Some(receiver) = &self.pending {
            let reply = match receiver.try_recv() {
                Ok(reply) => reply,
                Err(mpsc::TryRecvError::Empty) => return None,
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.pending = None;
                    return None;
                }
            };
            self.pending = None;
            manager.get_or_insert(reply.client);
            let (context, opened) = (reply.context?, reply.opened?);
            if self.trees.contains_key(&context) {
                return Some((context, opened));
            }
            self.unused.push(key_of(&opened)); // The communicator was closed meanwhile.
            return None;
        }
        if manager.is_none() {
            return None; // Someone else is asking.
        }
        let mut failed = self.trees.iter_mut().filter(|(context, _)| needs_tree(**context));
        let due = failed.find_map(|(context, tree)| tree.is_due(now).then_some((*context, tree)));
        let due =
            due.map(|(context, tree)| (context, tree.next_request(now, lost_nodes), tree.fold.clone(), tree.key));
        if due.is_some() || !self.unused.is_empty() {
            self.ask(manager, due);
        }
        None
    }

    fn ask(&mut self, manager: &mut Option<ManagerClient>, due: Option<(GroupId, GroupRequest, FoldTree, GroupKey)>) {
        let (sender, receiver) = mpsc::channel();
        let (giver, taker) = mpsc::channel::<(ManagerClient, Vec<GroupKey>)>();
        let failed = due.as_ref().map(|(_, _, _, failed)| *failed);
        let started = start_quiet_thread("pleach-tree", move || {
            let Ok((mut client, unused)) = taker.recv() else { return };
            for key in unused {
                let _ = client.close_group(key); // The manager may have revoked it.
            }
            let context = due.as_ref().map(|(context, ..)| *context);
            let opened = due.and_then(|(_, request, fold, _)| {
                let opened = client.open_group(request).ok()?;
                if opened.fold != fold {
                    // P-111: other bits would come out of it.
                    let _ = client.close_group(key_of(&opened));
                    return None;
                }
                Some(opened)
            });
            let _ = sender.send(RenewalReply { client, context, opened }); // The process may be about to end.
        });
        if started.is_err() {
            return; // The system has no threads left now.
        }
        let Some(client) = manager.take() else { return };
        let mut unused = std::mem::take(&mut self.unused);
        unused.extend(failed); // Its place at other nodes is needed.
        if giver.send((client, unused)).is_ok() {
            self.pending = Some(receiver);
        }
    }

    /// The leaders of a communicator were offered another tree, or could not be.
    pub(crate) fn note_offer(&mut self, context: GroupId, opened: &GroupDescriptor, is_offered: bool) {
        if !is_offered {
            self.unused.push(key_of(opened));
        } else if let Some(tree) = self.trees.get_mut(&context) {
            tree.offered = Some(OfferedTree { key: key_of(opened), has_lost_node: false });
        }
    }

    /// The leaders use the tree that they were offered.
    pub(crate) fn note_switched(&mut self, now: Instant, context: GroupId, to: GroupKey) {
        if let Some(tree) = self.trees.get_mut(&context) {
            (tree.key, tree.since, tree.is_failed) = (to, now, false);
            tree.has_lost_node = tree.offered.take().is_some_and(|offered| offered.has_lost_node);
        }
    }

    /// The leaders do not use the tree that they were offered.
    pub(crate) fn note_rejected(&mut self, context: GroupId, offered: GroupKey) {
        self.unused.push(offered);
        if let Some(tree) = self.trees.get_mut(&context) {
            tree.offered = None;
        }
    }

    /// The communicator uses its tree.
    pub(crate) fn confirm(&mut self, context: GroupId) {
        if let Some(tree) = self.trees.get_mut(&context) {
            tree.is_confirmed = true;
        }
    }

    pub(crate) fn take_pending(&mut self) -> Option<PendingRenewal> {
        self.pending.take().map(PendingRenewal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager::AuthKey;
    use std::net::SocketAddr;
    use units::Epoch;

    fn owned(now: Instant) -> OwnedTree {
        let fold = FoldTree::Fold(vec![FoldTree::Leader(0), FoldTree::Leader(1)]);
        let to = SocketAddr::from(([239, 192, 0, 1], 4791));
        let distribution = DistributionSpec::Multicast { to };
        let request =
            GroupRequest { leaders: Vec::new(), window: 4, segment_bytes: 64, distribution, avoid: Vec::new() };
        let opened = GroupDescriptor {
            group: GroupId(1),
            epoch: Epoch(1),
            key: AuthKey([0; 16]),
            window: 4,
            segment_bytes: 64,
            distribution,
            seats: Vec::new(),
            leaders: Vec::new(),
            fold,
        };
        OwnedTree { is_confirmed: true, ..OwnedTree::new(now, request, &opened) }
    }

    #[test]
    fn the_manager_is_asked_ever_less_often() {
        let start = Instant::now();
        let (mut tree, mut now, mut asked) = (owned(start), start, Vec::new());
        while asked.len() < 9 {
            if tree.is_due(now) {
                tree.next_request(now, &LostNodes::default());
                asked.push(now.duration_since(start).as_secs());
            }
            now += Duration::from_millis(500);
        }
        let delays: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(asked[0], 1);
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1] + 1), "{delays:?}");
        assert!(delays.iter().all(|delay| *delay <= 61) && delays[7] >= 60, "{delays:?}");
    }

    #[test]
    fn a_tree_that_worked_for_long_is_replaced_soon() {
        let now = Instant::now();
        let mut tree = owned(now);
        tree.attempts = 6;
        let later = now + PROVEN_AFTER + Duration::from_secs(1);
        assert!(!tree.is_due(later));
        assert!(tree.is_due(later + FIRST_DELAY), "as if it were the first time");
    }

    #[test]
    fn lost_nodes_are_avoided_at_first_and_multicast_only_if_a_node_was_the_cause() {
        let now = Instant::now();
        let (mut tree, mut lost_nodes) = (owned(now), LostNodes::default());
        lost_nodes.add(now, "leaf1".to_owned());
        let multicast = tree.request.distribution;
        tree.has_lost_node = true;
        let first = tree.next_request(now, &lost_nodes);
        assert_eq!((first.distribution, first.avoid.len()), (multicast, 1));
        tree.has_lost_node = false;
        assert_eq!(tree.next_request(now, &lost_nodes).distribution, DistributionSpec::Edges);
        tree.has_lost_node = true;
        let third = tree.next_request(now, &lost_nodes);
        assert!(third.avoid.is_empty());
        assert_eq!(
            third.distribution,
            DistributionSpec::Edges,
            "operations may wait that were prepared without multicast"
        );
    }

    #[test]
    fn a_tree_that_failed_without_a_lost_node_gets_segments_that_pass_every_path() {
        let now = Instant::now();
        let (mut tree, lost_nodes) = (owned(now), LostNodes::default());
        let long = BASE_SEGMENT_BYTES as u32 * 3;
        tree.request.segment_bytes = long;
        tree.has_lost_node = true;
        assert_eq!(tree.next_request(now, &lost_nodes).segment_bytes, long);
        tree.has_lost_node = false;
        assert_eq!(tree.next_request(now, &lost_nodes).segment_bytes, BASE_SEGMENT_BYTES as u32);
        tree.request.segment_bytes = 256;
        assert_eq!(tree.next_request(now, &lost_nodes).segment_bytes, 256);
    }
}
