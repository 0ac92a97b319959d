//! Runs a kernel on eight ranks, over the network or in memory.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use transport::udp::{EndpointCounters, LinkCut};

use super::fourier::Fourier;
use super::integer_sort::IntegerSort;
use super::transport::{KernelMemoryTransport, MessageDigest, RANKS};
use super::udp_transport::{KernelRendezvous, KernelUdpTransport, ObservedMigration};
use super::wavefront::Wavefront;
use super::{KernelRank, NasKernel};
use crate::cpu_time::{CpuTicks, thread_cpu_time};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelJob {
    pub kernel: NasKernel,
    pub iterations: u32,
    pub paths: PathCount,
    pub fault: Option<KernelFault>,
}

/// The number of paths of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PathCount {
    /// No alternate.
    One,
    /// An alternate, armed before the kernel begins.
    Two,
}

/// The cable of one rank's first port is cut for good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFault {
    pub rank: usize,
    pub cut: LinkCut,
    /// The cut happens in this iteration of that rank, `pause` after its start.
    pub iteration: u32,
    pub pause: Duration,
}

/// A run whose result is correct: a wrong result is an error.
#[derive(Clone, Debug)]
pub(crate) struct KernelRun {
    /// From the time when all connections are armed to the end of the slowest rank.
    pub elapsed: Duration,
    /// Processor time of all ranks in that time.
    pub spent: Option<Duration>,
    /// The share of all processors that other programs used in that time.
    pub others: Option<f64>,
    /// Digest of every byte that any rank received.
    pub digest: u64,
    pub cut: Option<CutOutcome>,
    /// Ends that migrated although their path was not cut.
    pub stray_moves: usize,
    /// Start of each iteration at the rank that was cut, or else at rank 0, since the start of the run.
    pub starts: Vec<Duration>,
    /// Packets that were retransmitted.
    pub repeated: u64,
}

/// The migrations that a cut caused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutOutcome {
    /// Time of the cut, since the start of the run.
    pub at: Duration,
    /// Ends that migrated, of both ends of the connections of one rank.
    pub moved: usize,
    /// From the cut to the last of these migrations.
    pub last_after: Duration,
}

/// Runs a kernel over the network.
///
/// # Errors
/// If a rank fails, or the result is wrong.
pub(crate) fn run_kernel(job: &KernelJob) -> Result<KernelRun> {
    let ran = match job.kernel {
        NasKernel::IntegerSort => run_as::<IntegerSort>(job),
        NasKernel::Fourier => run_as::<Fourier>(job),
        NasKernel::Wavefront => run_as::<Wavefront>(job),
    };
    ran.with_context(|| format!("{}, {} iterations", job.kernel.name(), job.iterations))
}

/// The digests of the same kernel in memory after each iteration.
///
/// # Errors
/// If the result is wrong.
pub(crate) fn reference_digests(kernel: NasKernel, iterations: u32) -> Result<Vec<u64>> {
    match kernel {
        NasKernel::IntegerSort => reference_as::<IntegerSort>(iterations),
        NasKernel::Fourier => reference_as::<Fourier>(iterations),
        NasKernel::Wavefront => reference_as::<Wavefront>(iterations),
    }
}

/// The results of one rank.
struct KernelRankReport {
    finished: Instant,
    spent: Option<Duration>,
    machine_busy: Option<Duration>,
    digest: u64,
    starts: Vec<Instant>,
    moves: Vec<ObservedMigration>,
    cut_at: Option<Instant>,
    counters: EndpointCounters,
}

fn run_as<W: KernelRank>(job: &KernelJob) -> Result<KernelRun> {
    let rendezvous = KernelRendezvous::default();
    let began: OnceLock<(Instant, Option<Duration>)> = OnceLock::new();
    let ranks = KernelUdpTransport::all(job, W::RECEIVE_BUFFERS, &rendezvous)?;
    let part = |rank, mut net: KernelUdpTransport<'_>| {
        let done = work::<W>(rank, &mut net, job, &began);
        if done.is_err() {
            rendezvous.fail();
        }
        done
    };
    let reports: Vec<KernelRankReport> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            ranks.into_iter().enumerate().map(|(rank, net)| scope.spawn(move || part(rank, net))).collect();
        let ends: Vec<Result<KernelRankReport>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a rank panicked"))))
            .collect();
        first_cause(ends)
    })?;
    let (began, machine_busy) = *began.get().expect("every rank has begun");
    Ok(summary(job, began, machine_busy, &reports))
}

