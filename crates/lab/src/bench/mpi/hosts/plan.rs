//! What the scene "hosts" measures: numbers of hosts, MTUs, operations, sizes, numbers of aggregation nodes, and what does the calls.

use std::fmt;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::bench::byte_size::ByteSize;
use crate::bench::mpi_installation::PreloadChoice;
use crate::bench::samples::SampleBudget;
use crate::local_fabric::MAX_NODES;

/// The program computes with doubles.
const ELEMENT_BYTES: u64 = 8;
/// MPI counts elements with an int.
const MAX_BYTES: u64 = 1 << 30;

/// The arguments of the scene "hosts".
#[derive(Args)]
#[command(next_help_heading = "Scene \"hosts\"")]
pub(in crate::bench::mpi) struct HostsArgs {
    /// Numbers of hosts, separated by commas [default: 2,4,8,16, or 2,4 with --quick]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=256))]
    hosts: Vec<u32>,
    /// MTUs of the links in bytes [default: 1500,9000, or 1500 with --quick]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    mtu: Vec<u32>,
    /// Sizes of the whole vector [default: 8,4KiB,64KiB,1MiB,16MiB, or up to 1MiB with --quick]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    sizes: Vec<ByteSize>,
    /// Operations [default: all, or barrier,allreduce,bcast with --quick]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    operations: Vec<MpiOperation>,
    /// Numbers of aggregation nodes, each on a host of its own; 0 is Pleach without nodes [default: 0,1]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_NODES)))]
    nodes: Vec<u32>,
    /// What does the calls: Pleach all of them, or the faster one, as `pleach exec` does by default (PLEACH_MPI_CHOICE)
    /// [default: pleach,measure, or pleach with --quick]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    choice: Vec<PreloadChoice>,
    /// Ranks on each host.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks_per_host: u32,
}

/// A collective operation of MPI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MpiOperation {
    Barrier,
    Allreduce,
    Bcast,
    ReduceScatter,
    Allgather,
}

/// One operation of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HostsMeasure {
    pub(super) operation: MpiOperation,
    /// None for a barrier.
    pub(super) size: Option<ByteSize>,
}

/// As the peer program reads it: `allreduce:8`.
impl fmt::Display for HostsMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation.name())?;
        self.size.map_or(Ok(()), |ByteSize(bytes)| write!(f, ":{bytes}"))
    }
}

impl MpiOperation {
    const ALL: [Self; 5] = [Self::Barrier, Self::Allreduce, Self::Bcast, Self::ReduceScatter, Self::Allgather];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Allreduce => "allreduce",
            Self::Bcast => "bcast",
            Self::ReduceScatter => "reduce-scatter",
            Self::Allgather => "allgather",
        }
    }
}

/// What is measured, how often, and for how long.
pub(in crate::bench::mpi) struct HostsPlan {
    hosts: Vec<u32>,
    mtus_bytes: Vec<u32>,
    pub(super) measures: Vec<HostsMeasure>,
    pub(super) nodes: Vec<u32>,
    pub(super) choices: Vec<PreloadChoice>,
    pub(super) ranks_per_host: u32,
    pub(super) rounds: u32,
    pub(super) budget: SampleBudget,
}

/// How much of the default matrix is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::bench::mpi) enum PlanExtent {
    Quick,
    Full,
}

impl PlanExtent {
    /// What was given, or else the default of this extent.
    fn or_default<T: Clone>(self, given: &[T], quick: &[T], full: &[T]) -> Vec<T> {
        match (given, self) {
            ([], Self::Quick) => quick.to_vec(),
            ([], Self::Full) => full.to_vec(),
            (given, _) => given.to_vec(),
        }
    }

    pub(in crate::bench::mpi) fn budget(self) -> SampleBudget {
        match self {
            Self::Quick => SampleBudget::HOSTS_QUICK,
            Self::Full => SampleBudget::HOSTS,
        }
    }
}

impl HostsArgs {
    pub(in crate::bench::mpi) fn mtus_bytes(&self, extent: PlanExtent) -> Vec<u32> {
        extent.or_default(&self.mtu, &[1500], &[1500, 9000])
    }
}

impl HostsPlan {
    /// # Errors
    /// If a size cannot be measured.
    pub(in crate::bench::mpi) fn new(arguments: &HostsArgs, extent: PlanExtent, rounds: u32) -> Result<Self> {
        let all_sizes = [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20].map(ByteSize);
        let sizes = extent.or_default(&arguments.sizes, &all_sizes[..4], &all_sizes);
        for size in &sizes {
            let is_valid = size.0.is_multiple_of(ELEMENT_BYTES) && (ELEMENT_BYTES..=MAX_BYTES).contains(&size.0);
            ensure!(is_valid, "--sizes: {size} is not a multiple of 8 bytes up to {}", ByteSize(MAX_BYTES));
        }
        let operations = extent.or_default(&arguments.operations, &MpiOperation::ALL[..3], &MpiOperation::ALL);
        let choices = [PreloadChoice::Pleach, PreloadChoice::Measure];
        Ok(Self {
            hosts: extent.or_default(&arguments.hosts, &[2, 4], &[2, 4, 8, 16]),
            mtus_bytes: arguments.mtus_bytes(extent),
            measures: operations.iter().flat_map(|operation| measures_of(*operation, &sizes)).collect(),
            nodes: extent.or_default(&arguments.nodes, &[0, 1], &[0, 1]),
            choices: extent.or_default(&arguments.choice, &choices[..1], &choices),
            ranks_per_host: arguments.ranks_per_host,
            rounds,
            budget: extent.budget(),
        })
    }

