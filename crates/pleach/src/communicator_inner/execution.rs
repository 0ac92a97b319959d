//! Runs operations: a blocking operation is started and waited for, a non-blocking one is started now and waited for later.
//!
//! Both are the same [`HierarchicalOperation`]. While several are in flight, all of them are polled in order. One that is alone is
//! driven by a [`BlockingDriver`], which sleeps in shared memory or on sockets.

use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use engine::aggregation::MulticastSocket;
use engine::network::{OperationHandle, StreamBuffers};
use hostmem::team::{
    CollectiveBuffers, Team, TeamCall, TeamError, TeamOperation, TeamProgress, TeamWaitError, WaitMode,
};
use protocol::collective::{CollectiveAlgorithm, CollectiveOperation, InterHostMethod, ScheduledCollective};

use super::{CommunicatorInner, CommunicatorState};
use crate::error::Error;
use crate::hierarchical_operation::{
    CollectiveRoute, HierarchicalOperation, HostRole, HostTeams, InterHostResult, LentMemory, OperationBuffer,
    StageDriver, StartGate,
};
use crate::progress_engine::ProgressEngine;

/// How often a wait within the host makes network progress: that takes system calls.
const CHECK_INTERVAL: Duration = Duration::from_micros(50);
/// With a progress callback, a wait within the host does not sleep for this long: work that the callback has in flight completes
/// sooner while the thread is awake.
const AWAKE_WITH_CALLBACK: Duration = Duration::from_micros(200);
/// How many polls of a non-blocking operation pass between two checks for failures.
const POLLS_PER_CHECK: u32 = 256;
/// Rounds of waiting for one of several operations: spinning up to the first, yielding up to the second, then sleeping.
const SPIN_ROUNDS: u32 = 100;
const YIELD_ROUNDS: u32 = 2_000;
/// Short, because a write of another rank to shared memory does not wake this sleep.
const QUEUE_SLEEP: Duration = Duration::from_micros(50);
const ROUNDS_PER_CHECK: u32 = 64;

impl CommunicatorInner {
    /// Runs an operation on the caller's bytes, and blocks until it is complete.
    pub(crate) fn run(&self, collective: CollectiveOperation, bytes: &mut [u8]) -> Result<(), Error> {
        let mut buffers = match collective {
            CollectiveOperation::Barrier => CollectiveBuffers::Empty,
            _ => CollectiveBuffers::InPlace(bytes),
        };
        self.run_on(collective, &mut buffers)
    }

    /// The same, with input and result where the caller wants them.
    #[inline]
    pub(crate) fn run_on(
        &self,
        collective: CollectiveOperation,
        buffers: &mut CollectiveBuffers<'_>,
    ) -> Result<(), Error> {
        if self.layout.ranks.len() == 1 {
            if let CollectiveBuffers::Separate { input, output } = buffers {
                output.copy_from_slice(input);
            }
            return self.inter_host(collective).map(|_| ());
        }
        let mut state = self.state();
        let is_alone = state.queue.is_empty() && state.suspected.is_none();
        if is_alone && let HostTeams::Whole(_) = state.teams {
            return self.run_within_host(&mut state, collective, buffers);
        }
        let mut operation = self.begin(&mut state, collective, buffers.length(), OperationBuffer::Borrowed)?;
        let _in_library = self.process.activity.enter();
        if is_alone && operation.is_stream_alone(&state.teams) {
            return self.complete(&mut state, &mut operation, buffers);
        }
        in_place(buffers, |bytes| {
            if is_alone {
                return self.complete(&mut state, &mut operation, &mut CollectiveBuffers::InPlace(bytes));
            }
            let id = operation.id;
            state.queue.push_back(operation);
            self.wait_for(&mut state, id, Some(bytes)).map(drop)
        })
    }

