//! Checked messages in the simulated fabric, judged by the oracle: whatever flips, is lost or cut, every message comes once,
//! in order, unaltered.

use tests::MessagingTrial;

fn survive(seeds: std::ops::Range<u64>) -> (u64, u64) {
    let (mut checked, mut spoiled) = (0, 0);
    for seed in seeds {
        let outcome = MessagingTrial::random(seed).run();
        assert!(outcome.is_clean(), "seed {seed}: {}", outcome.complaints());
        // A spoiled parcel may be lost with its rail, or come when it is not needed any more.
        assert!(outcome.found <= outcome.spoiled, "seed {seed}: only what is spoiled is found to be");
        checked += outcome.checked();
        spoiled += outcome.spoiled;
    }
    (checked, spoiled)
}

#[test]
fn random_traffic_comes_once_in_order_and_unaltered() {
    let (checked, spoiled) = survive(0..1_000);
    assert!(checked > 15_000 && spoiled > 2_000, "{checked} messages were checked, {spoiled} parcels spoiled");
}

#[test]
#[ignore = "minutes: cargo xtask test --all"]
fn random_traffic_of_many_seeds() {
    survive(10_000..40_000);
}

/// Ten thousand messages, each with one flipped bit, anywhere: none wrong, none lost.
#[test]
fn ten_thousand_spoiled_messages_arrive() {
    let outcome = MessagingTrial::spoiled(1, 10_000).run();
    assert!(outcome.is_clean(), "{}", outcome.complaints());
    assert_eq!((outcome.checked(), outcome.spoiled, outcome.found), (10_000, 10_000, 10_000));
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [3, 5] {
        let trace = || MessagingTrial::random(seed).run().trace;
        assert_eq!(trace(), trace());
    }
}
