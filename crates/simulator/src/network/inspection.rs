//! What devices find out about a packet to which something happened, by really checking its bytes.

use units::Time;
use wire::FrameError;
use wire::local;

use super::packet::{Harm, Inside};
use crate::body::Body;

/// What a device's link layer makes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inspection {
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

impl Inspection {
    pub(crate) fn is_bad(self) -> bool {
        self != Self::Sound
    }
}

/// A destination that no table has.
const NOWHERE: u16 = 0xbfff;
/// Where the destination and the length stand in a link header (LRH bytes 2..4 and 4..6).
const DESTINATION: usize = 2;
const LENGTH: usize = 5;

/// What the link layer of the device at the end of a channel finds.
pub(super) fn inspect_link(body: Option<&Body>, bytes: u32, harm: &mut Harm) -> Inspection {
    if harm.marked {
        return Inspection::Marked;
    }
    let frame = hurt_frame(body, bytes, harm);
    match local::verify_link(&frame) {
        Err(FrameError::Physical(_)) => Inspection::Damaged,
        Err(FrameError::Malformed(_)) => Inspection::Malformed,
        Ok(header) if header.destination.0 == NOWHERE => Inspection::Misrouted,
        Ok(_) => {
            // What the link did not see travels on, under a VCRC made anew.
            harm.known_at = Time::NEVER;
            if harm.inside.is_none() && !harm.flipped.is_empty() {
                harm.inside = Some(Inside::Memory);
            }
            Inspection::Sound
        }
    }
}

/// What the packet's receiver finds when the link layer had no objection.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The ICRC does not fit, or the contents make no sense.
    Bad,
    /// Every check was passed: this is what the machine gets, right or not.
    Passed(Body),
}

/// What the receiver's transport layer finds.
pub(crate) fn inspect_end_to_end(body: &Body, bytes: u32, harm: &Harm) -> Verdict {
    let frame = hurt_frame(Some(body), bytes, harm);
    match local::verify_end_to_end(&frame) {
        Ok(()) => body.reread(&frame).map_or(Verdict::Bad, Verdict::Passed),
        Err(_) => Verdict::Bad,
    }
}

/// The frame's bytes with all harm done to them.
fn hurt_frame(body: Option<&Body>, bytes: u32, harm: &Harm) -> Vec<u8> {
    let mut frame = match body {
        Some(body) => body.to_bytes(),
        None => background_frame(bytes),
    };
    let bits = frame.len() as u32 * 8;
    for bit in &harm.flipped {
        let bit = bit % bits;
        frame[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
    }
    match harm.inside {
        None => return frame,
        Some(Inside::Memory) => {}
        Some(Inside::Malformed) => frame[LENGTH] ^= 0x01,
        Some(Inside::Misrouted) => frame[DESTINATION..DESTINATION + 2].copy_from_slice(&NOWHERE.to_be_bytes()),
    }
    // The device that spoiled it made the VCRC over what it had.
    local::rewrite_link_check(&mut frame).expect("a frame that was just written is long enough");
    frame
}

/// A packet of background traffic: nothing but its size matters.
fn background_frame(bytes: u32) -> Vec<u8> {
    use units::{Lid, Psn, QpNumber};
    use wire::{Bth, Lrh, Opcode, Packet, PacketHeaders, ServiceLevel, VirtualLane};
    let overhead = (local::OVERHEAD + Bth::SIZE) as u32;
    let payload = vec![0; (bytes.saturating_sub(overhead) as usize).min(units::limits::MAX_MTU as usize)];
    let headers = PacketHeaders::from(Bth::new(Opcode::SendOnly, QpNumber(1), Psn::new(0)));
    let lrh = Lrh::new(Lid(1), Lid(2), ServiceLevel(0), VirtualLane(0));
    let mut frame = Vec::new();
    local::Frame::new(lrh, None, Packet::new(headers, &payload)).append_to(&mut frame);
    frame
}
