//! The replay log: inputs of the last calls on a communicator, in case the native MPI must replay them.
//!
//! In: each call with its input. Out: the input of a call by its number, as long as another rank may need it.

use std::collections::VecDeque;

use crate::bootstrap_channel::PendingAllreduce;
use crate::call_statistics::CallMode;
use crate::collective_call::CollectiveCall;

/// Calls in the log.
const MAX_CALLS: usize = 64;
/// The longest input that is logged, as a part of all inputs: to log a long one costs as much as to send it.
const MAX_BYTES_PER_CALL: usize = 16;
/// Allocations up to this size are reused for any input, longer ones for inputs of similar length: to allocate one costs more than to
/// fill it.
const MAX_REUSED_BYTES: usize = 1 << 10;
const MAX_REUSED_RATIO: usize = 4;

/// The last calls on a communicator, those in flight included.
pub(crate) struct ReplayLog {
    calls: VecDeque<LoggedCall>,
    /// Bytes of all inputs, and at most so many.
    bytes: usize,
    max_bytes: usize,
    /// Non-blocking calls in flight.
    in_flight: Vec<u64>,
    /// The recovery of the communicator, after Pleach failed on it.
    pub(crate) recovery: Option<RecoveryState>,
    /// A thread exchanges values with the other ranks, or does a call on the native MPI after that: recovery must not begin meanwhile.
    pub(crate) is_occupied: bool,
}

struct LoggedCall {
    /// How many calls preceded it.
    number: u64,
    call: CollectiveCall,
    mode: CallMode,
    /// None if it was too long.
    input: Option<LoggedInput>,
}

/// What the native MPI needs to do a call again, apart from its arguments, which may refer to memory that the user has freed.
#[derive(Default)]
pub(crate) struct LoggedInput {
    /// This rank's input, in the format of the native MPI.
    pub(crate) bytes: Vec<u8>,
    /// Of a call that copies blocks, the bytes of each rank's block, or one number if all have the same; of a reduce-scatter with counts,
    /// these.
    pub(crate) counts: Vec<i32>,
}

/// The recovery of a communicator.
pub(crate) enum RecoveryState {
    /// The ranks agree on their progress.
    Agreeing(PendingAllreduce),
    /// All ranks do the calls from the first that any of them lacks to the last that any has started on the recovery communicator.
    Replaying(ReplayState),
    /// There is none: ranks are dead, or the program revoked the communicator (`ulfm.rs`).
    Surrendered,
}

/// The calls that the native MPI does on the recovery communicator.
pub(crate) struct ReplayState {
    /// The first call after them.
    pub(crate) end: u64,
    /// The first one that this rank has not begun there.
    pub(crate) next: u64,
    /// Those in flight that this rank had completed, and does again for others.
    pub(crate) calls: Vec<ReplayedCall>,
}

/// A call in flight on the native MPI, and its buffers.
pub(crate) struct ReplayedCall {
    pub(crate) request: usize,
    pub(crate) _buffers: ReplayBuffers,
}

/// The memory of a call in flight.
#[derive(Default)]
pub(crate) struct ReplayBuffers {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    pub(crate) counts: Vec<i32>,
    pub(crate) displacements: Vec<i32>,
}

impl ReplayLog {
    /// A log of inputs of at most so many bytes.
    pub(crate) fn new(max_bytes: usize) -> Self {
        let (calls, bytes, in_flight) = (VecDeque::new(), 0, Vec::new());
        Self { calls, bytes, max_bytes, in_flight, recovery: None, is_occupied: false }
    }