    /// The same with only the measures of these names, if any are given.
    pub(in crate::bench::mpi) fn with_measures_among(mut self, names: &[String]) -> Self {
        self.measures.retain(|measure| names.is_empty() || names.contains(&measure.to_string()));
        self
    }

    /// The names of all measures.
    pub(in crate::bench::mpi) fn measure_names(&self) -> Vec<String> {
        self.measures.iter().map(HostsMeasure::to_string).collect()
    }

    /// How the library runs: with each number of nodes, under each choice.
    pub(super) fn preloads(&self) -> impl Iterator<Item = (u32, PreloadChoice)> {
        self.nodes.iter().flat_map(|nodes| self.choices.iter().map(|choice| (*nodes, *choice)))
    }

    /// Number of hosts and MTU of each network.
    pub(super) fn networks(&self) -> Vec<(u32, u32)> {
        self.mtus_bytes.iter().flat_map(|mtu| self.hosts.iter().map(|hosts| (*hosts, *mtu))).collect()
    }
}

fn measures_of(operation: MpiOperation, sizes: &[ByteSize]) -> Vec<HostsMeasure> {
    match operation {
        MpiOperation::Barrier => vec![HostsMeasure { operation, size: None }],
        _ => sizes.iter().map(|size| HostsMeasure { operation, size: Some(*size) }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: HostsArgs,
    }

    fn plan(words: &[&str], extent: PlanExtent) -> Result<HostsPlan> {
        let line = Line::try_parse_from(std::iter::once(&"bench").chain(words))?;
        HostsPlan::new(&line.arguments, extent, 3)
    }

    #[test]
    fn lists_are_read_and_multiplied() {
        let words = ["--hosts", "2,16", "--mtu", "1500,9000", "--sizes", "8,4KiB", "--nodes", "0,2"];
        let plan = plan(&[&words[..], &["--operations", "barrier,reduce-scatter"]].concat(), PlanExtent::Full);
        let plan = plan.expect("a valid line");
        assert_eq!(plan.networks(), [(2, 1500), (16, 1500), (2, 9000), (16, 9000)]);
        assert_eq!(plan.measure_names(), ["barrier", "reduce-scatter:8", "reduce-scatter:4096"]);
        assert_eq!((plan.nodes, plan.ranks_per_host), (vec![0, 2], 1));
    }

    #[test]
    fn a_quick_run_has_few_hosts_and_no_long_vectors() {
        let plan = plan(&[], PlanExtent::Quick).expect("the defaults");
        assert_eq!(plan.networks(), [(2, 1500), (4, 1500)]);
        assert!(plan.measures.iter().all(|measure| measure.size <= Some(ByteSize(1 << 20))));
        let names = plan.measure_names();
        assert_eq!(names.len(), 1 + 2 * 4, "{names:?}");
        assert_eq!(plan.choices, [PreloadChoice::Pleach]);
    }

    #[test]
    fn a_full_run_has_every_operation_and_what_exec_does_by_default() {
        let plan = plan(&[], PlanExtent::Full).expect("the defaults");
        for operation in MpiOperation::ALL {
            assert!(plan.measures.iter().any(|measure| measure.operation == operation), "{operation:?}");
        }
        assert_eq!(plan.choices, [PreloadChoice::Pleach, PreloadChoice::Measure]);
    }

    #[test]
    fn choices_are_read_as_a_list() {
        let choices = |words: &[&str], extent| plan(words, extent).map(|plan| plan.choices);
        assert_eq!(choices(&["--choice", "measure"], PlanExtent::Full).ok(), Some(vec![PreloadChoice::Measure]));
        let both = choices(&["--choice", "pleach,measure"], PlanExtent::Quick);
        assert_eq!(both.ok(), Some(vec![PreloadChoice::Pleach, PreloadChoice::Measure]));
        assert!(choices(&["--choice", "mpi"], PlanExtent::Full).is_err());
    }

    #[test]
    fn sizes_that_are_no_vectors_of_doubles_are_rejected() {
        for size in ["0", "12", "2GiB"] {
            assert!(plan(&["--sizes", size], PlanExtent::Quick).is_err(), "{size}");
        }
    }
}
