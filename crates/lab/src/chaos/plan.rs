//! What happens in a round: a cluster, what is done to it and when, and what the ranks must get.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use namespaces::hosts::{Corruption, Direction};

use super::rank::AfterLoss;

/// Ranks by number.
pub(super) type RankSet = BTreeSet<u32>;

/// One round.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ChaosPlan {
    pub case: &'static str,
    pub seed: u64,
    pub shape: ClusterShape,
    /// By rising time since all ranks have joined.
    pub actions: Vec<TimedAction>,
    pub expectation: ExpectedOutcome,
    pub after_loss: AfterLoss,
    /// From the last action to the end of the workload.
    pub settle: Duration,
    /// The workload goes on until this node, which was started again, has reduced operations.
    pub returns_to: Option<u32>,
}

/// The processes of a round and the hosts that they run on: hosts of ranks first, then the manager's, then one for each node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClusterShape {
    pub hosts: u32,
    pub ranks_per_host: u32,
    /// The first is the root of the tree.
    pub nodes: u32,
    /// Links of each host, each a path of its own.
    pub links: u32,
    pub mtu_bytes: u32,
    /// `PLEACH_ALGORITHM`; none leaves the choice to the selector.
    pub algorithm: Option<&'static str>,
    /// The size of /dev/shm on one host.
    pub small_shm: Option<(u32, u64)>,
    /// The most open files of one rank.
    pub few_descriptors: Option<(u32, u64)>,
}

impl ClusterShape {
    pub(super) fn ranks(&self) -> u32 {
        self.hosts * self.ranks_per_host
    }

    pub(super) fn host_of(&self, rank: u32) -> u32 {
        rank / self.ranks_per_host
    }

    /// The ranks of these hosts.
    pub(super) fn ranks_of(&self, hosts: &[u32]) -> RankSet {
        (0..self.ranks()).filter(|rank| hosts.contains(&self.host_of(*rank))).collect()
    }

    /// The index of the manager's host.
    pub(super) fn manager_host(&self) -> usize {
        self.hosts as usize
    }

    /// The index of a node's host.
    pub(super) fn node_host(&self, node: u32) -> usize {
        self.manager_host() + 1 + node as usize
    }

    /// All hosts, whatever runs there.
    pub(super) fn all_hosts(&self) -> usize {
        self.node_host(self.nodes)
    }
}

/// Something that is done to the cluster.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TimedAction {
    pub at: Duration,
    pub action: ChaosAction,
}

/// What is done.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum ChaosAction {
    /// SIGKILL.
    Kill(ProcessRef),
    /// SIGSTOP.
    Stop(ProcessRef),
    /// SIGCONT.
    Continue(ProcessRef),
    /// Starts the manager or a node again that was killed.
    Restart(ProcessRef),
    /// Changes a host's link.
    Link { host: usize, link: u32, change: LinkChange },
}

/// A process of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ProcessRef {
    Manager,
    Node(u32),
    Rank(u32),
}

/// What becomes of a link. Loss, corruption, duplication and reordering are below the sockets: in the network devices.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum LinkChange {
    Down,
    Up,
    Unplug,
    PlugIn,
    RemoveAddress,
    RestoreAddress,
    /// The cable goes to a switch on which only cables are that were moved as well.
    MoveToOtherSwitch,
    Drop(Direction),
    Lose {
        one_in: u32,
    },
    Corrupt(Corruption),
    Duplicate {
        one_in: u32,
    },
    Reorder {
        one_in: u32,
    },
    /// Ends drops, loss, corruption, duplication and reordering.
    Clear,
    Mtu(u32),
}

/// What the ranks must get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ExpectedOutcome {
    /// Every operation completes at every rank.
    Completes,
    /// These ranks are killed: all others name them, and only them.
    RanksLost(RankSet),
    /// These ranks are on the smaller side: they are told so, and all others name them.
    Divided { smaller: RankSet },
    /// Packets of these ranks pass in one direction only: all ranks get one error about them.
    OneWay { suspects: RankSet },
    /// No rank can join, and at least one says why in these words.
    CannotJoin { because: &'static str },
    /// The job completes, or no rank can join.
    CompletesOrCannotJoin,
}

impl fmt::Display for ProcessRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager => f.write_str("manager"),
            Self::Node(node) => write!(f, "node{node}"),
            Self::Rank(rank) => write!(f, "rank {rank}"),
        }
    }
}

impl fmt::Display for ChaosAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(process) => write!(f, "kill {process}"),
            Self::Stop(process) => write!(f, "stop {process}"),
            Self::Continue(process) => write!(f, "continue {process}"),
            Self::Restart(process) => write!(f, "restart {process}"),
            Self::Link { host, link, change } => write!(f, "host {host} link {link}: {change:?}"),
        }
    }
}

impl fmt::Display for ChaosPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterShape { hosts, ranks_per_host, nodes, links, mtu_bytes, .. } = self.shape;
        let algorithm = self.shape.algorithm.unwrap_or("any algorithm");
        write!(
            f,
            "{hosts} hosts of {ranks_per_host} ranks, {nodes} nodes, {links} links, MTU {mtu_bytes}, {algorithm}"
        )?;
        if let Some((host, bytes)) = self.shape.small_shm {
            write!(f, "; host {host}: /dev/shm of {bytes} B")?;
        }
        if let Some((rank, limit)) = self.shape.few_descriptors {
            write!(f, "; rank {rank}: {limit} open files")?;
        }
        for TimedAction { at, action } in &self.actions {
            write!(f, "; {:.2} s {action}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
