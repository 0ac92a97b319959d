//! Figures 9 to 12: kernels without alternates, with armed ones, and with a cable that is cut.
//!
//! Runs alternate (armed, two cuts, plain, two cuts, armed, ...), and each is compared with the armed runs before and after it,
//! weighted by distance. So a slow drift of the machine's speed cancels, and a temporary disturbance affects few numbers, which
//! the median ignores. Every other cut is silent, the others are noticed.
//!
//! That is one measure. The other one is within the run that was cut: how much longer the iterations took in the half second
//! after the cut (or an eighth of a short run) than those around. It depends little on the machine at other times. The same
//! measure at the same moments of armed runs, where nothing was cut, shows its noise.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use transport::udp::LinkCut;

use super::MeasurementEffort;
use super::progress::MeasurementProgress;
use super::run_length::RunLength;
use super::statistics::QuartileSummary;
use crate::nas_kernels::{
    KernelFault, KernelJob, KernelRun, NasKernel, PathCount, RANKS, reference_digests, run_kernel,
};

/// The variant of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RunVariant {
    /// One path.
    Plain,
    /// An armed alternate, and no fault.
    Armed,
    /// A cut that is not reported.
    Silent,
    /// A cut that is reported to the rank at its end at once.
    Noticed,
}

impl RunVariant {
    pub(super) const ALL: [Self; 4] = [Self::Plain, Self::Armed, Self::Silent, Self::Noticed];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Plain => "one path",
            Self::Armed => "armed alternates",
            Self::Silent => "one silent cut",
            Self::Noticed => "one noticed cut",
        }
    }
}

/// The cost of a cut is relative to a run of this many seconds.
const RUN_SECONDS: f64 = 10.0;
/// A run is disturbed if other programs used more than this percentage of the processors.
const MAX_OTHERS_PERCENT: f64 = 5.0;

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct KernelRunResult {
    #[serde(rename = "candidate")]
    pub variant: RunVariant,
    pub iterations: u32,
    pub seconds: f64,
    /// Processor seconds of all ranks.
    pub processor_seconds: Option<f64>,
    /// The share of the processors that other programs used, in percent.
    pub others_percent: Option<f64>,
    /// Neither this run nor those that it is compared with were disturbed by other programs.
    pub undisturbed: bool,
    /// In percent of a run without fault; none if the run ended before its cut.
    pub slower_percent: Option<f64>,
    pub slower_processor_percent: Option<f64>,
    /// Time lost in the half second after the cut relative to the time around it, in milliseconds and in percent of 10 s: it
    /// does not depend on the length of the run.
    pub lost_ms: Option<f64>,
    pub lost_percent: Option<f64>,
    /// When the cable was cut, as a fraction of the run, and at which rank.
    pub cut: Option<(f64, usize)>,
    /// Ends of connections that migrated because of the cut, and the time until the last of them, in milliseconds.
    pub moved: usize,
    pub moved_after_ms: f64,
    /// Ends that migrated without a cut.
    pub stray_moves: usize,
    pub repeated_packets: u64,
}

/// All runs of one kernel.
#[derive(Debug, Serialize)]
pub(super) struct KernelCutResults {
    pub kernel: NasKernel,
    /// The requested time of a run.
    pub asked_seconds: f64,
    pub runs: Vec<KernelRunResult>,
    /// Runs whose digest differs from the reference.
    pub wrong: usize,
    /// The cost of armed alternates in percent of runs with one path, from pairs of short runs.
    pub armed_over_plain: QuartileSummary,
    pub armed_over_plain_processor: Option<QuartileSummary>,
}

impl KernelCutResults {
    fn each(&self, variant: RunVariant) -> impl Iterator<Item = &KernelRunResult> {
        self.runs.iter().filter(move |measured| measured.variant == variant)
    }

    pub(super) fn seconds(&self, variant: RunVariant) -> Option<QuartileSummary> {
        QuartileSummary::of(self.each(variant).map(|measured| measured.seconds))
    }

    /// The number of undisturbed comparisons, and of all comparisons.
    pub(super) fn undisturbed(&self) -> (usize, usize) {
        let compared = || self.runs.iter().filter(|run| run.slower_percent.is_some());
        (compared().filter(|run| run.undisturbed).count(), compared().count())
    }

    /// In percent of the armed runs before and after.
    pub(super) fn slower(&self, variant: RunVariant) -> Option<QuartileSummary> {
        of_undisturbed(self.each(variant), |measured| measured.slower_percent)
    }

    pub(super) fn slower_processor(&self, variant: RunVariant) -> Option<QuartileSummary> {
        of_undisturbed(self.each(variant), |measured| measured.slower_processor_percent)
    }

