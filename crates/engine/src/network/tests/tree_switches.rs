//! A group whose tree has failed gets another one, between any two operations, whatever happens meanwhile.

use super::*;

const EDGES: DistributionSpec = DistributionSpec::Edges;
const ELEMENTS: usize = 20;

/// Answers offers as the owner of the network would; counts what became of them.
#[derive(Default)]
struct Owners {
    opened: Option<GroupDescriptor>,
    /// Leaders that do not understand the offer.
    refusing: Vec<usize>,
    /// Leaders that do not look.
    absent: Vec<usize>,
    switched: usize,
    rejected: usize,
}

impl Owners {
    fn turn(&mut self, cluster: &mut TestCluster) {
        for (rank, network) in cluster.networks.iter_mut().enumerate().filter(|(rank, _)| !self.absent.contains(rank))
        {
            while let Some(event) = network.next_switch_event() {
                match event {
                    SwitchEvent::Offered { context, term, description } => {
                        assert_eq!(description, b"the new tree");
                        let opened = self.opened.clone().filter(|_| !self.refusing.contains(&rank));
                        network.answer_offer(context, term, opened);
                    }
                    SwitchEvent::Switched { .. } => self.switched += 1,
                    SwitchEvent::Rejected { .. } => self.rejected += 1,
                }
            }
        }
        cluster.turn();
    }

    fn turns(&mut self, cluster: &mut TestCluster, count: usize) {
        (0..count).for_each(|_| self.turn(cluster));
    }

    /// Offers the nodes of a new group, from the first leader.
    fn offer(&mut self, cluster: &mut TestCluster, injector: &FaultInjector, group: u32) -> bool {
        let opened = cluster.start_nodes(injector, EDGES, GroupId(group));
        self.opened = Some(opened.clone());
        cluster.networks[0].offer_tree(WORLD, opened, b"the new tree".to_vec())
    }
}

fn is_healthy(cluster: &TestCluster) -> bool {
    cluster.networks.iter().all(|network| network.tree(WORLD).is_some_and(|(_, sound)| sound))
}

fn lose_tree(cluster: &mut TestCluster, group: u32) {
    let key = GroupKey { group: GroupId(group), epoch: Epoch(1) };
    cluster.nodes.clear();
    cluster.networks.iter_mut().for_each(|network| network.tree_lost(key));
}

/// A cluster whose tree has failed.
fn fallen_back(size: u32, injector: &FaultInjector) -> TestCluster {
    let mut cluster = TestCluster::new(size, injector);
    cluster.attach_tree(injector);
    lose_tree(&mut cluster, 9);
    let began = Instant::now();
    let has_fallen_back = |network: &mut LeaderNetwork| {
        let group = network.groups.get(&WORLD).expect("it is open");
        group.tree.as_ref().is_some_and(|tree| matches!(tree.state, tree_stream::TreeState::FallenBack))
    };
    while !cluster.networks.iter_mut().all(has_fallen_back) {
        assert!(began.elapsed() < PATIENCE);
        cluster.turn();
    }
    cluster
}

/// Starts sums at each rank until it has started `until(rank)`.
fn start_sums(cluster: &mut TestCluster, started: &mut [usize], until: impl Fn(usize) -> usize) {
    for (rank, started) in started.iter_mut().enumerate() {
        while *started < until(rank) {
            cluster.start_in_tree(rank, sum(), vector(rank, *started, ELEMENTS));
            *started += 1;
        }
    }
}

/// All sums must have the bits of the tree's order.
fn finish_sums(cluster: &mut TestCluster, owners: &mut Owners, until: usize) {
    let began = Instant::now();
    let mut results: Vec<Vec<Option<_>>> = cluster.handles.iter().map(|handles| vec![None; handles.len()]).collect();
    while results.iter().flatten().any(Option::is_none) {
        assert!(began.elapsed() < PATIENCE, "an operation hangs");
        owners.turn(cluster);
        for (rank, handles) in cluster.handles.iter().enumerate() {
            for (index, handle) in handles.iter().enumerate() {
                results[rank][index] = cluster.networks[rank].take(*handle).or(results[rank][index].take());
            }
        }
    }
    let size = cluster.networks.len();
    for (rank, results) in results.into_iter().enumerate() {
        assert_eq!(results.len(), until);
        for (op, result) in results.into_iter().enumerate() {
            assert!(result == Some(Ok(in_tree_order(size, op, ELEMENTS))), "rank {rank}, operation {op}");
        }
    }
    cluster.handles.iter_mut().for_each(Vec::clear);
}

