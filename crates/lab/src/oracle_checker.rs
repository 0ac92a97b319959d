//! Connects the oracle to a simulated run: members contribute what the oracle generates, and the oracle checks their results.
//!
//! Each segment of a long vector is an operation of its own: segment `s` of operation `o` has the number `o * segments + s`.

use oracle::{ContributionTable, Expectation, Ledger, ReferenceOrder, Verdict};
use protocol::Payload;
use simulator::collective::{
    CollectiveObserver, CollectiveParameters, ContributionContents, OperationFailure, SimulatedCollective,
    SimulatedOperation,
};
use simulator::fault::FaultPlan;
use simulator::scenario::{QsnetScenario, ResultCheck, Scenario, ScenarioJob, ScenarioRun};
use simulator::segmented::{HostOperation, SegmentedParameters, SegmentedVector, VectorContents};
use topology::AggregationTree;
use units::{OpId, Rank};

use crate::reference_fold::{ReferenceFold, oracle_reduction};

/// Maximum number of listed failures. The rest are only counted.
const MAX_LISTED_FAILURES: usize = 32;

/// An operation that failed at a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FailedOperation {
    pub(crate) rank: Rank,
    pub(crate) op: OpId,
    pub(crate) cause: OperationFailure,
}

/// The failures of one cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FailureGroup {
    pub(crate) cause: OperationFailure,
    /// Results that members did not get.
    pub(crate) results: u64,
    pub(crate) first: OpId,
    pub(crate) last: OpId,
}

/// The root of each broadcast or reduce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BroadcastRoots {
    /// Every operation has another one.
    Rotating,
    /// The first member.
    First,
}

/// Observes a run; its verdict is due at the end.
pub struct OracleChecker {
    task: HostOperation,
    ranks: u32,
    roots: BroadcastRoots,
    segments: u32,
    /// The contributions, if they have contents.
    table: Option<ContributionTable>,
    order: ReferenceFold,
    /// Elements of the last segment of a vector; the others have as many as the table's operation.
    last_elements: usize,
    check: ResultCheck,
    ledger: Ledger,
    failures: Vec<FailedOperation>,
    groups: Vec<FailureGroup>,
}

/// The oracle's verdict on a run.
#[derive(Default)]
pub struct OracleJudgement {
    /// Whether the results are right.
    pub verdict: Verdict,
    /// The first failures; `verdict.failed` counts all.
    pub(crate) failures: Vec<FailedOperation>,
    /// All failures, by cause.
    pub(crate) groups: Vec<FailureGroup>,
}

impl OracleChecker {
    /// A checker for the run of a scenario.
    pub fn of_scenario(scenario: &Scenario, run: &ScenarioRun) -> Self {
        let (seed, operations, check) = (scenario.seed, scenario.operations, scenario.check);
        match (run, &scenario.hosts) {
            (ScenarioRun::Hosts(_), Some(hosts)) => Self::of_hosts(seed, operations, hosts, &scenario.plan, check),
            (ScenarioRun::Tree(tree), _) => {
                Self::new(seed, operations, tree, &scenario.collective, &scenario.plan, check)
            }
            (ScenarioRun::Flows(_), _) => Self::of_flows(),
            (ScenarioRun::Jobs(_), _) => unreachable!("jobs are judged one by one"),
            (ScenarioRun::Hosts(_), None) => unreachable!("a run among hosts has their parameters"),
        }
    }

    /// A checker for so many operations with an aggregation tree.
    pub fn new(
        seed: u64,
        operations: u32,
        collective: &SimulatedCollective,
        parameters: &CollectiveParameters,
        plan: &FaultPlan,
        check: ResultCheck,
    ) -> Self {
        let ranks = collective.ranks();
        let (table, last_elements) = match parameters.contents {
            ContributionContents::SizeOnly { .. } => (None, 0),
            ContributionContents::Real { kind, count } => {
                let last_bytes = parameters.segment_bytes(parameters.segments() - 1) as usize;
                let table = ContributionTable::new(seed, ranks, oracle_reduction(kind, usize::from(count)));
                (Some(table), last_bytes / kind.element_size())
            }
        };
        let task = match parameters.operation {
            SimulatedOperation::AllReduce => HostOperation::AllReduce,
            SimulatedOperation::Reduce => HostOperation::Reduce,
            SimulatedOperation::Broadcast(_) => HostOperation::Broadcast,
            SimulatedOperation::Barrier(_) => HostOperation::Barrier,
        };
        let segments = parameters.segments();
        // Only contents need the order, and a tree may have a million leaves.
        let order = match &table {
            None => ReferenceFold::Same(ReferenceOrder::flat(0)),
            // Members are the first hosts of the fabric, so the number of a host is its rank.
            Some(_) => ReferenceFold::of_tree(collective.tree(), |host| Rank(host.0)),
        };
        let ledger = Ledger::new(ranks, operations * segments, expectation(plan));
        Self::of_parts(task, ranks, segments, (table, last_elements), order, check, ledger)
    }

