//! Lost nodes, lost jobs, a lost manager.

use super::*;

fn two_levels(seed: u64) -> SimulatedCluster {
    let mut cards = vec![card(0, "top", &[], &[], ROOM), card(1, "spare", &[], &[], ROOM)];
    for leaf in 0..3 {
        let serves = format!("10.1.0.{}/28", leaf * 16);
        cards.push(card(2 + leaf, &format!("leaf{leaf}"), &["top", "spare"], &[&serves], ROOM));
    }
    SimulatedCluster::new(seed, ManagerSettings::default(), cards)
}

fn all_hosts() -> GroupRequest {
    request(leaders((0..3).flat_map(|rack| [rack * 16, rack * 16 + 1])), 4, 64)
}

#[test]
fn a_lost_node_revokes_its_groups_and_a_new_one_avoids_it() {
    let mut cluster = two_levels(3);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    let other = cluster.open_group(0, ticket, request(leaders([0, 1]), 4, 64)).unwrap();
    let root = group.seats[0].name.clone();
    let index = cluster.nodes.iter().position(|node| node.card.name == root).unwrap();
    cluster.kill(index);
    cluster.settle();
    assert!(cluster.heard[&0].is_empty(), "it may only have lost its connection");
    cluster.pass(millis(400));
    let revoked = FromManager::Revoked {
        group: group.key_of_group(),
        node: Some(root.clone()),
        why: "its connection broke".to_owned(),
    };
    assert_eq!(cluster.heard.get_mut(&0).map(std::mem::take), Some(vec![revoked]));
    assert!(cluster.seat("leaf0", group.key_of_group()).is_none(), "the seats below are given up");
    assert!(cluster.seat("leaf0", other.key_of_group()).is_some(), "other groups go on");
    let again = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.check_tree(&all_hosts(), &again);
    assert_ne!(again.seats[0].name, root);
    assert_ne!(again.group, group.group);
    cluster.ask(0, |request| ToManager::CloseJob { request, ticket });
    cluster.settle();
    cluster.check_empty();
}

#[test]
fn a_node_that_only_lost_its_connection_keeps_its_groups() {
    let mut cluster = two_levels(4);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    let peer = cluster.peer_of(ClusterEndpoint::Node(2));
    cluster.manager.handle_lost(cluster.now, peer);
    cluster.register(2);
    cluster.settle();
    cluster.pass(millis(8_000));
    assert!(cluster.heard[&0].is_empty(), "{:?}", cluster.heard);
    cluster.check_tree(&all_hosts(), &group);
    cluster.check_reservations();
    cluster.close_group(0, ticket, group.key_of_group());
    cluster.check_empty();
}

#[test]
fn a_node_that_begins_anew_has_lost_its_seats() {
    let mut cluster = two_levels(5);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.pass(millis(100));
    cluster.kill(3);
    cluster.revive(3);
    cluster.settle();
    let heard = cluster.heard.get_mut(&0).map(std::mem::take).unwrap_or_default();
    let [FromManager::Revoked { group: revoked, node, .. }] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!((*revoked, node.as_deref()), (group.key_of_group(), Some("leaf1")));
    cluster.pass(millis(100));
    cluster.check_empty();
    cluster.open_group(0, ticket, all_hosts()).unwrap();
}

#[test]
fn a_silent_node_is_lost_in_bounded_time() {
    let mut cluster = two_levels(6);
    let ticket = cluster.open_job(0, None);
    cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.nodes[2].alive = false; // Its connection stays, but nothing comes.
    cluster.pass(millis(5_500));
    let heard = cluster.heard.get_mut(&0).map(std::mem::take).unwrap_or_default();
    assert!(matches!(&heard[..], [FromManager::Revoked { node: Some(name), .. }] if name == "leaf0"), "{heard:?}");
    assert!(cluster.events.iter().any(|event| event.to_string() == "node leaf0 is lost: it does not answer"));
}

