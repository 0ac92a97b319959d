//! Aggregation messages as packet payloads: header, payload, MAC.

use std::net::SocketAddr;

use protocol::aggregation::AggregationMessage;
use protocol::datagram::MULTICAST_QP;
use protocol::{BufferPool, Payload};
use units::GroupId;
use wire::aggregation::AggregationHeader;
use wire::{Bth, Opcode, Packet, rocev2};

use super::edge_event::PacketDrop;
use super::message_mac::{KeyedMacs, MAC_BYTES};
use super::multicast_group::MulticastGroups;

/// The message of a packet, if its MAC fits the key of its group.
pub(super) fn read_message<'k>(
    packet: &Packet<'_>,
    macs: impl FnOnce(GroupId) -> Option<&'k KeyedMacs>,
    pool: &mut BufferPool,
) -> Result<AggregationMessage, PacketDrop> {
    let (message, found) = packet.payload.split_last_chunk::<MAC_BYTES>().ok_or(PacketDrop::Malformed)?;
    let head = message.get(..AggregationHeader::SIZE).ok_or(PacketDrop::Malformed)?;
    let (header, checksum, payload) =
        AggregationHeader::parse_unverified(message).map_err(|_| PacketDrop::Malformed)?;
    let bth = &packet.headers.bth;
    let macs = macs(header.group).ok_or(PacketDrop::Foreign)?;
    if macs.message(bth.destination, bth.psn, head, payload) != *found {
        return Err(PacketDrop::Forged);
    }
    // Requests and aborts have no payload and no checksum; an operand of no elements has a checksum.
    let payload =
        if payload.is_empty() && checksum == 0 { Payload::EMPTY } else { Payload::Bytes(pool.copy(payload)) };
    Ok(AggregationMessage { header, payload, checksum })
}

/// The message of a multicast datagram that arrived at an address.
pub(super) fn read_multicast(
    multicast_groups: &MulticastGroups,
    at: SocketAddr,
    datagram: &[u8],
    pool: &mut BufferPool,
) -> Result<(GroupId, AggregationMessage), PacketDrop> {
    let packet = rocev2::parse(datagram).map_err(|_| PacketDrop::Malformed)?;
    let bth = &packet.headers.bth;
    if bth.opcode != Opcode::DatagramSendOnly || bth.destination != MULTICAST_QP {
        return Err(PacketDrop::Malformed);
    }
    let message = read_message(&packet, |group| multicast_groups.macs(group, at), pool)?;
    Ok((message.header.group, message))
}

/// Writes a message and its MAC into a cleared buffer.
pub(super) fn write_message(bytes: &mut Vec<u8>, message: &AggregationMessage, bth: &Bth, macs: &KeyedMacs) {
    bytes.clear();
    bytes.resize(AggregationHeader::SIZE, 0);
    // The checksum was computed together with the payload, in the memory of its producer: it reveals any change since then.
    message.header.emit_with_checksum(message.checksum, bytes);
    let payload = message.payload.bytes().unwrap_or_default();
    let mac = macs.message(bth.destination, bth.psn, bytes, payload);
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&mac);
}
