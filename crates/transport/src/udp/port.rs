//! A port: one UDP socket at one local address, for sending and receiving.

use std::io::{self, IoSlice, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

use nix::errno::Errno;
use nix::sys::socket::sockopt::{IpRecvTos, Ipv4PacketInfo, Ipv6RecvPacketInfo, Ipv6RecvTClass, RcvBufForce};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};
use quinn_udp::{RecvMeta, Transmit as Datagrams, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use wire::IcrcCoverage;
use wire::rocev2::{self, Flow, Fragmentation, IpHeader};

/// The index of a port in the order in which an endpoint was given its addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UdpPortIndex(pub u8);

impl UdpPortIndex {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a socket buffers while its process is busy.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// Buffers that one receive call fills; the kernel may have coalesced several datagrams into each (GRO).
pub(crate) const RECEIVE_BATCH: usize = 8;
/// A buffer with more bytes than this is long.
const LONG_DATAGRAM_BYTES: usize = 1 << 14;
/// Bytes of a receive buffer: the longest datagram, or the longest coalesced run of them.
pub const RECEIVE_BUFFER_BYTES: usize = 1 << 16;

/// Space for the control messages of a datagram: the segment size of a coalesced run.
const CONTROL_BYTES: usize = 128;

/// How a port receives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ReceiveMode {
    /// As any UDP socket does. The process does not see the IP header, so the IPv4 identification, which the ICRC covers,
    /// must be the one that a Pleach peer produces.
    #[default]
    Plain,
    /// With the IP header: verbs peers over IPv4 count their identifications. Requires raw sockets (CAP_NET_RAW).
    WithHeader,
}

pub(crate) struct UdpPort {
    pub socket: UdpSocket,
    /// Receives instead of the socket, which then only reserves the address.
    raw: Option<Socket>,
    state: UdpSocketState,
    pub local: SocketAddr,
    /// The kernel reports that the address exists and its link is up.
    pub is_up: bool,
    /// Cut for a test: what is sent is dropped.
    pub is_cut: bool,
    /// Turns in a row without a datagram.
    pub idle_turns: u16,
    /// Datagrams that the next receive asks for. A lone datagram is returned before the kernel has searched for a second.
    next_batch: usize,
    /// The last receive returned as many datagrams as it asked for.
    was_full: bool,
    /// The IPv4 identification of the first packet of a coalesced run, as far as the last packets show: adapters join fewer packets than one
    /// call of the sender has.
    first_number: AtomicU16,
}

impl UdpPort {
    pub(crate) fn open(local: SocketAddr, receive_mode: ReceiveMode) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&local.into())?;
        // Packets to a group leave by this port's link, and loop back to other processes of the host.
        if let IpAddr::V4(address) = local.ip()
            && !address.is_unspecified()
        {
            socket.set_multicast_if_v4(&address)?;
        }
        // Without privileges the kernel caps the sizes; a smaller buffer only makes loss more likely.
        if setsockopt(&socket, RcvBufForce, &SOCKET_BUFFER_BYTES).is_err() {
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        }
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
        let socket = UdpSocket::from(socket);
        let state = configure_socket(&socket)?;
        let local = socket.local_addr()?;
        let raw = match receive_mode {
            ReceiveMode::WithHeader if local.is_ipv4() => Some(open_raw(local)?),
            _ => None,
        };
        Ok(Self {
            socket,
            raw,
            state,
            local,
            is_up: true,
            is_cut: false,
            idle_turns: 0,
            next_batch: 1,
            was_full: false,
            first_number: AtomicU16::new(0),
        })
    }

    /// A port that receives what is sent to a group on the link of `interface`.
    pub(crate) fn join(group: SocketAddr, interface: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
        // Every process of a host may join the group.
        socket.set_reuse_address(true)?;
        socket.bind(&group.into())?;
        match (group.ip(), interface.ip()) {
            (IpAddr::V4(group), IpAddr::V4(interface)) => socket.join_multicast_v4(&group, &interface)?,
            (IpAddr::V6(group), IpAddr::V6(_)) => {
                let SocketAddr::V6(scoped) = interface else { unreachable!("its address is IPv6") };
                socket.join_multicast_v6(&group, scoped.scope_id())?;
            }
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the multicast group and the local address have different IP versions",
                ));
            }
        }
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        let socket = UdpSocket::from(socket);
        let state = configure_socket(&socket)?;
        Ok(Self {
            socket,
            raw: None,
            state,
            local: group,
            is_up: true,
            is_cut: false,
            idle_turns: 0,
            next_batch: 1,
            was_full: false,
            first_number: AtomicU16::new(0),
        })
    }

    /// The descriptor to wait on.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_ref().map_or_else(|| self.socket.as_fd(), AsFd::as_fd)
    }

    /// What the kernel buffers for this socket, in bytes of its own accounting.
    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        socket2::SockRef::from(&self.socket).recv_buffer_size().unwrap_or(0)
    }

    /// The most datagrams of one size that one call sends.
    pub(crate) fn max_gso_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends datagrams of `size` bytes each; the last may be shorter.
    pub(crate) fn send(&self, to: SocketAddr, contents: &[u8], size: usize) -> io::Result<()> {
        if self.is_cut {
            return Ok(());
        }
        if contents.len() <= size {
            return self.send_one(to, contents);
        }
        let datagrams = Datagrams { destination: to, ecn: None, contents, segment_size: Some(size), src_ip: None };
        self.state.try_send(UdpSockRef::from(&self.socket), &datagrams)
    }

    /// As [`Self::send`], for datagrams in several slices of `length` bytes together.
    pub(crate) fn send_parts(
        &self,
        to: SocketAddr,
        parts: &[IoSlice<'_>],
        length: usize,
        size: usize,
    ) -> io::Result<()> {
        if self.is_cut {
            return Ok(());
        }
        let segment = size as u16;
        let joined = [ControlMessage::UdpGsoSegments(&segment)];
        let control = if length > size { &joined[..] } else { &[] };
        let address = SockaddrStorage::from(to);
        match sendmsg(self.socket.as_raw_fd(), parts, control, MsgFlags::MSG_DONTWAIT, Some(&address)) {
            Ok(_) => Ok(()),
            Err(Errno::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
            // The link may not support segmentation offload; `send` falls back to single datagrams.
            Err(_) => {
                let contents: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                self.send(to, &contents, size)
            }
        }
    }

    /// Sends one datagram with `sendto`, which needs no control message.
    fn send_one(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send_to(datagram, to) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(|_| ()),
            }
        }
    }

    /// Receives as many datagrams as are likely to be queued; returns how many buffers were filled, and whether more may follow.
    pub(crate) fn receive_likely(&mut self, buffers: &mut SocketBuffers) -> (usize, ReceiveBacklog) {
        let asked = self.next_batch;
        // The error belongs to an earlier datagram (a peer's port is closed); the peer's timeout handles it.
        let filled = self.receive_up_to(asked, buffers).unwrap_or(0);
        // Long datagrams are received one by one: the data stays in the cache, and the sender gets its acknowledgement earlier.
        let is_long = buffers.meta[..filled].iter().any(|meta| meta.len > LONG_DATAGRAM_BYTES);
        // Only a second full receive in a row shows a queue: in a ping-pong every receive returns the one datagram that there is.
        let is_full = filled == asked;
        self.next_batch = match (is_full, self.was_full) {
            (true, true) if !is_long => (2 * asked).min(RECEIVE_BATCH),
            (true, false) if !is_long => asked,
            _ => 1,
        };
        self.was_full = is_full;
        let more = match filled {
            RECEIVE_BATCH => ReceiveBacklog::Likely,
            _ if filled == asked => ReceiveBacklog::Perhaps,
            _ => ReceiveBacklog::No,
        };
        (filled, more)
    }

    fn receive_up_to(&self, most: usize, buffers: &mut SocketBuffers) -> io::Result<usize> {
        if let Some(raw) = &self.raw {
            return self.receive_with_header(raw, most, buffers);
        }
        if most == 1 {
            return self.receive_one(BlockingMode::NonBlocking, buffers);
        }
        buffers.starts = [0; RECEIVE_BATCH];
        buffers.identifications = [None; RECEIVE_BATCH];
        let mut slices = buffers.bytes.each_mut().map(|bytes| io::IoSliceMut::new(bytes));
        match self.state.recv(UdpSockRef::from(&self.socket), &mut slices[..most], &mut buffers.meta) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// Receives one datagram with `recvmsg`: `recvmmsg` takes a tenth of a round trip more.
    pub(crate) fn receive_one(&self, blocking: BlockingMode, buffers: &mut SocketBuffers) -> io::Result<usize> {
        (buffers.starts[0], buffers.identifications[0]) = (0, None);
        let fd = self.socket.as_raw_fd();
        let mut slices = [io::IoSliceMut::new(&mut buffers.bytes[0])];
        let flags = match blocking {
            BlockingMode::NonBlocking => MsgFlags::MSG_DONTWAIT,
            BlockingMode::Blocking => MsgFlags::empty(),
        };
        let received = recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut buffers.control), flags);
        let received = match received {
            Err(Errno::EAGAIN) => return Ok(0),
            other => other?,
        };
        let joined = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
            _ => None,
        });
        let from = received.address.as_ref().and_then(address_of);
        let (length, meta) = (received.bytes, &mut buffers.meta[0]);
        // A datagram without a source address belongs to no peer.
        let Some(from) = from else { return Ok(0) };
        (meta.addr, meta.len, meta.stride) = (from, length, joined.unwrap_or(length));
        Ok(1)
    }

    fn receive_with_header(&self, raw: &Socket, most: usize, buffers: &mut SocketBuffers) -> io::Result<usize> {
        for index in 0..most {
            // A raw socket also receives datagrams for other ports of this address; skip them.
            let found = loop {
                let length = match (&mut &*raw).read(&mut buffers.bytes[index]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(index),
                    other => other?,
                };
                if let Some(found) = Ipv4Datagram::find(&buffers.bytes[index][..length], self.local) {
                    break found;
                }
            };
            buffers.starts[index] = found.start;
            buffers.identifications[index] = Some(found.identification);
            buffers.meta[index].addr = found.from;
            buffers.meta[index].len = found.length;
            buffers.meta[index].stride = found.length;
        }
        Ok(most)
    }

    /// The headers around a packet from this port, the `identification`-th of one call.
    pub(crate) fn outgoing(&self, to: SocketAddr, identification: u16) -> Flow {
        flow(self.local, to, identification)
    }

    /// True if the ICRC of a datagram is correct and covers at least as much as `weakest`.
    pub(crate) fn has_valid_icrc(
        &self,
        from: SocketAddr,
        datagram: &[u8],
        number: IpIdentification,
        weakest: IcrcCoverage,
    ) -> bool {
        let fits = |number| rocev2::verify_icrc_at_least(datagram, &self.incoming(from, number), weakest).is_ok();
        match number {
            IpIdentification::Seen(number) => fits(number),
            IpIdentification::Guess(position) => {
                fits(position.wrapping_add(self.first_number.load(Relaxed)))
                    || (from.is_ipv4() && self.find_number(position, fits))
            }
        }
    }

    /// Tries all numbers that a packet in a coalesced run may have, and remembers where the numbers of this run begin: the next packet
    /// needs one try.
    fn find_number(&self, position: u16, fits: impl Fn(u16) -> bool) -> bool {
        let number = (0..MAX_COALESCED).find(|number| fits(*number));
        if let Some(number) = number {
            self.first_number.store(number.wrapping_sub(position), Relaxed);
        }
        number.is_some()
    }

    /// The headers around a packet to this port.
    fn incoming(&self, from: SocketAddr, identification: u16) -> Flow {
        flow(from, self.local, identification)
    }
}

