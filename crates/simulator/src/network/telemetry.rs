//! What happens in the fabric over time, in at most [`MAX_BUCKETS`] buckets of equal width.
//!
//! In: departures, deliveries, queues, marks, pauses, losses and repairs as they happen. Out: one [`TelemetryBucket`] per span of
//! time. When a run outgrows the buckets, neighbours are merged and the width doubles, so memory does not grow with the run.

use units::{SimSpan, SimTime};

use crate::packet::ChannelId;

/// The most buckets of a run.
const MAX_BUCKETS: usize = 256;
/// The width of a bucket at the start of a run.
const FIRST_WIDTH: SimSpan = SimSpan::from_picos(250_000);

/// What happened in one span of time.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct TelemetryBucket {
    /// Bytes that arrived at their destination, with all headers.
    pub delivered_bytes: u64,
    /// Bytes sent on all links.
    pub sent_bytes: u64,
    /// Bytes sent on the busiest direction of a link; after merging, the mean of the merged maxima.
    pub busiest_bytes: u64,
    /// The longest queue of a switch port, in bytes.
    pub queue_bytes: u32,
    /// Packets marked by ECN.
    pub marks: u32,
    /// Pause frames.
    pub pauses: u32,
    /// Packets lost or dropped.
    pub losses: u32,
    /// Packets of flows that were sent again.
    pub repairs: u32,
}

impl TelemetryBucket {
    fn merged(self, other: Self) -> Self {
        Self {
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            busiest_bytes: self.busiest_bytes + other.busiest_bytes,
            queue_bytes: self.queue_bytes.max(other.queue_bytes),
            marks: self.marks + other.marks,
            pauses: self.pauses + other.pauses,
            losses: self.losses + other.losses,
            repairs: self.repairs + other.repairs,
        }
    }
}

/// The recorder.
#[derive(Clone, Debug)]
pub struct Telemetry {
    width: SimSpan,
    buckets: Vec<TelemetryBucket>,
    open: TelemetryBucket,
    /// The end of the open bucket.
    ends: SimTime,
    /// Bytes of each channel in the open bucket, and the channels that have any.
    bytes: Vec<u32>,
    touched: Vec<ChannelId>,
    /// Bytes of each channel in the whole run.
    totals: Vec<u64>,
}

impl Telemetry {
    /// A recorder for a fabric; the number of channels is that of its network.
    pub(crate) fn new(channels: u32) -> Self {
        Self {
            width: FIRST_WIDTH,
            buckets: Vec::new(),
            open: TelemetryBucket::default(),
            ends: SimTime::ZERO + FIRST_WIDTH,
            bytes: vec![0; channels as usize],
            touched: Vec::new(),
            totals: vec![0; channels as usize],
        }
    }

    /// The width of a bucket, and the buckets, the open one included.
    pub fn series(&self) -> (SimSpan, Vec<TelemetryBucket>) {
        let mut all = self.buckets.clone();
        all.push(self.closed());
        (self.width, all)
    }

    /// Bytes that a channel carried in the whole run.
    pub(crate) fn total(&self, channel: ChannelId) -> u64 {
        self.totals.get(channel as usize).copied().unwrap_or(0)
    }

    fn closed(&self) -> TelemetryBucket {
        let busiest = self.touched.iter().map(|channel| self.bytes[*channel as usize]).max().unwrap_or(0);
        TelemetryBucket { busiest_bytes: busiest.into(), ..self.open }
    }

    #[inline]
    pub(super) fn note_departure(&mut self, now: SimTime, channel: ChannelId, bytes: u32) {
        if now >= self.ends {
            self.roll(now);
        }
        let place = &mut self.bytes[channel as usize];
        if *place == 0 {
            self.touched.push(channel);
        }
        *place = place.saturating_add(bytes);
        self.totals[channel as usize] += u64::from(bytes);
        self.open.sent_bytes += u64::from(bytes);
    }

    pub(super) fn note_delivery(&mut self, now: SimTime, bytes: u32) {
        if now >= self.ends {
            self.roll(now);
        }
        self.open.delivered_bytes += u64::from(bytes);
    }

    pub(super) fn note_queue(&mut self, bytes: u32) {
        self.open.queue_bytes = self.open.queue_bytes.max(bytes);
    }

    pub(super) fn note_mark(&mut self) {
        self.open.marks += 1;
    }

    pub(super) fn note_pause(&mut self) {
        self.open.pauses += 1;
    }

    pub(super) fn note_loss(&mut self) {
        self.open.losses += 1;
    }

    /// A packet of a flow was sent again.
    pub(crate) fn note_repair(&mut self) {
        self.open.repairs += 1;
    }

    /// Closes buckets until the open one contains `now`.
    fn roll(&mut self, now: SimTime) {
        while now >= self.ends {
            let closed = self.closed();
            for channel in self.touched.drain(..) {
                self.bytes[channel as usize] = 0;
            }
            self.open = TelemetryBucket::default();
            self.buckets.push(closed);
            if self.buckets.len() == MAX_BUCKETS {
                let halves = self.buckets.chunks(2);
                self.buckets = halves.map(|pair| pair[0].merged(pair[1])).collect();
                self.width = self.width.times(2);
            }
            self.ends = SimTime::ZERO + self.width.times(self.buckets.len() as u64 + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_every_byte_and_bounds_the_memory() {
        let mut telemetry = Telemetry::new(2);
        let mut sent = 0;
        for step in 0..10_000_u64 {
            telemetry.note_departure(SimTime::from_picos(step * 100_000), (step % 2) as u32, 100);
            sent += 100;
        }
        let (width, buckets) = telemetry.series();
        assert!(buckets.len() <= MAX_BUCKETS);
        assert_eq!(buckets.iter().map(|bucket| bucket.sent_bytes).sum::<u64>(), sent);
        assert_eq!(telemetry.total(0) + telemetry.total(1), sent);
        // The whole run lies within the buckets.
        assert!(width.as_picos() * buckets.len() as u64 >= 9_999 * 100_000);
    }

    #[test]
    fn a_long_silence_costs_no_memory_and_no_time() {
        let mut telemetry = Telemetry::new(1);
        telemetry.note_departure(SimTime::ZERO, 0, 1);
        telemetry.note_departure(SimTime::from_picos(1 << 50), 0, 1);
        assert!(telemetry.series().1.len() <= MAX_BUCKETS);
    }
}
