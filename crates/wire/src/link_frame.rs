//! Packets on InfiniBand links: LRH, optional GRH, packet, ICRC, VCRC.
//!
//! In: a frame as the link delivered it. Out: the packet, or why the frame is discarded: corrupted or malformed
//! (claim SE-4).
//!
//! Two CRCs protect a frame (claim SE-6; IB specification, 7.8). A switch checks the VCRC ([`verify_vcrc`]), may
//! change the virtual lane and the congestion bits, and writes a new VCRC ([`rewrite_vcrc`]). The end node checks
//! both ([`LinkFrame::verify`]); only the ICRC detects corruption inside a switch. The ICRC replaces by ones every
//! field that may change on the way: virtual lane, traffic class, flow label, hop limit and the fifth byte of the
//! BTH. With a GRH it replaces the whole LRH, because routers write a new one.

use checksum::{Icrc, vcrc};

use crate::bytes::split_tail;
use crate::packet::ICRC_SIZE;
use crate::{
    Bth, Grh, HeaderName, IcrcCoverage, LinkNextHeader, Lrh, Packet, PacketCrc, PacketError, ParseError, VirtualLane,
};

/// Bytes of the VCRC.
const VCRC_SIZE: usize = 2;
/// Bytes that a frame within the subnet adds to the transport headers and the payload: LRH, ICRC, VCRC.
pub const OVERHEAD: usize = Lrh::SIZE + ICRC_SIZE + VCRC_SIZE;
/// The same with a GRH, between subnets.
pub const GLOBAL_OVERHEAD: usize = OVERHEAD + Grh::SIZE;
/// The shortest frame: LRH, BTH and both CRCs.
pub const MIN_SIZE: usize = OVERHEAD + Bth::SIZE;
/// The longest frame that the LRH's length field can express.
pub const MAX_SIZE: usize = Lrh::MAX_LENGTH_WORDS as usize * 4 + VCRC_SIZE;

const _: () = assert!(MAX_SIZE > GLOBAL_OVERHEAD + Bth::SIZE + 64 + units::limits::MAX_MTU as usize);

/// A packet with its routing headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkFrame<'a> {
    /// Route within the subnet.
    pub lrh: Lrh,
    /// Route between subnets or to a multicast group.
    pub grh: Option<Grh>,
    /// The transport packet.
    pub packet: Packet<'a>,
}

impl<'a> LinkFrame<'a> {
    /// A frame with the length fields and the next header of its packet.
    ///
    /// # Panics
    /// If the frame is longer than [`MAX_SIZE`]: the path MTU bounds it.
    pub fn new(lrh: Lrh, grh: Option<Grh>, packet: Packet<'a>) -> Self {
        let payload_length = packet.size();
        let length = Lrh::SIZE + grh.map_or(0, |_| Grh::SIZE) + payload_length;
        assert!(length + VCRC_SIZE <= MAX_SIZE, "a frame of {length} bytes exceeds {MAX_SIZE} bytes");
        let next = if grh.is_some() { LinkNextHeader::Global } else { LinkNextHeader::Transport };
        Self {
            lrh: Lrh { next, length_words: (length / 4) as u16, ..lrh },
            grh: grh.map(|grh| Grh { payload_length: payload_length as u16, ..grh }),
            packet,
        }
    }

    /// Size on the link, in bytes.
    pub fn size(&self) -> usize {
        Lrh::SIZE + self.grh.map_or(0, |_| Grh::SIZE) + self.packet.size() + VCRC_SIZE
    }

    /// Writes the frame and both CRCs; returns its size.
    ///
    /// # Panics
    /// If the buffer is smaller than [`LinkFrame::size`], or a value does not fit its field.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let Self { lrh, grh, packet } = Self::new(self.lrh, self.grh, self.packet);
        lrh.emit(buffer);
        let mut at = Lrh::SIZE;
        if let Some(grh) = grh {
            grh.emit(&mut buffer[at..]);
            at += Grh::SIZE;
        }
        at += packet.emit(&mut buffer[at..]);
        let (covered, codes) = buffer.split_at_mut(at);
        codes[..ICRC_SIZE].copy_from_slice(&icrc(covered, lrh.next).to_le_bytes());
        let end = at + ICRC_SIZE;
        let link_check = vcrc(&buffer[..end]);
        buffer[end..end + VCRC_SIZE].copy_from_slice(&link_check.to_le_bytes());
        end + VCRC_SIZE
    }

    /// Appends the frame and both CRCs.
    ///
    /// # Panics
    /// If a value does not fit its field.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + self.size(), 0);
        self.emit(&mut bytes[start..]);
    }

    /// Parses a frame without checking its CRCs.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let lrh = Lrh::parse(bytes)?;
        check_length(&lrh, bytes)?;
        let (covered, _vcrc) = split_tail::<VCRC_SIZE>(bytes)?;
        let mut rest = &covered[Lrh::SIZE..];
        let mut grh = None;
        if lrh.next == LinkNextHeader::Global {
            let global = Grh::parse(rest)?;
            rest = &rest[Grh::SIZE..];
            if usize::from(global.payload_length) != rest.len() {
                let declared = usize::from(global.payload_length);
                return Err(ParseError::WrongLength { header: HeaderName::Grh, declared, given: rest.len() });
            }
            grh = Some(global);
        }
        let packet = Packet::parse(rest)?;
        match packet.headers.bth.coverage {
            IcrcCoverage::Full => Ok(Self { lrh, grh, packet }),
            weaker => Err(ParseError::UnknownVersion { header: HeaderName::Bth, version: weaker as u8 }),
        }
    }

    /// End node: checks both CRCs, then parses the frame.
    pub fn verify(bytes: &'a [u8]) -> Result<Self, PacketError> {
        verify_vcrc(bytes)?;
        verify_icrc(bytes)?;
        Ok(Self::parse(bytes)?)
    }
}

