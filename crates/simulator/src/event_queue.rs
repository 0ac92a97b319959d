//! The event queue: a two-level timing wheel in front of a heap.
//!
//! In: events, each with a time not before now. Out: events in order of time; those of one instant in an order that
//! depends on nothing but what was put in when (usually that order itself). A simulation puts them in in the same order
//! every time, so a run is a function of its inputs.
//!
//! Why not a heap alone: with a million pending events a binary heap does about 2 M pop-push pairs a second
//! on one core, the wheel about ten (`pleach bench simulator` shows the whole simulator's rate).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use units::SimTime;

/// Buckets of a wheel level: enough that a packet's time on the wire fits into the fine one at every bucket width in
/// use, or most events would be handled twice.
const BUCKETS: u64 = 4_096;
const WORDS: usize = (BUCKETS / 64) as usize;

/// A pending event: when, and what (the simulator's own encoding, opaque here).
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    what: u64,
}

/// One ring of buckets, each `1 << shift` picoseconds wide, with a bit per bucket that holds anything.
struct Ring {
    shift: u32,
    buckets: Vec<Vec<Entry>>,
    occupied: [u64; WORDS],
}

/// Pending events in time order.
pub struct EventQueue {
    /// The bucket being drained, in order; `next` is the first that has not been taken.
    current: Vec<Entry>,
    next: usize,
    /// Events that were added to that bucket since: by time, then by number. A heap, because an instant can hold
    /// thousands.
    late: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// The number of the bucket being drained, counted in fine buckets from time zero.
    cursor: u64,
    fine: Ring,
    coarse: Ring,
    /// Events beyond the coarse ring: by time, then by number.
    far: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Numbers the events of the two heaps.
    pushed: u64,
    len: usize,
}

impl EventQueue {
    /// A queue whose fine buckets are `1 << shift` picoseconds wide: best when a bucket holds a handful.
    pub fn new(shift: u32) -> Self {
        Self {
            current: Vec::new(),
            next: 0,
            late: BinaryHeap::new(),
            cursor: 0,
            fine: Ring::new(shift),
            coarse: Ring::new(shift + BUCKETS.trailing_zeros()),
            far: BinaryHeap::new(),
            pushed: 0,
            len: 0,
        }
    }

    /// Adds an event.
    ///
    /// # Panics
    /// If it lies in a bucket that has been drained: the simulator would have gone back in time.
    #[inline]
    pub fn push(&mut self, at: SimTime, what: u64) {
        let entry = Entry { at: at.as_picos(), what };
        let bucket = entry.at >> self.fine.shift;
        self.len += 1;
        if bucket - self.cursor.min(bucket) < BUCKETS && bucket > self.cursor {
            self.fine.put(entry);
        } else {
            self.push_rarely(entry, bucket);
        }
    }

    #[cold]
    fn push_rarely(&mut self, entry: Entry, bucket: u64) {
        assert!(bucket >= self.cursor, "an event at {} ps is in the past", entry.at);
        self.pushed += 1;
        if bucket == self.cursor {
            self.late.push(Reverse((entry.at, self.pushed, entry.what)));
        } else if (entry.at >> self.coarse.shift) - (self.cursor >> BUCKETS.trailing_zeros()) < BUCKETS {
            self.coarse.put(entry);
        } else {
            self.far.push(Reverse((entry.at, self.pushed, entry.what)));
        }
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<(SimTime, u64)> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        if self.is_drained() {
            self.advance();
        }
        let entry = if self.late.is_empty() { self.take_current() } else { self.take_earlier() };
        Some((SimTime::from_picos(entry.at), entry.what))
    }

    /// Puts the next events in order, so that [`Self::peek`] sees them.
    #[inline]
    pub fn look_ahead(&mut self) {
        if self.len > 0 && self.is_drained() {
            self.advance();
        }
    }

    /// What will soon be popped, `ahead` events from now, if it is already in order: a hint for warming caches.
    #[inline]
    pub fn peek(&self, ahead: usize) -> Option<u64> {
        Some(self.current.get(self.next + ahead)?.what)
    }

    fn is_drained(&self) -> bool {
        self.next == self.current.len() && self.late.is_empty()
    }

    #[inline]
    fn take_current(&mut self) -> Entry {
        self.next += 1;
        self.current[self.next - 1]
    }

    /// The earlier of the bucket's next event and the next late one; of equal times the former, which was there first.
    fn take_earlier(&mut self) -> Entry {
        let late = self.late.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        if self.current.get(self.next).is_some_and(|entry| entry.at <= late) {
            return self.take_current();
        }
        let Reverse((at, _, what)) = self.late.pop().expect("the caller saw one");
        Entry { at, what }
    }

