//! The rows of a table: from the samples of all rounds to times, ratios and verdicts.

use serde::Serialize;

use super::plan::{HostsMeasure, HostsPlan, MpiOperation};
use super::sweep::{HostsVariant, RoundSamples, SweepSamples};
use super::target::{self, MeasuredWhere};
use crate::bench::TrialSummary;
use crate::bench::byte_size::ByteSize;
use crate::bench::mpi::target_verdict::TargetVerdict;
use crate::bench::mpi_installation::MpiInstallation;
use crate::bench::samples::BenchSample;

/// One measure under one MPI with Pleach and some number of nodes.
#[derive(Serialize)]
pub(super) struct HostsRow {
    pub(super) operation: MpiOperation,
    /// None for a barrier.
    pub(super) bytes: Option<ByteSize>,
    pub(super) nodes: u32,
    pub(super) mpi: String,
    /// Microseconds of one operation without the library, over rounds.
    pub(super) plain: TrialSummary,
    /// The same with the library.
    pub(super) with: TrialSummary,
    /// With over without, round by round.
    pub(super) ratio: TrialSummary,
    /// Processor microseconds of one operation, of all ranks, without the library.
    pub(super) plain_cpu: TrialSummary,
    /// The same with the library, and of all nodes.
    pub(super) with_cpu: TrialSummary,
    pub(super) cpu_ratio: TrialSummary,
    /// The MPI with the least median without the library, and that median.
    pub(super) best_mpi: String,
    pub(super) best_plain_us: f64,
    /// With the library over the best MPI without it, round by round.
    pub(super) ratio_to_best: TrialSummary,
    /// Upper bound of both ratios.
    pub(super) target: f64,
    pub(super) verdict: TargetVerdict,
    pub(super) verdict_to_best: TargetVerdict,
}

impl HostsRow {
    pub(super) fn measure(&self) -> HostsMeasure {
        HostsMeasure { operation: self.operation, size: self.bytes }
    }
}

/// All rows of a network, by measure, number of nodes and MPI. Combinations without a successful round have no row.
pub(super) fn rows(plan: &HostsPlan, hosts: u32, mpis: &[&MpiInstallation], samples: &SweepSamples) -> Vec<HostsRow> {
    let mut rows = Vec::new();
    for (index, measure) in plan.measures.iter().enumerate() {
        for nodes in &plan.nodes {
            let at = MeasuredWhere { hosts, ranks_per_host: plan.ranks_per_host, nodes: *nodes };
            let names: Vec<String> = mpis.iter().map(|mpi| mpi.short_name()).collect();
            let of_mpis = 0..mpis.len();
            rows.extend(of_mpis.filter_map(|mpi| MeasureSamples { samples, index }.row(*measure, at, mpi, &names)));
        }
    }
    rows
}

/// The samples of one measure.
#[derive(Clone, Copy)]
struct MeasureSamples<'a> {
    samples: &'a SweepSamples,
    index: usize,
}

