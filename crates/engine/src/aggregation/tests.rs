//! Seats and memberships of one process over loopback, turned by hand.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use manager::message::GroupKey;
use manager::{
    AggregationNodeId, AuthKey, ChildSpec, DistributionSpec, FoldTree, GroupDescriptor, JobId, JobTicket,
    LeaderAttachment, ParentSpec, SeatAddress, SeatChild, SeatSpec,
};
use protocol::Payload;
use protocol::aggregation::{AbortCause, AggregationAction, Contribution, ContributionRole, ResultDisposition};
use reduce::{ElementType, Operator};
use units::{ChildIndex, Epoch, GroupId, QpNumber, Rank, SegmentIndex};
use wire::aggregation::{ElementCode, OperatorCode};

use super::*;
use control::{DataPlane, SeatFailure};
use transport::udp::FaultInjector;

const KEY: AuthKey = AuthKey([9; 16]);
const GROUP: GroupKey = GroupKey { group: GroupId(3), epoch: Epoch(1) };

/// Two leaf seats under a root, each with two members; every party has its own socket.
struct TestTree {
    nodes: Vec<NodeDataPlane>,
    members: Vec<(TreeEdges, Membership)>,
    opened: GroupDescriptor,
}

fn loopback() -> Vec<SocketAddr> {
    vec!["127.0.0.1:0".parse().expect("an address")]
}

fn number(count: u32) -> AggregationNodeId {
    AggregationNodeId(1 << 27 | count)
}

impl TestTree {
    fn new(mischief: &FaultInjector) -> Self {
        Self::spread(mischief, DistributionSpec::Edges)
    }

    fn spread(mischief: &FaultInjector, distribution: DistributionSpec) -> Self {
        Self::with_key(mischief, distribution, KEY)
    }

    /// The members believe in another key than the nodes.
    fn with_key(mischief: &FaultInjector, distribution: DistributionSpec, members_key: AuthKey) -> Self {
        let mut nodes: Vec<NodeDataPlane> =
            (0..3).map(|_| NodeDataPlane::open(&loopback(), mischief.clone()).expect("a socket")).collect();
        let mut wires: Vec<TreeEdges> =
            (0..4).map(|_| TreeEdges::open(&loopback(), mischief.clone()).expect("a socket")).collect();
        let spec = |node: u32, parent, children| SeatSpec {
            ticket: JobTicket { job: JobId(1), key: KEY },
            group: GROUP.group,
            epoch: GROUP.epoch,
            key: KEY,
            node: number(node),
            name: format!("node {node}"),
            window: 4,
            segment_bytes: 1024,
            distribution,
            parent,
            children,
        };
        let mut below_root = Vec::new();
        for leaf in 0..2 {
            let edge = QpNumber(0x100 + leaf);
            let children = (0..2).map(|member| {
                let leader = leaf * 2 + member;
                let addresses = wires[leader as usize].addresses();
                ChildSpec {
                    edge: QpNumber(0x200 + leader),
                    addresses,
                    who: SeatChild::Member { leader, rank: Rank(leader) },
                }
            });
            let root = ParentSpec {
                edge,
                child: ChildIndex(leaf as u16),
                node: number(2),
                name: "node 2".to_owned(),
                addresses: nodes[2].addresses(),
            };
            let leaf_spec = spec(leaf, Some(root), children.collect());
            nodes[leaf as usize].install(&leaf_spec).expect("a free seat");
            let control = loopback()[0];
            let addresses = nodes[leaf as usize].addresses();
            below_root.push(ChildSpec {
                edge,
                addresses,
                who: SeatChild::Seat { control, spec: Box::new(leaf_spec) },
            });
        }
        nodes[2].install(&spec(2, None, below_root)).expect("a free seat");
        let seat = |node: u32| SeatAddress {
            node: number(node),
            name: format!("node {node}"),
            addresses: nodes[node as usize].addresses(),
        };
        let place = |leader: u32| LeaderAttachment {
            seat: leader / 2,
            edge: QpNumber(0x200 + leader),
            child: ChildIndex(leader as u16 % 2),
        };
        let pair = |leaf: u32| FoldTree::Fold(vec![FoldTree::Leader(leaf * 2), FoldTree::Leader(leaf * 2 + 1)]);
        let opened = GroupDescriptor {
            group: GROUP.group,
            epoch: GROUP.epoch,
            key: members_key,
            window: 4,
            segment_bytes: 1024,
            distribution,
            seats: (0..2).map(seat).collect(),
            leaders: (0..4).map(place).collect(),
            fold: FoldTree::Fold(vec![pair(0), pair(1)]),
        };
        let members = wires.drain(..).enumerate().map(|(leader, mut wires)| {
            let membership = Membership::join(&mut wires, &opened, leader).expect("a place");
            (wires, membership)
        });
        Self { members: members.collect(), nodes, opened }
    }

