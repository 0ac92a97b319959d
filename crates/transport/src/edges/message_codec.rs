//! Aggregation messages as packet payloads: header, payload, MAC.

use std::net::SocketAddr;

use protocol::aggregation::AggregationMessage;
use protocol::datagram::MULTICAST_QP;
use protocol::{BufferPool, Payload};
use units::GroupId;
use wire::aggregation::{AggregationHeader, ENCRYPTED_BIT};
use wire::{Bth, Opcode, Packet, PacketHeaders, rocev2};

use super::edge_event::PacketDrop;
use super::multicast_group::MulticastGroups;
use crate::macs::{EdgeDirection, KeyedMacs, MAC_BYTES, MessageMac, message_name};

/// The message of a packet, if its MAC fits the key of its group.
pub(super) fn read_message<'k>(
    packet: &Packet<'_>,
    (macs, direction): (impl FnOnce(GroupId) -> Option<&'k KeyedMacs>, EdgeDirection),
    (pool, decrypted): (&mut BufferPool, &mut Vec<u8>),
) -> Result<AggregationMessage, PacketDrop> {
    let (message, found) = packet.payload.split_last_chunk::<MAC_BYTES>().ok_or(PacketDrop::Malformed)?;
    let head = message.first_chunk::<{ AggregationHeader::SIZE }>().ok_or(PacketDrop::Malformed)?;
    let bth = &packet.headers.bth;
    let macs = macs(AggregationHeader::group_of(head)).ok_or(PacketDrop::Foreign)?;
    let is_encrypted = head[0] & ENCRYPTED_BIT != 0;
    let message = if is_encrypted { decrypt(message, *found, bth, (macs, direction), decrypted) } else { message };
    let (header, checksum, payload) =
        AggregationHeader::parse_unverified(message).map_err(|_| PacketDrop::Malformed)?;
    if macs.message(direction, bth, &message[..AggregationHeader::SIZE], payload) != *found {
        return Err(PacketDrop::Forged);
    }
    if is_encrypted {
        // A node has no setting of its own: it keeps the secrets of groups that have some.
        macs.encrypt();
    } else if !payload.is_empty() && macs.encrypts() {
        return Err(PacketDrop::Forged);
    }
    // Requests and aborts have no payload and no checksum; an operand of no elements has a checksum.
    let payload =
        if payload.is_empty() && checksum == 0 { Payload::EMPTY } else { Payload::Bytes(pool.copy(payload)) };
    Ok(AggregationMessage { header, payload, checksum })
}

/// A message in plain text. Nothing of it may be used before its MAC is verified.
fn decrypt<'b>(
    message: &[u8],
    mac: MessageMac,
    bth: &Bth,
    (macs, direction): (&KeyedMacs, EdgeDirection),
    decrypted: &'b mut Vec<u8>,
) -> &'b [u8] {
    decrypted.clear();
    decrypted.extend_from_slice(message);
    decrypted[0] &= !ENCRYPTED_BIT;
    let (name, secret) = decrypted.split_at_mut(AggregationHeader::COVERED);
    let block = macs.cipher().block(message_name(direction, bth), name, mac);
    macs.cipher().apply(&block, secret);
    decrypted
}

/// The message of a multicast datagram that arrived at an address.
pub(super) fn read_multicast(
    multicast_groups: &MulticastGroups,
    at: SocketAddr,
    datagram: &[u8],
    buffers: (&mut BufferPool, &mut Vec<u8>),
) -> Result<(GroupId, AggregationMessage), PacketDrop> {
    let packet = rocev2::parse(datagram).map_err(|_| PacketDrop::Malformed)?;
    let bth = &packet.headers.bth;
    if bth.opcode != Opcode::DatagramSendOnly || bth.destination != MULTICAST_QP {
        return Err(PacketDrop::Malformed);
    }
    let macs = |group| multicast_groups.macs(group, at);
    let message = read_message(&packet, (macs, EdgeDirection::MULTICAST), buffers)?;
    Ok((message.header.group, message))
}

