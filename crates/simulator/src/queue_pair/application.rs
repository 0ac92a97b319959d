//! The application at one end: posts what the plan says, and knows what came.
//!
//! In: completions and the time. Out: requests to post, and messages that have come, with their bytes. A write goes to a
//! stretch of memory that belongs to its message alone, so that nothing overwrites what was not yet looked at.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use protocol::queue_pair::{PacketDescriptor, QpError, QpMemory, QpOperation, WorkCompletion};
use units::SimTime;
use wire::RemoteKey;

use super::parameters::{ConnectionEndPlan, MAX_MESSAGE_BYTES, MessagePlan, MessageVerb};
use faults::RandomStream;

/// Marks the immediate data of a write.
const WRITTEN: u32 = 1 << 31;

/// What an end has in memory.
#[derive(Default)]
pub(super) struct EndMemory {
    /// The key to what the other end may write.
    key: RemoteKey,
    /// Buffers of posted receives, by their ids, as far as they are filled.
    received: BTreeMap<u64, Vec<u8>>,
    /// What was written, by message.
    written: BTreeMap<u64, Vec<u8>>,
}

impl QpMemory for EndMemory {
    fn receive(&mut self, id: u64, offset: u32, bytes: &[u8]) {
        put(self.received.entry(id).or_default(), offset as usize, bytes);
    }

    fn may_write(&self, key: RemoteKey, address: u64, length: u32) -> bool {
        key == self.key && address % u64::from(MAX_MESSAGE_BYTES) + u64::from(length) <= u64::from(MAX_MESSAGE_BYTES)
    }

    fn write(&mut self, _: RemoteKey, address: u64, bytes: &[u8]) {
        let (message, offset) = (address / u64::from(MAX_MESSAGE_BYTES), address % u64::from(MAX_MESSAGE_BYTES));
        put(self.written.entry(message).or_default(), offset as usize, bytes);
    }
}

/// Puts bytes into a buffer that grows to hold them; what was there before stays where it was.
fn put(buffer: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if buffer.len() < end {
        buffer.resize(end, 0);
    }
    buffer[offset..end].copy_from_slice(bytes);
}

/// What an application saw.
pub(super) enum ApplicationEvent {
    /// One of its messages is at the other end.
    Sent,
    /// A message came; these bytes tell it from all others.
    Received(Vec<u8>),
    /// A request came to nothing.
    Failed(QpError),
}

pub(super) struct EndApplication {
    plan: ConnectionEndPlan,
    contents: RandomStream,
    pub(super) store: EndMemory,
    /// Messages posted so far, and the bytes of those that are not known to have come.
    posted: usize,
    in_hand: VecDeque<(u64, Rc<[u8]>)>,
    next_receive: u64,
    /// When used receives are replaced.
    reposts: VecDeque<SimTime>,
    longest: u32,
}

impl EndApplication {
    /// The application at an end; `longest` is the length of the longest message that may come to it.
    pub(super) fn new(plan: ConnectionEndPlan, seed: u64, stream: u64, key: RemoteKey, longest: u32) -> Self {
        Self {
            contents: RandomStream::new(seed, 0xe8c4_0000 + stream),
            store: EndMemory { key, ..EndMemory::default() },
            posted: 0,
            in_hand: VecDeque::new(),
            next_receive: 0,
            reposts: VecDeque::from(vec![SimTime::ZERO; plan.receives as usize]),
            longest,
            plan,
        }
    }

    /// The next receive to post, if it is time: its id and length.
    pub(super) fn poll_receive(&mut self, now: SimTime) -> Option<(u64, u32)> {
        self.reposts.front().filter(|at| **at <= now)?;
        self.reposts.pop_front();
        self.next_receive += 1;
        Some((self.next_receive - 1, self.longest))
    }

    /// The next message to post, if it is time: its id, length, operation, and the bytes that tell it from all others.
    pub(super) fn poll_send(&mut self, now: SimTime, key: RemoteKey) -> Option<(u64, u32, QpOperation, Vec<u8>)> {
        let message = *self.plan.messages.get(self.posted)?;
        if message.not_before > now || self.in_hand.len() >= self.plan.sends_at_once {
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
                let immediate = Some(number as u32 | WRITTEN);
                let address = number * u64::from(MAX_MESSAGE_BYTES);
                (immediate, QpOperation::Write { key, address, immediate })
            }
        };
        let told = tell(immediate, &bytes);
        self.in_hand.push_back((number, bytes));
        self.posted += 1;
        Some((number, message.length, operation, told))
    }

    /// Random bytes that begin with the message's number, as far as there is room for it.
    fn contents(&self, number: u64, length: usize) -> Vec<u8> {
        let words = (0..length.div_ceil(8) as u64).map(|word| match word {
            0 => number,
            _ => self.contents.at(number << 20 | word),
        });
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(length);
        bytes
    }

    /// When something is to be posted, as far as that is known.
    pub(super) fn wants_at(&self) -> Option<SimTime> {
        let message = self.plan.messages.get(self.posted).map(|message| message.not_before);
        let send = message.filter(|_| self.in_hand.len() < self.plan.sends_at_once);
        send.into_iter().chain(self.reposts.front().copied()).min()
    }

    /// The bytes of a packet.
    pub(super) fn segment(&self, segment: &PacketDescriptor) -> Box<[u8]> {
        let (_, bytes) = self.in_hand.iter().find(|(id, _)| *id == segment.id).expect("it is still in hand");
        let from = segment.offset as usize;
        bytes[from..from + usize::from(segment.length)].into()
    }

    /// Something that was posted has ended.
    pub(super) fn handle_completion(&mut self, now: SimTime, completion: WorkCompletion) -> ApplicationEvent {
        match completion {
            WorkCompletion::Sent { id } => {
                // In the order of posting (P-2); a machine that thinks otherwise is caught by the bytes it sends.
                self.in_hand.retain(|(number, _)| *number != id);
                ApplicationEvent::Sent
            }
            WorkCompletion::Received { id, length, immediate } => {
                self.reposts.push_back(now + self.plan.repost_after);
                let buffer = self.store.received.remove(&id).unwrap_or_default();
                let mut bytes = match immediate {
                    Some(number) if number & WRITTEN != 0 => {
                        self.store.written.remove(&u64::from(number & !WRITTEN)).unwrap_or_default()
                    }
                    _ => buffer,
                };
                bytes.resize(length as usize, 0);
                ApplicationEvent::Received(tell(immediate, &bytes))
            }
            WorkCompletion::SendFailed { failure, .. } | WorkCompletion::ReceiveFailed { failure, .. } => {
                ApplicationEvent::Failed(failure)
            }
        }
    }

    /// One more message to send, as soon as there is room for it.
    pub(super) fn add(&mut self, now: SimTime, length: u32) {
        self.plan.messages.push(MessagePlan { not_before: now, length, kind: MessageVerb::Send });
    }

    /// Nothing more can be posted.
    pub(super) fn give_up(&mut self) {
        self.posted = self.plan.messages.len();
        self.reposts.clear();
    }

    /// How many messages there are to send.
    pub(super) fn messages(&self) -> usize {
        self.plan.messages.len()
    }
}

/// What a judge compares: the immediate data and the bytes.
fn tell(immediate: Option<u32>, bytes: &[u8]) -> Vec<u8> {
    let mut told = match immediate {
        None => vec![0],
        Some(value) => [&[1], value.to_le_bytes().as_slice()].concat(),
    };
    told.extend_from_slice(bytes);
    told
}
