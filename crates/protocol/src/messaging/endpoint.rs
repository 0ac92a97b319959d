//! A port: where one process sends and receives tagged messages.
//!
//! In: orders of the user; from the driver, parcels that came, parcels that have gone out, rails that are lost. Out: [`MessagingAction`]s for
//! the driver and [`MessageCompletion`]s for the user. It sets no alarms: rails repeat what is lost and tell when they give up.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use units::{Rank, Time};

use super::matching::{
    MatchQueues, MessageContents, MessageSelector, ProbedMessage, ReceiveId, SendId, WaitingReceive,
};
use super::peer::{MessagingPeer, QueuedSend};
use super::rails::RailIndex;
use super::settings::MessagingSettings;
use super::{MAX_MESSAGE_BYTES, MAX_PENDING};
use crate::BufferSlice;
use crate::connection::AckRequest;

/// What the driver must do.
#[derive(Debug)]
pub enum MessagingAction {
    /// Send this over a rail, behind everything sent there before; then give the bytes back ([`MessagingEndpoint::handle_sent`]).
    Transmit {
        /// To this rank.
        to: Rank,
        /// Over this rail.
        rail: RailIndex,
        /// The parcel.
        bytes: Vec<u8>,
        /// Bytes that were copied and sealed for it just now, for drivers that model what that takes.
        copied: u32,
    },
    /// Send these bytes and then those that are lent, as one parcel, as above; the first are given back when the others are not
    /// needed any more.
    Lend {
        /// To this rank.
        to: Rank,
        /// Over this rail.
        rail: RailIndex,
        /// The parcel's header.
        head: Vec<u8>,
        /// Its body.
        body: BufferSlice,
        /// Whether the port waits for them to be given back.
        ask: AckRequest,
    },
    /// Send what lies in the room that was lent for it ([`InPlaceBuffers`]), as above; an empty buffer is given back for it.
    Written {
        /// To this rank.
        to: Rank,
        /// Over this rail.
        rail: RailIndex,
        /// Bytes of the parcel.
        length: usize,
    },
    /// Take nothing more from this rank: it is of no use.
    Drop {
        /// The rank.
        peer: Rank,
        /// Why.
        cause: PeerLossCause,
    },
}

/// How messages can go out without a buffer in between: by memory that the other end reads, or, pieces of long ones, from where they lie.
pub trait InPlaceBuffers {
    /// Room for the next parcel of a rail, if there is any now. What is written there is sent by [`MessagingAction::Written`], which
    /// is the next duty, or by [`Self::send_room`], which is called next.
    fn room(&mut self, to: Rank, rail: RailIndex, bytes: usize) -> Option<&mut [u8]>;

    /// Sends what was written to the room lent last, at once. Unlike for [`MessagingAction::Written`], nothing is given back for it. Messages that
    /// are not long go so.
    fn send_room(&mut self, to: Rank, rail: RailIndex);

    /// Whether pieces may be sent from where they lie ([`MessagingAction::Lend`]), where there is no room.
    fn borrows(&self) -> bool {
        false
    }
}

/// Nowhere.
struct NoInPlaceBuffers;

impl InPlaceBuffers for NoInPlaceBuffers {
    fn room(&mut self, _: Rank, _: RailIndex, _: usize) -> Option<&mut [u8]> {
        None
    }

    fn send_room(&mut self, _: Rank, _: RailIndex) {}
}

/// Why a peer is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerLossCause {
    /// All rails to it are lost.
    Unreachable,
    /// It sent what nobody sends who keeps the rules.
    Senseless,
    /// It sent more than it was granted.
    Overdrawn,
    /// The same parcel came spoiled again and again.
    SpoiledTooOften,
    /// Nothing of what it sends can be read.
    Garbage,
    /// The buffer of a long message was spoiled while the message was under way, here: what it held cannot be had again.
    SpoiledHere,
    /// The user says so.
    Dismissed,
}

impl fmt::Display for PeerLossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "all ways to it are lost",
            Self::Senseless => "it sent what makes no sense",
            Self::Overdrawn => "it sent more than it was granted",
            Self::SpoiledTooOften => "the same parcel came spoiled too often",
            Self::Garbage => "nothing of what it sends can be read",
            Self::SpoiledHere => "a long message was spoiled in this machine's memory while it was sent",
            Self::Dismissed => "it was dismissed",
        })
    }
}

