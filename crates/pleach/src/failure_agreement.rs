//! The failures that all ranks agree on: a machine without I/O.
//!
//! In: verdicts of the failure detector, own failures, messages of other ranks. Out: messages to send, and the failure of each
//! communicator. A rank that finds a failure reports it to the coordinator and waits. The coordinator sends it to all ranks of the
//! communicator, in one order with the verdicts, so every rank returns the same error: the first one that concerns the communicator. If
//! a rank cannot reach another, the coordinator first asks both: the failure detector tells better if one has ended, or if the
//! coordinator itself is cut off. Rules: P-98, P-99.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bootstrap::OobTarget;
use serde::{Deserialize, Serialize};
use units::GroupId;

use crate::error::Error;

/// How long the coordinator waits for the answers of two ranks that cannot reach each other.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(12);
/// A rank that found a failure waits this long for the coordinator: longer than the failure detector takes in the worst case.
pub(crate) const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(40);
/// A reason is cut after so many characters.
pub(crate) const MAX_REASON_CHARS: usize = 1000;
/// Reports that a coordinator examines at the same time; of more, the first ones are announced at once.
const MAX_UNCONFIRMED: usize = 1024;

/// What happened to a communicator, beside losses of ranks. Serialized names are part of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ReportedFailure {
    /// Packets of a live rank do not reach another.
    Unreachable { from: u32, to: u32, silent_ms: u32 },
    /// A rank has left the job while others wait for it.
    Departed { rank: u32 },
    /// A rank has revoked the communicator.
    Revoked { why: String },
    /// An internal error.
    Internal { what: String },
}

/// Ranks as bits, eight of them in a byte: those of the largest job fit a message.
pub(crate) type RankBitmap = Vec<u8>;

/// A failure of a communicator, with its ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FailureReport {
    context: u32,
    failure: ReportedFailure,
    ranks: RankBitmap,
}

/// Messages between ranks about failures. Serialized names are part of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum FailureMessage {
    /// A rank has found a failure; to the coordinator.
    Report(FailureReport),
    /// Is this rank there, of which another one says that packets do not pass between them? From the coordinator to both.
    Ask(FailureReport),
    /// It is; to the coordinator.
    Confirm(FailureReport),
    /// From the coordinator to all ranks of the communicator.
    Announce(FailureReport),
}

/// What all ranks learn in the same order.
enum JobAnnouncement {
    Lost(Vec<u32>),
    CutOff(Vec<u32>),
    Failed(GroupId, Error),
}

pub(crate) type OutgoingMessages = Vec<(OobTarget, FailureMessage)>;

struct UnconfirmedReport {
    report: FailureReport,
    /// Those of the two ranks that have not answered, and until when they may.
    missing: Vec<u32>,
    until: Instant,
}

#[derive(Default)]
pub(crate) struct FailureAgreement {
    announcements: Vec<JobAnnouncement>,
    /// Reports of this rank that the coordinator has not announced.
    reported: BTreeMap<GroupId, FailureReport>,
    /// What a coordinator has announced: it may have been lost before all ranks of the communicator knew.
    announced: BTreeMap<GroupId, FailureReport>,
    /// At the coordinator: reports about ranks that were asked.
    unconfirmed: Vec<UnconfirmedReport>,
}

impl FailureAgreement {
    /// The failure detector's verdict.
    pub(crate) fn ranks_lost(&mut self, ranks: Vec<u32>) {
        let is_about = |report: &FailureReport| match report.failure {
            ReportedFailure::Unreachable { from, to, .. } => ranks.contains(&from) || ranks.contains(&to),
            ReportedFailure::Departed { .. } | ReportedFailure::Revoked { .. } | ReportedFailure::Internal { .. } => {
                false
            }
        };
        self.unconfirmed.retain(|asked| !is_about(&asked.report));
        self.announcements.push(JobAnnouncement::Lost(ranks));
        self.forget_settled();
    }

