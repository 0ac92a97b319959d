//! Rank 0's end of the lifeline: hears all others, tells them of each other, passes messages on.
//!
//! A message for a rank whose outbox is full stays with its sender, who is not read meanwhile. So nothing grows, order is kept,
//! and a rank that has stopped reading holds up only those who write to it, until the kernel gives its connection up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::failure_detector::{
    ALL_RANKS, MAX_BODY_BYTES, MAX_QUEUED_EVENTS, OobSendError, OobTarget, RankEvent, SEND_QUEUE_LIMIT_BYTES,
};
use super::message_stream::{MessageStream, ReadOutcome, RendezvousMessageKind, encode_message, poll_timeout_until};

/// Connections that one turn deals with.
const MAX_EVENTS_PER_POLL: usize = 128;
/// What a last goodbye may take to be written.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Hub {
    size: u32,
    epoll: Epoll,
    /// Those who are still there.
    peers: BTreeMap<u32, HubPeer>,
    news: VecDeque<RankEvent>,
    /// Peers with a message that its receiver cannot take yet.
    stalled: BTreeSet<u32>,
    /// Who has ended, to be told to all at once: a thousand who leave together would be a million messages.
    obituary: Vec<u8>,
    /// Peers to whom nothing can be written any more. What they said before is still to be read.
    broken: Vec<u32>,
}

#[derive(Debug)]
struct HubPeer {
    stream: MessageStream,
    /// What the kernel is asked to report; `None` if nothing, since it reports the end of a connection unasked.
    interest: Option<EpollFlags>,
    /// What the last read brought.
    ear: ReadOutcome,
}

/// How a rank ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RankExit {
    Lost,
    Left,
}

impl Hub {
    pub(super) fn new(size: u32, streams: BTreeMap<u32, MessageStream>, silence: Duration) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut peers = BTreeMap::new();
        for (rank, stream) in streams {
            let mut interest = EpollFlags::EPOLLIN;
            interest.set(EpollFlags::EPOLLOUT, stream.queued_bytes() > 0);
            epoll.add(&stream, EpollEvent::new(interest, u64::from(rank)))?;
            let _ = stream.set_silence(silence); // One that is broken already will say so.
            peers.insert(rank, HubPeer { stream, interest: Some(interest), ear: ReadOutcome::Quiet });
        }
        Ok(Self {
            size,
            epoll,
            peers,
            news: VecDeque::new(),
            stalled: BTreeSet::new(),
            obituary: Vec::new(),
            broken: Vec::new(),
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(super) fn turn(&mut self) -> Option<RankEvent> {
        if self.news.is_empty() {
            self.exchange(Instant::now());
        }
        self.news.pop_front()
    }

    pub(super) fn say(&mut self, to: OobTarget, bytes: &[u8]) -> Result<(), OobSendError> {
        let target = match to {
            OobTarget::Rank(rank) if rank >= self.size => return Err(OobSendError::NoSuchRank),
            OobTarget::Rank(rank) if rank != 0 && !self.peers.contains_key(&rank) => return Err(OobSendError::Gone),
            OobTarget::Rank(rank) => rank,
            OobTarget::All => ALL_RANKS,
        };
        if self.is_full(0, target) {
            return Err(OobSendError::Full);
        }
        self.pass_on(0, target, bytes);
        self.settle();
        Ok(())
    }

    pub(super) fn leave(mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            self.exchange(deadline);
            self.news.clear();
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
                // Only to write: something to read would end the wait at once.
                std::thread::sleep(Duration::from_millis(1));
            }
            peer.stream.close_mouth();
        }
    }

    /// Deals with whatever is there; waits for it until the deadline.
    fn exchange(&mut self, deadline: Instant) {
        let mut events = [EpollEvent::empty(); MAX_EVENTS_PER_POLL];
        let count = self.epoll.wait(&mut events, poll_timeout_until(deadline)).unwrap_or(0);
        for event in &events[..count] {
            let rank = u32::try_from(event.data()).expect("a rank");
            if event.events().contains(EpollFlags::EPOLLOUT) {
                self.flush(rank);
            }
            if event.events() != EpollFlags::EPOLLOUT {
                self.hear(rank);
            }
        }
        for rank in self.stalled.clone() {
            self.take_in(rank);
        }
        self.settle();
    }

