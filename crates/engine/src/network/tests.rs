//! Several processes' networks and the nodes between them, in one thread over loopback, turned by hand.

mod multicast_operations;

use std::time::{Duration, Instant};

use manager::{
    AggregationNodeId, AuthKey, ChildSpec, DistributionSpec, FoldTree, JobId, JobTicket, LeaderAttachment,
    ParentSpec, SeatAddress, SeatChild, SeatSpec,
};
use protocol::collective::{
    AggregationAvailability, AggregationUnavailable, OperandOrder, SelectionInput, TransportClass, choose_method,
};
use reduce::{ElementType, Operator, ReductionKind};
use units::{ChildIndex, Epoch};

use super::*;
use crate::aggregation::NodeDataPlane;
use control::DataPlane;
use transport::udp::FaultInjector;

const KEY: AuthKey = AuthKey([5; 16]);
const WORLD: GroupId = GroupId(0);
const PATIENCE: Duration = Duration::from_secs(30);
const WINDOW: u32 = 4;
const SEGMENT: u32 = 64;

fn loopback() -> Vec<SocketAddr> {
    vec!["127.0.0.1:0".parse().expect("an address")]
}

struct TestCluster {
    window: u32,
    /// Through the tree, if there is one.
    method: InterHostMethod,
    networks: Vec<LeaderNetwork>,
    nodes: Vec<NodeDataPlane>,
    tickets: Vec<Vec<OperationHandle>>,
}

fn sum() -> CollectiveOperation {
    CollectiveOperation::AllReduce {
        kind: ReductionKind::new(ElementType::F64, Operator::Sum).expect("they go together"),
    }
}

impl TestCluster {
    fn new(size: u32, mischief: &FaultInjector) -> Self {
        let mut networks: Vec<LeaderNetwork> =
            (0..size).map(|_| LeaderNetwork::open(&loopback(), mischief.clone()).expect("a socket")).collect();
        let addresses: Vec<Vec<SocketAddr>> = networks.iter().map(LeaderNetwork::addresses).collect();
        for (rank, network) in networks.iter_mut().enumerate() {
            let me = Rank(rank as u32);
            network.meet(MeshConfig { me, addresses: addresses.clone(), key: KEY, piece_bytes: 1000 });
            network.enter(WORLD, (0..size).map(Rank).collect(), me);
        }
        let tickets = vec![Vec::new(); size as usize];
        Self { window: WINDOW, method: InterHostMethod::Aggregation, tickets, networks, nodes: Vec::new() }
    }

    /// Two leaf seats below a root; the first leaf has all leaders but two.
    fn plant(&mut self, mischief: &FaultInjector) {
        self.plant_with(mischief, DistributionSpec::Edges);
    }

    fn plant_with(&mut self, mischief: &FaultInjector, distribution: DistributionSpec) {
        let (size, window) = (self.networks.len() as u32, self.window);
        let mut nodes: Vec<NodeDataPlane> =
            (0..3).map(|_| NodeDataPlane::open(&loopback(), mischief.clone()).expect("a socket")).collect();
        let number = |node: u32| AggregationNodeId(1 << 27 | node);
        let spec = |node: u32, parent, children| SeatSpec {
            ticket: JobTicket { job: JobId(1), key: KEY },
            group: GroupId(9),
            epoch: Epoch(1),
            key: KEY,
            node: number(node),
            name: format!("node {node}"),
            window,
            segment_bytes: SEGMENT,
            distribution,
            parent,
            children,
        };
        let shares = [0..size - 2, size - 2..size];
        let mut below_root = Vec::new();
        for (leaf, share) in shares.iter().enumerate() {
            let edge = QpNumber(0x100 + leaf as u32);
            let children = share.clone().map(|leader| ChildSpec {
                edge: QpNumber(0x200 + leader),
                addresses: self.networks[leader as usize].addresses(),
                who: SeatChild::Member { leader, rank: Rank(leader) },
            });
            let root = ParentSpec {
                edge,
                child: ChildIndex(leaf as u16),
                node: number(2),
                name: "node 2".to_owned(),
                addresses: nodes[2].addresses(),
            };
            let leaf_spec = spec(leaf as u32, Some(root), children.collect());
            nodes[leaf].install(&leaf_spec).expect("a free seat");
            let who = SeatChild::Seat { control: loopback()[0], spec: Box::new(leaf_spec) };
            below_root.push(ChildSpec { edge, addresses: nodes[leaf].addresses(), who });
        }
        nodes[2].install(&spec(2, None, below_root)).expect("a free seat");
        let fold = |share: &std::ops::Range<u32>| FoldTree::Fold(share.clone().map(FoldTree::Leader).collect());
        let opened = GroupDescriptor {
            group: GroupId(9),
            epoch: Epoch(1),
            key: KEY,
            window,
            segment_bytes: SEGMENT,
            distribution,
            seats: (0..2)
                .map(|leaf| SeatAddress {
                    node: number(leaf),
                    name: format!("node {leaf}"),
                    addresses: nodes[leaf as usize].addresses(),
                })
                .collect(),
            leaders: (0..size)
                .map(|leader| {
                    let seat = u32::from(leader >= size - 2);
                    let child = ChildIndex((leader - shares[seat as usize].start) as u16);
                    LeaderAttachment { seat, edge: QpNumber(0x200 + leader), child }
                })
                .collect(),
            fold: FoldTree::Fold(shares.iter().map(fold).collect()),
        };
        for network in &mut self.networks {
            network.plant(WORLD, opened.clone()).expect("a plan for this group");
        }
        self.nodes = nodes;
    }

