//! Incoming packets of a peer: verified, delivered, and NACKed if corrupt.

use checksum::tuning::ChecksumChoice;

use super::arrival::{MessageArrival, MessageMatching};
use super::checksum_policy;
use super::completion::{MessageCompletion, MessageFailure, PeerLossCause};
use super::control_message::{ControlMessage, parse_control_message};
use super::control_send::refunded_credit;
use super::endpoint_shared::EndpointShared;
use super::fragments::{IncomingTransfer, RangeCoverage, ReceivedRanges};
use super::lent_buffer::ReceiveBuffer;
use super::limits::{CONTROL_MESSAGE_COST_BYTES, MAX_CONSECUTIVE_CORRUPT, MAX_MESSAGE_BYTES};
use super::matching::{MessageContents, UnexpectedMessage, WaitingReceive};
use super::packet::{BodyKind, MESSAGE_HEADER_BYTES, MessageHeader, MessageHeaderError, is_inline};
use super::peer::MessagingPeer;
use super::rails::RailIndex;
use super::reorder_buffer::{EarlyMessage, SequencePosition};

/// The body of a packet before its checksum is verified.
#[derive(Clone, Copy)]
struct UncheckedBody<'a> {
    bytes: &'a [u8],
    choice: Option<ChecksumChoice>,
    checksum: u64,
}

impl UncheckedBody<'_> {
    /// Copies it; true if the copied bytes match the checksum.
    fn copy_and_verify(&self, to: &mut [u8]) -> bool {
        checksum_policy::copy(self.choice, self.bytes, to) == self.checksum
    }

    fn is_intact(&self) -> bool {
        checksum_policy::value(self.choice, self.bytes) == self.checksum
    }
}

pub(super) enum ReceiveOutcome {
    Accepted,
    Corrupted,
}

impl MessagingPeer {
    /// Handles a packet.
    pub(super) fn handle_packet(
        &mut self,
        shared: &mut EndpointShared,
        rail: RailIndex,
        packet: &[u8],
    ) -> Result<(), PeerLossCause> {
        // Packets may still arrive over a rail that failed here: they count as any other.
        let number = self.rails.note_arrival(rail).ok_or(PeerLossCause::Malformed)?;
        let outcome = if is_inline(packet) {
            self.handle_inline(shared, number, packet)?
        } else {
            self.handle_full(shared, number, packet)?
        };
        match outcome {
            ReceiveOutcome::Accepted => {
                self.consecutive_corrupt = 0;
                self.rails.trust();
            }
            ReceiveOutcome::Corrupted => {
                self.rails.distrust(rail);
                shared.counters.corrupted += 1;
                self.consecutive_corrupt += 1;
                if self.consecutive_corrupt > MAX_CONSECUTIVE_CORRUPT {
                    return Err(PeerLossCause::Unreadable);
                }
                self.replies.push_back(ControlMessage::Nack { rail, number });
            }
        }
        Ok(())
    }

    fn handle_full(
        &mut self,
        shared: &mut EndpointShared,
        number: u64,
        packet: &[u8],
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        match MessageHeader::read(&shared.settings.checksum, packet) {
            Err(MessageHeaderError::Corrupted) => Ok(ReceiveOutcome::Corrupted),
            Ok(header) if header.number == number => {
                self.handle_body(shared, &header, &packet[MESSAGE_HEADER_BYTES..])
            }
            Ok(_) | Err(MessageHeaderError::Malformed) => Err(PeerLossCause::Malformed),
        }
    }

    fn handle_body(
        &mut self,
        shared: &mut EndpointShared,
        header: &MessageHeader,
        bytes: &[u8],
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        self.owes_ack |= header.wants_ack;
        self.handle_ack(shared, header.acked, header.granted)?;
        let choice = shared.settings.checksum.check(header.algorithm).map_err(|_| PeerLossCause::Malformed)?;
        let body = UncheckedBody { bytes, choice, checksum: header.checksum };
        match header.kind {
            BodyKind::Ack if bytes.is_empty() && body.is_intact() => Ok(ReceiveOutcome::Accepted),
            BodyKind::Ack => Err(PeerLossCause::Malformed),
            BodyKind::Eager => self.handle_eager(shared, header, body),
            BodyKind::Control => self.handle_control_batch(shared, header, body),
            BodyKind::Fragment => self.handle_fragment(shared, header, body),
        }
    }

