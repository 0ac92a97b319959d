//! Two ends of a connection with several paths, joined by a hand that cuts, loses and tells as it likes.

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

/// One end and what its user saw.
struct PathHarnessEnd {
    connection: Connection<u32>,
    delivered: Vec<u32>,
    events: Vec<(Time, PathEvent)>,
    failed: Option<RetryExceeded>,
}

/// The hand between them.
struct PathHarness {
    ends: [PathHarnessEnd; 2],
    now: Time,
    /// What is under way: by time of arrival and order of sending.
    wire: BTreeMap<(Time, u64), (usize, FramePath, Frame<u32>)>,
    sent: u64,
    /// How long each path takes.
    trips: Vec<Span>,
    /// Paths that carry nothing from this end to the other.
    cut: [Vec<bool>; 2],
    /// Frames that the hand still loses, by the end that sends them.
    lose: [u32; 2],
    /// Messages posted so far by each end, and those that it posts every 20 us.
    posted: [u32; 2],
    talks: [bool; 2],
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
            trips: vec![TRIP; paths],
            cut: [vec![false; paths], vec![false; paths]],
            lose: [0, 0],
            posted: [0, 0],
            talks: [true, true],
        }
    }

    fn paths(&self, end: usize) -> &Paths {
        self.ends[end].connection.paths().expect("it has several")
    }

    fn act(&mut self, end: usize, act: impl FnOnce(&mut Connection<u32>, Time, &mut dyn FnMut(OutgoingFrame<u32>))) {
        let mut out = VecDeque::new();
        act(&mut self.ends[end].connection, self.now, &mut |outgoing| out.push_back(outgoing));
        for OutgoingFrame { frame, path, migration, .. } in out {
            let lost = self.lose[end] > 0;
            self.lose[end] -= u32::from(lost);
            if !lost && !self.cut[end][path.index()] {
                self.sent += 1;
                let came = FramePath { path, migration };
                self.wire.insert((self.now + self.trips[path.index()], self.sent), (1 - end, came, frame));
            }
        }
        let now = self.now;
        let end = &mut self.ends[end];
        while let Some(event) = end.connection.paths_mut().expect("it has several").poll_event() {
            end.events.push((now, event));
        }
    }

    fn post(&mut self, end: usize) {
        let message = self.posted[end];
        self.posted[end] += 1;
        self.act(end, |connection, now, mut out| {
            connection.send(now, message, AckRequest::Now, &mut out);
        });
    }

    fn timeout(&mut self, end: usize) {
        let mut failed = None;
        self.act(end, |connection, now, mut out| failed = connection.handle_timeout(now, &mut out).err());
        self.ends[end].failed = self.ends[end].failed.or(failed);
    }

    /// Lets the world go on until then; ends that talk send a message every 20 us.
    fn run_until(&mut self, micros: u64) {
        let end_of_time = at(micros);
        loop {
            let deadline = |end: &PathHarnessEnd| end.connection.deadline().filter(|_| end.failed.is_none());
            let alarms: [Option<Time>; 2] = [deadline(&self.ends[0]), deadline(&self.ends[1])];
            let arrival = self.wire.keys().next().map(|(at, _)| *at);
            let tick = at((self.now.as_picos() / 20_000_000 + 1) * 20);
            let alarm = alarms.iter().flatten().copied().chain([tick]).chain(arrival).min().expect("there is a tick");
            if alarm > end_of_time {
                self.now = end_of_time;
                return;
            }
            self.now = self.now.max(alarm);
            if arrival == Some(alarm) {
                let (_, (to, came, frame)) = self.wire.pop_first().expect("looked at");
                let mut message = None;
                self.act(to, |connection, now, mut out| {
                    message = connection.handle_frame(now, came, &frame, &mut out).copied();
                });
                self.ends[to].delivered.extend(message);
                continue;
            }
            for (end, own) in alarms.into_iter().enumerate() {
                if own == Some(alarm) {
                    self.timeout(end);
                } else if alarm == tick && self.talks[end] && self.ends[end].failed.is_none() {
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

    fn tell_down(&mut self, end: usize, path: u8) {
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

    /// Everything that was said has been heard, once and in order, but for what may still be under way.
    fn assert_in_order(&self) {
        for end in 0..2 {
            let heard = &self.ends[1 - end].delivered;
            assert!(heard.iter().copied().eq(0..heard.len() as u32), "from end {end}: {heard:?}");
            assert!(heard.len() + 20 >= self.posted[end] as usize, "{} of {}", heard.len(), self.posted[end]);
        }
    }
}

/// The probes of paths that are not in use carried the migration bit, and made the other end follow.
#[test]
fn two_healthy_ends_arm_their_first_alternate_and_nobody_moves() {
    for paths in 2..=4 {
        let mut world = PathHarness::new(paths, path_policy());
        world.run_until(500);
        assert_eq!(world.states(), [PathState::Armed; 2]);
        assert_eq!([world.paths(0).alternate(), world.paths(1).alternate()], [Some(PathId(1)); 2]);
        assert_eq!([world.moves(0), world.moves(1)], [[]; 2], "nobody had a reason to move");
        world.assert_in_order();
    }
}

#[test]
fn arming_outlives_lost_probes_and_answers() {
    for lost in 0..12 {
        let mut world = PathHarness::new(2, path_policy());
        world.talks = [false, false];
        world.lose = [lost, 12 - lost];
        world.run_until(2_000);
        assert_eq!(world.states(), [PathState::Armed; 2], "{lost} and {} lost", 12 - lost);
    }
}

#[test]
fn by_hand_nothing_is_loaded_unasked_and_both_ends_must_load() {
    let mut world = PathHarness::new(2, PathPolicy { loading: AlternateLoading::ByHand, ..path_policy() });
    world.run_until(300);
    assert_eq!(world.states(), [PathState::Migrated; 2]);
    world.act(0, |connection, now, _| connection.load_path(now, PathId(1)).expect("there is such a path"));
    world.run_until(600);
    assert_eq!(world.states(), [PathState::Rearm, PathState::Migrated], "one end alone does not arm");
    world.act(1, |connection, now, _| connection.load_path(now, PathId(1)).expect("there is such a path"));
    world.run_until(900);
    assert_eq!(world.states(), [PathState::Armed; 2]);
    assert!(world.ends[0].events.iter().any(|(_, event)| *event == PathEvent::Armed(PathId(1))));
}

#[test]
fn a_migration_by_hand_needs_an_armed_path_and_keeps_the_stream() {
    let mut world = PathHarness::new(2, PathPolicy { loading: AlternateLoading::ByHand, ..path_policy() });
    world.run_until(100);
    let mut early = Ok(());
    world.act(0, |connection, now, mut out| early = connection.migrate(now, &mut out));
    assert_eq!(early, Err(InvalidPathTransition { state: PathState::Migrated, asked: PathTransition::Migrate }));
    for end in 0..2 {
        world.act(end, |connection, now, _| connection.load_path(now, PathId(1)).expect("there is such a path"));
    }
    world.run_until(300);
    world.act(1, |connection, now, mut out| connection.migrate(now, &mut out).expect("it is armed"));
    world.run_until(600);
    assert_eq!(
        (world.moves(1), world.moves(0)),
        (vec![(0, 1, MigrationCause::ByHand)], vec![(0, 1, MigrationCause::Followed)])
    );
    assert_eq!((world.currents(), world.states()), ([1, 1], [PathState::Migrated; 2]));
    world.assert_in_order();
}

/// The path that was left had been alive for ever, so the connection went back to it at once.
#[test]
fn a_migration_by_hand_lasts_at_least_the_pause() {
    let mut world = PathHarness::new(2, path_policy());
    world.run_until(2_000);
    world.act(0, |connection, now, mut out| connection.migrate(now, &mut out).expect("it is armed"));
    world.run_until(2_000 + FAILBACK - 50);
    assert_eq!(world.currents(), [1, 1]);
    world.run_until(2_000 + 2 * FAILBACK);
    assert_eq!(world.currents(), [0, 0], "then the path that ranks higher is gone back to");
    world.assert_in_order();
}

#[test]
fn what_cannot_be_loaded_is_a_typed_error() {
    let mut paths = Paths::new(path_policy(), MigrationRole::Leader, 2, Time::ZERO);
    assert_eq!(paths.load(at(1), PathId(0)), Err(LoadPathError::InUse(PathId(0))));
    assert_eq!(paths.load(at(1), PathId(2)), Err(LoadPathError::Unknown(PathId(2))));
    assert_eq!((paths.state(), paths.alternate()), (PathState::Migrated, None), "and changes nothing");
}

#[test]
fn a_path_that_is_said_to_be_down_is_left_at_once() {
    let mut world = PathHarness::new(3, path_policy());
    world.run_until(500);
    world.cut(0, true);
    world.tell_down(0, 0);
    assert_eq!(world.currents()[0], 1, "to the armed one");
    world.run_until(520);
    assert_eq!(world.moves(1), [(0, 1, MigrationCause::Followed)]);
    world.run_until(900);
    assert_eq!((world.states(), world.paths(0).alternate()), ([PathState::Armed; 2], Some(PathId(2))));
    assert_eq!(world.paths(0).health(PathId(0)), Some(PathHealth::Dead));
    world.assert_in_order();
}

#[test]
fn a_silent_path_is_left_after_as_many_timeouts_as_the_policy_says() {
    let mut world = PathHarness::new(2, path_policy());
    world.run_until(500);
    world.cut(0, true);
    world.run_until(900);
    assert_eq!(world.currents(), [1, 1]);
    assert!(world.moves(0).iter().chain(&world.moves(1)).any(|(.., cause)| *cause == MigrationCause::Silence));
    world.assert_in_order();
}

/// Found by seed 36 of the path trials: an idle connection stayed on a dead path for ever, and could not be armed.
#[test]
fn a_dead_path_is_left_even_if_nobody_talks_but_only_for_one_that_lives() {
    let mut world = PathHarness::new(2, path_policy());
    world.talks = [false, false];
    world.run_until(500);
    world.cut(0, true);
    world.run_until(1_500);
    assert_eq!(world.currents(), [1, 1]);
    world.cut(1, true);
    world.run_until(5_000);
    assert_eq!(world.currents(), [1, 1], "there is no better");
    world.cut(0, false);
    world.run_until(8_000);
    assert_eq!(world.currents(), [0, 0]);
}

/// Its probes came back too late, though the other end spoke to it on that path all the time.
#[test]
fn an_end_that_only_listens_stays_on_the_path_on_which_it_is_spoken_to() {
    let mut world = PathHarness::new(2, path_policy());
    world.talks = [true, false];
    world.run_until(500);
    world.trips[0] = Span::from_micros(21); // There and back takes longer than both probes may.
    world.run_until(3_000);
    assert_eq!([world.moves(0), world.moves(1)], [[]; 2]);
    world.talks = [false, false];
    world.run_until(5_000);
    assert_eq!(world.currents(), [1, 1], "without traffic probes are all that there is to go by");
}

#[test]
fn a_damaged_path_is_left_only_for_one_that_lives() {
    for other_lives in [true, false] {
        let mut world = PathHarness::new(2, path_policy());
        world.cut(1, !other_lives);
        world.run_until(500);
        for _ in 0..40 {
            world.act(0, |connection, now, mut out| connection.handle_path_damage(now, PathId(0), &mut out));
        }
        world.run_until(600);
        assert_eq!(world.currents(), [u8::from(other_lives); 2]);
        world.run_until(1_000);
        world.assert_in_order();
    }
}

/// Found by seed 87 of the path trials: each damaged packet made traffic move, and each move repeated the whole window.
#[test]
fn where_all_paths_are_noisy_traffic_does_not_go_round() {
    let mut world = PathHarness::new(3, path_policy());
    world.run_until(3_000);
    for step in 0..200 {
        for end in 0..2 {
            for path in 0..3 {
                world.act(end, |connection, now, mut out| connection.handle_path_damage(now, PathId(path), &mut out));
            }
        }
        world.run_until(3_000 + 5 * step);
    }
    assert!(world.moves(0).len() <= 6 && world.moves(1).len() <= 6, "{:?} {:?}", world.moves(0), world.moves(1));
    world.assert_in_order();
}

/// The end that had followed knew nothing of the damage, and went back at once.
#[test]
fn a_damaged_path_stays_out_of_favour_at_both_ends() {
    let mut world = PathHarness::new(2, path_policy());
    world.run_until(3_000);
    for _ in 0..40 {
        world.act(1, |connection, now, mut out| connection.handle_path_damage(now, PathId(0), &mut out));
    }
    world.run_until(3_000 + FAILBACK - 50);
    assert_eq!((world.currents(), world.moves(0).len(), world.moves(1).len()), ([1, 1], 1, 1));
    world.run_until(3_000 + 2 * FAILBACK);
    assert_eq!(world.currents(), [0, 0]);
}

/// It moved as soon as another path had answered. What the leader had under way called it back, and then the other path was out of
/// favour: it stayed for a second where nothing came through.
#[test]
fn a_path_that_is_noisy_from_the_beginning_is_left_once() {
    let mut world = PathHarness::new(2, path_policy());
    world.trips = vec![Span::from_micros(9), Span::from_micros(1)];
    for micros in 0..200 {
        world.post(0);
        if world.paths(1).current() == PathId(0) {
            world.act(1, |connection, now, mut out| connection.handle_path_damage(now, PathId(0), &mut out));
        }
        world.run_until(micros);
    }
    assert_eq!((world.currents(), world.moves(0).len(), world.moves(1).len()), ([1, 1], 1, 1));
    world.assert_in_order();
}

#[test]
fn a_dead_alternate_is_never_armed_and_one_that_dies_is_unloaded() {
    let mut world = PathHarness::new(2, path_policy());
    world.cut(1, true);
    world.run_until(1_000);
    assert_ne!(world.states(), [PathState::Armed; 2]);
    assert!(!world.ends.iter().any(|end| end.events.iter().any(|(_, event)| matches!(event, PathEvent::Armed(_)))));
    world.cut(1, false);
    world.run_until(2_000);
    assert_eq!(world.states(), [PathState::Armed; 2]);
    world.cut(1, true);
    world.run_until(3_000);
    assert!([0, 1].iter().all(|end| world.paths(*end).state() != PathState::Armed));
    assert_eq!(world.currents(), [0, 0]);
    world.assert_in_order();
}

#[test]
fn a_path_with_one_deaf_direction_is_neither_armed_nor_kept() {
    for deaf in [0, 1] {
        let mut world = PathHarness::new(2, path_policy());
        world.cut[deaf][1] = true;
        world.run_until(1_500);
        assert_ne!(world.states(), [PathState::Armed; 2], "path 1 carries one way only");
        world.cut[deaf][1] = false;
        world.run_until(2_500);
        assert_eq!(world.states(), [PathState::Armed; 2]);
        world.cut[deaf][0] = true;
        world.run_until(3_500);
        assert_eq!(world.currents(), [1, 1], "path 0 carries one way only");
        world.assert_in_order();
    }
}

/// The first pause was twice as long as the rule says.
#[test]
fn a_better_path_is_gone_back_to_after_the_pause() {
    let mut world = PathHarness::new(2, path_policy());
    world.run_until(500);
    world.cut(0, true);
    world.tell_down(0, 0);
    world.run_until(600);
    world.cut(0, false);
    world.act(0, |connection, now, _| connection.handle_path_up(now, PathId(0)));
    world.run_until(600 + FAILBACK - 150);
    assert_eq!(world.currents(), [1, 1]);
    world.run_until(600 + FAILBACK + 400);
    assert_eq!(world.currents(), [0, 0]);
    let back = [world.moves(0).pop(), world.moves(1).pop()].map(|last| last.expect("both moved").2);
    assert!(back.contains(&MigrationCause::Failback));
    world.assert_in_order();
}

/// Flaps path 0 so many times, each time soon after traffic is back on it; how long it stayed away each time.
fn flap(times: usize) -> Vec<u64> {
    let mut world = PathHarness::new(2, path_policy());
    world.run_until(500);
    let mut micros = 500;
    let mut away = Vec::new();
    for _ in 0..times {
        world.cut(0, true);
        world.tell_down(1, 0);
        world.run_until(micros + 50);
        world.cut(0, false);
        world.act(1, |connection, now, _| connection.handle_path_up(now, PathId(0)));
        let left = micros;
        while world.currents() != [0, 0] {
            micros += 50;
            world.run_until(micros);
            assert!(micros < left + 200 * FAILBACK, "it never came back");
        }
        away.push(micros - left);
        micros += 300; // So that both are armed again: a leader that is not stays where it is.
        world.run_until(micros);
    }
    world.assert_in_order();
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
fn both_ends_that_move_at_once_to_different_paths_meet_on_the_leaders() {
    let mut world = PathHarness::new(3, path_policy());
    world.run_until(500);
    world.cut(0, true);
    world.act(0, |connection, now, _| connection.load_path(now, PathId(2)).expect("there is such a path"));
    world.tell_down(1, 0); // To path 1, which is armed there.
    world.act(0, |connection, now, mut out| {
        connection.handle_path_down(now, PathId(1), &mut out); // So that it must go to another.
        connection.handle_path_down(now, PathId(0), &mut out);
    });
    assert_eq!(world.currents(), [2, 1]);
    world.run_until(530);
    assert_eq!(world.currents(), [2, 2]);
    world.assert_in_order();
}

/// A leader that had never moved, or long ago, did not follow: it was in MIGRATED, and that was all that was asked.
#[test]
fn a_leader_follows_unless_it_has_just_moved() {
    use super::FollowDecision::{No, Yes};
    type History = fn(&mut Paths);
    let fresh: History = |_| ();
    let loaded: History = |paths| paths.load(at(1), PathId(1)).expect("there is such a path");
    let moved: History = |paths| assert!(paths.down(at(1), PathId(0)), "it goes to path 1");
    let settled: History = |paths| {
        assert!(paths.down(at(1), PathId(0)));
        let mut probes = Vec::new();
        paths.handle_timeout(at(1), super::PathActivity::Idle, &mut |probe| probes.push(probe));
        let probe = probes.iter().find(|probe| probe.path == PathId(1)).expect("it tells that it moved");
        paths.replied(at(2), PathId(1), probe.token, MigrationBit::Migrated);
    };
    let followed: History =
        |paths| assert!(paths.heard(at(1), PathId(1), MigrationBit::Migrated, Yes), "it goes to path 1");
    let heard = |role, history: History, path, leads| {
        let mut paths = Paths::new(path_policy(), role, 3, Time::ZERO);
        history(&mut paths);
        paths.heard(at(3), PathId(path), MigrationBit::Migrated, leads)
    };
    for history in [fresh, loaded, settled] {
        assert!(heard(MigrationRole::Leader, history, 2, Yes) && heard(MigrationRole::Follower, history, 2, Yes));
        assert!(!heard(MigrationRole::Leader, history, 2, No), "an answer leads nobody");
    }
    for history in [moved, followed] {
        assert!(heard(MigrationRole::Follower, history, 2, Yes) && !heard(MigrationRole::Leader, history, 2, Yes));
    }
    assert!(!heard(MigrationRole::Follower, moved, 0, Yes), "nobody follows to a path that it knows to be down");
}

#[test]
fn with_all_paths_silent_they_are_tried_in_turn_until_the_retries_are_spent() {
    let mut world = PathHarness::new(3, path_policy());
    world.run_until(500);
    (0..3).for_each(|path| world.cut(path, true));
    world.run_until(1_500);
    let tried: std::collections::BTreeSet<u8> = world.moves(0).iter().map(|(_, to, _)| *to).collect();
    assert_eq!(tried.len(), 3);
    world.run_until(250_000);
    assert_eq!([world.ends[0].failed, world.ends[1].failed], [Some(RetryExceeded::Silence); 2]);
}

#[test]
fn an_outage_of_all_paths_is_survived_by_whatever_comes_back_first() {
    for survivor in 0..3 {
        let mut world = PathHarness::new(3, path_policy());
        world.run_until(500);
        for path in 0..3 {
            world.cut(path, true);
            world.tell_down(0, path as u8);
            world.tell_down(1, path as u8);
        }
        world.run_until(1_200);
        world.cut(survivor, false);
        for end in 0..2 {
            world.act(end, |connection, now, _| connection.handle_path_up(now, PathId(survivor as u8)));
        }
        world.run_until(3_000);
        assert_eq!(world.currents(), [survivor as u8; 2]);
        world.assert_in_order();
    }
}

/// Each look at the paths told it again, until nothing else was left in the list.
#[test]
fn that_there_is_nowhere_to_go_is_told_once() {
    let mut world = PathHarness::new(2, path_policy());
    world.run_until(500);
    for path in 0..2 {
        world.cut(path, true);
        world.tell_down(0, path as u8);
    }
    world.run_until(2_500);
    let failures = world.ends[0].events.iter().filter(|(_, event)| matches!(event, PathEvent::MigrationFailed(_)));
    assert_eq!(failures.count(), 1);
}

/// A late acknowledgement that came over the old path counted for the new one.
#[test]
fn an_acknowledgement_speaks_for_the_path_it_came_on() {
    let mut connection: Connection<u32> = Connection::new(policy());
    connection.set_paths(Paths::new(path_policy(), MigrationRole::Leader, 2, Time::ZERO));
    connection.send(at(1), 7, AckRequest::Now, &mut |_| ());
    connection.handle_path_down(at(2), PathId(0), &mut |_| ());
    let came = FramePath { path: PathId(0), migration: MigrationBit::Loaded };
    connection.handle_frame(at(3), came, &Frame::Ack { psn: Psn::new(0) }, &mut |_| ());
    let paths = connection.paths().expect("it has several");
    assert_eq!((paths.current(), paths.health(PathId(1))), (PathId(1), Some(PathHealth::Unknown)));
}

#[test]
fn packets_on_paths_that_nobody_knows_change_nothing() {
    let mut world = PathHarness::new(2, path_policy());
    world.run_until(500);
    let came = FramePath { path: PathId(9), migration: MigrationBit::Migrated };
    for frame in [Frame::Probe { token: 1 }, Frame::ProbeReply { token: 1 }, Frame::Ack { psn: Psn::new(3) }] {
        world.ends[0].connection.handle_frame(at(501), came, &frame, &mut |_| ());
    }
    world.ends[0].connection.handle_path_damage(at(501), PathId(9), &mut |_| ());
    world.ends[0].connection.handle_path_down(at(501), PathId(9), &mut |_| ());
    world.run_until(800);
    assert_eq!((world.currents(), world.states()), ([0, 0], [PathState::Armed; 2]));
    world.assert_in_order();
}

/// P-42: another connection found the path silent. Without the hint this one would stay until its next probe is due.
#[test]
fn an_idle_connection_leaves_a_path_that_its_driver_doubts_and_that_does_not_answer() {
    for doubted in [false, true] {
        let mut connection: Connection<u32> = Connection::new(policy());
        connection.set_paths(Paths::new(path_policy(), MigrationRole::Leader, 2, Time::ZERO));
        let mut cut = false;
        let mut now = Time::ZERO;
        // By the time the next ordinary probe is due the hint must have had its effect.
        while now < at(20) + path_policy().probe_every {
            if !cut && now >= at(20) {
                cut = true;
                if doubted {
                    connection.suspect_path(now, PathId(0));
                }
            }
            let mut probes = Vec::new();
            connection.handle_timeout(now, &mut |outgoing| probes.push(outgoing)).expect("nothing is under way");
            for probe in probes {
                let Frame::Probe { token } = probe.frame else { continue };
                if !(cut && probe.path == PathId(0)) {
                    let came = FramePath { path: probe.path, migration: MigrationBit::Loaded };
                    connection.handle_control(now, came, &Frame::ProbeReply { token }, &mut |_| ());
                }
            }
            now += units::Span::from_micros(1);
        }
        let current = connection.paths().expect("it has several").current();
        assert_eq!(current, PathId(u8::from(doubted)));
    }
}

/// Seen on a busy machine: with two paths the backing off began anew with every move, and an end that was off its
/// processor for a fifth of a second was given up; with one path it would have had seconds.
#[test]
fn several_paths_do_not_make_a_connection_give_up_sooner() {
    let patience = |paths: usize| {
        let mut connection: Connection<u32> = Connection::new(ConnectionPolicy::datagram());
        connection.set_paths(Paths::new(PathPolicy::default(), MigrationRole::Leader, paths, Time::ZERO));
        connection.send(Time::ZERO, 1, AckRequest::Now, &mut |_| ());
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
