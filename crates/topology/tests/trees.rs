//! Aggregation trees: every root folds every member once, and the tree satisfies the request.

mod sample;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sample::*;
use topology::{
    AggregationTree, Cable, ChildNode, Fabric, FabricKind, NodeId, NodePort, PlacementError, TreeIndex, TreeMembers,
    TreeRequest, place_tree,
};

/// The members below a node, and how often each occurs.
fn count_below(tree: &AggregationTree, index: TreeIndex, met: &mut BTreeMap<NodeId, usize>) {
    for child in &tree.node(index).children {
        match child.node {
            ChildNode::Host(host) => *met.entry(host).or_default() += 1,
            ChildNode::Node(below) => count_below(tree, below, met),
        }
    }
}

fn members_of(fabric: &Fabric, request: &TreeRequest) -> BTreeSet<NodeId> {
    match &request.members {
        TreeMembers::All => every_host(fabric).collect(),
        TreeMembers::Listed(listed) => listed.iter().copied().collect(),
    }
}

/// Every cable the tree uses.
fn cables_of(fabric: &Fabric, tree: &AggregationTree) -> Vec<Cable> {
    let ends = tree.nodes.iter().flat_map(|node| {
        node.children.iter().filter_map(|child| child.port).map(|port| NodePort::new(node.switch, port))
    });
    ends.map(|end| fabric.cable(end).expect("a cabled port")).collect()
}

fn check(fabric: &Fabric, request: &TreeRequest, tree: &AggregationTree) {
    let members = members_of(fabric, request);
    let once: BTreeMap<NodeId, usize> = members.iter().map(|&member| (member, 1)).collect();
    let roots: Vec<TreeIndex> = tree.roots().collect();
    assert!(!roots.is_empty());
    assert_eq!(roots[0].index(), tree.nodes.len() - roots.len(), "roots are last");
    for &root in &roots {
        let mut met = BTreeMap::new();
        count_below(tree, root, &mut met);
        assert_eq!(met, once, "every root folds every member once");
    }
    for (index, node) in (0..).map(TreeIndex).zip(&tree.nodes) {
        assert!(!node.children.is_empty());
        assert_eq!(node.level, fabric.level(node.switch));
        assert!(node.children.len() <= usize::from(request.radix_limit.unwrap_or(4096)));
        check_children(fabric, tree, index);
        for uplink in &node.parents {
            assert!(uplink.parent > index, "children come before parents");
            let back = tree.node(uplink.parent).children[uplink.child.index()];
            assert_eq!(back.node, ChildNode::Node(index));
        }
        let parents: BTreeSet<TreeIndex> = node.parents.iter().map(|uplink| uplink.parent).collect();
        assert_eq!(parents.len(), node.parents.len());
        assert!(!request.avoid.nodes.contains(&node.switch));
    }
    for cable in cables_of(fabric, tree) {
        assert!(!request.avoid.cables.contains(&cable));
    }
    let attached: BTreeSet<NodeId> = tree.host_uplinks(fabric).iter().map(|link| link.host).collect();
    assert_eq!(attached, members);
    for link in tree.host_uplinks(fabric) {
        let parent = tree.node(link.uplink.parent);
        assert_eq!(parent.children[link.uplink.child.index()].node, ChildNode::Host(link.host));
        assert_eq!(fabric.peer(link.host, link.uplink.port.unwrap()).unwrap().node, parent.switch);
    }
}

fn check_children(fabric: &Fabric, tree: &AggregationTree, index: TreeIndex) {
    let node = tree.node(index);
    let hosts: Vec<_> = node.children.iter().filter(|child| matches!(child.node, ChildNode::Host(_))).collect();
    assert!(hosts.is_sorted_by_key(|child| child.node), "hosts are folded in their order");
    for child in &node.children {
        let peer = child.port.map(|port| fabric.peer(node.switch, port).expect("a cabled port"));
        match child.node {
            ChildNode::Host(host) => assert_eq!(peer.unwrap().node, host),
            ChildNode::Node(below) => {
                let uplink = tree.node(below).parents.iter().find(|uplink| uplink.parent == index).unwrap();
                assert_eq!(uplink.port, peer.map(|peer| peer.port));
                let switch = tree.node(below).switch;
                assert_eq!(switch, peer.map_or(node.switch, |peer| peer.node));
            }
        }
    }
}

