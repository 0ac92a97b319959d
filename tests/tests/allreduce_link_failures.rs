//! A stream of allreduces over links that fail: three hosts as network namespaces with two links each, one rank on each and an
//! aggregation node beside the first, while the second host's first link fails in every way a network can.
//!
//! Checks that every result has the bits of the fixed fold order at every rank, and that the tree survives: its edges migrate to
//! the second path, and no rank falls back to a host algorithm. Then the same without a tree, where the ranks' own
//! connections migrate. Prints the longest round (`--nocapture`).

mod between_hosts {
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use control::DataPlane;
    use engine::aggregation::NodeDataPlane;
    use engine::network::{LeaderNetwork, MeshConfig};
    use manager::{
        AggregationNodeId, AuthKey, ChildSpec, DistributionSpec, FoldTree, GroupDescriptor, JobId, JobTicket,
        LeaderAttachment, SeatAddress, SeatChild, SeatSpec,
    };
    use protocol::collective::{CollectiveAlgorithm, CollectiveOperation, InterHostMethod};
    use reduce::{ElementType, Operator, ReductionKind};
    use tests::hosts::{Corruption, Direction, Hosts};
    use transport::udp::FaultInjector;
    use units::{ChildIndex, Epoch, GroupId, QpNumber, Rank};

    const KEY: AuthKey = AuthKey([7; 16]);
    const WORLD: GroupId = GroupId(0);
    const RANKS: u32 = 3;
    const ELEMENTS: usize = 100;
    const BEFORE: u64 = 500;
    const AFTER: u64 = 1_500;
    const LIMIT: Duration = Duration::from_secs(60);

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum AllreduceMethod {
        Tree,
        Hosts,
    }

    /// All ranks and the node, polled by one thread; their sockets are nevertheless on their hosts.
    struct World {
        networks: Vec<LeaderNetwork>,
        node: NodeDataPlane,
        method: AllreduceMethod,
    }

    fn sum() -> CollectiveOperation {
        CollectiveOperation::AllReduce {
            kind: ReductionKind::new(ElementType::F64, Operator::Sum).expect("a sum of f64 is defined"),
        }
    }

