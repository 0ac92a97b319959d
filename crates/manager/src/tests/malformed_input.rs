//! What strangers, fools and broken peers say.

use super::*;

fn one_node() -> SimulatedCluster {
    SimulatedCluster::new(1, ManagerSettings::default(), vec![card(0, "only", &[], &[], ROOM)])
}

fn answer_to(
    cluster: &mut SimulatedCluster,
    from: usize,
    make: impl FnOnce(RequestId) -> ToManager,
) -> Vec<FromManager> {
    cluster.ask(from, make);
    cluster.settle();
    cluster.heard.get_mut(&from).map(std::mem::take).unwrap_or_default()
}

fn is_refused(heard: &[FromManager]) -> bool {
    matches!(heard, [FromManager::Refused { .. }])
}

#[test]
fn a_wrong_ticket_opens_closes_and_tells_nothing() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap().key_of_group();
    let other = cluster.open_job(1, None);
    let forged = JobTicket { job: ticket.job, key: other.key };
    let wish = request(leaders(0..3), 4, 64);
    assert!(is_refused(&answer_to(&mut cluster, 1, |request| ToManager::OpenGroup {
        request,
        ticket: forged,
        group: wish
    })));
    for ticket in [forged, other] {
        assert!(is_refused(&answer_to(&mut cluster, 1, |request| ToManager::CloseGroup { request, ticket, group })));
        assert!(is_refused(&answer_to(&mut cluster, 1, |_| ToManager::JobTrouble {
            ticket,
            group,
            what: String::new()
        })));
    }
    assert!(is_refused(&answer_to(&mut cluster, 1, |request| ToManager::CloseJob { request, ticket: forged })));
    assert!(cluster.seat("only", group).is_some());
}

#[test]
fn only_nodes_may_speak_as_nodes() {
    let mut cluster = one_node();
    let group = GroupKey { group: units::GroupId(1), epoch: units::Epoch(1) };
    for message in [
        ToManager::Beat { seats: vec![SeatHeartbeat { group, operations: 1 }], report: NodeReport::default() },
        ToManager::Holding { seats: Vec::new() },
        ToManager::NodeTrouble { group, what: String::new() },
        ToManager::Answer(NodeReply::Installed { group }),
    ] {
        assert!(is_refused(&answer_to(&mut cluster, 5, |_| message)));
    }
}

#[test]
fn cards_that_make_no_sense_are_refused() {
    let mut cluster = one_node();
    let good = card(9, "new", &[], &[], ROOM);
    let hosts = vec!["*".to_owned(); 65];
    let strange = [
        card(9, "only", &[], &[], ROOM),
        card(0, "thief-of-an-address", &[], &[], ROOM),
        card(9, "", &[], &[], ROOM),
        card(9, "two words", &[], &[], ROOM),
        card(9, &"x".repeat(65), &[], &[], ROOM),
        card(9, "new", &["new"], &[], ROOM),
        card(9, "new", &[], &["1.2.3.4/40"], ROOM),
        card(9, "new", &[], &[], Capacity { seats: 0, ..ROOM }),
        NodeDescriptor { addresses: Vec::new(), ..good.clone() },
        NodeDescriptor { addresses: vec![address(3, 3); 17], ..good.clone() },
        NodeDescriptor { addresses: vec!["0.0.0.0:4791".parse().unwrap()], ..good.clone() },
        NodeDescriptor { serves: hosts, ..good.clone() },
    ];
    for (at, card) in strange.into_iter().enumerate() {
        let heard =
            answer_to(&mut cluster, 10 + at, |request| ToManager::Register { request, card, version: String::new() });
        assert!(is_refused(&heard), "{heard:?}");
    }
    let heard = answer_to(&mut cluster, 50, |request| ToManager::Register {
        request,
        card: good,
        version: "x".repeat(1_000),
    });
    assert!(matches!(heard[..], [FromManager::Registered { .. }]), "{heard:?}");
}

#[test]
fn parents_in_a_circle_are_refused() {
    let cards =
        vec![card(0, "a", &["b"], &[], ROOM), card(1, "b", &["c"], &[], ROOM), card(2, "c", &["a"], &[], ROOM)];
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), cards);
    let refused = cluster.events.iter().filter(|event| event.to_string().contains("above itself"));
    assert_eq!(refused.count(), 1);
    let ticket = cluster.open_job(0, None);
    cluster.open_group(0, ticket, request(leaders(0..8), 4, 64)).unwrap();
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let good = request(leaders(0..3), 4, 64);
    let with = |change: &dyn Fn(&mut GroupRequest)| {
        let mut wish = good.clone();
        change(&mut wish);
        wish
    };
    let strange = [
        with(&|wish| wish.window = 0),
        with(&|wish| wish.window = 1_025),
        with(&|wish| wish.segment_bytes = 0),
        with(&|wish| wish.segment_bytes = u32::MAX),
        with(&|wish| wish.leaders.clear()),
        with(&|wish| wish.leaders.truncate(1)),
        with(&|wish| wish.leaders[1].rank = Rank(0)),
        with(&|wish| wish.leaders[1].rank = Rank(1 << 31)),
        with(&|wish| wish.leaders[1].addresses.clear()),
        with(&|wish| wish.leaders[1].host = "\u{1b}[31m".to_owned()),
        with(&|wish| wish.leaders[2].addresses = vec!["1.2.3.4:0".parse().unwrap()]),
        with(&|wish| wish.distribution = DistributionSpec::Multicast { to: "10.0.0.1:4791".parse().unwrap() }),
        with(&|wish| wish.avoid = vec!["only".to_owned()]),
    ];
    for wish in strange {
        assert!(cluster.open_group(0, ticket, wish).is_err());
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
    let heard =
        answer_to(&mut cluster, 9_999, |request| ToManager::OpenJob { request, name: String::new(), quota: None });
    assert!(is_refused(&heard));
}

