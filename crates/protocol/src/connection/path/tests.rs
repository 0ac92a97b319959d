//! Two ends of a connection with several paths, joined by a harness that cuts paths, loses frames and reports links.

mod dead_paths;
mod flapping_paths;
mod probe_replies;

use std::collections::{BTreeMap, VecDeque};

use units::{PathId, Psn, Span, Time};

use super::{
    AlternateLoading, InvalidPathTransition, LoadPathError, MigrationCause, MigrationRole, PathEvent, PathHealth,
    PathPolicy, PathState, PathTransition, Paths,
};
use crate::connection::{
    AckRequest, Connection, ConnectionPolicy, Frame, FramePath, MigrationBit, OutgoingFrame, RetryExceeded,
};

const TRIP: Span = Span::from_micros(5);
const FAILBACK: u64 = 1_000;

/// One end and what its user received.
struct PathHarnessEnd {
    connection: Connection<u32>,
    delivered: Vec<u32>,
    events: Vec<(Time, PathEvent)>,
    failed: Option<RetryExceeded>,
}

/// The network between two ends.
struct PathHarness {
    ends: [PathHarnessEnd; 2],
    now: Time,
    /// Frames in flight, by time of arrival and order of sending.
    wire: BTreeMap<(Time, u64), (usize, FramePath, Frame<u32>)>,
    sent: u64,
    /// The one-way delay of each path.
    delays: Vec<Span>,
    /// Paths that are cut from this end to the other.
    cut: [Vec<bool>; 2],
    /// Frames still to be lost, by sender.
    lose: [u32; 2],
    /// Messages posted so far by each end, and whether it posts one every 20 us.
    posted: [u32; 2],
    is_active: [bool; 2],
}

fn at(micros: u64) -> Time {
    Time::ZERO + Span::from_micros(micros)
}

fn path_policy() -> PathPolicy {
    PathPolicy {
        probe_every: Span::from_micros(100),
        probe_timeout: Span::from_micros(20),
        misses: 2,
        failback_after: Span::from_micros(FAILBACK),
        damage_limit: Some(10),
        loading: AlternateLoading::Automatic,
    }
}

fn policy() -> ConnectionPolicy {
    ConnectionPolicy {
        timeout: Span::from_micros(30),
        acknowledge_every: 1,
        retry_limit: 100,
        ..ConnectionPolicy::default()
    }
}

impl PathHarness {
    fn new(paths: usize, path_policy: PathPolicy) -> Self {
        let end = |role| {
            let mut connection = Connection::new(policy());
            connection.set_paths(Paths::new(path_policy, role, paths, Time::ZERO));
            PathHarnessEnd { connection, delivered: Vec::new(), events: Vec::new(), failed: None }
        };
        Self {
            ends: [end(MigrationRole::Leader), end(MigrationRole::Follower)],
            now: Time::ZERO,
            wire: BTreeMap::new(),
            sent: 0,
            delays: vec![TRIP; paths],
            cut: [vec![false; paths], vec![false; paths]],
            lose: [0, 0],
            posted: [0, 0],
            is_active: [true, true],
        }
    }

    fn paths(&self, end: usize) -> &Paths {
        self.ends[end].connection.paths().expect("there are several paths")
    }

    fn act(&mut self, end: usize, act: impl FnOnce(&mut Connection<u32>, Time, &mut dyn FnMut(OutgoingFrame<u32>))) {
        let mut out = VecDeque::new();
        act(&mut self.ends[end].connection, self.now, &mut |outgoing| out.push_back(outgoing));
        for OutgoingFrame { frame, path, migration, .. } in out {
            let lost = self.lose[end] > 0;
            self.lose[end] -= u32::from(lost);
            if !lost && !self.cut[end][path.index()] {
                self.sent += 1;
                let arrival = FramePath { path, migration };
                self.wire.insert((self.now + self.delays[path.index()], self.sent), (1 - end, arrival, frame));
            }
        }
        let now = self.now;
        let end = &mut self.ends[end];
        while let Some(event) = end.connection.paths_mut().expect("there are several paths").poll_event() {
            end.events.push((now, event));
        }
    }

