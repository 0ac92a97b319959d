//! Placement and trimming, checked against simple properties.

use super::*;

/// Two levels of nodes with hints above racks: leaves serve racks by address, and every top node is a parent of every leaf.
fn fat_tree(tops: usize, leaves: usize) -> Vec<NodeDescriptor> {
    let names: Vec<String> = (0..tops).map(|top| format!("top{top}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut descriptors: Vec<NodeDescriptor> =
        names.iter().enumerate().map(|(at, name)| descriptor(at, name, &[], &[], LARGE_CAPACITY)).collect();
    for leaf in 0..leaves {
        // Sixteen hosts per leaf, by their addresses.
        let serves = format!("10.1.{}.{}/28", (leaf * 16) >> 8, (leaf * 16) & 255);
        descriptors.push(descriptor(tops + leaf, &format!("leaf{leaf}"), &names, &[&serves], LARGE_CAPACITY));
    }
    descriptors
}

/// A random forest with hints of every kind, or none.
fn random_descriptors(random: &mut SeededRandom) -> Vec<NodeDescriptor> {
    let count = 1 + random.below(12);
    let names: Vec<String> = (0..count).map(|at| format!("n{at}")).collect();
    let hints = random.below(4);
    let mut descriptors = Vec::new();
    for at in 0..count {
        let mut parents: Vec<&str> = Vec::new();
        if hints > 0 && at > 0 && random.below(5) > 0 {
            parents.extend((0..1 + random.below(2)).map(|_| names[random.below(at)].as_str()));
        }
        let serves: Vec<String> = match hints {
            2 => vec![format!("host{}*", at % 10)],
            3 => vec!["*".to_owned(), format!("10.1.0.{}/30", random.below(64) * 4)],
            _ => Vec::new(),
        };
        let serves: Vec<&str> = serves.iter().map(String::as_str).collect();
        descriptors.push(descriptor(at, &names[at], &parents, &serves, LARGE_CAPACITY));
    }
    descriptors
}

#[test]
fn every_tree_over_random_nodes_and_leaders_is_valid() {
    let (mut opened, mut seats) = (0, 0);
    for seed in 0..300 {
        let mut random = SeededRandom::new(seed);
        let settings = ManagerSettings { fanout: 2 + random.below(4), ..ManagerSettings::default() };
        let mut cluster = SimulatedCluster::new(seed, settings, random_descriptors(&mut random));
        let ticket = cluster.open_job(0, None);
        for _ in 0..4 {
            let count = 2 + random.below(40);
            let mut hosts: Vec<usize> = (0..count).map(|_| random.below(60)).collect();
            if random.below(2) == 0 {
                hosts.sort_unstable();
            }
            let asked = request(leaders(hosts), 1 + random.below(20) as u32, 256);
            match cluster.open_group(0, ticket, asked.clone()) {
                Ok(group) => {
                    cluster.check_tree(&asked, &group);
                    (opened, seats) = (opened + 1, seats + group.seats.len());
                }
                Err(error) => assert!(matches!(error, ControlError::NotServed { .. }), "seed {seed}: {error}"),
            }
            cluster.check_reservations();
        }
        cluster.send_request(0, |request| ToManager::CloseJob { request, ticket });
        cluster.deliver_all();
        cluster.check_empty();
    }
    // Guards against a vacuous test: most groups open, and many trees have several seats.
    assert!(opened > 900 && seats > 2 * opened, "{opened} groups with {seats} seats");
}

#[test]
fn leaders_attach_to_the_leaf_of_their_rack_and_single_ones_to_the_seat_above() {
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), fat_tree(1, 4));
    let ticket = cluster.open_job(0, None);
    // Racks 0 and 2 have two leaders each, rack 1 has one: its leaf has no seat.
    let asked = request(leaders([0, 32, 16, 1, 33]), 4, 256);
    let group = cluster.open_group(0, ticket, asked.clone()).unwrap();
    cluster.check_tree(&asked, &group);
    let names: Vec<&str> = group.seats.iter().map(|seat| seat.name.as_str()).collect();
    assert_eq!(names, ["top0", "leaf0", "leaf2"]);
    let parent = |leader| group.parent_of(leader).unwrap().name;
    assert_eq!([0, 1, 2, 3, 4].map(parent), ["leaf0", "leaf2", "top0", "leaf0", "leaf2"]);
    let fold = |leaders: &[u32]| FoldTree::Fold(leaders.iter().copied().map(FoldTree::Leader).collect());
    assert_eq!(group.fold, FoldTree::Fold(vec![fold(&[0, 3]), fold(&[1, 4]), FoldTree::Leader(2)]));
}

