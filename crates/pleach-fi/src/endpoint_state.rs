//! One endpoint: its port, its receives and sends, and the queues that it reports to.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use protocol::messaging::{MessageArrival, MessageFailure};
use units::Rank;

use crate::abi::{FI_COMPLETION, FI_ECRC, FI_MSG, FI_MULTI_RECV, FI_RECV, FI_REMOTE_CQ_DATA, FI_SEND, FI_TAGGED};
use crate::envelope::{Envelope, PING_TAG, PING_TOKEN, REPLY_TOKEN};
use crate::match_lists::{FabricMessage, FabricMessageBody, FabricReceive, MatchLists, MessageSource};
use crate::message_port::{MessagePort, PeerIndex, PortEvent};
use crate::number_map::NumberMap;
use crate::queues::{CompletionEntry, ErrorEntry, Queues};
use crate::remote_read::RemoteRead;
use crate::user_memory::UserBuffer;

/// Error numbers of the system.
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const EIO: i32 = 5;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOENT: i32 = 2;
pub(crate) const ENOSYS: i32 = 38;
pub(crate) const ENOMSG: i32 = 42;
pub(crate) const ETIMEDOUT: i32 = 110;
pub(crate) const EHOSTUNREACH: i32 = 113;
pub(crate) const ECANCELED: i32 = 125;

/// A send without completion.
#[derive(Debug)]
pub(crate) struct PendingSend {
    pub(crate) context: usize,
    pub(crate) wants_completion: bool,
    pub(crate) is_tagged: bool,
    /// Bytes that were copied for it.
    pub(crate) copied: usize,
}

/// A receive whose message is arriving.
#[derive(Debug)]
pub(crate) struct ActiveReceive {
    pub(crate) context: usize,
    pub(crate) wants_completion: bool,
    pub(crate) source: MessageSource,
    pub(crate) envelope: Envelope,
    pub(crate) length: usize,
    pub(crate) buffer: UserBuffer,
    /// Where the message arrives if the buffer has several parts.
    pub(crate) bounce: Option<Box<[u8]>>,
    pub(crate) multi: Option<u64>,
}

/// A buffer for several messages.
#[derive(Debug)]
pub(crate) struct MultiBuffer {
    pub(crate) context: usize,
    pub(crate) buffer: UserBuffer,
    pub(crate) used: usize,
    /// Messages that are arriving in it.
    pub(crate) arriving: usize,
    /// No more messages match it.
    pub(crate) is_done: bool,
}

/// Where an endpoint reports.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ReportTargets {
    pub(crate) queue: Option<usize>,
    /// Only operations with `FI_COMPLETION` report success.
    pub(crate) is_selective: bool,
    pub(crate) counter: Option<usize>,
    pub(crate) op_flags: u64,
}

impl ReportTargets {
    /// Whether an operation with these flags reports success.
    pub(crate) fn wants(&self, flags: u64) -> bool {
        !self.is_selective || flags & FI_COMPLETION != 0
    }
}

pub(crate) struct EndpointState {
    // First, so that all loans end before the memory that this library owns.
    pub(crate) port: MessagePort,
    pub(crate) vector: Option<usize>,
    pub(crate) send_targets: ReportTargets,
    pub(crate) receive_targets: ReportTargets,
    pub(crate) is_enabled: bool,
    pub(crate) min_multi_receive: usize,
    pub(crate) tagged: MatchLists,
    pub(crate) untagged: MatchLists,
    /// Messages that a probe has set aside, by the context of the probe.
    pub(crate) claimed: HashMap<usize, FabricMessage>,
    pub(crate) sends: NumberMap<PendingSend>,
    pub(crate) copied_bytes: usize,
    /// Bytes of copied messages to this endpoint itself that wait for a receive.
    pub(crate) own_bytes: usize,
    pub(crate) receives: NumberMap<ActiveReceive>,
    pub(crate) multis: NumberMap<MultiBuffer>,
    /// Reads of peers' memory, by number; and those whose answer is arriving, by token.
    pub(crate) reads: NumberMap<RemoteRead>,
    pub(crate) arriving_reads: NumberMap<RemoteRead>,
    pub(crate) next_token: u64,
}

/// An error number, and the number of its description.
pub(crate) type ErrorNumbers = (i32, i32);

