//! Packets in UDP datagrams to port 4791 (RoCEv2; IB specification, annex A17).
//!
//! In: a datagram's payload, and its IP and UDP headers as far as the receiver knows them. Out: the packet, or why it
//! is discarded. The ICRC also covers the IP and UDP headers. It replaces by ones what routers may change: traffic
//! class, hop limit, IPv4's checksum, IPv6's flow label, UDP's checksum, and the fifth byte of the BTH. Eight bytes
//! of ones come first, in place of InfiniBand's LRH.
//!
//! Two Pleach ends may use the same layout with an ICRC that covers less ([`IcrcCoverage`]). Such packets are not
//! RoCEv2: [`parse`], [`verify_icrc`] and [`verify`] reject them, and they never use port 4791 (P-103).
//! [`parse_at_least`] and [`verify_icrc_at_least`] accept them where the ends have agreed.
//!
//! IPv4 options and IPv6 extension headers are not supported.

use std::net::{Ipv4Addr, Ipv6Addr};

use checksum::Icrc;

use crate::bytes::split_tail;
use crate::link_frame::mask_ipv6;
use crate::packet::ICRC_SIZE;
use crate::{Bth, HeaderName, IcrcCoverage, Packet, PacketCrc, PacketError, PacketHeaders, ParseError};

/// The UDP port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// Bytes of a UDP header.
const UDP_SIZE: usize = 8;
const IPV4_SIZE: usize = 20;
const IPV6_SIZE: usize = 40;
/// Bytes that IPv4, UDP and the ICRC add to the transport headers and the payload.
pub const IPV4_OVERHEAD: usize = IPV4_SIZE + UDP_SIZE + ICRC_SIZE;
/// Bytes that IPv6, UDP and the ICRC add to the transport headers and the payload.
pub const IPV6_OVERHEAD: usize = IPV6_SIZE + UDP_SIZE + ICRC_SIZE;
/// The longest UDP payload that the IPv4 and IPv6 length fields can express.
pub const MAX_SIZE: usize = u16::MAX as usize - IPV4_SIZE - UDP_SIZE;

/// Bytes from the BTH on that a partial ICRC ([`IcrcCoverage::Prefix`]) covers: all headers and at least 64 bytes of
/// the payload.
const PARTIAL_ICRC_BYTES: usize = 128;

/// The addresses and ports of a datagram, which the ICRC covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The IP header.
    pub ip: IpHeader,
    /// UDP source port; networks use it to spread flows over paths.
    pub source_port: u16,
    /// UDP destination port, usually [`UDP_PORT`].
    pub destination_port: u16,
}

impl Flow {
    /// True if a RoCEv2 end or a decoder would take the datagram for its own.
    pub const fn uses_rocev2_port(&self) -> bool {
        self.source_port == UDP_PORT || self.destination_port == UDP_PORT
    }
}

/// The fields of the IP header that the ICRC covers and the datagram itself does not contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpHeader {
    /// Internet protocol version 4.
    V4 {
        /// The sender.
        source: Ipv4Addr,
        /// The receiver.
        destination: Ipv4Addr,
        /// The identification field. Senders number fragmentable datagrams with it; the ICRC covers it.
        identification: u16,
        /// The "don't fragment" flag. A fragment is not a packet either way.
        fragmentation: Fragmentation,
    },
    /// Internet protocol version 6.
    V6 {
        /// The sender.
        source: Ipv6Addr,
        /// The receiver.
        destination: Ipv6Addr,
    },
}

/// The "don't fragment" flag of IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragmentation {
    /// Flag not set.
    Allowed,
    /// Flag set, as RoCEv2 senders do.
    Forbidden,
}

/// Writes the packet and its ICRC as a UDP payload; returns the size.
///
/// # Panics
/// If the buffer is smaller than [`Packet::size`], the datagram longer than [`MAX_SIZE`], a value does not fit its
/// field, or a packet that its ICRC does not cover uses [`UDP_PORT`].
pub fn emit(packet: &Packet<'_>, flow: &Flow, buffer: &mut [u8]) -> usize {
    emit_vectored(&packet.headers, [packet.payload, &[]], flow, buffer)
}