    fn post(&mut self, end: usize) {
        let message = self.posted[end];
        self.posted[end] += 1;
        self.act(end, |connection, now, mut out| {
            connection.send(now, message, AckRequest::Immediate, &mut out);
        });
    }

    fn timeout(&mut self, end: usize) {
        let mut failed = None;
        self.act(end, |connection, now, mut out| failed = connection.handle_timeout(now, &mut out).err());
        self.ends[end].failed = self.ends[end].failed.or(failed);
    }

    /// Runs until then; active ends send a message every 20 us.
    fn run_until(&mut self, micros: u64) {
        let end_time = at(micros);
        loop {
            let deadline = |end: &PathHarnessEnd| end.connection.deadline().filter(|_| end.failed.is_none());
            let deadlines: [Option<Time>; 2] = [deadline(&self.ends[0]), deadline(&self.ends[1])];
            let arrival = self.wire.keys().next().map(|(at, _)| *at);
            let tick = at((self.now.as_nanos() / 20_000 + 1) * 20);
            let next =
                deadlines.iter().flatten().copied().chain([tick]).chain(arrival).min().expect("there is a tick");
            if next > end_time {
                self.now = end_time;
                return;
            }
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let (_, (to, arrival, frame)) = self.wire.pop_first().expect("just found");
                let mut message = None;
                self.act(to, |connection, now, mut out| {
                    message = connection.handle_frame(now, arrival, &frame, &mut out).copied();
                });
                self.ends[to].delivered.extend(message);
                continue;
            }
            for (end, own) in deadlines.into_iter().enumerate() {
                if own == Some(next) {
                    self.timeout(end);
                } else if next == tick && self.is_active[end] && self.ends[end].failed.is_none() {
                    self.post(end);
                }
            }
        }
    }

    fn cut(&mut self, path: usize, cut: bool) {
        for direction in &mut self.cut {
            direction[path] = cut;
        }
    }

    fn report_down(&mut self, end: usize, path: u8) {
        self.act(end, |connection, now, mut out| connection.handle_path_down(now, PathId(path), &mut out));
    }

    fn moves(&self, end: usize) -> Vec<(u8, u8, MigrationCause)> {
        let moved = |(_, event): &(Time, PathEvent)| match event {
            PathEvent::Migrated { from, to, cause } => Some((from.0, to.0, *cause)),
            _ => None,
        };
        self.ends[end].events.iter().filter_map(moved).collect()
    }

    fn states(&self) -> [PathState; 2] {
        [self.paths(0).state(), self.paths(1).state()]
    }

    fn currents(&self) -> [u8; 2] {
        [self.paths(0).current().0, self.paths(1).current().0]
    }

    /// Every message was delivered once and in order, except those that may still be in flight.
    fn assert_in_order(&self) {
        for end in 0..2 {
            let delivered = &self.ends[1 - end].delivered;
            assert!(delivered.iter().copied().eq(0..delivered.len() as u32), "from end {end}: {delivered:?}");
            assert!(delivered.len() + 20 >= self.posted[end] as usize, "{} of {}", delivered.len(), self.posted[end]);
        }
    }
}

/// The probes of unused paths carried the migration bit, and made the peer follow.
#[test]
fn two_healthy_ends_arm_their_first_alternate_and_stay() {
    for paths in 2..=4 {
        let mut harness = PathHarness::new(paths, path_policy());
        harness.run_until(500);
        assert_eq!(harness.states(), [PathState::Armed; 2]);
        assert_eq!([harness.paths(0).alternate(), harness.paths(1).alternate()], [Some(PathId(1)); 2]);
        assert_eq!([harness.moves(0), harness.moves(1)], [[]; 2], "no end had a reason to move");
        harness.assert_in_order();
    }
}

#[test]
fn arming_survives_lost_probes_and_replies() {
    for lost in 0..12 {
        let mut harness = PathHarness::new(2, path_policy());
        harness.is_active = [false, false];
        harness.lose = [lost, 12 - lost];
        harness.run_until(2_000);
        assert_eq!(harness.states(), [PathState::Armed; 2], "{lost} and {} lost", 12 - lost);
    }
}