#[test]
fn a_group_under_one_node_has_that_node_as_its_root() {
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), fat_tree(2, 4));
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders([17, 18, 20]), 4, 256)).unwrap();
    assert_eq!(group.seats.len(), 1);
    assert_eq!(group.seats[0].name, "leaf1");
}

#[test]
fn groups_are_distributed_over_all_roots() {
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), fat_tree(4, 4));
    let ticket = cluster.open_job(0, None);
    let mut used: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..16 {
        let group = cluster.open_group(0, ticket, request(leaders(0..64), 4, 256)).unwrap();
        *used.entry(group.seats[0].name.clone()).or_default() += 1;
    }
    assert_eq!(used.into_values().collect::<Vec<_>>(), [4; 4]);
    assert_eq!(cluster.manager.status().trees.len(), 4);
}

#[test]
fn nodes_without_hints_become_a_balanced_tree_with_contiguous_shares() {
    let descriptors = (0..5).map(|at| descriptor(at, &format!("n{at}"), &[], &[], LARGE_CAPACITY)).collect();
    let mut cluster =
        SimulatedCluster::new(1, ManagerSettings { fanout: 4, ..ManagerSettings::default() }, descriptors);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..16), 4, 256)).unwrap();
    let FoldTree::Fold(parts) = &group.fold else { panic!("a root folds") };
    let shares: Vec<Vec<u32>> = parts.iter().map(FoldTree::leaders).collect();
    assert_eq!(shares, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]);
    // A few hosts need only one node, and the least loaded one serves them.
    let small = cluster.open_group(0, ticket, request(leaders(0..4), 4, 256)).unwrap();
    assert_eq!(small.seats.len(), 1);
}

#[test]
fn the_topology_plan_overrides_registrations() {
    let planned = |name: &str, parents: &[&str], serves: &[&str]| {
        let descriptor = descriptor(0, name, parents, serves, LARGE_CAPACITY);
        PlannedNode { name: descriptor.name, parents: descriptor.parents, serves: descriptor.serves }
    };
    let nodes = vec![planned("x", &["z"], &["host0"]), planned("y", &["z"], &["host1"]), planned("z", &[], &[])];
    let settings = ManagerSettings { topology: TopologyPlan { nodes }, ..ManagerSettings::default() };
    let descriptors = vec![
        descriptor(0, "x", &[], &["*"], LARGE_CAPACITY),
        descriptor(1, "y", &["x"], &[], LARGE_CAPACITY),
        descriptor(2, "z", &["y"], &[], LARGE_CAPACITY),
    ];
    let mut cluster = SimulatedCluster::new(1, settings, descriptors);
    let ticket = cluster.open_job(0, None);
    let asked = request(leaders([0, 1, 0, 1]), 4, 256);
    let group = cluster.open_group(0, ticket, asked.clone()).unwrap();
    cluster.check_tree(&asked, &group);
    assert_eq!(group.seats.iter().map(|seat| seat.name.as_str()).collect::<Vec<_>>(), ["z", "x", "y"]);
}

