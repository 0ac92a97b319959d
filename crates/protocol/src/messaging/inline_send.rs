//! Eager messages that are sent at once, and inline packets: short messages in a packet of one or two cache lines with one CRC (P-64).
//!
//! Between an incoming packet and the message that replies to it, nothing is done that can wait. So a message is written first to
//! the memory that the peer reads, if the driver offers it, and then to the log.
//!
//! An inline message is short enough to be verified before it is copied to its place; so header and body share one CRC.

use checksum::TargetCache;
use units::Rank;

use super::action::{InPlaceBuffers, MessagingAction};
use super::checksum_policy;
use super::completion::{MessageCompletion, PeerLossCause};
use super::control_message::ControlMessage;
use super::control_send::credit_cost;
use super::endpoint_shared::EndpointShared;
use super::limits::{CONTROL_MESSAGE_COST_BYTES, CONTROL_WINDOW};
use super::matching::{MessageContents, WaitingReceive};
use super::packet::{
    BodyKind, INLINE_HEADER_BYTES, InlineHeader, MAX_INLINE_BYTES, MESSAGE_HEADER_BYTES, MessageHeader,
    MessageHeaderError, expand_count,
};
use super::peer::{MessagingPeer, QueuedSend, header_template};
use super::rails::{PacketLoad, RailIndex};
use super::receive_path::ReceiveOutcome;
use super::reorder_buffer::SequencePosition;
use super::unacked_log::BatchMessages;

/// The header of an inline packet, as words.
type InlineHeaderWords = [u64; INLINE_HEADER_BYTES / 8];

impl MessagingPeer {
    /// Whether a message of this length may go in an inline packet.
    #[inline]
    pub(super) fn fits_inline(shared: &EndpointShared, length: usize) -> bool {
        length <= MAX_INLINE_BYTES && shared.settings.checksum.allows_inline()
    }

    /// Sends an eager message at once if nothing is queued before it and the driver has a buffer; otherwise returns it.
    #[inline]
    pub(super) fn send_at_once(
        &mut self,
        shared: &mut EndpointShared,
        queued: QueuedSend,
        buffers: &mut impl InPlaceBuffers,
    ) -> Option<QueuedSend> {
        let length = queued.data.len();
        let may_send = !queued.data.is_long(shared.settings.eager_bytes)
            && self.is_idle(shared)
            && self.unconfirmed() < CONTROL_WINDOW
            && self.spent + credit_cost(&queued.data, &shared.settings) <= self.granted;
        let rail = if may_send { self.rails.for_control(shared.settings.control_depth, None) } else { None };
        let Some(rail) = rail else { return Some(queued) };
        let is_inline = Self::fits_inline(shared, length);
        let bytes = if is_inline { INLINE_HEADER_BYTES } else { MESSAGE_HEADER_BYTES } + length;
        // A reserved buffer is sent at once, so no action may be queued before it.
        let buffer = if shared.actions.is_empty() { buffers.reserve(self.rank, rail, bytes) } else { None };
        let (first, number, logged) = match buffer {
            Some(buffer) if is_inline => {
                let (first, number, words) = self.inline_header(shared, (rail, None), &queued);
                write_inline(&words, &queued.data, buffer);
                buffers.send_reserved(self.rank, rail);
                let mut logged = self.log_buffer(shared, bytes);
                write_inline(&words, &queued.data, &mut logged);
                (first, number, logged)
            }
            Some(buffer) => {
                let (first, number) = self.write_eager(shared, rail, &queued, buffer);
                let (head, _) = buffer.split_first_chunk::<MESSAGE_HEADER_BYTES>().expect("it has a header");
                let head = *head;
                buffers.send_reserved(self.rank, rail);
                let mut logged = self.log_buffer(shared, bytes);
                logged[..MESSAGE_HEADER_BYTES].copy_from_slice(&head);
                logged[MESSAGE_HEADER_BYTES..].copy_from_slice(&queued.data);
                (first, number, logged)
            }
            None if is_inline => {
                self.send_inline(shared, rail, queued);
                return None;
            }
            None => return Some(queued),
        };
        self.log.add_with_packet(first, (rail, number), lost_message(&queued), logged);
        shared.completions.push_back(MessageCompletion::Sent { id: queued.id, buffer: queued.data.into_vec() });
        None
    }

    /// A buffer for a packet that was sent, after dropping acknowledged ones from the log.
    fn log_buffer(&mut self, shared: &mut EndpointShared, bytes: usize) -> Vec<u8> {
        self.log.sweep(|bytes| shared.recycle(bytes));
        shared.buffer(bytes)
    }