#[test]
fn manual_loading_loads_nothing_by_itself_and_needs_both_ends() {
    let mut harness = PathHarness::new(2, PathPolicy { loading: AlternateLoading::Manual, ..path_policy() });
    harness.run_until(300);
    assert_eq!(harness.states(), [PathState::Migrated; 2]);
    harness.act(0, |connection, now, _| connection.load_path(now, PathId(1)).expect("the path exists"));
    harness.run_until(600);
    assert_eq!(harness.states(), [PathState::Rearm, PathState::Migrated], "one end alone does not arm");
    harness.act(1, |connection, now, _| connection.load_path(now, PathId(1)).expect("the path exists"));
    harness.run_until(900);
    assert_eq!(harness.states(), [PathState::Armed; 2]);
    assert!(harness.ends[0].events.iter().any(|(_, event)| *event == PathEvent::Armed(PathId(1))));
}

#[test]
fn a_manual_migration_needs_an_armed_path_and_keeps_the_stream() {
    let mut harness = PathHarness::new(2, PathPolicy { loading: AlternateLoading::Manual, ..path_policy() });
    harness.run_until(100);
    let mut early = Ok(());
    harness.act(0, |connection, now, mut out| early = connection.migrate(now, &mut out));
    assert_eq!(early, Err(InvalidPathTransition { state: PathState::Migrated, asked: PathTransition::Migrate }));
    for end in 0..2 {
        harness.act(end, |connection, now, _| connection.load_path(now, PathId(1)).expect("the path exists"));
    }
    harness.run_until(300);
    harness.act(1, |connection, now, mut out| connection.migrate(now, &mut out).expect("it is armed"));
    harness.run_until(600);
    assert_eq!(
        (harness.moves(1), harness.moves(0)),
        (vec![(0, 1, MigrationCause::Manual)], vec![(0, 1, MigrationCause::Followed)])
    );
    assert_eq!((harness.currents(), harness.states()), ([1, 1], [PathState::Migrated; 2]));
    harness.assert_in_order();
}

/// The path that was left had been alive for long, so the connection failed back at once.
#[test]
fn a_manual_migration_lasts_at_least_the_failback_delay() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.run_until(2_000);
    harness.act(0, |connection, now, mut out| connection.migrate(now, &mut out).expect("it is armed"));
    harness.run_until(2_000 + FAILBACK - 50);
    assert_eq!(harness.currents(), [1, 1]);
    harness.run_until(2_000 + 2 * FAILBACK);
    assert_eq!(harness.currents(), [0, 0], "then traffic fails back to the better path");
    harness.assert_in_order();
}

#[test]
fn loading_an_invalid_path_is_an_error() {
    let mut paths = Paths::new(path_policy(), MigrationRole::Leader, 2, Time::ZERO);
    assert_eq!(paths.load(at(1), PathId(0)), Err(LoadPathError::InUse(PathId(0))));
    assert_eq!(paths.load(at(1), PathId(2)), Err(LoadPathError::Unknown(PathId(2))));
    assert_eq!((paths.state(), paths.alternate()), (PathState::Migrated, None), "nothing changes");
}

#[test]
fn a_path_reported_down_is_left_at_once() {
    let mut harness = PathHarness::new(3, path_policy());
    harness.run_until(500);
    harness.cut(0, true);
    harness.report_down(0, 0);
    assert_eq!(harness.currents()[0], 1, "to the armed one");
    harness.run_until(520);
    assert_eq!(harness.moves(1), [(0, 1, MigrationCause::Followed)]);
    harness.run_until(900);
    assert_eq!((harness.states(), harness.paths(0).alternate()), ([PathState::Armed; 2], Some(PathId(2))));
    assert_eq!(harness.paths(0).health(PathId(0)), Some(PathHealth::Dead));
    harness.assert_in_order();
}

