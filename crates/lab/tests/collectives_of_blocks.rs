//! Reduce-scatter, allgather and alltoall among simulated hosts: the oracle accepts what the machines make, and notices what is wrong.

use lab::oracle_checker::OracleChecker;
use protocol::Payload;
use simulator::collective::{CollectiveObserver, OperationFailure};
use simulator::scenario::{Scenario, ScenarioRun};
use units::{OpId, Rank};

/// Every operation with every algorithm, by name.
const METHODS: [(&str, &str); 6] = [
    ("reduce-scatter", "ring"),
    ("reduce-scatter", "recursive-halving"),
    ("reduce-scatter", "tree"),
    ("allgather", "ring"),
    ("allgather", "recursive-doubling"),
    ("alltoall", "pairwise"),
];

fn scenario((operation, algorithm): (&str, &str), further: &str) -> Scenario {
    let text = format!(
        "[fabric]\nkind = \"xgft\"\nchildren = [4, 4]\nparents = [1, 4]\n[link]\nrate = \"HDR\"\n\
         [collective]\noperation = \"{operation}\"\nalgorithm = \"{algorithm}\"\noperations = 3\n{further}"
    );
    Scenario::parse(&text, "test.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn set_up(scenario: &Scenario) -> (ScenarioRun, OracleChecker) {
    let run = scenario.set_up(scenario.seed).unwrap_or_else(|error| panic!("{error}"));
    let checker = OracleChecker::of_scenario(scenario, &run);
    (run, checker)
}

#[test]
fn vectors_of_any_length_are_judged_bit_by_bit() {
    for method in METHODS {
        for members in [1, 2, 7, 16] {
            for further in [
                "element = \"u8\"\nbytes = 1\n",
                "element = \"u8\"\nbytes = 13\n",
                "element = \"f32\"\nbytes = 4100\n",
                "element = \"f64\"\nbytes = 100000\nsegment-bytes = 3000\nplacement = \"random\"\n",
                "element = \"i16\"\nbytes = 65536\npace = \"back-to-back\"\nlate-us = 5\n",
            ] {
                let scenario = scenario(method, &format!("members = {members}\n{further}"));
                let (mut run, mut checker) = set_up(&scenario);
                let timings = run.run(scenario.operations, &mut checker, |_| ());
                assert!(timings.iter().all(|timing| timing.complete.is_some()), "{method:?}, {members}, {further}");
                let verdict = checker.judge().verdict;
                assert_eq!(
                    verdict.violation_count(),
                    0,
                    "{method:?}, {members}, {further}: {:?}",
                    verdict.violations
                );
                assert_eq!(verdict.checked, u64::from(3 * members * scenario.segments()));
            }
        }
    }
}

#[test]
fn losses_cost_time_and_no_bit() {
    for method in METHODS {
        let text = "element = \"f32\"\nbytes = 50000\n[[fault]]\nkind = \"lose\"\nprobability = 0.002\n";
        let scenario = scenario(method, text);
        let (mut run, mut checker) = set_up(&scenario);
        run.run(scenario.operations, &mut checker, |_| ());
        let verdict = checker.judge().verdict;
        assert_eq!((verdict.violation_count(), verdict.checked), (0, 3 * 16), "{method:?}");
    }
}

/// Passes results on to the oracle, one of them with a bit flipped or of another host.
struct WrongResult {
    checker: OracleChecker,
    defect: ResultDefect,
    kept: Option<Payload>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum ResultDefect {
    FlippedBit,
    OfAnotherHost,
    TooShort,
}

impl CollectiveObserver for WrongResult {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Payload {
        self.checker.contribution(rank, op)
    }
    fn started(&mut self, rank: Rank, op: OpId) {
        self.checker.started(rank, op);
    }
    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        let bytes = result.bytes().unwrap_or_default();
        let first = self.kept.get_or_insert_with(|| result.clone()).clone();
        let is_chosen = op == OpId(1) && rank == Rank(5);
        let wrong = match self.defect {
            _ if !is_chosen => result.clone(),
            ResultDefect::FlippedBit => {
                let mut bytes = bytes.to_vec();
                bytes[7] ^= 1;
                Payload::from(bytes)
            }
            ResultDefect::OfAnotherHost => first,
            ResultDefect::TooShort => Payload::from(bytes[..bytes.len() - 4].to_vec()),
        };
        self.checker.delivered(rank, op, &wrong);
    }
    fn failed(&mut self, rank: Rank, op: OpId, cause: OperationFailure) {
        self.checker.failed(rank, op, cause);
    }
}

#[test]
fn the_oracle_notices_a_wrong_result() {
    for method in METHODS {
        for defect in [ResultDefect::FlippedBit, ResultDefect::OfAnotherHost, ResultDefect::TooShort] {
            let scenario = scenario(method, "element = \"f32\"\nbytes = 6400\n");
            let (mut run, checker) = set_up(&scenario);
            let mut observer = WrongResult { checker, defect, kept: None };
            run.run(scenario.operations, &mut observer, |_| ());
            let verdict = observer.checker.judge().verdict;
            assert_eq!(verdict.violation_count(), 1, "{method:?}, {defect:?}");
        }
    }
}

#[test]
fn what_an_operation_over_blocks_does_not_have_is_an_error_that_says_so() {
    let error_of = |text: &str| {
        let head = "[fabric]\nkind = \"xgft\"\nchildren = [64, 64]\nparents = [1, 1]\n[collective]\n";
        Scenario::parse(&format!("{head}{text}"), "test.toml").expect_err(text).to_string()
    };
    for (text, message) in [
        ("operation = \"allgather\"\noperator = \"sum\"\n", "an allgather reduces nothing"),
        ("operation = \"alltoall\"\noperator = \"sum\"\n", "an alltoall reduces nothing"),
        ("operation = \"alltoall\"\n", "members to 2048"),
        ("operation = \"alltoall\"\nalgorithm = \"ring\"\nmembers = 4\n", "allowed: \"pairwise\", \"choose\""),
        (
            "operation = \"reduce-scatter\"\nalgorithm = \"aggregation\"\n",
            "\"ring\", \"recursive-halving\", \"tree\"",
        ),
    ] {
        let error = error_of(text);
        assert!(error.contains(message), "{error}");
    }
}
