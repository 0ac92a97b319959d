//! Collectives in the simulated fabric: the protocol machines, driven in virtual time.
//!
//! In: a fabric, its constants, a fault plan, what members do and contribute. Out: how long each operation took, phase by
//! phase, and every delivery, handed to a [`CollectiveObserver`] that may judge it.

mod aggregation_unit;
mod alternate_path;
mod deferred_event;
mod driver;
mod measure;
mod operation;
mod operation_sequence;
mod parameters;
mod wiring;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use protocol::Payload;
use protocol::aggregation::{AbortCause, AckBarrierCounter};
use topology::{AggregationTree, ChildNode, Fabric, NodeId, PlacementError, TreeRequest};
use units::{Lane, OpId, Rank, SimSpan};

pub use parameters::{
    AlternatePathParameters, CollectiveParameters, ContributionContents, ControlPath, Framing, LaneFeeds,
    OperationPacing, ReplicaSharing, Replication, ResendWidth,
};

pub use aggregation_unit::AggregationUnitParameters;
pub use measure::{CallLatency, CallWorkload};
pub use operation::{CollectiveMethod, SimulatedOperation};
pub use protocol::aggregation::DownwardDelivery;

use crate::counters::{FabricCounters, LinkErrorCounters};
use crate::fault::{FaultPlan, FaultPlanError};
use crate::link_rate::LinkWidth;
use crate::network::{LinkParameters, SimulatedNetwork};
use driver::CollectiveDriver;
pub(crate) use wiring::{EdgeEnd, RootIndex};

/// Sees what goes in and what comes out.
pub trait CollectiveObserver {
    /// What a rank contributes; asked only for real contents, and only of those that have something to say.
    fn contribution(&mut self, rank: Rank, op: OpId) -> Vec<u8>;
    /// A rank has come to an operation.
    fn begun(&mut self, _rank: Rank, _op: OpId) {}
    /// A rank has a result.
    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload);
    /// A rank's operation has failed.
    fn failed(&mut self, rank: Rank, op: OpId, cause: AbortCause);
}

/// A witness that looks at nothing, for runs without real contents.
pub struct NoObserver;

impl CollectiveObserver for NoObserver {
    fn contribution(&mut self, _: Rank, _: OpId) -> Vec<u8> {
        Vec::new()
    }
    fn delivered(&mut self, _: Rank, _: OpId, _: &Payload) {}
    fn failed(&mut self, _: Rank, _: OpId, _: AbortCause) {}
}

/// Why a collective cannot be set up.
#[derive(Debug)]
pub enum CollectiveSetupError {
    /// No tree fits the request.
    Place(PlacementError),
    /// The fault plan does not fit the fabric.
    Plan(FaultPlanError),
    /// An adapter port has fewer lanes than copies were asked for (SE-8).
    TooFewLanes {
        /// Copies.
        copies: u8,
        /// Lanes.
        lanes: u64,
    },
    /// The fabric's replicas fold in different orders, and the operation's bits depend on the order.
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

/// What one direction of a cable (or of a lane of it) carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkReport {
    /// From this node.
    pub from: NodeId,
    /// To this one.
    pub to: NodeId,
    /// The lane of a split adapter; zero otherwise.
    pub lane: Lane,
    /// Packets sent on it.
    pub packets: u32,
    /// What went wrong on it.
    pub tally: LinkErrorCounters,
}

/// How one operation went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveTiming {
    /// From the start to the first root that had the result.
    pub reduce: Option<SimSpan>,
    /// From the start to the last host that had it; none if it failed somewhere.
    pub complete: Option<SimSpan>,
}

/// A collective, set up and ready to run.
pub struct SimulatedCollective {
    network: SimulatedNetwork,
    driver: CollectiveDriver,
    tree: AggregationTree,
}

