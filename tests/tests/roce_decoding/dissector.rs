//! Packets that are not RoCEv2, as tshark reads them with the project's dissector, contrib/pleach.lua.

use std::collections::BTreeMap;

use units::{ChildIndex, Epoch, GroupId, OpId, Psn, QpNumber, SegmentIndex};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader, UDP_PORT};
use wire::transfer::{self, HEADER_BYTES, TransferHeader, TransferName, TransferPacketKind};
use wire::{
    Aeth, Bth, IcrcCoverage, Immediate, NakCause, Opcode, PacketHeaders, ProbeToken, RemoteKey, Reth, SackBitmap,
    Syndrome,
};

use crate::{capture, live, tshark};

const ANY_PORT: u16 = 40_000;

fn flow(destination_port: u16) -> Flow {
    let ip = IpHeader::V4 {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        identification: 0,
        fragmentation: Fragmentation::Forbidden,
    };
    Flow { ip, source_port: 50_000, destination_port }
}

fn transfer(kind: TransferPacketKind, body: &[u8], port: u16) -> Vec<u8> {
    let header = TransferHeader {
        destination: QpNumber(0x80_0003),
        name: TransferName { group: GroupId(9), epoch: Epoch(1), operation: OpId(4_000_000_000), round: 0x1234 },
        fingerprint: 0xdead_beef,
        length: 1 << 20,
        unfinished: OpId(3_999_999_990),
        kind,
        payload_mac: 0x0102_0304_0506_0708,
    };
    let mut bytes = [0; HEADER_BYTES];
    header.emit(&mut bytes);
    capture::network_packet(&flow(port), &[&bytes[..], body].concat())
}

/// A send, and an ICRC that covers this much.
fn datagram(coverage: IcrcCoverage, payload: &[u8], flow: &Flow) -> Vec<u8> {
    let mut headers = PacketHeaders::from(Bth::new(Opcode::SendOnly, QpNumber(0x12_3456), Psn::new(2748)));
    headers.bth.coverage = coverage;
    encode(&headers, payload, flow)
}

fn encode(headers: &PacketHeaders, payload: &[u8], flow: &Flow) -> Vec<u8> {
    let mut datagram = vec![0; headers.size_with(payload.len())];
    rocev2::emit_vectored(headers, [payload, &[]], flow, &mut datagram);
    datagram
}

fn packet(coverage: IcrcCoverage, payload: &[u8], flow: &Flow) -> Vec<u8> {
    capture::network_packet(flow, &datagram(coverage, payload, flow))
}

fn assert_columns(row: &BTreeMap<&'static str, String>, expected: &[(&'static str, &str)]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|(column, value)| (*column, (*value).to_owned())).collect();
    assert_eq!(*row, expected);
}

#[test]
fn tshark_reads_transfers_at_every_port() {
    let columns = [
        "pleach.kind",
        "pleach.probe",
        "pleach.acknowledge_now",
        "pleach.round",
        "pleach.destination",
        "pleach.group",
        "pleach.epoch",
        "pleach.operation",
        "pleach.fingerprint",
        "pleach.length",
        "pleach.unfinished",
        "pleach.payload_mac",
    ];
    let particular = [
        "pleach.offset",
        "pleach.payload",
        "pleach.received",
        "pleach.limit",
        "pleach.missing.offset",
        "pleach.missing.length",
        "infiniband.bth.opcode",
    ];
    let data = TransferPacketKind::Data { offset: 77_000, acknowledge_now: true, probe: 5 };
    let acknowledgement = TransferPacketKind::Acknowledgement { received: 500, limit: 90_000, probe: 5 };
    let mut missing = Vec::new();
    transfer::emit_missing(&[(10, 20), (30_000, 40)], &mut missing);
    for port in [UDP_PORT, ANY_PORT] {
        let packets = [transfer(data, b"body", port), transfer(acknowledgement, &missing, port)];
        let rows = tshark::read_with_dissector(
            &format!("transfers_{port}"),
            &packets,
            &[&columns[..], &particular].concat(),
        );
        let common = |kind, acknowledge_now| {
            let values = [
                kind,
                "5",
                acknowledge_now,
                "4660",
                "0x00800003",
                "9",
                "1",
                "4000000000",
                "0xdeadbeef",
                "1048576",
                "3999999990",
                "0x0102030405060708",
            ];
            columns.into_iter().zip(values).collect::<Vec<_>>()
        };
        let own = [("pleach.offset", "77000"), ("pleach.payload", "626f6479")];
        assert_columns(&rows[0], &[common("0xe1", "1"), own.to_vec()].concat());
        let own = [
            ("pleach.received", "500"),
            ("pleach.limit", "90000"),
            ("pleach.missing.offset", "30000"),
            ("pleach.missing.length", "40"),
        ];
        assert_columns(&rows[1], &[common("0xe2", "0"), own.to_vec()].concat());
    }
}

