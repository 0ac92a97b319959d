//! The requesting half: segments requests into packets, and detects when all packets of a request were acknowledged.

use std::collections::VecDeque;

use units::Psn;
use wire::{Immediate, Opcode, Reth};

use super::work_request::QpOperation;
use crate::connection::AckRequest;

/// One packet of a request, without its bytes: those stay in the user's buffer, and are read for every transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketDescriptor {
    /// The user's id of the request.
    pub id: u64,
    /// The offset of the packet's bytes in the buffer.
    pub offset: u32,
    /// The number of bytes.
    pub length: u16,
    /// Whether the end of its message requests an acknowledgement.
    pub(super) ask: AckRequest,
    pub(super) opcode: Opcode,
    pub(super) reth: Option<Reth>,
    pub(super) immediate: Option<Immediate>,
}

#[derive(Clone, Copy, Debug)]
struct PendingSend {
    id: u64,
    length: u32,
    operation: QpOperation,
    ask: AckRequest,
    /// The number of its last packet, once that was handed to the connection.
    last: Option<Psn>,
}

#[derive(Debug)]
pub(super) struct Requester {
    posted: VecDeque<PendingSend>,
    /// The request that is being segmented, and the offset in it.
    next_request: usize,
    offset: u32,
    next_psn: Psn,
}

impl Requester {
    pub(super) fn new(first: Psn) -> Self {
        Self { posted: VecDeque::new(), next_request: 0, offset: 0, next_psn: first }
    }

    pub(super) fn len(&self) -> usize {
        self.posted.len()
    }

    /// Requests whose last packet was handed out, and that are not complete.
    pub(super) fn sent(&self) -> usize {
        self.next_request
    }

    pub(super) fn post(&mut self, id: u64, length: u32, operation: QpOperation, ask: AckRequest) {
        self.posted.push_back(PendingSend { id, length, operation, ask, last: None });
    }

    /// The next packet.
    pub(super) fn next_packet(&mut self, mtu: u32) -> Option<PacketDescriptor> {
        let posted = self.posted.get_mut(self.next_request)?;
        let length = (posted.length - self.offset).min(mtu);
        let (begins, ends) = (self.offset == 0, self.offset + length == posted.length);
        let immediate = match posted.operation {
            QpOperation::Send { immediate } | QpOperation::Write { immediate, .. } => immediate.filter(|_| ends),
        };
        let reth = match posted.operation {
            QpOperation::Write { key, address, .. } if begins => {
                Some(Reth { address, key, length_bytes: posted.length })
            }
            _ => None,
        };
        let segment = PacketDescriptor {
            id: posted.id,
            offset: self.offset,
            length: length as u16,
            ask: posted.ask,
            opcode: opcode(posted.operation, begins, ends, immediate.is_some()),
            reth,
            immediate: immediate.map(Immediate),
        };
        if ends {
            posted.last = Some(self.next_psn);
            self.next_request += 1;
            self.offset = 0;
        } else {
            self.offset += length;
        }
        self.next_psn = self.next_psn.next();
        Some(segment)
    }

    /// The first request all of whose packets precede `unacknowledged`, if there is one.
    pub(super) fn complete(&mut self, unacknowledged: Psn) -> Option<u64> {
        let last = self.posted.front()?.last?;
        last.is_before(unacknowledged).then(|| {
            self.next_request -= 1;
            self.posted.pop_front().expect("just found").id
        })
    }

    /// Removes a request that will not complete.
    pub(super) fn flush(&mut self) -> Option<u64> {
        (self.next_request, self.offset) = (0, 0);
        self.posted.pop_front().map(|posted| posted.id)
    }
}

fn opcode(operation: QpOperation, begins: bool, ends: bool, immediate: bool) -> Opcode {
    use Opcode::*;
    match operation {
        QpOperation::Send { .. } => match (begins, ends, immediate) {
            (true, true, false) => SendOnly,
            (true, true, true) => SendOnlyWithImmediate,
            (true, false, _) => SendFirst,
            (false, false, _) => SendMiddle,
            (false, true, false) => SendLast,
            (false, true, true) => SendLastWithImmediate,
        },
        QpOperation::Write { .. } => match (begins, ends, immediate) {
            (true, true, false) => WriteOnly,
            (true, true, true) => WriteOnlyWithImmediate,
            (true, false, _) => WriteFirst,
            (false, false, _) => WriteMiddle,
            (false, true, false) => WriteLast,
            (false, true, true) => WriteLastWithImmediate,
        },
    }
}
