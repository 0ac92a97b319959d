//! Where control connections come in.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use std::os::fd::AsFd;

use super::secret::ClusterSecret;

/// Whether strangers may be heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessPolicy {
    /// Without a secret, only this machine is heard.
    Guarded,
    /// Without a secret, whoever can reach the address is obeyed.
    Open,
}

/// Connections that are taken in one turn.
const MAX_ACCEPTS_PER_POLL: usize = 64;

/// What came of looking for callers.
pub(super) enum AcceptOutcome {
    /// All that called, or as many as are taken at once.
    All,
    /// The process has no descriptor left for the next.
    NoDescriptor,
}

pub(super) struct ControlListener {
    listener: TcpListener,
    local: SocketAddr,
}

impl ControlListener {
    pub(super) fn bind(at: SocketAddr, secret: Option<&ClusterSecret>, openness: AccessPolicy) -> io::Result<Self> {
        if secret.is_none() && openness == AccessPolicy::Guarded && !at.ip().is_loopback() {
            let what = format!(
                "without a secret, {at} would obey whoever can reach it: give --secret-file or PLEACH_SECRET, listen on \
                 127.0.0.1, or say --open if the network is trusted"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Self::at(at)
    }

    /// For those who are told but never obeyed.
    pub(super) fn at(at: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?;
        Ok(Self { listener, local })
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)
    }

    /// Takes those who called since.
    pub(super) fn accept(&self, mut take: impl FnMut(TcpStream)) -> AcceptOutcome {
        for _ in 0..MAX_ACCEPTS_PER_POLL {
            match self.listener.accept() {
                Ok((stream, _)) => take(stream),
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EMFILE | Errno::ENFILE) => return AcceptOutcome::NoDescriptor,
                    // A caller that has gone again is no reason to stop listening.
                    Some(Errno::ECONNABORTED | Errno::EINTR) => {}
                    _ => return AcceptOutcome::All,
                },
            }
        }
        AcceptOutcome::All
    }
}
