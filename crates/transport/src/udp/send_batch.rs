//! Packets of one size for one destination, gathered so that one call sends them all.
//!
//! The kernel cuts what one call gives into datagrams (generic segmentation offload); over loopback and virtual links it
//! does not even cut. Verbs peers get every packet in a call of its own, because the kernel numbers the datagrams of
//! one call and their ICRC covers the number.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use protocol::BufferSlice;
use wire::PacketHeaders;
use wire::rocev2;

use super::port::{UdpPort, UdpPortIndex};
use super::queue_pair::SendSlice;

/// Bytes of one call: what the length field of IP can say, less its headers.
const MAX_BATCH_BYTES: usize = 65_000;
/// Of what is lent, so many bytes or more are sent from where they lie. Fewer are copied: to tell the kernel of them costs as much.
const ZERO_COPY_MIN_BYTES: usize = 2048;

/// Whether packets of one destination may share a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coalescing {
    Allowed,
    Forbidden,
}

#[derive(Default)]
pub(crate) struct SendBatch {
    /// Everything but what is sent from where it lies.
    bytes: Vec<u8>,
    written: usize,
    /// What is, and behind how many of the bytes it belongs.
    lent: Vec<(usize, BufferSlice)>,
    length: usize,
    /// Where it goes, and the size of all but the last.
    to: Option<(UdpPortIndex, SocketAddr)>,
    size: usize,
    count: u16,
    /// A shorter one has ended it.
    closed: bool,
}

impl SendBatch {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; 1 << 16], ..Self::default() }
    }

    /// True if a packet of `size` bytes can be added without sending what is there.
    fn takes(&self, port: &UdpPort, to: (UdpPortIndex, SocketAddr), size: usize, gathering: Coalescing) -> bool {
        self.to.is_none()
            || (self.to == Some(to)
                && gathering == Coalescing::Allowed
                && !self.closed
                && size <= self.size
                && self.length + size <= MAX_BATCH_BYTES
                && usize::from(self.count) < port.segments())
    }

    /// Adds a packet, sending what is there first if they do not go together. An error is that of the earlier ones,
    /// with where they were to go.
    pub(crate) fn add(
        &mut self,
        ports: &[UdpPort],
        to: (UdpPortIndex, SocketAddr),
        headers: &PacketHeaders,
        payload: SendSlice<'_>,
        gathering: Coalescing,
    ) -> Result<(), SocketSendError> {
        let size = headers.size_with(payload.len());
        let port = &ports[to.0.index()];
        let sent = if self.takes(port, to, size, gathering) { Ok(()) } else { self.flush(ports) };
        if self.to.is_none() {
            (self.to, self.size, self.count, self.closed) = (Some(to), size, 0, false);
        }
        let flow = port.outgoing(to.1, self.count);
        let room = &mut self.bytes[self.written..];
        match payload.body {
            Some(body) if body.bytes().len() >= ZERO_COPY_MIN_BYTES => {
                let (before, after) = rocev2::emit_zero_copy(headers, [payload.head, body.bytes()], &flow, room);
                self.lent.push((self.written + before, body));
                self.written += before + after;
            }
            _ => self.written += rocev2::emit_vectored(headers, payload.slices(), &flow, room),
        }
        self.closed = size < self.size;
        self.length += size;
        self.count += 1;
        sent
    }

    /// Sends what is there.
    pub(crate) fn flush(&mut self, ports: &[UdpPort]) -> Result<(), SocketSendError> {
        let Some((port, to)) = self.to.take() else { return Ok(()) };
        let bytes = &self.bytes[..std::mem::take(&mut self.written)];
        let sent = if self.lent.is_empty() {
            ports[port.index()].send(to, bytes, self.size)
        } else {
            let mut parts = Vec::with_capacity(2 * self.lent.len() + 1);
            let mut start = 0;
            for (end, lent) in &self.lent {
                parts.extend([IoSlice::new(&bytes[start..*end]), IoSlice::new(lent.bytes())]);
                start = *end;
            }
            parts.push(IoSlice::new(&bytes[start..]));
            ports[port.index()].send_parts(to, &parts, self.length, self.size)
        };
        self.length = 0;
        self.lent.clear();
        sent.map_err(|error| SocketSendError { port, to, error })
    }
}

/// Packets that the kernel did not take.
#[derive(Debug)]
pub(crate) struct SocketSendError {
    pub port: UdpPortIndex,
    pub to: SocketAddr,
    pub error: io::Error,
}
