//! A trial: from one number a fabric, a replication scheme, an operation and a fault plan; then a run; then a verdict.

use std::sync::Arc;

use oracle::{Expectation, Ledger, Reduction, ReferenceOrder, ReferenceOrderNode, Verdict};
use protocol::Payload;
use protocol::aggregation::{AbortCause, SlotMutation};
use reduce::{ElementType, Operator, ReductionKind};
use simulator::collective::{
    CollectiveMethod, CollectiveObserver, CollectiveParameters, ContributionContents, Framing, LaneFeeds,
    OperationPacing, ReplicaSharing, Replication, SimulatedCollective, SimulatedOperation,
};
use simulator::fault::{FaultKind, FaultPlan, FaultRule, PhaseFilter};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::{Forwarding, LinkParameters};
use topology::{AggregationTree, ChildNode, Fabric, TreeIndex};
use units::{OpId, Rank, Span};

/// Everything that a trial is made of.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The number that it was made from.
    pub seed: u64,
    /// The fabric.
    pub fabric: Arc<Fabric>,
    /// Links and switches.
    pub link: LinkParameters,
    /// The collective.
    pub parameters: CollectiveParameters,
    /// What goes wrong.
    pub plan: FaultPlan,
    /// Collectives.
    pub operations: u32,
    /// A broken machine.
    pub sabotage: Option<(usize, SlotMutation)>,
}

/// How a trial went.
pub struct TrialOutcome {
    /// What the oracle says.
    pub verdict: Verdict,
    /// The digest of all events.
    pub trace: u64,
    /// How often edges of the tree moved to another path.
    pub migrations: u32,
}

/// Draws numbers from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        // xorshift64* (Vigna 2016): nothing here must agree with the simulator's own randomness.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

impl Trial {
    /// A trial in which everything that goes wrong can be repaired: all operations must complete.
    pub fn soft(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let fabric = Arc::new(small_fabric(&mut dice));
        let place = |copies| topology::place_tree(&fabric, &topology::TreeRequest::all().with_replicas(copies));
        let replicas_fit = |copies| place(copies).is_ok_and(|tree| tree.roots_fold_alike());
        let mut replication = match dice.below(3) {
            0 => Replication::None,
            1 => Replication::Temporal { copies: dice.pick(&[2, 3, 4]) },
            _ => Replication::Spatial { copies: dice.pick(&[2, 3, 4]) },
        };
        if let Replication::Spatial { copies } = replication
            && !replicas_fit(copies)
        {
            replication = Replication::Temporal { copies };
        }
        let mut parameters = CollectiveParameters::new(contents(&mut dice));
        parameters.replication = replication;
        parameters.framing = dice.pick(&[Framing::Full, Framing::PayloadOnly]);
        parameters.lane_feeds = dice.pick(&[LaneFeeds::OwnPlane, LaneFeeds::AnyPlane]);
        parameters.sharing = dice.pick(&[ReplicaSharing::OwnPlane, ReplicaSharing::AboveLevelOne]);
        parameters.pace = dice.pick(&[OperationPacing::Drained, OperationPacing::BackToBack]);
        parameters.radix_limit = dice.pick(&[None, None, Some(3)]);
        if parameters.radix_limit.is_some() {
            parameters.replication = Replication::Temporal { copies: 2 };
        }
        parameters.policy.retry_limit = 60;
        parameters.patience = Span::from_micros(500_000);
        parameters.policy.acknowledge_every = dice.pick(&[1, 4, 16]);
        let link = LinkParameters {
            byte_time: ByteTime::of(LinkWidth::X4, dice.pick(&[LinkRate::Sdr, LinkRate::Fdr, LinkRate::Edr])),
            wire: Span::from_nanos(dice.below(50)),
            switch_delay: Span::from_nanos(50 + dice.below(100)),
            adapter_delay: Span::from_nanos(50 + dice.below(100)),
            forwarding: dice.pick(&[Forwarding::CutThrough, Forwarding::StoreAndForward]),
            virtual_lanes: dice.pick(&[1, 2]),
            buffer_bytes: dice.pick(&[4_608, 16_384]),
            adapter_lanes: 1,
        };
        let plan = FaultPlan { seed: None, rules: (0..1 + dice.below(3)).map(|_| soft_rule(&mut dice)).collect() };
        let operations = 3 + dice.below(6) as u32;
        Self { seed, fabric, link, parameters, plan, operations, sabotage: None }
    }

