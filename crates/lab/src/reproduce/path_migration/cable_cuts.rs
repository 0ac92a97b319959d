//! Figures 9 to 12: kernels without alternates, with armed ones, and with a cable that is cut.
//!
//! Runs go in turn (armed, two cuts, plain, two cuts, armed, ...), and each is held against the armed runs before and
//! after it, nearer ones counting more. So a machine that grows slower or faster in the course of an hour does not matter,
//! and one that is busy with other things for a while spoils few numbers; the median passes over them. Every other cut is
//! silent, the others are noticed.
//!
//! That is one measure. The other looks into the run that was cut: how much longer the iterations took in the half second
//! after the cut (or an eighth of a short run) than those around. It sees little of what the machine does at other times.
//! The same at the same moments of armed runs, where nothing was cut, shows how much of it is noise.

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

/// What is held against what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RunVariant {
    /// One path.
    Plain,
    /// An armed alternate, and no fault.
    Armed,
    /// A cut that nobody is told of.
    Silent,
    /// A cut that the rank at its end is told of at once.
    Noticed,
}

impl RunVariant {
    pub(super) const ALL: [Self; 4] = [Self::Plain, Self::Armed, Self::Silent, Self::Noticed];

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Plain => "one path",
            Self::Armed => "armed alternates",
            Self::Silent => "one silent cut",
            Self::Noticed => "one noticed cut",
        }
    }
}

/// What a cut costs is given in terms of a run of so many seconds.
const RUN_SECONDS: f64 = 10.0;
/// If other programs had more of the processors than this, in percent, a run says little about us.
const DISTURBED: f64 = 5.0;

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct KernelRunResult {
    pub candidate: RunVariant,
    pub iterations: u32,
    pub seconds: f64,
    /// Processor seconds of all ranks.
    pub processor_seconds: Option<f64>,
    /// The share of the processors that other programs had, in percent.
    pub others_percent: Option<f64>,
    /// Neither this run nor those that it is held against had to share the processors with others.
    pub undisturbed: bool,
    /// In percent of a run without fault; none if it was to be cut and ended before.
    pub slower_percent: Option<f64>,
    pub slower_processor_percent: Option<f64>,
    /// What the half second after the cut lost against the time around it, in milliseconds and in percent of 10 s: it does
    /// not depend on how long a run is.
    pub lost_ms: Option<f64>,
    pub lost_percent: Option<f64>,
    /// Where the cable was cut, in parts of the run, and at which rank.
    pub cut: Option<(f64, usize)>,
    /// Ends of connections that moved because of it, and when the last of them had, in milliseconds.
    pub moved: usize,
    pub moved_after_ms: f64,
    /// Ends that moved for no such reason.
    pub stray_moves: usize,
    pub repeated_packets: u64,
}

/// All runs of one kernel.
#[derive(Debug, Serialize)]
pub(super) struct KernelCutResults {
    pub kernel: NasKernel,
    /// How long a run was to take.
    pub asked_seconds: f64,
    pub runs: Vec<KernelRunResult>,
    /// Runs whose bytes were not those of the reference.
    pub wrong: usize,
    /// What armed alternates cost, in percent of runs with one path; of short runs in pairs.
    pub armed_over_plain: QuartileSummary,
    pub armed_over_plain_processor: Option<QuartileSummary>,
}

impl KernelCutResults {
    fn each(&self, candidate: RunVariant) -> impl Iterator<Item = &KernelRunResult> {
        self.runs.iter().filter(move |measured| measured.candidate == candidate)
    }

    pub(super) fn seconds(&self, candidate: RunVariant) -> Option<QuartileSummary> {
        QuartileSummary::of(self.each(candidate).map(|measured| measured.seconds))
    }

    /// How many of the runs that are held against others were not disturbed, and of how many.
    pub(super) fn undisturbed(&self) -> (usize, usize) {
        let compared = || self.runs.iter().filter(|run| run.slower_percent.is_some());
        (compared().filter(|run| run.undisturbed).count(), compared().count())
    }

    /// In percent of the armed runs around.
    pub(super) fn slower(&self, candidate: RunVariant) -> Option<QuartileSummary> {
        fair(self.each(candidate), |measured| measured.slower_percent)
    }

    pub(super) fn slower_processor(&self, candidate: RunVariant) -> Option<QuartileSummary> {
        fair(self.each(candidate), |measured| measured.slower_processor_percent)
    }

    /// What the half second after the cut lost, in percent of 10 s.
    pub(super) fn lost(&self, candidate: RunVariant) -> Option<QuartileSummary> {
        QuartileSummary::of(self.each(candidate).filter_map(|measured| measured.lost_percent))
    }