const WEAKER: [IcrcCoverage; 2] = [IcrcCoverage::Prefix, IcrcCoverage::Nothing];

/// Without the project's dissector: by itself tshark sees only UDP, and if it is told that the port is RoCEv2's, an unknown opcode.
#[test]
fn tshark_takes_a_packet_with_a_shortened_icrc_for_no_roce_packet() {
    let flow = flow(ANY_PORT);
    let packets = WEAKER.map(|coverage| packet(coverage, &[7; 5_000], &flow));
    let columns = ["_ws.col.Protocol", "infiniband.bth.opcode", "infiniband.bth.psn"];
    for row in tshark::run("short_icrc_alone", &packets, &[], &columns) {
        assert_columns(&row, &[("_ws.col.Protocol", "UDP")]);
    }
    let as_roce = ["-d".to_owned(), format!("udp.port=={ANY_PORT},infiniband")];
    for row in tshark::run("short_icrc_as_roce", &packets, &as_roce, &["_ws.col.Info", "infiniband.bth.opcode"]) {
        assert_eq!(row["infiniband.bth.opcode"], (0xc8 + 0x04).to_string());
        assert!(row["_ws.col.Info"].contains("Unknown OpCode"), "{row:?}");
    }
}

#[test]
fn tshark_reads_shortened_icrcs_with_the_dissector() {
    let columns = [
        "pleach.bth.opcode",
        "pleach.bth.destqp",
        "pleach.bth.psn",
        "pleach.icrc.coverage",
        "pleach.icrc.status",
        "infiniband.bth.opcode",
    ];
    let v6 = IpHeader::V6 {
        source: [0xfd00, 0, 0, 0, 0, 0, 0, 1].into(),
        destination: [0xfd00, 0, 0, 0, 0, 0, 0, 2].into(),
    };
    for (name, ip) in [("v4", flow(ANY_PORT).ip), ("v6", v6)] {
        let flow = Flow { ip, ..flow(ANY_PORT) };
        let right = datagram(IcrcCoverage::Prefix, &[7; 5_001], &flow);
        let with_flip = |byte: usize| {
            let mut damaged = right.clone();
            damaged[byte] ^= 0x10;
            capture::network_packet(&flow, &damaged)
        };
        let packets = [
            capture::network_packet(&flow, &right),
            with_flip(127),
            with_flip(128),
            packet(IcrcCoverage::Nothing, &[7; 5_000], &flow),
            packet(IcrcCoverage::Full, &[7; 5_000], &flow),
        ];
        let rows = tshark::read_with_dissector(&format!("short_icrc_{name}"), &packets, &columns);
        let ours = |coverage, status| {
            let [opcode, number, sequence] = ["0x04", "0x123456", "2748"];
            columns.into_iter().zip([opcode, number, sequence, coverage, status]).collect::<Vec<_>>()
        };
        let (bad, good, absent) = ("0", "1", "3");
        assert_columns(&rows[0], &ours("1", good));
        let warning = [("_ws.expert.message", "Wrong ICRC")];
        assert_columns(&rows[1], &[ours("1", bad), warning.to_vec()].concat());
        assert_columns(&rows[2], &ours("1", good)); // Not covered; the checksum of the message is.
        assert_columns(&rows[3], &ours("2", absent));
        // The same ports, so Pleach's, and RoCEv2.
        assert_columns(&rows[4], &[("infiniband.bth.opcode", "4")]);
    }
}

