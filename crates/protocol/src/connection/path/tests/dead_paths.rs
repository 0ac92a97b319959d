//! Paths that were left because they are dead: they are not gone back to before they answer.

use units::Span;

use super::{PathHarness, path_policy};
use crate::connection::path::{MigrationCause, PathPolicy};

/// Seen on a busy machine: path 0 was gone, and each silence of the peer on path 1 cost a detour to path 0 and back.
#[test]
fn a_dead_path_is_not_gone_back_to_before_it_answers() {
    let mut harness = PathHarness::new(2, path_policy());
    harness.run_until(500);
    harness.cut(0, true);
    harness.run_until(1_500);
    assert_eq!(harness.currents(), [1, 1]);
    for silence in 0..3 {
        harness.cut(1, true);
        harness.run_until(2_000 + silence * 2_000);
        harness.cut(1, false);
        harness.run_until(3_500 + silence * 2_000);
        assert_eq!(harness.currents(), [1, 1]);
    }
    for end in 0..2 {
        assert!(harness.moves(end).iter().all(|(_, to, _)| *to == 1), "{:?}", harness.moves(end));
    }
    harness.assert_in_order();
    // It answers again while the other one is silent: now it is used, without waiting for the failback.
    harness.cut(1, true);
    harness.cut(0, false);
    harness.run_until(9_500);
    assert_eq!(harness.currents(), [0, 0]);
    harness.assert_in_order();
}

/// An end that follows its peer does not know that the path is dead: it went back to it when the peer was silent.
#[test]
fn a_path_that_was_left_with_the_peer_is_not_gone_back_to_before_it_answers() {
    // Its next probe would be due only later.
    let mut harness = PathHarness::new(2, PathPolicy { probe_every: Span::from_micros(5_000), ..path_policy() });
    harness.run_until(500);
    harness.cut(0, true);
    harness.report_down(0, 0);
    harness.run_until(510);
    assert_eq!(harness.moves(1), [(0, 1, MigrationCause::Followed)]);
    harness.cut(1, true);
    harness.run_until(1_500);
    assert_eq!(harness.moves(1).len(), 1, "{:?}", harness.moves(1));
    harness.cut(1, false);
    harness.run_until(3_000);
    assert_eq!(harness.currents(), [1, 1]);
    harness.assert_in_order();
    // It answers while the other one is silent.
    harness.cut(0, false);
    harness.cut(1, true);
    harness.run_until(30_000);
    assert_eq!(harness.currents(), [0, 0]);
    harness.assert_in_order();
}
