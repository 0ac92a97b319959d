//! A channel is one direction of a cable (or of one lane of a split cable): a transmitter with a queue per virtual lane, and
//! the credits it holds for the buffer at the far end.
//!
//! Credits are counted in blocks of 64 bytes, as InfiniBand does. A returning credit is stored with its time of arrival and
//! collected when a packet needs it, so that it costs no event unless a packet waits.

use units::{SimSpan, SimTime};

use crate::link_rate::ByteTime;
use crate::packet::{NO_PACKET, PacketIndex};

/// Bytes of one credit block (IB specification 7.9.4.3).
const BLOCK: u32 = 64;

/// The credit blocks of a packet.
#[inline]
pub(crate) const fn credit_blocks(bytes: u32) -> u32 {
    bytes.div_ceil(BLOCK)
}

/// The constants that channels of one kind share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkClass {
    pub byte_time: ByteTime,
    /// Time of flight.
    pub wire: SimSpan,
}

/// Conditions that send a packet off the fast path.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ChannelFlags {
    /// The cable is down: it loses every packet.
    pub down: bool,
    /// A fault rule watches the departures.
    pub watched: bool,
    /// The handler supplies the next packet when the queue is empty.
    pub source: bool,
    /// A pause frame has stopped one of the lanes (Ethernet).
    pub paused: bool,
}

/// The transmitter's state, with its first virtual lane: a hop without contention touches this one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Channel {
    pub busy_until: SimTime,
    /// The time of the pending wake-up, or never. A wake-up event of any other time is stale.
    pub wake_at: SimTime,
    /// The node at the far end.
    pub to: u32,
    /// Packets sent, to find the busiest link.
    pub sent: u32,
    pub class: u8,
    pub flags: ChannelFlags,
    /// The virtual lane that is served first at the next wake-up.
    pub next_lane: u8,
    /// Virtual lane 0; the others, if there are any, are stored in a list of their own.
    pub lane: VirtualLaneState,
}

/// One virtual lane of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualLaneState {
    pub head: PacketIndex,
    pub tail: PacketIndex,
    /// Returning credits: the latest return here, earlier ones that are not yet due in [`CreditReturns`].
    due: SimTime,
    due_blocks: u32,
    /// Free blocks at the far end, as known at this end.
    pub credit: u32,
    returning: u32,
    /// A packet waits for credits, and the returns under way do not suffice.
    pub starved: bool,
}

impl VirtualLaneState {
    pub(crate) const fn new(credit: u32) -> Self {
        Self {
            head: NO_PACKET,
            tail: NO_PACKET,
            due: SimTime::ZERO,
            due_blocks: 0,
            credit,
            returning: NO_PACKET,
            starved: false,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NO_PACKET
    }
}

/// Returning credits, in a pool of small lists.
#[derive(Default)]
pub(crate) struct CreditReturns {
    entries: Vec<Return>,
    free: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Return {
    at: SimTime,
    blocks: u32,
    next: u32,
}

impl CreditReturns {
    /// Stores that `blocks` will be back at `at`.
    #[inline]
    pub(crate) fn promise(&mut self, lane: &mut VirtualLaneState, now: SimTime, at: SimTime, blocks: u32) {
        if lane.due <= now {
            lane.credit += lane.due_blocks;
        } else {
            self.defer(lane);
        }
        (lane.due, lane.due_blocks) = (at, blocks);
    }

    /// Moves a lane's latest return to its list: another one was promised before it was due.
    fn defer(&mut self, lane: &mut VirtualLaneState) {
        let entry = Return { at: lane.due, blocks: lane.due_blocks, next: lane.returning };
        lane.returning = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
    }

    /// Adds all credits that are back by `at` to the lane.
    pub(crate) fn collect(&mut self, lane: &mut VirtualLaneState, at: SimTime) {
        if lane.due <= at {
            lane.credit += lane.due_blocks;
            lane.due_blocks = 0;
        }
        let mut kept = NO_PACKET;
        let mut index = lane.returning;
        while index != NO_PACKET {
            let entry = &mut self.entries[index as usize];
            let next = entry.next;
            if entry.at <= at {
                lane.credit += entry.blocks;
                self.free.push(index);
            } else {
                entry.next = kept;
                kept = index;
            }
            index = next;
        }
        lane.returning = kept;
    }

    /// When the lane will hold `needed` blocks; none if the returns under way do not suffice.
    pub(crate) fn sufficient_at(&self, lane: &VirtualLaneState, needed: u32) -> Option<SimTime> {
        let mut promised = vec![(lane.due, lane.due_blocks)];
        let mut index = lane.returning;
        while index != NO_PACKET {
            let entry = self.entries[index as usize];
            promised.push((entry.at, entry.blocks));
            index = entry.next;
        }
        promised.sort_unstable();
        let mut credit = lane.credit;
        promised.into_iter().find_map(|(at, blocks)| {
            credit += blocks;
            (credit >= needed).then_some(at)
        })
    }

    /// The lane's blocks: those it has, and those that are under way to it.
    pub(crate) fn total(&self, lane: &VirtualLaneState) -> u64 {
        let mut blocks = u64::from(lane.credit) + u64::from(lane.due_blocks);
        let mut index = lane.returning;
        while index != NO_PACKET {
            let entry = self.entries[index as usize];
            blocks += u64::from(entry.blocks);
            index = entry.next;
        }
        blocks
    }

    /// Bytes of the pool.
    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Return>() + self.free.capacity() * size_of::<u32>()
    }
}

// This bounds the fabric's state per host (a full fat tree of a million hosts has eight channels a host).
const _: () = assert!(size_of::<Channel>() == 64 && size_of::<VirtualLaneState>() <= 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_come_back_when_they_are_due_and_not_before() {
        let (mut returns, mut lane) = (CreditReturns::default(), VirtualLaneState::new(2));
        for (at, blocks) in [(300, 4), (100, 1), (200, 3)] {
            returns.promise(&mut lane, SimTime::ZERO, SimTime::from_picos(at), blocks);
        }
        assert_eq!(returns.sufficient_at(&lane, 6), Some(SimTime::from_picos(200)));
        assert_eq!(returns.sufficient_at(&lane, 11), None);
        returns.collect(&mut lane, SimTime::from_picos(150));
        assert_eq!(lane.credit, 3);
        returns.collect(&mut lane, SimTime::from_picos(300));
        assert_eq!((lane.credit, lane.returning), (10, NO_PACKET));
        assert_eq!(returns.sufficient_at(&lane, 11), None);
    }
}
