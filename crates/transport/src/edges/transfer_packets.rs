//! Packets of transfers, to the same sockets as those of tree edges.
//!
//! In: ranges of the caller's memory to send; datagrams. Out: batches of packets that the kernel segments; parts and acknowledgements that are authentic and intact, in the receive buffer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use units::{PathId, QpNumber, Time};
use wire::transfer::{
    AUTHENTICATED_BYTES, CONSTANT_BYTES, DataHeaders, ENCRYPTED_BIT, HEADER_BYTES, TransferHeader, TransferPacketKind,
};

use super::edge_event::PacketDrop;
use crate::macs::CounterBlock;
use crate::macs::{EdgeDirection, KeyedMacs, TransferMac};
use crate::udp::UdpPortIndex;
use crate::udp::connected_socket::ConnectedSocket;
use crate::udp::fault_injector::{DelayQueue, FaultInjector};
use crate::udp::port::UdpPort;

/// Bytes that one call passes to the kernel: the limit of the IP length field, less the headers.
const MAX_CALL_BYTES: usize = 65_000;
/// Packets of one call.
const MAX_CALL_PACKETS: usize = 64;
/// IP and UDP headers.
const IPV4_UDP_BYTES: usize = 28;
const IPV6_UDP_BYTES: usize = 48;
/// Parts are whole cache lines where the element size allows.
const PART_ALIGNMENT: usize = 64;
const MIN_PART_BYTES: usize = 512;
/// Where the header has the MAC of the payload; that of the header follows.
const PAYLOAD_MAC: std::ops::Range<usize> = 40..AUTHENTICATED_BYTES;

/// The payload of a packet whose header is authentic, not verified yet: whoever copies it verifies it in the same pass.
#[derive(Clone, Copy)]
pub struct UnverifiedPart<'a> {
    bytes: &'a [u8],
    payload_mac: u64,
    verifier: &'a Arc<KeyedMacs>,
}

impl<'a> UnverifiedPart<'a> {
    /// Bytes that should have this MAC.
    pub fn new(bytes: &'a [u8], payload_mac: u64, verifier: &'a Arc<KeyedMacs>) -> Self {
        Self { bytes, payload_mac, verifier }
    }

    /// Bytes of the part.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What verifies the bytes once more, if they are kept.
    pub fn verifier(&self) -> &'a Arc<KeyedMacs> {
        self.verifier
    }

    /// The bytes, if they are intact.
    pub fn verify(&self) -> Option<&'a [u8]> {
        (self.verifier.payload(self.bytes) == self.payload_mac).then_some(self.bytes)
    }

    /// Copies the bytes; true if they are intact. Otherwise the target holds no usable data.
    pub fn copy_to(&self, target: &mut [u8]) -> bool {
        self.verifier.copy_payload(self.bytes, target) == self.payload_mac
    }
}

/// What bulk transfers receive.
pub trait TransferSink {
    /// What is handed over next arrived at this time.
    fn set_time(&mut self, now: Time);
    /// A part of a transfer arrived over an edge. The bytes are only valid during the call. False if they are not intact.
    fn handle_part(
        &mut self,
        edge: QpNumber,
        path: PathId,
        header: &TransferHeader,
        part: UnverifiedPart<'_>,
    ) -> bool;
    /// An acknowledgement arrived over an edge; missing ranges follow its header.
    fn handle_acknowledgement(&mut self, edge: QpNumber, path: PathId, header: &TransferHeader, missing: &[u8]);
}

/// For processes without bulk transfers.
pub struct NoTransfers;

impl TransferSink for NoTransfers {
    fn set_time(&mut self, _: Time) {}
    fn handle_part(&mut self, _: QpNumber, _: PathId, _: &TransferHeader, _: UnverifiedPart<'_>) -> bool {
        true
    }
    fn handle_acknowledgement(&mut self, _: QpNumber, _: PathId, _: &TransferHeader, _: &[u8]) {}
}

/// How a transfer is divided into packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferPackets {
    /// Parts consist of whole elements of so many bytes.
    pub element: usize,
    /// Packets must pass every path ([`protocol::transfer::BASE_PACKET_BYTES`]).
    pub are_short: bool,
}

