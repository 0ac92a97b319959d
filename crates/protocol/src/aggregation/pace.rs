//! How fast the operations of a seat proceed, and which child they wait for. For operators (P-108).
//!
//! In: the times of the first and the last contribution of an operation, and of its result. Out: sums per child, and a
//! histogram. A few additions per operation, and memory for each child of the seat. What operations have waited so far
//! for children that are still missing is counted when a report asks for it, so a child that never comes is late too.

use units::{ChildIndex, Span, Time};

/// Classes of [`OperationTimes`].
pub const OPERATION_TIME_CLASSES: usize = 32;

/// How often a child contributed last, and how long operations waited for it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChildLateness {
    /// Operations in which it was the last, or that were aborted because it was lost.
    pub times_last: u64,
    /// The time from the first contribution to its own, over these operations, and to the last report in operations
    /// to which it had not contributed then.
    pub waited: Span,
    /// The longest time of one operation.
    pub longest: Span,
}

/// Completed operations by the time from the first contribution to the result: class `n` has those that took less than 2^n
/// microseconds, and as long as no lower class allows. The last class has all that took longer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OperationTimes([u64; OPERATION_TIME_CLASSES]);

impl OperationTimes {
    fn note(&mut self, time: Span) {
        let micros = time.as_nanos() / 1_000;
        let class = (u64::BITS - micros.leading_zeros()) as usize;
        self.0[class.min(OPERATION_TIME_CLASSES - 1)] += 1;
    }

    /// The number of operations in each class.
    pub fn classes(&self) -> &[u64; OPERATION_TIME_CLASSES] {
        &self.0
    }

    /// Adds the operations of another seat.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

/// The measurements of one seat.
#[derive(Debug, Default)]
pub(super) struct SeatPace {
    /// By child; empty until an operation has waited for one.
    late: Vec<ChildLateness>,
    /// The waiting up to this time is counted.
    counted_until: Time,
    /// Operations aborted because a child was lost.
    pub(super) abandoned: u64,
    pub(super) times: OperationTimes,
}

impl SeatPace {
    /// Records who completed an operation.
    pub(super) fn note_last(&mut self, child: ChildIndex, children: usize, first_at: Time, now: Time) {
        if let Some(late) = self.note_waiting(child, children, first_at, now) {
            late.times_last += 1;
        }
    }

    /// Adds the waiting of an operation for a child that no report has counted.
    pub(super) fn note_waiting(
        &mut self,
        child: ChildIndex,
        children: usize,
        first_at: Time,
        now: Time,
    ) -> Option<&mut ChildLateness> {
        if self.late.is_empty() {
            self.late = vec![ChildLateness::default(); children];
        }
        let late = self.late.get_mut(child.index())?;
        late.waited = late.waited + now.since(first_at.max(self.counted_until));
        late.longest = late.longest.max(now.since(first_at));
        Some(late)
    }

    /// Records that the waiting of all operations in collection is counted.
    pub(super) fn note_counted(&mut self, now: Time) {
        self.counted_until = now;
    }

    /// Records that the result of an operation is here.
    pub(super) fn note_result(&mut self, since_first: Span) {
        self.times.note(since_first);
    }

    /// How late a child was.
    pub(super) fn of_child(&self, position: usize) -> ChildLateness {
        self.late.get(position).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_sorted_into_powers_of_two() {
        let mut times = OperationTimes::default();
        for (nanos, class) in [(0, 0), (999, 0), (1_000, 1), (1_999, 1), (2_000, 2), (3_999, 2), (4_000, 3)] {
            let before = times.0[class];
            times.note(Span::from_nanos(nanos));
            assert_eq!(times.0[class], before + 1, "{nanos} ns");
        }
        times.note(Span::from_nanos(u64::MAX));
        assert_eq!(times.0[OPERATION_TIME_CLASSES - 1], 1);
    }

    #[test]
    fn waiting_is_counted_once_also_across_a_report() {
        let (mut pace, at) = (SeatPace::default(), Time::from_nanos);
        pace.note_last(ChildIndex(2), 3, at(100), at(110));
        let _ = pace.note_waiting(ChildIndex(2), 3, at(200), at(220));
        pace.note_counted(at(220));
        pace.note_last(ChildIndex(2), 3, at(200), at(230));
        pace.note_last(ChildIndex(9), 3, at(0), at(900));
        let expected = ChildLateness { times_last: 2, waited: Span::from_nanos(40), longest: Span::from_nanos(30) };
        assert_eq!((pace.of_child(2), pace.of_child(0)), (expected, ChildLateness::default()));
    }
}
