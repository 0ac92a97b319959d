//! Judges several jobs that work at the same time: each has an oracle of its own.
//!
//! In: the events of all jobs. Out: a [`JobJudgement`] for each, with the times of its operations.

use protocol::Payload;
use simulator::collective::{CollectiveObserver, CollectiveTiming, OperationFailure};
use simulator::scenario::Scenario;
use simulator::shared_fabric::{FoldReference, GroupSegment, SharedFabricEnd, SharedFabricObserver};
use units::{OpId, Rank, SimSpan, SimTime};

use crate::oracle_checker::{OracleChecker, OracleJudgement};
use crate::reference_fold::ReferenceFold;

/// The verdict on one job.
pub struct JobJudgement {
    pub(crate) judgement: OracleJudgement,
    /// The operations that ended.
    pub(crate) timings: Vec<CollectiveTiming>,
    /// When the last of them ended.
    pub(crate) finished: Option<SimTime>,
}

/// Observes a run of several jobs; its verdicts are due at the end.
pub struct JobsChecker {
    jobs: Vec<JobRecord>,
}

/// A job and what became of it so far.
struct JobRecord {
    checker: OracleChecker,
    hosts: Vec<u32>,
    segments: u32,
    /// Operations that have begun.
    begun: u32,
    /// When the present operation began.
    begun_at: SimTime,
    /// Whether the present operation has failed at a rank.
    has_failed: bool,
    timings: Vec<CollectiveTiming>,
    finished: Option<SimTime>,
}

impl JobsChecker {
    /// A checker for the jobs of a scenario.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let record = |(number, job): (u64, &simulator::scenario::ScenarioJob)| JobRecord {
            // No two jobs have the same contributions.
            checker: OracleChecker::of_job(scenario.seed ^ number << 48, job, &scenario.plan),
            hosts: job.hosts.clone(),
            segments: job.vector.segments(),
            begun: 0,
            begun_at: SimTime::ZERO,
            has_failed: false,
            timings: Vec::new(),
            finished: None,
        };
        Self { jobs: (0..).zip(&scenario.jobs).map(record).collect() }
    }

    /// Says how the run ended. If a job hangs, what the others had begun is not judged: they might have ended it.
    pub(crate) fn end(&mut self, end: SharedFabricEnd) {
        let hung = match end {
            SharedFabricEnd::Hung { group, .. } => Some(group),
            SharedFabricEnd::Finished | SharedFabricEnd::PacketStorm => None,
        };
        for (number, job) in self.jobs.iter_mut().enumerate() {
            let is_hung = hung == Some(number);
            if is_hung {
                job.timings.push(CollectiveTiming { reduce: None, complete: None });
            }
            job.checker.stop_before(if is_hung { job.begun } else { job.timings.len() as u32 });
        }
    }

    /// The verdicts, in the order of the jobs.
    pub(crate) fn judge(self) -> Vec<JobJudgement> {
        let judge = |job: JobRecord| JobJudgement {
            judgement: job.checker.judge(),
            timings: job.timings,
            finished: job.finished,
        };
        self.jobs.into_iter().map(judge).collect()
    }

    /// The times of all operations, job by job.
    pub(crate) fn timings(&self) -> Vec<CollectiveTiming> {
        self.jobs.iter().flat_map(|job| job.timings.iter().copied()).collect()
    }

    fn job(&mut self, segment: GroupSegment) -> (&mut JobRecord, OpId) {
        let job = &mut self.jobs[segment.group];
        let op = OpId(segment.operation as u32 * job.segments + segment.segment);
        (job, op)
    }
}

/// Passes events to a checker, and the number of operations that ended to whoever shows progress.
pub(crate) struct ObservedJobs<'c, P> {
    pub(crate) checker: &'c mut JobsChecker,
    pub(crate) progress: P,
    pub(crate) ended: u32,
}