    /// An operation of one stage, the only one in flight: without the state that several stages need, which a barrier of two ranks
    /// would take a tenth longer to set up.
    #[inline]
    fn run_within_host(
        &self,
        state: &mut CommunicatorState,
        collective: CollectiveOperation,
        buffers: &mut CollectiveBuffers<'_>,
    ) -> Result<(), Error> {
        self.check_usable(state)?;
        let HostTeams::Whole(team) = &mut state.teams else {
            return Err(Error::internal("the ranks of this communicator are not on one host"));
        };
        let call = self.call_within_host(collective)?;
        self.process.activity.note_call();
        if let Err(error) = self.wait_in_team(team, &mut None, call, buffers) {
            return Err(self.fail(state, &error));
        }
        state.statistics.operations += 1;
        state.statistics.within_host += 1;
        Ok(())
    }

    /// Starts an operation on bytes of its own.
    pub(crate) fn start(&self, collective: CollectiveOperation, bytes: Vec<u8>) -> Result<u64, Error> {
        let length = bytes.len();
        self.start_on(collective, length, OperationBuffer::Owned(bytes))
    }

    /// Starts an operation on memory that is lent until it is over: until [`Self::wait`] or [`Self::poll`] has returned its result.
    pub(crate) fn start_lent(&self, collective: CollectiveOperation, memory: LentMemory) -> Result<u64, Error> {
        let length = memory.length();
        self.start_on(collective, length, OperationBuffer::Lent(memory))
    }

    fn start_on(
        &self,
        collective: CollectiveOperation,
        length: usize,
        buffer: OperationBuffer,
    ) -> Result<u64, Error> {
        let _in_library = self.process.activity.enter();
        let mut state = self.state();
        if self.layout.ranks.len() == 1 {
            self.inter_host(collective)?;
            let id = state.take_id();
            state.completed.insert(id, Ok(buffer.into_owned()));
            return Ok(id);
        }
        let operation = self.begin(&mut state, collective, length, buffer)?;
        let id = operation.id;
        state.queue.push_back(operation);
        self.advance(&mut state, None);
        Ok(id)
    }

    /// True if an operation that was started is complete. Advances all operations; does not block on other ranks.
    pub(crate) fn test(&self, id: u64) -> bool {
        let _in_library = self.process.activity.enter();
        let mut state = self.state();
        self.advance_and_check(&mut state, id);
        !state.is_queued(id)
    }

    /// The result of an operation that was started, once it is complete. Never blocks: none if another thread is using the
    /// communicator.
    pub(crate) fn poll(&self, id: u64) -> Option<Result<Vec<u8>, Error>> {
        let _in_library = self.process.activity.enter();
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.advance_and_check(&mut state, id);
        state.completed.remove(&id)
    }

    /// Advances all operations; from time to time, looks whether the communicator has failed while one is in flight.
    fn advance_and_check(&self, state: &mut CommunicatorState, id: u64) {
        self.advance(state, None);
        state.polls = state.polls.wrapping_add(1);
        if state.is_queued(id)
            && state.polls.is_multiple_of(POLLS_PER_CHECK)
            && let Err(error) = self.check(&mut None)
        {
            state.suspect(error);
        }
    }

    /// Blocks until an operation that was started is complete; its bytes.
    pub(crate) fn wait(&self, id: u64) -> Result<Vec<u8>, Error> {
        let _in_library = self.process.activity.enter();
        self.wait_for(&mut self.state(), id, None)
    }

    #[inline]
    fn begin(
        &self,
        state: &mut CommunicatorState,
        collective: CollectiveOperation,
        length: usize,
        buffer: OperationBuffer,
    ) -> Result<HierarchicalOperation, Error> {
        self.check_usable(state)?;
        let route = self.route(state, collective, length)?;
        Ok(HierarchicalOperation::new(state.take_id(), route, buffer))
    }

    /// Blocks until an operation is complete, the only one in flight.
    #[inline]
    pub(super) fn complete(
        &self,
        state: &mut CommunicatorState,
        operation: &mut HierarchicalOperation,
        buffers: &mut CollectiveBuffers<'_>,
    ) -> Result<(), Error> {
        let mut driver = BlockingDriver { communicator: self, multicast_socket: None, stream: None };
        let CommunicatorState { teams, spare, .. } = state;
        if let Err(error) = operation.step(buffers, teams, spare, &mut StartGate::default(), &mut driver) {
            drop(driver);
            return Err(self.fail(state, &error));
        }
        state.count(operation);
        Ok(())
    }

