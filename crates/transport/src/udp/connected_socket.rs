//! A socket that only sends, to one address.
//!
//! The kernel looks up the route of a connected socket once, which saves a fifth of the time of a short packet between two hosts. Replies
//! go to the port that received the peer's address: this socket's own port number serves networks to spread flows, like the source
//! port of RoCEv2.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use socket2::{Domain, Protocol, Socket, Type};

use super::port::configure_socket;

/// Bytes that wait for the link.
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// Nobody answers to this socket; the kernel grants its minimum.
const RECEIVE_BUFFER_BYTES: usize = 1;

pub(crate) struct ConnectedSocket {
    socket: UdpSocket,
}

impl ConnectedSocket {
    /// Opens a socket at the address of `local`, with another port number.
    pub(crate) fn open(local: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        let mut local = local;
        local.set_port(0);
        socket.bind(&local.into())?;
        let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
        let socket = UdpSocket::from(socket);
        configure_socket(&socket)?;
        socket.connect(to)?;
        Ok(Self { socket })
    }

    /// Sends datagrams of `size` bytes each; the last may be shorter.
    ///
    /// # Errors
    /// What the kernel reports, except that an earlier datagram was refused.
    pub(crate) fn send(&self, contents: &[u8], size: usize) -> io::Result<()> {
        let segment = size as u16;
        let segments = [ControlMessage::UdpGsoSegments(&segment)];
        let control = if contents.len() > size { &segments[..] } else { &[] };
        let slices = [IoSlice::new(contents)];
        let send = || sendmsg::<()>(self.socket.as_raw_fd(), &slices, control, MsgFlags::MSG_DONTWAIT, None);
        // The kernel reports once that an earlier datagram was refused, and sends nothing then.
        let sent = send().or_else(|error| if error == Errno::ECONNREFUSED { send() } else { Err(error) });
        sent.map(drop).map_err(io::Error::from)
    }
}
