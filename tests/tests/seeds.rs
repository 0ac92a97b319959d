//! Correct results, exactly once, at every rank: thousands of seeded trials with random fault plans, checked by the oracle.

use tests::Trial;

#[test]
fn transient_faults_never_change_or_lose_a_result() {
    let mut checked = 0;
    for seed in 0..2_000 {
        let outcome = Trial::soft(seed).run();
        assert!(outcome.verdict.is_clean(), "seed {seed}: {}\n{}", outcome.verdict, Trial::soft(seed));
        checked += outcome.verdict.checked;
    }
    assert!(checked > 150_000, "only {checked} results were checked");
}

#[test]
fn cuts_and_killed_nodes_never_change_a_result_or_leave_a_rank_waiting() {
    let (mut checked, mut failed) = (0, 0);
    for seed in 10_000..11_500 {
        let outcome = Trial::hard(seed).run();
        assert!(outcome.verdict.is_clean(), "seed {seed}: {}\n{}", outcome.verdict, Trial::hard(seed));
        checked += outcome.verdict.checked;
        failed += outcome.verdict.failed;
    }
    assert!(checked > 50_000 && failed > 1_000, "{checked} results were checked, {failed} operations failed");
}

#[test]
fn a_sweep_on_two_threads_has_the_same_events_as_on_one() {
    let seeds: Vec<u64> = (500..580).collect();
    let sweep = |seeds: &[u64]| seeds.iter().map(|seed| Trial::soft(*seed).run().trace).collect::<Vec<_>>();
    let alone = sweep(&seeds);
    let (left, right) = seeds.split_at(40);
    let together = std::thread::scope(|scope| {
        let left = scope.spawn(|| sweep(left));
        let right = sweep(right);
        [left.join().expect("no trial panics"), right].concat()
    });
    assert_eq!(alone, together);
}

#[test]
fn a_seed_repeats_the_same_events() {
    for seed in 0..40 {
        assert_eq!(Trial::hard(seed).run().trace, Trial::hard(seed).run().trace, "seed {seed}");
    }
    assert_ne!(Trial::soft(1).run().trace, Trial::soft(2).run().trace);
}

#[test]
#[ignore = "long: tens of thousands of trials"]
fn tens_of_thousands_of_trials_are_clean() {
    for seed in 100_000..120_000 {
        let (soft, hard) = (Trial::soft(seed).run().verdict, Trial::hard(seed).run().verdict);
        assert!(soft.is_clean(), "soft seed {seed}: {soft}\n{}", Trial::soft(seed));
        assert!(hard.is_clean(), "hard seed {seed}: {hard}\n{}", Trial::hard(seed));
    }
}