    /// This process is on the smaller side of a partition.
    pub(crate) fn cut_off(&mut self, ranks: Vec<u32>) {
        self.announcements.push(JobAnnouncement::CutOff(ranks));
        self.forget_settled();
    }

    /// True if this rank is lost, or does not answer this process.
    pub(crate) fn is_lost(&self, rank: u32) -> bool {
        self.announcements.iter().any(|announcement| match announcement {
            JobAnnouncement::Lost(ranks) | JobAnnouncement::CutOff(ranks) => ranks.contains(&rank),
            JobAnnouncement::Failed(..) => false,
        })
    }

    /// The error of every communicator if this process is cut off.
    pub(crate) fn cut_off_error(&self) -> Option<Error> {
        self.announcements.iter().find_map(|announcement| match announcement {
            JobAnnouncement::CutOff(ranks) => Some(Error::CutOff { ranks: ranks.clone() }),
            JobAnnouncement::Lost(_) | JobAnnouncement::Failed(..) => None,
        })
    }

    /// All ranks that are lost.
    pub(crate) fn lost_ranks(&self) -> impl Iterator<Item = u32> {
        self.announcements
            .iter()
            .flat_map(|announcement| match announcement {
                JobAnnouncement::Lost(ranks) => &ranks[..],
                JobAnnouncement::CutOff(_) | JobAnnouncement::Failed(..) => &[],
            })
            .copied()
    }

    /// The failure of a communicator of these ranks that every one of them returns.
    pub(crate) fn failure_of(&self, context: GroupId, ranks: &[u32]) -> Option<Error> {
        self.announcements.iter().find_map(|announcement| match announcement {
            JobAnnouncement::Lost(lost) => {
                let ranks: Vec<u32> = lost.iter().copied().filter(|rank| ranks.contains(rank)).collect();
                (!ranks.is_empty()).then_some(Error::RanksLost { ranks })
            }
            JobAnnouncement::CutOff(ranks) => Some(Error::CutOff { ranks: ranks.clone() }),
            JobAnnouncement::Failed(failed, error) => (*failed == context).then(|| error.clone()),
        })
    }

    /// A failure that this rank learned of by itself, and that the others learn of by themselves as well.
    pub(crate) fn add(&mut self, context: GroupId, error: Error) {
        let is_it =
            |known: &JobAnnouncement| matches!(known, JobAnnouncement::Failed(failed, _) if *failed == context);
        if !self.announcements.iter().any(is_it) {
            self.announcements.push(JobAnnouncement::Failed(context, error));
            self.forget_settled();
        }
    }

    /// Reports a failure of a communicator of these ranks to the coordinator, once.
    pub(crate) fn report(&mut self, context: GroupId, failure: ReportedFailure, ranks: &[u32]) -> OutgoingMessages {
        if self.reported.contains_key(&context) || self.failure_of(context, ranks).is_some() {
            return Vec::new();
        }
        let report = FailureReport { context: context.0, failure, ranks: to_bitmap(ranks) };
        self.reported.insert(context, report.clone());
        vec![(OobTarget::Coordinator, FailureMessage::Report(report))]
    }

    /// What the old coordinator may have lost, or not told everyone.
    pub(crate) fn coordinator_changed(&self) -> OutgoingMessages {
        let reports = self.announced.values().chain(self.reported.values()).cloned().map(FailureMessage::Report);
        reports.map(|report| (OobTarget::Coordinator, report)).collect()
    }

