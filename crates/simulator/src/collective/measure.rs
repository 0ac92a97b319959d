//! Measures allreduce the way a benchmark does: hosts call it again and again, and their software takes time.
//!
//! In: how many calls, of how many segments, and what hosts take ([`crate::HostCosts`]). Out: how long a call takes, as the
//! mean over hosts and calls. A call posts its segments one after the other, as many as the window allows, and is over when
//! the last result has been taken (SH-4, SH-12).

use protocol::Payload;
use protocol::aggregation::{AggregationAction, Contribution, ContributionRole, ResultDisposition};
use serde::Serialize;
use units::{Rank, SegmentIndex, SimSpan, SimTime};
use wire::aggregation::{ElementCode, OperatorCode};

use super::SimulatedCollective;
use super::deferred_event::DeferredEvent;
use super::driver::CollectiveDriver;
use super::parameters::OperationPacing;
use crate::network::SimulatedNetwork;
use crate::processor::{HostCosts, HostProcessors};

/// What is called, and how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallWorkload {
    /// Calls by each host.
    pub count: u32,
    /// Segments of each; every one has the size of [`super::CollectiveParameters::contents`].
    pub segments: u32,
    /// When the next call begins.
    pub pace: OperationPacing,
}

/// How long calls took.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CallLatency {
    /// Calls by each host that were counted.
    pub calls: u32,
    /// The mean over hosts and calls.
    pub mean_ns: f64,
    /// The longest of any host.
    pub longest_ns: f64,
}

/// What a host's software comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HostSoftwareEvent {
    /// A segment has been posted.
    Posted,
    /// A result can be seen.
    Visible,
    /// It has been taken.
    Taken,
}

/// The software of all hosts.
pub(super) struct HostSoftware {
    calls: CallWorkload,
    window: u32,
    costs: HostCosts,
    processors: HostProcessors,
    each: Vec<Progress>,
    over: u32,
    failed: bool,
    sum_ps: u128,
    counted: u64,
    longest: SimSpan,
}

/// How far a host has come.
#[derive(Clone, Copy, Default)]
struct Progress {
    calls: u32,
    started: SimTime,
    /// Segments that are posted, or being posted.
    posted: u32,
    /// The last of them is being posted.
    is_posting: bool,
    taken: u32,
}

impl SimulatedCollective {
    /// Runs so many calls by all hosts; none if the parameters say nothing of hosts, or an operation failed or hung.
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
            sum_ps: 0,
            counted: 0,
            longest: SimSpan::ZERO,
        }));
        let rounds = if calls.pace == OperationPacing::BackToBack { 1 } else { calls.count };
        for _ in 0..rounds {
            let begun = network.now();
            self.hosts.as_mut()?.over = 0;
            for rank in 0..ranks {
                self.begin_call(network, Rank(rank), begun);
            }
            let hung_at = begun + self.parameters.patience.times(u64::from(calls.count));
            network.run(self, |driver, network| {
                let hosts = driver.hosts.as_ref();
                let over = hosts.is_none_or(|hosts| hosts.over >= ranks || hosts.failed);
                over && driver.is_at_rest(network) || network.now() > hung_at
            });
        }
        let hosts = self.hosts.take()?;
        let whole = u64::from(ranks) * u64::from(calls.count);
        let expected = if calls.count > 1 { whole - u64::from(ranks) } else { whole };
        (hosts.counted == expected && !hosts.failed).then(|| CallLatency {
            calls: (expected / u64::from(ranks.max(1))) as u32,
            mean_ns: hosts.sum_ps as f64 / 1e3 / hosts.counted as f64,
            longest_ns: hosts.longest.as_nanos_f64(),
        })
    }

    fn begin_call(&mut self, network: &mut SimulatedNetwork, rank: Rank, at: SimTime) {
        let Some(hosts) = &mut self.hosts else { return };
        let progress = &mut hosts.each[rank.index()];
        *progress = Progress { calls: progress.calls, started: at, posted: 1, is_posting: true, taken: 0 };
        let ready = hosts.processors.work(rank.index(), at, hosts.costs.call + hosts.costs.post);
        self.send_mail(network, ready, DeferredEvent::Host { rank, event: HostSoftwareEvent::Posted });
    }

    /// A member has a result, or never will: its software hears of it later.
    pub(super) fn came_to_host(&mut self, network: &mut SimulatedNetwork, rank: Rank, duty: &AggregationAction) {
        let way = self.way;
        let Some(hosts) = &mut self.hosts else { return };
        let AggregationAction::Complete { result, .. } = duty else {
            hosts.failed = true;
            return;
        };
        let at = network.now() + network.parameters().adapter_delay + hosts.costs.receiving(result.len(), way);
        self.send_mail(network, at, DeferredEvent::Host { rank, event: HostSoftwareEvent::Visible });
    }

    pub(super) fn host_event(&mut self, network: &mut SimulatedNetwork, rank: Rank, event: HostSoftwareEvent) {
        let Some(hosts) = &mut self.hosts else { return };
        match event {
            HostSoftwareEvent::Visible => {
                let taken = hosts.processors.work(rank.index(), network.now(), hosts.costs.poll);
                self.send_mail(network, taken, DeferredEvent::Host { rank, event: HostSoftwareEvent::Taken });
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

    /// Posts another segment if there is one and the window has room; one at a time.
    fn post_next(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        let Some(hosts) = &mut self.hosts else { return };
        let progress = &mut hosts.each[rank.index()];
        let has_room = progress.posted < hosts.calls.segments && progress.posted - progress.taken < hosts.window;
        if has_room && !progress.is_posting {
            progress.posted += 1;
            progress.is_posting = true;
            let ready = hosts.processors.work(rank.index(), network.now(), hosts.costs.post);
            self.send_mail(network, ready, DeferredEvent::Host { rank, event: HostSoftwareEvent::Posted });
        }
    }

    fn contribute(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        let segment = self.hosts.as_ref().map_or(0, |hosts| hosts.each[rank.index()].posted - 1);
        let own = Contribution {
            element: ElementCode(0),
            operator: OperatorCode(0),
            element_count: 0,
            voice: ContributionRole::Plain,
            wish: ResultDisposition::Result,
            segment: SegmentIndex(segment),
            payload: Payload::Absent { bytes: self.parameters.contents.bytes() },
        };
        let mut outbox = std::mem::take(&mut self.outbox);
        let started = self.wiring.members[rank.index()].start(network.now(), own, &mut outbox);
        if let (Err(_), Some(hosts)) = (started, &mut self.hosts) {
            hosts.failed = true;
        }
        let party = self.wiring.nodes.len() as u32 + rank.0;
        self.carry_out(network, party, outbox);
    }

    fn end_call(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        let Some(hosts) = &mut self.hosts else { return };
        let progress = &mut hosts.each[rank.index()];
        progress.calls += 1;
        // The first of several finds everything cold: nobody is late yet.
        if progress.calls > 1 || hosts.calls.count == 1 {
            let took = network.now().since(progress.started);
            hosts.sum_ps += u128::from(took.as_picos());
            hosts.counted += 1;
            hosts.longest = hosts.longest.max(took);
        }
        if hosts.calls.pace == OperationPacing::BackToBack && progress.calls < hosts.calls.count {
            return self.begin_call(network, rank, network.now());
        }
        hosts.over += 1;
    }
}
