//! One collective operation of a communicator: up within the host, between hosts, down within the host.
//!
//! In: the route, the buffers, and a driver that either polls or blocks. Out: the result in the buffers.
//! Rules: teams and the network require every rank's operations in one order. So an operation starts its inter-host stage only after
//! all earlier operations have started theirs, and likewise its down stage. The up stage starts with the operation, unless an earlier
//! operation has more than one call in it.

use engine::network::{OperationHandle, StreamBuffers};
use hostmem::team::{CollectiveBuffers, Team, TeamCall, TeamOperation};
use protocol::collective::{CollectiveAlgorithm, CollectiveOperation, InterHostMethod, ScheduledCollective};
use reduce::{ElementType, Operator, ReductionKind};
use units::{GroupId, Rank};

use crate::block_operation::BlockOperation;
use crate::error::Error;

/// A buffer up to this size is kept for the next inter-host stage: to allocate it anew costs more than to fill it.
const MAX_SPARE_BYTES: usize = 1 << 12;

/// The stage of an operation, with what is in flight in it.
enum HierarchyStage {
    Up(Option<TeamOperation>),
    InterHost(Option<OperationHandle>),
    Down(Option<TeamOperation>),
    Complete,
}

/// Which bytes an operation works on.
pub(crate) enum OperationBuffer {
    /// The caller's, passed with every step.
    Borrowed,
    /// Its own; the caller gets them back on completion.
    Owned(Vec<u8>),
    /// Somebody else's, until the operation is over.
    Lent(LentMemory),
}

impl OperationBuffer {
    /// The bytes, if they need not be passed with every step.
    pub(crate) fn bytes(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Borrowed => None,
            Self::Owned(bytes) => Some(bytes),
            Self::Lent(memory) => Some(memory.bytes()),
        }
    }

    /// What the caller gets back: the result of a borrowed or lent buffer is in place.
    pub(crate) fn into_owned(self) -> Vec<u8> {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Borrowed | Self::Lent(_) => Vec::new(),
        }
    }
}

/// Memory that an operation may use until it is over, wherever it is advanced.
pub(crate) struct LentMemory {
    place: *mut u8,
    length: usize,
}

// SAFETY: whoever lent the memory has given it up (`LentMemory::new`), and the operation is advanced under the communicator's lock.
unsafe impl Send for LentMemory {}

impl LentMemory {
    /// # Safety
    /// Until the operation that gets it is over, `length` bytes are readable and writable there, and nobody else uses them.
    pub(crate) unsafe fn new(place: *mut u8, length: usize) -> Self {
        Self { place, length }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: guaranteed by whoever lent it, until the operation is over (`new`).
        unsafe { std::slice::from_raw_parts_mut(self.place, self.length) }
    }
}

/// This rank's role within its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostRole {
    /// Takes part in the inter-host stage for its host.
    Leader,
    /// Takes part in the stages within the host only.
    Follower,
}

/// The stages of an operation as one rank sees them. Roots are local ranks within the host and indices of hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectiveRoute {
    /// The call within the host before the inter-host stage, if any.
    pub up: Option<TeamCall>,
    /// The operation between the leaders of hosts, and its method.
    pub inter_host: (CollectiveOperation, InterHostMethod),
    /// The algorithm, if the vector is streamed between hosts: in the caller's memory, without a copy.
    pub streamed: Option<CollectiveAlgorithm>,
    /// True if the leader broadcasts its bytes within the host afterwards.
    pub down: bool,
    pub role: HostRole,
    pub context: GroupId,
    /// This rank within its host.
    pub local_rank: u16,
}

/// The two teams of a host with several ranks: the up and the down stages each have an order of their own.
pub(crate) struct TeamPair {
    pub up: Team,
    pub down: Team,
}

/// The shared-memory teams of a communicator on this host.
pub(crate) enum HostTeams {
    /// This rank is the only one on its host.
    Alone,
    /// All ranks of the communicator are on this host: one team does everything.
    Whole(Box<Team>),
    /// Some ranks of the communicator are on this host.
    Part(Box<TeamPair>),
}

impl HostTeams {
    fn up(&mut self) -> Option<&mut Team> {
        match self {
            Self::Alone => None,
            Self::Whole(team) => Some(team),
            Self::Part(teams) => Some(&mut teams.up),
        }
    }

    fn down(&mut self) -> Option<&mut Team> {
        match self {
            Self::Alone | Self::Whole(_) => None,
            Self::Part(teams) => Some(&mut teams.down),
        }
    }
}

