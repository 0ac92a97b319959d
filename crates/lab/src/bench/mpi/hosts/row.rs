//! The rows of a table: from the samples of all rounds to times, ratios and verdicts.

use serde::Serialize;

use super::plan::{HostsMeasure, HostsPlan, MpiOperation};
use super::sweep::{HostsVariant, RoundSamples, SweepSamples};
use super::target::{self, MeasuredWhere};
use crate::bench::TrialSummary;
use crate::bench::byte_size::ByteSize;
use crate::bench::mpi_installation::{MpiInstallation, PreloadChoice};
use crate::bench::samples::BenchSample;
use crate::bench::target_verdict::TargetVerdict;

/// One measure under one MPI with Pleach, some number of nodes, and one choice.
#[derive(Serialize)]
pub(super) struct HostsRow {
    pub(super) operation: MpiOperation,
    /// None for a barrier.
    pub(super) bytes: Option<ByteSize>,
    pub(super) nodes: u32,
    /// What does the calls.
    pub(super) choice: PreloadChoice,
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
    /// None where the MPI may do the calls, which then cannot be faster than it.
    pub(super) verdict_to_best: Option<TargetVerdict>,
    /// Upper bound of the ratio of processor times, if there is one.
    pub(super) cpu_target: Option<f64>,
    pub(super) cpu_verdict: Option<TargetVerdict>,
}

impl HostsRow {
    /// The verdict of every target of this row.
    pub(super) fn verdicts(&self) -> impl Iterator<Item = TargetVerdict> {
        [Some(self.verdict), self.verdict_to_best, self.cpu_verdict].into_iter().flatten()
    }

    pub(super) fn measure(&self) -> HostsMeasure {
        HostsMeasure { operation: self.operation, size: self.bytes }
    }
}

