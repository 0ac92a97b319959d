//! What hosts' processors do: copies and codes, one thing after the other, while the network goes on.

use std::collections::BTreeMap;

use protocol::messaging::MessageCompletion;
use units::{Rank, SimSpan, SimTime};

use super::MessagingCosts;

/// Something that happens when a processor is done.
pub(super) enum DeferredWork {
    /// An order is carried out.
    Order(usize),
    /// A parcel is handed to a rail end.
    Post(usize, Vec<u8>),
    /// A parcel that came to a rail end is in place.
    Take(usize, Vec<u8>),
    /// A message that came has been looked at.
    Tell(Rank, MessageCompletion),
}

pub(super) struct ProcessorSchedule {
    costs: Option<MessagingCosts>,
    /// When each processor is done with what it has.
    free: Vec<SimTime>,
    /// Bytes that each port has prepared, as far as they are counted here.
    prepared: Vec<u64>,
    later: BTreeMap<(SimTime, u64), DeferredWork>,
    numbered: u64,
}

impl ProcessorSchedule {
    pub(super) fn new(costs: Option<MessagingCosts>, ranks: usize) -> Self {
        let (free, prepared) = (vec![SimTime::ZERO; ranks], vec![0; ranks]);
        Self { costs, free, prepared, later: BTreeMap::new(), numbered: 0 }
    }

    /// A processor works for so long from now on; when it is done.
    fn charge(&mut self, now: SimTime, rank: Rank, span: SimSpan) -> SimTime {
        let free = &mut self.free[rank.index()];
        *free = now.max(*free) + span;
        *free
    }

    /// Copies for a parcel and hands it over. None if that takes no time; so with the others.
    pub(super) fn hand_over(&mut self, now: SimTime, rank: Rank, bytes: u32) -> Option<SimTime> {
        let MessagingCosts { copy_picos, gap, .. } = self.costs?;
        Some(self.charge(now, rank, SimSpan::from_picos(copy_picos * u64::from(bytes)) + gap))
    }

    /// Copies what came.
    pub(super) fn take_over(&mut self, now: SimTime, rank: Rank, bytes: usize) -> Option<SimTime> {
        let MessagingCosts { copy_picos, left_bytes, .. } = self.costs?;
        Some(self.charge(now, rank, SimSpan::from_picos(copy_picos * bytes.min(left_bytes) as u64)))
    }

    /// Looks at a whole message, before it is sent or after it has come.
    pub(super) fn look_at_whole(&mut self, now: SimTime, rank: Rank, bytes: usize) -> Option<SimTime> {
        let MessagingCosts { apart_picos, .. } = self.costs.filter(|costs| costs.apart_picos > 0)?;
        Some(self.charge(now, rank, SimSpan::from_picos(apart_picos * bytes as u64)))
    }

    /// The port has copied ahead: so many bytes since the beginning.
    pub(super) fn note_prepared(&mut self, now: SimTime, rank: Rank, bytes: u64) {
        let new = bytes - std::mem::replace(&mut self.prepared[rank.index()], bytes);
        if let Some(MessagingCosts { copy_picos, .. }) = self.costs.filter(|_| new > 0) {
            self.charge(now, rank, SimSpan::from_picos(copy_picos * new));
        }
    }

    pub(super) fn put_off(&mut self, at: SimTime, later: DeferredWork) {
        self.numbered += 1;
        self.later.insert((at, self.numbered), later);
    }

    /// The next thing whose time has come.
    pub(super) fn next(&mut self, now: SimTime) -> Option<DeferredWork> {
        let first = self.later.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }
}
