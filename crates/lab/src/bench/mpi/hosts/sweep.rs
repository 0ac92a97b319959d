//! Runs every MPI on one network of hosts, alone and with the library, round by round in turn.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use namespaces::NamespaceNetwork;

use super::limit;
use super::plan::HostsPlan;
use crate::bench::bare_socket::DatagramLayout;
use crate::bench::mpi_installation::{MpiInstallation, PreloadChoice, PreloadedLibrary};
use crate::bench::samples::{BenchPlacement, BenchSample};
use crate::local_fabric::child_process::StderrMode;
use crate::local_fabric::{self, FabricSite, LocalFabric, LocalFabricSpec};
use crate::number_format::pluralize;

/// How an MPI runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum HostsVariant {
    /// Without Pleach.
    Alone,
    /// With the Pleach library, so many aggregation nodes, and this choice.
    Preloaded { nodes: u32, choice: PreloadChoice },
}

/// The samples of all measures, round by round; none of a round that failed.
pub(super) type RoundSamples = Vec<Option<Vec<BenchSample>>>;
/// Of each MPI, by its index, and each variant.
pub(super) type SweepSamples = BTreeMap<(usize, HostsVariant), RoundSamples>;
/// Microseconds of bare sockets for all measures, round by round.
pub(super) type LimitSamples = BTreeMap<DatagramLayout, Vec<Vec<f64>>>;

pub(super) struct Sweep<'a> {
    plan: &'a HostsPlan,
    mpis: &'a [&'a MpiInstallation],
    library: &'a Path,
    variants: Vec<HostsVariant>,
    measures: Vec<String>,
    runs_done: usize,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(plan: &'a HostsPlan, mpis: &'a [&'a MpiInstallation], library: &'a Path) -> Self {
        let preloaded = plan.preloads().map(|(nodes, choice)| HostsVariant::Preloaded { nodes, choice });
        let variants = std::iter::once(HostsVariant::Alone).chain(preloaded).collect();
        Self { plan, mpis, library, variants, measures: plan.measure_names(), runs_done: 0 }
    }

    /// Measures all rounds on a network of so many hosts. A run that fails is reported, and its variant is not run again there.
    pub(super) fn run(
        &mut self,
        hosts: u32,
        mtu_bytes: u32,
        failures: &mut Vec<String>,
    ) -> Result<(SweepSamples, LimitSamples)> {
        let most_nodes = self.plan.nodes.iter().copied().max().unwrap_or(0);
        let services = if most_nodes > 0 { local_fabric::hosts_for(most_nodes) } else { 0 };
        let network = NamespaceNetwork::with_mtu(hosts as usize + services, mtu_bytes)?;
        let runs = self.plan.networks().len() * self.plan.rounds as usize * self.mpis.len() * self.variants.len();
        let (mut samples, mut limits) = (SweepSamples::new(), LimitSamples::new());
        for round in 0..self.plan.rounds {
            for (index, mpi) in self.mpis.iter().enumerate() {
                for variant in &self.variants {
                    self.runs_done += 1;
                    let rounds = samples.entry((index, *variant)).or_default();
                    if rounds.iter().any(Option::is_none) {
                        continue;
                    }
                    let title = format!("{hosts} hosts, MTU {mtu_bytes}, {} {variant}", mpi.short_name());
                    eprintln!("[{}/{runs}] round {}: {title}", self.runs_done, round + 1);
                    let run = self.run_once(&network, hosts, mpi, *variant);
                    rounds.push(run.map_err(|error| failures.push(format!("{title}: {error:#}"))).ok());
                }
            }
            for layout in [DatagramLayout::BytesOnly, DatagramLayout::WithHeaders] {
                match limit::run(&network, (hosts, mtu_bytes), &self.plan.measures, layout, self.plan.budget) {
                    Ok(times) => limits.entry(layout).or_default().push(times),
                    // It says nothing about Pleach or the MPI: the table of limits lacks what did not complete.
                    Err(error) => eprintln!("{hosts} hosts, MTU {mtu_bytes}: {error:#}"),
                }
            }
        }
        Ok((samples, limits))
    }

    fn run_once(
        &self,
        network: &NamespaceNetwork,
        hosts: u32,
        mpi: &MpiInstallation,
        variant: HostsVariant,
    ) -> Result<Vec<BenchSample>> {
        let nodes = match variant {
            HostsVariant::Alone | HostsVariant::Preloaded { nodes: 0, .. } => None,
            HostsVariant::Preloaded { nodes, .. } => {
                let site = FabricSite::Hosts { network, first: hosts as usize };
                let spec = LocalFabricSpec { nodes, site, faults: None, stderr: StderrMode::Captured };
                Some(LocalFabric::start(&spec)?)
            }
        };
        let preloaded = match variant {
            HostsVariant::Alone => None,
            HostsVariant::Preloaded { choice, .. } => {
                Some(PreloadedLibrary { library: self.library, nodes: nodes.as_ref(), choice })
            }
        };
        let ranks_per_host = self.plan.ranks_per_host;
        let placement = BenchPlacement::Namespaces { network, ranks_per_host };
        let names: Vec<&str> = self.measures.iter().map(String::as_str).collect();
        Ok(mpi.run(hosts * ranks_per_host, placement, &names, self.plan.budget, preloaded.as_ref())?.samples)
    }
}

impl std::fmt::Display for HostsVariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Alone => f.write_str("alone"),
            Self::Preloaded { nodes, choice } => {
                write!(f, "with Pleach, {}, choice {}", pluralize(u64::from(*nodes), "node"), choice.name())
            }
        }
    }
}
