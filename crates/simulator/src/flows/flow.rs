//! One flow: bytes from one host to another, in packets that are acknowledged and repaired.
//!
//! In: packets that arrive at either end, and time. Out: which packet to send next, and what to answer. The sender keeps counters
//! and the numbers of packets to send again; the receiver keeps the numbers that arrived ahead of a gap. Both are bounded by the
//! window. Payload bytes do not exist.

use std::collections::{BTreeMap, BTreeSet};

use units::{SimSpan, SimTime};

use super::dcqcn::DcqcnRate;

/// The most gaps that an answer reports.
const MAX_REPORTED_GAPS: usize = 8;

/// A packet of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FlowPacket {
    /// The place of the flow, and the flow's own number: a place is used again.
    pub(super) place: u32,
    pub(super) id: u32,
    pub(super) kind: FlowPacketKind,
    /// A switch has marked it (ECN).
    pub(crate) is_marked: bool,
}

/// What a packet of a flow carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FlowPacketKind {
    /// Packet `number` with so many bytes of payload.
    Data { number: u32, bytes: u32, asks: bool },
    /// All packets below `next` have arrived; those in `missing` have not, although later ones have.
    Answer { next: u32, missing: Box<[(u32, u32)]> },
    /// Marked packets have arrived.
    Notice,
}

impl FlowPacket {
    pub(crate) fn payload_bytes(&self) -> u32 {
        match &self.kind {
            FlowPacketKind::Data { bytes, .. } => *bytes,
            FlowPacketKind::Answer { missing, .. } => 8 + 8 * missing.len() as u32,
            FlowPacketKind::Notice => 16,
        }
    }

    /// The number that its header carries.
    pub(crate) fn sequence(&self) -> u32 {
        match &self.kind {
            FlowPacketKind::Data { number, .. } => *number,
            FlowPacketKind::Answer { next, .. } => *next,
            FlowPacketKind::Notice => 0,
        }
    }
}

/// How a flow ends and what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FlowPurpose {
    /// Traffic of a class.
    Traffic(u32),
    /// A message of a workload; the number that its executor chose.
    Message(u32),
}

/// Whether the receiver answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FlowService {
    /// Acknowledged, within a window, and repaired.
    Reliable,
    /// As fast as the link allows.
    Flood,
}

pub(super) struct HostFlow {
    pub(super) id: u32,
    pub(super) purpose: FlowPurpose,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u64,
    pub(super) packets: u32,
    pub(super) lane: u8,
    pub(super) started: SimTime,
    /// Sent without acknowledgements, window and repairs.
    pub(super) is_flood: bool,
    /// Has no end of its own.
    pub(super) is_endless: bool,
    // The sender.
    pub(super) next: u32,
    pub(super) acked: u32,
    /// The packet after the last one that asked for an answer.
    pub(super) asked: u32,
    repairs: BTreeSet<u32>,
    repaired_at: BTreeMap<u32, SimTime>,
    pub(super) repair_count: u64,
    pub(super) route: u32,
    pub(super) retries: u32,
    pub(super) deadline: SimTime,
    pub(super) is_queued: bool,
    pub(super) is_sent: bool,
    pub(super) eligible_at: SimTime,
    pub(super) rate: Option<DcqcnRate>,
    // The receiver.
    expected: u32,
    beyond: BTreeSet<u32>,
    highest: u32,
    pub(super) noticed_at: Option<SimTime>,
    pub(super) is_received: bool,
    pub(super) received_bytes: u64,
}

impl HostFlow {
    #[allow(clippy::too_many_arguments, reason = "one call, by the engine")]
    pub(super) fn new(
        id: u32,
        purpose: FlowPurpose,
        (from, to): (u32, u32),
        bytes: u64,
        mtu: u32,
        lane: u8,
        started: SimTime,
        rate: Option<DcqcnRate>,
    ) -> Self {
        Self {
            id,
            purpose,
            from,
            to,
            bytes,
            packets: bytes.div_ceil(u64::from(mtu)).clamp(1, u64::from(u32::MAX)) as u32,
            lane,
            started,
            is_flood: false,
            is_endless: false,
            next: 0,
            acked: 0,
            asked: 0,
            repairs: BTreeSet::new(),
            repaired_at: BTreeMap::new(),
            repair_count: 0,
            route: 0,
            retries: 0,
            deadline: SimTime::NEVER,
            is_queued: false,
            is_sent: false,
            eligible_at: started,
            rate,
            expected: 0,
            beyond: BTreeSet::new(),
            highest: 0,
            noticed_at: None,
            is_received: false,
            received_bytes: 0,
        }
    }

    /// Whether a packet could be sent if the link were free.
    pub(super) fn can_send(&self, window: u32) -> bool {
        !self.repairs.is_empty() || self.next < self.packets && (self.is_flood || self.next - self.acked < window)
    }

    /// The number of the next packet, repairs first; whether it is a repair.
    pub(super) fn take_next(&mut self, now: SimTime, window: u32) -> Option<(u32, bool)> {
        if let Some(number) = self.repairs.pop_first() {
            self.repaired_at.insert(number, now);
            self.repair_count += 1;
            return Some((number, true));
        }
        if !self.can_send(window) {
            return None;
        }
        self.next += 1;
        Some((self.next - 1, false))
    }

    /// Payload of a packet.
    pub(super) fn payload(&self, number: u32, mtu: u32) -> u32 {
        let offset = u64::from(number) * u64::from(mtu);
        self.bytes.saturating_sub(offset).min(u64::from(mtu)) as u32
    }

