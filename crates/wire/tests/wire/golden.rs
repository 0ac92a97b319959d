//! Golden bytes from other implementations: an InfiniBand sample packet, and packets made by scapy.

use std::net::{Ipv4Addr, Ipv6Addr};

use units::{Lid, Psn, QpNumber};
use wire::link_frame::{LinkFrame, verify_icrc, verify_vcrc};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader, UDP_PORT};
use wire::{
    Aeth, Bth, CreditCode, Deth, Gid, Grh, Immediate, Lrh, NakCause, Opcode, Packet, PacketHeaders, PartitionKey,
    ProbeToken, QueueKey, RemoteKey, Reth, SackBitmap, ServiceLevel, Syndrome, VirtualLane,
};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The payload of the sample packet: 14 bytes and two of padding.
const SAMPLE_PAYLOAD: [u8; 14] = [0xbb, 0x88, 0x4d, 0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72, 0x8b, 0xc0, 0x69, 0x0e, 0xd4];

fn sample_packet() -> Packet<'static> {
    let bth = Bth {
        partition: PartitionKey(0x2487),
        ..Bth::new(Opcode::WriteOnly, QpNumber(0x87_b1b3), Psn::new(0x0d_ec2a))
    };
    let reth = Reth { address: 0x0171_0a1c_015d_4002, key: RemoteKey(0x38f2_7a05), length_bytes: 14 };
    Packet::new(PacketHeaders { reth: Some(reth), ..bth.into() }, &SAMPLE_PAYLOAD)
}

fn sample_route() -> Lrh {
    Lrh::new(Lid(0x17d2), Lid(0x375c), ServiceLevel(1), VirtualLane(7))
}

#[track_caller]
fn frame_is(frame: &LinkFrame<'_>, expected: &[u8]) {
    let mut emitted = Vec::new();
    frame.append_to(&mut emitted);
    assert_eq!(emitted, expected);
    assert_eq!(LinkFrame::verify(expected).as_ref(), Ok(frame));
    assert_eq!(verify_vcrc(expected), Ok(frame.lrh));
    assert_eq!(verify_icrc(expected), Ok(()));
}

#[test]
fn the_sample_packet_has_its_crcs() {
    // From Mellanox's packet generator (OpenIB, 2004), which tests its ICRC with it. It gives no VCRC; this one comes
    // from an independent bitwise computation.
    let expected = bytes(
        "7012375C 000E17D2  0A202487 0087B1B3 000DEC2A  01710A1C 015D4002 38F27A05 0000000E
         BB884D85 FD5CFBA4 728BC069 0ED40000  9625B75A  45FA",
    );
    frame_is(&LinkFrame::new(sample_route(), None, sample_packet()), &expected);
}

#[test]
fn the_icrc_of_a_packet_with_a_grh_excludes_the_lrh() {
    // CRCs from an independent bitwise computation that masks the whole LRH, as the generator does.
    let expected = bytes(
        "7013375c 001817d2  60000000 00301b10 0000000000000125 0000000000000026 0000000000000117 0000000000000096
         0a202487 0087b1b3 000dec2a  01710a1c 015d4002 38f27a05 0000000e  bb884d85 fd5cfba4 728bc069 0ed40000
         adbf9e56  e971",
    );
    let gid = |high: u64, low: u64| {
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&high.to_be_bytes());
        gid[8..].copy_from_slice(&low.to_be_bytes());
        Gid(gid)
    };
    let grh = Grh { hop_limit: 0x10, source: gid(0x125, 0x26), destination: gid(0x117, 0x96), ..Grh::default() };
    frame_is(&LinkFrame::new(sample_route(), Some(grh), sample_packet()), &expected);
}

fn v4(source: [u8; 4], destination: [u8; 4], identification: u16, source_port: u16) -> Flow {
    Flow {
        ip: IpHeader::V4 {
            source: Ipv4Addr::from(source),
            destination: Ipv4Addr::from(destination),
            identification,
            fragmentation: Fragmentation::Forbidden,
        },
        source_port,
        destination_port: UDP_PORT,
    }
}

#[track_caller]
fn datagram_is(packet: Packet<'_>, flow: &Flow, expected: &str) {
    let expected = bytes(expected);
    let mut emitted = vec![0; packet.size()];
    assert_eq!(rocev2::emit(&packet, flow, &mut emitted), emitted.len());
    assert_eq!(emitted, expected);
    assert_eq!(rocev2::verify(&expected, flow), Ok(packet));
}

// The datagrams below were made by scapy 2.8, scapy.contrib.roce.

#[test]
fn a_send_matches_scapy() {
    let bth = Bth {
        solicited_event: true,
        migrated: true,
        acknowledge: true,
        ..Bth::new(Opcode::SendOnly, QpNumber(0x11), Psn::new(0xab_cdef))
    };
    datagram_is(
        Packet::new(bth, b"pleach 13 byt"),
        &v4([10, 0, 0, 1], [10, 0, 0, 2], 0x1234, 49_152),
        "04f0ffff0000001180abcdef 706c6561636820313320627974 000000 a3dda6b8",
    );
}

