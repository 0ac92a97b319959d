//! The responding half: assembles packets into messages.
//!
//! In: packets in order. Out: bytes for the driver's memory, and completions. An invalid packet is rejected and changes nothing.

use std::collections::VecDeque;

use units::Span;
use wire::{Immediate, Opcode, PacketHeaders, RemoteKey};

use super::limits::MAX_QP_MESSAGE_BYTES;
use super::work_request::{QpError, WorkCompletion};
use crate::connection::FatalNak;

/// The pause that a sender is asked for if no receive is posted.
const RNR_WAIT: Span = Span::from_micros(640);

/// The memory that a queue pair writes to. The driver owns it.
pub trait QpMemory {
    /// Writes bytes of a message to the buffer of a posted receive.
    fn receive(&mut self, id: u64, offset: u32, bytes: &[u8]);
    /// Whether the peer may write this many bytes there.
    fn may_write(&self, key: RemoteKey, address: u64, length: u32) -> bool;
    /// Writes bytes of a remote write; [`Self::may_write`] allowed the whole message before.
    fn write(&mut self, key: RemoteKey, address: u64, bytes: &[u8]);
}

#[derive(Clone, Copy, Debug)]
struct PostedBuffer {
    id: u64,
    length: u32,
}

/// The message that is being received.
#[derive(Clone, Copy, Debug)]
enum IncomingMessage {
    Send { offset: u32 },
    Write { key: RemoteKey, address: u64, length: u32, left: u32 },
}

/// Why a packet is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketRejection {
    /// Later: no receive is posted.
    NotReady(Span),
    /// Never; with the error for the user of this end.
    Fatal(FatalNak, QpError),
}

#[derive(Debug, Default)]
pub(super) struct Responder {
    receives: VecDeque<PostedBuffer>,
    incoming: Option<IncomingMessage>,
    /// Completed messages, for acknowledgements.
    messages: u32,
}

impl Responder {
    pub(super) fn post(&mut self, id: u64, length: u32) {
        self.receives.push_back(PostedBuffer { id, length });
    }

    pub(super) fn posted(&self) -> usize {
        self.receives.len()
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.incoming.is_some()
    }

    pub(super) fn messages(&self) -> u32 {
        self.messages
    }

    pub(super) fn flush(&mut self) -> Option<u64> {
        self.incoming = None;
        self.receives.pop_front().map(|receive| receive.id)
    }

    /// Accepts the next packet in order.
    pub(super) fn accept(
        &mut self,
        headers: &PacketHeaders,
        payload: &[u8],
        mtu: u32,
        memory: &mut impl QpMemory,
    ) -> Result<Option<WorkCompletion>, PacketRejection> {
        let opcode = headers.bth.opcode;
        let length = payload.len() as u32;
        let (begins, ends) = (opcode.begins_message(), opcode.ends_message());
        let fits = if ends { length <= mtu } else { length == mtu };
        if begins == self.incoming.is_some() || !fits {
            return Err(Self::invalid_request());
        }
        let done = if is_send(opcode) {
            self.accept_send(headers, payload, begins, ends, memory)?
        } else {
            self.accept_write(headers, payload, begins, ends, memory)?
        };
        if ends {
            self.messages = (self.messages + 1) & 0xff_ffff;
        }
        Ok(done)
    }

    fn invalid_request() -> PacketRejection {
        PacketRejection::Fatal(FatalNak::InvalidRequest, QpError::BadRequest)
    }

    fn accept_send(
        &mut self,
        headers: &PacketHeaders,
        payload: &[u8],
        begins: bool,
        ends: bool,
        memory: &mut impl QpMemory,
    ) -> Result<Option<WorkCompletion>, PacketRejection> {
        let offset = match self.incoming {
            None => 0,
            Some(IncomingMessage::Send { offset }) => offset,
            Some(IncomingMessage::Write { .. }) => return Err(Self::invalid_request()),
        };
        let Some(receive) = self.receives.front().copied() else {
            debug_assert!(begins, "a receive stays posted until its message ends");
            return Err(PacketRejection::NotReady(RNR_WAIT));
        };
        let end = offset + payload.len() as u32;
        if end > receive.length.min(MAX_QP_MESSAGE_BYTES) {
            return Err(PacketRejection::Fatal(FatalNak::InvalidRequest, QpError::TooLong));
        }
        memory.receive(receive.id, offset, payload);
        if !ends {
            self.incoming = Some(IncomingMessage::Send { offset: end });
            return Ok(None);
        }
        self.incoming = None;
        self.receives.pop_front();
        let immediate = headers.immediate.map(|Immediate(value)| value);
        Ok(Some(WorkCompletion::Received { id: receive.id, length: end, immediate }))
    }

    fn accept_write(
        &mut self,
        headers: &PacketHeaders,
        payload: &[u8],
        begins: bool,
        ends: bool,
        memory: &mut impl QpMemory,
    ) -> Result<Option<WorkCompletion>, PacketRejection> {
        let length = payload.len() as u32;
        let (key, address, whole, left) = match (self.incoming, headers.reth) {
            (Some(IncomingMessage::Write { key, address, length, left }), _) => (key, address, length, left),
            (None, Some(reth)) if begins => (reth.key, reth.address, reth.length_bytes, reth.length_bytes),
            _ => return Err(Self::invalid_request()),
        };
        if length > left || ends != (length == left) {
            return Err(Self::invalid_request());
        }
        // Check the whole message when it begins, so that no part of a forbidden one is ever written.
        if begins && whole > 0 && !memory.may_write(key, address, whole) {
            return Err(PacketRejection::Fatal(FatalNak::Access, QpError::BadRequest));
        }
        let receive = match headers.immediate {
            None => None,
            Some(Immediate(value)) => {
                let receive = self.receives.front().copied().ok_or(PacketRejection::NotReady(RNR_WAIT))?;
                Some(WorkCompletion::Received { id: receive.id, length: whole, immediate: Some(value) })
            }
        };
        if length > 0 {
            memory.write(key, address, payload);
        }
        self.incoming = (!ends).then_some(IncomingMessage::Write {
            key,
            address: address.wrapping_add(u64::from(length)),
            length: whole,
            left: left - length,
        });
        if receive.is_some() {
            self.receives.pop_front();
        }
        Ok(receive)
    }
}

fn is_send(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(opcode, SendFirst | SendMiddle | SendLast | SendLastWithImmediate | SendOnly | SendOnlyWithImmediate)
}

/// Whether the responder handles packets with this opcode.
pub(super) fn is_request(opcode: Opcode) -> bool {
    use Opcode::*;
    is_send(opcode)
        || matches!(
            opcode,
            WriteFirst | WriteMiddle | WriteLast | WriteLastWithImmediate | WriteOnly | WriteOnlyWithImmediate
        )
}
