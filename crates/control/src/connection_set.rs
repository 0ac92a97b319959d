//! The descriptors of a control server: its listener and its connections.
//!
//! In: what each connection waits for. Out: who is ready. The kernel keeps the set (epoll), so a wake-up costs as much as is ready,
//! not as much as is connected: with a thousand nodes, `poll` takes longer than the heartbeat that ends it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use manager::PeerId;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Interest {
    /// Bytes from the peer.
    Input,
    /// Also room for bytes that are queued.
    InputAndOutput,
}

/// Whose descriptor is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadyDescriptor {
    Listener,
    Connection(PeerId),
}

/// The listener's token; connections have the numbers of their peers, which count from 1.
const LISTENER_TOKEN: u64 = u64::MAX;
/// Descriptors that one look reports. The kernel reports the others first at the next one.
const MAX_READY: usize = 256;

/// The set. A connection leaves it when its descriptor is closed.
pub(super) struct ConnectionSet {
    epoll: Epoll,
}

impl ConnectionSet {
    pub(super) fn new(listener: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER_TOKEN))?;
        Ok(Self { epoll })
    }

    /// Readable while anything in the set is ready.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)
    }

    pub(super) fn pause_listener(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.epoll.modify(listener, &mut EpollEvent::new(EpollFlags::empty(), LISTENER_TOKEN))?)
    }

    pub(super) fn resume_listener(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.epoll.modify(listener, &mut EpollEvent::new(EpollFlags::EPOLLIN, LISTENER_TOKEN))?)
    }

    pub(super) fn add(&self, peer: PeerId, connection: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        Ok(self.epoll.add(connection, EpollEvent::new(interest.flags(), peer.0))?)
    }

    pub(super) fn change(&self, peer: PeerId, connection: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        Ok(self.epoll.modify(connection, &mut EpollEvent::new(interest.flags(), peer.0))?)
    }

    /// Who is ready now. Does not wait.
    pub(super) fn ready(&self) -> Vec<ReadyDescriptor> {
        let mut events = [EpollEvent::empty(); MAX_READY];
        let count = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => unreachable!("the set and the list of events are valid: {error}"),
        };
        let who = |event: &EpollEvent| match event.data() {
            LISTENER_TOKEN => ReadyDescriptor::Listener,
            peer => ReadyDescriptor::Connection(PeerId(peer)),
        };
        events[..count].iter().map(who).collect()
    }
}

impl Interest {
    fn flags(self) -> EpollFlags {
        match self {
            Self::Input => EpollFlags::EPOLLIN,
            Self::InputAndOutput => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        }
    }
}