    /// A checker for so many operations among hosts.
    pub fn of_hosts(
        seed: u64,
        operations: u32,
        parameters: &SegmentedParameters,
        plan: &FaultPlan,
        check: ResultCheck,
    ) -> Self {
        let order = ReferenceFold::of_algorithm(parameters.algorithm, parameters.members);
        let task = (parameters.operation, operations);
        Self::of_vector(seed, parameters.members, task, &parameters.vector, order, expectation(plan), check)
    }

    /// A checker for the operations of a job. Each of them says in which order it is folded ([`Self::set_order`]).
    pub(crate) fn of_job(seed: u64, job: &ScenarioJob, plan: &FaultPlan) -> Self {
        let order = ReferenceFold::Same(ReferenceOrder::flat(0));
        let task = (job.operation, job.operations);
        Self::of_vector(seed, job.members(), task, &job.vector, order, expectation(plan), job.check)
    }

    fn of_vector(
        seed: u64,
        ranks: u32,
        (task, operations): (HostOperation, u32),
        vector: &SegmentedVector,
        order: ReferenceFold,
        expectation: Expectation,
        check: ResultCheck,
    ) -> Self {
        let is_real = vector.contents != VectorContents::SizeOnly && vector.elements > 0;
        let count = vector.segment_elements.min(vector.elements) as usize;
        let table = is_real.then(|| ContributionTable::new(seed, ranks, oracle_reduction(vector.kind, count)));
        let segments = vector.segments();
        let last_elements = vector.elements_of(segments - 1).len();
        let ledger = Ledger::new(ranks, operations * segments, expectation);
        Self::of_parts(task, ranks, segments, (table, last_elements), order, check, ledger)
    }

    /// A checker for a run on QsNet, where the first member is the root of every broadcast.
    pub fn of_qsnet(scenario: &Scenario, qsnet: &QsnetScenario) -> Self {
        let ranks = scenario.members();
        let (table, elements) = match qsnet.kind {
            None => (None, 0),
            Some(kind) => {
                let elements = qsnet.bytes as usize / kind.element_size();
                let table = ContributionTable::new(scenario.seed, ranks, oracle_reduction(kind, elements));
                (Some(table), elements)
            }
        };
        // Nothing is reduced.
        let order = ReferenceFold::Same(ReferenceOrder::flat(0));
        let ledger = Ledger::new(ranks, scenario.operations, expectation(&scenario.plan));
        let operation = qsnet.algorithm.operation();
        let checker = Self::of_parts(operation, ranks, 1, (table, elements), order, scenario.check, ledger);
        Self { roots: BroadcastRoots::First, ..checker }
    }

    /// Flows have no contents: the engine counts their bytes, and there is nothing to compare.
    fn of_flows() -> Self {
        let (order, ledger) = (ReferenceFold::Same(ReferenceOrder::flat(0)), Ledger::new(1, 1, Expectation::MayFail));
        Self::of_parts(HostOperation::AllReduce, 1, 1, (None, 0), order, ResultCheck::Nothing, ledger)
    }

    fn of_parts(
        task: HostOperation,
        ranks: u32,
        segments: u32,
        (table, last_elements): (Option<ContributionTable>, usize),
        order: ReferenceFold,
        check: ResultCheck,
        ledger: Ledger,
    ) -> Self {
        let (failures, groups, roots) = (Vec::new(), Vec::new(), BroadcastRoots::Rotating);
        Self { task, ranks, roots, segments, table, order, last_elements, check, ledger, failures, groups }
    }

    /// The order in which the next results are folded.
    pub(crate) fn set_order(&mut self, order: ReferenceFold) {
        self.order = order;
    }

    /// Whether contributions have contents, so that the order of folding matters.
    pub(crate) fn has_contents(&self) -> bool {
        self.table.is_some()
    }

    /// A result that a rank has was computed again: the bits must be the same.
    pub(crate) fn recomputed(&mut self, rank: Rank, op: OpId, result: &Payload) {
        let has_result = match self.task {
            HostOperation::Barrier => false,
            HostOperation::Reduce => rank == self.root(op),
            _ => true,
        };
        if let (Some(table), ResultCheck::Bits, true) = (&self.table, self.check, has_result) {
            let (reference, size) = (self.reference(table, op), table.operation().element_bytes());
            let bytes = result.bytes().unwrap_or_default();
            self.ledger.record_recomputation(rank, op, bytes, (&reference, size));
        }
    }

    /// The run ended before the operations from this one on had begun.
    pub(crate) fn stop_before(&mut self, operation: u32) {
        self.ledger.forget_from(OpId(operation * self.segments));
    }