    /// The receiver's answer has arrived. True if it acknowledges more than before.
    pub(super) fn handle_answer(&mut self, now: SimTime, next: u32, missing: &[(u32, u32)], guard: SimSpan) -> bool {
        let progress = next > self.acked;
        if progress {
            self.acked = next.min(self.next);
            self.repairs = self.repairs.split_off(&self.acked);
            self.repaired_at = self.repaired_at.split_off(&self.acked);
            self.retries = 0;
        }
        for (first, end) in missing {
            for number in (*first).max(self.acked)..(*end).min(self.next) {
                // A packet that was just sent again is still under way: the report is older than the repair.
                let is_repaired = self.repaired_at.get(&number).is_some_and(|at| now < *at + guard);
                if !is_repaired {
                    self.repairs.insert(number);
                }
            }
        }
        progress
    }

    /// No answer for too long: everything that is not acknowledged is sent again, over another route.
    pub(super) fn handle_timeout(&mut self) {
        self.retries += 1;
        self.route = self.route.wrapping_add(1);
        self.repaired_at.clear();
        self.repairs.extend(self.acked..self.next);
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.acked >= self.packets
    }

    /// Whether a packet that asked is unanswered. Packets that do not ask start no timer: a slow flow may need longer for those
    /// before the next one that asks than an answer takes.
    pub(super) fn awaits_answer(&self) -> bool {
        self.asked > self.acked && !self.is_flood
    }

    /// A packet has arrived. True if the receiver must answer at once: it asked, or it shows a new gap.
    pub(super) fn receive(&mut self, number: u32, bytes: u32, asks: bool, reordering: u32) -> bool {
        let is_new = number >= self.expected && !self.beyond.contains(&number);
        let shows_gap = is_new && reordering == 0 && number > self.highest && self.highest_gap(number);
        if is_new {
            self.received_bytes += u64::from(bytes);
            if number == self.expected {
                self.expected += 1;
                while self.beyond.remove(&self.expected) {
                    self.expected += 1;
                }
            } else {
                self.beyond.insert(number);
            }
            self.highest = self.highest.max(number + 1);
        }
        asks || shows_gap
    }

    fn highest_gap(&self, number: u32) -> bool {
        number > self.highest.max(self.expected)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.expected >= self.packets
    }

    /// The next number that the receiver lacks, and the gaps that are no reordering.
    pub(super) fn answer(&self, reordering: u32) -> FlowPacketKind {
        let mut missing = Vec::new();
        let mut first = self.expected;
        let end = self.highest.saturating_sub(reordering);
        for arrived in self.beyond.iter().copied().filter(|arrived| *arrived < end) {
            if arrived > first && missing.len() < MAX_REPORTED_GAPS {
                missing.push((first, arrived));
            }
            first = arrived + 1;
        }
        FlowPacketKind::Answer { next: self.expected, missing: missing.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(packets: u32) -> HostFlow {
        let purpose = FlowPurpose::Traffic(0);
        HostFlow::new(1, purpose, (0, 1), u64::from(packets) * 100, 100, 0, SimTime::ZERO, None)
    }

    #[test]
    fn a_gap_is_reported_at_once_and_only_it_is_sent_again() {
        let mut flow = flow(10);
        for expected in 0..6 {
            assert_eq!(flow.take_next(SimTime::ZERO, 100), Some((expected, false)));
        }
        assert!(!flow.receive(0, 100, false, 0));
        assert!(flow.receive(3, 100, false, 0), "1 and 2 are missing");
        assert!(!flow.receive(4, 100, false, 0), "the gap is known");
        let FlowPacketKind::Answer { next, missing } = flow.answer(0) else { panic!("an answer") };
        assert_eq!((next, &missing[..]), (1, &[(1, 3)][..]));
        let guard = SimSpan::from_nanos(1_000);
        assert!(flow.handle_answer(SimTime::ZERO, next, &missing, guard));
        assert_eq!(flow.take_next(SimTime::ZERO, 100), Some((1, true)));
        assert_eq!(flow.take_next(SimTime::ZERO, 100), Some((2, true)));
        assert_eq!(flow.take_next(SimTime::ZERO, 100), Some((6, false)));
        // The same report again, while the repairs are under way, repairs nothing.
        assert!(!flow.handle_answer(SimTime::ZERO, next, &missing, guard));
        assert_eq!(flow.take_next(SimTime::ZERO, 100), Some((7, false)));
    }

    #[test]
    fn packets_that_overtake_are_no_loss_where_routes_differ() {
        let mut flow = flow(300);
        for _ in 0..300 {
            flow.take_next(SimTime::ZERO, 1_000);
        }
        assert!(!flow.receive(5, 100, false, 64));
        let FlowPacketKind::Answer { missing, .. } = flow.answer(64) else { panic!("an answer") };
        assert!(missing.is_empty());
        for number in 6..100 {
            flow.receive(number, 100, false, 64);
        }
        let FlowPacketKind::Answer { missing, .. } = flow.answer(64) else { panic!("an answer") };
        assert_eq!(&missing[..], &[(0, 5)]);
    }

    #[test]
    fn the_window_bounds_what_is_unacknowledged() {
        let mut flow = flow(100);
        let sent = std::iter::from_fn(|| flow.take_next(SimTime::ZERO, 8)).count();
        assert_eq!(sent, 8);
        flow.handle_answer(SimTime::ZERO, 3, &[], SimSpan::ZERO);
        assert_eq!(std::iter::from_fn(|| flow.take_next(SimTime::ZERO, 8)).count(), 3);
    }

    #[test]
    fn duplicates_count_once() {
        let mut flow = flow(3);
        for number in [2, 2, 0, 0, 1, 2] {
            flow.receive(number, 100, false, 0);
        }
        assert!(flow.is_whole());
        assert_eq!(flow.received_bytes, 300);
    }
}