    fn hear(&mut self, rank: u32) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        if self.stalled.contains(&rank) {
            // It ended while it waits; the kernel would tell us for ever.
            if peer.interest.take().is_some() {
                let _ = self.epoll.delete(&peer.stream);
            }
            return;
        }
        peer.ear = peer.stream.fill().unwrap_or(ReadOutcome::Ended);
        self.take_in(rank);
    }

    /// Deals with the messages that a rank has sent, as far as they can be passed on.
    fn take_in(&mut self, rank: u32) {
        loop {
            let Some(peer) = self.peers.get_mut(&rank) else { return };
            let (target, length) = match peer.stream.peek(MAX_BODY_BYTES) {
                Ok(Some((RendezvousMessageKind::Say, body))) => match body.split_first_chunk() {
                    Some((target, _)) => (u32::from_le_bytes(*target), body.len()),
                    None => return self.end(rank, RankExit::Lost),
                },
                Ok(Some((RendezvousMessageKind::Goodbye, _))) => return self.end(rank, RankExit::Left),
                Ok(None) if peer.ear == ReadOutcome::Ended => return self.end(rank, RankExit::Lost),
                Ok(None) if peer.interest.is_none() => {
                    // It ended while it was stalled; what it said last is still in the kernel.
                    if !matches!(peer.stream.fill(), Ok(ReadOutcome::Heard)) {
                        peer.ear = ReadOutcome::Ended;
                    }
                    continue;
                }
                Ok(None) => {
                    if self.stalled.remove(&rank) {
                        self.watch(rank);
                    }
                    return;
                }
                Ok(Some(_)) | Err(_) => return self.end(rank, RankExit::Lost),
            };
            if target != ALL_RANKS && target >= self.size {
                return self.end(rank, RankExit::Lost);
            }
            if self.is_full(rank, target) {
                if self.stalled.insert(rank) {
                    self.watch(rank);
                }
                return;
            }
            let peer = self.peers.get_mut(&rank).expect("it was there");
            let Ok(Some((_, body))) = peer.stream.peek(MAX_BODY_BYTES) else { unreachable!("it has just been seen") };
            let bytes = body[4..].to_vec();
            peer.stream.consume(length);
            self.pass_on(rank, target, &bytes);
        }
    }

    /// True if somebody for whom this is has no room.
    fn is_full(&self, from: u32, target: u32) -> bool {
        let is_own_full = from != 0 && self.news.len() >= MAX_QUEUED_EVENTS;
        let has_no_room = |rank: u32| {
            self.peers.get(&rank).is_some_and(|peer| peer.stream.queued_bytes() >= SEND_QUEUE_LIMIT_BYTES)
        };
        match target {
            0 => self.news.len() >= MAX_QUEUED_EVENTS,
            ALL_RANKS => is_own_full || self.peers.keys().any(|&rank| rank != from && has_no_room(rank)),
            rank => has_no_room(rank),
        }
    }

    fn pass_on(&mut self, from: u32, target: u32, bytes: &[u8]) {
        if target == 0 || (target == ALL_RANKS && from != 0) {
            self.news.push_back(RankEvent::Said { from, bytes: bytes.to_vec() });
        }
        if target != 0 {
            let said = encode_message(RendezvousMessageKind::Said, &[&from.to_le_bytes(), bytes]);
            match target {
                ALL_RANKS => self.broadcast(from, &said),
                rank => self.send(rank, said), // If it is gone, nobody needs the message.
            }
        }
    }

    fn broadcast(&mut self, except: u32, said: &Arc<[u8]>) {
        let others: Vec<u32> = self.peers.keys().copied().filter(|rank| *rank != except).collect();
        for rank in others {
            self.send(rank, Arc::clone(said));
        }
    }

    fn send(&mut self, rank: u32, said: Arc<[u8]>) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        peer.stream.queue(said);
        self.flush(rank);
    }

    fn flush(&mut self, rank: u32) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        if peer.stream.flush().is_err() {
            peer.stream.drop_outbox();
            self.broken.push(rank);
        }
        self.watch(rank);
    }

    /// Asks the kernel for what is of use at present.
    fn watch(&mut self, rank: u32) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        let Some(old) = peer.interest else { return };
        let mut interest = EpollFlags::empty();
        interest.set(EpollFlags::EPOLLIN, !self.stalled.contains(&rank));
        interest.set(EpollFlags::EPOLLOUT, peer.stream.queued_bytes() > 0);
        if interest != old {
            peer.interest = Some(interest);
            let modified = self.epoll.modify(&peer.stream, &mut EpollEvent::new(interest, u64::from(rank)));
            debug_assert!(modified.is_ok(), "it is registered");
        }
    }

    /// Tells of those who have ended, and hears those to whom nothing could be written: they may have said goodbye before.
    fn settle(&mut self) {
        loop {
            if !self.obituary.is_empty() {
                let words = Arc::from(std::mem::take(&mut self.obituary));
                self.broadcast(0, &words);
            }
            let Some(rank) = self.broken.pop() else { return };
            let Some(peer) = self.peers.get_mut(&rank) else { continue };
            // What a broken connection still holds is bounded by the kernel's buffer, and nothing is added.
            while matches!(peer.stream.fill(), Ok(ReadOutcome::Heard)) {}
            peer.ear = ReadOutcome::Ended;
            self.take_in(rank);
        }
    }

    fn end(&mut self, rank: u32, end: RankExit) {
        let Some(mut peer) = self.peers.remove(&rank) else { return };
        self.stalled.remove(&rank);
        if peer.interest.is_some() {
            let _ = self.epoll.delete(&peer.stream);
        }
        let (kind, news) = match end {
            RankExit::Lost => (RendezvousMessageKind::Lost, RankEvent::Lost { rank }),
            RankExit::Left => (RendezvousMessageKind::Left, RankEvent::Left { rank }),
        };
        let word = encode_message(kind, &[&rank.to_le_bytes()]);
        if end == RankExit::Lost {
            // If it lives and only talked nonsense, it learns that it is out.
            peer.stream.queue(Arc::clone(&word));
            let _ = peer.stream.flush();
        }
        peer.stream.close_mouth();
        self.news.push_back(news);
        self.obituary.extend_from_slice(&word);
    }
}
