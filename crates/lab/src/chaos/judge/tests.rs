//! Each violation that the judge must find.

use std::time::Duration;

use super::super::plan::ClusterShape;
use super::*;

const RANKS: u32 = 4;

fn plan(expectation: ExpectedOutcome, after_loss: AfterLoss) -> ChaosPlan {
    let shape = ClusterShape {
        hosts: 2,
        ranks_per_host: 2,
        nodes: 0,
        links: 1,
        mtu_bytes: 1_500,
        algorithm: None,
        small_shm: None,
        few_descriptors: None,
    };
    let (case, seed, actions, settle) = ("judged", 3, Vec::new(), Duration::ZERO);
    ChaosPlan { case, seed, shape, actions, expectation, after_loss, settle, returns_to: None }
}

/// The right results of a rank, up to the first stop poll.
fn results(rank: u32, generation: u32, members: &[u32]) -> Vec<ChaosRankReport> {
    let position = members.iter().position(|member| *member == rank).expect("a member");
    (0..8)
        .map(|index| {
            let name = OperationName { seed: 3, generation, index };
            let operation = name.operation(members.len());
            let digest = digest(&name.expected(operation, members, position));
            let is_end = (index == 7).then_some(true);
            ChaosRankReport::Result { generation, index, digest, micros: 10, is_end }
        })
        .collect()
}

fn finished(rank: u32) -> RankLog {
    let mut reports = results(rank, 0, &[0, 1, 2, 3]);
    reports.push(ChaosRankReport::Finished { aggregated: 1 });
    RankLog { reports, malformed_lines: Vec::new(), end: RankEnd::Exited }
}

fn failed(error: ReportedError) -> RankLog {
    let reports = vec![ChaosRankReport::Failed { generation: 0, index: 0, error, micros: 5 }];
    RankLog { reports, malformed_lines: Vec::new(), end: RankEnd::Exited }
}

fn lost(ranks: &[u32]) -> ReportedError {
    ReportedError::RanksLost { ranks: ranks.to_vec() }
}

fn cut_off(ranks: &[u32]) -> ReportedError {
    ReportedError::CutOff { ranks: ranks.to_vec() }
}

fn killed() -> RankLog {
    RankLog { reports: Vec::new(), malformed_lines: vec!["{\"Res".to_owned()], end: RankEnd::Killed }
}

#[track_caller]
fn assert_violation(plan: &ChaosPlan, logs: &[RankLog], words: &str) {
    let violations = judge(plan, logs).violations;
    assert!(violations.iter().any(|violation| violation.contains(words)), "no {words:?} in {violations:?}");
}

#[test]
fn right_results_are_counted() {
    let logs: Vec<RankLog> = (0..RANKS).map(finished).collect();
    let verdict = judge(&plan(ExpectedOutcome::Completes, AfterLoss::End), &logs);
    assert_eq!(verdict.violations, [""; 0]);
    assert_eq!((verdict.results, verdict.errors, verdict.aggregated, verdict.longest_micros), (32, 0, 4, 10));
}

#[test]
fn a_wrong_bit_is_found_in_every_operation() {
    for wrong in 0..8 {
        let mut logs: Vec<RankLog> = (0..RANKS).map(finished).collect();
        if let ChaosRankReport::Result { digest, .. } = &mut logs[2].reports[wrong] {
            *digest ^= 1;
        }
        assert_violation(&plan(ExpectedOutcome::Completes, AfterLoss::End), &logs, "WRONG RESULT at rank 2");
    }
}

#[test]
fn a_rank_that_is_told_something_else_is_found() {
    let mut logs: Vec<RankLog> = (0..RANKS).map(finished).collect();
    if let ChaosRankReport::Result { is_end, .. } = &mut logs[1].reports[7] {
        *is_end = Some(false);
    }
    assert_violation(&plan(ExpectedOutcome::Completes, AfterLoss::End), &logs, "stop poll 7");
}

#[test]
fn errors_hangs_and_deaths_are_found_where_nothing_is_lost() {
    let plan = plan(ExpectedOutcome::Completes, AfterLoss::End);
    let with = |log: RankLog| vec![finished(0), log, finished(2), finished(3)];
    assert_violation(&plan, &with(failed(lost(&[3]))), "although nothing was lost");
    assert_violation(
        &plan,
        &with(RankLog { reports: results(1, 0, &[0, 1, 2, 3]), ..finished(1) }),
        "did not finish",
    );
    assert_violation(
        &plan,
        &with(RankLog { end: RankEnd::Hung("in op 3".to_owned()), ..finished(1) }),
        "hangs: in op 3",
    );
    let died = RankEnd::Died("was killed by SIGSEGV".to_owned());
    assert_violation(&plan, &with(RankLog { end: died, ..finished(1) }), "SIGSEGV");
    let malformed_lines = vec!["oops".to_owned()];
    assert_violation(&plan, &with(RankLog { malformed_lines, ..finished(1) }), "oops");
}

