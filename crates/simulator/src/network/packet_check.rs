//! What devices find out about a packet to which something happened, by really checking its bytes.

use std::collections::BTreeMap;

use units::SimTime;
use wire::PacketError;
use wire::link_frame;

use super::packet::{DeviceCorruption, PacketCorruption};
use crate::packet_body::PacketBody;

/// What a device's link layer makes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkCheck {
    /// Nothing is wrong that a link could see.
    Sound,
    /// The VCRC does not fit: a physical error on this link.
    Damaged,
    /// It carries the end-bad-packet mark: the error happened further up.
    Marked,
    /// Inconsistent in itself.
    Malformed,
    /// For a destination that nobody knows.
    Misrouted,
}

impl LinkCheck {
    pub(crate) fn is_bad(self) -> bool {
        self != Self::Sound
    }
}

/// A destination that no table has.
const NOWHERE: u16 = 0xbfff;
/// Where the destination and the length stand in a link header (LRH bytes 2..4 and 4..6).
const DESTINATION: usize = 2;
const LENGTH: usize = 5;

/// Frames on which link errors are tried out, by length. A CRC is linear: whether it notices a set of flipped bits depends
/// on where they are, not on what the frame says. So one frame of each length serves for all, and only what gets past
/// the check needs the packet's own bytes.
#[derive(Default)]
pub(super) struct SampleFrames(BTreeMap<usize, Vec<u8>>);

impl SampleFrames {
    /// Whether the link's check notices these flips in a frame of this length.
    fn notices(&mut self, length: usize, flipped: &[u32]) -> bool {
        let frame = self.0.entry(length).or_insert_with(|| background_frame(length as u32));
        debug_assert_eq!(frame.len(), length);
        flip(frame, flipped);
        let noticed = matches!(link_frame::verify_vcrc(frame), Err(PacketError::Physical(_)));
        flip(frame, flipped); // And back.
        noticed
    }
}

