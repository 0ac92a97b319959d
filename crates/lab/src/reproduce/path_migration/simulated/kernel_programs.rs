//! Figures 9 to 12, simulated: programs with the messages of the three kernels and a compute time between them.
//!
//! The messages are those of `crate::nas_kernels`: the same number and sizes, between the same ranks, in the same order. The
//! computation of a rank is a delay: see [`KernelModel`].

use anyhow::{Context, Result};
use protocol::connection::path::AlternateLoading;
use serde::Serialize;
use simulator::queue_pair::{HostProgram, LinkNotification, ProgramStep};
use topology::NodeId;
use units::{SimSpan, SimTime};

use super::super::statistics::QuartileSummary;
use super::parameters::MigrationParameters;
use super::testbed::{SimulatedCut, SimulatedTestbed, micros};
use crate::nas_kernels::{NasKernel, RANKS, splitmix64};
use crate::reproduce::parameter_file::nanos;

/// Start of the ranks: every connection is armed by then.
const BEGIN: SimTime = SimTime::from_picos(5_000_000_000);
/// Ranks side by side in the grid of LU, and its planes.
const COLUMNS: usize = 4;
const PLANES: usize = 32;
/// Queue pairs of two ranks where the paper has 64 a process: seven peers, 63 in all.
const MANY_QUEUE_PAIRS: usize = 9;
/// Runs for the cost of armed alternates are this many times longer: there is a probe every quarter of a second.
const LONG_RUN_FACTOR: u32 = 4;

/// Moments of a cut for many queue pairs and for the classes of IS, and iterations of the latter.
const MAX_FURTHER_CUTS: u32 = 2;
const CLASS_ITERATIONS: u32 = 30;

/// The results of a kernel.
#[derive(Clone, Copy, Serialize)]
pub(in super::super) struct SimulatedSlowdown {
    pub kernel: NasKernel,
    pub iterations: u32,
    /// Compute time of a rank per iteration.
    pub compute_us: f64,
    /// A run with one path, long enough to contain probes; and a short run with armed alternates, as those that are cut.
    pub plain_ms: f64,
    pub armed_ms: f64,
    /// How much longer a run with armed alternates takes, in percent.
    pub armed_percent: f64,
    /// How much longer a run with a cut takes than an armed one, in milliseconds.
    pub silent_ms: Option<QuartileSummary>,
    pub noticed_ms: Option<QuartileSummary>,
    /// The same for silent cuts with 63 queue pairs a process, used in turn.
    pub many_silent_ms: Option<QuartileSummary>,
}

/// IS of two classes: the share of its run that a silent cut costs, in percent.
#[derive(Clone, Copy, Serialize)]
pub(in super::super) struct SimulatedClasses {
    pub class_a_percent: f64,
    pub class_b_percent: f64,
}

/// The loss in percent of a run of 10 s. It does not depend on the length of the run.
pub(super) fn percent_of_run(lost_ms: f64) -> f64 {
    lost_ms / 100.0
}

/// A kernel as a program.
#[derive(Clone, Copy)]
struct KernelModel {
    kernel: NasKernel,
    parameters: MigrationParameters,
    /// Runs of about a tenth of a second: longer than any effect of a cut.
    iterations: u32,
    /// Compute time of a rank per iteration: the processor time of the kernel on two cores of a virtual machine, so that the
    /// ratio of computation to communication is the same.
    compute: SimSpan,
    /// How many times as large computing and messages of IS are.
    size: f64,
    /// Queue pairs of two ranks, used in turn.
    queue_pairs: usize,
    seed: u64,
}

impl KernelModel {
    fn of(kernel: NasKernel, parameters: MigrationParameters, seed: u64) -> Self {
        let (iterations, micros) = match kernel {
            NasKernel::IntegerSort => (100, parameters.kernels.is_us),
            NasKernel::Fourier => (28, parameters.kernels.ft_us),
            NasKernel::Wavefront => (50, parameters.kernels.lu_us),
        };
        Self { kernel, parameters, iterations, compute: nanos(1e3 * micros), size: 1.0, queue_pairs: 1, seed }
    }

