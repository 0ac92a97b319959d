//! The lifeline of a rank other than 0: one connection to the hub.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::lifeline::{ALL, FULL_BYTES, MOST_BODY_BYTES, MOST_NEWS, News, SayError, To};
use super::stream::{Ear, Kind, Stream, message};

#[derive(Debug)]
pub(super) struct Spoke {
    rank: u32,
    size: u32,
    epoll: Epoll,
    /// `None` when rank 0 has left or is lost.
    stream: Option<Stream>,
    interest: EpollFlags,
    news: VecDeque<News>,
    gone: BTreeSet<u32>,
}

impl Spoke {
    pub(super) fn new(rank: u32, size: u32, stream: Stream) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let interest = EpollFlags::EPOLLIN;
        epoll.add(&stream, EpollEvent::new(interest, 0))?;
        let mut spoke =
            Self { rank, size, epoll, stream: Some(stream), interest, news: VecDeque::new(), gone: BTreeSet::new() };
        spoke.take_in(Ear::Quiet); // What came with the table would wake nobody.
        Ok(spoke)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(super) fn turn(&mut self) -> Option<News> {
        if self.news.is_empty() {
            self.flush();
            if let Some(stream) = &mut self.stream {
                let ear = stream.fill().unwrap_or(Ear::Ended);
                self.take_in(ear);
            }
        }
        self.news.pop_front()
    }

    pub(super) fn say(&mut self, to: To, bytes: &[u8]) -> Result<(), SayError> {
        let target = match to {
            To::Rank(rank) if rank >= self.size => return Err(SayError::NoSuchRank),
            To::Rank(rank) if rank == self.rank => {
                if self.news.len() >= MOST_NEWS {
                    return Err(SayError::Full);
                }
                self.news.push_back(News::Said { from: rank, bytes: bytes.to_vec() });
                return Ok(());
            }
            To::Rank(rank) if self.gone.contains(&rank) => return Err(SayError::Gone),
            To::Rank(rank) => rank,
            To::All => ALL,
        };
        let stream = self.stream.as_mut().ok_or(SayError::Over)?;
        if stream.queued_bytes() >= FULL_BYTES {
            return Err(SayError::Full);
        }
        stream.queue(message(Kind::Say, &[&target.to_le_bytes(), bytes]));
        self.flush();
        Ok(())
    }

    pub(super) fn leave(mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let Some(mut stream) = self.stream.take() else { return };
        stream.queue(message(Kind::Goodbye, &[]));
        let mut mouth_open = true;
        // Reads to the end: closed with something unread, the kernel would cut off what is still on its way.
        while stream.flush().is_ok() {
            if mouth_open && stream.queued_bytes() == 0 {
                stream.close_mouth();
                mouth_open = false;
            }
            match stream.fill() {
                Ok(Ear::Heard | Ear::Quiet) => stream.drop_inbox(),
                Ok(Ear::Ended) | Err(_) => return,
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

    fn take_in(&mut self, ear: Ear) {
        let Some(stream) = &mut self.stream else { return };
        let mut end = None;
        while end.is_none() {
            match stream.next(MOST_BODY_BYTES) {
                Ok(Some((Kind::Goodbye, _))) => end = Some(News::Left { rank: 0 }),
                Ok(Some((kind, body))) => match read(kind, &body) {
                    Some(news) => {
                        if let News::Left { rank } | News::Lost { rank } = news {
                            self.gone.insert(rank);
                        }
                        self.news.push_back(news);
                    }
                    None => end = Some(News::Lost { rank: 0 }), // It is out of its mind, which is as bad.
                },
                Ok(None) if ear == Ear::Ended => end = Some(News::Lost { rank: 0 }),
                Ok(None) => return,
                Err(_) => end = Some(News::Lost { rank: 0 }),
            }
        }
        self.gone.insert(0);
        self.news.extend(end);
        if let Some(stream) = self.stream.take() {
            let _ = self.epoll.delete(&stream);
        }
    }
}

fn read(kind: Kind, body: &[u8]) -> Option<News> {
    let (rank, bytes) = body.split_first_chunk()?;
    let rank = u32::from_le_bytes(*rank);
    match kind {
        Kind::Said => Some(News::Said { from: rank, bytes: bytes.to_vec() }),
        Kind::Lost => Some(News::Lost { rank }),
        Kind::Left => Some(News::Left { rank }),
        _ => None,
    }
}
