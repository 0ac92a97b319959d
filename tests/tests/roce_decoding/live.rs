//! Packets of a live connection, as they pass the loopback interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use protocol::connection::path::MigrationRole;
use protocol::queue_pair::QpOperation;
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, recv, socket};
use transport::udp::{
    Endpoint, EndpointEvent, EndpointOptions, FaultInjector, QueuePairSetup, UdpPortIndex, UdpRoute,
};
use units::Psn;
use wire::rocev2::UDP_PORT;

/// Everything that two ends say to each other while some of it is lost: sends, writes, acknowledgements, what is
/// missing, probes. As IP packets. Each caller has loopback addresses of its own, `127.47.network`, so that the port that
/// strangers know is free.
pub(crate) fn packets(network: u8) -> Vec<Vec<u8>> {
    let seen =
        socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP)).expect("the right to open raw sockets");
    let options = EndpointOptions { mischief: FaultInjector::new(20, 0), ..EndpointOptions::default() };
    let open = |hosts: [u8; 2]| {
        let ports = hosts.map(|host| SocketAddr::new(Ipv4Addr::new(127, 47, network, host).into(), UDP_PORT));
        Endpoint::open(&ports, options.clone()).expect("loopback can be bound")
    };
    let mut ends = [open([1, 2]), open([3, 4])];
    let pairs = [ends[0].create(), ends[1].create()];
    for me in 0..2 {
        let remote = ends[1 - me].addresses();
        let routes =
            remote.iter().enumerate().map(|(port, to)| UdpRoute::new(UdpPortIndex(port as u8), *to)).collect();
        let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
        let mut setup = QueuePairSetup::new(pairs[1 - me], Psn::new(0xff_fff0), Psn::new(0xff_fff0), routes, role);
        // One packet a call: what the kernel joins would be seen joined.
        setup.verbs_peer = true;
        setup.mtu = 1024;
        ends[me].connect(pairs[me], setup).expect("a sound set-up");
    }
    let key = ends[1].register(pairs[1], vec![0; 100_000]).expect("a pair");
    for _ in 0..20 {
        ends[1].post_receive(pairs[1], vec![0; 10_000]).expect("room");
    }
    for number in 0..20u32 {
        let immediate = Some(number).filter(|number| number % 2 == 0);
        let send = QpOperation::Send { immediate };
        ends[0].post_send(pairs[0], vec![number as u8; 500 * number as usize], send).expect("room");
        let write = QpOperation::Write { key, address: 7, immediate: None };
        ends[0].post_send(pairs[0], vec![number as u8; 3000], write).expect("room");
    }
    let (mut sent, mut packets) = (0, Vec::new());
    let began = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    while sent < 40 {
        assert!(began.elapsed() < Duration::from_secs(20), "{sent} of 40 requests are done");
        for end in &mut ends {
            end.turn(Duration::ZERO).expect("sockets can be waited on");
            while let Some(event) = end.next_event() {
                sent += usize::from(matches!(event, EndpointEvent::Sent { .. }));
            }
        }
        while let Ok((length, _)) = recv(&seen, &mut buffer, RecvFlags::DONTWAIT) {
            if buffer[16..19] == [127, 47, network] {
                // Over loopback the kernel leaves UDP's checksum unfinished; zero says that there is none.
                buffer[26..28].fill(0);
                packets.push(buffer[..length].to_vec());
            }
        }
    }
    packets
}
