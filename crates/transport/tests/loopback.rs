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
fn two(addresses: &[IpAddr], mischief: FaultInjector, change: impl Fn(&mut QueuePairSetup)) -> Two {
    let addresses: Vec<SocketAddr> = addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect();
    let options = EndpointOptions { mischief, ..EndpointOptions::default() };
    let mut ends = [0, 1].map(|_| Endpoint::open(&addresses, options.clone()).expect("loopback can be bound"));
    let pairs = join(&mut ends, change);
    Two { ends, pairs }
}

/// One more connection over all ports.
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
        ends[me].connect(pairs[me], setup).expect("a sound set-up");
    }
    pairs
}

/// Bytes that can be told from any others.
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

/// Sends messages one way and checks that they come in order and unaltered.
fn stream(two: &mut Two, lengths: &[usize]) {
    let most = lengths.iter().max().copied().unwrap_or(0);
    for _ in lengths {
        two.ends[1].post_receive(two.pairs[1], vec![0; most]).expect("room");
    }
    let mut first = None;
    for (number, length) in lengths.iter().enumerate() {
        let id = two.ends[0].post_send(two.pairs[0], bytes(number as u64, *length), SEND).expect("room");
        first.get_or_insert(id);
    }
    let (mut sent, mut received) = (0, 0);
    let began = Instant::now();
    while sent < lengths.len() || received < lengths.len() {
        assert!(began.elapsed() < Duration::from_secs(20), "{sent} sent, {received} received");
        for end in &mut two.ends {
            end.turn(Duration::ZERO).expect("sockets can be waited on");
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

/// Packets that went out together may lie in one buffer: while one of them is still to be read, it is given to nobody.
#[test]
fn a_buffer_is_given_away_only_when_all_in_it_is_read() {
    let mut two = two(&[LOOPBACK], FaultInjector::default(), |setup| {
        setup.mtu = 62 << 10;
        setup.policy.window = 4;
    });
    let lengths = [40_000, 20_000].repeat(100);
    for length in &lengths {
        two.ends[1].post_receive(two.pairs[1], vec![0; RECEIVE_BUFFER_BYTES]).expect("room");
        two.ends[0].post_send(two.pairs[0], bytes(*length as u64, *length), SEND).expect("room");
    }
    let (began, mut received) = (Instant::now(), 0);
    while received < lengths.len() {
        assert!(began.elapsed() < Duration::from_secs(20), "{received} received");
        two.ends[0].turn(Duration::ZERO).expect("sockets can be waited on");
        // Several acknowledgements wait for the sender, so that it sends several packets at once.
        for _ in 0..4 {
            two.ends[1].turn(Duration::ZERO).expect("sockets can be waited on");
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
    assert_eq!((counters.damaged, counters.malformed), (0, 0), "nothing happened on the way");
}

const LENGTHS: [usize; 9] = [0, 1, 4095, 4096, 4097, 100_000, 8, 1_000_000, 3];
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[test]
fn messages_of_all_lengths_come_in_order_and_unaltered() {
    stream(&mut two(&[LOOPBACK], FaultInjector::default(), |_| ()), &LENGTHS);
}

#[test]
fn the_same_over_ipv6() {
    stream(&mut two(&[IpAddr::V6(Ipv6Addr::LOCALHOST)], FaultInjector::default(), |_| ()), &LENGTHS);
}

#[test]
fn lost_and_spoiled_packets_are_made_good() {
    let mut two = two(&[LOOPBACK], FaultInjector::new(13, 17), |setup| setup.mtu = 1024);
    stream(&mut two, &LENGTHS);
    let counters = two.ends[1].counters();
    assert!(counters.damaged > 10, "{counters:?}");
}

#[test]
fn a_verbs_peer_gets_everything_again_from_the_lost_packet_on() {
    let mut two = two(&[LOOPBACK], FaultInjector::new(13, 0), |setup| {
        setup.policy = protocol::connection::ConnectionPolicy::verbs();
        setup.verbs_peer = true;
    });
    stream(&mut two, &LENGTHS);
}

#[test]
fn two_paths_arm_by_themselves_and_traffic_moves_by_hand() {
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
            end.turn(Duration::from_micros(100)).expect("sockets can be waited on");
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

/// PM-3: who hears that a path is armed may move there, and who hears of a move may load the next. All modules are called
/// from the loop that takes events, for many connections, while messages stream over them.
/// A port that has long been silent is asked now and then only; a probe sent by it had to wait for that.
#[test]
fn an_idle_port_is_asked_as_soon_as_something_was_sent_by_it() {
    let addresses = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)));
    let mut two = two(&addresses, FaultInjector::default(), |setup| {
        let probe_every = Span::from_micros(60_000_000);
        setup.path_policy = PathPolicy { loading: AlternateLoading::ByHand, probe_every, ..PathPolicy::default() };
    });
    // Both talk by the first port all the time, so that the second is the idle one.
    let mut armed = 0;
    for turn in 0..1_008 {
        if turn == 1_000 {
            for me in 0..2 {
                two.ends[me].load_path(two.pairs[me], PathId(1)).expect("it is not in use");
            }
        }
        for me in 0..2 {
            two.ends[me].post_receive(two.pairs[me], vec![0; 8]).expect("room");
            two.ends[1 - me].post_send(two.pairs[1 - me], vec![7; 8], SEND).expect("room");
        }
        // A probe and its answer in each direction take a few turns: over loopback whatever is sent is there.
        for end in &mut two.ends {
            end.turn(Duration::ZERO).expect("sockets can be waited on");
            while let Some(event) = end.next_event() {
                armed += usize::from(matches!(event, EndpointEvent::Path { event: PathEvent::Armed(_), .. }));
            }
        }
    }
    assert_eq!(armed, 2, "the answers lay in a port that nobody asked");
}

/// Somebody who looked again and again for a message that was long in coming heard of it half a millisecond late.
#[test]
fn no_port_is_idle_where_all_are_silent() {
    for paths in [1, 2] {
        let addresses = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)));
        let mut two = two(&addresses[..paths], FaultInjector::default(), |setup| {
            setup.path_policy.probe_every = Span::from_micros(60_000_000);
        });
        two.ends[1].post_receive(two.pairs[1], vec![0; 8]).expect("room");
        for _ in 0..1_000 {
            for end in &mut two.ends {
                end.turn(Duration::ZERO).expect("sockets can be waited on");
                while end.next_event().is_some() {}
            }
        }
        two.ends[0].post_send(two.pairs[0], vec![7; 8], SEND).expect("room");
        two.ends[1].turn(Duration::ZERO).expect("sockets can be waited on");
        assert!(
            matches!(two.ends[1].next_event(), Some(EndpointEvent::Received { .. })),
            "it lay there, with {paths} paths"
        );
    }
}

