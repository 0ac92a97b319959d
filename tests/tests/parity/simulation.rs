//! The scenario in virtual time.

use faults::FaultPlan;
use protocol::Payload;
use protocol::collective::CollectiveAlgorithm;
use protocol::connection::{ConnectionPolicy, RetransmitTimer};
use simulator::collective::{
    CollectiveObserver, CollectiveParameters, ContributionContents, OperationFailure, OperationPacing,
    SimulatedCollective,
};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::segmented::{
    HostOperation, SegmentedCollective, SegmentedParameters, SegmentedVector, VectorContents,
};
use simulator::{Forwarding, LinkParameters};
use topology::AggregationTree;
use units::{OpId, Rank, SimSpan, Span};

use super::{ELEMENTS, HOSTS, OPERATIONS, Results, fabric, input, sum};

const SEED: u64 = 11;
const HANG_TIMEOUT: SimSpan = SimSpan::from_micros(1_000_000);

/// Contributes the inputs and keeps the results.
#[derive(Default)]
struct ResultObserver {
    results: Results,
}

impl CollectiveObserver for ResultObserver {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Payload {
        Payload::from(input(rank, op))
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        let before = self.results.insert((op, rank), result.bytes().expect("a sum").to_vec());
        assert!(before.is_none(), "{op} completes twice at {rank}");
    }

    fn failed(&mut self, rank: Rank, op: OpId, cause: OperationFailure) {
        panic!("{op} failed at {rank}: {cause}");
    }
}

fn link() -> LinkParameters {
    LinkParameters {
        byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Edr),
        wire: SimSpan::from_nanos(10),
        switch_delay: SimSpan::from_nanos(100),
        adapter_delay: SimSpan::from_nanos(200),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 65_536,
        adapter_lanes: 1,
    }
}

/// The tree, and the results of operations through it.
pub(super) fn through_tree(plan: &FaultPlan) -> (AggregationTree, Results) {
    let contents = ContributionContents::Real { kind: sum(), count: ELEMENTS as u16 };
    let mut parameters = CollectiveParameters::new(contents);
    parameters.members = Some(HOSTS);
    parameters.policy.retry_limit = u8::MAX;
    parameters.hang_timeout = HANG_TIMEOUT;
    let mut collective =
        SimulatedCollective::new(fabric(), link(), parameters, plan, SEED, LinkWidth::X4).expect("it can be set up");
    let mut observer = ResultObserver::default();
    collective.run(OPERATIONS, &mut observer, |_| ());
    (collective.tree().clone(), observer.results)
}

/// The results of operations among the hosts alone.
pub(super) fn among_hosts(algorithm: CollectiveAlgorithm, plan: &FaultPlan) -> Results {
    let elements = ELEMENTS as u32;
    let parameters = SegmentedParameters {
        operation: HostOperation::AllReduce,
        algorithm,
        vector: SegmentedVector {
            kind: sum(),
            elements,
            segment_elements: elements,
            contents: VectorContents::Elements,
        },
        window: 4,
        mtu: 4096,
        policy: ConnectionPolicy {
            timeout: Span::from_micros(100),
            timer: RetransmitTimer::Measured,
            retry_limit: u8::MAX,
            ..ConnectionPolicy::default()
        },
        members: HOSTS,
        arrival_skew: SimSpan::ZERO,
        pace: OperationPacing::Drained,
        hang_timeout: HANG_TIMEOUT,
    };
    let mut collective =
        SegmentedCollective::new(fabric(), link(), parameters, plan, SEED).expect("it can be set up");
    let mut observer = ResultObserver::default();
    collective.run(OPERATIONS, &mut observer, |_| ());
    observer.results
}
