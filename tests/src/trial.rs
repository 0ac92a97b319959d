//! A trial: a seed determines a fabric, a replication scheme, an operation and a fault plan; the run yields a verdict.

use std::sync::Arc;

use lab::oracle_checker::OracleChecker;
use oracle::Verdict;
use reduce::{ElementType, Operator, ReductionKind};
use simulator::collective::{
    CollectiveMethod, CollectiveParameters, ContributionContents, Framing, LaneFeeds, OperationPacing,
    ReplicaSharing, Replication, SimulatedCollective, SimulatedOperation,
};
use simulator::fault::{FaultKind, FaultPlan, FaultRule, PhaseFilter};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::scenario::ResultCheck;
use simulator::{Forwarding, LinkParameters};
use topology::Fabric;
use units::SimSpan;

use crate::rule_text::describe_rule;
use crate::test_rng::TestRng;

/// A trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The seed that determines all else.
    pub seed: u64,
    /// The fabric.
    pub fabric: Arc<Fabric>,
    /// Links and switches.
    pub link: LinkParameters,
    /// The collective.
    pub parameters: CollectiveParameters,
    /// The faults.
    pub plan: FaultPlan,
    /// The number of operations.
    pub operations: u32,
}

/// The outcome of a trial.
pub struct TrialOutcome {
    /// The oracle's verdict.
    pub verdict: Verdict,
    /// The digest of all events.
    pub trace: u64,
    /// How often edges of the tree moved to another path.
    pub migrations: u32,
}

impl Trial {
    /// A trial with transient faults only: all operations must complete.
    pub fn soft(seed: u64) -> Self {
        let mut rng = TestRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let fabric = Arc::new(small_fabric(&mut rng));
        let place = |copies| topology::place_tree(&fabric, &topology::TreeRequest::all().with_replicas(copies));
        let replicas_fit = |copies| place(copies).is_ok_and(|tree| tree.roots_fold_alike());
        let mut replication = match rng.below(3) {
            0 => Replication::None,
            1 => Replication::Temporal { copies: rng.pick(&[2, 3, 4]) },
            _ => Replication::Spatial { copies: rng.pick(&[2, 3, 4]) },
        };
        if let Replication::Spatial { copies } = replication
            && !replicas_fit(copies)
        {
            replication = Replication::Temporal { copies };
        }
        let mut parameters = CollectiveParameters::new(contents(&mut rng));
        parameters.replication = replication;
        parameters.framing = rng.pick(&[Framing::Full, Framing::PayloadOnly]);
        parameters.lane_feeds = rng.pick(&[LaneFeeds::OwnPlane, LaneFeeds::AnyPlane]);
        parameters.sharing = rng.pick(&[ReplicaSharing::OwnPlane, ReplicaSharing::AboveLevelOne]);
        parameters.pace = rng.pick(&[OperationPacing::Drained, OperationPacing::BackToBack]);
        parameters.radix_limit = rng.pick(&[None, None, Some(3)]);
        if parameters.radix_limit.is_some() {
            parameters.replication = Replication::Temporal { copies: 2 };
        }
        // A plan may flip bits in a third of the packets on every link and misroute half of them: 60 retries in a row failed by chance.
        parameters.policy.retry_limit = u8::MAX;
        // And where packets are duplicated on every link, a thousand NAKs for one frame may be on their way at once (seed 103008 of multicasts).
        parameters.policy.refusal_limit = u16::MAX;
        parameters.hang_timeout = SimSpan::from_micros(500_000);
        parameters.policy.acknowledge_every = rng.pick(&[1, 4, 16]);
        let link = LinkParameters {
            byte_time: ByteTime::of(LinkWidth::X4, rng.pick(&[LinkRate::Sdr, LinkRate::Fdr, LinkRate::Edr])),
            wire: SimSpan::from_nanos(rng.below(50)),
            switch_delay: SimSpan::from_nanos(50 + rng.below(100)),
            adapter_delay: SimSpan::from_nanos(50 + rng.below(100)),
            forwarding: rng.pick(&[Forwarding::CutThrough, Forwarding::StoreAndForward]),
            virtual_lanes: rng.pick(&[1, 2]),
            buffer_bytes: rng.pick(&[4_608, 16_384]),
            adapter_lanes: 1,
        };
        let plan = FaultPlan { seed: None, rules: (0..1 + rng.below(3)).map(|_| soft_rule(&mut rng)).collect() };
        let operations = 3 + rng.below(6) as u32;
        Self { seed, fabric, link, parameters, plan, operations }
    }

