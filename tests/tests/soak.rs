//! `pleach soak`: seeds without a violation, and deliberate defects that it must find.

use lab::progress::StepProgress;
use lab::soak::{Canary, SoakCase, minimise, soak};

/// How many seeds the soak may need to find a defect.
const SEEDS: u64 = 200;

fn progress() -> StepProgress {
    StepProgress::new("soak", SEEDS, "seeds")
}

#[test]
fn two_hundred_seeds_have_no_violation() {
    let report = soak(0, SEEDS, 2, None, &progress()).expect("all drawn cases are valid");
    assert_eq!(report.failed_seeds, 0, "{:#?}", report.failures);
    assert!(report.operations > 1_000 && report.results_checked > 10_000, "{report:?}");
    assert!(report.faulty_packets > 1_000 && report.failed_trees > 20 && report.results_failed > 20, "{report:?}");
}

#[test]
fn a_seed_has_the_same_events_on_any_number_of_threads() {
    let trace = |threads| soak(500, 24, threads, None, &progress()).expect("valid cases").trace;
    assert_eq!(trace(1), trace(3));
    assert_ne!(trace(1), soak(501, 24, 1, None, &progress()).expect("valid cases").trace);
}

#[test]
fn a_case_survives_its_file() {
    for seed in 0..40 {
        let case = SoakCase::draw(seed);
        let read: SoakCase = toml::from_str(&case.to_text()).expect("what was written can be read");
        assert_eq!(read.to_text(), case.to_text());
        let traces = [&case, &read].map(|case| case.run(None).expect("a valid case").trace);
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
}

/// Cases that found a defect, each made as small as possible. The first line of a file says what it was.
#[test]
fn cases_that_found_a_defect_have_no_violation_any_more() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/soak_cases");
    let mut cases = 0;
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("readable").path();
        let outcome = SoakCase::read(&path).and_then(|case| case.run(None)).expect("a valid case");
        assert!(outcome.is_clean(), "{}: {:?}", path.display(), outcome.problems());
        cases += 1;
    }
    assert!(cases > 0);
}

/// It took two million packet hops, and other cases filled the memory (P-107).
#[test]
fn packets_do_not_multiply_while_all_are_damaged() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/soak_cases/damaged-naks.toml");
    let outcome = SoakCase::read(&path).and_then(|case| case.run(None)).expect("a valid case");
    assert!(outcome.is_clean() && outcome.hops < 20_000, "{} hops, {:?}", outcome.hops, outcome.problems());
}

/// The first seed at which a defect shows.
fn first_failure(canary: Canary) -> Option<u64> {
    (0..SEEDS).find(|seed| !SoakCase::draw(*seed).run(Some(canary)).expect("a valid case").is_clean())
}

#[test]
fn every_defect_is_found_within_two_hundred_seeds() {
    let all = Canary::all();
    assert!(all.len() >= 8);
    let missed: Vec<&str> =
        all.iter().filter(|canary| first_failure(**canary).is_none()).map(|canary| canary.name).collect();
    assert!(missed.is_empty(), "{missed:?} were not found");
}

#[test]
fn a_failing_case_is_made_small_and_still_fails() {
    let canary = Canary::find("fold-backwards").expect("a known defect");
    let seed = first_failure(canary).expect("it is found");
    let minimised = minimise(&SoakCase::draw(seed), Some(canary)).expect("a valid case");
    let case: SoakCase = toml::from_str(&minimised.case).expect("a case");
    assert!(!case.run(Some(canary)).expect("a valid case").is_clean());
    assert!(case.run(None).expect("a valid case").is_clean(), "only the defect makes it fail");
    // Two operands and one operation are enough; no fault is needed.
    let hosts: usize = case.groups.iter().map(|group| group.hosts.len()).sum();
    let operations: usize = case.groups.iter().map(|group| group.operations.len()).sum();
    assert_eq!((case.groups.len(), operations, case.faults.len()), (1, 1, 0), "{}", minimised.case);
    assert!(hosts <= 3, "{}", minimised.case);
}

#[test]
#[ignore = "long: tens of thousands of seeds"]
fn tens_of_thousands_of_seeds_have_no_violation() {
    let report = soak(1_000_000, 20_000, 2, None, &progress()).expect("all drawn cases are valid");
    assert_eq!(report.failed_seeds, 0, "{:#?}", report.failures);
}
