//! The scene "gloo": allreduces of long vectors between two hosts made of network namespaces, by gloo and by Pleach in turn.
//!
//! It compares the interfaces of two libraries, without an MPI: `torch.distributed` with its backend gloo from Python
//! (`collectives/gloo_peer.py`), and Pleach's Rust API (`collectives/rank.rs`). Both sum the same doubles in place, and both programs
//! warm up, repeat and check in the same way. Pleach has its default settings. A call from Python takes some microseconds, an
//! operation of these sizes hundreds or more.

use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use anyhow::{Context, Result, bail};
use namespaces::NamespaceNetwork;
use serde::Serialize;

use crate::bench::TrialSummary;
use crate::bench::byte_size::ByteSize;
use crate::bench::collectives::GLOO_PEER_SOURCE;
use crate::bench::collectives::contender::Contender;
use crate::bench::rank_processes::wait_for_success;
use crate::bench::samples::{BenchPlacement, BenchSample, SampleBudget, collect_samples};
use crate::bench::target_verdict::TargetVerdict;
use crate::local_fabric::child_process::{ChildProcess, StderrMode, launch_rank_command};
use crate::local_fabric::own_executable;
use crate::report::{TableRows, with_header};

/// Debian's own interpreter: another one earlier in the path does not find its packages.
const PYTHON: &str = "/usr/bin/python3";
/// Prints the version of torch if it has gloo.
const PROBE: &str =
    "import torch.distributed\nfrom torch._C._distributed_c10d import ProcessGroupGloo\nprint(torch.__version__)";
/// The network device of a host made of a namespace.
const DEVICE: &str = "net0";
const HOSTS: u32 = 2;
/// The ranks of gloo meet here. Each run has the next port, since connections of the last one may linger.
const FIRST_PORT: u32 = 7500;
const SIZES: [ByteSize; 2] = [ByteSize(1 << 20), ByteSize(25 << 20)];
/// Upper bound of the ratio.
const BOUND: f64 = 0.6;

/// The results of all sizes and MTUs.
#[derive(Serialize)]
pub(super) struct GlooReport {
    torch: String,
    rows: Vec<GlooRow>,
}

/// One size at one MTU.
#[derive(Serialize)]
struct GlooRow {
    mtu_bytes: u32,
    bytes: ByteSize,
    /// Microseconds of one operation, over rounds.
    gloo: TrialSummary,
    pleach: TrialSummary,
    /// Pleach over gloo, round by round.
    ratio: TrialSummary,
    target: f64,
    verdict: TargetVerdict,
    /// Processor microseconds of one operation, of both ranks.
    gloo_cpu: TrialSummary,
    pleach_cpu: TrialSummary,
    cpu_ratio: TrialSummary,
}

/// Measures at these MTUs. Without torch there is a note instead of a report.
///
/// # Errors
/// If hosts cannot be created, or a run fails.
pub(super) fn run(
    mtus_bytes: &[u32],
    rounds: u32,
    budget: SampleBudget,
    notes: &mut Vec<String>,
) -> Result<Option<GlooReport>> {
    let torch = match torch_version() {
        Ok(torch) => torch,
        Err(error) => {
            notes.push(format!("gloo: not measured: {error:#}"));
            return Ok(None);
        }
    };
    let mut rows = Vec::new();
    for mtu_bytes in mtus_bytes {
        let network = NamespaceNetwork::with_mtu(HOSTS as usize, *mtu_bytes)?;
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            eprintln!("gloo, MTU {mtu_bytes}, round {} of {rounds}", round + 1);
            samples[0].push(run_gloo(&network, round, budget).context("gloo")?);
            samples[1].push(run_pleach(&network, budget).context("Pleach beside gloo")?);
        }
        rows.extend(SIZES.iter().enumerate().map(|(index, bytes)| GlooRow::new(*mtu_bytes, *bytes, &samples, index)));
    }
    Ok(Some(GlooReport { torch, rows }))
}

