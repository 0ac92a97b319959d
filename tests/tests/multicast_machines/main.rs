//! Multicast results and polled barriers between members and nodes in virtual time: every packet may be lost, duplicated or
//! reordered, members are late, a node may fail. The expected results are computed here, without code of the machines.

mod plan;
mod simulation;

use plan::MulticastPlan;
use simulation::{MulticastSimulation, RunCounts};

#[test]
fn multicasts_and_polled_barriers_complete_correctly_despite_losses() {
    let mut total = RunCounts::default();
    for seed in 0..400 {
        let counts = MulticastSimulation::new(MulticastPlan::new(seed, false)).run();
        total.ended += counts.ended;
        total.multicasts_lost += counts.multicasts_lost;
        total.multicasts_repaired += counts.multicasts_repaired;
        total.verdicts += counts.verdicts;
    }
    assert!(total.ended > 100_000 && total.multicasts_lost > 5_000, "{total:?}");
    assert!(total.multicasts_repaired > 1_000 && total.verdicts > 300, "{total:?}");
}

#[test]
fn a_node_that_fails_leaves_no_member_waiting() {
    let (mut ended, mut failed) = (0, 0);
    for seed in 1_000..1_200 {
        let counts = MulticastSimulation::new(MulticastPlan::new(seed, true)).run();
        (ended, failed) = (ended + counts.ended, failed + counts.failed);
    }
    assert!(ended > 5_000 && failed > 500, "{ended} ended, {failed} failed");
}

/// A leaf had started the next operation of a slot before it received the result of this one. Its parent failed, and a member that
/// asked for the result got no answer.
#[test]
fn a_node_without_parent_answers_a_member_that_asks_for_a_missed_result() {
    MulticastSimulation::new(MulticastPlan::new(27_150, true)).run();
}

#[test]
#[ignore = "long: tens of thousands of trials"]
fn tens_of_thousands_of_multicast_trials_are_clean() {
    for seed in 10_000..30_000 {
        MulticastSimulation::new(MulticastPlan::new(seed, seed.is_multiple_of(2))).run();
    }
}