    /// Time lost in the half second after the cut, in percent of 10 s.
    pub(super) fn lost(&self, variant: RunVariant) -> Option<QuartileSummary> {
        QuartileSummary::of(self.each(variant).filter_map(|measured| measured.lost_percent))
    }

    pub(super) fn lost_ms(&self, variant: RunVariant) -> Option<QuartileSummary> {
        QuartileSummary::of(self.each(variant).filter_map(|measured| measured.lost_ms))
    }

    /// Milliseconds from the cut to the last migration.
    pub(super) fn moved_after_ms(&self, variant: RunVariant) -> Option<QuartileSummary> {
        QuartileSummary::of(
            self.each(variant).filter(|measured| measured.moved > 0).map(|measured| measured.moved_after_ms),
        )
    }

    /// Minimum and maximum iterations of a run.
    pub(super) fn iterations(&self) -> (u32, u32) {
        let counts = || self.runs.iter().map(|run| run.iterations);
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// Runs that took less than the requested time.
    pub(super) fn short(&self) -> usize {
        self.runs.iter().filter(|run| run.seconds < self.asked_seconds).count()
    }

    pub(super) fn stray_moves(&self) -> usize {
        self.runs.iter().map(|measured| measured.stray_moves).sum()
    }

    pub(super) fn others_percent(&self) -> Option<QuartileSummary> {
        QuartileSummary::of(self.runs.iter().filter_map(|measured| measured.others_percent))
    }

    /// The larger median cost of the two kinds of cut.
    pub(super) fn worst_median(&self) -> f64 {
        let medians = [RunVariant::Silent, RunVariant::Noticed].map(|variant| self.lost(variant));
        medians.iter().flatten().map(|spread| spread.median).fold(f64::NEG_INFINITY, f64::max)
    }
}

/// Quartiles of the undisturbed runs if they are at least half, else of all.
fn of_undisturbed<'r>(
    runs: impl Iterator<Item = &'r KernelRunResult>,
    of: impl Fn(&KernelRunResult) -> Option<f64>,
) -> Option<QuartileSummary> {
    let values: Vec<(bool, f64)> = runs.filter_map(|run| Some((run.undisturbed, of(run)?))).collect();
    let undisturbed = values.iter().filter(|(undisturbed, _)| *undisturbed).count();
    let take_all = 2 * undisturbed < values.len();
    QuartileSummary::of(
        values.into_iter().filter(|(undisturbed, _)| take_all || *undisturbed).map(|(_, value)| value),
    )
}

/// The expected milliseconds.
pub(super) fn expected_ms(effort: MeasurementEffort) -> u64 {
    let length = effort.length.as_millis() as u64;
    let short = u64::from(effort.cuts * PAIRS_PER_CUT * 2) * length / u64::from(SHORT_RUN_DIVISOR);
    // One more for the reference in memory.
    let long = (run_sequence(effort.cuts).len() as u64 + 1) * length;
    NasKernel::ALL.len() as u64 * (long + short)
}

pub(super) fn measure_all(
    effort: MeasurementEffort,
    progress: &MeasurementProgress,
) -> Result<Vec<KernelCutResults>> {
    NasKernel::ALL.into_iter().map(|kernel| measure(kernel, effort, progress)).collect()
}

/// Cuts between one armed run and the next.
const CUTS_PER_BLOCK: u32 = 4;

/// The sequence of runs, each with the number of its cut.
fn run_sequence(cuts: u32) -> Vec<(RunVariant, u32)> {
    let kind = |moment: u32| if moment.is_multiple_of(2) { RunVariant::Silent } else { RunVariant::Noticed };
    let mut runs = vec![(RunVariant::Armed, 0)];
    for first in (0..cuts).step_by(CUTS_PER_BLOCK as usize) {
        let after = cuts.min(first + CUTS_PER_BLOCK);
        let middle = first + (after - first).div_ceil(2);
        runs.extend((first..middle).map(|moment| (kind(moment), moment)));
        runs.push((RunVariant::Plain, first));
        runs.extend((middle..after).map(|moment| (kind(moment), moment)));
        runs.push((RunVariant::Armed, after - 1));
    }
    runs
}

