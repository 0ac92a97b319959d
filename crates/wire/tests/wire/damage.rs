//! Every single flipped bit is found by the code that is there to find it, and by no other.

use proptest::prelude::*;
use units::Lid;
use wire::aggregation::{AggregationError, AggregationHeader};
use wire::local::{self, Frame, mark_congestion, move_to_lane, rewrite_link_check, verify_end_to_end, verify_link};
use wire::{Check, Coverage, FrameError, Lrh, Packet, ParseError, ServiceLevel, VirtualLane, rocev2};

use crate::arbitrary;

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 0x80 >> (bit % 8);
}

/// Whether switches or routers may change the bit, by the figures of the IB specification, 7.8.1.
fn may_change_on_the_way(bit: usize, has_global_route: bool) -> bool {
    let byte = bit / 8;
    if !has_global_route {
        return bit < 4 || byte == 8 + 4;
    }
    let (global, transport) = (8, 48);
    byte < 8 || (global * 8 + 4..global * 8 + 32).contains(&bit) || byte == global + 7 || byte == transport + 4
}

/// Whether the bit says how the frame is to be read: version, next header, length of the LRH.
fn shapes_the_frame(bit: usize) -> bool {
    matches!(bit, 4..8 | 14..16 | 37..48)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_flip_in_a_frame_is_found_by_the_vcrc(
        (headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route(),
    ) {
        let mut bytes = Vec::new();
        Frame::new(lrh, grh, Packet::new(headers, &payload)).append_to(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            flip(&mut bytes, bit);
            prop_assert_eq!(verify_link(&bytes), Err(FrameError::Physical(Check::Vcrc)), "bit {}", bit);
            prop_assert_eq!(Frame::verify(&bytes), Err(FrameError::Physical(Check::Vcrc)), "bit {}", bit);
            flip(&mut bytes, bit);
        }
    }

    #[test]
    fn each_flip_inside_a_switch_is_found_by_the_icrc_unless_switches_may_do_it(
        (headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route(),
    ) {
        let mut bytes = Vec::new();
        Frame::new(lrh, grh, Packet::new(headers, &payload)).append_to(&mut bytes);
        for bit in 0..(bytes.len() - 2) * 8 {
            flip(&mut bytes, bit);
            rewrite_link_check(&mut bytes).unwrap();
            let verdict = verify_end_to_end(&bytes);
            if shapes_the_frame(bit) {
                prop_assert!(verdict.is_err(), "bit {}", bit);
                prop_assert!(Frame::verify(&bytes).is_err(), "bit {}", bit);
            } else if may_change_on_the_way(bit, grh.is_some()) {
                prop_assert_eq!(verdict, Ok(()), "bit {}", bit);
                let frame = Frame::verify(&bytes).unwrap();
                prop_assert_eq!(frame.packet.payload, &payload[..]);
            } else {
                prop_assert_eq!(verdict, Err(FrameError::Physical(Check::Icrc)), "bit {}", bit);
            }
            flip(&mut bytes, bit);
        }
    }

    #[test]
    fn each_flip_in_a_datagram_is_found_by_the_icrc_unless_routers_may_do_it(
        (headers, payload) in arbitrary::content(), flow in arbitrary::flow(),
    ) {
        let packet = Packet::new(headers, &payload);
        let mut bytes = vec![0; packet.size()];
        rocev2::emit(&packet, &flow, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            flip(&mut bytes, bit);
            let expected = if bit / 8 == 4 { Ok(()) } else { Err(FrameError::Physical(Check::Icrc)) };
            prop_assert_eq!(rocev2::verify_end_to_end(&bytes, &flow), expected, "bit {}", bit);
            flip(&mut bytes, bit);
        }
    }

    #[test]
    fn a_check_of_the_beginning_finds_each_flip_there_and_none_beyond(
        (mut headers, payload) in arbitrary::content(), flow in arbitrary::flow(),
    ) {
        headers.bth.coverage = Coverage::Beginning;
        let packet = Packet::new(headers, &payload);
        let mut bytes = vec![0; packet.size()];
        rocev2::emit(&packet, &flow, &mut bytes);
        prop_assert_eq!(rocev2::verify(&bytes, &flow), Ok(packet));
        let code = bytes.len() - 4; // Behind padding, which counts where it stands at the beginning.
        for bit in 0..bytes.len() * 8 {
            flip(&mut bytes, bit);
            let is_covered = bit / 8 < 128 || bit / 8 >= code;
            let expected = if bit / 8 == 4 || !is_covered { Ok(()) } else { Err(FrameError::Physical(Check::Icrc)) };
            prop_assert_eq!(rocev2::verify_end_to_end(&bytes, &flow), expected, "bit {}", bit);
            flip(&mut bytes, bit);
        }
        let mut frame = Vec::new();
        Frame { lrh: Lrh::new(Lid(1), Lid(2), ServiceLevel(0), VirtualLane(0)), grh: None, packet }.append_to(&mut frame);
        prop_assert!(Frame::verify(&frame).is_err(), "an InfiniBand link knows no such packets");
    }

    #[test]
    fn a_datagram_that_went_astray_is_found_by_the_icrc(
        (headers, payload) in arbitrary::content(), flow in arbitrary::flow(), other in arbitrary::flow(),
    ) {
        prop_assume!(flow != other);
        let packet = Packet::new(headers, &payload);
        let mut bytes = vec![0; packet.size()];
        rocev2::emit(&packet, &flow, &mut bytes);
        prop_assert_eq!(rocev2::verify(&bytes, &other), Err(FrameError::Physical(Check::Icrc)));
    }

    #[test]
    fn each_flip_in_an_aggregation_message_is_found_by_its_code(
        header in arbitrary::aggregation(), payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut message = Vec::new();
        header.append_to(&payload, &mut message);
        for bit in 0..message.len() * 8 {
            flip(&mut message, bit);
            prop_assert_eq!(AggregationHeader::verify(&message), Err(AggregationError::Corrupt), "bit {}", bit);
            flip(&mut message, bit);
        }
    }

    #[test]
    fn what_switches_do_to_a_frame_harms_nothing(
        (headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route(), lane in 0u8..16,
    ) {
        let sent = Frame::new(lrh, grh, Packet::new(headers, &payload));
        let mut bytes = Vec::new();
        sent.append_to(&mut bytes);
        move_to_lane(&mut bytes, VirtualLane(lane)).unwrap();
        mark_congestion(&mut bytes).unwrap();
        let mut expected = sent;
        expected.lrh.lane = VirtualLane(lane);
        expected.packet.headers.bth.met_congestion = true;
        prop_assert_eq!(Frame::verify(&bytes), Ok(expected));
    }

    #[test]
    fn a_condemned_frame_is_good_at_no_switch(
        (headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route(),
    ) {
        let mut bytes = Vec::new();
        Frame::new(lrh, grh, Packet::new(headers, &payload)).append_to(&mut bytes);
        local::condemn(&mut bytes).unwrap();
        prop_assert_eq!(verify_link(&bytes), Err(FrameError::Physical(Check::Vcrc)));
    }
}

#[test]
fn frames_without_meaning_are_malformed_and_not_physical() {
    let nothing = FrameError::Malformed(ParseError::TooShort { needed: 2, given: 0 });
    assert_eq!(verify_link(&[]), Err(nothing));
    // All zeros would be a raw packet; with a fitting VCRC it is as it was sent, and still no packet.
    let mut raw = [0; 26];
    rewrite_link_check(&mut raw).unwrap();
    assert!(matches!(verify_link(&raw), Err(FrameError::Malformed(ParseError::UnknownNextHeader { .. }))));
    raw[1] = 0b10;
    rewrite_link_check(&mut raw).unwrap();
    assert!(matches!(verify_link(&raw), Err(FrameError::Malformed(ParseError::WrongLength { .. }))));
    raw[5] = 6;
    rewrite_link_check(&mut raw).unwrap();
    assert!(verify_link(&raw).is_ok());
    assert_eq!(verify_end_to_end(&raw), Err(FrameError::Physical(Check::Icrc)));
}