    /// Handles the acknowledgement and the credit that every header carries.
    #[inline]
    pub(super) fn handle_ack(
        &mut self,
        shared: &EndpointShared,
        acked: u64,
        granted: u64,
    ) -> Result<(), PeerLossCause> {
        if acked > self.next_sequence || granted > self.spent + shared.settings.credit_bytes {
            return Err(PeerLossCause::Malformed);
        }
        if acked > self.confirmed {
            self.confirmed = acked;
            self.log.confirm(acked);
        }
        self.granted = self.granted.max(granted);
        Ok(())
    }

    /// P-63: a peer that exceeds its credit is dropped.
    pub(super) fn charge_credit(&mut self, cost: u64) -> Result<(), PeerLossCause> {
        self.used += cost;
        if self.used > self.allowed { Err(PeerLossCause::CreditExceeded) } else { Ok(()) }
    }

    /// Where a message stands; none for a duplicate.
    pub(super) fn position_of(
        &self,
        shared: &mut EndpointShared,
        sequence: u64,
    ) -> Result<Option<SequencePosition>, PeerLossCause> {
        match self.reorder.position(sequence) {
            SequencePosition::Duplicate => {
                shared.counters.duplicates += 1;
                Ok(None)
            }
            SequencePosition::OutOfWindow => Err(PeerLossCause::Malformed),
            position @ (SequencePosition::Expected | SequencePosition::Ahead) => Ok(Some(position)),
        }
    }

    fn handle_eager(
        &mut self,
        shared: &mut EndpointShared,
        header: &MessageHeader,
        body: UncheckedBody<'_>,
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        if header.messages != 1 || body.bytes.len() > shared.settings.eager_bytes as usize {
            return Err(PeerLossCause::Malformed);
        }
        let (tag, sequence) = (header.detail, header.sequence);
        let cost = CONTROL_MESSAGE_COST_BYTES + body.bytes.len() as u64;
        let Some(position) = self.position_of(shared, sequence)? else { return Ok(ReceiveOutcome::Accepted) };
        // Straight into the buffer of the matching receive. If the message is corrupt, the receive stays posted.
        if position == SequencePosition::Expected
            && let Some(index) = shared.matching.find(self.rank, tag)
            && let Some(target) = shared.matching.buffer(index).get_mut(..body.bytes.len())
        {
            if !body.copy_and_verify(target) {
                return Ok(ReceiveOutcome::Corrupted);
            }
            self.charge_credit(cost)?;
            self.allowed += cost;
            let WaitingReceive { id, buffer, .. } = shared.matching.take(index);
            let (source, length) = (self.rank, body.bytes.len());
            shared.completions.push_back(MessageCompletion::Received { id, source, tag, length, buffer });
            self.reorder.advance();
        } else {
            let mut bytes = vec![0; body.bytes.len()];
            if !body.copy_and_verify(&mut bytes) {
                return Ok(ReceiveOutcome::Corrupted);
            }
            self.charge_credit(cost)?;
            let contents = MessageContents::Eager { bytes, choice: body.choice, checksum: body.checksum };
            self.accept_in_order(shared, sequence, tag, contents);
        }
        self.deliver_early(shared);
        Ok(ReceiveOutcome::Accepted)
    }

    fn handle_control_batch(
        &mut self,
        shared: &mut EndpointShared,
        header: &MessageHeader,
        body: UncheckedBody<'_>,
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        if !body.is_intact() {
            return Ok(ReceiveOutcome::Corrupted);
        }
        let mut rest = body.bytes;
        for index in 0..u64::from(header.messages) {
            let message = parse_control_message(&mut rest).map_err(|_| PeerLossCause::Malformed)?;
            let sequence = header.sequence.checked_add(index).ok_or(PeerLossCause::Malformed)?;
            if self.position_of(shared, sequence)?.is_some() {
                self.handle_control(shared, sequence, message)?;
            }
            self.deliver_early(shared);
        }
        if rest.is_empty() { Ok(ReceiveOutcome::Accepted) } else { Err(PeerLossCause::Malformed) }
    }

