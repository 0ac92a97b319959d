//! Misleading, late and missing replies to probes.

use units::{PathId, Span};

use super::{FAILBACK, PathHarness, at, path_policy};
use crate::connection::path::{AlternateLoading, MigrationCause, PathEvent, PathPolicy, PathState};
use crate::connection::{Frame, FramePath, MigrationBit};

/// A ping-pong whose message was lost: the end that learns of its dead link retransmits what the peer has, and the acknowledgement
/// of that arrived before the probe that reports the migration, and replaced it.
#[test]
fn an_end_that_migrates_is_followed_at_once_even_if_its_retransmissions_are_duplicates() {
    for teller in 0..2 {
        let mut harness = PathHarness::new(2, path_policy());
        harness.is_active = [false, false];
        harness.run_until(500);
        assert_eq!(harness.states(), [PathState::Armed; 2]);
        harness.cut[1 - teller][0] = true;
        harness.post(teller);
        harness.run_until(506);
        harness.post(1 - teller);
        assert_eq!(harness.ends[1 - teller].delivered, [0], "it arrival, but the acknowledgement does not come back");
        harness.cut(0, true);
        harness.delays[1] = Span::ZERO; // Replies arrive before anything else happens.
        harness.report_down(teller, 0);
        harness.run_until(507);
        assert_eq!(harness.currents(), [1, 1]);
        assert_eq!(harness.moves(teller), [(0, 1, MigrationCause::Down)]);
        assert_eq!(harness.moves(1 - teller), [(0, 1, MigrationCause::Followed)]);
        assert_eq!(harness.ends[teller].delivered, [0], "the lost message was retransmitted at once");
    }
}

/// A path whose round trip is longer than the probe timeout stayed dead forever.
#[test]
fn a_late_reply_to_a_probe_counts_as_long_as_the_path_is_not_dead() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.delays[1] = Span::from_micros(15);
    harness.run_until(500);
    assert_eq!(harness.states(), [PathState::Armed; 2]);
    harness.run_until(5_000);
    assert_eq!(harness.states(), [PathState::Armed; 2]);
    let lost = |(_, event): &(_, PathEvent)| matches!(event, PathEvent::Lost(_));
    assert!(!harness.ends.iter().any(|end| end.events.iter().any(lost)));
    // But a reply from before the path was left says nothing about it.
    harness.delays[1] = Span::from_micros(30);
    harness.run_until(8_000);
    assert!(
        harness.ends.iter().all(|end| end.events.iter().any(lost)),
        "a round trip of three probe timeouts is too long"
    );
}

#[test]
fn a_manually_loaded_path_is_armed_when_it_replies_however_many_probes_were_lost() {
    let by_hand = PathPolicy { loading: AlternateLoading::Manual, ..path_policy() };
    for cut_for in [10, 30, 50, 90, 500, 3 * FAILBACK] {
        let mut harness = PathHarness::new(2, by_hand);
        harness.run_until(50);
        harness.cut(1, true);
        for end in 0..2 {
            harness.ends[end].connection.load_path(at(50), PathId(1)).expect("the path can be loaded");
        }
        harness.run_until(50 + cut_for);
        assert_eq!(harness.states(), [PathState::Rearm; 2], "after {cut_for} us");
        harness.cut(1, false);
        harness.run_until(50 + cut_for + 300);
        assert_eq!(harness.states(), [PathState::Armed; 2], "cut for {cut_for} us");
        for end in &harness.ends {
            let armed = end.events.iter().filter(|(_, event)| *event == PathEvent::Armed(PathId(1)));
            assert_eq!(armed.count(), 1, "{:?}", end.events);
        }
    }
}

#[test]
fn a_manually_loaded_path_that_dies_is_not_armed_until_it_replies_again() {
    let mut harness = PathHarness::new(3, PathPolicy { loading: AlternateLoading::Manual, ..path_policy() });
    harness.run_until(50);
    for end in 0..2 {
        harness.ends[end].connection.load_path(at(50), PathId(1)).expect("the path can be loaded");
    }
    harness.run_until(200);
    assert_eq!(harness.states(), [PathState::Armed; 2]);
    harness.cut(1, true);
    harness.run_until(600);
    assert_eq!(harness.states(), [PathState::Rearm; 2]);
    harness.cut(0, true);
    harness.run_until(1_000);
    assert_eq!(harness.currents(), [2, 2], "traffic does not move to a dead alternate");
    harness.assert_in_order();
}

