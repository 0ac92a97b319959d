//! The routing table toward one switch.
//!
//! In: the graph, its orientation, a destination. Out: a port and a cost for every switch.
//! Rules: a switch with a way that only goes down takes the shortest such way, so that what has
//! turned down never turns up again; any other goes up to the neighbour with the least cost. A
//! switch with neither (a root on its way to another root) goes to the neighbour with the least
//! cost, which is against the rule; only control traffic takes such ways. Every hop lowers the cost
//! by one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::graph::ImportedGraph;
use super::nth_of;
use super::orientation::UpDownOrientation;
use crate::parts::{FabricPort, NodeId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RouteDirection {
    /// No way at all.
    Nowhere,
    Down,
    Up,
    /// Against the rule.
    Aside,
}

#[derive(Clone, Copy, Debug)]
struct RoutingEntry {
    turn: RouteDirection,
    port: u8,
    cost: u16,
}

#[derive(Debug)]
pub(super) struct RoutingTable {
    entries: Box<[RoutingEntry]>,
}

impl RoutingTable {
    pub(super) fn toward(graph: &ImportedGraph, orientation: &UpDownOrientation, switch: NodeId) -> Self {
        let nowhere = RoutingEntry { turn: RouteDirection::Nowhere, port: 0, cost: u16::MAX };
        let mut table = Self { entries: vec![nowhere; graph.switches()].into() };
        table.fill_down(graph, orientation, (switch.0 - graph.hosts) as usize);
        table.fill_up(graph, orientation);
        table.fill_aside(graph);
        table
    }

    pub(super) fn cost(&self, switch: usize) -> Option<u32> {
        let entry = self.entries[switch];
        (entry.turn != RouteDirection::Nowhere).then_some(u32::from(entry.cost))
    }

    /// The port a packet leaves by; equally good ports share by `spread`.
    pub(super) fn port(
        &self,
        graph: &ImportedGraph,
        orientation: &UpDownOrientation,
        at: NodeId,
        spread: u64,
    ) -> Option<FabricPort> {
        let here = (at.0 - graph.hosts) as usize;
        let entry = self.entries[here];
        let nearer = || {
            graph.switch_neighbours(here).filter(|&(_, peer)| self.entries[peer].cost.wrapping_add(1) == entry.cost)
        };
        match entry.turn {
            RouteDirection::Nowhere => None,
            RouteDirection::Aside => Some(FabricPort(u16::from(entry.port))),
            RouteDirection::Up => {
                let ports = || nearer().filter(|&(_, peer)| orientation.is_up(here, peer)).map(|(port, _)| port);
                nth_of(ports, spread)
            }
            RouteDirection::Down => {
                let is_good =
                    |peer| !orientation.is_up(here, peer) && self.entries[peer].turn == RouteDirection::Down;
                nth_of(|| nearer().filter(|&(_, peer)| is_good(peer)).map(|(port, _)| port), spread)
            }
        }
    }

    /// Breadth first from the destination, upward: all these have a way that only goes down.
    fn fill_down(&mut self, graph: &ImportedGraph, orientation: &UpDownOrientation, destination: usize) {
        self.entries[destination] = RoutingEntry { turn: RouteDirection::Down, port: 0, cost: 0 };
        let mut queue = VecDeque::from([destination]);
        while let Some(at) = queue.pop_front() {
            let cost = self.entries[at].cost + 1;
            for (_, peer) in graph.switch_neighbours(at) {
                if orientation.is_up(at, peer) && self.entries[peer].turn == RouteDirection::Nowhere {
                    self.entries[peer] = RoutingEntry { turn: RouteDirection::Down, port: 0, cost };
                    queue.push_back(peer);
                }
            }
        }
    }

    fn fill_up(&mut self, graph: &ImportedGraph, orientation: &UpDownOrientation) {
        for &switch in &orientation.from_top {
            if self.entries[switch].turn != RouteDirection::Nowhere {
                continue;
            }
            let above = graph.switch_neighbours(switch).filter(|&(_, peer)| orientation.is_up(switch, peer));
            let costs = above.map(|(_, peer)| self.entries[peer].cost).filter(|&cost| cost != u16::MAX);
            if let Some(cost) = costs.min() {
                self.entries[switch] = RoutingEntry { turn: RouteDirection::Up, port: 0, cost: cost + 1 };
            }
        }
    }

    fn fill_aside(&mut self, graph: &ImportedGraph) {
        if self.entries.iter().all(|entry| entry.turn != RouteDirection::Nowhere) {
            return;
        }
        let routed = self.entries.iter().enumerate().filter(|(_, entry)| entry.turn != RouteDirection::Nowhere);
        let mut queue: BinaryHeap<_> = routed.map(|(switch, entry)| Reverse((entry.cost, switch))).collect();
        while let Some(Reverse((cost, at))) = queue.pop() {
            if cost > self.entries[at].cost {
                continue;
            }
            for (port, peer) in graph.switch_neighbours(at) {
                let known = self.entries[peer];
                if matches!(known.turn, RouteDirection::Nowhere | RouteDirection::Aside) && cost + 1 < known.cost {
                    let back = graph.ports(NodeId(graph.hosts + at as u32))[port.index()];
                    let back = back.expect("a neighbour is cabled").port;
                    self.entries[peer] =
                        RoutingEntry { turn: RouteDirection::Aside, port: back.0 as u8, cost: cost + 1 };
                    queue.push(Reverse((cost + 1, peer)));
                }
            }
        }
    }
}