/// The most bytes of a part in one packet on a link.
pub(super) fn max_part_bytes(link_bytes: usize, ports: &[UdpPort]) -> usize {
    let is_ipv4 = ports.iter().all(|port| port.local.is_ipv4());
    let payload = link_bytes
        .saturating_sub(if is_ipv4 { IPV4_UDP_BYTES } else { IPV6_UDP_BYTES })
        .min(MAX_CALL_BYTES)
        .saturating_sub(HEADER_BYTES);
    (payload / PART_ALIGNMENT * PART_ALIGNMENT).max(MIN_PART_BYTES)
}

/// Makes packets of a range and passes them to the kernel.
///
/// The range is copied behind the headers while its MACs are computed, in one pass: then the kernel copies from the cache and from one
/// piece, which costs it less than a list of headers and parts in the caller's memory.
pub(super) struct TransferSender<'a> {
    pub port: &'a UdpPort,
    pub to: SocketAddr,
    /// A socket that is connected to the receiver, if there is one.
    pub connected: Option<&'a ConnectedSocket>,
    pub macs: &'a KeyedMacs,
    pub direction: EdgeDirection,
    /// The most bytes of one part.
    pub part_bytes: usize,
}

/// Space for the packets of one call.
pub(super) fn batch_buffer() -> Vec<u8> {
    vec![0; MAX_CALL_BYTES]
}