    /// Broadcasts and barriers instead, through the nodes or by one who speaks to all (P-94 to P-98), members late or not; all
    /// that goes wrong can be repaired.
    pub fn speaking(seed: u64) -> Self {
        let mut trial = Self::soft(seed);
        let mut dice = Dice(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1);
        let means =
            dice.pick(&[CollectiveMethod::Multicast, CollectiveMethod::Multicast, CollectiveMethod::Aggregation]);
        let parameters = &mut trial.parameters;
        parameters.task = dice.pick(&[
            SimulatedOperation::Broadcast(means),
            SimulatedOperation::Broadcast(means),
            SimulatedOperation::Barrier(means),
        ]);
        if matches!(parameters.replication, Replication::Spatial { .. }) {
            parameters.replication = Replication::None;
        }
        if matches!(parameters.task, SimulatedOperation::Barrier(_)) {
            parameters.contents = ContributionContents::SizeOnly { bytes: 0 };
        }
        parameters.window = dice.pick(&[8, 16, 32]);
        parameters.late = Span::from_nanos(dice.pick(&[0, 300, 5_000, 80_000]));
        // A lost cast is waited for longer than a result, and asked for from afar.
        parameters.patience = Span::from_micros(2_000_000);
        trial.operations = 10 + dice.below(40) as u32;
        trial
    }

    /// The same with cuts and deaths.
    pub fn speaking_hard(seed: u64) -> Self {
        Self::speaking(seed).harden()
    }

    /// A trial with cuts and deaths as well: operations may fail, but never be wrong, and everyone hears of it.
    pub fn hard(seed: u64) -> Self {
        Self::soft(seed).harden()
    }

    fn harden(mut self) -> Self {
        let trial = &mut self;
        let mut dice = Dice(trial.seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
        trial.parameters.policy.retry_limit = 5;
        let at = dice.below(20) as f64;
        let mut rule = if dice.below(2) == 0 {
            let node = dice.below(u64::from(trial.fabric.nodes())) as u32;
            let name = trial.fabric.name(topology::NodeId(node));
            FaultRule::new(FaultKind::Kill).at_node(name)
        } else {
            let cables: Vec<_> = trial.fabric.cables().collect();
            let cable = cables[dice.below(cables.len() as u64) as usize];
            let name = |end: topology::NodePort| trial.fabric.name(end.node);
            FaultRule::new(FaultKind::Down).on(format!("{}-{}", name(cable.a), name(cable.b)))
        };
        let length = [None, Some(15.0), Some(200.0)][dice.below(3) as usize];
        rule = rule.lasting(at, length);
        trial.plan.rules.push(rule);
        self
    }

    /// Runs it and asks the oracle.
    pub fn run(&self) -> TrialOutcome {
        let mut collective = SimulatedCollective::new(
            self.fabric.clone(),
            self.link.clone(),
            self.parameters.clone(),
            &self.plan,
            self.seed,
            LinkWidth::X4,
        )
        .unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        if let Some((node, sabotage)) = self.sabotage {
            collective.sabotage(node, sabotage);
        }
        let hard = |rule: &FaultRule| matches!(rule.kind.get_ref(), FaultKind::Down | FaultKind::Kill);
        let expectation =
            if self.plan.rules.iter().any(hard) { Expectation::MayFail } else { Expectation::MustComplete };
        let mut judge = Judge {
            seed: self.seed,
            task: self.parameters.task,
            ranks: collective.ranks(),
            operation: operation(&self.parameters.contents),
            order: order(collective.tree()),
            ledger: Ledger::new(collective.ranks(), self.operations, expectation),
        };
        collective.run(self.operations, &mut judge, |_| ());
        let (trace, migrations) = (collective.trace(), collective.migrations());
        TrialOutcome { verdict: judge.ledger.judge(), trace, migrations }
    }
}

impl std::fmt::Display for Trial {
    /// What a person needs to see when a seed fails.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, fabric, link, parameters, plan, operations, sabotage } = self;
        writeln!(f, "seed {seed}: {operations} operations over {fabric}, {sabotage:?}\n{link:?}\n{parameters:?}")?;
        for rule in &plan.rules {
            let link = rule.link.as_ref().map(|link| link.get_ref());
            let node = rule.node.as_ref().map(|node| node.get_ref());
            let value = |value: &Option<toml::Spanned<f64>>| value.as_ref().map(|value| *value.get_ref());
            let (nth, mean) = (rule.nth.as_ref().map(|nth| *nth.get_ref()), value(&rule.mean_us));
            let (chance, at, length) = (value(&rule.probability), value(&rule.at_us), value(&rule.for_us));
            let (kind, phase) = (rule.kind.get_ref(), rule.phase);
            writeln!(
                f,
                "{kind:?} {phase:?} link {link:?} node {node:?} nth {nth:?} mean {mean:?} chance {chance:?} at {at:?} for {length:?}"
            )?;
        }
        Ok(())
    }
}

