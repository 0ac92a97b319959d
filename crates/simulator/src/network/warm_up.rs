//! Cache warm-up: loads the memory of the next events of a large fabric before they are handled.

use super::{KIND_SHIFT, NetworkEventKind, SimulatedNetwork};

/// Events whose memory is loaded in one burst.
const BURST: usize = 64;

impl SimulatedNetwork {
    /// Loads the memory that the next few events will need. On large fabrics a hop mostly waits for memory; in a burst the waits
    /// overlap, because no load depends on another. First the packets, then the channels on which they arrived, then, with the routes
    /// precomputed and stored in the packets, the channels on which they will leave.
    #[inline]
    pub(super) fn warm_up(&mut self) {
        if !self.is_large {
            return;
        }
        if self.warm > 0 {
            self.warm -= 1;
            return;
        }
        self.warm_up_burst();
    }

    fn warm_up_burst(&mut self) {
        self.queue.look_ahead();
        let mut soon = [(0u64, 0u32); BURST];
        let mut count = 0;
        while let Some(what) = self.queue.peek(count).filter(|_| count < BURST) {
            soon[count] = (what >> KIND_SHIFT, what as u32);
            count += 1;
        }
        self.warm = count as u32;
        let is_wake = |kind: u64| kind == NetworkEventKind::Wake as u64;
        let packets = soon[..count].iter().filter(|(kind, _)| !is_wake(*kind));
        let touched =
            packets.fold(0, |sum, (_, index)| sum ^ self.packets.peek(*index).map_or(0, |packet| packet.to));
        std::hint::black_box(touched);
        let arrival_channel = |(kind, number): &(u64, u32)| {
            if is_wake(*kind) {
                *number
            } else {
                self.packets.peek(*number).map_or(0, |packet| packet.arrival_channel)
            }
        };
        let channels = soon[..count].iter().filter_map(|event| self.channels.get(arrival_channel(event) as usize));
        std::hint::black_box(channels.fold(0, |sum, channel| sum ^ channel.to));
        // What each event leads to: for a head the channel it leaves on, for a wake-up the packet that waits there. The routes are
        // computed before any of it is loaded: a long computation between two loads would keep them apart.
        let mut next = [u32::MAX; BURST];
        for ((kind, number), next) in soon[..count].iter().zip(&mut next) {
            if *kind == NetworkEventKind::Head as u64 {
                self.precompute_route(*number);
                *next = self.packets[*number].next;
            } else if is_wake(*kind) {
                *next = self.channels[*number as usize].lane.head;
            }
        }
        let mut touched = 0;
        for ((kind, _), next) in soon[..count].iter().zip(&next) {
            touched ^= if is_wake(*kind) {
                self.packets.peek(*next).map_or(0, |packet| packet.bytes)
            } else {
                self.channels.get(*next as usize).map_or(0, |channel| channel.to)
            };
        }
        // One step further: the last packet of the queue that a head would join, and the channel of the buffer that a waiting packet
        // leaves.
        for ((kind, _), next) in soon[..count].iter().zip(&next) {
            if *kind == NetworkEventKind::Head as u64 {
                let last = self.channels.get(*next as usize).map_or(u32::MAX, |channel| channel.lane.tail);
                touched ^= self.packets.peek(last).map_or(0, |packet| packet.bytes);
            } else if is_wake(*kind) {
                let left = self.packets.peek(*next).map_or(u32::MAX, |packet| packet.arrival_channel);
                touched ^= self.channels.get(left as usize).map_or(0, |channel| channel.to);
            }
        }
        std::hint::black_box(touched);
    }
}

/// The width of the event queue's fine buckets, as a power of two of picoseconds: a bucket should hold enough events for a whole
/// warm-up burst, and few enough to be sorted in the nearest caches.
pub(super) fn bucket_shift(nodes: u32) -> u32 {
    if nodes < 262_144 { 10 } else { 8 }
}
