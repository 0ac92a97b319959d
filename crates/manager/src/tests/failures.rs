//! Lost nodes, lost jobs, a restarted manager.

use super::*;

fn two_levels(seed: u64) -> SimulatedCluster {
    let mut descriptors =
        vec![descriptor(0, "top", &[], &[], LARGE_CAPACITY), descriptor(1, "spare", &[], &[], LARGE_CAPACITY)];
    for leaf in 0..3 {
        let serves = format!("10.1.0.{}/28", leaf * 16);
        descriptors.push(descriptor(2 + leaf, &format!("leaf{leaf}"), &["top", "spare"], &[&serves], LARGE_CAPACITY));
    }
    SimulatedCluster::new(seed, ManagerSettings::default(), descriptors)
}

fn all_hosts() -> GroupRequest {
    request(leaders((0..3).flat_map(|rack| [rack * 16, rack * 16 + 1])), 4, 64)
}

/// P-85: between two reports, heartbeats only say that the node lives.
#[test]
fn a_heartbeat_without_a_report_keeps_the_node_and_its_last_report() {
    let mut cluster =
        SimulatedCluster::new(1, ManagerSettings::default(), vec![descriptor(0, "only", &[], &[], LARGE_CAPACITY)]);
    let heartbeat = |report| ToManager::Heartbeat { seats: Vec::new(), report };
    let report = NodeReport { operations: 42, ..NodeReport::default() };
    cluster.send_to_manager(ClusterEndpoint::Node(0), heartbeat(Some(report)));
    for _ in 0..20 {
        cluster.send_to_manager(ClusterEndpoint::Node(0), heartbeat(None));
        cluster.deliver_all();
        cluster.now += millis(500);
        cluster.manager.handle_timeout(cluster.now);
    }
    let status = cluster.manager.status();
    assert_eq!((status.nodes[0].alive, status.nodes[0].report.operations), (true, 42));
}

#[test]
fn a_lost_node_revokes_its_groups_and_a_new_one_avoids_it() {
    let mut cluster = two_levels(3);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    let other = cluster.open_group(0, ticket, request(leaders([0, 1]), 4, 64)).unwrap();
    let root = group.seats[0].name.clone();
    let index = cluster.nodes.iter().position(|node| node.descriptor.name == root).unwrap();
    cluster.kill(index);
    cluster.deliver_all();
    assert!(cluster.received[&0].is_empty(), "the grace period has not ended");
    cluster.advance(millis(400));
    let revoked = FromManager::Revoked {
        group: group.group_key(),
        node: Some(root.clone()),
        why: "its connection broke".to_owned(),
    };
    assert_eq!(cluster.received.get_mut(&0).map(std::mem::take), Some(vec![revoked]));
    assert!(cluster.seat("leaf0", group.group_key()).is_none(), "the child seats are removed");
    assert!(cluster.seat("leaf0", other.group_key()).is_some(), "other groups are not affected");
    let again = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.check_tree(&all_hosts(), &again);
    assert_ne!(again.seats[0].name, root);
    assert_ne!(again.group, group.group);
    cluster.send_request(0, |request| ToManager::CloseJob { request, ticket });
    cluster.deliver_all();
    cluster.check_empty();
}

#[test]
fn a_node_that_only_lost_its_connection_keeps_its_groups() {
    let mut cluster = two_levels(4);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    let peer = cluster.peer_of(ClusterEndpoint::Node(2));
    cluster.manager.handle_disconnect(cluster.now, peer);
    cluster.register(2);
    cluster.deliver_all();
    cluster.advance(millis(8_000));
    assert!(cluster.received[&0].is_empty(), "{:?}", cluster.received);
    cluster.check_tree(&all_hosts(), &group);
    cluster.check_reservations();
    cluster.close_group(0, ticket, group.group_key());
    cluster.check_empty();
}

#[test]
fn a_restarted_node_has_lost_its_seats() {
    let mut cluster = two_levels(5);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.advance(millis(100));
    cluster.kill(3);
    cluster.restart_node(3);
    cluster.deliver_all();
    let received = cluster.received.get_mut(&0).map(std::mem::take).unwrap_or_default();
    let [FromManager::Revoked { group: revoked, node, .. }] = received.as_slice() else { panic!("{received:?}") };
    assert_eq!((*revoked, node.as_deref()), (group.group_key(), Some("leaf1")));
    cluster.advance(millis(100));
    cluster.check_empty();
    cluster.open_group(0, ticket, all_hosts()).unwrap();
}

