//! Fabrics as they are: read from the text of `ibnetdiscover`, routed up*/down*.
//!
//! In: text from outside, possibly garbage. Out: a graph with levels, or an error with its line.
//! Rules: hosts are numbered in the order of the text, switches by level (their distance from the
//! nearest host) and then in the order of the text. Port n of the text is index n - 1.

mod graph;
mod ibnetdiscover;
mod orientation;
mod routing_table;

use std::fmt;
use std::sync::OnceLock;

use graph::ImportedGraph;
use orientation::UpDownOrientation;
use routing_table::RoutingTable;

use crate::parts::{FabricPort, NextHop, NodeId, NodePort};

/// Most nodes of an imported fabric.
pub const MAX_IMPORTED_NODES: usize = 1 << 16;
/// Most switches of an imported fabric; bounds the routing tables to 256 MB if all are asked for.
pub const MAX_IMPORTED_SWITCHES: usize = 1 << 13;
/// Most bytes of the text: four times what [`MAX_IMPORTED_NODES`] usually need.
pub const MAX_IMPORTED_BYTES: usize = 1 << 28;

/// Why a text was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportError {
    /// The line, counted from one; zero if the text as a whole is meant.
    pub line: usize,
    /// What is wrong there.
    pub problem: ImportProblem,
}

/// What is wrong with a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImportProblem {
    /// Longer than [`MAX_IMPORTED_BYTES`].
    TooLong,
    /// More nodes than [`MAX_IMPORTED_NODES`].
    TooManyNodes,
    /// More switches than [`MAX_IMPORTED_SWITCHES`].
    TooManySwitches,
    /// The text describes no host.
    NoHosts,
    /// A line that is neither a comment, an attribute, a node nor a port.
    UnknownLine,
    /// A node line without a port count or an identifier in quotes.
    BadNode,
    /// A port line that does not read `[port] "peer"[port]`.
    BadPort,
    /// A port line that does not follow a node.
    PortWithoutNode,
    /// A port that its node does not have.
    PortOutOfRange {
        /// The port as the text counts it.
        port: u16,
        /// The node's ports.
        ports: u16,
    },
    /// The node has been described before.
    DuplicateNode(String),
    /// The peer is not described anywhere.
    UnknownPeer(String),
    /// A port is cabled to two different peers.
    CabledTwice {
        /// The node.
        node: String,
        /// The port as the text counts it.
        port: u16,
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match &self.problem {
            ImportProblem::TooLong => write!(f, "the text is longer than {MAX_IMPORTED_BYTES} bytes"),
            ImportProblem::TooManyNodes => write!(f, "more than {MAX_IMPORTED_NODES} nodes"),
            ImportProblem::TooManySwitches => write!(f, "more than {MAX_IMPORTED_SWITCHES} switches"),
            ImportProblem::NoHosts => write!(f, "the text describes no host (no `Ca` line)"),
            ImportProblem::UnknownLine => write!(f, "neither a comment, an attribute, a node nor a port"),
            ImportProblem::BadNode => write!(f, "a node reads: Switch 36 \"S-...\" # \"description\""),
            ImportProblem::BadPort => write!(f, "a port reads: [1] \"H-...\"[1] # \"description\""),
            ImportProblem::PortWithoutNode => write!(f, "a port outside the block of a node"),
            ImportProblem::PortOutOfRange { port, ports } => {
                write!(f, "port {port} of a node with ports 1 to {ports}")
            }
            ImportProblem::DuplicateNode(id) => write!(f, "{id} is described twice"),
            ImportProblem::UnknownPeer(id) => write!(f, "{id} is cabled but not described"),
            ImportProblem::CabledTwice { node, port } => write!(f, "port {port} of {node} has two cables"),
        }
    }
}

impl std::error::Error for ImportError {}

/// An imported fabric.
#[derive(Debug)]
pub(crate) struct ImportedFabric {
    pub(crate) hosts: u32,
    graph: ImportedGraph,
    orientation: UpDownOrientation,
    /// Per destination switch, made when first asked for.
    tables: Vec<OnceLock<RoutingTable>>,
}

