//! The contents of a packet, and its bytes on the wire.
//!
//! Packets travel as values, not as bytes, because nothing reads the bytes of an intact packet. When a fault rule corrupts a
//! packet, its frame is serialised, corrupted, and checked by the code that a real receiver runs (`wire::link_frame`,
//! `wire::rocev2`). So an error that the real check misses is missed here too.

use std::net::Ipv4Addr;

use protocol::Payload;
use protocol::aggregation::{AggregationMessage, EdgeIndex};
use protocol::connection::{Frame, FramePath, control_headers};
use protocol::datagram::MULTICAST_QP;
use units::{Lid, PathId, QpNumber};
use wire::aggregation::AggregationHeader;
use wire::link_frame::{self, LinkFrame};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader};
use wire::{Bth, IcrcCoverage, Lrh, Opcode, Packet, PacketHeaders, ServiceLevel, VirtualLane};

use crate::flows::FlowPacket;
use crate::segmented::MessagePart;

/// The index of a state machine in a collective: the nodes of the tree first, then the members by rank.
pub(crate) type ParticipantIndex = u32;

/// The position of a root among the roots of the tree.
pub(crate) type RootIndex = u32;

/// One end of a tree edge: an edge of a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EdgeEnd {
    pub participant: ParticipantIndex,
    pub edge: EdgeIndex,
}

/// How packets of queue pairs lie on a link, and so which check the receiver runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketFraming {
    /// As InfiniBand link frames.
    InfiniBand,
    /// As UDP datagrams. The link header stands for those of Ethernet, IP and UDP. The ends have agreed that the ICRC may
    /// cover as little as `weakest` (P-28).
    Udp {
        /// The least that an ICRC covers.
        weakest: IcrcCoverage,
    },
}

impl PacketFraming {
    /// What the ICRC of a long packet covers.
    pub(crate) fn coverage(self) -> IcrcCoverage {
        match self {
            Self::InfiniBand => IcrcCoverage::Full,
            Self::Udp { weakest } => weakest,
        }
    }

    /// The frame of a packet.
    fn frame(self, headers: PacketHeaders, payload: &[u8]) -> Vec<u8> {
        let mut bytes = link_frame(headers, payload);
        if let Self::Udp { .. } = self {
            let place = datagram_range(&bytes);
            rocev2::emit(&Packet::new(headers, payload), &FLOW, &mut bytes[place]);
            link_frame::rewrite_vcrc(&mut bytes).expect("a written frame is long enough");
        }
        bytes
    }

    /// True if the receiver's transport layer accepts the frame.
    fn verifies(self, frame: &[u8]) -> bool {
        match self {
            Self::InfiniBand => link_frame::verify_icrc(frame).is_ok(),
            Self::Udp { weakest } => {
                rocev2::verify_icrc_at_least(&frame[datagram_range(frame)], &FLOW, weakest).is_ok()
            }
        }
    }

    fn parse(self, frame: &[u8]) -> Option<Packet<'_>> {
        match self {
            Self::InfiniBand => LinkFrame::parse(frame).ok().map(|frame| frame.packet),
            Self::Udp { weakest } => rocev2::parse_at_least(&frame[datagram_range(frame)], weakest).ok(),
        }
    }
}

/// The addresses of a simulated datagram: the fabric routes packets by other means.
const FLOW: Flow = Flow {
    ip: IpHeader::V4 {
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        identification: 0,
        fragmentation: Fragmentation::Forbidden,
    },
    source_port: 40_000,
    destination_port: 40_000,
};

/// Where a datagram lies in a frame: between the link header and the VCRC.
fn datagram_range(frame: &[u8]) -> std::ops::Range<usize> {
    const VCRC_BYTES: usize = 2;
    Lrh::SIZE..frame.len() - VCRC_BYTES
}

