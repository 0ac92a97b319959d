//! The responsible CRC, and no other, detects every single flipped bit.

use proptest::prelude::*;
use wire::aggregation::{AggregationHeader, AggregationParseError};
use wire::link_frame::{self, LinkFrame, rewrite_vcrc, set_fecn, set_virtual_lane, verify_icrc, verify_vcrc};
use wire::{Packet, PacketCrc, PacketError, ParseError, VirtualLane, rocev2};

use crate::arbitrary;

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 0x80 >> (bit % 8);
}

/// True if switches or routers may change the bit (IB specification, figures of 7.8.1).
fn is_mutable(bit: usize, has_global_route: bool) -> bool {
    let byte = bit / 8;
    if !has_global_route {
        return bit < 4 || byte == 8 + 4;
    }
    let (global, transport) = (8, 48);
    byte < 8 || (global * 8 + 4..global * 8 + 32).contains(&bit) || byte == global + 7 || byte == transport + 4
}

/// True if the bit determines how the frame is parsed: version, next header, length of the LRH.
fn determines_parsing(bit: usize) -> bool {
    matches!(bit, 4..8 | 14..16 | 37..48)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_vcrc_detects_every_flipped_bit_of_a_frame(
        (headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route(),
    ) {
        let mut bytes = Vec::new();
        LinkFrame::new(lrh, grh, Packet::new(headers, &payload)).append_to(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            flip(&mut bytes, bit);
            prop_assert_eq!(verify_vcrc(&bytes), Err(PacketError::Physical(PacketCrc::Vcrc)), "bit {}", bit);
            prop_assert_eq!(LinkFrame::verify(&bytes), Err(PacketError::Physical(PacketCrc::Vcrc)), "bit {}", bit);
            flip(&mut bytes, bit);
        }
    }

    #[test]
    fn the_icrc_detects_every_bit_flipped_inside_a_switch_except_in_mutable_fields(
        (headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route(),
    ) {
        let mut bytes = Vec::new();
        LinkFrame::new(lrh, grh, Packet::new(headers, &payload)).append_to(&mut bytes);
        for bit in 0..(bytes.len() - 2) * 8 {
            flip(&mut bytes, bit);
            rewrite_vcrc(&mut bytes).unwrap();
            let verdict = verify_icrc(&bytes);
            if determines_parsing(bit) {
                prop_assert!(verdict.is_err(), "bit {}", bit);
                prop_assert!(LinkFrame::verify(&bytes).is_err(), "bit {}", bit);
            } else if is_mutable(bit, grh.is_some()) {
                prop_assert_eq!(verdict, Ok(()), "bit {}", bit);
                let frame = LinkFrame::verify(&bytes).unwrap();
                prop_assert_eq!(frame.packet.payload, &payload[..]);
            } else {
                prop_assert_eq!(verdict, Err(PacketError::Physical(PacketCrc::Icrc)), "bit {}", bit);
            }
            flip(&mut bytes, bit);
        }
    }

    #[test]
    fn the_icrc_detects_every_flipped_bit_of_a_datagram_except_in_mutable_fields(
        (headers, payload) in arbitrary::content(), flow in arbitrary::flow(),
    ) {
        let packet = Packet::new(headers, &payload);
        let mut bytes = vec![0; packet.size()];
        rocev2::emit(&packet, &flow, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            flip(&mut bytes, bit);
            let expected = if bit / 8 == 4 { Ok(()) } else { Err(PacketError::Physical(PacketCrc::Icrc)) };
            prop_assert_eq!(rocev2::verify_icrc(&bytes, &flow), expected, "bit {}", bit);
            flip(&mut bytes, bit);
        }
    }

    #[test]
    fn the_icrc_detects_a_misdelivered_datagram(
        (headers, payload) in arbitrary::content(), flow in arbitrary::flow(), other in arbitrary::flow(),
    ) {
        prop_assume!(flow != other);
        let packet = Packet::new(headers, &payload);
        let mut bytes = vec![0; packet.size()];
        rocev2::emit(&packet, &flow, &mut bytes);
        prop_assert_eq!(rocev2::verify(&bytes, &other), Err(PacketError::Physical(PacketCrc::Icrc)));
    }

    #[test]
    fn the_crc_detects_every_flipped_bit_of_an_aggregation_message(
        header in arbitrary::aggregation(), payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut message = Vec::new();
        header.append_to(&payload, &mut message);
        for bit in 0..message.len() * 8 {
            flip(&mut message, bit);
            prop_assert_eq!(AggregationHeader::verify(&message), Err(AggregationParseError::Corrupt), "bit {}", bit);
            flip(&mut message, bit);
        }
    }

    #[test]
    fn frames_stay_valid_after_switches_change_lane_and_congestion(
        (headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route(), lane in 0u8..16,
    ) {
        let sent = LinkFrame::new(lrh, grh, Packet::new(headers, &payload));
        let mut bytes = Vec::new();
        sent.append_to(&mut bytes);
        set_virtual_lane(&mut bytes, VirtualLane(lane)).unwrap();
        set_fecn(&mut bytes).unwrap();
        let mut expected = sent;
        expected.lrh.lane = VirtualLane(lane);
        expected.packet.headers.bth.fecn = true;
        prop_assert_eq!(LinkFrame::verify(&bytes), Ok(expected));
    }

    #[test]
    fn every_switch_rejects_a_stomped_frame(
        (headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route(),
    ) {
        let mut bytes = Vec::new();
        LinkFrame::new(lrh, grh, Packet::new(headers, &payload)).append_to(&mut bytes);
        link_frame::stomp_vcrc(&mut bytes).unwrap();
        prop_assert_eq!(verify_vcrc(&bytes), Err(PacketError::Physical(PacketCrc::Vcrc)));
    }
}

#[test]
fn intact_frames_with_invalid_contents_are_malformed() {
    let nothing = PacketError::Malformed(ParseError::TooShort { needed: 2, given: 0 });
    assert_eq!(verify_vcrc(&[]), Err(nothing));
    // All zeros would be a raw packet. With a matching VCRC it is intact, but still not a packet.
    let mut raw = [0; 26];
    rewrite_vcrc(&mut raw).unwrap();
    assert!(matches!(verify_vcrc(&raw), Err(PacketError::Malformed(ParseError::UnknownNextHeader { .. }))));
    raw[1] = 0b10;
    rewrite_vcrc(&mut raw).unwrap();
    assert!(matches!(verify_vcrc(&raw), Err(PacketError::Malformed(ParseError::WrongLength { .. }))));
    raw[5] = 6;
    rewrite_vcrc(&mut raw).unwrap();
    assert!(verify_vcrc(&raw).is_ok());
    assert_eq!(verify_icrc(&raw), Err(PacketError::Physical(PacketCrc::Icrc)));
}
