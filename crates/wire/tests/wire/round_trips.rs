//! Emitted values parse to the same value; parsed bytes are emitted unchanged except for reserved bits.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::aggregation::AggregationHeader;
use wire::link_frame::{self, LinkFrame};
use wire::{
    Aeth, Bth, Deth, Grh, IcrcCoverage, Immediate, LinkNextHeader, Lrh, Packet, PacketHeaders, ProbeToken, Reth,
    SackBitmap, rocev2,
};

use crate::arbitrary;

/// Emits a header and parses it again from a longer buffer.
macro_rules! comes_back {
    ($value:expr, $type:ty) => {
        let mut buffer = [0xa5; <$type>::SIZE + 1];
        $value.emit(&mut buffer);
        prop_assert_eq!(<$type>::parse(&buffer), Ok($value));
        prop_assert_eq!(buffer[<$type>::SIZE], 0xa5);
        for length in 0..<$type>::SIZE {
            prop_assert!(<$type>::parse(&buffer[..length]).is_err());
        }
    };
}

/// Parses bytes and, if they are valid, emits the value again.
macro_rules! stays {
    ($bytes:expr, $type:ty, $clear_reserved:expr) => {
        let mut expected: [u8; <$type>::SIZE] = $bytes;
        if let Ok(value) = <$type>::parse(&expected) {
            let mut emitted = [0xa5; <$type>::SIZE];
            value.emit(&mut emitted);
            let clear_reserved: fn(&mut [u8]) = $clear_reserved;
            clear_reserved(&mut expected);
            prop_assert_eq!(emitted, expected);
        }
    };
}

fn clear_lrh(bytes: &mut [u8]) {
    bytes[1] &= 0xf3;
    bytes[4] &= 0x07;
}

fn clear_bth(bytes: &mut [u8]) {
    bytes[4] &= 0xc0;
    bytes[8] &= 0x80;
}

fn clear_deth(bytes: &mut [u8]) {
    bytes[4] = 0;
}

/// Clears the reserved bits of a packet's headers and its padding.
fn clear_packet(bytes: &mut [u8], packet: &Packet<'_>) {
    clear_bth(bytes);
    if packet.headers.deth.is_some() {
        clear_deth(&mut bytes[Bth::SIZE..]);
    }
    let payload_end = packet.headers.size() + packet.payload.len();
    let padding = usize::from(packet.headers.bth.pad_count);
    bytes[payload_end..payload_end + padding].fill(0);
}