#[test]
fn tshark_reads_every_header_of_packets_without_full_icrc() {
    let flow = flow(ANY_PORT);
    let number = QpNumber(5);
    let mut write = PacketHeaders::from(Bth::new(Opcode::WriteOnlyWithImmediate, number, Psn::new(1)));
    write.reth = Some(Reth { address: 1 << 40, key: RemoteKey(7), length_bytes: 6 });
    write.immediate = Some(Immediate(0x99));
    let mut missing = PacketHeaders::from(Bth::new(Opcode::SelectiveAcknowledge, number, Psn::new(2)));
    missing.aeth = Some(Aeth { syndrome: Syndrome::Nak { cause: NakCause::PsnSequence }, message_sequence: 8 });
    missing.sack = Some(SackBitmap(5));
    let mut probe = PacketHeaders::from(Bth::new(Opcode::Probe, number, Psn::new(3)));
    probe.probe_token = Some(ProbeToken(0x1234));
    let packets = [(write, &b"abcdef"[..]), (missing, b""), (probe, b"")].map(|(mut headers, payload)| {
        headers.bth.coverage = IcrcCoverage::Nothing;
        capture::network_packet(&flow, &encode(&headers, payload, &flow))
    });
    let columns = [
        "pleach.bth.opcode",
        "pleach.reth.va",
        "pleach.reth.r_key",
        "pleach.reth.dmalen",
        "pleach.immdt",
        "pleach.payload",
        "pleach.aeth.msn",
        "pleach.sack",
        "pleach.probe_token",
    ];
    let rows = tshark::read_with_dissector("uncovered_headers", &packets, &columns);
    assert_columns(
        &rows[0],
        &[
            ("pleach.bth.opcode", "0x0b"),
            ("pleach.reth.va", "0x0000010000000000"),
            ("pleach.reth.r_key", "0x00000007"),
            ("pleach.reth.dmalen", "6"),
            ("pleach.immdt", "0x00000099"),
            ("pleach.payload", "616263646566"),
        ],
    );
    let sack = ("pleach.sack", "0x0000000000000005");
    assert_columns(&rows[1], &[("pleach.bth.opcode", "0xc1"), ("pleach.aeth.msn", "8"), sack]);
    assert_columns(&rows[2], &[("pleach.bth.opcode", "0xc2"), ("pleach.probe_token", "0x0000000000001234")]);
}

/// Two Pleach ends that have agreed on a shortened ICRC use it, but not at the port of RoCEv2.
#[test]
fn tshark_reads_whole_icrcs_at_the_port_of_roce_and_shortened_ones_elsewhere() {
    let columns = ["infiniband.bth.tver", "infiniband.bth.opcode", "pleach.icrc.status", "pleach.icrc.coverage"];
    let of_long_messages = |network, port| {
        let rows =
            tshark::read_with_dissector(&format!("live_long_{port}"), &live::long_messages(network, port), &columns);
        rows.into_iter().filter(|row| !row.contains_key("_ws.malformed")).collect::<Vec<_>>()
    };
    let at_roce = of_long_messages(3, UDP_PORT);
    let sends = at_roce.iter().filter(|row| row.get("infiniband.bth.opcode").is_some_and(|opcode| opcode == "4"));
    assert!(sends.count() >= 10, "{at_roce:?}");
    assert!(at_roce.iter().all(|row| row["infiniband.bth.tver"] == "0"), "{at_roce:?}");
    let elsewhere = of_long_messages(4, ANY_PORT);
    let shortened =
        elsewhere.iter().filter(|row| row.get("pleach.icrc.coverage").is_some_and(|number| number == "1"));
    assert!(shortened.clone().count() >= 10, "{elsewhere:?}");
    assert!(shortened.clone().all(|row| row["pleach.icrc.status"] == "1"), "{elsewhere:?}");
}

#[test]
fn tshark_reads_aggregation_messages_inside_packets() {
    let header = AggregationHeader {
        kind: AggregationMessageKind::Contribution,
        element: ElementCode(3),
        operator: OperatorCode(1),
        flags: 0,
        group: GroupId(9),
        epoch: Epoch(2),
        operation: OpId(5),
        segment: SegmentIndex(6),
        child: ChildIndex(7),
        element_count: 4,
        detail: 0,
    };
    let payload = [8; 16];
    let mut message = vec![0; 32];
    header.emit(&payload, &mut message);
    message.extend(payload);
    let columns = [
        "pleach_aggregation.kind",
        "pleach_aggregation.element",
        "pleach_aggregation.operator",
        "pleach_aggregation.group",
        "pleach_aggregation.epoch",
        "pleach_aggregation.operation",
        "pleach_aggregation.segment",
        "pleach_aggregation.child",
        "infiniband.bth.opcode",
    ];
    let rows = tshark::read_with_dissector(
        "aggregation",
        &[packet(IcrcCoverage::Full, &message, &flow(UDP_PORT))],
        &columns,
    );
    let values = ["1", "3", "1", "9", "2", "5", "6", "7", "4"];
    assert_columns(&rows[0], &columns.into_iter().zip(values).collect::<Vec<_>>());
}
