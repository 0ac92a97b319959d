//! Pass the events of a group's drivers to the observer, and remember which results every rank has.

use protocol::Payload;
use units::{OpId, Rank};

use super::group::{GroupSegment, SharedFabricObserver};
use super::run_defect::RunDefect;
use crate::collective::{CollectiveObserver, OperationFailure};

/// The operation in progress.
pub(super) struct PresentOperation {
    pub(super) group: usize,
    pub(super) operation: usize,
    segments: u32,
    /// Which ranks have the result of which segment.
    has_result: Vec<bool>,
}

impl PresentOperation {
    pub(super) fn new(group: usize, operation: usize, ranks: u32, segments: u32) -> Self {
        let has_result = vec![false; ranks as usize * segments as usize];
        Self { group, operation, segments, has_result }
    }

    fn segment(&self, segment: u32) -> GroupSegment {
        GroupSegment { group: self.group, operation: self.operation, segment }
    }

    fn result_flag(&mut self, rank: Rank, segment: u32) -> &mut bool {
        &mut self.has_result[rank.index() * self.segments as usize + segment as usize]
    }
}

/// Reports an operation that a tree carries out. A failure is not reported: the hosts finish the operation.
pub(super) struct TreeReporter<'a> {
    pub(super) present: &'a mut PresentOperation,
    pub(super) observer: &'a mut dyn SharedFabricObserver,
    /// The driver's number of the first segment.
    pub(super) first: OpId,
}

impl CollectiveObserver for TreeReporter<'_> {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Payload {
        self.observer.contribution(self.present.segment(op.0.wrapping_sub(self.first.0)), rank)
    }

    fn started(&mut self, rank: Rank, op: OpId) {
        self.observer.started(self.present.segment(op.0.wrapping_sub(self.first.0)), rank);
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        let segment = op.0.wrapping_sub(self.first.0);
        if segment < self.present.segments {
            *self.present.result_flag(rank, segment) = true;
        }
        self.observer.delivered(self.present.segment(segment), rank, result);
    }

    fn failed(&mut self, _: Rank, _: OpId, _: OperationFailure) {}
}

/// Reports an operation that hosts carry out, or finish after their tree has failed.
pub(super) struct HostsReporter<'a> {
    pub(super) present: &'a mut PresentOperation,
    pub(super) observer: &'a mut dyn SharedFabricObserver,
    pub(super) part: HostsPart,
    pub(super) defect: RunDefect,
}

/// What hosts do of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HostsPart {
    /// All of it.
    Whole,
    /// What the tree left; every rank has entered it.
    AfterTree,
}

impl CollectiveObserver for HostsReporter<'_> {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Payload {
        self.observer.contribution(self.present.segment(op.0), rank)
    }

    fn started(&mut self, rank: Rank, op: OpId) {
        if self.part == HostsPart::Whole {
            self.observer.started(self.present.segment(op.0), rank);
        }
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        let has_result = self.present.result_flag(rank, op.0);
        let is_repeated = std::mem::replace(has_result, true) && self.part == HostsPart::AfterTree;
        let segment = self.present.segment(op.0);
        if is_repeated {
            self.observer.recomputed(segment, rank, result);
        } else {
            self.observer.delivered(segment, rank, result);
        }
    }

    fn failed(&mut self, rank: Rank, op: OpId, cause: OperationFailure) {
        // A rank that had the result of the tree has completed the segment.
        if !*self.present.result_flag(rank, op.0) || self.part == HostsPart::Whole {
            let cause = self.defect.in_failure(rank, cause);
            self.observer.failed(self.present.segment(op.0), rank, cause);
        }
    }
}