    fn handle_control(
        &mut self,
        shared: &mut EndpointShared,
        sequence: u64,
        message: ControlMessage<'_>,
    ) -> Result<(), PeerLossCause> {
        let eager_limit = u64::from(shared.settings.eager_bytes);
        match message {
            ControlMessage::Eager { tag, data } => {
                if data.len() > shared.settings.coalesce_limit_bytes as usize {
                    return Err(PeerLossCause::Malformed);
                }
                self.charge_credit(CONTROL_MESSAGE_COST_BYTES + data.len() as u64)?;
                let choice = shared.settings.checksum.choice(data.len());
                let mut bytes = vec![0; data.len()];
                let checksum = checksum_policy::copy(choice, data, &mut bytes);
                self.accept_in_order(shared, sequence, tag, MessageContents::Eager { bytes, choice, checksum });
                return Ok(());
            }
            ControlMessage::Rts { length, .. } if length > MAX_MESSAGE_BYTES => return Err(PeerLossCause::Malformed),
            ControlMessage::Rts { tag, length, note } => {
                self.charge_credit(CONTROL_MESSAGE_COST_BYTES)?;
                let contents = MessageContents::Rendezvous { transfer: sequence, length, note };
                self.accept_in_order(shared, sequence, tag, contents);
                return Ok(());
            }
            ControlMessage::Lost { length, .. } if length > eager_limit => return Err(PeerLossCause::Malformed),
            ControlMessage::Lost { tag, length } => {
                self.charge_credit(CONTROL_MESSAGE_COST_BYTES + length)?;
                self.accept_in_order(shared, sequence, tag, MessageContents::Lost { length });
                return Ok(());
            }
            ControlMessage::Cts { transfer } => self.handle_cts(shared, transfer)?,
            ControlMessage::Fin { transfer } => self.handle_fin(shared, transfer)?,
            ControlMessage::Nack { rail, number } => self.handle_nack(rail, number)?,
            ControlMessage::RailClosed { rail } if self.rails.is_live(rail) => self.lose_rail(rail)?,
            ControlMessage::RailClosed { .. } => {}
        }
        // These take effect on arrival: in order, they could wait for each other (P-67).
        if self.reorder.position(sequence) == SequencePosition::Expected {
            self.reorder.advance();
        } else {
            self.reorder.insert(sequence, EarlyMessage::Handled);
        }
        Ok(())
    }

    fn handle_fin(&mut self, shared: &mut EndpointShared, transfer: u64) -> Result<(), PeerLossCause> {
        let outgoing = self.outgoing.remove(&transfer).ok_or(PeerLossCause::Malformed)?;
        self.release_prepared(shared, outgoing.prepared);
        // The driver borrows no part of it any more, unless the acknowledgement of a packet was lost: then this copies.
        let buffer = outgoing.data.into_vec();
        shared.completions.push_back(MessageCompletion::Sent { id: outgoing.id, buffer });
        Ok(())
    }

    /// Delivers an eager message or RTS, now or in its turn.
    pub(super) fn accept_in_order(
        &mut self,
        shared: &mut EndpointShared,
        sequence: u64,
        tag: u64,
        contents: MessageContents,
    ) {
        if self.reorder.position(sequence) == SequencePosition::Expected {
            self.reorder.advance();
            self.deliver(shared, tag, contents);
        } else {
            self.reorder.insert(sequence, EarlyMessage::Ordered(tag, contents));
        }
    }

    /// Delivers messages that arrived early and are expected now.
    pub(super) fn deliver_early(&mut self, shared: &mut EndpointShared) {
        while let Some(early) = self.reorder.next() {
            if let EarlyMessage::Ordered(tag, contents) = early {
                self.deliver(shared, tag, contents);
            }
        }
    }

    fn deliver(&mut self, shared: &mut EndpointShared, tag: u64, contents: MessageContents) {
        if shared.mode == MessageMatching::ByUser {
            return shared.arrivals.push_back(MessageArrival { source: self.rank, tag, contents });
        }
        match shared.matching.find(self.rank, tag) {
            Some(index) => {
                let posted = shared.matching.take(index);
                self.complete_receive(shared, posted, tag, contents);
            }
            None => shared.matching.add_unexpected(UnexpectedMessage { source: self.rank, tag, contents }),
        }
    }

