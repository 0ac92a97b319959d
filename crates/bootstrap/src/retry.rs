//! Delays between attempts to connect.

use std::time::Duration;

/// Delays that double from the first to the largest.
#[derive(Clone, Debug)]
pub struct RetryBackoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl RetryBackoff {
    /// Starts with `first` and never exceeds `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first }
    }

    /// For a server that may start a moment later than its clients.
    pub fn for_late_server() -> Self {
        Self::new(Duration::from_millis(5), Duration::from_millis(200))
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        delay
    }

    /// True if no delay was taken since the start or the last [`Self::reset`].
    pub fn is_first(&self) -> bool {
        self.next == self.first
    }

    /// Starts again with the first delay, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// Continues with the largest delay, after a failure that will not pass quickly.
    pub fn skip_to_max(&mut self) {
        self.next = self.max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit() {
        let millis = Duration::from_millis;
        let mut backoff = RetryBackoff::new(millis(50), millis(150));
        assert!(backoff.is_first());
        assert_eq!([(); 4].map(|()| backoff.next_delay()), [50, 100, 150, 150].map(millis));
        assert!(!backoff.is_first());
        backoff.reset();
        assert_eq!(backoff.next_delay(), millis(50));
        backoff.skip_to_max();
        assert_eq!(backoff.next_delay(), millis(150));
    }
}