    /// Blocks until an operation of the queue is complete; its own bytes. `borrowed` are the caller's, if it works on those.
    #[inline(never)]
    pub(super) fn wait_for(
        &self,
        state: &mut CommunicatorState,
        id: u64,
        mut borrowed: Option<&mut [u8]>,
    ) -> Result<Vec<u8>, Error> {
        let (mut rounds, mut waiting_since) = (0_u32, None);
        loop {
            if let Some(result) = state.completed.remove(&id) {
                return result;
            }
            if let Some(operation) = state.take_if_alone(id) {
                return self.complete_taken(state, operation, borrowed);
            }
            if !state.is_queued(id) {
                return Err(Error::internal("an operation was waited for that is not in flight"));
            }
            self.advance(state, borrowed.as_deref_mut().map(|bytes| (id, bytes)));
            rounds = rounds.saturating_add(1);
            match rounds {
                ..SPIN_ROUNDS => std::hint::spin_loop(),
                SPIN_ROUNDS..YIELD_ROUNDS => std::thread::yield_now(),
                _ => std::thread::sleep(QUEUE_SLEEP),
            }
            if rounds.is_multiple_of(ROUNDS_PER_CHECK) {
                self.process.shared.call_progress_callback();
                if let Err(error) = self.check(&mut waiting_since) {
                    state.suspect(error);
                }
            }
        }
    }

    /// Blocks until an operation is complete that was taken out of the queue as its last.
    fn complete_taken(
        &self,
        state: &mut CommunicatorState,
        mut operation: HierarchicalOperation,
        borrowed: Option<&mut [u8]>,
    ) -> Result<Vec<u8>, Error> {
        let mut buffer = std::mem::replace(&mut operation.buffer, OperationBuffer::Borrowed);
        let bytes = borrowed.or(buffer.bytes()).unwrap_or_default();
        let mut buffers = operation.buffers(&state.teams, bytes);
        self.complete(state, &mut operation, &mut buffers)?;
        Ok(operation.take_result().unwrap_or_else(|| buffer.into_owned()))
    }

    /// Advances every operation in flight as far as it goes without blocking.
    pub(super) fn advance(&self, state: &mut CommunicatorState, mut borrowed: Option<(u64, &mut [u8])>) {
        if let Some((error, since)) = &state.suspected {
            if let Some(agreed) = self.agreed_failure(error, *since) {
                self.settle(state, &agreed);
            }
            return;
        }
        let mut driver = PollingDriver { engine: self.process.shared.engine() };
        driver.engine.progress();
        let mut gate = StartGate::default();
        let CommunicatorState { teams, queue, spare, .. } = state;
        let mut failed = None;
        for operation in queue.iter_mut() {
            let mut buffer = std::mem::replace(&mut operation.buffer, OperationBuffer::Borrowed);
            let of_caller = borrowed.as_mut().filter(|(id, _)| *id == operation.id).map(|(_, bytes)| &mut **bytes);
            let Some(bytes) = buffer.bytes().or(of_caller) else {
                continue; // The caller's bytes are in another thread, which advances this operation itself.
            };
            let mut buffers = operation.buffers(teams, bytes);
            let result = operation.step(&mut buffers, teams, spare, &mut gate, &mut driver);
            operation.buffer = buffer;
            if let Err(error) = result {
                failed = Some(error);
                break;
            }
        }
        drop(driver);
        match failed {
            Some(error @ Error::InvalidArgument { .. }) => self.settle(state, &error),
            Some(error) => state.suspect(error),
            None => state.collect_completed(),
        }
    }

