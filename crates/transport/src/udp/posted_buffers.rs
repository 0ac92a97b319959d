//! The buffers of a queue pair: posted sends and receives, and registered regions.

use std::collections::{BTreeMap, VecDeque};

use protocol::BufferSlice;
use protocol::queue_pair::QpMemory;
use wire::RemoteKey;

use super::port::RECEIVE_BUFFER_BYTES;

/// Buffers that a pool keeps: more than messages are in one turn.
const MAX_POOLED: usize = 64;

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

/// Buffers for receives that have none of their own. The one that was used last is used first: it is in the cache.
#[derive(Debug, Default)]
pub(super) struct ReceivePool(Vec<Vec<u8>>);

impl ReceivePool {
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| vec![0; RECEIVE_BUFFER_BYTES])
    }

    /// Takes a buffer back. Those of another length, and more than are ever used at once, are released.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        if buffer.len() == RECEIVE_BUFFER_BYTES && self.0.len() < MAX_POOLED {
            self.0.push(buffer);
        }
    }
}

/// Where the buffer of a posted receive comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BufferSource {
    Posted,
    /// From the pool, when the first packet comes: a queue pair on which nothing arrives has no buffers.
    Pool,
}

/// A posted receive.
#[derive(Debug)]
pub(super) struct PostedReceive {
    source: BufferSource,
    pub buffer: Vec<u8>,
    /// The offset of the message in the buffer.
    pub start: usize,
}

impl PostedReceive {
    /// Takes a buffer from the pool if this receive should have one of it and has none.
    fn provide(&mut self, pool: &mut ReceivePool) {
        if self.source == BufferSource::Pool && self.buffer.is_empty() {
            self.buffer = pool.take();
        }
    }
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
    /// The endpoint's pool, while a packet is handled.
    pool: ReceivePool,
}

impl EndpointMemory {
    /// Posts a buffer. The buffer that was used last is used first: it is in the cache.
    pub(super) fn post(&mut self, buffer: Vec<u8>, is_receiving: bool) {
        self.receives.push(PostedReceive { source: BufferSource::Posted, buffer, start: 0 });
        let receives = self.receives.buffers.make_contiguous();
        if let [first, .., last] = receives
            && !is_receiving
            && first.buffer.len() == last.buffer.len()
        {
            std::mem::swap(first, last);
        }
    }

    /// Posts a receive of [`RECEIVE_BUFFER_BYTES`] whose buffer comes from the pool.
    pub(super) fn post_pooled(&mut self) {
        self.receives.push(PostedReceive { source: BufferSource::Pool, buffer: Vec::new(), start: 0 });
    }

    /// Exchanges the endpoint's pool for the one here: before a packet is handled, and afterwards.
    pub(super) fn swap_pool(&mut self, pool: &mut ReceivePool) {
        std::mem::swap(&mut self.pool, pool);
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
            receive.provide(&mut self.pool);
            std::mem::swap(&mut receive.buffer, buffer);
            receive.start = start;
        }
    }
}

impl QpMemory for EndpointMemory {
    fn receive(&mut self, id: u64, offset: u32, bytes: &[u8]) {
        let receive = self.receives.get_mut(id).expect("the machine names posted receives");
        let is_exchangeable = receive.source == BufferSource::Pool || receive.buffer.len() == RECEIVE_BUFFER_BYTES;
        if self.offered == Some(bytes.as_ptr().addr()) && is_exchangeable {
            (self.offered, self.accepted) = (None, Some(id));
            return;
        }
        receive.provide(&mut self.pool);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn held(memory: &EndpointMemory) -> usize {
        memory.receives.buffers.iter().map(|receive| receive.buffer.len()).sum()
    }

    #[test]
    fn receives_without_a_message_hold_no_memory_and_buffers_are_used_again() {
        let (mut memory, mut pool) = (EndpointMemory::default(), ReceivePool::default());
        (0..24).for_each(|_| memory.post_pooled());
        assert_eq!(held(&memory), 0);
        let mut places = Vec::new();
        for id in 0..3 {
            memory.swap_pool(&mut pool);
            memory.receive(id, 0, b"some");
            memory.receive(id, 4, b" bytes");
            memory.swap_pool(&mut pool);
            assert_eq!(held(&memory), RECEIVE_BUFFER_BYTES);
            let buffer = memory.receives.pop().buffer;
            assert!(buffer.starts_with(b"some bytes"));
            places.push(buffer.as_ptr());
            pool.give_back(buffer);
        }
        assert_eq!(places, [places[0]; 3]);
    }

    #[test]
    fn a_whole_message_leaves_in_the_buffer_of_its_packet_and_the_port_gets_another() {
        let (mut memory, mut pool) = (EndpointMemory::default(), ReceivePool::default());
        memory.post_pooled();
        let mut packet = vec![7; RECEIVE_BUFFER_BYTES];
        let place = packet.as_ptr();
        memory.swap_pool(&mut pool);
        memory.offer(&packet[40..]);
        memory.receive(0, 0, &packet[40..]);
        memory.exchange(&mut packet, 40);
        memory.swap_pool(&mut pool);
        assert_eq!((packet.len(), packet[0]), (RECEIVE_BUFFER_BYTES, 0), "the port can receive again");
        let PostedReceive { buffer, start, .. } = memory.receives.pop();
        assert_eq!((buffer.as_ptr(), start), (place, 40));
    }

    #[test]
    fn a_pool_keeps_only_buffers_of_its_length_and_not_more_than_are_used() {
        let mut pool = ReceivePool::default();
        pool.give_back(vec![0; 10]);
        assert!(pool.0.is_empty());
        (0..2 * MAX_POOLED).for_each(|_| pool.give_back(vec![0; RECEIVE_BUFFER_BYTES]));
        assert_eq!(pool.0.len(), MAX_POOLED);
    }
}
