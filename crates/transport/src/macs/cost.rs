//! What MACs cost the packets of an operation, against a public checksum in their place: `cargo test --release -p pleach-transport --lib
//! what_macs_cost -- --ignored --nocapture` prints it. The checks of pointers in test builds make the MACs three times as slow.

use std::hint::black_box;
use std::time::Instant;

use checksum::Algorithm;
use manager::AuthKey;
use units::{Psn, QpNumber};
use wire::transfer::{CONSTANT_BYTES, HEADER_BYTES};
use wire::{Bth, Opcode};

use super::{EdgeDirection, EdgeSide, KeyedMacs, TransferMac};

/// What a packet of a network with an MTU of 1,500 bytes carries.
const PACKET_BYTES: usize = 1_400;

/// The median of 31 batches, in microseconds, with the fastest and the slowest.
fn time(mut work: impl FnMut()) -> [f64; 3] {
    const ROUNDS: u32 = 40;
    let mut times: Vec<f64> = (0..31)
        .map(|_| {
            let began = Instant::now();
            (0..ROUNDS).for_each(|_| work());
            began.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[15], times[0], times[30]]
}

/// Of packets that one end sends or receives, on one thread: twice the difference is what a rank pays for as many bytes in both directions.
#[test]
#[ignore = "measures times: run it alone on a quiet machine"]
fn what_macs_cost_an_operation() {
    let macs = KeyedMacs::new(AuthKey([7; 16]));
    let direction = EdgeDirection::outgoing(QpNumber(5), QpNumber(6), EdgeSide::Child);
    let bth = Bth::new(Opcode::SendOnly, QpNumber(5), Psn::new(9));
    println!("bytes      parts  MACs us (fastest to slowest)  CRC-32C us (fastest to slowest)  difference us");
    let report = |bytes: usize, parts: usize, mac: [f64; 3], crc: [f64; 3]| {
        let shown = |[median, fastest, slowest]: [f64; 3]| format!("{median:8.3} ({fastest:.3} to {slowest:.3})");
        println!("{bytes:<9}  {parts:>5}  {:<28}  {:<31}  {:+.3}", shown(mac), shown(crc), mac[0] - crc[0]);
    };
    for bytes in [8, 4 << 10] {
        let payload = vec![3_u8; bytes];
        let header = [1; 32];
        let mac = time(|| {
            black_box(macs.message(direction, &bth, black_box(&header), black_box(&payload)));
        });
        let crc = time(|| {
            black_box(checksum::value(Algorithm::Crc32c, black_box(&payload)));
        });
        report(bytes, 1, mac, crc);
    }
    let header = [1; HEADER_BYTES];
    let of_headers = TransferMac::new(&macs, direction, &header[CONSTANT_BYTES]);
    for bytes in [64 << 10, 1 << 20] {
        let payload = vec![3_u8; bytes];
        let mac = time(|| {
            for part in payload.chunks(PACKET_BYTES) {
                black_box((macs.payload(black_box(part)), of_headers.of(black_box(&header))));
            }
        });
        let crc = time(|| {
            for part in payload.chunks(PACKET_BYTES) {
                black_box(checksum::value(Algorithm::Crc32c, black_box(part)));
            }
        });
        report(bytes, bytes.div_ceil(PACKET_BYTES), mac, crc);
    }
}