#[test]
fn a_status_of_a_full_manager_fits_into_a_message() {
    let name = |at: usize| format!("{at:0>64}");
    let cards: Vec<NodeDescriptor> = (0..1_024).map(|at| card(at, &name(at), &[], &[], ROOM)).collect();
    let mut cluster = SimulatedCluster::new(1, ManagerSettings::default(), cards);
    for node in 0..1_024 {
        let dropped = (0..64).map(|at| (format!("{at:\"<256}"), u64::MAX)).collect();
        let most = u64::MAX;
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
        };
        cluster.say(ClusterEndpoint::Node(node), ToManager::Beat { seats: Vec::new(), report });
    }
    cluster.settle();
    // The driver asserts that what is said fits.
    let heard = answer_to(&mut cluster, 0, |request| ToManager::Status { request });
    let [FromManager::Status { status, .. }] = heard.as_slice() else { panic!("no status") };
    assert!(status.left_out > 0 && !status.nodes.is_empty());
}

#[test]
fn seats_that_nobody_knows_are_given_up() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap();
    // The same seat again under another number, as if an order had been lost on the way to a manager.
    let mut stray = cluster.seat("only", group.key_of_group()).unwrap().clone();
    stray.group = units::GroupId(group.group.0 ^ 1);
    cluster.nodes[0].steward.handle_order(
        cluster.now,
        CommandSource::Manager,
        NodeCommand::Install { spec: stray, budget_ms: 100 },
    );
    cluster.settle();
    cluster.pass(millis(200));
    assert_eq!(cluster.nodes[0].installed.len(), 1);
    assert!(cluster.seat("only", group.key_of_group()).is_some());
}

#[test]
fn a_steward_refuses_plans_that_make_no_sense() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap();
    let good = cluster.seat("only", group.key_of_group()).unwrap().clone();
    let with = |change: &dyn Fn(&mut SeatSpec)| {
        let mut spec = good.clone();
        spec.group = units::GroupId(7);
        change(&mut spec);
        spec
    };
    let nested = |spec: &SeatSpec| SeatChild::Seat { control: address(202, 5), spec: Box::new(spec.clone()) };
    let mut strange = vec![
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
    strange.push(deep);
    for spec in strange {
        let mut steward = NodeAgent::new("only", 1);
        if spec == good {
            // A good one, twice.
            steward.handle_order(
                Time::ZERO,
                CommandSource::Manager,
                NodeCommand::Install { spec: spec.clone(), budget_ms: 1 },
            );
            assert!(matches!(steward.poll_duty(), Some(NodeAgentAction::Install(_))));
        }
        steward.handle_order(Time::ZERO, CommandSource::Manager, NodeCommand::Install { spec, budget_ms: 1 });
        let duty = steward.poll_duty();
        assert!(matches!(duty, Some(NodeAgentAction::Answer { answer: NodeReply::Refused { .. }, .. })), "{duty:?}");
    }
}

#[test]
fn a_removal_that_overtakes_its_order_wins() {
    let mut cluster = one_node();
    let ticket = cluster.open_job(0, None);
    let group = cluster.open_group(0, ticket, request(leaders(0..3), 4, 64)).unwrap();
    let spec = cluster.seat("only", group.key_of_group()).unwrap().clone();
    let mut steward = NodeAgent::new("only", 9);
    let remove = NodeCommand::Remove { group: spec.key_of_group(), spread: RemovalScope::Alone, budget_ms: 1 };
    steward.handle_order(Time::ZERO, CommandSource::Manager, remove);
    steward.handle_order(Time::ZERO, CommandSource::Node(PeerId(1)), NodeCommand::Install { spec, budget_ms: 1 });
    let answers = [steward.poll_duty(), steward.poll_duty(), steward.poll_duty()];
    assert!(matches!(
        answers,
        [
            Some(NodeAgentAction::Answer { to: CommandSource::Manager, answer: NodeReply::Removed { .. } }),
            Some(NodeAgentAction::Answer { answer: NodeReply::Refused { refusal: ControlError::Withdrawn, .. }, .. }),
            None
        ]
    ));
}