    fn start(&mut self, rank: usize, collective: CollectiveOperation, data: Vec<u8>) {
        let size = self.networks.len() as u32;
        let situation = SelectionInput {
            collective,
            bytes: data.len() as u32,
            size,
            ranks_per_host: 1,
            per_processor: 1,
            operands: OperandOrder::Commute,
            aggregation: AggregationAvailability::NotOffered(AggregationUnavailable::NoManager),
            transport: TransportClass::Datagrams,
            preferred: None,
        };
        let method = if self.nodes.is_empty() { choose_method(&situation).method } else { self.method };
        let ticket = self.networks[rank].start(WORLD, method, collective, data);
        self.tickets[rank].push(ticket);
    }

    fn turn(&mut self) {
        self.nodes.iter_mut().for_each(|node| {
            node.turn();
        });
        self.networks.iter_mut().for_each(|network| {
            network.turn();
        });
    }

    /// Turns everybody until all started operations have ended.
    fn finish(&mut self) -> Vec<Vec<Result<Vec<u8>, LeaderNetworkError>>> {
        let began = Instant::now();
        let mut ends: Vec<Vec<_>> = self.tickets.iter().map(|tickets| vec![None; tickets.len()]).collect();
        while ends.iter().flatten().any(Option::is_none) {
            assert!(began.elapsed() < PATIENCE, "an operation hangs: {ends:?}");
            self.turn();
            for (rank, tickets) in self.tickets.iter().enumerate() {
                for (index, ticket) in tickets.iter().enumerate() {
                    if let Some(end) = self.networks[rank].take(*ticket) {
                        ends[rank][index] = Some(end);
                    }
                }
            }
        }
        self.tickets.iter_mut().for_each(Vec::clear);
        ends.into_iter().map(|ends| ends.into_iter().flatten().collect()).collect()
    }
}

/// A vector whose sum depends on the order of additions.
fn vector(rank: usize, op: usize, elements: usize) -> Vec<u8> {
    let value = |index: usize| {
        let big = if (rank + index + op).is_multiple_of(3) { 1e16 } else { 1.0 };
        (big + rank as f64 * 0.1) * if index.is_multiple_of(2) { 1.0 } else { -1.0 } + op as f64
    };
    (0..elements).flat_map(|index| value(index).to_le_bytes()).collect()
}

fn folded(ranks: std::ops::Range<usize>, op: usize, elements: usize) -> Vec<f64> {
    let value = |rank: usize| {
        let bytes = vector(rank, op, elements);
        let numbers = bytes.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight")));
        numbers.collect::<Vec<f64>>()
    };
    let mut sum = value(ranks.start);
    for rank in ranks.skip(1) {
        sum.iter_mut().zip(value(rank)).for_each(|(sum, value)| *sum += value);
    }
    sum
}

/// What the tree of [`TestCluster::plant`] gives.
fn in_tree_order(size: usize, op: usize, elements: usize) -> Vec<u8> {
    let (first, second) = (folded(0..size - 2, op, elements), folded(size - 2..size, op, elements));
    first.iter().zip(second).flat_map(|(first, second)| (first + second).to_le_bytes()).collect()
}

