//! A messaging endpoint: sends and receives the tagged messages of one process.
//!
//! In: sends and receives of the user; from the driver, packets that arrived, packets that were sent, rails that failed. Out:
//! [`MessagingAction`]s for the driver and [`MessageCompletion`]s for the user. It has no timers: rails retransmit what is lost, and
//! report when they fail.

use std::collections::BTreeMap;

use units::{Rank, Time};

use super::action::{InPlaceBuffers, MessagingAction, NoInPlaceBuffers};
use super::completion::{MessageCompletion, MessageFailure, MessagePostError, PeerLossCause, RejectedPost};
use super::endpoint_shared::{EndpointShared, MessagingCounters};
use super::lent_buffer::SendBuffer;
use super::limits::{MAX_MESSAGE_BYTES, MAX_PENDING};
use super::matching::{MessageSelector, ProbedMessage, ReceiveId, SendId, WaitingReceive};
use super::peer::{MessagingPeer, QueuedSend};
use super::rails::RailIndex;
use super::settings::MessagingSettings;

/// Sends and receives the tagged messages of one process.
#[derive(Debug)]
pub struct MessagingEndpoint {
    pub(super) peers: BTreeMap<Rank, MessagingPeer>,
    pub(super) shared: EndpointShared,
    next_send: u64,
    pub(super) next_receive: u64,
}

impl MessagingEndpoint {
    /// An endpoint without peers.
    ///
    /// # Panics
    /// If the settings contradict each other.
    pub fn new(settings: MessagingSettings) -> Self {
        settings.check();
        Self { peers: BTreeMap::new(), shared: EndpointShared::new(settings), next_send: 0, next_receive: 0 }
    }

    /// The settings.
    pub fn settings(&self) -> &MessagingSettings {
        &self.shared.settings
    }

    /// Counts so far.
    pub fn counters(&self) -> MessagingCounters {
        self.shared.counters
    }

    /// Adds a peer with this many rails, at least one.
    pub fn add_peer(&mut self, rank: Rank, rails: u8) {
        let credit = self.shared.settings.credit_bytes;
        self.peers.entry(rank).or_insert_with(|| MessagingPeer::new(rank, rails.max(1), credit));
    }

    /// Sends a message. The send completes when its buffer is free.
    ///
    /// # Errors
    /// If the message cannot be sent; the error returns the buffer.
    pub fn send(&mut self, now: Time, to: Rank, tag: u64, buffer: Vec<u8>) -> Result<SendId, RejectedPost> {
        self.send_into(now, to, tag, buffer, &mut NoInPlaceBuffers)
    }

    /// As [`Self::send`], for a driver with [`InPlaceBuffers`].
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_into(
        &mut self,
        now: Time,
        to: Rank,
        tag: u64,
        buffer: Vec<u8>,
        buffers: &mut impl InPlaceBuffers,
    ) -> Result<SendId, RejectedPost> {
        let posted = self.post_send(now, to, (tag, 0, SendBuffer::Owned(buffer)), buffers);
        posted.map_err(|(error, buffer)| RejectedPost { error, buffer: buffer.into_vec() })
    }

    /// Sends a message at once, or queues it.
    pub(super) fn post_send(
        &mut self,
        now: Time,
        to: Rank,
        (tag, note, data): (u64, u128, SendBuffer),
        buffers: &mut impl InPlaceBuffers,
    ) -> Result<SendId, (MessagePostError, SendBuffer)> {
        let Some(peer) = self.peers.get_mut(&to) else { return Err((MessagePostError::Unknown(to), data)) };
        if let Some(cause) = peer.lost {
            return Err((MessagePostError::Lost(to, cause), data));
        }
        if data.len() as u64 > MAX_MESSAGE_BYTES {
            return Err((MessagePostError::TooLong, data));
        }
        if peer.queue.len() >= MAX_PENDING {
            return Err((MessagePostError::Full, data));
        }
        let id = SendId(self.next_send);
        self.next_send += 1;
        let queued = QueuedSend { id, tag, note, data };
        self.shared.now = now;
        if let Some(queued) = peer.send_at_once(&mut self.shared, queued, buffers) {
            peer.queue.push_back(queued);
            self.pump(now, to);
        }
        Ok(id)
    }

