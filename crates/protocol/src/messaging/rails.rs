//! The rails to one peer: what is on its way on each, how fast they are, and which one comes next.
//!
//! Rails keep order, so both ends count parcels alike, and a parcel of which not a single bit can be believed still has a
//! number (P-83).

use std::collections::VecDeque;

use units::Time;

/// A way to a peer, by its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RailIndex(pub u8);

impl RailIndex {
    /// As an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A parcel's number on its rail.
pub(super) type RailPacketId = (RailIndex, u64);

/// What a parcel carries, as far as it matters when it has gone out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketLoad {
    Bare,
    /// Letters from this number on.
    Letters(u64),
    Piece,
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
    came: u64,
    flights: VecDeque<RailInFlight>,
    /// When the last parcel was known to have come.
    landed: Time,
    /// Bytes per microsecond; zero if not measured.
    speed: u64,
    /// Grows with every parcel that it spoils, in either direction, and shrinks with every parcel that comes well.
    distrust: u32,
}

/// What one spoiled parcel adds, what makes a rail a bad one, and the most there can be.
const CORRUPTION_PENALTY: u32 = 8;
const DISTRUST_THRESHOLD: u32 = 32;
const MAX_DISTRUST: u32 = 64;

impl Rail {
    fn pieces(&self) -> usize {
        self.flights.iter().filter(|flight| flight.load == PacketLoad::Piece).count()
    }
}

#[derive(Debug)]
pub(super) struct Rails {
    rails: Vec<Rail>,
    /// Whether any is distrusted.
    any_distrust: bool,
}

