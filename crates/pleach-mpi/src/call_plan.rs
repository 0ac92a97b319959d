//! What a collective call means to Pleach: which operation, on which bytes.
//!
//! In: the arguments of the call. Out: a plan, or the reason why the native MPI does the call. The reason is the same on all ranks,
//! because it follows only from what the standard requires to be the same on all of them: the operation and its order, count,
//! datatype and operator of reductions, the bytes of a broadcast, the root. `block_plan.rs` has the calls that copy blocks.

use pleach::{BlockCollective, BlockLengths, Communicator};

use crate::abi::size_of_type;
use crate::block_plan::{self, BlockCounts, BlockPlan};
use crate::collective_call::{CollectiveCall, FallbackReason, MpiCollective, RankAndSize};
use crate::datatypes::{ElementLayout, MpiReduction, slice};
use crate::mpi_job::MpiJob;
use crate::packing::{self, UserElements};
use crate::replay_log::LoggedInput;

/// If the ranks of a host are not contiguous, a scan gathers the vectors of all ranks: at most so many bytes.
const MAX_GATHERED_BYTES: usize = 1 << 30;

/// What to do for a call.
#[derive(Clone, Copy)]
pub(crate) struct CallPlan {
    /// Elements of this rank's own vector; of all blocks, if there is a count for each rank.
    count: usize,
    /// Bytes of this rank's own vector: without padding in a broadcast, with padding in a reduction. Of blocks of different lengths, the mean.
    pub(crate) bytes: usize,
    pub(crate) payload: CallPayload,
}

#[derive(Clone, Copy)]
pub(crate) enum CallPayload {
    Nothing,
    /// Contiguous bytes, or elements that the native MPI must pack.
    Bytes {
        is_contiguous: bool,
    },
    Elements(MpiReduction),
    /// Elements to reduce, with a count for each rank.
    ElementBlocks(MpiReduction, BlockPlan),
    /// Bytes to copy from rank to rank.
    Blocks(BlockPlan),
}

impl CallPlan {
    /// The plan as far as it does not depend on the communicator: that of blocks follows in [`Self::completed`].
    #[inline(always)]
    pub(crate) fn of(job: &MpiJob, call: &CollectiveCall) -> Result<Self, FallbackReason> {
        // Whether types and counts of copies matter at this rank depends on its communicator, so none is read before.
        if call.collective == MpiCollective::Barrier || call.collective.copies_blocks() {
            return Ok(Self { count: 0, bytes: 0, payload: CallPayload::Nothing });
        }
        let count = usize::try_from(call.count).map_err(|_| FallbackReason::Argument)?;
        let class = job.abi.class(job.mpi, call.datatype);
        if call.collective == MpiCollective::Broadcast {
            let (size, is_contiguous) = match class {
                Some(class) => (class.size(), class.is_contiguous()),
                None => (size_of_type(job.mpi, call.datatype).ok_or(FallbackReason::Type)?, false),
            };
            let bytes = count.checked_mul(size).ok_or(FallbackReason::TooLarge)?;
            return Ok(Self { count, bytes, payload: CallPayload::Bytes { is_contiguous } });
        }
        let operator = job.abi.operator(call.operator).ok_or(FallbackReason::Operator)?;
        let fold = MpiReduction::of(class.ok_or(FallbackReason::Type)?, operator).ok_or(FallbackReason::Type)?;
        if call.collective.has_counts() {
            return Ok(Self { count: 0, bytes: 0, payload: CallPayload::Elements(fold) });
        }
        let bytes = count.checked_mul(fold.stride()).ok_or(FallbackReason::TooLarge)?;
        Ok(Self { count, bytes, payload: CallPayload::Elements(fold) })
    }

