//! Reservations: no node is overbooked, nothing is left behind, and errors name the full node.

use super::*;

fn small(seats: u32, operations: u32, bytes: u64) -> Capacity {
    Capacity { seats, operations, bytes }
}

#[test]
fn no_mix_of_jobs_overbooks_a_node_and_all_reservations_are_released() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let room = small(6, 64, 200_000);
        let mut descriptors = vec![descriptor(0, "top0", &[], &[], room), descriptor(1, "top1", &[], &[], room)];
        for leaf in 0..4 {
            let serves = format!("10.1.0.{}/28", leaf * 16);
            descriptors.push(descriptor(2 + leaf, &format!("leaf{leaf}"), &["top0", "top1"], &[&serves], room));
        }
        let mut cluster = SimulatedCluster::new(seed, ManagerSettings::default(), descriptors);
        let quota = Quota { groups: 8, operations: 48, bytes: 150_000 };
        let tickets: Vec<JobTicket> = (0..3).map(|job| cluster.open_job(job, Some(quota))).collect();
        let mut open: Vec<(usize, GroupKey)> = Vec::new();
        for _ in 0..60 {
            // Several requests are in progress at once.
            for _ in 0..1 + random.below(3) {
                let job = random.below(3);
                let ticket = tickets[job];
                if !open.is_empty() && random.below(5) < 2 {
                    let (job, group) = open.swap_remove(random.below(open.len()));
                    let ticket = tickets[job];
                    cluster.send_request(job, |request| ToManager::CloseGroup { request, ticket, group });
                } else {
                    let hosts: Vec<usize> = (0..2 + random.below(20)).map(|_| random.below(64)).collect();
                    let group = request(leaders(hosts), 1 + random.below(16) as u32, 64 + random.below(256) as u32);
                    cluster.send_request(job, |request| ToManager::OpenGroup { request, ticket, group });
                }
                (0..random.below(6)).for_each(|_| {
                    cluster.step();
                    cluster.check_reservations();
                });
            }
            cluster.deliver_all();
            cluster.check_reservations();
            for (job, received) in &mut cluster.received {
                for message in received.drain(..) {
                    match message {
                        FromManager::GroupOpened { group, .. } => {
                            open.push((*job, group.group_key()));
                            opened += 1;
                        }
                        FromManager::Rejected { error, .. } => {
                            let full =
                                matches!(error, ControlError::NodeFull { .. } | ControlError::QuotaFull { .. });
                            assert!(full, "seed {seed}: {error}");
                            refused += 1;
                        }
                        FromManager::Closed { .. } => {}
                        other => panic!("seed {seed}: {other:?}"),
                    }
                }
            }
        }
        for (job, group) in open {
            cluster.close_group(job, tickets[job], group);
        }
        cluster.check_empty();
    }
    // Guards against a vacuous test.
    assert!(opened > 1_000 && refused > 500, "{opened} opened, {refused} refused");
}

#[test]
fn a_refusal_names_the_node_or_the_quota_and_changes_nothing() {
    let descriptors = vec![descriptor(0, "only", &[], &[], small(2, 16, 10_000))];
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), descriptors);
    let ticket = cluster.open_job(0, Some(Quota { groups: 3, operations: 12, bytes: 9_000 }));
    let mut open = |leaders_count: usize, window, bytes| {
        cluster.open_group(0, ticket, request(leaders(0..leaders_count), window, bytes))
    };
    let refused =
        |node: &str, resource, wanted, free| ControlError::NodeFull { node: node.to_owned(), resource, wanted, free };
    assert_eq!(open(2, 32, 1), Err(refused("only", NodeResource::Operations, 32, 16)));
    assert_eq!(open(3, 4, 1_000), Err(refused("only", NodeResource::Bytes, 16_000, 10_000)));
    let over = |node: &str, resource, wanted, free| ControlError::QuotaFull {
        node: node.to_owned(),
        resource,
        wanted,
        free,
    };
    assert_eq!(open(2, 16, 1), Err(over("only", NodeResource::Operations, 16, 12)));
    assert_eq!(open(2, 4, 800), Err(over("only", NodeResource::Bytes, 9_600, 9_000)));
    assert_eq!(open(1, 4, 10), Err(ControlError::TooFewLeaders));
    let first = open(2, 3, 100).unwrap();
    assert_eq!(first.window, 4, "rounded up to a power of two");
    let second = open(2, 4, 100).unwrap();
    assert_eq!(open(2, 1, 1), Err(refused("only", NodeResource::Groups, 1, 0)));
    cluster.check_reservations();
    let status = cluster.manager.status();
    assert_eq!(status.nodes[0].reserved, small(2, 8, 2_400));
    assert!(status.jobs[0].last_refusal.as_ref().unwrap().contains("node only has 0 groups left"));
    cluster.close_group(0, ticket, first.group_key());
    cluster.close_group(0, ticket, second.group_key());
    cluster.check_empty();
}

