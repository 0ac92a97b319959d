//! How fast the operations of a seat proceed, and which child they wait for. For operators (P-108).
//!
//! In: the times of the first and the last contribution of an operation, and of its result. Out: sums per child, and a
//! histogram. A few additions per operation, and memory for each child of the seat.

use units::{ChildIndex, Span};

/// Classes of [`OperationTimes`].
pub const OPERATION_TIME_CLASSES: usize = 24;

/// How often a child contributed last, and how long the node had waited since the first contribution.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChildLateness {
    /// Operations in which it was the last.
    pub times_last: u64,
    /// The time from the first contribution to its own, over these operations.
    pub waited: Span,
    /// The longest of these times.
    pub longest: Span,
}

/// Operations by the time from the first contribution to the result: class `n` has those that took less than 2^n
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
    /// By child; empty until the first operation is folded.
    late: Vec<ChildLateness>,
    pub(super) times: OperationTimes,
}

impl SeatPace {
    /// Records who completed an operation.
    pub(super) fn note_last(&mut self, child: ChildIndex, children: usize, waited: Span) {
        if self.late.is_empty() {
            self.late = vec![ChildLateness::default(); children];
        }
        let Some(late) = self.late.get_mut(child.index()) else { return };
        late.times_last += 1;
        late.waited = late.waited + waited;
        late.longest = late.longest.max(waited);
    }

    /// Records that the result of an operation is here.
    pub(super) fn note_result(&mut self, since_first: Span) {
        self.times.note(since_first);
    }

    /// The children that were ever the last.
    pub(super) fn late(&self) -> impl Iterator<Item = (ChildIndex, ChildLateness)> + '_ {
        let late = self.late.iter().enumerate().filter(|(_, late)| late.times_last > 0);
        late.map(|(position, late)| (ChildIndex::from_position(position), *late))
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
    fn only_children_that_were_last_are_listed() {
        let mut pace = SeatPace::default();
        pace.note_last(ChildIndex(2), 3, Span::from_nanos(10));
        pace.note_last(ChildIndex(2), 3, Span::from_nanos(30));
        pace.note_last(ChildIndex(9), 3, Span::from_nanos(30));
        let late: Vec<_> = pace.late().collect();
        let expected = ChildLateness { times_last: 2, waited: Span::from_nanos(40), longest: Span::from_nanos(30) };
        assert_eq!(late, [(ChildIndex(2), expected)]);
    }
}
