//! The witness that judges: gives members what the oracle chose, and the oracle what they got.

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

/// Failures that are listed; the rest are only counted.
const MAX_LISTED: usize = 32;

/// An operation that failed at a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedOperation {
    pub rank: Rank,
    pub op: OpId,
    pub cause: AbortCause,
}

/// Sees everything, judges at the end.
pub struct OracleChecker {
    seed: u64,
    task: SimulatedOperation,
    ranks: u32,
    /// The operation and the order in which it is folded, if contents are real.
    sum: Option<(Reduction, ReferenceOrder)>,
    check: ResultCheck,
    ledger: Ledger,
    failures: Vec<FailedOperation>,
}

/// What the judge says.
pub struct OracleJudgement {
    pub verdict: Verdict,
    /// The first of the failures; `verdict.failed` counts all.
    pub failures: Vec<FailedOperation>,
}

impl OracleChecker {
    /// For a run of so many operations.
    pub fn new(
        seed: u64,
        operations: u32,
        collective: &SimulatedCollective,
        parameters: &CollectiveParameters,
        plan: &FaultPlan,
        check: ResultCheck,
    ) -> Self {
        let sum = match parameters.contents {
            ContributionContents::SizeOnly { .. } => None,
            ContributionContents::Real { kind, count } => {
                let same_name = "the oracle knows every element and operator by the same name";
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
            task: parameters.task,
            ranks: collective.ranks(),
            sum,
            check,
            ledger: Ledger::new(collective.ranks(), operations, expectation(plan)),
            failures: Vec::new(),
        }
    }

    /// The run is over.
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
        self.sum.as_ref().map_or_else(Vec::new, |(operation, _)| oracle::contribution(self.seed, rank, op, operation))
    }

    fn begun(&mut self, rank: Rank, op: OpId) {
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
        match (&self.sum, self.check) {
            (Some((operation, order)), ResultCheck::Bits) => {
                if self.ledger.wants_reference(op) {
                    let reference = match self.task {
                        SimulatedOperation::AllReduce => oracle::reference(self.seed, op, operation, order),
                        _ => {
                            oracle::contribution(self.seed, SimulatedOperation::teller(op, self.ranks), op, operation)
                        }
                    };
                    self.ledger.expect(op, reference, operation.element_bytes());
                }
                self.ledger.record_delivery(rank, op, result.bytes().unwrap_or_default());
            }
            _ => self.ledger.record_delivery(rank, op, &[]),
        }
    }

    fn failed(&mut self, rank: Rank, op: OpId, cause: AbortCause) {
        if self.failures.len() < MAX_LISTED {
            self.failures.push(FailedOperation { rank, op, cause });
        }
        if self.check != ResultCheck::Nothing {
            self.ledger.record_failure(rank, op, cause.to_string());
        }
    }
}

/// Cables that go down and nodes that die are hard faults: operations may fail then, with a cause.
fn expectation(plan: &FaultPlan) -> Expectation {
    let hard = |rule: &simulator::fault::FaultRule| matches!(rule.kind.get_ref(), FaultKind::Down | FaultKind::Kill);
    if plan.rules.iter().any(hard) { Expectation::MayFail } else { Expectation::MustComplete }
}

/// The order in which the tree folds. Members are the first hosts of the fabric, so a host's number is its rank.
fn order(tree: &AggregationTree) -> ReferenceOrder {
    let root: TreeIndex = tree.roots().next().expect("a tree has a root");
    ReferenceOrder::from_tree(ChildNode::Node(root), |place| match place {
        ChildNode::Host(host) => ReferenceOrderNode::Rank(Rank(host.0)),
        ChildNode::Node(node) => {
            ReferenceOrderNode::Node(tree.node(node).children.iter().map(|child| child.who).collect())
        }
    })
}
