//! Broadcasts and barriers in the simulated fabric, through the aggregation nodes and by multicast (P-50 to P-54): seeded trials
//! with random fault plans and late members, checked by the oracle. `multicast_machines.rs` runs the same machines on a bare
//! network, where operations of all kinds follow each other and overlap.

use tests::Trial;

#[test]
fn transient_faults_and_late_members_never_change_or_lose_a_multicast() {
    let mut checked = 0;
    for seed in 0..1_500 {
        let outcome = Trial::multicast(seed).run();
        assert!(outcome.verdict.is_clean(), "seed {seed}: {}\n{}", outcome.verdict, Trial::multicast(seed));
        checked += outcome.verdict.checked;
    }
    assert!(checked > 150_000, "only {checked} results were checked");
}

#[test]
fn cuts_and_killed_nodes_leave_no_member_waiting_for_a_multicast() {
    let (mut checked, mut failed) = (0, 0);
    for seed in 10_000..11_000 {
        let outcome = Trial::multicast_hard(seed).run();
        assert!(outcome.verdict.is_clean(), "seed {seed}: {}\n{}", outcome.verdict, Trial::multicast_hard(seed));
        checked += outcome.verdict.checked;
        failed += outcome.verdict.failed;
    }
    assert!(checked > 50_000 && failed > 1_000, "{checked} results were checked, {failed} operations failed");
}

/// Seed 10,004 kills the switch above the rank whose turn it is to multicast, 10,058 its host. Only the node beside the failure
/// knew; members below other nodes asked for ever, because an abort went down the tree and never up to the member that had asked.
#[test]
fn members_in_other_subtrees_learn_that_the_multicasting_rank_is_lost() {
    for seed in [10_004, 10_058] {
        let verdict = Trial::multicast_hard(seed).run().verdict;
        assert!(verdict.is_clean() && verdict.failed > 100, "seed {seed}: {verdict}");
    }
}

/// The polling member fails once every slot of the nodes has been used. The others asked for the result of a barrier that no node
/// had received, and got no answer.
#[test]
fn members_learn_that_the_polling_member_is_lost() {
    let verdict = Trial::multicast_hard(104_806).run().verdict;
    assert!(verdict.is_clean() && verdict.failed > 100, "{verdict}");
}

#[test]
fn a_seed_repeats_the_same_events() {
    for seed in 0..40 {
        assert_eq!(Trial::multicast_hard(seed).run().trace, Trial::multicast_hard(seed).run().trace, "seed {seed}");
    }
}

#[test]
#[ignore = "long: tens of thousands of trials"]
fn tens_of_thousands_of_trials_are_clean() {
    for seed in 100_000..120_000 {
        let (soft, hard) = (Trial::multicast(seed).run().verdict, Trial::multicast_hard(seed).run().verdict);
        assert!(soft.is_clean(), "soft seed {seed}: {soft}\n{}", Trial::multicast(seed));
        assert!(hard.is_clean(), "hard seed {seed}: {hard}\n{}", Trial::multicast_hard(seed));
    }
}
