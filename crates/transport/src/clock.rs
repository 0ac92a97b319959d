//! The protocol machines' time, read from the monotonic clock.

use std::time::{Duration, Instant};

use units::Time;

/// A clock that starts at zero when it is created.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Starts now.
    pub fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// Nanoseconds since the clock was made.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    /// The time left until `time`; zero if it is past.
    pub fn until(&self, time: Time) -> Duration {
        Duration::from_nanos(time.since(self.now()).as_nanos())
    }
}
