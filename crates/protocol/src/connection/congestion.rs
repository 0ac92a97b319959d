//! How many frames may be in flight on a network that drops what it cannot carry.
//!
//! In: acknowledgements and losses. Out: a window in frames. It doubles per round trip until the first loss, then grows
//! by one. A loss while round trips are long means full queues: the window shrinks by a third. A loss while they are
//! short is the link's own (bit errors), and sending less would not make it better: the window hardly shrinks, so that a
//! lossy path does not collapse. A timeout starts from the beginning.

use units::Time;

use super::rtt::RttEstimator;

/// The window with which a path that nothing is known of begins.
const INITIAL: u32 = 16;
/// It never shrinks below this: enough for a gap to be noticed.
const LEAST: u32 = 4;
/// The window is kept in fractions of a frame.
const ONE: u32 = 256;

#[derive(Clone, Copy, Debug)]
pub(super) struct CongestionWindow {
    window: u32,
    threshold: u32,
    /// One loss counts per round trip: those of one burst are one sign.
    deaf_until: Time,
}

impl Default for CongestionWindow {
    fn default() -> Self {
        Self { window: INITIAL * ONE, threshold: u32::MAX, deaf_until: Time::ZERO }
    }
}

impl CongestionWindow {
    /// Frames that may be in flight.
    pub(super) fn window(&self) -> u32 {
        self.window / ONE
    }

    /// So many frames were acknowledged; `limit` is the most that is ever useful.
    pub(super) fn acknowledged(&mut self, frames: u32, limit: u32) {
        let growth =
            if self.window < self.threshold { frames * ONE } else { frames * ONE * ONE / self.window.max(1) };
        self.window = self.window.saturating_add(growth).min(limit * ONE).max(LEAST * ONE);
    }

    /// Frames were lost, though others came through.
    pub(super) fn lost(&mut self, now: Time, trips: &RttEstimator) {
        if now < self.deaf_until {
            return;
        }
        self.deaf_until = now + trips.smoothed();
        let shrunk = if trips.is_inflated() { self.window / 3 * 2 } else { self.window - self.window / 32 };
        self.window = shrunk.max(LEAST * ONE);
        self.threshold = self.window;
    }

    /// Nothing came through for a whole timeout.
    pub(super) fn timed_out(&mut self) {
        self.threshold = (self.window / 2).max(INITIAL * ONE);
        self.window = LEAST * ONE;
    }
}

#[cfg(test)]
mod tests {
    use units::Span;

    use super::*;

    fn trips(last_micros: u64) -> RttEstimator {
        let mut trips = RttEstimator::default();
        trips.sample(Span::from_micros(10));
        trips.sample(Span::from_micros(last_micros));
        trips
    }

    #[test]
    fn a_loss_on_a_full_path_shrinks_the_window_and_one_on_a_noisy_path_hardly() {
        let mut window = CongestionWindow::default();
        window.acknowledged(112, 1_000);
        assert_eq!(window.window(), 128);
        let (mut full, mut noisy) = (window, window);
        full.lost(Time::from_picos(1), &trips(100));
        noisy.lost(Time::from_picos(1), &trips(10));
        assert_eq!((full.window(), noisy.window()), (85, 124));
        full.lost(Time::from_picos(2), &trips(100));
        assert_eq!(full.window(), 85, "losses of one round trip are one sign");
    }

    #[test]
    fn after_a_timeout_it_starts_small_and_doubles() {
        let mut window = CongestionWindow::default();
        window.timed_out();
        let mut sizes = vec![window.window()];
        for _ in 0..3 {
            window.acknowledged(window.window(), 64);
            sizes.push(window.window());
        }
        assert_eq!(sizes, [4, 8, 16, 17]);
    }
}
