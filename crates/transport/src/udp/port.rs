//! A port: one socket at one local address, in and out.

use std::io::{self, IoSlice, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{IpRecvTos, Ipv4PacketInfo, Ipv6RecvPacketInfo, Ipv6RecvTClass};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};
use quinn_udp::{RecvMeta, Transmit as Datagrams, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader};

/// One of an endpoint's ports, in the order in which they were given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UdpPortIndex(pub u8);

impl UdpPortIndex {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a socket should hold while its process is busy.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// Datagrams that one receive may bring, each perhaps several that the kernel joined.
pub(crate) const RECEIVE_BATCH: usize = 8;
/// So many bytes that the kernel joined are much.
const LONG_DATAGRAM_BYTES: usize = 1 << 14;
/// Room for each: as much as a datagram, or several that the kernel joined, may have.
pub const RECEIVE_BUFFER_BYTES: usize = 1 << 16;

/// Room for what the kernel tells beside a datagram: how many it joined.
const CONTROL_BYTES: usize = 128;

/// How a port receives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ReceiveMode {
    /// As any UDP socket does. The IP header is not seen, so the IPv4 identification, which the ICRC covers, must be
    /// what an end of ours makes it.
    #[default]
    Plain,
    /// With the IP header, as verbs peers over IPv4 need, whose identifications count. Takes the right to open raw
    /// sockets (CAP_NET_RAW).
    WithHeader,
}

pub(crate) struct UdpPort {
    pub socket: UdpSocket,
    /// Receives in place of the socket, which only keeps the address taken.
    raw: Option<Socket>,
    state: UdpSocketState,
    pub local: SocketAddr,
    /// The kernel says that its address is there and its link up.
    pub is_up: bool,
    /// Cut by hand: what is sent is lost.
    pub is_cut: bool,
    /// Turns in a row in which nothing came.
    pub silence: u16,
    /// Datagrams that the next receive asks for: one that comes alone need not wait until the kernel has found no other.
    appetite: usize,
}

impl UdpPort {
    pub(crate) fn open(local: SocketAddr, reception: ReceiveMode) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&local.into())?;
        // What is sent to a group leaves by this port's own link, and is heard by others of this host too.
        if let IpAddr::V4(address) = local.ip()
            && !address.is_unspecified()
        {
            socket.set_multicast_if_v4(&address)?;
        }
        // The kernel gives what its limits allow; a smaller buffer only makes losses likelier.
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
        let socket = UdpSocket::from(socket);
        let state = state_of(&socket)?;
        let local = socket.local_addr()?;
        let raw = match reception {
            ReceiveMode::WithHeader if local.is_ipv4() => Some(open_raw(local)?),
            _ => None,
        };
        Ok(Self { socket, raw, state, local, is_up: true, is_cut: false, silence: 0, appetite: 1 })
    }

    /// A port that hears what is sent to a group on the link of `interface`.
    pub(crate) fn join(group: SocketAddr, interface: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
        // Every process of a host may listen to a group.
        socket.set_reuse_address(true)?;
        socket.bind(&group.into())?;
        match (group.ip(), interface.ip()) {
            (IpAddr::V4(group), IpAddr::V4(interface)) => socket.join_multicast_v4(&group, &interface)?,
            (IpAddr::V6(group), IpAddr::V6(_)) => {
                let SocketAddr::V6(scoped) = interface else { unreachable!("its address is IPv6") };
                socket.join_multicast_v6(&group, scoped.scope_id())?;
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "a group of the other IP version")),
        }
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        let socket = UdpSocket::from(socket);
        let state = state_of(&socket)?;
        Ok(Self { socket, raw: None, state, local: group, is_up: true, is_cut: false, silence: 0, appetite: 1 })
    }

    /// What to wait on.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_ref().map_or_else(|| self.socket.as_fd(), AsFd::as_fd)
    }

    /// Most datagrams of one size that one call can send.
    pub(crate) fn segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends datagrams of `size` bytes each, the last perhaps shorter.
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

    /// The same for datagrams that lie in pieces, `length` bytes in all.
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
            // A link that does not cut what it is given, say: the other way to send knows what to do then.
            Err(_) => {
                let contents: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                self.send(to, &contents, size)
            }
        }
    }

    /// Sends one, by the call that is made for it: there is nothing to say beside it.
    fn send_one(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send_to(datagram, to) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(|_| ()),
            }
        }
    }

    /// Receives into the buffers; how many were filled.
    pub(crate) fn receive(&self, buffers: &mut SocketBuffers) -> io::Result<usize> {
        self.receive_up_to(RECEIVE_BATCH, buffers)
    }

    /// Receives as much as is likely to be there; how many buffers were filled, and whether there may be more.
    pub(crate) fn receive_likely(&mut self, buffers: &mut SocketBuffers) -> (usize, ReceiveBacklog) {
        let asked = self.appetite;
        // An error is that of an earlier datagram (a peer's port is closed): silence will tell.
        let filled = self.receive_up_to(asked, buffers).unwrap_or(0);
        // Long ones are dealt with one by one: what is read stays in the cache, and its sender hears of it earlier.
        let is_long = buffers.meta[..filled].iter().any(|meta| meta.len > LONG_DATAGRAM_BYTES);
        self.appetite = if filled < asked || is_long { 1 } else { (2 * asked).min(RECEIVE_BATCH) };
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
            return self.receive_one(BlockingMode::None, buffers);
        }
        buffers.starts = [0; RECEIVE_BATCH];
        buffers.identifications = [None; RECEIVE_BATCH];
        let mut slices = buffers.bytes.each_mut().map(|bytes| io::IoSliceMut::new(bytes));
        match self.state.recv(UdpSockRef::from(&self.socket), &mut slices[..most], &mut buffers.meta) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// Receives one, by the call that is made for it: that of several takes a tenth of a round trip more.
    pub(crate) fn receive_one(&self, patience: BlockingMode, buffers: &mut SocketBuffers) -> io::Result<usize> {
        (buffers.starts[0], buffers.identifications[0]) = (0, None);
        let fd = self.socket.as_raw_fd();
        let mut slices = [io::IoSliceMut::new(&mut buffers.bytes[0])];
        let flags = match patience {
            BlockingMode::None => MsgFlags::MSG_DONTWAIT,
            BlockingMode::Some => MsgFlags::empty(),
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
        // Whoever sends without an address is nobody that is known.
        let Some(from) = from else { return Ok(0) };
        (meta.addr, meta.len, meta.stride) = (from, length, joined.unwrap_or(length));
        Ok(1)
    }

    fn receive_with_header(&self, raw: &Socket, most: usize, buffers: &mut SocketBuffers) -> io::Result<usize> {
        for index in 0..most {
            // Not ours: datagrams for other ports of this address come by here too.
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

    /// The headers around a packet from here, the `identification`-th of those that one call sends.
    pub(crate) fn outgoing(&self, to: SocketAddr, identification: u16) -> Flow {
        flow(self.local, to, identification)
    }

    /// True if a datagram's ICRC fits.
    pub(crate) fn is_sound(&self, from: SocketAddr, datagram: &[u8], number: IpIdentification) -> bool {
        let fits = |number| rocev2::verify_icrc(datagram, &self.incoming(from, number)).is_ok();
        match number {
            IpIdentification::Seen(number) => fits(number),
            IpIdentification::Guess(position) => fits(position) || (from.is_ipv4() && (0..MAX_COALESCED).any(fits)),
        }
    }

    /// The headers around a packet to here.
    fn incoming(&self, from: SocketAddr, identification: u16) -> Flow {
        flow(from, self.local, identification)
    }
}

/// The IPv4 identification of a datagram, which its ICRC covers.
#[derive(Clone, Copy)]
pub(crate) enum IpIdentification {
    Seen(u16),
    /// Packets that were sent in one call are numbered from zero, see `batch`, and the kernel joins them again in the same
    /// order: most likely this one, otherwise one of the first few.
    Guess(u16),
}

/// Identifications that a joined packet may have had, see [`UdpPort::incoming`].
const MAX_COALESCED: u16 = 64;

/// Whether to wait for a datagram if none is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockingMode {
    None,
    /// As long as the socket says.
    Some,
}

/// Whether there is more to receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceiveBacklog {
    No,
    /// As many came as were asked for, which were not many: it can wait until these are dealt with.
    Perhaps,
    Likely,
}