/// As [`emit`], for a payload in several slices.
///
/// # Panics
/// As [`emit`].
pub fn emit_vectored<const N: usize>(
    headers: &PacketHeaders,
    payload: [&[u8]; N],
    flow: &Flow,
    buffer: &mut [u8],
) -> usize {
    let end = payload.iter().map(|part| part.len()).sum();
    let size = size_of(headers, end, flow);
    let start = headers.emit_before(end, buffer);
    let (before, rest) = buffer[..size].split_at_mut(start);
    if headers.bth.coverage == IcrcCoverage::Nothing {
        let mut at = 0;
        for part in payload {
            rest[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        rest[end..].fill(0);
        return size;
    }
    let mut icrc = icrc_of(before, size - ICRC_SIZE, flow);
    let covered = covered_payload(headers, start, end);
    let mut at = 0;
    for part in payload {
        let (with, without) = part.split_at(covered.saturating_sub(at).min(part.len()));
        let (to_with, to_without) = rest[at..at + part.len()].split_at_mut(with.len());
        icrc.copy(with, to_with);
        to_without.copy_from_slice(without);
        at += part.len();
    }
    close(icrc, covered_after(headers, start + end), &mut rest[end..]);
    size
}

/// As [`emit_vectored`], but the slice at the end of the payload is not copied: writes the headers and the slices before it,
/// then directly behind them the padding and the ICRC; returns the sizes of both parts.
///
/// # Panics
/// As [`emit`].
pub fn emit_zero_copy<const N: usize>(
    headers: &PacketHeaders,
    (copied, last): ([&[u8]; N], &[u8]),
    flow: &Flow,
    buffer: &mut [u8],
) -> (usize, usize) {
    let first = copied.iter().map(|part| part.len()).sum::<usize>();
    let end = first + last.len();
    let size = size_of(headers, end, flow);
    let start = headers.emit_before(end, buffer);
    let after = size - start - end;
    let (before, rest) = buffer[..start + first + after].split_at_mut(start);
    let mut at = 0;
    for part in copied {
        rest[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    if headers.bth.coverage == IcrcCoverage::Nothing {
        rest[first..].fill(0);
        return (start + first, after);
    }
    let mut icrc = icrc_of(before, size - ICRC_SIZE, flow);
    let covered = covered_payload(headers, start, end);
    icrc.update(&rest[..covered.min(first)]);
    icrc.update(&last[..covered.saturating_sub(first)]);
    close(icrc, covered_after(headers, start + end), &mut rest[first..]);
    (start + first, after)
}

fn size_of(headers: &PacketHeaders, payload: usize, flow: &Flow) -> usize {
    let coverage = headers.bth.coverage;
    assert!(
        coverage == IcrcCoverage::Full || !flow.uses_rocev2_port(),
        "a packet with ICRC coverage {coverage:?} is not RoCEv2 and must not use port {UDP_PORT}"
    );
    let size = headers.size_with(payload);
    assert!(size <= MAX_SIZE, "a datagram of {size} bytes exceeds {MAX_SIZE} bytes");
    size
}

/// How many bytes of a payload the ICRC covers, after `before` bytes of headers.
fn covered_payload(headers: &PacketHeaders, before: usize, payload: usize) -> usize {
    covered_after(headers, before).min(payload)
}

/// How many bytes the ICRC covers at most after the first `before` bytes.
fn covered_after(headers: &PacketHeaders, before: usize) -> usize {
    match headers.bth.coverage {
        IcrcCoverage::Full => usize::MAX,
        IcrcCoverage::Prefix => PARTIAL_ICRC_BYTES.saturating_sub(before),
        IcrcCoverage::Nothing => 0,
    }
}

/// Writes the padding, of which the ICRC covers at most `covered` bytes, and the ICRC.
fn close(mut icrc: Icrc, covered: usize, after: &mut [u8]) {
    let (padding, code) = after.split_at_mut(after.len() - ICRC_SIZE);
    padding.fill(0);
    icrc.update(&padding[..covered.min(padding.len())]);
    code.copy_from_slice(&icrc.finish().to_le_bytes());
}

/// Parses a UDP payload without checking its ICRC.
pub fn parse(datagram: &[u8]) -> Result<Packet<'_>, ParseError> {
    parse_at_least(datagram, IcrcCoverage::Full)
}

/// As [`parse`], between ends that have agreed that the ICRC may cover as little as `weakest`.
pub fn parse_at_least(datagram: &[u8], weakest: IcrcCoverage) -> Result<Packet<'_>, ParseError> {
    let packet = Packet::parse(datagram)?;
    let coverage = packet.headers.bth.coverage;
    if coverage.covers_at_least(weakest) {
        Ok(packet)
    } else {
        Err(ParseError::UnknownVersion { header: HeaderName::Bth, version: coverage as u8 })
    }
}

/// Checks the ICRC of a UDP payload.
pub fn verify_icrc(datagram: &[u8], flow: &Flow) -> Result<(), PacketError> {
    verify_icrc_at_least(datagram, flow, IcrcCoverage::Full)
}

/// As [`verify_icrc`], between ends that have agreed that the ICRC may cover as little as `weakest`. An ICRC that
/// claims to cover less is checked as if it covered everything.
pub fn verify_icrc_at_least(datagram: &[u8], flow: &Flow, weakest: IcrcCoverage) -> Result<(), PacketError> {
    if datagram.len() < Bth::SIZE + ICRC_SIZE {
        return Err(ParseError::TooShort { needed: Bth::SIZE + ICRC_SIZE, given: datagram.len() }.into());
    }
    let (packet, code) = split_tail::<ICRC_SIZE>(datagram)?;
    let claimed = IcrcCoverage::from_version(packet[Bth::VERSION_BYTE]).unwrap_or(IcrcCoverage::Full);
    let covered = match if claimed.covers_at_least(weakest) { claimed } else { IcrcCoverage::Full } {
        IcrcCoverage::Full => packet,
        IcrcCoverage::Prefix => &packet[..packet.len().min(PARTIAL_ICRC_BYTES)],
        IcrcCoverage::Nothing => return Ok(()),
    };
    if icrc_of(covered, packet.len(), flow).finish().to_le_bytes() != *code {
        return Err(PacketError::Physical(PacketCrc::Icrc));
    }
    Ok(())
}

/// Checks the ICRC of a UDP payload, then parses it.
pub fn verify<'a>(datagram: &'a [u8], flow: &Flow) -> Result<Packet<'a>, PacketError> {
    verify_icrc(datagram, flow)?;
    Ok(parse(datagram)?)
}

