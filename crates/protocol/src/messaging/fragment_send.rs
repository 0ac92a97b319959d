//! Sending long messages: RTS, preparation during the handshake, fragments (P-69 to P-71).

use std::collections::VecDeque;

use checksum::TargetCache;
use units::Span;

use super::action::{InPlaceBuffers, MessagingAction};
use super::checksum_policy;
use super::completion::PeerLossCause;
use super::endpoint_shared::EndpointShared;
use super::fragment_sizer::{FragmentRange, FragmentSizer, PipelineSpeeds};
use super::fragments::{FragmentChecksum, NextFragment, OutgoingTransfer, PreparedFragment};
use super::lent_buffer::SendBuffer;
use super::matching::SendId;
use super::packet::{BodyKind, MESSAGE_HEADER_BYTES, MessageHeader};
use super::peer::{MessagingPeer, header_template};
use super::rails::{PacketLoad, RailIndex};
use crate::connection::AckRequest;
use crate::{BufferSlice, SharedBytes};

/// Fragments per peer that are checksummed before the CTS, if they are sent from the user's buffer and so need no memory.
const MAX_CHECKSUMMED_AHEAD: usize = 8;

impl MessagingPeer {
    /// The RTS of a long message was sent.
    pub(super) fn begin_transfer(
        &mut self,
        shared: &mut EndpointShared,
        transfer: u64,
        id: SendId,
        data: SendBuffer,
    ) {
        let settings = shared.settings;
        let speeds = PipelineSpeeds {
            copy: settings.copy_bytes_per_us,
            network: self.rails.speed(),
            rtt: self.rtt.unwrap_or(settings.initial_rtt),
        };
        let sizer = FragmentSizer::new(&settings, &speeds, data.len() as u64);
        self.outgoing.insert(transfer, OutgoingTransfer::new(shared.now, id, data.into_shared(), sizer));
        if settings.prepared > 0 {
            self.unprepared.push_back(transfer);
        }
    }

    /// Copies the first fragment while the RTS is in flight (CK-7). Fragments that are sent from the user's buffer are only
    /// checksummed, which needs no memory: as many as there is time for.
    pub(super) fn prepare_transfer(
        &mut self,
        shared: &mut EndpointShared,
        transfer: u64,
        buffers: &impl InPlaceBuffers,
    ) {
        let settings = shared.settings;
        if buffers.shares_memory_with(self.rank) {
            return;
        }
        let Some(outgoing) = self.outgoing.get_mut(&transfer) else { return };
        let (limit, limit_per_transfer) = if buffers.supports_borrowed() {
            (MAX_CHECKSUMMED_AHEAD, MAX_CHECKSUMMED_AHEAD)
        } else {
            (settings.prepared, 1)
        };
        while !outgoing.is_ready
            && self.prepared < limit
            && outgoing.prepared.len() < limit_per_transfer
            && let Some(range) = outgoing.sizer.next_ahead(&settings)
        {
            self.prepared += 1;
            shared.counters.prepared_bytes += u64::from(range.length);
            let prepared = prepare_fragment(shared, outgoing.data.bytes(), range, buffers.supports_borrowed());
            outgoing.prepared.push_back(prepared);
        }
    }

    /// The peer has a buffer for a message. A CTS is late if the peer's user posts its receive late, so the estimate grows slowly.
    pub(super) fn handle_cts(&mut self, shared: &EndpointShared, transfer: u64) -> Result<(), PeerLossCause> {
        let outgoing = self.outgoing.get_mut(&transfer).ok_or(PeerLossCause::Malformed)?;
        outgoing.is_ready = true;
        let sample = shared.now.since(outgoing.announced);
        let longest = |old: Span| old + old.divided_by(8);
        self.rtt = Some(self.rtt.map_or(sample, |old| sample.min(longest(old))));
        self.active.push_back(transfer);
        Ok(())
    }

    /// A transfer ended: its prepared fragments are not needed.
    pub(super) fn release_prepared(&mut self, shared: &mut EndpointShared, prepared: VecDeque<PreparedFragment>) {
        self.prepared -= prepared.len();
        prepared.into_iter().for_each(|prepared| shared.recycle(prepared.packet));
    }

