//! Which ranks are lost, agreed by all ranks that are not: a machine without I/O.
//!
//! In: links that ended, ranks that attach, answers to pings, time. Out: [`MembershipAction`]s and [`LossVerdict`]s. The lowest live
//! rank is the coordinator. It alone decides, and sends its verdicts to all in one order, so every rank names the same ranks. If
//! the coordinator is lost, the others attach to the next rank; the new coordinator first completes what the old one had sent to some of
//! them only. A side of a partition that is smaller than the ranks it misses is cut off. Rules: P-94 to P-97, P-106.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long the coordinator collects ranks that end together.
const SETTLING: Duration = Duration::from_millis(100);
/// How long a new coordinator waits for ranks to attach before it connects to those that did not, and how often it does.
const ATTACH_GRACE: Duration = Duration::from_millis(300);
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Added to the time in which the kernel detects a silent host: for connecting and answering.
const RESPONSE_MARGIN: Duration = Duration::from_secs(5);
/// A rank that has found so many hosts silent, one after the other, tries all others at once: each takes seconds to be silent, and
/// those that ask this rank meanwhile do not wait for ever.
const HOSTS_TRIED_IN_TURN: usize = 4;

/// How a rank's connections ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum LinkEnd {
    /// The other kernel closed them, and refuses others: its process has ended.
    Closed,
    /// Nothing came any more, or the rank has left this one for another coordinator.
    Silent,
}

/// What a verdict means for the ranks that get it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VerdictKind {
    /// The ranks are lost.
    Lost,
    /// More ranks are silent than answer: those that get this verdict are cut off from them.
    CutOff,
}

/// Ranks that are lost, in one decision of a coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LossVerdict {
    pub(super) kind: VerdictKind,
    /// In order.
    pub(super) ranks: Vec<u32>,
}

/// What a rank knows when it attaches to a new coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct MemberHistory {
    pub(super) verdicts: Vec<LossVerdict>,
    /// Ranks that left in order.
    pub(super) left: BTreeSet<u32>,
}

/// What the owner of the machine must do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MembershipAction {
    /// Attach to this rank as its follower.
    AttachTo(u32),
    /// Connect to this rank only to see whether it lives.
    CheckAlive(u32),
    /// Connect to this rank only to see whether its host is silent, unless that is being done.
    Survey(u32),
    /// Accept this rank's request to attach, and send it the verdicts and departures that it lacks.
    Accept(u32),
    /// Refuse it: to this rank, the one that asks is cut off.
    Refuse(u32),
    /// Ask all followers for an answer with this number.
    Ping(u32),
    /// Send a verdict, with its number, to all followers.
    Send(usize, LossVerdict),
    /// Report a verdict to the application.
    Report(LossVerdict),
    /// Report that ranks have left, of which the old coordinator had not told everyone.
    ReportLeft(Vec<u32>),
    /// Report that this rank has another coordinator, perhaps itself.
    ReportCoordinator(u32),
}

#[derive(Debug)]
enum MembershipPhase {
    Follower {
        coordinator: u32,
    },
    /// The coordinator is lost; this rank asks the next ones in order.
    Seeking {
        candidate: u32,
    },
    Coordinator(CoordinatorState),
    /// This rank is cut off or lost.
    Outside,
}

#[derive(Debug, Default)]
struct CoordinatorState {
    attached: BTreeSet<u32>,
    /// While a new coordinator waits for ranks to attach.
    gathering: Option<Gathering>,
    /// When the pending losses are decided at the latest.
    decide_at: Option<Instant>,
    /// The number of the last ping, how many silent ranks it was about, and who has not answered; none if nothing is asked.
    ping: u32,
    asked_about: usize,
    unanswered: Option<BTreeSet<u32>>,
}

/// What a new coordinator waits for.
#[derive(Debug)]
struct Gathering {
    expected: BTreeSet<u32>,
    /// Ranks that are still expected then are silent.
    until: Instant,
    /// When it connects to those that are expected to see whether they live.
    check_at: Instant,
}