fn measure(kernel: NasKernel, effort: MeasurementEffort, progress: &MeasurementProgress) -> Result<KernelCutResults> {
    progress.report(format!("{}, calibration", kernel.name()));
    let mut length = RunLength::new(kernel, effort.length)?;
    let truth = reference_digests(kernel, length.max_iterations()).context("the reference in memory failed")?;
    let expected_ms = effort.length.as_millis() as u64;
    progress.add(expected_ms);
    let (mut runs, mut wrong) = (Vec::new(), 0);
    for (variant, moment) in run_sequence(effort.cuts) {
        progress.report(format!("{}, {}", kernel.name(), variant.label()));
        let (ran, iterations, place) = length
            .run_long_enough(|iterations| plan(kernel, iterations, effort, variant, moment))
            .with_context(|| format!("{}, cut {moment}", variant.label()))?;
        wrong += usize::from(ran.digest != truth[iterations as usize - 1]);
        progress.add(expected_ms);
        let place_in_time = (f64::from(moment) + 0.5) / f64::from(effort.cuts);
        runs.push(measured(variant, iterations, place, place_in_time, &ran));
    }
    compare(&mut runs);
    let (wall, processor) = short_pairs(kernel, length.fraction(SHORT_RUN_DIVISOR), effort, progress)?;
    Ok(KernelCutResults {
        kernel,
        asked_seconds: effort.length.as_secs_f64(),
        armed_over_plain: wall.context("no pair was measured")?,
        armed_over_plain_processor: processor,
        runs,
        wrong,
    })
}

/// Pairs of short runs, with one path and with armed alternates, for each cut.
const PAIRS_PER_CUT: u32 = 4;
/// Short runs are this many times shorter.
const SHORT_RUN_DIVISOR: u32 = 20;

/// How much longer armed runs take than those with one path, in time and in processor time. The effect is small and the speed of
/// a machine changes from one second to the next, so many short runs say more than a few long ones.
fn short_pairs(
    kernel: NasKernel,
    iterations: u32,
    effort: MeasurementEffort,
    progress: &MeasurementProgress,
) -> Result<(Option<QuartileSummary>, Option<QuartileSummary>)> {
    let short = |paths| run_kernel(&KernelJob { kernel, iterations, paths, fault: None });
    let (mut wall, mut processor) = (Vec::new(), Vec::new());
    for pair in 0..effort.cuts * PAIRS_PER_CUT {
        progress.report(format!("{}, one path and armed alternates", kernel.name()));
        // Each is first in half of the pairs.
        let [plain, armed] = if pair % 2 == 0 {
            [short(PathCount::One)?, short(PathCount::Two)?]
        } else {
            let armed = short(PathCount::Two)?;
            [short(PathCount::One)?, armed]
        };
        let more = |armed: Duration, plain: Duration| 100.0 * (armed.as_secs_f64() / plain.as_secs_f64() - 1.0);
        wall.push(more(armed.elapsed, plain.elapsed));
        processor.extend(armed.spent.zip(plain.spent).map(|(armed, plain)| more(armed, plain)));
        progress.add(2 * effort.length.as_millis() as u64 / u64::from(SHORT_RUN_DIVISOR));
    }
    Ok((QuartileSummary::of(wall), QuartileSummary::of(processor)))
}

/// The job, and the position of its cut.
fn plan(
    kernel: NasKernel,
    iterations: u32,
    effort: MeasurementEffort,
    variant: RunVariant,
    moment: u32,
) -> (KernelJob, Option<(f64, usize)>) {
    let cut = match variant {
        RunVariant::Plain | RunVariant::Armed => None,
        RunVariant::Silent => Some(LinkCut::Silent),
        RunVariant::Noticed => Some(LinkCut::Noticed),
    };
    let paths = if variant == RunVariant::Plain { PathCount::One } else { PathCount::Two };
    let Some(cut) = cut else { return (KernelJob { kernel, iterations, paths, fault: None }, None) };
    // In the middle of one of `cuts` equal parts of the run, at a varying point within the iteration.
    let place = (f64::from(moment) + 0.5) / f64::from(effort.cuts);
    let within = (f64::from(moment) * 0.618).fract();
    let pause = effort.length.mul_f64(within / f64::from(iterations));
    let rank = (moment as usize * 3) % RANKS;
    let fault = KernelFault { rank, cut, iteration: (place * f64::from(iterations)) as u32, pause };
    (KernelJob { kernel, iterations, paths, fault: Some(fault) }, Some((place, rank)))
}

fn measured(
    variant: RunVariant,
    iterations: u32,
    place: Option<(f64, usize)>,
    moment: f64,
    ran: &KernelRun,
) -> KernelRunResult {
    let at = match variant {
        RunVariant::Silent | RunVariant::Noticed => ran.cut.map(|cut| cut.at),
        RunVariant::Armed => Some(ran.elapsed.mul_f64(moment)),
        RunVariant::Plain => None,
    };
    let lost = at.and_then(|at| lost_after(at.as_secs_f64(), &ran.starts, ran.elapsed));
    KernelRunResult {
        variant,
        iterations,
        seconds: ran.elapsed.as_secs_f64(),
        processor_seconds: ran.spent.map(|spent| spent.as_secs_f64()),
        others_percent: ran.others.map(|share| 100.0 * share),
        undisturbed: ran.others.is_none_or(|share| 100.0 * share <= MAX_OTHERS_PERCENT),
        slower_percent: None,
        slower_processor_percent: None,
        lost_ms: lost.map(|lost| 1e3 * lost),
        lost_percent: lost.map(|lost| 100.0 * lost / RUN_SECONDS),
        // The run may have ended before its cut if the last iterations were fast.
        cut: place.filter(|_| ran.cut.is_some()),
        moved: ran.cut.map_or(0, |cut| cut.moved),
        moved_after_ms: ran.cut.map_or(0.0, |cut| cut.last_after.as_secs_f64() * 1e3),
        stray_moves: ran.stray_moves,
        repeated_packets: ran.repeated,
    }
}