#[test]
fn an_unresponsive_path_is_left_after_as_many_timeouts_as_the_policy_says() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.run_until(500);
    harness.cut(0, true);
    harness.run_until(900);
    assert_eq!(harness.currents(), [1, 1]);
    assert!(harness.moves(0).iter().chain(&harness.moves(1)).any(|(.., cause)| *cause == MigrationCause::Timeout));
    harness.assert_in_order();
}

/// Found by seed 36 of the path trials: an idle connection stayed on a dead path forever, and could not be armed.
#[test]
fn an_idle_connection_leaves_a_dead_path_only_for_a_live_one() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.is_active = [false, false];
    harness.run_until(500);
    harness.cut(0, true);
    harness.run_until(1_500);
    assert_eq!(harness.currents(), [1, 1]);
    harness.cut(1, true);
    harness.run_until(5_000);
    assert_eq!(harness.currents(), [1, 1], "there is no live path");
    harness.cut(0, false);
    harness.run_until(8_000);
    assert_eq!(harness.currents(), [0, 0]);
}

/// Its probes were answered too late, though the peer sent requests on that path all the time.
#[test]
fn a_receiver_stays_on_the_path_on_which_requests_arrive() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.is_active = [true, false];
    harness.run_until(500);
    harness.delays[0] = Span::from_micros(21); // A round trip takes longer than both probes wait.
    harness.run_until(3_000);
    assert_eq!([harness.moves(0), harness.moves(1)], [[]; 2]);
    harness.is_active = [false, false];
    harness.run_until(5_000);
    assert_eq!(harness.currents(), [1, 1], "without traffic only probes count");
}

#[test]
fn a_damaged_path_is_left_only_for_a_live_one() {
    for other_lives in [true, false] {
        let mut harness = PathHarness::new(2, path_policy());
        harness.cut(1, !other_lives);
        harness.run_until(500);
        for _ in 0..40 {
            harness.act(0, |connection, now, mut out| connection.handle_path_damage(now, PathId(0), &mut out));
        }
        harness.run_until(600);
        assert_eq!(harness.currents(), [u8::from(other_lives); 2]);
        harness.run_until(1_000);
        harness.assert_in_order();
    }
}

/// Found by seed 87 of the path trials: each damaged packet moved traffic, and each move retransmitted the whole window.
#[test]
fn where_all_paths_are_noisy_traffic_does_not_cycle() {
    let mut harness = PathHarness::new(3, path_policy());
    harness.run_until(3_000);
    for step in 0..200 {
        for end in 0..2 {
            for path in 0..3 {
                harness
                    .act(end, |connection, now, mut out| connection.handle_path_damage(now, PathId(path), &mut out));
            }
        }
        harness.run_until(3_000 + 5 * step);
    }
    assert!(
        harness.moves(0).len() <= 6 && harness.moves(1).len() <= 6,
        "{:?} {:?}",
        harness.moves(0),
        harness.moves(1)
    );
    harness.assert_in_order();
}

/// The end that had followed did not know of the damage, and failed back at once.
#[test]
fn a_damaged_path_is_penalized_at_both_ends() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.run_until(3_000);
    for _ in 0..40 {
        harness.act(1, |connection, now, mut out| connection.handle_path_damage(now, PathId(0), &mut out));
    }
    harness.run_until(3_000 + FAILBACK - 50);
    assert_eq!((harness.currents(), harness.moves(0).len(), harness.moves(1).len()), ([1, 1], 1, 1));
    harness.run_until(3_000 + 2 * FAILBACK);
    assert_eq!(harness.currents(), [0, 0]);
}

/// It moved as soon as another path had replied. Packets of the leader in flight made it follow back, and then the other path was
/// penalized: it stayed for a second on a path that delivered nothing.
#[test]
fn a_path_that_is_noisy_from_the_start_is_left_once() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.delays = vec![Span::from_micros(9), Span::from_micros(1)];
    for micros in 0..200 {
        harness.post(0);
        if harness.paths(1).current() == PathId(0) {
            harness.act(1, |connection, now, mut out| connection.handle_path_damage(now, PathId(0), &mut out));
        }
        harness.run_until(micros);
    }
    assert_eq!((harness.currents(), harness.moves(0).len(), harness.moves(1).len()), ([1, 1], 1, 1));
    harness.assert_in_order();
}

