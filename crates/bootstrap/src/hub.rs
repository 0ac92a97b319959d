//! Rank 0's side of the failure detector: watches all other ranks, reports exits to them, and forwards messages.
//!
//! A message for a rank whose queue is full stays in the sender's stream, which is not read meanwhile. So memory is bounded,
//! order is kept, and a rank that has stopped reading stalls only those that write to it, until the kernel closes its connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::framing::{FramedStream, ReadOutcome, poll_timeout_until};
use super::rank_event::{
    ALL_RANKS, MAX_BODY_BYTES, MAX_QUEUED_EVENTS, OobSendError, OobTarget, RankEvent, SEND_QUEUE_LIMIT_BYTES,
};
use super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, encode_message, peek_message};

/// Connections that one call processes.
const MAX_EVENTS_PER_POLL: usize = 128;
/// Time to write the last goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Hub {
    size: u32,
    epoll: Epoll,
    /// The ranks that have not exited.
    peers: BTreeMap<u32, HubPeer>,
    events: VecDeque<RankEvent>,
    /// Ranks whose next message waits for room in the queue of its receiver.
    stalled: BTreeSet<u32>,
    /// Encoded exits, to be broadcast together: a thousand ranks that leave at once would otherwise cause a million messages.
    pending_exits: Vec<u8>,
    /// Ranks to which writing failed. Their earlier messages are still to be read.
    broken: Vec<u32>,
}

#[derive(Debug)]
struct HubPeer {
    stream: FramedStream,
    /// Events that epoll reports; `None` if the stream is not registered, since epoll reports a hang-up unasked.
    interest: Option<EpollFlags>,
    /// Outcome of the last read.
    last_read: ReadOutcome,
}

/// How a rank exited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RankExit {
    Lost,
    Left,
}

