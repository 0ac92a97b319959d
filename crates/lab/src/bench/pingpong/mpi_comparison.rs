//! How long messages take beside those of the MPI that is fastest at their size, and whether that meets the target.

use serde::Serialize;

use super::link::PingpongPlacement;
use super::rank::PingpongChecksum;
use crate::bench::TrialSummary;
use crate::bench::target_verdict::TargetVerdict;

/// Upper bound of the ratio between hosts, where every MPI uses TCP.
const BOUND: f64 = 0.9;
/// Longer messages are reported, not judged.
const MAX_JUDGED_BYTES: usize = 1 << 20;

/// Messages of one size.
#[derive(Serialize)]
pub(super) struct MpiComparison {
    /// The MPI with the least median.
    pub(super) best: String,
    /// One-way microseconds of that MPI, over rounds.
    pub(super) us: TrialSummary,
    /// Checked messages over those of that MPI, round by round.
    pub(super) ratio: TrialSummary,
    /// Upper bound of the ratio, if there is one.
    pub(super) target: Option<f64>,
    pub(super) verdict: Option<TargetVerdict>,
    /// Every MPI.
    pub(super) all: Vec<MpiTimes>,
}

#[derive(Serialize)]
pub(super) struct MpiTimes {
    pub(super) mpi: String,
    pub(super) us: TrialSummary,
}

impl MpiComparison {
    /// Compares round by round; none if no MPI was measured.
    pub(super) fn new(checked: &[f64], mpis: Vec<(String, Vec<f64>)>, target: Option<f64>) -> Option<Self> {
        let summary = |times: &[f64]| TrialSummary::of(times.to_vec());
        let all = mpis.iter().map(|(mpi, times)| MpiTimes { mpi: mpi.clone(), us: summary(times) }).collect();
        let least = |(_, one): &(_, Vec<f64>), (_, other): &(_, Vec<f64>)| {
            summary(one).median.total_cmp(&summary(other).median)
        };
        let (best, times) = mpis.into_iter().min_by(least)?;
        let ratio = TrialSummary::of(checked.iter().zip(&times).map(|(ours, theirs)| ours / theirs).collect());
        let verdict = target.map(|bound| TargetVerdict::of(&ratio, bound));
        Some(Self { best, us: summary(&times), ratio, target, verdict, all })
    }
}

/// The bound of checked messages of this size. Those that are encrypted or have MACs do more than an MPI does, and are only reported.
pub(super) fn target(bytes: usize, between: PingpongPlacement, checksum: &PingpongChecksum) -> Option<f64> {
    let is_checked = matches!(checksum, PingpongChecksum::Auto | PingpongChecksum::Named(_));
    let is_judged = is_checked && between == PingpongPlacement::Namespaces && bytes <= MAX_JUDGED_BYTES;
    is_judged.then_some(BOUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mpi_with_the_least_median_counts() {
        let mpis = vec![("one".to_owned(), vec![9.0, 20.0, 20.0]), ("two".to_owned(), vec![10.0, 10.0, 30.0])];
        let compared = MpiComparison::new(&[9.5, 9.5, 9.5], mpis, Some(BOUND)).expect("two MPIs");
        assert_eq!((compared.best.as_str(), compared.us.median, compared.all.len()), ("two", 10.0, 2));
        assert_eq!((compared.ratio.median, compared.verdict), (0.95, Some(TargetVerdict::WithinSpread)));
        assert!(MpiComparison::new(&[9.5], Vec::new(), Some(BOUND)).is_none());
    }

    #[test]
    fn checked_messages_between_hosts_are_judged_up_to_1_mib() {
        let of = |bytes, between, checksum: &str| target(bytes, between, &checksum.parse().expect("a checksum"));
        let (hosts, processes) = (PingpongPlacement::Namespaces, PingpongPlacement::Processes);
        assert_eq!(of(8, hosts, "auto"), Some(0.9));
        assert_eq!(of(1 << 20, hosts, "crc-32c"), Some(0.9));
        assert_eq!(of(4 << 20, hosts, "auto"), None);
        assert_eq!(of(8, processes, "auto"), None);
        assert_eq!(of(8, hosts, "off"), None);
        assert_eq!(of(8, hosts, "encrypt"), None);
    }
}