    /// Sends the next fragment of a transfer over a rail.
    pub(super) fn send_fragment(
        &mut self,
        shared: &mut EndpointShared,
        transfer: u64,
        rail: RailIndex,
        buffers: &mut impl InPlaceBuffers,
    ) -> Result<(), PeerLossCause> {
        let share = self.rails.share(rail);
        let Some(outgoing) = self.outgoing.get_mut(&transfer) else { return Ok(()) };
        let Some(next) = outgoing.next(&shared.settings, share) else { return Ok(()) };
        let (range, retransmits) = match &next {
            NextFragment::Prepared(prepared) => (prepared.range, 0),
            NextFragment::Fresh(range) => (*range, 0),
            NextFragment::Retransmit(range, retransmits, _) => (*range, *retransmits),
        };
        let data = outgoing.data.clone();
        let (from, length) = (range.offset as usize, range.length as usize);
        let bytes = &data.bytes()[from..from + length];
        if let NextFragment::Retransmit(.., checksum) = &next {
            // The packet gets a new checksum: if the buffer was corrupted meanwhile, wrong data would look right.
            if fragment_checksum(shared, bytes) != *checksum {
                return Err(PeerLossCause::LocalCorruption);
            }
            shared.counters.retransmitted += 1;
        }
        let in_place = if matches!(next, NextFragment::Prepared(_)) {
            None
        } else {
            buffers.reserve(self.rank, rail, MESSAGE_HEADER_BYTES + length)
        };
        let (number, checksum) = match in_place {
            Some(buffer) => self.write_fragment(shared, (transfer, range), rail, bytes, buffer),
            None => {
                let (prepared, copied) = match next {
                    NextFragment::Prepared(prepared) => {
                        self.prepared -= 1;
                        (prepared, 0)
                    }
                    NextFragment::Fresh(_) | NextFragment::Retransmit(..) => {
                        (prepare_fragment(shared, data.bytes(), range, buffers.supports_borrowed()), length)
                    }
                };
                self.send_prepared(shared, transfer, rail, &data, (prepared, copied))
            }
        };
        if let Some(outgoing) = self.outgoing.get_mut(&transfer) {
            outgoing.note_sent((rail, number), range, retransmits, checksum);
        }
        Ok(())
    }

    /// Copies a fragment into memory that the peer reads.
    fn write_fragment(
        &mut self,
        shared: &mut EndpointShared,
        (transfer, range): (u64, FragmentRange),
        rail: RailIndex,
        bytes: &[u8],
        buffer: &mut [u8],
    ) -> (u64, FragmentChecksum) {
        let choice = shared.settings.checksum.choice(bytes.len());
        let target = &mut buffer[MESSAGE_HEADER_BYTES..];
        let value = checksum_policy::copy_to(choice, bytes, target, TargetCache::Remote);
        let checksum = FragmentChecksum { algorithm: checksum_policy::algorithm_number(choice), value };
        let (load, header) = (Some(PacketLoad::Fragment), fragment_header(transfer, range, checksum));
        let number = self.write_header(shared, rail, (load, bytes.len()), header, buffer);
        let length = MESSAGE_HEADER_BYTES + bytes.len();
        shared.actions.push_back(MessagingAction::TransmitInPlace { to: self.rank, rail, length });
        (number, checksum)
    }

    /// Sends a fragment from its packet, or, if the packet is only a header, from the user's buffer.
    fn send_prepared(
        &mut self,
        shared: &mut EndpointShared,
        transfer: u64,
        rail: RailIndex,
        data: &SharedBytes,
        (prepared, copied): (PreparedFragment, usize),
    ) -> (u64, FragmentChecksum) {
        let PreparedFragment { packet: mut head, checksum, range } = prepared;
        let header = fragment_header(transfer, range, checksum);
        if head.len() > MESSAGE_HEADER_BYTES {
            return (self.transmit(shared, rail, (PacketLoad::Fragment, copied), header, head), checksum);
        }
        let (from, length) = (range.offset as usize, range.length as usize);
        let number = self.write_header(shared, rail, (Some(PacketLoad::Fragment), length), header, &mut head);
        let body = BufferSlice::new(data, from..from + length);
        // Before the rail is full; and at the end, when the user waits for the buffer.
        let is_last = self.outgoing.get(&transfer).is_none_or(|outgoing| outgoing.wants().is_none());
        let is_half_full = self.rails.fragments(rail).is_multiple_of(shared.settings.depth.div_ceil(2));
        let ask = if is_last || is_half_full { AckRequest::Immediate } else { AckRequest::Deferred };
        shared.actions.push_back(MessagingAction::TransmitBorrowed { to: self.rank, rail, head, body, ask });
        (number, checksum)
    }
}

fn fragment_header(transfer: u64, range: FragmentRange, checksum: FragmentChecksum) -> MessageHeader {
    MessageHeader {
        sequence: transfer,
        detail: range.offset,
        algorithm: checksum.algorithm,
        ..header_template(BodyKind::Fragment, None, checksum.value)
    }
}

/// The checksum of a fragment in the user's buffer.
fn fragment_checksum(shared: &EndpointShared, bytes: &[u8]) -> FragmentChecksum {
    let choice = shared.settings.checksum.choice(bytes.len());
    let value = checksum_policy::value(choice, bytes);
    FragmentChecksum { algorithm: checksum_policy::algorithm_number(choice), value }
}

/// Copies and checksums a fragment; if the driver borrows, only checksums it.
fn prepare_fragment(
    shared: &mut EndpointShared,
    data: &[u8],
    range: FragmentRange,
    borrows: bool,
) -> PreparedFragment {
    let (from, length) = (range.offset as usize, range.length as usize);
    let bytes = &data[from..from + length];
    if borrows {
        let checksum = fragment_checksum(shared, bytes);
        return PreparedFragment { range, checksum, packet: shared.buffer(MESSAGE_HEADER_BYTES) };
    }
    let choice = shared.settings.checksum.choice(length);
    let mut packet = shared.buffer(MESSAGE_HEADER_BYTES + length);
    let value = checksum_policy::copy(choice, bytes, &mut packet[MESSAGE_HEADER_BYTES..]);
    let checksum = FragmentChecksum { algorithm: checksum_policy::algorithm_number(choice), value };
    PreparedFragment { range, packet, checksum }
}
