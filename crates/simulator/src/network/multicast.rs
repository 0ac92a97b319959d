//! Multicast: a packet that arrives on a channel of a tree is heard here and copied to the branches.
//!
//! The table is keyed by the channel of arrival, as InfiniBand's forwarding tables are by port, so one table
//! serves every root of a tree with several (SE-7), and a node in the middle can send down its own part.

use units::SimTime;

use super::channel::credit_blocks;
use super::packet::{BufferLocation, PacketIndex};
use super::{ChannelId, Kind, SimulatedNetwork};

/// Where copies go, for each channel of arrival.
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

    /// True if nothing goes on from the end of this channel.
    pub(super) fn ends_with(&self, arrival: ChannelId) -> bool {
        self.of(arrival).is_empty()
    }

    fn of(&self, arrival: ChannelId) -> std::ops::Range<usize> {
        self.first[arrival as usize] as usize..self.first[arrival as usize + 1] as usize
    }
}

/// A buffer place that several copies share until the last has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedBuffer {
    pub seat: BufferLocation,
    pub lane: u8,
    pub blocks: u32,
    /// When the last of those that left was gone.
    pub gone: SimTime,
    left: u32,
}

/// All shared places; free ones are reused.
#[derive(Default)]
pub(super) struct SharedBuffers {
    holdings: Vec<SharedBuffer>,
    free: Vec<u32>,
}

impl SharedBuffers {
    /// Opens a holding for so many copies.
    pub(super) fn open(&mut self, seat: BufferLocation, lane: u8, blocks: u32, copies: u32) -> u32 {
        let holding = SharedBuffer { seat, lane, blocks, gone: SimTime::ZERO, left: copies };
        match self.free.pop() {
            Some(number) => {
                self.holdings[number as usize] = holding;
                number
            }
            None => {
                self.holdings.push(holding);
                (self.holdings.len() - 1) as u32
            }
        }
    }

    /// One copy will be gone by `gone`; if it was the last, the place to give back.
    pub(super) fn leave(&mut self, number: u32, gone: SimTime) -> Option<SharedBuffer> {
        let holding = &mut self.holdings[number as usize];
        holding.gone = holding.gone.max(gone);
        holding.left -= 1;
        if holding.left > 0 {
            return None;
        }
        self.free.push(number);
        Some(self.holdings[number as usize])
    }
}

impl SimulatedNetwork {
    /// Makes a tree known; packets to it carry the number that is returned.
    pub(crate) fn plant(&mut self, branches: MulticastForwardingTable) -> u32 {
        self.branches.push(branches);
        (self.branches.len() - 1) as u32
    }

    /// Copies a packet to the branches; the original is heard at this node once it is whole.
    pub(super) fn branch_out(&mut self, index: PacketIndex, channel: ChannelId, tail: SimTime) {
        let packet = &self.packets[index];
        let tree = packet.to as usize;
        let range = self.branches[tree].of(channel);
        if !range.is_empty() {
            let shared =
                self.holdings.open(packet.seat, packet.lane, credit_blocks(packet.bytes), range.len() as u32 + 1);
            self.packets[index].seat = BufferLocation::Shared(shared);
            for place in range {
                let out = self.branches[tree].out[place];
                let mut copy = self.packets[index].twin();
                copy.ready = self.ready_at(index, out, tail);
                let copy = self.packets.add(copy);
                self.offer(out, copy);
            }
        }
        self.push(tail, Kind::Whole, index);
    }
}