    fn start(&mut self, leader: usize, value: i32) {
        self.start_as(leader, Some(value), ResultDisposition::Result);
    }

    /// Gives a value, or nothing.
    fn start_as(&mut self, leader: usize, value: Option<i32>, wish: ResultDisposition) {
        let contribution = Contribution {
            element: ElementCode(ElementType::I32.code()),
            operator: OperatorCode(Operator::Sum.code()),
            element_count: value.is_some().into(),
            voice: if value.is_some() { ContributionRole::Plain } else { ContributionRole::Silent },
            wish,
            segment: SegmentIndex(0),
            payload: value.map_or(Payload::EMPTY, |value| Payload::Bytes(value.to_le_bytes().into())),
        };
        let (wires, membership) = &mut self.members[leader];
        membership.start(wires, contribution).expect("the window is not full");
        wires.flush();
    }

    /// Turns everybody until each member has heard `wanted` times, or the time is up.
    fn run(&mut self, wanted: usize, patience: Duration) -> Vec<Vec<AggregationAction>> {
        let mut done: Vec<Vec<AggregationAction>> = vec![Vec::new(); self.members.len()];
        let began = Instant::now();
        let mut inputs = Vec::new();
        while done.iter().any(|done| done.len() < wanted) && began.elapsed() < patience {
            for node in &mut self.nodes {
                node.turn();
            }
            for ((wires, membership), done) in self.members.iter_mut().zip(&mut done) {
                wires.receive(&mut inputs);
                for input in inputs.drain(..) {
                    membership.handle(wires, input, done);
                }
                if membership.deadline() <= wires.clock().now() {
                    membership.handle_timeout(wires, done);
                }
                wires.flush();
            }
        }
        done
    }
}

