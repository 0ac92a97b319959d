//! The lifeline of a rank other than 0: one connection to the hub.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::failure_detector::{
    ALL_RANKS, MAX_BODY_BYTES, MAX_QUEUED_EVENTS, OobSendError, OobTarget, RankEvent, SEND_QUEUE_LIMIT_BYTES,
};
use super::message_stream::{MessageStream, ReadOutcome, RendezvousMessageKind, encode_message};

#[derive(Debug)]
pub(super) struct Spoke {
    rank: u32,
    size: u32,
    epoll: Epoll,
    /// `None` when rank 0 has left or is lost.
    stream: Option<MessageStream>,
    interest: EpollFlags,
    news: VecDeque<RankEvent>,
    gone: BTreeSet<u32>,
}

impl Spoke {
    pub(super) fn new(rank: u32, size: u32, stream: MessageStream) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let interest = EpollFlags::EPOLLIN;
        epoll.add(&stream, EpollEvent::new(interest, 0))?;
        let mut spoke =
            Self { rank, size, epoll, stream: Some(stream), interest, news: VecDeque::new(), gone: BTreeSet::new() };
        spoke.take_in(ReadOutcome::Quiet); // What came with the table would wake nobody.
        Ok(spoke)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(super) fn turn(&mut self) -> Option<RankEvent> {
        if self.news.is_empty() {
            self.flush();
            if let Some(stream) = &mut self.stream {
                let ear = stream.fill().unwrap_or(ReadOutcome::Ended);
                self.take_in(ear);
            }
        }
        self.news.pop_front()
    }

    pub(super) fn say(&mut self, to: OobTarget, bytes: &[u8]) -> Result<(), OobSendError> {
        let target = match to {
            OobTarget::Rank(rank) if rank >= self.size => return Err(OobSendError::NoSuchRank),
            OobTarget::Rank(rank) if rank == self.rank => {
                if self.news.len() >= MAX_QUEUED_EVENTS {
                    return Err(OobSendError::Full);
                }
                self.news.push_back(RankEvent::Said { from: rank, bytes: bytes.to_vec() });
                return Ok(());
            }
            OobTarget::Rank(rank) if self.gone.contains(&rank) => return Err(OobSendError::Gone),
            OobTarget::Rank(rank) => rank,
            OobTarget::All => ALL_RANKS,
        };
        let stream = self.stream.as_mut().ok_or(OobSendError::Over)?;
        if stream.queued_bytes() >= SEND_QUEUE_LIMIT_BYTES {
            return Err(OobSendError::Full);
        }
        stream.queue(encode_message(RendezvousMessageKind::Say, &[&target.to_le_bytes(), bytes]));
        self.flush();
        Ok(())
    }

    pub(super) fn leave(mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let Some(mut stream) = self.stream.take() else { return };
        stream.queue(encode_message(RendezvousMessageKind::Goodbye, &[]));
        let mut mouth_open = true;
        // Reads to the end: closed with something unread, the kernel would cut off what is still on its way.
        while stream.flush().is_ok() {
            if mouth_open && stream.queued_bytes() == 0 {
                stream.close_mouth();
                mouth_open = false;
            }
            match stream.fill() {
                Ok(ReadOutcome::Heard | ReadOutcome::Quiet) => stream.drop_inbox(),
                Ok(ReadOutcome::Ended) | Err(_) => return,
            }
            if Instant::now() >= deadline || stream.wait(deadline).is_err() {
                return;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn send_raw(&mut self, bytes: std::sync::Arc<[u8]>) {
        self.stream.as_mut().expect("rank 0 is there").queue(bytes);
        self.flush();
    }

    fn flush(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        if stream.queued_bytes() > 0 && stream.flush().is_err() {
            // What rank 0 said before it ended is still to be read; the end will be heard there.
            stream.drop_outbox();
        }
        let mut interest = EpollFlags::EPOLLIN;
        interest.set(EpollFlags::EPOLLOUT, stream.queued_bytes() > 0);
        if interest != self.interest {
            self.interest = interest;
            let modified = self.epoll.modify(&*stream, &mut EpollEvent::new(interest, 0));
            debug_assert!(modified.is_ok(), "it is registered");
        }
    }

    fn take_in(&mut self, ear: ReadOutcome) {
        let Some(stream) = &mut self.stream else { return };
        let mut end = None;
        while end.is_none() {
            match stream.next(MAX_BODY_BYTES) {
                Ok(Some((RendezvousMessageKind::Goodbye, _))) => end = Some(RankEvent::Left { rank: 0 }),
                Ok(Some((kind, body))) => match read(kind, &body) {
                    Some(news) => {
                        if let RankEvent::Left { rank } | RankEvent::Lost { rank } = news {
                            self.gone.insert(rank);
                        }
                        self.news.push_back(news);
                    }
                    None => end = Some(RankEvent::Lost { rank: 0 }), // It is out of its mind, which is as bad.
                },
                Ok(None) if ear == ReadOutcome::Ended => end = Some(RankEvent::Lost { rank: 0 }),
                Ok(None) => return,
                Err(_) => end = Some(RankEvent::Lost { rank: 0 }),
            }
        }
        self.gone.insert(0);
        self.news.extend(end);
        if let Some(stream) = self.stream.take() {
            let _ = self.epoll.delete(&stream);
        }
    }
}

fn read(kind: RendezvousMessageKind, body: &[u8]) -> Option<RankEvent> {
    let (rank, bytes) = body.split_first_chunk()?;
    let rank = u32::from_le_bytes(*rank);
    match kind {
        RendezvousMessageKind::Said => Some(RankEvent::Said { from: rank, bytes: bytes.to_vec() }),
        RendezvousMessageKind::Lost => Some(RankEvent::Lost { rank }),
        RendezvousMessageKind::Left => Some(RankEvent::Left { rank }),
        _ => None,
    }
}
