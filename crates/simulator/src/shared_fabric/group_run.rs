//! Runs the operations of one group, one after another: through its tree, among its hosts, or among its hosts after its tree failed.
//!
//! In: the events of the group's drivers. Out: operations that start, and their events, passed to the observer.

use std::sync::Arc;

use protocol::collective::{CollectiveAlgorithm, FoldOrder, FoldTreeNode};
use topology::{AggregationTree, Cable, ChildNode, NodeId, NodePort, TreeExclusions, TreeIndex, TreeRequest};
use units::{AdapterLane, OpId, Rank, SimSpan, SimTime};

use super::driver_set::{DriverSet, GroupDriver};
use super::group::{FabricGroup, FoldReference, GroupMethod, GroupOperation, SharedFabricObserver};
use super::reporters::{HostsPart, HostsReporter, PresentOperation, TreeReporter};
use crate::collective::{
    CollectiveDriver, CollectiveMethod, CollectiveParameters, ContributionContents, LongVector, NoObserver,
    OperationPacing, SimulatedOperation,
};
use crate::network::SimulatedNetwork;
use crate::packet::DriverIndex;
use crate::segmented::{HostOperation, SegmentedDriver, SegmentedParameters, SegmentedVector, VectorContents};

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
}

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
    tree: Option<GroupTree>,
    hosts: Option<DriverIndex>,
    failed_trees: u32,
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
            tree: None,
            hosts: None,
            failed_trees: 0,
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

    /// When the group wants to be called even if nothing happens.
    pub(super) fn wake_at(&self) -> SimTime {
        match self.state {
            GroupRunState::Waiting => self.spec().not_before,
            GroupRunState::Finished => SimTime::NEVER,
            GroupRunState::InAckBarrier | GroupRunState::InTree | GroupRunState::AmongHosts(_) => self.hung_at,
        }
    }

    /// Whether the present operation should have ended.
    pub(super) fn is_hung(&self, now: SimTime) -> bool {
        !matches!(self.state, GroupRunState::Waiting | GroupRunState::Finished) && now >= self.hung_at
    }

    fn ranks(&self) -> u32 {
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
        match spec.method {
            GroupMethod::Tree(method) if self.has_tree(network, drivers) => {
                self.start_in_tree(network, drivers, observer, method)
            }
            GroupMethod::Tree(_) => {
                self.start_among_hosts(network, drivers, observer, default_algorithm(spec.operation))
            }
            GroupMethod::Hosts(algorithm) => self.start_among_hosts(network, drivers, observer, algorithm),
        }
    }

    /// Builds a tree if there is none; false if none can be placed around what is down.
    fn has_tree(&mut self, network: &mut SimulatedNetwork, drivers: &mut DriverSet) -> bool {
        if self.tree.is_some() {
            return true;
        }
        let request = TreeRequest {
            radix_limit: self.group.tree.radix_limit,
            avoid: broken_parts(network),
            ..TreeRequest::over(self.group.hosts.iter().copied())
        };
        let Ok(tree) = topology::place_tree(network.topology(), &request) else { return false };
        let parameters = CollectiveParameters {
            operation: self.widest_operation(),
            pace: OperationPacing::BackToBack,
            ..self.group.tree.clone()
        };
        // The driver sets timers as soon as it exists, under the number that it will have.
        let driver = drivers.next_index();
        network.set_driver(driver);
        #[cfg(feature = "sabotage")]
        let parameters = match drivers.sabotage {
            Some(sabotage) => sabotage.of_tree(parameters),
            None => parameters,
        };
        let machines = CollectiveDriver::new(&tree, network, parameters, self.seed);
        drivers.add(GroupDriver::Tree(Box::new(machines)));
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
        let Some(GroupTree { driver: index, .. }) = self.tree else { return };
        network.set_driver(index);
        let driver = drivers.tree(index);
        while driver.has_events() {
            driver.report_events(network, &mut NoObserver);
        }
        if !driver.is_over() {
            return;
        }
        if driver.has_failed() {
            self.leave_tree(drivers);
        }
        self.start(network, drivers, observer);
    }

    fn follow_tree(
        &mut self,
        network: &mut SimulatedNetwork,
        drivers: &mut DriverSet,
        observer: &mut dyn SharedFabricObserver,
    ) {
        let Some(GroupTree { driver: index, .. }) = self.tree else { return };
        network.set_driver(index);
        let driver = drivers.tree(index);
        let first = driver.first_number();
        let mut reporter = TreeReporter { present: &mut self.present, observer, first };
        // A segment that starts in answer to an event may fail at once, without any packet or timer.
        while driver.has_events() {
            driver.report_events(network, &mut reporter);
        }
        if !driver.is_over() {
            return;
        }
        if driver.has_failed() {
            return self.finish_among_hosts(network, drivers, observer);
        }
        self.finish_operation();
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
        #[cfg(feature = "sabotage")]
        let order = match drivers.sabotage {
            Some(sabotage) => sabotage.of_order(order),
            None => order,
        };
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
        let parameters = self.host_parameters(algorithm, part);
        #[cfg(feature = "sabotage")]
        let parameters = match drivers.sabotage {
            Some(sabotage) => sabotage.of_hosts(parameters),
            None => parameters,
        };
        let index = *self.hosts.get_or_insert_with(|| {
            let driver = SegmentedDriver::new(parameters.clone(), self.group.hosts.clone(), self.seed);
            drivers.add(GroupDriver::Hosts(Box::new(driver)))
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
        #[cfg(feature = "sabotage")]
        let sabotage = drivers.sabotage;
        let driver = drivers.hosts(index);
        let present = &mut self.present;
        let mut reporter = HostsReporter {
            present,
            observer,
            part,
            #[cfg(feature = "sabotage")]
            sabotage,
        };
        driver.perform_pending(network, &mut reporter);
        if !driver.is_over() {
            return;
        }
        if driver.has_failed() {
            // Frames of the old connections may still be under way: the next operation needs new ones.
            drivers.retire(index);
            self.hosts = None;
        }
        self.finish_operation();
    }

    fn finish_operation(&mut self) {
        self.present.operation += 1;
        let is_last = self.present.operation == self.group.operations.len();
        self.state = if is_last { GroupRunState::Finished } else { GroupRunState::Waiting };
    }

    fn host_parameters(&self, algorithm: CollectiveAlgorithm, part: HostsPart) -> SegmentedParameters {
        let GroupOperation { operation, kind, elements, segment_elements, .. } = *self.spec();
        let contents = VectorContents::Elements;
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

/// The algorithm of hosts that cannot have a tree.
fn default_algorithm(operation: HostOperation) -> CollectiveAlgorithm {
    match operation {
        HostOperation::Barrier => CollectiveAlgorithm::Dissemination { radix: 2 },
        HostOperation::AllReduce => CollectiveAlgorithm::RecursiveDoubling,
        HostOperation::Broadcast | HostOperation::Reduce => CollectiveAlgorithm::Tree { radix: 2 },
    }
}

fn tree_operation(operation: HostOperation, method: CollectiveMethod) -> SimulatedOperation {
    match operation {
        HostOperation::Barrier => SimulatedOperation::Barrier(method),
        HostOperation::Broadcast => SimulatedOperation::Broadcast(method),
        HostOperation::Reduce => SimulatedOperation::Reduce,
        HostOperation::AllReduce => SimulatedOperation::AllReduce,
    }
}

/// The vector as trees know it: the elements of a full segment, and how many segments there are.
fn contents(spec: &GroupOperation) -> (ContributionContents, Option<LongVector>) {
    if spec.operation == HostOperation::Barrier {
        return (ContributionContents::SizeOnly { bytes: 0 }, None);
    }
    let (segments, kind) = (spec.segments(), spec.kind);
    let count = spec.elements_of(0) as u16;
    let last_bytes = spec.elements_of(segments - 1) * kind.element_size() as u32;
    let long_vector = (segments > 1).then_some(LongVector { segments, last_bytes });
    (ContributionContents::Real { kind, count }, long_vector)
}

/// The switches and cables that are down now, as a manager knows them.
fn broken_parts(network: &SimulatedNetwork) -> TreeExclusions {
    let fabric = network.topology();
    let is_down = |end: NodePort| network.is_down(network.channel(end, AdapterLane(0)));
    let cables: Vec<Cable> = fabric.cables().filter(|cable| is_down(cable.a) || is_down(cable.b)).collect();
    let touches = |node: NodeId, cable: &Cable| cable.a.node == node || cable.b.node == node;
    let switches = (fabric.hosts()..fabric.nodes()).map(NodeId);
    let is_dead = |switch: &NodeId| {
        let down = cables.iter().filter(|cable| touches(*switch, cable)).count();
        down > 0 && down == fabric.cables().filter(|cable| touches(*switch, cable)).count()
    };
    let nodes = if cables.is_empty() { Vec::new() } else { switches.filter(is_dead).collect() };
    TreeExclusions { nodes, cables }
}

/// The order in which a tree folds, for hosts that finish its operation.
fn fold_order(tree: &AggregationTree, hosts: &[NodeId]) -> Arc<FoldOrder> {
    let root: TreeIndex = tree.roots().next().expect("a tree has a root");
    let vertex = |place| match place {
        ChildNode::Host(host) => {
            let rank = hosts.binary_search(&host).expect("the tree is over the group's hosts");
            FoldTreeNode::Rank(Rank(rank as u32))
        }
        ChildNode::Node(node) => {
            FoldTreeNode::Node(tree.node(node).children.iter().map(|child| child.node).collect())
        }
    };
    let order = FoldOrder::from_tree(hosts.len() as u32, ChildNode::Node(root), vertex);
    Arc::new(order.expect("a tree has every rank once"))
}