fn torch_version() -> Result<String> {
    let output = Command::new(PYTHON).args(["-c", PROBE]).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {PYTHON} (Debian: python3, python3-torch)"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().last().unwrap_or("no reason given");
        bail!("{PYTHON} has no torch.distributed with gloo; install the Debian package python3-torch ({why})");
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// All measures, by the names that both programs read.
fn measures() -> [String; 2] {
    SIZES.map(|ByteSize(bytes)| format!("allreduce:{bytes}"))
}

/// Runs two ranks of gloo once.
fn run_gloo(network: &NamespaceNetwork, run: u32, budget: SampleBudget) -> Result<Vec<BenchSample>> {
    let (own, names) = (own_executable()?, measures());
    let meeting = format!("tcp://{}:{}", network.host(0).address(), FIRST_PORT + run);
    let (sender, output) = channel();
    let mut processes = Vec::new();
    for rank in 0..HOSTS {
        let host = network.host(rank as usize);
        let mut command = launch_rank_command(&own, Some(&host.namespace_path()));
        command.args([PYTHON, "-c", GLOO_PEER_SOURCE, &meeting, &rank.to_string(), &HOSTS.to_string()]);
        command.args([budget.batches.to_string(), budget.seconds.to_string()]).args(&names);
        command.env("GLOO_SOCKET_IFNAME", DEVICE);
        let listener = (rank == 0).then(|| (rank, sender.clone()));
        let name = format!("rank {rank}");
        processes.push(ChildProcess::start(&name, &mut command, StderrMode::Captured, listener)?);
    }
    drop(sender);
    let run = collect_samples(&output, &names.each_ref().map(String::as_str), None, &processes)?;
    wait_for_success(&mut processes)?;
    Ok(run.samples)
}

/// Runs two ranks of Pleach once.
fn run_pleach(network: &NamespaceNetwork, budget: SampleBudget) -> Result<Vec<BenchSample>> {
    let placement = BenchPlacement::Namespaces { network, ranks_per_host: 1 };
    let names = measures();
    let names = names.each_ref().map(String::as_str);
    Ok(Contender::HostsAlone.run(HOSTS, placement, &names, budget, None)?.samples)
}

impl GlooRow {
    /// From the samples of gloo and of Pleach, round by round; each round has a sample for every measure.
    fn new(mtu_bytes: u32, bytes: ByteSize, samples: &[Vec<Vec<BenchSample>>; 2], index: usize) -> Self {
        let of = |pick: fn(&BenchSample) -> f64| {
            let [gloo, pleach] =
                samples.each_ref().map(|rounds| rounds.iter().map(|round| pick(&round[index])).collect::<Vec<f64>>());
            let ratio = TrialSummary::of(pleach.iter().zip(&gloo).map(|(pleach, gloo)| pleach / gloo).collect());
            (TrialSummary::of(gloo), TrialSummary::of(pleach), ratio)
        };
        let (gloo, pleach, ratio) = of(|sample| sample.micros);
        let (gloo_cpu, pleach_cpu, cpu_ratio) = of(|sample| sample.cpu_micros);
        let verdict = TargetVerdict::of(&ratio, BOUND);
        Self { mtu_bytes, bytes, gloo, pleach, ratio, target: BOUND, verdict, gloo_cpu, pleach_cpu, cpu_ratio }
    }

    fn cells(&self) -> [String; 10] {
        let cpu = |micros: TrialSummary| format!("{:.2} ns/B", micros.median * 1e3 / self.bytes.0 as f64);
        [
            self.mtu_bytes.to_string(),
            self.bytes.to_string(),
            self.gloo.to_string(),
            self.pleach.to_string(),
            self.ratio.to_string(),
            format!("{:.2}", self.target),
            self.verdict.to_string(),
            cpu(self.gloo_cpu),
            cpu(self.pleach_cpu),
            self.cpu_ratio.to_string(),
        ]
    }
}

/// Title and rows of the table.
pub(super) fn section(report: &GlooReport) -> (String, TableRows) {
    let title = format!(
        "Allreduce of doubles between {HOSTS} hosts: gloo of torch {} (Python) and Pleach (Rust), without an MPI",
        report.torch
    );
    let header =
        ["MTU", "size", "gloo, us", "Pleach, us", "ratio", "target", "", "CPU gloo", "CPU Pleach", "CPU ratio"];
    (title, with_header(header, report.rows.iter().map(GlooRow::cells)))
}

impl GlooReport {
    pub(super) fn verdicts(&self) -> impl Iterator<Item = TargetVerdict> {
        self.rows.iter().map(|row| row.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_judged_by_the_median_of_its_ratios() {
        let round =
            |times: [f64; 2]| Vec::from_iter(times.map(|micros| BenchSample { micros, cpu_micros: micros * 2.0 }));
        let gloo = vec![round([100.0, 1000.0]), round([200.0, 1000.0]), round([100.0, 1000.0])];
        let pleach = vec![round([60.0, 500.0]), round([100.0, 700.0]), round([90.0, 800.0])];
        let samples = [gloo, pleach];
        let rows = [0, 1].map(|index| GlooRow::new(1500, SIZES[index], &samples, index));
        assert_eq!(rows.each_ref().map(|row| row.ratio.median), [0.6, 0.7]);
        assert_eq!(rows.each_ref().map(|row| row.verdict), [TargetVerdict::Met, TargetVerdict::WithinSpread]);
        assert_eq!(rows[1].pleach_cpu.median, 1400.0);
    }

    #[test]
    fn both_programs_get_the_sizes_in_bytes() {
        assert_eq!(measures(), ["allreduce:1048576", "allreduce:26214400"]);
    }
}
