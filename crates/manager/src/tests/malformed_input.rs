//! Invalid messages, wrong tickets and malformed input.

use super::*;

fn one_node() -> SimulatedCluster {
    SimulatedCluster::new(1, ManagerSettings::default(), vec![descriptor(0, "only", &[], &[], LARGE_CAPACITY)])
}

fn reply_to(
    cluster: &mut SimulatedCluster,
    from: usize,
    make: impl FnOnce(RequestId) -> ToManager,
) -> Vec<FromManager> {
    cluster.send_request(from, make);
    cluster.deliver_all();
    cluster.received.get_mut(&from).map(std::mem::take).unwrap_or_default()
}

fn is_rejected(received: &[FromManager]) -> bool {
    matches!(received, [FromManager::Rejected { .. }])
}

#[test]
fn a_wrong_ticket_has_no_effect() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap().group_key();
    let other = cluster.open_job(1, None);
    let forged = JobTicket { job: ticket.job, key: other.key };
    let asked = request(leaders(0..3), 4, 64);
    assert!(is_rejected(&reply_to(&mut cluster, 1, |request| ToManager::OpenGroup {
        request,
        ticket: forged,
        group: asked
    })));
    for ticket in [forged, other] {
        assert!(is_rejected(&reply_to(&mut cluster, 1, |request| ToManager::CloseGroup { request, ticket, group })));
        assert!(is_rejected(&reply_to(&mut cluster, 1, |_| ToManager::JobFailure {
            ticket,
            group,
            what: String::new()
        })));
    }
    assert!(is_rejected(&reply_to(&mut cluster, 1, |request| ToManager::CloseJob { request, ticket: forged })));
    assert!(cluster.seat("only", group).is_some());
}

/// Rule: P-105.
#[test]
fn a_credential_gives_the_rights_of_its_job_and_no_others() {
    let mut cluster = one_node();
    cluster.credentials = BTreeMap::from([(0, CredentialId(7)), (1, CredentialId(8)), (2, CredentialId(7))]);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap().group_key();
    // Even the right ticket, if another job has got hold of it.
    let quota = Quota { groups: 1, operations: 1, bytes: 1 };
    let attach = |request| ToManager::AttachJob { request, ticket, name: String::new(), quota };
    assert!(is_rejected(&reply_to(&mut cluster, 1, attach)));
    assert!(is_rejected(&reply_to(&mut cluster, 1, |request| ToManager::CloseGroup { request, ticket, group })));
    assert!(is_rejected(&reply_to(&mut cluster, 1, |request| ToManager::CloseJob { request, ticket })));
    let what = String::new();
    assert!(is_rejected(&reply_to(&mut cluster, 1, |_| ToManager::JobFailure { ticket, group, what })));
    assert!(cluster.seat("only", group).is_some());
    let node = descriptor(1, "false", &[], &[], LARGE_CAPACITY);
    for of_cluster in [
        ToManager::Register { request: RequestId(1), node, version: String::new() },
        ToManager::HeldSeats { seats: Vec::new() },
        ToManager::Heartbeat { seats: Vec::new(), report: Some(NodeReport::default()) },
        ToManager::NodeFailure { group, what: String::new() },
        ToManager::Reply(NodeReply::Installed { group }),
        ToManager::Status { request: RequestId(1) },
        ToManager::JobHistory { request: RequestId(1), job: String::new() },
        ToManager::RevokeJob { request: RequestId(1), job: ticket.job, why: String::new() },
    ] {
        let received = reply_to(&mut cluster, 0, |_| of_cluster.clone());
        let is_refused = matches!(&received[..], [FromManager::Rejected { error: ControlError::NotPermitted, .. }]);
        assert!(is_refused, "{of_cluster:?}: {received:?}");
    }
    // The job itself, by another connection.
    assert!(matches!(&reply_to(&mut cluster, 2, attach)[..], [FromManager::JobOpened { .. }]));
    assert!(!is_rejected(&reply_to(&mut cluster, 2, |request| ToManager::CloseJob { request, ticket })));
}

