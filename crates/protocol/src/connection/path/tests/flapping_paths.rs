//! Paths that die in turn, again and again: messages are sent over two of them (P-132).

use super::*;
use crate::connection::CopyPolicy;

/// The longest time from sending a message to its delivery while one of two paths is cut at any time, and the frames sent. Messages leave every
/// 20 us and the paths change places every `outage` us.
fn longest_delay(replication: CopyPolicy, outage: u64) -> (Span, u64) {
    let mut harness = PathHarness::new(2, path_policy());
    for end in &mut harness.ends {
        end.connection.policy.replication = replication;
    }
    harness.is_active = [true, false];
    harness.run_until(2_000);
    let mut longest = Span::ZERO;
    for round in 0..40u64 {
        harness.cut(round as usize % 2, true);
        harness.cut(1 - round as usize % 2, false);
        for step in 1..=outage / 20 {
            harness.run_until(2_000 + round * outage + step * 20);
            // The first rounds teach the ends that the paths flap.
            if round >= 4 {
                let waiting = u64::from(harness.posted[0]) - harness.ends[1].delivered.len() as u64;
                longest = longest.max(Span::from_micros(20).times(waiting));
            }
        }
    }
    (0..2).for_each(|path| harness.cut(path, false));
    harness.run_until(2_000 + 41 * outage);
    harness.assert_in_order();
    (longest, harness.sent)
}

#[test]
fn messages_over_flapping_paths_hardly_wait() {
    for outage in [600, 1_000, 2_200] {
        let (without, frames) = longest_delay(CopyPolicy::Fixed, outage);
        let (with, frames_with) = longest_delay(CopyPolicy::Measured, outage);
        println!("outages of {outage} us: {without:?} and {frames} frames, {with:?} and {frames_with} with copies");
        assert!(with.times(2) <= without, "outages of {outage} us: {with:?} with copies, {without:?} without");
        assert!(frames_with < frames * 3, "{frames_with} frames with copies, {frames} without");
    }
}

#[test]
fn one_dead_path_is_no_reason_for_copies() {
    let mut harness = PathHarness::new(2, path_policy());
    for end in &mut harness.ends {
        end.connection.policy.replication = CopyPolicy::Measured;
    }
    harness.run_until(500);
    harness.cut(0, true);
    harness.run_until(20_000);
    assert_eq!(harness.currents(), [1, 1]);
    assert_eq!((harness.paths(0).copy_path(harness.now), harness.paths(1).copy_path(harness.now)), (None, None));
    harness.assert_in_order();
}
