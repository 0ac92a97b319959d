//! What is behind a communicator: who takes part, what is under way, and how an operation is run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use hostmem::team::{self, CollectiveBuffers, Team, TeamCall, TeamWaitError, WaitMode};
use protocol::collective::{
    AggregationAvailability, AggregationUnavailable, CollectiveOperation, InterHostMethod, MethodChoice,
    MethodPreferences, OperandOrder, SelectionInput, TransportClass, choose_method,
};
use units::{GroupId, Rank};

use crate::hierarchical_operation::{
    CollectiveRoute, HierarchicalOperation, HostRole, HostTeamsMut, OperationBuffer, StartGate, TeamPair,
    buffers_for, nothing, place,
};
use crate::job_process::JobProcess;
use crate::{CommunicatorStatistics, Error, JoinError};

/// How often somebody who waits within a host looks at what happens around it: that takes system calls.
const LOOK_AROUND: Duration = Duration::from_micros(50);
/// So long a wait within a host does not sleep, where there is a companion.
const COMPANIONS_TIME: Duration = Duration::from_micros(200);
/// How often somebody who asks for an end without waiting looks around.
const POLLS_PER_CHECK: u32 = 256;
/// Kinds of operations whose way is remembered.
const ROUTES_KNOWN: usize = 4;
/// Room that is kept for the next operation.
const MOST_SPARE: usize = 1 << 12;
/// The lifeline may take so long to say why a rank of this host is gone.
const GONE_PATIENCE: Duration = Duration::from_secs(1);

/// How operations may go between hosts.
struct SelectionContext {
    aggregation: AggregationAvailability,
    wanted: MethodPreferences,
    /// Why there are aggregation nodes, or none.
    why: String,
}

enum HostTeams {
    /// One rank of its host: nobody to share with.
    Alone,
    /// All ranks are on this host.
    Whole(Box<Team>),
    /// Some are.
    Part(Box<TeamPair>),
}

struct CommunicatorState {
    memory: HostTeams,
    running: VecDeque<HierarchicalOperation>,
    /// How the last few kinds of operations went: to choose takes a while, and most programs have few.
    routes: VecDeque<(CollectiveOperation, usize, CollectiveRoute)>,
    ended: BTreeMap<u64, Result<Vec<u8>, Error>>,
    next: u64,
    /// Room for what goes through the network next.
    spare: Vec<u8>,
    /// How often ends were asked for.
    polls: u32,
    broken: Option<Error>,
    statistics: CommunicatorStatistics,
}

pub(crate) struct CommunicatorInner {
    process: Arc<JobProcess>,
    context: GroupId,
    /// In the communicator of all ranks.
    ranks: Vec<u32>,
    me: u32,
    /// Our ranks, host by host.
    hosts: Vec<Vec<u32>>,
    /// Leaders that share a processor.
    per_processor: u32,
    host: usize,
    local: u16,
    way: Mutex<SelectionContext>,
    state: Mutex<CommunicatorState>,
}