#[test]
fn a_silent_node_is_lost_in_bounded_time() {
    let mut cluster = two_levels(6);
    let ticket = cluster.open_job(0, None);
    cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.nodes[2].alive = false; // Its connection stays open, but the node sends nothing.
    cluster.advance(millis(5_500));
    let received = cluster.received.get_mut(&0).map(std::mem::take).unwrap_or_default();
    assert!(
        matches!(&received[..], [FromManager::Revoked { node: Some(name), .. }] if name == "leaf0"),
        "{received:?}"
    );
    assert!(cluster.events.iter().any(|event| event.to_string() == "node leaf0 is lost: no heartbeat for 5 s"));
}

#[test]
fn a_node_killed_at_any_moment_of_the_set_up_leaves_nothing_behind() {
    for seed in 0..60 {
        let mut cluster = two_levels(seed);
        let ticket = cluster.open_job(0, None);
        cluster.send_request(0, |request| ToManager::OpenGroup { request, ticket, group: all_hosts() });
        (0..seed % 7).for_each(|_| {
            cluster.step();
        });
        let victim = (seed / 7) as usize % 5;
        cluster.kill(victim);
        cluster.deliver_all();
        cluster.advance(millis(12_000));
        cluster.check_reservations();
        let received = cluster.received.get_mut(&0).map(std::mem::take).unwrap_or_default();
        let answered = received
            .iter()
            .filter(|message| matches!(message, FromManager::GroupOpened { .. } | FromManager::Rejected { .. }));
        assert_eq!(answered.count(), 1, "seed {seed}: {received:?}");
        cluster.send_request(0, |request| ToManager::CloseJob { request, ticket });
        cluster.deliver_all();
        cluster.advance(millis(12_000));
        cluster.check_empty();
    }
}

#[test]
fn a_node_that_never_replies_fails_the_group_in_bounded_time() {
    let mut cluster = two_levels(7);
    let ticket = cluster.open_job(0, None);
    cluster.send_request(0, |request| ToManager::OpenGroup { request, ticket, group: all_hosts() });
    cluster.step();
    cluster.step();
    // The leaves have their commands; one of them never replies, but its heartbeats continue.
    let silent = cluster.nodes[4].descriptor.control;
    cluster.queues.retain(|(_, to), _| *to != ClusterEndpoint::Node(4));
    cluster.deliver_all();
    cluster.advance(millis(5_000));
    let received = cluster.received.get_mut(&0).map(std::mem::take).unwrap_or_default();
    let [FromManager::Rejected { error: ControlError::NodeFailed { node, .. }, .. }] = received.as_slice() else {
        panic!("{silent}: {received:?}")
    };
    assert_eq!(node, "leaf2");
    cluster.advance(millis(12_000));
    cluster.check_empty();
}

#[test]
fn a_job_that_does_not_reconnect_loses_its_groups_after_the_grace_period() {
    let mut cluster = two_levels(8);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.lose_job(0);
    cluster.advance(millis(9_000));
    cluster.check_tree(&all_hosts(), &group);
    // The job reconnects in time and gets the notifications that it missed.
    cluster.kill(2);
    cluster.advance(millis(500));
    let quota = ManagerSettings::default().default_quota;
    cluster.send_request(0, |request| ToManager::AttachJob { request, ticket, name: "back".to_owned(), quota });
    cluster.deliver_all();
    let received = cluster.received.get_mut(&0).map(std::mem::take).unwrap_or_default();
    assert!(matches!(&received[..], [FromManager::JobOpened { .. }, FromManager::Revoked { .. }]), "{received:?}");
    cluster.advance(millis(15_000));
    let asked = request(leaders([16, 17, 32, 33]), 4, 64);
    cluster.open_group(0, ticket, asked).unwrap();
    cluster.lose_job(0);
    cluster.advance(millis(11_000));
    cluster.check_empty();
    assert!(cluster.manager.jobs.is_empty());
}

