//! What is measured, and where.

use std::collections::BTreeMap;

use anyhow::Result;
use indicatif::ProgressBar;
use namespaces::Network;

use super::contender::{Contender, Pace, Run, Site, Took};
use super::{Row, SceneName, SceneReport};
use crate::bench::migration::Figure;
use crate::bench::mpi::installation::Installation;
use crate::fabric::{self, Fabric, FabricPlan, service::Voice};

/// One place and what is measured there.
pub(super) struct Scene {
    pub name: SceneName,
    pub title: &'static str,
    ranks: u32,
    measures: &'static [&'static str],
}

/// Every scene there is.
pub(super) fn all() -> Vec<Scene> {
    vec![
        Scene {
            name: SceneName::SharedMemory,
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
        Scene {
            name: SceneName::Namespaces,
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
        Scene {
            name: SceneName::Loopback,
            title: "64 processes over loopback, each as a host of its own; Open MPI over TCP",
            ranks: 64,
            measures: &["barrier", "allreduce:8", "allreduce:4096"],
        },
    ]
}

impl Scene {
    /// Who takes part here.
    pub(super) fn contenders(&self, open_mpi: Option<&Installation>) -> Vec<Contender> {
        let ours: &[Contender] = match self.name {
            SceneName::SharedMemory => &[Contender::Pleach],
            SceneName::Namespaces => {
                &[Contender::Pleach, Contender::Nodes, Contender::Multicast, Contender::HostsAlone]
            }
            SceneName::Loopback | SceneName::NodeMemory => &[Contender::Pleach, Contender::HostsAlone],
        };
        ours.iter().copied().chain(open_mpi.map(|_| Contender::OpenMpi)).collect()
    }

    /// Lets the contenders take turns.
    pub(super) fn measure(
        &self,
        open_mpi: Option<&Installation>,
        rounds: u32,
        pace: Pace,
        bar: &ProgressBar,
    ) -> Result<SceneReport> {
        let network = match self.name {
            SceneName::Namespaces => Some(Network::new(self.ranks as usize + fabric::hosts_for(1))?),
            _ => None,
        };
        let site = match &network {
            Some(network) => fabric::Site::Hosts { network, first: self.ranks as usize },
            None => fabric::Site::Loopback,
        };
        let mut nodes = match self.name {
            SceneName::SharedMemory => None,
            _ => Some(Fabric::start(&FabricPlan { nodes: 1, site, faults: None, voice: Voice::Kept })?),
        };
        let site = match (&network, self.name) {
            (Some(network), _) => Site::Namespaces(network),
            (None, SceneName::SharedMemory) => Site::OneHost,
            (None, _) => Site::Loopback,
        };
        let contenders = self.contenders(open_mpi);
        let mut took: BTreeMap<(usize, Contender), Vec<Took>> = BTreeMap::new();
        let mut ways = BTreeMap::new();
        for round in 0..rounds {
            for contender in &contenders {
                bar.set_message(format!("{:?}, round {}: {contender}", self.name, round + 1));
                let Run { took: times, way } = match (contender, open_mpi) {
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
        let row = |((place, contender), times): (&(usize, Contender), &Vec<Took>)| {
            let theirs = took.get(&(*place, Contender::OpenMpi)).filter(|_| *contender != Contender::OpenMpi);
            let ratio = theirs.map(|theirs| {
                Figure::of(times.iter().zip(theirs).map(|(ours, theirs)| ours.micros / theirs.micros).collect())
            });
            Row {
                measure: self.measures[*place].to_owned(),
                contender: *contender,
                micros: Figure::of(times.iter().map(|took| took.micros).collect()),
                cpu_micros: Figure::of(times.iter().map(|took| took.cpu_micros).collect()),
                ratio,
            }
        };
        let rows = took.iter().map(row).collect();
        let ways = ways.into_iter().map(|(contender, way)| format!("{contender}: {way}")).collect();
        Ok(SceneReport { scene: self.name, title: self.title.to_owned(), rows, ways })
    }
}
