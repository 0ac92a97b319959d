//! The machines' time, taken from the monotonic clock.

use std::time::{Duration, Instant};

use units::Time;

/// A clock that begins when it is made.
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
    /// Begins now.
    pub fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// The time since the beginning. 64 bits of picoseconds last for 213 days; whoever lives longer starts anew before.
    pub fn now(&self) -> Time {
        Time::from_picos(self.began.elapsed().as_nanos() as u64 * 1_000)
    }

    /// How long it is until a time of this clock; nothing if it is past.
    pub fn until(&self, time: Time) -> Duration {
        Duration::from_nanos(time.as_picos().saturating_sub(self.now().as_picos()) / 1_000)
    }
}