impl SimulatedCollective {
    /// Sets up the tree and the machines.
    ///
    /// # Errors
    /// If the parameters, the fabric and the plan do not go together.
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
        Ok(Self { network, driver, tree })
    }

    /// Runs so many collectives, one after the other; fewer if one hangs (see [`CollectiveParameters::patience`]).
    pub fn run(
        &mut self,
        operations: u32,
        witness: &mut dyn CollectiveObserver,
        mut progress: impl FnMut(u32),
    ) -> Vec<CollectiveTiming> {
        let mut timings = Vec::with_capacity(operations as usize);
        for done in 0..operations {
            timings.push(self.driver.run_one(&mut self.network, witness));
            progress(done + 1);
            if self.driver.is_hung() {
                break;
            }
        }
        timings
    }

    /// The tree that is used.
    pub fn tree(&self) -> &AggregationTree {
        &self.tree
    }

    /// Members of the group.
    pub fn ranks(&self) -> u32 {
        self.driver.ranks()
    }

    /// How often edges of the tree have moved to another path, each end counted.
    pub fn migrations(&self) -> u32 {
        self.driver.migrations()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &FabricCounters {
        &self.network.counters
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }

    /// Bytes of the fabric and of the machines, as far as they are counted exactly.
    pub fn memory(&self) -> usize {
        self.network.memory() + self.driver.memory()
    }

    /// Every direction of every cable that carried or lost anything: the picture's colours.
    pub fn links(&self) -> impl Iterator<Item = LinkReport> + '_ {
        (0..self.network.channel_count()).filter_map(|channel| {
            let tally = self.network.counters.links.get(&channel).copied().unwrap_or_default();
            let packets = self.network.sent(channel);
            let (from, lane) = self.network.origin(channel);
            let report = LinkReport { from: from.node, to: self.network.destination(channel), lane, packets, tally };
            (packets > 0 || tally != LinkErrorCounters::default()).then_some(report)
        })
    }

    /// Breaks one node on purpose, for the test that the oracle notices.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, node: usize, sabotage: protocol::aggregation::SlotMutation) {
        self.driver.sabotage(node, sabotage);
    }
}

/// Sums and products of floats round at every step; everything else gives the same bits in any order.
fn depends_on_order(contents: &ContributionContents) -> bool {
    let ContributionContents::Real { kind, .. } = contents else {
        return false;
    };
    kind.element().is_float() && matches!(kind.operator(), reduce::Operator::Sum | reduce::Operator::Prod)
}

/// Into how many lanes each adapter's port is split, for spatial replication (SE-8): not at all if adapters have a port
/// for each copy, otherwise one port carries all copies.
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
            if let ChildNode::Host(host) = child.who {
                *ways.entry(host).or_default() += 1;
            }
        }
    }
    if ways.values().all(|ways| *ways == copies) {
        return Ok(1);
    }
    if ways.values().any(|ways| *ways != 1) {
        return Err(CollectiveSetupError::OutOfRange(
            "copies: one per adapter port, or adapters with a single port to split",
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
        return Err(CollectiveSetupError::OutOfRange("copies: from 1 on"));
    }
    if copies.max(parameters.temporal_copies()) > units::limits::MAX_COPIES {
        return Err(CollectiveSetupError::OutOfRange("copies: at most 16"));
    }
    if parameters.contents.bytes() > units::limits::MAX_MTU {
        return Err(CollectiveSetupError::OutOfRange("a contribution is one packet: at most 4096 bytes"));
    }
    if parameters.members == Some(0) {
        return Err(CollectiveSetupError::OutOfRange("members: from 1 on"));
    }
    if parameters.task.is_by_multicast() && copies > 1 {
        return Err(CollectiveSetupError::OutOfRange("members that speak to all have one tree: no spatial copies"));
    }
    if parameters.task.is_cast() && parameters.window < AckBarrierCounter::LEAST_WINDOW {
        return Err(CollectiveSetupError::OutOfRange("window: from 8 on where members cast"));
    }
    Ok(())
}
