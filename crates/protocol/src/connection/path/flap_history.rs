//! Whether traffic moved so often of late that its paths are not to be relied on (P-132).
//!
//! In: moves. Out: whether frames are sent over a second path too. One move says nothing: its path is dead, or was better and is back.

use units::{Span, Time};

/// So many moves within [`FlapHistory::WINDOW`] are flapping.
const FLAPPING_MOVES: usize = 3;

/// The last moves of one end, oldest first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct FlapHistory {
    moved_at: [Option<Time>; FLAPPING_MOVES],
}

impl FlapHistory {
    /// Moves count for this many times the delay of a failback: a path that dies each time that traffic is back makes two of them.
    pub(super) const WINDOW: u64 = 16;

    pub(super) fn note_move(&mut self, now: Time) {
        self.moved_at.rotate_left(1);
        self.moved_at[FLAPPING_MOVES - 1] = Some(now);
    }

    pub(super) fn is_flapping(&self, now: Time, failback_after: Span) -> bool {
        self.moved_at[0].is_some_and(|oldest| now < oldest + failback_after.times(Self::WINDOW))
    }
}