    /// Writes one eager message, copied and checksummed in one pass; returns its sequence number and the packet's number.
    fn write_eager(
        &mut self,
        shared: &mut EndpointShared,
        rail: RailIndex,
        queued: &QueuedSend,
        buffer: &mut [u8],
    ) -> (u64, u64) {
        let length = queued.data.len();
        let choice = shared.settings.checksum.choice(length);
        let target = &mut buffer[MESSAGE_HEADER_BYTES..];
        let checksum = checksum_policy::copy_to(choice, &queued.data, target, TargetCache::Remote);
        self.spent += credit_cost(&queued.data, &shared.settings);
        let first = self.next_sequence;
        self.next_sequence += 1;
        let template = header_template(BodyKind::Eager, choice, checksum);
        let header = MessageHeader { detail: queued.tag, sequence: first, messages: 1, ..template };
        (first, self.write_header(shared, rail, (None, length), header, buffer))
    }

    /// Sends one message in an inline packet.
    pub(super) fn send_inline(&mut self, shared: &mut EndpointShared, rail: RailIndex, queued: QueuedSend) {
        let load = PacketLoad::Control(self.next_sequence);
        let (first, number, words) = self.inline_header(shared, (rail, Some(load)), &queued);
        let mut bytes = self.log_buffer(shared, INLINE_HEADER_BYTES + queued.data.len());
        write_inline(&words, &queued.data, &mut bytes);
        shared.actions.push_back(transmit_inline(self.rank, rail, bytes));
        self.log.add(first, (rail, number), BatchMessages::One(lost_message(&queued)));
        shared.completions.push_back(MessageCompletion::Sent { id: queued.id, buffer: queued.data.into_vec() });
    }

    /// The header for a new message: its sequence number, the packet's number, the words.
    #[inline]
    fn inline_header(
        &mut self,
        shared: &mut EndpointShared,
        on: (RailIndex, Option<PacketLoad>),
        queued: &QueuedSend,
    ) -> (u64, u64, InlineHeaderWords) {
        self.spent += CONTROL_MESSAGE_COST_BYTES + queued.data.len() as u64;
        let first = self.next_sequence;
        self.next_sequence += 1;
        let (number, words) = self.inline_words(shared, on, (first, queued.tag), &queued.data);
        (first, number, words)
    }

    /// Numbers a packet; returns the number and the words of its header.
    #[inline]
    fn inline_words(
        &mut self,
        shared: &mut EndpointShared,
        (rail, load): (RailIndex, Option<PacketLoad>),
        (sequence, tag): (u64, u64),
        message: &[u8],
    ) -> (u64, InlineHeaderWords) {
        let number = self.number_packet(shared, rail, load, INLINE_HEADER_BYTES + message.len());
        let (acked, granted) = self.sent_ack_and_credit();
        let [low, sequence, acked, granted] = [number, sequence, acked, granted].map(|count| count as u32);
        let header = InlineHeader { number: low, sequence, acked, granted, tag };
        (number, header.words(&shared.settings.checksum, message))
    }

    /// P-68: whether a packet in the log still matches its CRC.
    pub(super) fn is_intact_inline(shared: &EndpointShared, packet: &[u8]) -> bool {
        split(packet)
            .is_some_and(|(words, message)| InlineHeader::read(&shared.settings.checksum, words, message).is_ok())
    }

    /// Retransmits an intact inline packet; returns its new number.
    pub(super) fn resend_inline(
        &mut self,
        shared: &mut EndpointShared,
        rail: RailIndex,
        first: u64,
        mut bytes: Vec<u8>,
    ) -> u64 {
        let on = (rail, Some(PacketLoad::Control(first)));
        let (words, message) = split(&bytes).expect("the packet is intact");
        let (number, words) = self.inline_words(shared, on, (first, words[3]), message);
        write_words(&words, &mut bytes);
        shared.actions.push_back(transmit_inline(self.rank, rail, bytes));
        number
    }

