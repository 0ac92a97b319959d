//! Where in its own part of shared memory a rank puts payload that does not fit a post.
//!
//! A *slot* is cut for each operation from a ring, one behind the other, and can be used again when all others have settled the
//! operation. The owner says in its post where the slot is. Slots go round the whole ring even if there are few of them:
//! lines that the others had in their nearest caches a moment ago are slow to take back, and are written a third
//! faster once they have dropped out of these.

use std::collections::VecDeque;

use super::region::RING_BYTES;

/// The owner's view of its ring. Positions count on and on; where they are in the ring is what is left by its size.
pub(super) struct SlotRing {
    /// Behind the last slot.
    next: u64,
    /// Slots that may be in use, the oldest first.
    slots: VecDeque<RingSlot>,
}

#[derive(Clone, Copy)]
struct RingSlot {
    operation: u64,
    start: u64,
}

/// Room for a slot, once all others have settled `settled`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotReservation {
    pub settled: u64,
    start: u64,
    end: u64,
}

impl SlotReservation {
    /// Where the slot begins in the ring.
    pub(super) fn offset(self) -> usize {
        (self.start % SIZE) as usize
    }
}

const SIZE: u64 = RING_BYTES as u64;
const LINE: u64 = 64;

impl SlotRing {
    pub(super) fn new(channels: usize) -> Self {
        Self { next: 0, slots: VecDeque::with_capacity(channels) }
    }

    /// Where the next slot would be, in one piece and at the beginning of a cache line.
    pub(super) fn room(&self, length: usize) -> SlotReservation {
        let mut start = self.next.next_multiple_of(LINE);
        if start % SIZE + length as u64 > SIZE {
            start = start.next_multiple_of(SIZE);
        }
        let end = start + length as u64;
        let in_the_way = self.slots.iter().take_while(|slot| slot.start + SIZE < end).last();
        SlotReservation { settled: in_the_way.map_or(0, |slot| slot.operation), start, end }
    }

    /// The operation has its slot there.
    pub(super) fn cut(&mut self, operation: u64, room: SlotReservation) {
        while self.slots.front().is_some_and(|slot| slot.operation <= room.settled) {
            self.slots.pop_front();
        }
        self.slots.push_back(RingSlot { operation, start: room.start });
        self.next = room.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_are_in_use_are_left_alone_and_the_ring_goes_round() {
        let mut ring = SlotRing::new(64);
        let mut used: VecDeque<(u64, std::ops::Range<usize>)> = VecDeque::new();
        let mut laps = 0;
        for operation in 1..5_000u64 {
            let length = [49, 64, 1_000, 16 << 10, 4_097][(operation * operation % 5) as usize];
            let room = ring.room(length);
            used.retain(|(number, _)| *number > room.settled.max(operation.saturating_sub(40)));
            ring.cut(operation, room);
            let slot = room.offset()..room.offset() + length;
            assert!(slot.end <= RING_BYTES && slot.start.is_multiple_of(64));
            for (number, other) in &used {
                assert!(
                    slot.end <= other.start || other.end <= slot.start,
                    "{operation} {slot:?} {number} {other:?}"
                );
            }
            laps += u64::from(slot.start == 0);
            used.push_back((operation, slot));
        }
        assert!(laps > 10);
    }
}
