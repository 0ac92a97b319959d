//! The state behind a communicator: its ranks, their hosts, operations in flight, and whether it has failed.
//!
//! `routing` chooses how an operation goes through host and network, `execution` runs it; `block_execution` does both for operations
//! on blocks.

mod block_execution;
mod execution;
mod routing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::collective::{
    AggregationAvailability, AggregationUnavailable, CollectiveOperation, MeasuredTimes, MethodPreferences,
    TransportCosts,
};
use units::GroupId;

use crate::communicator_layout::CommunicatorLayout;
use crate::error::Error;
use crate::failure_agreement::AGREEMENT_TIMEOUT;
use crate::hierarchical_operation::{CollectiveRoute, HierarchicalOperation, HostTeams};
use crate::job_process::JobProcess;
use crate::progress_engine::LossDetection;
use crate::statistics::CommunicatorStatistics;

/// By then the failure detector has reported a process of the same host that has ended.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a rank that has found a failure looks whether the others agree.
const AGREEMENT_POLL: Duration = Duration::from_millis(1);

/// What the choice of an inter-host method depends on, beside the operation itself. The same at all ranks.
pub(crate) struct SelectionContext {
    pub aggregation: AggregationAvailability,
    pub preferences: MethodPreferences,
    /// Costs of the network, if they were measured once.
    pub network_costs: Option<TransportCosts>,
    /// Times among the hosts and through the nodes.
    pub measured: Option<MeasuredTimes>,
    /// Why aggregation nodes are available, or are not.
    pub reason: String,
}

struct CommunicatorState {
    teams: HostTeams,
    /// Operations in flight, in the order in which they were started.
    queue: VecDeque<HierarchicalOperation>,
    /// Routes of the last few kinds of operations: to choose one takes a while, and most programs use few.
    routes: VecDeque<(CollectiveOperation, usize, CollectiveRoute)>,
    completed: BTreeMap<u64, Result<Vec<u8>, Error>>,
    next_id: u64,
    /// An allocation for the next inter-host stage.
    spare: Vec<u8>,
    polls: u32,
    /// Failures of this process that were looked at.
    failures_seen: u64,
    /// A failure that a poll has found and on which the ranks have not agreed yet, and since when.
    suspected: Option<(Error, Instant)>,
    /// Why the communicator is unusable.
    failure: Option<Error>,
    statistics: CommunicatorStatistics,
}

pub(crate) struct CommunicatorInner {
    process: Arc<JobProcess>,
    context: GroupId,
    layout: Arc<CommunicatorLayout>,
    /// How many leaders share a CPU, on the machine where most do.
    leaders_per_cpu: u32,
    selection: Mutex<SelectionContext>,
    /// Failures that this process has learned of.
    failure_count: Arc<AtomicU64>,
    state: Mutex<CommunicatorState>,
}

impl CommunicatorInner {
    /// A communicator without an aggregation tree.
    pub(crate) fn new(
        process: Arc<JobProcess>,
        context: GroupId,
        layout: CommunicatorLayout,
        teams: HostTeams,
    ) -> Self {
        let leaders = layout.hosts.iter().map(|host| layout.ranks[host[0] as usize]);
        let leaders_per_cpu = process.ranks_per_cpu(leaders);
        let selection = SelectionContext {
            aggregation: AggregationAvailability::Unavailable(AggregationUnavailable::NoManager),
            preferences: MethodPreferences::default(),
            network_costs: None,
            measured: None,
            reason: "no manager is configured".to_owned(),
        };
        let state = CommunicatorState {
            teams,
            queue: VecDeque::new(),
            routes: VecDeque::new(),
            completed: BTreeMap::new(),
            next_id: 0,
            spare: Vec::new(),
            polls: 0,
            failures_seen: 0,
            suspected: None,
            failure: None,
            statistics: CommunicatorStatistics::default(),
        };
        let failure_count = Arc::clone(process.shared.engine().failure_count());
        let (selection, state) = (Mutex::new(selection), Mutex::new(state));
        Self { process, context, layout: Arc::new(layout), leaders_per_cpu, selection, failure_count, state }
    }

    pub(crate) fn process(&self) -> &Arc<JobProcess> {
        &self.process
    }

    /// The ranks of this communicator, in the communicator of all ranks.
    pub(crate) fn world_ranks(&self) -> &[u32] {
        &self.layout.ranks
    }

    pub(crate) fn context(&self) -> GroupId {
        self.context
    }

    pub(crate) fn rank(&self) -> u32 {
        self.layout.rank
    }

    pub(crate) fn hosts(&self) -> &[Vec<u32>] {
        &self.layout.hosts
    }

    /// How many leaders share a CPU, on the machine where most do.
    pub(crate) fn leaders_per_cpu(&self) -> u32 {
        self.leaders_per_cpu
    }

    /// True if this rank is the leader of its host.
    pub(crate) fn is_leader(&self) -> bool {
        self.layout.local_rank == 0
    }

    pub(crate) fn statistics(&self) -> CommunicatorStatistics {
        self.state().statistics
    }

    /// Sets the counters back to what they were: operations of the library itself do not count.
    pub(crate) fn set_statistics(&self, statistics: CommunicatorStatistics) {
        self.state().statistics = statistics;
    }

