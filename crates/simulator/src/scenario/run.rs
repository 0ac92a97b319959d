//! A run of a scenario: with the aggregation tree, or among hosts.

use topology::AggregationTree;

use crate::collective::{CollectiveObserver, CollectiveTiming, LinkReport, SimulatedCollective};
use crate::counters::FabricCounters;
use crate::segmented::SegmentedCollective;

/// A scenario, set up to run.
pub enum ScenarioRun {
    /// Operations through the aggregation tree.
    Tree(Box<SimulatedCollective>),
    /// Operations among hosts.
    Hosts(Box<SegmentedCollective>),
}

impl ScenarioRun {
    /// Runs operations one after another; stops early if one hangs.
    pub fn run(
        &mut self,
        operations: u32,
        observer: &mut dyn CollectiveObserver,
        progress: impl FnMut(u32),
    ) -> Vec<CollectiveTiming> {
        match self {
            Self::Tree(run) => run.run(operations, observer, progress),
            Self::Hosts(run) => run.run(operations, observer, progress),
        }
    }

    /// The aggregation tree, if there is one.
    pub fn tree(&self) -> Option<&AggregationTree> {
        match self {
            Self::Tree(run) => Some(run.tree()),
            Self::Hosts(_) => None,
        }
    }

    /// Members of the group.
    pub fn ranks(&self) -> u32 {
        match self {
            Self::Tree(run) => run.ranks(),
            Self::Hosts(run) => run.ranks(),
        }
    }

    /// The counters of the network.
    pub fn counters(&self) -> &FabricCounters {
        match self {
            Self::Tree(run) => run.counters(),
            Self::Hosts(run) => run.counters(),
        }
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        match self {
            Self::Tree(run) => run.trace(),
            Self::Hosts(run) => run.trace(),
        }
    }

    /// Bytes of the network and of the machines, as far as they are counted.
    pub fn memory(&self) -> usize {
        match self {
            Self::Tree(run) => run.memory(),
            Self::Hosts(run) => run.memory(),
        }
    }

    /// Every direction of every cable with a packet, an error or a loss.
    pub fn links(&self) -> Box<dyn Iterator<Item = LinkReport> + '_> {
        match self {
            Self::Tree(run) => Box::new(run.links()),
            Self::Hosts(run) => Box::new(run.links()),
        }
    }
}