/// How many seconds longer the iterations right after a moment took than those around.
fn lost_after(at: f64, starts: &[Duration], elapsed: Duration) -> Option<f64> {
    let window = (elapsed.as_secs_f64() / 8.0).min(0.5);
    let around = 4.0 * window;
    let edges: Vec<f64> = starts.iter().chain([&elapsed]).map(Duration::as_secs_f64).collect();
    let last = edges.len() - 1;
    let at_or_before = |time: f64| edges.partition_point(|edge| *edge <= time).saturating_sub(1);
    let at_or_after = |time: f64| edges.partition_point(|edge| *edge < time).min(last);
    let (first, end) = (at_or_before(at), at_or_after(at + window));
    let (from, to) = (at_or_after(at - around), at_or_before(at + window + around));
    let (before, after) = (first.saturating_sub(from), to.saturating_sub(end));
    if before + after == 0 {
        return None;
    }
    let time = if before > 0 { edges[first] - edges[from] } else { 0.0 }
        + if after > 0 { edges[to] - edges[end] } else { 0.0 };
    let pace = time / (before + after) as f64;
    Some(edges[end] - edges[first] - pace * (end - first) as f64)
}

/// Compares each run with the armed runs before and after it.
fn compare(runs: &mut [KernelRunResult]) {
    let armed: Vec<usize> = (0..runs.len()).filter(|index| runs[*index].variant == RunVariant::Armed).collect();
    for block in armed.windows(2) {
        let (before, after) = (runs[block[0]], runs[block[1]]);
        for (place, own) in runs[block[0] + 1..block[1]].iter_mut().enumerate() {
            let share = (place + 1) as f64 / (block[1] - block[0]) as f64;
            let slower =
                |own: f64, before: f64, after: f64| 100.0 * (own / (before * (1.0 - share) + after * share) - 1.0);
            own.undisturbed &= before.undisturbed && after.undisturbed;
            if own.cut.is_none() && matches!(own.variant, RunVariant::Silent | RunVariant::Noticed) {
                continue;
            }
            // Per iteration, since the number of iterations varies.
            let each = |run: &KernelRunResult, seconds: f64| seconds / f64::from(run.iterations);
            let pace = |run: &KernelRunResult| each(run, run.seconds);
            let processor_pace = |run: &KernelRunResult| run.processor_seconds.map(|seconds| each(run, seconds));
            own.slower_percent = Some(slower(pace(own), pace(&before), pace(&after)));
            let processor = processor_pace(own).zip(processor_pace(&before)).zip(processor_pace(&after));
            own.slower_processor_percent = processor.map(|((own, before), after)| slower(own, before, after));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_occurs_once_between_armed_runs() {
        for cuts in 1..40 {
            let runs = run_sequence(cuts);
            let is_cut = |variant| matches!(variant, RunVariant::Silent | RunVariant::Noticed);
            let moments: Vec<u32> = runs.iter().filter(|run| is_cut(run.0)).map(|run| run.1).collect();
            assert_eq!(moments, (0..cuts).collect::<Vec<_>>());
            let silent = runs.iter().filter(|run| run.0 == RunVariant::Silent).count() as u32;
            assert_eq!(silent, cuts.div_ceil(2));
            assert!(runs.iter().any(|run| run.0 == RunVariant::Plain));
            assert!([runs[0], runs[runs.len() - 1]].iter().all(|run| run.0 == RunVariant::Armed));
        }
    }

    #[test]
    fn a_pause_is_found_where_it_was() {
        // A hundred iterations of 50 ms, one of which took 130 ms more.
        let start = |index: u64| Duration::from_millis(50 * index + if index > 60 { 130 } else { 0 });
        let starts: Vec<Duration> = (0..100).map(start).collect();
        let lost = |at| lost_after(at, &starts, start(100)).expect("there are iterations around");
        assert!((lost(3.02) - 0.130).abs() < 1e-6);
        assert!(lost(0.2).abs() < 1e-6);
        assert_eq!(lost_after(0.1, &starts[..1], Duration::from_millis(300)), None);
    }
}
