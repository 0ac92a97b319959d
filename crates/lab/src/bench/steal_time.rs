//! Processor time that a virtual machine did not get while something was measured: figures of such times say little.

/// Less than this share is not worth a word.
const NOTABLE: f64 = 0.02;

/// A reading of the kernel's account: ticks that others had, and all ticks of all processors.
#[derive(Clone, Copy)]
pub(crate) struct StealTime([u64; 2]);

impl StealTime {
    /// Now; nothing where the system keeps no account.
    pub(crate) fn now() -> Self {
        Self::read(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn read(account: &str) -> Self {
        let line = account.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal; the time of guests that follows is in the first two already.
        let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        Self([ticks.get(7).copied().unwrap_or(0), ticks.iter().sum()])
    }

    /// A note on the time since then, if there is something to say.
    pub(crate) fn note_since(self, now: Self) -> Option<String> {
        let [stolen, all] = [0, 1].map(|which| now.0[which].saturating_sub(self.0[which]) as f64);
        let share = stolen / all.max(1.0);
        let percent = 100.0 * share;
        (share >= NOTABLE).then(|| {
            format!(
                "While this was measured, other machines had {percent:.0} % of these processors: try again later."
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_had_is_told_if_it_is_much() {
        let at =
            |idle: u64, steal: u64| StealTime::read(&format!("cpu  10 0 10 {idle} 0 0 0 {steal} 7 0\ncpu0 1 2 3\n"));
        assert_eq!(at(1000, 5).note_since(at(1990, 15)), None);
        let note = at(1000, 5).note_since(at(1900, 105)).expect("a note");
        assert!(note.contains("10 % of these processors"), "{note}");
        assert_eq!(StealTime::read("").note_since(StealTime::read("nonsense")), None);
    }
}
