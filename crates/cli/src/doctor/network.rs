//! Checks of sockets: segmentation offload, buffers, multicast, IPv6 and raw sockets. All traffic stays on loopback.

use std::fs::read_to_string;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt};
use protocol::datagram::MULTICAST_QP;
use transport::udp::{Endpoint, EndpointEvent, EndpointOptions, UdpPortIndex};
use wire::QueueKey;

use super::finding::Finding;
use super::finding::FindingStatus::{Broken, Limited, Missing};
use lab::number_format::si_number;

/// The buffer size that every socket requests.
const WANTED_BUFFER_BYTES: u64 = 4 << 20;
/// A packet on loopback that has not arrived by then is lost.
const LOOPBACK_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) fn findings() -> Vec<Finding> {
    vec![datagrams(), segmentation(), buffers("rmem_max"), buffers("wmem_max"), multicast(), ipv6(), raw_sockets()]
}

/// Sends a datagram to its own socket.
fn echo(address: IpAddr) -> io::Result<()> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.set_read_timeout(Some(LOOPBACK_TIMEOUT))?;
    socket.send_to(b"pleach", socket.local_addr()?)?;
    let mut buffer = [0; 16];
    let (length, _) = socket.recv_from(&mut buffer)?;
    if &buffer[..length] == b"pleach" { Ok(()) } else { Err(io::Error::other("received other data")) }
}

fn datagrams() -> Finding {
    let what = "UDP";
    match echo(Ipv4Addr::LOCALHOST.into()) {
        Ok(()) => Finding::good(what, "a datagram over loopback arrives"),
        Err(error) => {
            let advice = "bring up the loopback device (ip link set lo up) and allow UDP in the firewall";
            Finding::bad(what, Broken, format!("no datagram over loopback: {error}"), advice)
        }
    }
}

/// Whether one system call can send and receive many packets (UDP GSO and GRO).
fn segmentation() -> Finding {
    let what = "packets per call";
    let advice = "use Linux 5.0 or later; otherwise each packet costs a system call";
    let socket = match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(socket) => socket,
        Err(error) => return Finding::bad(what, Broken, error.to_string(), advice),
    };
    let sends = setsockopt(&socket, sockopt::UdpGsoSegment, &1_024).is_ok();
    let receives = setsockopt(&socket, sockopt::UdpGroSegment, &true).is_ok();
    match (sends, receives) {
        (true, true) => Finding::good(what, "many, sent and received (GSO and GRO)"),
        (true, false) => Finding::bad(what, Limited, "many sent (GSO), one received", advice),
        (false, true) => Finding::bad(what, Limited, "one sent, many received (GRO)", advice),
        (false, false) => Finding::bad(what, Limited, "one", advice),
    }
}

fn buffers(name: &'static str) -> Finding {
    let what = if name == "rmem_max" { "receive buffers" } else { "send buffers" };
    let text = read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
    let Ok(bytes) = text.trim().parse::<u64>() else {
        return Finding::bad(what, Limited, "unknown to the kernel", "none needed: lost packets are retransmitted");
    };
    let found = format!("at most {}B", si_number(bytes as f64));
    if bytes < WANTED_BUFFER_BYTES {
        let advice = format!(
            "sysctl -w net.core.{name}={WANTED_BUFFER_BYTES}: bursts overflow a small buffer and are retransmitted"
        );
        return Finding::bad(what, Limited, found, advice);
    }
    Finding::good(what, found)
}

/// Aggregation nodes may multicast results.
fn multicast() -> Finding {
    let what = "multicast";
    let advice =
        "ip link set lo multicast on, and add a route for 239.0.0.0/8; without it results go over connections";
    match receives_multicast() {
        Ok(true) => Finding::good(what, "works on loopback"),
        Ok(false) => Finding::bad(what, Missing, "does not work on loopback", advice),
        Err(error) => Finding::bad(what, Missing, format!("cannot join a group: {error}"), advice),
    }
}

fn receives_multicast() -> io::Result<bool> {
    let key = QueueKey(std::process::id());
    // In the range for use within one organisation; the port separates concurrent runs on one machine.
    let port = 40_000 + (std::process::id() % 20_000) as u16;
    let group = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 255, 47, 92)), port);
    let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let mut ends = [
        Endpoint::open(&[local], EndpointOptions::default())?,
        Endpoint::open(&[local], EndpointOptions::default())?,
    ];
    let pairs = ends.each_mut().map(|end| end.create_datagram(key));
    ends[1].join(pairs[1], group, UdpPortIndex(0))?;
    ends[1].post_datagram_receive(pairs[1], vec![0; 64]).map_err(|error| io::Error::other(error.to_string()))?;
    let to = (group, MULTICAST_QP, key);
    let sent = ends[0].send_datagram(pairs[0], UdpPortIndex(0), to, b"pleach", None);
    sent.map_err(|error| io::Error::other(error.to_string()))?;
    let began = Instant::now();
    while began.elapsed() < LOOPBACK_TIMEOUT {
        ends[0].turn(Duration::ZERO)?;
        ends[1].turn(Duration::from_millis(5))?;
        if let Some(EndpointEvent::Datagram { buffer, length, .. }) = ends[1].next_event() {
            return Ok(&buffer[..length] == b"pleach");
        }
    }
    Ok(false)
}

fn ipv6() -> Finding {
    let what = "IPv6";
    match echo(Ipv6Addr::LOCALHOST.into()) {
        Ok(()) => Finding::good(what, "a datagram over loopback arrives"),
        Err(error) => {
            let advice = "only if your addresses are IPv6: sysctl -w net.ipv6.conf.all.disable_ipv6=0";
            Finding::bad(what, Missing, format!("none over loopback: {error}"), advice)
        }
    }
}

/// Verbs peers number their IPv4 packets, and only a raw socket shows the numbers.
fn raw_sockets() -> Finding {
    let what = "raw sockets";
    match socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Udp) {
        Ok(_) => Finding::good(what, "allowed"),
        Err(error) => {
            let advice = "only for verbs peers over IPv4: run as root, or setcap cap_net_raw+ep on the program";
            Finding::bad(what, Missing, format!("not allowed: {error}"), advice)
        }
    }
}
