//! Processor time: what a thread has had, and what everybody on the machine has had together.

use std::time::Duration;

/// What this thread has had so far; none where the kernel does not say.
pub(super) fn thread_cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// What all processors together have had to do so far, and what was taken from them by other machines on the same
/// hardware. The kernel counts in hundredths of a second.
pub(super) fn machine_busy_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let all = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = all.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user already.
    let busy =
        ticks.iter().take(8).enumerate().filter(|(column, _)| !matches!(column, 3 | 4)).map(|(_, ticks)| ticks);
    Some(Duration::from_millis(busy.sum::<u64>() * 10))
}
