//! Broadcasts and barriers in the simulated fabric, through the nodes and by one who speaks to all (P-94 to P-98): seeded trials
//! with random fault plans and late members, judged by the oracle. `casts.rs` has the same machines on a bare network, where
//! operations of all kinds follow each other and overlap.

use tests::Trial;

#[test]
fn soft_faults_and_late_members_never_change_nor_lose_what_one_tells_all() {
    let mut checked = 0;
    for seed in 0..1_500 {
        let outcome = Trial::speaking(seed).run();
        assert!(outcome.verdict.is_clean(), "seed {seed}: {}\n{}", outcome.verdict, Trial::speaking(seed));
        checked += outcome.verdict.checked;
    }
    assert!(checked > 150_000, "only {checked} results were checked");
}

#[test]
fn cuts_and_deaths_leave_nobody_waiting_for_one_who_tells_all() {
    let (mut checked, mut failed) = (0, 0);
    for seed in 10_000..11_000 {
        let outcome = Trial::speaking_hard(seed).run();
        assert!(outcome.verdict.is_clean(), "seed {seed}: {}\n{}", outcome.verdict, Trial::speaking_hard(seed));
        checked += outcome.verdict.checked;
        failed += outcome.verdict.failed;
    }
    assert!(checked > 50_000 && failed > 1_000, "{checked} results were checked, {failed} operations failed");
}

/// Seed 10,004 kills the switch above the one whose turn it is to tell, 10,058 its host. Only the node beside the dead one
/// knew; members below other nodes asked for ever, because an abort went down and never up to whoever had asked.
#[test]
fn members_elsewhere_hear_that_whoever_should_tell_is_lost() {
    for seed in [10_004, 10_058] {
        let verdict = Trial::speaking_hard(seed).run().verdict;
        assert!(verdict.is_clean() && verdict.failed > 100, "seed {seed}: {verdict}");
    }
}

/// The one who asks dies once every slot of the nodes has been used. The others asked for the result of a barrier that no node had
/// heard of, and were not answered.
#[test]
fn members_hear_that_whoever_should_test_them_is_lost() {
    let verdict = Trial::speaking_hard(104_806).run().verdict;
    assert!(verdict.is_clean() && verdict.failed > 100, "{verdict}");
}

#[test]
fn a_seed_gives_the_same_events_every_time() {
    for seed in 0..40 {
        assert_eq!(Trial::speaking_hard(seed).run().trace, Trial::speaking_hard(seed).run().trace, "seed {seed}");
    }
}

#[test]
#[ignore = "long: tens of thousands of trials"]
fn tens_of_thousands_of_trials_are_clean() {
    for seed in 100_000..120_000 {
        let (soft, hard) = (Trial::speaking(seed).run().verdict, Trial::speaking_hard(seed).run().verdict);
        assert!(soft.is_clean(), "soft seed {seed}: {soft}\n{}", Trial::speaking(seed));
        assert!(hard.is_clean(), "hard seed {seed}: {hard}\n{}", Trial::speaking_hard(seed));
    }
}