#[test]
fn hosts_alone_agree_on_every_collective() {
    let mut world = TestCluster::new(5, &FaultInjector::default());
    for elements in [0, 1, 3, 1000] {
        for rank in 0..5 {
            world.start(rank, CollectiveOperation::Barrier, Vec::new());
            world.start(rank, sum(), vector(rank, 0, elements));
            let data = if rank == 3 { vector(3, 1, elements) } else { vec![0xaa; elements * 8] };
            world.start(rank, CollectiveOperation::Broadcast { root: Rank(3) }, data);
        }
        let ends = world.finish();
        for end in &ends {
            assert_eq!(end[1], ends[0][1], "the same bits everywhere");
            assert_eq!(end[1].as_ref().map(Vec::len), Ok(elements * 8));
            assert_eq!(end[2], Ok(vector(3, 1, elements)));
        }
    }
}

#[test]
fn a_tree_gives_the_bits_of_its_order_for_many_operations_in_flight() {
    let mut world = TestCluster::new(5, &FaultInjector::default());
    world.plant(&FaultInjector::default());
    let sizes = [1, 0, 100, 8, 9, 3];
    for rank in 0..5 {
        for (op, elements) in sizes.into_iter().enumerate() {
            world.start(rank, sum(), vector(rank, op, elements));
        }
        world.start(rank, CollectiveOperation::Barrier, Vec::new());
        let data = if rank == 4 { vector(4, 7, 50) } else { vec![0; 400] };
        world.start(rank, CollectiveOperation::Broadcast { root: Rank(4) }, data);
    }
    for end in world.finish() {
        for (op, elements) in sizes.into_iter().enumerate() {
            assert!(end[op] == Ok(in_tree_order(5, op, elements)), "operation {op}");
        }
        assert_eq!(end[6], Ok(Vec::new()));
        assert_eq!(end[7], Ok(vector(4, 7, 50)));
    }
}

#[test]
fn a_tree_whose_multicasts_are_not_heard_any_more_is_left_with_the_same_bits() {
    let circle = |last: u8| DistributionSpec::Multicast { to: SocketAddr::from(([239, 195, 78, last], 4791)) };
    let mut world = TestCluster::new(5, &FaultInjector::default());
    world.plant_with(&FaultInjector::default(), circle(1));
    let round = |world: &mut TestCluster, op: usize| {
        (0..5).for_each(|rank| world.start(rank, sum(), vector(rank, op, 3)));
        for end in world.finish() {
            assert!(end[0] == Ok(in_tree_order(5, op, 3)), "operation {op}");
        }
    };
    (0..20).for_each(|op| round(&mut world, op));
    assert!(world.networks.iter().all(|network| network.heard(WORLD) == 20), "everyone hears");
    // The second rank hears no more, as behind a switch that has forgotten it.
    world.networks[1].wires.leave_circle(GroupId(9));
    (20..120).for_each(|op| round(&mut world, op));
    for network in &world.networks {
        assert!(network.tree(WORLD).is_some_and(|(_, is_sound)| !is_sound), "it has left the tree");
    }
}

#[test]
fn a_tree_may_be_taken_away_and_another_one_given() {
    let mut world = TestCluster::new(5, &FaultInjector::default());
    for turn in 0..3 {
        world.plant(&FaultInjector::default());
        (0..5).for_each(|rank| world.start(rank, sum(), vector(rank, turn, 9)));
        for end in world.finish() {
            assert!(end[0] == Ok(in_tree_order(5, turn, 9)));
        }
        world.networks.iter_mut().for_each(|network| network.uproot(WORLD));
        world.nodes.clear();
        (0..5).for_each(|rank| world.start(rank, CollectiveOperation::Barrier, Vec::new()));
        world.finish();
    }
}

/// Kills a node after so many turns of everybody in the middle of operations.
fn killed_node(node: usize, after: usize, mischief: &FaultInjector) {
    let mut world = TestCluster::new(5, mischief);
    world.plant(mischief);
    let elements = 60;
    for op in 0..12 {
        for rank in 0..5_usize {
            // Not all ranks are equally far.
            if op < 8 || !rank.is_multiple_of(2) {
                world.start(rank, sum(), vector(rank, op, elements));
            }
        }
    }
    for _ in 0..after {
        world.turn();
    }
    let address = world.nodes[node].addresses();
    world.nodes[node] = NodeDataPlane::open(&loopback(), FaultInjector::default()).expect("a socket");
    assert_ne!(world.nodes[node].addresses(), address);
    for _ in 0..10 {
        world.turn();
    }
    // One of the leaders hears of it early, as from a manager.
    world.networks[3].tree_lost(GroupKey { group: GroupId(9), epoch: Epoch(1) });
    for op in 8..12 {
        for rank in [0, 2, 4] {
            world.start(rank, sum(), vector(rank, op, elements));
        }
    }
    for rank in 0..5 {
        let data = if rank == 1 { vector(1, 99, 30) } else { vec![0; 240] };
        world.start(rank, CollectiveOperation::Broadcast { root: Rank(1) }, data);
        world.start(rank, CollectiveOperation::Barrier, Vec::new());
    }
    for (rank, end) in world.finish().into_iter().enumerate() {
        for (op, end) in end.iter().take(12).enumerate() {
            let same = *end == Ok(in_tree_order(5, op, elements));
            assert!(same, "rank {rank} operation {op}, node {node} after {after}");
        }
        assert_eq!(end[12], Ok(vector(1, 99, 30)));
    }
    assert!(world.networks.iter().all(|network| network.tree(WORLD).is_some_and(|(_, sound)| !sound)));
}

