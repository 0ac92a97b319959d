//! Two endpoints of one process, over loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use protocol::connection::path::{AlternateLoading, MigrationRole, PathEvent, PathPolicy};
use protocol::datagram::MULTICAST_QP;
use protocol::queue_pair::QpOperation;
use transport::udp::{
    Endpoint, EndpointEvent, EndpointOptions, FaultInjector, LinkCut, QueuePairSetup, RECEIVE_BUFFER_BYTES,
    UdpPortIndex, UdpRoute,
};
use units::{PathId, Psn, QpNumber, Span};
use wire::QueueKey;

const SEND: QpOperation = QpOperation::Send { immediate: None };

struct Two {
    ends: [Endpoint; 2],
    pairs: [QpNumber; 2],
}

/// Two endpoints with as many ports as there are addresses, and one connection over all of them.
fn two(addresses: &[IpAddr], fault_injector: FaultInjector, change: impl Fn(&mut QueuePairSetup)) -> Two {
    let addresses: Vec<SocketAddr> = addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect();
    let options = EndpointOptions { fault_injector, ..EndpointOptions::default() };
    let mut ends = [0, 1].map(|_| Endpoint::open(&addresses, options.clone()).expect("loopback can be bound"));
    let pairs = join(&mut ends, change);
    Two { ends, pairs }
}

/// Adds a connection over all ports.
fn join(ends: &mut [Endpoint; 2], change: impl Fn(&mut QueuePairSetup)) -> [QpNumber; 2] {
    let pairs = [ends[0].create(), ends[1].create()];
    for me in 0..2 {
        let remote = ends[1 - me].addresses();
        let routes =
            remote.iter().enumerate().map(|(index, to)| UdpRoute::new(UdpPortIndex(index as u8), *to)).collect();
        let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
        let psn = |end: usize| Psn::new(0xff_fff0 + end as u32);
        let mut setup = QueuePairSetup::new(pairs[1 - me], psn(me), psn(1 - me), routes, role);
        change(&mut setup);
        ends[me].connect(pairs[me], setup).expect("valid attributes");
    }
    pairs
}

/// Bytes that differ from seed to seed.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Sends messages one way and checks that they arrive in order and unaltered.
fn stream(two: &mut Two, lengths: &[usize]) {
    let most = lengths.iter().max().copied().unwrap_or(0);
    for _ in lengths {
        two.ends[1].post_receive(two.pairs[1], vec![0; most]).expect("posted");
    }
    let mut first = None;
    for (number, length) in lengths.iter().enumerate() {
        let id = two.ends[0].post_send(two.pairs[0], bytes(number as u64, *length), SEND).expect("posted");
        first.get_or_insert(id);
    }
    let (mut sent, mut received) = (0, 0);
    let began = Instant::now();
    while sent < lengths.len() || received < lengths.len() {
        assert!(began.elapsed() < Duration::from_secs(20), "{sent} sent, {received} received");
        for end in &mut two.ends {
            end.turn(Duration::ZERO).expect("the turn succeeds");
            while let Some(event) = end.next_event() {
                match event {
                    EndpointEvent::Sent { id, .. } => {
                        assert_eq!(Some(id), first.map(|first| first + sent as u64));
                        sent += 1;
                    }
                    EndpointEvent::Received { buffer, message, .. } => {
                        let length = lengths[received];
                        assert!(
                            buffer[message] == bytes(received as u64, length)[..],
                            "message {received} is altered"
                        );
                        received += 1;
                    }
                    EndpointEvent::Failed { failure, .. } => panic!("{failure}"),
                    EndpointEvent::Path { .. } | EndpointEvent::Datagram { .. } => {}
                }
            }
        }
    }
}