/// The IPv4 identification of a datagram, which its ICRC covers.
#[derive(Clone, Copy)]
pub(crate) enum IpIdentification {
    Seen(u16),
    /// The kernel numbers the packets of one call from zero (see `send_batch`) and coalesces them in the same order: most
    /// likely this number, otherwise one of the first few.
    Guess(u16),
}

/// Identifications that a coalesced packet may have had, see [`UdpPort::incoming`].
const MAX_COALESCED: u16 = 64;

/// Whether a receive call waits for a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockingMode {
    NonBlocking,
    /// Up to the timeout of the socket.
    Blocking,
}

/// Whether more datagrams are queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceiveBacklog {
    No,
    /// The call returned as many as were asked for, which were few: the rest can wait until these are handled.
    Perhaps,
    Likely,
}

/// The buffers of one receive call.
pub(crate) struct SocketBuffers {
    pub bytes: [Vec<u8>; RECEIVE_BATCH],
    pub meta: [RecvMeta; RECEIVE_BATCH],
    /// The offset of the datagram in its buffer.
    pub starts: [usize; RECEIVE_BATCH],
    /// The IPv4 identification, where the header is visible.
    pub identifications: [Option<u16>; RECEIVE_BATCH],
    /// Control messages.
    control: [u8; CONTROL_BYTES],
}

