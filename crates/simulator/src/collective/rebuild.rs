//! After a failure: the tree is rebuilt on the cables and switches that are left.
//!
//! In: what is down when an operation has failed. Out: a new tree and new machines, or none if the members cannot be joined without
//! what is down. The topology's own builder places the tree ([`topology::place_tree`], which avoids cables and switches); the
//! manager's placement works on registered nodes and knows no cables. As with the manager, the operation that failed is not repeated.

use std::collections::BTreeMap;

use topology::{Cable, NodeId, TreeExclusions, TreeRequest};
use units::OpId;

use super::{CollectiveDriver, SimulatedCollective};
use crate::network::SimulatedNetwork;

impl SimulatedCollective {
    /// Rebuilds the tree if that helps; `next` is the number of the next operation. False if everything stays as it is.
    pub(super) fn rebuild(&mut self, next: OpId) -> bool {
        let parameters = &self.driver.parameters;
        let Some(delay) = parameters.rebuild_after.filter(|_| parameters.spatial_copies() == 1) else { return false };
        let avoid = what_is_down(&self.network);
        if avoid == TreeExclusions::default() {
            return false;
        }
        let request = TreeRequest { avoid, ..self.request.clone() };
        let Ok(tree) = topology::place_tree(self.network.topology(), &request) else { return false };
        if tree == self.tree {
            return false;
        }
        let ready = self.network.now() + delay;
        self.network.run(&mut self.driver, |_, network| network.now() >= ready);
        self.network.skip_to(ready);
        // Packets and timers of the old machines carry the old number: the new ones do not take them for their own.
        self.rebuilds += 1;
        let number = self.rebuilds.min(u32::from(u16::MAX / 2)) as u16;
        self.network.set_driver(number);
        let parameters = self.driver.parameters.clone();
        self.first_number = self.first_number.wrapping_add(self.driver.next_number().0);
        self.driver = CollectiveDriver::new(&tree, &mut self.network, parameters, self.seed);
        self.driver.own_number = Some(number);
        self.driver.set_position(next);
        self.tree = tree;
        true
    }
}

/// The cables that are down, and the switches all of whose cables are.
fn what_is_down(network: &SimulatedNetwork) -> TreeExclusions {
    let fabric = network.topology();
    let mut cables: Vec<Cable> = Vec::new();
    let mut down_ports: BTreeMap<NodeId, usize> = BTreeMap::new();
    for channel in (0..network.channel_count()).filter(|channel| network.is_down(*channel)) {
        let (from, lane) = network.origin(channel);
        cables.extend(fabric.cable(from).filter(|_| lane.0 == 0));
        *down_ports.entry(from.node).or_default() += usize::from(lane.0 == 0);
    }
    cables.sort_unstable_by_key(|cable| (cable.a, cable.b));
    cables.dedup();
    let is_dead =
        |(node, down): &(&NodeId, &usize)| !fabric.is_host(**node) && fabric.neighbours(**node).count() == **down;
    let nodes = down_ports.iter().filter(is_dead).map(|(node, _)| *node).collect();
    TreeExclusions { nodes, cables }
}