impl EndpointState {
    pub(crate) fn new(port: MessagePort, send_flags: u64, receive_flags: u64) -> Self {
        Self {
            port,
            vector: None,
            send_targets: ReportTargets { op_flags: send_flags, ..ReportTargets::default() },
            receive_targets: ReportTargets { op_flags: receive_flags, ..ReportTargets::default() },
            is_enabled: false,
            min_multi_receive: 64,
            tagged: MatchLists::default(),
            untagged: MatchLists::default(),
            claimed: HashMap::new(),
            sends: NumberMap::default(),
            copied_bytes: 0,
            own_bytes: 0,
            receives: NumberMap::default(),
            multis: NumberMap::default(),
            reads: NumberMap::default(),
            arriving_reads: NumberMap::default(),
            next_token: 0,
        }
    }

    pub(crate) fn next_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Does all that can be done now.
    pub(crate) fn progress(&mut self, queues: &mut Queues) {
        if !self.is_enabled {
            return;
        }
        self.port.turn(Duration::ZERO);
        self.handle_events(queues);
        if std::mem::take(&mut self.port.is_watch_due) {
            self.watch_sources(queues);
        }
    }

    /// Looks after peers for which receives or long sends wait. All receives are looked at: the one that waits in vain may be the last of many.
    fn watch_sources(&mut self, queues: &mut Queues) {
        let posted = self.tagged.posted.iter().chain(&self.untagged.posted);
        let waits_for_any = posted.clone().any(FabricReceive::waits_for_any);
        let sources = posted.map(|posted| posted.filter.source);
        let sources = sources.chain(self.receives.values().map(|receive| Some(receive.source)));
        let mut peers: Vec<PeerIndex> = sources
            .filter_map(|source| match source {
                Some(MessageSource::Peer(peer)) => Some(peer),
                _ => None,
            })
            .collect();
        if waits_for_any {
            peers.extend(self.port.connected_peers());
        }
        peers.extend(self.port.peers_with_long_sends());
        peers.sort_unstable();
        peers.dedup();
        peers.into_iter().for_each(|peer| self.port.watch(peer));
        if waits_for_any && let Some(why) = self.why_nobody_is_left(queues) {
            let detail = queues.note_loss(&why);
            self.fail_receives(queues, FabricReceive::waits_for_any, detail);
        }
    }

    /// Why no message can come any more: each endpoint that the application named, or that connected, is lost. None while one may
    /// still send, also if it never did.
    fn why_nobody_is_left(&self, queues: &Queues) -> Option<String> {
        let mut why = None;
        for peer in 0..self.port.peers.len() as PeerIndex {
            why = Some(self.port.lost(peer)?);
        }
        let mut named = queues.vectors.get(self.vector?)?.identities();
        let is_unused = |identity| identity != self.port.own.identity && self.port.known_peer(identity).is_none();
        if named.any(is_unused) {
            return None;
        }
        why.map(|last| format!("no peer is left; the last one: {last}"))
    }

    pub(crate) fn handle_events(&mut self, queues: &mut Queues) {
        while let Some(event) = self.port.events.pop_front() {
            match event {
                PortEvent::Sent { token } if token & PING_TOKEN != 0 => self.end_ping(token),
                PortEvent::SendFailed { token, .. } if token & PING_TOKEN != 0 => self.end_ping(token),
                PortEvent::Sent { token } | PortEvent::SendFailed { token, .. } if token & REPLY_TOKEN != 0 => {}
                PortEvent::Sent { token } => self.complete_send(queues, token),
                PortEvent::SendFailed { token, failure } => self.fail_send(queues, token, &failure),
                PortEvent::Arrived(arrival) => self.handle_arrival(queues, arrival),
                PortEvent::Received { token } => self.finish_receive(queues, token, None),
                PortEvent::ReceiveFailed { token, failure } => self.finish_receive(queues, token, Some(failure)),
                PortEvent::PeerLost { peer, why } => self.lose_peer(queues, peer, &why),
            }
        }
    }

