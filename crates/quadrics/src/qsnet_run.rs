//! A collective on the Quadrics network as a scenario asks for it: with a fault plan, an observer, and counters for a report.
//!
//! In: the network, the adapters, a collective and a plan. Out: the duration of each operation; the observer gets what every member
//! received. If a destination does not answer, the operation fails at all members that have not completed it, all adapters are reset
//! and the next operation begins.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use faults::FaultPlan;
use protocol::Payload;
use protocol::collective::quadrics::QuadricsMembers;
use simulator::FabricCounters;
use simulator::collective::{CollectiveObserver, CollectiveTiming, LinkReport, OperationFailure};
use simulator::fault::{FaultPlanError, LinkFaults};
use units::{AdapterLane, OpId, Rank, SimSpan, SimTime};

use super::elan::{
    CallStage, ElanBackground, ElanCluster, ElanCollective, ElanCosts, ElanWorkload, LostDestination, ObservedStep,
    RetryPolicy, RunEnd,
};
use super::fabric_links;
use super::packet::QsnetParameters;
use super::quaternary_tree::QuaternaryTree;

/// Operations that take longer than this, on average, count as hanging.
const PATIENCE: SimSpan = SimSpan::from_micros(1_000_000);

/// What the members do.
#[derive(Clone, Debug)]
pub struct QsnetCollective {
    /// The operation.
    pub operation: ElanCollective,
    /// The nodes.
    pub members: QuadricsMembers,
    /// Members enter up to this much later than they could.
    pub late: SimSpan,
    /// Whether a broadcast's data is real.
    pub contents: BroadcastContents,
}

/// Whether a broadcast's data is real.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BroadcastContents {
    /// The observer gives the bytes.
    Real,
    /// Only the size is simulated.
    SizeOnly,
}

/// A run.
pub struct QsnetRun {
    cluster: ElanCluster,
    collective: QsnetCollective,
    tree: QuaternaryTree,
}

/// The observer and what is known about the operations in progress.
struct ObservedOperations<'o> {
    observer: &'o mut dyn CollectiveObserver,
    progress: &'o mut dyn FnMut(u32),
    contents: BroadcastContents,
    root: Rank,
    members: u32,
    /// The operation of call 0.
    first: u32,
    operations: BTreeMap<u32, OperationRecord>,
    timings: Vec<CollectiveTiming>,
}

/// An operation that not all members have completed.
struct OperationRecord {
    begun: SimTime,
    completed: Vec<bool>,
    missing: u32,
}

impl QsnetRun {
    /// A network at rest, but for its background; none if the parameters are invalid.
    ///
    /// # Errors
    /// The plan names a link or node that does not exist.
    pub fn new(
        (network, costs): (QsnetParameters, ElanCosts),
        background: Option<ElanBackground>,
        collective: QsnetCollective,
        (plan, retry): (&FaultPlan, RetryPolicy),
        seed: u64,
    ) -> Result<Option<Self>, FaultPlanError> {
        let Some(tree) = QuaternaryTree::new(network.dimension) else { return Ok(None) };
        let (Ok(fabric), Some(mut cluster)) =
            (fabric_links::fabric(tree), ElanCluster::new(network, costs, background, seed))
        else {
            return Ok(None);
        };
        cluster.set_faults(LinkFaults::new(plan, seed, &fabric, &fabric_links::link_ends(tree))?, retry);
        Ok(Some(Self { cluster, collective, tree }))
    }

    /// Runs operations back to back; each has a duration, unless it failed at a member. Stops early if one hangs.
    pub fn run(
        &mut self,
        operations: u32,
        observer: &mut dyn CollectiveObserver,
        mut progress: impl FnMut(u32),
    ) -> Vec<CollectiveTiming> {
        let members = self.collective.members.size();
        let mut observed = ObservedOperations {
            observer,
            progress: &mut progress,
            contents: self.collective.contents,
            root: self.collective.members.root(),
            members,
            first: 0,
            operations: BTreeMap::new(),
            timings: Vec::with_capacity(operations as usize),
        };
        while observed.first < operations {
            let calls = operations - observed.first;
            let task = ElanWorkload {
                operation: self.collective.operation,
                members: self.collective.members.clone(),
                processes: 1,
                multicast_root: 0,
                calls,
                patience: PATIENCE.times(calls.into()),
            };
            let end = self.cluster.run_observed(
                &task,
                self.collective.late,
                &mut observed,
                ObservedOperations::contribution,
                ObservedOperations::handle,
            );
            match end {
                Some(RunEnd::Completed) => observed.first = operations,
                Some(RunEnd::Lost(lost)) => {
                    observed.fail(lost);
                    self.cluster.reset();
                }
                Some(RunEnd::OutOfPatience) | None => {
                    observed.timings.push(CollectiveTiming { reduce: None, complete: None });
                    break;
                }
            }
        }
        observed.timings
    }