    /// The whole plan, after the communicator was found. Rejects vectors that are too long, and arguments that the native MPI should report as
    /// wrong.
    #[inline(always)]
    pub(crate) fn completed(
        self,
        job: &MpiJob,
        call: &CollectiveCall,
        position: RankAndSize,
    ) -> Result<Self, FallbackReason> {
        match self.payload {
            _ if call.collective.copies_blocks() => {
                let blocks = BlockPlan::of_copies(job, call, position)?;
                Ok(Self { count: 0, bytes: blocks.bytes, payload: CallPayload::Blocks(blocks) })
            }
            CallPayload::Elements(fold) if call.collective.has_counts() => {
                let BlockCounts { blocks, total } = BlockPlan::of_counts(job, call, position, fold.stride())?;
                let payload = CallPayload::ElementBlocks(fold, blocks);
                let plan = Self { count: total, bytes: blocks.bytes, payload };
                plan.check_counted(job, call, position, &blocks)
            }
            _ => self.check(job, call, position).map(|()| self),
        }
    }

    /// The same for reductions with a count for each rank. A rank without a block needs no buffer for it.
    fn check_counted(
        self,
        job: &MpiJob,
        call: &CollectiveCall,
        position: RankAndSize,
        blocks: &BlockPlan,
    ) -> Result<Self, FallbackReason> {
        let in_place = call.send == job.abi.in_place;
        let needs_result = in_place || blocks.length(call, position.rank) > 0;
        let is_valid = self.bytes == 0
            || call.send != 0 && call.receive != job.abi.in_place && (call.receive != 0 || !needs_result);
        if is_valid { Ok(self) } else { Err(FallbackReason::Argument) }
    }

    #[inline]
    fn check(&self, job: &MpiJob, call: &CollectiveCall, position: RankAndSize) -> Result<(), FallbackReason> {
        let total = self.bytes.checked_mul(position.size as usize).ok_or(FallbackReason::TooLarge)?;
        let fits = match call.collective {
            MpiCollective::ReduceScatter => total <= job.max_bytes,
            MpiCollective::Scan | MpiCollective::ExclusiveScan => {
                self.bytes <= job.max_bytes && total <= MAX_GATHERED_BYTES
            }
            _ => self.bytes <= job.max_bytes,
        };
        if !fits {
            return Err(FallbackReason::TooLarge);
        }
        if call.collective.has_root() && !u32::try_from(call.root).is_ok_and(|root| root < position.size) {
            return Err(FallbackReason::Argument);
        }
        if self.bytes == 0 {
            return Ok(());
        }
        let is_root = call.root as u32 == position.rank;
        let in_place = call.send == job.abi.in_place;
        let is_valid = match call.collective {
            MpiCollective::Barrier => true,
            MpiCollective::Broadcast => {
                call.receive != job.abi.in_place && (call.receive != 0 || !self.is_contiguous())
            }
            MpiCollective::Reduce if !is_root => call.send != 0 && !in_place,
            _ => {
                call.receive != 0
                    && call.receive != job.abi.in_place
                    && call.send != 0
                    && (in_place || !overlap(call.send, call.receive, self.bytes))
            }
        };
        if is_valid { Ok(()) } else { Err(FallbackReason::Argument) }
    }

    fn is_contiguous(&self) -> bool {
        matches!(self.payload, CallPayload::Bytes { is_contiguous: true })
    }

    /// Bytes of this rank's input.
    pub(crate) fn input_bytes(&self, call: &CollectiveCall, position: RankAndSize) -> usize {
        let (ranks, is_root) = (position.size as usize, call.root as u32 == position.rank);
        match (call.collective, self.payload) {
            (_, CallPayload::ElementBlocks(fold, _)) => self.count * fold.stride(),
            (MpiCollective::ReduceScatter | MpiCollective::AllToAll, _) => self.bytes * ranks,
            (MpiCollective::Scatter, _) => {
                if is_root {
                    self.bytes * ranks
                } else {
                    0
                }
            }
            (MpiCollective::AllGatherV, CallPayload::Blocks(blocks)) => blocks.length(call, position.rank),
            _ => self.bytes,
        }
    }

    /// True if the call overwrites its input before it is complete.
    pub(crate) fn overwrites_input(&self, job: &MpiJob, call: &CollectiveCall) -> bool {
        call.send == job.abi.in_place
            && matches!(call.collective, MpiCollective::Reduce | MpiCollective::AllReduce)
            && matches!(self.payload, CallPayload::Elements(MpiReduction { layout: ElementLayout::Plain, .. }))
    }
}

