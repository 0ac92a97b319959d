//! What hosts' processors do: copies and codes, one thing after the other, while the network goes on.

use std::collections::BTreeMap;

use protocol::messaging::Completion;
use units::{Rank, Span, Time};

use super::Costs;

/// Something that happens when a processor is done.
pub(super) enum Later {
    /// An order is carried out.
    Order(usize),
    /// A parcel is handed to a rail end.
    Post(usize, Vec<u8>),
    /// A parcel that came to a rail end is in place.
    Take(usize, Vec<u8>),
    /// A message that came has been looked at.
    Tell(Rank, Completion),
}

pub(super) struct Work {
    costs: Option<Costs>,
    /// When each processor is done with what it has.
    free: Vec<Time>,
    /// Bytes that each port has prepared, as far as they are counted here.
    prepared: Vec<u64>,
    later: BTreeMap<(Time, u64), Later>,
    numbered: u64,
}

impl Work {
    pub(super) fn new(costs: Option<Costs>, ranks: usize) -> Self {
        let (free, prepared) = (vec![Time::ZERO; ranks], vec![0; ranks]);
        Self { costs, free, prepared, later: BTreeMap::new(), numbered: 0 }
    }

    /// A processor works for so long from now on; when it is done.
    fn charge(&mut self, now: Time, rank: Rank, span: Span) -> Time {
        let free = &mut self.free[rank.index()];
        *free = now.max(*free) + span;
        *free
    }

    /// Copies for a parcel and hands it over. None if that takes no time; so with the others.
    pub(super) fn hand_over(&mut self, now: Time, rank: Rank, bytes: u32) -> Option<Time> {
        let Costs { copy_picos, gap, .. } = self.costs?;
        Some(self.charge(now, rank, Span::from_picos(copy_picos * u64::from(bytes)) + gap))
    }

    /// Copies what came.
    pub(super) fn take_over(&mut self, now: Time, rank: Rank, bytes: usize) -> Option<Time> {
        let Costs { copy_picos, left_bytes, .. } = self.costs?;
        Some(self.charge(now, rank, Span::from_picos(copy_picos * bytes.min(left_bytes) as u64)))
    }

    /// Looks at a whole message, before it is sent or after it has come.
    pub(super) fn look_at_whole(&mut self, now: Time, rank: Rank, bytes: usize) -> Option<Time> {
        let Costs { apart_picos, .. } = self.costs.filter(|costs| costs.apart_picos > 0)?;
        Some(self.charge(now, rank, Span::from_picos(apart_picos * bytes as u64)))
    }

    /// The port has copied ahead: so many bytes since the beginning.
    pub(super) fn note_prepared(&mut self, now: Time, rank: Rank, bytes: u64) {
        let new = bytes - std::mem::replace(&mut self.prepared[rank.index()], bytes);
        if let Some(Costs { copy_picos, .. }) = self.costs.filter(|_| new > 0) {
            self.charge(now, rank, Span::from_picos(copy_picos * new));
        }
    }

    pub(super) fn put_off(&mut self, at: Time, later: Later) {
        self.numbered += 1;
        self.later.insert((at, self.numbered), later);
    }

    /// The next thing whose time has come.
    pub(super) fn next(&mut self, now: Time) -> Option<Later> {
        let first = self.later.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }
}
