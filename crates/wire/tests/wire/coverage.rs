//! Packets whose ICRC does not cover all of them: what is detected, and that nothing takes them for RoCEv2 (P-28, P-103).

use proptest::prelude::*;
use units::{Lid, Psn, QpNumber};
use wire::link_frame::LinkFrame;
use wire::rocev2::{self, Flow, Fragmentation, IpHeader, UDP_PORT};
use wire::{
    Bth, HeaderName, IcrcCoverage, Lrh, Opcode, Packet, PacketCrc, PacketError, PacketHeaders, ParseError,
    ServiceLevel, VirtualLane,
};

use crate::arbitrary;

const WEAKER: [IcrcCoverage; 2] = [IcrcCoverage::Prefix, IcrcCoverage::Nothing];

fn datagram(packet: &Packet<'_>, flow: &Flow) -> Vec<u8> {
    let mut bytes = vec![0xa5; packet.size()];
    rocev2::emit(packet, flow, &mut bytes);
    bytes
}

fn unknown_version(coverage: IcrcCoverage) -> ParseError {
    ParseError::UnknownVersion { header: HeaderName::Bth, version: coverage as u8 }
}

proptest! {
    #[test]
    fn a_partial_icrc_detects_flipped_bits_in_its_prefix_only(
        (mut headers, payload) in arbitrary::connection_content(), flow in arbitrary::private_flow(),
    ) {
        headers.bth.coverage = IcrcCoverage::Prefix;
        let packet = Packet::new(headers, &payload);
        let mut bytes = datagram(&packet, &flow);
        prop_assert_eq!(rocev2::parse_at_least(&bytes, IcrcCoverage::Prefix), Ok(packet));
        let code = bytes.len() - 4; // The ICRC follows the padding, which is covered as far as it lies in the prefix.
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let is_covered = bit / 8 < 128 || bit / 8 >= code;
            let expected = if bit / 8 == 4 || !is_covered { Ok(()) } else { Err(PacketError::Physical(PacketCrc::Icrc)) };
            prop_assert_eq!(rocev2::verify_icrc_at_least(&bytes, &flow, IcrcCoverage::Prefix), expected, "bit {}", bit);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Also one that looks at the opcode alone, or at the version alone.
    #[test]
    fn a_strict_decoder_rejects_packets_with_a_shortened_icrc(
        (mut headers, payload) in arbitrary::connection_content(), flow in arbitrary::private_flow(),
        coverage in prop::sample::select(&WEAKER[..]),
    ) {
        headers.bth.coverage = coverage;
        let packet = Packet::new(headers, &payload);
        let mut bytes = datagram(&packet, &flow);
        prop_assert_eq!(rocev2::parse(&bytes), Err(unknown_version(coverage)));
        prop_assert!(rocev2::verify(&bytes, &flow).is_err());
        let mut frame = Vec::new();
        LinkFrame { lrh: Lrh::new(Lid(1), Lid(2), ServiceLevel(0), VirtualLane(0)), grh: None, packet }.append_to(&mut frame);
        prop_assert!(LinkFrame::verify(&frame).is_err(), "an InfiniBand link knows no such packets");
        bytes[1] &= 0xf0;
        prop_assert!(bytes[0] >= 0xc0, "the opcode {:#x} is not a manufacturer's", bytes[0]);
        if headers.bth.opcode.code() < 0xc0 {
            prop_assert_eq!(rocev2::parse(&bytes), Err(ParseError::UnknownOpcode(bytes[0])));
        }
    }

    #[test]
    fn only_what_the_ends_agreed_on_is_accepted(
        (mut headers, payload) in arbitrary::connection_content(), flow in arbitrary::private_flow(),
    ) {
        let all = [IcrcCoverage::Full, IcrcCoverage::Prefix, IcrcCoverage::Nothing];
        for (strength, coverage) in all.into_iter().enumerate() {
            headers.bth.coverage = coverage;
            let packet = Packet::new(headers, &payload);
            let bytes = datagram(&packet, &flow);
            for (allowed, weakest) in all.into_iter().enumerate() {
                let expected = if strength <= allowed { Ok(packet) } else { Err(unknown_version(coverage)) };
                prop_assert_eq!(rocev2::parse_at_least(&bytes, weakest), expected);
                if strength <= allowed {
                    prop_assert_eq!(rocev2::verify_icrc_at_least(&bytes, &flow, weakest), Ok(()));
                }
            }
        }
    }
}

#[test]
fn an_unknown_version_is_rejected() {
    let packet = Packet::new(Bth::new(Opcode::SendOnly, QpNumber(1), Psn::new(2)), b"payload");
    let mut bytes = datagram(&packet, &flow(40_000, 50_000));
    bytes[1] |= 3;
    let error = ParseError::UnknownVersion { header: HeaderName::Bth, version: 3 };
    assert_eq!(rocev2::parse_at_least(&bytes, IcrcCoverage::Nothing), Err(error));
}

#[test]
fn a_shortened_icrc_is_never_sent_to_or_from_the_port_of_rocev2() {
    for coverage in WEAKER {
        for (source, destination) in [(UDP_PORT, 40_000), (40_000, UDP_PORT)] {
            let emitted = std::panic::catch_unwind(|| {
                let mut headers = PacketHeaders::from(Bth::new(Opcode::SendOnly, QpNumber(1), Psn::new(2)));
                headers.bth.coverage = coverage;
                datagram(&Packet::new(headers, b"payload"), &flow(source, destination))
            });
            assert!(emitted.is_err(), "{coverage:?} from {source} to {destination}");
        }
    }
}

fn flow(source_port: u16, destination_port: u16) -> Flow {
    let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let ip = IpHeader::V4 { source, destination, identification: 0, fragmentation: Fragmentation::Forbidden };
    Flow { ip, source_port, destination_port }
}