#[test]
fn a_dead_alternate_is_never_armed_and_one_that_dies_is_unloaded() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.cut(1, true);
    harness.run_until(1_000);
    assert_ne!(harness.states(), [PathState::Armed; 2]);
    assert!(!harness.ends.iter().any(|end| end.events.iter().any(|(_, event)| matches!(event, PathEvent::Armed(_)))));
    harness.cut(1, false);
    harness.run_until(2_000);
    assert_eq!(harness.states(), [PathState::Armed; 2]);
    harness.cut(1, true);
    harness.run_until(3_000);
    assert!([0, 1].iter().all(|end| harness.paths(*end).state() != PathState::Armed));
    assert_eq!(harness.currents(), [0, 0]);
    harness.assert_in_order();
}

#[test]
fn a_path_with_one_dead_direction_is_neither_armed_nor_kept() {
    for deaf in [0, 1] {
        let mut harness = PathHarness::new(2, path_policy());
        harness.cut[deaf][1] = true;
        harness.run_until(1_500);
        assert_ne!(harness.states(), [PathState::Armed; 2], "path 1 works in one direction only");
        harness.cut[deaf][1] = false;
        harness.run_until(2_500);
        assert_eq!(harness.states(), [PathState::Armed; 2]);
        harness.cut[deaf][0] = true;
        harness.run_until(3_500);
        assert_eq!(harness.currents(), [1, 1], "path 0 works in one direction only");
        harness.assert_in_order();
    }
}

/// The first failback delay was twice as long as the rule says.
#[test]
fn traffic_fails_back_to_a_better_path_after_the_delay() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.run_until(500);
    harness.cut(0, true);
    harness.report_down(0, 0);
    harness.run_until(600);
    harness.cut(0, false);
    harness.act(0, |connection, now, _| connection.handle_path_up(now, PathId(0)));
    harness.run_until(600 + FAILBACK - 150);
    assert_eq!(harness.currents(), [1, 1]);
    harness.run_until(600 + FAILBACK + 400);
    assert_eq!(harness.currents(), [0, 0]);
    let back = [harness.moves(0).pop(), harness.moves(1).pop()].map(|last| last.expect("both moved").2);
    assert!(back.contains(&MigrationCause::Failback));
    harness.assert_in_order();
}

/// Flaps path 0 this many times, each time soon after the failback; returns how long traffic stayed away each time.
fn flap(times: usize) -> Vec<u64> {
    let mut harness = PathHarness::new(2, path_policy());
    harness.run_until(500);
    let mut micros = 500;
    let mut away = Vec::new();
    for _ in 0..times {
        harness.cut(0, true);
        harness.report_down(1, 0);
        harness.run_until(micros + 50);
        harness.cut(0, false);
        harness.act(1, |connection, now, _| connection.handle_path_up(now, PathId(0)));
        let left = micros;
        while harness.currents() != [0, 0] {
            micros += 50;
            harness.run_until(micros);
            assert!(micros < left + 200 * FAILBACK, "it never arrival back");
        }
        away.push(micros - left);
        micros += 300; // So that both are armed again: an unarmed leader does not move.
        harness.run_until(micros);
    }
    harness.assert_in_order();
    away
}

#[test]
fn a_flapping_path_must_prove_itself_for_longer_each_time() {
    let away = flap(5);
    for (step, away) in away.iter().enumerate() {
        let pause = FAILBACK << step;
        assert!((pause..pause + 600).contains(away), "pause {step}: {away} us instead of {pause}");
    }
}

