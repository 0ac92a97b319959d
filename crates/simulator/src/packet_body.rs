//! What the machines put into a packet, and the bytes it would be.
//!
//! Packets travel as meaning, not as bytes: nobody looks at the bytes of a packet to which nothing happens. When
//! something does, the frame is written out, hurt, and checked by the same code that a real receiver runs
//! (`wire::link_frame`), so that a check which does not detect would not detect here either.

use protocol::Payload;
use protocol::aggregation::AggregationMessage;
use protocol::connection::{Frame, FramePath, control_headers};
use units::{Lid, PathId, QpNumber};
use wire::aggregation::AggregationHeader;
use wire::link_frame::{self, LinkFrame};
use wire::{Bth, Lrh, Opcode, Packet, PacketHeaders, ServiceLevel, VirtualLane};

use crate::collective::{EdgeEnd, RootIndex};

/// A packet's contents.
#[derive(Clone, Debug)]
pub(crate) enum PacketBody {
    /// A frame of a connection between two neighbours in a tree; the edge is what a queue pair's number says.
    Edge {
        /// Which edge of the receiver.
        to: EdgeEnd,
        /// By which path, and what the header says of it.
        came: FramePath,
        /// The frame.
        frame: Frame<AggregationMessage>,
    },
    /// A result on its way down.
    Multicast {
        /// Down from this root.
        root: RootIndex,
        /// The result.
        message: AggregationMessage,
    },
    /// A packet of a queue pair.
    Transport {
        /// Which end of the exchange it is for.
        to: u32,
        /// By which of the connection's paths.
        path: PathId,
        /// Its headers.
        headers: PacketHeaders,
        /// Its bytes.
        payload: Box<[u8]>,
    },
}

/// Which part of a collective a packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketPhase {
    /// A contribution on its way up.
    Reduce,
    /// A result on its way down.
    Broadcast,
    /// An acknowledgement, a NAK, a request; or background traffic.
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
                | AggregationMessageKind::Test
                | AggregationMessageKind::Late => PacketPhase::Control,
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

    /// Bytes of payload, which is all that counts when framing is left out (SE-11's 256 B).
    pub(crate) fn payload_bytes(&self) -> u32 {
        match self {
            Self::Transport { payload, .. } => payload.len() as u32,
            _ => self.message().map_or(0, |message| message.payload.len()),
        }
    }

    /// Bytes on the wire with all headers and codes.
    pub(crate) fn framed_bytes(&self) -> u32 {
        let extended = match self {
            Self::Edge { frame: Frame::Data { .. }, .. } => 0,
            Self::Edge { came, frame, .. } => {
                let headers = control_headers(frame, QpNumber(1), came.migration, 0).expect("it is not data");
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

    /// The frame as it stands on the wire.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        if let Self::Transport { headers, payload, .. } = self {
            return link_frame(*headers, payload);
        }
        let mut message = Vec::new();
        if let Some(AggregationMessage { header, payload, .. }) = self.message() {
            match payload {
                Payload::Bytes(bytes) => header.append_to(bytes, &mut message),
                Payload::Absent { bytes } => header.append_to(&vec![0; *bytes as usize], &mut message),
            }
        }
        let headers = match self {
            Self::Edge { frame: Frame::Data { psn, .. }, .. } => Bth::new(Opcode::SendOnly, QpNumber(1), *psn).into(),
            Self::Edge { came, frame, .. } => {
                control_headers(frame, QpNumber(1), came.migration, 0).expect("it is not data")
            }
            Self::Multicast { .. } => {
                let bth = Bth::new(Opcode::DatagramSendOnly, QpNumber(0xff_ffff), units::Psn::new(0));
                let deth = wire::Deth { key: wire::QueueKey(0), source: QpNumber(1) };
                PacketHeaders { deth: Some(deth), ..bth.into() }
            }
            Self::Transport { .. } => unreachable!("written above"),
        };
        link_frame(headers, &message)
    }

    /// Reads the frame back after something got past every check: what the machine would be handed.
    pub(crate) fn reread(&self, bytes: &[u8]) -> Option<Self> {
        let frame = LinkFrame::parse(bytes).ok()?;
        let reread = |old: &AggregationMessage| {
            let header = AggregationHeader::parse(frame.packet.payload).ok()?;
            let (code, payload) = frame.packet.payload.get(AggregationHeader::SIZE - 4..)?.split_first_chunk()?;
            let payload = match old.payload {
                Payload::Bytes(_) => payload.to_vec().into(),
                Payload::Absent { .. } => old.payload.clone(),
            };
            Some(AggregationMessage { header, payload, seal: u32::from_be_bytes(*code) })
        };
        match self {
            Self::Multicast { root, message } => Some(Self::Multicast { root: *root, message: reread(message)? }),
            Self::Edge { to, came, frame: Frame::Data { wants_ack, message, .. } } => {
                let (psn, message) = (frame.packet.headers.bth.psn, reread(message)?);
                Some(Self::Edge { to: *to, came: *came, frame: Frame::Data { psn, wants_ack: *wants_ack, message } })
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