impl SocketBuffers {
    /// The datagrams of one filled buffer, each with its sender and its identification.
    pub(crate) fn datagrams(&self, index: usize) -> impl Iterator<Item = (SocketAddr, &[u8], IpIdentification)> {
        let (from, bytes) = (self.meta[index].addr, &self.bytes[index]);
        self.spans(index).map(move |span| (from, &bytes[span.bytes], span.number))
    }

    /// The positions of those datagrams.
    pub(crate) fn spans(&self, index: usize) -> impl Iterator<Item = DatagramSpan> + use<> {
        let (start, end) = (self.starts[index], self.starts[index] + self.meta[index].len);
        let (stride, seen) = (self.meta[index].stride.max(1), self.identifications[index]);
        (start..end).step_by(stride).enumerate().map(move |(position, from)| {
            let number = seen.map_or(IpIdentification::Guess(position as u16), IpIdentification::Seen);
            DatagramSpan { bytes: from..end.min(from + stride), number, is_last: from + stride >= end }
        })
    }
}

/// The position of a datagram in a filled buffer.
pub(crate) struct DatagramSpan {
    pub bytes: Range<usize>,
    pub number: IpIdentification,
    /// No further datagram follows in the buffer.
    pub is_last: bool,
}

impl Default for SocketBuffers {
    fn default() -> Self {
        let bytes = std::array::from_fn(|_| vec![0; RECEIVE_BUFFER_BYTES]);
        Self {
            bytes,
            meta: [RecvMeta::default(); RECEIVE_BATCH],
            starts: [0; RECEIVE_BATCH],
            identifications: [None; RECEIVE_BATCH],
            control: [0; CONTROL_BYTES],
        }
    }
}

