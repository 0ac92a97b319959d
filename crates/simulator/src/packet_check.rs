//! The checks of a corrupted packet: the link layer's and the receiver's, on the packet's real bytes.

use std::collections::BTreeMap;

use units::SimTime;
use wire::PacketError;
use wire::link_frame;

use crate::packet::{DeviceCorruption, PacketCorruption};
use crate::packet_body::PacketBody;

/// The result of a device's link-layer check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkCheck {
    /// No fault that a link can detect.
    Sound,
    /// The VCRC is wrong: a physical error on this link.
    Damaged,
    /// The packet carries the end-bad-packet mark: the error happened upstream.
    Marked,
    /// The header contradicts itself.
    Malformed,
    /// No table has the destination.
    Misrouted,
}

impl LinkCheck {
    pub(crate) fn is_bad(self) -> bool {
        self != Self::Sound
    }
}

/// A destination that no table has.
const UNROUTABLE_LID: u16 = 0xbfff;
/// Offsets of the destination and the length in a link header (LRH bytes 2..4 and 4..6).
const LRH_DESTINATION: usize = 2;
const LRH_LENGTH: usize = 5;

/// Frames on which link errors are tried, by length. A CRC is linear: whether it detects a set of flipped bits depends on their
/// positions, not on the frame's contents. So one frame of each length stands for all, and only what gets past the check needs
/// the packet's own bytes.
#[derive(Default)]
pub(crate) struct SampleFrames(BTreeMap<usize, Vec<u8>>);