#[test]
fn an_acknowledgement_matches_scapy() {
    let bth = Bth {
        partition: PartitionKey(0x8001),
        ..Bth::new(Opcode::Acknowledge, QpNumber(0xfe_dcba), Psn::new(0xab_cdef))
    };
    let aeth = Aeth { syndrome: Syndrome::Ack { credits: CreditCode::UNLIMITED }, message_sequence: 0x102 };
    datagram_is(
        Packet::new(PacketHeaders { aeth: Some(aeth), ..bth.into() }, b""),
        &v4([10, 0, 0, 2], [10, 0, 0, 1], 0, UDP_PORT),
        "1100800100fedcba00abcdef 1f000102 589a9275",
    );
}

#[test]
fn a_nak_with_becn_and_fecn_matches_scapy() {
    let bth = Bth { fecn: true, becn: true, ..Bth::new(Opcode::Acknowledge, QpNumber(3), Psn::new(0xff_ffff)) };
    let syndrome = Syndrome::Nak { cause: NakCause::PsnSequence };
    let aeth = Aeth { syndrome, message_sequence: 0xff_ffff };
    let mut flow = v4([192, 168, 7, 9], [192, 168, 7, 10], 65_535, 50_000);
    if let IpHeader::V4 { fragmentation, .. } = &mut flow.ip {
        *fragmentation = Fragmentation::Allowed;
    }
    datagram_is(
        Packet::new(PacketHeaders { aeth: Some(aeth), ..bth.into() }, b""),
        &flow,
        "1100ffffc000000300ffffff 60ffffff 8c63732f",
    );
}

#[test]
fn a_multicast_datagram_with_immediate_data_matches_scapy() {
    let bth = Bth::new(Opcode::DatagramSendOnlyWithImmediate, QpNumber(0xff_ffff), Psn::new(5));
    let deth = Deth { key: QueueKey(0x1111_1111), source: QpNumber(0x12_3456) };
    let immediate = Immediate(0xcafe_f00d);
    datagram_is(
        Packet::new(
            PacketHeaders { deth: Some(deth), immediate: Some(immediate), ..bth.into() },
            &[0, 1, 2, 3, 4, 5, 6, 7],
        ),
        &v4([10, 1, 2, 3], [239, 1, 1, 1], 7, 60_001),
        "6500ffff00ffffff00000005 1111111100123456 cafef00d 0001020304050607 96c825dd",
    );
}

#[test]
fn a_write_of_256_bytes_matches_scapy() {
    let bth = Bth { becn: true, ..Bth::new(Opcode::WriteOnly, QpNumber(0x22), Psn::new(0)) };
    let reth = Reth { address: 0x7f00_0000_1000, key: RemoteKey(0xdead_beef), length_bytes: 256 };
    let payload: Vec<u8> = (0..=255).collect();
    let payload_hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    datagram_is(
        Packet::new(PacketHeaders { reth: Some(reth), ..bth.into() }, &payload),
        &v4([10, 0, 0, 1], [10, 0, 0, 2], 9, 49_153),
        &format!("0a00ffff4000002200000000 00007f0000001000deadbeef00000100 {payload_hex} ab3a9036"),
    );
}

#[test]
fn a_send_over_ipv6_matches_scapy() {
    // An independent bitwise computation gave the same ICRC as scapy.
    let bth = Bth { becn: true, acknowledge: true, ..Bth::new(Opcode::SendOnly, QpNumber(0x77), Psn::new(1)) };
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let ip = IpHeader::V6 { source: address("fd00::1"), destination: address("fd00::2:3") };
    datagram_is(
        Packet::new(bth, b"abc"),
        &Flow { ip, source_port: 0xc001, destination_port: UDP_PORT },
        "0410ffff4000007780000001 616263 00 686d8f14",
    );
}

// scapy treats everything after the BTH of Pleach's own packets as opaque bytes; it computed the CRCs.

#[test]
fn a_selective_acknowledgement_has_the_documented_layout() {
    let bth = Bth::new(Opcode::SelectiveAcknowledge, QpNumber(0x11), Psn::new(0xff_fffe));
    let nak = Syndrome::Nak { cause: NakCause::PsnSequence };
    let aeth = Aeth { syndrome: nak, message_sequence: 0x01_0203 };
    let sack = SackBitmap(0x8000_0000_0000_0005);
    datagram_is(
        Packet::new(PacketHeaders { aeth: Some(aeth), sack: Some(sack), ..bth.into() }, &[]),
        &v4([10, 0, 0, 1], [10, 0, 0, 2], 0, 49_152),
        "c100ffff0000001100fffffe 60010203 8000000000000005 2ef335d8",
    );
}

#[test]
fn a_probe_and_its_reply_have_the_documented_layout() {
    let probe_token = Some(ProbeToken(0x0123_4567_89ab_cdef));
    let probe = Bth { migrated: true, ..Bth::new(Opcode::Probe, QpNumber(0x11), Psn::new(7)) };
    datagram_is(
        Packet::new(PacketHeaders { probe_token, ..probe.into() }, &[]),
        &v4([10, 0, 0, 1], [10, 0, 0, 2], 0, 49_152),
        "c240ffff0000001100000007 0123456789abcdef 45ff8007",
    );
    let reply = Bth::new(Opcode::ProbeReply, QpNumber(0x12), Psn::new(7));
    datagram_is(
        Packet::new(PacketHeaders { probe_token, ..reply.into() }, &[]),
        &v4([10, 0, 0, 2], [10, 0, 0, 1], 0, 49_153),
        "c300ffff0000001200000007 0123456789abcdef dd85b602",
    );
}