#[test]
fn two_ends_that_migrate_to_different_paths_meet_on_the_leaders() {
    let mut harness = PathHarness::new(3, path_policy());
    harness.run_until(500);
    harness.cut(0, true);
    harness.act(0, |connection, now, _| connection.load_path(now, PathId(2)).expect("the path exists"));
    harness.report_down(1, 0); // To path 1, which is armed there.
    harness.act(0, |connection, now, mut out| {
        connection.handle_path_down(now, PathId(1), &mut out); // So that it must choose another path.
        connection.handle_path_down(now, PathId(0), &mut out);
    });
    assert_eq!(harness.currents(), [2, 1]);
    harness.run_until(530);
    assert_eq!(harness.currents(), [2, 2]);
    harness.assert_in_order();
}

/// A leader that had never moved, or long ago, did not follow: the code checked only for state MIGRATED.
#[test]
fn a_leader_follows_unless_it_has_just_moved() {
    use super::FollowDecision::{Follow, Stay};
    type History = fn(&mut Paths);
    let fresh: History = |_| ();
    let loaded: History = |paths| paths.load(at(1), PathId(1)).expect("the path exists");
    let moved: History = |paths| assert!(paths.handle_down(at(1), PathId(0)), "it moves to path 1");
    let settled: History = |paths| {
        assert!(paths.handle_down(at(1), PathId(0)));
        let mut probes = Vec::new();
        paths.handle_timeout(at(1), super::PathActivity::Idle, &mut |probe| probes.push(probe));
        let probe = probes.iter().find(|probe| probe.path == PathId(1)).expect("a probe of the new path");
        paths.handle_probe_reply(at(2), PathId(1), probe.token, MigrationBit::Migrated);
    };
    let followed: History =
        |paths| assert!(paths.note_arrival(at(1), PathId(1), MigrationBit::Migrated, Follow), "it moves to path 1");
    let delivered = |role, history: History, path, follow| {
        let mut paths = Paths::new(path_policy(), role, 3, Time::ZERO);
        history(&mut paths);
        paths.note_arrival(at(3), PathId(path), MigrationBit::Migrated, follow)
    };
    for history in [fresh, loaded, settled] {
        assert!(
            delivered(MigrationRole::Leader, history, 2, Follow)
                && delivered(MigrationRole::Follower, history, 2, Follow)
        );
        assert!(!delivered(MigrationRole::Leader, history, 2, Stay), "a reply is not followed");
    }
    for history in [moved, followed] {
        assert!(
            delivered(MigrationRole::Follower, history, 2, Follow)
                && !delivered(MigrationRole::Leader, history, 2, Follow)
        );
    }
    assert!(!delivered(MigrationRole::Follower, moved, 0, Follow), "an end does not follow to a path that is down");
}

#[test]
fn with_all_paths_dead_the_others_are_probed_until_the_retry_limit() {
    let mut harness = PathHarness::new(3, path_policy());
    harness.run_until(500);
    (0..3).for_each(|path| harness.cut(path, true));
    harness.run_until(1_500);
    assert!(harness.moves(0).len() <= 2, "{:?}", harness.moves(0));
    harness.run_until(250_000);
    assert_eq!([harness.ends[0].failed, harness.ends[1].failed], [Some(RetryExceeded::Timeout); 2]);
}

#[test]
fn after_an_outage_of_all_paths_the_first_one_to_recover_is_used() {
    for survivor in 0..3 {
        let mut harness = PathHarness::new(3, path_policy());
        harness.run_until(500);
        for path in 0..3 {
            harness.cut(path, true);
            harness.report_down(0, path as u8);
            harness.report_down(1, path as u8);
        }
        harness.run_until(1_200);
        harness.cut(survivor, false);
        for end in 0..2 {
            harness.act(end, |connection, now, _| connection.handle_path_up(now, PathId(survivor as u8)));
        }
        harness.run_until(3_000);
        assert_eq!(harness.currents(), [survivor as u8; 2]);
        harness.assert_in_order();
    }
}

/// Every check of the paths repeated the event, until it filled the queue.
#[test]
fn a_failed_migration_is_reported_once() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.run_until(500);
    for path in 0..2 {
        harness.cut(path, true);
        harness.report_down(0, path as u8);
    }
    harness.run_until(2_500);
    let failures = harness.ends[0].events.iter().filter(|(_, event)| matches!(event, PathEvent::MigrationFailed(_)));
    assert_eq!(failures.count(), 1);
}

