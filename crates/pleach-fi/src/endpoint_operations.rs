//! The operations of an endpoint: sends, receives, probes, cancellation.
//!
//! All return zero, or the negative number of an error, as libfabric's calls do. Success and failure of what was started are
//! reported by the completion queue.

use std::sync::Arc;

use protocol::messaging::MessagePostError;

use crate::abi::{
    FI_CLAIM, FI_DELIVERY_COMPLETE, FI_DISCARD, FI_INJECT, FI_MATCH_COMPLETE, FI_MSG, FI_MULTI_RECV, FI_PEEK,
    FI_RECV, FI_TAGGED,
};
use crate::endpoint_address::EndpointAddress;
use crate::endpoint_state::{
    ActiveReceive, EAGAIN, ECANCELED, EHOSTUNREACH, EINVAL, ENOENT, ENOMSG, EndpointState, MultiBuffer, PendingSend,
    receive_flags,
};
use crate::envelope::{Envelope, INJECT_BYTES};
use crate::match_lists::{FabricMessage, FabricMessageBody, FabricReceive, MessageSource, ReceiveFilter};
use crate::message_port::{PortSend, PortSendBody};
use crate::queues::{CompletionEntry, ErrorEntry, Queues};
use crate::user_memory::{GatheredBytes, MemoryLoan, UserBuffer};

/// Sends without completion, and receives without message, beyond which further ones are refused with "try again".
const MAX_PENDING: usize = 1 << 16;
/// Bytes copied for sends without completion, likewise.
const MAX_COPIED_BYTES: usize = 64 << 20;

/// A send, as the call describes it.
pub(crate) struct SendRequest {
    pub(crate) buffer: UserBuffer,
    pub(crate) envelope: Envelope,
    pub(crate) context: usize,
    pub(crate) flags: u64,
    /// No completion, and the memory is free when the call returns.
    pub(crate) is_inject: bool,
}

/// A receive, as the call describes it.
pub(crate) struct ReceiveRequest {
    pub(crate) buffer: UserBuffer,
    pub(crate) is_tagged: bool,
    pub(crate) filter: ReceiveFilter,
    pub(crate) context: usize,
    pub(crate) flags: u64,
}

impl EndpointState {
    /// Who is meant by an address.
    pub(crate) fn source_at(&mut self, address: &EndpointAddress) -> MessageSource {
        if address.identity == self.port.own.identity {
            return MessageSource::Own;
        }
        MessageSource::Peer(self.port.peer_at(address))
    }