/// The headers of an acknowledgement, a NAK or a probe, if they are authentic and for the edge at which they arrived.
pub(super) fn read_control(
    packet: &Packet<'_>,
    (macs, direction): (&KeyedMacs, EdgeDirection),
) -> Result<PacketHeaders, PacketDrop> {
    let bth = &packet.headers.bth;
    if bth.opcode != Opcode::AuthenticatedControl {
        return Err(PacketDrop::Forged);
    }
    let (bytes, found) = packet.payload.split_last_chunk::<MAC_BYTES>().ok_or(PacketDrop::Malformed)?;
    let headers = PacketHeaders::parse(bytes).map_err(|_| PacketDrop::Malformed)?;
    if bytes.len() != headers.size()
        || (headers.bth.destination, headers.bth.migrated) != (bth.destination, bth.migrated)
    {
        return Err(PacketDrop::Malformed);
    }
    if macs.control(direction, bytes) != *found {
        return Err(PacketDrop::Forged);
    }
    Ok(headers)
}

/// Writes the headers of an acknowledgement, a NAK or a probe, and their MAC, into a cleared buffer; the headers of the packet that carries
/// them.
pub(super) fn write_control(
    bytes: &mut Vec<u8>,
    headers: &PacketHeaders,
    (macs, direction): (&KeyedMacs, EdgeDirection),
) -> PacketHeaders {
    bytes.clear();
    bytes.resize(headers.size(), 0);
    headers.emit(bytes);
    let mac = macs.control(direction, bytes);
    bytes.extend_from_slice(&mac);
    let mut outer = Bth::new(Opcode::AuthenticatedControl, headers.bth.destination, headers.bth.psn);
    outer.migrated = headers.bth.migrated;
    PacketHeaders::from(outer)
}

/// Writes a message and its MAC into a cleared buffer.
pub(super) fn write_message(
    bytes: &mut Vec<u8>,
    message: &AggregationMessage,
    bth: &Bth,
    (macs, direction): (&KeyedMacs, EdgeDirection),
) {
    bytes.clear();
    bytes.resize(AggregationHeader::SIZE, 0);
    // The checksum was computed together with the payload, in the memory of its producer: it reveals any change since then.
    message.header.emit_with_checksum(message.checksum, bytes);
    let payload = message.payload.bytes().unwrap_or_default();
    let mac = macs.message(direction, bth, bytes, payload);
    bytes.extend_from_slice(payload);
    if macs.encrypts() && !payload.is_empty() {
        let (name, secret) = bytes.split_at_mut(AggregationHeader::COVERED);
        let block = macs.cipher().block(message_name(direction, bth), name, mac);
        macs.cipher().apply(&block, secret);
        bytes[0] |= ENCRYPTED_BIT;
    }
    bytes.extend_from_slice(&mac);
}

#[cfg(test)]
mod tests {
    use manager::AuthKey;
    use protocol::connection::{Frame, MigrationBit, control_frame, control_headers};
    use units::{Psn, QpNumber};

    use super::*;
    use crate::macs::EdgeSide;

    type ControlFrame = Frame<AggregationMessage>;

    fn written(frame: &ControlFrame, to: QpNumber, macs: &KeyedMacs) -> (PacketHeaders, Vec<u8>) {
        let headers = control_headers(frame, to, MigrationBit::Migrated, 0).expect("a control frame");
        let mut bytes = Vec::new();
        let direction = EdgeDirection::outgoing(to, to, EdgeSide::Child);
        (write_control(&mut bytes, &headers, (macs, direction)), bytes)
    }

    fn at(end: EdgeSide) -> EdgeDirection {
        EdgeDirection::incoming(QpNumber(5), QpNumber(5), end)
    }

    fn frames() -> [ControlFrame; 5] {
        let psn = Psn::new(7);
        [
            Frame::Ack { psn },
            Frame::Nak { expected: psn },
            Frame::SelectiveAck { expected: psn, arrived: 5 },
            Frame::Probe { token: 9 },
            Frame::ProbeReply { token: 9 },
        ]
    }

    fn message(payload: &[u8]) -> AggregationMessage {
        let header = AggregationHeader {
            kind: wire::aggregation::AggregationMessageKind::Contribution,
            element: Default::default(),
            operator: Default::default(),
            flags: 0,
            group: GroupId(9),
            epoch: units::Epoch(1),
            operation: units::OpId(2),
            segment: units::SegmentIndex(3),
            child: units::ChildIndex(0),
            element_count: 1,
            detail: 0,
        };
        let mut pool = BufferPool::new(1);
        let payload_bytes = if payload.is_empty() { Payload::EMPTY } else { Payload::Bytes(pool.copy(payload)) };
        AggregationMessage { header, payload: payload_bytes, checksum: header.checksum(payload) }
    }

