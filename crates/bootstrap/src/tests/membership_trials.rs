//! Random jobs in which ranks are killed and the network is cut, on a simulated network: whoever is not cut off names the same ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use units::splitmix64;

use super::super::membership::{JobMembership, LinkEnd, LossVerdict, MemberHistory, MembershipAction, VerdictKind};

const PEER_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Long enough for every succession: kills and cuts happen in the first seconds.
const MAX_TIME: Duration = Duration::from_secs(400);

/// Shorter than the time that a candidate for coordinator has for its answer.
const MAX_PAUSE_MS: u64 = 6_000;

/// Something that happens to a rank.
#[derive(Clone, Debug)]
enum TrialEvent {
    Kill,
    /// The network is divided: ranks with a bit set, and the others.
    Cut(u64),
    /// Packets from the ranks with a bit set to the others are lost; those in the other direction arrive.
    CutOneWay(u64),
    LinkEnded(u32, LinkEnd),
    Unreachable(u32, LinkEnd),
    Surveyed(u32, LinkEnd),
    AttachRequested(u32, MemberHistory),
    Attached(u32),
    Refused(u32),
    Verdict(u32, usize, LossVerdict),
    Ping(u32, u32),
    Answered(u32, u32),
    Tick,
}

struct MembershipTrial {
    begin: Instant,
    members: Vec<JobMembership>,
    reported: Vec<Vec<LossVerdict>>,
    is_killed: Vec<bool>,
    side: u64,
    is_one_way: bool,
    /// A rank that gets no processor, from when until when. Its kernel accepts connections.
    pause: Option<(u32, Duration, Duration)>,
    /// Followers of each rank.
    links: BTreeSet<(u32, u32)>,
    queue: BTreeMap<(Duration, u64), (u32, TrialEvent)>,
    /// When the last message on a directed link arrives: they arrive in order.
    last: BTreeMap<(u32, u32), Duration>,
    sequence: u64,
    random: u64,
}