fn results(done: &[AggregationAction]) -> Vec<i32> {
    let bytes = done.iter().map(|duty| match duty {
        AggregationAction::Complete { result, .. } => {
            result.bytes().expect("real bytes").try_into().expect("one element")
        }
        other => panic!("{other:?}"),
    });
    bytes.map(i32::from_le_bytes).collect()
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn members_of_a_tree_of_nodes_get_the_sum() {
    let mut tree = TestTree::new(&FaultInjector::default());
    for round in 0..100 {
        for leader in 0..4 {
            tree.start(leader, round * 100 + leader as i32);
        }
        for done in tree.run(1, PATIENCE) {
            assert_eq!(results(&done), [round * 400 + 6], "round {round}");
        }
    }
    assert_eq!(tree.nodes[2].report().operations, 100);
}

#[test]
fn a_result_may_go_to_one_or_to_a_target_outside() {
    let mut tree = TestTree::new(&FaultInjector::default());
    for round in 0..40 {
        let target = round as usize % 4;
        let is_outside = round % 8 >= 4;
        for leader in 0..4 {
            let value = (leader != target || !is_outside).then_some(1 << leader);
            tree.start_as(
                leader,
                value,
                if leader == target { ResultDisposition::Result } else { ResultDisposition::End },
            );
        }
        let wanted = if is_outside { 15 - (1 << target) } else { 15 };
        for (leader, done) in tree.run(1, PATIENCE).iter().enumerate() {
            match (leader == target, &done[..]) {
                (true, done) => assert_eq!(results(done), [wanted], "round {round}"),
                (false, [AggregationAction::Complete { result, .. }]) => assert_eq!(result.len(), 0, "round {round}"),
                (false, other) => panic!("round {round}: {other:?}"),
            }
        }
    }
}

fn circle(last: u8) -> SocketAddr {
    SocketAddr::from(([239, 195, 77, last], 4791))
}

#[test]
fn results_may_come_by_multicast() {
    let mut tree = TestTree::spread(&FaultInjector::default(), DistributionSpec::Multicast { to: circle(1) });
    let began = Instant::now();
    for round in 0..100 {
        for leader in 0..4 {
            tree.start(leader, round * 100 + leader as i32);
        }
        for done in tree.run(1, PATIENCE) {
            assert_eq!(results(&done), [round * 400 + 6], "round {round}");
        }
    }
    // If nobody had heard it, every result would have been asked for, after 50 ms each.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let sent: u64 = tree.nodes.iter().map(|node| node.report().sent).sum();
    // 100 results for everyone, 200 folds of the leaves, and some acknowledgements; edge by edge it would be 800.
    assert!(sent < 600, "{sent} packets");
}

#[test]
fn whoever_listens_at_an_ear_takes_the_result_there_and_does_not_listen_for_ever() {
    let mut tree = TestTree::spread(&FaultInjector::default(), DistributionSpec::Multicast { to: circle(17) });
    let ear = tree.members[0].1.ear().expect("results come by multicast").clone();
    let began = Instant::now();
    assert!(ear.listen().is_none(), "nothing was sent");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    for leader in 0..4 {
        tree.start(leader, 1 << leader);
    }
    let listen = |_| {
        for node in &mut tree.nodes {
            node.turn();
        }
        ear.listen()
    };
    let heard = (0..1000).find_map(listen).expect("a result");
    assert!(ear.listen().is_none(), "one at a time");
    let (wires, membership) = &mut tree.members[0];
    let (mut inputs, mut done) = (Vec::new(), Vec::new());
    assert!(wires.receive_at(ReadySockets::Taken(&heard), &mut inputs));
    inputs.into_iter().for_each(|input| membership.handle(wires, input, &mut done));
    assert_eq!(results(&done), [15]);
}

#[test]
fn a_multicast_that_nobody_can_hear_or_prove_is_repaired() {
    // The members know another address than the nodes: every result must be asked for.
    let mut tree = TestTree::spread(&FaultInjector::default(), DistributionSpec::Multicast { to: circle(2) });
    for (wires, _) in &mut tree.members {
        wires.leave_circle(GROUP.group);
        wires.join_circle(GROUP.group, circle(3), KEY, MulticastRole::Open).expect("an address");
    }
    for (leader, _) in [(); 4].iter().enumerate() {
        tree.start(leader, leader as i32);
    }
    for done in tree.run(1, PATIENCE) {
        assert_eq!(results(&done), [6]);
    }
    // And another key: what comes is forged, and asked for as well.
    for (wires, _) in &mut tree.members {
        wires.join_circle(GROUP.group, circle(2), AuthKey([8; 16]), MulticastRole::Open).expect("an address");
    }
    for (leader, _) in [(); 4].iter().enumerate() {
        tree.start(leader, leader as i32);
    }
    for done in tree.run(1, PATIENCE) {
        assert_eq!(results(&done), [6]);
    }
    assert!(tree.members.iter().all(|(wires, _)| wires.counters().forged > 0));
}

#[test]
fn loss_damage_and_doubling_change_no_result() {
    for distribution in [
        DistributionSpec::Edges,
        DistributionSpec::Multicast { to: circle(4) },
        DistributionSpec::Both { to: circle(5) },
    ] {
        survive_a_bad_network(distribution);
    }
}

fn survive_a_bad_network(distribution: DistributionSpec) {
    let plan = "seed = 4\n[[fault]]\nkind = \"lose\"\nprobability = 0.05\n[[fault]]\nkind = \"flip\"\nprobability = 0.05\n\
                [[fault]]\nkind = \"duplicate\"\nprobability = 0.05\n[[fault]]\nkind = \"reorder\"\nprobability = 0.05\n";
    let plan = faults::FaultPlan::parse(plan).expect("a plan");
    let mut tree = TestTree::spread(&FaultInjector::from_plan(&plan, 1).expect("for sockets"), distribution);
    let rounds = 60;
    for round in 0..rounds / 4 {
        for op in 0..4 {
            for leader in 0..4 {
                tree.start(leader, round * 100 + op * 10 + leader as i32);
            }
        }
        for done in tree.run(4, PATIENCE) {
            let mut found = results(&done);
            found.sort_unstable();
            assert_eq!(found, [0, 1, 2, 3].map(|op| (round * 100 + op * 10) * 4 + 6), "round {round}");
        }
    }
    let damaged: u64 = tree.nodes.iter().map(|node| node.report().dropped["damaged"]).sum();
    assert!(damaged > 0, "the plan was obeyed");
}

#[test]
fn whoever_does_not_know_the_key_is_not_heard() {
    let mut tree = TestTree::with_key(&FaultInjector::default(), DistributionSpec::Edges, AuthKey([8; 16]));
    for leader in 0..4 {
        tree.start(leader, 1);
    }
    let done = tree.run(1, Duration::from_millis(50));
    assert!(done.iter().all(Vec::is_empty));
    let reports = [tree.nodes[0].report(), tree.nodes[1].report()];
    assert!(reports.iter().all(|report| report.dropped["forged"] >= 2 && report.operations == 0));
}

#[test]
fn a_member_that_does_not_answer_is_named_to_the_others() {
    let mut tree = TestTree::new(&FaultInjector::default());
    tree.members.truncate(3);
    for leader in 0..3 {
        tree.start(leader, 1);
    }
    for done in tree.run(1, PATIENCE) {
        assert!(matches!(done[0], AggregationAction::Failed { cause: AbortCause::LostPeer(3), .. }), "{done:?}");
    }
}

#[test]
fn a_lost_node_is_named_by_its_number() {
    let mut tree = TestTree::new(&FaultInjector::default());
    tree.nodes.truncate(2);
    for leader in 0..4 {
        tree.start(leader, 1);
    }
    for done in tree.run(1, PATIENCE) {
        let AggregationAction::Failed { cause: AbortCause::LostPeer(peer), .. } = done[0] else { panic!("{done:?}") };
        assert_eq!(AggregationNodeId::from_peer(peer), Some(number(2)));
    }
}

#[test]
fn a_node_tells_what_it_holds_and_whom_it_lost() {
    let mut tree = TestTree::new(&FaultInjector::default());
    tree.start(0, 1);
    tree.run(1, Duration::from_millis(20));
    let report = tree.nodes[0].report();
    assert_eq!((report.in_flight, report.bytes, report.operations), (1, 4, 0));
    for leader in 1..4 {
        tree.start(leader, 1);
    }
    tree.run(1, PATIENCE);
    for node in &mut tree.nodes {
        let report = node.report();
        assert_eq!((report.in_flight, report.bytes, report.operations), (0, 0, 1));
        assert_eq!((node.operations(GROUP), node.next_trouble()), (1, None));
    }
    tree.members.truncate(3);
    for leader in 0..3 {
        tree.start(leader, 1);
    }
    tree.run(1, PATIENCE);
    let trouble = SeatFailure { group: GROUP, what: "rank 3 does not answer".to_owned() };
    assert_eq!(tree.nodes[1].next_trouble(), Some(trouble));
    assert_eq!(tree.nodes[1].next_trouble(), None, "once");
}

#[test]
fn a_seat_that_was_given_up_leaves_nothing_and_can_be_taken_again() {
    let mut tree = TestTree::new(&FaultInjector::default());
    tree.nodes[0].remove(GroupKey { epoch: Epoch(7), ..GROUP });
    tree.start(0, 1);
    tree.run(1, Duration::from_millis(20));
    tree.nodes[0].remove(GROUP);
    tree.start(0, 1);
    tree.run(1, Duration::from_millis(20));
    assert!(tree.nodes[0].report().dropped["foreign"] > 0);
    assert_eq!(tree.opened.node_name(number(0)), Some("node 0"));
}

#[test]
#[ignore = "a measurement: cargo test -p runtime --release -- --ignored --nocapture round_trip"]
fn round_trip_of_a_two_level_tree_in_one_thread() {
    let mut tree = TestTree::new(&FaultInjector::default());
    let began = Instant::now();
    let rounds = 20_000;
    for round in 0..rounds {
        for leader in 0..4 {
            tree.start(leader, round);
        }
        tree.run(1, PATIENCE);
    }
    eprintln!(
        "{:.2} us per allreduce of 4 members and 3 nodes",
        began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    );
}
