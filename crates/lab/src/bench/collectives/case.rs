//! What is measured, and where.

use std::collections::BTreeMap;

use anyhow::Result;
use indicatif::ProgressBar;
use namespaces::NamespaceNetwork;

use super::contender::{BenchPlacement, BenchRun, BenchSample, Contender, SampleBudget};
use super::{CollectivesCaseName, CollectivesCaseReport, CollectivesRow};
use crate::bench::migration::TrialSummary;
use crate::bench::mpi::installation::MpiInstallation;
use crate::local_fabric::{self, LocalFabric, LocalFabricSpec, child_process::StderrMode};

/// One place and what is measured there.
pub(super) struct CollectivesCase {
    pub name: CollectivesCaseName,
    pub title: &'static str,
    ranks: u32,
    measures: &'static [&'static str],
}

/// Every scene there is.
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
            title: "64 processes over loopback, each as a host of its own; Open MPI over TCP",
            ranks: 64,
            measures: &["barrier", "allreduce:8", "allreduce:4096"],
        },
    ]
}

impl CollectivesCase {
    /// Who takes part here.
    pub(super) fn contenders(&self, open_mpi: Option<&MpiInstallation>) -> Vec<Contender> {
        let ours: &[Contender] = match self.name {
            CollectivesCaseName::SharedMemory => &[Contender::Pleach],
            CollectivesCaseName::Namespaces => {
                &[Contender::Pleach, Contender::Nodes, Contender::Multicast, Contender::HostsAlone]
            }
            CollectivesCaseName::Loopback | CollectivesCaseName::NodeMemory => {
                &[Contender::Pleach, Contender::HostsAlone]
            }
        };
        ours.iter().copied().chain(open_mpi.map(|_| Contender::OpenMpi)).collect()
    }

    /// Lets the contenders take turns.
    pub(super) fn measure(
        &self,
        open_mpi: Option<&MpiInstallation>,
        rounds: u32,
        pace: SampleBudget,
        bar: &ProgressBar,
    ) -> Result<CollectivesCaseReport> {
        let network = match self.name {
            CollectivesCaseName::Namespaces => {
                Some(NamespaceNetwork::new(self.ranks as usize + local_fabric::hosts_for(1))?)
            }
            _ => None,
        };
        let site = match &network {
            Some(network) => local_fabric::FabricSite::Hosts { network, first: self.ranks as usize },
            None => local_fabric::FabricSite::Loopback,
        };
        let mut nodes = match self.name {
            CollectivesCaseName::SharedMemory => None,
            _ => {
                Some(LocalFabric::start(&LocalFabricSpec { nodes: 1, site, faults: None, voice: StderrMode::Kept })?)
            }
        };
        let site = match (&network, self.name) {
            (Some(network), _) => BenchPlacement::Namespaces(network),
            (None, CollectivesCaseName::SharedMemory) => BenchPlacement::OneHost,
            (None, _) => BenchPlacement::Loopback,
        };
        let contenders = self.contenders(open_mpi);
        let mut took: BTreeMap<(usize, Contender), Vec<BenchSample>> = BTreeMap::new();
        let mut ways = BTreeMap::new();
        for round in 0..rounds {
            for contender in &contenders {
                bar.set_message(format!("{:?}, round {}: {contender}", self.name, round + 1));
                let BenchRun { took: times, way } = match (contender, open_mpi) {
                    (Contender::OpenMpi, Some(mpi)) => mpi.run(self.ranks, site, self.measures, pace, None)?,
                    _ => contender.run(self.ranks, site, self.measures, pace, nodes.as_mut())?,
                };
                for (place, time) in times.into_iter().enumerate() {
                    took.entry((place, *contender)).or_default().push(time);
                }
                ways.extend(way.map(|way| (*contender, way)));
                bar.inc(1);
            }
        }
        let row = |((place, contender), times): (&(usize, Contender), &Vec<BenchSample>)| {
            let theirs = took.get(&(*place, Contender::OpenMpi)).filter(|_| *contender != Contender::OpenMpi);
            let ratio = theirs.map(|theirs| {
                TrialSummary::of(times.iter().zip(theirs).map(|(ours, theirs)| ours.micros / theirs.micros).collect())
            });
            CollectivesRow {
                measure: self.measures[*place].to_owned(),
                contender: *contender,
                micros: TrialSummary::of(times.iter().map(|took| took.micros).collect()),
                cpu_micros: TrialSummary::of(times.iter().map(|took| took.cpu_micros).collect()),
                ratio,
            }
        };
        let rows = took.iter().map(row).collect();
        let ways = ways.into_iter().map(|(contender, way)| format!("{contender}: {way}")).collect();
        Ok(CollectivesCaseReport { scene: self.name, title: self.title.to_owned(), rows, ways })
    }
}
