//! Collectives in the simulated fabric: the protocol machines, driven in virtual time.
//!
//! In: a fabric, its constants, a fault plan, an operation and its contributions. Out: the latency of each operation by phase, and
//! every result, passed to a [`CollectiveObserver`].

mod aggregation_unit;
mod alternate_path;
mod call_latency;
mod deferred_event;
mod deferred_handling;
mod delivery;
mod driver;
mod host_software;
mod injection;
mod measure;
mod operation;
mod operation_sequence;
mod parameters;
mod rebuild;
mod replicas;
mod sequence_state;
mod wiring;
mod wiring_builder;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use protocol::Payload;
use protocol::aggregation::{AbortCause, AckBarrierCounter};
use topology::{AggregationTree, ChildNode, Fabric, NodeId, PlacementError, TreeRequest};
use units::{AdapterLane, OpId, Rank, SimSpan};

pub use parameters::{
    AlternatePathParameters, CollectiveParameters, ContributionContents, ControlPath, Framing, LaneFeeds, LongVector,
    OperationPacing, ReplicaSharing, Replication, ResendWidth,
};

pub use aggregation_unit::AggregationUnitParameters;
pub(crate) use call_latency::CallStatistics;
pub use call_latency::{CallLatency, CallWorkload};
pub use operation::{CollectiveMethod, SimulatedOperation};
pub use protocol::aggregation::DownwardDelivery;

use crate::counters::{FabricCounters, LinkErrorCounters};
use crate::fault::{FaultPlan, FaultPlanError};
use crate::link_rate::LinkWidth;
use crate::network::{LinkParameters, SimulatedNetwork};
pub(crate) use driver::CollectiveDriver;

/// Supplies the contributions and receives the results.
pub trait CollectiveObserver {
    /// The contribution of a rank; called only for real contents, and only for ranks that contribute.
    fn contribution(&mut self, rank: Rank, op: OpId) -> Payload;
    /// A rank has entered an operation.
    fn started(&mut self, _rank: Rank, _op: OpId) {}
    /// A rank has a result.
    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload);
    /// A rank's operation has failed.
    fn failed(&mut self, rank: Rank, op: OpId, cause: OperationFailure);
    /// The aggregation tree was rebuilt after a failure; later operations are folded in its order.
    fn tree_rebuilt(&mut self, _tree: &AggregationTree) {}
}

/// Why an operation failed on a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationFailure {
    /// A node of the tree, or the tree itself, aborted it.
    Aborted(AbortCause),
    /// A host got no answer from another host, over any route.
    Unreachable {
        /// The host that waits for the answer.
        from: Rank,
        /// The host that does not answer.
        to: Rank,
    },
}

impl fmt::Display for OperationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aborted(cause) => write!(f, "{cause}"),
            Self::Unreachable { from, to } => write!(f, "{from} gets no answer from {to}"),
        }
    }
}

/// Machines of a rebuilt tree number their operations from zero; the observer sees one sequence.
struct RenumberedObserver<'o> {
    inner: &'o mut dyn CollectiveObserver,
    first: u32,
}

impl RenumberedObserver<'_> {
    fn number(&self, op: OpId) -> OpId {
        OpId(op.0.wrapping_add(self.first))
    }
}

impl CollectiveObserver for RenumberedObserver<'_> {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Payload {
        self.inner.contribution(rank, self.number(op))
    }

    fn started(&mut self, rank: Rank, op: OpId) {
        self.inner.started(rank, self.number(op));
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        self.inner.delivered(rank, self.number(op), result);
    }

    fn failed(&mut self, rank: Rank, op: OpId, cause: OperationFailure) {
        self.inner.failed(rank, self.number(op), cause);
    }
}

/// An observer that ignores all results, for runs without real contents.
pub struct NoObserver;

impl CollectiveObserver for NoObserver {
    fn contribution(&mut self, _: Rank, _: OpId) -> Payload {
        Payload::EMPTY
    }
    fn delivered(&mut self, _: Rank, _: OpId, _: &Payload) {}
    fn failed(&mut self, _: Rank, _: OpId, _: OperationFailure) {}
}