impl CommunicatorInner {
    /// Brings ranks together. All of them do so at once; `ranks` is the same list everywhere and has this process in it.
    pub(crate) fn form(process: Arc<JobProcess>, context: GroupId, ranks: Vec<u32>) -> Result<Self, JoinError> {
        let hosts = process.hosts_of(&ranks);
        let find = |rank: u32| ranks.iter().position(|found| *found == rank).expect("it is one of them") as u32;
        let me = find(process.me);
        let host = hosts.iter().position(|host| host.contains(&me)).expect("every rank has a host");
        let local = hosts[host].iter().position(|rank| *rank == me).expect("just found") as u16;
        let leader = ranks[hosts[host][0] as usize];
        let team = |what: &str| {
            let (name, size) = (process.secret_name(context, leader, what), hosts[host].len() as u16);
            let team = match local {
                0 => Team::create(&name, size),
                _ => Team::join(&name, local, size, Duration::from_secs(60)),
            };
            team.map_err(JoinError::Memory)
        };
        let memory = match (hosts[host].len(), hosts.len()) {
            (1, _) => HostTeams::Alone,
            (_, 1) => HostTeams::Whole(Box::new(team("whole")?)),
            _ => HostTeams::Part(Box::new(TeamPair { up: team("up")?, down: team("down")? })),
        };
        if local == 0 && hosts.len() > 1 {
            let leaders = hosts.iter().map(|host| Rank(ranks[host[0] as usize])).collect();
            process.shared.engine().enter(context, leaders, place(host));
        }
        let state = CommunicatorState {
            memory,
            running: VecDeque::new(),
            routes: VecDeque::new(),
            ended: BTreeMap::new(),
            next: 0,
            spare: Vec::new(),
            polls: 0,
            broken: None,
            statistics: CommunicatorStatistics::default(),
        };
        let per_processor = process.crowding(hosts.iter().map(|host| ranks[host[0] as usize]));
        let way = SelectionContext {
            aggregation: AggregationAvailability::NotOffered(AggregationUnavailable::NoManager),
            wanted: MethodPreferences::default(),
            why: "no manager was named".to_owned(),
        };
        let comm = Self {
            process,
            context,
            ranks,
            me,
            per_processor,
            hosts,
            host,
            local,
            way: Mutex::new(way),
            state: Mutex::new(state),
        };
        comm.equip()?;
        Ok(comm)
    }

    pub(crate) fn process(&self) -> &Arc<JobProcess> {
        &self.process
    }

    pub(crate) fn world_ranks(&self) -> &[u32] {
        &self.ranks
    }

    pub(crate) fn context(&self) -> GroupId {
        self.context
    }

    pub(crate) fn me(&self) -> u32 {
        self.me
    }

    pub(crate) fn hosts(&self) -> &[Vec<u32>] {
        &self.hosts
    }

    /// True if this rank speaks for its host.
    pub(crate) fn leads(&self) -> bool {
        self.local == 0
    }

    /// From now on operations may go through a tree, or may not, for this reason.
    pub(crate) fn set_aggregation(
        &self,
        aggregation: AggregationAvailability,
        wanted: MethodPreferences,
        why: &str,
    ) -> Result<(), Error> {
        *self.way.lock().unwrap_or_else(PoisonError::into_inner) =
            SelectionContext { aggregation, wanted, why: why.to_owned() };
        self.state().routes.clear();
        Ok(())
    }

    pub(crate) fn statistics(&self) -> CommunicatorStatistics {
        self.state().statistics
    }

    /// How something would be done between hosts, and why.
    pub(crate) fn explain(&self, collective: CollectiveOperation, bytes: usize) -> String {
        let why = self.way.lock().unwrap_or_else(PoisonError::into_inner).why.clone();
        let choice = self.choice(collective, bytes);
        format!("{choice} Aggregation nodes: {why}.")
    }

    fn state(&self) -> MutexGuard<'_, CommunicatorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a rank is: the place of its host, and its rank there.
    fn whereabouts(&self, rank: u32) -> Result<(usize, u16), Error> {
        let found = self.hosts.iter().enumerate().find_map(|(host, ranks)| {
            ranks.iter().position(|found| *found == rank).map(|local| (host, local as u16))
        });
        found.ok_or_else(|| Error::argument(format!("there is no rank {rank} among {}", self.ranks.len())))
    }

    /// The same, as one host among all sees it.
    fn between_hosts(&self, collective: CollectiveOperation) -> Result<CollectiveOperation, Error> {
        Ok(match collective {
            CollectiveOperation::Broadcast { root } => {
                CollectiveOperation::Broadcast { root: place(self.whereabouts(root.0)?.0) }
            }
            CollectiveOperation::Reduce { root, kind } => {
                CollectiveOperation::Reduce { root: place(self.whereabouts(root.0)?.0), kind }
            }
            other => other,
        })
    }

    fn choice(&self, collective: CollectiveOperation, bytes: usize) -> MethodChoice {
        let (aggregation, wanted) = {
            let way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
            (way.aggregation, way.wanted)
        };
        choose_method(&SelectionInput {
            collective,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            size: self.hosts.len() as u32,
            ranks_per_host: 1,
            per_processor: self.per_processor,
            operands: OperandOrder::Commute,
            aggregation,
            transport: TransportClass::Datagrams,
            preferred: wanted.of(&collective),
        })
    }