impl MembershipTrial {
    fn new(seed: u64, hosts: &[u32]) -> Self {
        let begin = Instant::now();
        let size = hosts.len() as u32;
        let members = (0..size).map(|rank| JobMembership::new(rank, hosts.to_vec(), PEER_TIMEOUT)).collect();
        Self {
            begin,
            members,
            reported: vec![Vec::new(); size as usize],
            is_killed: vec![false; size as usize],
            side: 0,
            is_one_way: false,
            pause: None,
            links: (1..size).map(|rank| (0, rank)).collect(),
            queue: BTreeMap::new(),
            last: BTreeMap::new(),
            sequence: 0,
            random: seed,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        splitmix64(&mut self.random) % below.max(1)
    }

    fn schedule(&mut self, at: Duration, rank: u32, event: TrialEvent) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), (rank, event));
    }

    /// True if packets pass in both directions, so that connections can be opened.
    fn can_reach(&self, one: u32, other: u32) -> bool {
        (self.side >> one) & 1 == (self.side >> other) & 1
    }

    fn arrives(&self, from: u32, to: u32) -> bool {
        self.can_reach(from, to) || self.is_one_way && (self.side >> from) & 1 == 0
    }

    /// Sends a message; it is lost if its receiver is cut off now, and never read by a dead one.
    fn send(&mut self, now: Duration, from: u32, to: u32, event: TrialEvent) {
        if !self.arrives(from, to) {
            return;
        }
        let delay = Duration::from_micros(50 + self.draw(20_000));
        let at = (now + delay).max(self.last.get(&(from, to)).copied().unwrap_or_default());
        self.last.insert((from, to), at);
        self.schedule(at, to, event);
    }

    /// A link breaks: the ends that live learn of it.
    fn break_link(&mut self, now: Duration, one: u32, other: u32) {
        let silence = Duration::from_millis(1000 + self.draw(9000));
        for (rank, peer) in [(one, other), (other, one)] {
            let (delay, end) = if self.can_reach(rank, peer) {
                (Duration::from_micros(50 + self.draw(20_000)), LinkEnd::Closed)
            } else if self.arrives(peer, rank) {
                // The peer's kernel closes the link after the silence, or when its process ends; nothing answers then (P-106).
                let closes = if self.is_killed[peer as usize] { Duration::ZERO } else { silence };
                (closes + CONNECT_TIMEOUT, LinkEnd::Silent)
            } else {
                (silence, LinkEnd::Silent)
            };
            // What the other one sent before arrives first.
            let at = (now + delay).max(self.last.get(&(peer, rank)).copied().unwrap_or_default());
            self.schedule(at, rank, TrialEvent::LinkEnded(peer, end));
        }
    }

    fn run(&mut self) {
        while let Some(((now, _), (rank, event))) = self.queue.pop_first() {
            assert!(now < MAX_TIME, "the ranks do not come to an end");
            let is_of_process = !matches!(event, TrialEvent::Cut(_) | TrialEvent::CutOneWay(_) | TrialEvent::Kill);
            if let Some((_, _, until)) = self
                .pause
                .filter(|(paused, from, until)| is_of_process && rank == *paused && (*from..*until).contains(&now))
            {
                self.schedule(until, rank, event);
                continue;
            }
            match event {
                TrialEvent::Cut(side) | TrialEvent::CutOneWay(side) => {
                    self.side = side;
                    self.is_one_way = matches!(event, TrialEvent::CutOneWay(_));
                    let torn: Vec<(u32, u32)> =
                        self.links.iter().copied().filter(|(one, other)| !self.can_reach(*one, *other)).collect();
                    torn.into_iter().for_each(|(one, other)| {
                        self.links.remove(&(one, other));
                        self.break_link(now, one, other);
                    });
                }
                TrialEvent::Kill => {
                    self.is_killed[rank as usize] = true;
                    let torn: Vec<(u32, u32)> =
                        self.links.iter().copied().filter(|(one, other)| rank == *one || rank == *other).collect();
                    torn.into_iter().for_each(|(one, other)| {
                        self.links.remove(&(one, other));
                        self.break_link(now, one, other);
                    });
                }
                event if !self.is_killed[rank as usize] => self.handle(now, rank, event),
                TrialEvent::AttachRequested(from, _) => {
                    self.schedule(now, from, TrialEvent::Unreachable(rank, LinkEnd::Closed));
                }
                _ => {}
            }
        }
    }

    fn handle(&mut self, now: Duration, rank: u32, event: TrialEvent) {
        let instant = self.begin + now;
        let member = &mut self.members[rank as usize];
        match event {
            TrialEvent::LinkEnded(peer, end) => {
                member.link_ended(instant, peer, end);
                member.unreachable(instant, peer, end); // If this one still waits for its answer.
            }
            TrialEvent::Unreachable(peer, end) => member.unreachable(instant, peer, end),
            TrialEvent::Surveyed(peer, end) => member.surveyed(peer, end),
            TrialEvent::AttachRequested(from, history) => member.attach_requested(instant, from, history),
            TrialEvent::Attached(peer) => member.attached_to(peer),
            TrialEvent::Refused(peer) => member.refused_by(peer),
            // A follower hears only its coordinator.
            TrialEvent::Verdict(from, number, verdict) if member.coordinator() == Some(from) => {
                member.verdict(number, verdict);
            }
            TrialEvent::Ping(from, number) => self.send(now, rank, from, TrialEvent::Answered(rank, number)),
            TrialEvent::Answered(from, number) => member.answered(instant, from, number),
            TrialEvent::Tick => member.tick(instant),
            TrialEvent::Verdict(..) | TrialEvent::Kill | TrialEvent::Cut(_) | TrialEvent::CutOneWay(_) => {}
        }
        self.run_actions(now, rank);
        if let Some(deadline) = self.members[rank as usize].deadline() {
            let at = deadline.saturating_duration_since(self.begin).max(now + Duration::from_millis(1));
            self.schedule(at, rank, TrialEvent::Tick);
        }
    }

    fn run_actions(&mut self, now: Duration, rank: u32) {
        for action in self.members[rank as usize].take_actions() {
            match action {
                MembershipAction::AttachTo(to) | MembershipAction::CheckAlive(to) if !self.can_reach(rank, to) => {
                    let unreachable = TrialEvent::Unreachable(to, LinkEnd::Silent);
                    self.schedule(now + CONNECT_TIMEOUT, rank, unreachable);
                }
                MembershipAction::Survey(to) if !self.can_reach(rank, to) => {
                    self.schedule(now + CONNECT_TIMEOUT, rank, TrialEvent::Surveyed(to, LinkEnd::Silent));
                }
                MembershipAction::Survey(to) => {
                    if self.is_killed[to as usize] {
                        let surveyed = TrialEvent::Surveyed(to, LinkEnd::Closed);
                        self.schedule(now + Duration::from_millis(1), rank, surveyed);
                    }
                }
                MembershipAction::CheckAlive(to) => {
                    if self.is_killed[to as usize] {
                        let unreachable = TrialEvent::Unreachable(to, LinkEnd::Closed);
                        self.schedule(now + Duration::from_millis(1), rank, unreachable);
                    }
                }
                MembershipAction::AttachTo(to) => {
                    let history = self.members[rank as usize].history().clone();
                    self.links.insert((to, rank)); // The connection of the request ends with the process.
                    self.send(now, rank, to, TrialEvent::AttachRequested(rank, history));
                }
                MembershipAction::Accept(follower) => {
                    self.send(now, rank, follower, TrialEvent::Attached(rank));
                    let verdicts = self.members[rank as usize].history().verdicts.clone();
                    for (number, verdict) in verdicts.into_iter().enumerate() {
                        self.send(now, rank, follower, TrialEvent::Verdict(rank, number, verdict));
                    }
                    if !self.links.contains(&(rank, follower)) {
                        self.break_link(now, rank, follower); // It died, or was cut off, before it was accepted.
                    }
                }
                MembershipAction::Refuse(follower) => self.send(now, rank, follower, TrialEvent::Refused(rank)),
                MembershipAction::Ping(number) => {
                    for (_, follower) in self.followers(rank) {
                        self.send(now, rank, follower, TrialEvent::Ping(rank, number));
                    }
                }
                MembershipAction::Send(number, verdict) => {
                    for (_, follower) in self.followers(rank) {
                        self.send(now, rank, follower, TrialEvent::Verdict(rank, number, verdict.clone()));
                    }
                }
                MembershipAction::Report(verdict) => self.reported[rank as usize].push(verdict),
                MembershipAction::ReportLeft(_) | MembershipAction::ReportCoordinator(_) => {}
            }
        }
    }

    fn followers(&self, rank: u32) -> Vec<(u32, u32)> {
        self.links.iter().copied().filter(|(coordinator, _)| *coordinator == rank).collect()
    }
}