fn flip(frame: &mut [u8], bits: &[u32]) {
    let all = frame.len() as u32 * 8;
    for bit in bits {
        let bit = bit % all;
        frame[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
    }
}

/// What the link layer of the device at the end of a channel finds.
pub(super) fn check_link(
    body: Option<&PacketBody>,
    bytes: u32,
    harm: &mut PacketCorruption,
    samples: &mut SampleFrames,
) -> LinkCheck {
    if harm.marked {
        return LinkCheck::Marked;
    }
    let length = body.map_or(background_bytes(bytes), PacketBody::framed_bytes) as usize;
    if harm.inside.is_none() && samples.notices(length, &harm.flipped) {
        return LinkCheck::Damaged;
    }
    let frame = hurt_frame(body, bytes, harm);
    match link_frame::verify_vcrc(&frame) {
        Err(PacketError::Physical(_)) => LinkCheck::Damaged,
        Err(PacketError::Malformed(_)) => LinkCheck::Malformed,
        Ok(header) if header.destination.0 == NOWHERE => LinkCheck::Misrouted,
        Ok(_) => {
            // What the link did not see travels on, under a VCRC made anew.
            harm.known_at = SimTime::NEVER;
            if harm.inside.is_none() && !harm.flipped.is_empty() {
                harm.inside = Some(DeviceCorruption::Memory);
            }
            LinkCheck::Sound
        }
    }
}

/// What the packet's receiver finds when the link layer had no objection.
#[derive(Debug)]
pub(crate) enum EndToEndCheck {
    /// The ICRC does not fit, or the contents make no sense.
    Bad,
    /// Every check was passed: this is what the machine gets, right or not.
    Passed(PacketBody),
}

/// What the receiver's transport layer finds.
pub(crate) fn check_end_to_end(body: &PacketBody, bytes: u32, harm: &PacketCorruption) -> EndToEndCheck {
    let frame = hurt_frame(Some(body), bytes, harm);
    match link_frame::verify_icrc(&frame) {
        Ok(()) => body.reread(&frame).map_or(EndToEndCheck::Bad, EndToEndCheck::Passed),
        Err(_) => EndToEndCheck::Bad,
    }
}

/// The frame's bytes with all harm done to them.
fn hurt_frame(body: Option<&PacketBody>, bytes: u32, harm: &PacketCorruption) -> Vec<u8> {
    let mut frame = match body {
        Some(body) => body.to_bytes(),
        None => background_frame(bytes),
    };
    flip(&mut frame, &harm.flipped);
    match harm.inside {
        None => return frame,
        Some(DeviceCorruption::Memory) => {}
        Some(DeviceCorruption::Malformed) => frame[LENGTH] ^= 0x01,
        Some(DeviceCorruption::Misrouted) => {
            frame[DESTINATION..DESTINATION + 2].copy_from_slice(&NOWHERE.to_be_bytes())
        }
    }
    // The device that spoiled it made the VCRC over what it had.
    link_frame::rewrite_vcrc(&mut frame).expect("a frame that was just written is long enough");
    frame
}

/// Bytes of link framing and transport header.
const OVERHEAD: u32 = (link_frame::OVERHEAD + wire::Bth::SIZE) as u32;

/// The nearest length that a frame can have: whole words of payload, at most one MTU and an aggregation header.
fn background_bytes(bytes: u32) -> u32 {
    let payload = bytes.saturating_sub(OVERHEAD).next_multiple_of(4);
    OVERHEAD
        + payload
            .min(units::limits::MAX_MTU + wire::aggregation::AggregationHeader::SIZE as u32 + wire::Deth::SIZE as u32)
}

/// A packet of background traffic: nothing but its size matters.
fn background_frame(bytes: u32) -> Vec<u8> {
    use units::{Lid, Psn, QpNumber};
    use wire::{Bth, Lrh, Opcode, Packet, PacketHeaders, ServiceLevel, VirtualLane};
    let payload = vec![0; (background_bytes(bytes) - OVERHEAD) as usize];
    let headers = PacketHeaders::from(Bth::new(Opcode::SendOnly, QpNumber(1), Psn::new(0)));
    let lrh = Lrh::new(Lid(1), Lid(2), ServiceLevel(0), VirtualLane(0));
    let mut frame = Vec::new();
    link_frame::LinkFrame::new(lrh, None, Packet::new(headers, &payload)).append_to(&mut frame);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use protocol::connection::Frame;

    /// The body of an acknowledgement: the shortest there is.
    fn acknowledgement() -> PacketBody {
        let to = crate::collective::EdgeEnd { party: 0, edge: protocol::aggregation::EdgeIndex(0) };
        PacketBody::Edge {
            to,
            came: protocol::connection::FramePath::ONLY_PATH,
            frame: Frame::Ack { psn: units::Psn::new(77) },
        }
    }

    proptest! {
        /// The sample frame stands for every frame of its length: same flips, same verdict.
        #[test]
        fn a_sample_notices_what_the_frame_itself_would(flipped in proptest::collection::vec(0u32..100_000, 1..6)) {
            let body = acknowledgement();
            let harm = PacketCorruption::flipped(flipped.clone());
            let own = matches!(link_frame::verify_vcrc(&hurt_frame(Some(&body), 0, &harm)), Err(PacketError::Physical(_)));
            let length = body.framed_bytes() as usize;
            prop_assert_eq!(SampleFrames::default().notices(length, &flipped), own);
        }

        #[test]
        fn a_background_frame_has_the_length_that_is_said(bytes in 0u32..10_000) {
            prop_assert_eq!(background_frame(bytes).len() as u32, background_bytes(bytes));
        }
    }

    #[test]
    fn the_bytes_of_a_body_are_as_many_as_it_says() {
        let body = acknowledgement();
        assert_eq!(body.to_bytes().len() as u32, body.framed_bytes());
    }

    /// A packet of a queue pair, with every header that a write can have.
    fn write_packet(length: usize) -> PacketBody {
        let mut headers = wire::PacketHeaders::from(wire::Bth::new(
            wire::Opcode::WriteOnlyWithImmediate,
            units::QpNumber(3),
            units::Psn::new(9),
        ));
        headers.reth = Some(wire::Reth { address: 1 << 40, key: wire::RemoteKey(5), length_bytes: length as u32 });
        headers.immediate = Some(wire::Immediate(77));
        let payload = (0..length).map(|position| position as u8).collect();
        PacketBody::Transport { to: 3, path: units::PathId(1), headers, payload }
    }

    #[test]
    fn a_packet_of_a_queue_pair_is_the_bytes_it_says_and_reads_back() {
        for length in [0, 1, 255, 4_096] {
            let body = write_packet(length);
            let bytes = body.to_bytes();
            assert_eq!(bytes.len() as u32, body.framed_bytes());
            assert_eq!(bytes.len() as u32, background_bytes(body.framed_bytes()), "a sample of that length exists");
            let Some(PacketBody::Transport { to: 3, payload, .. }) = body.reread(&bytes) else {
                panic!("unreadable")
            };
            assert_eq!(payload.len(), length);
        }
    }

    #[test]
    fn a_bit_that_flips_in_a_switch_is_found_by_the_receiver_of_a_write() {
        let body = write_packet(100);
        let harm = PacketCorruption::inside(DeviceCorruption::Memory, vec![8 * 40]);
        assert!(matches!(check_end_to_end(&body, body.framed_bytes(), &harm), EndToEndCheck::Bad));
    }

    #[test]
    fn flips_that_cancel_out_are_no_damage() {
        let mut harm = PacketCorruption::flipped(vec![9, 9]);
        let found = check_link(Some(&acknowledgement()), 0, &mut harm, &mut SampleFrames::default());
        assert_eq!(found, LinkCheck::Sound);
    }
}
