//! The mechanism of the adapter model, step by step.

use super::super::simulated::{MigrationParameters, TEXT};
use super::cluster::AdapterTimes;
use super::kernels::{self, NasProgram};
use super::verbs::{self, AdapterDisturbance};

fn parameters() -> MigrationParameters {
    MigrationParameters::parse(TEXT).expect("the shipped file is valid")
}

#[test]
fn firmware_serves_one_transition_after_the_other() {
    let times = AdapterTimes::of(&parameters());
    let one = verbs::transition(times, 1).expect("it runs");
    let many = verbs::transition(times, 100).expect("it runs");
    let each = |times: u64| 99.0 * times as f64 / 1e3;
    assert!((many.arming_us - one.arming_us - each(times.load)).abs() < 1.0, "{} us", many.arming_us);
    assert!((many.migrating_us - one.migrating_us - each(times.switch)).abs() < 1.0, "{} us", many.migrating_us);
}

#[test]
fn a_pulled_cable_costs_each_queue_pair_its_timeout_once() {
    let times = AdapterTimes::of(&parameters());
    let row = verbs::latency(times, 8, 128, AdapterDisturbance::PulledCable).expect("it runs");
    // The acknowledgement of the last message before the cut is lost too: that queue pair migrates while the first one waits.
    assert_eq!(row.affected, 7);
    let (added_us, give_up_us) = (row.disturbed_us - row.plain_us, times.give_up as f64 / 1e3);
    assert!((give_up_us..1.01 * give_up_us).contains(&added_us), "{added_us} us");
}

#[test]
fn a_cut_costs_more_if_the_timeout_is_longer_and_the_same_seed_costs_the_same() {
    let lost = |give_up_ms: f64| {
        let mut parameters = parameters();
        parameters.adapter.give_up_ms = give_up_ms;
        kernels::simulate(NasProgram::SortA, &parameters, 2, 1).expect("it runs").many.mean
    };
    assert_eq!(lost(50.0), lost(50.0));
    assert!(lost(100.0) > 1.5 * lost(50.0));
}
