//! The scenario over sockets: leaders and aggregation nodes in one thread over loopback.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use control::DataPlane;
use engine::aggregation::NodeDataPlane;
use engine::network::{LeaderNetwork, MeshConfig, OperationHandle};
use faults::FaultPlan;
use manager::{
    AggregationNodeId, AuthKey, ChildSpec, DistributionSpec, FoldTree, GroupDescriptor, JobId, JobTicket,
    LeaderAttachment, ParentSpec, SeatAddress, SeatChild, SeatSpec,
};
use protocol::collective::{CollectiveAlgorithm, CollectiveOperation, InterHostMethod};
use topology::{AggregationTree, ChildNode, TreeIndex};
use transport::udp::FaultInjector;
use units::{ChildIndex, Epoch, GroupId, OpId, QpNumber, Rank};

use super::{HOSTS, OPERATIONS, Results, input, sum};

const KEY: AuthKey = AuthKey([5; 16]);
const WORLD: GroupId = GroupId(0);
/// The group at the manager.
const TREE: GroupId = GroupId(9);
const WINDOW: u32 = 4;
/// A vector takes several segments.
const SEGMENT_BYTES: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(60);
/// The edges of leaders have these numbers; those of nodes follow.
const FIRST_EDGE: u32 = 0x100;

/// All processes.
struct Cluster {
    networks: Vec<LeaderNetwork>,
    nodes: Vec<NodeDataPlane>,
}

/// The results of operations through nodes that form this tree, of which host `n` is rank `n`.
pub(super) fn through_tree(tree: &AggregationTree, plan: &FaultPlan) -> Results {
    let mut cluster = Cluster::new(plan);
    cluster.nodes = (0..tree.nodes.len()).map(|node| open_node(plan, 1_000 + node as u64)).collect();
    let root = tree.roots().next().expect("a tree has a root");
    cluster.install(tree, root, None);
    let opened = cluster.describe(tree, root);
    for network in &mut cluster.networks {
        network.attach_tree(WORLD, opened.clone()).expect("a plan for this group");
    }
    cluster.run(InterHostMethod::Aggregation)
}

/// The results of operations among the hosts alone.
pub(super) fn among_hosts(algorithm: CollectiveAlgorithm, plan: &FaultPlan) -> Results {
    Cluster::new(plan).run(InterHostMethod::PointToPoint(algorithm))
}

fn loopback() -> Vec<SocketAddr> {
    vec!["127.0.0.1:0".parse().expect("an address")]
}

fn injector(plan: &FaultPlan, process: u64) -> FaultInjector {
    FaultInjector::from_plan(plan, process).expect("a plan for sockets")
}

fn open_node(plan: &FaultPlan, process: u64) -> NodeDataPlane {
    NodeDataPlane::open(&loopback(), injector(plan, process)).expect("a socket")
}

fn node_id(node: TreeIndex) -> AggregationNodeId {
    AggregationNodeId(1 << 27 | node.0)
}

/// The edge above a child.
fn edge_of(child: ChildNode) -> QpNumber {
    QpNumber(match child {
        ChildNode::Host(host) => FIRST_EDGE + host.0,
        ChildNode::Node(node) => FIRST_EDGE + HOSTS + node.0,
    })
}

fn fold_tree(tree: &AggregationTree, child: ChildNode) -> FoldTree {
    match child {
        ChildNode::Host(host) => FoldTree::Leader(host.0),
        ChildNode::Node(node) => {
            FoldTree::Fold(tree.node(node).children.iter().map(|child| fold_tree(tree, child.node)).collect())
        }
    }
}

impl Cluster {
    fn new(plan: &FaultPlan) -> Self {
        let open = |rank: u64| LeaderNetwork::open(&loopback(), injector(plan, rank)).expect("a socket");
        let mut networks: Vec<LeaderNetwork> = (0..u64::from(HOSTS)).map(open).collect();
        let addresses: Vec<Vec<SocketAddr>> = networks.iter().map(LeaderNetwork::addresses).collect();
        for (network, me) in networks.iter_mut().zip((0..).map(Rank)) {
            let (addresses, key) = (addresses.clone(), KEY);
            network.connect_mesh(MeshConfig { me, addresses, key, fragment_bytes: 1_000, link_bytes: 1_500 });
            network.enter(WORLD, (0..HOSTS).map(Rank).collect(), me);
        }
        Self { networks, nodes: Vec::new() }
    }