    /// Members of the group.
    pub fn ranks(&self) -> u32 {
        self.collective.members.size()
    }

    /// The simulated time so far.
    pub fn elapsed(&self) -> SimSpan {
        self.cluster.elapsed()
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.cluster.trace()
    }

    /// Background messages that have been acknowledged completely.
    pub fn background_messages(&self) -> u64 {
        self.cluster.background_messages()
    }

    /// Bytes of the network's state.
    pub fn memory(&self) -> usize {
        self.cluster.memory()
    }

    /// The counters of the network.
    pub fn counters(&self) -> FabricCounters {
        let (errors, wormhole) = (self.cluster.errors(), self.cluster.counters());
        FabricCounters {
            hops: wormhole.hops,
            delivered: wormhole.packets - wormhole.damaged,
            ..errors.cloned().unwrap_or_default()
        }
    }

    /// Every direction of every cable with a packet, an error or a loss.
    pub fn links(&self) -> impl Iterator<Item = LinkReport> + '_ {
        fabric_links::link_ends(self.tree).into_iter().enumerate().filter_map(|(number, (from, to))| {
            let (traffic, tally) = self.cluster.link_record(number as u32)?;
            let is_used = traffic.packets > 0 || tally.damaged + tally.lost > 0;
            let (packets, bytes) = (traffic.packets, traffic.bytes);
            is_used.then_some(LinkReport { from, to, lane: AdapterLane(0), packets, bytes, tally })
        })
    }
}

impl ObservedOperations<'_> {
    fn operation(&self, call: u32) -> OpId {
        OpId(self.first + call)
    }

    /// The root's data of a call.
    fn contribution(&mut self, call: u32) -> Vec<u8> {
        if self.contents == BroadcastContents::SizeOnly {
            return Vec::new();
        }
        let payload = self.observer.contribution(self.root, self.operation(call));
        payload.bytes().unwrap_or_default().to_vec()
    }

    fn handle(&mut self, event: ObservedStep) {
        let ObservedStep { rank, call, step, at, result } = event;
        let op = self.operation(call);
        match step {
            CallStage::Called => {
                let (members, begun) = (self.members, at);
                self.operations.entry(op.0).or_insert_with(|| OperationRecord {
                    begun,
                    completed: vec![false; members as usize],
                    missing: members,
                });
            }
            CallStage::Entered => self.observer.started(rank, op),
            CallStage::Completed => {
                let result = match self.contents {
                    BroadcastContents::Real => Payload::Bytes(result.into()),
                    BroadcastContents::SizeOnly => Payload::Bytes([].into()),
                };
                self.observer.delivered(rank, op, &result);
                self.complete(rank, op, at);
            }
        }
    }

    fn complete(&mut self, rank: Rank, op: OpId, at: SimTime) {
        let Some(record) = self.operations.get_mut(&op.0) else { return };
        if std::mem::replace(&mut record.completed[rank.index()], true) {
            return; // The observer counts what is delivered twice.
        }
        record.missing -= 1;
        if record.missing == 0 {
            let took = at.since(record.begun);
            self.operations.remove(&op.0);
            self.end(CollectiveTiming { reduce: None, complete: Some(took) });
        }
    }

    /// All operations in progress fail at the members that have not completed them.
    fn fail(&mut self, LostDestination { from, to }: LostDestination) {
        let cause = OperationFailure::Unreachable { from, to };
        for (number, record) in std::mem::take(&mut self.operations) {
            for rank in (0..self.members).filter(|rank| !record.completed[*rank as usize]) {
                self.observer.failed(Rank(rank), OpId(number), cause);
            }
            self.end(CollectiveTiming { reduce: None, complete: None });
        }
        self.first = self.timings.len() as u32;
    }

    fn end(&mut self, timing: CollectiveTiming) {
        self.timings.push(timing);
        (self.progress)(self.timings.len() as u32);
    }
}
