//! What the adapters and the hosts' software take (QN-1, QN-8).

use units::SimSpan;

use super::super::packet::{PACKET_BYTES, wire_bytes};
use simulator::link_rate::ByteTime;
use simulator::processor::OsNoise;

/// Where a buffer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MemoryLocation {
    /// On the adapter.
    Elan,
    /// Behind the PCI bus.
    Main,
}

/// What an adapter and its host take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ElanCosts {
    /// A command of the host, until the command processor has it: a write over the PCI bus.
    pub command: SimSpan,
    /// The DMA processor, until a descriptor's first packet leaves.
    pub dma_start: SimSpan,
    /// What a DMA to a group takes beyond that.
    pub broadcast_start: SimSpan,
    /// The inputter, for a packet.
    pub input: SimSpan,
    /// The thread processor: wake, look, act.
    pub thread: SimSpan,
    /// The thread processor, matching a message with a receive.
    pub matching: SimSpan,
    /// From the adapter until a polling host sees a word in its memory.
    pub notify: SimSpan,
    /// What a host that waits for an event takes longer.
    pub event: SimSpan,
    /// The host's part of a collective call.
    pub call: SimSpan,
    /// How long a DMA may go on while others wait (QN-1).
    pub slice: SimSpan,
    /// Megabytes a second between main memory and adapter.
    pub pci_megabytes: u32,
    /// Megabytes a second of the adapter's own memory: all data that leaves it or comes into it shares them.
    pub memory_megabytes: u32,
    /// Megabytes a second that a host copies.
    pub copy_megabytes: u32,
    /// A flag in memory that processes of one node share.
    pub flag: SimSpan,
    /// Bytes of a slot of the FIFO through which processes of one node receive broadcasts.
    pub fifo_bytes: u32,
    /// What the operating system does besides.
    pub noise: Option<OsNoise>,
}

impl ElanCosts {
    /// What a byte of a packet takes where the memories at its ends are slower than the link.
    pub(super) fn slowest(&self, memory: MemoryLocation) -> Option<ByteTime> {
        // Headers do not cross the bus: data alone has the bus's rate.
        let megabits =
            u64::from(self.pci_megabytes) * 8 * u64::from(wire_bytes(PACKET_BYTES)) / u64::from(PACKET_BYTES);
        (memory == MemoryLocation::Main).then(|| ByteTime::of_megabits(megabits.clamp(1, 8_000_000)))
    }

    /// The adapter's memory is busy with so much.
    pub(super) fn moving(&self, bytes: u32) -> SimSpan {
        SimSpan::from_picos(u64::from(bytes) * 1_000_000 / u64::from(self.memory_megabytes.max(1)))
    }

    /// A host copies so much.
    pub(super) fn copy(&self, bytes: u32) -> SimSpan {
        SimSpan::from_picos(u64::from(bytes) * 1_000_000 / u64::from(self.copy_megabytes.max(1)))
    }
}
