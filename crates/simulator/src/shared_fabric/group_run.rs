//! Runs the operations of one group, one after another: through its tree, among its hosts, or among its hosts after its tree failed.
//!
//! In: the events of the group's drivers. Out: operations that start, and their events, passed to the observer.

use std::sync::Arc;

use protocol::collective::{CollectiveAlgorithm, FoldOrder};
use topology::{AggregationTree, TreeExclusions, TreeRequest};
use units::{OpId, SimSpan, SimTime};

use super::driver_set::{DriverSet, GroupDriver};
use super::group::{AfterFailure, FabricGroup, FoldReference, GroupMethod, GroupOperation, SharedFabricObserver};
use super::reporters::{HostsPart, HostsReporter, PresentOperation, TreeReporter};
use super::tree_setup::{broken_parts, contents, default_algorithm, fold_order, tree_operation};
use crate::collective::{
    CollectiveDriver, CollectiveMethod, CollectiveObserver, CollectiveParameters, ContributionContents, LongVector,
    NoObserver, OperationPacing, SimulatedOperation,
};
use crate::network::SimulatedNetwork;
use crate::packet::DriverIndex;
use crate::segmented::{HostOperation, SegmentedDriver, SegmentedParameters, SegmentedVector};

/// What a group is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GroupRunState {
    /// The next operation has not started.
    Waiting,
    /// The members of the tree confirm earlier multicasts; the next operation follows.
    InAckBarrier,
    /// The tree carries out an operation.
    InTree,
    /// The hosts do.
    AmongHosts(HostsPart),
    /// All operations are over.
    Finished,
    /// All operations are over, and the tree does some more so that every slot is used again.
    Flushing,
}

/// How long the leader that notices a failure of the tree takes to tell the others, over connections that are not part of it (P-59).
const NOTICE_DELAY: SimSpan = SimSpan::from_micros(20);

/// Trees of a group that may fail. Later operations run among hosts, so that a fabric that damages everything does not use up the
/// numbers of drivers.
const MAX_FAILED_TREES: u32 = 256;

/// A tree of the group and its driver.
struct GroupTree {
    driver: DriverIndex,
    tree: AggregationTree,
}

pub(super) struct GroupRun {
    index: usize,
    group: FabricGroup,
    seed: u64,
    state: GroupRunState,
    present: PresentOperation,
    /// When the present operation counts as hung.
    hung_at: SimTime,
    /// When the last rank has entered the present operation. A late one takes part in what the hosts do after their tree has failed.
    entered_at: SimTime,
    /// When every leader knows that the tree has failed at one of them.
    leave_at: SimTime,
    tree: Option<GroupTree>,
    hosts: Option<DriverIndex>,
    failed_trees: u32,
    operations_without_tree: u32,
}

