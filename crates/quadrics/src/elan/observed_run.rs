//! A collective whose ranks are observed: who called, entered and completed which call, with which bytes.
//!
//! In: a workload, and the root's data for each call. Out: one [`ObservedStep`] after the other, in order of time.

use std::collections::VecDeque;

use units::{Rank, SimSpan, SimTime};

use super::super::wormhole::WormholeNetwork;
use super::retry::LostDestination;
use super::workload::ElanWorkload;
use super::{ElanAdapters, ElanCluster, NONE};

/// What a rank did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallStage {
    /// It called the operation.
    Called,
    /// Its adapter or software takes part from now on.
    Entered,
    /// The call has ended, and its buffer has the result.
    Completed,
}

/// A step of a rank.
#[derive(Clone, Debug)]
pub(crate) struct ObservedStep {
    pub(crate) rank: Rank,
    /// The number of the call, from 0.
    pub(crate) call: u32,
    pub(crate) step: CallStage,
    pub(crate) at: SimTime,
    /// The rank's buffer; empty before the end of a call.
    pub(crate) result: Vec<u8>,
}

/// How a run of observed calls ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunEnd {
    /// All ranks completed all calls.
    Completed,
    /// A destination did not answer.
    Lost(LostDestination),
    /// Some calls did not end in time.
    OutOfPatience,
}

/// The buffers of the ranks, and what they did since the caller last looked.
#[derive(Debug, Default)]
pub(super) struct ObservedCollective {
    /// One buffer for each rank; none if only sizes are simulated.
    pub(super) buffers: Vec<Vec<u8>>,
    /// The root's data for the call that it enters next.
    next: Vec<u8>,
    events: VecDeque<ObservedStep>,
}

impl ElanCluster {
    /// Runs a workload and reports every step to `observe`, which is asked for the root's data of each call by `contribute`; that data may be
    /// empty, if only sizes count. None if the group does not fit the network.
    pub(crate) fn run_observed<O>(
        &mut self,
        task: &ElanWorkload,
        late: SimSpan,
        observer: &mut O,
        contribute: impl Fn(&mut O, u32) -> Vec<u8>,
        mut observe: impl FnMut(&mut O, ObservedStep),
    ) -> Option<RunEnd> {
        self.prepare(task)?;
        let (size, root) = (task.members.size(), task.members.root());
        let mut observed = ObservedCollective { next: contribute(observer, 0), ..ObservedCollective::default() };
        if !observed.next.is_empty() {
            observed.buffers = vec![vec![0; observed.next.len()]; size as usize];
        }
        let job = self.elans.job.as_mut()?;
        (job.late, job.observed) = (late, Some(observed));
        for rank in (0..size).map(Rank) {
            self.elans.call(&mut self.network, rank);
        }
        let end = self.network.now() + task.patience;
        let ended = loop {
            let has_events = |elans: &ElanAdapters| {
                let observed = elans.job.as_ref().and_then(|job| job.observed.as_ref());
                observed.is_some_and(|observed| !observed.events.is_empty())
            };
            self.network.run(&mut self.elans, |elans, network| {
                let is_over = |job: &super::RunningCollective| job.finished >= size || job.lost.is_some();
                has_events(elans) || network.now() >= end || elans.job.as_ref().is_none_or(is_over)
            });
            let Some(job) = self.elans.job.as_mut() else { break RunEnd::OutOfPatience };
            let event = job.observed.as_mut().and_then(|observed| observed.events.pop_front());
            match event {
                Some(event) => {
                    if event.rank == root && event.step == CallStage::Entered && event.call + 1 < task.calls {
                        let next = contribute(observer, event.call + 1);
                        job.observed.iter_mut().for_each(|observed| observed.next.clone_from(&next));
                    }
                    observe(observer, event);
                }
                None if job.finished >= size => break RunEnd::Completed,
                None => break job.lost.map_or(RunEnd::OutOfPatience, RunEnd::Lost),
            }
        };
        self.elans.ranks.fill(NONE);
        self.elans.job = None;
        Some(ended)
    }
}

impl ElanAdapters {
    /// Notes what a rank did. Entering a call, the root has its data, and the others a buffer with nothing of it.
    pub(super) fn note_step(&mut self, network: &WormholeNetwork, rank: Rank, step: CallStage) {
        let Some(job) = &mut self.job else { return };
        let (call, is_root) = (job.done[rank.index()], rank == job.members.root());
        let Some(observed) = &mut job.observed else { return };
        let mut result = Vec::new();
        if let Some(buffer) = observed.buffers.get_mut(rank.index()) {
            match step {
                CallStage::Called => {}
                CallStage::Entered if is_root => buffer.clone_from(&observed.next),
                CallStage::Entered => buffer.fill(0),
                CallStage::Completed => result.clone_from(buffer),
            }
        }
        observed.events.push_back(ObservedStep { rank, call, step, at: network.now(), result });
    }
}
