//! Runs one contender once: starts its processes and collects the samples of rank 0.

use std::fmt;
use std::sync::mpsc::channel;

use anyhow::Result;
use serde::Serialize;

use crate::bench::rank_processes::wait_for_success;
use crate::bench::samples::{BenchPlacement, BenchRun, SampleBudget, collect_samples};
use crate::local_fabric::LocalFabric;
use crate::local_fabric::child_process::{ChildProcess, StderrMode};
use crate::local_fabric::rank_launcher::{RankHosts, RankLauncher};

/// An implementation that is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::bench) enum Contender {
    /// Pleach with its own choice of algorithms.
    Pleach,
    /// Pleach with all operations through aggregation nodes.
    Nodes,
    /// Pleach with barriers and broadcasts by multicast from one rank, as in the Quadrics library.
    Multicast,
    /// Pleach without aggregation nodes.
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

impl Contender {
    /// The algorithm that its ranks must use; none for their own choice.
    const fn algorithm(self) -> Option<&'static str> {
        match self {
            Self::Nodes => Some("aggregation"),
            Self::Multicast => Some("multicast"),
            Self::Pleach | Self::HostsAlone | Self::OpenMpi => None,
        }
    }

    /// Runs ranks of Pleach.
    pub(in crate::bench) fn run(
        self,
        ranks: u32,
        placement: BenchPlacement<'_>,
        measures: &[&str],
        budget: SampleBudget,
        nodes: Option<&mut LocalFabric>,
    ) -> Result<BenchRun> {
        let hosts = match placement {
            BenchPlacement::OneHost => RankHosts::Local,
            BenchPlacement::Loopback => RankHosts::Emulated { per_host: 1 },
            BenchPlacement::Namespaces { network, ranks_per_host: per_host } => {
                RankHosts::Namespaces { network, per_host }
            }
        };
        let nodes = nodes.filter(|_| self != Self::HostsAlone);
        let mut variables = nodes.as_ref().map(|nodes| nodes.variables()).transpose()?.unwrap_or_default();
        variables.extend(self.algorithm().map(|name| ("PLEACH_ALGORITHM", name.to_owned())));
        let job = RankLauncher::new("bench", ranks, hosts)?.without_settings().with(variables);
        let own = crate::local_fabric::own_executable()?;
        let mut program = vec![own.into_os_string(), "bench-rank".into()];
        program.extend(["--batches".into(), budget.batches.to_string().into()]);
        program.extend(["--seconds".into(), budget.seconds.to_string().into()]);
        program.extend(measures.iter().map(|measure| (*measure).into()));
        let (sender, output) = channel();
        let mut processes = Vec::new();
        for rank in 0..ranks {
            let listener = (rank == 0).then(|| (rank, sender.clone()));
            let name = format!("rank {rank}");
            processes.push(ChildProcess::start(
                &name,
                &mut job.command(rank, &program),
                StderrMode::Captured,
                listener,
            )?);
        }
        drop(sender);
        let run = collect_samples(&output, measures, nodes.as_deref(), &processes)?;
        wait_for_success(&mut processes)?;
        Ok(run)
    }
}
