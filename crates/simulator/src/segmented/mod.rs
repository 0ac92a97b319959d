//! Collectives among hosts as scenarios run them: vectors of any length, in segments, over reliable connections.
//!
//! In: a fabric, its constants, a fault plan, an algorithm and a vector. Out: the latency of each operation, and every result, segment
//! by segment, passed to a [`CollectiveObserver`]. Every host runs a [`ScheduleExecutor`](protocol::collective::ScheduleExecutor) for
//! each segment in progress, the machine of the runtime. Its messages travel in packets of the path MTU over a
//! [`Connection`](protocol::connection::Connection) to each peer, which acknowledges and retransmits them in competition with all other
//! packets. After a timeout a connection takes another of the equal routes, so that a cut cable costs time and not the operation. If no
//! route works, the operation fails on every host that has not completed it, with the two hosts that cannot reach each other.
//!
//! Reduce-scatter, allgather and alltoall divide each segment into one block per host (`blocks`).
//!
//! `driver` runs operations, `message_transport` carries messages, `host_link` is a connection between two hosts, `rank_progress` the
//! segments of one host.

mod blocks;
mod driver;
mod host_link;
mod message_transport;
mod rank_progress;
#[cfg(test)]
mod tests;
mod vector;

use std::fmt;
use std::sync::Arc;

use protocol::collective::{CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, FoldOrder, ScheduleError};
use protocol::connection::ConnectionPolicy;
use topology::{Fabric, NodeId};
use units::{OpId, Rank, SimSpan};

pub(crate) use host_link::MessagePart;
pub use vector::{SegmentedVector, VectorContents};

use crate::collective::{CollectiveObserver, CollectiveTiming, LinkReport, OperationPacing, SimulatedOperation};
use crate::counters::FabricCounters;
use crate::fault::{FaultPlan, FaultPlanError};
use crate::network::{LinkParameters, SimulatedNetwork};
use blocks::SegmentBlocks;
pub(crate) use driver::SegmentedDriver;

/// An operation among hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostOperation {
    /// No host continues before all have entered.
    Barrier,
    /// Every host gets the vector of one; the root changes with every operation, as in [`SimulatedOperation::broadcast_root`].
    Broadcast,
    /// One host gets the reduction of all vectors; the root changes in the same way.
    Reduce,
    /// Every host gets the reduction of all vectors.
    AllReduce,
    /// Every host gets its block of the reduction of all vectors.
    ReduceScatter,
    /// Every host gets the blocks of all hosts.
    AllGather,
    /// Every host gets its block of the vector of every host.
    AllToAll,
}

impl HostOperation {
    /// Whether the vector is divided into one block for each host.
    pub const fn has_blocks(self) -> bool {
        matches!(self, Self::ReduceScatter | Self::AllGather | Self::AllToAll)
    }
}

/// The parameters of a collective among hosts.
#[derive(Clone, Debug)]
pub struct SegmentedParameters {
    /// The operation.
    pub operation: HostOperation,
    /// The algorithm.
    pub algorithm: CollectiveAlgorithm,
    /// The vector of each host and its segments.
    pub vector: SegmentedVector,
    /// Segments of a host in progress at once.
    pub window: u32,
    /// Largest payload of a packet.
    pub mtu: u32,
    /// The timers, windows and limits of the connections.
    pub policy: ConnectionPolicy,
    /// Participating hosts, from host 0 on.
    pub members: u32,
    /// Hosts enter an operation at random, up to this much later than the first.
    pub arrival_skew: SimSpan,
    /// Whether an operation starts only after all packets of the last have arrived.
    pub pace: OperationPacing,
    /// An operation that has not ended after this much virtual time counts as hung.
    pub hang_timeout: SimSpan,
}

/// Why the collective cannot be set up.
#[derive(Debug)]
pub enum SegmentedSetupError {
    /// The schedule is invalid, for example because the algorithm does not support the operation.
    Schedule(ScheduleError),
    /// The fault plan does not match the fabric.
    Plan(FaultPlanError),
}

impl fmt::Display for SegmentedSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schedule(error) => error.fmt(f),
            Self::Plan(error) => write!(f, "fault plan: {error}"),
        }
    }
}

impl std::error::Error for SegmentedSetupError {}

