//! The rails to one peer: packets in flight, measured speed, corruption, and which rail is next.
//!
//! Rails keep order, so both ends count packets alike, and even a packet without a single trustworthy bit has a number (P-65).

use std::collections::VecDeque;

use units::Time;

/// The index of a rail to a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RailIndex(pub u8);

impl RailIndex {
    /// As an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A packet: its rail, and its number there.
pub(super) type RailPacketId = (RailIndex, u64);

/// What a packet carries, as far as it matters when the driver returns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketLoad {
    Ack,
    /// Control messages from this sequence number on.
    Control(u64),
    Fragment,
}

#[derive(Clone, Copy, Debug)]
struct RailInFlight {
    number: u64,
    load: PacketLoad,
    bytes: u64,
    since: Time,
}

#[derive(Debug)]
struct Rail {
    is_live: bool,
    next_number: u64,
    arrived: u64,
    in_flight: VecDeque<RailInFlight>,
    /// When the driver last returned a packet.
    last_completion: Time,
    /// Bytes per microsecond; zero before the first measurement.
    speed: u64,
    /// Grows with every corrupt packet on this rail, in either direction, and shrinks with every intact packet on any.
    distrust: u32,
}

/// What one corrupt packet adds to the distrust, the threshold of a bad rail, and the maximum.
const CORRUPTION_PENALTY: u32 = 8;
const DISTRUST_THRESHOLD: u32 = 32;
const MAX_DISTRUST: u32 = 64;

impl Rail {
    fn fragments(&self) -> usize {
        self.in_flight.iter().filter(|packet| packet.load == PacketLoad::Fragment).count()
    }
}

#[derive(Debug)]
pub(super) struct Rails {
    rails: Vec<Rail>,
    /// Whether any rail has distrust.
    any_distrust: bool,
}

impl Rails {
    pub(super) fn new(count: u8) -> Self {
        let rail = || Rail {
            is_live: true,
            next_number: 0,
            arrived: 0,
            in_flight: VecDeque::new(),
            last_completion: Time::ZERO,
            speed: 0,
            distrust: 0,
        };
        Self { rails: (0..count).map(|_| rail()).collect(), any_distrust: false }
    }

    pub(super) fn is_live(&self, rail: RailIndex) -> bool {
        self.rails.get(rail.index()).is_some_and(|rail| rail.is_live)
    }

    pub(super) fn any_live(&self) -> bool {
        self.rails.iter().any(|rail| rail.is_live)
    }

    /// Marks a rail as failed. False if it had failed before, or does not exist.
    pub(super) fn lose(&mut self, rail: RailIndex) -> bool {
        self.rails.get_mut(rail.index()).is_some_and(|rail| std::mem::take(&mut rail.is_live))
    }

    /// The rail for control packets, if it has fewer than `depth` packets in flight: the first live one with the least distrust,
    /// and not `avoid` unless it is the only one.
    #[inline]
    pub(super) fn for_control(&self, depth: usize, avoid: Option<RailIndex>) -> Option<RailIndex> {
        if let [rail] = self.rails.as_slice() {
            return (rail.is_live && rail.in_flight.len() < depth).then_some(RailIndex(0));
        }
        let live = self.rails.iter().enumerate().filter(|(_, rail)| rail.is_live);
        let badness = |index: usize, rail: &Rail| {
            (avoid == Some(RailIndex(index as u8)), rail.distrust / CORRUPTION_PENALTY, index)
        };
        let (index, rail) = live.min_by_key(|(index, rail)| badness(*index, rail))?;
        (rail.in_flight.len() < depth).then_some(RailIndex(index as u8))
    }

    /// The rail with the least in flight for its speed, among those with fewer than `depth` fragments in flight. `avoid` and rails
    /// that corrupt much are used only if there is no other live rail, busy or not.
    pub(super) fn for_fragment(&self, depth: usize, avoid: Option<RailIndex>) -> Option<RailIndex> {
        let live = || self.rails.iter().enumerate().filter(|(_, rail)| rail.is_live);
        let is_good =
            |index: usize, rail: &Rail| avoid != Some(RailIndex(index as u8)) && rail.distrust < DISTRUST_THRESHOLD;
        let any_good = live().any(|(index, rail)| is_good(index, rail));
        let allowed = live().filter(|(index, rail)| !any_good || is_good(*index, rail));
        let free = allowed.filter(|(_, rail)| rail.fragments() < depth);
        // Unmeasured rails come first.
        let backlog = |rail: &Rail| match rail.speed {
            0 => 0,
            speed => (rail.in_flight.iter().map(|packet| packet.bytes).sum::<u64>() + 1) * 1024 / speed,
        };
        free.min_by_key(|(index, rail)| (backlog(rail), *index)).map(|(index, _)| RailIndex(index as u8))
    }

