//! What the last calls on a communicator brought, for the case that they must be repeated.

use std::collections::VecDeque;

use crate::collective_call::CollectiveCall;
use crate::recovery::RecoveryState;

/// Longer inputs are not kept: to keep one costs as much as to send it.
const MOST_KEPT: usize = 64 << 10;
/// Inputs are kept of so many calls, with so many bytes in all.
const MOST_CALLS: usize = 64;
const MOST_BYTES: usize = 1 << 20;
/// Room up to so many bytes is used again: to ask for it anew costs more than to fill it.
const MOST_REUSED: usize = 1 << 10;

/// What the last calls brought, the one under way included.
#[derive(Default)]
pub(crate) struct ReplayLog {
    inputs: VecDeque<LoggedCall>,
    bytes: usize,
    /// What becomes of the communicator, if Pleach does not serve it any more.
    pub(crate) transition: Option<RecoveryState>,
}

/// What a call brought.
struct LoggedCall {
    /// How many calls came before it.
    number: u64,
    call: CollectiveCall,
    /// None if they were too many.
    bytes: Option<Vec<u8>>,
}

impl ReplayLog {
    /// A call begins; it has a vector of so many bytes, which `input` puts into an empty buffer, or cannot.
    pub(crate) fn push(
        &mut self,
        number: u64,
        call: &CollectiveCall,
        bytes: usize,
        input: impl FnOnce(&mut Vec<u8>) -> bool,
    ) {
        let mut room = Vec::new();
        if self.inputs.len() == MOST_CALLS {
            room = self.drop_oldest();
        }
        // This rank is through with the last call: if all had to come to it, all are through with those before. Room that is used again
        // at once is in the cache still.
        if self.inputs.back().is_some_and(|last| last.number + 1 == number && last.call.verb.joins_all()) {
            while self.inputs.len() > 1 {
                room = self.drop_oldest();
            }
        }
        if room.capacity() > MOST_REUSED {
            room = Vec::new();
        }
        room.clear();
        let bytes = (bytes <= MOST_KEPT && input(&mut room)).then_some(room);
        self.bytes += bytes.as_ref().map_or(0, Vec::len);
        self.inputs.push_back(LoggedCall { number, call: *call, bytes });
        while self.bytes > MOST_BYTES {
            self.drop_oldest();
        }
    }

    /// Forgets the oldest call. What it brought has room for another.
    fn drop_oldest(&mut self) -> Vec<u8> {
        let bytes = self.inputs.pop_front().and_then(|oldest| oldest.bytes).unwrap_or_default();
        self.bytes -= bytes.len();
        bytes
    }

    /// The call with this number, and what it brought.
    pub(crate) fn of(&self, number: u64) -> Option<(&CollectiveCall, &[u8])> {
        let input = self.inputs.iter().find(|input| input.number == number)?;
        Some((&input.call, input.bytes.as_deref()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective_call::MpiCollective;

    /// One that a rank may be through with before others have come.
    fn call() -> CollectiveCall {
        call_of(MpiCollective::Reduce)
    }

    fn call_of(verb: MpiCollective) -> CollectiveCall {
        let (send, receive, count, datatype, operator, root, communicator) = (0, 0, 0, 0, 0, 0, 0);
        CollectiveCall { verb, send, receive, count, datatype, operator, root, communicator }
    }

    fn fill(into: &mut Vec<u8>, byte: u8, length: usize) -> bool {
        into.resize(length, byte);
        true
    }

    #[test]
    fn inputs_are_kept_by_number_up_to_a_limit() {
        let mut kept = ReplayLog::default();
        for number in 0..100 {
            kept.push(number, &call(), 8, |into| fill(into, number as u8, 8));
        }
        assert_eq!(kept.of(99).map(|(_, bytes)| bytes[0]), Some(99));
        assert_eq!(kept.of(36).map(|(_, bytes)| bytes[0]), Some(36));
        assert!(kept.of(35).is_none() && kept.of(100).is_none());
        for number in 100..200 {
            kept.push(number, &call(), MOST_KEPT, |into| fill(into, 0, MOST_KEPT));
        }
        assert!(kept.bytes <= MOST_BYTES && kept.of(199).is_some());
        // What is kept of short calls after long ones is theirs alone, and so is the room for it.
        for number in 200..300 {
            kept.push(number, &call(), 8, |into| fill(into, number as u8, 8));
        }
        assert_eq!(kept.of(299).map(|(_, bytes)| bytes), Some(&[299_u32 as u8; 8][..]));
        let room: usize = kept.inputs.iter().flat_map(|input| &input.bytes).map(Vec::capacity).sum();
        assert!(kept.bytes == 8 * MOST_CALLS && room <= MOST_REUSED * MOST_CALLS);
    }

    #[test]
    fn what_came_before_a_call_to_which_all_came_is_needed_no_more() {
        let mut kept = ReplayLog::default();
        let verbs = [
            MpiCollective::Reduce,
            MpiCollective::Broadcast,
            MpiCollective::AllReduce,
            MpiCollective::Reduce,
            MpiCollective::Barrier,
            MpiCollective::Scan,
            MpiCollective::Reduce,
        ];
        let mut first_kept = Vec::new();
        for (number, verb) in (0..).zip(verbs) {
            kept.push(number, &call_of(verb), 8, |into| fill(into, number as u8, 8));
            assert_eq!(kept.of(number).map(|(_, bytes)| bytes[0]), Some(number as u8), "the one under way");
            let first = (0..=number).find(|number| kept.of(*number).is_some()).expect("that one at least");
            assert!((first..=number).all(|number| kept.of(number).is_some()), "and all between");
            first_kept.push(first);
        }
        // Of the last call to which all came, somebody may lack the result: it stays until there is another.
        assert_eq!(first_kept, [0, 0, 0, 2, 2, 4, 5]);
    }

    /// Such a call that failed is no proof that all came to it: then the next has the same number.
    #[test]
    fn what_came_before_a_call_that_was_not_completed_stays() {
        let mut kept = ReplayLog::default();
        kept.push(0, &call(), 8, |into| fill(into, 1, 8));
        kept.push(1, &call_of(MpiCollective::AllReduce), 8, |into| fill(into, 2, 8));
        kept.push(1, &call_of(MpiCollective::AllReduce), 8, |into| fill(into, 3, 8));
        assert_eq!(kept.of(0).map(|(_, bytes)| bytes[0]), Some(1));
    }

    #[test]
    fn what_cannot_be_had_is_not_kept() {
        let mut kept = ReplayLog::default();
        kept.push(0, &call(), 8, |into| !fill(into, 7, 4));
        assert!(kept.of(0).is_none() && kept.bytes == 0);
    }

    #[test]
    fn long_inputs_are_not_kept() {
        let mut kept = ReplayLog::default();
        kept.push(0, &call(), MOST_KEPT + 1, |_| unreachable!("nobody asks for them"));
        assert!(kept.of(0).is_none());
    }
}
