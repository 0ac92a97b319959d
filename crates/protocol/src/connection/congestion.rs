//! The congestion window: frames in flight on a network that drops packets.
//!
//! In: acknowledgements and losses. Out: a window in frames. It doubles per round trip until the first loss, then grows by one. A loss
//! while round delays are long means full queues: the window shrinks by a third. A loss while they are short comes from the link
//! itself (bit errors), and sending less would not help: the window hardly shrinks, so that a lossy path does not collapse. A
//! timeout restarts from the minimum.

use units::Time;

use super::rtt::RttEstimator;

/// The window of a new path.
const INITIAL_WINDOW: u32 = 16;
/// The least window: enough for a gap to be noticed.
const MIN_WINDOW: u32 = 4;
/// The window is counted in fractions of a frame.
const UNITS_PER_FRAME: u32 = 256;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CongestionWindow {
    window: u32,
    threshold: u32,
    /// At most one loss per round trip counts: the losses of a burst have one cause.
    ignore_losses_until: Time,
}

impl Default for CongestionWindow {
    fn default() -> Self {
        Self { window: INITIAL_WINDOW * UNITS_PER_FRAME, threshold: u32::MAX, ignore_losses_until: Time::ZERO }
    }
}

impl CongestionWindow {
    /// A window of so many frames.
    pub(crate) fn starting_at(frames: u32) -> Self {
        Self { window: frames * UNITS_PER_FRAME, ..Self::default() }
    }

    /// Frames that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        self.window / UNITS_PER_FRAME
    }

    /// `frames` were acknowledged; `limit` is the largest useful window.
    pub(crate) fn note_acknowledged(&mut self, frames: u32, limit: u32) {
        let growth = if self.window < self.threshold {
            frames * UNITS_PER_FRAME
        } else {
            frames * UNITS_PER_FRAME * UNITS_PER_FRAME / self.window.max(1)
        };
        self.window =
            self.window.saturating_add(growth).min(limit * UNITS_PER_FRAME).max(MIN_WINDOW * UNITS_PER_FRAME);
    }

    /// Frames were lost, while others arrived.
    pub(crate) fn note_loss(&mut self, now: Time, rtt: &RttEstimator) {
        if now < self.ignore_losses_until {
            return;
        }
        self.ignore_losses_until = now + rtt.smoothed();
        let shrunk = if rtt.is_inflated() { self.window / 3 * 2 } else { self.window - self.window / 32 };
        self.window = shrunk.max(MIN_WINDOW * UNITS_PER_FRAME);
        self.threshold = self.window;
    }

    /// Nothing arrived for a whole timeout.
    pub(crate) fn note_timeout(&mut self) {
        self.threshold = (self.window / 2).max(INITIAL_WINDOW * UNITS_PER_FRAME);
        self.window = MIN_WINDOW * UNITS_PER_FRAME;
    }
}

#[cfg(test)]
mod tests {
    use units::Span;

    use super::*;

    fn rtt(last_micros: u64) -> RttEstimator {
        let mut rtt = RttEstimator::default();
        rtt.sample(Span::from_micros(10));
        rtt.sample(Span::from_micros(last_micros));
        rtt
    }

    #[test]
    fn a_loss_on_a_full_path_shrinks_the_window_and_one_on_a_noisy_path_hardly() {
        let mut window = CongestionWindow::default();
        window.note_acknowledged(112, 1_000);
        assert_eq!(window.window(), 128);
        let (mut full, mut noisy) = (window, window);
        full.note_loss(Time::from_nanos(1), &rtt(100));
        noisy.note_loss(Time::from_nanos(1), &rtt(10));
        assert_eq!((full.window(), noisy.window()), (85, 124));
        full.note_loss(Time::from_nanos(2), &rtt(100));
        assert_eq!(full.window(), 85, "losses within a round trip count once");
    }

    #[test]
    fn after_a_timeout_it_starts_small_and_doubles() {
        let mut window = CongestionWindow::default();
        window.note_timeout();
        let mut sizes = vec![window.window()];
        for _ in 0..3 {
            window.note_acknowledged(window.window(), 64);
            sizes.push(window.window());
        }
        assert_eq!(sizes, [4, 8, 16, 17]);
    }
}
