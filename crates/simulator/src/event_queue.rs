//! The event queue: a two-level timing wheel in front of a heap.
//!
//! In: events, each with a time not before the present. Out: events in order of time. Events of one instant come in an order that
//! depends only on the order of the calls (usually that order itself), so a run is a function of its inputs.
//!
//! Why not a heap alone: with a million pending events a binary heap does about 2 M pop-push pairs a second on one core, the wheel
//! about ten (`pleach bench simulator` shows the rate of the whole simulator).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use units::SimTime;

/// Buckets of a wheel level: enough that a packet's time on the wire fits into the fine level at every bucket width in use;
/// otherwise most events would be handled twice.
const BUCKETS: u64 = 4_096;
const BITMAP_WORDS: usize = (BUCKETS / 64) as usize;

/// A pending event: its time and its kind (in the encoding of the caller).
#[derive(Clone, Copy, Debug)]
struct PendingEvent {
    at: u64,
    what: u64,
}

/// One wheel level: buckets of `1 << shift` picoseconds each, with a bit per occupied bucket.
struct WheelLevel {
    shift: u32,
    buckets: Vec<Vec<PendingEvent>>,
    occupied: [u64; BITMAP_WORDS],
}

/// Pending events in time order.
pub struct EventQueue {
    /// The bucket being drained, in order; `next` is its first event that has not been popped.
    current: Vec<PendingEvent>,
    next: usize,
    /// Events added to that bucket since, by time, then by number. A heap, because an instant can hold thousands.
    current_late: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// The number of the bucket being drained, counted in fine buckets from time zero.
    cursor: u64,
    fine: WheelLevel,
    coarse: WheelLevel,
    /// Events beyond the coarse level, by time, then by number.
    far: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Numbers the events of the two heaps.
    pushed: u64,
    len: usize,
}

impl EventQueue {
    /// A queue whose fine buckets are `1 << shift` picoseconds wide; a bucket should hold a handful of events.
    pub fn new(shift: u32) -> Self {
        Self {
            current: Vec::new(),
            next: 0,
            current_late: BinaryHeap::new(),
            cursor: 0,
            fine: WheelLevel::new(shift),
            coarse: WheelLevel::new(shift + BUCKETS.trailing_zeros()),
            far: BinaryHeap::new(),
            pushed: 0,
            len: 0,
        }
    }

    /// Adds an event.
    ///
    /// # Panics
    /// If the event lies in a bucket that has been drained: simulated time would go backwards.
    #[inline]
    pub fn push(&mut self, at: SimTime, what: u64) {
        let entry = PendingEvent { at: at.as_picos(), what };
        let bucket = entry.at >> self.fine.shift;
        self.len += 1;
        if bucket - self.cursor.min(bucket) < BUCKETS && bucket > self.cursor {
            self.fine.put(entry);
        } else {
            self.push_rarely(entry, bucket);
        }
    }

    #[cold]
    fn push_rarely(&mut self, entry: PendingEvent, bucket: u64) {
        assert!(bucket >= self.cursor, "an event at {} ps is in the past", entry.at);
        self.pushed += 1;
        if bucket == self.cursor {
            self.current_late.push(Reverse((entry.at, self.pushed, entry.what)));
        } else if (entry.at >> self.coarse.shift) - (self.cursor >> BUCKETS.trailing_zeros()) < BUCKETS {
            self.coarse.put(entry);
        } else {
            self.far.push(Reverse((entry.at, self.pushed, entry.what)));
        }
    }

