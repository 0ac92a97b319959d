//! Packets of one size for one destination, gathered so that one call sends them all.
//!
//! The kernel cuts what one call gives into datagrams (generic segmentation offload); over loopback and virtual links it
//! does not even cut. Verbs peers get every packet in a call of its own, because the kernel numbers the datagrams of
//! one call and their ICRC covers the number.

use std::io;
use std::net::SocketAddr;

use wire::PacketHeaders;
use wire::rocev2;

use super::port::{Port, PortIndex};

/// Bytes of one call: what the length field of IP can say, less its headers.
const MOST_BYTES: usize = 65_000;

/// Whether packets of one destination may share a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gathering {
    Allowed,
    Forbidden,
}

#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    length: usize,
    /// Where it goes, and the size of all but the last.
    to: Option<(PortIndex, SocketAddr)>,
    size: usize,
    count: u16,
    /// A shorter one has ended it.
    closed: bool,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; 1 << 16], ..Self::default() }
    }

    /// True if a packet of `size` bytes can be added without sending what is there.
    fn takes(&self, port: &Port, to: (PortIndex, SocketAddr), size: usize, gathering: Gathering) -> bool {
        self.to.is_none()
            || (self.to == Some(to)
                && gathering == Gathering::Allowed
                && !self.closed
                && size <= self.size
                && self.length + size <= MOST_BYTES
                && usize::from(self.count) < port.segments())
    }

    /// Adds a packet, sending what is there first if they do not go together. An error is that of the earlier ones,
    /// with where they were to go.
    pub(crate) fn add(
        &mut self,
        ports: &[Port],
        to: (PortIndex, SocketAddr),
        headers: &PacketHeaders,
        payload: [&[u8]; 2],
        gathering: Gathering,
    ) -> Result<(), Unsent> {
        let size = headers.size_with(payload[0].len() + payload[1].len());
        let port = &ports[to.0.index()];
        let sent = if self.takes(port, to, size, gathering) { Ok(()) } else { self.flush(ports) };
        if self.to.is_none() {
            (self.to, self.size, self.count, self.closed) = (Some(to), size, 0, false);
        }
        let flow = port.outgoing(to.1, self.count);
        let written = rocev2::emit_joined(headers, payload, &flow, &mut self.bytes[self.length..]);
        self.closed = written < self.size;
        self.length += written;
        self.count += 1;
        sent
    }

    /// Sends what is there.
    pub(crate) fn flush(&mut self, ports: &[Port]) -> Result<(), Unsent> {
        let Some((port, to)) = self.to.take() else { return Ok(()) };
        let length = std::mem::take(&mut self.length);
        ports[port.index()].send(to, &self.bytes[..length], self.size).map_err(|error| Unsent { port, to, error })
    }
}

/// Packets that the kernel did not take.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub port: PortIndex,
    pub to: SocketAddr,
    pub error: io::Error,
}
