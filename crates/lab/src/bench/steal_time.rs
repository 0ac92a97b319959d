//! Steal time: processor time that the hypervisor gave to other virtual machines during a measurement. Results with much
//! of it say little about this machine.

use crate::cpu_time::CpuTicks;

/// A smaller share is not reported.
const MIN_REPORTED_SHARE: f64 = 0.02;

/// The counters at the start of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct StealTime(CpuTicks);

impl StealTime {
    /// The counters now; zeros where the kernel does not report them.
    pub(crate) fn now() -> Self {
        Self(CpuTicks::now().unwrap_or_default())
    }

    /// A note on the time from `self` to `now`, if the share is large enough to matter.
    pub(crate) fn note_since(self, now: Self) -> Option<String> {
        let stolen = now.0.stolen.saturating_sub(self.0.stolen) as f64;
        let total = now.0.total.saturating_sub(self.0.total) as f64;
        let share = stolen / total.max(1.0);
        let percent = 100.0 * share;
        (share >= MIN_REPORTED_SHARE).then(|| {
            format!(
                "During the measurement the hypervisor gave {percent:.0} % of the processor time to other machines: \
                 repeat it later."
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_share_of_steal_time_is_reported() {
        let at = |idle: u64, steal: u64| {
            let stat = format!("cpu  10 0 10 {idle} 0 0 0 {steal} 7 0\ncpu0 1 2 3\n");
            StealTime(CpuTicks::parse(&stat).expect("counters"))
        };
        assert_eq!(at(1000, 5).note_since(at(1990, 15)), None);
        let note = at(1000, 5).note_since(at(1900, 105)).expect("a note");
        assert!(note.contains("10 % of the processor time"), "{note}");
        assert_eq!(StealTime(CpuTicks::default()).note_since(StealTime(CpuTicks::default())), None);
    }
}
