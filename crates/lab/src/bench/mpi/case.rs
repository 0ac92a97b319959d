//! The cases: which measures are taken on how many ranks, and their targets.

use std::path::Path;

use anyhow::Result;
use indicatif::ProgressBar;
use namespaces::NamespaceNetwork;

use super::{MpiCase, MpiMeasurement, MpiRow, MpiScene, PerformanceTarget};
use crate::bench::TrialSummary;
use crate::bench::mpi_installation::{
    MpiImplementation, MpiInstallation, NEVER_YIELDS, PreloadChoice, PreloadedLibrary,
};
use crate::bench::samples::{BenchPlacement, BenchSample, SampleBudget};
use crate::local_fabric::child_process::StderrMode;
use crate::local_fabric::{self, LocalFabric, LocalFabricSpec};

/// Sizes between hosts and among many ranks.
const FEW_BYTES: &[u32] = &[8, 64, 512, 1024, 4096];
const ALL_BYTES: &[u32] = &[8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216];

/// Number of rounds, and how much is measured in each.
pub(super) struct RoundPlan {
    pub(super) rounds: u32,
    pub(super) budget: SampleBudget,
}

impl MpiCase {
    pub(super) const ALL: [Self; 3] = [Self::Pair, Self::Namespaces, Self::Oversubscribed];

    pub(super) fn scene(self) -> MpiScene {
        match self {
            Self::Pair => MpiScene::Pair,
            Self::Namespaces => MpiScene::Namespaces,
            Self::Oversubscribed => MpiScene::Oversubscribed,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Pair => "2 ranks on one host",
            Self::Namespaces => {
                "16 hosts (network namespaces on one bridge), one rank each, one node process; the MPI over TCP"
            }
            Self::Oversubscribed => "8 ranks on one host with yielding on",
        }
    }

    fn ranks(self) -> u32 {
        match self {
            Self::Pair => 2,
            Self::Namespaces => 16,
            Self::Oversubscribed => 8,
        }
    }

    /// Why this MPI is skipped, if it is.
    pub(super) fn reason_to_skip(self, mpi: &MpiInstallation) -> Option<&'static str> {
        match self {
            Self::Pair => None,
            _ if mpi.is_open_mpi() => None,
            Self::Namespaces => Some("its targets are for Open MPI; see the scene \"hosts\""),
            Self::Oversubscribed => Some(NEVER_YIELDS),
        }
    }

    /// A barrier first, then operations with a number of bytes; last a call that Pleach leaves to the MPI.
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

    /// The measures with these names; all if none is named.
    pub(super) fn measures_among(self, names: &[String]) -> Vec<String> {
        self.measures().into_iter().filter(|measure| names.is_empty() || names.contains(measure)).collect()
    }

    /// The target of a measure, if it has one.
    fn target(self, implementation: MpiImplementation, measure: &str) -> Option<PerformanceTarget> {
        let (operation, bytes) = measure.split_once(':').unwrap_or((measure, "0"));
        let bytes: u32 = bytes.parse().ok()?;
        match (self, operation, bytes) {
            (Self::Pair, "left", _) => Some(PerformanceTarget::AddedNanos(100.0)),
            (Self::Namespaces, ..) => Some(PerformanceTarget::Ratio(1.0 / 3.0)),
            (Self::Oversubscribed, ..) => Some(PerformanceTarget::Ratio(0.5)),
            (Self::Pair, ..)
                if !matches!(
                    implementation,
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

    /// Runs the program with and without the library, in turn.
    pub(super) fn measure(
        self,
        mpi: &MpiInstallation,
        library: &Path,
        measures: &[String],
        RoundPlan { rounds, budget }: RoundPlan,
        bar: &ProgressBar,
    ) -> Result<Vec<MpiRow>> {
        let ranks = self.ranks();
        let network = match self {
            Self::Namespaces => Some(NamespaceNetwork::new(ranks as usize + local_fabric::hosts_for(1))?),
            _ => None,
        };
        let nodes = network.as_ref().map(|network| {
            let site = local_fabric::FabricSite::Hosts { network, first: ranks as usize };
            LocalFabric::start(&LocalFabricSpec { nodes: 1, site, faults: None, stderr: StderrMode::Captured })
        });
        let nodes = nodes.transpose()?;
        let placement = network
            .as_ref()
            .map_or(BenchPlacement::OneHost, |network| BenchPlacement::Namespaces { network, ranks_per_host: 1 });
        let preloaded = PreloadedLibrary { library, nodes: nodes.as_ref(), choice: PreloadChoice::Pleach };
        let names: Vec<&str> = measures.iter().map(String::as_str).collect();
        let mut samples: [Vec<Vec<BenchSample>>; 2] = Default::default();
        for round in 0..rounds {
            for (variant, with) in [None, Some(&preloaded)].into_iter().enumerate() {
                let how = if with.is_some() { "with" } else { "without" };
                bar.set_message(format!("{}, round {}, {how}", mpi.version, round + 1));
                samples[variant].push(mpi.run(ranks, placement, &names, budget, with)?.samples);
                bar.inc(1);
            }
        }
        let row = |(index, measure): (usize, &String)| {
            let [plain, with] = [0, 1].map(|side| -> Vec<f64> {
                samples[side].iter().map(|round: &Vec<BenchSample>| round[index].micros).collect()
            });
            let pairs = || plain.iter().zip(&with);
            let ratio = TrialSummary::of(pairs().map(|(plain, with)| with / plain).collect());
            let added_nanos = TrialSummary::of(pairs().map(|(plain, with)| (with - plain) * 1e3).collect());
            let target = self.target(mpi.implementation, measure);
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