    /// A message of rank `from`.
    pub(crate) fn handle(&mut self, now: Instant, from: u32, message: FailureMessage) -> OutgoingMessages {
        match message {
            FailureMessage::Report(report) => match report.failure {
                ReportedFailure::Unreachable { from: other, to, .. }
                    if !self.is_lost(to) && self.unconfirmed.len() < MAX_UNCONFIRMED =>
                {
                    self.ask(now, &report, [other, to])
                }
                // The verdict was sent to all before this.
                ReportedFailure::Unreachable { to, .. } if self.is_lost(to) => Vec::new(),
                _ => announce(&report),
            },
            FailureMessage::Ask(report) => vec![(OobTarget::Coordinator, FailureMessage::Confirm(report))],
            FailureMessage::Confirm(report) => {
                // A rank may answer twice: when a coordinator changes, it is asked again.
                for asked in self.unconfirmed.iter_mut().filter(|asked| asked.report == report) {
                    asked.missing.retain(|rank| *rank != from);
                }
                let confirmed = self.unconfirmed.extract_if(.., |asked| asked.missing.is_empty());
                confirmed.flat_map(|asked| announce(&asked.report)).collect()
            }
            FailureMessage::Announce(report) => {
                let context = GroupId(report.context);
                let error = match report.failure.clone() {
                    ReportedFailure::Unreachable { from, to, silent_ms } => {
                        Error::Unreachable { from, to, silence: Duration::from_millis(silent_ms.into()) }
                    }
                    ReportedFailure::Departed { rank } => Error::RanksLost { ranks: vec![rank] },
                    ReportedFailure::Revoked { why } => Error::Revoked { why },
                    ReportedFailure::Internal { what } => Error::Internal { what },
                };
                self.announced.entry(context).or_insert(report);
                self.add(context, error);
                Vec::new()
            }
        }
    }

    /// Asks both ranks: an answer of the one that reports shows that this coordinator is not cut off itself.
    fn ask(&mut self, now: Instant, report: &FailureReport, ranks: [u32; 2]) -> OutgoingMessages {
        if self.unconfirmed.iter().any(|asked| asked.report == *report) {
            return Vec::new();
        }
        let until = now + CONFIRMATION_TIMEOUT;
        self.unconfirmed.push(UnconfirmedReport { report: report.clone(), missing: ranks.into(), until });
        ranks.map(|rank| (OobTarget::Rank(rank), FailureMessage::Ask(report.clone()))).into()
    }

    /// Announces failures about ranks that were asked and did not answer, although the failure detector does not miss them.
    pub(crate) fn tick(&mut self, now: Instant) -> OutgoingMessages {
        if self.unconfirmed.is_empty() {
            return Vec::new();
        }
        let overdue = self.unconfirmed.extract_if(.., |asked| asked.until <= now);
        overdue.flat_map(|asked| announce(&asked.report)).collect()
    }

    /// A communicator is closed.
    pub(crate) fn close(&mut self, context: GroupId) {
        self.announcements
            .retain(|announcement| !matches!(announcement, JobAnnouncement::Failed(failed, _) if *failed == context));
        self.reported.remove(&context);
        self.announced.remove(&context);
    }

    /// Forgets own reports of communicators whose failure is known.
    fn forget_settled(&mut self) {
        let settled: Vec<GroupId> = self
            .reported
            .iter()
            .filter(|(context, report)| self.failure_of(**context, &from_bitmap(&report.ranks)).is_some())
            .map(|(context, _)| *context)
            .collect();
        settled.iter().for_each(|context| drop(self.reported.remove(context)));
    }
}

fn announce(report: &FailureReport) -> OutgoingMessages {
    let message = FailureMessage::Announce(report.clone());
    from_bitmap(&report.ranks).into_iter().map(|rank| (OobTarget::Rank(rank), message.clone())).collect()
}

pub(crate) fn to_bitmap(ranks: &[u32]) -> RankBitmap {
    let bytes = ranks.iter().max().map_or(0, |last| *last as usize / 8 + 1);
    let mut bitmap = vec![0; bytes];
    ranks.iter().for_each(|rank| bitmap[*rank as usize / 8] |= 1 << (rank % 8));
    bitmap
}