    /// Pops the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<(SimTime, u64)> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        if self.is_drained() {
            self.advance();
        }
        let entry = if self.current_late.is_empty() { self.take_current() } else { self.take_earlier() };
        Some((SimTime::from_picos(entry.at), entry.what))
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sorts the next bucket, so that [`Self::peek`] can read it.
    #[inline]
    pub fn look_ahead(&mut self) {
        if self.len > 0 && self.is_drained() {
            self.advance();
        }
    }

    /// The event `ahead` positions from the next, if it is already sorted: a hint for warming caches.
    #[inline]
    pub fn peek(&self, ahead: usize) -> Option<u64> {
        Some(self.current.get(self.next + ahead)?.what)
    }

    fn is_drained(&self) -> bool {
        self.next == self.current.len() && self.current_late.is_empty()
    }

    #[inline]
    fn take_current(&mut self) -> PendingEvent {
        self.next += 1;
        self.current[self.next - 1]
    }

    /// The earlier of the bucket's next event and the next late one; of equal times the former, which was pushed first.
    fn take_earlier(&mut self) -> PendingEvent {
        let current_late = self.current_late.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        if self.current.get(self.next).is_some_and(|entry| entry.at <= current_late) {
            return self.take_current();
        }
        let Reverse((at, _, what)) = self.current_late.pop().expect("the caller checked that it is not empty");
        PendingEvent { at, what }
    }

    /// Moves to the next occupied bucket and sorts it.
    fn advance(&mut self) {
        while self.is_drained() {
            // Fine buckets reach to the end of the present coarse bucket and beyond; a coarse bucket must cascade before the cursor
            // enters it, or its events would come late.
            let fine = self.fine.next_after(self.cursor);
            let coarse = self.coarse.next_after(self.cursor >> BUCKETS.trailing_zeros());
            let far = self.far.peek().map(|Reverse((at, ..))| at >> self.coarse.shift);
            let spread = match (coarse, far) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            match (fine, spread) {
                (Some(bucket), Some(wide)) if bucket >> BUCKETS.trailing_zeros() < wide => self.open_bucket(bucket),
                (Some(bucket), None) => self.open_bucket(bucket),
                (_, Some(wide)) => self.cascade(wide),
                (None, None) => unreachable!("`len` counts a pending event that no level holds"),
            }
        }
    }

    fn open_bucket(&mut self, bucket: u64) {
        self.cursor = bucket;
        self.current.clear();
        self.next = 0;
        self.fine.take(bucket, &mut self.current);
        // Stable, so that events of one instant keep their order; mostly they are of one instant and sorted already.
        if !self.current.is_sorted_by_key(|entry| entry.at) {
            self.current.sort_by_key(|entry| entry.at);
        }
    }

    /// Moves the events of one coarse bucket to the fine level. The cursor moves to just before them.
    fn cascade(&mut self, wide: u64) {
        let first_fine = wide << BUCKETS.trailing_zeros();
        self.cursor = self.cursor.max(first_fine.saturating_sub(1));
        let mut entries = Vec::new();
        self.coarse.take(wide, &mut entries);
        while self.far.peek().is_some_and(|Reverse((at, ..))| at >> self.coarse.shift == wide) {
            let Reverse((at, _, what)) = self.far.pop().expect("peeked");
            entries.push(PendingEvent { at, what });
        }
        for entry in entries.drain(..) {
            if entry.at >> self.fine.shift <= self.cursor {
                self.pushed += 1;
                self.current_late.push(Reverse((entry.at, self.pushed, entry.what)));
            } else {
                self.fine.put(entry);
            }
        }
        // Return the allocation to the bucket: coarse buckets recur.
        self.coarse.recycle(wide, entries);
    }
}

impl WheelLevel {
    fn new(shift: u32) -> Self {
        Self { shift, buckets: vec![Vec::new(); BUCKETS as usize], occupied: [0; BITMAP_WORDS] }
    }

    #[inline]
    fn put(&mut self, entry: PendingEvent) {
        let index = ((entry.at >> self.shift) % BUCKETS) as usize;
        self.buckets[index].push(entry);
        self.occupied[index / 64] |= 1 << (index % 64);
    }

    /// Moves a bucket's events into `into`, which is empty; the two vectors swap so that neither reallocates.
    fn take(&mut self, bucket: u64, into: &mut Vec<PendingEvent>) {
        let index = (bucket % BUCKETS) as usize;
        std::mem::swap(&mut self.buckets[index], into);
        self.occupied[index / 64] &= !(1 << (index % 64));
    }

    fn recycle(&mut self, bucket: u64, emptied: Vec<PendingEvent>) {
        let place = &mut self.buckets[(bucket % BUCKETS) as usize];
        if place.is_empty() {
            *place = emptied;
        }
    }

    /// The number of the first occupied bucket after `cursor`.
    fn next_after(&self, cursor: u64) -> Option<u64> {
        let start = ((cursor + 1) % BUCKETS) as usize;
        let first = self.occupied[start / 64] & (!0 << (start % 64));
        let found = if first != 0 {
            start / 64 * 64 + first.trailing_zeros() as usize
        } else {
            let word = (1..=BITMAP_WORDS)
                .map(|step| (start / 64 + step) % BITMAP_WORDS)
                .find(|word| self.occupied[*word] != 0)?;
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
    fn events_of_one_instant_come_in_the_order_of_the_pushes() {
        let mut queue = EventQueue::new(10);
        for what in [3, 1, 2] {
            queue.push(SimTime::from_picos(5_000), what);
        }
        let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, [3, 1, 2]);
    }

    proptest! {
        /// Against a sorted list: pushes near, far and at the present time, interleaved with pops.
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
