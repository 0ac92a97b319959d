//! Processor time that the hypervisor gave to others.
//!
//! A test that waits for something up to a limit fails on a virtual machine that does not run. Such a failure proves
//! nothing, so the test is run once more; on a machine that runs, a failure is a failure.

/// Above this share of the processors' time a failed test is run once more.
pub(crate) const TOLERATED_SHARE: f64 = 0.05;

/// The processors' time up to a moment, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    total: u64,
    stolen: u64,
}

impl ProcessorTime {
    /// Now; `None` where the kernel does not say.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(text: &str) -> Option<Self> {
        let columns = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let ticks = columns.map(|ticks| ticks.parse().ok()).collect::<Option<Vec<u64>>>()?;
        Some(Self { total: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }

    /// The share of the processors' time since `start` that the hypervisor took.
    pub(crate) fn stolen_share_since(self, start: Self) -> f64 {
        let total = self.total.saturating_sub(start.total).max(1);
        self.stolen.saturating_sub(start.stolen) as f64 / total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_stolen_time_is_that_of_the_interval() {
        let start = ProcessorTime::parse("cpu  100 0 100 700 0 0 0 100 0 0\ncpu0 1 2 3").unwrap();
        let end = ProcessorTime::parse("cpu  150 0 100 700 0 0 0 150 0 0").unwrap();
        assert!((end.stolen_share_since(start) - 0.5).abs() < 1e-9);
        assert!(start.stolen_share_since(start) < 1e-9);
    }

    #[test]
    fn other_text_is_no_time() {
        assert_eq!(ProcessorTime::parse("intr 5"), None);
        assert_eq!(ProcessorTime::parse("cpu  1 2 3"), None);
        assert_eq!(ProcessorTime::parse(""), None);
    }
}