    /// Broadcasts and barriers instead, through the aggregation nodes or by multicast (P-50 to P-54), with or without late
    /// members; all faults are transient.
    pub fn multicast(seed: u64) -> Self {
        let mut trial = Self::soft(seed);
        let mut rng = TestRng(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1);
        let means =
            rng.pick(&[CollectiveMethod::Multicast, CollectiveMethod::Multicast, CollectiveMethod::Aggregation]);
        let parameters = &mut trial.parameters;
        parameters.operation = rng.pick(&[
            SimulatedOperation::Broadcast(means),
            SimulatedOperation::Broadcast(means),
            SimulatedOperation::Barrier(means),
        ]);
        if matches!(parameters.replication, Replication::Spatial { .. }) {
            parameters.replication = Replication::None;
        }
        if matches!(parameters.operation, SimulatedOperation::Barrier(_)) {
            parameters.contents = ContributionContents::SizeOnly { bytes: 0 };
        }
        parameters.window = rng.pick(&[8, 16, 32]);
        parameters.arrival_skew = SimSpan::from_nanos(rng.pick(&[0, 300, 5_000, 80_000]));
        // Recovering a lost multicast takes longer than recovering a result: the repair comes from farther away.
        parameters.hang_timeout = SimSpan::from_micros(2_000_000);
        trial.operations = 10 + rng.below(40) as u32;
        trial
    }

    /// The same with cut cables and killed nodes.
    pub fn multicast_hard(seed: u64) -> Self {
        Self::multicast(seed).harden()
    }

    /// A trial with cut cables and killed nodes as well: operations may fail, but no result may be wrong, and every rank must
    /// learn of a failure.
    pub fn hard(seed: u64) -> Self {
        Self::soft(seed).harden()
    }

    fn harden(mut self) -> Self {
        let trial = &mut self;
        let mut rng = TestRng(trial.seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
        trial.parameters.policy.retry_limit = 5;
        let at = rng.below(20) as f64;
        let mut rule = if rng.below(2) == 0 {
            let node = rng.below(u64::from(trial.fabric.nodes())) as u32;
            let name = trial.fabric.name(topology::NodeId(node));
            FaultRule::new(FaultKind::Kill).at_node(name)
        } else {
            let cables: Vec<_> = trial.fabric.cables().collect();
            let cable = cables[rng.below(cables.len() as u64) as usize];
            let name = |end: topology::NodePort| trial.fabric.name(end.node);
            FaultRule::new(FaultKind::Down).on(format!("{}-{}", name(cable.a), name(cable.b)))
        };
        let length = [None, Some(15.0), Some(200.0)][rng.below(3) as usize];
        rule = rule.lasting(at, length);
        trial.plan.rules.push(rule);
        self
    }

    /// Runs the trial and returns the oracle's verdict.
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
        let check = ResultCheck::Bits;
        let mut checker =
            OracleChecker::new(self.seed, self.operations, &collective, &self.parameters, &self.plan, check);
        collective.run(self.operations, &mut checker, |_| ());
        let (trace, migrations) = (collective.trace(), collective.migrations());
        TrialOutcome { verdict: checker.judge().verdict, trace, migrations }
    }
}

impl std::fmt::Display for Trial {
    /// Everything that helps to debug a failing seed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, fabric, link, parameters, plan, operations } = self;
        writeln!(f, "seed {seed}: {operations} operations over {fabric}\n{link:?}\n{parameters:?}")?;
        plan.rules.iter().try_for_each(|rule| writeln!(f, "{}", describe_rule(rule)))
    }
}

fn contents(rng: &mut TestRng) -> ContributionContents {
    loop {
        let (element, operator) = (rng.pick(&ElementType::ALL), rng.pick(&Operator::ALL));
        if let Ok(kind) = ReductionKind::new(element, operator) {
            // Exact sums are long: fewer of them, so that a packet fits the buffers.
            let most = (1024 / kind.element_size() as u64).min(32);
            return ContributionContents::Real { kind, count: 1 + rng.below(most) as u16 };
        }
    }
}

fn small_fabric(rng: &mut TestRng) -> Fabric {
    let fabric = match rng.below(8) {
        0 => Fabric::xgft(&[4, 4, 2], &[1, 2, 2]),
        1 => Fabric::xgft(&[3, 2, 2], &[1, 3, 2]),
        2 => Fabric::xgft(&[8], &[1]),
        3 => Fabric::kary_ntree(3, 3),
        4 => Fabric::hypercube(3, 2),
        5 => Fabric::torus(&[3, 4], 2),
        6 => Fabric::mesh(&[2, 3], 3),
        _ => Fabric::xgft(&[4, 4], &[1, 4]),
    };
    fabric.expect("the shape is within the bounds")
}

fn soft_rule(rng: &mut TestRng) -> FaultRule {
    let kind = rng.pick(&[
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
        FaultRule::new(kind).during(rng.pick(&[PhaseFilter::Reduce, PhaseFilter::Broadcast, PhaseFilter::All]));
    if kind == FaultKind::Delay {
        rule = rule.up_to_ns(5_000.0);
    }
    match rng.below(4) {
        0 => rule.nth(1 + rng.below(4)),
        1 => rule.with_mean_us(rng.pick(&[1.0, 5.0, 50.0])),
        _ => rule.with_probability(rng.pick(&[0.01, 0.1, 0.3])),
    }
}
