//! The cases: which measures are taken, on how many ranks, and where.

use std::collections::BTreeMap;

use anyhow::Result;
use indicatif::ProgressBar;
use namespaces::NamespaceNetwork;

use super::contender::Contender;
use super::{CollectivesCaseName, CollectivesCaseReport, CollectivesRow};
use crate::bench::TrialSummary;
use crate::bench::mpi_installation::MpiInstallation;
use crate::bench::samples::{BenchPlacement, BenchRun, BenchSample, SampleBudget};
use crate::local_fabric::child_process::StderrMode;
use crate::local_fabric::{self, FabricSite, LocalFabric, LocalFabricSpec};

/// Ranks in one place, and what they measure.
pub(super) struct CollectivesCase {
    pub name: CollectivesCaseName,
    pub title: &'static str,
    ranks: u32,
    measures: &'static [&'static str],
}

/// All cases.
pub(super) fn all() -> Vec<CollectivesCase> {
    vec![
        CollectivesCase {
            name: CollectivesCaseName::SharedMemory,
            title: "2 ranks of one host, in shared memory",
            ranks: 2,
            measures: &[
                "barrier",
                "allreduce:8",
                "allreduce:256",
                "allreduce:4096",
                "allreduce:65536",
                "allreduce:1048576",
                "broadcast:8",
                "broadcast:4096",
                "broadcast:1048576",
            ],
        },
        CollectivesCase {
            name: CollectivesCaseName::Namespaces,
            title: "16 hosts (network namespaces on one bridge), one rank each; Open MPI over TCP",
            ranks: 16,
            measures: &[
                "barrier",
                "allreduce:8",
                "allreduce:1024",
                "allreduce:4096",
                "broadcast:8",
                "broadcast:4096",
                "broadcast:65536",
                "broadcast:1048576",
            ],
        },
        CollectivesCase {
            name: CollectivesCaseName::Loopback,
            title: "64 processes over loopback, each as if on its own host; Open MPI over TCP",
            ranks: 64,
            measures: &["barrier", "allreduce:8", "allreduce:4096"],
        },
    ]
}

impl CollectivesCase {
    /// The implementations that are measured in this case.
    pub(super) fn contenders(&self, open_mpi: Option<&MpiInstallation>) -> Vec<Contender> {
        let pleach: &[Contender] = match self.name {
            CollectivesCaseName::SharedMemory => &[Contender::Pleach],
            CollectivesCaseName::Namespaces => {
                &[Contender::Pleach, Contender::Nodes, Contender::Multicast, Contender::HostsAlone]
            }
            CollectivesCaseName::Loopback | CollectivesCaseName::NodeMemory => {
                &[Contender::Pleach, Contender::HostsAlone]
            }
        };
        pleach.iter().copied().chain(open_mpi.map(|_| Contender::OpenMpi)).collect()
    }

    /// Measures all contenders in turn, round by round.
    pub(super) fn measure(
        &self,
        open_mpi: Option<&MpiInstallation>,
        rounds: u32,
        budget: SampleBudget,
        bar: &ProgressBar,
    ) -> Result<CollectivesCaseReport> {
        let network = match self.name {
            CollectivesCaseName::Namespaces => {
                Some(NamespaceNetwork::new(self.ranks as usize + local_fabric::hosts_for(1))?)
            }
            _ => None,
        };
        let site = match &network {
            Some(network) => FabricSite::Hosts { network, first: self.ranks as usize },
            None => FabricSite::Loopback,
        };
        let mut nodes = match self.name {
            CollectivesCaseName::SharedMemory => None,
            _ => Some(LocalFabric::start(&LocalFabricSpec {
                nodes: 1,
                site,
                faults: None,
                stderr: StderrMode::Captured,
            })?),
        };
        let placement = match (&network, self.name) {
            (Some(network), _) => BenchPlacement::Namespaces { network, ranks_per_host: 1 },
            (None, CollectivesCaseName::SharedMemory) => BenchPlacement::OneHost,
            (None, _) => BenchPlacement::Loopback,
        };
        let contenders = self.contenders(open_mpi);
        let mut samples: BTreeMap<(usize, Contender), Vec<BenchSample>> = BTreeMap::new();
        let mut explanations = BTreeMap::new();
        for round in 0..rounds {
            for contender in &contenders {
                bar.set_message(format!("{:?}, round {}: {contender}", self.name, round + 1));
                let run = match (contender, open_mpi) {
                    (Contender::OpenMpi, Some(mpi)) => mpi.run(self.ranks, placement, self.measures, budget, None)?,
                    _ => contender.run(self.ranks, placement, self.measures, budget, nodes.as_mut())?,
                };
                let BenchRun { samples: of_run, explanation } = run;
                for (measure, sample) in of_run.into_iter().enumerate() {
                    samples.entry((measure, *contender)).or_default().push(sample);
                }
                explanations.extend(explanation.map(|text| (*contender, text)));
                bar.inc(1);
            }
        }
        let ways = explanations.into_iter().map(|(contender, text)| format!("{contender}: {text}")).collect();
        Ok(CollectivesCaseReport { scene: self.name, title: self.title.to_owned(), rows: self.rows(&samples), ways })
    }

    /// One row for each measure and contender.
    fn rows(&self, samples: &BTreeMap<(usize, Contender), Vec<BenchSample>>) -> Vec<CollectivesRow> {
        let row = |((measure, contender), ours): (&(usize, Contender), &Vec<BenchSample>)| {
            let open_mpi = samples.get(&(*measure, Contender::OpenMpi)).filter(|_| *contender != Contender::OpenMpi);
            let ratio = open_mpi.map(|theirs| {
                TrialSummary::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours.micros / theirs.micros).collect())
            });
            CollectivesRow {
                measure: self.measures[*measure].to_owned(),
                contender: *contender,
                micros: TrialSummary::of(ours.iter().map(|sample| sample.micros).collect()),
                cpu_micros: TrialSummary::of(ours.iter().map(|sample| sample.cpu_micros).collect()),
                ratio,
            }
        };
        samples.iter().map(row).collect()
    }
}