/// Rule: P-105.
#[test]
fn no_credential_gives_a_right_to_a_job_that_was_opened_with_the_secret() {
    let mut cluster = one_node();
    cluster.credentials = BTreeMap::from([(1, CredentialId(8))]);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap().group_key();
    let quota = Quota { groups: 1, operations: 1, bytes: 1 };
    let attach = |request| ToManager::AttachJob { request, ticket, name: String::new(), quota };
    let close = |request| ToManager::CloseJob { request, ticket };
    assert!(is_rejected(&reply_to(&mut cluster, 1, attach)));
    assert!(is_rejected(&reply_to(&mut cluster, 1, close)));
    cluster.restart_manager();
    cluster.received.clear();
    // Whose job it is, only an attachment tells.
    assert!(is_rejected(&reply_to(&mut cluster, 1, close)));
    assert!(matches!(&reply_to(&mut cluster, 0, attach)[..], [FromManager::JobOpened { .. }]));
    assert!(is_rejected(&reply_to(&mut cluster, 1, attach)));
    assert!(cluster.seat("only", group).is_some());
}

#[test]
fn a_job_keeps_its_credential_when_the_manager_restarts() {
    let mut cluster = one_node();
    cluster.credentials = BTreeMap::from([(0, CredentialId(7)), (1, CredentialId(8))]);
    let ticket = cluster.open_job(0, None);
    cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap();
    cluster.restart_manager();
    cluster.deliver_all();
    cluster.received.clear();
    let quota = Quota { groups: 1, operations: 1, bytes: 1 };
    let attach = |request| ToManager::AttachJob { request, ticket, name: String::new(), quota };
    assert!(matches!(&reply_to(&mut cluster, 0, attach)[..], [FromManager::JobOpened { .. }]));
    assert!(is_rejected(&reply_to(&mut cluster, 1, attach)));
}

/// Job numbers are consecutive, so whoever has one can guess others.
#[test]
fn a_job_that_takes_anothers_number_after_a_restart_loses_it_to_what_the_nodes_report() {
    take_anothers_number(false);
}

#[test]
fn a_group_does_not_let_a_job_keep_anothers_number() {
    take_anothers_number(true);
}

/// After a restart, job 1 claims the number of job 0 before the node with job 0's group reports, if asked with a group of its own.
fn take_anothers_number(has_group: bool) {
    let nodes = vec![
        descriptor(0, "only", &[], &["host0", "host1", "host2"], LARGE_CAPACITY),
        descriptor(1, "other", &[], &["host3", "host4"], LARGE_CAPACITY),
    ];
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), nodes);
    cluster.credentials = BTreeMap::from([(0, CredentialId(7)), (1, CredentialId(8))]);
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap().group_key();
    cluster.manager = Manager::new(ManagerSettings::default(), AuthKey([9; 16]));
    let quota = Quota { groups: 1, operations: 4, bytes: 4096 };
    let invented = JobTicket { job: ticket.job, key: AuthKey([1; 16]) };
    let attach = |ticket| move |request| ToManager::AttachJob { request, ticket, name: String::new(), quota };
    assert!(matches!(&reply_to(&mut cluster, 1, attach(invented))[..], [FromManager::JobOpened { .. }]));
    if has_group {
        cluster.register(1);
        cluster.deliver_all();
        cluster.received.clear();
        cluster.open_group(1, invented, request(leaders(3..5), 4, 64)).unwrap();
    }
    cluster.register(0);
    cluster.deliver_all();
    assert!(cluster.seat("only", group).is_some(), "the working tree stays");
    cluster.received.clear();
    assert!(matches!(&reply_to(&mut cluster, 0, attach(ticket))[..], [FromManager::JobOpened { .. }]));
    assert!(is_rejected(&reply_to(&mut cluster, 1, attach(invented))));
}