    fn handle_arrival(&mut self, queues: &mut Queues, arrival: MessageArrival) {
        let Rank(peer) = arrival.source();
        if Envelope::is_lost(&arrival) {
            // P-121: without the tag nobody knows which receive must fail, and a later message would take its place.
            self.port.discard(arrival);
            return self
                .port
                .lose(peer, "a tagged message was corrupted in the sender's memory, and its tag with it");
        }
        let Some(arrival) = self.handle_read_message(queues, arrival) else { return };
        let envelope = Envelope::of(&arrival).filter(|_| arrival.tag() != PING_TAG);
        let Some((envelope, prefix)) = envelope else { return self.port.discard(arrival) };
        let length = (arrival.length() as usize).saturating_sub(prefix);
        let body = FabricMessageBody::Remote(arrival, prefix);
        self.deliver(queues, FabricMessage { source: MessageSource::Peer(peer), envelope, length, body });
    }

    fn end_ping(&mut self, token: u64) {
        if let Some(peer) = self.port.peers.get_mut((token & !PING_TOKEN) as usize) {
            peer.is_pinging = false;
        }
    }

    pub(crate) fn lists(&mut self, is_tagged: bool) -> &mut MatchLists {
        if is_tagged { &mut self.tagged } else { &mut self.untagged }
    }

    pub(crate) fn complete_send(&mut self, queues: &mut Queues, token: u64) {
        let Some(send) = self.sends.remove(&token) else { return };
        self.copied_bytes -= send.copied;
        let entry = send.wants_completion.then(|| send_entry(&send));
        queues.complete(self.send_targets.queue, self.send_targets.counter, entry);
    }

    fn fail_send(&mut self, queues: &mut Queues, token: u64, failure: &MessageFailure) {
        let Some(send) = self.sends.remove(&token) else { return };
        self.copied_bytes -= send.copied;
        let (error, detail) = self.describe(queues, failure);
        let error = ErrorEntry { entry: send_entry(&send), excess: 0, error, detail };
        queues.fail(self.send_targets.queue, self.send_targets.counter, error);
    }

    /// The error number and the number of the description of a failure.
    pub(crate) fn describe(&self, queues: &mut Queues, failure: &MessageFailure) -> (i32, i32) {
        match failure {
            MessageFailure::Lost(Rank(peer), cause) => {
                let why = match self.port.lost(*peer) {
                    Some(why) => why.to_owned(),
                    None => format!("endpoint {} is lost: {cause}", self.port.peers[*peer as usize].address),
                };
                (EHOSTUNREACH, queues.note_loss(&why))
            }
            MessageFailure::Corrupted { source, .. } => {
                let address = &self.port.peers[source.0 as usize].address;
                let why = format!("a message from endpoint {address} was corrupted in memory and discarded");
                (FI_ECRC, queues.note_loss(&why))
            }
            MessageFailure::Truncated { .. } => (crate::abi::FI_ETRUNC, 0),
        }
    }

    fn finish_receive(&mut self, queues: &mut Queues, token: u64, failure: Option<MessageFailure>) {
        if let Some(read) = self.arriving_reads.remove(&token) {
            let failure = failure.map(|failure| self.describe(queues, &failure));
            return self.finish_read(queues, &read, failure);
        }
        let Some(receive) = self.receives.remove(&token) else { return };
        match failure {
            None => {
                if let Some(bounce) = &receive.bounce {
                    // SAFETY: the receive is not complete: that is reported below.
                    unsafe { receive.buffer.write(&bounce[..receive.length]) };
                }
                self.report_receive(queues, &receive, 0);
            }
            Some(failure) => {
                let (error, detail) = self.describe(queues, &failure);
                self.report_receive_error(queues, &receive, (error, detail), 0);
            }
        }
    }

    /// Reports a receive that got its message; `excess` bytes of it did not fit.
    pub(crate) fn report_receive(&mut self, queues: &mut Queues, receive: &ActiveReceive, excess: usize) {
        if excess > 0 {
            return self.report_receive_error(queues, receive, (crate::abi::FI_ETRUNC, 0), excess);
        }
        let released = self.leave_multi(receive.multi);
        let mut entry = self.receive_entry(receive);
        entry.flags |= if released { FI_MULTI_RECV } else { 0 };
        let wanted = receive.wants_completion || released;
        queues.complete(self.receive_targets.queue, self.receive_targets.counter, wanted.then_some(entry));
    }