/// Leaders have started different numbers of operations when the offer comes, and start more at every moment of the exchange.
fn switch_under_way(injector: &FaultInjector, seed: usize) {
    let size = 5;
    let mut cluster = fallen_back(size as u32, injector);
    let (mut owners, mut started) = (Owners::default(), vec![0; size]);
    start_sums(&mut cluster, &mut started, |rank| (rank + seed) % 4 * 3);
    owners.turns(&mut cluster, seed % 7);
    assert!(owners.offer(&mut cluster, injector, 10));
    for step in 0..12 {
        start_sums(&mut cluster, &mut started, |rank| step + (rank * 5 + seed) % 4);
        owners.turns(&mut cluster, (seed * 3 + step) % 5);
    }
    start_sums(&mut cluster, &mut started, |_| 40);
    finish_sums(&mut cluster, &mut owners, 40);
    assert_eq!((owners.switched, owners.rejected), (1, 0), "seed {seed}");
    assert!(is_healthy(&cluster), "seed {seed}");
}

#[test]
fn a_group_uses_a_new_tree_with_the_same_bits_whenever_it_comes() {
    (0..24).for_each(|seed| switch_under_way(&FaultInjector::default(), seed));
}

#[test]
fn a_group_uses_a_new_tree_on_a_bad_network() {
    let plan =
        "seed = 5\n[[fault]]\nkind = \"lose\"\nprobability = 0.02\n[[fault]]\nkind = \"flip\"\nprobability = 0.02\n";
    let plan = faults::FaultPlan::parse(plan).expect("a plan");
    for seed in 0..3 {
        switch_under_way(&FaultInjector::from_plan(&plan, seed as u64).expect("for sockets"), seed);
    }
}

#[test]
fn a_tree_that_one_leader_cannot_use_is_used_by_none() {
    for refusing in [1, 3] {
        let mut cluster = fallen_back(4, &FaultInjector::default());
        let mut owners = Owners { refusing: vec![refusing], ..Owners::default() };
        let mut started = vec![0; 4];
        assert!(owners.offer(&mut cluster, &FaultInjector::default(), 10));
        start_sums(&mut cluster, &mut started, |_| 10);
        finish_sums(&mut cluster, &mut owners, 10);
        assert_eq!((owners.switched, owners.rejected), (0, 1));
        assert!(!is_healthy(&cluster));
        // A later offer is accepted.
        owners.refusing.clear();
        assert!(owners.offer(&mut cluster, &FaultInjector::default(), 11));
        let mut started = vec![0; 4];
        start_sums(&mut cluster, &mut started, |_| 10);
        finish_sums(&mut cluster, &mut owners, 10);
        assert!(is_healthy(&cluster));
    }
}

#[test]
fn a_tree_with_another_order_is_not_used() {
    let mut cluster = fallen_back(4, &FaultInjector::default());
    let mut owners = Owners::default();
    let mut opened = cluster.start_nodes(&FaultInjector::default(), EDGES, GroupId(10));
    opened.fold = FoldTree::Fold((0..4).rev().map(FoldTree::Leader).collect());
    owners.opened = Some(opened.clone());
    assert!(!cluster.networks[0].offer_tree(WORLD, opened, b"the new tree".to_vec()), "the first leader sees it");
    let mut started = vec![0; 4];
    start_sums(&mut cluster, &mut started, |_| 5);
    finish_sums(&mut cluster, &mut owners, 5);
    assert_eq!(owners.switched, 0);
    assert!(!is_healthy(&cluster));
}

/// A leader computes for long and does not answer: the others go on without the tree.
#[test]
fn operations_go_on_if_a_leader_does_not_answer() {
    let mut cluster = fallen_back(4, &FaultInjector::default());
    let mut owners = Owners { absent: vec![2], ..Owners::default() };
    let mut started = vec![0; 4];
    assert!(owners.offer(&mut cluster, &FaultInjector::default(), 10));
    start_sums(&mut cluster, &mut started, |_| 10);
    finish_sums(&mut cluster, &mut owners, 10);
    assert_eq!((owners.switched, owners.rejected), (0, 1));
    owners.absent.clear();
    owners.turns(&mut cluster, 20);
    assert!(owners.offer(&mut cluster, &FaultInjector::default(), 11));
    let mut started = vec![0; 4];
    start_sums(&mut cluster, &mut started, |_| 10);
    finish_sums(&mut cluster, &mut owners, 10);
    assert!(is_healthy(&cluster));
}

/// The new tree is lost at every moment of the exchange.
#[test]
fn a_new_tree_may_be_lost_before_it_is_used() {
    for after in 0..16 {
        let mut cluster = fallen_back(5, &FaultInjector::default());
        let (mut owners, mut started) = (Owners::default(), vec![0; 5]);
        start_sums(&mut cluster, &mut started, |rank| rank % 3);
        assert!(owners.offer(&mut cluster, &FaultInjector::default(), 10));
        owners.turns(&mut cluster, after);
        start_sums(&mut cluster, &mut started, |rank| 5 + rank % 2);
        cluster.nodes.clear();
        // One leader learns of it early, as from a manager.
        cluster.networks[after % 5].tree_lost(GroupKey { group: GroupId(10), epoch: Epoch(1) });
        start_sums(&mut cluster, &mut started, |_| 12);
        finish_sums(&mut cluster, &mut owners, 12);
        assert!(!is_healthy(&cluster));
        // And again, until one works.
        let mut started = vec![0; 5];
        let began = Instant::now();
        while !owners.offer(&mut cluster, &FaultInjector::default(), 11) {
            assert!(began.elapsed() < PATIENCE);
            owners.turn(&mut cluster);
        }
        start_sums(&mut cluster, &mut started, |_| 6);
        finish_sums(&mut cluster, &mut owners, 6);
        assert!(is_healthy(&cluster), "after {after}");
    }
}

