//! A UDP socket without a protocol: what the kernel takes for the bytes alone.
//!
//! The kernel cuts what is sent into datagrams that fill the MTU (GSO); the receiver gets them joined (GRO). Callers poll. Nothing is
//! sent again: a lost datagram is an error.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};

/// IPv6 and UDP headers, as Pleach assumes them.
const IP_UDP_BYTES: usize = 48;
/// The longest payload of a datagram over IPv4, also before the kernel cuts it.
const MAX_PAYLOAD_BYTES: usize = 65_507;
/// The kernel cuts at most so many segments at once.
const MAX_SEGMENTS: usize = 64;
/// Holds a whole message.
const SOCKET_BUFFER_BYTES: usize = 32 << 20;
/// A datagram that takes longer is lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(500);
/// The header of a packet of a transfer.
const PACKET_HEADER_BYTES: usize = wire::transfer::HEADER_BYTES;

/// What the datagrams hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum DatagramLayout {
    /// Bytes of the message only, sent from where they lie.
    BytesOnly,
    /// A header in each datagram. The sender copies message and headers into one piece.
    WithHeaders,
}

/// How a thread waits for the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PollMode {
    /// It has a processor of its own.
    Spin,
    /// Others may run meanwhile.
    Yield,
}

/// One end of a connection.
pub(crate) struct BareSocket {
    socket: UdpSocket,
    /// Payload of a datagram, and how many datagrams one system call sends.
    datagram_bytes: usize,
    in_call: usize,
    layout: DatagramLayout,
    poll: PollMode,
    batch: Vec<u8>,
    /// Bytes of the next message that arrived with the last one.
    surplus: usize,
}

impl BareSocket {
    /// Where a receive buffer must end beyond the message: the kernel may join the next message to it.
    pub(crate) const SPARE_BYTES: usize = 1 << 16;

    /// Opens a socket at an address of this namespace.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn open(at: SocketAddr, mtu_bytes: usize, layout: DatagramLayout, poll: PollMode) -> Result<Self> {
        let segment = mtu_bytes.saturating_sub(IP_UDP_BYTES).min(MAX_PAYLOAD_BYTES);
        let header = if layout == DatagramLayout::WithHeaders { PACKET_HEADER_BYTES } else { 0 };
        let socket = UdpSocket::bind(at).context("cannot open a UDP socket")?;
        let buffers = setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES);
        // Only root may exceed the limit of the system; others get what it allows.
        buffers.or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &SOCKET_BUFFER_BYTES))?;
        setsockopt(&socket, sockopt::UdpGsoSegment, &i32::try_from(segment)?)?;
        setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
        socket.set_nonblocking(true)?;
        let in_call = (MAX_PAYLOAD_BYTES / segment).min(MAX_SEGMENTS);
        let batch = vec![0; in_call * segment];
        Ok(Self { socket, datagram_bytes: segment - header, in_call, layout, poll, batch, surplus: 0 })
    }

    /// Its own address.
    ///
    /// # Errors
    /// If the kernel does not tell it.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }

    /// Sends to this address and receives from it alone.
    ///
    /// # Errors
    /// If there is no route.
    pub(crate) fn connect(&self, to: SocketAddr) -> Result<()> {
        Ok(self.socket.connect(to)?)
    }

    /// Bytes of a message that one system call sends.
    pub(crate) fn call_bytes(&self) -> usize {
        self.in_call * self.datagram_bytes
    }

    /// Sends a message of at least one byte.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<()> {
        for part in message.chunks(self.call_bytes()) {
            let length = match self.layout {
                DatagramLayout::BytesOnly => part.len(),
                DatagramLayout::WithHeaders => self.write_batch(part),
            };
            let bytes = if self.layout == DatagramLayout::BytesOnly { part } else { &self.batch[..length] };
            let sent = until_ready(self.poll, || self.socket.send(bytes))?;
            ensure!(sent == length, "the kernel sent {sent} of {length} bytes");
        }
        Ok(())
    }

    /// Writes headers and bytes; returns the length.
    fn write_batch(&mut self, part: &[u8]) -> usize {
        let mut length = 0;
        for bytes in part.chunks(self.datagram_bytes) {
            self.batch[length..length + PACKET_HEADER_BYTES].fill(0xa5);
            length += PACKET_HEADER_BYTES;
            self.batch[length..length + bytes.len()].copy_from_slice(bytes);
            length += bytes.len();
        }
        length
    }

    /// How many bytes of datagrams a message takes.
    fn wire_bytes(&self, message: usize) -> usize {
        match self.layout {
            DatagramLayout::BytesOnly => message,
            DatagramLayout::WithHeaders => message + message.div_ceil(self.datagram_bytes) * PACKET_HEADER_BYTES,
        }
    }

    /// Receives a message of so many bytes into a buffer with [`Self::SPARE_BYTES`] more. Headers stay where they arrive: removing
    /// them would cost the receiver nothing but a read from its cache.
    ///
    /// # Errors
    /// If a datagram is lost.
    pub(crate) fn receive(&mut self, message: usize, buffer: &mut [u8]) -> Result<()> {
        let wanted = self.wire_bytes(message);
        let mut filled = std::mem::take(&mut self.surplus);
        while filled < wanted {
            let at = filled.min(buffer.len() - Self::SPARE_BYTES);
            filled += until_ready(self.poll, || self.socket.recv(&mut buffer[at..]))?;
        }
        self.surplus = filled - wanted;
        Ok(())
    }
}

/// Repeats a call of the kernel without sleeping.
fn until_ready(poll: PollMode, mut call: impl FnMut() -> io::Result<usize>) -> Result<usize> {
    let mut deadline = None;
    loop {
        match call() {
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + LOSS_TIMEOUT);
                ensure!(Instant::now() < deadline, "a datagram was lost");
                match poll {
                    PollMode::Spin => std::hint::spin_loop(),
                    PollMode::Yield => std::thread::yield_now(),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn messages_of_every_layout_arrive_over_loopback_also_if_the_kernel_joins_them() {
        for layout in [DatagramLayout::BytesOnly, DatagramLayout::WithHeaders] {
            let open = || BareSocket::open((Ipv4Addr::LOCALHOST, 0).into(), 1500, layout, PollMode::Yield);
            let (mut one, mut other) = (open().expect("a socket"), open().expect("a socket"));
            one.connect(other.address().expect("bound")).expect("loopback");
            other.connect(one.address().expect("bound")).expect("loopback");
            let message: Vec<u8> = (0..100_000).map(|byte| byte as u8).collect();
            let mut buffer = vec![0; message.len() + BareSocket::SPARE_BYTES];
            for length in [1, 8, 1452, 1453, 100_000] {
                for _ in 0..2 {
                    one.send(&message[..length]).expect("sent");
                }
                for _ in 0..2 {
                    other.receive(length, &mut buffer).expect("nothing is lost");
                }
                assert_eq!(other.surplus, 0, "{layout:?}, {length} bytes");
            }
            if layout == DatagramLayout::BytesOnly {
                assert_eq!(buffer[..message.len()], message[..]);
            }
        }
    }
}
