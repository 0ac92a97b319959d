//! A datagram as a packet on the wire, with IP and UDP headers, and a capture file of such packets.

use wire::rocev2::{Flow, Fragmentation, IpHeader};

/// The IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    V4,
    V6,
}

impl Network {
    pub(crate) fn of(flow: &Flow) -> Self {
        match flow.ip {
            IpHeader::V4 { .. } => Self::V4,
            IpHeader::V6 { .. } => Self::V6,
        }
    }
}

const UDP: u8 = 17;

/// Prepends IP and UDP headers with correct lengths and checksums. The fields that routers may change are not all ones here,
/// though the ICRC treats them so: the other programs must confirm that it does.
pub(crate) fn network_packet(flow: &Flow, datagram: &[u8]) -> Vec<u8> {
    const TRAFFIC_CLASS: u8 = 0x68;
    const HOP_LIMIT: u8 = 61;
    let udp_length = (8 + datagram.len()) as u16;
    let (mut packet, ends) = match flow.ip {
        IpHeader::V4 { source, destination, identification, fragmentation } => {
            let mut header = vec![0x45, TRAFFIC_CLASS];
            header.extend((20 + udp_length).to_be_bytes());
            header.extend(identification.to_be_bytes());
            header.extend(match fragmentation {
                Fragmentation::Allowed => [0, 0],
                Fragmentation::Forbidden => [0x40, 0],
            });
            header.extend([HOP_LIMIT, UDP, 0, 0]);
            let ends = [source.octets(), destination.octets()].concat();
            header.extend(&ends);
            let checksum = internet_checksum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            (header, ends)
        }
        IpHeader::V6 { source, destination } => {
            const FLOW_LABEL: u32 = 0xa_bcde;
            let mut header = (6 << 28 | u32::from(TRAFFIC_CLASS) << 20 | FLOW_LABEL).to_be_bytes().to_vec();
            header.extend(udp_length.to_be_bytes());
            header.extend([UDP, HOP_LIMIT]);
            let ends = [source.octets(), destination.octets()].concat();
            header.extend(&ends);
            (header, ends)
        }
    };
    let mut udp = Vec::new();
    udp.extend(flow.source_port.to_be_bytes());
    udp.extend(flow.destination_port.to_be_bytes());
    udp.extend(udp_length.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(datagram);
    let pseudo_header = [&ends[..], &[0, UDP], &udp_length.to_be_bytes()].concat();
    // Zero would mean no checksum; all ones is the same number in this arithmetic.
    let checksum = match internet_checksum(&[pseudo_header, udp.clone()].concat()) {
        0 => 0xffff,
        other => other,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(udp);
    packet
}

/// The ones' complement sum of RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A pcap file whose packets begin with their IP headers.
pub(crate) fn capture_file(packets: &[Vec<u8>]) -> Vec<u8> {
    const LINK_TYPE_RAW_IP: u32 = 101;
    const SNAP_LENGTH: u32 = 1 << 16;
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_le_bytes());
    file.extend([2u16, 4].map(u16::to_le_bytes).concat());
    file.extend([0, 0, SNAP_LENGTH, LINK_TYPE_RAW_IP].map(u32::to_le_bytes).concat());
    for (second, packet) in packets.iter().enumerate() {
        let length = packet.len() as u32;
        file.extend([second as u32, 0, length, length].map(u32::to_le_bytes).concat());
        file.extend(packet);
    }
    file
}

/// Two hexadecimal digits per byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