/// The ranks of a bitmap that another rank sent, in order.
pub(crate) fn from_bitmap(bitmap: &[u8]) -> Vec<u32> {
    let bits = bitmap.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
    (0..).zip(bits).filter_map(|(rank, is_set)| is_set.then_some(rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: GroupId = GroupId(7);
    const MEMBERS: [u32; 4] = [0, 1, 2, 5];
    const SILENCE: Duration = Duration::from_millis(8_250);

    fn unreachable(from: u32, to: u32) -> ReportedFailure {
        ReportedFailure::Unreachable { from, to, silent_ms: 8_250 }
    }

    /// The agreements of six ranks, coordinated by rank 0, with messages on their way.
    struct SimulatedJob {
        ranks: Vec<FailureAgreement>,
        /// Sender, receiver, message.
        queue: Vec<(u32, u32, FailureMessage)>,
    }

    impl SimulatedJob {
        fn new() -> Self {
            Self { ranks: (0..6).map(|_| FailureAgreement::default()).collect(), queue: Vec::new() }
        }

        fn send(&mut self, from: u32, messages: OutgoingMessages) {
            for (target, message) in messages {
                match target {
                    OobTarget::Rank(rank) => self.queue.push((from, rank, message)),
                    OobTarget::Coordinator => self.queue.push((from, 0, message)),
                    OobTarget::All => panic!("nobody sends to all"),
                }
            }
        }

        fn report(&mut self, rank: usize, failure: ReportedFailure) {
            let messages = self.ranks[rank].report(CONTEXT, failure, &MEMBERS);
            self.send(rank as u32, messages);
        }

        fn deliver_all(&mut self, now: Instant) {
            while !self.queue.is_empty() {
                let (from, rank, message) = self.queue.remove(0);
                let messages = self.ranks[rank as usize].handle(now, from, message);
                self.send(rank, messages);
            }
        }

        fn errors(&self) -> Vec<Option<Error>> {
            MEMBERS.iter().map(|rank| self.ranks[*rank as usize].failure_of(CONTEXT, &MEMBERS)).collect()
        }
    }

    #[test]
    fn two_ranks_that_cannot_reach_each_other_and_all_others_return_the_same_error() {
        let mut job = SimulatedJob::new();
        job.report(2, unreachable(2, 5));
        job.report(5, unreachable(5, 2));
        job.deliver_all(Instant::now());
        assert_eq!(job.errors(), vec![Some(Error::Unreachable { from: 2, to: 5, silence: SILENCE }); 4]);
        assert_eq!(job.ranks[3].failure_of(CONTEXT, &MEMBERS), None, "rank 3 is not in the communicator");
        job.ranks[1].close(CONTEXT);
        assert_eq!(job.errors()[1], None);
    }

    #[test]
    fn a_rank_that_has_ended_is_lost_and_not_unreachable() {
        let (mut job, now) = (SimulatedJob::new(), Instant::now());
        job.report(1, unreachable(1, 5));
        let (from, rank, message) = job.queue.remove(0);
        let messages = job.ranks[rank as usize].handle(now, from, message);
        let asked: Vec<OobTarget> = messages.iter().map(|(target, _)| *target).collect();
        assert_eq!(asked, [OobTarget::Rank(1), OobTarget::Rank(5)]);
        let confirmed = job.ranks[1].handle(now, 0, messages[0].1.clone());
        for _ in 0..2 {
            // Twice, as after a change of the coordinator.
            assert!(job.ranks[0].handle(now, 1, confirmed[0].1.clone()).is_empty(), "rank 5 has not answered");
        }
        // It does not; the verdict follows.
        job.ranks.iter_mut().for_each(|rank| rank.ranks_lost(vec![4, 5]));
        assert_eq!(job.ranks[0].tick(now + CONFIRMATION_TIMEOUT), []);
        assert_eq!(job.errors(), vec![Some(Error::RanksLost { ranks: vec![5] }); 4]);
        assert!(job.ranks[1].coordinator_changed().is_empty(), "there is nothing to report any more");
    }

    /// The coordinator's packets are lost, and those of others arrive.
    #[test]
    fn a_coordinator_that_is_cut_off_announces_nothing_before_its_verdict() {
        let (mut job, now) = (SimulatedJob::new(), Instant::now());
        job.report(2, unreachable(2, 0));
        while let Some((from, rank, message)) = job.queue.pop() {
            let messages = job.ranks[rank as usize].handle(now, from, message);
            job.send(rank, messages);
            job.queue.retain(|(_, rank, _)| *rank == 0);
        }
        assert_eq!(job.errors()[0], None);
        job.ranks[0].cut_off(vec![1, 2, 3, 4, 5]);
        assert!(matches!(job.errors()[0], Some(Error::CutOff { .. })), "{:?}", job.errors());
    }

    #[test]
    fn a_rank_that_does_not_answer_and_is_not_lost_is_announced_after_a_while() {
        let (mut job, now) = (SimulatedJob::new(), Instant::now());
        job.report(1, unreachable(1, 5));
        let (from, rank, message) = job.queue.remove(0);
        job.ranks[rank as usize].handle(now, from, message);
        assert_eq!(job.ranks[0].tick(now), []);
        let messages = job.ranks[0].tick(now + CONFIRMATION_TIMEOUT);
        job.send(0, messages);
        job.deliver_all(now);
        assert_eq!(job.errors(), vec![Some(Error::Unreachable { from: 1, to: 5, silence: SILENCE }); 4]);
    }

    #[test]
    fn the_first_announcement_counts_and_a_new_coordinator_gets_the_report_again() {
        let (mut job, now) = (SimulatedJob::new(), Instant::now());
        job.report(1, ReportedFailure::Internal { what: "broken".to_owned() });
        job.queue.clear(); // The old coordinator has lost it.
        let messages = job.ranks[1].coordinator_changed();
        assert_eq!(messages.len(), 1);
        job.send(1, messages);
        // The new one is lost as well, after it has told rank 1 alone.
        let (from, rank, message) = job.queue.remove(0);
        let messages = job.ranks[rank as usize].handle(now, from, message);
        let told = messages.into_iter().find(|(target, _)| *target == OobTarget::Rank(1)).expect("it is told");
        job.ranks[1].handle(now, 0, told.1);
        assert_eq!(job.errors().iter().flatten().count(), 1);
        let messages = job.ranks[1].coordinator_changed();
        job.send(1, messages);
        job.deliver_all(now);
        job.ranks.iter_mut().for_each(|rank| rank.ranks_lost(vec![5]));
        assert_eq!(job.errors(), vec![Some(Error::Internal { what: "broken".to_owned() }); 4]);
        assert_eq!(job.ranks[0].failure_of(GroupId(8), &[4, 5]), Some(Error::RanksLost { ranks: vec![5] }));
        assert!(job.ranks[0].is_lost(5) && !job.ranks[0].is_lost(4));
    }

    #[test]
    fn the_ranks_of_the_largest_job_fit_a_message() {
        assert_eq!(from_bitmap(&to_bitmap(&[9, 1, 2, 17, 0])), [0, 1, 2, 9, 17]);
        assert_eq!(from_bitmap(&to_bitmap(&[])), [0; 0]);
        let ranks: Vec<u32> = (0..bootstrap::MAX_JOB_RANKS).collect();
        let report = FailureReport {
            context: u32::MAX,
            failure: ReportedFailure::Revoked { why: "x".repeat(MAX_REASON_CHARS) },
            ranks: to_bitmap(&ranks),
        };
        let bytes = serde_json::to_vec(&FailureMessage::Report(report)).expect("plain values serialize");
        assert!(bytes.len() < bootstrap::MAX_OOB_MESSAGE_BYTES - 1000, "{}", bytes.len());
    }
}