#[test]
fn a_leader_that_leaves_does_not_keep_the_others_waiting() {
    let mut cluster = fallen_back(3, &FaultInjector::default());
    let mut owners = Owners { absent: vec![1], ..Owners::default() };
    assert!(owners.offer(&mut cluster, &FaultInjector::default(), 10));
    owners.turns(&mut cluster, 3);
    cluster.networks[0].leave(WORLD);
    let began = Instant::now();
    while owners.rejected == 0 {
        assert!(began.elapsed() < Duration::from_millis(500), "not only after the timeout");
        owners.turn(&mut cluster);
    }
}

#[test]
fn only_a_group_without_a_working_tree_takes_another() {
    let mut cluster = TestCluster::new(3, &FaultInjector::default());
    let mut owners = Owners::default();
    assert!(!owners.offer(&mut cluster, &FaultInjector::default(), 10), "it never had a tree");
    let mut cluster = TestCluster::new(3, &FaultInjector::default());
    cluster.attach_tree(&FaultInjector::default());
    let opened = cluster.start_nodes(&FaultInjector::default(), EDGES, GroupId(10));
    assert!(!cluster.networks[0].offer_tree(WORLD, opened.clone(), Vec::new()), "its tree works");
    assert!(!cluster.networks[1].offer_tree(WORLD, opened, Vec::new()), "it is not the first leader");
    let mut started = vec![0; 3];
    lose_tree(&mut cluster, 9);
    start_sums(&mut cluster, &mut started, |_| 3);
    finish_sums(&mut cluster, &mut owners, 3);
    cluster.networks[0].rank_lost(Rank(2));
    assert!(!owners.offer(&mut cluster, &FaultInjector::default(), 11), "it has failed");
    let mut cluster = fallen_back(3, &FaultInjector::default());
    cluster.networks[0].leave(WORLD);
    assert!(!owners.offer(&mut cluster, &FaultInjector::default(), 12), "it has been left");
}

/// Found in review: a leader replayed a fragment for others under the old tree when it used the new one already, whose fragments have the
/// same numbers.
#[test]
fn a_fragment_of_the_old_tree_completes_nothing_in_the_new_one() {
    let mut cluster = fallen_back(3, &FaultInjector::default());
    let mut owners = Owners::default();
    assert!(owners.offer(&mut cluster, &FaultInjector::default(), 10));
    let began = Instant::now();
    while !is_healthy(&cluster) {
        assert!(began.elapsed() < PATIENCE);
        owners.turn(&mut cluster);
    }
    let mut started = vec![0; 3];
    start_sums(&mut cluster, &mut started, |_| 1);
    let wrong = protocol::Payload::Bytes(vec![7; SEGMENT as usize].into());
    cluster.networks[1]
        .with_group(WORLD, |group, group_io| group.finish_fragment(Epoch(1), OpId(0), &wrong, group_io));
    finish_sums(&mut cluster, &mut owners, 1);
}

/// The offer comes while some leaders still exchange their positions and replay fragments for each other.
#[test]
fn a_tree_may_be_replaced_at_once_after_it_failed() {
    let plan = "seed = 6\n[[fault]]\nkind = \"lose\"\nprobability = 0.1\n";
    let plan = faults::FaultPlan::parse(plan).expect("a plan");
    for seed in 0..8 {
        let injector = FaultInjector::from_plan(&plan, seed as u64).expect("for sockets");
        let mut cluster = TestCluster::new(5, &injector);
        cluster.attach_tree(&injector);
        let (mut owners, mut started) = (Owners::default(), vec![0; 5]);
        start_sums(&mut cluster, &mut started, |rank| 6 + rank % 3);
        owners.turns(&mut cluster, 2 * seed);
        cluster.nodes.clear();
        cluster.networks[seed % 5].tree_lost(GroupKey { group: GroupId(9), epoch: Epoch(1) });
        start_sums(&mut cluster, &mut started, |rank| 9 + rank % 2);
        let began = Instant::now();
        while !cluster.networks[0].needs_tree(WORLD) {
            assert!(began.elapsed() < PATIENCE);
            owners.turn(&mut cluster);
        }
        assert!(owners.offer(&mut cluster, &injector, 10));
        start_sums(&mut cluster, &mut started, |_| 30);
        finish_sums(&mut cluster, &mut owners, 30);
        assert_eq!((owners.switched, owners.rejected), (1, 0), "seed {seed}");
        assert!(is_healthy(&cluster), "seed {seed}");
    }
}