/// A packet's contents.
#[derive(Clone, Debug)]
pub(crate) enum PacketBody {
    /// A frame of a connection between two neighbours in a tree; `to` stands for the queue pair's number.
    Edge {
        /// The edge of the receiver.
        to: EdgeEnd,
        /// The path, and the path fields of the header.
        frame_path: FramePath,
        /// The frame.
        frame: Frame<AggregationMessage>,
    },
    /// A result on its way down the tree.
    Multicast {
        /// The root from which it comes.
        root: RootIndex,
        /// The result.
        message: AggregationMessage,
    },
    /// A frame of a connection between two hosts ([`crate::segmented`]). The bytes of messages stay with their driver.
    Host {
        /// The number of the receiving end.
        to: u32,
        /// The route that the sender uses.
        route: PathId,
        /// The frame.
        frame: Frame<MessagePart>,
    },
    /// A packet of a flow ([`crate::flows`]).
    Flow(FlowPacket),
    /// A packet of a queue pair.
    Transport {
        /// The number of the receiving end.
        to: u32,
        /// The connection's path.
        path: PathId,
        /// How it lies on the link.
        framing: PacketFraming,
        /// The headers.
        headers: PacketHeaders,
        /// The payload.
        payload: Box<[u8]>,
    },
}

/// The phase of a collective to which a packet belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketPhase {
    /// A contribution on its way up.
    Reduce,
    /// A result on its way down.
    Broadcast,
    /// An acknowledgement, a NAK, a request; also background traffic.
    Control,
}

impl PacketBody {
    pub(crate) fn phase(&self) -> PacketPhase {
        use wire::aggregation::AggregationMessageKind;
        match self {
            Self::Multicast { .. } => PacketPhase::Broadcast,
            Self::Edge { frame: Frame::Data { message, .. }, .. } => match message.header.kind {
                AggregationMessageKind::Contribution => PacketPhase::Reduce,
                AggregationMessageKind::Result => PacketPhase::Broadcast,
                AggregationMessageKind::Repair
                | AggregationMessageKind::Abort
                | AggregationMessageKind::Poll
                | AggregationMessageKind::NotEntered => PacketPhase::Control,
            },
            Self::Edge { .. } | Self::Host { .. } | Self::Flow(_) | Self::Transport { .. } => PacketPhase::Control,
        }
    }

    fn message(&self) -> Option<&AggregationMessage> {
        match self {
            Self::Multicast { message, .. } | Self::Edge { frame: Frame::Data { message, .. }, .. } => Some(message),
            Self::Edge { .. } | Self::Host { .. } | Self::Flow(_) | Self::Transport { .. } => None,
        }
    }

    /// Bytes of payload: the packet's size when framing is not simulated (SE-11's 256 B).
    pub(crate) fn payload_bytes(&self) -> u32 {
        match self {
            Self::Transport { payload, .. } => payload.len() as u32,
            Self::Host { frame: Frame::Data { message, .. }, .. } => message.bytes,
            Self::Flow(packet) => packet.payload_bytes(),
            _ => self.message().map_or(0, |message| message.payload.len()),
        }
    }

    /// Bytes on the wire with all headers and CRCs.
    pub(crate) fn framed_bytes(&self) -> u32 {
        let extended = match self {
            Self::Edge { frame: Frame::Data { .. }, .. } => 0,
            Self::Edge { frame_path, frame, .. } => {
                let headers = control_headers(frame, QpNumber(1), frame_path.migration, 0)
                    .expect("a control frame has headers");
                return (link_frame::OVERHEAD + headers.size()) as u32;
            }
            Self::Multicast { .. } => wire::Deth::SIZE as u32,
            Self::Host { frame: Frame::Data { message, .. }, .. } => {
                return (link_frame::OVERHEAD + Bth::SIZE) as u32 + message.bytes.next_multiple_of(4);
            }
            Self::Host { frame, .. } => return (link_frame::OVERHEAD + host_headers(frame).size()) as u32,
            Self::Flow(packet) => {
                return (link_frame::OVERHEAD + Bth::SIZE) as u32 + packet.payload_bytes().next_multiple_of(4);
            }
            Self::Transport { headers, payload, .. } => {
                return (link_frame::OVERHEAD + headers.size() + payload.len().next_multiple_of(4)) as u32;
            }
        };
        let payload = self.payload_bytes().next_multiple_of(4) + AggregationHeader::SIZE as u32;
        (link_frame::OVERHEAD + Bth::SIZE) as u32 + extended + payload
    }

