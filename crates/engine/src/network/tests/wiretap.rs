//! An attacker on the way between all processes of a cluster: it records every packet that it passes on, and sends packets again.
//!
//! Each process knows the others only by addresses of the attacker. It computes right ICRCs, as anyone can.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use wire::rocev2::{self, Flow, Fragmentation, IpHeader};
use wire::transfer;

use super::loopback;

/// A process of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Party {
    Leader(usize),
    Node(usize),
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(super) struct RecordedPacket {
    from: Party,
    to: Party,
    datagram: Vec<u8>,
}

impl RecordedPacket {
    pub(super) fn is_transfer(&self) -> bool {
        transfer::is_transfer_packet(&self.datagram)
    }

    /// It passed between a node of the tree and a neighbour.
    pub(super) fn is_of_tree(&self) -> bool {
        [self.from, self.to].iter().any(|party| matches!(party, Party::Node(_)))
    }
}

#[derive(Default)]
pub(super) struct Wiretap {
    /// Where the first process sends what is for the second, and from where it gets the packets of the second.
    relays: BTreeMap<(Party, Party), UdpSocket>,
    bound: BTreeMap<Party, SocketAddr>,
    pub(super) is_recording: bool,
    pub(super) recorded: Vec<RecordedPacket>,
}

impl Wiretap {
    /// One that records.
    pub(super) fn recording() -> Self {
        Self { is_recording: true, ..Self::default() }
    }

    /// The addresses that one process is told of another.
    pub(super) fn seen_by(&mut self, viewer: Party, of: Party, bound: &[SocketAddr]) -> Vec<SocketAddr> {
        self.bound.insert(of, bound[0]);
        let relay = self.relays.entry((viewer, of)).or_insert_with(|| {
            let relay = UdpSocket::bind(&loopback()[..]).expect("loopback can be bound");
            relay.set_nonblocking(true).expect("a socket");
            relay
        });
        vec![relay.local_addr().expect("bound")]
    }

    /// Passes on what has arrived.
    pub(super) fn turn(&mut self) {
        let mut space = vec![0; 1 << 16];
        for ((from, to), relay) in &self.relays {
            while let Ok((length, _)) = relay.recv_from(&mut space) {
                let packet = RecordedPacket { from: *from, to: *to, datagram: space[..length].to_vec() };
                self.send(&packet);
                if self.is_recording {
                    self.recorded.push(packet);
                }
            }
        }
    }

    /// Sends a packet to its destination, as if it came from its source. A full socket loses it.
    pub(super) fn send(&self, RecordedPacket { from, to, datagram }: &RecordedPacket) {
        let (Some(relay), Some(bound)) = (self.relays.get(&(*to, *from)), self.bound.get(to)) else { return };
        let Ok(packet) = rocev2::parse(datagram) else {
            // Transfers have no ICRC.
            let _ = relay.send_to(datagram, bound);
            return;
        };
        let mut bytes = vec![0; packet.size()];
        rocev2::emit(&packet, &flow(relay.local_addr().expect("bound"), *bound), &mut bytes);
        let _ = relay.send_to(&bytes, bound);
    }
}

fn flow(from: SocketAddr, to: SocketAddr) -> Flow {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (from.ip(), to.ip()) else { panic!("all are IPv4") };
    let ip = IpHeader::V4 { source, destination, identification: 0, fragmentation: Fragmentation::Forbidden };
    Flow { ip, source_port: from.port(), destination_port: to.port() }
}