    fn state(&self) -> MutexGuard<'_, CommunicatorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn selection(&self) -> MutexGuard<'_, SelectionContext> {
        self.selection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counter of failures that this process has learned of.
    pub(crate) fn failure_count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.failure_count)
    }

    /// Why this communicator is unusable, if this process has learned of it.
    pub(crate) fn known_failure(&self) -> Option<Error> {
        self.process.shared.engine().failure_of(self.context, &self.layout.ranks)
    }

    /// Fails if this communicator is known to be unusable: no operation starts in it.
    #[inline]
    fn check_usable(&self, state: &mut CommunicatorState) -> Result<(), Error> {
        if let Some(error) = &state.failure {
            return Err(error.clone());
        }
        let count = self.failure_count.load(Ordering::Acquire);
        if count == state.failures_seen { Ok(()) } else { self.look_at_failures(state, count) }
    }

    #[cold]
    fn look_at_failures(&self, state: &mut CommunicatorState, count: u64) -> Result<(), Error> {
        state.failures_seen = count;
        let Some(error) = self.known_failure() else { return Ok(()) };
        self.settle(state, &error);
        Err(error)
    }

    /// True if the failure detector has reported this rank as lost.
    pub(crate) fn is_process_lost(&self, rank: u32) -> bool {
        self.process.shared.engine().is_lost(rank)
    }

    /// Makes progress, and fails if this communicator is unusable, or if a rank has left and so the operation awaited since
    /// `waiting_since` will never complete.
    fn check(&self, waiting_since: &mut Option<Instant>) -> Result<(), Error> {
        let Some(mut engine) = self.process.shared.try_engine() else { return Ok(()) };
        engine.progress();
        engine.poll_events();
        let ranks = &self.layout.ranks;
        let failure = engine.failure_of(self.context, ranks).or_else(|| engine.departed_rank(ranks, waiting_since));
        failure.map_or(Ok(()), Err)
    }

    /// Marks this communicator unusable, fails the operations in flight, and tells the other ranks. Blocks until all ranks agree on
    /// the error, which it returns. An invalid argument does none of that.
    fn fail(&self, state: &mut CommunicatorState, error: &Error) -> Error {
        if matches!(error, Error::InvalidArgument { .. }) {
            return error.clone();
        }
        let since = Instant::now();
        while state.failure.is_none() {
            match self.agreed_failure(error, since) {
                Some(agreed) => self.settle(state, &agreed),
                None => {
                    self.process.shared.call_progress_callback();
                    std::thread::sleep(AGREEMENT_POLL);
                }
            }
        }
        state.failure.clone().unwrap_or_else(|| error.clone())
    }

    /// The error on which the ranks agree after this one has found one, if they have; its own if they take too long.
    fn agreed_failure(&self, own: &Error, since: Instant) -> Option<Error> {
        let is_overdue = since.elapsed() > DETECTION_TIMEOUT;
        self.announce(own, if is_overdue { LossDetection::Overdue } else { LossDetection::Expected });
        let mut engine = self.process.shared.engine();
        engine.progress();
        engine.poll_events();
        let agreed = engine.failure_of(self.context, &self.layout.ranks);
        // Each rank finds a mismatch by itself.
        let needs_no_agreement = matches!(own, Error::Mismatch { .. }) || since.elapsed() > AGREEMENT_TIMEOUT;
        agreed.or_else(|| needs_no_agreement.then(|| own.clone()))
    }

    /// Fails everything with an error on which the ranks agree.
    fn settle(&self, state: &mut CommunicatorState, error: &Error) {
        state.failure = Some(error.clone());
        state.suspected = None;
        self.cancel_streams(state);
        for operation in state.queue.drain(..) {
            state.completed.insert(operation.id, Err(error.clone()));
        }
    }

    /// Ends the use of the buffers of operations in flight, before they are given back.
    fn cancel_streams(&self, state: &CommunicatorState) {
        let mut streams = state.queue.iter().filter_map(HierarchicalOperation::stream_in_flight).peekable();
        if streams.peek().is_some() {
            let mut engine = self.process.shared.engine();
            streams.for_each(|handle| engine.network.cancel(handle));
        }
    }

    /// Tells the ranks that depend on this one that the communicator is unusable.
    pub(crate) fn announce_failure(&self, error: &Error) {
        self.announce(error, LossDetection::Expected);
    }

    fn announce(&self, error: &Error, detection: LossDetection) {
        let is_mismatch = matches!(error, Error::Mismatch { .. });
        if !self.is_leader() && is_mismatch {
            return; // The leader finds out by itself, and other hosts through it.
        }
        let CommunicatorLayout { ranks, hosts, host, .. } = &*self.layout;
        let same_host: Vec<u32> = hosts[*host][1..].iter().map(|rank| ranks[*rank as usize]).collect();
        let others: Vec<u32> = ranks.iter().copied().filter(|rank| *rank != self.process.rank).collect();
        let mut engine = self.process.shared.engine();
        if is_mismatch {
            engine.network.report_mismatch(self.context);
        }
        engine.announce_failure(self.context, error, &same_host, &others, detection);
    }
}

impl Drop for CommunicatorInner {
    fn drop(&mut self) {
        self.cancel_streams(&self.state());
        self.process.shared.engine().close_communicator(self.context);
    }
}