/// Prepares a socket for batched datagrams. Turns off the other control messages: they are not used and cost a tenth of the
/// time of a receive.
pub(super) fn configure_socket(socket: &UdpSocket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(UdpSockRef::from(socket))?;
    if socket.local_addr()?.is_ipv4() {
        setsockopt(socket, Ipv4PacketInfo, &false)?;
        setsockopt(socket, IpRecvTos, &false)?;
    } else {
        setsockopt(socket, Ipv6RecvPacketInfo, &false)?;
        setsockopt(socket, Ipv6RecvTClass, &false)?;
    }
    Ok(state)
}

fn address_of(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let four = storage.as_sockaddr_in().map(|four| SocketAddr::V4((*four).into()));
    four.or_else(|| storage.as_sockaddr_in6().map(|six| SocketAddr::V6((*six).into())))
}

fn open_raw(local: SocketAddr) -> io::Result<Socket> {
    let opened = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
    let socket = opened.map_err(|error| {
        let why = "packets of a verbs peer over IPv4 can only be verified with their IP header";
        io::Error::new(error.kind(), format!("{why}, which requires raw sockets (run with CAP_NET_RAW): {error}"))
    })?;
    socket.bind(&SocketAddr::new(local.ip(), 0).into())?;
    socket.set_nonblocking(true)?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    Ok(socket)
}

