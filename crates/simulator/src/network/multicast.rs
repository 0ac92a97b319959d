//! Multicast: a packet that arrives on a channel of a tree is delivered at the node and copied to the branches.
//!
//! The table is keyed by the channel of arrival, as InfiniBand's forwarding tables are by port. So one table serves every root
//! of a tree with several (SE-7), and a node in the middle can send to the subtree below it.

use units::SimTime;

use super::channel::credit_blocks;
use super::{NetworkEventKind, SimulatedNetwork};
use crate::packet::{BufferLocation, ChannelId, PacketIndex};
use crate::slab::Slab;

/// The channels to which copies go, for each channel of arrival.
pub(crate) struct MulticastForwardingTable {
    /// Of channel `c`: `out[first[c]..first[c + 1]]`.
    first: Vec<u32>,
    out: Vec<ChannelId>,
}

impl MulticastForwardingTable {
    /// From pairs (channel of arrival, channel of departure), in any order.
    pub(crate) fn new(channels: u32, mut pairs: Vec<(ChannelId, ChannelId)>) -> Self {
        pairs.sort_unstable();
        pairs.dedup();
        let mut first = vec![0u32; channels as usize + 1];
        for (arrival, _) in &pairs {
            first[*arrival as usize + 1] += 1;
        }
        for channel in 0..channels as usize {
            first[channel + 1] += first[channel];
        }
        Self { first, out: pairs.into_iter().map(|(_, departure)| departure).collect() }
    }

    /// Whether no branch continues from the end of this channel.
    pub(super) fn ends_with(&self, arrival: ChannelId) -> bool {
        self.of(arrival).is_empty()
    }

    fn of(&self, arrival: ChannelId) -> std::ops::Range<usize> {
        self.first[arrival as usize] as usize..self.first[arrival as usize + 1] as usize
    }
}

/// A buffer that several copies share until the last has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedBuffer {
    pub buffer: BufferLocation,
    pub lane: u8,
    pub blocks: u32,
    /// When the latest departure ends.
    pub freed_at: SimTime,
    copies: u32,
}

/// All shared buffers.
#[derive(Default)]
pub(super) struct SharedBuffers(Slab<SharedBuffer>);

impl SharedBuffers {
    /// Shares a buffer among `copies` packets; the number that they carry.
    pub(super) fn share(&mut self, buffer: BufferLocation, lane: u8, blocks: u32, copies: u32) -> u32 {
        self.0.insert(SharedBuffer { buffer, lane, blocks, freed_at: SimTime::ZERO, copies })
    }

    /// Buffers that copies share now.
    pub(super) fn live(&self) -> usize {
        self.0.len()
    }

    /// One copy leaves the buffer at `freed_at`; if it is the last, the buffer to free.
    pub(super) fn release(&mut self, number: u32, freed_at: SimTime) -> Option<SharedBuffer> {
        let shared = self.0.get_mut(number)?;
        shared.freed_at = shared.freed_at.max(freed_at);
        shared.copies -= 1;
        if shared.copies > 0 { None } else { self.0.remove(number) }
    }
}

impl SimulatedNetwork {
    /// Adds a multicast tree; packets to it carry the returned number as their destination.
    pub(crate) fn add_multicast_table(&mut self, table: MulticastForwardingTable) -> u32 {
        self.multicast_tables.push(table);
        (self.multicast_tables.len() - 1) as u32
    }

    /// Copies a packet to the branches; the original is delivered at this node once it has arrived whole.
    pub(super) fn copy_to_branches(&mut self, index: PacketIndex, channel: ChannelId, tail: SimTime) {
        let packet = &self.packets[index];
        let tree = packet.to as usize;
        let range = self.multicast_tables[tree].of(channel);
        if !range.is_empty() {
            let copies = range.len() as u32 + 1;
            let blocks = credit_blocks(packet.bytes);
            let shared = self.shared_buffers.share(packet.buffer, packet.lane, blocks, copies);
            self.packets[index].buffer = BufferLocation::Shared(shared);
            for place in range {
                let out = self.multicast_tables[tree].out[place];
                let mut copy = self.packets[index].duplicate();
                copy.ready = self.ready_at(index, out, tail);
                let copy = self.packets.add(copy);
                self.offer(out, copy);
            }
        }
        self.push(tail, NetworkEventKind::Whole, index);
    }
}
