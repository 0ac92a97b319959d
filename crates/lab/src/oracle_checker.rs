//! Connects the oracle to a simulated run: members contribute what the oracle generates, and the oracle checks their results.

use oracle::{Expectation, Ledger, Reduction, ReferenceOrder, ReferenceOrderNode, Verdict};
use protocol::Payload;
use protocol::aggregation::AbortCause;
use simulator::collective::{
    CollectiveObserver, CollectiveParameters, ContributionContents, SimulatedCollective, SimulatedOperation,
};
use simulator::fault::{FaultKind, FaultPlan};
use simulator::scenario::ResultCheck;
use topology::{AggregationTree, ChildNode, TreeIndex};
use units::{OpId, Rank};

/// Maximum number of listed failures. The rest are only counted.
const MAX_LISTED_FAILURES: usize = 32;

/// An operation that failed at a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FailedOperation {
    pub(crate) rank: Rank,
    pub(crate) op: OpId,
    pub(crate) cause: AbortCause,
}

/// Observes a run; its verdict is due at the end.
pub struct OracleChecker {
    seed: u64,
    task: SimulatedOperation,
    ranks: u32,
    /// The reduction and its fold order, if contributions have contents.
    reduction: Option<(Reduction, ReferenceOrder)>,
    check: ResultCheck,
    ledger: Ledger,
    failures: Vec<FailedOperation>,
}

/// The oracle's verdict on a run.
pub struct OracleJudgement {
    /// Whether the results are right.
    pub verdict: Verdict,
    /// The first failures; `verdict.failed` counts all.
    pub(crate) failures: Vec<FailedOperation>,
}

impl OracleChecker {
    /// A checker for a run of so many operations.
    pub fn new(
        seed: u64,
        operations: u32,
        collective: &SimulatedCollective,
        parameters: &CollectiveParameters,
        plan: &FaultPlan,
        check: ResultCheck,
    ) -> Self {
        let reduction = match parameters.contents {
            ContributionContents::SizeOnly { .. } => None,
            ContributionContents::Real { kind, count } => {
                let same_name = "the oracle uses the same names of elements and operators";
                let operation = Reduction {
                    element: kind.element().name().parse().expect(same_name),
                    operator: kind.operator().name().parse().expect(same_name),
                    count: usize::from(count),
                };
                Some((operation, order(collective.tree())))
            }
        };
        Self {
            seed,
            task: parameters.operation,
            ranks: collective.ranks(),
            reduction,
            check,
            ledger: Ledger::new(collective.ranks(), operations, expectation(plan)),
            failures: Vec::new(),
        }
    }

    /// The verdict on the whole run.
    pub fn judge(self) -> OracleJudgement {
        let verdict = match self.check {
            ResultCheck::Nothing => Verdict::default(),
            ResultCheck::Bits | ResultCheck::Delivery => self.ledger.judge(),
        };
        OracleJudgement { verdict, failures: self.failures }
    }
}

impl CollectiveObserver for OracleChecker {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Vec<u8> {
        self.reduction
            .as_ref()
            .map_or_else(Vec::new, |(operation, _)| oracle::contribution(self.seed, rank, op, operation))
    }

    fn started(&mut self, rank: Rank, op: OpId) {
        if self.check != ResultCheck::Nothing && matches!(self.task, SimulatedOperation::Barrier(_)) {
            self.ledger.record_arrival(rank, op);
        }
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        if self.check == ResultCheck::Nothing {
            return;
        }
        if matches!(self.task, SimulatedOperation::Barrier(_)) {
            self.ledger.record_departure(rank, op);
        }
        match (&self.reduction, self.check) {
            (Some((operation, order)), ResultCheck::Bits) => {
                if self.ledger.needs_reference(op) {
                    let reference = match self.task {
                        SimulatedOperation::AllReduce => oracle::reference(self.seed, op, operation, order),
                        _ => oracle::contribution(
                            self.seed,
                            SimulatedOperation::broadcast_root(op, self.ranks),
                            op,
                            operation,
                        ),
                    };
                    self.ledger.set_reference(op, reference, operation.element_bytes());
                }
                self.ledger.record_delivery(rank, op, result.bytes().unwrap_or_default());
            }
            _ => self.ledger.record_delivery(rank, op, &[]),
        }
    }

    fn failed(&mut self, rank: Rank, op: OpId, cause: AbortCause) {
        if self.failures.len() < MAX_LISTED_FAILURES {
            self.failures.push(FailedOperation { rank, op, cause });
        }
        if self.check != ResultCheck::Nothing {
            self.ledger.record_failure(rank, op, cause.to_string());
        }
    }
}

/// Links that go down and nodes that die are hard faults: operations may then fail with a cause.
fn expectation(plan: &FaultPlan) -> Expectation {
    let hard = |rule: &simulator::fault::FaultRule| matches!(rule.kind.get_ref(), FaultKind::Down | FaultKind::Kill);
    if plan.rules.iter().any(hard) { Expectation::MayFail } else { Expectation::MustComplete }
}

/// The fold order of the tree. Members are the first hosts of the fabric, so the number of a host is its rank.
fn order(tree: &AggregationTree) -> ReferenceOrder {
    let root: TreeIndex = tree.roots().next().expect("a tree has a root");
    ReferenceOrder::from_tree(ChildNode::Node(root), |place| match place {
        ChildNode::Host(host) => ReferenceOrderNode::Rank(Rank(host.0)),
        ChildNode::Node(node) => {
            ReferenceOrderNode::Node(tree.node(node).children.iter().map(|child| child.node).collect())
        }
    })
}
