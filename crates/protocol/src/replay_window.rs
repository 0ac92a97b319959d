//! Which packets of a counted stream have arrived: a packet that an attacker recorded and sends again is not taken twice.
//!
//! In: the counters of authentic packets, in any order. Out: whether each is new. Rule: P-123. As in RFC 6479, the window is a ring
//! of bits that moves in whole words, so that a packet costs one bit and no shift.

/// How far a packet may be behind the newest one. Packets of one sender overtake each other on several paths.
const WINDOW_PACKETS: u64 = WORDS * 64 - 64;
const WORDS: u64 = 32;

/// The packets of one sender that have arrived.
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    /// One more than the highest counter so far.
    end: u64,
    seen: [u64; WORDS as usize],
}

impl ReplayWindow {
    /// True if a packet with this counter was not taken before and is not too old to know. Only for packets that are authentic.
    pub fn take(&mut self, counter: u64) -> bool {
        let Some(end) = counter.checked_add(1) else { return false };
        let (word, bit) = (counter / 64, 1 << (counter % 64));
        if end > self.end {
            let newest = self.end.saturating_sub(1) / 64;
            for passed in (newest + 1..=word).take(WORDS as usize) {
                self.seen[(passed % WORDS) as usize] = 0;
            }
            self.end = end;
        } else if self.end - end >= WINDOW_PACKETS {
            return false;
        }
        let seen = &mut self.seen[(word % WORDS) as usize];
        let is_new = *seen & bit == 0;
        *seen |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_packet_is_taken_once_in_any_order() {
        let mut window = ReplayWindow::default();
        for counter in [0, 1, 5, 3, 2, 4, 64, 63, 1000, 999] {
            assert!(window.take(counter), "{counter}");
        }
        for counter in [0, 1, 5, 3, 2, 4, 64, 63, 1000, 999] {
            assert!(!window.take(counter), "{counter} again");
        }
    }

    #[test]
    fn what_is_older_than_the_window_is_not_taken() {
        let mut window = ReplayWindow::default();
        assert!(window.take(10 * WINDOW_PACKETS));
        assert!(!window.take(9 * WINDOW_PACKETS));
        assert!(window.take(9 * WINDOW_PACKETS + 1));
        assert!(window.take(u64::MAX - 1), "a jump far ahead");
        assert!(!window.take(u64::MAX), "the counter ends before it wraps");
    }

    proptest! {
        /// Against a set of all counters taken so far.
        #[test]
        fn no_counter_is_taken_twice_and_recent_ones_are_taken(
            steps in prop::collection::vec((0_u64..200, 0_u64..4_000), 1..400),
        ) {
            let (mut window, mut taken, mut newest) = (ReplayWindow::default(), BTreeSet::new(), 0);
            for (ahead, behind) in steps {
                let counter = (newest + ahead).saturating_sub(behind);
                newest = newest.max(counter);
                let is_recent = newest - counter < WINDOW_PACKETS;
                prop_assert_eq!(window.take(counter), is_recent && !taken.contains(&counter));
                taken.insert(counter);
            }
        }
    }
}