#[test]
fn a_restarted_manager_recovers_nodes_seats_and_jobs() {
    let mut cluster = two_levels(9);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.restart_manager();
    cluster.check_tree(&all_hosts(), &group);
    cluster.check_reservations();
    let status = cluster.manager.status();
    assert_eq!(status.groups.len(), 1);
    assert_eq!(status.groups[0].nodes.len(), group.seats.len());
    // The manager rejects another job's key and accepts the job's own.
    let quota = ManagerSettings::default().default_quota;
    let wrong = JobTicket { key: AuthKey([1; 16]), ..ticket };
    for (ticket, welcome) in [(wrong, false), (ticket, true)] {
        cluster.send_request(0, |request| ToManager::AttachJob { request, ticket, name: "me".to_owned(), quota });
        cluster.deliver_all();
        let received = cluster.received.get_mut(&0).and_then(Vec::pop);
        assert_eq!(matches!(received, Some(FromManager::JobOpened { .. })), welcome, "{received:?}");
    }
    let more = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.check_tree(&all_hosts(), &more);
    let edges = |group: &GroupDescriptor| group.leaders.iter().map(|place| place.edge.0).collect::<BTreeSet<u32>>();
    assert!(edges(&group).is_disjoint(&edges(&more)), "numbers in use are not reallocated");
    cluster.close_group(0, ticket, group.group_key());
    cluster.close_group(0, ticket, more.group_key());
    cluster.check_empty();
}

#[test]
fn groups_of_a_job_that_does_not_find_the_new_manager_are_removed() {
    let mut cluster = two_levels(10);
    let ticket = cluster.open_job(0, None);
    cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.restart_manager();
    cluster.advance(millis(12_000));
    cluster.check_empty();
}

#[test]
fn the_operator_ends_a_job() {
    let mut cluster = two_levels(11);
    let ticket = cluster.open_job(0, None);
    cluster.open_group(0, ticket, all_hosts()).unwrap();
    let job = ticket.job;
    cluster.send_request(1, |request| ToManager::RevokeJob { request, job, why: "too loud\u{1b}[2J".to_owned() });
    cluster.deliver_all();
    let told = FromManager::JobRevoked { job, why: "too loud [2J".to_owned() };
    assert_eq!(cluster.received.get_mut(&0).and_then(Vec::pop), Some(told));
    assert!(matches!(cluster.received[&1][..], [FromManager::Closed { .. }]));
    cluster.check_empty();
    assert_eq!(cluster.open_group_error(0, ticket), ControlError::WrongTicket);
}

#[test]
fn failure_reported_by_a_node_revokes_the_group() {
    let mut cluster = two_levels(12);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap().group_key();
    cluster.send_to_manager(
        ClusterEndpoint::Node(2),
        ToManager::NodeFailure { group, what: "rank 3 does not answer".to_owned() },
    );
    cluster.deliver_all();
    let received = cluster.received.get_mut(&0).map(std::mem::take).unwrap_or_default();
    assert!(matches!(&received[..], [FromManager::Revoked { why, .. }] if why.contains("rank 3")), "{received:?}");
    cluster.check_empty();
}

#[test]
fn failure_reported_by_a_job_revokes_its_own_group_and_no_other() {
    let mut cluster = two_levels(13);
    let (ticket, other) = (cluster.open_job(0, None), cluster.open_job(1, None));
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap().group_key();
    let theirs = cluster.open_group(1, other, all_hosts()).unwrap().group_key();
    cluster.send_request(0, |_| ToManager::JobFailure { ticket, group: theirs, what: "it is in my way".to_owned() });
    cluster.deliver_all();
    let unknown = FromManager::Rejected { request: RequestId(0), error: ControlError::UnknownGroup };
    assert_eq!(cluster.received.get_mut(&0).map(std::mem::take), Some(vec![unknown]));
    cluster.send_request(0, |_| ToManager::JobFailure { ticket, group, what: "node top does not answer".to_owned() });
    cluster.deliver_all();
    let received = cluster.received.get_mut(&0).map(std::mem::take).unwrap_or_default();
    let [FromManager::Revoked { group: revoked, node: None, why }] = received.as_slice() else {
        panic!("{received:?}")
    };
    assert_eq!((*revoked, why.as_str()), (group, "reported by its job: node top does not answer"));
    assert!(cluster.seat("leaf0", group).is_none() && cluster.seat("leaf0", theirs).is_some());
    assert!(cluster.received[&1].is_empty());
}

impl SimulatedCluster {
    fn open_group_error(&mut self, job: usize, ticket: JobTicket) -> ControlError {
        self.open_group(job, ticket, all_hosts()).expect_err("the request is rejected")
    }
}
