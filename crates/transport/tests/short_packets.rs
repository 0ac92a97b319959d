//! A path whose MTU becomes smaller while two queue pairs use it: from some moment on, a relay between them drops long datagrams.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use manager::AuthKey;
use protocol::connection::path::MigrationRole;
use protocol::queue_pair::QpOperation;
use transport::SecurityMode;
use transport::udp::{Endpoint, EndpointEvent, EndpointOptions, QueuePairSetup, UdpPortIndex, UdpRoute};
use units::{Psn, QpNumber};
use wire::IcrcCoverage;

const SEND: QpOperation = QpOperation::Send { immediate: None };
const LIMIT: Duration = Duration::from_secs(30);
const LINK_BYTES: u32 = 9_000;
/// What every path carries, less IPv4 and UDP.
const SHORT_BYTES: usize = 1_200 - 28;
const MESSAGES: usize = 60;

struct RelayedPair {
    ends: [Endpoint; 2],
    pairs: [QpNumber; 2],
    bound: [SocketAddr; 2],
    /// Where the datagrams of each end arrive, and from where the other end gets them.
    relays: [UdpSocket; 2],
    /// Longer datagrams are dropped.
    most_bytes: usize,
    dropped: usize,
}

impl RelayedPair {
    fn new(mode: SecurityMode) -> Self {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let open = || Endpoint::open(&[loopback], EndpointOptions::default()).expect("loopback can be bound");
        let mut ends = [open(), open()];
        let relays = [0, 1].map(|_| UdpSocket::bind(loopback).expect("loopback can be bound"));
        let pairs = [ends[0].create(), ends[1].create()];
        let bound = [ends[0].addresses()[0], ends[1].addresses()[0]];
        for (me, relay) in relays.iter().enumerate() {
            relay.set_nonblocking(true).expect("a socket");
            let route = UdpRoute::new(UdpPortIndex(0), relay.local_addr().expect("bound"));
            let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
            let setup = QueuePairSetup::new(pairs[1 - me], Psn::new(9), Psn::new(9), vec![route], role);
            // The relay changes the addresses, which an ICRC would cover.
            let setup = QueuePairSetup { coverage: IcrcCoverage::Nothing, ..setup };
            let setup = setup.with_security(mode.packets(AuthKey([7; 16]))).with_long_packets(LINK_BYTES);
            ends[me].connect(pairs[me], setup).expect("valid attributes");
        }
        Self { ends, pairs, bound, relays, most_bytes: usize::MAX, dropped: 0 }
    }

    /// Lets all work for one turn; the messages that arrived at the second end.
    fn turn(&mut self) -> Vec<Vec<u8>> {
        let mut space = vec![0; 1 << 16];
        for from in 0..2 {
            while let Ok((length, _)) = self.relays[from].recv_from(&mut space) {
                if length > self.most_bytes {
                    self.dropped += 1;
                } else {
                    self.relays[1 - from].send_to(&space[..length], self.bound[1 - from]).expect("loopback sends");
                }
            }
        }
        let mut arrived = Vec::new();
        for end in &mut self.ends {
            end.turn(Duration::ZERO).expect("the turn succeeds");
            while let Some(event) = end.next_event() {
                match event {
                    EndpointEvent::Received { buffer, message, .. } => arrived.push(buffer[message].to_vec()),
                    EndpointEvent::Failed { failure, .. } => panic!("{failure}"),
                    _ => {}
                }
            }
        }
        arrived
    }
}

fn message(number: usize) -> Vec<u8> {
    (0..1 + 911 * number).map(|index| (index * 7 + number) as u8).collect()
}

/// Packets are on their way when the path changes: these are numbered already, and long.
#[test]
fn messages_arrive_on_a_path_that_carries_only_short_packets_from_some_moment_on() {
    for mode in [SecurityMode::Off, SecurityMode::Authenticate, SecurityMode::Encrypt] {
        let mut pair = RelayedPair::new(mode);
        for number in 0..MESSAGES {
            pair.ends[1].post_receive(pair.pairs[1], vec![0; 1 << 16]).expect("posted");
            pair.ends[0].post_send(pair.pairs[0], message(number), SEND).expect("posted");
        }
        let (began, mut arrived) = (Instant::now(), Vec::new());
        while arrived.len() < MESSAGES {
            assert!(began.elapsed() < LIMIT, "{mode}: {} of {MESSAGES} messages", arrived.len());
            arrived.extend(pair.turn());
            if arrived.len() >= MESSAGES / 4 {
                pair.most_bytes = SHORT_BYTES;
            }
        }
        assert!(arrived.iter().enumerate().all(|(number, bytes)| *bytes == message(number)), "{mode}");
        assert!(pair.dropped > 0, "{mode}: long packets were on their way");
    }
}
