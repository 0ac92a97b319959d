//! What is measured where, and what must come out.

use std::path::Path;

use anyhow::Result;
use indicatif::ProgressBar;
use namespaces::NamespaceNetwork;

use super::installation::{MpiImplementation, MpiInstallation, PreloadedLibrary};
use super::{MpiCase, MpiMeasurement, MpiRow, PerformanceTarget};
use crate::bench::collectives::contender::{BenchPlacement, BenchSample, SampleBudget};
use crate::bench::migration::TrialSummary;
use crate::local_fabric::child_process::StderrMode;
use crate::local_fabric::{self, LocalFabric, LocalFabricSpec};

/// Barriers and allreduces at most so long between hosts and among many ranks.
const FEW_BYTES: &[u32] = &[8, 64, 512, 1024, 4096];
const ALL_BYTES: &[u32] = &[8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216];

/// How often with and without take turns, and how long each measures.
pub(super) struct RoundPlan {
    pub(super) rounds: u32,
    pub(super) pace: SampleBudget,
}

impl MpiCase {
    pub(super) const ALL: [Self; 3] = [Self::Pair, Self::Namespaces, Self::Oversubscribed];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Pair => "2 ranks of one host",
            Self::Namespaces => {
                "16 hosts (network namespaces on one bridge), one rank each, one node process; the MPI over TCP"
            }
            Self::Oversubscribed => "8 ranks of one host with yielding on",
        }
    }

    fn ranks(self) -> u32 {
        match self {
            Self::Pair => 2,
            Self::Namespaces => 16,
            Self::Oversubscribed => 8,
        }
    }

    /// Why this MPI takes no part, if so.
    pub(super) fn why_not(self, mpi: &MpiInstallation) -> Option<&'static str> {
        match self {
            Self::Pair => None,
            _ if mpi.is_open_mpi() => None,
            Self::Namespaces => Some("its launcher is not known to start ranks on hosts made of namespaces"),
            Self::Oversubscribed => {
                Some("it gives up no processor while it waits, so that there is nothing to compare")
            }
        }
    }

    /// A barrier first, then operations with a number of bytes; last what falls through.
    fn measures(self) -> Vec<String> {
        let of = |operation: &str, bytes: &[u32]| -> Vec<String> {
            bytes.iter().map(|bytes| format!("{operation}:{bytes}")).collect()
        };
        let barrier = vec!["barrier".to_owned()];
        match self {
            Self::Pair => {
                let left = vec!["left:8".to_owned()];
                [barrier, of("allreduce", ALL_BYTES), of("bcast", ALL_BYTES), left].concat()
            }
            Self::Namespaces | Self::Oversubscribed => [barrier, of("allreduce", FEW_BYTES)].concat(),
        }
    }

    /// Those of these names; all if none is named.
    pub(super) fn measures_among(self, names: &[String]) -> Vec<String> {
        self.measures().into_iter().filter(|measure| names.is_empty() || names.contains(measure)).collect()
    }

    /// What our time over the MPI's shall be at most.
    fn target(self, kind: MpiImplementation, measure: &str) -> Option<PerformanceTarget> {
        let (operation, bytes) = measure.split_once(':').unwrap_or((measure, "0"));
        let bytes: u32 = bytes.parse().ok()?;
        match (self, operation, bytes) {
            (Self::Pair, "left", _) => Some(PerformanceTarget::AddedNanos(100.0)),
            (Self::Namespaces, ..) => Some(PerformanceTarget::Ratio(1.0 / 3.0)),
            (Self::Oversubscribed, ..) => Some(PerformanceTarget::Ratio(0.5)),
            (Self::Pair, ..)
                if !matches!(
                    kind,
                    MpiImplementation::OpenMpi4 | MpiImplementation::OpenMpi5 | MpiImplementation::Mpich5
                ) =>
            {
                None
            }
            (Self::Pair, "barrier", _) | (Self::Pair, "allreduce", 8) => Some(PerformanceTarget::Ratio(0.7)),
            (Self::Pair, "allreduce", 65_536..=1_048_576) => Some(PerformanceTarget::Ratio(0.6)),
            (Self::Pair, ..) => Some(PerformanceTarget::Ratio(1.0)),
        }
    }

    /// Runs the same program with and without the library, by turns.
    pub(super) fn measure(
        self,
        mpi: &MpiInstallation,
        library: &Path,
        measures: &[String],
        RoundPlan { rounds, pace }: RoundPlan,
        bar: &ProgressBar,
    ) -> Result<Vec<MpiRow>> {
        let ranks = self.ranks();
        let network = match self {
            Self::Namespaces => Some(NamespaceNetwork::new(ranks as usize + local_fabric::hosts_for(1))?),
            _ => None,
        };
        let nodes = network.as_ref().map(|network| {
            let site = local_fabric::FabricSite::Hosts { network, first: ranks as usize };
            LocalFabric::start(&LocalFabricSpec { nodes: 1, site, faults: None, voice: StderrMode::Kept })
        });
        let nodes = nodes.transpose()?;
        let site = network.as_ref().map_or(BenchPlacement::OneHost, BenchPlacement::Namespaces);
        let loaded = PreloadedLibrary { library, nodes: nodes.as_ref() };
        let names: Vec<&str> = measures.iter().map(String::as_str).collect();
        let mut took: [Vec<Vec<BenchSample>>; 2] = Default::default();
        for round in 0..rounds {
            for (place, with) in [None, Some(&loaded)].into_iter().enumerate() {
                let how = if with.is_some() { "with" } else { "without" };
                bar.set_message(format!("{}, round {}, {how}", mpi.version, round + 1));
                took[place].push(mpi.run(ranks, site, &names, pace, with)?.took);
                bar.inc(1);
            }
        }
        let row = |(place, measure): (usize, &String)| {
            let [plain, with] = [0, 1].map(|side| -> Vec<f64> {
                took[side].iter().map(|round: &Vec<BenchSample>| round[place].micros).collect()
            });
            let pairs = || plain.iter().zip(&with);
            let ratio = TrialSummary::of(pairs().map(|(plain, with)| with / plain).collect());
            let added_nanos = TrialSummary::of(pairs().map(|(plain, with)| (with - plain) * 1e3).collect());
            let target = self.target(mpi.kind, measure);
            let measured = MpiMeasurement {
                plain: TrialSummary::of(plain.clone()),
                with: TrialSummary::of(with.clone()),
                ratio,
                added_nanos,
            };
            let verdict = target.map(|target| target.judge(&measured));
            MpiRow { mpi: mpi.version.clone(), measure: measure.clone(), measured, target, verdict }
        };
        Ok(measures.iter().enumerate().map(row).collect())
    }
}