#[test]
fn one_credential_cannot_take_all_jobs() {
    let mut cluster = one_node();
    cluster.credentials = BTreeMap::from([(0, CredentialId(7)), (1, CredentialId(8))]);
    for _ in 0..limits::MAX_JOBS_PER_CREDENTIAL {
        cluster.open_job(0, None);
    }
    let open = |request| ToManager::OpenJob { request, name: String::new(), quota: None };
    cluster.received.clear();
    assert!(is_rejected(&reply_to(&mut cluster, 0, open)));
    assert!(!is_rejected(&reply_to(&mut cluster, 1, open)));
    let number = JobId(77);
    let attach = move |request| ToManager::AttachJob {
        request,
        ticket: JobTicket { job: number, key: AuthKey([1; 16]) },
        name: String::new(),
        quota: Quota { groups: 1, operations: 1, bytes: 1 },
    };
    assert!(is_rejected(&reply_to(&mut cluster, 0, attach)));
}

#[test]
fn only_registered_nodes_may_send_node_messages() {
    let mut cluster = one_node();
    let group = GroupKey { group: units::GroupId(1), epoch: units::Epoch(1) };
    for message in [
        ToManager::Heartbeat {
            seats: vec![SeatHeartbeat { group, operations: 1 }],
            report: Some(NodeReport::default()),
        },
        ToManager::HeldSeats { seats: Vec::new() },
        ToManager::NodeFailure { group, what: String::new() },
        ToManager::Reply(NodeReply::Installed { group }),
    ] {
        assert!(is_rejected(&reply_to(&mut cluster, 5, |_| message)));
    }
}

#[test]
fn invalid_registrations_are_rejected() {
    let mut cluster = one_node();
    let good = descriptor(9, "new", &[], &[], LARGE_CAPACITY);
    let hosts = vec!["*".to_owned(); 65];
    let invalid = [
        descriptor(9, "only", &[], &[], LARGE_CAPACITY),
        descriptor(0, "thief-of-an-address", &[], &[], LARGE_CAPACITY),
        descriptor(9, "", &[], &[], LARGE_CAPACITY),
        descriptor(9, "two words", &[], &[], LARGE_CAPACITY),
        descriptor(9, &"x".repeat(65), &[], &[], LARGE_CAPACITY),
        descriptor(9, "new", &["new"], &[], LARGE_CAPACITY),
        descriptor(9, "new", &[], &["1.2.3.4/40"], LARGE_CAPACITY),
        descriptor(9, "new", &[], &[], Capacity { seats: 0, ..LARGE_CAPACITY }),
        NodeDescriptor { addresses: Vec::new(), ..good.clone() },
        NodeDescriptor { addresses: vec![address(3, 3); 17], ..good.clone() },
        NodeDescriptor { addresses: vec!["0.0.0.0:4791".parse().unwrap()], ..good.clone() },
        NodeDescriptor { serves: hosts, ..good.clone() },
    ];
    for (at, descriptor) in invalid.into_iter().enumerate() {
        let received = reply_to(&mut cluster, 10 + at, |request| ToManager::Register {
            request,
            node: descriptor,
            version: String::new(),
        });
        assert!(is_rejected(&received), "{received:?}");
    }
    let received =
        reply_to(&mut cluster, 50, |request| ToManager::Register { request, node: good, version: "x".repeat(1_000) });
    assert!(matches!(received[..], [FromManager::Registered { .. }]), "{received:?}");
}

#[test]
fn cyclic_parents_are_rejected() {
    let descriptors = vec![
        descriptor(0, "a", &["b"], &[], LARGE_CAPACITY),
        descriptor(1, "b", &["c"], &[], LARGE_CAPACITY),
        descriptor(2, "c", &["a"], &[], LARGE_CAPACITY),
    ];
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), descriptors);
    let refused = cluster.events.iter().filter(|event| event.to_string().contains("its own ancestor"));
    assert_eq!(refused.count(), 1);
    let ticket = cluster.open_job(0, None);
    cluster.open_group(0, ticket, request(leaders(0..8), 4, 64)).unwrap();
}