/// Why a collective cannot be set up.
#[derive(Debug)]
pub enum CollectiveSetupError {
    /// No tree fits the request.
    Place(PlacementError),
    /// The fault plan does not match the fabric.
    Plan(FaultPlanError),
    /// An adapter port has fewer lanes than spatial copies (SE-8).
    TooFewLanes {
        /// Spatial copies.
        copies: u8,
        /// Lanes of the port.
        lanes: u64,
    },
    /// The replicas of the fabric reduce in different orders, and the result's bits depend on the order.
    OrdersDiffer,
    /// A number is outside its range.
    OutOfRange(&'static str),
}

impl fmt::Display for CollectiveSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(error) => write!(f, "no aggregation tree: {error}"),
            Self::Plan(error) => write!(f, "fault plan: {error}"),
            Self::TooFewLanes { copies, lanes } => write!(
                f,
                "spatial replication with {copies} copies needs as many lanes, and the adapter's port has {lanes}; \
                 set what-if-lanes = true to simulate it all the same"
            ),
            Self::OrdersDiffer => f.write_str(
                "spatial replication on this fabric folds in a different order at each root, so a float sum or product \
                 would depend on which root answers first; use temporal replication, another operator or a fat tree",
            ),
            Self::OutOfRange(what) => write!(f, "out of range: {what}"),
        }
    }
}

impl std::error::Error for CollectiveSetupError {}

/// The traffic on one direction of a cable (or of a lane of it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkReport {
    /// The sending node.
    pub from: NodeId,
    /// The receiving node.
    pub to: NodeId,
    /// The lane of a split adapter; zero otherwise.
    pub lane: AdapterLane,
    /// Packets sent.
    pub packets: u32,
    /// Bytes sent, if the run records them.
    pub bytes: u64,
    /// Errors and losses.
    pub tally: LinkErrorCounters,
}

/// The latency of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveTiming {
    /// From the start to the first root that has the result.
    pub reduce: Option<SimSpan>,
    /// From the start to the last host that has the result; none if the operation failed on some host.
    pub complete: Option<SimSpan>,
}

/// A collective, ready to run.
pub struct SimulatedCollective {
    network: SimulatedNetwork,
    driver: CollectiveDriver,
    tree: AggregationTree,
    request: TreeRequest,
    seed: u64,
    rebuilds: u32,
    /// The observer's number of the first segment that the present tree carries out.
    first_number: u32,
}

impl SimulatedCollective {
    /// Sets up the tree and the machines.
    ///
    /// # Errors
    /// If the parameters, the fabric and the plan contradict each other.
    pub fn new(
        fabric: Arc<Fabric>,
        mut link: LinkParameters,
        parameters: CollectiveParameters,
        plan: &FaultPlan,
        seed: u64,
        width: LinkWidth,
    ) -> Result<Self, CollectiveSetupError> {
        check(&parameters)?;
        let members = parameters.members.unwrap_or(fabric.hosts()).min(fabric.hosts());
        let request = TreeRequest {
            radix_limit: parameters.radix_limit,
            ..if members == fabric.hosts() { TreeRequest::all() } else { TreeRequest::over((0..members).map(NodeId)) }
        };
        let request = request.with_replicas(parameters.spatial_copies());
        let tree = topology::place_tree(&fabric, &request).map_err(CollectiveSetupError::Place)?;
        link.adapter_lanes = adapter_lanes(&tree, &parameters, width)?;
        if depends_on_order(&parameters.contents) && !tree.roots_fold_alike() {
            return Err(CollectiveSetupError::OrdersDiffer);
        }
        let mut network = SimulatedNetwork::new(fabric, link);
        network.set_faults(plan, seed).map_err(CollectiveSetupError::Plan)?;
        let driver = CollectiveDriver::new(&tree, &mut network, parameters, seed);
        Ok(Self { network, driver, tree, request, seed, rebuilds: 0, first_number: 0 })
    }

    /// Runs collectives one after another; stops early if one hangs (see [`CollectiveParameters::hang_timeout`]).
    pub fn run(
        &mut self,
        operations: u32,
        observer: &mut dyn CollectiveObserver,
        mut progress: impl FnMut(u32),
    ) -> Vec<CollectiveTiming> {
        let mut timings = Vec::with_capacity(operations as usize);
        for done in 0..operations {
            let mut renumbered = RenumberedObserver { inner: observer, first: self.first_number };
            timings.push(self.driver.run_one(&mut self.network, &mut renumbered));
            progress(done + 1);
            if self.driver.is_hung() {
                break;
            }
            if self.driver.has_failed() && self.rebuild(OpId(done + 1)) {
                observer.tree_rebuilt(&self.tree);
            }
        }
        timings
    }