/// Why a send or a receive came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageFailure {
    /// The peer is lost.
    Lost(Rank, PeerLossCause),
    /// The message was longer than the buffer. It is gone.
    Truncated {
        /// From this rank.
        source: Rank,
        /// With this tag.
        tag: u64,
        /// Its bytes.
        length: u64,
    },
    /// The message was spoiled in memory, here while it waited for a receive, or at its sender's while it waited to be confirmed. It is
    /// gone.
    Spoiled {
        /// From this rank.
        source: Rank,
        /// With this tag.
        tag: u64,
    },
}

impl fmt::Display for MessageFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(rank, cause) => write!(f, "{rank} is lost: {cause}"),
            Self::Truncated { source, tag, length } => {
                write!(f, "a message of {length} bytes from {source} with tag {tag:#x} is longer than its buffer")
            }
            Self::Spoiled { source, tag } => {
                write!(f, "a message from {source} with tag {tag:#x} was spoiled in memory while it waited")
            }
        }
    }
}

impl std::error::Error for MessageFailure {}

/// Something has ended; its buffer comes back.
#[derive(Debug)]
pub enum MessageCompletion {
    /// A send: the buffer may be used again. A short message is on its way then, a long one has come.
    Sent {
        /// As it was named.
        id: SendId,
        /// Its buffer.
        buffer: Vec<u8>,
    },
    /// A receive: a message is in its buffer, every byte as it was sent.
    Received {
        /// As it was named.
        id: ReceiveId,
        /// From this rank.
        source: Rank,
        /// With this tag.
        tag: u64,
        /// So much of the buffer is the message.
        length: usize,
        /// Its buffer, as long as it was.
        buffer: Vec<u8>,
    },
    /// A send that came to nothing.
    SendFailed {
        /// As it was named.
        id: SendId,
        /// Why.
        failure: MessageFailure,
        /// Its buffer.
        buffer: Vec<u8>,
    },
    /// A receive that came to nothing.
    ReceiveFailed {
        /// As it was named.
        id: ReceiveId,
        /// Why.
        failure: MessageFailure,
        /// Its buffer, with anything in it.
        buffer: Vec<u8>,
    },
}

/// Why something cannot be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessagePostError {
    /// There is no such peer.
    Unknown(Rank),
    /// The peer is lost.
    Lost(Rank, PeerLossCause),
    /// So many wait already.
    Full,
    /// Longer than a message may be.
    TooLong,
}

impl fmt::Display for MessagePostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(rank) => write!(f, "there is no {rank} here"),
            Self::Lost(rank, cause) => write!(f, "{rank} is lost: {cause}"),
            Self::Full => write!(f, "{MAX_PENDING} wait already: take completions first"),
            Self::TooLong => write!(f, "a message has at most {MAX_MESSAGE_BYTES} bytes"),
        }
    }
}

impl std::error::Error for MessagePostError {}

/// Something was not posted; here is its buffer.
#[derive(Debug)]
pub struct RejectedPost {
    /// Why.
    pub error: MessagePostError,
    /// The buffer.
    pub buffer: Vec<u8>,
}

/// What a port has seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MessagingCounters {
    /// Parcels handed to rails, and of them those sent again.
    pub parcels: u64,
    /// See [`Self::parcels`].
    pub repeated: u64,
    /// Bytes of pieces that were copied before they were asked for.
    pub prepared_bytes: u64,
    /// Messages that travelled in company.
    pub gathered: u64,
    /// Parcels that came spoiled.
    pub spoiled: u64,
    /// Letters and pieces that had come before.
    pub repeats_seen: u64,
    /// Parcels of peers that are unknown or lost.
    pub strays: u64,
}

/// What peers share.
#[derive(Debug)]
pub(super) struct EndpointShared {
    pub(super) settings: MessagingSettings,
    pub(super) matching: MatchQueues,
    pub(super) completions: VecDeque<MessageCompletion>,
    pub(super) duties: VecDeque<MessagingAction>,
    pub(super) counters: MessagingCounters,
    /// When the port was last told something.
    pub(super) now: Time,
    /// Ranks that have pieces to send.
    pumping: VecDeque<Rank>,
    pool: PacketBufferPool,
}