    #[cold]
    fn route(&self, collective: CollectiveOperation, bytes: usize) -> Result<CollectiveRoute, Error> {
        let shares = self.hosts[self.host].len() > 1;
        let between = self.between_hosts(collective)?;
        let within = |call: TeamCall| shares.then_some(call);
        let (up, down) = match collective {
            CollectiveOperation::Barrier => (within(TeamCall::Reduce { root: 0, kind: nothing() }), shares),
            CollectiveOperation::AllReduce { kind } => (within(TeamCall::Reduce { root: 0, kind }), shares),
            CollectiveOperation::Reduce { root, kind } => {
                let (host, local) = self.whereabouts(root.0)?;
                (within(TeamCall::Reduce { root: 0, kind }), shares && host == self.host && local != 0)
            }
            CollectiveOperation::Broadcast { root } => {
                let (host, local) = self.whereabouts(root.0)?;
                let here = host == self.host;
                (within(TeamCall::Broadcast { root: local }).filter(|_| here), shares && !here)
            }
        };
        let duty = if self.local == 0 { HostRole::Leads } else { HostRole::Follows };
        let method = self.choice(between, bytes).method;
        Ok(CollectiveRoute { up, between: (between, method), down, duty, context: self.context, local: self.local })
    }

    /// The same, from memory if an operation like it was among the last.
    fn known_route(
        &self,
        state: &mut CommunicatorState,
        collective: CollectiveOperation,
        bytes: usize,
    ) -> Result<CollectiveRoute, Error> {
        let known = state.routes.iter().find(|(what, length, _)| (*what, *length) == (collective, bytes));
        if let Some((_, _, route)) = known {
            return Ok(*route);
        }
        let route = self.route(collective, bytes)?;
        if state.routes.len() == ROUTES_KNOWN {
            state.routes.pop_front();
        }
        state.routes.push_back((collective, bytes, route));
        Ok(route)
    }

    /// The same where all ranks are on this host.
    fn call_within(&self, collective: CollectiveOperation) -> Result<TeamCall, Error> {
        let local = |root: Rank| self.whereabouts(root.0).map(|(_, local)| local);
        Ok(match collective {
            CollectiveOperation::Barrier => TeamCall::Barrier,
            CollectiveOperation::Broadcast { root } => TeamCall::Broadcast { root: local(root)? },
            CollectiveOperation::Reduce { root, kind } => TeamCall::Reduce { root: local(root)?, kind },
            CollectiveOperation::AllReduce { kind } => TeamCall::AllReduce { kind },
        })
    }

    /// Does an operation on the caller's bytes and waits for its end.
    pub(crate) fn run(&self, collective: CollectiveOperation, bytes: &mut [u8]) -> Result<(), Error> {
        let mut data = match collective {
            CollectiveOperation::Barrier => CollectiveBuffers::Nothing,
            _ => CollectiveBuffers::InPlace(bytes),
        };
        self.run_on(collective, &mut data)
    }

