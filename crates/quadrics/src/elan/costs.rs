//! Durations and rates of the adapters and of the hosts' software (QN-1, QN-8).

use units::SimSpan;

use super::super::packet::{CircuitPriority, PACKET_BYTES, wire_bytes};
use simulator::link_rate::ByteTime;
use simulator::processor::OsNoise;

/// The location of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MemoryLocation {
    /// In the adapter's memory.
    Elan,
    /// In main memory, behind the PCI bus.
    Main,
}

/// Durations and rates of an adapter and its host.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ElanCosts {
    /// A command of the host, until the command processor has it: a write over the PCI bus.
    pub command: SimSpan,
    /// The DMA processor, from a descriptor to its first packet.
    pub dma_start: SimSpan,
    /// The additional time of a DMA to a group.
    pub broadcast_start: SimSpan,
    /// The inputter, per packet.
    pub input: SimSpan,
    /// The thread processor: wake up, inspect, act.
    pub thread: SimSpan,
    /// The thread processor, matching a message with a receive.
    pub matching: SimSpan,
    /// From the adapter until a polling host sees a word in its memory.
    pub notify: SimSpan,
    /// The additional time of a host that waits for an event.
    pub event: SimSpan,
    /// The host's part of a collective call.
    pub call: SimSpan,
    /// How long a DMA may continue while others wait (QN-1).
    pub slice: SimSpan,
    /// Megabytes per second between main memory and adapter. One bus carries both directions, and the host's commands.
    pub pci_megabytes: u32,
    /// Megabytes per second of the adapter's own memory, shared by all data that leaves or enters it.
    pub memory_megabytes: u32,
    /// Megabytes per second of a copy by the host.
    pub copy_megabytes: u32,
    /// The priority of a polled barrier's tests in the network.
    pub poll_priority: CircuitPriority,
    /// A flag in memory shared by the processes of a node.
    pub flag: SimSpan,
    /// Bytes of a slot of the FIFO through which processes of one node receive broadcasts.
    pub fifo_bytes: u32,
    /// The noise of the operating system.
    pub noise: Option<OsNoise>,
}

impl ElanCosts {
    /// The time of a packet's byte, if the memories at its ends are slower than the link.
    pub(super) fn slowest(&self, memory: MemoryLocation) -> Option<ByteTime> {
        // Headers do not cross the bus: only data has the bus's rate.
        let megabits =
            u64::from(self.pci_megabytes) * 8 * u64::from(wire_bytes(PACKET_BYTES)) / u64::from(PACKET_BYTES);
        (memory == MemoryLocation::Main).then(|| ByteTime::of_megabits(megabits.clamp(1, 8_000_000)))
    }

    /// How long this much data occupies the adapter's memory.
    pub(super) fn transfer_time(&self, bytes: u32) -> SimSpan {
        SimSpan::from_picos(u64::from(bytes) * 1_000_000 / u64::from(self.memory_megabytes.max(1)))
    }

    /// How long this much data, or a command, occupies the PCI bus.
    pub(super) fn bus_time(&self, bytes: u32) -> SimSpan {
        SimSpan::from_picos(u64::from(bytes) * 1_000_000 / u64::from(self.pci_megabytes.max(1)))
    }

    /// How long a host takes to copy this much.
    pub(super) fn copy(&self, bytes: u32) -> SimSpan {
        SimSpan::from_picos(u64::from(bytes) * 1_000_000 / u64::from(self.copy_megabytes.max(1)))
    }
}
