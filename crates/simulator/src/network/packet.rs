//! Packets in flight, in a pool that never shrinks and never moves them.

use std::rc::Rc;

use units::SimTime;

use super::ChannelId;
use crate::packet_body::PacketBody;

/// A place in the pool.
pub(crate) type PacketIndex = u32;
/// No packet: the end of a list.
pub(crate) const NO_PACKET: PacketIndex = u32::MAX;

/// What has befallen a packet. Rare, so it lives outside the packet's cache line.
#[derive(Clone, Debug)]
pub(crate) struct PacketCorruption {
    /// Bits flipped on the present link, counted from the first bit of the frame; empty if none.
    pub flipped: Vec<u32>,
    /// A switch found it bad while it was already on its way out: it carries a bad CRC and the end-bad-packet
    /// delimiter (SE-5), and whoever receives it knows that the fault lies further up.
    pub marked: bool,
    /// From when on the present holder knows that it is bad.
    pub known_at: SimTime,
    /// Where it was hurt before the link checked it: the VCRC is right, the contents are not.
    pub inside: Option<DeviceCorruption>,
}

impl PacketCorruption {
    /// Bits flipped on the wire.
    pub(crate) fn flipped(bits: Vec<u32>) -> Self {
        Self { flipped: bits, marked: false, known_at: SimTime::NEVER, inside: None }
    }

    /// Spoiled inside the sending device.
    pub(crate) fn inside(inside: DeviceCorruption, bits: Vec<u32>) -> Self {
        Self { inside: Some(inside), ..Self::flipped(bits) }
    }

    /// Condemned by a switch that was already passing it on.
    pub(crate) fn marked() -> Self {
        Self { marked: true, ..Self::flipped(Vec::new()) }
    }

    /// More harm to the same packet.
    pub(crate) fn add(&mut self, more: Self) {
        self.flipped.extend(more.flipped);
        self.inside = self.inside.or(more.inside);
    }
}

/// Harm done inside a device, where the link's CRC is made anew over it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeviceCorruption {
    /// A bit flipped in a buffer: the VCRC is right, the ICRC is not.
    Memory,
    /// A header whose length does not fit: malformed at the next device.
    Malformed,
    /// A destination that no table knows: a routing error at the next switch.
    Misrouted,
}

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketTarget {
    /// To one node.
    Node,
    /// Along the branches of a multicast tree; `SimulatedPacket::to` names the tree.
    Tree,
}

/// One packet, or one copy of it on one branch. A hop touches one packet: it is one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct SimulatedPacket {
    /// When it was injected.
    pub born: SimTime,
    /// When it may leave the device in which it sits.
    pub ready: SimTime,
    /// What the machines put into it; nothing for background traffic.
    pub body: Option<Rc<PacketBody>>,
    pub harm: Option<Box<PacketCorruption>>,
    /// The node's or the tree's number.
    pub to: u32,
    /// The channel on which it travels or came.
    pub came_on: ChannelId,
    /// The buffer that it occupies.
    pub seat: BufferLocation,
    /// In a queue, the packet behind it. Under way, the channel on which it will go on, if that has been worked out.
    pub next: PacketIndex,
    /// Bytes on the wire, framing included.
    pub bytes: u32,
    /// Spreads packets that have a choice of ways.
    pub flow: u32,
    pub target: PacketTarget,
    pub lane: u8,
}

/// Whose buffer a packet occupies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BufferLocation {
    /// Its origin's own memory.
    Origin,
    /// The input buffer at the end of the channel on which it came.
    Behind(ChannelId),
    /// An input buffer shared with its sister copies; the number of the holding.
    Shared(u32),
}

impl SimulatedPacket {
    /// A packet at its origin, ready to leave at `ready`.
    pub(crate) fn new(
        target: PacketTarget,
        to: u32,
        bytes: u32,
        ready: SimTime,
        body: Option<Rc<PacketBody>>,
    ) -> Self {
        Self {
            born: ready,
            ready,
            body,
            harm: None,
            to,
            came_on: ChannelId::MAX,
            seat: BufferLocation::Origin,
            next: NO_PACKET,
            bytes,
            flow: 0,
            target,
            lane: 0,
        }
    }

    /// A packet of background traffic.
    pub(crate) fn background(to: u32, bytes: u32, ready: SimTime) -> Self {
        Self::new(PacketTarget::Node, to, bytes, ready, None)
    }

    /// A copy of this packet, sharing its body and its seat.
    pub(crate) fn twin(&self) -> Self {
        Self { body: self.body.clone(), harm: self.harm.clone(), next: NO_PACKET, ..*self }
    }
}

/// All packets, with the free places chained through `next`.
#[derive(Default)]
pub(crate) struct PacketPool {
    packets: Vec<SimulatedPacket>,
    free: Option<PacketIndex>,
    live: usize,
}

impl PacketPool {
    pub(crate) fn add(&mut self, packet: SimulatedPacket) -> PacketIndex {
        self.live += 1;
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
        place.harm = None;
        place.next = free;
        self.free = Some(index);
        self.live -= 1;
    }

    /// The packet at a place, if there is such a place.
    #[inline]
    pub(crate) fn peek(&self, index: PacketIndex) -> Option<&SimulatedPacket> {
        self.packets.get(index as usize)
    }

    /// How many packets exist now.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Bytes that the pool holds.
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