impl ImportedFabric {
    pub(crate) fn from_ibnetdiscover(text: &str) -> Result<Self, ImportError> {
        let graph = ImportedGraph::build(&ibnetdiscover::parse(text)?)?;
        let orientation = UpDownOrientation::choose(&graph);
        let tables = (0..graph.switches()).map(|_| OnceLock::new()).collect();
        Ok(Self { hosts: graph.hosts, graph, orientation, tables })
    }

    pub(crate) fn nodes(&self) -> u32 {
        self.graph.nodes()
    }

    pub(crate) fn port_count(&self, node: NodeId) -> u16 {
        self.graph.ports(node).len() as u16
    }

    pub(crate) fn peer(&self, node: NodeId, port: FabricPort) -> Option<NodePort> {
        self.graph.ports(node).get(port.index()).copied().flatten()
    }

    pub(crate) fn level(&self, node: NodeId) -> u8 {
        self.graph.levels[node.index()]
    }

    pub(crate) fn cable_count(&self) -> u64 {
        self.graph.cables
    }

    pub(crate) fn description(&self, node: NodeId) -> &str {
        &self.graph.descriptions[node.index()]
    }

    pub(crate) fn find(&self, description: &str) -> Option<NodeId> {
        self.graph.find(description)
    }

    pub(crate) fn title(&self) -> String {
        format!("imported fabric of {} hosts and {} switches", self.hosts, self.graph.switches())
    }

    /// Toward the nearest switch that the destination is cabled to; each hop comes one nearer.
    pub(crate) fn next_hop(&self, at: NodeId, to: NodeId, flow: u32) -> Option<NextHop> {
        let spread = u64::from(to.0) + u64::from(flow);
        if at.0 >= self.hosts {
            return self.hop_from_switch(at, to, spread);
        }
        // A host starts on the port that is nearest; two ports at the same distance share.
        let ways = || {
            self.graph.cabled(at).filter_map(|(port, peer)| match peer.node {
                node if node == to => Some((0, port)),
                node if node.0 < self.hosts => None,
                node => self.nearest_exit(node, to).map(|(cost, _)| (cost + 1, port)),
            })
        };
        let least = ways().map(|(cost, _)| cost).min()?;
        let least_ways = || ways().filter(|&(cost, _)| cost == least).map(|(_, port)| port);
        nth_of(least_ways, spread).map(|port| NextHop { port, lane: 0 })
    }

    fn hop_from_switch(&self, at: NodeId, to: NodeId, spread: u64) -> Option<NextHop> {
        let (_, exit) = self.nearest_exit(at, to)?;
        if exit.node == at {
            return Some(NextHop { port: exit.port, lane: 0 });
        }
        let port = self.table(exit.node).port(&self.graph, &self.orientation, at, spread)?;
        Some(NextHop { port, lane: 0 })
    }

    /// The switch port behind which the destination is and that is nearest to `at`, with its cost.
    /// For a switch as the destination, the port is of no meaning.
    fn nearest_exit(&self, at: NodeId, to: NodeId) -> Option<(u32, NodePort)> {
        if to.0 >= self.hosts {
            let cost = self.cost(at, to)?;
            return Some((cost, NodePort::new(to, FabricPort(0))));
        }
        let exits = self.graph.cabled(to).map(|(_, peer)| peer).filter(|peer| peer.node.0 >= self.hosts);
        exits.filter_map(|exit| Some((self.cost(at, exit.node)?, exit))).min_by_key(|&(cost, _)| cost)
    }

    fn cost(&self, at: NodeId, switch: NodeId) -> Option<u32> {
        self.table(switch).cost((at.0 - self.hosts) as usize)
    }

    fn table(&self, switch: NodeId) -> &RoutingTable {
        let index = (switch.0 - self.hosts) as usize;
        self.tables[index].get_or_init(|| RoutingTable::toward(&self.graph, &self.orientation, switch))
    }
}

/// The item a spread number falls on, of those an iterator gives every time it is made.
fn nth_of<I: Iterator>(items: impl Fn() -> I, spread: u64) -> Option<I::Item> {
    let count = items().count() as u64;
    if count == 0 { None } else { items().nth((spread % count) as usize) }
}