#[test]
fn a_node_killed_at_any_moment_of_the_set_up_leaves_nothing_behind() {
    for seed in 0..60 {
        let mut cluster = two_levels(seed);
        let ticket = cluster.open_job(0, None);
        cluster.ask(0, |request| ToManager::OpenGroup { request, ticket, group: all_hosts() });
        (0..seed % 7).for_each(|_| {
            cluster.step();
        });
        let victim = (seed / 7) as usize % 5;
        cluster.kill(victim);
        cluster.settle();
        cluster.pass(millis(12_000));
        cluster.check_reservations();
        let heard = cluster.heard.get_mut(&0).map(std::mem::take).unwrap_or_default();
        let answered = heard
            .iter()
            .filter(|message| matches!(message, FromManager::GroupOpened { .. } | FromManager::Refused { .. }));
        assert_eq!(answered.count(), 1, "seed {seed}: {heard:?}");
        cluster.ask(0, |request| ToManager::CloseJob { request, ticket });
        cluster.settle();
        cluster.pass(millis(12_000));
        cluster.check_empty();
    }
}

#[test]
fn a_node_that_takes_orders_and_never_answers_costs_a_bounded_time() {
    let mut cluster = two_levels(7);
    let ticket = cluster.open_job(0, None);
    cluster.ask(0, |request| ToManager::OpenGroup { request, ticket, group: all_hosts() });
    cluster.step();
    cluster.step();
    // The leaves have their orders; one of them answers no more, but its beats go on.
    let silent = cluster.nodes[4].card.control;
    cluster.wires.retain(|(_, to), _| *to != ClusterEndpoint::Node(4));
    cluster.settle();
    cluster.pass(millis(5_000));
    let heard = cluster.heard.get_mut(&0).map(std::mem::take).unwrap_or_default();
    let [FromManager::Refused { refusal: ControlError::NodeFailed { node, .. }, .. }] = heard.as_slice() else {
        panic!("{silent}: {heard:?}")
    };
    assert_eq!(node, "leaf2");
    cluster.pass(millis(12_000));
    cluster.check_empty();
}

#[test]
fn a_job_that_does_not_come_back_loses_its_groups_after_a_while() {
    let mut cluster = two_levels(8);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.lose_job(0);
    cluster.pass(millis(9_000));
    cluster.check_tree(&all_hosts(), &group);
    // It comes back in time, and hears what it missed.
    cluster.kill(2);
    cluster.pass(millis(500));
    let quota = ManagerSettings::default().default_quota;
    cluster.ask(0, |request| ToManager::AttachJob { request, ticket, name: "back".to_owned(), quota });
    cluster.settle();
    let heard = cluster.heard.get_mut(&0).map(std::mem::take).unwrap_or_default();
    assert!(matches!(&heard[..], [FromManager::JobOpened { .. }, FromManager::Revoked { .. }]), "{heard:?}");
    cluster.pass(millis(15_000));
    let asked = request(leaders([16, 17, 32, 33]), 4, 64);
    cluster.open_group(0, ticket, asked).unwrap();
    cluster.lose_job(0);
    cluster.pass(millis(11_000));
    cluster.check_empty();
    assert!(cluster.manager.jobs.is_empty());
}

#[test]
fn a_manager_that_begins_anew_relearns_nodes_seats_and_jobs() {
    let mut cluster = two_levels(9);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.restart_manager();
    cluster.check_tree(&all_hosts(), &group);
    cluster.check_reservations();
    let status = cluster.manager.status();
    assert_eq!(status.groups.len(), 1);
    assert_eq!(status.groups[0].nodes.len(), group.seats.len());
    // Somebody else's ticket is not believed; the job's own is.
    let quota = ManagerSettings::default().default_quota;
    let wrong = JobTicket { key: AuthKey([1; 16]), ..ticket };
    for (ticket, welcome) in [(wrong, false), (ticket, true)] {
        cluster.ask(0, |request| ToManager::AttachJob { request, ticket, name: "me".to_owned(), quota });
        cluster.settle();
        let heard = cluster.heard.get_mut(&0).and_then(Vec::pop);
        assert_eq!(matches!(heard, Some(FromManager::JobOpened { .. })), welcome, "{heard:?}");
    }
    let more = cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.check_tree(&all_hosts(), &more);
    let edges = |group: &GroupDescriptor| group.leaders.iter().map(|place| place.edge.0).collect::<BTreeSet<u32>>();
    assert!(edges(&group).is_disjoint(&edges(&more)), "numbers in use are not handed out again");
    cluster.close_group(0, ticket, group.key_of_group());
    cluster.close_group(0, ticket, more.key_of_group());
    cluster.check_empty();
}