    /// Blocks until a call within the host is complete. A call that completes while a failure is reported is complete.
    #[inline]
    fn wait_in_team(
        &self,
        team: &mut Team,
        operation: &mut Option<TeamOperation>,
        call: TeamCall,
        buffers: &mut CollectiveBuffers<'_>,
    ) -> Result<(), Error> {
        let (mut waiting_since, mut checked) = (None, None::<Instant>);
        let mut began = None::<Instant>;
        let mut in_library = None;
        let check = || {
            in_library.get_or_insert_with(|| self.process.activity.enter());
            let now = Instant::now();
            let mode = match self.process.settings.progress_callback {
                Some(_) if now - *began.get_or_insert(now) < AWAKE_WITH_CALLBACK => WaitMode::StayAwake,
                _ => WaitMode::MaySleep,
            };
            if now - *checked.get_or_insert(now) < CHECK_INTERVAL {
                return Ok(mode);
            }
            checked = Some(now);
            self.process.shared.call_progress_callback();
            self.check(&mut waiting_since).map(|()| mode)
        };
        let result = match operation {
            None => team.run(call, buffers, check),
            Some(operation) => team.wait(operation, buffers, check),
        };
        match result {
            Ok(()) => Ok(()),
            Err(TeamWaitError::Team(TeamError::RankLost { rank })) => Err(self.loss_of(rank)),
            Err(TeamWaitError::Team(error)) => Err(error.into()),
            Err(TeamWaitError::Check(error)) => Err(error),
        }
    }

    /// The error after a rank of this host is gone.
    #[cold]
    fn loss_of(&self, local_rank: u16) -> Error {
        let rank = self.layout.hosts[self.layout.host][usize::from(local_rank)];
        Error::RanksLost { ranks: vec![self.layout.ranks[rank as usize]] }
    }
}

impl CommunicatorState {
    /// A poll has found a failure, which stays until the ranks agree.
    fn suspect(&mut self, error: Error) {
        self.suspected.get_or_insert((error, Instant::now()));
    }

    pub(super) fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn is_queued(&self, id: u64) -> bool {
        self.queue.iter().any(|operation| operation.id == id)
    }

    /// Takes an operation out of the queue if it is the only one there.
    fn take_if_alone(&mut self, id: u64) -> Option<HierarchicalOperation> {
        let is_alone = self.queue.len() == 1 && self.queue[0].id == id && self.suspected.is_none();
        if is_alone { self.queue.pop_front() } else { None }
    }

    fn count(&mut self, operation: &HierarchicalOperation) {
        self.statistics.operations += 1;
        let is_within_host = matches!(self.teams, HostTeams::Whole(_));
        self.statistics.within_host += u64::from(is_within_host);
        self.statistics.between_hosts += u64::from(!is_within_host && operation.role() == HostRole::Leader);
        match operation.completed_by() {
            Some(InterHostMethod::Aggregation) => self.statistics.aggregated += 1,
            Some(InterHostMethod::Multicast) => self.statistics.multicast += 1,
            _ => {}
        }
    }

    fn collect_completed(&mut self) {
        while let Some(index) = self.queue.iter().position(HierarchicalOperation::is_complete) {
            let Some(mut operation) = self.queue.remove(index) else { return };
            self.count(&operation);
            let bytes = operation.take_result().unwrap_or_else(|| operation.buffer.into_owned());
            self.completed.insert(operation.id, Ok(bytes));
        }
    }
}

/// Blocks until each stage is complete.
struct BlockingDriver<'c> {
    communicator: &'c CommunicatorInner,
    /// Where the result will arrive, if it can only arrive there.
    multicast_socket: Option<Arc<MulticastSocket>>,
    /// The stream in flight, which uses the caller's memory.
    stream: Option<OperationHandle>,
}

impl Drop for BlockingDriver<'_> {
    /// After an error or a panic the caller gets its memory back.
    fn drop(&mut self) {
        if let Some(handle) = self.stream {
            self.communicator.process.shared.engine().network.cancel(handle);
        }
    }
}