struct Judge {
    seed: u64,
    task: SimulatedOperation,
    ranks: u32,
    /// None if there are no contents.
    operation: Option<Reduction>,
    order: ReferenceOrder,
    ledger: Ledger,
}

impl CollectiveObserver for Judge {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Vec<u8> {
        let operation = self.operation.as_ref().expect("only what has contents is asked for");
        oracle::contribution(self.seed, rank, op, operation)
    }

    fn begun(&mut self, rank: Rank, op: OpId) {
        self.ledger.record_arrival(rank, op);
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        if matches!(self.task, SimulatedOperation::Barrier(_)) {
            self.ledger.record_departure(rank, op);
        }
        if self.ledger.wants_reference(op) {
            let (reference, element_bytes) = match (&self.operation, self.task) {
                (None, _) => (Vec::new(), 1),
                (Some(operation), SimulatedOperation::AllReduce) => {
                    (oracle::reference(self.seed, op, operation, &self.order), operation.element_bytes())
                }
                (Some(operation), _) => {
                    let teller = SimulatedOperation::teller(op, self.ranks);
                    (oracle::contribution(self.seed, teller, op, operation), operation.element_bytes())
                }
            };
            self.ledger.expect(op, reference, element_bytes);
        }
        self.ledger.record_delivery(rank, op, result.bytes().unwrap_or_default());
    }

    fn failed(&mut self, rank: Rank, op: OpId, cause: AbortCause) {
        self.ledger.record_failure(rank, op, cause.to_string());
    }
}

/// The fold order that a tree stands for: the same from every root.
fn order(tree: &AggregationTree) -> ReferenceOrder {
    // Members are numbered by host, and every host of a trial is a member.
    let root = tree.roots().next().expect("a tree has a root");
    ReferenceOrder::from_tree(ChildNode::Node(root), |at| match at {
        ChildNode::Host(host) => ReferenceOrderNode::Rank(Rank(host.0)),
        ChildNode::Node(TreeIndex(index)) => {
            ReferenceOrderNode::Node(tree.nodes[index as usize].children.iter().map(|child| child.who).collect())
        }
    })
}

fn operation(contents: &ContributionContents) -> Option<Reduction> {
    let ContributionContents::Real { kind, count } = contents else { return None };
    Some(Reduction {
        element: kind.element().name().parse().expect("the oracle knows all types"),
        operator: kind.operator().name().parse().expect("the oracle knows all operators"),
        count: usize::from(*count),
    })
}

fn contents(dice: &mut Dice) -> ContributionContents {
    loop {
        let (element, operator) = (dice.pick(&ElementType::ALL), dice.pick(&Operator::ALL));
        if let Ok(kind) = ReductionKind::new(element, operator) {
            // Exact sums are long: fewer of them, so that a packet fits the buffers.
            let most = (1024 / kind.element_size() as u64).min(32);
            return ContributionContents::Real { kind, count: 1 + dice.below(most) as u16 };
        }
    }
}

fn small_fabric(dice: &mut Dice) -> Fabric {
    let fabric = match dice.below(8) {
        0 => Fabric::xgft(&[4, 4, 2], &[1, 2, 2]),
        1 => Fabric::xgft(&[3, 2, 2], &[1, 3, 2]),
        2 => Fabric::xgft(&[8], &[1]),
        3 => Fabric::kary_ntree(3, 3),
        4 => Fabric::hypercube(3, 2),
        5 => Fabric::torus(&[3, 4], 2),
        6 => Fabric::mesh(&[2, 3], 3),
        _ => Fabric::xgft(&[4, 4], &[1, 4]),
    };
    fabric.expect("small shapes are fine")
}

fn soft_rule(dice: &mut Dice) -> FaultRule {
    let kind = dice.pick(&[
        FaultKind::Flip,
        FaultKind::Flip,
        FaultKind::Flip,
        FaultKind::Memory,
        FaultKind::Lose,
        FaultKind::Duplicate,
        FaultKind::Delay,
        FaultKind::Reorder,
        FaultKind::Malform,
        FaultKind::Misroute,
        FaultKind::Overrun,
    ]);
    let mut rule =
        FaultRule::new(kind).during(dice.pick(&[PhaseFilter::Reduce, PhaseFilter::Broadcast, PhaseFilter::All]));
    if kind == FaultKind::Delay {
        rule = rule.up_to_ns(5_000.0);
    }
    match dice.below(4) {
        0 => rule.nth(1 + dice.below(4)),
        1 => rule.with_mean_us(dice.pick(&[1.0, 5.0, 50.0])),
        _ => rule.with_probability(dice.pick(&[0.01, 0.1, 0.3])),
    }
}
