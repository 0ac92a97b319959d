//! Figures 9 to 12 in the paper's cluster: NAS kernels of classes A and B on four hosts with two ranks each.
//!
//! The messages are those of the benchmarks: their numbers, sizes and order follow from the classes' definitions. Computing is a delay.

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::cluster::{AdapterCluster, AdapterTimes, PulledCable};
use super::connection::{AdapterPathState, FirmwareJob};
use super::packet::Nanos;
use super::rank::{RankState, RankStep};
use crate::nas_kernels::{RANKS, splitmix64};
use crate::reproduce::path_migration::simulated::MigrationParameters;

/// Hosts of the paper; each has two ranks.
const HOSTS: usize = 4;
const RANKS_PER_HOST: usize = RANKS / HOSTS;

/// A benchmark of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) enum NasProgram {
    SortA,
    SortB,
    FourierB,
    WavefrontB,
}

/// LU has 250 iterations; the loss by a cut does not depend on how many follow it, so a few are simulated.
const WAVEFRONT_ITERATIONS: u64 = 250;
const SIMULATED_WAVEFRONT_ITERATIONS: u64 = 5;
/// LU of class B: points and planes of the sweeps, and its grid of ranks.
const WAVEFRONT_POINTS: u64 = 102;
const WAVEFRONT_PLANES: u64 = WAVEFRONT_POINTS - 2;
const WAVEFRONT_ROWS: usize = 2;
/// IS: buckets, and iterations.
const SORT_BUCKETS: u64 = 1024;
const SORT_ITERATIONS: u64 = 10;
/// FT of class B: complex numbers, and iterations.
const FOURIER_POINTS: u64 = 512 * 256 * 256;
const FOURIER_ITERATIONS: u64 = 20;

/// What a run of a program suffers.
#[derive(Clone, Copy)]
enum Suffering {
    Nothing,
    /// All ranks request a transition half-way.
    Request(FirmwareJob),
    Cable(PulledCable),
}

#[derive(Clone, Copy)]
struct ProgramModel<'p> {
    program: NasProgram,
    parameters: &'p MigrationParameters,
    queue_pairs: usize,
    seed: u64,
}