/// The ICRC over the first bytes of a packet, at least its BTH; the whole packet has `length` bytes before the ICRC.
fn icrc_of(beginning: &[u8], length: usize, flow: &Flow) -> Icrc {
    const LEADING_ONES: usize = 8;
    let mut masked = [0xff; LEADING_ONES + IPV6_SIZE + UDP_SIZE + Bth::SIZE];
    // The cast cannot truncate: no socket delivers a datagram that exceeds the length fields.
    let udp_length = (UDP_SIZE + length + ICRC_SIZE) as u16;
    let after_ones = &mut masked[LEADING_ONES..];
    let ip_size = match flow.ip {
        IpHeader::V4 { .. } => IPV4_SIZE,
        IpHeader::V6 { .. } => IPV6_SIZE,
    };
    flow.ip.write_masked(&mut after_ones[..ip_size], udp_length);
    let udp = &mut after_ones[ip_size..];
    udp[0..2].copy_from_slice(&flow.source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&flow.destination_port.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
    let (bth, rest) = beginning.split_at(Bth::SIZE);
    udp[UDP_SIZE..][..Bth::SIZE].copy_from_slice(bth);
    udp[UDP_SIZE + Bth::VARIANT_BYTE] = 0xff;

    let mut icrc = Icrc::new();
    icrc.update(&masked[..LEADING_ONES + ip_size + UDP_SIZE + Bth::SIZE]);
    icrc.update(rest);
    icrc
}

impl IpHeader {
    const UDP: u8 = 17;

    /// Writes the header over ones; fields that routers may change stay ones.
    fn write_masked(&self, header: &mut [u8], udp_length: u16) {
        match self {
            Self::V4 { source, destination, identification, fragmentation } => {
                let total_length = udp_length.wrapping_add(IPV4_SIZE as u16);
                header[0] = 0x45;
                header[2..4].copy_from_slice(&total_length.to_be_bytes());
                header[4..6].copy_from_slice(&identification.to_be_bytes());
                header[6..8].copy_from_slice(match fragmentation {
                    Fragmentation::Allowed => &[0, 0],
                    Fragmentation::Forbidden => &[0x40, 0],
                });
                header[9] = Self::UDP;
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
            }
            Self::V6 { source, destination } => {
                header[0] = 0x60;
                mask_ipv6(header);
                header[4..6].copy_from_slice(&udp_length.to_be_bytes());
                header[6] = Self::UDP;
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&destination.octets());
            }
        }
    }
}