/// All rows of a network, by measure, number of nodes, choice and MPI. Combinations without a successful round have no row.
pub(super) fn rows(plan: &HostsPlan, hosts: u32, mpis: &[&MpiInstallation], samples: &SweepSamples) -> Vec<HostsRow> {
    let names: Vec<String> = mpis.iter().map(|mpi| mpi.short_name()).collect();
    let mut rows = Vec::new();
    for (index, measure) in plan.measures.iter().enumerate() {
        for (nodes, choice) in plan.preloads() {
            let at = MeasuredWhere { hosts, ranks_per_host: plan.ranks_per_host, nodes, choice };
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
        let with = self.samples.get(&(mpi, HostsVariant::Preloaded { nodes: at.nodes, choice: at.choice }))?;
        let (best, best_plain) = self.best_alone()?;
        let micros: Pick = |sample| sample.micros;
        let cpu: Pick = |sample| sample.cpu_micros;
        let ratio = self.ratio(with, plain, micros)?;
        let ratio_to_best = self.ratio(with, best_plain, micros)?;
        let cpu_ratio = self.ratio(with, plain, cpu)?;
        let (target, cpu_target) = (target::bound(measure, at), target::cpu_bound(measure, at));
        let to_best = || TargetVerdict::of(&ratio_to_best, target);
        Some(HostsRow {
            operation: measure.operation,
            bytes: measure.size,
            nodes: at.nodes,
            choice: at.choice,
            mpi: names[mpi].clone(),
            plain: self.summary(plain, micros)?,
            with: self.summary(with, micros)?,
            ratio,
            plain_cpu: self.summary(plain, cpu)?,
            with_cpu: self.summary(with, cpu)?,
            cpu_ratio,
            best_mpi: names[best].clone(),
            best_plain_us: self.summary(best_plain, micros)?.median,
            ratio_to_best,
            target,
            verdict: TargetVerdict::of(&ratio, target),
            verdict_to_best: target::is_judged_against_best(at).then(to_best),
            cpu_target,
            cpu_verdict: cpu_target.map(|bound| TargetVerdict::of(&cpu_ratio, bound)),
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

    const BARRIER: HostsMeasure = HostsMeasure { operation: MpiOperation::Barrier, size: None };

    fn with(choice: PreloadChoice) -> HostsVariant {
        HostsVariant::Preloaded { nodes: 1, choice }
    }

    fn row(samples: &SweepSamples, mpi: usize, measure: HostsMeasure, choice: PreloadChoice) -> Option<HostsRow> {
        let at = MeasuredWhere { hosts: 2, ranks_per_host: 1, nodes: 1, choice };
        MeasureSamples { samples, index: 0 }.row(measure, at, mpi, &["one".to_owned(), "two".to_owned()])
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_to_the_best_mpi() {
        let with = with(PreloadChoice::Pleach);
        let samples = SweepSamples::from([
            ((0, HostsVariant::Alone), rounds(&[10.0, 20.0, 10.0])),
            ((0, with), rounds(&[5.0, 10.0, 5.0])),
            ((1, HostsVariant::Alone), rounds(&[5.0, 5.0, 4.0])),
            ((1, with), rounds(&[5.0, 5.0, 5.0])),
        ]);
        let row = row(&samples, 0, BARRIER, PreloadChoice::Pleach).expect("all rounds are there");
        assert_eq!((row.ratio.min, row.ratio.max, row.cpu_ratio.median), (0.5, 0.5, 0.5));
        assert_eq!((row.best_mpi.as_str(), row.best_plain_us), ("two", 5.0));
        assert_eq!((row.ratio_to_best.min, row.ratio_to_best.max), (1.0, 2.0));
        assert_eq!((row.verdict, row.verdict_to_best), (TargetVerdict::Met, Some(TargetVerdict::Missed)));
        assert!(!row.verdicts().all(TargetVerdict::is_met), "the best MPI counts");
    }

    #[test]
    fn failed_rounds_do_not_count_and_without_rounds_there_is_no_row() {
        let with = with(PreloadChoice::Pleach);
        let row = |samples: &SweepSamples| row(samples, 0, BARRIER, PreloadChoice::Pleach);
        let mut samples = SweepSamples::from([
            ((0, HostsVariant::Alone), rounds(&[10.0, 20.0])),
            ((0, with), vec![Some(vec![BenchSample { micros: 30.0, cpu_micros: 1.0 }]), None]),
        ]);
        assert_eq!(row(&samples).expect("one round is there").ratio.median, 3.0);
        samples.insert((0, with), vec![None]);
        assert!(row(&samples).is_none());
    }

    #[test]
    fn what_exec_does_by_default_has_a_row_and_a_bound_of_its_own() {
        let samples = SweepSamples::from([
            ((0, HostsVariant::Alone), rounds(&[10.0, 10.0, 10.0])),
            ((0, with(PreloadChoice::Pleach)), rounds(&[12.0, 12.0, 12.0])),
            ((0, with(PreloadChoice::Measure)), rounds(&[10.0, 10.5, 12.0])),
            ((1, HostsVariant::Alone), rounds(&[5.0, 5.0, 5.0])),
        ]);
        let row = |choice| row(&samples, 0, BARRIER, choice).expect("all rounds are there");
        let (all, measured) = (row(PreloadChoice::Pleach), row(PreloadChoice::Measure));
        assert_eq!((all.ratio.median, all.target, all.verdict), (1.2, 0.8, TargetVerdict::Missed));
        assert_eq!((measured.ratio.median, measured.target, measured.verdict), (1.05, 1.05, TargetVerdict::Met));
        assert_eq!(measured.verdict_to_best, None);
        assert!(measured.verdicts().all(TargetVerdict::is_met));
    }

    #[test]
    fn processor_time_of_long_allreduces_is_judged() {
        let costly = |micros: f64| Some(vec![BenchSample { micros, cpu_micros: 30.0 }]);
        let samples = SweepSamples::from([
            ((0, HostsVariant::Alone), rounds(&[10.0, 10.0])),
            ((0, with(PreloadChoice::Pleach)), vec![costly(5.0), costly(5.0)]),
        ]);
        let of = |bytes| {
            let measure = HostsMeasure { operation: MpiOperation::Allreduce, size: Some(ByteSize(bytes)) };
            row(&samples, 0, measure, PreloadChoice::Pleach).expect("all rounds are there")
        };
        let long = of(1 << 20);
        assert_eq!((long.verdict, long.verdict_to_best), (TargetVerdict::Met, Some(TargetVerdict::Met)));
        assert_eq!((long.cpu_target, long.cpu_verdict), (Some(1.0), Some(TargetVerdict::Missed)));
        assert!(!long.verdicts().all(TargetVerdict::is_met));
        assert_eq!((of(8).cpu_target, of(8).cpu_verdict), (None, None));
    }
}
