//! How the operations of a group become those of a tree or of its hosts.

use std::sync::Arc;

use protocol::collective::{CollectiveAlgorithm, FoldOrder, FoldTreeNode};
use topology::{AggregationTree, Cable, ChildNode, NodeId, NodePort, TreeExclusions, TreeIndex};
use units::{AdapterLane, Rank};

use super::group::GroupOperation;
use crate::collective::{CollectiveMethod, ContributionContents, LongVector, SimulatedOperation};
use crate::network::SimulatedNetwork;
use crate::segmented::{HostOperation, VectorContents};

/// The algorithm of hosts that cannot have a tree.
pub(super) fn default_algorithm(operation: HostOperation) -> CollectiveAlgorithm {
    match operation {
        HostOperation::Barrier => CollectiveAlgorithm::Dissemination { radix: 2 },
        HostOperation::AllReduce => CollectiveAlgorithm::RecursiveDoubling,
        HostOperation::Broadcast | HostOperation::Reduce => CollectiveAlgorithm::Tree { radix: 2 },
        HostOperation::ReduceScatter | HostOperation::AllGather => CollectiveAlgorithm::Ring,
        HostOperation::AllToAll => CollectiveAlgorithm::Direct,
    }
}

pub(super) fn tree_operation(operation: HostOperation, method: CollectiveMethod) -> SimulatedOperation {
    match operation {
        HostOperation::Barrier => SimulatedOperation::Barrier(method),
        HostOperation::Broadcast => SimulatedOperation::Broadcast(method),
        HostOperation::Reduce => SimulatedOperation::Reduce,
        HostOperation::AllReduce => SimulatedOperation::AllReduce,
        HostOperation::ReduceScatter | HostOperation::AllGather | HostOperation::AllToAll => {
            unreachable!("aggregation nodes have no operations over blocks")
        }
    }
}

/// The vector as trees know it: the elements of a full segment, and how many segments there are.
pub(super) fn contents(spec: &GroupOperation) -> (ContributionContents, Option<LongVector>) {
    if spec.operation == HostOperation::Barrier {
        return (ContributionContents::SizeOnly { bytes: 0 }, None);
    }
    let (segments, kind) = (spec.segments(), spec.kind);
    let last_bytes = spec.elements_of(segments - 1) * kind.element_size() as u32;
    let long_vector = (segments > 1).then_some(LongVector { segments, last_bytes });
    let contents = match spec.contents {
        VectorContents::SizeOnly => {
            ContributionContents::SizeOnly { bytes: spec.elements_of(0) * kind.element_size() as u32 }
        }
        VectorContents::Elements | VectorContents::Digest { .. } => {
            ContributionContents::Real { kind, count: spec.elements_of(0) as u16 }
        }
    };
    (contents, long_vector)
}

/// The switches and cables that are down now, as a manager knows them.
pub(super) fn broken_parts(network: &SimulatedNetwork) -> TreeExclusions {
    let fabric = network.topology();
    let is_down = |end: NodePort| network.is_down(network.channel(end, AdapterLane(0)));
    let cables: Vec<Cable> = fabric.cables().filter(|cable| is_down(cable.a) || is_down(cable.b)).collect();
    let touches = |node: NodeId, cable: &Cable| cable.a.node == node || cable.b.node == node;
    let switches = (fabric.hosts()..fabric.nodes()).map(NodeId);
    let is_dead = |switch: &NodeId| {
        let down = cables.iter().filter(|cable| touches(*switch, cable)).count();
        down > 0 && down == fabric.cables().filter(|cable| touches(*switch, cable)).count()
    };
    let nodes = if cables.is_empty() { Vec::new() } else { switches.filter(is_dead).collect() };
    TreeExclusions { nodes, cables }
}

/// The order in which a tree folds, for hosts that finish its operation.
pub(super) fn fold_order(tree: &AggregationTree, hosts: &[NodeId]) -> Arc<FoldOrder> {
    let root: TreeIndex = tree.roots().next().expect("a tree has a root");
    let vertex = |place| match place {
        ChildNode::Host(host) => {
            let rank = hosts.binary_search(&host).expect("the tree is over the group's hosts");
            FoldTreeNode::Rank(Rank(rank as u32))
        }
        ChildNode::Node(node) => {
            FoldTreeNode::Node(tree.node(node).children.iter().map(|child| child.node).collect())
        }
    };
    let order = FoldOrder::from_tree(hosts.len() as u32, ChildNode::Node(root), vertex);
    Arc::new(order.expect("a tree has every rank once"))
}