/// The kernel may coalesce packets into one buffer: the buffer is not handed over while a packet in it is unread.
#[test]
fn a_buffer_is_handed_over_only_when_every_packet_in_it_is_read() {
    let mut two = two(&[LOOPBACK], FaultInjector::default(), |setup| {
        setup.mtu = 62 << 10;
        setup.policy.window = 4;
    });
    let lengths = [40_000, 20_000].repeat(100);
    for length in &lengths {
        two.ends[1].post_receive(two.pairs[1], vec![0; RECEIVE_BUFFER_BYTES]).expect("posted");
        two.ends[0].post_send(two.pairs[0], bytes(*length as u64, *length), SEND).expect("posted");
    }
    let (began, mut received) = (Instant::now(), 0);
    while received < lengths.len() {
        assert!(began.elapsed() < Duration::from_secs(20), "{received} received");
        two.ends[0].turn(Duration::ZERO).expect("the turn succeeds");
        // Several acknowledgements queue up for the sender, so that it sends several packets at once.
        for _ in 0..4 {
            two.ends[1].turn(Duration::ZERO).expect("the turn succeeds");
        }
        while let Some(event) = two.ends[1].next_event() {
            if let EndpointEvent::Received { buffer, message, .. } = event {
                let length = lengths[received];
                assert!(buffer[message] == bytes(length as u64, length)[..], "message {received} is altered");
                received += 1;
            }
        }
    }
    let counters = two.ends[1].counters();
    assert_eq!((counters.damaged, counters.malformed), (0, 0), "no packet was damaged");
}

const LENGTHS: [usize; 9] = [0, 1, 4095, 4096, 4097, 100_000, 8, 1_000_000, 3];
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[test]
fn messages_of_all_lengths_arrive_in_order_and_unaltered() {
    stream(&mut two(&[LOOPBACK], FaultInjector::default(), |_| ()), &LENGTHS);
}

#[test]
fn the_same_over_ipv6() {
    stream(&mut two(&[IpAddr::V6(Ipv6Addr::LOCALHOST)], FaultInjector::default(), |_| ()), &LENGTHS);
}

#[test]
fn lost_and_corrupt_packets_are_retransmitted() {
    let mut two = two(&[LOOPBACK], FaultInjector::new(13, 17), |setup| setup.mtu = 1024);
    stream(&mut two, &LENGTHS);
    let counters = two.ends[1].counters();
    assert!(counters.damaged > 10, "{counters:?}");
}

#[test]
fn a_verbs_peer_gets_go_back_n_retransmission() {
    let mut two = two(&[LOOPBACK], FaultInjector::new(13, 0), |setup| {
        setup.policy = protocol::connection::ConnectionPolicy::verbs();
        setup.verbs_peer = true;
    });
    stream(&mut two, &LENGTHS);
}

#[test]
fn two_paths_arm_automatically_and_traffic_migrates_on_request() {
    let second = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let mut two = two(&[LOOPBACK, second], FaultInjector::default(), |_| ());
    let began = Instant::now();
    let armed = |two: &Two| {
        (0..2).all(|end| {
            let state = two.ends[end].path_state(two.pairs[end]);
            state.is_some_and(|(state, _)| state == protocol::connection::path::PathState::Armed)
        })
    };
    while !armed(&two) {
        assert!(began.elapsed() < Duration::from_secs(5));
        for end in &mut two.ends {
            end.turn(Duration::from_micros(100)).expect("the turn succeeds");
        }
    }
    let number = two.pairs[0];
    two.ends[0].migrate(number).expect("armed");
    stream(&mut two, &LENGTHS);
    for end in 0..2 {
        let (_, current) = two.ends[end].path_state(two.pairs[end]).expect("two paths");
        assert_eq!(current, PathId(1), "end {end}");
    }
}

/// An idle port is polled seldom; the reply to a probe that was sent by it had to wait for that.
#[test]
fn an_idle_port_is_polled_as_soon_as_a_packet_was_sent_by_it() {
    let addresses = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)));
    let mut two = two(&addresses, FaultInjector::default(), |setup| {
        let probe_every = Span::from_micros(60_000_000);
        setup.path_policy = PathPolicy { loading: AlternateLoading::Manual, probe_every, ..PathPolicy::default() };
    });
    // Both ends use the first port all the time, so that the second is idle.
    let mut armed = 0;
    for turn in 0..1_008 {
        if turn == 1_000 {
            for me in 0..2 {
                two.ends[me].load_path(two.pairs[me], PathId(1)).expect("it is not in use");
            }
        }
        for me in 0..2 {
            two.ends[me].post_receive(two.pairs[me], vec![0; 8]).expect("posted");
            two.ends[1 - me].post_send(two.pairs[1 - me], vec![7; 8], SEND).expect("posted");
        }
        // A probe and its reply in each direction take a few turns: loopback delivers at once.
        for end in &mut two.ends {
            end.turn(Duration::ZERO).expect("the turn succeeds");
            while let Some(event) = end.next_event() {
                armed += usize::from(matches!(event, EndpointEvent::Path { event: PathEvent::Armed(_), .. }));
            }
        }
    }
    assert_eq!(armed, 2, "the replies stayed in a port that was not polled");
}

