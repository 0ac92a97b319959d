//! Captures the packets of a live connection on the loopback interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use protocol::connection::path::MigrationRole;
use protocol::queue_pair::QpOperation;
use transport::udp::{
    Endpoint, EndpointEvent, EndpointOptions, FaultInjector, QueuePairSetup, UdpPortIndex, UdpRoute,
};
use units::Psn;
use wire::IcrcCoverage;
use wire::rocev2::UDP_PORT;

/// All packets between two endpoints while some are lost: sends, writes, acknowledgements, selective acknowledgements, probes; as
/// IP packets. Each caller has its own loopback addresses, `127.47.network`, so that the well-known port is free.
pub(crate) fn packets(network: u8) -> Vec<Vec<u8>> {
    let capture = LoopbackCapture::new(network);
    let options = EndpointOptions { fault_injector: FaultInjector::new(20, 0), ..EndpointOptions::default() };
    let open = |hosts: [u8; 2]| {
        let ports = hosts.map(|host| SocketAddr::new(Ipv4Addr::new(127, 47, network, host).into(), UDP_PORT));
        Endpoint::open(&ports, options.clone()).expect("loopback addresses can be bound")
    };
    let mut ends = [open([1, 2]), open([3, 4])];
    let pairs = [ends[0].create(), ends[1].create()];
    for me in 0..2 {
        let remote = ends[1 - me].addresses();
        let routes =
            remote.iter().enumerate().map(|(port, to)| UdpRoute::new(UdpPortIndex(port as u8), *to)).collect();
        let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
        let mut setup = QueuePairSetup::new(pairs[1 - me], Psn::new(0xff_fff0), Psn::new(0xff_fff0), routes, role);
        // One packet per call: the kernel would deliver a segmented batch to the capture as one packet.
        setup.verbs_peer = true;
        setup.mtu = 1024;
        ends[me].connect(pairs[me], setup).expect("the set-up is valid");
    }
    let key = ends[1].register(pairs[1], vec![0; 100_000]).expect("the queue pair exists");
    for _ in 0..20 {
        ends[1].post_receive(pairs[1], vec![0; 10_000]).expect("the queue has room");
    }
    for number in 0..20u32 {
        let immediate = Some(number).filter(|number| number % 2 == 0);
        let send = QpOperation::Send { immediate };
        ends[0].post_send(pairs[0], vec![number as u8; 500 * number as usize], send).expect("the queue has room");
        let write = QpOperation::Write { key, address: 7, immediate: None };
        ends[0].post_send(pairs[0], vec![number as u8; 3000], write).expect("the queue has room");
    }
    capture.until_sent(&mut ends, 40)
}

/// The packets of ten messages that fill a long packet each, between ends that have agreed on a shortened ICRC.
pub(crate) fn long_messages(network: u8, port: u16) -> Vec<Vec<u8>> {
    const MESSAGE_BYTES: usize = 50_000;
    let capture = LoopbackCapture::new(network);
    let mut ends = [1, 2].map(|host| {
        let address = SocketAddr::new(Ipv4Addr::new(127, 47, network, host).into(), port);
        Endpoint::open(&[address], EndpointOptions::default()).expect("loopback addresses can be bound")
    });
    let pairs = [ends[0].create(), ends[1].create()];
    for me in 0..2 {
        let routes = vec![UdpRoute::new(UdpPortIndex(0), ends[1 - me].addresses()[0])];
        let role = if me == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
        let setup = QueuePairSetup::new(pairs[1 - me], Psn::new(0), Psn::new(0), routes, role);
        let setup = QueuePairSetup { coverage: IcrcCoverage::Prefix, ..setup.with_long_packets(1 << 16) };
        ends[me].connect(pairs[me], setup).expect("the set-up is valid");
    }
    for number in 0..10 {
        ends[1].post_receive(pairs[1], vec![0; MESSAGE_BYTES]).expect("the queue has room");
        let send = QpOperation::Send { immediate: None };
        ends[0].post_send(pairs[0], vec![number; MESSAGE_BYTES], send).expect("the queue has room");
    }
    capture.until_sent(&mut ends, 10)
}

/// All UDP packets to addresses 127.47.`network`.
struct LoopbackCapture {
    socket: OwnedFd,
    network: u8,
}

impl LoopbackCapture {
    fn new(network: u8) -> Self {
        let socket = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Udp)
            .expect("the right to open raw sockets");
        setsockopt(&socket, sockopt::RcvBuf, &(4 << 20)).expect("a buffer for some packets");
        Self { socket, network }
    }

    /// Drives both ends until so many requests are complete; returns their packets.
    fn until_sent(&self, ends: &mut [Endpoint; 2], requests: usize) -> Vec<Vec<u8>> {
        let (mut sent, mut packets) = (0, Vec::new());
        let began = Instant::now();
        let mut buffer = vec![0; 1 << 16];
        while sent < requests {
            assert!(began.elapsed() < Duration::from_secs(20), "{sent} of {requests} requests are complete");
            for end in &mut *ends {
                end.turn(Duration::ZERO).expect("the sockets can be polled");
                while let Some(event) = end.next_event() {
                    sent += usize::from(matches!(event, EndpointEvent::Sent { .. }));
                }
            }
            while let Ok(length) = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                if buffer[16..19] == [127, 47, self.network] {
                    // Over loopback the kernel does not complete the UDP checksum; zero means that there is none.
                    buffer[26..28].fill(0);
                    packets.push(buffer[..length].to_vec());
                }
            }
        }
        packets
    }
}