    /// The verdict on the whole run.
    pub fn judge(self) -> OracleJudgement {
        let verdict = match self.check {
            ResultCheck::Nothing => Verdict::default(),
            ResultCheck::Bits | ResultCheck::Delivery => self.ledger.judge(),
        };
        OracleJudgement { verdict, failures: self.failures, groups: self.groups }
    }

    fn root(&self, op: OpId) -> Rank {
        match self.roots {
            BroadcastRoots::Rotating => SimulatedOperation::broadcast_root(OpId(op.0 / self.segments), self.ranks),
            BroadcastRoots::First => Rank(0),
        }
    }

    /// Elements of a segment.
    fn elements(&self, table: &ContributionTable, op: OpId) -> usize {
        if op.0 % self.segments + 1 == self.segments { self.last_elements } else { table.operation().count }
    }

    /// The bits that every rank with a result must have.
    fn reference(&self, table: &ContributionTable, op: OpId) -> Vec<u8> {
        let elements = self.elements(table, op);
        match self.task {
            HostOperation::Broadcast | HostOperation::Barrier => {
                table.contribution(self.root(op), op)[..elements * table.operation().element_bytes()].to_vec()
            }
            HostOperation::Reduce | HostOperation::AllReduce => self.order.result(table, op, elements, self.ranks),
            HostOperation::AllGather => table.gathered(op, elements, self.ranks),
            HostOperation::ReduceScatter | HostOperation::AllToAll => unreachable!("every rank has its own result"),
        }
    }

    /// The bits that this rank must have, in an operation whose ranks have different results.
    fn own_reference(&self, table: &ContributionTable, rank: Rank, op: OpId) -> Vec<u8> {
        let elements = self.elements(table, op);
        match self.task {
            HostOperation::AllToAll => table.exchanged(op, elements, self.ranks, rank),
            _ => self.order.block_result(table, op, elements, (self.ranks, rank)),
        }
    }

    fn record_delivery(&mut self, rank: Rank, op: OpId, result: &Payload) {
        if self.task == HostOperation::Barrier {
            self.ledger.record_departure(rank, op);
        }
        if self.task == HostOperation::Reduce && rank != self.root(op) {
            return self.ledger.record_completion(rank, op);
        }
        let has_own_result = matches!(self.task, HostOperation::ReduceScatter | HostOperation::AllToAll);
        match (&self.table, self.check) {
            (Some(table), ResultCheck::Bits) if has_own_result => {
                let (reference, size) = (self.own_reference(table, rank, op), table.operation().element_bytes());
                let bytes = result.bytes().unwrap_or_default();
                self.ledger.record_own_delivery(rank, op, bytes, (&reference, size));
            }
            (Some(table), ResultCheck::Bits) => {
                if self.ledger.needs_reference(op) {
                    let (reference, element_bytes) = (self.reference(table, op), table.operation().element_bytes());
                    self.ledger.set_reference(op, reference, element_bytes);
                }
                self.ledger.record_delivery(rank, op, result.bytes().unwrap_or_default());
            }
            _ => self.ledger.record_delivery(rank, op, &[]),
        }
    }
}

impl CollectiveObserver for OracleChecker {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Payload {
        let bytes = self.table.as_ref().map_or(&[][..], |table| {
            let bytes = self.elements(table, op) * table.operation().element_bytes();
            &table.contribution(rank, op)[..bytes]
        });
        Payload::Bytes(bytes.into())
    }

    fn started(&mut self, rank: Rank, op: OpId) {
        if self.check != ResultCheck::Nothing && self.task == HostOperation::Barrier {
            self.ledger.record_arrival(rank, op);
        }
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        if self.check != ResultCheck::Nothing {
            self.record_delivery(rank, op, result);
        }
    }

    fn tree_rebuilt(&mut self, tree: &AggregationTree) {
        if self.table.is_some() {
            self.order = ReferenceFold::of_tree(tree, |host| Rank(host.0));
        }
    }

    fn failed(&mut self, rank: Rank, op: OpId, cause: OperationFailure) {
        let op_of_run = OpId(op.0 / self.segments);
        match self.groups.iter_mut().find(|group| group.cause == cause) {
            Some(group) => {
                group.results += 1;
                group.first = group.first.min(op_of_run);
                group.last = group.last.max(op_of_run);
            }
            None => self.groups.push(FailureGroup { cause, results: 1, first: op_of_run, last: op_of_run }),
        }
        if self.failures.len() < MAX_LISTED_FAILURES {
            self.failures.push(FailedOperation { rank, op: op_of_run, cause });
        }
        if self.check != ResultCheck::Nothing {
            self.ledger.record_failure(rank, op, cause.to_string());
        }
    }
}

/// Links that go down and nodes that die are hard faults: operations may then fail with a cause.
fn expectation(plan: &FaultPlan) -> Expectation {
    let hard = |rule: &simulator::fault::FaultRule| !rule.kind.get_ref().is_of_packets();
    if plan.rules.iter().any(hard) { Expectation::MayFail } else { Expectation::MustComplete }
}