/// All reports, or the error that caused the others.
fn first_cause(ends: Vec<Result<KernelRankReport>>) -> Result<Vec<KernelRankReport>> {
    let mut reports = Vec::new();
    let mut errors = Vec::new();
    for end in ends {
        match end {
            Ok(report) => reports.push(report),
            Err(error) => errors.push(error),
        }
    }
    errors.sort_by_key(|error| error.to_string().ends_with("another rank has failed"));
    errors.into_iter().next().map_or(Ok(reports), Err)
}

fn work<W: KernelRank>(
    rank: usize,
    net: &mut KernelUdpTransport<'_>,
    job: &KernelJob,
    began: &OnceLock<(Instant, Option<Duration>)>,
) -> Result<KernelRankReport> {
    let mut work = W::new(rank);
    net.wait_until_ready()?;
    began.get_or_init(|| (Instant::now(), CpuTicks::now().map(CpuTicks::busy_time)));
    let before = thread_cpu_time();
    let mut starts = Vec::with_capacity(job.iterations as usize);
    for iteration in 0..job.iterations {
        starts.push(Instant::now());
        net.begin(iteration);
        work.step(net, iteration)?;
    }
    let finished = Instant::now();
    let spent = before.zip(thread_cpu_time()).map(|(before, after)| after.saturating_sub(before));
    let machine_busy = CpuTicks::now().map(CpuTicks::busy_time);
    let digest = net.received.digest();
    work.verify(net)?;
    net.wait_until_done()?;
    Ok(KernelRankReport {
        finished,
        spent,
        machine_busy,
        digest,
        starts,
        moves: std::mem::take(&mut net.moves),
        cut_at: net.cut_at,
        counters: net.counters(),
    })
}

fn summary(
    job: &KernelJob,
    began: Instant,
    machine_busy: Option<Duration>,
    reports: &[KernelRankReport],
) -> KernelRun {
    let last = reports.iter().max_by_key(|report| report.finished).expect("there are ranks");
    let elapsed = last.finished.saturating_duration_since(began);
    let spent: Option<Duration> = reports.iter().map(|report| report.spent).sum();
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let others = machine_busy.zip(last.machine_busy).zip(spent).map(|((before, after), own)| {
        let foreign = after.saturating_sub(before).saturating_sub(own);
        foreign.as_secs_f64() / elapsed.as_secs_f64().max(1e-9) / cores
    });
    let mut digest = MessageDigest::default();
    reports.iter().for_each(|report| digest.word(report.digest));
    let cut = job.fault.and_then(|fault| cut_outcome(fault, began, reports));
    let watched = &reports[job.fault.map_or(0, |fault| fault.rank)].starts;
    let moves: usize = reports.iter().map(|report| report.moves.len()).sum();
    KernelRun {
        elapsed,
        spent,
        others,
        digest: digest.get(),
        cut,
        stray_moves: moves - cut.map_or(0, |cut| cut.moved),
        starts: watched.iter().map(|start| start.saturating_duration_since(began)).collect(),
        repeated: reports.iter().map(|report| report.counters.repeated).sum(),
    }
}

/// The first migration after the cut at every end of a connection that was cut.
fn cut_outcome(fault: KernelFault, began: Instant, reports: &[KernelRankReport]) -> Option<CutOutcome> {
    let at = reports[fault.rank].cut_at?;
    let mut firsts: Vec<ObservedMigration> = Vec::new();
    for (rank, report) in reports.iter().enumerate() {
        for peer in (0..RANKS).filter(|peer| *peer != rank && (rank == fault.rank || *peer == fault.rank)) {
            firsts.extend(report.moves.iter().find(|moved| moved.peer == peer && moved.at >= at));
        }
    }
    Some(CutOutcome {
        at: at.saturating_duration_since(began),
        moved: firsts.len(),
        last_after: firsts.iter().map(|moved| moved.at.saturating_duration_since(at)).max().unwrap_or_default(),
    })
}

fn reference_as<W: KernelRank>(iterations: u32) -> Result<Vec<u64>> {
    let part = |rank, mut memory: KernelMemoryTransport| {
        let mut work = W::new(rank);
        let mut digests = Vec::with_capacity(iterations as usize);
        for iteration in 0..iterations {
            work.step(&mut memory, iteration)?;
            digests.push(memory.received.digest());
        }
        work.verify(&mut memory)?;
        Ok(digests)
    };
    let ranks: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = KernelMemoryTransport::all()
            .into_iter()
            .enumerate()
            .map(|(rank, memory)| scope.spawn(move || part(rank, memory)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a rank panicked"))))
            .collect::<Result<_>>()
    })?;
    let of_all_ranks = |iteration: usize| {
        let mut digest = MessageDigest::default();
        ranks.iter().for_each(|rank| digest.word(rank[iteration]));
        digest.get()
    };
    Ok((0..iterations as usize).map(of_all_ranks).collect())
}