impl ProgramModel<'_> {
    /// Simulated iterations, and how many times as long the whole run is.
    fn iterations(&self) -> (u64, f64) {
        match self.program {
            NasProgram::SortA | NasProgram::SortB => (SORT_ITERATIONS, 1.0),
            NasProgram::FourierB => (FOURIER_ITERATIONS, 1.0),
            NasProgram::WavefrontB => {
                let share = WAVEFRONT_ITERATIONS as f64 / SIMULATED_WAVEFRONT_ITERATIONS as f64;
                (SIMULATED_WAVEFRONT_ITERATIONS, share)
            }
        }
    }

    fn keys(&self) -> u64 {
        1 << if self.program == NasProgram::SortA { 23 } else { 25 }
    }

    /// Computing of a rank in an iteration.
    fn computing(&self) -> f64 {
        let nas = &self.parameters.nas;
        match self.program {
            NasProgram::SortA | NasProgram::SortB => nas.sort_key_ns * self.keys() as f64 / RANKS as f64,
            NasProgram::FourierB => 1e9 * nas.fourier_s / FOURIER_ITERATIONS as f64,
            NasProgram::WavefrontB => 1e9 * nas.wavefront_s / WAVEFRONT_ITERATIONS as f64,
        }
    }

    fn steps(&self, rank: usize, request: Option<FirmwareJob>) -> Vec<RankStep> {
        let mut writer = ProgramWriter { model: self, rank, steps: Vec::new() };
        let (iterations, _) = self.iterations();
        for iteration in 0..iterations {
            if iteration == iterations / 2 {
                writer.steps.extend(request.map(RankStep::Request));
            }
            match self.program {
                NasProgram::SortA | NasProgram::SortB => writer.sort(),
                NasProgram::FourierB => writer.transform(),
                NasProgram::WavefrontB => writer.sweep(),
            }
        }
        writer.steps.push(RankStep::Mark);
        writer.steps
    }

    /// The time of the slowest rank.
    fn run(&self, suffering: Suffering) -> Result<Nanos> {
        let (request, cable) = match suffering {
            Suffering::Nothing => (None, None),
            Suffering::Request(job) => (Some(job), None),
            Suffering::Cable(cable) => (None, Some(cable)),
        };
        let state =
            if request == Some(FirmwareJob::Load) { AdapterPathState::Migrated } else { AdapterPathState::Armed };
        let ranks = (0..RANKS).map(|rank| RankState::new(RANKS, self.steps(rank, request))).collect();
        let mut cluster = AdapterCluster::new(AdapterTimes::of(self.parameters), HOSTS, ranks, cable);
        for [one, other] in pairs_between_hosts() {
            for _ in 0..self.queue_pairs {
                let connection = cluster.connect([one / RANKS_PER_HOST, other / RANKS_PER_HOST], state);
                cluster.ranks[one].add_queue_pair(other, 2 * connection);
                cluster.ranks[other].add_queue_pair(one, 2 * connection + 1);
            }
        }
        cluster.run();
        ensure!(cluster.broken.is_none(), "a connection lost its path without an alternate");
        ensure!(cluster.ranks.iter().all(RankState::is_finished), "{:?}: a rank waits for ever", self.program);
        cluster.ranks.iter().filter_map(|rank| rank.marks.last()).max().copied().context("no rank")
    }

    /// How much longer a run takes, in percent of the whole run.
    fn percent(&self, plain: Nanos, suffering: Suffering) -> Result<f64> {
        let longer = self.run(suffering)? as f64 - plain as f64;
        Ok(100.0 * longer / (plain as f64 * self.iterations().1))
    }

    /// A cable pulled at so many moments, spread evenly over the run; the hosts take turns.
    fn cuts(&self, plain: Nanos, cuts: u32) -> Result<CutLoss> {
        let percent = |moment: u32| {
            let at = plain * (2 * u64::from(moment) + 1) / (2 * u64::from(cuts));
            self.percent(plain, Suffering::Cable(PulledCable { host: moment as usize % HOSTS, at }))
        };
        let mut lost = (0..cuts).map(percent).collect::<Result<Vec<f64>>>()?;
        lost.sort_by(f64::total_cmp);
        let mean = lost.iter().sum::<f64>() / lost.len() as f64;
        Ok(CutLoss { count: cuts, mean, low: lost[0], high: lost[lost.len() - 1] })
    }
}

fn pairs_between_hosts() -> impl Iterator<Item = [usize; 2]> {
    let all = (0..RANKS).flat_map(|one| (one + 1..RANKS).map(move |other| [one, other]));
    all.filter(|[one, other]| one / RANKS_PER_HOST != other / RANKS_PER_HOST)
}

/// Writes the program of a rank.
struct ProgramWriter<'m> {
    model: &'m ProgramModel<'m>,
    rank: usize,
    steps: Vec<RankStep>,
}

