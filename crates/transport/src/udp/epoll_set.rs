//! Where an endpoint sleeps: a packet at one of its ports wakes it, or the kernel's news of links.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Who has something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WakeSource {
    /// The port of this number.
    Port(usize),
    Links,
}

/// What wakes is told once, not each time: a sleep takes no longer with many ports than with one.
pub(super) struct EpollSet {
    epoll: Epoll,
}

const LINK_MONITOR_TOKEN: u64 = u64::MAX;
/// As many are told of at once; the others wake the next sleep.
const MAX_EPOLL_EVENTS: usize = 8;

impl EpollSet {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)? })
    }

    pub(super) fn add_port(&self, index: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?)
    }

    pub(super) fn add_links(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, LINK_MONITOR_TOKEN))?)
    }

    /// Sleeps for at most so long; tells who has something.
    pub(super) fn sleep(&self, longest: Duration, mut tell: impl FnMut(WakeSource)) -> io::Result<()> {
        // Milliseconds are what it counts in: a part of one is waited for as a whole.
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
