//! The four error classes of SE-4 and end-bad-packet marking (SE-5): operations survive each.

use std::sync::Arc;

use simulator::collective::{
    CollectiveParameters, CollectiveSetupError, ContributionContents, NoObserver, Replication, SimulatedCollective,
};
use simulator::fault::{FaultKind, FaultPlan, FaultRule, PhaseFilter};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::{FabricCounters, Forwarding, LinkParameters};
use topology::Fabric;
use units::SimSpan;

fn link(forwarding: Forwarding) -> LinkParameters {
    LinkParameters {
        byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Sdr),
        wire: SimSpan::from_nanos(5),
        switch_delay: SimSpan::from_nanos(100),
        adapter_delay: SimSpan::from_nanos(100),
        forwarding,
        virtual_lanes: 1,
        buffer_bytes: 16 * 1024,
        adapter_lanes: 1,
    }
}

/// SE-10's example: 32 hosts, S0-S7 / S8-S11 / S12-S15.
fn fabric() -> Arc<Fabric> {
    Arc::new(Fabric::xgft(&[4, 4, 2], &[1, 2, 2]).expect("SE-10"))
}

fn run(forwarding: Forwarding, rule: FaultRule) -> (FabricCounters, bool) {
    let parameters = CollectiveParameters::new(ContributionContents::SizeOnly { bytes: 256 });
    let plan = FaultPlan { seed: None, rules: vec![rule] };
    let mut collective =
        SimulatedCollective::new(fabric(), link(forwarding), parameters, &plan, 3, LinkWidth::X4).expect("it fits");
    let timings = collective.run(3, &mut NoObserver, |_| ());
    (collective.counters().clone(), timings.iter().all(|timing| timing.complete.is_some()))
}

/// The root of the tree, and a switch of level 2 below it.
fn root_and_child() -> (String, String) {
    let tree = topology::place_tree(&fabric(), &topology::TreeRequest::all()).expect("it fits");
    let root = tree.roots().next().expect("one root");
    let topology::ChildNode::Node(child) = tree.node(root).children[0].node else { panic!("a root has nodes below") };
    (fabric().name(tree.node(root).switch), fabric().name(tree.node(child).switch))
}

#[test]
fn each_error_class_has_its_own_counter_and_is_survived() {
    type Count = fn(&FabricCounters) -> u64;
    let cases: [(FaultKind, Count); 5] = [
        (FaultKind::Flip, |counters| counters.physical),
        (FaultKind::Malform, |counters| counters.malformed),
        (FaultKind::Misroute, |counters| counters.routing),
        (FaultKind::Overrun, |counters| counters.overrun),
        (FaultKind::Memory, |counters| counters.end_to_end),
    ];
    for (kind, count) in cases {
        let (counters, complete) = run(Forwarding::CutThrough, FaultRule::new(kind).on("H0>S0").nth(1));
        assert_eq!((count(&counters), complete), (1, true), "{kind:?}: {counters:?}");
        let all = [counters.physical, counters.malformed, counters.routing, counters.overrun, counters.end_to_end];
        assert_eq!(all.iter().sum::<u64>(), 1, "{kind:?}: {counters:?}");
    }
}

#[test]
fn a_result_corrupted_while_it_is_forwarded_arrives_marked_everywhere_below() {
    let (root, child) = root_and_child();
    let rule = FaultRule::new(FaultKind::Flip).on(format!("{root}>{child}")).nth(1).during(PhaseFilter::Broadcast);
    let (counters, complete) = run(Forwarding::CutThrough, rule);
    // One error; the four leaf switches and the sixteen hosts below the level-2 switch receive it marked.
    assert_eq!((counters.physical, counters.marked, complete), (1, 4 + 16, true));
}

#[test]
fn a_store_and_forward_switch_drops_it_and_marks_nothing() {
    let (root, child) = root_and_child();
    let rule = FaultRule::new(FaultKind::Flip).on(format!("{root}>{child}")).nth(1).during(PhaseFilter::Broadcast);
    let (counters, complete) = run(Forwarding::StoreAndForward, rule);
    assert_eq!((counters.physical, counters.marked, complete), (1, 0, true));
}

#[test]
fn a_cable_that_recovers_loses_packets_but_no_operation() {
    let rule = FaultRule::new(FaultKind::Down).on("H0-S0").lasting(0.0, Some(30.0));
    let (counters, complete) = run(Forwarding::CutThrough, rule);
    assert!(counters.lost_on_down_links > 0 && complete, "{counters:?}");
}

#[test]
fn more_spatial_copies_than_lanes_are_rejected_without_the_what_if_flag() {
    let mut parameters = CollectiveParameters::new(ContributionContents::SizeOnly { bytes: 256 });
    parameters.replication = Replication::Spatial { copies: 6 };
    let wide = Arc::new(Fabric::xgft(&[4, 8], &[1, 8]).expect("eight ways up"));
    let build = |parameters: &CollectiveParameters| {
        let link = link(Forwarding::CutThrough);
        SimulatedCollective::new(wide.clone(), link, parameters.clone(), &FaultPlan::default(), 1, LinkWidth::X4)
            .map(|_| ())
    };
    let rejected = build(&parameters);
    assert!(matches!(rejected, Err(CollectiveSetupError::TooFewLanes { copies: 6, lanes: 4 })));
    parameters.what_if_lanes = true;
    assert!(build(&parameters).is_ok());
}