/// True if two vectors of `bytes` bytes overlap.
fn overlap(one: usize, other: usize, bytes: usize) -> bool {
    one.abs_diff(other) < bytes
}

/// The operation of Pleach that does a call.
pub(crate) enum OffloadedOperation {
    Barrier,
    Broadcast,
    Reduce(MpiReduction),
    AllReduce(MpiReduction),
    ReduceScatter(MpiReduction),
    Scan(MpiReduction),
    ExclusiveScan(MpiReduction),
    Blocks(BlockCollective, BlockLengths),
}

impl OffloadedOperation {
    pub(crate) fn of(call: &CollectiveCall, plan: &CallPlan, position: RankAndSize) -> Self {
        match (call.collective, plan.payload) {
            (_, CallPayload::ElementBlocks(fold, blocks)) => {
                Self::Blocks(BlockCollective::ReduceScatter(fold.kind), blocks.lengths(call, position))
            }
            (_, CallPayload::Blocks(blocks)) => Self::Blocks(copy_of(call), blocks.lengths(call, position)),
            (MpiCollective::Reduce, CallPayload::Elements(fold)) => Self::Reduce(fold),
            (MpiCollective::AllReduce, CallPayload::Elements(fold)) => Self::AllReduce(fold),
            (MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => Self::ReduceScatter(fold),
            (MpiCollective::Scan, CallPayload::Elements(fold)) => Self::Scan(fold),
            (MpiCollective::ExclusiveScan, CallPayload::Elements(fold)) => Self::ExclusiveScan(fold),
            (_, CallPayload::Bytes { .. }) => Self::Broadcast,
            _ => Self::Barrier,
        }
    }

    /// Starts the operation of a call.
    pub(crate) fn start(
        call: &CollectiveCall,
        plan: &CallPlan,
        (communicator, position): (&Communicator, RankAndSize),
        bytes: Vec<u8>,
    ) -> Result<pleach::OwnedRequest, pleach::Error> {
        match Self::of(call, plan, position) {
            Self::Barrier => communicator.start_owned_barrier(),
            Self::Broadcast => communicator.start_owned_broadcast(bytes, call.root as u32),
            Self::Reduce(fold) => communicator.start_owned_reduce(bytes, fold.kind, call.root as u32),
            Self::AllReduce(fold) => communicator.start_owned_all_reduce(bytes, fold.kind),
            Self::ReduceScatter(fold) => communicator.start_owned_reduce_scatter(bytes, fold.kind),
            Self::Scan(fold) => communicator.start_owned_scan(bytes, fold.kind),
            Self::ExclusiveScan(fold) => communicator.start_owned_exclusive_scan(bytes, fold.kind),
            Self::Blocks(collective, lengths) => communicator.start_owned_blocks(collective, lengths, bytes),
        }
    }
}

/// The operation of Pleach that copies the blocks of a call.
fn copy_of(call: &CollectiveCall) -> BlockCollective {
    let root = call.root as u32;
    match call.collective {
        MpiCollective::Gather => BlockCollective::Gather { root },
        MpiCollective::Scatter => BlockCollective::Scatter { root },
        MpiCollective::AllToAll => BlockCollective::AllToAll,
        _ => BlockCollective::AllGather,
    }
}

/// This rank's input, in a buffer that later holds the result.
pub(crate) fn prepare(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    position: RankAndSize,
) -> Result<Vec<u8>, pleach::Error> {
    let from = if call.send == job.abi.in_place { call.receive } else { call.send } as *const u8;
    let ranks = position.size as usize;
    // SAFETY: the user guarantees that many elements there.
    let load = |fold: MpiReduction, count: usize| unsafe { fold.load(from, count) };
    match (call.collective, plan.payload) {
        (_, CallPayload::Nothing) => Ok(Vec::new()),
        (_, CallPayload::Bytes { .. }) if call.root as u32 != position.rank => Ok(vec![0; plan.bytes]),
        (_, CallPayload::Bytes { is_contiguous: true }) => {
            // SAFETY: the user guarantees that many bytes there.
            Ok(unsafe { slice(call.receive as *const u8, plan.bytes) }.to_vec())
        }
        (_, CallPayload::Bytes { .. }) => packing::pack(job, UserElements::of_broadcast(call), plan.bytes),
        (_, CallPayload::Blocks(_)) => {
            let mut bytes = Vec::with_capacity(plan.input_bytes(call, position));
            block_plan::load_into(job, call, position, &mut bytes).map(|()| bytes)
        }
        (MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => Ok(load(fold, plan.count * ranks)),
        (_, CallPayload::Elements(fold) | CallPayload::ElementBlocks(fold, _)) => Ok(load(fold, plan.count)),
    }
}

/// Copies the result to the user's buffer.
pub(crate) fn finish(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    position: RankAndSize,
    bytes: &[u8],
) -> Result<(), pleach::Error> {
    if plan.bytes == 0 {
        return Ok(());
    }
    let to = call.receive as *mut u8;
    let is_root = call.root as u32 == position.rank;
    match (call.collective, plan.payload) {
        (_, CallPayload::Nothing) => {}
        (_, CallPayload::Bytes { .. }) if is_root => {}
        // SAFETY: the user guarantees room for that many bytes there.
        (_, CallPayload::Bytes { is_contiguous: true }) => unsafe {
            bytes.as_ptr().copy_to_nonoverlapping(to, bytes.len())
        },
        (_, CallPayload::Bytes { .. }) => packing::unpack(job, UserElements::of_broadcast(call), bytes)?,
        (_, CallPayload::Blocks(_)) => block_plan::store(job, call, position, bytes)?,
        (MpiCollective::Reduce, _) if !is_root => {}
        // The first rank has no predecessors: its buffer stays as it is.
        (MpiCollective::ExclusiveScan, _) if position.rank == 0 => {}
        _ if bytes.is_empty() => {}
        // SAFETY: the user guarantees room for that many elements there.
        (_, CallPayload::Elements(fold) | CallPayload::ElementBlocks(fold, _)) => unsafe { fold.store(bytes, to) },
    }
    Ok(())
}

/// This rank's input in the format of the native MPI, for the replay log; false if it cannot be packed.
pub(crate) fn input_of(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    position: RankAndSize,
    into: &mut LoggedInput,
) -> bool {
    let LoggedInput { bytes, counts } = into;
    let from = if call.send == job.abi.in_place { call.receive } else { call.send } as *const u8;
    let (fold, count) = match (call.collective, plan.payload) {
        (_, CallPayload::Nothing) => return true,
        // The bytes of other ranks than the root do not matter.
        (MpiCollective::Broadcast, _) if call.root as u32 != position.rank => {
            bytes.resize(plan.bytes, 0);
            return true;
        }
        (_, CallPayload::Bytes { is_contiguous: true }) => {
            // SAFETY: the user guarantees that many bytes there.
            bytes.extend_from_slice(unsafe { slice(call.receive as *const u8, plan.bytes) });
            return true;
        }
        (_, CallPayload::Bytes { .. }) => {
            return prepare(job, call, plan, position).map(|packed| *bytes = packed).is_ok();
        }
        (_, CallPayload::Blocks(blocks)) => {
            let blocks = (0..if call.collective.has_counts() { position.size } else { 1 })
                .map(|rank| blocks.length(call, rank) as i32);
            counts.extend(blocks);
            return block_plan::load_into(job, call, position, bytes).is_ok();
        }
        (_, CallPayload::ElementBlocks(fold, blocks)) => {
            counts.extend((0..position.size).map(|rank| (blocks.length(call, rank) / fold.stride()) as i32));
            (fold, plan.count)
        }
        (MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => (fold, plan.count * position.size as usize),
        (_, CallPayload::Elements(fold)) => (fold, plan.count),
    };
    // SAFETY: the user guarantees that many elements there.
    unsafe { fold.load_into(bytes, from, count) };
    true
}
