//! Measures how long emitting and verifying a packet with 256 bytes of payload takes, in both framings; on IP also 4
//! KiB.
//!
//! `cargo run --release -p pleach-wire --example packet_speed`

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use units::{ChildIndex, Epoch, GroupId, Lid, OpId, Psn, QpNumber, SegmentIndex};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};
use wire::link_frame::{LinkFrame, rewrite_vcrc, verify_vcrc};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader, UDP_PORT};
use wire::{Bth, Lrh, Opcode, Packet, ServiceLevel, VirtualLane};

/// The median over batches of the mean time of one call.
fn measure(what: &str, mut work: impl FnMut()) {
    const CALLS: u32 = 20_000;
    let mut batches: Vec<f64> = (0..21)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| work());
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    println!("{what:32} {:7.1} ns  (fastest {:.1}, slowest {:.1})", batches[10], batches[0], batches[20]);
}

fn main() {
    let payload: Vec<u8> = (0..=255).collect();
    let packet = Packet::new(Bth::new(Opcode::SendOnly, QpNumber(17), Psn::new(1)), &payload);
    let lrh = Lrh::new(Lid(1), Lid(2), ServiceLevel(0), VirtualLane(0));
    let frame = LinkFrame::new(lrh, None, packet);
    let mut bytes = vec![0; frame.size()];
    measure("local: emit", || {
        black_box(black_box(&frame).emit(&mut bytes));
    });
    measure("local: verify link (a switch)", || {
        black_box(verify_vcrc(black_box(&bytes))).unwrap();
    });
    measure("local: verify all (an end node)", || {
        black_box(LinkFrame::verify(black_box(&bytes))).unwrap();
    });
    measure("local: rewrite link check", || rewrite_vcrc(black_box(&mut bytes)).unwrap());

    let [source, destination] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    let fragmentation = Fragmentation::Forbidden;
    let ip = IpHeader::V4 { source, destination, identification: 0, fragmentation };
    let flow = Flow { ip, source_port: 49_152, destination_port: UDP_PORT };
    let large: Vec<u8> = (0..4096u32).map(|index| index as u8).collect();
    for payload in [&payload, &large] {
        let packet = Packet::new(Bth::new(Opcode::SendOnly, QpNumber(17), Psn::new(1)), payload);
        let mut datagram = vec![0; packet.size()];
        measure(&format!("rocev2: emit {} bytes", payload.len()), || {
            black_box(rocev2::emit(black_box(&packet), &flow, &mut datagram));
        });
        measure(&format!("rocev2: verify {} bytes", payload.len()), || {
            black_box(rocev2::verify(black_box(&datagram), &flow)).unwrap();
        });
    }

    let header = AggregationHeader {
        kind: AggregationMessageKind::Contribution,
        element: ElementCode(11),
        operator: OperatorCode(1),
        flags: 0,
        group: GroupId(1),
        epoch: Epoch(2),
        operation: OpId(3),
        segment: SegmentIndex(4),
        child: ChildIndex(5),
        element_count: 64,
        detail: 0,
    };
    let mut message = Vec::new();
    header.append_to(&payload, &mut message);
    measure("aggregation: emit header", || black_box(&header).emit(&payload, &mut message));
    measure("aggregation: verify", || {
        black_box(AggregationHeader::verify(black_box(&message))).unwrap();
    });
}