impl MeasureSamples<'_> {
    fn row(self, measure: HostsMeasure, at: MeasuredWhere, mpi: usize, names: &[String]) -> Option<HostsRow> {
        let plain = self.samples.get(&(mpi, HostsVariant::Alone))?;
        let with = self.samples.get(&(mpi, HostsVariant::Preloaded { nodes: at.nodes }))?;
        let (best, best_plain) = self.best_alone()?;
        let micros: Pick = |sample| sample.micros;
        let cpu: Pick = |sample| sample.cpu_micros;
        let ratio = self.ratio(with, plain, micros)?;
        let ratio_to_best = self.ratio(with, best_plain, micros)?;
        let target = target::bound(measure, at);
        Some(HostsRow {
            operation: measure.operation,
            bytes: measure.size,
            nodes: at.nodes,
            mpi: names[mpi].clone(),
            plain: self.summary(plain, micros)?,
            with: self.summary(with, micros)?,
            ratio,
            plain_cpu: self.summary(plain, cpu)?,
            with_cpu: self.summary(with, cpu)?,
            cpu_ratio: self.ratio(with, plain, cpu)?,
            best_mpi: names[best].clone(),
            best_plain_us: self.summary(best_plain, micros)?.median,
            ratio_to_best,
            target,
            verdict: TargetVerdict::of(&ratio, target),
            verdict_to_best: TargetVerdict::of(&ratio_to_best, target),
        })
    }

    /// The MPI that is fastest without the library.
    fn best_alone(&self) -> Option<(usize, &RoundSamples)> {
        let alone = self.samples.iter().filter(|((_, variant), _)| *variant == HostsVariant::Alone);
        let timed = alone.filter_map(|((mpi, _), rounds)| {
            Some((*mpi, rounds, self.summary(rounds, |sample| sample.micros)?.median))
        });
        timed.min_by(|(.., one), (.., other)| one.total_cmp(other)).map(|(mpi, rounds, _)| (mpi, rounds))
    }

    fn values(self, rounds: &RoundSamples, pick: Pick) -> impl Iterator<Item = Option<f64>> {
        rounds.iter().map(move |round| Some(pick(round.as_ref()?.get(self.index)?)))
    }

    fn summary(self, rounds: &RoundSamples, pick: Pick) -> Option<TrialSummary> {
        summary_of(self.values(rounds, pick).flatten().collect())
    }

    /// Round by round; rounds in which one of them failed do not count.
    fn ratio(self, above: &RoundSamples, below: &RoundSamples, pick: Pick) -> Option<TrialSummary> {
        let pairs = self.values(above, pick).zip(self.values(below, pick));
        summary_of(pairs.filter_map(|(above, below)| Some(above? / below?)).collect())
    }
}

/// Picks a time from a sample.
type Pick = fn(&BenchSample) -> f64;

fn summary_of(values: Vec<f64>) -> Option<TrialSummary> {
    (!values.is_empty()).then(|| TrialSummary::of(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(times: &[f64]) -> RoundSamples {
        times.iter().map(|micros| Some(vec![BenchSample { micros: *micros, cpu_micros: micros * 2.0 }])).collect()
    }

    fn row(samples: &SweepSamples, mpi: usize) -> Option<HostsRow> {
        let measure = HostsMeasure { operation: MpiOperation::Barrier, size: None };
        let at = MeasuredWhere { hosts: 2, ranks_per_host: 1, nodes: 1 };
        MeasureSamples { samples, index: 0 }.row(measure, at, mpi, &["one".to_owned(), "two".to_owned()])
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_to_the_best_mpi() {
        let with = HostsVariant::Preloaded { nodes: 1 };
        let samples = SweepSamples::from([
            ((0, HostsVariant::Alone), rounds(&[10.0, 20.0, 10.0])),
            ((0, with), rounds(&[5.0, 10.0, 5.0])),
            ((1, HostsVariant::Alone), rounds(&[5.0, 5.0, 4.0])),
            ((1, with), rounds(&[5.0, 5.0, 5.0])),
        ]);
        let row = row(&samples, 0).expect("all rounds are there");
        assert_eq!((row.ratio.min, row.ratio.max, row.cpu_ratio.median), (0.5, 0.5, 0.5));
        assert_eq!((row.best_mpi.as_str(), row.best_plain_us), ("two", 5.0));
        assert_eq!((row.ratio_to_best.min, row.ratio_to_best.max), (1.0, 2.0));
        assert_eq!((row.verdict, row.verdict_to_best), (TargetVerdict::Met, TargetVerdict::Missed));
    }

    #[test]
    fn failed_rounds_do_not_count_and_without_rounds_there_is_no_row() {
        let with = HostsVariant::Preloaded { nodes: 1 };
        let mut samples = SweepSamples::from([
            ((0, HostsVariant::Alone), rounds(&[10.0, 20.0])),
            ((0, with), vec![Some(vec![BenchSample { micros: 30.0, cpu_micros: 1.0 }]), None]),
        ]);
        assert_eq!(row(&samples, 0).expect("one round is there").ratio.median, 3.0);
        samples.insert((0, with), vec![None]);
        assert!(row(&samples, 0).is_none());
    }
}
