//! Sending eager messages and control messages: alone, coalesced, and again.

use super::checksum_policy;
use super::completion::{MessageCompletion, PeerLossCause};
use super::control_message::ControlMessage;
use super::endpoint_shared::EndpointShared;
use super::lent_buffer::SendBuffer;
use super::limits::{CONTROL_MESSAGE_COST_BYTES, CONTROL_WINDOW, REPAIR_WINDOW, REPLY_WINDOW};
use super::matching::{MessageContents, SendId};
use super::packet::{BodyKind, MESSAGE_HEADER_BYTES, MessageHeader, is_inline};
use super::peer::{MAX_IN_FLIGHT_PACKETS, MessagingPeer, QueuedSend, header_template};
use super::rails::{PacketLoad, RailIndex};
use super::settings::MessagingSettings;
use super::unacked_log::BatchMessages;

/// Replies that may wait to be sent.
const MAX_QUEUED_REPLIES: usize = 4 * CONTROL_WINDOW as usize;

/// The messages of a coalesced packet.
struct Coalesced {
    bytes: Vec<u8>,
    messages: Vec<ControlMessage<'static>>,
    /// Long messages whose RTS is in the packet.
    announced: Vec<(u64, SendId, SendBuffer)>,
}

impl MessagingPeer {
    /// P-68: retransmits packets from the log. A packet gets a new header only if its body still matches its checksum; otherwise it
    /// is rebuilt.
    pub(super) fn resend_control(&mut self, shared: &mut EndpointShared) {
        while let Some(avoid) = self.log.next_resend() {
            let Some(rail) = self.rails.for_control(MAX_IN_FLIGHT_PACKETS, Some(avoid)) else { break };
            let Some((first, bytes)) = self.log.take_resend() else { break };
            shared.counters.retransmitted += 1;
            let number = if is_inline(&bytes) && Self::is_intact_inline(shared, &bytes) {
                self.resend_inline(shared, rail, first, bytes)
            } else {
                let (header, bytes) = match verified_header(shared, &bytes) {
                    Some(header) => (header, bytes),
                    None => self.rebuild_batch(shared, first, bytes),
                };
                let copied = bytes.len() - MESSAGE_HEADER_BYTES;
                self.transmit(shared, rail, (PacketLoad::Control(first), copied), header, bytes)
            };
            self.log.note_resent(first, (rail, number));
        }
    }

    /// Rebuilds a packet that was corrupted in the log. Control messages are known from elsewhere; eager messages become
    /// [`ControlMessage::Lost`].
    fn rebuild_batch(&self, shared: &EndpointShared, first: u64, mut bytes: Vec<u8>) -> (MessageHeader, Vec<u8>) {
        let messages = self.log.messages(first);
        bytes.clear();
        bytes.resize(MESSAGE_HEADER_BYTES, 0);
        messages.iter().for_each(|message| message.append_to(&mut bytes));
        let choice = shared.settings.checksum.choice(bytes.len() - MESSAGE_HEADER_BYTES);
        let checksum = checksum_policy::value(choice, &bytes[MESSAGE_HEADER_BYTES..]);
        let template = header_template(BodyKind::Control, choice, checksum);
        (MessageHeader { sequence: first, messages: messages.len() as u32, ..template }, bytes)
    }

    /// Sends replies and queued messages as far as rails, windows and credit allow.
    pub(super) fn send_control(&mut self, shared: &mut EndpointShared) -> Result<(), PeerLossCause> {
        if self.replies.len() > MAX_QUEUED_REPLIES {
            return Err(PeerLossCause::Unreadable);
        }
        while !(self.replies.is_empty() && self.queue.is_empty())
            && let Some(rail) = self.rails.for_control(shared.settings.control_depth, None)
        {
            if self.may_reply() {
                self.send_coalesced(shared, rail);
                continue;
            }
            if !self.may_send(&shared.settings) {
                break;
            }
            let data = &self.queue[0].data;
            let alone = self.queue.len() == 1 || data.len() > shared.settings.coalesce_limit_bytes as usize;
            if alone && !data.is_long(shared.settings.eager_bytes) {
                self.send_eager(shared, rail);
            } else {
                self.send_coalesced(shared, rail);
            }
        }
        Ok(())
    }

    pub(super) fn unconfirmed(&self) -> u64 {
        self.next_sequence - self.confirmed
    }

    /// Whether the first reply may be sent (P-67).
    fn may_reply(&self) -> bool {
        self.replies.front().is_some_and(|reply| {
            let window = match reply {
                ControlMessage::Nack { .. } | ControlMessage::RailClosed { .. } => REPAIR_WINDOW,
                _ => REPLY_WINDOW,
            };
            self.unconfirmed() < window
        })
    }

    /// Whether window and credit allow the first queued message (P-63).
    fn may_send(&self, settings: &MessagingSettings) -> bool {
        self.queue.front().is_some_and(|queued| {
            self.unconfirmed() < CONTROL_WINDOW && self.spent + credit_cost(&queued.data, settings) <= self.granted
        })
    }