/// Arming waited for the next probe, a quarter of a second; until then no alternate was ready for a cut.
#[test]
fn two_ends_are_armed_as_soon_as_their_paths_have_replied() {
    for is_active in [false, true] {
        let mut harness = PathHarness::new(2, path_policy());
        harness.is_active = [is_active; 2];
        harness.run_until(50);
        assert_eq!(harness.states(), [PathState::Armed; 2]);
    }
}

/// Acknowledgements that arrived before a path went down, and were handled after, marked it as alive.
#[test]
fn packets_in_flight_when_a_path_went_down_do_not_revive_it() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.run_until(522);
    harness.report_down(1, 0); // A message of end 1 and the acknowledgement of another are in flight.
    harness.cut[1][0] = true;
    harness.run_until(700);
    assert_eq!([harness.moves(0).len(), harness.moves(1).len()], [1, 1], "{:?}", harness.ends[1].events);
    assert!(!harness.ends[1].events.iter().any(|(_, event)| matches!(event, PathEvent::Recovered(_))));
    assert_eq!(harness.currents(), [1, 1]);
    harness.assert_in_order();
}

/// Found by seed 100862 of the path trials, when leaders followed more readily: the ends swapped paths.
#[test]
fn two_ends_that_follow_each_other_at_once_meet() {
    let mut harness = PathHarness::new(3, path_policy());
    harness.is_active = [false, false];
    harness.run_until(500);
    for (end, path) in [(0, 2), (1, 1)] {
        let arrival = FramePath { path: PathId(path), migration: MigrationBit::Migrated };
        harness.act(end, |connection, now, mut out| {
            connection.handle_control(now, arrival, &Frame::Probe { token: 7 }, &mut out);
        });
    }
    assert_eq!(harness.currents(), [2, 1]);
    harness.run_until(600);
    assert_eq!(harness.currents(), [2, 2]);
    assert!(harness.paths(0).migrations() + harness.paths(1).migrations() < 5);
}

/// PM-3: a user that learns of a migration loads the next path at once. The probe that should report the migration then said that a
/// path is loaded, and the peer stayed on its path.
#[test]
fn an_end_that_loads_right_after_a_migration_is_followed_and_both_are_armed() {
    for (mover, is_active) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut harness = PathHarness::new(2, PathPolicy { loading: AlternateLoading::Manual, ..path_policy() });
        harness.is_active = [is_active; 2];
        harness.run_until(50);
        for end in 0..2 {
            harness
                .act(end, |connection, now, _| connection.load_path(now, PathId(1)).expect("the path can be loaded"));
        }
        harness.run_until(200);
        assert_eq!(harness.states(), [PathState::Armed; 2]);
        harness.act(mover, |connection, now, mut out| {
            connection.migrate(now, &mut out).expect("it is armed");
            connection.load_path(now, PathId(0)).expect("the path can be loaded");
        });
        harness.run_until(230);
        assert_eq!(harness.currents(), [1, 1], "end {mover} moved, active: {is_active}");
        harness.act(1 - mover, |connection, now, _| {
            connection.load_path(now, PathId(0)).expect("the path can be loaded")
        });
        harness.run_until(400);
        assert_eq!(harness.states(), [PathState::Armed; 2]);
        harness.assert_in_order();
    }
}

#[test]
fn a_path_loaded_right_after_a_migration_is_forgotten_with_the_next() {
    let mut harness = PathHarness::new(3, PathPolicy { loading: AlternateLoading::Manual, ..path_policy() });
    harness.is_active = [false; 2];
    harness.run_until(50);
    harness.report_down(0, 0);
    harness.act(0, |connection, now, _| connection.load_path(now, PathId(2)).expect("the path can be loaded"));
    harness.report_down(0, 1);
    harness.run_until(200);
    assert_eq!((harness.currents(), harness.states()), ([2, 2], [PathState::Migrated; 2]));
}

/// An end that had loaded first learned only from its next probe, perhaps seconds later, that the peer had too.
#[test]
fn two_ends_that_load_one_after_the_other_are_armed_as_soon_as_the_second_has() {
    let by_hand =
        PathPolicy { loading: AlternateLoading::Manual, probe_every: Span::from_micros(1_000_000), ..path_policy() };
    for first in 0..2 {
        let mut harness = PathHarness::new(2, by_hand);
        for (time, end) in [(50, first), (500, 1 - first)] {
            harness.run_until(time);
            harness
                .act(end, |connection, now, _| connection.load_path(now, PathId(1)).expect("the path can be loaded"));
        }
        assert_eq!(harness.states(), [PathState::Rearm; 2]);
        harness.run_until(540);
        assert_eq!(harness.states(), [PathState::Armed; 2]);
    }
}
