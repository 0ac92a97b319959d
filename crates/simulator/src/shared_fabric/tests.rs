//! Several groups at once: their results, their trees and what they leave behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::Payload;
use protocol::collective::CollectiveAlgorithm;
use protocol::connection::{ConnectionPolicy, RetransmitTimer};
use reduce::{ElementType, Operator, ReductionKind};
use topology::{Fabric, NodeId};
use units::{Rank, SimSpan, SimTime, Span};

use super::{
    AfterFailure, FabricGroup, FoldReference, GroupMethod, GroupOperation, GroupSegment, SharedFabric,
    SharedFabricEnd, SharedFabricObserver,
};
use crate::collective::{CollectiveMethod, CollectiveParameters, ContributionContents, OperationFailure};
use crate::fault::{FaultKind, FaultPlan, FaultRule};
use crate::link_rate::LinkRate;
use crate::network::LinkParameters;
use crate::segmented::{HostOperation, VectorContents};

/// Every rank contributes its number; notes what it gets.
#[derive(Default)]
struct Notes {
    results: BTreeMap<(GroupSegment, Rank), Vec<u8>>,
    recomputed: u32,
    failed: u32,
}

impl SharedFabricObserver for Notes {
    fn begins(&mut self, _: usize, _: usize, _: SimTime, _: FoldReference<'_>) {}

    fn contribution(&mut self, _: GroupSegment, rank: Rank) -> Payload {
        Payload::Bytes(u64::from(rank.0 + 1).to_le_bytes().to_vec().into())
    }

    fn started(&mut self, _: GroupSegment, _: Rank) {}

    fn delivered(&mut self, segment: GroupSegment, rank: Rank, result: &Payload) {
        let before = self.results.insert((segment, rank), result.bytes().unwrap_or_default().to_vec());
        assert_eq!(before, None, "{segment:?} was delivered twice at {rank}");
    }

    fn recomputed(&mut self, segment: GroupSegment, rank: Rank, result: &Payload) {
        assert_eq!(self.results[&(segment, rank)], result.bytes().unwrap_or_default());
        self.recomputed += 1;
    }

    fn failed(&mut self, _: GroupSegment, _: Rank, _: OperationFailure) {
        self.failed += 1;
    }
}

fn link() -> LinkParameters {
    LinkParameters::of_test(LinkRate::Edr, 16_384)
}

fn allreduce(method: GroupMethod) -> GroupOperation {
    GroupOperation {
        operation: HostOperation::AllReduce,
        method,
        kind: ReductionKind::new(ElementType::U64, Operator::Sum).expect("defined"),
        elements: 1,
        segment_elements: 1,
        contents: VectorContents::Elements,
        not_before: SimTime::ZERO,
    }
}

const IN_TREE: GroupMethod = GroupMethod::Tree(CollectiveMethod::Aggregation);

fn group(hosts: impl IntoIterator<Item = u32>, operations: Vec<GroupOperation>) -> FabricGroup {
    let policy = ConnectionPolicy { retry_limit: 4, ..ConnectionPolicy::default() };
    let mut tree = CollectiveParameters::new(ContributionContents::SizeOnly { bytes: 0 });
    tree.policy = policy;
    FabricGroup {
        hosts: hosts.into_iter().map(NodeId).collect(),
        tree,
        policy: ConnectionPolicy {
            timeout: Span::from_micros(200),
            timer: RetransmitTimer::Measured,
            window: 256,
            ..policy
        },
        mtu: 4_096,
        window: 4,
        operations,
        hang_timeout: SimSpan::from_micros(1_000_000),
        after_failure: AfterFailure::GoOn,
    }
}

/// 16 hosts, four at each leaf, with four spines.
fn fabric(groups: Vec<FabricGroup>, rules: Vec<FaultRule>) -> SharedFabric {
    let fabric = Arc::new(Fabric::xgft(&[4, 4], &[1, 4]).expect("a fat tree"));
    let plan = FaultPlan { seed: None, rules };
    SharedFabric::new(fabric, link(), groups, &plan, 1).expect("the plan matches the fabric")
}

#[test]
fn groups_on_the_same_hosts_get_their_own_results_and_leave_nothing_behind() {
    let ring = GroupMethod::Hosts(CollectiveAlgorithm::Ring);
    let groups = vec![
        group(0..16, vec![allreduce(IN_TREE), allreduce(ring), allreduce(IN_TREE)]),
        group([1, 5, 6, 9], vec![allreduce(IN_TREE); 4]),
        group([3, 14], vec![allreduce(ring); 2]),
    ];
    let sums: Vec<u64> = groups.iter().map(|group| (1..=group.hosts.len() as u64).sum()).collect();
    let mut run = fabric(groups, Vec::new());
    let mut notes = Notes::default();
    assert_eq!(run.run(&mut notes), SharedFabricEnd::Finished);
    assert_eq!(notes.results.len(), 3 * 16 + 4 * 4 + 2 * 2);
    for ((segment, rank), result) in &notes.results {
        assert_eq!(*result, sums[segment.group].to_le_bytes(), "{segment:?}, {rank}");
    }
    let residue = run.settle(SimSpan::from_micros(10_000));
    assert!(residue.is_empty(), "{residue:?}");
    assert_eq!((run.failed_trees(), notes.failed), (0, 0));
}

#[test]
fn hosts_finish_what_a_failed_tree_began_and_the_next_tree_avoids_the_dead_switch() {
    let groups = vec![group(0..16, vec![allreduce(IN_TREE); 40])];
    // The spines are S4 to S7; the first is the root.
    let kill = |name: &str| FaultRule::new(FaultKind::Kill).at_node(name).lasting(20.0, None);
    let mut run = fabric(groups, vec![kill("S4")]);
    let mut notes = Notes::default();
    assert_eq!(run.run(&mut notes), SharedFabricEnd::Finished);
    assert_eq!((run.failed_trees(), notes.results.len(), notes.failed), (1, 40 * 16, 0));
}

#[test]
fn an_operation_with_an_unreachable_host_fails_at_every_rank_that_lacks_it_and_later_ones_complete() {
    let groups = vec![group(0..8, vec![allreduce(IN_TREE); 400])];
    let cut = FaultRule::new(FaultKind::Kill).at_node("H5").lasting(20.0, Some(40_000.0));
    let mut run = fabric(groups, vec![cut]);
    let mut notes = Notes::default();
    assert_eq!(run.run(&mut notes), SharedFabricEnd::Finished);
    // Of the operation that fails first, some ranks may have the result already.
    assert!(notes.failed > 0, "no rank noticed");
    assert_eq!(notes.results.len() + notes.failed as usize, 400 * 8);
    let residue = run.settle(SimSpan::from_micros(10_000));
    assert!(residue.is_empty(), "{residue:?}");
}

#[test]
fn a_rule_with_an_end_applies_no_longer() {
    let lose = FaultRule::new(FaultKind::Lose).lasting(0.0, Some(5.0));
    let mut run = fabric(vec![group(0..4, vec![allreduce(IN_TREE); 20])], vec![lose]);
    assert_eq!(run.run(&mut Notes::default()), SharedFabricEnd::Finished);
    let lost = run.counters().lost_by_plan;
    assert!((1..100).contains(&lost), "{lost} packets were lost");
}