/// The result of an inter-host stage.
pub(crate) struct InterHostResult {
    pub data: Vec<u8>,
    /// False if the tree failed on the way and the hosts did the operation among themselves.
    pub tree_is_sound: bool,
}

/// Drives the stages of an operation: by polling, or by blocking until a stage is complete.
pub(crate) trait StageDriver {
    /// Starts the call if it has not started, and advances it. True if it is complete.
    fn drive_team(
        &mut self,
        team: &mut Team,
        operation: &mut Option<TeamOperation>,
        call: TeamCall,
        buffers: &mut CollectiveBuffers<'_>,
    ) -> Result<bool, Error>;

    /// Starts the inter-host stage.
    fn start_inter_host(
        &mut self,
        route: &CollectiveRoute,
        collective: ScheduledCollective,
        data: Vec<u8>,
    ) -> OperationHandle;

    /// Starts the inter-host stage as a stream in the caller's memory.
    fn start_stream(
        &mut self,
        route: &CollectiveRoute,
        collective: ScheduledCollective,
        algorithm: CollectiveAlgorithm,
        buffers: StreamBuffers,
    ) -> OperationHandle;

    /// The result of the inter-host stage, if it is complete.
    fn drive_inter_host(
        &mut self,
        route: &CollectiveRoute,
        handle: OperationHandle,
    ) -> Result<Option<InterHostResult>, Error>;
}

/// Stages that later operations must not start yet, because an earlier operation has not started its own.
#[derive(Clone, Copy, Default)]
pub(crate) struct StartGate {
    up_closed: bool,
    inter_host_closed: bool,
    down_closed: bool,
}

pub(crate) struct HierarchicalOperation {
    pub id: u64,
    pub buffer: OperationBuffer,
    route: CollectiveRoute,
    stage: HierarchyStage,
    completed_by: Option<InterHostMethod>,
    /// What the stages move, if that is not the caller's vector.
    blocks: Option<Box<BlockOperation>>,
    /// Where a rank of a reduce that gets no result keeps partial sums of a stream.
    scratch: Vec<u8>,
}

impl HierarchicalOperation {
    #[inline]
    pub(crate) fn new(id: u64, route: CollectiveRoute, buffer: OperationBuffer) -> Self {
        let (completed_by, blocks, scratch) = (None, None, Vec::new());
        Self { id, buffer, route, stage: HierarchyStage::Up(None), completed_by, blocks, scratch }
    }

    /// An operation on blocks, which has buffers of its own.
    pub(crate) fn with_blocks(id: u64, route: CollectiveRoute, blocks: BlockOperation) -> Self {
        let buffer = OperationBuffer::Owned(Vec::new());
        Self { blocks: Some(Box::new(blocks)), ..Self::new(id, route, buffer) }
    }

