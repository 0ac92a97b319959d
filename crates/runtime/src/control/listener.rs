//! Where control connections come in.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use nix::poll::{PollFd, PollFlags};
use std::os::fd::AsFd;

use super::secret::Secret;

/// Whether strangers may be heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Openness {
    /// Without a secret, only this machine is heard.
    Guarded,
    /// Without a secret, whoever can reach the address is obeyed.
    Open,
}

/// Connections that are taken in one turn.
const ACCEPT_AT_ONCE: usize = 64;

pub(super) struct Listener {
    listener: TcpListener,
    local: SocketAddr,
}

impl Listener {
    pub(super) fn bind(at: SocketAddr, secret: Option<&Secret>, openness: Openness) -> io::Result<Self> {
        if secret.is_none() && openness == Openness::Guarded && !at.ip().is_loopback() {
            let what = format!(
                "without a secret, {at} would obey whoever can reach it: give --secret-file or PLEACH_SECRET, listen on \
                 127.0.0.1, or say --open if the network is trusted"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
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

    /// Those who called since.
    pub(super) fn accept(&self) -> Vec<TcpStream> {
        // Running out of descriptors, or a caller that has gone again, is no reason to stop listening.
        (0..ACCEPT_AT_ONCE).map_while(|_| self.listener.accept().ok()).map(|(stream, _)| stream).collect()
    }
}