#[test]
fn connections_go_round_and_round_by_hand_while_messages_stream() {
    const CONNECTIONS: usize = 8;
    const ROUNDS: usize = 20;
    let second = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let by_hand = |setup: &mut QueuePairSetup| {
        // An end that loaded before the other did is armed by its next probe.
        let probe_every = Span::from_micros(5_000);
        setup.path_policy = PathPolicy { loading: AlternateLoading::ByHand, probe_every, ..PathPolicy::default() };
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
    let of = |me: usize, pair: QpNumber| pairs.iter().position(|known| known[me] == pair).expect("one of ours");
    let (mut moves, mut received, mut sent) = ([[0; CONNECTIONS]; 2], [0u64; CONNECTIONS], [0u64; CONNECTIONS]);
    for (connection, pair) in pairs.iter().enumerate() {
        ends[1].post_receive(pair[1], vec![0; 5_000]).expect("room");
        ends[0].post_send(pair[0], bytes(connection as u64, 5_000), SEND).expect("room");
    }
    let began = Instant::now();
    while moves.iter().flatten().any(|moves| *moves < ROUNDS) || received != sent {
        assert!(began.elapsed() < Duration::from_secs(20), "{moves:?} moves, {received:?} received, {sent:?} sent");
        for me in 0..2 {
            ends[me].turn(Duration::ZERO).expect("sockets can be waited on");
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
                        ends[1].post_receive(pair, buffer).expect("room");
                    }
                    EndpointEvent::Sent { pair, .. } => {
                        let connection = of(0, pair);
                        sent[connection] += 1;
                        if moves[0][connection] < ROUNDS {
                            let number = sent[connection] * CONNECTIONS as u64 + connection as u64;
                            ends[0].post_send(pair, bytes(number, 5_000), SEND).expect("room");
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

/// All probes went out at once, and alarms went off before their answers were read: every path was taken for dead, again and
/// again, and thousands of connections on a busy machine were never armed.
#[test]
fn a_process_that_seldom_runs_does_not_take_its_own_lateness_for_a_dead_path() {
    const CONNECTIONS: usize = 500;
    let second = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let by_hand = |setup: &mut QueuePairSetup| {
        setup.path_policy = PathPolicy { loading: AlternateLoading::ByHand, ..PathPolicy::default() };
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
            end.turn(Duration::ZERO).expect("sockets can be waited on");
            while let Some(event) = end.next_event() {
                match event {
                    EndpointEvent::Path { event: PathEvent::Armed(_), .. } => armed += 1,
                    other => panic!("{other:?} after {:?}, {armed} are armed", began.elapsed()),
                }
            }
        }
        // Longer than a probe is waited for.
        std::thread::sleep(Duration::from_millis(25));
    }
}

#[test]
fn remote_writes_land_where_they_may_and_nowhere_else() {
    let mut two = two(&[LOOPBACK], FaultInjector::default(), |_| ());
    let key = two.ends[1].register(two.pairs[1], vec![0; 100_000]).expect("a pair");
    let write = |address| QpOperation::Write { key, address, immediate: None };
    two.ends[0].post_send(two.pairs[0], bytes(1, 50_000), write(1_000)).expect("room");
    let began = Instant::now();
    let mut outcome = None;
    while outcome.is_none() && began.elapsed() < Duration::from_secs(5) {
        for end in &mut two.ends {
            end.turn(Duration::ZERO).expect("sockets can be waited on");
        }
        outcome = two.ends[0].next_event();
    }
    assert!(matches!(outcome, Some(EndpointEvent::Sent { .. })), "{outcome:?}");
    let region = two.ends[1].region(two.pairs[1], key).expect("registered");
    assert!(region[1_000..51_000] == bytes(1, 50_000)[..] && region[51_000..].iter().all(|byte| *byte == 0));
    two.ends[0].post_send(two.pairs[0], bytes(2, 50_000), write(60_000)).expect("room");
    let mut failed = None;
    while failed.is_none() && began.elapsed() < Duration::from_secs(5) {
        for end in &mut two.ends {
            end.turn(Duration::ZERO).expect("sockets can be waited on");
        }
        failed = two.ends[0].next_event();
    }
    assert!(matches!(failed, Some(EndpointEvent::Failed { .. })), "{failed:?}");
    let region = two.ends[1].region(two.pairs[1], key).expect("registered");
    assert!(region[51_000..].iter().all(|byte| *byte == 0), "nothing of a forbidden write is written");
}

#[test]
fn a_stream_outlives_a_cut_that_is_noticed_and_one_that_is_not() {
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
fn a_multicast_reaches_every_listener_of_its_group_and_a_datagram_one() {
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
            end.post_datagram_receive(*pair, vec![0; 4096]).expect("room");
        }
    }
    let unicast = (ends[2].addresses()[0], pairs[2], key);
    ends[0].send_datagram(pairs[0], port, (group, MULTICAST_QP, key), &bytes(1, 4096), Some(5)).expect("a pair");
    ends[0].send_datagram(pairs[0], port, (group, MULTICAST_QP, QueueKey(8)), &bytes(2, 10), None).expect("a pair");
    ends[0].send_datagram(pairs[0], port, unicast, &bytes(3, 11), None).expect("a pair");
    let mut heard = vec![Vec::new(); 3];
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(300) {
        for (end, heard) in ends.iter_mut().zip(&mut heard) {
            end.turn(Duration::ZERO).expect("sockets can be waited on");
            while let Some(event) = end.next_event() {
                let EndpointEvent::Datagram { speaker, buffer, length, immediate, .. } = event else {
                    panic!("{event:?}")
                };
                assert_eq!(speaker, pairs[0]);
                heard.push((buffer[..length].to_vec(), immediate));
            }
        }
    }
    // Two sockets: which of them is asked first is nobody's promise.
    heard[2].sort_by_key(|(bytes, _)| bytes.len());
    let to_all = (bytes(1, 4096), Some(5));
    let right = [vec![], vec![to_all.clone()], vec![(bytes(3, 11), None), to_all]];
    let lengths: Vec<Vec<usize>> =
        heard.iter().map(|all| all.iter().map(|(bytes, _)| bytes.len()).collect()).collect();
    assert!(heard == right, "messages of {lengths:?} bytes came");
    assert_eq!(ends[1].counters().foreign, 1, "a wrong key is counted");
}

#[test]
fn a_stream_outlives_everything_that_a_plan_of_faults_can_do() {
    let plan = "[[fault]]\nkind = \"lose\"\nprobability = 0.03\n\n[[fault]]\nkind = \"flip\"\nbit-error-rate = 1e-6\n\n\
                [[fault]]\nkind = \"duplicate\"\nprobability = 0.05\n\n[[fault]]\nkind = \"reorder\"\nprobability = 0.05\n\n\
                [[fault]]\nkind = \"delay\"\nprobability = 0.01\ndelay-ns = 3e6\n\n\
                [[fault]]\nkind = \"down\"\nlink = \"port 0\"\nat-us = 20000.0\nfor-us = 100000.0\n";
    let plan = faults::FaultPlan::parse(plan).expect("a plan");
    let mischief = FaultInjector::from_plan(&plan, 7).expect("for sockets");
    let second = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let mut two = two(&[LOOPBACK, second], mischief, |_| ());
    for _ in 0..4 {
        stream(&mut two, &LENGTHS);
    }
}