    /// Moves to the next bucket that holds anything and sorts it.
    fn advance(&mut self) {
        while self.is_drained() {
            // Fine buckets reach to the end of the present coarse bucket and beyond; coarse ones must be spread
            // out before the cursor enters them, or their events would come late.
            let fine = self.fine.next_after(self.cursor);
            let coarse = self.coarse.next_after(self.cursor >> BUCKETS.trailing_zeros());
            let far = self.far.peek().map(|Reverse((at, ..))| at >> self.coarse.shift);
            let spread = match (coarse, far) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            match (fine, spread) {
                (Some(bucket), Some(wide)) if bucket >> BUCKETS.trailing_zeros() < wide => self.open(bucket),
                (Some(bucket), None) => self.open(bucket),
                (_, Some(wide)) => self.spread_out(wide),
                (None, None) => unreachable!("len says that something is pending"),
            }
        }
    }

    fn open(&mut self, bucket: u64) {
        self.cursor = bucket;
        self.current.clear();
        self.next = 0;
        self.fine.take(bucket, &mut self.current);
        // Stable, so that one instant's events keep their order; mostly they are one instant's and sorted already.
        if !self.current.is_sorted_by_key(|entry| entry.at) {
            self.current.sort_by_key(|entry| entry.at);
        }
    }

    /// Brings the events of one coarse bucket into the fine ring. The cursor moves to just before it.
    fn spread_out(&mut self, wide: u64) {
        let first_fine = wide << BUCKETS.trailing_zeros();
        self.cursor = self.cursor.max(first_fine.saturating_sub(1));
        let mut entries = Vec::new();
        self.coarse.take(wide, &mut entries);
        while self.far.peek().is_some_and(|Reverse((at, ..))| at >> self.coarse.shift == wide) {
            let Reverse((at, _, what)) = self.far.pop().expect("peeked");
            entries.push(Entry { at, what });
        }
        for entry in entries.drain(..) {
            if entry.at >> self.fine.shift <= self.cursor {
                self.pushed += 1;
                self.late.push(Reverse((entry.at, self.pushed, entry.what)));
            } else {
                self.fine.put(entry);
            }
        }
        // Give the bucket its room back: coarse buckets recur.
        self.coarse.give_back(wide, entries);
    }
}

impl Ring {
    fn new(shift: u32) -> Self {
        Self { shift, buckets: vec![Vec::new(); BUCKETS as usize], occupied: [0; WORDS] }
    }

    #[inline]
    fn put(&mut self, entry: Entry) {
        let index = ((entry.at >> self.shift) % BUCKETS) as usize;
        self.buckets[index].push(entry);
        self.occupied[index / 64] |= 1 << (index % 64);
    }

    /// Moves a bucket's events into `into`, which is empty; the two vectors swap so that neither reallocates.
    fn take(&mut self, bucket: u64, into: &mut Vec<Entry>) {
        let index = (bucket % BUCKETS) as usize;
        std::mem::swap(&mut self.buckets[index], into);
        self.occupied[index / 64] &= !(1 << (index % 64));
    }

    fn give_back(&mut self, bucket: u64, emptied: Vec<Entry>) {
        let place = &mut self.buckets[(bucket % BUCKETS) as usize];
        if place.is_empty() {
            *place = emptied;
        }
    }

    /// The number of the first bucket after `cursor` that holds anything.
    fn next_after(&self, cursor: u64) -> Option<u64> {
        let start = ((cursor + 1) % BUCKETS) as usize;
        let first = self.occupied[start / 64] & (!0 << (start % 64));
        let found = if first != 0 {
            start / 64 * 64 + first.trailing_zeros() as usize
        } else {
            let word = (1..=WORDS).map(|step| (start / 64 + step) % WORDS).find(|word| self.occupied[*word] != 0)?;
            word * 64 + self.occupied[word].trailing_zeros() as usize
        };
        let ahead = (found as u64 + BUCKETS - start as u64) % BUCKETS;
        Some(cursor + 1 + ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_of_the_same_time_come_in_the_order_in_which_they_were_put_in() {
        let mut queue = EventQueue::new(10);
        for what in [3, 1, 2] {
            queue.push(SimTime::from_picos(5_000), what);
        }
        let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, [3, 1, 2]);
    }

    proptest! {
        /// Against a sorted list: pushes near, far and now, interleaved with pops.
        #[test]
        fn the_wheel_pops_what_a_sorted_list_would(
            steps in proptest::collection::vec((0u32..48, any::<u64>(), 0u8..4), 1..400), shift in 0u32..14
        ) {
            let mut queue = EventQueue::new(shift);
            let mut list = std::collections::BTreeSet::new();
            let mut now = 0u64;
            for (number, (magnitude, bits, pops)) in steps.into_iter().enumerate() {
                let at = now + (bits & ((1u64 << magnitude) - 1));
                queue.push(SimTime::from_picos(at), number as u64);
                list.insert((at, number as u64));
                for _ in 0..pops {
                    let Some((at, what)) = queue.pop() else { break };
                    let earliest = list.first().map(|(at, _)| *at);
                    prop_assert_eq!(Some(at.as_picos()), earliest);
                    prop_assert!(list.remove(&(at.as_picos(), what)));
                    now = at.as_picos();
                }
            }
            while let Some((at, what)) = queue.pop() {
                prop_assert_eq!(Some(at.as_picos()), list.first().map(|(at, _)| *at));
                prop_assert!(list.remove(&(at.as_picos(), what)));
            }
            prop_assert!(list.is_empty());
        }
    }
}