    /// Posts a receive. It completes when a message is in the buffer, or is longer than the buffer.
    ///
    /// # Errors
    /// If no message can arrive, or too many receives are pending; the error returns the buffer.
    pub fn receive(
        &mut self,
        now: Time,
        selector: MessageSelector,
        buffer: Vec<u8>,
    ) -> Result<ReceiveId, RejectedPost> {
        let reject = |error, buffer| Err(RejectedPost { error, buffer });
        if self.shared.matching.waiting_receives() >= MAX_PENDING {
            return reject(MessagePostError::Full, buffer);
        }
        let id = ReceiveId(self.next_receive);
        let posted = WaitingReceive { id, selector, buffer };
        if let Some(message) = self.shared.matching.take_unexpected(&selector) {
            self.next_receive += 1;
            let Some(peer) = self.peers.get_mut(&message.source) else { return Ok(id) };
            peer.complete_receive(&mut self.shared, posted, message.tag, message.contents);
            let source = message.source;
            self.pump(now, source);
            return Ok(id);
        }
        if let Some(source) = selector.source {
            match self.peers.get(&source).map(|peer| peer.lost) {
                None => return reject(MessagePostError::Unknown(source), posted.buffer),
                Some(Some(cause)) => return reject(MessagePostError::Lost(source, cause), posted.buffer),
                Some(None) => {}
            }
        }
        self.next_receive += 1;
        self.shared.matching.post(posted);
        Ok(id)
    }

    /// The first unexpected message that such a receive would match; of a long message, its RTS.
    pub fn probe(&self, selector: &MessageSelector) -> Option<ProbedMessage> {
        self.shared.matching.probe(selector)
    }

    /// Cancels a receive without a message. None if it is too late: then the receive completes.
    pub fn cancel_receive(&mut self, id: ReceiveId) -> Option<Vec<u8>> {
        self.shared.matching.cancel(id).map(|posted| posted.buffer)
    }

    /// Cancels a send that has not started. None if it is too late: then the send completes.
    pub fn cancel_send(&mut self, id: SendId) -> Option<Vec<u8>> {
        for peer in self.peers.values_mut() {
            if let Some(index) = peer.queue.iter().position(|queued| queued.id == id) {
                return peer.queue.remove(index).map(|queued| queued.data.into_vec());
            }
        }
        None
    }

    /// Whether [`Self::poll_completion`] has something to return.
    pub fn has_completions(&self) -> bool {
        !self.shared.completions.is_empty()
    }

    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<MessageCompletion> {
        self.shared.completions.pop_front()
    }

    /// Whether [`Self::poll_action`] may have something to return.
    #[inline]
    pub fn has_actions(&self) -> bool {
        !self.shared.actions.is_empty() || !self.shared.pumping.is_empty()
    }

    /// The next action for the driver. A fragment is copied only when it is polled here, so that it is in flight while the next one is
    /// copied (CK-7).
    pub fn poll_action(&mut self) -> Option<MessagingAction> {
        self.poll_action_into(&mut NoInPlaceBuffers)
    }

    /// As [`Self::poll_action`], for a driver with [`InPlaceBuffers`].
    pub fn poll_action_into(&mut self, buffers: &mut impl InPlaceBuffers) -> Option<MessagingAction> {
        loop {
            if let Some(action) = self.shared.actions.pop_front() {
                return Some(action);
            }
            let rank = *self.shared.pumping.front()?;
            let peer = self.peers.get_mut(&rank).filter(|peer| peer.lost.is_none());
            let sent = peer.map_or(Ok(false), |peer| peer.send_next(&mut self.shared, buffers));
            if !sent.unwrap_or(false) {
                self.shared.pumping.pop_front();
            }
            self.settle(rank, sent.map(|_| ()));
        }
    }

