//! Whether a result is waited for at its ear only, or at all sockets.
//!
//! In: that a wait begins, and what became of those at the ear. Out: where to wait.
//!
//! To listen at an ear costs one system call less, but is deaf to everything else: to other ranks, to what must be repaired, and to
//! whoever else wants a turn while we wait. Where nothing came to the ear in time, waits take the detour through all sockets for a
//! while. A pause of the program must not cost its next thousand operations dearly, nor may a program whose ranks need each other
//! meanwhile sit at the ear every time: so the while is short at first, and doubles as often as it happens again soon.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// After so much that came to an ear one result is waited for at all sockets: the lifeline and other ranks want to be heard too.
const EARS_IN_A_ROW: u32 = 64;
/// Waits that take the detour after nothing came to the ear: at first, and at most. A useless wait there takes as long as some hundred
/// good ones save.
const LEAST_DETOURS: u32 = 8;
const MOST_DETOURS: u32 = 1024;
/// After so many good rows it may be that nothing was amiss.
const CALM_ROWS: u32 = 4;

/// Where results have come of late. Two threads that tell it something at once may miscount: no harm is done.
pub(crate) struct ReceiveBackoff {
    /// Heard at the ear since all sockets were last looked at.
    row: AtomicU32,
    /// Rows since nothing came.
    rows: AtomicU32,
    /// Waits that take the detour still, and how many will the next time.
    detours: AtomicU32,
    next_detours: AtomicU32,
}

impl ReceiveBackoff {
    pub(crate) fn new() -> Self {
        let [row, rows, detours] = [const { AtomicU32::new(0) }; 3];
        Self { row, rows, detours, next_detours: AtomicU32::new(LEAST_DETOURS) }
    }

    /// A wait begins; true if it may be at the ear.
    pub(crate) fn begins_at_ear(&self) -> bool {
        let detours = self.detours.load(Relaxed);
        if detours > 0 {
            self.detours.store(detours - 1, Relaxed);
            return false;
        }
        if self.may_go_on() {
            return true;
        }
        self.row.store(0, Relaxed);
        let rows = self.rows.load(Relaxed) + 1;
        let is_calm = rows >= CALM_ROWS;
        self.rows.store(if is_calm { 0 } else { rows }, Relaxed);
        if is_calm {
            self.next_detours.store((self.next_detours.load(Relaxed) / 2).max(LEAST_DETOURS), Relaxed);
        }
        false
    }

    /// True if a wait that has begun at the ear may listen there once more.
    pub(crate) fn may_go_on(&self) -> bool {
        self.row.load(Relaxed) < EARS_IN_A_ROW
    }

    /// Something came to the ear.
    pub(crate) fn note_heard(&self) {
        self.row.store(self.row.load(Relaxed) + 1, Relaxed);
    }

    /// Nothing came there.
    #[cold]
    pub(crate) fn note_silence(&self) {
        let detours = self.next_detours.load(Relaxed);
        self.detours.store(detours, Relaxed);
        self.next_detours.store((2 * detours).min(MOST_DETOURS), Relaxed);
        self.row.store(0, Relaxed);
        self.rows.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many waits in a row that end as told; how many were at the ear.
    fn wait(habit: &ReceiveBackoff, waits: u32, is_heard: bool) -> u32 {
        let at_ear = (0..waits).filter(|_| {
            let at_ear = habit.begins_at_ear();
            match (at_ear, is_heard) {
                (true, true) => habit.note_heard(),
                (true, false) => habit.note_silence(),
                (false, _) => {}
            }
            at_ear
        });
        at_ear.count() as u32
    }

    #[test]
    fn now_and_then_all_sockets_are_looked_at() {
        assert_eq!(wait(&ReceiveBackoff::new(), (EARS_IN_A_ROW + 1) * 100, true), EARS_IN_A_ROW * 100);
    }

    #[test]
    fn one_pause_costs_few_detours() {
        let habit = ReceiveBackoff::new();
        assert_eq!(wait(&habit, 1, false), 1);
        assert_eq!(wait(&habit, LEAST_DETOURS, true), 0);
        assert_eq!(wait(&habit, EARS_IN_A_ROW, true), EARS_IN_A_ROW);
        // With hundreds of operations between them, many pauses cost no more than one.
        for _ in 0..100 {
            wait(&habit, 2 * CALM_ROWS * (EARS_IN_A_ROW + 1), true);
            while wait(&habit, 1, false) == 0 {}
        }
        assert!(habit.detours.load(Relaxed) <= 2 * LEAST_DETOURS);
    }

    #[test]
    fn who_never_hears_anything_seldom_listens() {
        let habit = ReceiveBackoff::new();
        assert!(wait(&habit, 100_000, false) <= 100_000 / MOST_DETOURS + 8);
        // And takes up the old habit when something comes again.
        wait(&habit, 10_000, true);
        assert_eq!(wait(&habit, (EARS_IN_A_ROW + 1) * 100, true), EARS_IN_A_ROW * 100);
    }
}
