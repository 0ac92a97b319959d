//! Agreement of the ranks of a communicator that are left, also after some of them are lost: a machine without I/O.
//!
//! In: votes of this and other ranks, verdicts about ranks. Out: messages, and for each vote one outcome, the same at all ranks that get
//! one: the bits that all voters have set, who voted, and a context for a new communicator. The coordinator collects the votes of all
//! ranks that are not gone. If it is lost, ranks vote again, and those that have the outcome already tell it to the new one (P-100).

use std::collections::{BTreeMap, VecDeque};

use bootstrap::OobTarget;
use serde::{Deserialize, Serialize};
use units::GroupId;

use crate::failure_agreement::{RankBitmap, from_bitmap, to_bitmap};

/// Outcomes that a rank keeps. Nobody is more than one agreement behind on a communicator.
const MAX_KNOWN: usize = 64;

/// A communicator, and how many agreements there were on it before.
pub(crate) type AgreementName = (u32, u64);

/// What a rank says. Serialized names are part of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AgreementVote {
    name: AgreementName,
    rank: u32,
    bits: u64,
    /// The first context that this rank has not used.
    next_context: u32,
    /// The ranks of the communicator.
    ranks: RankBitmap,
}

/// What all voters learn. Serialized names are part of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AgreementOutcome {
    name: AgreementName,
    /// The bits that all voters have set.
    pub bits: u64,
    /// A context that no voter has used.
    pub context: u32,
    /// Who voted.
    survivors: RankBitmap,
}

impl AgreementOutcome {
    /// True if this rank has voted.
    pub(crate) fn includes(&self, rank: u32) -> bool {
        self.survivors.get(rank as usize / 8).is_some_and(|byte| byte >> (rank % 8) & 1 == 1)
    }
}

/// Messages between ranks about agreements. Serialized names are part of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum AgreementMessage {
    /// To the coordinator.
    Vote(AgreementVote),
    /// From the coordinator to all voters, and to a new coordinator from those that know it.
    Outcome(AgreementOutcome),
}

pub(crate) type AgreementMessages = Vec<(OobTarget, AgreementMessage)>;

#[derive(Default)]
pub(crate) struct SurvivorAgreement {
    /// Agreements that this rank has begun on each communicator.
    counts: BTreeMap<GroupId, u64>,
    /// The vote of this rank that has no outcome yet, for each communicator.
    open: BTreeMap<GroupId, AgreementVote>,
    /// The last outcomes that this rank knows, the oldest first: also of communicators that are closed here, or of which it is not a
    /// member, because other ranks may lack them.
    known: VecDeque<AgreementOutcome>,
    /// At the coordinator: votes by agreement and rank.
    votes: BTreeMap<AgreementName, BTreeMap<u32, AgreementVote>>,
}

impl SurvivorAgreement {
    /// Votes on a communicator of these ranks; the number of the agreement.
    pub(crate) fn vote(
        &mut self,
        (context, ranks): (GroupId, &[u32]),
        rank: u32,
        bits: u64,
        next_context: u32,
    ) -> (u64, AgreementMessages) {
        let count = self.counts.entry(context).or_default();
        let number = *count;
        *count += 1;
        let vote = AgreementVote { name: (context.0, number), rank, bits, next_context, ranks: to_bitmap(ranks) };
        self.open.insert(context, vote.clone());
        (number, vec![(OobTarget::Coordinator, AgreementMessage::Vote(vote))])
    }

    /// The outcome of an agreement, once it is known.
    pub(crate) fn outcome(&self, context: GroupId, number: u64) -> Option<&AgreementOutcome> {
        self.find((context.0, number))
    }

    fn find(&self, name: AgreementName) -> Option<&AgreementOutcome> {
        self.known.iter().find(|outcome| outcome.name == name)
    }

    fn remember(&mut self, outcome: &AgreementOutcome) {
        if self.find(outcome.name).is_none() {
            self.known.push_back(outcome.clone());
            if self.known.len() > MAX_KNOWN {
                self.known.pop_front();
            }
        }
    }

