//! What a group does, and who watches it.

use protocol::Payload;
use protocol::collective::CollectiveAlgorithm;
use protocol::connection::ConnectionPolicy;
use reduce::ReductionKind;
use topology::{AggregationTree, NodeId};
use units::{Rank, SimSpan, SimTime};

use crate::collective::{CollectiveMethod, CollectiveParameters, OperationFailure};
use crate::segmented::{HostOperation, VectorContents};

/// A group of hosts and its operations.
#[derive(Clone, Debug)]
pub struct FabricGroup {
    /// Its hosts; rank `n` is the `n`-th. In ascending order, if any of its operations uses a tree.
    pub hosts: Vec<NodeId>,
    /// How its trees work. The fields that say what an operation is are those of each operation.
    pub tree: CollectiveParameters,
    /// The connections among its hosts.
    pub policy: ConnectionPolicy,
    /// Largest payload of a packet among hosts.
    pub mtu: u32,
    /// Segments of a host in progress at once, in operations among hosts.
    pub window: u32,
    /// The operations, one after another.
    pub operations: Vec<GroupOperation>,
    /// An operation that has not ended after this much virtual time counts as hung.
    pub hang_timeout: SimSpan,
    /// What follows an operation that failed.
    pub after_failure: AfterFailure,
}

/// What a group does when one of its operations has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterFailure {
    /// The next operation, over new connections.
    GoOn,
    /// Nothing more, like a job that ends with its first error.
    Stop,
}

/// One operation of a group.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GroupOperation {
    /// What it does.
    pub operation: HostOperation,
    /// Who carries it out.
    pub method: GroupMethod,
    /// Element type and operator.
    pub kind: ReductionKind,
    /// Elements of each vector.
    pub elements: u32,
    /// Elements of a segment; at least 1.
    pub segment_elements: u32,
    /// What the elements are.
    pub contents: VectorContents,
    /// It does not start before this time.
    pub not_before: SimTime,
}

impl GroupOperation {
    /// The number of segments; an empty vector has one empty segment.
    pub fn segments(&self) -> u32 {
        self.elements.div_ceil(self.segment_elements).max(1)
    }

    /// Elements of a segment.
    pub fn elements_of(&self, segment: u32) -> u32 {
        let start = segment * self.segment_elements;
        self.elements.min(start + self.segment_elements) - start
    }

    /// The root of the operation at this position in a group of so many ranks: it changes with every operation.
    pub fn root(position: usize, ranks: u32) -> Rank {
        Rank(position as u32 % ranks)
    }
}

/// Who carries out an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupMethod {
    /// An aggregation tree.
    Tree(CollectiveMethod),
    /// The hosts.
    Hosts(CollectiveAlgorithm),
}

/// A segment of an operation of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupSegment {
    /// The group.
    pub group: usize,
    /// The position of the operation among those of the group.
    pub operation: usize,
    /// The segment.
    pub segment: u32,
}

/// In which order an operation is folded.
#[derive(Clone, Copy, Debug)]
pub enum FoldReference<'a> {
    /// In the order of this tree, whoever finishes it.
    Tree(&'a AggregationTree),
    /// In the order of this algorithm.
    Algorithm(CollectiveAlgorithm),
}

/// Supplies the contributions and receives the results.
pub trait SharedFabricObserver {
    /// An operation starts at this time. If a tree cannot be placed, the hosts carry it out instead.
    fn begins(&mut self, group: usize, operation: usize, now: SimTime, order: FoldReference<'_>);
    /// The contribution of a rank; called only for ranks that contribute.
    fn contribution(&mut self, segment: GroupSegment, rank: Rank) -> Payload;
    /// A rank has entered a segment.
    fn started(&mut self, segment: GroupSegment, rank: Rank);
    /// A rank has a result.
    fn delivered(&mut self, segment: GroupSegment, rank: Rank, result: &Payload);
    /// The tree has failed, and the hosts computed a result anew that this rank had from the tree.
    fn recomputed(&mut self, segment: GroupSegment, rank: Rank, result: &Payload);
    /// A rank's operation has failed.
    fn failed(&mut self, segment: GroupSegment, rank: Rank, cause: OperationFailure);
    /// An operation has completed or failed at every rank.
    fn ends(&mut self, _group: usize, _operation: usize, _now: SimTime) {}
}

/// Ignores all events: after the last operation there are none to judge.
pub(super) struct NoFabricObserver;

impl SharedFabricObserver for NoFabricObserver {
    fn begins(&mut self, _: usize, _: usize, _: SimTime, _: FoldReference<'_>) {}
    fn contribution(&mut self, _: GroupSegment, _: Rank) -> Payload {
        Payload::EMPTY
    }
    fn started(&mut self, _: GroupSegment, _: Rank) {}
    fn delivered(&mut self, _: GroupSegment, _: Rank, _: &Payload) {}
    fn recomputed(&mut self, _: GroupSegment, _: Rank, _: &Payload) {}
    fn failed(&mut self, _: GroupSegment, _: Rank, _: OperationFailure) {}
}
