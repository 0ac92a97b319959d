//! Detects lost ranks: the connections of the rendezvous stay open, and a process that dies closes its own.
//!
//! Rank 0 is the hub: it sees the end of every connection at once and informs the others. It also forwards short out-of-band
//! messages, in order for each pair of ranks. A rank that leaves says goodbye first, so a clean exit is not a loss. If rank 0
//! ends without a goodbye, every rank reports the same: rank 0 is lost. Nothing here blocks except [`FailureDetector::leave`],
//! and memory is bounded: a rank that does not read stalls those that write to it, until the kernel closes its connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags};

use super::hub::Hub;
use super::rank_event::{MAX_OOB_MESSAGE_BYTES, OobSendError, OobTarget, RankEvent};
use super::spoke::Spoke;

/// One rank's failure detector. Dropped without [`FailureDetector::leave`], it counts as a loss of this rank, as it should when
/// the owner panics.
#[derive(Debug)]
pub struct FailureDetector {
    role: DetectorRole,
}

#[derive(Debug)]
enum DetectorRole {
    Singleton(Epoll),
    Hub(Hub),
    Spoke(Spoke),
}

impl FailureDetector {
    /// For a job of one rank.
    pub(super) fn singleton() -> io::Result<Self> {
        Ok(Self { role: DetectorRole::Singleton(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?) })
    }

    pub(super) fn of_hub(hub: Hub) -> Self {
        Self { role: DetectorRole::Hub(hub) }
    }

    pub(super) fn of_spoke(spoke: Spoke) -> Self {
        Self { role: DetectorRole::Spoke(spoke) }
    }

    /// Reads, writes and forwards without blocking, and returns the next event. Call it until it returns `None`, whenever the
    /// descriptor is readable, and from time to time anyway.
    pub fn turn(&mut self) -> Option<RankEvent> {
        match &mut self.role {
            DetectorRole::Singleton(_) => None,
            DetectorRole::Hub(hub) => hub.turn(),
            DetectorRole::Spoke(spoke) => spoke.turn(),
        }
    }

    /// Sends a short out-of-band message through rank 0. Messages from one rank to another arrive in order and once, unless
    /// one of the two or rank 0 is lost.
    ///
    /// # Errors
    /// The message was not accepted; nothing was sent.
    pub fn send(&mut self, to: OobTarget, bytes: &[u8]) -> Result<(), OobSendError> {
        if bytes.len() > MAX_OOB_MESSAGE_BYTES {
            return Err(OobSendError::TooLong);
        }
        match &mut self.role {
            DetectorRole::Singleton(_) if to == OobTarget::All => Ok(()),
            DetectorRole::Singleton(_) => Err(OobSendError::NoSuchRank),
            DetectorRole::Hub(hub) => hub.send(to, bytes),
            DetectorRole::Spoke(spoke) => spoke.send(to, bytes),
        }
    }

    /// Says goodbye. Rank 0 first serves the others until they have left or are lost, at most for `timeout`; the other ranks
    /// wait at most for `timeout` until rank 0 has received the goodbye.
    pub fn leave(self, timeout: Duration) {
        match self.role {
            DetectorRole::Singleton(_) => {}
            DetectorRole::Hub(hub) => hub.leave(timeout),
            DetectorRole::Spoke(spoke) => spoke.leave(timeout),
        }
    }
}

#[cfg(test)]
impl FailureDetector {
    /// Sends arbitrary bytes to rank 0.
    pub(super) fn send_raw(&mut self, bytes: std::sync::Arc<[u8]>) {
        let DetectorRole::Spoke(spoke) = &mut self.role else { panic!("rank 0 has no connection to itself") };
        spoke.send_raw(bytes);
    }
}

/// Readable when [`FailureDetector::turn`] has something to do.
impl AsFd for FailureDetector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.role {
            DetectorRole::Singleton(epoll) => epoll.0.as_fd(),
            DetectorRole::Hub(hub) => hub.as_fd(),
            DetectorRole::Spoke(spoke) => spoke.as_fd(),
        }
    }
}