    pub(crate) fn report_receive_error(
        &mut self,
        queues: &mut Queues,
        receive: &ActiveReceive,
        (error, detail): (i32, i32),
        excess: usize,
    ) {
        let released = self.leave_multi(receive.multi);
        let mut entry = self.receive_entry(receive);
        entry.flags |= if released { FI_MULTI_RECV } else { 0 };
        let error = ErrorEntry { entry, excess, error, detail };
        queues.fail(self.receive_targets.queue, self.receive_targets.counter, error);
    }

    /// A message of a buffer for several is complete; true if the buffer is free now.
    fn leave_multi(&mut self, multi: Option<u64>) -> bool {
        let Some(number) = multi else { return false };
        let Some(buffer) = self.multis.get_mut(&number) else { return false };
        buffer.arriving -= 1;
        let is_free = buffer.is_done && buffer.arriving == 0;
        if is_free {
            self.multis.remove(&number);
        }
        is_free
    }

    fn receive_entry(&self, receive: &ActiveReceive) -> CompletionEntry {
        let ActiveReceive { context, envelope, length, buffer, .. } = receive;
        CompletionEntry {
            context: *context,
            flags: receive_flags(envelope),
            length: (*length).min(buffer.len()),
            buffer: buffer.start() as usize,
            data: envelope.data.unwrap_or(0),
            tag: envelope.tag.unwrap_or(0),
            source: self.source_of(receive.source),
        }
    }

    pub(crate) fn source_of(&self, source: MessageSource) -> Option<(usize, u64)> {
        let identity = match source {
            MessageSource::Peer(peer) => self.port.identity(peer),
            MessageSource::Own => self.port.own.identity,
        };
        self.vector.map(|vector| (vector, identity))
    }

    /// A peer is gone: receives that only it could complete fail.
    fn lose_peer(&mut self, queues: &mut Queues, peer: PeerIndex, why: &str) {
        let detail = queues.note_loss(why);
        self.lose_reads(queues, peer, detail);
        let source = Some(MessageSource::Peer(peer));
        self.fail_receives(queues, |posted| posted.filter.source == source, detail);
    }

    /// Fails receives whose message never comes.
    fn fail_receives(&mut self, queues: &mut Queues, is_hopeless: impl Fn(&FabricReceive) -> bool, detail: i32) {
        for is_tagged in [true, false] {
            let lists = self.lists(is_tagged);
            let (gone, left) = std::mem::take(&mut lists.posted).into_iter().partition(&is_hopeless);
            lists.posted = left;
            let gone: VecDeque<FabricReceive> = gone;
            for posted in gone {
                self.fail_posted(queues, &posted, is_tagged, (EHOSTUNREACH, detail));
            }
        }
    }

    /// Reports the failure of a receive that has no message.
    pub(crate) fn fail_posted(
        &mut self,
        queues: &mut Queues,
        posted: &FabricReceive,
        is_tagged: bool,
        (error, detail): (i32, i32),
    ) {
        let mut flags = FI_RECV | if is_tagged { FI_TAGGED } else { FI_MSG };
        if let Some(number) = posted.multi
            && let Some(multi) = self.multis.get_mut(&number)
        {
            multi.is_done = true;
            if multi.arriving > 0 {
                return; // The last message that is arriving releases the buffer.
            }
            self.multis.remove(&number);
            flags |= FI_MULTI_RECV;
        }
        let entry = CompletionEntry {
            context: posted.context,
            flags,
            length: 0,
            buffer: posted.buffer.start() as usize,
            data: 0,
            tag: posted.filter.tag,
            source: None,
        };
        let error = ErrorEntry { entry, excess: 0, error, detail };
        queues.fail(self.receive_targets.queue, self.receive_targets.counter, error);
    }
}

fn send_entry(send: &PendingSend) -> CompletionEntry {
    let flags = FI_SEND | if send.is_tagged { FI_TAGGED } else { FI_MSG };
    CompletionEntry { context: send.context, flags, length: 0, buffer: 0, data: 0, tag: 0, source: None }
}

/// The flags of a completion for a received message.
pub(crate) fn receive_flags(envelope: &Envelope) -> u64 {
    let kind = if envelope.tag.is_some() { FI_TAGGED } else { FI_MSG };
    FI_RECV | kind | if envelope.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 }
}

#[cfg(test)]
mod tests;