/// Runs one random trial and judges it.
fn run_trial(seed: u64) {
    let mut random = seed;
    let mut draw = |below: u64| splitmix64(&mut random) % below;
    let size = 2 + draw(8) as u32;
    // Up to three ranks share a host.
    let per_host = 1 + draw(3) as u32;
    let hosts: Vec<u32> = (0..size).map(|rank| rank / per_host).collect();
    let mut trial = MembershipTrial::new(seed ^ 0x5eed, &hosts);
    let kills = draw(u64::from(size));
    // Together, or one after the other while the ranks are still busy with the last.
    let spread = [1, 50, 500, 5000][draw(4) as usize];
    for _ in 0..kills {
        let at = Duration::from_millis(draw(spread));
        trial.schedule(at, draw(u64::from(size)) as u32, TrialEvent::Kill);
    }
    let is_cut = draw(3) == 0;
    if is_cut {
        // The ranks of a host are on one side.
        let sides = draw(1 << size);
        let side = (0..size).map(|rank| (sides >> hosts[rank as usize] & 1) << rank).sum();
        let cut = if draw(2) == 0 { TrialEvent::Cut(side) } else { TrialEvent::CutOneWay(side) };
        trial.schedule(Duration::from_millis(draw(spread)), 0, cut);
    }
    if draw(3) == 0 {
        let from = Duration::from_millis(draw(15_000));
        trial.pause = Some((draw(u64::from(size)) as u32, from, from + Duration::from_millis(draw(MAX_PAUSE_MS))));
    }
    trial.run();
    judge(seed, &trial, is_cut);
}