impl ProgramWriter<'_> {
    /// A part of the computing of an iteration, a little more or less.
    fn compute(&mut self, share: f64) {
        let variation = self.model.parameters.kernels.variation;
        let random = splitmix64(self.model.seed << 40 ^ (self.steps.len() as u64) << 8 ^ self.rank as u64);
        let factor = 1.0 + variation * (2.0 * (random >> 11) as f64 / (1u64 << 53) as f64 - 1.0);
        self.steps.push(RankStep::Compute((self.model.computing() * share * factor).round() as Nanos));
    }

    fn exchange(&mut self, peers: &[(usize, u64)]) {
        self.steps.extend(peers.iter().map(|(peer, _)| RankStep::Post { peer: *peer }));
        self.steps.extend(peers.iter().map(|(peer, bytes)| RankStep::Send { peer: *peer, bytes: *bytes }));
        self.steps.extend(peers.iter().map(|(peer, _)| RankStep::Receive { peer: *peer }));
        self.steps.push(RankStep::WaitSent);
    }

    fn all_to_all(&mut self, bytes: u64) {
        let peers: Vec<(usize, u64)> = (1..RANKS).map(|distance| (self.rank ^ distance, bytes)).collect();
        self.exchange(&peers);
    }

    /// Recursive doubling.
    fn all_reduce(&mut self, bytes: u64) {
        for distance in [1, 2, 4] {
            self.exchange(&[(self.rank ^ distance, bytes)]);
        }
    }

    /// Bucket sizes, the numbers of keys to send, the keys.
    fn sort(&mut self) {
        self.compute(0.5);
        self.all_reduce(4 * SORT_BUCKETS);
        self.all_to_all(4);
        self.all_to_all(4 * self.model.keys() / (RANKS * RANKS) as u64);
        self.compute(0.5);
    }

    /// Two dimensions, a transpose, the third, a checksum.
    fn transform(&mut self) {
        self.compute(2.0 / 3.0);
        self.all_to_all(16 * FOURIER_POINTS / (RANKS * RANKS) as u64);
        self.compute(1.0 / 3.0);
        self.all_reduce(16);
    }

    /// Edges of all planes for the right-hand side, then a sweep from each corner, plane by plane.
    fn sweep(&mut self) {
        let sides = self.neighbours();
        let faces: Vec<(usize, u64)> =
            sides.iter().flatten().map(|(peer, edge)| (*peer, 2 * edge * WAVEFRONT_POINTS)).collect();
        self.exchange(&faces);
        self.compute(1.0 / 3.0);
        let [north, south, west, east] = sides;
        for (before, after) in [([north, west], [south, east]), ([south, east], [north, west])] {
            for _ in 0..WAVEFRONT_PLANES {
                for (peer, _) in before.into_iter().flatten() {
                    self.steps.extend([RankStep::Post { peer }, RankStep::Receive { peer }]);
                }
                self.compute(1.0 / (3.0 * WAVEFRONT_PLANES as f64));
                for (peer, bytes) in after.into_iter().flatten() {
                    self.steps.extend([RankStep::Send { peer, bytes }, RankStep::WaitSent]);
                }
            }
        }
    }

    /// The neighbours in the grid, and the bytes of an edge: five values for each of its points.
    fn neighbours(&self) -> [Option<(usize, u64)>; 4] {
        let columns = RANKS / WAVEFRONT_ROWS;
        let (row, column) = (self.rank % WAVEFRONT_ROWS, self.rank / WAVEFRONT_ROWS);
        let edge = |ranks: usize| 5 * 8 * WAVEFRONT_POINTS / ranks as u64;
        [
            (row > 0).then(|| (self.rank - 1, edge(columns))),
            (row + 1 < WAVEFRONT_ROWS).then(|| (self.rank + 1, edge(columns))),
            (column > 0).then(|| (self.rank - WAVEFRONT_ROWS, edge(WAVEFRONT_ROWS))),
            (column + 1 < columns).then(|| (self.rank + WAVEFRONT_ROWS, edge(WAVEFRONT_ROWS))),
        ]
    }
}

/// The percent of a run that a pulled cable costs: the paper prints the average.
#[derive(Clone, Copy, Serialize)]
pub(super) struct CutLoss {
    pub count: u32,
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

/// A program with one queue pair for every two ranks, and with many.
#[derive(Clone, Copy, Serialize)]
pub(super) struct AdapterSlowdown {
    pub program: NasProgram,
    pub run_s: f64,
    /// A transition of all queue pairs half-way, without a fault, in percent of the run; with many queue pairs.
    pub arming_percent: f64,
    pub migrating_percent: f64,
    /// A pulled cable, in percent of the run.
    pub few: CutLoss,
    pub many: CutLoss,
}

impl AdapterSlowdown {
    /// The larger cost of the two transitions.
    pub(super) fn free_percent(&self) -> f64 {
        self.arming_percent.max(self.migrating_percent)
    }
}

pub(super) fn simulate(
    program: NasProgram,
    parameters: &MigrationParameters,
    cuts: u32,
    seed: u64,
) -> Result<AdapterSlowdown> {
    let many = ProgramModel { program, parameters, queue_pairs: parameters.nas.queue_pairs as usize, seed };
    let few = ProgramModel { queue_pairs: 1, ..many };
    let (plain_few, plain_many) = (few.run(Suffering::Nothing)?, many.run(Suffering::Nothing)?);
    Ok(AdapterSlowdown {
        program,
        run_s: plain_many as f64 * many.iterations().1 / 1e9,
        arming_percent: many.percent(plain_many, Suffering::Request(FirmwareJob::Load))?,
        migrating_percent: many.percent(plain_many, Suffering::Request(FirmwareJob::Switch))?,
        few: few.cuts(plain_few, cuts)?,
        many: many.cuts(plain_many, cuts)?,
    })
}