#[test]
fn a_job_gets_no_more_than_the_manager_allows_and_its_quota_of_groups_holds() {
    let most = Quota { groups: 1, operations: 100, bytes: 1_000_000 };
    let settings = ManagerSettings { max_quota: most, ..ManagerSettings::default() };
    let mut cluster = SimulatedCluster::new(1, settings, vec![descriptor(0, "only", &[], &[], LARGE_CAPACITY)]);
    let ticket = cluster.open_job(0, Some(Quota { groups: 99, operations: u32::MAX, bytes: u64::MAX }));
    assert_eq!(cluster.manager.status().jobs[0].quota, most);
    cluster.open_group(0, ticket, request(leaders(0..2), 4, 16)).unwrap();
    let error = cluster.open_group(0, ticket, request(leaders(0..2), 4, 16)).unwrap_err();
    assert_eq!(
        error,
        ControlError::QuotaFull { node: String::new(), resource: NodeResource::Groups, wanted: 1, free: 0 }
    );
}

#[test]
fn a_seat_that_cannot_be_installed_undoes_the_whole_group() {
    for seed in 0..30 {
        let descriptors: Vec<NodeDescriptor> =
            (0..7).map(|at| descriptor(at, &format!("n{at}"), &[], &[], LARGE_CAPACITY)).collect();
        let mut cluster =
            SimulatedCluster::new(seed, ManagerSettings { fanout: 2, ..ManagerSettings::default() }, descriptors);
        let ticket = cluster.open_job(0, None);
        cluster.nodes[3 + seed as usize % 4].rejects = true;
        let error = cluster.open_group(0, ticket, request(leaders(0..8), 4, 16)).unwrap_err();
        let name = format!("n{}", 3 + seed % 4);
        assert_eq!(error, ControlError::NodeFailed { node: name.clone(), why: "rejected by the test".to_owned() });
        cluster.check_empty();
        // The job avoids the node and gets a group.
        let mut asked = request(leaders(0..8), 4, 16);
        asked.avoid.push(name);
        let group = cluster.open_group(0, ticket, asked.clone()).unwrap();
        cluster.check_tree(&asked, &group);
    }
}

#[test]
fn a_group_whose_requester_disconnected_is_removed() {
    for seed in 0..20 {
        let descriptors: Vec<NodeDescriptor> =
            (0..3).map(|at| descriptor(at, &format!("n{at}"), &[], &[], LARGE_CAPACITY)).collect();
        let mut cluster =
            SimulatedCluster::new(seed, ManagerSettings { fanout: 2, ..ManagerSettings::default() }, descriptors);
        let ticket = cluster.open_job(0, None);
        let group = request(leaders(0..4), 4, 16);
        cluster.send_request(0, |request| ToManager::OpenGroup { request, ticket, group });
        (0..seed % 5).for_each(|_| {
            cluster.step();
        });
        cluster.lose_job(0);
        cluster.deliver_all();
        cluster.advance(millis(20_000));
        cluster.check_empty();
    }
}