    /// Starts a send.
    ///
    /// # Safety
    /// The memory is valid until the send completes, or for an inject until this returns.
    pub(crate) unsafe fn send(&mut self, queues: &mut Queues, to: MessageSource, request: SendRequest) -> isize {
        let SendRequest { buffer, envelope, context, flags, is_inject } = request;
        let length = buffer.len();
        // Messages to itself that nobody receives must not keep it from sending to others.
        let has_unreceived = to == MessageSource::Own && self.own_bytes >= MAX_COPIED_BYTES;
        let is_full = has_unreceived || self.sends.len() >= MAX_PENDING || self.copied_bytes >= MAX_COPIED_BYTES;
        if is_full || queues.is_full(self.send_targets.queue) {
            return -(EAGAIN as isize);
        }
        let must_copy = is_inject || flags & FI_INJECT != 0;
        if must_copy && length > INJECT_BYTES {
            return -(EINVAL as isize);
        }
        let waits_for_peer = !is_inject && flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE) != 0;
        let is_short = length <= INJECT_BYTES && !waits_for_peer;
        let peer = match to {
            MessageSource::Peer(peer) => Some(peer),
            MessageSource::Own => None,
        };
        if peer.is_some_and(|peer| self.port.lost(peer).is_some()) {
            return -(EHOSTUNREACH as isize);
        }
        let token = self.next_token();
        let wants_completion = !is_inject && self.send_targets.wants(flags);
        let is_tagged = envelope.tag.is_some();
        let copied = if is_short || must_copy || buffer.whole().is_none() { length } else { 0 };
        self.sends.insert(token, PendingSend { context, wants_completion, is_tagged, copied });
        self.copied_bytes += copied;
        let Some(peer) = peer else {
            // SAFETY: as this function's caller promises.
            unsafe { self.send_to_self(queues, token, (envelope, buffer), is_short || must_copy) };
            return 0;
        };
        let (tag, body) = if is_short {
            let (tag, mut bytes) = envelope.short(length);
            // SAFETY: the memory is valid during this call.
            unsafe { buffer.append_to(&mut bytes) };
            (tag, PortSendBody::Copied(bytes))
        } else {
            // SAFETY: the send completes only after the loan has ended.
            let loan = unsafe { loan_of(&buffer, must_copy) };
            let (tag, note) = envelope.long();
            (tag, PortSendBody::Lent { note, loan })
        };
        let Err(error) = self.port.send(peer, PortSend { token, tag, body }) else { return 0 };
        self.sends.remove(&token);
        self.copied_bytes -= copied;
        -(match error {
            MessagePostError::Full => EAGAIN,
            MessagePostError::TooLong => EINVAL,
            MessagePostError::Lost(..) | MessagePostError::Unknown(_) => EHOSTUNREACH,
        } as isize)
    }

    /// # Safety
    /// The memory is valid until the send completes.
    unsafe fn send_to_self(
        &mut self,
        queues: &mut Queues,
        token: u64,
        (envelope, buffer): (Envelope, UserBuffer),
        is_copied: bool,
    ) {
        let length = buffer.len();
        let body = if is_copied {
            let mut bytes = Vec::with_capacity(length);
            // SAFETY: the memory is valid during this call.
            unsafe { buffer.append_to(&mut bytes) };
            self.complete_send(queues, token);
            FabricMessageBody::Copied(bytes)
        } else {
            FabricMessageBody::Lent(token, buffer)
        };
        self.deliver(queues, FabricMessage { source: MessageSource::Own, envelope, length, body });
    }

    /// Pairs a message with a receive, or keeps it.
    pub(crate) fn deliver(&mut self, queues: &mut Queues, message: FabricMessage) {
        let (is_tagged, tag) = (message.envelope.tag.is_some(), message.envelope.tag.unwrap_or(0));
        loop {
            let lists = self.lists(is_tagged);
            let Some(index) = lists.find_posted(message.source, tag) else {
                self.own_bytes += own_bytes(&message);
                return self.lists(is_tagged).unexpected.push_back(message);
            };
            if let Some(number) = lists.posted[index].multi {
                if self.take_part(queues, number, index, message.length) {
                    return self.receive_part(queues, number, index, message);
                }
                continue; // The buffer was released; the next receive may match.
            }
            let Some(posted) = lists.posted.remove(index) else { return };
            return self.receive(queues, posted, message);
        }
    }

    /// Whether a buffer for several messages has space for this one; if not, it is released.
    fn take_part(&mut self, queues: &mut Queues, number: u64, index: usize, length: usize) -> bool {
        let Some(multi) = self.multis.get_mut(&number) else {
            self.untagged.posted.remove(index);
            return false;
        };
        let space = multi.buffer.len() - multi.used;
        if length <= space || multi.used == 0 {
            return true;
        }
        multi.is_done = true;
        self.untagged.posted.remove(index);
        if multi.arriving == 0 {
            let entry = CompletionEntry {
                context: multi.context,
                flags: FI_MULTI_RECV,
                length: 0,
                buffer: 0,
                data: 0,
                tag: 0,
                source: None,
            };
            self.multis.remove(&number);
            queues.complete(self.receive_targets.queue, None, Some(entry));
        }
        false
    }

    /// Receives a message into a part of a buffer for several.
    fn receive_part(&mut self, queues: &mut Queues, number: u64, index: usize, message: FabricMessage) {
        let Some(multi) = self.multis.get_mut(&number) else { return };
        let length = message.length.min(multi.buffer.len() - multi.used);
        let buffer = multi.buffer.range(multi.used, length);
        multi.used += length;
        multi.arriving += 1;
        let posted = &self.untagged.posted[index];
        let (context, wants_completion, filter) = (posted.context, posted.wants_completion, posted.filter);
        if multi.buffer.len() - multi.used < self.min_multi_receive.max(1) {
            multi.is_done = true;
            self.untagged.posted.remove(index);
        }
        let posted = FabricReceive { context, filter, buffer, wants_completion, multi: Some(number) };
        self.receive(queues, posted, message);
    }

    /// Receives a message that was matched.
    fn receive(&mut self, queues: &mut Queues, posted: FabricReceive, message: FabricMessage) {
        let FabricReceive { context, buffer, wants_completion, multi, .. } = posted;
        let FabricMessage { source, envelope, length, body } = message;
        let excess = length.saturating_sub(buffer.len());
        let mut active =
            ActiveReceive { context, wants_completion, source, envelope, length, buffer, bounce: None, multi };
        match body {
            FabricMessageBody::Copied(bytes) => {
                // SAFETY: the receive is not complete: that is reported below.
                unsafe { active.buffer.write(&bytes) };
                self.report_receive(queues, &active, excess);
            }
            FabricMessageBody::Lent(token, from) => {
                let mut bytes = Vec::with_capacity(length);
                // SAFETY: the send is not complete: that is reported below.
                unsafe { from.append_to(&mut bytes) };
                // SAFETY: as above.
                unsafe { active.buffer.write(&bytes) };
                self.complete_send(queues, token);
                self.report_receive(queues, &active, excess);
            }
            FabricMessageBody::Remote(arrival, _) if arrival.note().is_some() => {
                if excess > 0 {
                    self.port.discard(arrival);
                    return self.report_receive(queues, &active, excess);
                }
                let (start, length) = match active.buffer.whole() {
                    Some((start, _)) => (start, length),
                    None => {
                        let bounce = active.bounce.insert(vec![0; length].into_boxed_slice());
                        (bounce.as_mut_ptr(), length)
                    }
                };
                // SAFETY: the memory belongs to the receive, which completes only after the loan has ended; a bounce buffer
                // lives in `receives` until then.
                let loan = Box::new(unsafe { MemoryLoan::new(start, length) });
                let token = self.next_token();
                match self.port.accept_transfer(arrival, loan, token) {
                    Ok(()) => {
                        self.receives.insert(token, active);
                    }
                    Err(_) => {
                        let MessageSource::Peer(peer) = source else { return };
                        let why = self.port.lost(peer).unwrap_or("the sender of a message is lost").to_owned();
                        let detail = queues.note_loss(&why);
                        self.report_receive_error(queues, &active, (EHOSTUNREACH, detail), 0);
                    }
                }
            }
            FabricMessageBody::Remote(arrival, prefix) => match self.port.accept_eager(arrival) {
                Ok(bytes) => {
                    // SAFETY: the receive is not complete: that is reported below.
                    unsafe { active.buffer.write(&bytes[prefix..]) };
                    self.report_receive(queues, &active, excess);
                }
                Err(failure) => {
                    let described = self.describe(queues, &failure);
                    self.report_receive_error(queues, &active, described, 0);
                }
            },
        }
    }

    /// Posts a receive, probes, or takes a message that a probe set aside.
    pub(crate) fn post_receive(&mut self, queues: &mut Queues, request: ReceiveRequest) -> isize {
        if request.flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) != 0 {
            // libfabric has probes for tagged messages only, and a discard only with a probe or a claim.
            let is_probe = request.is_tagged && request.flags & (FI_PEEK | FI_CLAIM) != 0;
            return if is_probe { self.probe(queues, request) } else { -(EINVAL as isize) };
        }
        let waiting = self.tagged.posted.len() + self.untagged.posted.len() + self.receives.len();
        if waiting >= MAX_PENDING || queues.is_full(self.receive_targets.queue) {
            return -(EAGAIN as isize);
        }
        let ReceiveRequest { buffer, is_tagged, filter, context, flags } = request;
        let wants_completion = self.receive_targets.wants(flags);
        let posted = FabricReceive { context, filter, buffer, wants_completion, multi: None };
        if flags & FI_MULTI_RECV != 0 {
            return if is_tagged { -(EINVAL as isize) } else { self.post_multi(queues, posted) };
        }
        if let Some(index) = self.lists(is_tagged).find_unexpected(&filter)
            && let Some(message) = self.take_unexpected(is_tagged, index)
        {
            self.receive(queues, posted, message);
            return 0;
        }
        if let Some(MessageSource::Peer(peer)) = filter.source
            && let Some(why) = self.port.lost(peer)
        {
            let detail = queues.note_loss(why);
            self.fail_posted(queues, &posted, is_tagged, (EHOSTUNREACH, detail));
            return 0;
        }
        self.lists(is_tagged).posted.push_back(posted);
        0
    }

    fn post_multi(&mut self, queues: &mut Queues, mut posted: FabricReceive) -> isize {
        let Some((start, length)) = posted.buffer.whole() else { return -(EINVAL as isize) };
        let number = self.next_token();
        let buffer = UserBuffer::one(start, length);
        let multi = MultiBuffer { context: posted.context, buffer, used: 0, arriving: 0, is_done: false };
        self.multis.insert(number, multi);
        posted.multi = Some(number);
        let filter = posted.filter;
        let place = self.untagged.posted.len();
        self.untagged.posted.push_back(posted);
        // What waits is received in order while the buffer has space. A message leaves its place in the list only when it fits:
        // behind later ones it would overtake them.
        while self.multis.get(&number).is_some_and(|multi| !multi.is_done)
            && let Some(index) = self.untagged.find_unexpected(&filter)
            && self.take_part(queues, number, place, self.untagged.unexpected[index].length)
            && let Some(message) = self.take_unexpected(false, index)
        {
            self.receive_part(queues, number, place, message);
        }
        0
    }

    fn take_unexpected(&mut self, is_tagged: bool, index: usize) -> Option<FabricMessage> {
        let message = self.lists(is_tagged).unexpected.remove(index)?;
        self.own_bytes -= own_bytes(&message);
        Some(message)
    }

    /// FI_PEEK looks for a message, FI_CLAIM sets it aside or takes it, FI_DISCARD drops it.
    fn probe(&mut self, queues: &mut Queues, request: ReceiveRequest) -> isize {
        let ReceiveRequest { buffer, filter, context, flags, .. } = request;
        if flags & FI_PEEK == 0 {
            let Some(message) = self.claimed.remove(&context) else { return -(EINVAL as isize) };
            if flags & FI_DISCARD != 0 {
                let entry = self.probe_entry(context, &message);
                self.drop_message(queues, message);
                queues.complete(self.receive_targets.queue, None, Some(entry));
            } else {
                let wants_completion = self.receive_targets.wants(flags);
                let posted = FabricReceive { context, filter, buffer, wants_completion, multi: None };
                self.receive(queues, posted, message);
            }
            return 0;
        }
        if flags & FI_CLAIM != 0 && self.claimed.contains_key(&context) {
            return -(EINVAL as isize); // The context names a claimed message already, which would be lost.
        }
        self.progress(queues);
        let Some(index) = self.tagged.find_unexpected(&filter) else {
            let (tag, flags) = (filter.tag, FI_RECV | FI_TAGGED);
            let entry = CompletionEntry { context, flags, length: 0, buffer: 0, data: 0, tag, source: None };
            let error = ErrorEntry { entry, excess: 0, error: ENOMSG, detail: ENOMSG };
            queues.fail(self.receive_targets.queue, None, error);
            return 0;
        };
        let entry = self.probe_entry(context, &self.tagged.unexpected[index]);
        if flags & (FI_CLAIM | FI_DISCARD) != 0
            && let Some(message) = self.take_unexpected(true, index)
        {
            if flags & FI_DISCARD != 0 {
                self.drop_message(queues, message);
            } else {
                self.claimed.insert(context, message);
            }
        }
        queues.complete(self.receive_targets.queue, None, Some(entry));
        0
    }

    fn probe_entry(&self, context: usize, message: &FabricMessage) -> CompletionEntry {
        CompletionEntry {
            context,
            flags: receive_flags(&message.envelope),
            length: message.length,
            buffer: 0,
            data: message.envelope.data.unwrap_or(0),
            tag: message.envelope.tag.unwrap_or(0),
            source: self.source_of(message.source),
        }
    }

    fn drop_message(&mut self, queues: &mut Queues, message: FabricMessage) {
        match message.body {
            FabricMessageBody::Remote(arrival, _) => self.port.discard(arrival),
            FabricMessageBody::Lent(token, _) => self.complete_send(queues, token),
            FabricMessageBody::Copied(_) => {}
        }
    }

    /// Cancels a receive that has no message.
    pub(crate) fn cancel(&mut self, queues: &mut Queues, context: usize) -> isize {
        for is_tagged in [true, false] {
            let lists = self.lists(is_tagged);
            let found = lists.posted.iter().position(|posted| posted.context == context);
            if let Some(posted) = found.and_then(|index| lists.posted.remove(index)) {
                self.fail_posted(queues, &posted, is_tagged, (ECANCELED, ECANCELED));
                return 0;
            }
        }
        -(ENOENT as isize)
    }

    /// The flags of a receive call without flags of its own.
    pub(crate) fn receive_op_flags(&self) -> u64 {
        self.receive_targets.op_flags & !(FI_PEEK | FI_CLAIM | FI_DISCARD | FI_MSG)
    }
}

/// What a message that waits for a receive counts against the limit of copied bytes. Peers have credit instead (P-63).
fn own_bytes(message: &FabricMessage) -> usize {
    match &message.body {
        FabricMessageBody::Copied(bytes) => bytes.len() + 64,
        FabricMessageBody::Remote(..) | FabricMessageBody::Lent(..) => 0,
    }
}

/// Lends memory to a send; copies it if it has several parts or must be free at once.
///
/// # Safety
/// The memory is valid until the send completes.
unsafe fn loan_of(buffer: &UserBuffer, must_copy: bool) -> Arc<dyn protocol::LentBytes> {
    match buffer.whole() {
        // SAFETY: as this function's caller promises.
        Some((start, length)) if !must_copy => Arc::new(unsafe { MemoryLoan::new(start, length) }),
        _ => {
            let mut bytes = Vec::with_capacity(buffer.len());
            // SAFETY: as this function's caller promises.
            unsafe { buffer.append_to(&mut bytes) };
            Arc::new(GatheredBytes(bytes))
        }
    }
}