#[test]
fn set_up_steps_grow_with_the_logarithm_of_the_hosts() {
    let mut steps = Vec::new();
    for levels in 1..=5u32 {
        let hosts = 4usize.pow(levels);
        let nodes = (0..levels).map(|level| 4usize.pow(level)).sum();
        let descriptors = (0..nodes).map(|at| descriptor(at, &format!("n{at}"), &[], &[], LARGE_CAPACITY)).collect();
        let mut cluster =
            SimulatedCluster::new(1, ManagerSettings { fanout: 4, ..ManagerSettings::default() }, descriptors);
        let ticket = cluster.open_job(0, None);
        let asked = request(leaders(0..hosts), 4, 256);
        cluster.send_request(0, |request| ToManager::OpenGroup { request, ticket, group: asked.clone() });
        let mut count = 0;
        while cluster.step() {
            count += 1;
        }
        let Some(FromManager::GroupOpened { group, .. }) = cluster.received.get_mut(&0).and_then(Vec::pop) else {
            panic!("the group did not open")
        };
        assert_eq!(group.seats.len(), nodes);
        cluster.check_tree(&asked, &group);
        steps.push(count);
    }
    // Request, command to the root, down and up each level below it, reply to the manager, reply to the job.
    assert_eq!(steps, [4, 6, 8, 10, 12], "for 4, 16, 64, 256 and 1,024 hosts");
}

#[test]
fn racks_without_a_common_root_are_joined() {
    let descriptors = vec![
        descriptor(0, "a", &[], &["host1*"], LARGE_CAPACITY),
        descriptor(1, "b", &[], &["host2*"], LARGE_CAPACITY),
    ];
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), descriptors);
    let ticket = cluster.open_job(0, None);
    let asked = request(leaders([10, 11, 20, 21]), 4, 256);
    let group = cluster.open_group(0, ticket, asked.clone()).unwrap();
    cluster.check_tree(&asked, &group);
    assert_eq!(group.fold.leaders(), [0, 1, 2, 3]);
    assert_eq!(group.seats.len(), 2);
}

#[test]
fn a_group_that_fits_only_without_the_names_of_hosts_is_opened_without_them() {
    let descriptors = (0..300).map(|at| descriptor(at, &format!("n{at}"), &[], &[], LARGE_CAPACITY)).collect();
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), descriptors);
    let ticket = cluster.open_job(0, Some(Quota { groups: 9, operations: 1 << 16, bytes: 1 << 40 }));
    let mut asked = request(leaders(0..4_096), 1, 256);
    for (at, leader) in asked.leaders.iter_mut().enumerate() {
        leader.host = format!("{at:0>64}");
        leader.addresses = vec![leader.addresses[0]; 3];
    }
    let group = cluster.open_group(0, ticket, asked).unwrap();
    let is_unnamed = |child: &ChildSpec| match &child.who {
        SeatChild::Member { host, .. } => host.is_empty(),
        SeatChild::Seat { .. } => true,
    };
    for seat in &group.seats {
        let installed = cluster.seat(&seat.name, group.group_key()).unwrap();
        assert!(installed.children.iter().all(is_unnamed), "{}", seat.name);
    }
}

#[test]
fn the_largest_group_fits_into_a_message_and_a_larger_one_is_rejected() {
    let descriptors = (0..300).map(|at| descriptor(at, &format!("n{at}"), &[], &[], LARGE_CAPACITY)).collect();
    let mut cluster =
        SimulatedCluster::new(1, ManagerSettings { fanout: 16, ..ManagerSettings::default() }, descriptors);
    let ticket = cluster.open_job(0, Some(Quota { groups: 9, operations: 1 << 16, bytes: 1 << 40 }));
    let asked = request(leaders(0..4_096), 1, 256);
    let group = cluster.open_group(0, ticket, asked.clone()).unwrap();
    cluster.check_tree(&asked, &group);
    let root = cluster.seat(&group.seats[0].name, group.group_key()).unwrap();
    let bytes = serde_json::to_vec(root).unwrap().len();
    assert!(bytes <= root.max_encoded_bytes(), "{bytes} bytes, the upper bound is {}", root.max_encoded_bytes());
    let mut wide = asked.clone();
    for leader in &mut wide.leaders {
        leader.addresses = vec![leader.addresses[0]; 8];
    }
    let error = cluster.open_group(0, ticket, wide).unwrap_err();
    assert!(matches!(error, ControlError::TooMany { .. }), "{error}");
    let error = cluster.open_group(0, ticket, request(leaders(0..4_097), 1, 256)).unwrap_err();
    assert!(error.to_string().contains("4096 at most"), "{error}");
}