/// A UDP datagram in an IPv4 packet.
struct Ipv4Datagram {
    from: SocketAddr,
    identification: u16,
    start: usize,
    length: usize,
}

impl Ipv4Datagram {
    /// The datagram for `local` in an IPv4 packet; none if the packet carries no such datagram.
    fn find(packet: &[u8], local: SocketAddr) -> Option<Self> {
        let word = |at: usize| packet.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let header = usize::from(packet.first()? & 0xf) * 4;
        let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
        let (from, to, length) = (word(header)?, word(header + 2)?, usize::from(word(header + 4)?));
        let start = header + 8;
        let sound = packet[0] >> 4 == 4 && header >= 20 && to == local.port();
        let length = length.checked_sub(8).filter(|length| sound && start + length <= packet.len())?;
        Some(Self { from: SocketAddr::new(source.into(), from), identification: word(4)?, start, length })
    }
}

/// The sockets forbid fragmentation and are not connected. Linux then sets the identification to zero, and numbers the
/// datagrams of one call from zero.
fn flow(from: SocketAddr, to: SocketAddr, identification: u16) -> Flow {
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            IpHeader::V4 { source, destination, identification, fragmentation: Fragmentation::Forbidden }
        }
        (source, destination) => IpHeader::V6 { source: to_ipv6(source), destination: to_ipv6(destination) },
    };
    Flow { ip, source_port: from.port(), destination_port: to.port() }
}

fn to_ipv6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver's kernel may join fewer packets than the sender's kernel numbered: the second run then begins at a later number.
    #[test]
    fn the_number_with_which_a_run_begins_is_found_once() {
        let port = UdpPort::open("127.0.0.1:0".parse().expect("an address"), ReceiveMode::Plain).expect("a port");
        let tries = std::cell::Cell::new(0);
        let is_valid = |position: u16, real: u16| {
            tries.set(0);
            let fits = |number: u16| {
                tries.set(tries.get() + 1);
                number == real
            };
            let likely = position.wrapping_add(port.first_number.load(Relaxed));
            (fits(likely) || port.find_number(position, fits), tries.get())
        };
        assert_eq!(is_valid(0, 17), (true, 19), "one likely number, and all up to the right one");
        for position in 1..17 {
            assert_eq!(is_valid(position, 17 + position), (true, 1), "packet {position} of the run");
        }
        assert_eq!(is_valid(0, 0), (true, 2), "the next call of the sender");
        assert_eq!(is_valid(1, 1), (true, 1));
        assert_eq!(is_valid(1, 1_000), (false, 65), "a damaged packet has no number");
    }

    #[test]
    fn a_raw_packet_parses_as_a_datagram_or_is_rejected() {
        let local: SocketAddr = "10.0.0.2:4791".parse().expect("an address");
        let mut packet = vec![0x45, 0, 0, 33, 0xab, 0xcd, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([0xc0, 0x01, 0x12, 0xb7, 0, 13, 0, 0, 1, 2, 3, 4, 5]);
        let found = Ipv4Datagram::find(&packet, local).expect("it is one");
        assert_eq!(found.from.to_string(), "10.0.0.1:49153");
        assert_eq!((found.identification, &packet[found.start..][..found.length]), (0xabcd, &[1, 2, 3, 4, 5][..]));
        for length in 0..packet.len() {
            assert!(Ipv4Datagram::find(&packet[..length], local).is_none(), "cut at {length}");
        }
        for byte in 0..packet.len() {
            for bit in 0..8 {
                let mut changed = packet.clone();
                changed[byte] ^= 1 << bit;
                let _ = Ipv4Datagram::find(&changed, local); // Never panics.
            }
        }
    }
}