    /// A value whose sums depend on the fold order.
    fn value(rank: u32, round: u64, element: usize) -> f64 {
        let mixed = (round * 1_000 + element as u64 * 7 + u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let scale = 10_f64.powi((mixed % 17) as i32 - 8);
        (mixed >> 40) as f64 * scale * if mixed & 1 == 0 { 1.0 } else { -1.0 }
    }

    impl World {
        fn new(hosts: &Hosts, method: AllreduceMethod) -> Self {
            let addresses = |host: usize| -> Vec<SocketAddr> {
                (0..2).map(|link| SocketAddr::from((hosts.link(host, link).address(), 0))).collect()
            };
            let open = |host: usize| {
                let opened =
                    hosts.host(host).inside(|| LeaderNetwork::open(&addresses(host), FaultInjector::default()));
                opened.expect("the thread enters the host").expect("the sockets can be opened")
            };
            let mut networks: Vec<LeaderNetwork> = (0..RANKS as usize).map(open).collect();
            let node = hosts.host(0).inside(|| NodeDataPlane::open(&addresses(0), FaultInjector::default()));
            let mut node = node.expect("the thread enters the host").expect("the sockets can be opened");
            let everyone: Vec<Vec<SocketAddr>> = networks.iter().map(LeaderNetwork::addresses).collect();
            let opened = seat(&mut node, &everyone);
            for (rank, network) in (0..).zip(&mut networks) {
                network.connect_mesh(MeshConfig {
                    me: Rank(rank),
                    addresses: everyone.clone(),
                    key: KEY,
                    fragment_bytes: 1000,
                    link_bytes: 1500,
                });
                network.enter(WORLD, (0..RANKS).map(Rank).collect(), Rank(rank));
                if method == AllreduceMethod::Tree {
                    network.attach_tree(WORLD, opened.clone()).expect("the plan fits this group");
                }
            }
            Self { networks, node, method }
        }

        /// One allreduce; returns its duration.
        fn round(&mut self, round: u64) -> Duration {
            let method = match self.method {
                AllreduceMethod::Tree => InterHostMethod::Aggregation,
                AllreduceMethod::Hosts => InterHostMethod::PointToPoint(CollectiveAlgorithm::RecursiveDoubling),
            };
            let began = Instant::now();
            let tickets: Vec<_> = (0..)
                .zip(&mut self.networks)
                .map(|(rank, network)| {
                    let bytes = (0..ELEMENTS).flat_map(|element| value(rank, round, element).to_le_bytes()).collect();
                    network.start(WORLD, method, sum(), bytes)
                })
                .collect();
            let mut results: Vec<Option<Vec<u8>>> = vec![None; tickets.len()];
            while results.iter().any(Option::is_none) {
                assert!(began.elapsed() < LIMIT, "round {round} does not complete");
                self.node.turn();
                for ((network, ticket), result) in self.networks.iter_mut().zip(&tickets).zip(&mut results) {
                    network.turn();
                    if let Some(end) = network.take(*ticket) {
                        *result = Some(end.expect("no rank is lost"));
                    }
                }
            }
            let took = began.elapsed();
            // With three ranks both methods fold the first two, then the third.
            let expected: Vec<u8> = (0..ELEMENTS)
                .flat_map(|element| {
                    let [a, b, c] = [0, 1, 2].map(|rank| value(rank, round, element));
                    (a + b + c).to_le_bytes()
                })
                .collect();
            for (rank, result) in results.iter().enumerate() {
                assert!(result.as_ref() == Some(&expected), "round {round}: rank {rank} has a wrong result");
            }
            took
        }
    }

    /// The only seat of a tree, with all ranks as its children.
    fn seat(node: &mut NodeDataPlane, everyone: &[Vec<SocketAddr>]) -> GroupDescriptor {
        let edge = |leader: u32| QpNumber(0x200 + leader);
        let children = (0..).zip(everyone).map(|(leader, addresses)| ChildSpec {
            edge: edge(leader),
            addresses: addresses.clone(),
            who: SeatChild::Member { leader, rank: Rank(leader), host: String::new() },
        });
        let number = AggregationNodeId(1 << 27);
        let (window, segment_bytes, distribution) = (8, 1024, DistributionSpec::Edges);
        let spec = SeatSpec {
            ticket: JobTicket { job: JobId(1), key: KEY },
            group: GroupId(9),
            epoch: Epoch(1),
            key: KEY,
            node: number,
            name: "node".to_owned(),
            window,
            segment_bytes,
            distribution,
            parent: None,
            children: children.collect(),
        };
        node.install(&spec).expect("the node has a free seat");
        let leaders = (0..RANKS).map(|leader| LeaderAttachment {
            seat: 0,
            edge: edge(leader),
            child: ChildIndex(leader as u16),
        });
        GroupDescriptor {
            group: spec.group,
            epoch: spec.epoch,
            key: KEY,
            window,
            segment_bytes,
            distribution,
            seats: vec![SeatAddress { node: number, name: "node".to_owned(), addresses: node.addresses() }],
            leaders: leaders.collect(),
            fold: FoldTree::Fold((0..RANKS).map(FoldTree::Leader).collect()),
        }
    }

    fn check_cut(name: &str, method: AllreduceMethod, cut: impl Fn(&Hosts)) {
        let hosts = match Hosts::new(RANKS as usize, 2) {
            Ok(hosts) => hosts,
            Err(error) if std::env::var_os("CI").is_none() => return println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        };
        let mut world = World::new(&hosts, method);
        let longest = |times: Vec<Duration>| times.into_iter().max().unwrap_or_default();
        let before = longest((0..BEFORE).map(|round| world.round(round)).collect());
        cut(&hosts);
        let since = longest((BEFORE..BEFORE + AFTER).map(|round| world.round(round)).collect());
        println!("{name}, {method:?}: longest round {since:.1?}, before the cut {before:.1?}");
        if method == AllreduceMethod::Tree {
            for (rank, network) in world.networks.iter().enumerate() {
                assert!(network.tree(WORLD).is_some_and(|(_, sound)| sound), "rank {rank} has abandoned its tree");
            }
        }
        let folded = world.node.report().operations;
        assert_eq!(folded, if method == AllreduceMethod::Tree { BEFORE + AFTER } else { 0 });
    }

    macro_rules! cuts {
        ($($name:ident: $cut:expr;)*) => {
            mod tree {
                use super::*;
                $(
                    #[test]
                    fn $name() {
                        check_cut(stringify!($name), AllreduceMethod::Tree, $cut);
                    }
                )*
            }
            mod hosts_alone {
                use super::*;
                $(
                    #[test]
                    fn $name() {
                        check_cut(stringify!($name), AllreduceMethod::Hosts, $cut);
                    }
                )*
            }
        };
    }

    cuts! {
        a_link_goes_down: |hosts| hosts.link(1, 0).down().expect("the link can be cut");
        an_address_is_removed: |hosts| hosts.link(1, 0).remove_address().expect("the link can be cut");
        everything_is_dropped_silently: |hosts| hosts.link(1, 0).drop_silently(Direction::Both).expect("the link can be cut");
        only_what_it_sends_is_dropped: |hosts| hosts.link(1, 0).drop_silently(Direction::Out).expect("the link can be cut");
        only_what_it_gets_is_dropped: |hosts| hosts.link(1, 0).drop_silently(Direction::In).expect("the link can be cut");
        the_link_corrupts: |hosts| {
            let corruption = Corruption { one_in: 4, bytes: vec![9, 13, 17, 33], flip: 0x10 };
            hosts.link(1, 0).corrupt(Direction::Both, corruption).expect("the link can be cut");
        };
        both_ends_lose_it_at_once: |hosts| {
            hosts.link(1, 0).drop_silently(Direction::Both).expect("the link can be cut");
            hosts.link(0, 0).drop_silently(Direction::Both).expect("the link can be cut");
        };
    }
}