impl<P: FnMut(u32)> SharedFabricObserver for ObservedJobs<'_, P> {
    fn begins(&mut self, group: usize, _: usize, now: SimTime, order: FoldReference<'_>) {
        let job = &mut self.checker.jobs[group];
        (job.begun, job.begun_at, job.has_failed) = (job.begun + 1, now, false);
        if job.checker.has_contents() {
            job.checker.set_order(match order {
                FoldReference::Algorithm(algorithm) => ReferenceFold::of_algorithm(algorithm, job.hosts.len() as u32),
                FoldReference::Tree(tree) => ReferenceFold::of_tree(tree, |host| {
                    let rank = job.hosts.binary_search(&host.0).expect("a tree joins the hosts of its job");
                    Rank(rank as u32)
                }),
            });
        }
    }

    fn contribution(&mut self, segment: GroupSegment, rank: Rank) -> Payload {
        let (job, op) = self.checker.job(segment);
        job.checker.contribution(rank, op)
    }

    fn started(&mut self, segment: GroupSegment, rank: Rank) {
        let (job, op) = self.checker.job(segment);
        job.checker.started(rank, op);
    }

    fn delivered(&mut self, segment: GroupSegment, rank: Rank, result: &Payload) {
        let (job, op) = self.checker.job(segment);
        job.checker.delivered(rank, op, result);
    }

    fn recomputed(&mut self, segment: GroupSegment, rank: Rank, result: &Payload) {
        let (job, op) = self.checker.job(segment);
        job.checker.recomputed(rank, op, result);
    }

    fn failed(&mut self, segment: GroupSegment, rank: Rank, cause: OperationFailure) {
        let (job, op) = self.checker.job(segment);
        job.has_failed = true;
        job.checker.failed(rank, op, cause);
    }

    fn ends(&mut self, group: usize, _: usize, now: SimTime) {
        let job = &mut self.checker.jobs[group];
        let time: SimSpan = now.since(job.begun_at);
        job.timings.push(CollectiveTiming { reduce: None, complete: (!job.has_failed).then_some(time) });
        job.finished = Some(now);
        self.ended += 1;
        (self.progress)(self.ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated_run::SimulatedRun;

    /// Passes events on; flips a bit of one result of the second job.
    struct WrongBit<'c>(ObservedJobs<'c, fn(u32)>);

    impl SharedFabricObserver for WrongBit<'_> {
        fn begins(&mut self, group: usize, operation: usize, now: SimTime, order: FoldReference<'_>) {
            self.0.begins(group, operation, now, order);
        }
        fn contribution(&mut self, segment: GroupSegment, rank: Rank) -> Payload {
            self.0.contribution(segment, rank)
        }
        fn started(&mut self, segment: GroupSegment, rank: Rank) {
            self.0.started(segment, rank);
        }
        fn delivered(&mut self, segment: GroupSegment, rank: Rank, result: &Payload) {
            let mut bytes = result.bytes().unwrap_or_default().to_vec();
            if segment == (GroupSegment { group: 1, operation: 1, segment: 0 }) && rank == Rank(2) {
                bytes[3] ^= 4;
            }
            self.0.delivered(segment, rank, &Payload::from(bytes));
        }
        fn recomputed(&mut self, segment: GroupSegment, rank: Rank, result: &Payload) {
            self.0.recomputed(segment, rank, result);
        }
        fn failed(&mut self, segment: GroupSegment, rank: Rank, cause: OperationFailure) {
            self.0.failed(segment, rank, cause);
        }
        fn ends(&mut self, group: usize, operation: usize, now: SimTime) {
            self.0.ends(group, operation, now);
        }
    }

    #[test]
    fn a_wrong_bit_is_found_in_its_job() {
        let text = "[fabric]\nkind = \"xgft\"\nchildren = [4, 4]\nparents = [1, 4]\n\
                    [[job]]\nmembers = 4\noperations = 2\n[[job]]\nmembers = 5\noperations = 2\n";
        let scenario = Scenario::parse(text, "a.toml").unwrap_or_else(|error| panic!("{error}"));
        let Ok(SimulatedRun::Packets(mut run)) = SimulatedRun::set_up(&scenario) else { panic!("it can be set up") };
        let mut checker = JobsChecker::new(&scenario);
        let progress: fn(u32) = |_| ();
        let end = run.run_jobs(&mut WrongBit(ObservedJobs { checker: &mut checker, progress, ended: 0 }));
        checker.end(end.expect("a run of jobs"));
        let violations: Vec<u64> =
            checker.judge().iter().map(|job| job.judgement.verdict.violation_count()).collect();
        assert_eq!(violations, [0, 1]);
    }
}