    /// Sends one eager message in a packet of its own, copied and checksummed in one pass.
    fn send_eager(&mut self, shared: &mut EndpointShared, rail: RailIndex) {
        let Some(queued) = self.queue.pop_front() else { return };
        if Self::fits_inline(shared, queued.data.len()) {
            return self.send_inline(shared, rail, queued);
        }
        let QueuedSend { id, tag, data, .. } = queued;
        let length = data.len() as u64;
        let choice = shared.settings.checksum.choice(data.len());
        let mut bytes = shared.buffer(MESSAGE_HEADER_BYTES + data.len());
        let checksum = checksum_policy::copy(choice, &data, &mut bytes[MESSAGE_HEADER_BYTES..]);
        self.spent += credit_cost(&data, &shared.settings);
        shared.completions.push_back(MessageCompletion::Sent { id, buffer: data.into_vec() });
        let header = MessageHeader { detail: tag, ..header_template(BodyKind::Eager, choice, checksum) };
        let messages = BatchMessages::One(ControlMessage::Lost { tag, length });
        self.send_batch(shared, rail, MessageHeader { messages: 1, ..header }, bytes, messages);
    }

    /// Sends replies, and then small messages and RTS, in one packet.
    fn send_coalesced(&mut self, shared: &mut EndpointShared, rail: RailIndex) {
        let bytes = shared.buffer(MESSAGE_HEADER_BYTES);
        let mut coalesced = Coalesced { bytes, messages: Vec::new(), announced: Vec::new() };
        let limit = MESSAGE_HEADER_BYTES + shared.settings.coalesced_bytes as usize;
        let first = self.next_sequence;
        self.coalesce_replies(&mut coalesced, limit);
        self.coalesce_queue(shared, &mut coalesced, limit);
        self.next_sequence = first; // `send_batch` advances it.
        let Coalesced { bytes, messages, announced } = coalesced;
        let choice = shared.settings.checksum.choice(bytes.len() - MESSAGE_HEADER_BYTES);
        let checksum = checksum_policy::value(choice, &bytes[MESSAGE_HEADER_BYTES..]);
        let template = header_template(BodyKind::Control, choice, checksum);
        let header = MessageHeader { messages: messages.len() as u32, ..template };
        self.send_batch(shared, rail, header, bytes, BatchMessages::Several(messages));
        for (transfer, id, data) in announced {
            self.begin_transfer(shared, transfer, id, data);
        }
    }

    fn coalesce_replies(&mut self, coalesced: &mut Coalesced, limit: usize) {
        while self.may_reply() && coalesced.bytes.len() + self.replies[0].size() <= limit {
            let Some(reply) = self.replies.pop_front() else { break };
            reply.append_to(&mut coalesced.bytes);
            coalesced.messages.push(reply);
            self.next_sequence += 1;
        }
    }

    fn coalesce_queue(&mut self, shared: &mut EndpointShared, coalesced: &mut Coalesced, limit: usize) {
        let settings = shared.settings;
        while self.may_send(&settings) {
            let queued = &self.queue[0];
            let is_long = queued.data.is_long(settings.eager_bytes);
            let message = if is_long {
                ControlMessage::Rts { tag: queued.tag, length: queued.data.len() as u64, note: queued.note }
            } else {
                ControlMessage::Eager { tag: queued.tag, data: &queued.data }
            };
            let is_large = !is_long && queued.data.len() > settings.coalesce_limit_bytes as usize;
            if is_large || coalesced.bytes.len() + message.size() > limit {
                break;
            }
            message.append_to(&mut coalesced.bytes);
            self.spent += credit_cost(&queued.data, &settings);
            let Some(QueuedSend { id, tag, note, data }) = self.queue.pop_front() else { break };
            if is_long {
                coalesced.messages.push(ControlMessage::Rts { tag, length: data.len() as u64, note });
                coalesced.announced.push((self.next_sequence, id, data));
            } else {
                coalesced.messages.push(ControlMessage::Lost { tag, length: data.len() as u64 });
                shared.completions.push_back(MessageCompletion::Sent { id, buffer: data.into_vec() });
                shared.counters.coalesced += 1;
            }
            self.next_sequence += 1;
        }
    }

    fn send_batch(
        &mut self,
        shared: &mut EndpointShared,
        rail: RailIndex,
        header: MessageHeader,
        bytes: Vec<u8>,
        messages: BatchMessages,
    ) {
        let (first, count) = (self.next_sequence, u64::from(header.messages));
        self.next_sequence += count;
        let header = MessageHeader { sequence: first, ..header };
        let copied = bytes.len() - MESSAGE_HEADER_BYTES;
        let number = self.transmit(shared, rail, (PacketLoad::Control(first), copied), header, bytes);
        self.log.sweep(|bytes| shared.recycle(bytes));
        self.log.add(first, (rail, number), messages);
    }
}

/// The credit that a message costs; a long one costs only its RTS.
pub(super) fn credit_cost(data: &SendBuffer, settings: &MessagingSettings) -> u64 {
    let is_long = data.is_long(settings.eager_bytes);
    CONTROL_MESSAGE_COST_BYTES + if is_long { 0 } else { data.len() as u64 }
}

/// The credit that the peer gets back when a message is received.
pub(super) fn refunded_credit(contents: &MessageContents) -> u64 {
    CONTROL_MESSAGE_COST_BYTES + contents.credit_bytes()
}

/// The header of a packet whose body still matches its checksum.
fn verified_header(shared: &EndpointShared, packet: &[u8]) -> Option<MessageHeader> {
    let policy = &shared.settings.checksum;
    let header = MessageHeader::read(policy, packet).ok()?;
    let choice = policy.check(header.algorithm).ok()?;
    (checksum_policy::value(choice, &packet[MESSAGE_HEADER_BYTES..]) == header.checksum).then_some(header)
}
