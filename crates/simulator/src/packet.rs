//! Packets in flight, in a pool that never shrinks and never moves a packet.

use std::rc::Rc;

use units::SimTime;

use crate::packet_body::PacketBody;

/// The number of a channel: one direction of a cable, or of one lane of a split cable.
pub(crate) type ChannelId = u32;

/// A place in the pool.
pub(crate) type PacketIndex = u32;
/// No packet: the end of a list.
pub(crate) const NO_PACKET: PacketIndex = u32::MAX;

/// The number of a driver among those that share the network; zero if there is only one.
pub(crate) type DriverIndex = u16;
/// The number of the flow engine, which is part of the network and shares it with any driver.
pub(crate) const FLOW_DRIVER: DriverIndex = DriverIndex::MAX - 1;

/// The faults of a packet. Rare, so they are stored outside the packet's cache line.
#[derive(Clone, Debug)]
pub(crate) struct PacketCorruption {
    /// Bits flipped on the present link, counted from the first bit of the frame.
    pub flipped: Vec<u32>,
    /// A switch detected the fault after it had started to forward the packet: the packet has a bad CRC and the end-bad-packet
    /// delimiter (SE-5), and its receiver knows that the fault lies upstream.
    pub marked: bool,
    /// When the device that holds the packet detects the fault.
    pub detected_at: SimTime,
    /// A fault inside the sending device, before it computed the VCRC: the VCRC is right, the contents are not.
    pub device: Option<DeviceCorruption>,
}

impl PacketCorruption {
    /// Bits flipped on the wire.
    pub(crate) fn flipped(bits: Vec<u32>) -> Self {
        Self { flipped: bits, marked: false, detected_at: SimTime::NEVER, device: None }
    }

    /// Corrupted inside the sending device.
    pub(crate) fn device(device: DeviceCorruption, bits: Vec<u32>) -> Self {
        Self { device: Some(device), ..Self::flipped(bits) }
    }

    /// Marked bad by a switch that was already forwarding it.
    pub(crate) fn marked() -> Self {
        Self { marked: true, ..Self::flipped(Vec::new()) }
    }

    /// Adds more faults to the same packet.
    pub(crate) fn add(&mut self, more: Self) {
        self.flipped.extend(more.flipped);
        self.device = self.device.or(more.device);
    }
}

/// A fault inside a device, which computes the VCRC over the corrupted packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeviceCorruption {
    /// A bit flipped in a buffer: the VCRC is right, the ICRC is not.
    Memory,
    /// A header with a wrong length: malformed at the next device.
    Malformed,
    /// A destination that no forwarding table has: a routing error at the next switch.
    Misrouted,
}

/// The kind of a packet's destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketTarget {
    /// One node.
    Node,
    /// The branches of a multicast tree; `SimulatedPacket::to` is the tree's number.
    Tree,
}

/// One packet, or one copy of it on one branch. A hop touches one packet: it is one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct SimulatedPacket {
    /// When it was injected.
    pub injected_at: SimTime,
    /// When it may leave its present device.
    pub ready: SimTime,
    /// The contents from the protocol machines; none for background traffic.
    pub body: Option<Rc<PacketBody>>,
    pub corruption: Option<Box<PacketCorruption>>,
    /// The node's or the tree's number.
    pub to: u32,
    /// The channel on which it travels or arrived.
    pub arrival_channel: ChannelId,
    /// The buffer that it occupies.
    pub buffer: BufferLocation,
    /// In a queue, the packet behind it. In flight, the channel on which it will leave, if that is already computed.
    pub next: PacketIndex,
    /// Bytes on the wire, framing included.
    pub bytes: u32,
    /// Distributes packets over equal routes.
    pub flow: u32,
    pub target: PacketTarget,
    pub lane: u8,
    /// The sender among the drivers that share the network.
    pub driver: DriverIndex,
}

/// The buffer that a packet occupies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BufferLocation {
    /// The memory of its sender.
    Origin,
    /// The input buffer at the end of the channel on which it arrived.
    Behind(ChannelId),
    /// An input buffer that it shares with the other copies; the number in `SharedBuffers`.
    Shared(u32),
}

impl SimulatedPacket {
    /// A packet at its sender, ready to leave at `ready`.
    pub(crate) fn new(
        target: PacketTarget,
        to: u32,
        bytes: u32,
        ready: SimTime,
        body: Option<Rc<PacketBody>>,
    ) -> Self {
        Self {
            injected_at: ready,
            ready,
            body,
            corruption: None,
            to,
            arrival_channel: ChannelId::MAX,
            buffer: BufferLocation::Origin,
            next: NO_PACKET,
            bytes,
            flow: 0,
            target,
            lane: 0,
            driver: 0,
        }
    }

    /// A packet of background traffic.
    pub(crate) fn background(to: u32, bytes: u32, ready: SimTime) -> Self {
        Self::new(PacketTarget::Node, to, bytes, ready, None)
    }

    /// A copy of this packet, sharing its body and its buffer.
    pub(crate) fn duplicate(&self) -> Self {
        Self { body: self.body.clone(), corruption: self.corruption.clone(), next: NO_PACKET, ..*self }
    }
}

/// All packets; free places are chained through `next`.
#[derive(Default)]
pub(crate) struct PacketPool {
    packets: Vec<SimulatedPacket>,
    free: Option<PacketIndex>,
    live: usize,
    /// Of these, the packets of flows.
    live_flows: usize,
}

impl PacketPool {
    pub(crate) fn add(&mut self, packet: SimulatedPacket) -> PacketIndex {
        self.live += 1;
        self.live_flows += usize::from(packet.driver == FLOW_DRIVER);
        match self.free {
            Some(index) => {
                let place = &mut self.packets[index as usize];
                self.free = (place.next != NO_PACKET).then_some(place.next);
                *place = packet;
                index
            }
            None => {
                self.packets.push(packet);
                (self.packets.len() - 1) as PacketIndex
            }
        }
    }

    pub(crate) fn remove(&mut self, index: PacketIndex) {
        let free = self.free.unwrap_or(NO_PACKET);
        let place = &mut self.packets[index as usize];
        place.body = None;
        place.corruption = None;
        place.next = free;
        self.live_flows -= usize::from(place.driver == FLOW_DRIVER);
        self.free = Some(index);
        self.live -= 1;
    }

    /// The packet at a place, if the place exists.
    #[inline]
    pub(crate) fn peek(&self, index: PacketIndex) -> Option<&SimulatedPacket> {
        self.packets.get(index as usize)
    }

    /// The number of packets.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// The number of packets that belong to drivers, not to flows.
    pub(crate) fn live_of_drivers(&self) -> usize {
        self.live - self.live_flows
    }

    /// Bytes of the pool.
    pub(crate) fn memory(&self) -> usize {
        self.packets.capacity() * size_of::<SimulatedPacket>()
    }
}

impl std::ops::Index<PacketIndex> for PacketPool {
    type Output = SimulatedPacket;
    #[inline]
    fn index(&self, index: PacketIndex) -> &SimulatedPacket {
        &self.packets[index as usize]
    }
}

impl std::ops::IndexMut<PacketIndex> for PacketPool {
    #[inline]
    fn index_mut(&mut self, index: PacketIndex) -> &mut SimulatedPacket {
        &mut self.packets[index as usize]
    }
}

const _: () = assert!(size_of::<SimulatedPacket>() == 64);
