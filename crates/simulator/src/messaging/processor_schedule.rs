//! The processors of the hosts: copies and checksums, one task after another, while the network runs.

use std::collections::BTreeMap;

use protocol::messaging::MessageCompletion;
use units::{Rank, SimSpan, SimTime};

use super::parameters::MessagingCosts;
use crate::processor::HostProcessors;

/// What follows when a processor has finished a task.
pub(super) enum DeferredWork {
    /// Run a command.
    Command(usize),
    /// Post a packet to a rail end.
    Post(usize, Vec<u8>),
    /// Pass a packet that arrived at a rail end to the machine.
    Receive(usize, Vec<u8>),
    /// Report a completion to the observer.
    Report(Rank, MessageCompletion),
}

/// The tasks of all processors. Every method that charges time returns when the task is done, or none if it takes no time.
pub(super) struct ProcessorSchedule {
    costs: Option<MessagingCosts>,
    processors: HostProcessors,
    /// Bytes that each endpoint has copied ahead, as far as they are charged.
    prepared: Vec<u64>,
    deferred: BTreeMap<(SimTime, u64), DeferredWork>,
    deferred_count: u64,
}

impl ProcessorSchedule {
    pub(super) fn new(costs: Option<MessagingCosts>, ranks: usize) -> Self {
        Self {
            costs,
            processors: HostProcessors::new(ranks as u32, None, 0),
            prepared: vec![0; ranks],
            deferred: BTreeMap::new(),
            deferred_count: 0,
        }
    }

    /// Copies a packet's bytes and posts it.
    pub(super) fn post_packet(&mut self, now: SimTime, rank: Rank, bytes: u32) -> Option<SimTime> {
        let MessagingCosts { copy_ps_per_byte, gap, .. } = self.costs?;
        let copy = SimSpan::from_picos(copy_ps_per_byte * u64::from(bytes));
        Some(self.processors.work(rank.index(), now, copy + gap))
    }

    /// Copies a received packet.
    pub(super) fn copy_received(&mut self, now: SimTime, rank: Rank, bytes: usize) -> Option<SimTime> {
        let MessagingCosts { copy_ps_per_byte, uncopied_bytes, .. } = self.costs?;
        let copy = SimSpan::from_picos(copy_ps_per_byte * bytes.min(uncopied_bytes) as u64);
        Some(self.processors.work(rank.index(), now, copy))
    }

    /// Reads a whole message, before it is sent or after it has been received.
    pub(super) fn scan_message(&mut self, now: SimTime, rank: Rank, bytes: usize) -> Option<SimTime> {
        let MessagingCosts { separate_pass_ps_per_byte, .. } =
            self.costs.filter(|costs| costs.separate_pass_ps_per_byte > 0)?;
        let scan = SimSpan::from_picos(separate_pass_ps_per_byte * bytes as u64);
        Some(self.processors.work(rank.index(), now, scan))
    }

    /// Charges the copies that an endpoint made ahead: `bytes` since the start of the run.
    pub(super) fn charge_prepared(&mut self, now: SimTime, rank: Rank, bytes: u64) {
        let new = bytes - std::mem::replace(&mut self.prepared[rank.index()], bytes);
        if let Some(MessagingCosts { copy_ps_per_byte, .. }) = self.costs.filter(|_| new > 0) {
            self.processors.work(rank.index(), now, SimSpan::from_picos(copy_ps_per_byte * new));
        }
    }

    pub(super) fn defer(&mut self, at: SimTime, work: DeferredWork) {
        self.deferred_count += 1;
        self.deferred.insert((at, self.deferred_count), work);
    }

    /// The next deferred work whose time has come.
    pub(super) fn next(&mut self, now: SimTime) -> Option<DeferredWork> {
        let first = self.deferred.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }
}
