//! Packets that are not RoCEv2, as tshark reads them with the project's dissector, contrib/pleach.lua.

use std::collections::BTreeMap;

use units::{ChildIndex, Epoch, GroupId, OpId, Psn, QpNumber, SegmentIndex};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader, UDP_PORT};
use wire::transfer::{self, HEADER_BYTES, TransferHeader, TransferName, TransferPacketKind};
use wire::{Bth, IcrcCoverage, Opcode, PacketHeaders};

use crate::{capture, tshark};

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

/// A packet with a payload, and an ICRC that covers this much.
fn packet(coverage: IcrcCoverage, payload: &[u8]) -> Vec<u8> {
    let mut headers = PacketHeaders::from(Bth::new(Opcode::SendOnly, QpNumber(0x12_3456), Psn::new(2748)));
    headers.bth.coverage = coverage;
    let mut datagram = vec![0; headers.size_with(payload.len())];
    let flow = flow(UDP_PORT);
    let length = rocev2::emit_vectored(&headers, [payload, &[]], &flow, &mut datagram);
    capture::network_packet(&flow, &datagram[..length])
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

#[test]
fn tshark_takes_a_packet_with_a_shortened_icrc_for_no_roce_packet() {
    let columns = ["pleach.bth.opcode", "pleach.bth.destqp", "pleach.bth.psn", "infiniband.bth.opcode"];
    let payload = vec![7; 5_000];
    let packets = [packet(IcrcCoverage::Prefix, &payload), packet(IcrcCoverage::Full, &payload)];
    let rows = tshark::read_with_dissector("short_icrc", &packets, &columns);
    let ours = [("pleach.bth.opcode", "0x04"), ("pleach.bth.destqp", "0x123456"), ("pleach.bth.psn", "2748")];
    assert_columns(&rows[0], &ours);
    assert_columns(&rows[1], &[("infiniband.bth.opcode", "4")]);
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
    let rows = tshark::read_with_dissector("aggregation", &[packet(IcrcCoverage::Full, &message)], &columns);
    let values = ["1", "3", "1", "9", "2", "5", "6", "7", "4"];
    assert_columns(&rows[0], &columns.into_iter().zip(values).collect::<Vec<_>>());
}
