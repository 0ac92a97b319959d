//! A port: one socket at one local address, in and out.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use quinn_udp::{RecvMeta, Transmit as Datagrams, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use wire::rocev2::{Flow, Fragmentation, IpHeader};

/// One of an endpoint's ports, in the order in which they were given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PortIndex(pub u8);

impl PortIndex {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a socket should hold while its process is busy.
const SOCKET_BUFFER: usize = 4 << 20;
/// Datagrams that one receive may bring, each perhaps several that the kernel joined.
pub(super) const RECEIVE_BATCH: usize = 8;
/// Room for each.
const RECEIVE_BYTES: usize = 1 << 16;

pub(super) struct Port {
    pub socket: UdpSocket,
    state: UdpSocketState,
    pub local: SocketAddr,
    /// The kernel says that its address is there and its link up.
    pub is_up: bool,
}

impl Port {
    pub(super) fn open(local: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&local.into())?;
        // The kernel gives what its limits allow; a smaller buffer only makes losses likelier.
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
        let socket = UdpSocket::from(socket);
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let local = socket.local_addr()?;
        Ok(Self { socket, state, local, is_up: true })
    }

    /// Most datagrams of one size that one call can send.
    pub(super) fn segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends datagrams of `size` bytes each, the last perhaps shorter.
    pub(super) fn send(&self, to: SocketAddr, contents: &[u8], size: usize) -> io::Result<()> {
        let segment_size = (contents.len() > size).then_some(size);
        let datagrams = Datagrams { destination: to, ecn: None, contents, segment_size, src_ip: None };
        self.state.try_send(UdpSockRef::from(&self.socket), &datagrams)
    }

    /// Receives into the buffers; how many were filled.
    pub(super) fn receive(&self, buffers: &mut Buffers) -> io::Result<usize> {
        let mut slices = buffers.bytes.each_mut().map(|bytes| io::IoSliceMut::new(bytes));
        match self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut buffers.meta) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// The headers around a packet from here, the `identification`-th of those that one call sends.
    pub(super) fn outgoing(&self, to: SocketAddr, identification: u16) -> Flow {
        flow(self.local, to, identification)
    }

    /// The headers around a packet to here.
    pub(super) fn incoming(&self, from: SocketAddr, identification: u16) -> Flow {
        flow(from, self.local, identification)
    }
}

/// Room for what one receive brings.
pub(super) struct Buffers {
    pub bytes: [Box<[u8]>; RECEIVE_BATCH],
    pub meta: [RecvMeta; RECEIVE_BATCH],
}

impl Default for Buffers {
    fn default() -> Self {
        let bytes = std::array::from_fn(|_| vec![0; RECEIVE_BYTES].into_boxed_slice());
        Self { bytes, meta: [RecvMeta::default(); RECEIVE_BATCH] }
    }
}

/// Sockets here forbid fragmentation and are not connected: then Linux numbers datagrams zero, and those of one call
/// from zero on.
fn flow(from: SocketAddr, to: SocketAddr, identification: u16) -> Flow {
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            IpHeader::V4 { source, destination, identification, fragmentation: Fragmentation::Forbidden }
        }
        (source, destination) => IpHeader::V6 { source: six(source), destination: six(destination) },
    };
    Flow { ip, source_port: from.port(), destination_port: to.port() }
}

fn six(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}