    /// The payload of a message as it is read by a child's parent, and the bytes of its packet.
    fn carried(payload: &[u8], from: &KeyedMacs, to: &KeyedMacs) -> (Result<Vec<u8>, PacketDrop>, Vec<u8>) {
        let direction = EdgeDirection::outgoing(QpNumber(5), QpNumber(5), EdgeSide::Child);
        let (bth, mut bytes) = (Bth::new(Opcode::SendOnly, QpNumber(5), Psn::new(7)), Vec::new());
        write_message(&mut bytes, &message(payload), &bth, (from, direction));
        let space = (&mut BufferPool::new(1), &mut Vec::new());
        let read = read_message(&Packet::new(bth, &bytes), (|_| Some(to), direction), space);
        (read.map(|message| message.payload.bytes().unwrap_or_default().to_vec()), bytes)
    }

    #[test]
    fn an_encrypted_message_is_read_by_its_receiver_alone() {
        let macs = |encrypts: bool| {
            let macs = KeyedMacs::new(AuthKey([1; 16]));
            if encrypts {
                macs.encrypt();
            }
            macs
        };
        let secret = [0x5a; 800];
        let (read, bytes) = carried(&secret, &macs(true), &macs(true));
        assert_eq!(read, Ok(secret.to_vec()));
        assert!(bytes.windows(8).all(|window| window != [0x5a; 8]));
        let crc = message(&secret).checksum.to_be_bytes();
        assert!(bytes.windows(4).all(|window| window != crc), "the CRC tells something about the payload");
        // A node has no setting: it follows its children, and then takes nothing in clear.
        let node = macs(false);
        assert_eq!(carried(&secret, &macs(false), &node).0, Ok(secret.to_vec()));
        assert_eq!(carried(&secret, &macs(true), &node).0, Ok(secret.to_vec()));
        assert!(node.encrypts());
        assert_eq!(carried(&secret, &macs(false), &node).0, Err(PacketDrop::Forged));
        assert_eq!(carried(&[], &macs(false), &node).0, Ok(Vec::new()), "without a payload there is no secret");
        // Each bit counts.
        for bit in (0..bytes.len() * 8).step_by(3) {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let direction = at(EdgeSide::Parent);
            let bth = Bth::new(Opcode::SendOnly, QpNumber(5), Psn::new(7));
            let (member, space) = (macs(true), (&mut BufferPool::new(1), &mut Vec::new()));
            let read = read_message(&Packet::new(bth, &changed), (|_| Some(&member), direction), space);
            assert!(read.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn authentic_control_frames_are_read_back_and_every_change_is_found() {
        let (macs, others) = (KeyedMacs::new(AuthKey([1; 16])), KeyedMacs::new(AuthKey([2; 16])));
        for frame in frames() {
            let (headers, payload) = written(&frame, QpNumber(5), &macs);
            let read = |payload: &[u8], macs: &KeyedMacs| {
                read_control(&Packet::new(headers, payload), (macs, at(EdgeSide::Parent)))
            };
            let inner = read(&payload, &macs).expect("authentic");
            assert_eq!(control_frame::<AggregationMessage>(&inner), Some(frame));
            assert_eq!(read(&payload, &others), Err(PacketDrop::Forged));
            // Its own frame, sent back.
            let reflected = read_control(&Packet::new(headers, &payload), (&macs, at(EdgeSide::Child)));
            assert_eq!(reflected, Err(PacketDrop::Forged));
            for bit in 0..payload.len() * 8 {
                let mut changed = payload.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(read(&changed, &macs).is_err(), "{inner:?}, bit {bit}");
            }
            assert!((0..payload.len()).all(|length| read(&payload[..length], &macs).is_err()));
        }
    }

    /// An acknowledgement that the receiver did not send makes the sender forget a message which never arrived.
    #[test]
    fn plain_acknowledgements_and_those_for_another_edge_are_rejected() {
        let macs = KeyedMacs::new(AuthKey([1; 16]));
        for frame in frames() {
            let plain = control_headers(&frame, QpNumber(5), MigrationBit::Loaded, 0).expect("a control frame");
            assert_eq!(
                read_control(&Packet::new(plain, &[]), (&macs, at(EdgeSide::Parent))),
                Err(PacketDrop::Forged)
            );
            let (_, payload) = written(&frame, QpNumber(5), &macs);
            let (elsewhere, _) = written(&frame, QpNumber(6), &macs);
            assert!(read_control(&Packet::new(elsewhere, &payload), (&macs, at(EdgeSide::Parent))).is_err());
        }
    }
}
