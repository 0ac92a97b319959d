//! The oracle must catch machines that are broken on purpose: a judge that never objects proves nothing.

use std::sync::Arc;

use protocol::aggregation::SlotMutation;
use reduce::{ElementType, Operator, ReductionKind};
use simulator::collective::{ContributionContents, Replication};
use simulator::fault::FaultPlan;
use tests::Trial;
use topology::Fabric;

/// A trial without faults, whose only defect is the one under test.
fn faultless(sabotage: Option<SlotMutation>) -> Trial {
    let mut trial = Trial::soft(7);
    trial.fabric = Arc::new(Fabric::xgft(&[4, 4, 2], &[1, 2, 2]).expect("small"));
    trial.parameters.replication = Replication::None;
    trial.parameters.radix_limit = None;
    let kind = ReductionKind::new(ElementType::F64, Operator::Sum).expect("floats add");
    trial.parameters.contents = ContributionContents::Real { kind, count: 32 };
    trial.plan = FaultPlan::default();
    trial.sabotage = sabotage.map(|sabotage| (0, sabotage));
    trial
}

#[test]
fn the_sound_machine_passes() {
    let verdict = faultless(None).run().verdict;
    assert!(verdict.is_clean() && verdict.checked > 0, "{verdict}");
}

#[test]
fn folding_an_operand_twice_is_caught() {
    assert!(!faultless(Some(SlotMutation::FoldTwice)).run().verdict.is_clean());
}

#[test]
fn leaving_a_child_out_is_caught() {
    assert!(!faultless(Some(SlotMutation::FoldEarly)).run().verdict.is_clean());
}

#[test]
fn folding_in_another_order_is_caught() {
    assert!(!faultless(Some(SlotMutation::FoldBackwards)).run().verdict.is_clean());
}