#[derive(Debug)]
pub(super) struct JobMembership {
    rank: u32,
    /// The host of each rank.
    hosts: Vec<u32>,
    peer_timeout: Duration,
    /// Ranks that are neither lost nor left.
    live: BTreeSet<u32>,
    history: MemberHistory,
    /// Ranks that are gone as far as this rank can tell, without a verdict yet.
    suspects: BTreeMap<u32, LinkEnd>,
    /// Ranks that want to attach to this one, which has a coordinator itself; with what they know, and since when.
    waiting: BTreeMap<u32, (MemberHistory, Instant)>,
    phase: MembershipPhase,
    actions: Vec<MembershipAction>,
}

impl JobMembership {
    /// All ranks, on these hosts, have joined; rank 0 is the coordinator.
    pub(super) fn new(rank: u32, hosts: Vec<u32>, peer_timeout: Duration) -> Self {
        let live: BTreeSet<u32> = (0..hosts.len() as u32).collect();
        let phase = match rank {
            0 => {
                let attached = live.iter().copied().filter(|other| *other != 0).collect();
                MembershipPhase::Coordinator(CoordinatorState { attached, ..CoordinatorState::default() })
            }
            _ => MembershipPhase::Follower { coordinator: 0 },
        };
        let (history, suspects, waiting) = (MemberHistory::default(), BTreeMap::new(), BTreeMap::new());
        Self { rank, hosts, peer_timeout, live, history, suspects, waiting, phase, actions: Vec::new() }
    }

    /// The coordinator of this rank; none while it is looking for one, or is cut off.
    pub(super) fn coordinator(&self) -> Option<u32> {
        match self.phase {
            MembershipPhase::Follower { coordinator } => Some(coordinator),
            MembershipPhase::Coordinator(_) => Some(self.rank),
            MembershipPhase::Seeking { .. } | MembershipPhase::Outside => None,
        }
    }

    pub(super) fn is_coordinator(&self) -> bool {
        matches!(self.phase, MembershipPhase::Coordinator(_))
    }

