//! The replay log: inputs of the last calls on a communicator, in case the native MPI must replay them.
//!
//! In: each call with its input. Out: the input of a call by its number, as long as another rank may need it.

use std::collections::VecDeque;

use crate::bootstrap_channel::PendingAllreduce;
use crate::collective_call::CollectiveCall;

/// Longer inputs are not logged: to log one costs as much as to send it.
const MAX_INPUT_BYTES: usize = 64 << 10;
/// Calls in the log, and bytes of all their inputs.
const MAX_CALLS: usize = 64;
const MAX_BYTES: usize = 1 << 20;
/// Allocations up to this size are reused: to allocate one costs more than to fill it.
const MAX_REUSED_BYTES: usize = 1 << 10;

/// The last calls on a communicator, the one in flight included.
#[derive(Default)]
pub(crate) struct ReplayLog {
    calls: VecDeque<LoggedCall>,
    bytes: usize,
    /// The recovery of the communicator, after Pleach failed on it.
    pub(crate) recovery: Option<RecoveryState>,
}

struct LoggedCall {
    /// How many calls preceded it.
    number: u64,
    call: CollectiveCall,
    /// None if it was too long.
    input: Option<Vec<u8>>,
}

/// The recovery of a communicator.
pub(crate) enum RecoveryState {
    /// The ranks agree on their progress.
    Agreeing(PendingAllreduce),
    /// Calls up to `last_replayed` are non-blocking at all ranks; `calls` are those that this rank replays for others.
    Replaying { last_replayed: u64, calls: Vec<ReplayedCall> },
}

/// A call in flight on the native MPI, and its buffers.
pub(crate) struct ReplayedCall {
    pub(crate) request: usize,
    pub(crate) _buffers: [Vec<u8>; 2],
}

impl ReplayLog {
    /// Logs a call that begins, with an input of `bytes` bytes. `input` copies it to an empty buffer, or returns false.
    pub(crate) fn push(
        &mut self,
        number: u64,
        call: &CollectiveCall,
        bytes: usize,
        input: impl FnOnce(&mut Vec<u8>) -> bool,
    ) {
        let mut buffer = Vec::new();
        if self.calls.len() == MAX_CALLS {
            buffer = self.drop_oldest();
        }
        // This rank has completed the last call. If that was a synchronizing one, all ranks have completed those before it. A buffer
        // that is reused at once is still in the cache.
        if self.calls.back().is_some_and(|last| last.number + 1 == number && last.call.collective.synchronizes()) {
            while self.calls.len() > 1 {
                buffer = self.drop_oldest();
            }
        }
        if buffer.capacity() > MAX_REUSED_BYTES {
            buffer = Vec::new();
        }
        buffer.clear();
        let input = (bytes <= MAX_INPUT_BYTES && input(&mut buffer)).then_some(buffer);
        self.bytes += input.as_ref().map_or(0, Vec::len);
        self.calls.push_back(LoggedCall { number, call: *call, input });
        while self.bytes > MAX_BYTES {
            self.drop_oldest();
        }
    }

    /// Drops the oldest call; its buffer can be reused.
    fn drop_oldest(&mut self) -> Vec<u8> {
        let input = self.calls.pop_front().and_then(|oldest| oldest.input).unwrap_or_default();
        self.bytes -= input.len();
        input
    }

