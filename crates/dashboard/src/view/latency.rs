//! How long operations took since the last report, from the classes that nodes count.

use std::collections::BTreeMap;

use serde::Serialize;

/// The times below which half of all operations, 99 of 100, and all stayed, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LatencyQuantiles {
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The operations that were measured.
    pub operations: u64,
}

/// The last report of a node.
struct ClassReading {
    at_ms: u64,
    counts: Vec<u64>,
    /// What came with the last report.
    recent: Vec<u64>,
    is_new: bool,
}

/// The last reports of all nodes.
#[derive(Default)]
pub(super) struct LatencyMeter {
    readings: BTreeMap<String, ClassReading>,
    /// What came with the last reports of all nodes that were asked for since the last sweep.
    total: Vec<u64>,
}

impl LatencyMeter {
    /// The quantiles of what a node measured between its last two reports.
    pub(super) fn quantiles(&mut self, node: &str, at_ms: u64, counts: &[u64]) -> Option<LatencyQuantiles> {
        if !self.readings.contains_key(node) {
            let reading = ClassReading { at_ms, counts: counts.to_vec(), recent: Vec::new(), is_new: true };
            self.readings.insert(node.to_owned(), reading);
        }
        let reading = self.readings.get_mut(node)?;
        reading.is_new = true;
        if at_ms != reading.at_ms {
            let is_restarted = at_ms < reading.at_ms;
            let before =
                |class: usize| if is_restarted { 0 } else { reading.counts.get(class).copied().unwrap_or(0) };
            reading.recent =
                counts.iter().enumerate().map(|(class, count)| count.saturating_sub(before(class))).collect();
            (reading.at_ms, reading.counts) = (at_ms, counts.to_vec());
        }
        if self.total.len() < reading.recent.len() {
            self.total.resize(reading.recent.len(), 0);
        }
        self.total.iter_mut().zip(&reading.recent).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        of_classes(&reading.recent)
    }

    /// The quantiles over all nodes since the last sweep. Removes nodes that were not reported since.
    pub(super) fn sweep(&mut self) -> Option<LatencyQuantiles> {
        self.readings.retain(|_, reading| std::mem::replace(&mut reading.is_new, false));
        of_classes(&std::mem::take(&mut self.total))
    }
}

fn of_classes(counts: &[u64]) -> Option<LatencyQuantiles> {
    let operations = counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
    (operations > 0).then(|| LatencyQuantiles {
        p50_us: quantile(counts, operations, 0.5),
        p99_us: quantile(counts, operations, 0.99),
        operations,
    })
}

/// Class `n` has the times from 2^(n-1) to 2^n microseconds; within a class they are taken as evenly spread.
fn quantile(counts: &[u64], operations: u64, part: f64) -> f64 {
    let rank = operations as f64 * part;
    let mut below = 0.0;
    for (class, count) in counts.iter().enumerate() {
        let count = *count as f64;
        if below + count >= rank && count > 0.0 {
            let upper = 2f64.powi(class as i32);
            let lower = if class == 0 { 0.0 } else { upper / 2.0 };
            let micros = lower + (upper - lower) * (rank - below) / count;
            return (micros * 10.0).round() / 10.0;
        }
        below += count;
    }
    2f64.powi(counts.len() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_cover_the_time_between_two_reports() {
        let mut meter = LatencyMeter::default();
        assert_eq!(meter.quantiles("a", 100, &[0, 0, 50]), None, "nothing to compare with");
        let recent = meter.quantiles("a", 600, &[0, 0, 50, 98, 0, 2]).expect("new operations");
        assert_eq!(recent.operations, 100);
        assert!((4.0..=8.0).contains(&recent.p50_us) && (16.0..=32.0).contains(&recent.p99_us), "{recent:?}");
        assert_eq!(meter.quantiles("a", 600, &[0, 0, 50, 98, 0, 2]), Some(recent), "the same report");
        assert_eq!(meter.quantiles("a", 50, &[7]).map(|recent| recent.operations), Some(7), "the node restarted");
        assert!(meter.sweep().is_some_and(|all| all.operations == 207));
        assert_eq!(meter.sweep(), None);
        assert!(meter.readings.is_empty(), "swept");
    }
}