    /// Installs the seat of a node and all seats below it.
    fn install(&mut self, tree: &AggregationTree, node: TreeIndex, parent: Option<ParentSpec>) -> SeatSpec {
        let addresses = self.nodes[node.0 as usize].addresses();
        let mut children = Vec::new();
        for (place, child) in tree.node(node).children.iter().enumerate() {
            let edge = edge_of(child.node);
            children.push(match child.node {
                ChildNode::Host(host) => ChildSpec {
                    edge,
                    addresses: self.networks[host.0 as usize].addresses(),
                    who: SeatChild::Member { leader: host.0, rank: Rank(host.0), host: String::new() },
                },
                ChildNode::Node(below) => {
                    let (child, addresses) = (ChildIndex(place as u16), addresses.clone());
                    let above = ParentSpec { edge, child, node: node_id(node), name: String::new(), addresses };
                    let spec = Box::new(self.install(tree, below, Some(above)));
                    let addresses = self.nodes[below.0 as usize].addresses();
                    ChildSpec { edge, addresses, who: SeatChild::Seat { control: loopback()[0], spec } }
                }
            });
        }
        let spec = SeatSpec {
            ticket: JobTicket { job: JobId(1), key: KEY },
            group: TREE,
            epoch: Epoch(1),
            key: KEY,
            node: node_id(node),
            name: format!("node {}", node.0),
            window: WINDOW,
            segment_bytes: SEGMENT_BYTES,
            distribution: DistributionSpec::Edges,
            parent,
            children,
        };
        self.nodes[node.0 as usize].install(&spec).expect("a free seat");
        spec
    }

    /// What the manager would tell the leaders.
    fn describe(&self, tree: &AggregationTree, root: TreeIndex) -> GroupDescriptor {
        let attachment = |rank: u32| {
            let is_rank = |child: ChildNode| matches!(child, ChildNode::Host(host) if host.0 == rank);
            let (seat, place) = tree
                .nodes
                .iter()
                .enumerate()
                .find_map(|(seat, node)| Some((seat, node.children.iter().position(|child| is_rank(child.node))?)))
                .expect("every host is below a node");
            let edge = QpNumber(FIRST_EDGE + rank);
            LeaderAttachment { seat: seat as u32, edge, child: ChildIndex(place as u16) }
        };
        let seat = |(index, node): (usize, &NodeDataPlane)| SeatAddress {
            node: node_id(TreeIndex(index as u32)),
            name: format!("node {index}"),
            addresses: node.addresses(),
        };
        GroupDescriptor {
            group: TREE,
            epoch: Epoch(1),
            key: KEY,
            window: WINDOW,
            segment_bytes: SEGMENT_BYTES,
            distribution: DistributionSpec::Edges,
            seats: self.nodes.iter().enumerate().map(seat).collect(),
            leaders: (0..HOSTS).map(attachment).collect(),
            fold: fold_tree(tree, ChildNode::Node(root)),
        }
    }

    /// Runs all operations, several at a time.
    fn run(mut self, method: InterHostMethod) -> Results {
        let mut waiting: Vec<(OpId, Rank, OperationHandle)> = Vec::new();
        for op in (0..OPERATIONS).map(OpId) {
            for (network, rank) in self.networks.iter_mut().zip((0..).map(Rank)) {
                let collective = CollectiveOperation::AllReduce { kind: sum() };
                waiting.push((op, rank, network.start(WORLD, method, collective, input(rank, op))));
            }
        }
        let (mut results, began) = (Results::new(), Instant::now());
        while !waiting.is_empty() {
            assert!(began.elapsed() < PATIENCE, "{} operations hang", waiting.len());
            for node in &mut self.nodes {
                node.turn();
            }
            for network in &mut self.networks {
                network.turn();
            }
            waiting.retain(|(op, rank, handle)| match self.networks[rank.index()].take(*handle) {
                None => true,
                Some(result) => {
                    results.insert((*op, *rank), result.expect("the operation completes"));
                    false
                }
            });
        }
        results
    }
}
