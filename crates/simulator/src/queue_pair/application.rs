//! The application at one end: posts the planned messages and collects the received ones.
//!
//! In: completions and the time. Out: requests to post, and received messages with their bytes. A write goes to a memory range of its
//! message alone, so that nothing overwrites bytes that have not been read.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use protocol::queue_pair::{PacketDescriptor, QpError, QpMemory, QpOperation, WorkCompletion};
use units::SimTime;
use wire::RemoteKey;

use super::parameters::{ConnectionEndPlan, MAX_MESSAGE_BYTES, MessagePlan, MessageVerb};
use faults::RandomStream;

/// The flag in the immediate data of a write.
const WRITE_FLAG: u32 = 1 << 31;

/// The memory of an end.
#[derive(Default)]
pub(super) struct EndMemory {
    /// The key of the memory that the other end may write.
    key: RemoteKey,
    /// Buffers of posted receives by id, as far as they are filled.
    received: BTreeMap<u64, Vec<u8>>,
    /// Written bytes, by message.
    written: BTreeMap<u64, Vec<u8>>,
}

impl QpMemory for EndMemory {
    fn receive(&mut self, id: u64, offset: u32, bytes: &[u8]) {
        write_at(self.received.entry(id).or_default(), offset as usize, bytes);
    }

    fn may_write(&self, key: RemoteKey, address: u64, length: u32) -> bool {
        key == self.key && address % u64::from(MAX_MESSAGE_BYTES) + u64::from(length) <= u64::from(MAX_MESSAGE_BYTES)
    }

    fn write(&mut self, _: RemoteKey, address: u64, bytes: &[u8]) {
        let (message, offset) = (address / u64::from(MAX_MESSAGE_BYTES), address % u64::from(MAX_MESSAGE_BYTES));
        write_at(self.written.entry(message).or_default(), offset as usize, bytes);
    }
}

/// Copies bytes into a buffer, which grows if needed.
fn write_at(buffer: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if buffer.len() < end {
        buffer.resize(end, 0);
    }
    buffer[offset..end].copy_from_slice(bytes);
}

/// An event of the application.
pub(super) enum ApplicationEvent {
    /// One of its messages was delivered.
    Sent,
    /// A message was received; the bytes identify it.
    Received(Vec<u8>),
    /// A request failed.
    Failed(QpError),
}

pub(super) struct EndApplication {
    plan: ConnectionEndPlan,
    contents: RandomStream,
    pub(super) store: EndMemory,
    /// Messages posted so far, and the bytes of those that are not acknowledged.
    posted: usize,
    unacknowledged: VecDeque<(u64, Rc<[u8]>)>,
    next_receive: u64,
    /// When used receives are posted again.
    reposts: VecDeque<SimTime>,
    longest: u32,
}

impl EndApplication {
    /// The application at an end; `longest` is the longest message that it may receive.
    pub(super) fn new(plan: ConnectionEndPlan, seed: u64, stream: u64, key: RemoteKey, longest: u32) -> Self {
        Self {
            contents: RandomStream::new(seed, 0xe8c4_0000 + stream),
            store: EndMemory { key, ..EndMemory::default() },
            posted: 0,
            unacknowledged: VecDeque::new(),
            next_receive: 0,
            reposts: VecDeque::from(vec![SimTime::ZERO; plan.receives as usize]),
            longest,
            plan,
        }
    }

    /// The next receive to post, if it is due: its id and length.
    pub(super) fn poll_receive(&mut self, now: SimTime) -> Option<(u64, u32)> {
        self.reposts.front().filter(|at| **at <= now)?;
        self.reposts.pop_front();
        self.next_receive += 1;
        Some((self.next_receive - 1, self.longest))
    }