    /// The call with this number and its input, if it is still in the log.
    pub(crate) fn input_of(&self, number: u64) -> Option<(&CollectiveCall, &[u8])> {
        let logged = self.calls.iter().find(|logged| logged.number == number)?;
        Some((&logged.call, logged.input.as_deref()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective_call::MpiCollective;

    /// A call that a rank may complete before others have entered it.
    fn call() -> CollectiveCall {
        call_of(MpiCollective::Reduce)
    }

    fn call_of(collective: MpiCollective) -> CollectiveCall {
        let (send, receive, count, datatype, operator, root, communicator) = (0, 0, 0, 0, 0, 0, 0);
        CollectiveCall { collective, send, receive, count, datatype, operator, root, communicator }
    }

    fn fill(into: &mut Vec<u8>, byte: u8, length: usize) -> bool {
        into.resize(length, byte);
        true
    }

    #[test]
    fn inputs_are_found_by_number_up_to_a_limit() {
        let mut log = ReplayLog::default();
        for number in 0..100 {
            log.push(number, &call(), 8, |into| fill(into, number as u8, 8));
        }
        assert_eq!(log.input_of(99).map(|(_, bytes)| bytes[0]), Some(99));
        assert_eq!(log.input_of(36).map(|(_, bytes)| bytes[0]), Some(36));
        assert!(log.input_of(35).is_none() && log.input_of(100).is_none());
        for number in 100..200 {
            log.push(number, &call(), MAX_INPUT_BYTES, |into| fill(into, 0, MAX_INPUT_BYTES));
        }
        assert!(log.bytes <= MAX_BYTES && log.input_of(199).is_some());
        // Short calls after long ones neither see nor hold the long buffers.
        for number in 200..300 {
            log.push(number, &call(), 8, |into| fill(into, number as u8, 8));
        }
        assert_eq!(log.input_of(299).map(|(_, bytes)| bytes), Some(&[299_u32 as u8; 8][..]));
        let capacity: usize = log.calls.iter().flat_map(|call| &call.input).map(Vec::capacity).sum();
        assert!(log.bytes == 8 * MAX_CALLS && capacity <= MAX_REUSED_BYTES * MAX_CALLS);
    }

    #[test]
    fn calls_before_a_completed_synchronizing_call_are_dropped() {
        let mut log = ReplayLog::default();
        let collectives = [
            MpiCollective::Reduce,
            MpiCollective::Broadcast,
            MpiCollective::AllReduce,
            MpiCollective::Reduce,
            MpiCollective::Barrier,
            MpiCollective::Scan,
            MpiCollective::Reduce,
        ];
        let mut first_logged = Vec::new();
        for (number, collective) in (0..).zip(collectives) {
            log.push(number, &call_of(collective), 8, |into| fill(into, number as u8, 8));
            assert_eq!(log.input_of(number).map(|(_, bytes)| bytes[0]), Some(number as u8), "the call in flight");
            let first =
                (0..=number).find(|number| log.input_of(*number).is_some()).expect("at least the call in flight");
            assert!((first..=number).all(|number| log.input_of(number).is_some()), "no gaps");
            first_logged.push(first);
        }
        // Some rank may lack the result of the last synchronizing call: it stays until there is another.
        assert_eq!(first_logged, [0, 0, 0, 2, 2, 4, 5]);
    }

    /// A synchronizing call that failed proves nothing; the next call then has the same number.
    #[test]
    fn calls_before_a_failed_synchronizing_call_stay() {
        let mut log = ReplayLog::default();
        log.push(0, &call(), 8, |into| fill(into, 1, 8));
        log.push(1, &call_of(MpiCollective::AllReduce), 8, |into| fill(into, 2, 8));
        log.push(1, &call_of(MpiCollective::AllReduce), 8, |into| fill(into, 3, 8));
        assert_eq!(log.input_of(0).map(|(_, bytes)| bytes[0]), Some(1));
    }

    #[test]
    fn an_input_that_cannot_be_copied_is_not_logged() {
        let mut log = ReplayLog::default();
        log.push(0, &call(), 8, |into| !fill(into, 7, 4));
        assert!(log.input_of(0).is_none() && log.bytes == 0);
    }

    #[test]
    fn long_inputs_are_not_logged() {
        let mut log = ReplayLog::default();
        log.push(0, &call(), MAX_INPUT_BYTES + 1, |_| unreachable!("not copied"));
        assert!(log.input_of(0).is_none());
    }
}