/// A late acknowledgement that arrived over the old path counted for the new one.
#[test]
fn an_acknowledgement_confirms_the_path_it_arrived_on() {
    let mut connection: Connection<u32> = Connection::new(policy());
    connection.set_paths(Paths::new(path_policy(), MigrationRole::Leader, 2, Time::ZERO));
    connection.send(at(1), 7, AckRequest::Immediate, &mut |_| ());
    connection.handle_path_down(at(2), PathId(0), &mut |_| ());
    let arrival = FramePath { path: PathId(0), migration: MigrationBit::Loaded };
    connection.handle_frame(at(3), arrival, &Frame::Ack { psn: Psn::new(0) }, &mut |_| ());
    let paths = connection.paths().expect("there are several paths");
    assert_eq!((paths.current(), paths.health(PathId(1))), (PathId(1), Some(PathHealth::Unknown)));
}

#[test]
fn packets_on_unknown_paths_change_nothing() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.run_until(500);
    let arrival = FramePath { path: PathId(9), migration: MigrationBit::Migrated };
    for frame in [Frame::Probe { token: 1 }, Frame::ProbeReply { token: 1 }, Frame::Ack { psn: Psn::new(3) }] {
        harness.ends[0].connection.handle_frame(at(501), arrival, &frame, &mut |_| ());
    }
    harness.ends[0].connection.handle_path_damage(at(501), PathId(9), &mut |_| ());
    harness.ends[0].connection.handle_path_down(at(501), PathId(9), &mut |_| ());
    harness.run_until(800);
    assert_eq!((harness.currents(), harness.states()), ([0, 0], [PathState::Armed; 2]));
    harness.assert_in_order();
}

/// P-19: another connection found the path dead. Without the hint this one would stay until its next probe is due.
#[test]
fn an_idle_connection_leaves_a_suspected_path_that_does_not_reply() {
    for doubted in [false, true] {
        let mut connection: Connection<u32> = Connection::new(policy());
        connection.set_paths(Paths::new(path_policy(), MigrationRole::Leader, 2, Time::ZERO));
        let mut cut = false;
        let mut now = Time::ZERO;
        // The hint must take effect before the next ordinary probe is due.
        while now < at(20) + path_policy().probe_every {
            if !cut && now >= at(20) {
                cut = true;
                if doubted {
                    connection.suspect_path(now, PathId(0));
                }
            }
            let mut probes = Vec::new();
            connection.handle_timeout(now, &mut |outgoing| probes.push(outgoing)).expect("nothing is in flight");
            for probe in probes {
                let Frame::Probe { token } = probe.frame else { continue };
                if !(cut && probe.path == PathId(0)) {
                    let arrival = FramePath { path: probe.path, migration: MigrationBit::Loaded };
                    connection.handle_control(now, arrival, &Frame::ProbeReply { token }, &mut |_| ());
                }
            }
            now += units::Span::from_micros(1);
        }
        let current = connection.paths().expect("there are several paths").current();
        assert_eq!(current, PathId(u8::from(doubted)));
    }
}

/// Seen on a busy machine: with two paths the back-off restarted with every move, and a peer that was descheduled for a fifth of a
/// second was declared lost; with one path it would have had seconds.
#[test]
fn several_paths_do_not_shorten_the_total_timeout() {
    let patience = |paths: usize| {
        let mut connection: Connection<u32> = Connection::new(ConnectionPolicy::datagram());
        connection.set_paths(Paths::new(PathPolicy::default(), MigrationRole::Leader, paths, Time::ZERO));
        connection.send(Time::ZERO, 1, AckRequest::Immediate, &mut |_| ());
        loop {
            let now = connection.deadline().expect("something is unacknowledged");
            if connection.handle_timeout(now, &mut |_| ()).is_err() {
                return now.since(Time::ZERO);
            }
        }
    };
    let second = Span::from_micros(1_000_000);
    assert!(patience(1) > second && patience(2) > second && patience(4) > second);
}
