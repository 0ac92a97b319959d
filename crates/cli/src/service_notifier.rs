//! Tells systemd that a service is ready, and that it still works (`Type=notify`, `WatchdogSec=`). Does nothing elsewhere.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

pub(crate) struct ServiceNotifier {
    /// Half of the time after which systemd restarts a service that is silent.
    interval: Option<Duration>,
    next: Instant,
}

impl ServiceNotifier {
    /// The service is ready. If systemd cannot be told, it finds that out itself.
    pub(crate) fn ready() -> Self {
        let mut micros = 0;
        let is_watched = sd_notify::watchdog_enabled(false, &mut micros);
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        let interval = is_watched.then(|| Duration::from_micros(micros / 2));
        Self { interval, next: Instant::now() }
    }

    /// To be called in every round of the service, at least once a second.
    pub(crate) fn turn(&mut self) {
        let Some(interval) = self.interval else { return };
        let now = Instant::now();
        if now >= self.next {
            self.next = now + interval;
            let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
        }
    }
}
