//! Right bits, exactly once, for everyone: hundreds of seeded trials with random fault plans, judged by the oracle.

use tests::Trial;

#[test]
fn soft_faults_never_change_a_result_nor_lose_one() {
    let mut checked = 0;
    for seed in 0..700 {
        let outcome = Trial::soft(seed).run();
        assert!(outcome.verdict.is_clean(), "seed {seed}: {}\n{}", outcome.verdict, Trial::soft(seed));
        checked += outcome.verdict.checked;
    }
    assert!(checked > 50_000, "only {checked} results were checked");
}

#[test]
fn cuts_and_deaths_never_change_a_result_nor_leave_anyone_waiting() {
    let (mut checked, mut failed) = (0, 0);
    for seed in 10_000..10_300 {
        let outcome = Trial::hard(seed).run();
        assert!(outcome.verdict.is_clean(), "seed {seed}: {}\n{}", outcome.verdict, Trial::hard(seed));
        checked += outcome.verdict.checked;
        failed += outcome.verdict.failed;
    }
    assert!(checked > 10_000 && failed > 100, "{checked} results were checked, {failed} operations failed");
}

#[test]
fn a_seed_gives_the_same_events_every_time() {
    for seed in 0..40 {
        assert_eq!(Trial::hard(seed).run().trace, Trial::hard(seed).run().trace, "seed {seed}");
    }
    assert_ne!(Trial::soft(1).run().trace, Trial::soft(2).run().trace);
}
