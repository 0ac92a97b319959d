//! The contents of a packet, and its bytes on the wire.
//!
//! Packets travel as values, not as bytes, because nothing reads the bytes of an intact packet. When a fault rule corrupts a
//! packet, its frame is serialised, corrupted, and checked by the code that a real receiver runs (`wire::link_frame`). So an
//! error that the real check misses is missed here too.

use protocol::Payload;
use protocol::aggregation::{AggregationMessage, EdgeIndex};
use protocol::connection::{Frame, FramePath, control_headers};
use protocol::datagram::MULTICAST_QP;
use units::{Lid, PathId, QpNumber};
use wire::aggregation::AggregationHeader;
use wire::link_frame::{self, LinkFrame};
use wire::{Bth, Lrh, Opcode, Packet, PacketHeaders, ServiceLevel, VirtualLane};

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
    /// A packet of a queue pair.
    Transport {
        /// The number of the receiving end.
        to: u32,
        /// The connection's path.
        path: PathId,
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
            Self::Edge { .. } | Self::Transport { .. } => PacketPhase::Control,
        }
    }

    fn message(&self) -> Option<&AggregationMessage> {
        match self {
            Self::Multicast { message, .. } | Self::Edge { frame: Frame::Data { message, .. }, .. } => Some(message),
            Self::Edge { .. } | Self::Transport { .. } => None,
        }
    }

    /// Bytes of payload: the packet's size when framing is not simulated (SE-11's 256 B).
    pub(crate) fn payload_bytes(&self) -> u32 {
        match self {
            Self::Transport { payload, .. } => payload.len() as u32,
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
            Self::Transport { headers, payload, .. } => {
                return (link_frame::OVERHEAD + headers.size() + payload.len().next_multiple_of(4)) as u32;
            }
        };
        let payload = self.payload_bytes().next_multiple_of(4) + AggregationHeader::SIZE as u32;
        (link_frame::OVERHEAD + Bth::SIZE) as u32 + extended + payload
    }

    /// The frame's bytes on the wire.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        if let Self::Transport { headers, payload, .. } = self {
            return link_frame(*headers, payload);
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
            Self::Transport { .. } => unreachable!("returned above"),
        };
        link_frame(headers, &message)
    }

    /// Parses a frame that passed every check although it is corrupted: the body that the machine gets.
    pub(crate) fn reread(&self, bytes: &[u8]) -> Option<Self> {
        let frame = LinkFrame::parse(bytes).ok()?;
        let reread = |old: &AggregationMessage| {
            let header = AggregationHeader::parse(frame.packet.payload).ok()?;
            let (code, payload) = frame.packet.payload.get(AggregationHeader::SIZE - 4..)?.split_first_chunk()?;
            let payload = match old.payload {
                Payload::Bytes(_) => payload.to_vec().into(),
                Payload::SizeOnly { .. } => old.payload.clone(),
            };
            Some(AggregationMessage { header, payload, checksum: u32::from_be_bytes(*code) })
        };
        match self {
            Self::Multicast { root, message } => Some(Self::Multicast { root: *root, message: reread(message)? }),
            Self::Edge { to, frame_path, frame: Frame::Data { wants_ack, message, .. } } => {
                let (psn, message) = (frame.packet.headers.bth.psn, reread(message)?);
                Some(Self::Edge {
                    to: *to,
                    frame_path: *frame_path,
                    frame: Frame::Data { psn, wants_ack: *wants_ack, message },
                })
            }
            Self::Transport { path, .. } => {
                let Packet { headers, payload } = frame.packet;
                let to = headers.bth.destination.0;
                Some(Self::Transport { to, path: *path, headers, payload: payload.into() })
            }
            other => Some(other.clone()),
        }
    }
}

fn link_frame(headers: PacketHeaders, payload: &[u8]) -> Vec<u8> {
    let lrh = Lrh::new(Lid(1), Lid(2), ServiceLevel(0), VirtualLane(0));
    let mut bytes = Vec::new();
    LinkFrame::new(lrh, None, Packet::new(headers, payload)).append_to(&mut bytes);
    bytes
}
