//! The buffers of a queue pair: posted sends and receives, and registered regions.

use std::collections::{BTreeMap, VecDeque};

use protocol::BufferSlice;
use protocol::queue_pair::QpMemory;
use wire::RemoteKey;

use super::port::RECEIVE_BUFFER_BYTES;

/// The bytes of one request: a buffer, and perhaps a borrowed slice behind it.
#[derive(Debug)]
pub(super) struct PostedSend {
    pub head: Vec<u8>,
    pub body: Option<BufferSlice>,
}

impl PostedSend {
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.bytes().len())
    }

    /// A range of its bytes.
    pub(super) fn part(&self, start: usize, length: usize) -> SendSlice<'_> {
        let (end, border) = (start + length, self.head.len());
        let head = &self.head[start.min(border)..end.min(border)];
        let body = self.body.as_ref().filter(|_| end > border);
        SendSlice { prefix: &[], head, body: body.map(|body| body.part(start.saturating_sub(border)..end - border)) }
    }
}

/// A range of a request's bytes: of its buffer, then of its borrowed slice. Before them, what protects the packet.
#[derive(Default)]
pub(crate) struct SendSlice<'a> {
    pub prefix: &'a [u8],
    pub head: &'a [u8],
    pub body: Option<BufferSlice>,
}

impl<'a> From<&'a [u8]> for SendSlice<'a> {
    fn from(head: &'a [u8]) -> Self {
        Self { prefix: &[], head, body: None }
    }
}

impl SendSlice<'_> {
    pub(super) fn slices(&self) -> [&[u8]; 3] {
        [self.prefix, self.head, self.body.as_ref().map_or(&[][..], BufferSlice::bytes)]
    }

    pub(super) fn len(&self) -> usize {
        self.slices().iter().map(|bytes| bytes.len()).sum()
    }
}

/// Buffers that are posted and completed in order; their ids count up.
#[derive(Debug)]
pub(super) struct PostedQueue<T> {
    first: u64,
    buffers: VecDeque<T>,
}

impl<T> Default for PostedQueue<T> {
    fn default() -> Self {
        Self { first: 0, buffers: VecDeque::new() }
    }
}

impl<T> PostedQueue<T> {
    pub(super) fn next_id(&self) -> u64 {
        self.first + self.buffers.len() as u64
    }

    pub(super) fn push(&mut self, buffer: T) {
        self.buffers.push_back(buffer);
    }

    pub(super) fn pop_back(&mut self) -> Option<T> {
        self.buffers.pop_back()
    }

    pub(super) fn get(&self, id: u64) -> Option<&T> {
        self.buffers.get(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.buffers.get_mut(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn pop(&mut self) -> T {
        self.first += 1;
        self.buffers.pop_front().expect("the machine completes posted requests in order")
    }
}

/// A posted receive.
#[derive(Debug)]
pub(super) struct PostedReceive {
    pub buffer: Vec<u8>,
    /// The offset of the message in the buffer.
    pub start: usize,
}

/// The memory that packets write to: the posted receives of one queue pair, and its registered regions.
#[derive(Debug, Default)]
pub(super) struct EndpointMemory {
    pub receives: PostedQueue<PostedReceive>,
    pub regions: BTreeMap<u32, Vec<u8>>,
    /// The address of a packet's payload that is a whole message, in a buffer that may replace a posted one.
    offered: Option<usize>,
    /// The receive that takes the buffer.
    accepted: Option<u64>,
}

impl EndpointMemory {
    /// Posts a buffer. The buffer that was used last is used first: it is in the cache.
    pub(super) fn post(&mut self, buffer: Vec<u8>, is_receiving: bool) {
        self.receives.push(PostedReceive { buffer, start: 0 });
        let receives = self.receives.buffers.make_contiguous();
        if let [first, .., last] = receives
            && !is_receiving
            && first.buffer.len() == last.buffer.len()
        {
            std::mem::swap(first, last);
        }
    }

    /// Offers the buffer that holds a packet.
    pub(super) fn offer(&mut self, payload: &[u8]) {
        self.offered = Some(payload.as_ptr().addr());
    }

    /// Replaces the posted buffer by the one that holds the whole message, if a receive took the offer.
    pub(super) fn exchange(&mut self, buffer: &mut Vec<u8>, start: usize) {
        self.offered = None;
        if let Some(id) = self.accepted.take()
            && let Some(receive) = self.receives.get_mut(id)
        {
            std::mem::swap(&mut receive.buffer, buffer);
            receive.start = start;
        }
    }
}

impl QpMemory for EndpointMemory {
    fn receive(&mut self, id: u64, offset: u32, bytes: &[u8]) {
        let receive = self.receives.get_mut(id).expect("the machine names posted receives");
        if self.offered == Some(bytes.as_ptr().addr()) && receive.buffer.len() == RECEIVE_BUFFER_BYTES {
            (self.offered, self.accepted) = (None, Some(id));
            return;
        }
        let start = receive.start + offset as usize;
        receive.buffer[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn may_write(&self, key: RemoteKey, address: u64, length: u32) -> bool {
        let end = address.checked_add(u64::from(length));
        self.regions.get(&key.0).is_some_and(|region| end.is_some_and(|end| end <= region.len() as u64))
    }

    fn write(&mut self, key: RemoteKey, address: u64, bytes: &[u8]) {
        let region = self.regions.get_mut(&key.0).expect("`may_write` found the region");
        region[address as usize..address as usize + bytes.len()].copy_from_slice(bytes);
    }
}
