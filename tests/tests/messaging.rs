//! Checked messages in the simulated fabric, checked by the oracle: despite bit flips, losses and cuts, every message arrives
//! once, in order, unaltered.

use tests::MessagingTrial;

fn run_seeds(seeds: std::ops::Range<u64>) -> (u64, u64) {
    let (mut checked, mut corrupted) = (0, 0);
    for seed in seeds {
        let outcome = MessagingTrial::random(seed).run();
        assert!(outcome.is_clean(), "seed {seed}: {}", outcome.problems());
        // A corrupted packet may be lost with its rail, or arrive when it is no longer needed.
        assert!(outcome.detected <= outcome.corrupted, "seed {seed}: a port reports an intact packet as corrupted");
        checked += outcome.checked();
        corrupted += outcome.corrupted;
    }
    (checked, corrupted)
}

#[test]
fn random_traffic_arrives_once_in_order_and_unaltered() {
    let (checked, corrupted) = run_seeds(0..1_000);
    assert!(checked > 15_000 && corrupted > 2_000, "{checked} messages were checked, {corrupted} packets corrupted");
}

/// The ICRC of long packets covers their first bytes only: the checksums of the messages find what flips behind them, and the
/// oracle finds every message unaltered (P-28).
#[test]
fn random_traffic_with_a_shortened_icrc_arrives_once_in_order_and_unaltered() {
    let (mut checked, mut detected) = (0, 0);
    for seed in 0..400 {
        let outcome = MessagingTrial::with_shortened_icrc(seed).run();
        assert!(outcome.is_clean(), "seed {seed}: {}", outcome.problems());
        assert_eq!(outcome.corrupted, 0, "seed {seed}");
        checked += outcome.checked();
        detected += outcome.detected;
    }
    assert!(checked > 6_000 && detected > 300, "{checked} messages were checked, {detected} corrupted packets found");
}

#[test]
#[ignore = "minutes: cargo xtask test --all"]
fn random_traffic_of_many_seeds() {
    run_seeds(10_000..40_000);
}

/// Ten thousand messages, each with one flipped bit at any position: all arrive unaltered.
#[test]
fn ten_thousand_corrupted_messages_arrive() {
    let outcome = MessagingTrial::corrupted(1, 10_000).run();
    assert!(outcome.is_clean(), "{}", outcome.problems());
    assert_eq!((outcome.checked(), outcome.corrupted, outcome.detected), (10_000, 10_000, 10_000));
}

#[test]
fn a_seed_repeats_the_same_run() {
    for seed in [3, 5] {
        let trace = || MessagingTrial::random(seed).run().trace;
        assert_eq!(trace(), trace());
    }
}
