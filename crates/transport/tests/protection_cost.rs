//! What MACs and encryption cost messages: times of both ends together, because one thread drives them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use manager::AuthKey;
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::MigrationRole;
use protocol::queue_pair::QpOperation;
use transport::SecurityMode;
use transport::udp::{
    Endpoint, EndpointEvent, EndpointOptions, QueuePairSetup, RECEIVE_BUFFER_BYTES, UdpPortIndex, UdpRoute,
};
use units::{Psn, QpNumber};
use wire::IcrcCoverage;

const SEND: QpOperation = QpOperation::Send { immediate: None };
const MODES: [SecurityMode; 3] = [SecurityMode::Off, SecurityMode::Authenticate, SecurityMode::Encrypt];

struct Pair {
    ends: [Endpoint; 2],
    numbers: [QpNumber; 2],
}

impl Pair {
    fn new(mode: SecurityMode, link: u32) -> Self {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut ends =
            [0, 1].map(|_| Endpoint::open(&[loopback], EndpointOptions::default()).expect("loopback can be bound"));
        let numbers = [ends[0].create(), ends[1].create()];
        let key = AuthKey([7; 16]);
        for me in 0..2 {
            let route = UdpRoute::new(UdpPortIndex(0), ends[1 - me].addresses()[0]);
            let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
            let setup = QueuePairSetup::new(numbers[1 - me], Psn::new(0), Psn::new(0), vec![route], role);
            let policy = ConnectionPolicy::conversation();
            // As for messages with a strong checksum.
            let setup = QueuePairSetup { coverage: IcrcCoverage::Prefix, policy, ..setup };
            let setup = setup.with_security(mode.packets(key)).with_long_packets(link);
            ends[me].connect(numbers[me], setup).expect("valid attributes");
        }
        Self { ends, numbers }
    }

    /// One message there and one back.
    fn round_trip(&mut self, bytes: usize) -> Duration {
        let began = Instant::now();
        for from in 0..2 {
            let room = bytes.max(RECEIVE_BUFFER_BYTES);
            self.ends[1 - from].post_receive(self.numbers[1 - from], vec![0; room]).expect("posted");
            self.ends[from].post_send(self.numbers[from], vec![7; bytes], SEND).expect("posted");
            while !self.turn() {
                assert!(began.elapsed() < Duration::from_secs(20), "{bytes} bytes do not arrive");
            }
        }
        began.elapsed()
    }

    /// True if a message arrived.
    fn turn(&mut self) -> bool {
        let mut arrived = false;
        for end in &mut self.ends {
            end.turn(Duration::ZERO).expect("the turn succeeds");
            while let Some(event) = end.next_event() {
                arrived |= matches!(event, EndpointEvent::Received { .. });
            }
        }
        arrived
    }
}

#[test]
#[ignore = "measures times: run it alone on a quiet machine"]
fn what_protection_costs_a_message() {
    for (link, sizes) in [(1_500, &[8, 4 << 10, 1 << 20][..]), (65_536, &[8, 4 << 10, 64 << 10, 1 << 20])] {
        let mut pairs = MODES.map(|mode| Pair::new(mode, link));
        for bytes in sizes {
            let rounds = (4_000_000 / (bytes + 4_000)).clamp(40, 400);
            let mut times = [const { Vec::new() }; 3];
            for _ in 0..9 {
                for (pair, times) in pairs.iter_mut().zip(&mut times) {
                    let total: Duration = (0..rounds).map(|_| pair.round_trip(*bytes)).sum();
                    times.push(total.as_secs_f64() * 1e6 / (2 * rounds) as f64);
                }
            }
            let [off, authenticate, encrypt] = times.map(|mut times| {
                times.sort_by(f64::total_cmp);
                (times[4], times[0], times[8])
            });
            println!(
                "{link} byte packets, {bytes} bytes: off {:.2} us ({:.2} to {:.2}), authenticate {:.2} ({:.2} to {:.2}): {:+.0} %, encrypt {:.2} ({:.2} to {:.2}): {:+.0} %",
                off.0,
                off.1,
                off.2,
                authenticate.0,
                authenticate.1,
                authenticate.2,
                (authenticate.0 / off.0 - 1.0) * 100.0,
                encrypt.0,
                encrypt.1,
                encrypt.2,
                (encrypt.0 / off.0 - 1.0) * 100.0,
            );
        }
    }
}