/// A thread that polled for a late message received it half a millisecond late.
#[test]
fn no_port_is_idle_if_all_are_silent() {
    for paths in [1, 2] {
        let addresses = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)));
        let mut two = two(&addresses[..paths], FaultInjector::default(), |setup| {
            setup.path_policy.probe_every = Span::from_micros(60_000_000);
        });
        two.ends[1].post_receive(two.pairs[1], vec![0; 8]).expect("posted");
        for _ in 0..1_000 {
            for end in &mut two.ends {
                end.turn(Duration::ZERO).expect("the turn succeeds");
                while end.next_event().is_some() {}
            }
        }
        two.ends[0].post_send(two.pairs[0], vec![7; 8], SEND).expect("posted");
        two.ends[1].turn(Duration::ZERO).expect("the turn succeeds");
        assert!(
            matches!(two.ends[1].next_event(), Some(EndpointEvent::Received { .. })),
            "the message was not received at once, with {paths} paths"
        );
    }
}

/// PM-3: a user may migrate when a path is armed, and load the next path after a migration. Both are done from the event
/// loop, on many connections, while messages stream over them.
#[test]
fn connections_migrate_back_and_forth_while_messages_stream() {
    const CONNECTIONS: usize = 8;
    const ROUNDS: usize = 20;
    let second = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let by_hand = |setup: &mut QueuePairSetup| {
        // An end that loaded before the other did is armed by its next probe.
        let probe_every = Span::from_micros(5_000);
        setup.path_policy = PathPolicy { loading: AlternateLoading::Manual, probe_every, ..PathPolicy::default() };
    };
    let Two { mut ends, pairs: first } = two(&[LOOPBACK, second], FaultInjector::default(), by_hand);
    let mut pairs = vec![first];
    pairs.extend((1..CONNECTIONS).map(|_| join(&mut ends, by_hand)));
    for me in 0..2 {
        let mine: Vec<QpNumber> = pairs.iter().map(|pair| pair[me]).collect();
        assert!(ends[me].load_paths(&mine, PathId(1)).is_empty());
        let refused = ends[me].load_paths(&[mine[0], QpNumber(1), mine[1]], PathId(0));
        assert!(matches!(refused[..], [(one, _), (QpNumber(1), _), (other, _)] if [one, other] == mine[..2]));
    }
    let of = |me: usize, pair: QpNumber| pairs.iter().position(|known| known[me] == pair).expect("a known pair");
    let (mut moves, mut received, mut sent) = ([[0; CONNECTIONS]; 2], [0u64; CONNECTIONS], [0u64; CONNECTIONS]);
    for (connection, pair) in pairs.iter().enumerate() {
        ends[1].post_receive(pair[1], vec![0; 5_000]).expect("posted");
        ends[0].post_send(pair[0], bytes(connection as u64, 5_000), SEND).expect("posted");
    }
    let began = Instant::now();
    while moves.iter().flatten().any(|moves| *moves < ROUNDS) || received != sent {
        assert!(began.elapsed() < Duration::from_secs(20), "{moves:?} moves, {received:?} received, {sent:?} sent");
        for me in 0..2 {
            ends[me].turn(Duration::ZERO).expect("the turn succeeds");
            while let Some(event) = ends[me].next_event() {
                match event {
                    EndpointEvent::Path { pair, event: PathEvent::Armed(_) }
                        if me == 0 && moves[0][of(0, pair)] < ROUNDS =>
                    {
                        ends[0].migrate(pair).expect("it is armed");
                    }
                    EndpointEvent::Path { pair, event: PathEvent::Migrated { from, .. } } => {
                        moves[me][of(me, pair)] += 1;
                        assert!(ends[me].load_paths(&[pair], from).is_empty());
                    }
                    EndpointEvent::Received { pair, buffer, .. } => {
                        let connection = of(1, pair);
                        let number = received[connection] * CONNECTIONS as u64 + connection as u64;
                        assert!(buffer == bytes(number, 5_000), "message {number} is altered");
                        received[connection] += 1;
                        ends[1].post_receive(pair, buffer).expect("posted");
                    }
                    EndpointEvent::Sent { pair, .. } => {
                        let connection = of(0, pair);
                        sent[connection] += 1;
                        if moves[0][connection] < ROUNDS {
                            let number = sent[connection] * CONNECTIONS as u64 + connection as u64;
                            ends[0].post_send(pair, bytes(number, 5_000), SEND).expect("posted");
                        }
                    }
                    EndpointEvent::Failed { failure, .. } => panic!("{failure}"),
                    EndpointEvent::Path { .. } | EndpointEvent::Datagram { .. } => {}
                }
            }
        }
    }
    assert!(received.iter().all(|received| *received > ROUNDS as u64 / 2), "{received:?}");
}