    pub(super) fn lost_ms(&self, candidate: RunVariant) -> Option<QuartileSummary> {
        QuartileSummary::of(self.each(candidate).filter_map(|measured| measured.lost_ms))
    }

    /// When the last connection had moved, in milliseconds after the cut.
    pub(super) fn moved_after_ms(&self, candidate: RunVariant) -> Option<QuartileSummary> {
        QuartileSummary::of(
            self.each(candidate).filter(|measured| measured.moved > 0).map(|measured| measured.moved_after_ms),
        )
    }

    /// Iterations of the run with the fewest, and of the one with the most.
    pub(super) fn iterations(&self) -> (u32, u32) {
        let counts = || self.runs.iter().map(|run| run.iterations);
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// Runs that took less time than asked for.
    pub(super) fn short(&self) -> usize {
        self.runs.iter().filter(|run| run.seconds < self.asked_seconds).count()
    }

    pub(super) fn stray_moves(&self) -> usize {
        self.runs.iter().map(|measured| measured.stray_moves).sum()
    }

    pub(super) fn others_percent(&self) -> Option<QuartileSummary> {
        QuartileSummary::of(self.runs.iter().filter_map(|measured| measured.others_percent))
    }

    /// The larger median of what the two kinds of cut cost.
    pub(super) fn worst_median(&self) -> f64 {
        let medians = [RunVariant::Silent, RunVariant::Noticed].map(|candidate| self.lost(candidate));
        medians.iter().flatten().map(|spread| spread.median).fold(f64::NEG_INFINITY, f64::max)
    }
}

/// Of the undisturbed runs, if they are at least half; otherwise of all, for want of better.
fn fair<'r>(
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

/// How many milliseconds it should take.
pub(super) fn expected_ms(effort: MeasurementEffort) -> u64 {
    let length = effort.length.as_millis() as u64;
    let short = u64::from(effort.cuts * PAIRS_PER_CUT * 2) * length / u64::from(SHORTER);
    // The kernel in memory, too.
    let long = (order(effort.cuts).len() as u64 + 1) * length;
    NasKernel::ALL.len() as u64 * (long + short)
}

pub(super) fn measure_all(
    effort: MeasurementEffort,
    progress: &MeasurementProgress,
) -> Result<Vec<KernelCutResults>> {
    NasKernel::ALL.into_iter().map(|kernel| measure(kernel, effort, progress)).collect()
}

/// So many cuts are made between one armed run and the next.
const CUTS_PER_BLOCK: u32 = 4;

/// Which runs there are, each with the moment that it is about.
fn order(cuts: u32) -> Vec<(RunVariant, u32)> {
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
    progress.say(format!("{}, how long it takes", kernel.name()));
    let mut length = RunLength::new(kernel, effort.length)?;
    let truth = reference_digests(kernel, length.most()).context("in memory")?;
    let expected_ms = effort.length.as_millis() as u64;
    progress.add(expected_ms);
    let (mut runs, mut wrong) = (Vec::new(), 0);
    for (candidate, moment) in order(effort.cuts) {
        progress.say(format!("{}, {}", kernel.name(), candidate.words()));
        let (ran, iterations, place) = length
            .keep(|iterations| plan(kernel, iterations, effort, candidate, moment))
            .with_context(|| format!("{}, moment {moment}", candidate.words()))?;
        wrong += usize::from(ran.digest != truth[iterations as usize - 1]);
        progress.add(expected_ms);
        let place_in_time = (f64::from(moment) + 0.5) / f64::from(effort.cuts);
        runs.push(measured(candidate, iterations, place, place_in_time, &ran));
    }
    compare(&mut runs);
    let (wall, processor) = short_pairs(kernel, length.part(SHORTER), effort, progress)?;
    Ok(KernelCutResults {
        kernel,
        asked_seconds: effort.length.as_secs_f64(),
        armed_over_plain: wall.context("there are pairs")?,
        armed_over_plain_processor: processor,
        runs,
        wrong,
    })
}

/// A run with one path is compared with one with armed alternates so often for each moment of a cut.
const PAIRS_PER_CUT: u32 = 4;
/// Each a part of a whole run.
const SHORTER: u32 = 20;

/// How much longer armed runs take than those with one path, in time and in processor time. What is looked for is small
/// and the pace of a machine changes from one second to the next, so many short runs say more than a few long ones.
fn short_pairs(
    kernel: NasKernel,
    iterations: u32,
    effort: MeasurementEffort,
    progress: &MeasurementProgress,
) -> Result<(Option<QuartileSummary>, Option<QuartileSummary>)> {
    let short = |paths| run_kernel(&KernelJob { kernel, iterations, paths, fault: None });
    let (mut wall, mut processor) = (Vec::new(), Vec::new());
    for pair in 0..effort.cuts * PAIRS_PER_CUT {
        progress.say(format!("{}, one path against armed alternates", kernel.name()));
        // Each is as often first as second.
        let [plain, armed] = if pair % 2 == 0 {
            [short(PathCount::One)?, short(PathCount::Two)?]
        } else {
            let armed = short(PathCount::Two)?;
            [short(PathCount::One)?, armed]
        };
        let more = |armed: Duration, plain: Duration| 100.0 * (armed.as_secs_f64() / plain.as_secs_f64() - 1.0);
        wall.push(more(armed.elapsed, plain.elapsed));
        processor.extend(armed.spent.zip(plain.spent).map(|(armed, plain)| more(armed, plain)));
        progress.add(2 * effort.length.as_millis() as u64 / u64::from(SHORTER));
    }
    Ok((QuartileSummary::of(wall), QuartileSummary::of(processor)))
}

/// The job, and where its cut is.
fn plan(
    kernel: NasKernel,
    iterations: u32,
    effort: MeasurementEffort,
    candidate: RunVariant,
    moment: u32,
) -> (KernelJob, Option<(f64, usize)>) {
    let cut = match candidate {
        RunVariant::Plain | RunVariant::Armed => None,
        RunVariant::Silent => Some(LinkCut::Silent),
        RunVariant::Noticed => Some(LinkCut::Noticed),
    };
    let paths = if candidate == RunVariant::Plain { PathCount::One } else { PathCount::Two };
    let Some(cut) = cut else { return (KernelJob { kernel, iterations, paths, fault: None }, None) };
    // In the middle of each of so many equal parts, and within the iteration anywhere.
    let place = (f64::from(moment) + 0.5) / f64::from(effort.cuts);
    let within = (f64::from(moment) * 0.618).fract();
    let pause = effort.length.mul_f64(within / f64::from(iterations));
    let rank = (moment as usize * 3) % RANKS;
    let fault = KernelFault { rank, cut, iteration: (place * f64::from(iterations)) as u32, pause };
    (KernelJob { kernel, iterations, paths, fault: Some(fault) }, Some((place, rank)))
}

fn measured(
    candidate: RunVariant,
    iterations: u32,
    place: Option<(f64, usize)>,
    moment: f64,
    ran: &KernelRun,
) -> KernelRunResult {
    let at = match candidate {
        RunVariant::Silent | RunVariant::Noticed => ran.cut.map(|cut| cut.at),
        RunVariant::Armed => Some(ran.elapsed.mul_f64(moment)),
        RunVariant::Plain => None,
    };
    let lost = at.and_then(|at| lost_after(at.as_secs_f64(), &ran.starts, ran.elapsed));
    KernelRunResult {
        candidate,
        iterations,
        seconds: ran.elapsed.as_secs_f64(),
        processor_seconds: ran.spent.map(|spent| spent.as_secs_f64()),
        others_percent: ran.others.map(|share| 100.0 * share),
        undisturbed: ran.others.is_none_or(|share| 100.0 * share <= DISTURBED),
        slower_percent: None,
        slower_processor_percent: None,
        lost_ms: lost.map(|lost| 1e3 * lost),
        lost_percent: lost.map(|lost| 100.0 * lost / RUN_SECONDS),
        // It may have ended before it was cut, if the last iterations were quick.
        cut: place.filter(|_| ran.cut.is_some()),
        moved: ran.cut.map_or(0, |cut| cut.moved),
        moved_after_ms: ran.cut.map_or(0.0, |cut| cut.last_after.as_secs_f64() * 1e3),
        stray_moves: ran.stray_moves,
        repeated_packets: ran.repeated,
    }
}

/// How many seconds the iterations right after a moment took more than those around.
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

/// Holds each run against the armed ones before and after it.
fn compare(runs: &mut [KernelRunResult]) {
    let armed: Vec<usize> = (0..runs.len()).filter(|index| runs[*index].candidate == RunVariant::Armed).collect();
    for block in armed.windows(2) {
        let (before, after) = (runs[block[0]], runs[block[1]]);
        for (place, own) in runs[block[0] + 1..block[1]].iter_mut().enumerate() {
            let share = (place + 1) as f64 / (block[1] - block[0]) as f64;
            let slower =
                |own: f64, before: f64, after: f64| 100.0 * (own / (before * (1.0 - share) + after * share) - 1.0);
            own.undisturbed &= before.undisturbed && after.undisturbed;
            if own.cut.is_none() && matches!(own.candidate, RunVariant::Silent | RunVariant::Noticed) {
                continue;
            }
            // By iteration, since not every run has as many.
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
    fn every_moment_is_cut_once_and_armed_runs_stand_around() {
        for cuts in 1..40 {
            let runs = order(cuts);
            let is_cut = |candidate| matches!(candidate, RunVariant::Silent | RunVariant::Noticed);
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
