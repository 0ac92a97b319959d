//! Measures allreduce as a benchmark does: hosts call it repeatedly, and their software takes time.
//!
//! In: a number of calls and segments, and the host model ([`crate::HostCosts`]). Out: the latency of a call, as the mean over hosts
//! and calls. A call posts its segments one after another, as many as the window allows, and ends when the host has received the
//! last result (SH-4, SH-12).

use protocol::Payload;
use protocol::aggregation::{AggregationAction, Contribution, ContributionRole, ResultDisposition};
use units::{Rank, SegmentIndex, SimTime};
use wire::aggregation::{ElementCode, OperatorCode};

use super::SimulatedCollective;
use super::call_latency::{CallLatency, CallStatistics, CallWorkload};
use super::deferred_event::{DeferredEvent, HostSoftwareEvent};
use super::driver::CollectiveDriver;
use super::host_software::{HostSoftware, Progress};
use super::parameters::OperationPacing;
use crate::network::SimulatedNetwork;
use crate::processor::HostProcessors;

impl SimulatedCollective {
    /// Runs the calls of a workload on all hosts; none if the parameters have no host model, or an operation failed or hung.
    pub fn measure(&mut self, calls: CallWorkload, seed: u64) -> Option<CallLatency> {
        self.driver.measure(&mut self.network, calls, seed)
    }
}

impl CollectiveDriver {
    fn measure(&mut self, network: &mut SimulatedNetwork, calls: CallWorkload, seed: u64) -> Option<CallLatency> {
        let costs = self.parameters.host?;
        let ranks = self.ranks();
        self.hosts = Some(Box::new(HostSoftware {
            calls,
            window: self.parameters.window.max(1),
            costs,
            processors: HostProcessors::new(ranks, costs.noise, seed),
            each: vec![Progress::default(); ranks as usize],
            over: 0,
            failed: false,
            statistics: CallStatistics::default(),
        }));
        let rounds = if calls.pace == OperationPacing::BackToBack { 1 } else { calls.count };
        for _ in 0..rounds {
            let begun = network.now();
            self.hosts.as_mut()?.over = 0;
            for rank in 0..ranks {
                self.begin_call(network, Rank(rank), begun);
            }
            let hung_at = begun + self.parameters.hang_timeout.times(u64::from(calls.count));
            network.run(self, |driver, network| {
                let hosts = driver.hosts.as_ref();
                let over = hosts.is_none_or(|hosts| hosts.over >= ranks || hosts.failed);
                over && driver.is_at_rest(network) || network.now() > hung_at
            });
        }
        let hosts = self.hosts.take()?;
        hosts.statistics.latency(&calls, ranks).filter(|_| !hosts.failed)
    }

    fn begin_call(&mut self, network: &mut SimulatedNetwork, rank: Rank, at: SimTime) {
        let Some(hosts) = &mut self.hosts else { return };
        let progress = &mut hosts.each[rank.index()];
        *progress = Progress { calls: progress.calls, started: at, posted: 1, is_posting: true, taken: 0 };
        let ready = hosts.processors.work(rank.index(), at, hosts.costs.call + hosts.costs.post);
        self.defer(network, ready, DeferredEvent::Host { rank, event: HostSoftwareEvent::Posted });
    }

    /// A member's operation completed or failed: the host's software sees it later.
    pub(super) fn notify_host(&mut self, network: &mut SimulatedNetwork, rank: Rank, action: &AggregationAction) {
        let service = self.service;
        let Some(hosts) = &mut self.hosts else { return };
        let AggregationAction::Complete { result, .. } = action else {
            hosts.failed = true;
            return;
        };
        let at = network.now() + network.parameters().adapter_delay + hosts.costs.receiving(result.len(), service);
        self.defer(network, at, DeferredEvent::Host { rank, event: HostSoftwareEvent::Visible });
    }

    pub(super) fn host_event(&mut self, network: &mut SimulatedNetwork, rank: Rank, event: HostSoftwareEvent) {
        let Some(hosts) = &mut self.hosts else { return };
        match event {
            HostSoftwareEvent::Visible => {
                let taken = hosts.processors.work(rank.index(), network.now(), hosts.costs.poll);
                self.defer(network, taken, DeferredEvent::Host { rank, event: HostSoftwareEvent::Taken });
            }
            HostSoftwareEvent::Posted => {
                hosts.each[rank.index()].is_posting = false;
                self.contribute(network, rank);
                self.post_next(network, rank);
            }
            HostSoftwareEvent::Taken => {
                hosts.each[rank.index()].taken += 1;
                if hosts.each[rank.index()].taken == hosts.calls.segments {
                    self.end_call(network, rank);
                } else {
                    self.post_next(network, rank);
                }
            }
        }
    }

    /// Posts the next segment if there is one and the window has room; one at a time.
    fn post_next(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        let Some(hosts) = &mut self.hosts else { return };
        let progress = &mut hosts.each[rank.index()];
        let has_room = progress.posted < hosts.calls.segments && progress.posted - progress.taken < hosts.window;
        if has_room && !progress.is_posting {
            progress.posted += 1;
            progress.is_posting = true;
            let ready = hosts.processors.work(rank.index(), network.now(), hosts.costs.post);
            self.defer(network, ready, DeferredEvent::Host { rank, event: HostSoftwareEvent::Posted });
        }
    }

    fn contribute(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        let segment = self.hosts.as_ref().map_or(0, |hosts| hosts.each[rank.index()].posted - 1);
        let own = Contribution {
            element: ElementCode(0),
            operator: OperatorCode(0),
            element_count: 0,
            role: ContributionRole::Operand,
            disposition: ResultDisposition::Deliver,
            segment: SegmentIndex(segment),
            payload: Payload::SizeOnly { bytes: self.parameters.contents.bytes() },
        };
        let mut outbox = std::mem::take(&mut self.outbox);
        let started = self.wiring.members[rank.index()].start(network.machine_time(), own, &mut outbox);
        if let (Err(_), Some(hosts)) = (started, &mut self.hosts) {
            hosts.failed = true;
        }
        let participant = self.wiring.nodes.len() as u32 + rank.0;
        self.perform_actions(network, participant, outbox);
    }

    fn end_call(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        let Some(hosts) = &mut self.hosts else { return };
        let progress = &mut hosts.each[rank.index()];
        progress.calls += 1;
        hosts.statistics.record(&hosts.calls, progress.calls, network.now().since(progress.started));
        if hosts.calls.pace == OperationPacing::BackToBack && progress.calls < hosts.calls.count {
            return self.begin_call(network, rank, network.now());
        }
        hosts.over += 1;
    }
}
