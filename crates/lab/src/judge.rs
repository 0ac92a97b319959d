//! The witness that judges: gives members what the oracle chose, and the oracle what they got.

use oracle::{Branch, Expectation, Ledger, Operation, Order, Verdict};
use protocol::Payload;
use protocol::aggregation::AbortCause;
use simulator::collective::{Collective, CollectiveParameters, Contents, Task, Witness};
use simulator::fault::{FaultKind, Plan};
use simulator::scenario::Check;
use topology::{AggregationTree, ChildNode, TreeIndex};
use units::{OpId, Rank};

/// Failures that are listed; the rest are only counted.
const MAX_LISTED: usize = 32;

/// An operation that failed at a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub rank: Rank,
    pub op: OpId,
    pub cause: AbortCause,
}

/// Sees everything, judges at the end.
pub struct Judge {
    seed: u64,
    task: Task,
    ranks: u32,
    /// The operation and the order in which it is folded, if contents are real.
    sum: Option<(Operation, Order)>,
    check: Check,
    ledger: Ledger,
    failures: Vec<Failure>,
}

/// What the judge says.
pub struct Judgement {
    pub verdict: Verdict,
    /// The first of the failures; `verdict.failed` counts all.
    pub failures: Vec<Failure>,
}

impl Judge {
    /// For a run of so many operations.
    pub fn new(
        seed: u64,
        operations: u32,
        collective: &Collective,
        parameters: &CollectiveParameters,
        plan: &Plan,
        check: Check,
    ) -> Self {
        let sum = match parameters.contents {
            Contents::SizeOnly { .. } => None,
            Contents::Real { kind, count } => {
                let same_name = "the oracle knows every element and operator by the same name";
                let operation = Operation {
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
    pub fn judge(self) -> Judgement {
        let verdict = match self.check {
            Check::Nothing => Verdict::default(),
            Check::Bits | Check::Delivery => self.ledger.judge(),
        };
        Judgement { verdict, failures: self.failures }
    }
}

impl Witness for Judge {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Vec<u8> {
        self.sum.as_ref().map_or_else(Vec::new, |(operation, _)| oracle::contribution(self.seed, rank, op, operation))
    }

    fn begun(&mut self, rank: Rank, op: OpId) {
        if self.check != Check::Nothing && matches!(self.task, Task::Barrier(_)) {
            self.ledger.record_arrival(rank, op);
        }
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        if self.check == Check::Nothing {
            return;
        }
        if matches!(self.task, Task::Barrier(_)) {
            self.ledger.record_departure(rank, op);
        }
        match (&self.sum, self.check) {
            (Some((operation, order)), Check::Bits) => {
                if self.ledger.wants_reference(op) {
                    let reference = match self.task {
                        Task::AllReduce => oracle::reference(self.seed, op, operation, order),
                        _ => oracle::contribution(self.seed, Task::teller(op, self.ranks), op, operation),
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
            self.failures.push(Failure { rank, op, cause });
        }
        if self.check != Check::Nothing {
            self.ledger.record_failure(rank, op, cause.to_string());
        }
    }
}

/// Cables that go down and nodes that die are hard faults: operations may fail then, with a cause.
fn expectation(plan: &Plan) -> Expectation {
    let hard = |rule: &simulator::fault::RulePlan| matches!(rule.kind.get_ref(), FaultKind::Down | FaultKind::Kill);
    if plan.rules.iter().any(hard) { Expectation::MayFail } else { Expectation::MustComplete }
}

/// The order in which the tree folds. Members are the first hosts of the fabric, so a host's number is its rank.
fn order(tree: &AggregationTree) -> Order {
    let root: TreeIndex = tree.roots().next().expect("a tree has a root");
    Order::from_tree(ChildNode::Node(root), |place| match place {
        ChildNode::Host(host) => Branch::Rank(Rank(host.0)),
        ChildNode::Node(node) => Branch::Node(tree.node(node).children.iter().map(|child| child.who).collect()),
    })
}