#[test]
fn a_killed_node_changes_no_bit_whenever_it_dies() {
    for node in 0..3 {
        for after in [0, 1, 2, 3, 5, 8, 13, 21, 34] {
            killed_node(node, after, &FaultInjector::default());
        }
    }
}

#[test]
fn a_killed_node_and_a_bad_network_change_no_bit() {
    let plan =
        "seed = 4\n[[fault]]\nkind = \"lose\"\nprobability = 0.02\n[[fault]]\nkind = \"flip\"\nprobability = 0.02\n";
    let plan = faults::FaultPlan::parse(plan).expect("a plan");
    for seed in 0..3 {
        killed_node(seed, 10 * seed, &FaultInjector::from_plan(&plan, seed as u64).expect("for sockets"));
    }
}

#[test]
fn without_a_word_from_anyone_the_loss_of_a_node_is_found_out() {
    let mut world = TestCluster::new(4, &FaultInjector::default());
    world.plant(&FaultInjector::default());
    world.nodes[2] = NodeDataPlane::open(&loopback(), FaultInjector::default()).expect("a socket");
    for rank in 0..4 {
        world.start(rank, sum(), vector(rank, 0, 40));
    }
    for end in world.finish() {
        assert!(end[0] == Ok(in_tree_order(4, 0, 40)));
    }
}

#[test]
fn ranks_that_disagree_all_hear_so() {
    for planted in [false, true] {
        for case in 0..4 {
            let mut world = TestCluster::new(4, &FaultInjector::default());
            if planted {
                world.plant(&FaultInjector::default());
            }
            for rank in 0..4 {
                let odd = rank == 2;
                match case {
                    0 => world.start(rank, sum(), vector(rank, 0, if odd { 16 } else { 8 })),
                    1 if odd => world.start(rank, CollectiveOperation::Barrier, Vec::new()),
                    2 if odd => {
                        let kind = ReductionKind::new(ElementType::I64, Operator::Sum).expect("they go together");
                        world.start(rank, CollectiveOperation::AllReduce { kind }, vector(rank, 0, 8));
                    }
                    3 => {
                        let root = Rank(if odd { 2 } else { 0 });
                        world.start(rank, CollectiveOperation::Broadcast { root }, vector(rank, 0, 8));
                    }
                    _ => world.start(rank, sum(), vector(rank, 0, 8)),
                }
            }
            let first = world.finish();
            // Among hosts, a rank may be through with its part before it hears of another root: then what follows fails.
            let lenient = !planted && case == 3;
            let disagree = Err(LeaderNetworkError::Disagree);
            for (rank, end) in first.iter().enumerate() {
                assert!(lenient || end[0] == disagree, "case {case}, tree {planted}, rank {rank}");
            }
            for _ in 0..20 {
                world.turn();
            }
            for rank in 0..4 {
                world.start(rank, sum(), vector(rank, 1, 8));
            }
            assert!(world.finish().iter().all(|end| end[0] == disagree), "case {case}, tree {planted}");
        }
    }
}

#[test]
fn a_lost_rank_is_named_to_all_others() {
    for planted in [false, true] {
        let mut world = TestCluster::new(4, &FaultInjector::default());
        if planted {
            world.plant(&FaultInjector::default());
        }
        for rank in 0..3 {
            world.start(rank, sum(), vector(rank, 0, 8));
        }
        world.turn();
        for rank in 0..3 {
            world.networks[rank].rank_lost(Rank(3));
            world.start(rank, sum(), vector(rank, 1, 8));
        }
        for end in &world.finish()[..3] {
            assert_eq!(
                *end,
                [Err(LeaderNetworkError::RankLost(Rank(3))), Err(LeaderNetworkError::RankLost(Rank(3)))]
            );
        }
    }
}