#[test]
fn groups_of_a_job_that_does_not_find_the_new_manager_are_removed() {
    let mut cluster = two_levels(10);
    let ticket = cluster.open_job(0, None);
    cluster.open_group(0, ticket, all_hosts()).unwrap();
    cluster.restart_manager();
    cluster.pass(millis(12_000));
    cluster.check_empty();
}

#[test]
fn the_operator_ends_a_job() {
    let mut cluster = two_levels(11);
    let ticket = cluster.open_job(0, None);
    cluster.open_group(0, ticket, all_hosts()).unwrap();
    let job = ticket.job;
    cluster.ask(1, |request| ToManager::RevokeJob { request, job, why: "too loud\u{1b}[2J".to_owned() });
    cluster.settle();
    let told = FromManager::JobRevoked { job, why: "too loud [2J".to_owned() };
    assert_eq!(cluster.heard.get_mut(&0).and_then(Vec::pop), Some(told));
    assert!(matches!(cluster.heard[&1][..], [FromManager::Closed { .. }]));
    cluster.check_empty();
    assert_eq!(cluster.open_group_refusal(0, ticket), ControlError::WrongTicket);
}

#[test]
fn trouble_told_by_a_node_revokes_the_group() {
    let mut cluster = two_levels(12);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap().key_of_group();
    cluster
        .say(ClusterEndpoint::Node(2), ToManager::NodeTrouble { group, what: "rank 3 does not answer".to_owned() });
    cluster.settle();
    let heard = cluster.heard.get_mut(&0).map(std::mem::take).unwrap_or_default();
    assert!(matches!(&heard[..], [FromManager::Revoked { why, .. }] if why.contains("rank 3")), "{heard:?}");
    cluster.check_empty();
}

#[test]
fn trouble_told_by_a_job_revokes_its_own_group_and_no_other() {
    let mut cluster = two_levels(13);
    let (ticket, other) = (cluster.open_job(0, None), cluster.open_job(1, None));
    let group = cluster.open_group(0, ticket, all_hosts()).unwrap().key_of_group();
    let theirs = cluster.open_group(1, other, all_hosts()).unwrap().key_of_group();
    cluster.ask(0, |_| ToManager::JobTrouble { ticket, group: theirs, what: "it is in my way".to_owned() });
    cluster.settle();
    let unknown = FromManager::Refused { request: RequestId(0), refusal: ControlError::UnknownGroup };
    assert_eq!(cluster.heard.get_mut(&0).map(std::mem::take), Some(vec![unknown]));
    cluster.ask(0, |_| ToManager::JobTrouble { ticket, group, what: "node top does not answer".to_owned() });
    cluster.settle();
    let heard = cluster.heard.get_mut(&0).map(std::mem::take).unwrap_or_default();
    let [FromManager::Revoked { group: revoked, node: None, why }] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!((*revoked, why.as_str()), (group, "its job says: node top does not answer"));
    assert!(cluster.seat("leaf0", group).is_none() && cluster.seat("leaf0", theirs).is_some());
    assert!(cluster.heard[&1].is_empty());
}

impl SimulatedCluster {
    fn open_group_refusal(&mut self, job: usize, ticket: JobTicket) -> ControlError {
        self.open_group(job, ticket, all_hosts()).expect_err("it is refused")
    }
}
