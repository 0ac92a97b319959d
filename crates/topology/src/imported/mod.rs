//! Existing fabrics: read from the output of `ibnetdiscover`, routed up*/down*.
//!
//! In: untrusted text. Out: a graph with levels, or an error with its line.
//! Rules: hosts are numbered in the order of the text, switches by level (their distance from the
//! nearest host) and then in the order of the text. Port n of the text has index n - 1.

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
/// Most switches of an imported fabric; limits all routing tables together to 256 MB.
pub const MAX_IMPORTED_SWITCHES: usize = 1 << 13;
/// Most bytes of the text: four times what [`MAX_IMPORTED_NODES`] usually take.
pub const MAX_IMPORTED_BYTES: usize = 1 << 28;

/// Why a text was rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportError {
    /// The line, counted from one; zero for the whole text.
    pub line: usize,
    /// The problem.
    pub problem: ImportProblem,
}

/// A problem of a text.
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
    /// A port line that does not have the form `[port] "peer"[port]`.
    BadPort,
    /// A port line that does not follow a node.
    PortWithoutNode,
    /// A port that its node does not have.
    PortOutOfRange {
        /// The port number in the text.
        port: u16,
        /// The node's ports.
        ports: u16,
    },
    /// An earlier block describes the same node.
    DuplicateNode(String),
    /// No block describes the peer.
    UnknownPeer(String),
    /// A port is cabled to two different peers.
    CabledTwice {
        /// The node.
        node: String,
        /// The port number in the text.
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
            ImportProblem::BadNode => write!(f, "malformed node, expected: Switch 36 \"S-...\" # \"description\""),
            ImportProblem::BadPort => write!(f, "malformed port, expected: [1] \"H-...\"[1] # \"description\""),
            ImportProblem::PortWithoutNode => write!(f, "a port outside the block of a node"),
            ImportProblem::PortOutOfRange { port, ports } => {
                write!(f, "port {port} is out of range: the node has ports 1 to {ports}")
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
    /// Per destination switch, computed on first use.
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

    /// Toward the nearest switch that the destination is cabled to; each hop decreases the cost by one.
    pub(crate) fn next_hop(&self, at: NodeId, to: NodeId, flow: u32) -> Option<NextHop> {
        let spread = u64::from(to.0) + u64::from(flow);
        if at.0 >= self.hosts {
            return self.hop_from_switch(at, to, spread);
        }
        // A host uses its nearest port; the flow selects among ports at the same distance.
        let candidates = || {
            self.graph.cabled(at).filter_map(|(port, peer)| match peer.node {
                node if node == to => Some((0, port)),
                node if node.0 < self.hosts => None,
                node => self.nearest_exit(node, to).map(|(cost, _)| (cost + 1, port)),
            })
        };
        let least = candidates().map(|(cost, _)| cost).min()?;
        let cheapest = || candidates().filter(|&(cost, _)| cost == least).map(|(_, port)| port);
        select_by_spread(cheapest, spread).map(|port| NextHop { port, lane: 0 })
    }

    fn hop_from_switch(&self, at: NodeId, to: NodeId, spread: u64) -> Option<NextHop> {
        let (_, exit) = self.nearest_exit(at, to)?;
        if exit.node == at {
            return Some(NextHop { port: exit.port, lane: 0 });
        }
        let port = self.table(exit.node).port(&self.graph, &self.orientation, at, spread)?;
        Some(NextHop { port, lane: 0 })
    }

    /// The switch port to the destination that is nearest to `at`, with its cost. If the destination is a switch, the port has
    /// no meaning.
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

/// The item that a spread number selects among those of an iterator.
fn select_by_spread<I: Iterator>(items: impl Fn() -> I, spread: u64) -> Option<I::Item> {
    let count = items().count() as u64;
    if count == 0 { None } else { items().nth((spread % count) as usize) }
}