impl SampleFrames {
    /// Whether the link's check detects these flips in a frame of this length.
    fn detects(&mut self, length: usize, flipped: &[u32]) -> bool {
        let frame = self.0.entry(length).or_insert_with(|| background_frame(length as u32));
        debug_assert_eq!(frame.len(), length);
        flip(frame, flipped);
        let noticed = matches!(link_frame::verify_vcrc(frame), Err(PacketError::Physical(_)));
        flip(frame, flipped); // Restores it.
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

/// The link-layer check of the device at the end of a channel.
pub(crate) fn check_link(
    body: Option<&PacketBody>,
    bytes: u32,
    corruption: &mut PacketCorruption,
    samples: &mut SampleFrames,
) -> LinkCheck {
    if corruption.marked {
        return LinkCheck::Marked;
    }
    let length = body.map_or(background_bytes(bytes), PacketBody::framed_bytes) as usize;
    if corruption.device.is_none() && samples.detects(length, &corruption.flipped) {
        return LinkCheck::Damaged;
    }
    let frame = corrupted_frame(body, bytes, corruption);
    match link_frame::verify_vcrc(&frame) {
        Err(PacketError::Physical(_)) => LinkCheck::Damaged,
        Err(PacketError::Malformed(_)) => LinkCheck::Malformed,
        Ok(header) if header.destination.0 == UNROUTABLE_LID => LinkCheck::Misrouted,
        Ok(_) => {
            // An undetected fault travels on under a new VCRC.
            corruption.detected_at = SimTime::NEVER;
            if corruption.device.is_none() && !corruption.flipped.is_empty() {
                corruption.device = Some(DeviceCorruption::Memory);
            }
            LinkCheck::Sound
        }
    }
}

/// The result of the receiver's check, after the link layer found no fault.
#[derive(Debug)]
pub(crate) enum EndToEndCheck {
    /// The ICRC is wrong, or the contents are inconsistent.
    Bad,
    /// All checks passed: the machine gets this body, right or wrong.
    Passed(PacketBody),
}

/// The check of the receiver's transport layer.
pub(crate) fn check_end_to_end(body: &PacketBody, bytes: u32, corruption: &PacketCorruption) -> EndToEndCheck {
    let frame = corrupted_frame(Some(body), bytes, corruption);
    if !body.verifies(&frame) {
        return EndToEndCheck::Bad;
    }
    body.reread(&frame).map_or(EndToEndCheck::Bad, EndToEndCheck::Passed)
}

/// The frame's bytes with all faults applied.
fn corrupted_frame(body: Option<&PacketBody>, bytes: u32, corruption: &PacketCorruption) -> Vec<u8> {
    let mut frame = match body {
        Some(body) => body.to_bytes(),
        None => background_frame(bytes),
    };
    flip(&mut frame, &corruption.flipped);
    match corruption.device {
        None => return frame,
        Some(DeviceCorruption::Memory) => {}
        Some(DeviceCorruption::Malformed) => frame[LRH_LENGTH] ^= 0x01,
        Some(DeviceCorruption::Misrouted) => {
            frame[LRH_DESTINATION..LRH_DESTINATION + 2].copy_from_slice(&UNROUTABLE_LID.to_be_bytes())
        }
    }
    // The device that corrupted the frame computed the VCRC over the corrupted bytes.
    link_frame::rewrite_vcrc(&mut frame).expect("a written frame is long enough");
    frame
}

/// Bytes of link framing and transport header.
const OVERHEAD: u32 = (link_frame::OVERHEAD + wire::Bth::SIZE) as u32;

/// The nearest possible length of a frame: whole words of payload, at most what the link header can express.
fn background_bytes(bytes: u32) -> u32 {
    const MAX_PAYLOAD: u32 = link_frame::MAX_SIZE as u32 - OVERHEAD;
    OVERHEAD + bytes.saturating_sub(OVERHEAD).next_multiple_of(4).min(MAX_PAYLOAD)
}

/// A frame of background traffic: only its size matters.
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
    use wire::IcrcCoverage;

    use crate::packet_body::PacketFraming;

    /// The body of an acknowledgement: the shortest frame.
    fn acknowledgement() -> PacketBody {
        let to = crate::packet_body::EdgeEnd { participant: 0, edge: protocol::aggregation::EdgeIndex(0) };
        PacketBody::Edge {
            to,
            frame_path: protocol::connection::FramePath::ONLY_PATH,
            frame: Frame::Ack { psn: units::Psn::new(77) },
        }
    }

    proptest! {
        /// The sample frame stands for every frame of its length: same flips, same result.
        #[test]
        fn a_sample_notices_what_the_frame_itself_would(flipped in proptest::collection::vec(0u32..100_000, 1..6)) {
            let body = acknowledgement();
            let corruption = PacketCorruption::flipped(flipped.clone());
            let own = matches!(link_frame::verify_vcrc(&corrupted_frame(Some(&body), 0, &corruption)), Err(PacketError::Physical(_)));
            let length = body.framed_bytes() as usize;
            prop_assert_eq!(SampleFrames::default().detects(length, &flipped), own);
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
    fn write_packet(length: usize, framing: PacketFraming) -> PacketBody {
        let mut headers = wire::PacketHeaders::from(wire::Bth::new(
            wire::Opcode::WriteOnlyWithImmediate,
            units::QpNumber(3),
            units::Psn::new(9),
        ));
        headers.reth = Some(wire::Reth { address: 1 << 40, key: wire::RemoteKey(5), length_bytes: length as u32 });
        headers.immediate = Some(wire::Immediate(77));
        headers.bth.coverage = framing.coverage();
        let payload = (0..length).map(|position| position as u8).collect();
        PacketBody::Transport { to: 3, path: units::PathId(1), framing, headers, payload }
    }

    #[test]
    fn a_packet_of_a_queue_pair_is_the_bytes_it_says_and_reads_back() {
        let shortened = PacketFraming::Udp { weakest: IcrcCoverage::Prefix };
        for (length, framing) in [0, 1, 255, 4_096]
            .map(|length| (length, PacketFraming::InfiniBand))
            .into_iter()
            .chain([(8_000, shortened)])
        {
            let body = write_packet(length, framing);
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
        let body = write_packet(100, PacketFraming::InfiniBand);
        let corruption = PacketCorruption::device(DeviceCorruption::Memory, vec![8 * 40]);
        assert!(matches!(check_end_to_end(&body, body.framed_bytes(), &corruption), EndToEndCheck::Bad));
    }

    /// The ICRC covers 128 bytes behind the link header; what flips behind them reaches the machine (P-28).
    #[test]
    fn a_shortened_icrc_finds_flips_in_its_first_bytes_only() {
        let body = write_packet(5_000, PacketFraming::Udp { weakest: IcrcCoverage::Prefix });
        let flipped = |byte: u32| {
            let corruption = PacketCorruption::device(DeviceCorruption::Memory, vec![8 * byte]);
            check_end_to_end(&body, body.framed_bytes(), &corruption)
        };
        let covered_end = wire::Lrh::SIZE as u32 + 128;
        assert!(matches!(flipped(covered_end - 1), EndToEndCheck::Bad));
        let EndToEndCheck::Passed(PacketBody::Transport { payload: altered, .. }) = flipped(covered_end) else {
            panic!("a flip behind the covered bytes is found");
        };
        let PacketBody::Transport { payload, .. } = &body else { unreachable!("made above") };
        assert_eq!(altered.iter().zip(payload).filter(|(altered, right)| altered != right).count(), 1);
    }

    #[test]
    fn flips_that_cancel_out_are_no_damage() {
        let mut corruption = PacketCorruption::flipped(vec![9, 9]);
        let found = check_link(Some(&acknowledgement()), 0, &mut corruption, &mut SampleFrames::default());
        assert_eq!(found, LinkCheck::Sound);
    }
}
