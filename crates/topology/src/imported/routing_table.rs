//! The routing table toward one switch.
//!
//! In: the graph, its orientation, a destination. Out: a port and a cost for every switch.
//! Rules: a switch with a path that only goes down takes the shortest such path, so that a packet that
//! has turned down never turns up again; any other goes up to the neighbour with the least cost. A
//! switch with neither (a root with another root as the destination) forwards to the neighbour with the
//! least cost, which violates up*/down*; only control traffic takes such paths. Every hop decreases the
//! cost by one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::graph::ImportedGraph;
use super::orientation::UpDownOrientation;
use super::select_by_spread;
use crate::parts::{FabricPort, NodeId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RouteDirection {
    /// No path.
    None,
    Down,
    Up,
    /// Violates up*/down*.
    AgainstOrder,
}

#[derive(Clone, Copy, Debug)]
struct RoutingEntry {
    direction: RouteDirection,
    port: u8,
    cost: u16,
}

#[derive(Debug)]
pub(super) struct RoutingTable {
    entries: Box<[RoutingEntry]>,
}

impl RoutingTable {
    pub(super) fn toward(graph: &ImportedGraph, orientation: &UpDownOrientation, switch: NodeId) -> Self {
        let unreachable = RoutingEntry { direction: RouteDirection::None, port: 0, cost: u16::MAX };
        let mut table = Self { entries: vec![unreachable; graph.switches()].into() };
        table.fill_down(graph, orientation, (switch.0 - graph.hosts) as usize);
        table.fill_up(graph, orientation);
        table.fill_against_order(graph);
        table
    }

    pub(super) fn cost(&self, switch: usize) -> Option<u32> {
        let entry = self.entries[switch];
        (entry.direction != RouteDirection::None).then_some(u32::from(entry.cost))
    }

    /// The port a packet leaves by; `spread` selects among equally good ports.
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
        match entry.direction {
            RouteDirection::None => None,
            RouteDirection::AgainstOrder => Some(FabricPort(u16::from(entry.port))),
            RouteDirection::Up => {
                let ports = || nearer().filter(|&(_, peer)| orientation.is_up(here, peer)).map(|(port, _)| port);
                select_by_spread(ports, spread)
            }
            RouteDirection::Down => {
                let is_good =
                    |peer| !orientation.is_up(here, peer) && self.entries[peer].direction == RouteDirection::Down;
                select_by_spread(|| nearer().filter(|&(_, peer)| is_good(peer)).map(|(port, _)| port), spread)
            }
        }
    }

    /// Breadth first from the destination, upward: these switches have a path that only goes down.
    fn fill_down(&mut self, graph: &ImportedGraph, orientation: &UpDownOrientation, destination: usize) {
        self.entries[destination] = RoutingEntry { direction: RouteDirection::Down, port: 0, cost: 0 };
        let mut queue = VecDeque::from([destination]);
        while let Some(at) = queue.pop_front() {
            let cost = self.entries[at].cost + 1;
            for (_, peer) in graph.switch_neighbours(at) {
                if orientation.is_up(at, peer) && self.entries[peer].direction == RouteDirection::None {
                    self.entries[peer] = RoutingEntry { direction: RouteDirection::Down, port: 0, cost };
                    queue.push_back(peer);
                }
            }
        }
    }

    fn fill_up(&mut self, graph: &ImportedGraph, orientation: &UpDownOrientation) {
        for &switch in &orientation.from_top {
            if self.entries[switch].direction != RouteDirection::None {
                continue;
            }
            let above = graph.switch_neighbours(switch).filter(|&(_, peer)| orientation.is_up(switch, peer));
            let costs = above.map(|(_, peer)| self.entries[peer].cost).filter(|&cost| cost != u16::MAX);
            if let Some(cost) = costs.min() {
                self.entries[switch] = RoutingEntry { direction: RouteDirection::Up, port: 0, cost: cost + 1 };
            }
        }
    }

    fn fill_against_order(&mut self, graph: &ImportedGraph) {
        if self.entries.iter().all(|entry| entry.direction != RouteDirection::None) {
            return;
        }
        let routed = self.entries.iter().enumerate().filter(|(_, entry)| entry.direction != RouteDirection::None);
        let mut queue: BinaryHeap<_> = routed.map(|(switch, entry)| Reverse((entry.cost, switch))).collect();
        while let Some(Reverse((cost, at))) = queue.pop() {
            if cost > self.entries[at].cost {
                continue;
            }
            for (port, peer) in graph.switch_neighbours(at) {
                let known = self.entries[peer];
                if matches!(known.direction, RouteDirection::None | RouteDirection::AgainstOrder)
                    && cost + 1 < known.cost
                {
                    let back = graph.ports(NodeId(graph.hosts + at as u32))[port.index()];
                    let back = back.expect("a neighbour is cabled").port;
                    self.entries[peer] =
                        RoutingEntry { direction: RouteDirection::AgainstOrder, port: back.0 as u8, cost: cost + 1 };
                    queue.push(Reverse((cost + 1, peer)));
                }
            }
        }
    }
}