/// A request over some hosts of a fabric.
fn request(fabric: &Fabric, picks: &[u32], replicas: u8, radix_limit: Option<u16>) -> TreeRequest {
    let members = picks.iter().map(|pick| NodeId(pick % fabric.hosts()));
    let request = if picks.is_empty() { TreeRequest::all() } else { TreeRequest::over(members) };
    TreeRequest { replicas, radix_limit, ..request }
}

proptest! {
    #[test]
    fn every_root_folds_every_member_once(
        fabric in any_small(),
        picks in prop::collection::vec(any::<u32>(), 0..20),
        replicas in 1u8..=3,
        radix_limit in prop::option::of(2u16..5),
    ) {
        let request = request(&fabric, &picks, replicas, radix_limit);
        match place_tree(&fabric, &request) {
            Ok(tree) => check(&fabric, &request, &tree),
            Err(PlacementError::TooFewParents { wanted, available, .. }) => {
                prop_assert!(replicas > 1 && wanted == replicas && available < u32::from(replicas));
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn switches_and_cables_to_avoid_are_avoided(
        fabric in any_small(),
        picks in prop::collection::vec(any::<u32>(), 1..6),
        bad_switches in prop::collection::vec(any::<u32>(), 0..3),
        bad_cables in prop::collection::vec(any::<u32>(), 0..6),
        replicas in 1u8..=2,
    ) {
        let mut request = request(&fabric, &picks, replicas, None);
        let cables: Vec<Cable> = fabric.cables().filter(|cable| !fabric.is_host(cable.a.node)).collect();
        let switches = fabric.switches();
        request.avoid.nodes = bad_switches.iter().map(|pick| NodeId(fabric.hosts() + pick % switches)).collect();
        if !cables.is_empty() {
            request.avoid.cables = bad_cables.iter().map(|pick| cables[*pick as usize % cables.len()]).collect();
        }
        match place_tree(&fabric, &request) {
            Ok(tree) => check(&fabric, &request, &tree),
            Err(PlacementError::Unreachable(member)) => {
                prop_assert!(members_of(&fabric, &request).contains(&member));
                prop_assert!(is_cut(&fabric, &request), "some root reaches every member");
            }
            Err(PlacementError::TooFewParents { .. }) => prop_assert_eq!(replicas, 2),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn a_requested_root_is_the_root(fabric in any_small(), picks in prop::collection::vec(any::<u32>(), 0..6), root in any::<u32>()) {
        let root = NodeId(fabric.hosts() + root % fabric.switches());
        let request = TreeRequest { root: Some(root), ..request(&fabric, &picks, 1, None) };
        match place_tree(&fabric, &request) {
            Ok(tree) => {
                check(&fabric, &request, &tree);
                prop_assert_eq!(tree.nodes.last().unwrap().switch, root);
            }
            Err(PlacementError::RootNotAbove { .. }) => prop_assert_eq!(fabric.kind(), FabricKind::FatTree),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn no_switch_of_a_fat_tree_would_be_a_better_root(
        fabric in small_xgft(), picks in prop::collection::vec(any::<u32>(), 0..8),
    ) {
        let request = request(&fabric, &picks, 1, None);
        let size = place_tree(&fabric, &request).unwrap().nodes.len();
        for root in every_node(&fabric).filter(|&node| !fabric.is_host(node)) {
            let mut switches = BTreeSet::from([root]);
            for member in members_of(&fabric, &request) {
                switches.extend(fabric.route(member, root, 0).iter().skip(1).map(|hop| hop.node));
            }
            prop_assert!(size <= switches.len(), "{size} nodes, but {} under {root:?}", switches.len());
        }
    }
}

/// Whether no switch reaches all members without the switches and cables to avoid.
fn is_cut(fabric: &Fabric, request: &TreeRequest) -> bool {
    let avoid = &request.avoid;
    let members = members_of(fabric, request);
    let roots = (fabric.hosts()..fabric.nodes()).map(NodeId).filter(|root| !avoid.nodes.contains(root));
    !roots.into_iter().any(|root| {
        let mut reached = BTreeSet::from([root]);
        let mut queue = vec![root];
        while let Some(at) = queue.pop() {
            for (port, peer) in fabric.neighbours(at) {
                let cable = fabric.cable(NodePort::new(at, port)).unwrap();
                let is_open = !avoid.cables.contains(&cable) && !avoid.nodes.contains(&peer.node);
                if is_open && reached.insert(peer.node) && !fabric.is_host(peer.node) {
                    queue.push(peer.node);
                }
            }
        }
        members.is_subset(&reached)
    })
}

fn switch_names(
    fabric: &Fabric,
    tree: &AggregationTree,
    indices: impl IntoIterator<Item = TreeIndex>,
) -> Vec<String> {
    indices.into_iter().map(|index| fabric.name(tree.node(index).switch)).collect()
}

/// SE-7 and SE-10: the drawn example, 16 hosts on the leaves S0, S1, S4 and S5.
#[test]
fn spatial_replication_has_the_roots_of_the_drawing() {
    let fabric = xgft(&[4, 4, 2], &[1, 2, 2]);
    let request = TreeRequest::over((0..8).chain(16..24).map(NodeId)).with_replicas(2);
    let tree = place_tree(&fabric, &request).unwrap();
    check(&fabric, &request, &tree);
    assert_eq!(switch_names(&fabric, &tree, tree.roots()), ["S12", "S13", "S14", "S15"]);
    let leaf = &tree.nodes[0];
    let parents = |node: &topology::TreeNode| switch_names(&fabric, &tree, node.parents.iter().map(|up| up.parent));
    assert_eq!(fabric.name(leaf.switch), "S0");
    assert_eq!(parents(leaf), ["S8", "S9"]);
    assert_eq!(parents(tree.node(leaf.parents[0].parent)), ["S12", "S13"]);
    assert_eq!(tree.nodes.len(), 4 + 4 + 4);
}

/// SE-9: with temporal replication only one output port per switch is used.
#[test]
fn a_plain_tree_has_one_root_and_one_uplink() {
    let fabric = xgft(&[4, 4, 2], &[1, 2, 2]);
    let request = TreeRequest::over((0..8).chain(16..24).map(NodeId));
    let tree = place_tree(&fabric, &request).unwrap();
    check(&fabric, &request, &tree);
    let all = (0..tree.nodes.len() as u32).map(TreeIndex);
    assert_eq!(switch_names(&fabric, &tree, all), ["S0", "S1", "S4", "S5", "S8", "S10", "S12"]);
}

/// SE-11: replication 2, 4 and 6 on the evaluated fabric.
#[test]
fn the_evaluated_fabric_has_k_squared_roots() {
    let fabric = xgft(&[24, 12, 6], &[1, 12, 6]);
    for replicas in [1u8, 2, 4, 6] {
        let k = usize::from(replicas);
        let request = TreeRequest::all().with_replicas(replicas);
        let tree = place_tree(&fabric, &request).unwrap();
        check(&fabric, &request, &tree);
        assert_eq!(tree.roots().count(), k * k);
        assert_eq!(tree.nodes.len(), 72 + 6 * k + k * k);
        for node in tree.nodes.iter().filter(|node| node.level < 3) {
            let ports: BTreeSet<_> = node.parents.iter().map(|uplink| uplink.port).collect();
            assert_eq!(ports.len(), k, "copies leave by different ports");
        }
    }
}

#[test]
fn too_many_replicas_name_the_level_that_lacks_ports() {
    let fabric = xgft(&[24, 12, 6], &[1, 12, 6]);
    let rejected = |replicas| place_tree(&fabric, &TreeRequest::all().with_replicas(replicas)).unwrap_err();
    assert_eq!(rejected(7), PlacementError::TooFewParents { level: 2, wanted: 7, available: 6 });
    assert_eq!(rejected(13), PlacementError::TooFewParents { level: 1, wanted: 13, available: 12 });
    assert_eq!(rejected(0), PlacementError::ReplicasOutOfRange(0));
    assert_eq!(rejected(17), PlacementError::ReplicasOutOfRange(17));
}

#[test]
fn a_group_under_one_leaf_has_a_tree_of_one_node() {
    let fabric = xgft(&[4, 4, 2], &[1, 4, 2]);
    let tree = place_tree(&fabric, &TreeRequest::over([NodeId(6), NodeId(4), NodeId(6)])).unwrap();
    assert_eq!(tree.nodes.len(), 1);
    assert_eq!(tree.nodes[0].children.len(), 2);
    assert_eq!(fabric.name(tree.nodes[0].switch), "S1");
}

#[test]
fn a_damaged_fat_tree_still_has_a_tree_where_no_switch_is_above_all() {
    let fabric = xgft(&[2, 3], &[1, 2]);
    let [left, right] = ["S3", "S4"].map(|name| fabric.find(name).unwrap());
    let cable = |leaf: &str, spine: NodeId| {
        let leaf = fabric.find(leaf).unwrap();
        let (port, _) = fabric.neighbours(leaf).find(|(_, peer)| peer.node == spine).unwrap();
        fabric.cable(NodePort::new(leaf, port)).unwrap()
    };
    let mut request = TreeRequest::all();
    request.avoid.cables = vec![cable("S0", left), cable("S1", right)];
    let tree = place_tree(&fabric, &request).unwrap();
    check(&fabric, &request, &tree);
    assert_eq!(tree.nodes.len(), 5, "S2 joins the halves");
}

#[test]
fn invalid_requests_are_rejected() {
    let fabric = xgft(&[4, 4], &[1, 4]);
    let all = TreeRequest::all;
    let rejected = |request: TreeRequest| place_tree(&fabric, &request).unwrap_err();
    assert_eq!(rejected(TreeRequest::over([])), PlacementError::NoMembers);
    assert_eq!(rejected(TreeRequest::over([NodeId(16)])), PlacementError::NotAHost(NodeId(16)));
    assert_eq!(rejected(TreeRequest { root: Some(NodeId(3)), ..all() }), PlacementError::NotASwitch(NodeId(3)));
    assert_eq!(rejected(TreeRequest { radix_limit: Some(1), ..all() }), PlacementError::RadixTooSmall(1));
    let leaf = fabric.find("S0").unwrap();
    assert_eq!(rejected(TreeRequest { root: Some(leaf), ..all() }), PlacementError::RootNotAbove { root: leaf });
    let mut avoiding = all();
    avoiding.avoid.nodes = vec![NodeId(2)];
    assert_eq!(rejected(avoiding.clone()), PlacementError::MemberAvoided(NodeId(2)));
    avoiding.avoid.nodes = vec![leaf];
    assert!(matches!(rejected(avoiding), PlacementError::Unreachable(NodeId(0..4))));
}

#[test]
fn a_tree_over_a_million_hosts_is_placed() {
    let fabric = xgft(&[32, 32, 32, 32], &[1, 32, 32, 32]);
    let tree = place_tree(&fabric, &TreeRequest::all()).unwrap();
    assert_eq!(tree.nodes.len(), (1 << 15) + (1 << 10) + (1 << 5) + 1);
    let tree = place_tree(&fabric, &TreeRequest::all().with_replicas(2)).unwrap();
    assert_eq!(tree.roots().count(), 8);
}

#[test]
fn other_shapes_have_trees_over_many_hosts_too() {
    for fabric in
        [Fabric::torus(&[32, 32, 32], 2).unwrap(), Fabric::hypercube(12, 16).unwrap(), dragonfly(65, 16, 16, 16, 16)]
    {
        let request = TreeRequest::all();
        check(&fabric, &request, &place_tree(&fabric, &request).unwrap());
    }
}