/// Divides as many hosts as there are bits of `size`, each with one rank, and judges the outcome.
fn divide(seed: u64, size: u32, side: u64) -> MembershipTrial {
    let hosts: Vec<u32> = (0..size).collect();
    let mut trial = MembershipTrial::new(seed, &hosts);
    trial.schedule(Duration::from_millis(5), 0, TrialEvent::Cut(side));
    trial.run();
    judge(seed, &trial, true);
    trial
}

fn judge(seed: u64, trial: &MembershipTrial, is_cut: bool) {
    let size = trial.members.len() as u32;
    let killed: BTreeSet<u32> = (0..size).filter(|rank| trial.is_killed[*rank as usize]).collect();
    let is_cut_off = |rank: u32| {
        let verdicts = &trial.reported[rank as usize];
        verdicts.last().is_some_and(|last| last.kind == VerdictKind::CutOff || last.ranks.contains(&rank))
    };
    let inside: Vec<u32> = (0..size).filter(|rank| !killed.contains(rank) && !is_cut_off(*rank)).collect();
    for rank in &inside {
        let verdicts = &trial.reported[*rank as usize];
        assert_eq!(
            *verdicts, trial.reported[inside[0] as usize],
            "seed {seed}: ranks {rank} and {} disagree",
            inside[0]
        );
        assert!(trial.can_reach(*rank, inside[0]), "seed {seed}: two sides go on, with {rank} and {}", inside[0]);
        let lost: BTreeSet<u32> = verdicts.iter().flat_map(|verdict| verdict.ranks.iter().copied()).collect();
        let named = verdicts.iter().map(|verdict| verdict.ranks.len()).sum::<usize>();
        assert_eq!(lost.len(), named, "seed {seed}: a rank is lost twice");
        let expected: BTreeSet<u32> = (0..size).filter(|other| !inside.contains(other)).collect();
        assert_eq!(lost, expected, "seed {seed}: at rank {rank}");
    }
    if !trial.is_one_way {
        for rank in (0..size).filter(|rank| !killed.contains(rank)) {
            let named = trial.reported[rank as usize].iter().flat_map(|verdict| &verdict.ranks);
            let mut own_side = named.filter(|other| !killed.contains(other) && trial.can_reach(rank, **other));
            assert_eq!(own_side.next(), None, "seed {seed}: rank {rank} names a live rank on its own side");
        }
    }
    if !is_cut {
        let survivors: Vec<u32> = (0..size).filter(|rank| !killed.contains(rank)).collect();
        assert_eq!(inside, survivors, "seed {seed}: nobody is cut off without a cut");
    }
}

#[test]
fn whoever_is_not_cut_off_names_the_same_ranks() {
    (0..20_000).for_each(run_trial);
}

/// Five hosts and more are silent, and each side has to find its own lowest rank behind them.
#[test]
fn many_silent_hosts_are_no_reason_to_give_up() {
    for size in [7, 12, 20, 40] {
        for silent in 1..size {
            // The hosts with the lowest ranks on one side, and those with the highest on the other.
            let trial = divide(u64::from(size * 100 + silent), size, (1 << silent) - 1);
            let is_low_side_larger = 2 * silent >= size;
            for rank in 0..size {
                let has_lost = trial.reported[rank as usize].iter().all(|verdict| verdict.kind == VerdictKind::Lost);
                assert_eq!(has_lost, (rank < silent) == is_low_side_larger, "rank {rank} of {size}, {silent} silent");
            }
        }
    }
}

/// A rank gave up after five silent hosts, and another one of its side, which had seen some of them end, named it among the lost.
#[test]
fn a_rank_behind_many_silent_hosts_does_not_give_up_alone() {
    run_trial(373_877);
}

#[test]
#[ignore = "long: half a million trials"]
fn half_a_million_trials_are_clean() {
    (20_000..520_000).for_each(run_trial);
}
