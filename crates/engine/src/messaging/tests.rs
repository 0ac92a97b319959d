//! Messages over loopback, whole and spoiled.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use faults::{FaultPlan, RandomStream};
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::MigrationRole;
use protocol::messaging::{MessageCompletion, MessageSelector, MessagingSettings, RailIndex};
use units::{PathId, Psn, QpNumber, Rank};

use super::{CorruptionStage, MessageTransport, Messenger, ShmTransport, UdpTransport};
use transport::udp::{Endpoint, EndpointOptions, FaultInjector, LinkCut, QueuePairSetup, UdpPortIndex, UdpRoute};

/// The first queue pair that an endpoint makes.
const FIRST_PAIR: QpNumber = QpNumber(0x11);
const LIMIT: Duration = Duration::from_secs(60);

/// Two ports, each with so many rails, each rail with an address of its own.
fn pair(rails: u8, settings: MessagingSettings) -> [Messenger<UdpTransport>; 2] {
    pair_with(rails, settings, &EndpointOptions::default())
}

fn pair_with(rails: u8, settings: MessagingSettings, options: &EndpointOptions) -> [Messenger<UdpTransport>; 2] {
    let routes: Vec<_> = (0..rails).map(|rail| vec![rail]).collect();
    pair_over(&routes, settings, options)
}

/// The same, with the ports that the paths of each rail use.
fn pair_over(
    routes: &[Vec<u8>],
    settings: MessagingSettings,
    options: &EndpointOptions,
) -> [Messenger<UdpTransport>; 2] {
    let rails = routes.len() as u8;
    let hosts = routes.iter().flatten().max().expect("some") + 1;
    let addresses: Vec<SocketAddr> = (1..=hosts).map(|host| SocketAddr::from(([127, 0, 0, host], 0))).collect();
    let open = || UdpTransport::new(Endpoint::open(&addresses, options.clone()).expect("free"), &settings);
    let mut ports = [open(), open()].map(|carrier| Messenger::new(carrier, settings));
    let bound = [0, 1].map(|me: usize| ports[me].carrier().endpoint().addresses());
    for rail in (0..rails).map(RailIndex) {
        let numbers =
            [0, 1].map(|me: usize| ports[me].carrier().create(Rank(1 - me as u32), rail).expect("a new rail"));
        for me in 0..2 {
            let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
            let route = |port: &u8| UdpRoute::new(UdpPortIndex(*port), bound[1 - me][usize::from(*port)]);
            let paths = routes[rail.index()].iter().map(route).collect();
            let mut setup = QueuePairSetup::new(numbers[1 - me], Psn::new(0), Psn::new(0), paths, role);
            setup.policy = ConnectionPolicy { retry_limit: 6, ..ConnectionPolicy::conversation() }; // A cut is noticed within a second.
            ports[me].carrier().connect(numbers[me], setup.with_long_packets(1 << 16)).expect("a sound set-up");
        }
    }
    for (me, port) in ports.iter_mut().enumerate() {
        port.add_peer(Rank(1 - me as u32), rails);
    }
    ports
}

/// Two ports of one process that meet in shared memory.
fn memory(name: &str, settings: MessagingSettings) -> [Messenger<ShmTransport>; 2] {
    let name = format!("pleach-messages-{name}-{}", std::process::id());
    let settings = ShmTransport::settings(settings);
    let meet = |rank| ShmTransport::meet(&name, Rank(rank), 2, LIMIT).expect("the memory can be had");
    let [first, second] = std::thread::scope(|scope| {
        let other = scope.spawn(|| meet(1));
        [meet(0), other.join().expect("no panic")]
    });
    let mut ports = [first, second].map(|carrier| Messenger::new(carrier, settings));
    for (me, port) in ports.iter_mut().enumerate() {
        port.add_peer(Rank(1 - me as u32), 1);
    }
    ports
}