#[test]
fn invalid_group_requests_are_rejected() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let good = request(leaders(0..3), 4, 64);
    let with = |change: &dyn Fn(&mut GroupRequest)| {
        let mut asked = good.clone();
        change(&mut asked);
        asked
    };
    let invalid = [
        with(&|asked| asked.window = 0),
        with(&|asked| asked.window = 1_025),
        with(&|asked| asked.segment_bytes = 0),
        with(&|asked| asked.segment_bytes = u32::MAX),
        with(&|asked| asked.leaders.clear()),
        with(&|asked| asked.leaders.truncate(1)),
        with(&|asked| asked.leaders[1].rank = Rank(0)),
        with(&|asked| asked.leaders[1].rank = Rank(1 << 31)),
        with(&|asked| asked.leaders[1].addresses.clear()),
        with(&|asked| asked.leaders[1].host = "\u{1b}[31m".to_owned()),
        with(&|asked| asked.leaders[2].addresses = vec!["1.2.3.4:0".parse().unwrap()]),
        with(&|asked| asked.distribution = DistributionSpec::Multicast { to: "10.0.0.1:4791".parse().unwrap() }),
        with(&|asked| asked.avoid = vec!["only".to_owned()]),
    ];
    for asked in invalid {
        assert!(cluster.open_group(0, ticket, asked).is_err());
    }
    cluster.check_empty();
    cluster.open_group(0, ticket, good).unwrap();
}

#[test]
fn jobs_are_bounded_in_number() {
    let mut cluster = one_node();
    for job in 0..limits::MAX_JOBS {
        cluster.open_job(job, None);
    }
    let received =
        reply_to(&mut cluster, 9_999, |request| ToManager::OpenJob { request, name: String::new(), quota: None });
    assert!(is_rejected(&received));
}

#[test]
fn a_status_of_a_full_manager_fits_into_a_message() {
    let name = |at: usize| format!("{at:0>64}");
    let descriptors: Vec<NodeDescriptor> =
        (0..1_024).map(|at| descriptor(at, &name(at), &[], &[], LARGE_CAPACITY)).collect();
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), descriptors);
    for node in 0..1_024 {
        let dropped = (0..64).map(|at| (format!("{at:\"<256}"), u64::MAX)).collect();
        let most = u64::MAX;
        let late = LateChild {
            name: "\"".repeat(1_000),
            times_last: most,
            operations: most,
            waited_us: most,
            longest_us: most,
        };
        let report = NodeReport {
            uptime_ms: most,
            operations: most,
            in_flight: u32::MAX,
            bytes: most,
            sent: most,
            repeated: most,
            received: most,
            migrations: most,
            dropped,
            times: vec![most; 1_000],
            late: vec![late; 100],
        };
        cluster.send_to_manager(
            ClusterEndpoint::Node(node),
            ToManager::Heartbeat { seats: Vec::new(), report: Some(report) },
        );
    }
    cluster.deliver_all();
    // The test driver asserts that every message fits.
    let received = reply_to(&mut cluster, 0, |request| ToManager::Status { request });
    let [FromManager::Status { status, .. }] = received.as_slice() else { panic!("no status") };
    assert!(status.omitted > 0 && !status.nodes.is_empty());
}

/// Found in review: what nodes tell of late hosts took the room of nodes and jobs.
#[test]
fn a_status_has_all_nodes_and_jobs_of_a_busy_cluster() {
    let name = |at: usize| format!("rack-node-{at:04}");
    let descriptors: Vec<NodeDescriptor> =
        (0..700).map(|at| descriptor(at, &name(at), &[], &[], LARGE_CAPACITY)).collect();
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), descriptors);
    cluster.open_job(0, None);
    for node in 0..700 {
        let late = |at: usize| LateChild {
            name: format!("compute-host-{at:05}"),
            times_last: 1_000_000,
            operations: 10_000_000,
            waited_us: 10_000_000_000,
            longest_us: 1_000_000,
        };
        let report = NodeReport {
            uptime_ms: 1_000_000_000,
            operations: 10_000_000,
            sent: 1_000_000_000,
            received: 1_000_000_000,
            times: vec![1_000_000; 20],
            late: (0..8).map(late).collect(),
            ..NodeReport::default()
        };
        cluster.send_to_manager(
            ClusterEndpoint::Node(node),
            ToManager::Heartbeat { seats: Vec::new(), report: Some(report) },
        );
    }
    cluster.deliver_all();
    let received = reply_to(&mut cluster, 0, |request| ToManager::Status { request });
    let [FromManager::Status { status, .. }] = received.as_slice() else { panic!("no status") };
    assert_eq!((status.nodes.len(), status.jobs.len(), status.omitted), (700, 1, 0));
    assert!(status.nodes.iter().any(|node| node.report.late.len() == 8), "what fits is there");
}