/// Buffers to be used again: small ones, and those of pieces.
#[derive(Debug, Default)]
struct PacketBufferPool {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

const SMALL_BUFFER_BYTES: usize = 8 << 10;
const MAX_POOLED_BUFFERS: usize = 64;

impl EndpointShared {
    /// A buffer of this length, with anything in it.
    pub(super) fn buffer(&mut self, length: usize) -> Vec<u8> {
        let shelf = if length <= SMALL_BUFFER_BYTES { &mut self.pool.small } else { &mut self.pool.large };
        // What a buffer grows by is cleared first, for nothing: one that is long enough is better.
        let fits = |buffer: &Vec<u8>| buffer.len() >= length;
        let found = if length <= SMALL_BUFFER_BYTES { None } else { shelf.iter().rposition(fits) };
        let mut buffer = match found {
            Some(index) => shelf.swap_remove(index),
            None => shelf.pop().unwrap_or_default(),
        };
        buffer.resize(length, 0);
        buffer
    }

    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        let shelf = if buffer.capacity() <= SMALL_BUFFER_BYTES { &mut self.pool.small } else { &mut self.pool.large };
        if buffer.capacity() > 0 && shelf.len() < MAX_POOLED_BUFFERS {
            shelf.push(buffer);
        }
    }
}

/// Where one process sends and receives.
#[derive(Debug)]
pub struct MessagingEndpoint {
    pub(super) peers: BTreeMap<Rank, MessagingPeer>,
    pub(super) common: EndpointShared,
    next_send: u64,
    next_receive: u64,
}

impl MessagingEndpoint {
    /// A port without peers.
    ///
    /// # Panics
    /// If the settings contradict each other.
    pub fn new(settings: MessagingSettings) -> Self {
        settings.check();
        let common = EndpointShared {
            settings,
            matching: MatchQueues::default(),
            completions: VecDeque::new(),
            duties: VecDeque::new(),
            counters: MessagingCounters::default(),
            now: Time::ZERO,
            pumping: VecDeque::new(),
            pool: PacketBufferPool::default(),
        };
        Self { peers: BTreeMap::new(), common, next_send: 0, next_receive: 0 }
    }

    /// How it behaves.
    pub fn settings(&self) -> &MessagingSettings {
        &self.common.settings
    }

    /// What it has seen.
    pub fn counters(&self) -> MessagingCounters {
        self.common.counters
    }

    /// A peer that can be reached by so many rails, at least one.
    pub fn add_peer(&mut self, rank: Rank, rails: u8) {
        let credit = self.common.settings.credit_bytes;
        self.peers.entry(rank).or_insert_with(|| MessagingPeer::new(rank, rails.max(1), credit));
    }

    /// Sends a message. It completes when its buffer may be used again.
    ///
    /// # Errors
    /// If it cannot be sent now or ever; the buffer comes back.
    pub fn send(&mut self, now: Time, to: Rank, tag: u64, buffer: Vec<u8>) -> Result<SendId, RejectedPost> {
        self.send_into(now, to, tag, buffer, &mut NoInPlaceBuffers)
    }

