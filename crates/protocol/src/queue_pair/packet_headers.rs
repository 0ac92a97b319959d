//! Frames of a queue pair to packets with headers.

use units::PathId;
use wire::{Bth, IcrcCoverage, PacketHeaders};

use super::attributes::QpAttributes;
use super::limits::MAX_WHOLE_ICRC_BYTES;
use super::requester::PacketDescriptor;
use crate::connection::{Frame, FramePurpose, MigrationBit, OutgoingFrame, control_headers};

/// A packet to transmit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The headers.
    pub headers: PacketHeaders,
    /// The payload bytes; none for control packets.
    pub segment: Option<PacketDescriptor>,
    /// The path.
    pub path: PathId,
    /// Why.
    pub purpose: FramePurpose,
}

/// Adds headers to frames.
pub(super) fn with_headers(
    attributes: QpAttributes,
    messages: u32,
    out: &mut impl FnMut(Transmit),
) -> impl FnMut(OutgoingFrame<PacketDescriptor>) {
    move |outgoing| {
        let OutgoingFrame { frame, purpose, path, migration, .. } = outgoing;
        let (mut headers, segment) = match frame {
            Frame::Data { psn, wants_ack, message } => {
                let mut headers = PacketHeaders::from(Bth::new(message.opcode, attributes.remote, psn));
                headers.bth.acknowledge = wants_ack;
                if u32::from(message.length) > MAX_WHOLE_ICRC_BYTES {
                    headers.bth.coverage = attributes.coverage;
                }
                headers.bth.migrated = migration == MigrationBit::Migrated;
                headers.reth = message.reth;
                headers.immediate = message.immediate;
                (headers, Some(message))
            }
            control => {
                let headers = control_headers(&control, attributes.remote, migration, messages);
                (headers.expect("data frames are handled above"), None)
            }
        };
        if attributes.coverage == IcrcCoverage::Nothing {
            headers.bth.coverage = IcrcCoverage::Nothing;
        }
        headers.bth.partition = attributes.partition;
        out(Transmit { headers, segment, path, purpose });
    }
}