#[test]
fn seats_unknown_to_the_manager_are_removed() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap();
    // The same seat again under another group number, as if the removal command had been lost.
    let mut stray = cluster.seat("only", group.group_key()).unwrap().clone();
    stray.group = units::GroupId(group.group.0 ^ 1);
    cluster.nodes[0].agent.handle_command(
        cluster.now,
        CommandSource::Manager,
        NodeCommand::Install { spec: stray, budget_ms: 100 },
    );
    cluster.deliver_all();
    cluster.advance(millis(200));
    assert_eq!(cluster.nodes[0].installed.len(), 1);
    assert!(cluster.seat("only", group.group_key()).is_some());
}

#[test]
fn an_agent_rejects_invalid_seat_specifications() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap();
    let good = cluster.seat("only", group.group_key()).unwrap().clone();
    let with = |change: &dyn Fn(&mut SeatSpec)| {
        let mut spec = good.clone();
        spec.group = units::GroupId(7);
        change(&mut spec);
        spec
    };
    let nested = |spec: &SeatSpec| SeatChild::Seat { control: address(202, 5), spec: Box::new(spec.clone()) };
    let mut invalid = vec![
        good.clone(),
        with(&|spec| spec.children.truncate(1)),
        with(&|spec| spec.window = 3),
        with(&|spec| spec.window = 1 << 20),
        with(&|spec| spec.children[0].edge = spec.children[1].edge),
        with(&|spec| spec.children[0].edge = units::QpNumber(1 << 24)),
        with(&|spec| spec.children[0].addresses.clear()),
        with(&|spec| spec.name = "another".to_owned()),
        with(&|spec| spec.children[0].who = nested(spec)),
    ];
    let mut deep = with(&|_| {});
    for level in 0..20 {
        let mut above = with(&|_| {});
        let edge = units::QpNumber(100 + level);
        let up = ParentSpec {
            edge,
            child: units::ChildIndex(0),
            node: above.node,
            name: above.name.clone(),
            addresses: vec![address(1, 1)],
        };
        deep.parent = Some(up);
        above.children[0] = ChildSpec { edge, addresses: vec![address(1, 1)], who: nested(&deep) };
        deep = above;
    }
    invalid.push(deep);
    for spec in invalid {
        let mut agent = NodeAgent::new("only", 1);
        if spec == good {
            // The same valid specification twice.
            agent.handle_command(
                Time::ZERO,
                CommandSource::Manager,
                NodeCommand::Install { spec: spec.clone(), budget_ms: 1 },
            );
            assert!(matches!(agent.poll_action(), Some(NodeAgentAction::Install(_))));
        }
        agent.handle_command(Time::ZERO, CommandSource::Manager, NodeCommand::Install { spec, budget_ms: 1 });
        let action = agent.poll_action();
        assert!(
            matches!(action, Some(NodeAgentAction::Reply { reply: NodeReply::Rejected { .. }, .. })),
            "{action:?}"
        );
    }
}

#[test]
fn a_removal_that_overtakes_its_install_command_wins() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap();
    let spec = cluster.seat("only", group.group_key()).unwrap().clone();
    let mut agent = NodeAgent::new("only", 9);
    let remove = NodeCommand::Remove { group: spec.group_key(), scope: RemovalScope::SeatOnly, budget_ms: 1 };
    agent.handle_command(Time::ZERO, CommandSource::Manager, remove);
    agent.handle_command(Time::ZERO, CommandSource::Node(PeerId(1)), NodeCommand::Install { spec, budget_ms: 1 });
    let answers = [agent.poll_action(), agent.poll_action(), agent.poll_action()];
    assert!(matches!(
        answers,
        [
            Some(NodeAgentAction::Reply { to: CommandSource::Manager, reply: NodeReply::Removed { .. } }),
            Some(NodeAgentAction::Reply { reply: NodeReply::Rejected { error: ControlError::Withdrawn, .. }, .. }),
            None
        ]
    ));
}