    /// The same for a driver that has rooms to write to.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_into(
        &mut self,
        now: Time,
        to: Rank,
        tag: u64,
        buffer: Vec<u8>,
        rooms: &mut impl InPlaceBuffers,
    ) -> Result<SendId, RejectedPost> {
        let refuse = |error, buffer| Err(RejectedPost { error, buffer });
        let Some(peer) = self.peers.get_mut(&to) else { return refuse(MessagePostError::Unknown(to), buffer) };
        if let Some(cause) = peer.lost {
            return refuse(MessagePostError::Lost(to, cause), buffer);
        }
        if buffer.len() as u64 > MAX_MESSAGE_BYTES {
            return refuse(MessagePostError::TooLong, buffer);
        }
        if peer.queue.len() >= MAX_PENDING {
            return refuse(MessagePostError::Full, buffer);
        }
        let id = SendId(self.next_send);
        self.next_send += 1;
        let queued = QueuedSend { id, tag, data: buffer };
        self.common.now = now;
        if let Some(queued) = peer.send_at_once(&mut self.common, queued, rooms) {
            peer.queue.push_back(queued);
            self.pump(now, to);
        }
        Ok(id)
    }

    /// Waits for a message. It completes when the message is in the buffer, or is found to be longer.
    ///
    /// # Errors
    /// If nothing can come, or too many wait; the buffer comes back.
    pub fn receive(
        &mut self,
        now: Time,
        wanted: MessageSelector,
        buffer: Vec<u8>,
    ) -> Result<ReceiveId, RejectedPost> {
        let refuse = |error, buffer| Err(RejectedPost { error, buffer });
        if self.common.matching.waiting_receives() >= MAX_PENDING {
            return refuse(MessagePostError::Full, buffer);
        }
        let id = ReceiveId(self.next_receive);
        let posted = WaitingReceive { id, wanted, buffer };
        if let Some(message) = self.common.matching.take_unexpected(&wanted) {
            self.next_receive += 1;
            let Some(peer) = self.peers.get_mut(&message.source) else { return Ok(id) };
            peer.give(&mut self.common, posted, message.tag, message.contents);
            let source = message.source;
            self.pump(now, source);
            return Ok(id);
        }
        if let Some(source) = wanted.source {
            match self.peers.get(&source).map(|peer| peer.lost) {
                None => return refuse(MessagePostError::Unknown(source), posted.buffer),
                Some(Some(cause)) => return refuse(MessagePostError::Lost(source, cause), posted.buffer),
                Some(None) => {}
            }
        }
        self.next_receive += 1;
        self.common.matching.post(posted);
        Ok(id)
    }

    /// The first message that has come, in whole or in name, that such a receive would get.
    pub fn probe(&self, wanted: &MessageSelector) -> Option<ProbedMessage> {
        self.common.matching.probe(wanted)
    }

    /// Takes back a receive for which nothing has come. None if it is too late: it completes.
    pub fn cancel_receive(&mut self, id: ReceiveId) -> Option<Vec<u8>> {
        self.common.matching.cancel(id).map(|posted| posted.buffer)
    }

    /// Takes back a send of which nothing has gone out. None if it is too late: it completes.
    pub fn cancel_send(&mut self, id: SendId) -> Option<Vec<u8>> {
        for peer in self.peers.values_mut() {
            if let Some(index) = peer.queue.iter().position(|queued| queued.id == id) {
                return peer.queue.remove(index).map(|queued| queued.data);
            }
        }
        None
    }

    /// Whether anything has ended.
    pub fn has_completions(&self) -> bool {
        !self.common.completions.is_empty()
    }

    /// What has ended, one at a time.
    pub fn poll_completion(&mut self) -> Option<MessageCompletion> {
        self.common.completions.pop_front()
    }

    /// Whether there is anything for the driver to do.
    #[inline]
    pub fn has_duties(&self) -> bool {
        !self.common.duties.is_empty() || !self.common.pumping.is_empty()
    }

    /// What the driver must do, one at a time. Pieces of long messages are copied only when they are asked for here, so that one
    /// is on its way while the next is copied (CK-7).
    pub fn poll_duty(&mut self) -> Option<MessagingAction> {
        self.poll_duty_into(&mut NoInPlaceBuffers)
    }

    /// The same for a driver that has rooms to write to.
    pub fn poll_duty_into(&mut self, rooms: &mut impl InPlaceBuffers) -> Option<MessagingAction> {
        loop {
            if let Some(duty) = self.common.duties.pop_front() {
                return Some(duty);
            }
            let rank = *self.common.pumping.front()?;
            let peer = self.peers.get_mut(&rank).filter(|peer| peer.lost.is_none());
            let sent = peer.map_or(Ok(false), |peer| peer.send_next(&mut self.common, rooms));
            if !sent.unwrap_or(false) {
                self.common.pumping.pop_front();
            }
            self.settle(rank, sent.map(|_| ()));
        }
    }

    /// A parcel came over a rail. False if it came spoiled.
    pub fn handle_parcel(&mut self, now: Time, from: Rank, rail: RailIndex, parcel: &[u8]) -> bool {
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.lost.is_none()) else {
            self.common.counters.strays += 1;
            return true;
        };
        self.common.now = now;
        let spoiled = self.common.counters.spoiled;
        match peer.take(&mut self.common, rail, parcel) {
            Ok(()) if peer.is_calm(&self.common) => {}
            taken => {
                self.settle(from, taken);
                self.pump(now, from);
            }
        }
        self.common.counters.spoiled == spoiled
    }

    /// The oldest parcel that was sent over a rail is at the other end; here are its bytes.
    pub fn handle_sent(&mut self, now: Time, to: Rank, rail: RailIndex, bytes: Vec<u8>) {
        if let Some(peer) = self.peers.get_mut(&to) {
            self.common.now = now;
            peer.landed(&mut self.common, rail, bytes);
            if !peer.is_calm(&self.common) {
                self.pump(now, to);
            }
        }
    }

    /// A rail carries nothing any more. What was under way on it is given back with [`Self::handle_sent`], before or after.
    pub fn handle_rail_lost(&mut self, now: Time, peer: Rank, rail: RailIndex) {
        if let Some(found) = self.peers.get_mut(&peer).filter(|peer| peer.lost.is_none()) {
            let lost = found.lose_rail(rail);
            self.settle(peer, lost);
            self.pump(now, peer);
        }
    }

    /// Nothing more is wanted from a peer.
    pub fn dismiss(&mut self, peer: Rank) {
        self.settle(peer, Err(PeerLossCause::Dismissed));
    }

    /// Asks every peer to confirm what it has had; see [`Self::is_drained`].
    pub fn drain(&mut self, now: Time) {
        let ranks: Vec<Rank> = self.peers.keys().copied().collect();
        for rank in ranks {
            if let Some(peer) = self.peers.get_mut(&rank) {
                peer.is_draining = true;
            }
            self.pump(now, rank);
        }
    }

    /// Every message that was sent has come intact, as far as its peer still lives.
    pub fn is_drained(&self) -> bool {
        self.peers.values().all(|peer| peer.lost.is_some() || peer.is_drained())
    }

    /// Why a peer is lost, if it is.
    pub fn lost(&self, peer: Rank) -> Option<PeerLossCause> {
        self.peers.get(&peer)?.lost
    }

    /// Sends what can be sent.
    fn pump(&mut self, now: Time, rank: Rank) {
        self.common.now = now;
        let Some(peer) = self.peers.get_mut(&rank).filter(|peer| peer.lost.is_none()) else { return };
        let pumped = peer.pump(&mut self.common);
        if peer.has_more() && !self.common.pumping.contains(&rank) {
            self.common.pumping.push_back(rank);
        }
        self.settle(rank, pumped);
    }

    /// A peer that broke the rules, or cannot be reached, is given up, and everything that waits for it.
    fn settle(&mut self, rank: Rank, outcome: Result<(), PeerLossCause>) {
        let Err(cause) = outcome else { return };
        let Some(peer) = self.peers.get_mut(&rank).filter(|peer| peer.lost.is_none()) else { return };
        let failure = MessageFailure::Lost(rank, cause);
        let (sends, receives) = peer.give_up(cause);
        let receives = receives.chain(self.common.matching.forget(rank).into_iter().map(|p| (p.id, p.buffer)));
        let completions = &mut self.common.completions;
        completions.extend(sends.map(|(id, buffer)| MessageCompletion::SendFailed { id, failure, buffer }));
        completions.extend(receives.map(|(id, buffer)| MessageCompletion::ReceiveFailed { id, failure, buffer }));
        self.common.duties.push_back(MessagingAction::Drop { peer: rank, cause });
    }
}

/// What a message that waited for its receive was worth.
impl MessageContents {
    /// Bytes of it that lie here.
    pub(super) fn kept(&self) -> u64 {
        match self {
            Self::Whole { bytes, .. } => bytes.len() as u64,
            Self::Announced { .. } => 0,
            // None, but so many were granted for it.
            Self::Lost { length } => *length,
        }
    }
}