    /// Handles a message; `is_gone` tells whether a rank is lost or has left.
    pub(crate) fn handle(&mut self, message: AgreementMessage, is_gone: impl Fn(u32) -> bool) -> AgreementMessages {
        match message {
            AgreementMessage::Vote(vote) => {
                // A rank that votes again may lack an outcome that this one has.
                if let Some(outcome) = self.find(vote.name) {
                    return vec![(OobTarget::Rank(vote.rank), AgreementMessage::Outcome(outcome.clone()))];
                }
                self.votes.entry(vote.name).or_default().insert(vote.rank, vote);
                self.decide(is_gone)
            }
            AgreementMessage::Outcome(outcome) => {
                let context = GroupId(outcome.name.0);
                if self.open.get(&context).is_some_and(|vote| vote.name == outcome.name) {
                    self.open.remove(&context);
                }
                self.remember(&outcome);
                // As a new coordinator: those that have voted again lack it.
                let voters = self.votes.remove(&outcome.name).unwrap_or_default();
                voters
                    .into_keys()
                    .map(|rank| (OobTarget::Rank(rank), AgreementMessage::Outcome(outcome.clone())))
                    .collect()
            }
        }
    }

    /// Ranks are gone: nobody waits for their votes.
    pub(crate) fn decide(&mut self, is_gone: impl Fn(u32) -> bool) -> AgreementMessages {
        let is_complete = |votes: &BTreeMap<u32, AgreementVote>| {
            let ranks = votes.values().next().map_or_else(Vec::new, |vote| from_bitmap(&vote.ranks));
            ranks.into_iter().all(|rank| votes.contains_key(&rank) || is_gone(rank))
        };
        let complete: Vec<AgreementName> =
            self.votes.iter().filter(|(_, votes)| is_complete(votes)).map(|(name, _)| *name).collect();
        let mut messages = Vec::new();
        for name in complete {
            let votes = self.votes.remove(&name).unwrap_or_default();
            let survivors: Vec<u32> = votes.keys().copied().filter(|rank| !is_gone(*rank)).collect();
            let outcome = AgreementOutcome {
                name,
                bits: votes.values().fold(u64::MAX, |bits, vote| bits & vote.bits),
                context: votes.values().map(|vote| vote.next_context).max().unwrap_or(1),
                survivors: to_bitmap(&survivors),
            };
            self.remember(&outcome);
            let to = |rank: u32| (OobTarget::Rank(rank), AgreementMessage::Outcome(outcome.clone()));
            messages.extend(votes.into_keys().map(to));
        }
        messages
    }

    /// Votes again, and tells the new coordinator what the old one may have told only some.
    pub(crate) fn coordinator_changed(&mut self) -> AgreementMessages {
        self.votes.clear();
        let known = self.known.iter().cloned().map(AgreementMessage::Outcome);
        let open = self.open.values().cloned().map(AgreementMessage::Vote);
        known.chain(open).map(|message| (OobTarget::Coordinator, message)).collect()
    }

