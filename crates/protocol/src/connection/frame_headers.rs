//! Control frames to packet headers, and back.
//!
//! The opcode of a data frame depends on its payload, so its headers are written by the layer above.

use units::QpNumber;
use wire::{Aeth, Bth, CreditCode, NakCause, Opcode, PacketHeaders, ProbeToken, RnrTimer, SackBitmap, Syndrome};

use super::frame::{FatalNak, Frame, MigrationBit};

/// The headers of a control frame for a queue pair; none for data. `messages` is the receiver's count of completed messages, which
/// acknowledgements carry.
pub fn control_headers<M>(
    frame: &Frame<M>,
    to: QpNumber,
    migration: MigrationBit,
    messages: u32,
) -> Option<PacketHeaders> {
    let nak = |cause| Syndrome::Nak { cause };
    let (opcode, psn, syndrome) = match frame {
        Frame::Data { .. } => return None,
        Frame::Ack { psn } => (Opcode::Acknowledge, *psn, Some(Syndrome::Ack { credits: CreditCode::UNLIMITED })),
        Frame::Nak { expected } => (Opcode::Acknowledge, *expected, Some(nak(NakCause::PsnSequence))),
        Frame::SelectiveAck { expected, .. } => {
            (Opcode::SelectiveAcknowledge, *expected, Some(nak(NakCause::PsnSequence)))
        }
        Frame::RnrNak { expected, wait } => {
            (Opcode::Acknowledge, *expected, Some(Syndrome::RnrNak { timer: RnrTimer::at_least(*wait) }))
        }
        Frame::FatalNak { psn, cause } => {
            let cause = match cause {
                FatalNak::InvalidRequest => NakCause::InvalidRequest,
                FatalNak::Access => NakCause::RemoteAccess,
                FatalNak::Operational => NakCause::RemoteOperational,
            };
            (Opcode::Acknowledge, *psn, Some(nak(cause)))
        }
        Frame::Probe { .. } => (Opcode::Probe, units::Psn::new(0), None),
        Frame::ProbeReply { .. } => (Opcode::ProbeReply, units::Psn::new(0), None),
    };
    let mut headers = PacketHeaders::from(Bth::new(opcode, to, psn));
    headers.bth.migrated = migration == MigrationBit::Migrated;
    headers.aeth = syndrome.map(|syndrome| Aeth { syndrome, message_sequence: messages });
    match frame {
        Frame::SelectiveAck { arrived, .. } => headers.sack = Some(SackBitmap(*arrived)),
        Frame::Probe { token } | Frame::ProbeReply { token } => headers.probe_token = Some(ProbeToken(*token)),
        _ => {}
    }
    Some(headers)
}

/// The control frame that the headers describe; none for other opcodes.
pub fn control_frame<M>(headers: &PacketHeaders) -> Option<Frame<M>> {
    let psn = headers.bth.psn;
    let token = headers.probe_token.map(|ProbeToken(token)| token);
    match (headers.bth.opcode, headers.aeth.map(|aeth| aeth.syndrome)) {
        (Opcode::Acknowledge, Some(Syndrome::Ack { .. })) => Some(Frame::Ack { psn }),
        (Opcode::Acknowledge, Some(Syndrome::RnrNak { timer })) => {
            Some(Frame::RnrNak { expected: psn, wait: timer.span() })
        }
        (Opcode::Acknowledge, Some(Syndrome::Nak { cause })) => Some(match cause {
            NakCause::PsnSequence => Frame::Nak { expected: psn },
            NakCause::RemoteAccess => Frame::FatalNak { psn, cause: FatalNak::Access },
            NakCause::RemoteOperational => Frame::FatalNak { psn, cause: FatalNak::Operational },
            NakCause::InvalidRequest | NakCause::InvalidRdRequest => {
                Frame::FatalNak { psn, cause: FatalNak::InvalidRequest }
            }
        }),
        (Opcode::SelectiveAcknowledge, _) => {
            Some(Frame::SelectiveAck { expected: psn, arrived: headers.sack.map_or(0, |SackBitmap(bits)| bits) })
        }
        (Opcode::Probe, _) => token.map(|token| Frame::Probe { token }),
        (Opcode::ProbeReply, _) => token.map(|token| Frame::ProbeReply { token }),
        _ => None,
    }
}

/// The migration bit of the headers.
pub fn migration_bit(headers: &PacketHeaders) -> MigrationBit {
    if headers.bth.migrated { MigrationBit::Migrated } else { MigrationBit::Loaded }
}