    /// True if this rank is cut off or lost: no verdict follows.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self.phase, MembershipPhase::Outside)
    }

    /// True if this coordinator follows another one and still waits for ranks to attach.
    pub(super) fn is_gathering(&self) -> bool {
        matches!(&self.phase, MembershipPhase::Coordinator(state) if state.gathering.is_some())
    }

    /// True if this rank suspects others, or does not know yet which ranks are left: a verdict follows, or the suspicion ends.
    pub(super) fn is_deciding(&self) -> bool {
        let is_seeking = matches!(self.phase, MembershipPhase::Seeking { .. });
        is_seeking || self.is_gathering() || !self.is_outside() && !self.suspects.is_empty()
    }

    /// True if this rank follows the own one.
    pub(super) fn is_follower(&self, rank: u32) -> bool {
        matches!(&self.phase, MembershipPhase::Coordinator(state) if state.attached.contains(&rank))
    }

    pub(super) fn is_live(&self, rank: u32) -> bool {
        self.live.contains(&rank)
    }

    /// True if the end of the rank's link matters to this one.
    pub(super) fn can_lose(&self, rank: u32) -> bool {
        self.is_live(rank) && !self.is_outside()
    }

    pub(super) fn history(&self) -> &MemberHistory {
        &self.history
    }

    pub(super) fn take_actions(&mut self) -> Vec<MembershipAction> {
        std::mem::take(&mut self.actions)
    }

    /// When [`Self::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.waiting.values().map(|(_, since)| *since + self.patience()).min();
        let own = match &self.phase {
            MembershipPhase::Coordinator(state) => {
                let gathering = state.gathering.as_ref().map(|gathering| gathering.until.min(gathering.check_at));
                gathering.into_iter().chain(state.decide_at).min()
            }
            _ => None,
        };
        held.into_iter().chain(own).min()
    }

    /// How long a rank may take to notice a silent coordinator and to answer.
    fn patience(&self) -> Duration {
        self.peer_timeout + RESPONSE_MARGIN
    }

    /// A rank has left in order.
    pub(super) fn rank_left(&mut self, now: Instant, rank: u32) {
        self.live.remove(&rank);
        self.history.left.insert(rank);
        self.suspects.remove(&rank);
        match &mut self.phase {
            MembershipPhase::Coordinator(state) => {
                state.forget(rank);
                self.decide(now);
            }
            MembershipPhase::Follower { coordinator } if *coordinator == rank => self.seek(now),
            MembershipPhase::Follower { .. } | MembershipPhase::Seeking { .. } | MembershipPhase::Outside => {}
        }
    }

    /// All connections of a link have ended.
    pub(super) fn link_ended(&mut self, now: Instant, rank: u32, end: LinkEnd) {
        if !self.live.contains(&rank) {
            return;
        }
        match &mut self.phase {
            MembershipPhase::Follower { coordinator } if *coordinator == rank => {
                self.suspects.insert(rank, end);
                self.seek(now);
            }
            MembershipPhase::Coordinator(state) if state.attached.contains(&rank) => {
                self.suspects.insert(rank, end);
                state.forget(rank);
                state.decide_at.get_or_insert(now + SETTLING);
                self.decide(now);
            }
            _ => {}
        }
    }

    /// A rank answered a ping.
    pub(super) fn answered(&mut self, now: Instant, rank: u32, number: u32) {
        if let MembershipPhase::Coordinator(CoordinatorState { ping, unanswered: Some(ranks), .. }) = &mut self.phase
            && *ping == number
        {
            ranks.remove(&rank);
            self.decide(now);
        }
    }

    /// A rank could not be reached: one to attach to, or one of which nothing was heard.
    pub(super) fn unreachable(&mut self, now: Instant, rank: u32, end: LinkEnd) {
        match &mut self.phase {
            MembershipPhase::Seeking { candidate } if *candidate == rank => {
                self.suspects.insert(rank, end);
                self.seek(now);
            }
            MembershipPhase::Coordinator(state) if state.expects(rank) => {
                state.forget(rank);
                self.suspects.insert(rank, end);
                self.decide(now);
            }
            _ => {}
        }
    }

    /// The host of a rank does not answer, or the rank has ended, as a survey found.
    pub(super) fn surveyed(&mut self, rank: u32, end: LinkEnd) {
        // The candidate has its own request, which may wait for longer.
        if matches!(self.phase, MembershipPhase::Seeking { candidate } if candidate != rank)
            && self.live.contains(&rank)
        {
            self.suspects.insert(rank, end);
        }
    }

    /// The rank that this one asked has accepted it as a follower.
    pub(super) fn attached_to(&mut self, rank: u32) {
        if matches!(self.phase, MembershipPhase::Seeking { candidate } if candidate == rank) {
            self.phase = MembershipPhase::Follower { coordinator: rank };
            self.actions.push(MembershipAction::ReportCoordinator(rank));
        }
    }

    /// The rank that this one asked has another coordinator: this one is cut off from it.
    pub(super) fn refused_by(&mut self, rank: u32) {
        if matches!(self.phase, MembershipPhase::Seeking { candidate } if candidate == rank) {
            self.cut_off();
        }
    }

    /// A rank wants to attach to this one, since it has lost its coordinator.
    pub(super) fn attach_requested(&mut self, now: Instant, rank: u32, history: MemberHistory) {
        if !self.live.contains(&rank) || self.suspects.contains_key(&rank) || self.is_outside() {
            return self.actions.push(MembershipAction::Refuse(rank));
        }
        match &self.phase {
            MembershipPhase::Coordinator(_) => self.accept(now, rank, &history),
            _ => drop(self.waiting.insert(rank, (history, now))),
        }
    }

    /// A rank that wanted to attach has given up, or has ended.
    pub(super) fn request_ended(&mut self, rank: u32) {
        self.waiting.remove(&rank);
    }

    /// A verdict of the coordinator, with its number.
    pub(super) fn verdict(&mut self, number: usize, verdict: LossVerdict) {
        if number == self.history.verdicts.len() {
            self.apply(verdict);
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        let patience = self.patience();
        let overdue: Vec<u32> =
            self.waiting.iter().filter(|(_, (_, since))| *since + patience <= now).map(|(rank, _)| *rank).collect();
        for rank in overdue {
            self.waiting.remove(&rank);
            self.actions.push(MembershipAction::Refuse(rank));
        }
        if let MembershipPhase::Coordinator(CoordinatorState { gathering: Some(gathering), .. }) = &mut self.phase {
            if gathering.check_at <= now {
                gathering.check_at = now + CHECK_INTERVAL;
                self.actions.extend(gathering.expected.iter().map(|rank| MembershipAction::CheckAlive(*rank)));
            }
            if gathering.until <= now {
                for rank in std::mem::take(&mut gathering.expected) {
                    self.suspects.insert(rank, LinkEnd::Silent);
                }
            }
        }
        self.decide(now);
    }

    /// Asks the next rank in order, or becomes the coordinator.
    fn seek(&mut self, now: Instant) {
        let host = |rank: &u32| self.hosts[*rank as usize];
        let silent = self.suspects.iter().filter(|(_, end)| **end == LinkEnd::Silent);
        let silent: BTreeSet<u32> =
            silent.map(|(rank, _)| host(rank)).filter(|other| *other != host(&self.rank)).collect();
        let may_be_asked = |rank: &u32| !self.suspects.contains_key(rank) && !silent.contains(&host(rank));
        let next = self.live.iter().copied().find(may_be_asked);
        match next {
            Some(next) if next != self.rank => {
                self.phase = MembershipPhase::Seeking { candidate: next };
                self.actions.push(MembershipAction::AttachTo(next));
                if silent.len() > HOSTS_TRIED_IN_TURN {
                    let mut hosts = BTreeSet::from([host(&next), host(&self.rank)]);
                    let others = self.live.range(next..self.rank).filter(|rank| may_be_asked(rank));
                    let surveyed = others.filter(|rank| hosts.insert(host(rank)));
                    self.actions.extend(surveyed.map(|rank| MembershipAction::Survey(*rank)));
                }
            }
            _ => self.take_over(now),
        }
    }

    fn take_over(&mut self, now: Instant) {
        let is_expected = |rank: &u32| *rank != self.rank && !self.suspects.contains_key(rank);
        let gathering = Gathering {
            expected: self.live.iter().copied().filter(is_expected).collect(),
            until: now + self.patience(),
            check_at: now + ATTACH_GRACE,
        };
        let state = CoordinatorState { gathering: Some(gathering), ..CoordinatorState::default() };
        self.phase = MembershipPhase::Coordinator(state);
        self.actions.push(MembershipAction::ReportCoordinator(self.rank));
        for (rank, (history, _)) in std::mem::take(&mut self.waiting) {
            self.accept(now, rank, &history);
        }
        self.decide(now);
    }

    /// Accepts a follower, and learns what it knows.
    fn accept(&mut self, now: Instant, rank: u32, history: &MemberHistory) {
        let known = self.history.verdicts.len();
        for verdict in history.verdicts.iter().skip(known) {
            self.actions.push(MembershipAction::Send(self.history.verdicts.len(), verdict.clone()));
            self.apply(verdict.clone());
        }
        let news: Vec<u32> = history.left.difference(&self.history.left).copied().collect();
        if !news.is_empty() {
            news.iter().for_each(|rank| self.rank_left(now, *rank));
            self.actions.push(MembershipAction::ReportLeft(news));
        }
        match &mut self.phase {
            MembershipPhase::Coordinator(state) if self.live.contains(&rank) => {
                if let Some(gathering) = &mut state.gathering {
                    gathering.expected.remove(&rank);
                }
                state.attached.insert(rank);
                self.actions.push(MembershipAction::Accept(rank));
                self.decide(now);
            }
            _ => self.actions.push(MembershipAction::Refuse(rank)),
        }
    }

    /// Decides about the suspects, if everything has been heard that this waits for.
    fn decide(&mut self, now: Instant) {
        let patience = self.patience();
        let MembershipPhase::Coordinator(state) = &mut self.phase else { return };
        match &state.gathering {
            Some(gathering) if !gathering.expected.is_empty() => return,
            Some(_) => (state.gathering, state.decide_at) = (None, Some(now)),
            None => {}
        }
        let silent = self.suspects.values().filter(|end| **end == LinkEnd::Silent).count();
        if silent > state.asked_about && !state.attached.is_empty() {
            // What silenced these ranks may have silenced more: by then they have answered, or the kernel has given them up.
            state.decide_at = Some(now + patience);
            return self.actions.push(MembershipAction::Ping(state.ask(silent)));
        }
        let all_answered = state.unanswered.as_ref().is_some_and(BTreeSet::is_empty);
        if !all_answered && state.decide_at.is_none_or(|at| at > now) {
            return;
        }
        (state.decide_at, state.unanswered, state.asked_about) = (None, None, 0);
        if self.suspects.is_empty() {
            return;
        }
        let present = state.attached.len() + 1;
        // Of two equal sides, the one with the lowest rank goes on.
        let lowest = self.suspects.iter().find(|(_, end)| **end == LinkEnd::Silent);
        let has_lowest = lowest.is_none_or(|(lowest, _)| self.rank < *lowest);
        let is_minority = silent > present || silent == present && !has_lowest;
        let kind = if is_minority { VerdictKind::CutOff } else { VerdictKind::Lost };
        let verdict = LossVerdict { kind, ranks: self.suspects.keys().copied().collect() };
        self.actions.push(MembershipAction::Send(self.history.verdicts.len(), verdict.clone()));
        self.apply(verdict);
    }

    fn apply(&mut self, verdict: LossVerdict) {
        for rank in &verdict.ranks {
            self.live.remove(rank);
            self.suspects.remove(rank);
            if self.waiting.remove(rank).is_some() {
                self.actions.push(MembershipAction::Refuse(*rank));
            }
            if let MembershipPhase::Coordinator(state) = &mut self.phase {
                state.forget(*rank);
            }
        }
        if verdict.kind == VerdictKind::CutOff || verdict.ranks.contains(&self.rank) {
            self.phase = MembershipPhase::Outside;
        }
        self.history.verdicts.push(verdict.clone());
        self.actions.push(MembershipAction::Report(verdict));
    }

    /// This rank alone is cut off.
    fn cut_off(&mut self) {
        let ranks = self.suspects.keys().copied().collect();
        self.apply(LossVerdict { kind: VerdictKind::CutOff, ranks });
    }
}

impl CoordinatorState {
    /// Begins to ask all followers for an answer; the number of the ping.
    fn ask(&mut self, silent: usize) -> u32 {
        self.ping += 1;
        self.asked_about = silent;
        self.unanswered = Some(self.attached.clone());
        self.ping
    }

    /// True if this coordinator waits for the rank to attach.
    fn expects(&self, rank: u32) -> bool {
        self.gathering.as_ref().is_some_and(|gathering| gathering.expected.contains(&rank))
    }

    /// A rank is gone: nothing is expected from it.
    fn forget(&mut self, rank: u32) {
        self.attached.remove(&rank);
        if let Some(gathering) = &mut self.gathering {
            gathering.expected.remove(&rank);
        }
        if let Some(unanswered) = &mut self.unanswered {
            unanswered.remove(&rank);
        }
    }
}