    /// Completes a receive with an eager message, or answers an RTS with a CTS.
    pub(super) fn complete_receive(
        &mut self,
        shared: &mut EndpointShared,
        posted: WaitingReceive,
        tag: u64,
        contents: MessageContents,
    ) {
        let WaitingReceive { id, mut buffer, .. } = posted;
        let source = self.rank;
        self.allowed += refunded_credit(&contents);
        match contents {
            MessageContents::Eager { bytes, choice, checksum } => {
                let length = bytes.len();
                let target = buffer.get_mut(..length);
                let found = target.map(|target| checksum_policy::copy(choice, &bytes, target));
                shared.completions.push_back(match found {
                    Some(found) if found == checksum => {
                        MessageCompletion::Received { id, source, tag, length, buffer }
                    }
                    Some(_) => {
                        let failure = MessageFailure::Corrupted { source, tag };
                        MessageCompletion::ReceiveFailed { id, failure, buffer }
                    }
                    None => {
                        let failure = MessageFailure::Truncated { source, tag, length: length as u64 };
                        MessageCompletion::ReceiveFailed { id, failure, buffer }
                    }
                });
            }
            MessageContents::Lost { .. } => {
                let failure = MessageFailure::Corrupted { source, tag };
                shared.completions.push_back(MessageCompletion::ReceiveFailed { id, failure, buffer });
            }
            MessageContents::Rendezvous { transfer, length, .. } if length > buffer.len() as u64 || length == 0 => {
                self.replies.push_back(ControlMessage::Fin { transfer });
                shared.completions.push_back(if length == 0 {
                    MessageCompletion::Received { id, source, tag, length: 0, buffer }
                } else {
                    let failure = MessageFailure::Truncated { source, tag, length };
                    MessageCompletion::ReceiveFailed { id, failure, buffer }
                });
            }
            MessageContents::Rendezvous { transfer, length, .. } => {
                let (received, buffer) = (ReceivedRanges::default(), ReceiveBuffer::Owned(buffer));
                self.incoming.insert(transfer, IncomingTransfer { id, source, tag, length, buffer, received });
                self.replies.push_back(ControlMessage::Cts { transfer });
            }
        }
    }

    fn handle_fragment(
        &mut self,
        shared: &mut EndpointShared,
        header: &MessageHeader,
        body: UncheckedBody<'_>,
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        let transfer = header.sequence;
        let Some(incoming) = self.incoming.get_mut(&transfer) else {
            shared.counters.duplicates += 1; // The message is complete: a failed rail made the fragment arrive twice.
            return Ok(ReceiveOutcome::Accepted);
        };
        let length = body.bytes.len() as u64;
        let end = header.detail.checked_add(length).filter(|end| *end <= incoming.length);
        let end = end.ok_or(PeerLossCause::Malformed)?;
        // Tiny fragments would make the list of ranges as long as the message.
        let is_too_short = length < shared.settings.min_fragment_bytes.into() && end != incoming.length;
        if length == 0 || is_too_short || header.messages != 0 {
            return Err(PeerLossCause::Malformed);
        }
        let range = header.detail..end;
        match incoming.received.coverage(&range) {
            RangeCoverage::Received => {
                shared.counters.duplicates += 1;
                return Ok(ReceiveOutcome::Accepted);
            }
            RangeCoverage::Overlapping => return Err(PeerLossCause::Malformed),
            RangeCoverage::Missing => {}
        }
        if !body.copy_and_verify(&mut incoming.buffer[range.start as usize..range.end as usize]) {
            return Ok(ReceiveOutcome::Corrupted);
        }
        incoming.received.add(range);
        if incoming.received.is_complete(incoming.length)
            && let Some(IncomingTransfer { id, source, tag, length, buffer, .. }) = self.incoming.remove(&transfer)
        {
            let (length, buffer) = (length as usize, buffer.into_vec());
            shared.completions.push_back(MessageCompletion::Received { id, source, tag, length, buffer });
            self.replies.push_back(ControlMessage::Fin { transfer });
        }
        Ok(ReceiveOutcome::Accepted)
    }
}