    /// The frame's bytes on the wire.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        if let Self::Transport { framing, headers, payload, .. } = self {
            return framing.frame(*headers, payload);
        }
        if let Self::Host { frame, .. } = self {
            return link_frame(host_headers(frame), &vec![0; self.payload_bytes() as usize]);
        }
        if let Self::Flow(packet) = self {
            let bth = Bth::new(Opcode::SendOnly, QpNumber(1), units::Psn::new(packet.sequence()));
            return link_frame(bth.into(), &vec![0; self.payload_bytes() as usize]);
        }
        let mut message = Vec::new();
        if let Some(AggregationMessage { header, payload, .. }) = self.message() {
            match payload {
                Payload::Bytes(bytes) => header.append_to(bytes, &mut message),
                Payload::SizeOnly { bytes } => header.append_to(&vec![0; *bytes as usize], &mut message),
            }
        }
        let headers = match self {
            Self::Edge { frame: Frame::Data { psn, .. }, .. } => Bth::new(Opcode::SendOnly, QpNumber(1), *psn).into(),
            Self::Edge { frame_path, frame, .. } => {
                control_headers(frame, QpNumber(1), frame_path.migration, 0).expect("a control frame has headers")
            }
            Self::Multicast { .. } => {
                let bth = Bth::new(Opcode::DatagramSendOnly, MULTICAST_QP, units::Psn::new(0));
                let deth = wire::Deth { key: wire::QueueKey(0), source: QpNumber(1) };
                PacketHeaders { deth: Some(deth), ..bth.into() }
            }
            Self::Host { .. } | Self::Flow(_) | Self::Transport { .. } => unreachable!("returned above"),
        };
        link_frame(headers, &message)
    }

    fn framing(&self) -> PacketFraming {
        match self {
            Self::Transport { framing, .. } => *framing,
            Self::Edge { .. } | Self::Multicast { .. } | Self::Host { .. } | Self::Flow(_) => {
                PacketFraming::InfiniBand
            }
        }
    }

    /// True if the receiver's transport layer accepts the frame of this body.
    pub(crate) fn verifies(&self, frame: &[u8]) -> bool {
        self.framing().verifies(frame)
    }

    /// Parses a frame that passed every check although it is corrupted: the body that the machine gets.
    pub(crate) fn reread(&self, bytes: &[u8]) -> Option<Self> {
        let packet = self.framing().parse(bytes)?;
        let reread = |old: &AggregationMessage| {
            let header = AggregationHeader::parse(packet.payload).ok()?;
            let (code, payload) = packet.payload.get(AggregationHeader::SIZE - 4..)?.split_first_chunk()?;
            let payload = match old.payload {
                Payload::Bytes(_) => payload.to_vec().into(),
                Payload::SizeOnly { .. } => old.payload.clone(),
            };
            Some(AggregationMessage { header, payload, checksum: u32::from_be_bytes(*code) })
        };
        match self {
            Self::Multicast { root, message } => Some(Self::Multicast { root: *root, message: reread(message)? }),
            Self::Edge { to, frame_path, frame: Frame::Data { wants_ack, message, .. } } => {
                let (psn, message) = (packet.headers.bth.psn, reread(message)?);
                Some(Self::Edge {
                    to: *to,
                    frame_path: *frame_path,
                    frame: Frame::Data { psn, wants_ack: *wants_ack, message },
                })
            }
            Self::Transport { path, framing, .. } => {
                let Packet { headers, payload } = packet;
                let to = headers.bth.destination.0;
                Some(Self::Transport { to, path: *path, framing: *framing, headers, payload: payload.into() })
            }
            other => Some(other.clone()),
        }
    }
}

/// The headers of a frame between two hosts.
fn host_headers(frame: &Frame<MessagePart>) -> PacketHeaders {
    match frame {
        Frame::Data { psn, .. } => Bth::new(Opcode::SendOnly, QpNumber(1), *psn).into(),
        control => {
            let migration = protocol::connection::MigrationBit::Migrated;
            control_headers(control, QpNumber(1), migration, 0).expect("a control frame has headers")
        }
    }
}

fn link_frame(headers: PacketHeaders, payload: &[u8]) -> Vec<u8> {
    let lrh = Lrh::new(Lid(1), Lid(2), ServiceLevel(0), VirtualLane(0));
    let mut bytes = Vec::new();
    LinkFrame::new(lrh, None, Packet::new(headers, payload)).append_to(&mut bytes);
    bytes
}
