//! The requesting half: cuts requests into packets and tells when all of one have come.

use std::collections::VecDeque;

use units::Psn;
use wire::{Immediate, Opcode, Reth};

use super::work_request::QpOperation;
use crate::connection::AckRequest;

/// One packet of a request, without its bytes: those stay in the user's buffer until it is sent, each time it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketDescriptor {
    /// What the user called the request.
    pub id: u64,
    /// Where in its buffer the packet's bytes begin.
    pub offset: u32,
    /// How many they are.
    pub length: u16,
    /// Whether the end of its message is to be acknowledged at once.
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
    /// The number of its last packet, once that has been handed to the connection.
    last: Option<Psn>,
}

#[derive(Debug)]
pub(super) struct Requester {
    posted: VecDeque<PendingSend>,
    /// The request that is being cut, and how far.
    cutting: usize,
    offset: u32,
    next_psn: Psn,
}

impl Requester {
    pub(super) fn new(first: Psn) -> Self {
        Self { posted: VecDeque::new(), cutting: 0, offset: 0, next_psn: first }
    }

    pub(super) fn len(&self) -> usize {
        self.posted.len()
    }

    pub(super) fn post(&mut self, id: u64, length: u32, operation: QpOperation, ask: AckRequest) {
        self.posted.push_back(PendingSend { id, length, operation, ask, last: None });
    }

    /// The next packet, and whether a message ends with it.
    pub(super) fn cut(&mut self, mtu: u32) -> Option<PacketDescriptor> {
        let posted = self.posted.get_mut(self.cutting)?;
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
            self.cutting += 1;
            self.offset = 0;
        } else {
            self.offset += length;
        }
        self.next_psn = self.next_psn.next();
        Some(segment)
    }

    /// The first request all of whose packets come before `unacknowledged`, if there is one.
    pub(super) fn complete(&mut self, unacknowledged: Psn) -> Option<u64> {
        let last = self.posted.front()?.last?;
        last.is_before(unacknowledged).then(|| {
            self.cutting -= 1;
            self.posted.pop_front().expect("looked at").id
        })
    }

    /// Takes back a request that will not be done.
    pub(super) fn flush(&mut self) -> Option<u64> {
        (self.cutting, self.offset) = (0, 0);
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