/// Room for what one receive brings.
pub(crate) struct SocketBuffers {
    pub bytes: [Vec<u8>; RECEIVE_BATCH],
    pub meta: [RecvMeta; RECEIVE_BATCH],
    /// Where in the bytes the datagram begins.
    pub starts: [usize; RECEIVE_BATCH],
    /// The IPv4 identification, where it is seen.
    pub identifications: [Option<u16>; RECEIVE_BATCH],
    /// What the kernel tells of a datagram beside it.
    control: [u8; CONTROL_BYTES],
}

impl SocketBuffers {
    /// The datagrams of one filled buffer, each with its sender and what is known of its number.
    pub(crate) fn datagrams(&self, index: usize) -> impl Iterator<Item = (SocketAddr, &[u8], IpIdentification)> {
        let (from, bytes) = (self.meta[index].addr, &self.bytes[index]);
        self.places(index).map(move |place| (from, &bytes[place.bytes], place.number))
    }

    /// Where they lie.
    pub(crate) fn places(&self, index: usize) -> impl Iterator<Item = DatagramSpan> + use<> {
        let (start, end) = (self.starts[index], self.starts[index] + self.meta[index].len);
        let (stride, seen) = (self.meta[index].stride.max(1), self.identifications[index]);
        (start..end).step_by(stride).enumerate().map(move |(position, from)| {
            let number = seen.map_or(IpIdentification::Guess(position as u16), IpIdentification::Seen);
            DatagramSpan { bytes: from..end.min(from + stride), number, is_last: from + stride >= end }
        })
    }
}

/// Where a datagram lies in a filled buffer.
pub(crate) struct DatagramSpan {
    pub bytes: Range<usize>,
    pub number: IpIdentification,
    /// None lies behind it.
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

/// Makes a socket ready for datagrams in batches. What else the kernel would tell with each datagram nobody wants to know, and
/// it takes a tenth of the time of receiving one.
fn state_of(socket: &UdpSocket) -> io::Result<UdpSocketState> {
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
        let why = "to check the packets of a verbs peer over IPv4, their IP headers must be seen";
        io::Error::new(
            error.kind(),
            format!("{why}, and that takes the right to open raw sockets (CAP_NET_RAW): {error}"),
        )
    })?;
    socket.bind(&SocketAddr::new(local.ip(), 0).into())?;
    socket.set_nonblocking(true)?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    Ok(socket)
}

/// A UDP datagram within an IPv4 packet.
struct Ipv4Datagram {
    from: SocketAddr,
    identification: u16,
    start: usize,
    length: usize,
}

impl Ipv4Datagram {
    /// The datagram for `local`, if the bytes are one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_comes_by_a_raw_socket_is_a_datagram_or_is_not() {
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
