//! Whether a result meets its target.

use std::fmt;

use serde::Serialize;

use crate::bench::TrialSummary;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TargetVerdict {
    Met,
    /// Missed: the median is above the bound, although some rounds are not.
    WithinSpread,
    /// Missed in every round.
    Missed,
}

impl TargetVerdict {
    /// Compares the rounds with an upper bound.
    pub(super) fn of(summary: &TrialSummary, bound: f64) -> Self {
        match () {
            () if summary.median <= bound => Self::Met,
            () if summary.min <= bound => Self::WithinSpread,
            () => Self::Missed,
        }
    }

    /// Only the median decides: a lucky round meets no target.
    pub(super) fn is_met(self) -> bool {
        self == Self::Met
    }

    /// `3 met, 1 missed within the spread, 2 missed in every round`.
    pub(super) fn count(verdicts: impl IntoIterator<Item = Self>) -> String {
        let verdicts = Vec::from_iter(verdicts);
        let count = |wanted: Self| verdicts.iter().filter(|verdict| **verdict == wanted).count();
        let [met, near, missed] = [Self::Met, Self::WithinSpread, Self::Missed].map(count);
        format!("{met} met, {near} missed within the spread, {missed} missed in every round")
    }
}

/// As a cell of a table.
impl fmt::Display for TargetVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::WithinSpread => "within the spread",
            Self::Missed => "MISSED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(ratios: [f64; 3]) -> TargetVerdict {
        TargetVerdict::of(&TrialSummary::of(ratios.to_vec()), 0.7)
    }

    #[test]
    fn only_the_median_meets_a_target() {
        let verdicts = [[0.6, 0.65, 0.9], [0.6, 0.75, 0.9], [0.75, 0.8, 0.9]].map(judge);
        assert_eq!(verdicts, [TargetVerdict::Met, TargetVerdict::WithinSpread, TargetVerdict::Missed]);
        assert_eq!(verdicts.map(TargetVerdict::is_met), [true, false, false]);
    }

    #[test]
    fn a_median_at_the_bound_meets_it() {
        assert_eq!(judge([0.6, 0.7, 0.9]), TargetVerdict::Met);
    }

    #[test]
    fn misses_within_the_spread_are_counted_apart() {
        let verdicts = [[0.6, 0.65, 0.9], [0.6, 0.75, 0.9], [0.75, 0.8, 0.9]].map(judge);
        assert_eq!(TargetVerdict::count(verdicts), "1 met, 1 missed within the spread, 1 missed in every round");
    }
}
