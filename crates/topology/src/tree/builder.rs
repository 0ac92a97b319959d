//! Builds a tree: splits nodes with too many children and links children to parents.
//!
//! In: switches with their children, lower ones first. Out: the finished tree.
//! Rules: no node has more children than the limit; a split node becomes several on the same
//! switch, connected by edges without a port, with its children in the same order. A child gets its
//! parents in the order in which they are added.

use units::ChildIndex;
use units::limits::MAX_CHILDREN;

use super::{AggregationTree, ChildNode, Downlink, TreeIndex, TreeNode, Uplink};
use crate::fabric::Fabric;
use crate::parts::NodeId;

pub(super) struct TreeBuilder<'a> {
    fabric: &'a Fabric,
    limit: usize,
    nodes: Vec<TreeNode>,
}

impl<'a> TreeBuilder<'a> {
    pub(super) fn new(fabric: &'a Fabric, radix_limit: Option<u16>) -> Self {
        let limit = radix_limit.map_or(MAX_CHILDREN, usize::from).min(MAX_CHILDREN);
        Self { fabric, limit, nodes: Vec::new() }
    }

    /// Adds the node that folds all these children on `switch`, and splits it if necessary.
    pub(super) fn add(&mut self, switch: NodeId, mut children: Vec<Downlink>) -> TreeIndex {
        while children.len() > self.limit {
            // The fewest parts that hold all children, of even sizes.
            let parts = children.len().div_ceil(self.limit);
            let part_size = children.len().div_ceil(parts);
            children = children.chunks(part_size).map(|part| self.add_part(switch, part)).collect();
        }
        self.push(switch, children)
    }

    fn add_part(&mut self, switch: NodeId, part: &[Downlink]) -> Downlink {
        match part {
            [only] => *only, // A node with one operand would fold nothing.
            _ => Downlink { node: ChildNode::Node(self.push(switch, part.to_vec())), port: None },
        }
    }

    fn push(&mut self, switch: NodeId, children: Vec<Downlink>) -> TreeIndex {
        let index = TreeIndex(self.nodes.len() as u32);
        for (position, child) in children.iter().enumerate() {
            if let ChildNode::Node(below) = child.node {
                let port = child.port.map(|port| self.fabric.peer(switch, port).expect("tree edges are cabled").port);
                let uplink = Uplink { parent: index, port, child: ChildIndex::from_position(position) };
                self.nodes[below.index()].parents.push(uplink);
            }
        }
        let level = self.fabric.level(switch);
        self.nodes.push(TreeNode { switch, level, parents: Vec::new(), children });
        index
    }

    pub(super) fn finish(mut self) -> AggregationTree {
        let below = self.nodes.iter().filter(|node| !node.parents.is_empty()).count();
        let roots_are_last = self.nodes[below..].iter().all(|node| node.parents.is_empty());
        if !roots_are_last {
            self.move_roots_last(below);
        }
        AggregationTree { nodes: self.nodes }
    }

    /// Roots have no parents, so moving them to the end keeps children before parents.
    fn move_roots_last(&mut self, below: usize) {
        let (mut next_below, mut next_root) = (0, below as u32);
        let moved: Vec<TreeIndex> = self
            .nodes
            .iter()
            .map(|node| {
                let next = if node.parents.is_empty() { &mut next_root } else { &mut next_below };
                *next += 1;
                TreeIndex(*next - 1)
            })
            .collect();
        for node in &mut self.nodes {
            for uplink in &mut node.parents {
                uplink.parent = moved[uplink.parent.index()];
            }
            for child in &mut node.children {
                if let ChildNode::Node(index) = &mut child.node {
                    *index = moved[index.index()];
                }
            }
        }
        self.nodes.sort_by_key(|node| node.parents.is_empty());
    }
}
