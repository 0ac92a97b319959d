//! Packets in flight, in a pool that never shrinks and never moves them.

use std::rc::Rc;

use units::Time;

use super::ChannelId;
use crate::body::Body;

/// A place in the pool.
pub(crate) type PacketIndex = u32;
/// No packet: the end of a list.
pub(crate) const NONE: PacketIndex = u32::MAX;

/// What has befallen a packet. Rare, so it lives outside the packet's cache line.
#[derive(Clone, Debug)]
pub(crate) struct Harm {
    /// Bits flipped on the present link, counted from the first bit of the frame; empty if none.
    pub flipped: Vec<u32>,
    /// A switch found it bad while it was already on its way out: it carries a bad CRC and the end-bad-packet
    /// delimiter (SE-5), and whoever receives it knows that the fault lies further up.
    pub marked: bool,
    /// From when on the present holder knows that it is bad.
    pub known_at: Time,
    /// Where it was hurt before the link checked it: the VCRC is right, the contents are not.
    pub inside: Option<Inside>,
}

impl Harm {
    /// Bits flipped on the wire.
    pub(crate) fn flipped(bits: Vec<u32>) -> Self {
        Self { flipped: bits, marked: false, known_at: Time::NEVER, inside: None }
    }

    /// Spoiled inside the sending device.
    pub(crate) fn inside(inside: Inside, bits: Vec<u32>) -> Self {
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
pub(crate) enum Inside {
    /// A bit flipped in a buffer: the VCRC is right, the ICRC is not.
    Memory,
    /// A header whose length does not fit: malformed at the next device.
    Malformed,
    /// A destination that no table knows: a routing error at the next switch.
    Misrouted,
}

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// To one node.
    Node,
    /// Along the branches of a multicast tree; `Packet::to` names the tree.
    Tree,
}

/// One packet, or one copy of it on one branch. A hop touches one packet: it is one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Packet {
    /// When it was injected.
    pub born: Time,
    /// When it may leave the device in which it sits.
    pub ready: Time,
    /// What the machines put into it; nothing for background traffic.
    pub body: Option<Rc<Body>>,
    pub harm: Option<Box<Harm>>,
    /// The node's or the tree's number.
    pub to: u32,
    /// The channel on which it travels or came.
    pub came_on: ChannelId,
    /// The buffer that it occupies.
    pub seat: Seat,
    /// In a queue, the packet behind it. Under way, the channel on which it will go on, if that has been worked out.
    pub next: PacketIndex,
    /// Bytes on the wire, framing included.
    pub bytes: u32,
    /// Spreads packets that have a choice of ways.
    pub flow: u32,
    pub target: Target,
    pub lane: u8,
}

/// Whose buffer a packet occupies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seat {
    /// Its origin's own memory.
    Origin,
    /// The input buffer at the end of the channel on which it came.
    Behind(ChannelId),
    /// An input buffer shared with its sister copies; the number of the holding.
    Shared(u32),
}

impl Packet {
    /// A packet at its origin, ready to leave at `ready`.
    pub(crate) fn new(target: Target, to: u32, bytes: u32, ready: Time, body: Option<Rc<Body>>) -> Self {
        Self {
            born: ready,
            ready,
            body,
            harm: None,
            to,
            came_on: ChannelId::MAX,
            seat: Seat::Origin,
            next: NONE,
            bytes,
            flow: 0,
            target,
            lane: 0,
        }
    }

    /// A packet of background traffic.
    pub(crate) fn background(to: u32, bytes: u32, ready: Time) -> Self {
        Self::new(Target::Node, to, bytes, ready, None)
    }

    /// A copy of this packet, sharing its body and its seat.
    pub(crate) fn twin(&self) -> Self {
        Self { body: self.body.clone(), harm: self.harm.clone(), next: NONE, ..*self }
    }
}

/// All packets, with the free places chained through `next`.
#[derive(Default)]
pub(crate) struct Pool {
    packets: Vec<Packet>,
    free: Option<PacketIndex>,
    live: usize,
}

impl Pool {
    pub(crate) fn add(&mut self, packet: Packet) -> PacketIndex {
        self.live += 1;
        match self.free {
            Some(index) => {
                let place = &mut self.packets[index as usize];
                self.free = (place.next != NONE).then_some(place.next);
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
        let free = self.free.unwrap_or(NONE);
        let place = &mut self.packets[index as usize];
        place.body = None;
        place.harm = None;
        place.next = free;
        self.free = Some(index);
        self.live -= 1;
    }

    /// The packet at a place, if there is such a place.
    #[inline]
    pub(crate) fn peek(&self, index: PacketIndex) -> Option<&Packet> {
        self.packets.get(index as usize)
    }

    /// How many packets exist now.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Bytes that the pool holds.
    pub(crate) fn memory(&self) -> usize {
        self.packets.capacity() * size_of::<Packet>()
    }
}

impl std::ops::Index<PacketIndex> for Pool {
    type Output = Packet;
    #[inline]
    fn index(&self, index: PacketIndex) -> &Packet {
        &self.packets[index as usize]
    }
}

impl std::ops::IndexMut<PacketIndex> for Pool {
    #[inline]
    fn index_mut(&mut self, index: PacketIndex) -> &mut Packet {
        &mut self.packets[index as usize]
    }
}

const _: () = assert!(size_of::<Packet>() == 64);
