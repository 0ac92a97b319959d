//! Rates of counters that another process reports periodically, by that process's clock.

use std::collections::BTreeMap;

/// The last report of a counter.
struct CounterReading {
    at_ms: u64,
    count: u64,
    per_second: Option<f64>,
    is_new: bool,
}

/// Counters by name, with their rates.
#[derive(Default)]
pub struct RateMeter {
    readings: BTreeMap<String, CounterReading>,
}

impl RateMeter {
    /// The rate of a counter after this report. Unchanged if the report is not new; unknown at first, and after the counter or the clock
    /// was reset.
    pub fn rate(&mut self, name: String, at_ms: u64, count: u64) -> Option<f64> {
        let reading =
            self.readings.entry(name).or_insert(CounterReading { at_ms, count, per_second: None, is_new: true });
        reading.is_new = true;
        if at_ms != reading.at_ms {
            let (time, more) = (at_ms.checked_sub(reading.at_ms), count.checked_sub(reading.count));
            // A tenth is exact enough to read, and short on the way to a page.
            reading.per_second = time.zip(more).map(|(time, more)| (more as f64 * 1e4 / time as f64).round() / 10.0);
            (reading.at_ms, reading.count) = (at_ms, count);
        }
        reading.per_second
    }

    /// Removes counters that were not reported since the last sweep.
    pub fn sweep(&mut self) {
        self.readings.retain(|_, reading| std::mem::replace(&mut reading.is_new, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_covers_the_time_between_reports() {
        let mut meter = RateMeter::default();
        let mut rate = |at, count| meter.rate("a".to_owned(), at, count);
        assert_eq!(rate(1_000, 50), None);
        assert_eq!(rate(1_000, 50), None, "nothing new");
        assert_eq!(rate(1_500, 150), Some(200.0));
        assert_eq!(rate(1_500, 150), Some(200.0), "nothing new");
        assert_eq!(rate(2_500, 150), Some(0.0));
        assert_eq!(rate(10, 5), None, "reset");
        assert_eq!(rate(1_010, 7), Some(2.0));
        meter.sweep();
        meter.sweep();
        assert_eq!(meter.rate("a".to_owned(), 2_010, 9), None, "swept");
    }
}