impl TransferSender<'_> {
    /// Sends a range in parts; `template` is the header of its first part. Returns how many bytes were sent.
    ///
    /// # Errors
    /// What the kernel reported, if it accepted nothing.
    pub(super) fn send(&self, template: &TransferHeader, range: &[u8], batch: &mut [u8]) -> io::Result<usize> {
        let TransferPacketKind::Data { offset, acknowledge_now, .. } = template.kind else { return Ok(0) };
        let Some(headers) = DataHeaders::new(template) else { return Ok(0) };
        let size = HEADER_BYTES + self.part_bytes;
        let in_call = (MAX_CALL_BYTES / size).min(MAX_CALL_PACKETS).min(self.port.max_gso_segments()).max(1);
        let mac = transfer_mac(template, self.macs, self.direction);
        let mut sent = 0;
        for call in chunks_or_empty(range, in_call * self.part_bytes) {
            let is_last_call = sent + call.len() == range.len();
            let mut length = 0;
            for (part, packet) in chunks_or_empty(call, self.part_bytes).zip(batch.chunks_mut(size)) {
                let start = length / size * self.part_bytes;
                let acknowledge_now = acknowledge_now && is_last_call && start + part.len() == call.len();
                let (header, body) = packet.split_first_chunk_mut().expect("a packet has room for its header");
                let body = &mut body[..part.len()];
                let payload_mac = self.macs.copy_payload(part, body);
                headers.emit(offset + (sent + start) as u32, acknowledge_now, payload_mac, header);
                protect_data((self.macs, &mac), payload_mac, header, body);
                length += HEADER_BYTES + part.len();
            }
            match self.send_packets(&batch[..length], size) {
                Ok(()) => sent += call.len(),
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// Passes packets of `size` bytes each to the kernel; the last may be shorter.
    pub(super) fn send_packets(&self, packets: &[u8], size: usize) -> io::Result<()> {
        match self.connected.filter(|_| !self.port.is_cut) {
            Some(socket) => socket.send(packets, size).or_else(|error| match error.kind() {
                io::ErrorKind::WouldBlock => Err(error),
                // Sends one by one where the link has no segmentation offload, and reports what is wrong otherwise.
                _ => self.port.send(self.to, packets, size),
            }),
            None => self.port.send(self.to, packets, size),
        }
    }
}

/// The chunks of a slice; one empty chunk if it is empty: an empty message is a packet too.
fn chunks_or_empty(bytes: &[u8], size: usize) -> impl Iterator<Item = &[u8]> {
    let empty = bytes.is_empty().then_some(bytes);
    empty.into_iter().chain(bytes.chunks(size))
}

/// The MAC of all packets with the constant part of this header.
fn transfer_mac(header: &TransferHeader, macs: &KeyedMacs, direction: EdgeDirection) -> TransferMac {
    let mut bytes = [0; HEADER_BYTES];
    header.emit(&mut bytes);
    TransferMac::new(macs, direction, &bytes[CONSTANT_BYTES])
}

/// Completes a data packet: encrypts the body if it must be secret, and writes the MAC of the header.
#[inline]
fn protect_data(
    (macs, mac): (&KeyedMacs, &TransferMac),
    payload_mac: u64,
    header: &mut [u8; HEADER_BYTES],
    body: &mut [u8],
) {
    let is_secret = macs.encrypts() && !body.is_empty();
    if is_secret {
        header[1] |= ENCRYPTED_BIT;
        let masked = payload_mac ^ mac.mask(header);
        header[PAYLOAD_MAC].copy_from_slice(&masked.to_be_bytes());
    }
    let mac = mac.of(header);
    header[AUTHENTICATED_BYTES..].copy_from_slice(&mac);
    if is_secret {
        macs.cipher().apply(&counter_block(header), body);
    }
}

/// The first counter block of an encrypted payload: both MACs, which the header shows.
fn counter_block(header: &[u8; HEADER_BYTES]) -> CounterBlock {
    header[PAYLOAD_MAC.start..].try_into().expect("two MACs")
}

/// One packet as a datagram.
pub(super) fn encode(header: &TransferHeader, body: &[u8], macs: &KeyedMacs, direction: EdgeDirection) -> Vec<u8> {
    let header = TransferHeader { payload_mac: macs.payload(body), ..*header };
    let mut datagram = [&[0; HEADER_BYTES][..], body].concat();
    let (head, body) = datagram.split_first_chunk_mut().expect("a header");
    header.emit(head);
    let mac = transfer_mac(&header, macs, direction);
    match header.kind {
        TransferPacketKind::Data { .. } => protect_data((macs, &mac), header.payload_mac, head, body),
        TransferPacketKind::Acknowledgement { .. } => {
            let mac = mac.of(head);
            head[AUTHENTICATED_BYTES..].copy_from_slice(&mac);
        }
    }
    datagram
}

/// Sends a range while a fault plan is active: packet by packet, each with its faults.
pub(super) fn send_with_faults(
    sender: &TransferSender<'_>,
    template: &TransferHeader,
    range: &[u8],
    (ports, port): (&[UdpPort], UdpPortIndex),
    (injector, delayed, now): (&mut FaultInjector, &mut DelayQueue, Time),
) -> (u64, u64) {
    let TransferPacketKind::Data { offset, acknowledge_now, probe } = template.kind else { return (0, 0) };
    let (mut lost, mut hurt) = (0, 0);
    for (index, part) in chunks_or_empty(range, sender.part_bytes).enumerate() {
        let start = index * sender.part_bytes;
        let acknowledge_now = acknowledge_now && start + part.len() == range.len();
        let kind = TransferPacketKind::Data { offset: offset + start as u32, acknowledge_now, probe };
        let datagram = encode(&TransferHeader { kind, ..*template }, part, sender.macs, sender.direction);
        let faults = injector.faults_for(port, datagram.len());
        lost += u64::from(faults.lost);
        hurt += u64::from(!faults.lost && !faults.flips.is_empty());
        delayed.apply(ports, now, (port, sender.to), datagram, &faults);
    }
    (lost, hurt)
}

/// What was found out about the packets of a transfer: all of them share it, and most packets follow one of the same transfer.
pub(super) struct KnownTransfer {
    constant: [u8; CONSTANT_BYTES.end - CONSTANT_BYTES.start],
    /// The header of the first of them.
    header: TransferHeader,
    at: UdpPortIndex,
    from: SocketAddr,
    pub edge: QpNumber,
    pub path: PathId,
    mac: TransferMac,
    macs: Arc<KeyedMacs>,
}

impl KnownTransfer {
    /// Of the transfer of a datagram that arrived at a port from an address; none if the datagram is too short.
    pub(super) fn new(
        datagram: &[u8],
        (at, from): (UdpPortIndex, SocketAddr),
        (edge, path): (QpNumber, PathId),
        (macs, direction): (Arc<KeyedMacs>, EdgeDirection),
    ) -> Option<Self> {
        let (header, ..) = TransferHeader::parse(datagram).ok()?;
        let constant = *constant_of(datagram)?;
        let mac = TransferMac::new(&macs, direction, &constant);
        Some(Self { constant, header, at, from, edge, path, mac, macs })
    }

    /// True if a datagram from there may be of the same transfer.
    pub(super) fn comes_from(&self, at: UdpPortIndex, from: SocketAddr) -> bool {
        (self.at, self.from) == (at, from)
    }

    /// True if a datagram from the same address is of the same transfer.
    #[inline]
    pub(super) fn includes(&self, datagram: &[u8]) -> bool {
        constant_of(datagram) == Some(&self.constant)
    }

    /// The header and body of a packet, if its header is authentic.
    pub(super) fn open<'d>(
        &'d self,
        datagram: &'d [u8],
        decrypted: &'d mut Vec<u8>,
    ) -> Result<(TransferHeader, UnverifiedPart<'d>), PacketDrop> {
        let (head, bytes) = datagram.split_first_chunk::<HEADER_BYTES>().ok_or(PacketDrop::Malformed)?;
        if self.mac.of(head) != head[AUTHENTICATED_BYTES..] {
            return Err(PacketDrop::Forged);
        }
        let mut header = self.header.parse_next(head).map_err(|_| PacketDrop::Malformed)?;
        if head[1] & ENCRYPTED_BIT != 0 {
            header.payload_mac ^= self.mac.mask(head);
            if decrypted.len() < bytes.len() {
                decrypted.resize(MAX_CALL_BYTES.max(bytes.len()), 0);
            }
            let plain = &mut decrypted[..bytes.len()];
            self.macs.cipher().apply_to(&counter_block(head), bytes, plain);
            return Ok((header, UnverifiedPart::new(plain, header.payload_mac, &self.macs)));
        }
        let is_data = matches!(header.kind, TransferPacketKind::Data { .. });
        if is_data && !bytes.is_empty() && self.macs.encrypts() {
            return Err(PacketDrop::Forged);
        }
        Ok((header, UnverifiedPart::new(bytes, header.payload_mac, &self.macs)))
    }
}

/// What all packets of a transfer have in common.
#[inline]
fn constant_of(datagram: &[u8]) -> Option<&[u8; CONSTANT_BYTES.end - CONSTANT_BYTES.start]> {
    datagram.get(CONSTANT_BYTES)?.first_chunk()
}

#[cfg(test)]
mod tests {
    use manager::AuthKey;
    use units::{Epoch, GroupId, OpId};
    use wire::transfer::TransferName;

    use super::*;
    use crate::macs::EdgeSide;

    const BODY: [u8; 1400] = [7; 1400];

    fn datagram(kind: TransferPacketKind, body: &[u8], macs: &KeyedMacs) -> Vec<u8> {
        let name = TransferName { group: GroupId(1), epoch: Epoch(2), operation: OpId(3), round: 4 };
        let (destination, unfinished) = (QpNumber(5), OpId(3));
        let header =
            TransferHeader { destination, name, fingerprint: 6, length: 9000, unfinished, kind, payload_mac: 0 };
        encode(&header, body, macs, direction(EdgeSide::Child))
    }

    /// What a child sends over edge 5.
    fn direction(sender: EdgeSide) -> EdgeDirection {
        EdgeDirection::outgoing(QpNumber(5), QpNumber(5), sender)
    }

    fn known(datagram: &[u8], macs: &Arc<KeyedMacs>) -> KnownTransfer {
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        KnownTransfer::new(
            datagram,
            (UdpPortIndex(0), from),
            (QpNumber(5), PathId(0)),
            (macs.clone(), direction(EdgeSide::Child)),
        )
        .expect("long enough")
    }

    /// A change of eight bytes, and eight more after them that take a CRC's register back to where it would be: the CRC stays.
    fn neutral_change(algorithm: checksum::Algorithm, at: usize) -> Vec<u8> {
        let value = |bytes: &[u8]| checksum::value(algorithm, bytes);
        let mut change = vec![0; BODY.len()];
        change[at] = 1;
        let difference = value(&change[..at + 8]) ^ value(&vec![0; at + 8]);
        change[at + 8..at + 16].copy_from_slice(&difference.to_le_bytes());
        assert_eq!(value(&change), value(&vec![0; BODY.len()]), "the change is neutral");
        change
    }

    #[test]
    fn an_attacker_on_the_path_cannot_change_a_payload() {
        let macs = Arc::new(KeyedMacs::new(AuthKey([3; 16])));
        let kind = TransferPacketKind::Data { offset: 1400, acknowledge_now: false, probe: 0 };
        let sent = datagram(kind, &BODY, &macs);
        let known = known(&sent, &macs);
        let verified = |bytes: &[u8]| {
            known.open(bytes, &mut Vec::new()).ok().and_then(|(_, part)| {
                let mut copy = vec![0; part.len()];
                assert_eq!(part.copy_to(&mut copy), part.verify().is_some());
                part.verify().map(<[u8]>::to_vec)
            })
        };
        assert_eq!(verified(&sent), Some(BODY.to_vec()));
        for algorithm in [checksum::Algorithm::Crc32c, checksum::Algorithm::Crc64Nvme] {
            for at in [0, 8, 64, 1000, 1384] {
                let mut changed = sent.clone();
                let change = neutral_change(algorithm, at);
                changed[HEADER_BYTES..].iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
                assert_eq!(verified(&changed), None, "{algorithm:?} at {at}");
            }
        }
        for length in HEADER_BYTES..sent.len() {
            assert_eq!(verified(&sent[..length]), None, "cut to {length} bytes");
        }
    }

    #[test]
    fn an_encrypted_part_is_read_by_its_receiver_alone() {
        let macs = Arc::new(KeyedMacs::new(AuthKey([3; 16])));
        macs.encrypt();
        let kind = |offset| TransferPacketKind::Data { offset, acknowledge_now: false, probe: 0 };
        let (sent, next) = (datagram(kind(0), &BODY, &macs), datagram(kind(1400), &BODY, &macs));
        assert!(sent.windows(8).all(|window| window != [7; 8]));
        // Equal payloads look different everywhere, their MACs included.
        let equal = sent[PAYLOAD_MAC.start..].iter().zip(&next[PAYLOAD_MAC.start..]).filter(|(a, b)| a == b).count();
        assert!(equal < 40, "{equal} bytes are the same");
        let known = known(&sent, &macs);
        let verified = |bytes: &[u8]| {
            let mut space = Vec::new();
            known.open(bytes, &mut space).ok().and_then(|(_, part)| part.verify().map(<[u8]>::to_vec))
        };
        assert_eq!((verified(&sent), verified(&next)), (Some(BODY.to_vec()), Some(BODY.to_vec())));
        for bit in (0..sent.len() * 8).filter(|bit| !CONSTANT_BYTES.contains(&(bit / 8))).step_by(7) {
            let mut changed = sent.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verified(&changed), None, "bit {bit}");
        }
        let plain = datagram(kind(0), &BODY, &KeyedMacs::new(AuthKey([3; 16])));
        assert_eq!(verified(&plain), None, "nothing is taken in clear");
    }

    #[test]
    fn acknowledgements_cannot_be_forged_or_changed() {
        let macs = Arc::new(KeyedMacs::new(AuthKey([3; 16])));
        let kind = TransferPacketKind::Acknowledgement { received: 10, limit: 20, probe: 1 };
        let sent = datagram(kind, &[0, 0, 0, 10, 0, 0, 0, 5], &macs);
        let known = known(&sent, &macs);
        let is_accepted =
            |bytes: &[u8]| known.open(bytes, &mut Vec::new()).is_ok_and(|(_, part)| part.verify().is_some());
        assert!(is_accepted(&sent));
        for bit in 0..sent.len() * 8 {
            let mut changed = sent.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let is_same_transfer = changed[CONSTANT_BYTES] == sent[CONSTANT_BYTES];
            assert!(!is_same_transfer || !is_accepted(&changed), "bit {bit}");
        }
        let others = KeyedMacs::new(AuthKey([4; 16]));
        assert!(!is_accepted(&datagram(kind, &[0, 0, 0, 10, 0, 0, 0, 5], &others)));
    }
}