fn bytes(number: u64, length: usize) -> Vec<u8> {
    let stream = RandomStream::new(number, 3);
    let mut bytes: Vec<u8> = (0..length.div_ceil(8) as u64).flat_map(|word| stream.at(word).to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// Turns both until one has received so many; what it received, in the order of its receives.
fn received<C: MessageTransport>(ports: &mut [Messenger<C>; 2], at: usize, count: usize) -> Vec<Vec<u8>> {
    let began = Instant::now();
    let mut found = Vec::new();
    while found.len() < count {
        assert!(began.elapsed() < LIMIT, "{} of {count} came", found.len());
        for (me, port) in ports.iter_mut().enumerate() {
            port.turn(Duration::ZERO).expect("turned");
            while let Some(completion) = port.next_completion() {
                match completion {
                    MessageCompletion::Received { id, length, buffer, .. } if me == at => {
                        found.push((id, buffer[..length].to_vec()));
                    }
                    MessageCompletion::SendFailed { failure, .. }
                    | MessageCompletion::ReceiveFailed { failure, .. } => {
                        panic!("{failure}")
                    }
                    _ => {}
                }
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn messages_of_all_lengths_cross_the_loopback() {
    send_all_lengths(pair(2, MessagingSettings::default()));
}

#[test]
fn messages_of_all_lengths_cross_shared_memory() {
    send_all_lengths(memory("lengths", MessagingSettings::default()));
}

fn send_all_lengths<C: MessageTransport>(mut ports: [Messenger<C>; 2]) {
    let lengths = [0, 1, 8, 1_000, 5_000, 16_384, 16_385, 300_000, 3 << 20];
    for (number, length) in lengths.into_iter().enumerate() {
        ports[1].receive(MessageSelector::from(Rank(0), number as u64), vec![0; length]).expect("posted");
        ports[0].send(Rank(1), number as u64, bytes(number as u64, length)).expect("sent");
    }
    let expected: Vec<_> = lengths.iter().enumerate().map(|(number, length)| bytes(number as u64, *length)).collect();
    assert!(received(&mut ports, 1, lengths.len()) == expected);
}

/// Ten thousand messages, each with one flipped bit behind the check of its packets or before it, anywhere in header, seal or
/// data: none wrong, none lost.
#[test]
fn ten_thousand_spoiled_messages_arrive() {
    spoil_ten_thousand(pair(2, MessagingSettings { gather_bytes: 0, ..MessagingSettings::default() }));
}

#[test]
fn ten_thousand_spoiled_messages_arrive_through_shared_memory() {
    spoil_ten_thousand(memory("spoiled", MessagingSettings { gather_bytes: 0, ..MessagingSettings::default() }));
}

fn spoil_ten_thousand<C: MessageTransport>(mut ports: [Messenger<C>; 2]) {
    let due: Arc<Mutex<Option<(CorruptionStage, u64)>>> = Arc::default();
    for port in &mut ports {
        let due = Arc::clone(&due);
        port.set_spoiler(Box::new(move |side, parcel| {
            if let Some((_, place)) = due.lock().expect("no panic").take_if(|(wanted, _)| *wanted == side) {
                let bit = (place % (parcel.len() as u64 * 8)) as usize;
                parcel[bit / 8] ^= 1 << (bit % 8);
            }
        }));
    }
    let luck = RandomStream::new(1, 1);
    for number in 0..10_000u64 {
        let from = (number % 2) as usize;
        let to = Rank(1 - from as u32);
        let most = if number % 50 == 0 { 60_000 } else { 300 };
        let length = 1 + luck.below(3 * number, most) as usize;
        let side =
            if luck.below(3 * number + 1, 2) == 0 { CorruptionStage::Departure } else { CorruptionStage::Arrival };
        *due.lock().expect("no panic") = Some((side, luck.at(3 * number + 2)));
        ports[1 - from].receive(MessageSelector::from(Rank(from as u32), 7), vec![0; length]).expect("posted");
        ports[from].send(to, 7, bytes(number, length)).expect("sent");
        let came = received(&mut ports, 1 - from, 1);
        assert!(came == [bytes(number, length)], "message {number}");
        assert_eq!(*due.lock().expect("no panic"), None, "message {number} was not spoiled");
    }
    let found: u64 = ports.iter().map(|port| port.counters().spoiled).sum();
    assert_eq!(found, 10_000);
}

/// The checks of long packets cover their beginning alone. What flips beyond it, on the way, the seals find.
#[test]
fn bits_that_flip_on_the_way_harm_no_long_message() {
    let mischief = FaultInjector::new(29, 5);
    let mut ports =
        pair_with(1, MessagingSettings::default(), &EndpointOptions { mischief, ..EndpointOptions::default() });
    for number in 0..30u64 {
        let (from, length) = ((number % 2) as usize, 16_000 + 17_001 * number as usize);
        ports[1 - from].receive(MessageSelector::from(Rank(from as u32), 7), vec![0; length]).expect("posted");
        ports[from].send(Rank(1 - from as u32), 7, bytes(number, length)).expect("sent");
        assert!(received(&mut ports, 1 - from, 1) == [bytes(number, length)], "message {number}");
    }
    let found: u64 = ports.iter().map(|port| port.counters().spoiled).sum();
    assert!(found > 0, "nothing flipped beyond the beginning of a packet");
}

/// And a path that flips bits is left for good, although its packets pass for sound. What was under way on it then, and comes
/// spoiled later, is not laid to the next one.
#[test]
fn a_path_that_spoils_is_left() {
    let plan =
        FaultPlan::parse("[[fault]]\nkind = \"flip\"\nlink = \"port 0\"\nbit-error-rate = 2e-6\n").expect("a plan");
    let mischief = FaultInjector::from_plan(&plan, 1).expect("for sockets");
    let mut ports = pair_over(
        &[vec![0, 1]],
        MessagingSettings::default(),
        &EndpointOptions { mischief, ..EndpointOptions::default() },
    );
    let length = 1 << 20;
    let began = Instant::now();
    let has_left = |port: &mut Messenger<UdpTransport>| {
        port.carrier().endpoint().path_state(FIRST_PAIR).is_some_and(|(_, path)| path == PathId(1))
    };
    let mut left_at = None;
    for number in 0u64.. {
        assert!(began.elapsed() < LIMIT, "the path is still in use");
        ports[1].receive(MessageSelector::from(Rank(0), 7), vec![0; length]).expect("posted");
        ports[0].send(Rank(1), 7, bytes(number, length)).expect("sent");
        assert!(received(&mut ports, 1, 1) == [bytes(number, length)], "message {number}");
        assert!(left_at.is_none() || has_left(&mut ports[1]), "message {number}: back to the path that spoils");
        left_at = left_at.or(has_left(&mut ports[1]).then_some(number));
        if left_at.is_some_and(|left_at| number > left_at + 20) {
            break;
        }
    }
    assert!(ports[1].counters().spoiled > 0);
}

#[test]
fn a_cut_rail_is_left_and_the_rest_goes_by_the_other() {
    let settings = MessagingSettings::default();
    let mut ports = pair(2, settings);
    ports[1].receive(MessageSelector::from(Rank(0), 1), vec![0; 16 << 20]).expect("posted");
    ports[0].send(Rank(1), 1, bytes(1, 16 << 20)).expect("sent");
    // The message is announced; a rail that nobody has measured gets one of its first pieces. Nobody is told of the cut: the
    // connection must find out by itself that nothing comes back.
    ports[0].carrier().endpoint().cut(UdpPortIndex(1), LinkCut::Silent);
    assert!(received(&mut ports, 1, 1) == [bytes(1, 16 << 20)]);
    assert!(ports[0].counters().repeated > 0, "nothing went by the rail that was cut");
}

#[test]
fn a_rank_that_ends_is_lost_and_what_waits_for_it_fails() {
    let [mut port, other] = memory("ends", MessagingSettings::default());
    port.receive(MessageSelector::from(Rank(1), 1), vec![0; 8]).expect("posted");
    drop(other);
    let began = Instant::now();
    let completion = loop {
        assert!(began.elapsed() < LIMIT, "nobody noticed");
        port.turn(Duration::from_millis(50)).expect("turned");
        if let Some(completion) = port.next_completion() {
            break completion;
        }
    };
    assert!(matches!(completion, MessageCompletion::ReceiveFailed { .. }), "{completion:?}");
    assert_eq!(port.lost(Rank(1)), Some(protocol::messaging::PeerLossCause::Unreachable));
}

/// More than the ring holds, in both directions at once, with waits that sleep.
#[test]
fn a_full_ring_stops_nobody_for_good() {
    let mut ports = memory("full", MessagingSettings { credit_bytes: 16 << 20, ..MessagingSettings::default() });
    for number in 0..300 {
        for (me, port) in ports.iter_mut().enumerate() {
            port.send(Rank(1 - me as u32), number, bytes(number, 16_000)).expect("sent");
        }
    }
    for number in 0..300 {
        for (me, port) in ports.iter_mut().enumerate() {
            port.receive(MessageSelector::from(Rank(1 - me as u32), number), vec![0; 16_000]).expect("posted");
        }
    }
    let expected: Vec<_> = (0..300).map(|number| bytes(number, 16_000)).collect();
    assert!(received(&mut ports, 0, 300) == expected);
}

/// An endpoint asks ports that are silent less often, for the sake of those that are not. One whose only port is silent, because the
/// answer takes its time, must still hear it at once: a long message once stalled for half a millisecond at every turn.
#[test]
fn one_who_waits_awake_hears_at_once_what_comes_after_a_silence() {
    let spin = Duration::from_millis(3);
    let mut ports =
        pair_with(1, MessagingSettings::default(), &EndpointOptions { spin, ..EndpointOptions::default() });
    let mut at_once = 0;
    for number in 0..20 {
        ports[1].receive(MessageSelector::from(Rank(0), number), vec![0; 8]).expect("posted");
        ports[1].turn(spin).expect("turned"); // Nothing comes.
        ports[0].send(Rank(1), number, vec![1; 8]).expect("sent");
        let began = Instant::now();
        while ports[1].next_completion().is_none() {
            assert!(began.elapsed() < LIMIT, "message {number} does not come");
            ports[1].turn(spin).expect("turned");
        }
        at_once += u32::from(began.elapsed() < Duration::from_micros(200));
        ports[0].turn(Duration::ZERO).expect("turned");
        while ports[0].next_completion().is_some() {}
    }
    assert!(at_once >= 15, "only {at_once} of 20 were heard at once");
}

/// In normal flow there is always a receive for what comes: a sender that is told to wait waits for most of a millisecond.
#[test]
fn nobody_is_told_to_wait_for_a_receive() {
    let settings = MessagingSettings::default();
    let mut ports = pair(1, settings);
    for number in 0..4 {
        ports[1].receive(MessageSelector::from(Rank(0), number), vec![0; 1 << 20]).expect("posted");
        ports[0].send(Rank(1), number, bytes(number, 1 << 20)).expect("sent");
    }
    for number in 4..2_000 {
        ports[1].receive(MessageSelector::from(Rank(0), number), vec![0; 2_000]).expect("posted");
        ports[0].send(Rank(1), number, bytes(number, 2_000)).expect("sent");
    }
    assert_eq!(received(&mut ports, 1, 2_000).len(), 2_000);
    assert_eq!(ports.each_mut().map(|port| port.carrier().unready()), [0, 0]);
}

/// Both end as soon as they may, and neither waits for one that is gone.
#[test]
fn two_that_drain_at_once_need_no_patience() {
    for _ in 0..20 {
        let [mut one, mut other] = pair(1, MessagingSettings::default());
        other.receive(MessageSelector::from(Rank(0), 1), vec![0; 8]).expect("posted");
        one.send(Rank(1), 1, vec![1; 8]).expect("sent");
        while other.next_completion().is_none() {
            other.turn(Duration::from_millis(1)).expect("turned");
        }
        let began = Instant::now();
        let gone = std::thread::scope(|scope| {
            let other = scope.spawn(move || other.drain(LIMIT).expect("turned"));
            let one = one.drain(LIMIT).expect("turned");
            one && other.join().expect("no panic")
        });
        assert!(gone && began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
    }
}
