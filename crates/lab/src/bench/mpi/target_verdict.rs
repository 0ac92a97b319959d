//! Whether a result meets its target.

use std::fmt;

use serde::Serialize;

use crate::bench::TrialSummary;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TargetVerdict {
    Met,
    /// Some rounds met it, the median did not.
    WithinSpread,
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

    #[test]
    fn a_target_is_missed_only_if_no_round_met_it() {
        let judge = |ratios: [f64; 3]| TargetVerdict::of(&TrialSummary::of(ratios.to_vec()), 0.7);
        assert_eq!(judge([0.6, 0.65, 0.9]), TargetVerdict::Met);
        assert_eq!(judge([0.6, 0.75, 0.9]), TargetVerdict::WithinSpread);
        assert_eq!(judge([0.75, 0.8, 0.9]), TargetVerdict::Missed);
    }
}
