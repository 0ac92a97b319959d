//! Datagrams at the socket of tree edges and transfers: valid ones, edited, with a right ICRC again where they have one. The MACs are as
//! the edits left them, as an attacker's are.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::time::Duration;

use bolero::check;
use manager::AuthKey;
use protocol::Payload;
use protocol::aggregation::AggregationMessage;
use protocol::connection::{Frame, FramePurpose, MigrationBit, OutgoingFrame};
use transport::edges::{EdgeSide, ReadySockets, TransferPackets, TransferSink, TreeEdge, TreeEdges, UnverifiedPart};
use transport::udp::FaultInjector;
use units::{ChildIndex, Epoch, GroupId, OpId, PathId, Psn, QpNumber, SegmentIndex, Time};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader};
use wire::transfer::{TransferHeader, TransferName, TransferPacketKind};

use super::edits::edited;

const KEY: AuthKey = AuthKey([9; 16]);
const OWN: QpNumber = QpNumber(5);
const PEERS: QpNumber = QpNumber(6);

/// Counts what is authentic, and looks at all of it.
#[derive(Default)]
struct CountingSink {
    parts: usize,
    acknowledgements: usize,
}

impl TransferSink for CountingSink {
    fn set_time(&mut self, _: Time) {}

    fn handle_part(&mut self, _: QpNumber, _: PathId, _: &TransferHeader, part: UnverifiedPart<'_>) -> bool {
        self.parts += 1;
        part.verify().is_some()
    }

    fn handle_acknowledgement(&mut self, _: QpNumber, _: PathId, _: &TransferHeader, missing: &[u8]) {
        assert!(wire::transfer::parse_missing(missing).count() <= missing.len());
        self.acknowledgements += 1;
    }
}

/// The process under test, and a socket that has the address of its peer.
struct Victim {
    tree_edges: TreeEdges,
    peer: UdpSocket,
}

impl Victim {
    fn new() -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let peer = UdpSocket::bind(loopback).expect("loopback can be bound");
        peer.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
        let at = peer.local_addr().expect("bound");
        let mut tree_edges = open(loopback);
        add_edge(&mut tree_edges, OWN, PEERS, at, EdgeSide::Parent);
        Self { tree_edges, peer }
    }

    /// Sends it a datagram as if from its peer, and lets it receive; how many frames it accepts.
    fn receive(&mut self, datagram: &[u8], sink: &mut CountingSink) -> usize {
        let (from, to) = (self.peer.local_addr().expect("bound"), self.tree_edges.addresses()[0]);
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (from.ip(), to.ip()) else { panic!("all are IPv4") };
        let mut bytes = datagram.to_vec();
        if let Ok(packet) = rocev2::parse(datagram) {
            let fragmentation = Fragmentation::Forbidden;
            let ip = IpHeader::V4 { source, destination, identification: 0, fragmentation };
            bytes = vec![0; packet.size()];
            rocev2::emit(&packet, &Flow { ip, source_port: from.port(), destination_port: to.port() }, &mut bytes);
        }
        self.peer.send_to(&bytes, to).expect("loopback sends");
        let mut inputs = Vec::new();
        self.tree_edges.receive_from(ReadySockets::Any, &mut inputs, sink);
        inputs.len()
    }
}

fn open(at: SocketAddr) -> TreeEdges {
    TreeEdges::open(&[at], FaultInjector::default()).expect("a socket")
}

fn add_edge(tree_edges: &mut TreeEdges, own: QpNumber, remote: QpNumber, to: SocketAddr, end: EdgeSide) {
    let routes = tree_edges.routes_to(&[to]);
    tree_edges.add_edge(own, TreeEdge { remote, routes, key: KEY, end });
}

fn contribution() -> AggregationMessage {
    let header = AggregationHeader {
        kind: AggregationMessageKind::Contribution,
        element: ElementCode(3),
        operator: OperatorCode(1),
        flags: 0,
        group: GroupId(7),
        epoch: Epoch(1),
        operation: OpId(9),
        segment: SegmentIndex(0),
        child: ChildIndex(2),
        element_count: 4,
        detail: 0,
    };
    AggregationMessage::new(header, Payload::from(vec![5; 32]))
}

fn transfer(kind: TransferPacketKind) -> TransferHeader {
    let name = TransferName { group: GroupId(1), epoch: Epoch(1), operation: OpId(2), round: 3 };
    let (destination, unfinished) = (OWN, OpId(2));
    TransferHeader { destination, name, fingerprint: 4, length: 96, unfinished, kind, payload_mac: 0 }
}

/// What the peer would send: the datagrams of another process that has the key.
fn valid_datagrams(victim: &Victim) -> Vec<Vec<u8>> {
    let mut sender = open(SocketAddr::from(([127, 0, 0, 1], 0)));
    add_edge(&mut sender, PEERS, OWN, victim.peer.local_addr().expect("bound"), EdgeSide::Child);
    let psn = Psn::new(3);
    let frames = [
        Frame::Data { psn, wants_ack: true, message: contribution() },
        Frame::Ack { psn },
        Frame::SelectiveAck { expected: psn, arrived: 5 },
        Frame::Nak { expected: psn },
        Frame::Probe { token: 77 },
        Frame::ProbeReply { token: 77 },
    ];
    let count = frames.len() + 2;
    for frame in frames {
        let (path, migration, purpose) = (PathId(0), MigrationBit::Migrated, FramePurpose::Control);
        sender.transmit(PEERS, &OutgoingFrame { frame, copies: 1, purpose, path, migration });
        sender.flush();
    }
    let data = TransferPacketKind::Data { offset: 0, acknowledge_now: true, probe: 1 };
    let packets = TransferPackets { element: 8, are_short: false };
    assert_eq!(sender.send_transfer(PEERS, PathId(0), &transfer(data), &[7; 96], packets), 96);
    let acknowledgement = TransferPacketKind::Acknowledgement { received: 96, limit: 200, probe: 1 };
    sender.send_transfer_acknowledgement(PEERS, PathId(0), &transfer(acknowledgement), &[(8, 16)]);
    let next = |_| {
        let mut space = vec![0; 1 << 16];
        let (length, _) = victim.peer.recv_from(&mut space).expect("it was sent");
        space[..length].to_vec()
    };
    (0..count).map(next).collect()
}

#[test]
fn any_datagram_at_an_edge_is_read_or_dropped() {
    let mut victim = Victim::new();
    let valid = valid_datagrams(&victim);
    let mut sink = CountingSink::default();
    let frames: usize = valid.iter().map(|datagram| victim.receive(datagram, &mut sink)).sum();
    assert_eq!((frames, sink.parts, sink.acknowledgements), (valid.len() - 2, 1, 1), "unedited, all are authentic");
    let victim = Mutex::new(victim);
    check!(name = "edge_datagrams").for_each(|input: &[u8]| {
        let valid: Vec<&[u8]> = valid.iter().map(Vec::as_slice).collect();
        let (datagram, mut sink) = (edited(&valid, input), CountingSink::default());
        let frames = victim.lock().expect("no other thread").receive(&datagram, &mut sink);
        assert!(frames + sink.parts + sink.acknowledgements <= 1, "one datagram has one message");
    });
}
