//! Allocates the slots of a rank: payload that fits neither a descriptor nor a leaf.
//!
//! Each operation reserves a *slot* of a ring, one after the other. A slot is reused when all other ranks have settled its
//! operation. The owner's descriptor holds the offset of the slot. Slots use the whole ring even if there are few of them:
//! lines that other ranks just had in their nearest caches are slow to reclaim, and are written a third faster after they
//! have been evicted there.

use std::collections::VecDeque;

use super::region::RING_BYTES;

/// The owner's view of its ring. Positions only grow; modulo the size they are offsets in the ring.
pub(super) struct SlotRing {
    /// The end of the last slot.
    next: u64,
    /// Slots that may be in use, the oldest first.
    slots: VecDeque<RingSlot>,
}

#[derive(Clone, Copy)]
struct RingSlot {
    operation: u64,
    start: u64,
}

/// Space for a slot, usable when all other ranks have settled operation `settled`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotReservation {
    pub settled: u64,
    start: u64,
    end: u64,
}

impl SlotReservation {
    /// The offset of the slot in the ring.
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

    /// The space of the next slot: contiguous, and aligned to a cache line.
    pub(super) fn reserve(&self, length: usize) -> SlotReservation {
        let mut start = self.next.next_multiple_of(LINE);
        if start % SIZE + length as u64 > SIZE {
            start = start.next_multiple_of(SIZE);
        }
        let end = start + length as u64;
        let in_the_way = self.slots.iter().take_while(|slot| slot.start + SIZE < end).last();
        SlotReservation { settled: in_the_way.map_or(0, |slot| slot.operation), start, end }
    }

    /// Assigns the space to an operation.
    pub(super) fn commit(&mut self, operation: u64, reservation: SlotReservation) {
        while self.slots.front().is_some_and(|slot| slot.operation <= reservation.settled) {
            self.slots.pop_front();
        }
        self.slots.push_back(RingSlot { operation, start: reservation.start });
        self.next = reservation.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_in_use_do_not_overlap_and_the_ring_wraps() {
        let mut ring = SlotRing::new(64);
        let mut used: VecDeque<(u64, std::ops::Range<usize>)> = VecDeque::new();
        let mut laps = 0;
        for operation in 1..5_000u64 {
            let length = [49, 64, 1_000, 16 << 10, 4_097][(operation * operation % 5) as usize];
            let reservation = ring.reserve(length);
            used.retain(|(number, _)| *number > reservation.settled.max(operation.saturating_sub(40)));
            ring.commit(operation, reservation);
            let slot = reservation.offset()..reservation.offset() + length;
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
