//! The links of the network as the cables of a fabric: fault plans, reports and diagrams name nodes of `topology`'s 4-ary n-tree.
//!
//! Both number the switches of a level by the subtree below and by the plane within it. A switch's word has the subtree's digits
//! above and the plane's below; in a fabric the first digit of the plane is the most significant one, here it is the least.

use topology::{Fabric, NodeId, ShapeError};

use super::quaternary_tree::{ARITY, EliteSwitch, QuaternaryTree, TreeLink, TreeLinkEnd};

/// The ends of every link, by its number.
pub(crate) fn link_ends(tree: QuaternaryTree) -> Vec<(NodeId, NodeId)> {
    (0..tree.links()).map(|number| ends(tree, TreeLink(number))).collect()
}

/// The fabric of a tree.
pub(crate) fn fabric(tree: QuaternaryTree) -> Result<Fabric, ShapeError> {
    Fabric::kary_ntree(ARITY, tree.dimension())
}

fn ends(tree: QuaternaryTree, link: TreeLink) -> (NodeId, NodeId) {
    let there = tree.end(link);
    // The other direction of the cable leads back.
    let here = tree.end(TreeLink(link.0 ^ 1));
    (node(tree, here), node(tree, there))
}

fn node(tree: QuaternaryTree, end: TreeLinkEnd) -> NodeId {
    match end {
        TreeLinkEnd::Node(node) => NodeId(node),
        TreeLinkEnd::Switch(switch) => switch_node(tree, switch),
    }
}

fn switch_node(tree: QuaternaryTree, EliteSwitch { word, level }: EliteSwitch) -> NodeId {
    let planes = 1 << (2 * level);
    let (subtree, digits) = (word / planes, word % planes);
    let plane = (0..level).fold(0, |plane, place| plane * ARITY + (digits >> (2 * place)) % ARITY);
    NodeId(tree.nodes() + level * (tree.nodes() / ARITY) + subtree * planes + plane)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_link_is_one_direction_of_a_cable_of_the_fabric() {
        for dimension in 1..=4 {
            let tree = QuaternaryTree::new(dimension).expect("the dimension is valid");
            let cables: BTreeSet<(NodeId, NodeId)> = fabric(tree)
                .expect("the shape is valid")
                .cables()
                .flat_map(|cable| [(cable.a.node, cable.b.node), (cable.b.node, cable.a.node)])
                .collect();
            let links = link_ends(tree);
            assert_eq!(links.iter().copied().collect::<BTreeSet<_>>(), cables, "dimension {dimension}");
            assert_eq!(links.len(), cables.len());
        }
    }
}