    /// Fragments in flight on a rail.
    pub(super) fn fragments(&self, rail: RailIndex) -> usize {
        self.rails.get(rail.index()).map_or(0, Rail::fragments)
    }

    /// A packet arrived corrupt, at either end.
    pub(super) fn distrust(&mut self, rail: RailIndex) {
        if let Some(rail) = self.rails.get_mut(rail.index()) {
            rail.distrust = (rail.distrust + CORRUPTION_PENALTY).min(MAX_DISTRUST);
            self.any_distrust = true;
        }
    }

    /// A packet arrived intact. Reduces the distrust of all rails: an unused rail could not regain trust otherwise.
    #[inline]
    pub(super) fn trust(&mut self) {
        if self.any_distrust {
            self.rails.iter_mut().for_each(|rail| rail.distrust = rail.distrust.saturating_sub(1));
            self.any_distrust = self.rails.iter().any(|rail| rail.distrust > 0);
        }
    }

    /// The speed of a rail, in eighths of the fastest.
    pub(super) fn share(&self, rail: RailIndex) -> u64 {
        let fastest = self.rails.iter().filter(|rail| rail.is_live).map(|rail| rail.speed).max().unwrap_or(0);
        match (self.rails[rail.index()].speed, fastest) {
            (0, _) | (_, 0) => 8,
            (speed, fastest) => (speed * 8).div_ceil(fastest),
        }
    }

    /// Bytes per microsecond of all live rails together; none if one has not been measured.
    pub(super) fn speed(&self) -> Option<u64> {
        let mut live = self.rails.iter().filter(|rail| rail.is_live);
        live.try_fold(0u64, |sum, rail| (rail.speed > 0).then(|| sum.saturating_add(rail.speed)))
            .filter(|sum| *sum > 0)
    }

    /// Numbers a packet that arrives at once.
    #[inline]
    pub(super) fn number_immediate(&mut self, rail: RailIndex) -> u64 {
        let rail = &mut self.rails[rail.index()];
        rail.next_number += 1;
        rail.next_number - 1
    }

    /// Numbers a packet, and adds it to those in flight.
    pub(super) fn launch(&mut self, now: Time, rail: RailIndex, load: PacketLoad, bytes: usize) -> u64 {
        let rail = &mut self.rails[rail.index()];
        let number = rail.next_number;
        rail.next_number += 1;
        rail.in_flight.push_back(RailInFlight { number, load, bytes: bytes as u64, since: now });
        number
    }

    /// The driver returns the oldest packet in flight: its number and what it carried.
    pub(super) fn complete(&mut self, now: Time, rail: RailIndex) -> Option<(u64, PacketLoad)> {
        let rail = self.rails.get_mut(rail.index())?;
        let RailInFlight { number, load, bytes, since } = rail.in_flight.pop_front()?;
        if rail.is_live {
            let nanos = now.since(since.max(rail.last_completion)).as_nanos();
            if load == PacketLoad::Fragment && nanos > 0 {
                let sample = (u128::from(bytes) * 1_000 / u128::from(nanos)).clamp(1, 1 << 40) as u64;
                rail.speed = if rail.speed == 0 { sample } else { (rail.speed * 7 + sample) / 8 };
            }
            rail.last_completion = now;
        }
        Some((number, load))
    }

    /// Numbers a packet that arrived. None if there is no such rail.
    pub(super) fn note_arrival(&mut self, rail: RailIndex) -> Option<u64> {
        let rail = self.rails.get_mut(rail.index())?;
        rail.arrived += 1;
        Some(rail.arrived - 1)
    }

    /// Whether a packet is in flight on a live rail.
    pub(super) fn is_in_flight(&self, (rail, number): RailPacketId) -> bool {
        let oldest = |rail: &Rail| rail.in_flight.front().map(|packet| packet.number);
        self.rails.get(rail.index()).is_some_and(|rail| rail.is_live && oldest(rail).is_some_and(|old| old <= number))
    }
}