    /// The next message to post, if it is due: its id, length, operation, and the bytes that identify it.
    pub(super) fn poll_send(&mut self, now: SimTime, key: RemoteKey) -> Option<(u64, u32, QpOperation, Vec<u8>)> {
        let message = *self.plan.messages.get(self.posted)?;
        if message.not_before > now || self.unacknowledged.len() >= self.plan.sends_at_once {
            return None;
        }
        let number = self.posted as u64;
        let bytes: Rc<[u8]> = self.contents(number, message.length as usize).into();
        let (immediate, operation) = match message.kind {
            MessageVerb::Send => (None, QpOperation::Send { immediate: None }),
            MessageVerb::NumberedSend => {
                let immediate = Some(number as u32);
                (immediate, QpOperation::Send { immediate })
            }
            MessageVerb::Write => {
                let immediate = Some(number as u32 | WRITE_FLAG);
                let address = number * u64::from(MAX_MESSAGE_BYTES);
                (immediate, QpOperation::Write { key, address, immediate })
            }
        };
        let observed = observed_bytes(immediate, &bytes);
        self.unacknowledged.push_back((number, bytes));
        self.posted += 1;
        Some((number, message.length, operation, observed))
    }

    /// Random bytes that start with the message's number, if they are long enough.
    fn contents(&self, number: u64, length: usize) -> Vec<u8> {
        let words = (0..length.div_ceil(8) as u64).map(|word| match word {
            0 => number,
            _ => self.contents.at(number << 20 | word),
        });
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(length);
        bytes
    }

    /// When the next request is due, if that is known.
    pub(super) fn next_post_at(&self) -> Option<SimTime> {
        let message = self.plan.messages.get(self.posted).map(|message| message.not_before);
        let send = message.filter(|_| self.unacknowledged.len() < self.plan.sends_at_once);
        send.into_iter().chain(self.reposts.front().copied()).min()
    }

    /// The payload of a packet.
    pub(super) fn segment(&self, segment: &PacketDescriptor) -> Box<[u8]> {
        let (_, bytes) = self
            .unacknowledged
            .iter()
            .find(|(id, _)| *id == segment.id)
            .expect("a segment of an unacknowledged message");
        let from = segment.offset as usize;
        bytes[from..from + usize::from(segment.length)].into()
    }

    /// A posted request has completed.
    pub(super) fn handle_completion(&mut self, now: SimTime, completion: WorkCompletion) -> ApplicationEvent {
        match completion {
            WorkCompletion::Sent { id } => {
                // Completions come in the order of posting (P-2); a machine that breaks the rule is detected by the bytes it sends.
                self.unacknowledged.retain(|(number, _)| *number != id);
                ApplicationEvent::Sent
            }
            WorkCompletion::Received { id, length, immediate } => {
                self.reposts.push_back(now + self.plan.repost_after);
                let buffer = self.store.received.remove(&id).unwrap_or_default();
                let mut bytes = match immediate {
                    Some(number) if number & WRITE_FLAG != 0 => {
                        self.store.written.remove(&u64::from(number & !WRITE_FLAG)).unwrap_or_default()
                    }
                    _ => buffer,
                };
                bytes.resize(length as usize, 0);
                ApplicationEvent::Received(observed_bytes(immediate, &bytes))
            }
            WorkCompletion::SendFailed { failure, .. } | WorkCompletion::ReceiveFailed { failure, .. } => {
                ApplicationEvent::Failed(failure)
            }
        }
    }

    /// Adds a message, to be sent as soon as the send queue has room.
    pub(super) fn add(&mut self, now: SimTime, length: u32) {
        self.plan.messages.push(MessagePlan { not_before: now, length, kind: MessageVerb::Send });
    }

    /// Posts nothing more.
    pub(super) fn stop(&mut self) {
        self.posted = self.plan.messages.len();
        self.reposts.clear();
    }

    /// The number of planned messages.
    pub(super) fn messages(&self) -> usize {
        self.plan.messages.len()
    }
}

/// The bytes that the observer compares: the immediate data and the payload.
fn observed_bytes(immediate: Option<u32>, bytes: &[u8]) -> Vec<u8> {
    let mut observed = match immediate {
        None => vec![0],
        Some(value) => [&[1], value.to_le_bytes().as_slice()].concat(),
    };
    observed.extend_from_slice(bytes);
    observed
}
