//! Which sockets a call receives from.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::multicast_group::ReceivedMulticast;
use crate::udp::port::SocketBuffers;

/// A result of at least this many bytes is part of a long vector.
const LONG_RESULT_BYTES: usize = 1024;

/// Which sockets to receive from: an empty receive call costs as much as one with a packet.
#[derive(Clone, Copy)]
pub enum ReadySockets<'a> {
    /// All of them.
    Any,
    /// Those that the kernel reported as readable.
    These(&'a [RawFd]),
    /// None but this datagram, which is already received.
    Taken(&'a ReceivedMulticast<'a>),
}

impl ReadySockets<'_> {
    pub(super) fn includes(self, socket: BorrowedFd<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::These(named) => named.contains(&socket.as_raw_fd()),
            // Short results arrive one at a time, and a caller that waits for one expects nothing else; of long ones there are more.
            Self::Taken(received) => {
                received.socket() == socket.as_raw_fd() && is_long(&received.buffers, received.filled)
            }
        }
    }
}

/// True if the datagram received last belongs to a long vector, of which more may follow.
pub(super) fn is_long(buffers: &SocketBuffers, filled: usize) -> bool {
    buffers.meta[..filled].iter().any(|meta| meta.len >= LONG_RESULT_BYTES)
}