/// All probes went out at once, and timers fired before the replies were read: every path was declared dead, again and
/// again, and thousands of connections on a busy machine were never armed.
#[test]
fn a_process_that_seldom_runs_does_not_declare_its_paths_dead() {
    const CONNECTIONS: usize = 500;
    let second = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let by_hand = |setup: &mut QueuePairSetup| {
        setup.path_policy = PathPolicy { loading: AlternateLoading::Manual, ..PathPolicy::default() };
    };
    let Two { mut ends, pairs: first } = two(&[LOOPBACK, second], FaultInjector::default(), by_hand);
    let mut pairs = vec![first];
    pairs.extend((1..CONNECTIONS).map(|_| join(&mut ends, by_hand)));
    for me in 0..2 {
        let mine: Vec<QpNumber> = pairs.iter().map(|pair| pair[me]).collect();
        assert!(ends[me].load_paths(&mine, PathId(1)).is_empty());
    }
    let began = Instant::now();
    let mut armed = 0;
    while armed < 2 * CONNECTIONS {
        assert!(began.elapsed() < Duration::from_secs(20), "{armed} of {} are armed", 2 * CONNECTIONS);
        for end in &mut ends {
            end.turn(Duration::ZERO).expect("the turn succeeds");
            while let Some(event) = end.next_event() {
                match event {
                    EndpointEvent::Path { event: PathEvent::Armed(_), .. } => armed += 1,
                    other => panic!("{other:?} after {:?}, {armed} are armed", began.elapsed()),
                }
            }
        }
        // Longer than the timeout of a probe.
        std::thread::sleep(Duration::from_millis(25));
    }
}

#[test]
fn remote_writes_change_the_registered_region_and_nothing_else() {
    let mut two = two(&[LOOPBACK], FaultInjector::default(), |_| ());
    let key = two.ends[1].register(two.pairs[1], vec![0; 100_000]).expect("the pair exists");
    let write = |address| QpOperation::Write { key, address, immediate: None };
    two.ends[0].post_send(two.pairs[0], bytes(1, 50_000), write(1_000)).expect("posted");
    let began = Instant::now();
    let mut outcome = None;
    while outcome.is_none() && began.elapsed() < Duration::from_secs(5) {
        for end in &mut two.ends {
            end.turn(Duration::ZERO).expect("the turn succeeds");
        }
        outcome = two.ends[0].next_event();
    }
    assert!(matches!(outcome, Some(EndpointEvent::Sent { .. })), "{outcome:?}");
    let region = two.ends[1].region(two.pairs[1], key).expect("registered");
    assert!(region[1_000..51_000] == bytes(1, 50_000)[..] && region[51_000..].iter().all(|byte| *byte == 0));
    two.ends[0].post_send(two.pairs[0], bytes(2, 50_000), write(60_000)).expect("posted");
    let mut failed = None;
    while failed.is_none() && began.elapsed() < Duration::from_secs(5) {
        for end in &mut two.ends {
            end.turn(Duration::ZERO).expect("the turn succeeds");
        }
        failed = two.ends[0].next_event();
    }
    assert!(matches!(failed, Some(EndpointEvent::Failed { .. })), "{failed:?}");
    let region = two.ends[1].region(two.pairs[1], key).expect("registered");
    assert!(region[51_000..].iter().all(|byte| *byte == 0), "a forbidden write changed the region");
}