proptest! {
    #[test]
    fn headers_round_trip(
        lrh in arbitrary::lrh(), grh in arbitrary::grh(), bth in arbitrary::bth(), reth in arbitrary::reth(),
        aeth in arbitrary::aeth(), deth in arbitrary::deth(), immediate: u32, own: [u64; 2],
    ) {
        comes_back!(lrh, Lrh);
        comes_back!(grh, Grh);
        comes_back!(bth, Bth);
        comes_back!(reth, Reth);
        comes_back!(aeth, Aeth);
        comes_back!(deth, Deth);
        comes_back!(Immediate(immediate), Immediate);
        comes_back!(SackBitmap(own[0]), SackBitmap);
        comes_back!(ProbeToken(own[1]), ProbeToken);
    }

    #[test]
    fn header_bytes_round_trip(
        mut lrh: [u8; 8], mut grh: [u8; 40], mut bth: [u8; 12], reth: [u8; 16], aeth: [u8; 4], deth: [u8; 8], immediate: [u8; 4],
        own: [u8; 8],
    ) {
        stays!(lrh, Lrh, clear_lrh);
        lrh[0] &= 0xf0;
        lrh[1] |= 0b10;
        prop_assert!(Lrh::parse(&lrh).is_ok());
        stays!(lrh, Lrh, clear_lrh);
        stays!(grh, Grh, |_| ());
        grh[0] = 0x60 | grh[0] & 0x0f;
        grh[6] = 0x1b;
        prop_assert!(Grh::parse(&grh).is_ok());
        stays!(grh, Grh, |_| ());
        stays!(bth, Bth, clear_bth);
        bth[0] %= 0x12;
        bth[1] &= 0xf0;
        prop_assert!(Bth::parse(&bth).is_ok());
        stays!(bth, Bth, clear_bth);
        stays!(reth, Reth, |_| ());
        stays!(aeth, Aeth, |_| ());
        stays!(deth, Deth, clear_deth);
        stays!(immediate, Immediate, |_| ());
        stays!(own, SackBitmap, |_| ());
        stays!(own, ProbeToken, |_| ());
    }

    #[test]
    fn packet_headers_round_trip(headers in arbitrary::headers()) {
        let mut buffer = [0; 64];
        let size = headers.emit(&mut buffer);
        prop_assert_eq!(size, headers.size());
        prop_assert_eq!(PacketHeaders::parse(&buffer[..size]), Ok(headers));
        prop_assert!(PacketHeaders::parse(&buffer[..size - 1]).is_err());
    }

    #[test]
    fn frames_round_trip((headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route()) {
        let frame = LinkFrame::new(lrh, grh, Packet::new(headers, &payload));
        let mut bytes = vec![7];
        frame.append_to(&mut bytes);
        let bytes = &bytes[1..];
        prop_assert_eq!(bytes.len(), frame.size());
        let overhead = if grh.is_some() { link_frame::GLOBAL_OVERHEAD } else { link_frame::OVERHEAD };
        prop_assert_eq!(bytes.len(), overhead + headers.size() + payload.len().next_multiple_of(4));
        prop_assert_eq!(LinkFrame::verify(bytes), Ok(frame));
        prop_assert_eq!(LinkFrame::parse(bytes), Ok(frame));
        prop_assert_eq!(link_frame::verify_vcrc(bytes), Ok(frame.lrh));
    }

    #[test]
    fn vectored_and_zero_copy_emission_give_the_same_bytes(
        (mut headers, payload) in arbitrary::connection_content(),
        flow in arbitrary::private_flow(),
        cut in any::<prop::sample::Index>(),
        coverage in prop::sample::select(&[IcrcCoverage::Full, IcrcCoverage::Prefix, IcrcCoverage::Nothing][..]),
    ) {
        headers.bth.coverage = coverage;
        let packet = Packet::new(headers, &payload);
        let mut whole = vec![0xa5; packet.size()];
        rocev2::emit(&packet, &flow, &mut whole);
        let parts = payload.split_at(cut.index(payload.len() + 1));
        let mut joined = vec![0x5a; packet.size()];
        rocev2::emit_vectored(&packet.headers, [parts.0, parts.1], &flow, &mut joined);
        prop_assert_eq!(&joined, &whole);
        let mut around = vec![0x5a; packet.size()];
        let (before, after) = rocev2::emit_zero_copy(&packet.headers, ([parts.0], parts.1), &flow, &mut around);
        prop_assert_eq!([&around[..before], parts.1, &around[before..before + after]].concat(), whole);
    }

    #[test]
    fn datagrams_round_trip((headers, payload) in arbitrary::content(), flow in arbitrary::flow()) {
        let packet = Packet::new(headers, &payload);
        let mut bytes = vec![0xa5; packet.size() + 1];
        prop_assert_eq!(rocev2::emit(&packet, &flow, &mut bytes), packet.size());
        let bytes = &bytes[..packet.size()];
        prop_assert_eq!(rocev2::verify(bytes, &flow), Ok(packet));
        prop_assert_eq!(rocev2::parse(bytes), Ok(packet));
    }

    #[test]
    fn aggregation_messages_round_trip(header in arbitrary::aggregation(), payload in vec(any::<u8>(), 0..300)) {
        let mut message = Vec::new();
        header.append_to(&payload, &mut message);
        prop_assert_eq!(message.len(), AggregationHeader::SIZE + payload.len());
        prop_assert_eq!(AggregationHeader::verify(&message), Ok((header, &payload[..])));
        prop_assert_eq!(AggregationHeader::parse(&message), Ok(header));
        prop_assert_eq!(&message[28..32], &header.checksum(&payload).to_be_bytes());
    }

    #[test]
    fn parsing_never_panics(mut bytes in vec(any::<u8>(), 0..400), flow in arbitrary::flow()) {
        let _ = LinkFrame::parse(&bytes);
        let _ = LinkFrame::verify(&bytes);
        let _ = link_frame::verify_vcrc(&bytes);
        let _ = link_frame::verify_icrc(&bytes);
        let _ = PacketHeaders::parse(&bytes);
        let _ = rocev2::parse(&bytes);
        let _ = rocev2::verify(&bytes, &flow);
        let _ = AggregationHeader::parse(&bytes);
        let _ = AggregationHeader::verify(&bytes);
        let _ = link_frame::set_fecn(&mut bytes);
        let _ = link_frame::set_virtual_lane(&mut bytes, wire::VirtualLane(3));
        let _ = link_frame::stomp_vcrc(&mut bytes);
        if link_frame::rewrite_vcrc(&mut bytes).is_ok() {
            // Correct the first CRC, so that the later checks get garbage too.
            let _ = LinkFrame::verify(&bytes);
        }
    }

    #[test]
    fn corrupted_frames_that_parse_round_trip(
        (headers, payload) in arbitrary::content(), (lrh, grh) in arbitrary::route(),
        garbles in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), cut in 0usize..6,
    ) {
        let mut bytes = Vec::new();
        LinkFrame::new(lrh, grh, Packet::new(headers, &payload)).append_to(&mut bytes);
        for (at, value) in garbles {
            // Half of the changes go to the routing and transport headers, where the structure is.
            let reach = if value & 1 == 0 { bytes.len() } else { bytes.len().min(24) };
            bytes[at.index(reach)] = value;
        }
        bytes.truncate(bytes.len() - cut / 4);
        let garbled = bytes.clone();
        let _ = LinkFrame::verify(&garbled);
        if let Ok(frame) = LinkFrame::parse(&garbled) {
            let mut emitted = Vec::new();
            frame.append_to(&mut emitted);
            clear_lrh(&mut bytes);
            let start = if frame.lrh.next == LinkNextHeader::Global { Lrh::SIZE + Grh::SIZE } else { Lrh::SIZE };
            clear_packet(&mut bytes[start..], &frame.packet);
            let codes = bytes.len() - 6;
            prop_assert_eq!(&emitted[..codes], &bytes[..codes]);
            prop_assert_eq!(emitted.len(), bytes.len());
        }
    }

    #[test]
    fn corrupted_datagrams_that_parse_round_trip(
        (headers, payload) in arbitrary::content(), flow in arbitrary::flow(),
        garbles in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let packet = Packet::new(headers, &payload);
        let mut bytes = vec![0; packet.size()];
        rocev2::emit(&packet, &flow, &mut bytes);
        for (at, value) in garbles {
            bytes[at.index(packet.size())] = value;
        }
        let garbled = bytes.clone();
        if let Ok(packet) = rocev2::parse(&garbled) {
            let mut emitted = vec![0; packet.size()];
            rocev2::emit(&packet, &flow, &mut emitted);
            clear_packet(&mut bytes, &packet);
            let code = bytes.len() - 4;
            prop_assert_eq!(&emitted[..code], &bytes[..code]);
        }
    }

    #[test]
    fn aggregation_message_bytes_round_trip(mut message in vec(any::<u8>(), 32..200), kind in 1u8..5) {
        message[0] = 0x10 | kind;
        let header = AggregationHeader::parse(&message).expect("every other byte may be anything");
        let mut emitted = Vec::new();
        header.append_to(&message[32..], &mut emitted);
        prop_assert_eq!(&emitted[..28], &message[..28]);
        prop_assert_eq!(&emitted[32..], &message[32..]);
    }
}