    /// The same, on buffers that suit the caller's part in it.
    #[inline]
    pub(crate) fn run_on(
        &self,
        collective: CollectiveOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<(), Error> {
        if self.ranks.len() == 1 {
            if let CollectiveBuffers::Apart { input, output } = data {
                output.copy_from_slice(input);
            }
            return self.between_hosts(collective).map(|_| ());
        }
        let mut state = self.state();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let within_host = self.hosts.len() == 1;
        let result = if within_host && state.running.is_empty() {
            self.process.presence.touch();
            self.run_within_host(&mut state, collective, data)
        } else {
            let _inside = self.process.presence.enter();
            on_one_buffer(data, |bytes| match state.running.is_empty() {
                true => self.run_between_hosts(&mut state, collective, bytes),
                false => self.run_beside_others(&mut state, collective, bytes),
            })
        };
        match &result {
            Ok(()) => {
                state.statistics.operations += 1;
                state.statistics.within_host += u64::from(within_host);
            }
            Err(error) => self.fail(&mut state, error),
        }
        result
    }

    #[inline]
    fn run_within_host(
        &self,
        state: &mut CommunicatorState,
        collective: CollectiveOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> Result<(), Error> {
        let HostTeams::Whole(team) = &mut state.memory else { unreachable!("all ranks are on this host") };
        self.within(team, self.call_within(collective)?, data)
    }

    /// Does something within the host. What is done is done, even if we hear at the same time that all is over.
    #[inline]
    fn within(&self, team: &mut Team, call: TeamCall, data: &mut CollectiveBuffers<'_>) -> Result<(), Error> {
        let (mut since, mut looked) = (None, None::<Instant>);
        let mut began = None::<Instant>;
        let mut inside = None;
        let check = || {
            inside.get_or_insert_with(|| self.process.presence.enter());
            let now = Instant::now();
            // A companion that has something under way is quicker while we are awake.
            let attention = match self.process.settings.companion {
                Some(_) if now - *began.get_or_insert(now) < COMPANIONS_TIME => WaitMode::StayAwake,
                _ => WaitMode::MaySleep,
            };
            if now - *looked.get_or_insert(now) < LOOK_AROUND {
                return Ok(attention);
            }
            looked = Some(now);
            self.process.shared.call_companion();
            self.check(&mut since).map(|()| attention)
        };
        match team.run(call, data, check) {
            Ok(()) => Ok(()),
            Err(TeamWaitError::Team(team::TeamError::Lost { rank })) => Err(self.why_gone(rank)),
            Err(TeamWaitError::Team(error)) => Err(error.into()),
            Err(TeamWaitError::Check(error)) => Err(error),
        }
    }

    /// The same, as part of something between hosts: apart, for those who are alone on theirs.
    #[inline(never)]
    fn within_part(&self, team: &mut Team, call: TeamCall, data: &mut CollectiveBuffers<'_>) -> Result<(), Error> {
        self.within(team, call, data)
    }

    /// A rank of this host is gone. If there is more to say about it, the lifeline says it soon.
    #[cold]
    fn why_gone(&self, local: u16) -> Error {
        let began = Instant::now();
        loop {
            if let Err(error) = self.check(&mut None) {
                return error;
            }
            if began.elapsed() > GONE_PATIENCE {
                let rank = self.hosts[self.host][usize::from(local)];
                return Error::RankLost { rank: self.ranks[rank as usize] };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn run_between_hosts(
        &self,
        state: &mut CommunicatorState,
        collective: CollectiveOperation,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let route = self.known_route(state, collective, bytes.len())?;
        let mut teams = match &mut state.memory {
            HostTeams::Part(teams) => Some(teams),
            _ => None,
        };
        if let (Some(call), Some(teams)) = (route.up, teams.as_mut()) {
            self.within_part(&mut teams.up, call, &mut buffers_for(call, self.local, bytes))?;
        }
        if route.duty == HostRole::Leads {
            let (collective, method) = route.between;
            let mut data = std::mem::take(&mut state.spare);
            data.extend_from_slice(bytes);
            let (ticket, ear) = {
                let network = &mut self.process.shared.engine().network;
                let ticket = network.start(self.context, method, collective, data);
                (ticket, network.ear(self.context).filter(|_| method == InterHostMethod::Aggregation))
            };
            let mut since = None;
            let (result, stands) = self.process.shared.wait_for(ear.as_deref(), |engine| {
                let end = engine.network.take(ticket).map(|end| {
                    let stands = engine.network.tree(self.context).is_some_and(|(_, is_sound)| is_sound);
                    end.map(|result| (result, stands)).map_err(Error::from)
                });
                end.or_else(|| engine.verdict(self.context, &self.ranks).map(Err))
                    .or_else(|| engine.desertion(&self.ranks, &mut since).map(Err))
            })?;
            if result.len() == bytes.len() {
                bytes.copy_from_slice(&result);
            }
            if result.capacity() <= MOST_SPARE {
                state.spare = result;
                state.spare.clear();
            }
            state.statistics.aggregated += u64::from(stands && method == InterHostMethod::Aggregation);
            state.statistics.multicast += u64::from(stands && method == InterHostMethod::Multicast);
        }
        if let (true, Some(teams)) = (route.down, teams) {
            let call = TeamCall::Broadcast { root: 0 };
            self.within_part(&mut teams.down, call, &mut buffers_for(call, self.local, bytes))?;
        }
        Ok(())
    }

    #[inline(never)]
    fn run_beside_others(
        &self,
        state: &mut CommunicatorState,
        collective: CollectiveOperation,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let id = self.launch(state, collective, OperationBuffer::Lent, bytes)?;
        self.wait_until(state, Some((id, bytes)), |state| state.running.iter().all(|running| running.id != id))?;
        state.ended.remove(&id).unwrap_or(Ok(Vec::new())).map(|_| ())
    }

    /// Starts an operation on bytes of its own.
    pub(crate) fn start(&self, collective: CollectiveOperation, mut bytes: Vec<u8>) -> Result<u64, Error> {
        let _inside = self.process.presence.enter();
        let mut state = self.state();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        if self.ranks.len() == 1 {
            self.between_hosts(collective)?;
            let id = state.next;
            state.next += 1;
            state.ended.insert(id, Ok(bytes));
            return Ok(id);
        }
        let owned = OperationBuffer::Own(std::mem::take(&mut bytes));
        let id = self.launch(&mut state, collective, owned, &mut [])?;
        self.advance(&mut state, None);
        Ok(id)
    }

    fn launch(
        &self,
        state: &mut CommunicatorState,
        collective: CollectiveOperation,
        buffer: OperationBuffer,
        lent: &mut [u8],
    ) -> Result<u64, Error> {
        let length = match &buffer {
            OperationBuffer::Own(bytes) => bytes.len(),
            OperationBuffer::Lent => lent.len(),
        };
        let mut route = self.route(collective, length)?;
        if self.hosts.len() == 1 {
            route.up = Some(self.call_within(collective)?);
            (route.down, route.duty) = (false, HostRole::Follows);
        }
        let id = state.next;
        state.next += 1;
        state.running.push_back(HierarchicalOperation::new(id, route, buffer));
        Ok(id)
    }

    /// True if an operation is over; moves everything on.
    pub(crate) fn is_over(&self, id: u64) -> bool {
        let _inside = self.process.presence.enter();
        let mut state = self.state();
        self.advance(&mut state, None);
        state.running.iter().all(|running| running.id != id)
    }

    /// The end of an operation that was started, if it is there; moves everything on, unless another thread is at it.
    pub(crate) fn take_end(&self, id: u64) -> Option<Result<Vec<u8>, Error>> {
        let _inside = self.process.presence.enter();
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.advance(&mut state, None);
        let is_running = |state: &CommunicatorState| state.running.iter().any(|running| running.id == id);
        state.polls = state.polls.wrapping_add(1);
        if is_running(&state)
            && state.polls.is_multiple_of(POLLS_PER_CHECK)
            && let Err(error) = self.check(&mut None)
        {
            self.fail(&mut state, &error);
        }
        if is_running(&state) { None } else { state.ended.remove(&id) }
    }

    /// Waits for the end of an operation that was started; its bytes.
    pub(crate) fn finish(&self, id: u64) -> Result<Vec<u8>, Error> {
        let _inside = self.process.presence.enter();
        let mut state = self.state();
        self.wait_until(&mut state, None, |state| state.running.iter().all(|running| running.id != id))?;
        state.ended.remove(&id).unwrap_or_else(|| Err(Error::broken("an operation has no end")))
    }

    /// Moves every operation on as far as it goes.
    fn advance(&self, state: &mut CommunicatorState, mut lent: Option<(u64, &mut [u8])>) {
        let mut engine = self.process.shared.engine();
        engine.turn();
        let mut turn = StartGate::default();
        let CommunicatorState { memory, running, .. } = state;
        let mut failed = None;
        for operation in running.iter_mut() {
            let bytes = lent.as_mut().filter(|(id, _)| *id == operation.id).map(|(_, bytes)| &mut **bytes);
            if matches!(operation.buffer, OperationBuffer::Lent) && bytes.is_none() {
                continue; // Of another thread, which moves it on itself.
            }
            let teams = match memory {
                HostTeams::Alone => None,
                HostTeams::Whole(team) => Some(HostTeamsMut::Whole(team)),
                HostTeams::Part(teams) => Some(HostTeamsMut::Part(teams)),
            };
            if let Err(error) = operation.advance(bytes, teams, &mut engine, &mut turn) {
                failed = Some(error);
                break;
            }
        }
        drop(engine);
        if let Some(error) = failed {
            return self.fail(state, &error);
        }
        while let Some(place) = state.running.iter().position(HierarchicalOperation::is_over) {
            let Some(over) = state.running.remove(place) else { break };
            state.statistics.operations += 1;
            let bytes = match over.buffer {
                OperationBuffer::Own(bytes) => bytes,
                OperationBuffer::Lent => Vec::new(),
            };
            state.ended.insert(over.id, Ok(bytes));
        }
    }

    fn wait_until(
        &self,
        state: &mut CommunicatorState,
        mut lent: Option<(u64, &mut [u8])>,
        is_done: impl Fn(&CommunicatorState) -> bool,
    ) -> Result<(), Error> {
        let (mut rounds, mut since) = (0_u32, None);
        loop {
            let lent = lent.as_mut().map(|(id, bytes)| (*id, &mut **bytes));
            self.advance(state, lent);
            if is_done(state) {
                return Ok(());
            }
            rounds = rounds.saturating_add(1);
            match rounds {
                0..100 => std::hint::spin_loop(),
                100..2_000 => std::thread::yield_now(),
                // Another rank's memory may be what is waited for, and that wakes nobody here.
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
            if rounds.is_multiple_of(64) {
                self.process.shared.call_companion();
                self.check(&mut since)?;
            }
        }
    }

    /// Hears what happened to the others; an error if this communicator cannot be used any more, or if what we have been
    /// waiting for since `since` will not come.
    fn check(&self, since: &mut Option<Instant>) -> Result<(), Error> {
        let Some(mut engine) = self.process.shared.try_engine() else { return Ok(()) };
        engine.turn();
        engine.listen();
        let verdict = engine.verdict(self.context, &self.ranks).or_else(|| engine.desertion(&self.ranks, since));
        verdict.map_or(Ok(()), Err)
    }

    /// This communicator cannot be used any more, and those who rely on us must hear why.
    fn fail(&self, state: &mut CommunicatorState, error: &Error) {
        if matches!(error, Error::Argument { .. }) {
            return;
        }
        let error = state.broken.get_or_insert_with(|| error.clone()).clone();
        for running in state.running.drain(..) {
            state.ended.insert(running.id, Err(error.clone()));
        }
        self.condemn(&error);
    }

    /// Tells those who must hear it that this communicator cannot be used any more.
    pub(crate) fn condemn(&self, error: &Error) {
        let leads = self.local == 0;
        if leads || !matches!(error, Error::Disagree { .. }) {
            let beside: Vec<u32> = self.hosts[self.host][1..].iter().map(|rank| self.ranks[*rank as usize]).collect();
            let others: Vec<u32> = self.ranks.iter().copied().filter(|rank| *rank != self.process.me).collect();
            let mut engine = self.process.shared.engine();
            if matches!(error, Error::Disagree { .. }) {
                engine.network.disagree(self.context);
            }
            engine.condemn(self.context, error, &beside, &others);
        }
    }
}

/// For those who want input and result in one buffer.
fn on_one_buffer<R>(data: &mut CollectiveBuffers<'_>, run: impl FnOnce(&mut [u8]) -> R) -> R {
    match data {
        CollectiveBuffers::Nothing => run(&mut []),
        CollectiveBuffers::Give(input) => run(&mut input.to_vec()),
        CollectiveBuffers::InPlace(bytes) => run(bytes),
        CollectiveBuffers::Apart { input, output } => {
            output.copy_from_slice(input);
            run(output)
        }
    }
}

impl Drop for CommunicatorInner {
    fn drop(&mut self) {
        self.process.shared.engine().forget(self.context);
    }
}
