//! Runs one contender once: starts its processes, hears what rank 0 has measured.

use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use namespaces::NamespaceNetwork;
use serde::Serialize;

use super::rank::MeasureTimes;
use crate::local_fabric::LocalFabric;
use crate::local_fabric::child_process::{ChildProcess, OutputLine, StderrMode};
use crate::local_fabric::rank_launcher::{RankHosts, RankLauncher};

/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);
/// The MPI twin of a rank.
pub(crate) const MPI_PEER_SOURCE: &str = include_str!("peer.c");

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contender {
    /// As is estimated to be best.
    Pleach,
    /// Everything through aggregation nodes.
    Nodes,
    /// Barriers and broadcasts by one who speaks to all, as in the Quadrics library.
    Multicast,
    /// Ours without nodes.
    HostsAlone,
    OpenMpi,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pleach => "Pleach",
            Self::Nodes => "through nodes",
            Self::Multicast => "by multicast",
            Self::HostsAlone => "hosts alone",
            Self::OpenMpi => "Open MPI",
        })
    }
}

/// How long to measure.
#[derive(Clone, Copy)]
pub(crate) struct SampleBudget {
    pub(crate) batches: u32,
    pub(crate) seconds: f64,
}

impl SampleBudget {
    pub(crate) const QUICK: Self = Self { batches: 3, seconds: 0.03 };
    pub(crate) const CALM: Self = Self { batches: 7, seconds: 0.1 };
}

/// Where ranks are.
#[derive(Clone, Copy)]
pub(crate) enum BenchPlacement<'a> {
    OneHost,
    Loopback,
    Namespaces(&'a NamespaceNetwork),
}

/// What one measure took in one round.
pub(crate) struct BenchSample {
    /// The median over batches.
    pub micros: f64,
    pub cpu_micros: f64,
}

/// What one run brought.
pub(crate) struct BenchRun {
    pub took: Vec<BenchSample>,
    /// How an allreduce of eight bytes went, in the words of rank 0: only ours can say.
    pub way: Option<String>,
}

impl Contender {
    /// What its ranks are told to use.
    const fn algorithm(self) -> Option<&'static str> {
        match self {
            Self::Nodes => Some("aggregation"),
            Self::Multicast => Some("multicast"),
            Self::Pleach | Self::HostsAlone | Self::OpenMpi => None,
        }
    }

    /// Runs our own ranks.
    pub(super) fn run(
        self,
        ranks: u32,
        site: BenchPlacement<'_>,
        measures: &[&str],
        pace: SampleBudget,
        nodes: Option<&mut LocalFabric>,
    ) -> Result<BenchRun> {
        let hosts = match site {
            BenchPlacement::OneHost => RankHosts::This,
            BenchPlacement::Loopback => RankHosts::Pretended { per_host: 1 },
            BenchPlacement::Namespaces(network) => RankHosts::Namespaces { network, per_host: 1 },
        };
        let nodes = nodes.filter(|_| self != Self::HostsAlone);
        let mut variables = nodes.as_ref().map_or_else(Vec::new, |nodes| nodes.variables());
        variables.extend(self.algorithm().map(|name| ("PLEACH_ALGORITHM", name.to_owned())));
        let job = RankLauncher::new("bench", ranks, hosts)?.without_settings().with(variables);
        let own = crate::local_fabric::own_executable()?;
        let mut program = vec![own.into_os_string(), "bench-rank".into()];
        program.extend(["--batches".into(), pace.batches.to_string().into()]);
        program.extend(["--seconds".into(), pace.seconds.to_string().into()]);
        program.extend(measures.iter().map(|measure| (*measure).into()));
        let (say, heard) = channel();
        let mut services = Vec::new();
        for rank in 0..ranks {
            let listener = (rank == 0).then(|| (rank, say.clone()));
            let name = format!("rank {rank}");
            services.push(ChildProcess::start(&name, &mut job.command(rank, &program), StderrMode::Kept, listener)?);
        }
        drop(say);
        let run = collect_samples(&heard, measures, nodes.as_deref(), &mut services)?;
        for service in &mut services {
            let status = service.kill_and_wait_after(Duration::from_secs(10));
            ensure!(
                status.success(),
                "{} {}{}",
                service.name(),
                crate::local_fabric::how(status),
                service.last_words()
            );
        }
        Ok(run)
    }
}

/// Hears rank 0, which measures in the given order. What the nodes take in processor time meanwhile counts as well.
pub(crate) fn collect_samples(
    heard: &Receiver<OutputLine>,
    measures: &[&str],
    nodes: Option<&LocalFabric>,
    services: &mut [ChildProcess],
) -> Result<BenchRun> {
    let began = Instant::now();
    let mut took: Vec<BenchSample> = Vec::new();
    let mut way = None;
    let node_micros = || nodes.map_or(0.0, LocalFabric::processor_micros);
    let mut before = 0.0;
    while took.len() < measures.len() {
        let line = match heard.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
            Ok((_, Some(line))) => line,
            _ => {
                let words: String = services.iter().map(ChildProcess::last_words).collect();
                bail!("rank 0 ended, or took longer than {PATIENCE:?}, before all was measured{words}");
            }
        };
        if line.starts_with("begin ") {
            before = node_micros();
        } else if let Some(text) = line.strip_prefix("note ") {
            way = Some(text.to_owned());
        } else if let Some(text) = line.strip_prefix("end ") {
            let spent = node_micros() - before;
            let times: MeasureTimes = serde_json::from_str(text).with_context(|| format!("rank 0 said {line:?}"))?;
            ensure!(times.measure == measures[took.len()], "rank 0 measured {} out of turn", times.measure);
            let operations = f64::from(times.iterations) * times.micros.len() as f64;
            let mut sorted = times.micros;
            sorted.sort_by(f64::total_cmp);
            let micros = *sorted.get(sorted.len() / 2).context("rank 0 measured nothing")?;
            took.push(BenchSample { micros, cpu_micros: times.cpu_micros + spent / operations });
        }
    }
    Ok(BenchRun { took, way })
}