/// Switch: checks the VCRC, then the LRH; returns the LRH for routing.
pub fn verify_vcrc(frame: &[u8]) -> Result<Lrh, PacketError> {
    let (covered, link_check) = split_tail::<VCRC_SIZE>(frame)?;
    if vcrc(covered).to_le_bytes() != *link_check {
        return Err(PacketError::Physical(PacketCrc::Vcrc));
    }
    let lrh = Lrh::parse(frame)?;
    check_length(&lrh, frame)?;
    Ok(lrh)
}

/// End node: checks the ICRC alone.
pub fn verify_icrc(frame: &[u8]) -> Result<(), PacketError> {
    let lrh = Lrh::parse(frame)?;
    check_length(&lrh, frame)?;
    let (before_vcrc, _) = split_tail::<VCRC_SIZE>(frame)?;
    let (covered, end_check) = split_tail::<ICRC_SIZE>(before_vcrc)?;
    let needed = transport_start(lrh.next) + Bth::SIZE;
    if covered.len() < needed {
        return Err(ParseError::TooShort { needed, given: covered.len() }.into());
    }
    if icrc(covered, lrh.next).to_le_bytes() != *end_check {
        return Err(PacketError::Physical(PacketCrc::Icrc));
    }
    Ok(())
}

/// Switch, on forwarding: sets the virtual lane of the next link and writes a new VCRC.
///
/// # Panics
/// If the lane exceeds 15.
pub fn set_virtual_lane(frame: &mut [u8], lane: VirtualLane) -> Result<(), ParseError> {
    assert!(lane.0 < 16, "{lane:?} exceeds 15");
    change_and_rewrite(frame, 0, |byte| lane.0 << 4 | byte & 0x0f)
}

/// Congested switch: sets FECN and writes a new VCRC.
pub fn set_fecn(frame: &mut [u8]) -> Result<(), ParseError> {
    let at = transport_start(Lrh::parse(frame)?.next) + Bth::VARIANT_BYTE;
    change_and_rewrite(frame, at, |byte| byte | 0x80)
}

fn change_and_rewrite(frame: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) -> Result<(), ParseError> {
    let needed = MIN_SIZE.max(at + 1 + ICRC_SIZE + VCRC_SIZE);
    if frame.len() < needed {
        return Err(ParseError::TooShort { needed, given: frame.len() });
    }
    frame[at] = change(frame[at]);
    rewrite_vcrc(frame)
}

/// Writes the VCRC of the bytes before it, after a switch changed a field.
pub fn rewrite_vcrc(frame: &mut [u8]) -> Result<(), ParseError> {
    write_link_check(frame, |right| right)
}

/// Writes a wrong VCRC, the complement of the right one: a cut-through switch stomps a frame that it finds corrupted
/// when the first bytes are already on the next link (claim SE-5).
pub fn stomp_vcrc(frame: &mut [u8]) -> Result<(), ParseError> {
    write_link_check(frame, |right| !right)
}

fn write_link_check(frame: &mut [u8], code: impl FnOnce(u16) -> u16) -> Result<(), ParseError> {
    let given = frame.len();
    let Some((covered, link_check)) = frame.split_last_chunk_mut::<VCRC_SIZE>() else {
        return Err(ParseError::TooShort { needed: VCRC_SIZE, given });
    };
    *link_check = code(vcrc(covered)).to_le_bytes();
    Ok(())
}

fn check_length(lrh: &Lrh, frame: &[u8]) -> Result<(), ParseError> {
    let declared = usize::from(lrh.length_words) * 4 + VCRC_SIZE;
    if declared != frame.len() {
        return Err(ParseError::WrongLength { header: HeaderName::Lrh, declared, given: frame.len() });
    }
    Ok(())
}

const fn transport_start(next: LinkNextHeader) -> usize {
    match next {
        LinkNextHeader::Transport => Lrh::SIZE,
        LinkNextHeader::Global => Lrh::SIZE + Grh::SIZE,
    }
}

/// The ICRC of a frame up to its padding. The bytes contain at least the routing headers and a BTH.
fn icrc(covered: &[u8], next: LinkNextHeader) -> u32 {
    let mut masked = [0; Lrh::SIZE + Grh::SIZE + Bth::SIZE];
    let start = transport_start(next);
    let (head, rest) = covered.split_at(start + Bth::SIZE);
    let masked = &mut masked[..head.len()];
    masked.copy_from_slice(head);
    match next {
        LinkNextHeader::Transport => masked[0] |= 0xf0,
        LinkNextHeader::Global => {
            masked[..Lrh::SIZE].fill(0xff);
            mask_ipv6(&mut masked[Lrh::SIZE..]);
        }
    }
    masked[start + Bth::VARIANT_BYTE] = 0xff;
    let mut icrc = Icrc::new();
    icrc.update(masked);
    icrc.update(rest);
    icrc.finish()
}

/// Sets the fields of an IPv6 header or GRH that routers may change to ones: traffic class, flow label, hop limit.
pub(crate) fn mask_ipv6(header: &mut [u8]) {
    header[0] |= 0x0f;
    header[1..4].fill(0xff);
    header[7] = 0xff;
}