#[test]
fn survivors_must_name_the_same_lost_ranks() {
    let plan = plan(ExpectedOutcome::RanksLost(RankSet::from([1, 3])), AfterLoss::End);
    let logs = |first: ReportedError, second: ReportedError| vec![failed(first), killed(), failed(second), killed()];
    assert_eq!(judge(&plan, &logs(lost(&[1, 3]), lost(&[1, 3]))).violations, [""; 0]);
    assert_violation(&plan, &logs(lost(&[1]), lost(&[3])), "ranks disagree");
    assert_violation(&plan, &logs(lost(&[2]), lost(&[2])), "but ranks {1, 3} are lost");
    let unreachable = ReportedError::Unreachable { from: 0, to: 1 };
    assert_violation(&plan, &logs(unreachable.clone(), unreachable), "cannot reach");
    let silent = RankLog { reports: Vec::new(), malformed_lines: Vec::new(), end: RankEnd::Exited };
    assert_violation(&plan, &[silent, killed(), failed(lost(&[1, 3])), killed()], "rank 0 was not told");
}

#[test]
fn those_that_are_left_must_go_on() {
    let plan = plan(ExpectedOutcome::RanksLost(RankSet::from([1])), AfterLoss::Shrink);
    let survivor = |rank: u32, members: &[u32]| {
        let mut log = failed(lost(&[1]));
        log.reports.push(ChaosRankReport::Shrunk { generation: 1, members: members.to_vec(), millis: 1 });
        log.reports.extend(results(rank, 1, members));
        log.reports.push(ChaosRankReport::Finished { aggregated: 0 });
        log
    };
    let left = [0, 2, 3];
    let good = vec![survivor(0, &left), killed(), survivor(2, &left), survivor(3, &left)];
    assert_eq!(judge(&plan, &good).violations, [""; 0]);
    let mut wrong = good.clone();
    wrong[3] = survivor(3, &[0, 3]);
    assert_violation(&plan, &wrong, "rank 3 shrank to [0, 3]");
    let mut stuck = good;
    stuck[2].reports.truncate(3);
    assert_violation(&plan, &stuck, "rank 2 did not go on");
}

#[test]
fn the_smaller_side_must_be_told() {
    let plan = plan(ExpectedOutcome::Divided { smaller: RankSet::from([3]) }, AfterLoss::End);
    let logs = |last: RankLog| vec![failed(lost(&[3])), failed(lost(&[3])), failed(lost(&[3])), last];
    assert_eq!(judge(&plan, &logs(failed(cut_off(&[0, 1, 2])))).violations, [""; 0]);
    assert_violation(&plan, &logs(failed(lost(&[0, 1, 2]))), "is cut off from ranks [0, 1, 2], but is told");
    assert_violation(&plan, &logs(failed(cut_off(&[0]))), "is cut off from");
}

#[test]
fn a_one_way_cut_needs_one_error() {
    let plan = plan(ExpectedOutcome::OneWay { suspects: RankSet::from([3]) }, AfterLoss::End);
    let logs = |errors: [ReportedError; 4]| errors.map(failed).to_vec();
    let unreachable = |from, to| ReportedError::Unreachable { from, to };
    let named = || lost(&[3]);
    assert_eq!(judge(&plan, &logs([named(), named(), named(), cut_off(&[0, 1, 2])])).violations, [""; 0]);
    assert_eq!(judge(&plan, &logs([(); 4].map(|()| unreachable(3, 1)))).violations, [""; 0]);
    assert_violation(&plan, &logs([named(), named(), unreachable(3, 1), named()]), "ranks disagree");
    assert_violation(&plan, &logs([(); 4].map(|()| unreachable(0, 1))), "only packets of ranks {3}");
    assert_violation(&plan, &logs([cut_off(&[3]), named(), named(), named()]), "rank 0: \"cut off");
}

#[test]
fn a_local_cause_is_told_to_all_and_at_once() {
    let plan = plan(ExpectedOutcome::CannotJoin { because: "/dev/shm is full" }, AfterLoss::End);
    let told = |millis, why: &str| {
        let reports = vec![ChaosRankReport::JoinFailed { millis, why: why.to_owned() }];
        RankLog { reports, malformed_lines: Vec::new(), end: RankEnd::Exited }
    };
    let full = || told(300, "rank 1: /dev/shm is full");
    assert_eq!(judge(&plan, &[full(), full(), full(), full()]).violations, [""; 0]);
    let after_joining = |what: &str| {
        let error = ReportedError::Other { what: what.to_owned() };
        let reports = vec![ChaosRankReport::Failed { generation: 0, index: 0, error, micros: 50_000 }];
        RankLog { reports, malformed_lines: Vec::new(), end: RankEnd::Exited }
    };
    let revoked = after_joining("a rank revoked the communicator: rank 1 cannot join: /dev/shm is full");
    assert_eq!(judge(&plan, &[full(), full(), full(), revoked]).violations, [""; 0]);
    let internal = after_joining("internal error: rank 1 cannot join: /dev/shm is full (please report this)");
    assert_violation(&plan, &[full(), full(), full(), internal], "rank 3 was not told why");
    assert_violation(&plan, &[full(), full(), full(), told(60_000, "nobody made it")], "only after 60000 ms");
    assert_violation(&plan, &[(); 4].map(|()| told(1, "no")), "no rank says");
    assert_violation(&plan, &[full(), full(), full(), finished(3)], "rank 3 was not told why");
}
