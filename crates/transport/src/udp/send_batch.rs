//! Packets of one size for one destination, sent with one system call.
//!
//! The kernel splits the buffer of one call into datagrams (generic segmentation offload); over loopback and virtual links
//! it does not even split. A packet to a verbs peer has a call of its own, because the kernel numbers the datagrams of one
//! call and the ICRC covers that number.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use nix::errno::Errno;
use protocol::BufferSlice;
use wire::PacketHeaders;
use wire::rocev2;

use super::long_packets::MAX_UNCUT_BYTES;
use super::port::{UdpPort, UdpPortIndex};
use super::posted_buffers::SendSlice;

/// Bytes of one call: the limit of the IP length field, less the headers.
pub(super) const MAX_BATCH_BYTES: usize = 65_000;
/// A borrowed slice of at least this many bytes is sent without a copy. Passing a shorter one to the kernel costs as much as copying it.
const ZERO_COPY_MIN_BYTES: usize = 2048;

/// Whether packets to one destination may share a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coalescing {
    Allowed,
    Forbidden,
}

#[derive(Default)]
pub(crate) struct SendBatch {
    /// All bytes except the borrowed slices.
    bytes: Vec<u8>,
    written: usize,
    /// The borrowed slices, each with its offset in `bytes`.
    borrowed: Vec<(usize, BufferSlice)>,
    length: usize,
    /// The destination, and the size of every packet but the last.
    to: Option<(UdpPortIndex, SocketAddr)>,
    size: usize,
    count: u16,
    /// A shorter packet has ended the batch.
    closed: bool,
}

impl SendBatch {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; 1 << 16], ..Self::default() }
    }

    /// True if a packet of `size` bytes fits into the batch.
    fn fits(&self, port: &UdpPort, to: (UdpPortIndex, SocketAddr), size: usize, coalescing: Coalescing) -> bool {
        self.to.is_none()
            || (self.to == Some(to)
                && coalescing == Coalescing::Allowed
                && !self.closed
                && size <= self.size
                && self.length + size <= MAX_BATCH_BYTES
                && usize::from(self.count) < port.max_gso_segments())
    }

    /// Adds a packet. Sends the batch first if the packet does not fit; an error is that of the earlier packets, with their
    /// destination.
    pub(crate) fn add(
        &mut self,
        ports: &[UdpPort],
        to: (UdpPortIndex, SocketAddr),
        headers: &PacketHeaders,
        payload: SendSlice<'_>,
        coalescing: Coalescing,
    ) -> Result<(), SocketSendError> {
        let size = headers.size_with(payload.len());
        let port = &ports[to.0.index()];
        let sent = if self.fits(port, to, size, coalescing) { Ok(()) } else { self.flush(ports) };
        if self.to.is_none() {
            (self.to, self.size, self.count, self.closed) = (Some(to), size, 0, false);
        }
        let flow = port.outgoing(to.1, self.count);
        let room = &mut self.bytes[self.written..];
        match payload.body {
            Some(body) if body.bytes().len() >= ZERO_COPY_MIN_BYTES => {
                let (before, after) =
                    rocev2::emit_zero_copy(headers, ([payload.prefix, payload.head], body.bytes()), &flow, room);
                self.borrowed.push((self.written + before, body));
                self.written += before + after;
            }
            _ => self.written += rocev2::emit_vectored(headers, payload.slices(), &flow, room),
        }
        self.closed = size < self.size;
        self.length += size;
        self.count += 1;
        sent
    }

    /// Sends the batch.
    pub(crate) fn flush(&mut self, ports: &[UdpPort]) -> Result<(), SocketSendError> {
        let Some((port, to)) = self.to.take() else { return Ok(()) };
        let bytes = &self.bytes[..std::mem::take(&mut self.written)];
        let sent = if self.borrowed.is_empty() {
            ports[port.index()].send(to, bytes, self.size)
        } else {
            let mut parts = Vec::with_capacity(2 * self.borrowed.len() + 1);
            let mut start = 0;
            for (end, slice) in &self.borrowed {
                parts.extend([IoSlice::new(&bytes[start..*end]), IoSlice::new(slice.bytes())]);
                start = *end;
            }
            parts.push(IoSlice::new(&bytes[start..]));
            ports[port.index()].send_parts(to, &parts, self.length, self.size)
        };
        self.length = 0;
        self.borrowed.clear();
        sent.map_err(|error| SocketSendError { port, to, error, size: self.size })
    }
}

/// A batch that the kernel rejected.
#[derive(Debug)]
pub(crate) struct SocketSendError {
    pub port: UdpPortIndex,
    pub to: SocketAddr,
    pub error: io::Error,
    /// Bytes of each packet.
    pub size: usize,
}

impl SocketSendError {
    /// The link does not carry packets of this size any more. For several packets in one call, some kernels say so by EINVAL.
    pub(crate) fn is_too_long(&self) -> bool {
        let code = self.error.raw_os_error().map(Errno::from_raw);
        self.size > MAX_UNCUT_BYTES && matches!(code, Some(Errno::EMSGSIZE | Errno::EINVAL))
    }
}