    /// The aggregation tree.
    pub fn tree(&self) -> &AggregationTree {
        &self.tree
    }

    /// How often the tree was rebuilt.
    pub fn rebuilds(&self) -> u32 {
        self.rebuilds
    }

    pub(crate) fn network(&self) -> &SimulatedNetwork {
        &self.network
    }

    pub(crate) fn network_mut(&mut self) -> &mut SimulatedNetwork {
        &mut self.network
    }

    /// Members of the group.
    pub fn ranks(&self) -> u32 {
        self.driver.ranks()
    }

    /// Migrations of tree edges, counted at each end.
    pub fn migrations(&self) -> u32 {
        self.driver.migrations()
    }

    /// The counters of the network.
    pub fn counters(&self) -> &FabricCounters {
        &self.network.counters
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }

    /// Bytes of the network and of the machines, as far as they are counted.
    pub fn memory(&self) -> usize {
        self.network.memory() + self.driver.memory()
    }

    /// Every direction of every cable with a packet, an error or a loss, for the fabric diagram.
    pub fn links(&self) -> impl Iterator<Item = LinkReport> + '_ {
        self.network.link_reports()
    }
}

/// Sums and products of floats are rounded at every step; all other reductions give the same bits in any order.
fn depends_on_order(contents: &ContributionContents) -> bool {
    let ContributionContents::Real { kind, .. } = contents else {
        return false;
    };
    kind.element().is_float() && matches!(kind.operator(), reduce::Operator::Sum | reduce::Operator::Prod)
}

/// The number of lanes into which each adapter's port is split, for spatial replication (SE-8): 1 if adapters have a port for
/// each copy, otherwise one port carries all copies.
fn adapter_lanes(
    tree: &AggregationTree,
    parameters: &CollectiveParameters,
    width: LinkWidth,
) -> Result<u8, CollectiveSetupError> {
    let copies = parameters.spatial_copies();
    let mut ways: BTreeMap<NodeId, u8> = BTreeMap::new();
    if copies > 1 {
        let children = tree.nodes.iter().flat_map(|node| &node.children);
        for child in children {
            if let ChildNode::Host(host) = child.node {
                *ways.entry(host).or_default() += 1;
            }
        }
    }
    if ways.values().all(|ways| *ways == copies) {
        return Ok(1);
    }
    if ways.values().any(|ways| *ways != 1) {
        return Err(CollectiveSetupError::OutOfRange(
            "copies: use one per adapter port, or adapters with a single port to split",
        ));
    }
    if u64::from(copies) > width.lanes() && !parameters.what_if_lanes {
        return Err(CollectiveSetupError::TooFewLanes { copies, lanes: width.lanes() });
    }
    Ok(copies)
}

fn check(parameters: &CollectiveParameters) -> Result<(), CollectiveSetupError> {
    let copies = parameters.spatial_copies();
    if copies == 0 || parameters.temporal_copies() == 0 {
        return Err(CollectiveSetupError::OutOfRange("copies: at least 1"));
    }
    if copies.max(parameters.temporal_copies()) > units::limits::MAX_COPIES {
        return Err(CollectiveSetupError::OutOfRange("copies: at most 16"));
    }
    if parameters.contents.bytes() > units::limits::MAX_MTU {
        return Err(CollectiveSetupError::OutOfRange("a contribution is one packet: at most 4096 bytes"));
    }
    if parameters.members == Some(0) {
        return Err(CollectiveSetupError::OutOfRange("members: at least 1"));
    }
    if parameters.operation.is_by_multicast() && copies > 1 {
        return Err(CollectiveSetupError::OutOfRange("member multicast uses one tree: no spatial copies"));
    }
    if parameters.operation.is_multicast_broadcast() && parameters.window < AckBarrierCounter::MIN_WINDOW {
        return Err(CollectiveSetupError::OutOfRange("window: at least 8 for a multicast broadcast"));
    }
    Ok(())
}