    /// Handles a packet that claims to be inline, the `number`-th of its rail.
    #[inline]
    pub(super) fn handle_inline(
        &mut self,
        shared: &mut EndpointShared,
        number: u64,
        packet: &[u8],
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        // Verify a copy: the peer can still write to a packet in shared memory.
        let Some((words, message)) = split(packet) else { return Ok(ReceiveOutcome::Corrupted) };
        let mut copy = [0; MAX_INLINE_BYTES];
        let Some(data) = copy.get_mut(..message.len()) else { return Ok(ReceiveOutcome::Corrupted) };
        data.copy_from_slice(message);
        let data = &*data;
        let header = match InlineHeader::read(&shared.settings.checksum, words, data) {
            Ok(header) => header,
            Err(MessageHeaderError::Corrupted) => return Ok(ReceiveOutcome::Corrupted),
            Err(MessageHeaderError::Malformed) => return Err(PeerLossCause::Malformed),
        };
        if header.number != number as u32 || !shared.settings.checksum.allows_inline() {
            return Err(PeerLossCause::Malformed);
        }
        let acked = expand_count(header.acked, self.confirmed);
        self.handle_ack(shared, acked, expand_count(header.granted, self.granted))?;
        let (sequence, tag) = (expand_count(header.sequence, self.reorder.received()), header.tag);
        let Some(position) = self.position_of(shared, sequence)? else { return Ok(ReceiveOutcome::Accepted) };
        let cost = CONTROL_MESSAGE_COST_BYTES + data.len() as u64;
        self.charge_credit(cost)?;
        if position == SequencePosition::Expected
            && let Some(index) = shared.matching.find(self.rank, tag)
            && let Some(target) = shared.matching.buffer(index).get_mut(..data.len())
        {
            target.copy_from_slice(data);
            self.allowed += cost;
            let WaitingReceive { id, buffer, .. } = shared.matching.take(index);
            let (source, length) = (self.rank, data.len());
            shared.completions.push_back(MessageCompletion::Received { id, source, tag, length, buffer });
            self.reorder.advance();
        } else {
            let choice = shared.settings.checksum.choice(data.len());
            let mut bytes = vec![0; data.len()];
            let checksum = checksum_policy::copy(choice, data, &mut bytes);
            self.accept_in_order(shared, sequence, tag, MessageContents::Eager { bytes, choice, checksum });
        }
        self.deliver_early(shared);
        Ok(ReceiveOutcome::Accepted)
    }
}

/// What the log sends instead of a message whose bytes were corrupted.
fn lost_message(queued: &QueuedSend) -> ControlMessage<'static> {
    ControlMessage::Lost { tag: queued.tag, length: queued.data.len() as u64 }
}

/// The header's words and the message of an inline packet; none if it is too short.
#[inline]
fn split(packet: &[u8]) -> Option<(InlineHeaderWords, &[u8])> {
    let (head, message) = packet.split_first_chunk::<INLINE_HEADER_BYTES>()?;
    let (words, _) = head.as_chunks::<8>();
    Some((std::array::from_fn(|index| u64::from_le_bytes(words[index])), message))
}

#[inline]
fn write_inline(words: &InlineHeaderWords, message: &[u8], packet: &mut [u8]) {
    write_words(words, packet);
    packet[INLINE_HEADER_BYTES..].copy_from_slice(message);
}

#[inline]
fn write_words(words: &InlineHeaderWords, packet: &mut [u8]) {
    let (places, _) = packet[..INLINE_HEADER_BYTES].as_chunks_mut::<8>();
    places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
}

fn transmit_inline(to: Rank, rail: RailIndex, bytes: Vec<u8>) -> MessagingAction {
    let copied = (bytes.len() - INLINE_HEADER_BYTES) as u32;
    MessagingAction::Transmit { to, rail, bytes, copied }
}

#[cfg(test)]
mod tests {
    use super::super::ChecksumPolicy;
    use super::*;

    #[test]
    fn an_inline_packet_reads_back_and_every_flipped_bit_is_detected() {
        let policy = ChecksumPolicy::default();
        let header = InlineHeader { number: 1, sequence: 2, acked: 3, granted: u32::MAX, tag: 1 << 60 };
        let read = |packet: &[u8]| {
            let (words, message) = split(packet).ok_or(MessageHeaderError::Corrupted)?;
            InlineHeader::read(&policy, words, message)
        };
        for length in [0, 1, 24, MAX_INLINE_BYTES] {
            let message = vec![0x5a; length];
            let mut packet = vec![0; INLINE_HEADER_BYTES + length];
            write_inline(&header.words(&policy, &message), &message, &mut packet);
            assert_eq!(read(&packet), Ok(header));
            for bit in 0..packet.len() * 8 {
                packet[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read(&packet), Err(MessageHeaderError::Corrupted), "bit {bit}");
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            assert!(read(&packet[..packet.len() - 1]).is_err());
        }
    }

    #[test]
    fn the_low_bits_of_a_count_identify_it() {
        for near in [0u64, 5, u64::from(u32::MAX) - 1, (7 << 32) + 3, 1 << 40] {
            for offset in [-3i64, 0, 1, 2_000, 1 << 30] {
                if let Some(count) = near.checked_add_signed(offset) {
                    assert_eq!(expand_count(count as u32, near), count, "{offset} from {near}");
                }
            }
        }
    }
}