    /// The result of an operation that has buffers of its own.
    pub(crate) fn take_result(&mut self) -> Option<Vec<u8>> {
        self.blocks.as_mut().map(|blocks| blocks.take_result())
    }

    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.stage, HierarchyStage::Complete)
    }

    /// The inter-host stage in flight, if it uses the caller's memory.
    pub(crate) fn stream_in_flight(&self) -> Option<OperationHandle> {
        match self.stage {
            HierarchyStage::InterHost(handle) => handle.filter(|_| self.route.streamed.is_some()),
            _ => None,
        }
    }

    /// True if the operation consists of a stream between hosts alone: input and result may be in two places.
    pub(crate) fn is_stream_alone(&self, teams: &HostTeams) -> bool {
        self.route.streamed.is_some() && matches!(teams, HostTeams::Alone)
    }

    /// This rank's role within its host.
    pub(crate) fn role(&self) -> HostRole {
        self.route.role
    }

    /// How this rank's inter-host stage was completed; none if it had none, or if the tree failed on the way.
    pub(crate) fn completed_by(&self) -> Option<InterHostMethod> {
        self.completed_by
    }

    /// The view on `bytes` that [`Self::step`] expects.
    pub(crate) fn buffers<'b>(&self, teams: &HostTeams, bytes: &'b mut [u8]) -> CollectiveBuffers<'b> {
        match (teams, self.route.up) {
            (HostTeams::Whole(_), Some(call)) => buffers_for(call, self.route.local_rank, bytes),
            _ => CollectiveBuffers::InPlace(bytes),
        }
    }

    /// Advances through as many stages as the driver completes. `buffers` are the caller's own if all ranks are on one host,
    /// otherwise in place. `spare` is an allocation for the inter-host stage.
    #[inline]
    pub(crate) fn step<D: StageDriver>(
        &mut self,
        buffers: &mut CollectiveBuffers<'_>,
        teams: &mut HostTeams,
        spare: &mut Vec<u8>,
        gate: &mut StartGate,
        driver: &mut D,
    ) -> Result<(), Error> {
        if let HierarchyStage::Up(_) = self.stage {
            self.step_up(buffers, teams, gate, driver)?;
        }
        if let HierarchyStage::InterHost(_) = self.stage {
            self.step_inter_host(buffers, spare, gate, driver)?;
        }
        if let HierarchyStage::Down(_) = self.stage {
            self.step_down(buffers, teams, gate, driver)?;
        }
        Ok(())
    }

    #[inline]
    fn step_up<D: StageDriver>(
        &mut self,
        buffers: &mut CollectiveBuffers<'_>,
        teams: &mut HostTeams,
        gate: &mut StartGate,
        driver: &mut D,
    ) -> Result<(), Error> {
        let HierarchyStage::Up(operation) = &mut self.stage else { return Ok(()) };
        let is_whole = matches!(teams, HostTeams::Whole(_));
        let is_complete = match (&mut self.blocks, self.route.up, teams.up()) {
            (_, _, Some(_)) if gate.up_closed && operation.is_none() => false,
            (Some(blocks), _, team) => blocks.drive_up(team, operation, driver)?,
            (None, Some(call), Some(team)) if is_whole => driver.drive_team(team, operation, call, buffers)?,
            (None, Some(call), Some(team)) => {
                let mut buffers = buffers_for(call, self.route.local_rank, bytes_of(buffers));
                driver.drive_team(team, operation, call, &mut buffers)?
            }
            _ => true,
        };
        if !is_complete {
            gate.up_closed |= self.blocks.as_ref().is_some_and(|blocks| blocks.has_more_pieces());
            gate.inter_host_closed |= self.route.role == HostRole::Leader;
            gate.down_closed = true;
            return Ok(());
        }
        if let Some(blocks) = &mut self.blocks {
            blocks.finish_up();
        }
        self.stage = match self.route.role {
            HostRole::Leader => HierarchyStage::InterHost(None),
            HostRole::Follower => HierarchyStage::Down(None),
        };
        Ok(())
    }

    fn step_inter_host<D: StageDriver>(
        &mut self,
        buffers: &mut CollectiveBuffers<'_>,
        spare: &mut Vec<u8>,
        gate: &mut StartGate,
        driver: &mut D,
    ) -> Result<(), Error> {
        let HierarchyStage::InterHost(handle) = &mut self.stage else { return Ok(()) };
        if handle.is_none() && !gate.inter_host_closed {
            *handle = Some(match (&mut self.blocks, self.route.streamed) {
                (Some(blocks), Some(algorithm)) => {
                    let (collective, buffers) = (blocks.between_hosts()?, blocks.stream_buffers());
                    driver.start_stream(&self.route, collective, algorithm, buffers)
                }
                (Some(blocks), None) => {
                    let (collective, data) = (blocks.between_hosts()?, blocks.take_vector());
                    driver.start_inter_host(&self.route, collective, data)
                }
                (None, Some(algorithm)) => {
                    let buffers = stream_buffers(&self.route, buffers, &mut self.scratch);
                    driver.start_stream(&self.route, self.route.inter_host.0.into(), algorithm, buffers)
                }
                (None, None) => {
                    let mut data = std::mem::take(spare);
                    data.extend_from_slice(bytes_of(buffers));
                    driver.start_inter_host(&self.route, self.route.inter_host.0.into(), data)
                }
            });
        }
        let bytes = bytes_of(buffers);
        gate.inter_host_closed |= handle.is_none();
        let result = handle.map(|handle| driver.drive_inter_host(&self.route, handle)).transpose()?.flatten();
        let Some(InterHostResult { mut data, tree_is_sound }) = result else {
            gate.down_closed = true;
            return Ok(());
        };
        if let Some(blocks) = &mut self.blocks {
            blocks.finish_inter_host(self.route.streamed.is_none().then_some(data));
        } else {
            // A barrier, and a reduce at all but its root, return nothing.
            if data.len() == bytes.len() {
                bytes.copy_from_slice(&data);
            }
            if data.capacity() <= MAX_SPARE_BYTES {
                data.clear();
                *spare = data;
            }
        }
        self.completed_by = tree_is_sound.then_some(self.route.inter_host.1);
        self.stage = HierarchyStage::Down(None);
        Ok(())
    }

    #[inline]
    fn step_down<D: StageDriver>(
        &mut self,
        buffers: &mut CollectiveBuffers<'_>,
        teams: &mut HostTeams,
        gate: &mut StartGate,
        driver: &mut D,
    ) -> Result<(), Error> {
        let HierarchyStage::Down(operation) = &mut self.stage else { return Ok(()) };
        if let (true, Some(team)) = (self.route.down, teams.down()) {
            if operation.is_none() && gate.down_closed {
                return Ok(());
            }
            let call = TeamCall::Broadcast { root: 0 };
            let bytes = match &mut self.blocks {
                Some(blocks) => blocks.down_bytes(),
                None => bytes_of(buffers),
            };
            let mut buffers = buffers_for(call, self.route.local_rank, bytes);
            if !driver.drive_team(team, operation, call, &mut buffers)? {
                return Ok(());
            }
        }
        if let Some(blocks) = &mut self.blocks {
            blocks.finish();
        }
        self.stage = HierarchyStage::Complete;
        Ok(())
    }
}

