//! The failure detector of a rank other than 0: one connection to the hub.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::framing::{FramedStream, ReadOutcome};
use super::rank_event::{
    ALL_RANKS, MAX_BODY_BYTES, MAX_QUEUED_EVENTS, OobSendError, OobTarget, RankEvent, SEND_QUEUE_LIMIT_BYTES,
};
use super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, encode_message, next_message};

#[derive(Debug)]
pub(super) struct Spoke {
    rank: u32,
    size: u32,
    epoll: Epoll,
    /// `None` when rank 0 has left or is lost.
    stream: Option<FramedStream>,
    interest: EpollFlags,
    events: VecDeque<RankEvent>,
    gone: BTreeSet<u32>,
}

impl Spoke {
    pub(super) fn new(rank: u32, size: u32, stream: FramedStream) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let interest = EpollFlags::EPOLLIN;
        epoll.add(&stream, EpollEvent::new(interest, 0))?;
        let mut spoke = Self {
            rank,
            size,
            epoll,
            stream: Some(stream),
            interest,
            events: VecDeque::new(),
            gone: BTreeSet::new(),
        };
        spoke.process_messages(ReadOutcome::WouldBlock); // Messages that arrived with the table cause no epoll event.
        Ok(spoke)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(super) fn turn(&mut self) -> Option<RankEvent> {
        if self.events.is_empty() {
            self.flush();
            if let Some(stream) = &mut self.stream {
                let outcome = stream.fill(MAX_READ_BYTES).unwrap_or(ReadOutcome::Closed);
                self.process_messages(outcome);
            }
        }
        self.events.pop_front()
    }

    pub(super) fn send(&mut self, to: OobTarget, bytes: &[u8]) -> Result<(), OobSendError> {
        let target = match to {
            OobTarget::Rank(rank) if rank >= self.size => return Err(OobSendError::NoSuchRank),
            OobTarget::Rank(rank) if rank == self.rank => {
                if self.events.len() >= MAX_QUEUED_EVENTS {
                    return Err(OobSendError::WouldBlock);
                }
                self.events.push_back(RankEvent::Message { from: rank, bytes: bytes.to_vec() });
                return Ok(());
            }
            OobTarget::Rank(rank) if self.gone.contains(&rank) => return Err(OobSendError::RankGone),
            OobTarget::Rank(rank) => rank,
            OobTarget::All => ALL_RANKS,
        };
        let stream = self.stream.as_mut().ok_or(OobSendError::Disconnected)?;
        if stream.queued_bytes() >= SEND_QUEUE_LIMIT_BYTES {
            return Err(OobSendError::WouldBlock);
        }
        stream.queue(encode_message(RendezvousMessageKind::Send, &[&target.to_le_bytes(), bytes]));
        self.flush();
        Ok(())
    }

    pub(super) fn leave(mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let Some(mut stream) = self.stream.take() else { return };
        stream.queue(encode_message(RendezvousMessageKind::Goodbye, &[]));
        let mut is_writing = true;
        // Reads to the end: if unread input is left at close, the kernel sends a reset and discards queued output.
        while stream.flush().is_ok() {
            if is_writing && stream.queued_bytes() == 0 {
                stream.shutdown_write();
                is_writing = false;
            }
            match stream.fill(MAX_READ_BYTES) {
                Ok(ReadOutcome::Received | ReadOutcome::WouldBlock) => stream.drop_inbox(),
                Ok(ReadOutcome::Closed) | Err(_) => return,
            }
            if Instant::now() >= deadline || stream.wait(deadline).is_err() {
                return;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn send_raw(&mut self, bytes: std::sync::Arc<[u8]>) {
        self.stream.as_mut().expect("connected").queue(bytes);
        self.flush();
    }

    fn flush(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        if stream.queued_bytes() > 0 && stream.flush().is_err() {
            // Earlier messages of rank 0 are still to be read; the next read finds the end of the connection.
            stream.drop_outbox();
        }
        let mut interest = EpollFlags::EPOLLIN;
        interest.set(EpollFlags::EPOLLOUT, stream.queued_bytes() > 0);
        if interest != self.interest {
            self.interest = interest;
            let modified = self.epoll.modify(&*stream, &mut EpollEvent::new(interest, 0));
            debug_assert!(modified.is_ok(), "the stream is registered");
        }
    }

    fn process_messages(&mut self, last_read: ReadOutcome) {
        let Some(stream) = &mut self.stream else { return };
        let mut end = None;
        while end.is_none() {
            match next_message(stream, MAX_BODY_BYTES) {
                Ok(Some((RendezvousMessageKind::Goodbye, _))) => end = Some(RankEvent::Left { rank: 0 }),
                Ok(Some((kind, body))) => match decode_event(kind, &body) {
                    Some(event) => {
                        if let RankEvent::Left { rank } | RankEvent::Lost { rank } = event {
                            self.gone.insert(rank);
                        }
                        self.events.push_back(event);
                    }
                    None => end = Some(RankEvent::Lost { rank: 0 }), // A rank 0 that sends malformed messages counts as lost.
                },
                Ok(None) if last_read == ReadOutcome::Closed => end = Some(RankEvent::Lost { rank: 0 }),
                Ok(None) => return,
                Err(_) => end = Some(RankEvent::Lost { rank: 0 }),
            }
        }
        self.gone.insert(0);
        self.events.extend(end);
        if let Some(stream) = self.stream.take() {
            let _ = self.epoll.delete(&stream);
        }
    }
}

fn decode_event(kind: RendezvousMessageKind, body: &[u8]) -> Option<RankEvent> {
    let (rank, bytes) = body.split_first_chunk()?;
    let rank = u32::from_le_bytes(*rank);
    match kind {
        RendezvousMessageKind::Deliver => Some(RankEvent::Message { from: rank, bytes: bytes.to_vec() }),
        RendezvousMessageKind::Lost => Some(RankEvent::Lost { rank }),
        RendezvousMessageKind::Left => Some(RankEvent::Left { rank }),
        _ => None,
    }
}
