//! The segments of one host in one operation: which are running, when the next may start, and which messages wait to be sent.

use std::collections::{BTreeMap, VecDeque};

use protocol::collective::{ScheduleAction, ScheduleExecutor};

use super::host_link::EndIndex;

/// A segment that has started on this host, or of which a message has arrived.
pub(super) struct RunningSegment {
    pub(super) executor: ScheduleExecutor,
    /// Messages that have not arrived at their receivers.
    pub(super) undelivered: u32,
    pub(super) is_over: bool,
}

/// A message whose parts are being sent.
#[derive(Clone, Copy)]
pub(super) struct OutgoingMessage {
    pub(super) number: u32,
    /// The connection to the receiver.
    pub(super) end: EndIndex,
    /// Bytes on the wire that were not sent.
    pub(super) left: u32,
}

/// The progress of one host.
#[derive(Default)]
pub(super) struct RankProgress {
    pub(super) entered: bool,
    /// Segments that were started: these are the first ones.
    pub(super) started: u32,
    /// Segments that are complete on this host, and whose messages have arrived.
    pub(super) settled: u32,
    /// Segments without a result.
    pub(super) missing: u32,
    pub(super) running: BTreeMap<u32, RunningSegment>,
    /// Messages leave a host in the order in which they were posted: a tree's first child does not wait for the last.
    pub(super) outgoing: VecDeque<OutgoingMessage>,
}

impl RankProgress {
    pub(super) fn new(segments: u32) -> Self {
        Self { missing: segments, ..Self::default() }
    }

    /// The next segment that may start now, if there is one.
    pub(super) fn next_segment(&self, segments: u32, window: u32) -> Option<u32> {
        (self.entered && self.started < segments && self.started - self.settled < window).then_some(self.started)
    }

    /// Starts the executor of a segment.
    pub(super) fn start(&mut self, segment: u32, out: &mut Vec<ScheduleAction>) {
        self.started += 1;
        if let Some(running) = self.running.get_mut(&segment) {
            running.executor.start(out);
        }
    }

    /// A connection has timed out: the messages of the other connections go first.
    pub(super) fn postpone(&mut self, end: EndIndex) {
        let (late, others): (Vec<_>, Vec<_>) = self.outgoing.iter().partition(|message| message.end == end);
        self.outgoing = others.into_iter().chain(late).copied().collect();
    }

    /// Forgets a segment that is over and whose messages have arrived. True if another may start.
    pub(super) fn settle(&mut self, segment: u32) -> bool {
        let is_settled =
            self.running.get(&segment).is_some_and(|running| running.is_over && running.undelivered == 0);
        if is_settled {
            self.running.remove(&segment);
            self.settled += 1;
        }
        is_settled
    }
}