/// The memory in which an operation streams. Who drives the operation keeps the buffers until the stage is complete, or cancels it.
fn stream_buffers(
    route: &CollectiveRoute,
    buffers: &mut CollectiveBuffers<'_>,
    scratch: &mut Vec<u8>,
) -> StreamBuffers {
    let (input, output, bytes) = match buffers {
        CollectiveBuffers::Empty | CollectiveBuffers::Exchange { .. } => {
            let nothing = std::ptr::NonNull::<u8>::dangling().as_ptr();
            (nothing.cast_const(), nothing, 0)
        }
        CollectiveBuffers::InPlace(bytes)
            if route.streamed.is_some_and(|algorithm| algorithm.needs_two_buffers(&route.inter_host.0)) =>
        {
            scratch.clear();
            scratch.extend_from_slice(bytes);
            (scratch.as_ptr(), bytes.as_mut_ptr(), bytes.len())
        }
        CollectiveBuffers::InPlace(bytes) => (bytes.as_ptr(), bytes.as_mut_ptr(), bytes.len()),
        CollectiveBuffers::Separate { input, output } => (input.as_ptr(), output.as_mut_ptr(), input.len()),
        CollectiveBuffers::InputOnly(input) => {
            // The root of a broadcast receives nothing; a reduce needs memory for partial sums.
            let receives = matches!(route.inter_host.0, CollectiveOperation::Reduce { .. });
            scratch.resize(if receives { input.len() } else { 0 }, 0);
            (input.as_ptr(), scratch.as_mut_ptr(), input.len())
        }
    };
    // SAFETY: the caller of the operation lends both buffers until it is complete; whoever drives it cancels the stream before the
    // buffers are given back early (`BlockingDriver`, `CommunicatorInner::fail` and its drop). `scratch` belongs to the operation.
    unsafe { StreamBuffers::new(input, output, bytes) }
}

/// The bytes of buffers that hold input and result in one place.
fn bytes_of<'b>(buffers: &'b mut CollectiveBuffers<'_>) -> &'b mut [u8] {
    match buffers {
        CollectiveBuffers::InPlace(bytes) => bytes,
        _ => &mut [],
    }
}

/// The buffers with which this rank takes part in a call within its host; an exchange has its own.
pub(crate) fn buffers_for(call: TeamCall, local_rank: u16, bytes: &mut [u8]) -> CollectiveBuffers<'_> {
    let only_sends = match call {
        TeamCall::Barrier => return CollectiveBuffers::Empty,
        TeamCall::Broadcast { root } => root == local_rank,
        TeamCall::Reduce { root, .. } => root != local_rank,
        TeamCall::AllReduce { .. } | TeamCall::Exchange { .. } => false,
    };
    if only_sends { CollectiveBuffers::InputOnly(bytes) } else { CollectiveBuffers::InPlace(bytes) }
}

/// The kind of the empty reduction by which a barrier gathers the ranks of a host.
pub(crate) fn barrier_kind() -> ReductionKind {
    ReductionKind::new(ElementType::U8, Operator::Or).expect("integers have bits")
}

/// The rank of a host among the hosts of a communicator.
pub(crate) fn host_rank(host: usize) -> Rank {
    Rank(host as u32)
}
