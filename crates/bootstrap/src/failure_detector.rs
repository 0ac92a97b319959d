//! Detects lost ranks: the connections of the rendezvous stay open, and a process that dies closes its own.
//!
//! Rank 0 is the coordinator: it sees the end of every link at once, decides which ranks are lost, and informs the others, all in the
//! same order. It also forwards short out-of-band messages, in order for each pair of ranks. If hosts have several paths, a link has a
//! connection on each, and a rank is lost only when none is left. A rank that leaves says goodbye first, so a clean exit is not a
//! loss. If the coordinator is lost, the lowest live rank follows it. Nothing here blocks except [`FailureDetector::leave`], and
//! memory is bounded.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::member::Member;
use super::rank_event::{MAX_OOB_MESSAGE_BYTES, OobSendError, OobTarget, RankEvent};

/// One rank's failure detector. Dropped without [`FailureDetector::leave`], it counts as a loss of this rank, as it should when
/// the owner panics.
#[derive(Debug)]
pub struct FailureDetector {
    member: Member,
}

impl FailureDetector {
    pub(super) fn new(member: Member) -> Self {
        Self { member }
    }

    /// Reads, writes and forwards without blocking, and returns the next event. Call it until it returns `None`, whenever the
    /// descriptor is readable, after [`Self::next_timeout`], and from time to time anyway.
    pub fn turn(&mut self) -> Option<RankEvent> {
        self.member.turn()
    }

    /// The time after which [`Self::turn`] has something to do, even if the descriptor is not readable.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.member.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Sends a short out-of-band message through the coordinator. Messages from one rank to another arrive in order and once, unless
    /// one of the two or the coordinator is lost.
    ///
    /// # Errors
    /// The message was not accepted; nothing was sent.
    pub fn send(&mut self, to: OobTarget, bytes: &[u8]) -> Result<(), OobSendError> {
        if bytes.len() > MAX_OOB_MESSAGE_BYTES {
            return Err(OobSendError::TooLong);
        }
        self.member.send(to, bytes)
    }

    /// True while other ranks need this one to coordinate the job. Until then, better call [`Self::turn`] than leave.
    pub fn is_needed(&self) -> bool {
        self.member.is_needed()
    }

    /// True while ranks are suspected and it is not decided whether they are lost.
    pub fn is_deciding(&self) -> bool {
        self.member.is_deciding()
    }

    /// Says goodbye. The coordinator first serves the others until they have left or are lost, at most for `timeout`; the other
    /// ranks wait at most for `timeout` until the coordinator has received the goodbye.
    pub fn leave(self, timeout: Duration) {
        self.member.leave(timeout);
    }
}

#[cfg(test)]
impl FailureDetector {
    /// Sends arbitrary bytes to the coordinator.
    pub(super) fn send_raw(&mut self, bytes: &std::sync::Arc<[u8]>) {
        self.member.send_raw(bytes);
    }
}

/// Readable when [`FailureDetector::turn`] has something to do.
impl AsFd for FailureDetector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.member.as_fd()
    }
}
