//! Connects the oracle to a run of several groups: ranks contribute what the oracle generates, and the oracle judges their results.

use oracle::{
    ContributionTable, Expectation, OperationPlace, Reduction, ReferenceOrder, WorkloadLedger, WorkloadVerdict,
};
use protocol::Payload;
use simulator::collective::OperationFailure;
use simulator::segmented::HostOperation;
use simulator::shared_fabric::{
    FabricGroup, FoldReference, GroupOperation, GroupSegment, SharedFabricEnd, SharedFabricObserver, SharedResidue,
};
use units::{OpId, Rank, SimTime};

use super::case::SoakCase;
use crate::reference_fold::{ReferenceFold, oracle_reduction};

/// Observes a run; its verdict is due at the end.
pub(super) struct SoakJudge<'a> {
    case: &'a SoakCase,
    groups: &'a [FabricGroup],
    healed_at: SimTime,
    ledger: WorkloadLedger,
    /// The present operation of each group.
    present: Vec<Option<PresentInputs>>,
}

/// What the oracle knows of the present operation of a group.
struct PresentInputs {
    spec: GroupOperation,
    root: Rank,
    ranks: u32,
    inputs: OperationInputs,
    order: ReferenceFold,
}

/// The contributions.
enum OperationInputs {
    /// Windows of a table.
    Table(ContributionTable),
    /// One by one: a table of exact sums would be megabytes.
    Drawn { seed: u64, reduction: Reduction },
    /// None.
    Empty,
}

impl<'a> SoakJudge<'a> {
    pub(super) fn new(case: &'a SoakCase, groups: &'a [FabricGroup]) -> Self {
        let operations: Vec<usize> = groups.iter().map(|group| group.operations.len()).collect();
        Self {
            case,
            groups,
            healed_at: case.healed_at(),
            ledger: WorkloadLedger::new(&operations),
            present: groups.iter().map(|_| None).collect(),
        }
    }

    /// Takes note of how the run ended, after so many packet hops.
    pub(super) fn record_end(&mut self, end: SharedFabricEnd, hops: u64) {
        match end {
            SharedFabricEnd::Finished => {}
            SharedFabricEnd::Hung { group, operation } => {
                self.ledger.record_hang(OperationPlace { group, operation });
            }
            SharedFabricEnd::PacketStorm => self.ledger.record_storm(hops),
        }
    }

    /// Takes note of what is left after the end. A group that waits for a host or cable that never comes back keeps what it needs for
    /// it, and its retransmissions occupy the fabric.
    pub(super) fn record_residue(&mut self, residue: &SharedResidue) {
        let whole = |group: usize| !self.case.has_permanent_fault(group);
        let of_groups = residue.groups.iter().enumerate().filter(|(group, _)| whole(*group)).map(|(_, part)| part);
        let of_network = Some(&residue.network).filter(|_| (0..self.groups.len()).all(whole));
        for (what, count) in of_groups.chain(of_network).flat_map(|part| part.counts()) {
            self.ledger.record_leftover(what, count);
        }
    }

    /// The verdict on the whole run.
    pub(super) fn judge(self) -> WorkloadVerdict {
        self.ledger.judge()
    }

    fn expectation(&self, group: usize, now: SimTime) -> Expectation {
        let must_complete = !self.case.may_fail() || now >= self.healed_at;
        if must_complete && !self.case.has_permanent_fault(group) {
            Expectation::MustComplete
        } else {
            Expectation::MayFail
        }
    }

    fn inputs(&self, group: usize) -> &PresentInputs {
        self.present[group].as_ref().expect("only operations that have begun have events")
    }
}

fn place(segment: GroupSegment) -> OperationPlace {
    OperationPlace { group: segment.group, operation: segment.operation }
}

