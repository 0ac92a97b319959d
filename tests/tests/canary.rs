//! The oracle must detect machines with a deliberate defect: an oracle that never objects proves nothing.

use std::sync::Arc;

use protocol::sabotage::{MachineSabotage, SlotSabotage};
use reduce::{ElementType, Operator, ReductionKind};
use simulator::collective::{ContributionContents, Replication};
use simulator::fault::FaultPlan;
use tests::Trial;
use topology::Fabric;

/// A trial without faults, whose only defect is the one under test.
fn faultless(sabotage: Option<SlotSabotage>) -> Trial {
    let mut trial = Trial::soft(7);
    trial.fabric = Arc::new(Fabric::xgft(&[4, 4, 2], &[1, 2, 2]).expect("the shape is within the bounds"));
    trial.parameters.replication = Replication::None;
    trial.parameters.radix_limit = None;
    let kind = ReductionKind::new(ElementType::F64, Operator::Sum).expect("a sum of f64 is defined");
    trial.parameters.contents = ContributionContents::Real { kind, count: 32 };
    trial.plan = FaultPlan::default();
    trial.parameters.policy.sabotage = sabotage.map(MachineSabotage::Fold);
    trial
}

#[test]
fn the_machine_without_a_defect_passes() {
    let verdict = faultless(None).run().verdict;
    assert!(verdict.is_clean() && verdict.checked > 0, "{verdict}");
}

#[test]
fn folding_an_operand_twice_is_detected() {
    assert!(!faultless(Some(SlotSabotage::FoldTwice)).run().verdict.is_clean());
}

#[test]
fn omitting_a_child_is_detected() {
    assert!(!faultless(Some(SlotSabotage::FoldEarly)).run().verdict.is_clean());
}

#[test]
fn folding_in_another_order_is_detected() {
    assert!(!faultless(Some(SlotSabotage::FoldBackwards)).run().verdict.is_clean());
}