    /// A packet arrived over a rail. False if it is corrupt.
    pub fn handle_packet(&mut self, now: Time, from: Rank, rail: RailIndex, packet: &[u8]) -> bool {
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.lost.is_none()) else {
            self.shared.counters.unknown_peer += 1;
            return true;
        };
        self.shared.now = now;
        let corrupted = self.shared.counters.corrupted;
        match peer.handle_packet(&mut self.shared, rail, packet) {
            Ok(()) if peer.is_idle(&self.shared) => {}
            outcome => {
                self.settle(from, outcome);
                self.pump(now, from);
            }
        }
        self.shared.counters.corrupted == corrupted
    }

    /// The oldest packet that was sent over a rail arrived; the driver returns its bytes.
    pub fn handle_sent(&mut self, now: Time, to: Rank, rail: RailIndex, bytes: Vec<u8>) {
        if let Some(peer) = self.peers.get_mut(&to) {
            self.shared.now = now;
            peer.handle_sent(&mut self.shared, rail, bytes);
            if !peer.is_idle(&self.shared) {
                self.pump(now, to);
            }
        }
    }

    /// A rail failed. The driver returns its packets in flight with [`Self::handle_sent`], before or after this call.
    pub fn handle_rail_lost(&mut self, now: Time, peer: Rank, rail: RailIndex) {
        if let Some(found) = self.peers.get_mut(&peer).filter(|peer| peer.lost.is_none()) {
            let lost = found.lose_rail(rail);
            self.settle(peer, lost);
            self.pump(now, peer);
        }
    }

    /// Drops a peer, and fails all its sends and receives.
    pub fn drop_peer(&mut self, peer: Rank) {
        self.settle(peer, Err(PeerLossCause::Dropped));
    }

    /// Asks every peer to acknowledge what it received; see [`Self::is_drained`].
    pub fn drain(&mut self, now: Time) {
        let ranks: Vec<Rank> = self.peers.keys().copied().collect();
        for rank in ranks {
            if let Some(peer) = self.peers.get_mut(&rank) {
                peer.is_draining = true;
            }
            self.pump(now, rank);
        }
    }

    /// Whether every message to a peer that is not lost has arrived intact.
    pub fn is_drained(&self) -> bool {
        self.peers.values().all(|peer| peer.lost.is_some() || peer.is_drained())
    }

    /// Why a peer is lost; none if it is not.
    pub fn lost(&self, peer: Rank) -> Option<PeerLossCause> {
        self.peers.get(&peer)?.lost
    }

    /// Sends what can be sent.
    pub(super) fn pump(&mut self, now: Time, rank: Rank) {
        self.shared.now = now;
        let Some(peer) = self.peers.get_mut(&rank).filter(|peer| peer.lost.is_none()) else { return };
        let pumped = peer.pump(&mut self.shared);
        if peer.has_deferred_work() && !self.shared.pumping.contains(&rank) {
            self.shared.pumping.push_back(rank);
        }
        self.settle(rank, pumped);
    }

    /// Drops a peer that violated the protocol or cannot be reached, and fails its sends and receives.
    fn settle(&mut self, rank: Rank, outcome: Result<(), PeerLossCause>) {
        let Err(cause) = outcome else { return };
        let Some(peer) = self.peers.get_mut(&rank).filter(|peer| peer.lost.is_none()) else { return };
        let failure = MessageFailure::Lost(rank, cause);
        let (sends, receives) = peer.abandon(cause);
        let receives = receives.chain(self.shared.matching.remove_rank(rank).into_iter().map(|p| (p.id, p.buffer)));
        let completions = &mut self.shared.completions;
        completions.extend(sends.map(|(id, buffer)| MessageCompletion::SendFailed { id, failure, buffer }));
        completions.extend(receives.map(|(id, buffer)| MessageCompletion::ReceiveFailed { id, failure, buffer }));
        self.shared.actions.push_back(MessagingAction::DropPeer { peer: rank, cause });
    }
}
