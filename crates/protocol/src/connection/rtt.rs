//! The round-trip estimator.
//!
//! In: round trips of frames that were sent once. Out: a timeout that a healthy path hardly ever exceeds, by the estimator of
//! RFC 6298: smoothed mean plus four deviations.

use units::Span;

/// The estimate; all zero before the first sample.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RttEstimator {
    smoothed: u64,
    deviation: u64,
    least: u64,
    latest: u64,
}

impl RttEstimator {
    pub(crate) fn sample(&mut self, trip: Span) {
        let trip = trip.as_nanos().max(1);
        self.latest = trip;
        if self.smoothed == 0 {
            (self.smoothed, self.deviation, self.least) = (trip, trip / 2, trip);
            return;
        }
        let error = self.smoothed.abs_diff(trip);
        self.deviation = self.deviation - self.deviation / 4 + error / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + trip / 8;
        self.least = self.least.min(trip);
    }

    /// The smoothed mean; zero before the first sample.
    pub(crate) fn smoothed(&self) -> Span {
        Span::from_nanos(self.smoothed)
    }

    /// The timeout, at least `least`.
    pub(crate) fn timeout(&self, least: Span) -> Span {
        Span::from_nanos(self.smoothed + 4 * self.deviation).max(least)
    }

    /// Whether frames queue somewhere: the latest round trip is much longer than the shortest.
    pub(crate) fn is_inflated(&self) -> bool {
        self.latest > 2 * self.least + self.least / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_mean_and_spread() {
        let mut trips = RttEstimator::default();
        assert_eq!(trips.timeout(Span::from_micros(5)), Span::from_micros(5));
        for _ in 0..100 {
            trips.sample(Span::from_micros(100));
        }
        let steady = trips.timeout(Span::ZERO);
        assert!(steady >= Span::from_micros(99) && steady < Span::from_micros(110), "{steady:?}");
        for step in 0..100u64 {
            trips.sample(Span::from_micros(if step % 2 == 0 { 50 } else { 150 }));
        }
        assert!(trips.timeout(Span::ZERO) > Span::from_micros(200));
        assert!(trips.is_inflated());
    }
}
