//! The connections of the rendezvous stay open: a process that dies closes its own, and everyone hears of it.
//!
//! Rank 0 is the hub: it hears every end at once and tells the others; it also passes on short messages, in order for each
//! pair of ranks. Whoever leaves says goodbye first, so that a clean end is no loss. If rank 0 ends without a goodbye, every
//! rank finds the same: rank 0 is lost. Nothing here blocks except [`FailureDetector::leave`], and nothing grows without bound: who does not
//! read holds up those who write to it, until the kernel gives it up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags};

use super::hub::Hub;
use super::spoke::Spoke;

/// A message is at most this long.
pub const MAX_OOB_MESSAGE_BYTES: usize = 65_536;
/// A body on the wire: who it is for or from, and the message.
pub(super) const MAX_BODY_BYTES: usize = MAX_OOB_MESSAGE_BYTES + 4;
/// When so much waits to be written to a rank, more for it has to wait.
pub(super) const SEND_QUEUE_LIMIT_BYTES: usize = 1 << 20;
/// When so much news waits to be taken, no more is read.
pub(super) const MAX_QUEUED_EVENTS: usize = 4096;
/// Stands for all other ranks in a message.
pub(super) const ALL_RANKS: u32 = u32::MAX;

/// Something that happened to another rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RankEvent {
    /// It ended without a goodbye. One's own rank means that rank 0 has given this process up.
    Lost {
        /// Which.
        rank: u32,
    },
    /// It has left as it should. After rank 0 has left, or is lost, there is no more news.
    Left {
        /// Which.
        rank: u32,
    },
    /// It sent a message.
    Said {
        /// Who.
        from: u32,
        /// What.
        bytes: Vec<u8>,
    },
}

/// Whom a message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OobTarget {
    /// One rank, perhaps oneself.
    Rank(u32),
    /// All others.
    All,
}

/// Why a message was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OobSendError {
    /// It is longer than [`MAX_OOB_MESSAGE_BYTES`].
    TooLong,
    /// There is no such rank.
    NoSuchRank,
    /// The rank has left or is lost.
    Gone,
    /// Earlier messages have not gone out yet: take a turn and try again.
    Full,
    /// Rank 0 has left or is lost, and nobody passes messages on.
    Over,
}

/// One rank's end of the lifeline. Dropped without [`FailureDetector::leave`], it is a loss to the others, as it should be when
/// the owner panics.
#[derive(Debug)]
pub struct FailureDetector {
    part: DetectorRole,
}

#[derive(Debug)]
enum DetectorRole {
    Alone(Epoll),
    Hub(Hub),
    Spoke(Spoke),
}

impl FailureDetector {
    /// Of a job of one.
    pub(super) fn alone() -> io::Result<Self> {
        Ok(Self { part: DetectorRole::Alone(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?) })
    }

    pub(super) fn of_hub(hub: Hub) -> Self {
        Self { part: DetectorRole::Hub(hub) }
    }

    pub(super) fn of_spoke(spoke: Spoke) -> Self {
        Self { part: DetectorRole::Spoke(spoke) }
    }

    /// Reads, writes and passes on what can be without blocking, and returns the next thing that happened. To be called
    /// until it returns `None`, whenever the descriptor is readable, and now and then anyway.
    pub fn turn(&mut self) -> Option<RankEvent> {
        match &mut self.part {
            DetectorRole::Alone(_) => None,
            DetectorRole::Hub(hub) => hub.turn(),
            DetectorRole::Spoke(spoke) => spoke.turn(),
        }
    }

    /// Sends a short message, through rank 0. What one rank says to another arrives in order, once, unless one of the two
    /// or rank 0 is lost.
    ///
    /// # Errors
    /// It was not taken, for this reason; nothing was sent.
    pub fn say(&mut self, to: OobTarget, bytes: &[u8]) -> Result<(), OobSendError> {
        if bytes.len() > MAX_OOB_MESSAGE_BYTES {
            return Err(OobSendError::TooLong);
        }
        match &mut self.part {
            DetectorRole::Alone(_) if to == OobTarget::All => Ok(()),
            DetectorRole::Alone(_) => Err(OobSendError::NoSuchRank),
            DetectorRole::Hub(hub) => hub.say(to, bytes),
            DetectorRole::Spoke(spoke) => spoke.say(to, bytes),
        }
    }

    /// Says goodbye. Rank 0 first goes on serving the others until they have left or are lost, at most this long; the
    /// others wait at most this long for rank 0 to have heard.
    pub fn leave(self, patience: Duration) {
        match self.part {
            DetectorRole::Alone(_) => {}
            DetectorRole::Hub(hub) => hub.leave(patience),
            DetectorRole::Spoke(spoke) => spoke.leave(patience),
        }
    }
}

#[cfg(test)]
impl FailureDetector {
    /// Sends rank 0 any bytes.
    pub(super) fn send_raw(&mut self, bytes: std::sync::Arc<[u8]>) {
        let DetectorRole::Spoke(spoke) = &mut self.part else { panic!("rank 0 does not write to itself") };
        spoke.send_raw(bytes);
    }
}

/// Readable when [`FailureDetector::turn`] has something to do.
impl AsFd for FailureDetector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.part {
            DetectorRole::Alone(epoll) => epoll.0.as_fd(),
            DetectorRole::Hub(hub) => hub.as_fd(),
            DetectorRole::Spoke(spoke) => spoke.as_fd(),
        }
    }
}

impl std::fmt::Display for OobSendError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::TooLong => "the message is too long",
            Self::NoSuchRank => "there is no such rank",
            Self::Gone => "the rank has left or is lost",
            Self::Full => "earlier messages have not gone out yet",
            Self::Over => "rank 0 has left or is lost",
        })
    }
}

impl std::error::Error for OobSendError {}