    fn steps(&self, rank: usize, iterations: u32) -> Vec<ProgramStep> {
        let mut steps = vec![ProgramStep::Until(BEGIN)];
        for _ in 0..iterations {
            match self.kernel {
                NasKernel::IntegerSort => self.sort(rank, &mut steps),
                NasKernel::Fourier => self.transform(rank, &mut steps),
                NasKernel::Wavefront => self.sweep(rank, &mut steps),
            }
        }
        steps.push(ProgramStep::Mark);
        self.spread(&mut steps);
        steps
    }

    /// Uses the queue pairs of two ranks in turn, each direction for itself.
    fn spread(&self, steps: &mut [ProgramStep]) {
        let first = pairs().count();
        let (mut sent, mut received) = (vec![0; first], vec![0; first]);
        for step in steps {
            let (count, connection) = match step {
                ProgramStep::Send { connection, .. } => (&mut sent[*connection], connection),
                ProgramStep::Receive { connection } => (&mut received[*connection], connection),
                _ => continue,
            };
            *connection += first * (*count % self.queue_pairs);
            *count += 1;
        }
    }

    /// A part of the computation of an iteration. Its time varies as on a real machine; without variation all ranks would run in
    /// lockstep and never contend for a switch, until a cut breaks the lockstep for good.
    fn compute(&self, rank: usize, part: u64, steps: &mut Vec<ProgramStep>) {
        let variation = (1e3 * self.parameters.kernels.variation).round() as u64;
        let random = splitmix64(self.seed << 40 ^ (steps.len() as u64) << 8 ^ rank as u64) % (2 * variation + 1);
        let thousandths = 1_000 - variation + random;
        steps.push(ProgramStep::Compute(self.compute.times(thousandths).divided_by(1_000 * part)));
    }

    /// Counts keys, sends the counts, scatters, sends the keys, ranks them.
    fn sort(&self, rank: usize, steps: &mut Vec<ProgramStep>) {
        self.compute(rank, 3, steps);
        all_to_all(rank, 4 << 10, steps);
        self.compute(rank, 3, steps);
        all_to_all(rank, (self.size * f64::from(32 << 10)) as u32, steps);
        self.compute(rank, 3, steps);
    }

    /// Two dimensions locally, a transpose, the third and its inverse, a transpose, two dimensions locally.
    fn transform(&self, rank: usize, steps: &mut Vec<ProgramStep>) {
        self.compute(rank, 3, steps);
        all_to_all(rank, 64 << 10, steps);
        self.compute(rank, 3, steps);
        all_to_all(rank, 64 << 10, steps);
        self.compute(rank, 3, steps);
    }

    /// Edges three planes at a time, then a sweep from each corner, plane by plane. Three passes over all points.
    fn sweep(&self, rank: usize, steps: &mut Vec<ProgramStep>) {
        let sides = neighbours(rank);
        let present = || sides.iter().flatten();
        for first in (0..PLANES).step_by(3) {
            let planes = (PLANES - first).min(3) as u32;
            steps.extend(present().map(|(peer, edge)| send(rank, *peer, planes * edge)));
        }
        for _ in (0..PLANES).step_by(3) {
            steps.extend(present().map(|(peer, _)| receive(rank, *peer)));
        }
        self.compute(rank, 3, steps);
        let [west, east, north, south] = sides;
        for (before, after) in [([west, north], [east, south]), ([east, south], [west, north])] {
            for _ in 0..PLANES {
                steps.extend(before.iter().flatten().map(|(peer, _)| receive(rank, *peer)));
                self.compute(rank, 3 * PLANES as u64, steps);
                steps.extend(after.iter().flatten().map(|(peer, edge)| send(rank, *peer, *edge)));
            }
        }
    }