    /// Logs a call that begins, with an input of `bytes` bytes. `input` copies it to an empty buffer, or returns false.
    pub(crate) fn push(
        &mut self,
        number: u64,
        call: &CollectiveCall,
        mode: CallMode,
        bytes: usize,
        input: impl FnOnce(&mut LoggedInput) -> bool,
    ) {
        let mut buffer = Vec::new();
        if self.calls.len() == MAX_CALLS {
            buffer = self.drop_oldest();
        }
        // This rank has completed the last call. If that was a synchronizing one, all ranks have completed the blocking calls before
        // it. A buffer that is reused at once is still in the cache.
        let is_last = |last: &LoggedCall| last.mode == CallMode::Blocking && last.number + 1 == number;
        if self.calls.back().is_some_and(|last| is_last(last) && last.call.collective.synchronizes()) {
            while self.calls.len() > 1 && self.calls.front().is_some_and(|first| first.mode == CallMode::Blocking) {
                buffer = self.drop_oldest();
            }
        }
        if buffer.capacity() > MAX_REUSED_BYTES.max(bytes.saturating_mul(MAX_REUSED_RATIO)) {
            buffer = Vec::new();
        }
        buffer.clear();
        let mut logged = LoggedInput { bytes: buffer, counts: Vec::new() };
        let input = (bytes <= self.max_bytes / MAX_BYTES_PER_CALL && input(&mut logged)).then_some(logged);
        self.bytes += input.as_ref().map_or(0, |input| input.bytes.len());
        self.calls.push_back(LoggedCall { number, call: *call, mode, input });
        while self.bytes > self.max_bytes {
            self.drop_oldest();
        }
        if mode == CallMode::NonBlocking {
            self.in_flight.push(number);
        }
    }

    /// A non-blocking call is complete.
    pub(crate) fn complete(&mut self, number: u64) {
        self.in_flight.retain(|other| *other != number);
    }

    /// True if a non-blocking call with this number is in flight.
    pub(crate) fn is_in_flight(&self, number: u64) -> bool {
        self.in_flight.contains(&number)
    }

    /// The first non-blocking call in flight.
    pub(crate) fn first_in_flight(&self) -> Option<u64> {
        self.in_flight.iter().min().copied()
    }

    /// Drops the oldest call; its buffer can be reused.
    fn drop_oldest(&mut self) -> Vec<u8> {
        let input = self.calls.pop_front().and_then(|oldest| oldest.input).unwrap_or_default();
        self.bytes -= input.bytes.len();
        input.bytes
    }