impl Hub {
    pub(super) fn new(size: u32, streams: BTreeMap<u32, FramedStream>, peer_timeout: Duration) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut peers = BTreeMap::new();
        for (rank, stream) in streams {
            let mut interest = EpollFlags::EPOLLIN;
            interest.set(EpollFlags::EPOLLOUT, stream.queued_bytes() > 0);
            epoll.add(&stream, EpollEvent::new(interest, u64::from(rank)))?;
            let _ = stream.set_peer_timeout(peer_timeout); // If the stream is broken, the next read finds it.
            peers.insert(rank, HubPeer { stream, interest: Some(interest), last_read: ReadOutcome::WouldBlock });
        }
        Ok(Self {
            size,
            epoll,
            peers,
            events: VecDeque::new(),
            stalled: BTreeSet::new(),
            pending_exits: Vec::new(),
            broken: Vec::new(),
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(super) fn turn(&mut self) -> Option<RankEvent> {
        if self.events.is_empty() {
            self.exchange(Instant::now());
        }
        self.events.pop_front()
    }

    pub(super) fn send(&mut self, to: OobTarget, bytes: &[u8]) -> Result<(), OobSendError> {
        let target = match to {
            OobTarget::Rank(rank) if rank >= self.size => return Err(OobSendError::NoSuchRank),
            OobTarget::Rank(rank) if rank != 0 && !self.peers.contains_key(&rank) => {
                return Err(OobSendError::RankGone);
            }
            OobTarget::Rank(rank) => rank,
            OobTarget::All => ALL_RANKS,
        };
        if self.is_full(0, target) {
            return Err(OobSendError::WouldBlock);
        }
        self.forward(0, target, bytes);
        self.broadcast_exits();
        Ok(())
    }

    pub(super) fn leave(mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        loop {
            self.exchange(deadline);
            self.events.clear();
            if self.peers.is_empty() {
                return;
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        self.broadcast(0, &encode_message(RendezvousMessageKind::Goodbye, &[]));
        let deadline = Instant::now() + GOODBYE_TIMEOUT;
        for peer in self.peers.values_mut() {
            while peer.stream.flush().is_ok() && peer.stream.queued_bytes() > 0 && Instant::now() < deadline {
                // Not `poll`: unread input would end the wait at once.
                std::thread::sleep(Duration::from_millis(1));
            }
            peer.stream.shutdown_write();
        }
    }

    /// Processes what is ready; waits for it until the deadline.
    fn exchange(&mut self, deadline: Instant) {
        let mut events = [EpollEvent::empty(); MAX_EVENTS_PER_POLL];
        let count = self.epoll.wait(&mut events, poll_timeout_until(deadline)).unwrap_or(0);
        for event in &events[..count] {
            let rank = u32::try_from(event.data()).expect("a rank");
            if event.events().contains(EpollFlags::EPOLLOUT) {
                self.flush(rank);
            }
            if event.events() != EpollFlags::EPOLLOUT {
                self.receive(rank);
            }
        }
        for rank in self.stalled.clone() {
            self.process_messages(rank);
        }
        self.broadcast_exits();
    }

    fn receive(&mut self, rank: u32) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        if self.stalled.contains(&rank) {
            // It closed while it is stalled; epoll would report the hang-up forever.
            if peer.interest.take().is_some() {
                let _ = self.epoll.delete(&peer.stream);
            }
            return;
        }
        peer.last_read = peer.stream.fill(MAX_READ_BYTES).unwrap_or(ReadOutcome::Closed);
        self.process_messages(rank);
    }

    /// Processes the messages of a rank, as far as they can be forwarded.
    fn process_messages(&mut self, rank: u32) {
        loop {
            let Some(peer) = self.peers.get_mut(&rank) else { return };
            let target = match peek_message(&peer.stream, MAX_BODY_BYTES) {
                Ok(Some((RendezvousMessageKind::Send, body))) => match body.split_first_chunk() {
                    Some((target, _)) => u32::from_le_bytes(*target),
                    None => return self.remove(rank, RankExit::Lost),
                },
                Ok(Some((RendezvousMessageKind::Goodbye, _))) => return self.remove(rank, RankExit::Left),
                Ok(None) if peer.last_read == ReadOutcome::Closed => return self.remove(rank, RankExit::Lost),
                Ok(None) if peer.interest.is_none() => {
                    // It closed while it was stalled; its last messages are still in the kernel.
                    if !matches!(peer.stream.fill(MAX_READ_BYTES), Ok(ReadOutcome::Received)) {
                        peer.last_read = ReadOutcome::Closed;
                    }
                    continue;
                }
                Ok(None) => {
                    if self.stalled.remove(&rank) {
                        self.update_interest(rank);
                    }
                    return;
                }
                Ok(Some(_)) | Err(_) => return self.remove(rank, RankExit::Lost),
            };
            if target != ALL_RANKS && target >= self.size {
                return self.remove(rank, RankExit::Lost);
            }
            if self.is_full(rank, target) {
                if self.stalled.insert(rank) {
                    self.update_interest(rank);
                }
                return;
            }
            let peer = self.peers.get_mut(&rank).expect("checked above");
            let Ok(Some((_, body))) = peek_message(&peer.stream, MAX_BODY_BYTES) else {
                unreachable!("the message was peeked above")
            };
            let bytes = body[4..].to_vec();
            peer.stream.consume_frame();
            self.forward(rank, target, &bytes);
        }
    }

    /// True if a receiver of the message has no room.
    fn is_full(&self, from: u32, target: u32) -> bool {
        let is_own_full = from != 0 && self.events.len() >= MAX_QUEUED_EVENTS;
        let has_no_room = |rank: u32| {
            self.peers.get(&rank).is_some_and(|peer| peer.stream.queued_bytes() >= SEND_QUEUE_LIMIT_BYTES)
        };
        match target {
            0 => self.events.len() >= MAX_QUEUED_EVENTS,
            ALL_RANKS => is_own_full || self.peers.keys().any(|&rank| rank != from && has_no_room(rank)),
            rank => has_no_room(rank),
        }
    }

    fn forward(&mut self, from: u32, target: u32, bytes: &[u8]) {
        if target == 0 || (target == ALL_RANKS && from != 0) {
            self.events.push_back(RankEvent::Message { from, bytes: bytes.to_vec() });
        }
        if target != 0 {
            let frame = encode_message(RendezvousMessageKind::Deliver, &[&from.to_le_bytes(), bytes]);
            match target {
                ALL_RANKS => self.broadcast(from, &frame),
                rank => self.queue(rank, frame), // A message to an exited rank is dropped.
            }
        }
    }

    fn broadcast(&mut self, except: u32, frame: &Arc<[u8]>) {
        let others: Vec<u32> = self.peers.keys().copied().filter(|rank| *rank != except).collect();
        for rank in others {
            self.queue(rank, Arc::clone(frame));
        }
    }

    fn queue(&mut self, rank: u32, frame: Arc<[u8]>) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        peer.stream.queue(frame);
        self.flush(rank);
    }

    fn flush(&mut self, rank: u32) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        if peer.stream.flush().is_err() {
            peer.stream.drop_outbox();
            self.broken.push(rank);
        }
        self.update_interest(rank);
    }

    /// Updates the events that epoll reports.
    fn update_interest(&mut self, rank: u32) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        let Some(old) = peer.interest else { return };
        let mut interest = EpollFlags::empty();
        interest.set(EpollFlags::EPOLLIN, !self.stalled.contains(&rank));
        interest.set(EpollFlags::EPOLLOUT, peer.stream.queued_bytes() > 0);
        if interest != old {
            peer.interest = Some(interest);
            let modified = self.epoll.modify(&peer.stream, &mut EpollEvent::new(interest, u64::from(rank)));
            debug_assert!(modified.is_ok(), "the stream is registered");
        }
    }

    /// Broadcasts exits, and reads the rest of streams to which writing failed: they may contain a goodbye.
    fn broadcast_exits(&mut self) {
        loop {
            if !self.pending_exits.is_empty() {
                let frames = Arc::from(std::mem::take(&mut self.pending_exits));
                self.broadcast(0, &frames);
            }
            let Some(rank) = self.broken.pop() else { return };
            let Some(peer) = self.peers.get_mut(&rank) else { continue };
            // Bounded by the kernel's buffer: nothing arrives over a broken connection.
            while matches!(peer.stream.fill(MAX_READ_BYTES), Ok(ReadOutcome::Received)) {}
            peer.last_read = ReadOutcome::Closed;
            self.process_messages(rank);
        }
    }

    fn remove(&mut self, rank: u32, exit: RankExit) {
        let Some(mut peer) = self.peers.remove(&rank) else { return };
        self.stalled.remove(&rank);
        if peer.interest.is_some() {
            let _ = self.epoll.delete(&peer.stream);
        }
        let (kind, event) = match exit {
            RankExit::Lost => (RendezvousMessageKind::Lost, RankEvent::Lost { rank }),
            RankExit::Left => (RendezvousMessageKind::Left, RankEvent::Left { rank }),
        };
        let frame = encode_message(kind, &[&rank.to_le_bytes()]);
        if exit == RankExit::Lost {
            // A live rank that sent a malformed message learns that it is expelled.
            peer.stream.queue(Arc::clone(&frame));
            let _ = peer.stream.flush();
        }
        peer.stream.shutdown_write();
        self.events.push_back(event);
        self.pending_exits.extend_from_slice(&frame);
    }
}
