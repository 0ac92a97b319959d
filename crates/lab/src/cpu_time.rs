//! Processor time: of this thread, and of all processors of the machine.

use std::time::Duration;

/// Processor time of this thread so far; none where the kernel does not report it.
pub(crate) fn thread_cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// The kernel's counters of all processors together, in ticks of a hundredth of a second (USER_HZ).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct CpuTicks {
    /// Busy ticks of this machine, and ticks that the hypervisor gave to other machines.
    pub busy: u64,
    /// Ticks that the hypervisor gave to other machines.
    pub stolen: u64,
    /// All ticks, idle ones included.
    pub total: u64,
}

impl CpuTicks {
    /// The counters now; none where the kernel does not report them.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    pub(crate) fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user, nice, system, idle, iowait, irq, softirq, steal. The guest time that follows is part of user and nice.
        let ticks: Vec<u64> = line.split_ascii_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let total = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Some(Self { busy: total - idle, stolen: ticks.get(7).copied().unwrap_or(0), total })
    }

    /// Busy time as a duration.
    pub(crate) fn busy_time(self) -> Duration {
        Duration::from_millis(self.busy * 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_time_is_not_counted_twice_and_waiting_is_idle() {
        let ticks = CpuTicks::parse("cpu  10 1 5 100 20 2 3 7 9 9\ncpu0 1 2 3\n").expect("counters");
        assert_eq!(ticks, CpuTicks { busy: 28, stolen: 7, total: 148 });
        assert_eq!(CpuTicks::parse("nonsense"), None);
    }
}