    /// The call with this number and its input, if it is still in the log.
    pub(crate) fn input_of(&self, number: u64) -> Option<(&CollectiveCall, &LoggedInput)> {
        let logged = self.calls.iter().find(|logged| logged.number == number)?;
        Some((&logged.call, logged.input.as_ref()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective_call::MpiCollective;

    const MAX_BYTES: usize = 1 << 20;
    const LONG: usize = 64 << 10;

    /// A call that a rank may complete before others have entered it.
    fn call() -> CollectiveCall {
        call_of(MpiCollective::Reduce)
    }

    fn call_of(collective: MpiCollective) -> CollectiveCall {
        CollectiveCall::of(collective, 0)
    }

    fn fill(into: &mut LoggedInput, byte: u8, length: usize) -> bool {
        into.bytes.resize(length, byte);
        true
    }

    #[test]
    fn inputs_are_found_by_number_up_to_a_limit() {
        let mut log = ReplayLog::new(MAX_BYTES);
        for number in 0..100 {
            log.push(number, &call(), CallMode::Blocking, 8, |into| fill(into, number as u8, 8));
        }
        assert_eq!(log.input_of(99).map(|(_, input)| input.bytes[0]), Some(99));
        assert_eq!(log.input_of(36).map(|(_, input)| input.bytes[0]), Some(36));
        assert!(log.input_of(35).is_none() && log.input_of(100).is_none());
        for number in 100..200 {
            log.push(number, &call(), CallMode::Blocking, LONG, |into| fill(into, 0, LONG));
        }
        assert!(log.bytes <= MAX_BYTES && log.input_of(199).is_some());
        // Short calls after long ones neither see nor hold the long buffers.
        for number in 200..300 {
            log.push(number, &call(), CallMode::Blocking, 8, |into| fill(into, number as u8, 8));
        }
        assert_eq!(log.input_of(299).map(|(_, input)| &input.bytes[..]), Some(&[299_u32 as u8; 8][..]));
        let capacity: usize = log.calls.iter().flat_map(|call| &call.input).map(|input| input.bytes.capacity()).sum();
        assert!(log.bytes == 8 * MAX_CALLS && capacity <= MAX_REUSED_BYTES * MAX_CALLS);
    }

    #[test]
    fn calls_before_a_completed_synchronizing_call_are_dropped() {
        let mut log = ReplayLog::new(MAX_BYTES);
        let collectives = [
            MpiCollective::Reduce,
            MpiCollective::Scan,
            MpiCollective::AllReduce,
            MpiCollective::Broadcast,
            MpiCollective::Barrier,
            MpiCollective::ReduceScatter,
            MpiCollective::Reduce,
            MpiCollective::Gather,
            MpiCollective::AllGather,
            MpiCollective::AllGatherV,
            MpiCollective::AllToAll,
            MpiCollective::Scatter,
        ];
        let mut first_logged = Vec::new();
        for (number, collective) in (0..).zip(collectives) {
            log.push(number, &call_of(collective), CallMode::Blocking, 8, |into| fill(into, number as u8, 8));
            assert_eq!(
                log.input_of(number).map(|(_, input)| input.bytes[0]),
                Some(number as u8),
                "the call in flight"
            );
            let first =
                (0..=number).find(|number| log.input_of(*number).is_some()).expect("at least the call in flight");
            assert!((first..=number).all(|number| log.input_of(number).is_some()), "no gaps");
            first_logged.push(first);
        }
        // Some rank may lack the result of the last synchronizing call: it stays until there is another.
        assert_eq!(first_logged, [0, 0, 0, 2, 2, 4, 5, 5, 5, 8, 8, 10]);
    }

    /// A synchronizing call that failed proves nothing; the next call then has the same number.
    #[test]
    fn calls_before_a_failed_synchronizing_call_stay() {
        let mut log = ReplayLog::new(MAX_BYTES);
        log.push(0, &call(), CallMode::Blocking, 8, |into| fill(into, 1, 8));
        log.push(1, &call_of(MpiCollective::AllReduce), CallMode::Blocking, 8, |into| fill(into, 2, 8));
        log.push(1, &call_of(MpiCollective::AllReduce), CallMode::Blocking, 8, |into| fill(into, 3, 8));
        assert_eq!(log.input_of(0).map(|(_, input)| input.bytes[0]), Some(1));
    }

    #[test]
    fn an_input_that_cannot_be_copied_is_not_logged() {
        let mut log = ReplayLog::new(MAX_BYTES);
        log.push(0, &call(), CallMode::Blocking, 8, |into| !fill(into, 7, 4));
        assert!(log.input_of(0).is_none() && log.bytes == 0);
    }

    #[test]
    fn long_inputs_are_not_logged() {
        let mut log = ReplayLog::new(MAX_BYTES);
        log.push(0, &call(), CallMode::Blocking, LONG + 1, |_| unreachable!("not copied"));
        assert!(log.input_of(0).is_none());
    }

    /// A rank may wait for a non-blocking call after it has completed later ones.
    #[test]
    fn non_blocking_calls_stay_in_the_log_and_count_until_they_are_complete() {
        let mut log = ReplayLog::new(MAX_BYTES);
        let all_reduce = call_of(MpiCollective::AllReduce);
        log.push(0, &call(), CallMode::Blocking, 8, |into| fill(into, 0, 8));
        log.push(1, &all_reduce, CallMode::NonBlocking, 8, |into| fill(into, 1, 8));
        for number in 2..10 {
            log.push(number, &all_reduce, CallMode::Blocking, 8, |into| fill(into, number as u8, 8));
            assert_eq!(log.input_of(1).map(|(_, input)| input.bytes[0]), Some(1));
        }
        assert_eq!(log.first_in_flight(), Some(1));
        assert!(log.is_in_flight(1) && !log.is_in_flight(2));
        log.complete(1);
        assert_eq!(log.first_in_flight(), None);
    }
}