#[test]
fn a_stream_survives_a_reported_and_a_silent_link_cut() {
    let second = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    for cut in [LinkCut::Noticed, LinkCut::Silent] {
        let mut two = two(&[LOOPBACK, second], FaultInjector::default(), |_| ());
        stream(&mut two, &LENGTHS);
        for end in &mut two.ends {
            end.cut(UdpPortIndex(0), cut);
        }
        stream(&mut two, &LENGTHS);
        for end in 0..2 {
            let (_, current) = two.ends[end].path_state(two.pairs[end]).expect("two paths");
            assert_eq!(current, PathId(1), "{cut:?}, end {end}");
        }
    }
}

#[test]
fn a_multicast_reaches_every_group_member_and_a_datagram_one() {
    let key = QueueKey(7);
    let (port, group) = (UdpPortIndex(0), SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 255, 47, 91)), 47_910));
    let mut ends: Vec<Endpoint> = (1..=3)
        .map(|host| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 0))
        .map(|address| Endpoint::open(&[address], EndpointOptions::default()).expect("loopback can be bound"))
        .collect();
    let pairs: Vec<QpNumber> = ends.iter_mut().map(|end| end.create_datagram(key)).collect();
    for (end, pair) in ends.iter_mut().zip(&pairs).skip(1) {
        end.join(*pair, group, port).expect("loopback carries multicast");
        for _ in 0..2 {
            end.post_datagram_receive(*pair, vec![0; 4096]).expect("posted");
        }
    }
    let unicast = (ends[2].addresses()[0], pairs[2], key);
    ends[0]
        .send_datagram(pairs[0], port, (group, MULTICAST_QP, key), &bytes(1, 4096), Some(5))
        .expect("the pair exists");
    ends[0]
        .send_datagram(pairs[0], port, (group, MULTICAST_QP, QueueKey(8)), &bytes(2, 10), None)
        .expect("the pair exists");
    ends[0].send_datagram(pairs[0], port, unicast, &bytes(3, 11), None).expect("the pair exists");
    let mut arrived = vec![Vec::new(); 3];
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(300) {
        for (end, arrived) in ends.iter_mut().zip(&mut arrived) {
            end.turn(Duration::ZERO).expect("the turn succeeds");
            while let Some(event) = end.next_event() {
                let EndpointEvent::Datagram { source, buffer, length, immediate, .. } = event else {
                    panic!("{event:?}")
                };
                assert_eq!(source, pairs[0]);
                arrived.push((buffer[..length].to_vec(), immediate));
            }
        }
    }
    // Two sockets: the order in which they are polled is not specified.
    arrived[2].sort_by_key(|(bytes, _)| bytes.len());
    let to_all = (bytes(1, 4096), Some(5));
    let right = [vec![], vec![to_all.clone()], vec![(bytes(3, 11), None), to_all]];
    let lengths: Vec<Vec<usize>> =
        arrived.iter().map(|all| all.iter().map(|(bytes, _)| bytes.len()).collect()).collect();
    assert!(arrived == right, "messages of {lengths:?} bytes arrived");
    assert_eq!(ends[1].counters().foreign, 1, "a wrong key is counted");
}

#[test]
fn a_stream_survives_every_fault_of_a_plan() {
    let plan = "[[fault]]\nkind = \"lose\"\nprobability = 0.03\n\n[[fault]]\nkind = \"flip\"\nbit-error-rate = 1e-6\n\n\
                [[fault]]\nkind = \"duplicate\"\nprobability = 0.05\n\n[[fault]]\nkind = \"reorder\"\nprobability = 0.05\n\n\
                [[fault]]\nkind = \"delay\"\nprobability = 0.01\ndelay-ns = 3e6\n\n\
                [[fault]]\nkind = \"down\"\nlink = \"port 0\"\nat-us = 20000.0\nfor-us = 100000.0\n";
    let plan = faults::FaultPlan::parse(plan).expect("a plan");
    let fault_injector = FaultInjector::from_plan(&plan, 7).expect("for sockets");
    let second = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let mut two = two(&[LOOPBACK, second], fault_injector, |_| ());
    for _ in 0..4 {
        stream(&mut two, &LENGTHS);
    }
}