    /// The time from the start to the end of the slowest rank.
    fn run(&self, iterations: u32, paths: u8, cut: Option<SimulatedCut>) -> Result<SimSpan> {
        let program = |rank: usize| HostProgram { host: NodeId(rank as u32), steps: self.steps(rank, iterations) };
        let programs = (0..RANKS).map(program);
        let testbed = SimulatedTestbed {
            connections: std::iter::repeat_n((), self.queue_pairs).flat_map(|()| pairs()).collect(),
            paths,
            loading: AlternateLoading::Automatic,
            programs: programs.collect(),
            link: self.parameters.link,
        };
        let reports = testbed.run(cut)?;
        let ended = reports.iter().filter_map(|report| report.marks.last()).max().context("no rank ended")?;
        Ok(ended.since(BEGIN))
    }
}

/// A connection for every two ranks.
fn pairs() -> impl Iterator<Item = [usize; 2]> {
    (0..RANKS).flat_map(|one| (one + 1..RANKS).map(move |other| [one, other]))
}

fn connection(one: usize, other: usize) -> usize {
    let (low, high) = (one.min(other), one.max(other));
    // The connections of the lower ranks, then those of this one, in the order of `pairs`.
    low * (2 * RANKS - low - 1) / 2 + high - low - 1
}

fn send(rank: usize, peer: usize, length: u32) -> ProgramStep {
    ProgramStep::Send { connection: connection(rank, peer), length }
}

fn receive(rank: usize, peer: usize) -> ProgramStep {
    ProgramStep::Receive { connection: connection(rank, peer) }
}

fn all_to_all(rank: usize, length: u32, steps: &mut Vec<ProgramStep>) {
    let others = || (1..RANKS).map(|distance| rank ^ distance);
    steps.extend(others().map(|peer| send(rank, peer, length)));
    steps.extend(others().map(|peer| receive(rank, peer)));
}

/// The neighbours to the west, east, north and south, and the bytes of an edge: 32 or 16 points of 5 values.
fn neighbours(rank: usize) -> [Option<(usize, u32)>; 4] {
    let (column, row, rows) = (rank % COLUMNS, rank / COLUMNS, RANKS / COLUMNS);
    [
        (column > 0).then(|| (rank - 1, 1_280)),
        (column + 1 < COLUMNS).then(|| (rank + 1, 1_280)),
        (row > 0).then(|| (rank - COLUMNS, 640)),
        (row + 1 < rows).then(|| (rank + COLUMNS, 640)),
    ]
}

impl KernelModel {
    /// Milliseconds that a cut costs, at so many moments of a run with armed alternates.
    fn lost_ms(&self, cuts: u32, notice: LinkNotification) -> Result<Option<QuartileSummary>> {
        let armed = self.run(self.iterations, 2, None)?;
        let mut lost = Vec::new();
        for moment in 0..cuts {
            // In the middle of one of `cuts` equal parts; the ranks take turns, as in the measured runs.
            let at = BEGIN + armed.times(2 * u64::from(moment) + 1).divided_by(2 * u64::from(cuts));
            let cut = SimulatedCut { host: (moment as usize * 3) % RANKS, at, notice };
            lost.push((micros(self.run(self.iterations, 2, Some(cut))?) - micros(armed)) / 1e3);
        }
        Ok(QuartileSummary::of(lost))
    }
}