impl StageDriver for BlockingDriver<'_> {
    #[inline]
    fn drive_team(
        &mut self,
        team: &mut Team,
        operation: &mut Option<TeamOperation>,
        call: TeamCall,
        buffers: &mut CollectiveBuffers<'_>,
    ) -> Result<bool, Error> {
        self.communicator.wait_in_team(team, operation, call, buffers).map(|()| true)
    }

    fn start_inter_host(
        &mut self,
        route: &CollectiveRoute,
        collective: ScheduledCollective,
        data: Vec<u8>,
    ) -> OperationHandle {
        let method = route.inter_host.1;
        let network = &mut self.communicator.process.shared.engine().network;
        let handle = network.start(route.context, method, collective, data);
        self.multicast_socket =
            network.multicast_socket(route.context).filter(|_| method == InterHostMethod::Aggregation);
        handle
    }

    fn start_stream(
        &mut self,
        route: &CollectiveRoute,
        collective: ScheduledCollective,
        algorithm: CollectiveAlgorithm,
        buffers: StreamBuffers,
    ) -> OperationHandle {
        let network = &mut self.communicator.process.shared.engine().network;
        let handle = network.start_stream(route.context, algorithm, collective, buffers);
        *self.stream.insert(handle)
    }

    fn drive_inter_host(
        &mut self,
        route: &CollectiveRoute,
        handle: OperationHandle,
    ) -> Result<Option<InterHostResult>, Error> {
        if route.streamed.is_some() {
            self.stream = Some(handle); // It may have been started by a poll.
        }
        let ranks = &self.communicator.layout.ranks;
        let mut waiting_since = None;
        let result = self.communicator.process.shared.wait_for(self.multicast_socket.as_deref(), |engine| {
            take_result(engine, route, handle)
                .or_else(|| engine.failure_of(route.context, ranks).map(Err))
                .or_else(|| engine.departed_rank(ranks, &mut waiting_since).map(Err))
        });
        if result.is_ok() {
            self.stream = None;
        }
        result.map(Some)
    }
}

/// Advances stages as far as they go without blocking.
struct PollingDriver<'e> {
    engine: MutexGuard<'e, ProgressEngine>,
}

impl StageDriver for PollingDriver<'_> {
    fn drive_team(
        &mut self,
        team: &mut Team,
        operation: &mut Option<TeamOperation>,
        call: TeamCall,
        buffers: &mut CollectiveBuffers<'_>,
    ) -> Result<bool, Error> {
        let operation = match operation {
            Some(operation) => operation,
            none => none.insert(team.start(call, buffers)?),
        };
        Ok(operation.is_over() || team.poll(operation, buffers)? == TeamProgress::Done)
    }

    fn start_inter_host(
        &mut self,
        route: &CollectiveRoute,
        collective: ScheduledCollective,
        data: Vec<u8>,
    ) -> OperationHandle {
        self.engine.network.start(route.context, route.inter_host.1, collective, data)
    }

    fn start_stream(
        &mut self,
        route: &CollectiveRoute,
        collective: ScheduledCollective,
        algorithm: CollectiveAlgorithm,
        buffers: StreamBuffers,
    ) -> OperationHandle {
        self.engine.network.start_stream(route.context, algorithm, collective, buffers)
    }

    fn drive_inter_host(
        &mut self,
        route: &CollectiveRoute,
        handle: OperationHandle,
    ) -> Result<Option<InterHostResult>, Error> {
        take_result(&mut self.engine, route, handle).transpose()
    }
}

fn take_result(
    engine: &mut ProgressEngine,
    route: &CollectiveRoute,
    handle: OperationHandle,
) -> Option<Result<InterHostResult, Error>> {
    let result = engine.network.take(handle)?;
    let tree_is_sound = engine.network.tree(route.context).is_some_and(|(_, is_sound)| is_sound);
    let me = engine.rank();
    Some(result.map(|data| InterHostResult { data, tree_is_sound }).map_err(|error| Error::between_hosts(error, me)))
}

/// Runs something that wants input and result in one place.
fn in_place<R>(buffers: &mut CollectiveBuffers<'_>, run: impl FnOnce(&mut [u8]) -> R) -> R {
    match buffers {
        // An exchange is a call of a stage, not of an operation.
        CollectiveBuffers::Empty | CollectiveBuffers::Exchange { .. } => run(&mut []),
        CollectiveBuffers::InputOnly(input) => run(&mut input.to_vec()),
        CollectiveBuffers::InPlace(bytes) => run(bytes),
        CollectiveBuffers::Separate { input, output } => {
            output.copy_from_slice(input);
            run(output)
        }
    }
}
