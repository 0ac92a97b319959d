//! The file descriptors on which an endpoint sleeps: its ports and the link monitor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// What is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WakeSource {
    /// The port with this index.
    Port(usize),
    Links,
}

/// Registered once, not for each sleep: a sleep costs no more with many ports than with one.
pub(super) struct EpollSet {
    epoll: Epoll,
}

const LINK_MONITOR_TOKEN: u64 = u64::MAX;
/// Events per sleep; further ones end the next sleep.
const MAX_EPOLL_EVENTS: usize = 8;

impl EpollSet {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)? })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(super) fn add_port(&self, index: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?)
    }

    pub(super) fn add_links(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, LINK_MONITOR_TOKEN))?)
    }

    /// Sleeps for at most `longest`; reports what is ready.
    pub(super) fn sleep(&self, longest: Duration, mut tell: impl FnMut(WakeSource)) -> io::Result<()> {
        // The timeout counts milliseconds; a fraction is rounded up.
        let millis = longest.as_nanos().div_ceil(1_000_000).min(60_000) as u16;
        let mut events = [EpollEvent::empty(); MAX_EPOLL_EVENTS];
        let count = match self.epoll.wait(&mut events, EpollTimeout::from(millis)) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            tell(if event.data() == LINK_MONITOR_TOKEN {
                WakeSource::Links
            } else {
                WakeSource::Port(event.data() as usize)
            });
        }
        Ok(())
    }
}