/// Runs a kernel without alternates, with armed ones, and with each kind of cut at so many moments.
pub(super) fn simulate_slowdown(
    kernel: NasKernel,
    parameters: MigrationParameters,
    cuts: u32,
    seed: u64,
) -> Result<SimulatedSlowdown> {
    let model = KernelModel::of(kernel, parameters, seed);
    let long = LONG_RUN_FACTOR * model.iterations;
    let (plain, long_armed) = (model.run(long, 1, None)?, model.run(long, 2, None)?);
    let armed = model.run(model.iterations, 2, None)?;
    let many = KernelModel { queue_pairs: MANY_QUEUE_PAIRS, ..model };
    Ok(SimulatedSlowdown {
        kernel,
        iterations: model.iterations,
        compute_us: micros(model.compute),
        plain_ms: micros(plain) / 1e3,
        armed_ms: micros(armed) / 1e3,
        armed_percent: 100.0 * (micros(long_armed) / micros(plain) - 1.0),
        silent_ms: model.lost_ms(cuts, LinkNotification::Silent)?,
        noticed_ms: model.lost_ms(cuts, LinkNotification::Notified)?,
        many_silent_ms: many.lost_ms(cuts.min(MAX_FURTHER_CUTS), LinkNotification::Silent)?,
    })
}

/// Runs IS of both classes with silent cuts at so many moments.
pub(super) fn simulate_classes(parameters: MigrationParameters, cuts: u32, seed: u64) -> Result<SimulatedClasses> {
    let share = |size: f64| -> Result<f64> {
        let model = KernelModel::of(NasKernel::IntegerSort, parameters, seed);
        let compute = nanos(1e3 * size * parameters.kernels.is_us);
        let model = KernelModel { size, compute, iterations: CLASS_ITERATIONS, ..model };
        let run_ms = micros(model.run(model.iterations, 2, None)?) / 1e3;
        let lost = model.lost_ms(cuts.min(MAX_FURTHER_CUTS), LinkNotification::Silent)?.context("no cut")?;
        Ok(100.0 * lost.median / run_ms)
    };
    Ok(SimulatedClasses { class_a_percent: share(1.0)?, class_b_percent: share(parameters.kernels.class_b_by_a)? })
}

#[cfg(test)]
mod tests {
    use super::super::parameters::TEXT;
    use super::*;

    #[test]
    fn connection_numbers_follow_the_order_of_pairs() {
        for (number, [one, other]) in pairs().enumerate() {
            assert_eq!([connection(one, other), connection(other, one)], [number; 2]);
        }
    }

    fn model(kernel: NasKernel) -> KernelModel {
        KernelModel::of(kernel, MigrationParameters::parse(TEXT).expect("the shipped file is valid"), 1)
    }

    #[test]
    fn queue_pairs_are_used_in_turn() {
        let mut steps = vec![send(0, 1, 8), send(0, 2, 8), receive(0, 1), send(0, 1, 8), send(0, 1, 8)];
        KernelModel { queue_pairs: 2, ..model(NasKernel::Wavefront) }.spread(&mut steps);
        let used = |step: &ProgramStep| match step {
            ProgramStep::Send { connection, .. } | ProgramStep::Receive { connection } => *connection,
            _ => usize::MAX,
        };
        assert_eq!(steps.iter().map(used).collect::<Vec<_>>(), [0, 1, 0, 28, 0]);
    }

    #[test]
    fn every_send_has_a_receive() {
        for kernel in NasKernel::ALL {
            let steps: Vec<Vec<ProgramStep>> = (0..RANKS).map(|rank| model(kernel).steps(rank, 3)).collect();
            for [one, other] in pairs() {
                let count = |rank: usize, what: fn(&ProgramStep, usize) -> bool| {
                    steps[rank].iter().filter(|step| what(step, connection(one, other))).count()
                };
                let sends = |step: &ProgramStep, wanted| matches!(step, ProgramStep::Send { connection, .. } if *connection == wanted);
                let waits = |step: &ProgramStep, wanted| matches!(step, ProgramStep::Receive { connection } if *connection == wanted);
                assert_eq!(count(one, sends), count(other, waits), "{kernel:?}: {one} to {other}");
                assert_eq!(count(other, sends), count(one, waits), "{kernel:?}: {other} to {one}");
            }
        }
    }
}