impl SegmentedParameters {
    /// The machines' operation number `op`.
    pub(super) fn collective(&self, op: OpId) -> CollectiveOperation {
        let (kind, root) = (self.vector.kind, SimulatedOperation::broadcast_root(op, self.members));
        match self.operation {
            HostOperation::Barrier => CollectiveOperation::Barrier,
            HostOperation::Broadcast => CollectiveOperation::Broadcast { root },
            HostOperation::Reduce => CollectiveOperation::Reduce { root, kind },
            HostOperation::AllReduce => CollectiveOperation::AllReduce { kind },
            HostOperation::ReduceScatter => CollectiveOperation::ReduceScatter { kind },
            HostOperation::AllGather => CollectiveOperation::AllGather,
            HostOperation::AllToAll => CollectiveOperation::AllToAll,
        }
    }

    /// The schedule of a rank for one segment.
    fn schedule(
        &self,
        op: OpId,
        rank: Rank,
        segment: u32,
        order: Option<&Arc<FoldOrder>>,
        blocks: &mut SegmentBlocks,
    ) -> Result<CollectiveSchedule, ScheduleError> {
        let bytes = self.vector.bytes_of(segment);
        match order {
            Some(order) => {
                CollectiveSchedule::ordered(self.algorithm, self.collective(op), rank, order.clone(), bytes)
            }
            None if self.operation.has_blocks() => {
                // A layout exists for every group that has a schedule: a vector has at most 2^30 bytes.
                let layout = blocks.layout(self, rank, segment).map_err(|_| ScheduleError::Size(self.members))?;
                CollectiveSchedule::in_blocks(self.algorithm, self.collective(op), rank, layout)
            }
            None => CollectiveSchedule::new(self.algorithm, self.collective(op), rank, self.members, bytes),
        }
    }
}

/// A collective among the first hosts of a fabric. Rank `n` is host `n`.
pub struct SegmentedCollective {
    network: SimulatedNetwork,
    driver: SegmentedDriver,
}

impl SegmentedCollective {
    /// Sets up the hosts.
    ///
    /// # Errors
    /// If the schedule is invalid, or the plan does not match the fabric.
    pub fn new(
        fabric: Arc<Fabric>,
        link: LinkParameters,
        parameters: SegmentedParameters,
        plan: &FaultPlan,
        seed: u64,
    ) -> Result<Self, SegmentedSetupError> {
        for segment in [0, parameters.vector.segments() - 1] {
            parameters
                .schedule(OpId(0), Rank(0), segment, None, &mut SegmentBlocks::default())
                .map_err(SegmentedSetupError::Schedule)?;
        }
        let mut network = SimulatedNetwork::new(fabric, link);
        network.set_faults(plan, seed).map_err(SegmentedSetupError::Plan)?;
        let hosts = (0..parameters.members).map(NodeId).collect();
        Ok(Self { network, driver: SegmentedDriver::new(parameters, hosts, seed) })
    }

    /// Runs operations one after another; stops early if one hangs. The observer sees each segment as an operation of its own: segment
    /// `s` of operation `o` has the number `o * segments + s`.
    pub fn run(
        &mut self,
        operations: u32,
        observer: &mut dyn CollectiveObserver,
        mut progress: impl FnMut(u32),
    ) -> Vec<CollectiveTiming> {
        let mut timings = Vec::with_capacity(operations as usize);
        for done in 0..operations {
            timings.push(self.driver.run_one(&mut self.network, OpId(done), observer));
            progress(done + 1);
            if self.driver.is_hung() {
                break;
            }
        }
        timings
    }

    /// Places rank `n` on host `hosts[n]`; packed from host 0 on if there are too few. Called before the first operation.
    pub fn place(&mut self, hosts: &[u32]) {
        let members = self.driver.parameters.members as usize;
        if let Some(chosen) = hosts.get(..members) {
            self.driver.hosts = chosen.iter().copied().map(NodeId).collect();
        }
    }

    pub(crate) fn network(&self) -> &SimulatedNetwork {
        &self.network
    }

    pub(crate) fn network_mut(&mut self) -> &mut SimulatedNetwork {
        &mut self.network
    }

    /// Members of the group.
    pub fn ranks(&self) -> u32 {
        self.driver.parameters.members
    }

    /// The counters of the network.
    pub fn counters(&self) -> &FabricCounters {
        &self.network.counters
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }

    /// Bytes of the network's state.
    pub fn memory(&self) -> usize {
        self.network.memory()
    }

    /// Every direction of every cable with a packet, an error or a loss.
    pub fn links(&self) -> impl Iterator<Item = LinkReport> + '_ {
        self.network.link_reports()
    }
}