impl SharedFabricObserver for SoakJudge<'_> {
    fn begins(&mut self, group: usize, operation: usize, now: SimTime, order: FoldReference<'_>) {
        let FabricGroup { hosts, operations, .. } = &self.groups[group];
        let (spec, ranks) = (operations[operation], hosts.len() as u32);
        let order = match order {
            FoldReference::Tree(tree) => ReferenceFold::of_tree(tree, |host| {
                let rank = hosts.iter().position(|other| *other == host).expect("the tree is over these hosts");
                Rank(rank as u32)
            }),
            FoldReference::Algorithm(algorithm) => ReferenceFold::of_algorithm(algorithm, ranks),
        };
        // No two operations of a run have the same numbers.
        let seed = self.case.seed ^ (group as u64) << 48 ^ (operation as u64) << 32;
        let inputs = OperationInputs::new(seed, ranks, &spec);
        let root = GroupOperation::root(operation, ranks);
        let expectation = self.expectation(group, now);
        self.ledger.begin(OperationPlace { group, operation }, ranks, spec.segments(), expectation);
        self.present[group] = Some(PresentInputs { spec, root, ranks, inputs, order });
    }

    fn contribution(&mut self, segment: GroupSegment, rank: Rank) -> Payload {
        Payload::Bytes(self.inputs(segment.group).contribution(rank, segment.segment).into())
    }

    fn started(&mut self, segment: GroupSegment, rank: Rank) {
        if self.inputs(segment.group).spec.operation == HostOperation::Barrier {
            self.ledger.operation(place(segment)).record_arrival(rank, OpId(segment.segment));
        }
    }

    fn delivered(&mut self, segment: GroupSegment, rank: Rank, result: &Payload) {
        let op = OpId(segment.segment);
        let inputs = self.present[segment.group].as_ref().expect("only operations that have begun have events");
        let ledger = self.ledger.operation(place(segment));
        match inputs.spec.operation {
            HostOperation::Barrier => {
                ledger.record_departure(rank, op);
                ledger.record_delivery(rank, op, &[]);
            }
            HostOperation::Reduce if rank != inputs.root => ledger.record_completion(rank, op),
            HostOperation::Broadcast | HostOperation::Reduce | HostOperation::AllReduce => {
                if ledger.needs_reference(op) {
                    ledger.set_reference(op, inputs.reference(segment.segment), inputs.spec.kind.element_size());
                }
                ledger.record_delivery(rank, op, result.bytes().unwrap_or_default());
            }
            HostOperation::ReduceScatter | HostOperation::AllGather | HostOperation::AllToAll => not_of_the_soak(),
        }
    }

    fn recomputed(&mut self, segment: GroupSegment, rank: Rank, result: &Payload) {
        let inputs = self.inputs(segment.group);
        let has_result = match inputs.spec.operation {
            HostOperation::Barrier => false,
            HostOperation::Reduce => rank == inputs.root,
            HostOperation::Broadcast | HostOperation::AllReduce => true,
            HostOperation::ReduceScatter | HostOperation::AllGather | HostOperation::AllToAll => not_of_the_soak(),
        };
        if has_result {
            let (reference, size) = (inputs.reference(segment.segment), inputs.spec.kind.element_size());
            let bytes = result.bytes().unwrap_or_default();
            let ledger = self.ledger.operation(place(segment));
            ledger.record_recomputation(rank, OpId(segment.segment), bytes, (&reference, size));
        }
    }

    fn failed(&mut self, segment: GroupSegment, rank: Rank, cause: OperationFailure) {
        self.ledger.record_failure(place(segment), rank, OpId(segment.segment), cause.to_string());
    }
}

/// A case with such an operation is rejected before it runs (`setup`).
fn not_of_the_soak() -> ! {
    unreachable!("the soak has no operations over blocks")
}

impl OperationInputs {
    fn new(seed: u64, ranks: u32, spec: &GroupOperation) -> Self {
        let count = spec.elements_of(0) as usize;
        if count == 0 {
            return Self::Empty;
        }
        let reduction = oracle_reduction(spec.kind, count);
        if spec.kind.element().is_wide() {
            return Self::Drawn { seed, reduction };
        }
        Self::Table(ContributionTable::new(seed, ranks, reduction))
    }
}

impl PresentInputs {
    /// Elements of a segment.
    fn elements(&self, segment: u32) -> usize {
        self.spec.elements_of(segment) as usize
    }

    fn contribution(&self, rank: Rank, segment: u32) -> Vec<u8> {
        let bytes = self.elements(segment) * self.spec.kind.element_size();
        match &self.inputs {
            OperationInputs::Empty => Vec::new(),
            OperationInputs::Table(table) => table.contribution(rank, OpId(segment))[..bytes].to_vec(),
            OperationInputs::Drawn { seed, reduction } => {
                let reduction = Reduction { count: self.elements(segment), ..*reduction };
                oracle::contribution(*seed, rank, OpId(segment), &reduction)
            }
        }
    }

    /// The bits that every rank with a result must have.
    fn reference(&self, segment: u32) -> Vec<u8> {
        if self.spec.operation == HostOperation::Broadcast {
            return self.contribution(self.root, segment);
        }
        let (op, elements) = (OpId(segment), self.elements(segment));
        match &self.inputs {
            OperationInputs::Empty => Vec::new(),
            OperationInputs::Drawn { seed, reduction } => {
                // An exact sum depends only on the ranks.
                let reduction = Reduction { count: elements, ..*reduction };
                oracle::reference(*seed, op, &reduction, &ReferenceOrder::flat(self.ranks))
            }
            OperationInputs::Table(table) => self.order.result(table, op, elements, self.ranks),
        }
    }
}