impl GroupRun {
    pub(super) fn new(index: usize, group: FabricGroup, seed: u64) -> Self {
        let state = if group.operations.is_empty() { GroupRunState::Finished } else { GroupRunState::Waiting };
        Self {
            index,
            // Groups of one run draw their late entries from different streams.
            seed: seed.wrapping_add(index as u64),
            state,
            present: PresentOperation::new(index, 0, 0, 0),
            hung_at: SimTime::NEVER,
            entered_at: SimTime::ZERO,
            leave_at: SimTime::NEVER,
            tree: None,
            hosts: None,
            failed_trees: 0,
            operations_without_tree: 0,
            group,
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn state(&self) -> GroupRunState {
        self.state
    }

    /// The position of the present operation.
    pub(super) fn operation(&self) -> usize {
        self.present.operation
    }

    pub(super) fn failed_trees(&self) -> u32 {
        self.failed_trees
    }

    /// Operations that wanted a tree while none could be placed around what was down.
    pub(super) fn operations_without_tree(&self) -> u32 {
        self.operations_without_tree
    }

    /// When the group wants to be called even if nothing happens.
    pub(super) fn wake_at(&self) -> SimTime {
        match self.state {
            GroupRunState::Waiting => self.spec().not_before,
            GroupRunState::Finished => SimTime::NEVER,
            GroupRunState::InAckBarrier | GroupRunState::InTree | GroupRunState::Flushing => {
                self.hung_at.min(self.leave_at)
            }
            GroupRunState::AmongHosts(_) => self.hung_at,
        }
    }

    /// Whether the present operation should have ended.
    pub(super) fn is_hung(&self, now: SimTime) -> bool {
        !matches!(self.state, GroupRunState::Waiting | GroupRunState::Finished) && now >= self.hung_at
    }

    pub(super) fn ranks(&self) -> u32 {
        self.group.hosts.len() as u32
    }

    fn spec(&self) -> &GroupOperation {
        &self.group.operations[self.present.operation]
    }

    /// Reports what happened, and starts what can start.
    pub(super) fn advance(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
    ) {
        self.drop_lost_connections(drivers);
        loop {
            let before = (self.state, self.present.operation);
            match self.state {
                GroupRunState::Finished => return,
                GroupRunState::Waiting => self.start(network, drivers, observer),
                GroupRunState::InAckBarrier => self.follow_ack_barrier(network, drivers, observer),
                GroupRunState::InTree => self.follow_tree(network, drivers, observer),
                GroupRunState::Flushing => self.follow_flush(network, drivers),
                GroupRunState::AmongHosts(part) => self.follow_hosts(network, drivers, observer, part),
            }
            if before == (self.state, self.present.operation) {
                return;
            }
        }
    }

    /// Connections among hosts can give up between two operations, for want of an acknowledgement.
    pub(super) fn drop_lost_connections(&mut self, drivers: &mut DriverSet) {
        if matches!(self.state, GroupRunState::AmongHosts(_)) {
            return;
        }
        if let Some(index) = self.hosts.filter(|index| drivers.hosts(*index).discard_idle_work()) {
            drivers.retire(index);
            self.hosts = None;
        }
    }

    fn start(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
    ) {
        let (now, spec) = (network.now(), *self.spec());
        if now < spec.not_before {
            return;
        }
        self.present = PresentOperation::new(self.index, self.present.operation, self.ranks(), spec.segments());
        self.hung_at = now + self.group.hang_timeout;
        self.entered_at = now + self.group.tree.arrival_skew;
        self.leave_at = SimTime::NEVER;
        match spec.method {
            GroupMethod::Tree(method) if self.has_tree(network, drivers) => {
                self.start_in_tree(network, drivers, observer, method)
            }
            GroupMethod::Tree(_) => {
                self.operations_without_tree += 1;
                self.start_among_hosts(network, drivers, observer, default_algorithm(spec.operation))
            }
            GroupMethod::Hosts(algorithm) => self.start_among_hosts(network, drivers, observer, algorithm),
        }
    }

    /// Builds a tree if there is none; false if none can be placed around what is down.
    ///
    /// # Panics
    /// If none can be placed although nothing is down: a defect of the placement, or of the caller's radix limit.
    fn has_tree(&mut self, network: &mut SimulatedNetwork, drivers: &mut DriverSet) -> bool {
        if self.tree.is_some() {
            return true;
        }
        if self.failed_trees >= MAX_FAILED_TREES {
            return false;
        }
        let request = TreeRequest {
            radix_limit: self.group.tree.radix_limit,
            avoid: broken_parts(network),
            ..TreeRequest::over(self.group.hosts.iter().copied())
        };
        let tree = match topology::place_tree(network.topology(), &request) {
            Ok(tree) => tree,
            Err(_) if request.avoid != TreeExclusions::default() => return false,
            Err(error) => panic!("no tree in a whole fabric: {error}"),
        };
        let parameters = CollectiveParameters {
            operation: self.widest_operation(),
            pace: OperationPacing::BackToBack,
            ..self.group.tree.clone()
        };
        // The driver sets timers as soon as it exists, under the number that it will have.
        let driver = drivers.next_index();
        network.set_driver(driver);
        let parameters = drivers.defect.in_tree(parameters);
        let machines = CollectiveDriver::new(&tree, network, parameters, self.seed);
        drivers.add(self.index, GroupDriver::Tree(Box::new(machines)));
        self.tree = Some(GroupTree { driver, tree });
        true
    }

    /// The operation for which the tree is wired: with multicast tables of members, if one of the group's operations needs them.
    fn widest_operation(&self) -> SimulatedOperation {
        let is_by_multicast =
            |operation: &GroupOperation| operation.method == GroupMethod::Tree(CollectiveMethod::Multicast);
        if self.group.operations.iter().any(is_by_multicast) {
            SimulatedOperation::Broadcast(CollectiveMethod::Multicast)
        } else {
            SimulatedOperation::AllReduce
        }
    }

    fn start_in_tree(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
        method: CollectiveMethod,
    ) {
        let Some(GroupTree { driver, tree }) = &self.tree else { return };
        let (spec, index) = (*self.spec(), *driver);
        network.set_driver(index);
        let driver = drivers.tree(index);
        let (contents, long_vector) = contents(&spec);
        driver.set_operation(tree_operation(spec.operation, method), contents, long_vector);
        if driver.is_ack_barrier_due() {
            driver.begin_ack_barrier(network);
            self.state = GroupRunState::InAckBarrier;
            return;
        }
        driver.set_position(OpId(self.present.operation as u32));
        observer.begins(self.index, self.present.operation, network.now(), FoldReference::Tree(tree));
        let first = driver.next_number();
        driver.begin_operation(network, &mut TreeReporter { present: &mut self.present, observer, first });
        self.state = GroupRunState::InTree;
    }

    fn follow_ack_barrier(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
    ) {
        let Some(GroupTree { driver, .. }) = self.tree else { return };
        match tree_progress(network, drivers, driver, &mut self.leave_at, &mut NoObserver) {
            TreeProgress::Running => return,
            TreeProgress::Failed => drop(self.leave_tree(drivers)),
            TreeProgress::Completed => {}
        }
        self.start(network, drivers, observer);
    }

    fn follow_tree(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
    ) {
        let Some(GroupTree { driver, .. }) = self.tree else { return };
        let first = drivers.tree(driver).first_number();
        let mut reporter = TreeReporter { present: &mut self.present, observer, first };
        match tree_progress(network, drivers, driver, &mut self.leave_at, &mut reporter) {
            TreeProgress::Running => {}
            TreeProgress::Failed if network.now() < self.entered_at => self.leave_at = self.entered_at,
            TreeProgress::Failed => self.finish_among_hosts(network, drivers, observer),
            TreeProgress::Completed => self.finish_operation(network.now(), observer),
        }
    }

    /// After the last operation: one more round of all slots. A node that missed a result keeps what it folded until the next operation of
    /// the slot (P-39); what is left after this is left for ever.
    pub(super) fn begin_flush(&mut self, network: &mut SimulatedNetwork, drivers: &mut DriverSet) {
        let Some(GroupTree { driver, .. }) = self.tree else { return };
        network.set_driver(driver);
        let driver = drivers.tree(driver);
        let segments = self.group.tree.window;
        let long_vector = (segments > 1).then_some(LongVector { segments, last_bytes: 0 });
        driver.set_operation(SimulatedOperation::AllReduce, ContributionContents::SizeOnly { bytes: 0 }, long_vector);
        driver.begin_operation(network, &mut NoObserver);
        self.hung_at = network.now() + self.group.hang_timeout;
        self.leave_at = SimTime::NEVER;
        self.state = GroupRunState::Flushing;
    }

    fn follow_flush(&mut self, network: &mut SimulatedNetwork, drivers: &mut DriverSet) {
        let Some(GroupTree { driver, .. }) = self.tree else { return };
        match tree_progress(network, drivers, driver, &mut self.leave_at, &mut NoObserver) {
            TreeProgress::Running => return,
            TreeProgress::Failed => drop(self.leave_tree(drivers)),
            TreeProgress::Completed => {}
        }
        self.state = GroupRunState::Finished;
    }

    /// P-59: the leaders leave the tree together, and the hosts finish the operation in the order of the tree.
    fn finish_among_hosts(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
    ) {
        let Some(tree) = self.leave_tree(drivers) else { return };
        let spec = *self.spec();
        let is_folded = matches!(spec.operation, HostOperation::Reduce | HostOperation::AllReduce);
        let order = if is_folded { Some(fold_order(&tree, &self.group.hosts)) } else { None };
        let order = drivers.defect.in_order(order);
        let algorithm = if is_folded { CollectiveAlgorithm::OrderedTree } else { default_algorithm(spec.operation) };
        let part = HostsPart::AfterTree;
        self.hung_at = network.now() + self.group.hang_timeout;
        self.begin_among_hosts(network, drivers, observer, (algorithm, order), part);
    }

    /// Stops using the tree.
    fn leave_tree(&mut self, drivers: &mut DriverSet) -> Option<AggregationTree> {
        let GroupTree { driver, tree } = self.tree.take()?;
        drivers.retire(driver);
        self.failed_trees += 1;
        Some(tree)
    }

    fn start_among_hosts(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
        algorithm: CollectiveAlgorithm,
    ) {
        observer.begins(self.index, self.present.operation, network.now(), FoldReference::Algorithm(algorithm));
        self.begin_among_hosts(network, drivers, observer, (algorithm, None), HostsPart::Whole);
    }

    fn begin_among_hosts(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
        (algorithm, order): (CollectiveAlgorithm, Option<Arc<FoldOrder>>),
        part: HostsPart,
    ) {
        let parameters = drivers.defect.in_hosts(self.host_parameters(algorithm, part));
        let index = *self.hosts.get_or_insert_with(|| {
            let driver = SegmentedDriver::new(parameters.clone(), self.group.hosts.clone(), self.seed);
            drivers.add(self.index, GroupDriver::Hosts(Box::new(driver)))
        });
        network.set_driver(index);
        let driver = drivers.hosts(index);
        driver.set_operation(parameters, order);
        driver.begin(network, OpId(self.present.operation as u32), OpId(0));
        self.state = GroupRunState::AmongHosts(part);
        self.follow_hosts(network, drivers, observer, part);
    }

    fn follow_hosts(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
        part: HostsPart,
    ) {
        let Some(index) = self.hosts else { return };
        network.set_driver(index);
        let defect = drivers.defect;
        let driver = drivers.hosts(index);
        let mut reporter = HostsReporter { present: &mut self.present, observer, part, defect };
        driver.perform_pending(network, &mut reporter);
        if !driver.is_over() {
            return;
        }
        let has_failed = driver.has_failed();
        if has_failed {
            // Frames of the old connections may still be under way: the next operation needs new ones.
            drivers.retire(index);
            self.hosts = None;
        }
        self.finish_operation(network.now(), observer);
        if has_failed && self.group.after_failure == AfterFailure::Stop {
            self.state = GroupRunState::Finished;
        }
    }

    fn finish_operation(&mut self, now: SimTime, observer: &mut dyn SharedFabricObserver) {
        observer.ends(self.index, self.present.operation, now);
        self.present.operation += 1;
        let is_last = self.present.operation == self.group.operations.len();
        self.state = if is_last { GroupRunState::Finished } else { GroupRunState::Waiting };
    }

    fn host_parameters(&self, algorithm: CollectiveAlgorithm, part: HostsPart) -> SegmentedParameters {
        let GroupOperation { operation, kind, elements, segment_elements, contents, .. } = *self.spec();
        SegmentedParameters {
            operation,
            algorithm,
            vector: SegmentedVector { kind, elements, segment_elements, contents },
            window: self.group.window,
            mtu: self.group.mtu,
            policy: self.group.policy,
            members: self.ranks(),
            // After a failed tree, every rank is in the operation.
            arrival_skew: match part {
                HostsPart::Whole => self.group.tree.arrival_skew,
                HostsPart::AfterTree => SimSpan::ZERO,
            },
            pace: OperationPacing::BackToBack,
            hang_timeout: self.group.hang_timeout,
        }
    }
}

/// How far a tree is with its operation.
enum TreeProgress {
    Running,
    Completed,
    Failed,
}

/// Reports what happened in a tree. The first failure determines when all leave it.
fn tree_progress(
    network: &mut SimulatedNetwork,
    drivers: &mut DriverSet,
    index: DriverIndex,
    leave_at: &mut SimTime,
    observer: &mut dyn CollectiveObserver,
) -> TreeProgress {
    network.set_driver(index);
    let driver = drivers.tree(index);
    // A segment that starts in answer to an event may fail at once, without any packet or timer.
    while driver.has_events() {
        driver.report_events(network, observer);
    }
    let (is_over, has_failed) = (driver.is_over(), driver.has_failed());
    if has_failed && *leave_at == SimTime::NEVER {
        *leave_at = network.now() + NOTICE_DELAY;
    }
    match (is_over, has_failed) {
        (true, false) => TreeProgress::Completed,
        (true, true) => TreeProgress::Failed,
        (false, true) if network.now() >= *leave_at => TreeProgress::Failed,
        (false, _) => TreeProgress::Running,
    }
}
