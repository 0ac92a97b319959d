//! The TCP listener of control and metrics connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use std::os::fd::{AsFd, BorrowedFd};

use super::secret::ClusterSecret;

/// Which addresses a listener without a secret may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessPolicy {
    /// Only loopback addresses.
    LoopbackOnly,
    /// Any address: every host that can reach it has control.
    AnyAddress,
}

/// Connections that are accepted per poll.
const MAX_ACCEPTS_PER_POLL: usize = 64;

/// Result of accepting connections.
pub(super) enum AcceptOutcome {
    /// All pending connections are accepted, or as many as are allowed per poll.
    Done,
    /// The process has no descriptor left for the next connection.
    NoDescriptor,
}

pub(super) struct ControlListener {
    listener: TcpListener,
    local: SocketAddr,
}

impl ControlListener {
    pub(super) fn bind(at: SocketAddr, secret: Option<&ClusterSecret>, access: AccessPolicy) -> io::Result<Self> {
        if secret.is_none() && access == AccessPolicy::LoopbackOnly && !at.ip().is_loopback() {
            let what = format!(
                "without a secret, every host that can reach {at} could control it: set --secret-file or PLEACH_SECRET, \
                 listen on 127.0.0.1, or give --allow-unauthenticated if the network is trusted"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Self::at(at)
    }

    /// For read-only services, which need no secret.
    pub(super) fn at(at: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?;
        Ok(Self { listener, local })
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)
    }

    /// Accepts pending connections.
    pub(super) fn accept(&self, mut handle: impl FnMut(TcpStream)) -> AcceptOutcome {
        for _ in 0..MAX_ACCEPTS_PER_POLL {
            match self.listener.accept() {
                Ok((stream, _)) => handle(stream),
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EMFILE | Errno::ENFILE) => return AcceptOutcome::NoDescriptor,
                    // The client has disconnected already; the next one may be fine.
                    Some(Errno::ECONNABORTED | Errno::EINTR) => {}
                    _ => return AcceptOutcome::Done,
                },
            }
        }
        AcceptOutcome::Done
    }
}
