//! What all transfers to one peer share: the round-trip estimate and the congestion window.

use units::{Span, Time};

use crate::connection::{CongestionWindow, RttEstimator};

/// The congestion window counts blocks of so many bytes.
const BLOCK_BYTES: u32 = 1 << 10;
/// The window of a new peer in blocks: what sockets with the usual buffer take.
const INITIAL_BLOCKS: u32 = 128;
/// The largest window in blocks: what sockets of receivers buffer where the administrator allows it.
const MAX_BLOCKS: u32 = 1 << 10;

/// The state of the path to one peer.
#[derive(Clone, Copy, Debug)]
pub struct TransferPacing {
    rtt: RttEstimator,
    congestion: CongestionWindow,
}

impl Default for TransferPacing {
    fn default() -> Self {
        Self { rtt: RttEstimator::default(), congestion: CongestionWindow::starting_at(INITIAL_BLOCKS) }
    }
}

impl TransferPacing {
    /// Bytes that may be unacknowledged.
    pub(super) fn window(&self) -> u32 {
        self.congestion.window().saturating_mul(BLOCK_BYTES)
    }

    pub(super) fn note_acknowledged(&mut self, bytes: u32, trip: Option<Span>) {
        if let Some(trip) = trip {
            self.rtt.sample(trip);
        }
        self.congestion.note_acknowledged(bytes.div_ceil(BLOCK_BYTES).min(MAX_BLOCKS), MAX_BLOCKS);
    }

    /// So many bytes have arrived; when is not known.
    pub fn note_delivered(&mut self, bytes: u32) {
        self.note_acknowledged(bytes, None);
    }

    pub(super) fn note_loss(&mut self, now: Time) {
        self.congestion.note_loss(now, &self.rtt);
    }

    /// How long a repair takes, as a rule.
    pub(super) fn repair_time(&self, least: Span) -> Span {
        self.rtt.smoothed().times(2).max(least)
    }

    pub(super) fn timeout(&self, least: Span) -> Span {
        self.rtt.timeout(least)
    }
}