impl Rails {
    pub(super) fn new(count: u8) -> Self {
        let rail = || Rail {
            is_live: true,
            next_number: 0,
            came: 0,
            flights: VecDeque::new(),
            landed: Time::ZERO,
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

    /// False if it was lost before or never was.
    pub(super) fn lose(&mut self, rail: RailIndex) -> bool {
        self.rails.get_mut(rail.index()).is_some_and(|rail| std::mem::take(&mut rail.is_live))
    }

    /// The rail for letters, if it has fewer than so many parcels under way: the first that lives and is trusted, and not the
    /// one to be avoided unless there is no other.
    #[inline]
    pub(super) fn for_letters(&self, depth: usize, avoid: Option<RailIndex>) -> Option<RailIndex> {
        if let [rail] = self.rails.as_slice() {
            return (rail.is_live && rail.flights.len() < depth).then_some(RailIndex(0));
        }
        let live = self.rails.iter().enumerate().filter(|(_, rail)| rail.is_live);
        let worth = |index: usize, rail: &Rail| {
            (avoid == Some(RailIndex(index as u8)), rail.distrust / CORRUPTION_PENALTY, index)
        };
        let (index, rail) = live.min_by_key(|(index, rail)| worth(*index, rail))?;
        (rail.flights.len() < depth).then_some(RailIndex(index as u8))
    }

    /// The rail that has the least under way, for its speed, of those that have fewer than so many pieces under way. One that is
    /// to be avoided, or spoils much, serves only if there is no other, busy or not.
    pub(super) fn for_piece(&self, depth: usize, avoid: Option<RailIndex>) -> Option<RailIndex> {
        let live = || self.rails.iter().enumerate().filter(|(_, rail)| rail.is_live);
        let is_good =
            |index: usize, rail: &Rail| avoid != Some(RailIndex(index as u8)) && rail.distrust < DISTRUST_THRESHOLD;
        let any_good = live().any(|(index, rail)| is_good(index, rail));
        let allowed = live().filter(|(index, rail)| !any_good || is_good(*index, rail));
        let free = allowed.filter(|(_, rail)| rail.pieces() < depth);
        // Those that nobody has measured come first.
        let burden = |rail: &Rail| match rail.speed {
            0 => 0,
            speed => (rail.flights.iter().map(|flight| flight.bytes).sum::<u64>() + 1) * 1024 / speed,
        };
        free.min_by_key(|(index, rail)| (burden(rail), *index)).map(|(index, _)| RailIndex(index as u8))
    }

    /// So many pieces are under way on a rail.
    pub(super) fn pieces(&self, rail: RailIndex) -> usize {
        self.rails.get(rail.index()).map_or(0, Rail::pieces)
    }

    /// A parcel came spoiled, here or there.
    pub(super) fn distrust(&mut self, rail: RailIndex) {
        if let Some(rail) = self.rails.get_mut(rail.index()) {
            rail.distrust = (rail.distrust + CORRUPTION_PENALTY).min(MAX_DISTRUST);
            self.any_distrust = true;
        }
    }

    /// A parcel came well. All are trusted more again: one that nobody uses has no other way to be tried once more.
    #[inline]
    pub(super) fn trust(&mut self) {
        if self.any_distrust {
            self.rails.iter_mut().for_each(|rail| rail.distrust = rail.distrust.saturating_sub(1));
            self.any_distrust = self.rails.iter().any(|rail| rail.distrust > 0);
        }
    }

    /// Eighths of the speed of the fastest.
    pub(super) fn share(&self, rail: RailIndex) -> u64 {
        let fastest = self.rails.iter().filter(|rail| rail.is_live).map(|rail| rail.speed).max().unwrap_or(0);
        match (self.rails[rail.index()].speed, fastest) {
            (0, _) | (_, 0) => 8,
            (speed, fastest) => (speed * 8).div_ceil(fastest),
        }
    }

    /// Bytes per microsecond of all that live; none if one has not been measured.
    pub(super) fn speed(&self) -> Option<u64> {
        let mut live = self.rails.iter().filter(|rail| rail.is_live);
        live.try_fold(0u64, |sum, rail| (rail.speed > 0).then(|| sum.saturating_add(rail.speed)))
            .filter(|sum| *sum > 0)
    }

    /// A parcel goes out and is there at once; its number.
    #[inline]
    pub(super) fn pass(&mut self, rail: RailIndex) -> u64 {
        let rail = &mut self.rails[rail.index()];
        rail.next_number += 1;
        rail.next_number - 1
    }

    /// A parcel goes out; its number.
    pub(super) fn launch(&mut self, now: Time, rail: RailIndex, load: PacketLoad, bytes: usize) -> u64 {
        let rail = &mut self.rails[rail.index()];
        let number = rail.next_number;
        rail.next_number += 1;
        rail.flights.push_back(RailInFlight { number, load, bytes: bytes as u64, since: now });
        number
    }

    /// The oldest parcel under way has come, or never will: its number and what it carried.
    pub(super) fn land(&mut self, now: Time, rail: RailIndex) -> Option<(u64, PacketLoad)> {
        let rail = self.rails.get_mut(rail.index())?;
        let RailInFlight { number, load, bytes, since } = rail.flights.pop_front()?;
        if rail.is_live {
            let picos = now.since(since.max(rail.landed)).as_picos();
            if load == PacketLoad::Piece && picos > 0 {
                let sample = (u128::from(bytes) * 1_000_000 / u128::from(picos)).clamp(1, 1 << 40) as u64;
                rail.speed = if rail.speed == 0 { sample } else { (rail.speed * 7 + sample) / 8 };
            }
            rail.landed = now;
        }
        Some((number, load))
    }

    /// A parcel came in; its number. None if there is no such rail.
    pub(super) fn came(&mut self, rail: RailIndex) -> Option<u64> {
        let rail = self.rails.get_mut(rail.index())?;
        rail.came += 1;
        Some(rail.came - 1)
    }

    /// A parcel is under way on a rail that lives.
    pub(super) fn flies(&self, (rail, number): RailPacketId) -> bool {
        let oldest = |rail: &Rail| rail.flights.front().map(|flight| flight.number);
        self.rails.get(rail.index()).is_some_and(|rail| rail.is_live && oldest(rail).is_some_and(|old| old <= number))
    }
}
