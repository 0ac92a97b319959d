//! Services start themselves anew before their clocks run out.
//!
//! Machines count time in 64 bits of picoseconds, which last for 213 days. Long before that, at a moment when nobody needs it, a
//! service puts a fresh copy of itself into its place: same process, same arguments, same environment.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tracing::{info, warn};

/// This very program, even if its file has been replaced.
const ITSELF: &str = "/proc/self/exe";
const DAY: f64 = 24.0 * 3600.0;
const USUAL_DAYS: f64 = 30.0;
/// A service that is never free is renewed all the same while its clock still has some days.
const LATEST_DAYS: f64 = 200.0;

/// When a service starts anew.
pub(crate) struct Renewal {
    began: Instant,
    after: Duration,
    latest: Duration,
}

impl Renewal {
    /// After so many days.
    pub(crate) fn after(days: Option<f64>) -> Result<Self> {
        let days = days.unwrap_or(USUAL_DAYS);
        let fits = days > 0.0 && days <= LATEST_DAYS;
        ensure!(fits, "--renew-after takes a number of days above 0, at most {LATEST_DAYS}; {days} is none");
        let span = |days: f64| Duration::from_secs_f64(days * DAY);
        Ok(Self { began: Instant::now(), after: span(days), latest: span(LATEST_DAYS) })
    }

    /// Starts anew if it is time; returns if it is not, or if it cannot be done just now.
    pub(crate) fn renew_if_due(&mut self, is_needed: impl Fn() -> bool) {
        let age = self.began.elapsed();
        if age < self.after || age < self.latest && is_needed() {
            return;
        }
        info!(target: "pleach", "after {:.1} days, starting anew", age.as_secs_f64() / DAY);
        // Sockets close with it, so that the fresh copy can have them.
        let error = Command::new(ITSELF).arg0("pleach").args(std::env::args_os().skip(1)).exec();
        warn!(target: "pleach", "it is time to start anew, and that cannot be done: {error}; please restart it");
        let later = Duration::from_secs_f64(DAY);
        (self.after, self.latest) = (age + later, self.latest.max(age + later));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_renewed_too_early_too_late_or_while_needed() {
        assert!(Renewal::after(Some(0.0)).is_err() && Renewal::after(Some(201.0)).is_err());
        assert!(Renewal::after(Some(f64::NAN)).is_err());
        // A renewal would run these tests again, for ever.
        Renewal::after(None).expect("a month").renew_if_due(|| false);
        Renewal::after(Some(1e-12)).expect("at once").renew_if_due(|| true);
    }
}