    /// A communicator is closed.
    pub(crate) fn close(&mut self, context: GroupId) {
        self.counts.remove(&context);
        self.open.remove(&context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const CONTEXT: GroupId = GroupId(3);
    const MEMBERS: [u32; 4] = [2, 0, 1, 5];

    struct VotingJob {
        ranks: Vec<SurvivorAgreement>,
        queue: Vec<(u32, AgreementMessage)>,
        gone: BTreeSet<u32>,
        coordinator: u32,
    }

    impl VotingJob {
        fn new() -> Self {
            let ranks = (0..6).map(|_| SurvivorAgreement::default()).collect();
            Self { ranks, queue: Vec::new(), gone: BTreeSet::new(), coordinator: 0 }
        }

        fn send(&mut self, messages: AgreementMessages) {
            for (target, message) in messages {
                let rank = match target {
                    OobTarget::Rank(rank) => rank,
                    OobTarget::Coordinator => self.coordinator,
                    OobTarget::All => panic!("nobody sends to all"),
                };
                self.queue.push((rank, message));
            }
        }

        fn vote(&mut self, rank: u32, bits: u64) {
            let (_, messages) = self.ranks[rank as usize].vote((CONTEXT, &MEMBERS), rank, bits, 10 + rank);
            self.send(messages);
        }

        fn deliver(&mut self, limit: usize) {
            for _ in 0..limit {
                if self.queue.is_empty() {
                    return;
                }
                let (rank, message) = self.queue.remove(0);
                if !self.gone.contains(&rank) {
                    let gone = self.gone.clone();
                    let messages = self.ranks[rank as usize].handle(message, |rank| gone.contains(&rank));
                    self.send(messages);
                }
            }
        }

        fn lose(&mut self, rank: u32) {
            self.gone.insert(rank);
            let gone = self.gone.clone();
            if rank == self.coordinator {
                self.coordinator = (0..6).find(|rank| !gone.contains(rank)).expect("some are left");
                for rank in (0..6).filter(|rank| !gone.contains(rank)) {
                    let messages = self.ranks[rank as usize].coordinator_changed();
                    self.send(messages);
                }
            }
            let messages = self.ranks[self.coordinator as usize].decide(|rank| gone.contains(&rank));
            self.send(messages);
        }

        fn outcomes(&self, number: u64) -> Vec<Option<&AgreementOutcome>> {
            let left = MEMBERS.iter().filter(|rank| !self.gone.contains(rank));
            left.map(|rank| self.ranks[*rank as usize].outcome(CONTEXT, number)).collect()
        }
    }

    #[test]
    fn all_ranks_get_the_common_bits_and_a_context_that_none_has_used() {
        let mut job = VotingJob::new();
        for (rank, bits) in [(0, 0b111), (1, 0b110), (5, 0b011)] {
            job.vote(rank, bits);
        }
        job.deliver(100);
        assert_eq!(job.outcomes(0), [None; 4], "rank 2 has not voted");
        job.vote(2, u64::MAX);
        job.deliver(100);
        let expected = AgreementOutcome { name: (3, 0), bits: 0b010, context: 15, survivors: to_bitmap(&MEMBERS) };
        assert_eq!(job.outcomes(0), [Some(&expected); 4]);
    }

    #[test]
    fn nobody_waits_for_a_rank_that_is_lost() {
        let mut job = VotingJob::new();
        [0, 2, 5].into_iter().for_each(|rank| job.vote(rank, 1));
        job.deliver(100);
        job.lose(1);
        job.deliver(100);
        let expected = AgreementOutcome { name: (3, 0), bits: 1, context: 15, survivors: to_bitmap(&[0, 2, 5]) };
        assert_eq!(job.outcomes(0), [Some(&expected); 3]);
    }

    /// Rank 0 tells one member alone and is lost; that one closes the communicator. The new coordinator, rank 1 or 3, is not a member, or
    /// has closed it too.
    #[test]
    fn an_outcome_survives_in_those_that_have_no_use_for_it_any_more() {
        for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0]] {
            let members = [2, 4, 5];
            let mut job = VotingJob::new();
            for rank in members {
                let (_, messages) = job.ranks[rank as usize].vote((CONTEXT, &members), rank, 1, 9);
                job.send(messages);
            }
            job.deliver(3); // The votes.
            let told = job.queue.iter().position(|(rank, _)| *rank == 2).expect("it is told");
            let (_, outcome) = job.queue.remove(told);
            job.ranks[2].handle(outcome.clone(), |_| false);
            job.ranks[2].close(CONTEXT);
            job.queue.clear();
            job.gone.insert(0);
            job.coordinator = 1;
            // What the three say to the new coordinator may arrive in any order.
            for index in order {
                let messages = job.ranks[members[index] as usize].coordinator_changed();
                job.send(messages);
            }
            job.deliver(100);
            let expected = match &outcome {
                AgreementMessage::Outcome(outcome) => Some(outcome),
                AgreementMessage::Vote(_) => None,
            };
            let found = [4, 5].map(|rank: usize| job.ranks[rank].outcome(CONTEXT, 0));
            assert_eq!(found, [expected; 2], "{order:?}");
        }
    }

    /// The coordinator is lost after each possible number of messages: those that are left have the same outcome.
    #[test]
    fn a_coordinator_that_is_lost_at_any_moment_leaves_no_two_outcomes() {
        for moment in 0..20 {
            let mut job = VotingJob::new();
            MEMBERS.into_iter().for_each(|rank| job.vote(rank, u64::from(rank) << 1 | 1));
            job.deliver(moment);
            job.lose(0);
            job.deliver(100);
            let outcomes = job.outcomes(0);
            assert!(
                outcomes[0].is_some() && outcomes.iter().all(|other| *other == outcomes[0]),
                "{moment}: {outcomes:?}"
            );
            // The next agreement works as well.
            [2, 1, 5].into_iter().for_each(|rank| job.vote(rank, 7));
            job.deliver(100);
            let survivors = job.outcomes(1)[0].map(|outcome| outcome.survivors.clone());
            assert_eq!(survivors, Some(to_bitmap(&[1, 2, 5])), "{moment}");
        }
    }
}
